/* SPDX-License-Identifier: Apache-2.0 */
/* The samples of a text dataset, made from a source of rows in at most three walks over it:
 *
 *   1  scan     places and labels of all rows; which rows are the validation part
 *   2  count    tokens of the training part -> vocabulary (within walk 1 when nothing is split off)
 *   3  encode   ids of all rows
 *
 * Memory: 20 bytes a row (line, place, class), one map of 8 bytes a row when a part is split off, and the ids
 * themselves as u8, u16 or u32, whichever holds n_tokens, without padding and cut at seq.  When the ids of a file would
 * pass `keep_bytes`, they are dropped, and each get reads its row from the file again (the file must then not change: a
 * row that no longer has its label is file.read).  Texts are never kept. */
#ifndef BL_DATA_STORE_H
#define BL_DATA_STORE_H

#include "base/error.h"
#include "data/rows.h"
#include "data/tokenizer.h"

#define BL_DATA_KEEP_BYTES (INT64_C(1) << 30) /* the default of keep_bytes */

typedef struct bl_data_plan {
    int64_t min_count, max_tokens, seq, keep_bytes;
    double valid_split;
    uint64_t seed;
    bl_data_vocabulary *vocabulary;    /* kind and case are set */
    bl_data_strings *labels;           /* classes in their order */
    bool make_vocabulary, make_labels; /* they are empty: fill them from the training part */
} bl_data_plan;

typedef struct bl_data_store {
    int64_t n_rows, seq;
    int64_t *lines;
    int32_t *classes;
    int64_t *ends;    /* of row i's ids; NULL when they were dropped */
    int64_t *offsets; /* in the file, when the ids were dropped */
    void *ids;
    int64_t id_bytes;       /* 1, 2 or 4 */
    int64_t *train, *valid; /* rows of the parts, NULL when nothing is split off */
    int64_t n_train, n_valid;
    char *path, *text, *label;            /* of the file and its columns, NULL for texts from memory */
    const bl_data_vocabulary *vocabulary; /* the plan's, whose owner outlives the store */
    const bl_data_strings *labels;
} bl_data_store;

/* Fills a zeroed store; after an error it needs fini all the same.  Codes: those of the table reader, data.single
 * (training on one class or one token), data.empty, data.label, data.text, data.row, file.read, mem.exhausted. */
BL_MUST_USE belay_code bl_data_store_fill(bl_data_store *store, bl_data_rows *rows, const bl_data_plan *plan,
                                          bl_error *error);
void bl_data_store_fini(bl_data_store *store);

/* What one thread needs to get rows. */
typedef struct bl_data_cursor {
    bl_data_rows rows; /* open only when the ids were dropped */
    bl_data_pieces pieces;
} bl_data_cursor;

BL_MUST_USE belay_code bl_data_cursor_init(bl_data_cursor *cursor, const bl_data_store *store, bl_error *error);
void bl_data_cursor_fini(bl_data_cursor *cursor);

/* Ids of row `row` (within n_rows) into `ids`, which has room for seq. */
BL_MUST_USE belay_code bl_data_store_get(const bl_data_store *store, bl_data_cursor *cursor, int64_t row, int64_t *ids,
                                         int64_t *n_ids, bl_error *error);

#endif
