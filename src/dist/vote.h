/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks differ: what most say is the reference, whoever says it.  The first rank is not assumed right. */
#ifndef BL_DIST_VOTE_H
#define BL_DIST_VOTE_H

#include <stdbool.h>
#include <stdint.h>

#include <belay/dist.h>

#include "base/text.h"

typedef struct bl_vote {
    int reference; /* the lowest rank that says what most say */
    int odd;       /* the lowest that says something else; -1: all agree */
    int n_odd;
    bool is_tie; /* as many say one as the other */
} bl_vote;

/* Whether ranks a and b say the same in `of`. */
typedef bool (*bl_vote_same)(const void *of, int a, int b);

bl_vote bl_vote_by(const void *of, int size, bl_vote_same same);
/* "rank 2", "ranks 0, 1, 3": those that say what `as` says. */
void bl_vote_name_by(const void *of, int size, int as, bl_vote_same same, bl_text *out);

/* The same of a number of each rank. */
bl_vote bl_vote_of(const uint64_t *value, int size);
void bl_vote_name(const uint64_t *value, int size, int as, bl_text *out);

/* How a difference is told: "BEFORE rank 2 BETWEEN ranks 0, 1", then what each side has. */
typedef struct bl_vote_words {
    const char *before, *between; /* "--lr differs: ", " and " */
    const char *odd, *reference;  /* "0.1", "0.01" */
    const char *advice;           /* NULL: that of comm.mismatch */
} bl_vote_words;

/* Ranks differ in `value`: breaks the group by comm.mismatch, which is returned, as bl_group_break does (any thread).  Those
 * that differ are to blame unless as many say one as the other. */
belay_code bl_vote_break(belay_group *group, const uint64_t *value, bl_vote vote, const bl_vote_words *words);

#endif
