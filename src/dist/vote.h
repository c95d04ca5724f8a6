/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks differ: the value that most have is the reference, whoever has it.  The first rank is not assumed right. */
#ifndef BL_DIST_VOTE_H
#define BL_DIST_VOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

typedef struct bl_vote {
    int reference; /* the lowest rank with the value that most have */
    int odd;       /* the lowest rank with another; -1: all agree */
    int n_odd;
    bool is_tie; /* another value has as many */
} bl_vote;

bl_vote bl_vote_of(const uint64_t *value, int size);

/* "rank 2", "ranks 0, 1 and 3": those whose value is, or is not, that of `as`. */
void bl_vote_name(const uint64_t *value, int size, int as, bool same, bl_text *out);

#endif
