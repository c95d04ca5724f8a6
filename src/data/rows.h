/* SPDX-License-Identifier: Apache-2.0 */
/* A source of labelled texts that can be walked more than once: a table file, or arrays of a caller.  Errors name the
 * row: "train.tsv:17: ..." or "text 17: ...". */
#ifndef BL_DATA_ROWS_H
#define BL_DATA_ROWS_H

#include "base/error.h"
#include "file/table.h"

typedef struct bl_data_row {
    const char *text, *label; /* not NUL-ended; valid until the next row */
    int64_t n_text, n_label;
    int64_t line, offset; /* line from 1, or 0 and the number of the text */
} bl_data_row;

typedef struct bl_data_rows {
    bl_table *table;        /* or NULL, then: texts and labels */
    const char *columns[2]; /* of the table; the opener's */
    const char *const *texts, *const *labels;
    int64_t n_texts, at;
} bl_data_rows;

/* Opens a file whose columns `text` and `label` (NULL: of these names) are asked for; a file without rows is
 * data.empty. */
BL_MUST_USE belay_code bl_data_rows_open(bl_data_rows *rows, const char *path, const char *text, const char *label,
                                         bl_error *error);
/* Arrays of the caller, who keeps them until close. */
BL_MUST_USE belay_code bl_data_rows_from(bl_data_rows *rows, const char *const *texts, const char *const *labels,
                                         int64_t n_texts, bl_error *error);
void bl_data_rows_close(bl_data_rows *rows);

void bl_data_rows_rewind(bl_data_rows *rows);

/* The next row.  An empty label is data.row, an empty text is fine (all padding). */
BL_MUST_USE belay_code bl_data_rows_next(bl_data_rows *rows, bl_data_row *row, bool *has_row, bl_error *error);

/* Puts the row's place before an error's headline, and returns its code. */
belay_code bl_data_rows_blame(const bl_data_rows *rows, const bl_data_row *row, bl_error *error);

#endif
