/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of .tsv, .csv and .jsonl files, one at a time, in memory bounded by the longest row allowed.
 *
 *   .tsv    a header line; tabs separate; nothing is quoted, a backslash is a backslash
 *   .csv    RFC 4180: a header line; fields may stand in quotes and then hold commas, doubled quotes and ends of line
 *   .jsonl  one JSON object a line; a field that is a number or a boolean is handed out as its JSON text
 *
 * For all three: lines end in \n or \r\n, a byte order mark is skipped, empty lines are skipped (and counted), every
 * byte must be UTF-8 and not NUL (data.text).  Each error names file:line, from 1, of the place it speaks of.
 *
 * Codes: file.open file.read file.limit file.format, conf.value (kind of file), data.column data.row data.text
 * data.empty, mem.exhausted. */
#ifndef BL_FILE_TABLE_H
#define BL_FILE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum bl_table_kind { BL_TABLE_BY_NAME, BL_TABLE_TSV, BL_TABLE_CSV, BL_TABLE_JSONL } bl_table_kind;

#define BL_TABLE_ROW_LIMIT    INT64_C(16777216) /* bytes of a row, its end not counted */
#define BL_TABLE_MAX_COLUMNS  65536             /* of a header */
#define BL_TABLE_MAX_SELECTED 64                /* of a reader */

typedef struct bl_table_options {
    bl_table_kind kind;         /* 0: by the extension of the path, case ignored */
    const char *const *columns; /* names of the columns to hand out; copied */
    int n_columns;
    int64_t row_limit; /* 0: BL_TABLE_ROW_LIMIT */
} bl_table_options;

/* Bytes of a field: UTF-8 without NUL, not NUL-ended. */
typedef struct bl_table_field {
    const char *bytes;
    int64_t n_bytes;
} bl_table_field;

typedef struct bl_table_row {
    int64_t line;                 /* where the row starts, from 1 */
    int64_t offset;               /* of its first byte in the file, for bl_table_seek */
    const bl_table_field *fields; /* one a column asked for, in that order; valid until the next call on the table */
} bl_table_row;

typedef struct bl_table bl_table;

/* Opens, reads the header (.jsonl: the first object) and finds the columns; one that is missing is data.column, which
 * names those present.  A file without any row opens: see bl_table_check_rows. */
BL_MUST_USE belay_code bl_table_open(const char *path, const bl_table_options *options, bl_table **out,
                                     bl_error *error);
void bl_table_close(bl_table *table);

/* The next row, or *has_row = false at the end of the file.  After an error the table stands where it stood: only
 * seek and close make sense. */
BL_MUST_USE belay_code bl_table_next(bl_table *table, bl_table_row *row, bool *has_row, bl_error *error);

/* The next call of bl_table_next gives the row that starts at `offset`, on `line`, both as a row told them. */
void bl_table_seek(bl_table *table, int64_t offset, int64_t line);

/* Back to the first row. */
void bl_table_rewind(bl_table *table);

/* data.empty when the file has no row: it says whether the file is empty or has a header only.  May be asked at any
 * time after the open. */
BL_MUST_USE belay_code bl_table_check_rows(const bl_table *table, bl_error *error);

bl_table_kind bl_table_kind_get(const bl_table *table);
const char *bl_table_path(const bl_table *table);

/* The kind that a path's extension names, or conf.value, naming the three. */
BL_MUST_USE belay_code bl_table_kind_from(const char *path, bl_table_kind *kind, bl_error *error);

#endif
