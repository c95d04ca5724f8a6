/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a window's end: what must be the same in them, and what follows.  Any thread: nothing is touched but what is
 * given. */
#ifndef BL_DIST_SAME_H
#define BL_DIST_SAME_H

#include "dist/reducer.h"

enum { BL_MOST_CULPRITS = 8 };

/* Why words do not fit together, for bl_group_break. */
typedef struct bl_difference {
    bl_report_fault fault;
    int culprit[BL_MOST_CULPRITS], n_culprits;
} bl_difference;

/* Whether all ranks are at the same step with the same loss scale, weights and reductions; `value` has room for `size`. */
BL_MUST_USE bool bl_same_are(const bl_word *all, int size, uint64_t *value, bl_difference *difference);

bl_verdict bl_same_verdict(const bl_word *all, int size);
/* Why the window is not applied: that of the first rank with a fault; BELAY_OK when no rank has one. */
belay_code bl_same_code(const bl_word *all, int size);

#endif
