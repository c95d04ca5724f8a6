/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of a group. */
#ifndef BL_DIST_CALLS_H
#define BL_DIST_CALLS_H

#include "dist/group.h"

/* Whether it is a group: nothing is said of nil, life.stale of one that was closed. */
bool bl_group_ask(const belay_group *group);
/* Why bl_group_use was false. */
belay_code bl_group_code(const belay_group *group);
/* The others hear it. */
void bl_group_give_up(belay_group *group, const char *why);

/* In place of a call's word: this rank refused it, for the reason `code` that it was told.  Returns that when all ranks
 * refused alike, and the group goes on; else comm.mismatch, as bl_group_exchange. */
belay_code bl_group_refuse(belay_group *group, bl_call_kind kind, belay_code code);

/* What a rank at that place says when it takes the device `name`, asked for as `device`; and whether what all say can
 * work: place.shared with the table. */
void bl_bind_say(const bl_transport_place *place, const char *device, const char *name, bl_word *word);
belay_code bl_bind_check(const bl_word *all, int size, bl_report_fault *fault);

/* The end of a context: the ranks close together while faults still count. */
void bl_groups_end(belay_context *context);
void bl_group_destroy(void *object);

#endif
