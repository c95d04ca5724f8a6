/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer as the rooms above see it. */
#ifndef BL_DIST_REDUCER_H
#define BL_DIST_REDUCER_H

#include "dist/group.h"

/* What the ranks agreed on at a window's end. */
typedef struct bl_verdict {
    uint32_t flags; /* BL_FLAG_..., of any rank */
    int n_faulted;  /* ranks with BL_FLAG_FAULT */
    int first_faulted;
    double figure[3]; /* sums over the ranks, in their order */
} bl_verdict;

/* The end of a window, for whoever steps by hand: reduces what this rank had no backward for (with zeros), tells the others
 * `flags` and figures (NULL: zeros) and hears theirs.  The step or the discard that follows does not ask again.  When any
 * rank flags a fault, the window's gate is closed on all.  An error ends the run: it was told. */
BL_MUST_USE belay_code bl_reducer_agree(belay_reducer *reducer, uint32_t flags, const double figure[3],
                                        bl_verdict *verdict);

belay_group *bl_reducer_group(const belay_reducer *reducer);
const belay_module *bl_reducer_module(const belay_reducer *reducer);

#endif
