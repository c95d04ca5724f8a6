/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a window's end: what must be the same in them, and what follows.  Any thread. */
#ifndef BL_DIST_SAME_H
#define BL_DIST_SAME_H

#include "dist/reducer.h"

/* Whether all ranks are at the same step with the same loss scale, weights and reductions; if not, the group is broken, and the
 * main thread tells.  `value` has room for a number of each rank. */
BL_MUST_USE bool bl_same_are(belay_group *group, const bl_word *all, uint64_t *value);

bl_verdict bl_same_verdict(const bl_word *all, int size);
/* Why the window is not applied: that of the first rank with a fault; BELAY_OK when no rank has one. */
belay_code bl_same_code(const bl_word *all, int size);

#endif
