/* SPDX-License-Identifier: Apache-2.0 */
/* What a dataset is inside: numbered samples behind four functions.  Only `get` runs in workers: it reads the dataset,
 * which nobody changes any more, and its thread's own cursor. */
#ifndef BL_DATA_DATASET_H
#define BL_DATA_DATASET_H

#include <belay/data.h>

#include "base/error.h"
#include "data/object.h"
#include "data/store.h"

typedef struct bl_data_kind {
    /* What a thread needs beside the dataset; both are NULL when it needs nothing. */
    /* open_cursor sets *cursor also when it fails, and close_cursor then follows. */
    belay_code (*open_cursor)(const belay_dataset *dataset, void **cursor, bl_error *error);
    void (*close_cursor)(void *cursor);
    /* Sets file, line, label, and ids or room; the sample comes with room zeroed and all else empty. */
    belay_code (*get)(const belay_dataset *dataset, void *cursor, int64_t index, belay_sample *sample, bl_error *error);
} bl_data_kind;

struct belay_dataset {
    bl_data_object object;
    const bl_data_kind *kind;
    int64_t n_samples, seq, n_tokens, n_classes;
    /* texts */
    belay_tokenizer *tokenizer; /* held on to, or NULL */
    belay_labels *labels;       /* likewise */
    belay_dataset *parent;      /* of a validation part: held on to, the store is its */
    bl_data_store store;        /* of a text dataset without parent */
    const int64_t *rows;        /* numbers in the store; NULL: all of them */
    /* ids in memory */
    int64_t *ids, *classes;
    /* callback */
    belay_sample_get callback;
    void *state;
};

extern const bl_data_kind bl_data_kind_texts, bl_data_kind_ids, bl_data_kind_callback;

/* A dataset with nothing in it yet; nil without memory, which is then the context's fault, and without context. */
belay_dataset *bl_data_dataset_new(belay_context *ctx, const bl_data_kind *kind);
belay_dataset *bl_data_dataset_nil(void);

/* size.overflow when the bytes of one sample, and what stands behind it in a worker, cannot be counted. */
BL_MUST_USE belay_code bl_data_seq_check(int64_t seq, bl_error *error);

/* Raises the error, closes the dataset: nil. */
belay_dataset *bl_data_dataset_fail(belay_dataset *dataset, const bl_error *error);

#endif
