/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's lines about kills for want of memory, where the logs are of a supervised run: its record tells which
 * processes were its own.  Another program's death is no cause of this one's. */
#ifndef BL_TRIAGE_KILLS_H
#define BL_TRIAGE_KILLS_H

#include "triage/events.h"

/* What the records of runs (run.json, rank3.end) among the logs say; all zero where there is none. */
typedef struct bl_kills bl_kills;

/* NULL without memory.  Free with bl_free. */
bl_kills *bl_kills_new(const bl_events *events);

/* Whether the line tells that a process of no run here was killed: its number is none of theirs, and either all numbers
 * are known or the name is not that of a program that they started. */
bool bl_kills_is_foreign(const bl_kills *kills, const char *line);

/* Such lines no longer count as failures.  Before the events are sealed. */
void bl_kills_take_back(bl_events *events);

#endif
