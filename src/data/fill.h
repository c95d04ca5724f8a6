/* SPDX-License-Identifier: Apache-2.0 */
/* One host batch filled from a dataset in the thread that calls.  What a dataset gives is checked here: the number of
 * ids, and that nothing was written behind the room for them. */
#ifndef BL_DATA_FILL_H
#define BL_DATA_FILL_H

#include "data/feed.h"

/* A thread's own: a dataset cursor and the room for one sample. */
typedef struct bl_data_hand {
    const belay_dataset *dataset;
    void *cursor;
    int64_t *room; /* seq ids, then the guard */
} bl_data_hand;

BL_MUST_USE belay_code bl_data_hand_init(bl_data_hand *hand, const belay_dataset *dataset, bl_error *error);
void bl_data_hand_fini(bl_data_hand *hand);

/* Room for up to n_samples of `seq` ids; after an error fini. */
BL_MUST_USE belay_code bl_data_batch_init(bl_data_batch *batch, int64_t n_samples, int64_t seq, bl_error *error);
void bl_data_batch_fini(bl_data_batch *batch);

/* Fills n_samples rows with the samples at places first, first + 1, ... of an order (NULL: as they are numbered).  The
 * first one that is refused sets the batch's code and error; the origins up to it are kept. */
void bl_data_batch_fill(bl_data_batch *batch, bl_data_hand *hand, const int64_t *order, int64_t first,
                        int64_t n_samples);

#endif
