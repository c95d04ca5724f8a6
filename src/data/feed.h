/* SPDX-License-Identifier: Apache-2.0 */
/* Host batches in order, filled ahead by workers.
 *
 * The batches of an epoch are numbered by position.  Workers take positions in order and fill the slot position %
 * n_slots; the one reader takes them in the same order, so what it sees does not depend on the number of workers.  A
 * slot is refilled only after the reader has gone past it:
 *
 *      given        next_to_fill         given + n_slots
 *        |  ready or    |    free            |  not yet
 *        v  filling     v                    v
 *   -----[=============][--------------------].......
 *
 * Workers stop at the end of an epoch; they know datasets and cursors, never a device or a context.  Everything that
 * both sides touch is guarded by one mutex, but a slot's contents: those belong to its worker while it fills, then to
 * the reader. */
#ifndef BL_DATA_FEED_H
#define BL_DATA_FEED_H

#include <pthread.h>

#include "base/text.h"
#include "data/dataset.h"

typedef struct bl_data_batch {
    int64_t epoch, position, n_samples;
    int64_t n_global, first; /* samples of the global batch, and the place of this part in it */
    int64_t *ids;            /* [n_samples, seq] */
    int64_t *labels;         /* [n_samples] */
    int64_t *indices;        /* in the dataset */
    int64_t *lines;          /* 0: none */
    int64_t *files;          /* offset of the name in `names`, -1: none */
    bl_text names;           /* each ended by a NUL */
    belay_code
        code; /* of a sample refused: data.worker, place.worker or mem.exhausted; then `error` and the origins hold */
    int64_t bad_row; /* the one refused */
    uintptr_t site;  /* of the call of Belay for which, place.worker; 0: none */
    bl_error error;
    bool is_ready;
} bl_data_batch;

typedef struct bl_data_feed_options {
    int64_t batch, rank, ranks, n_workers, prefetch; /* batch: of one rank; ranks: 0 for 1 */
    uint64_t seed;
    bool shuffle, drop_last;
} bl_data_feed_options;

typedef struct bl_data_feed bl_data_feed;

/* All options within their ranges (checked by the loader).  The dataset outlives the feed. */
BL_MUST_USE belay_code bl_data_feed_open(const belay_dataset *dataset, const bl_data_feed_options *options,
                                         bl_data_feed **out, bl_error *error);
/* Ends at any moment; waits for gets that run. */
void bl_data_feed_close(bl_data_feed *feed);

int64_t bl_data_feed_n_batches(const bl_data_feed *feed);
int64_t bl_data_feed_n_workers(const bl_data_feed *feed);

/* Starts an epoch at a position; only at the start and when next has given NULL. */
void bl_data_feed_begin(bl_data_feed *feed, int64_t epoch, int64_t position);

/* The next batch, the reader's until the next call; NULL at the end of the epoch. */
const bl_data_batch *bl_data_feed_next(bl_data_feed *feed);

/* Batch `position` of the epoch begun, filled in the calling thread; NULL when there is none.  The reader's until the
 * next call of this function. */
const bl_data_batch *bl_data_feed_get(bl_data_feed *feed, int64_t position);

#endif
