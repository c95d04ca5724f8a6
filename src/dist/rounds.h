/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds: before the data of a reduction move, the ranks compare whose it is.
 *
 *   main thread    posts a word: averaging by this reducer, from that call       goes on with backward, posts buckets
 *   worker         hears the words of all: they fit, or comm.mismatch            then lets the buckets begin
 *
 * So a bucket never meets a message of another size, and a rank that averages what the others do not is named by the call
 * and before anything has moved.
 *
 * A rank that left reductions out, because its window has faulted or has nothing in it, goes by what the others do: where
 * they average and it does not, it takes part with what gradients it has, or zeros, and then says its own word again. */
#ifndef BL_DIST_ROUNDS_H
#define BL_DIST_ROUNDS_H

#include "dist/group.h"

/* Of one reducer. */
typedef struct bl_round {
    belay_group *group;
    int64_t reducer; /* its number in the group, as on all ranks */
    /* Takes part in a round that the ranks have agreed on, in which nothing arrives here. */
    void (*join)(void *state);
    /* Waits for what its device holds for, by the group's deadline; tells nothing. */
    void (*await)(void *state);
    void *state;
    char what[80];       /* "4.weight and 3 others": what is averaged, to tell reducers apart */
    bl_word *mine, *all; /* [1], [size] */
    bl_work work;
    struct bl_round *next;
} bl_round;

/* `group` to `what` are given, `reducer` apart.  False without memory: told. */
BL_MUST_USE bool bl_round_open(bl_round *round);
/* Waits for its word. */
void bl_round_close(bl_round *round);

/* The reducer's next round, which the backward at `site` begins.  Waits for nobody, unless this rank's window has faulted:
 * then for all that the others average before. */
void bl_round_begin(bl_round *round, uintptr_t site);
/* What a work of the round's data gets as `after`. */
static inline uint64_t bl_round_word(const bl_round *round) { return round->group->n_calls; }

/* Takes part in the round that the words are about; true when this rank then has to say its own word again. */
bool bl_rounds_follow(belay_group *group, const bl_word *all);

#endif
