/* SPDX-License-Identifier: Apache-2.0 */
/* One target for the three kinds of table: rows come in order, each found again by its offset with the same fields, and
 * a tight row limit is kept. */
#ifndef TESTS_FUZZ_TABLE_TARGET_H
#define TESTS_FUZZ_TABLE_TARGET_H

#include "fuzz_support.h"

#include "base/text.h"
#include "file/table.h"

enum { fuzz_row_limit = 300, fuzz_rows_kept = 32 };

typedef struct fuzz_row {
    int64_t offset, line;
    bl_text fields;
} fuzz_row;

static inline void fuzz_flatten(const bl_table_row *row, bl_text *text)
{
    for (int i = 0; i < 2; i++) {
        fuzz_require(row->fields[i].n_bytes <= fuzz_row_limit, "a field is no longer than the row limit");
        fuzz_require(memchr(row->fields[i].bytes, 0, (size_t)row->fields[i].n_bytes) == NULL, "a field holds no NUL");
        bl_text_format(text, "%lld:", (long long)row->fields[i].n_bytes);
        bl_text_add_bytes(text, row->fields[i].bytes, row->fields[i].n_bytes);
    }
}

static inline void fuzz_find_again(bl_table *table, const fuzz_row *kept)
{
    bl_error error;
    bl_table_row row;
    bool has_row;
    bl_text fields = {0};
    bl_table_seek(table, kept->offset, kept->line);
    fuzz_require(bl_table_next(table, &row, &has_row, &error) == BELAY_OK && has_row, "a row is found by its offset");
    fuzz_require(row.offset == kept->offset && row.line == kept->line, "it is the same row");
    fuzz_flatten(&row, &fields);
    fuzz_require(strcmp(bl_text_get(&fields), bl_text_get(&kept->fields)) == 0, "it has the same fields");
    bl_text_fini(&fields);
}

static inline void fuzz_rows(bl_table *table, size_t size)
{
    fuzz_row kept[fuzz_rows_kept] = {{0}};
    int n_kept = 0;
    int64_t offset = -1, line = 0;
    bool has_row = true, any = false;
    for (;;) {
        bl_error error = {.code = BELAY_OK};
        bl_table_row row;
        belay_code code = bl_table_next(table, &row, &has_row, &error);
        fuzz_require(code == error.code, "code and error agree");
        if (code != BELAY_OK || !has_row)
            break;
        any = true;
        fuzz_require(row.offset > offset && row.offset < (int64_t)size && row.line > line, "rows come in order");
        offset = row.offset;
        line = row.line;
        if (n_kept < fuzz_rows_kept) {
            kept[n_kept] = (fuzz_row){.offset = offset, .line = line};
            fuzz_flatten(&row, &kept[n_kept++].fields);
        }
    }
    fuzz_require(any == (bl_table_check_rows(table, NULL) == BELAY_OK), "a table knows whether it has rows");
    for (int i = n_kept - 1; i >= 0; i--) {
        fuzz_find_again(table, &kept[i]);
        bl_text_fini(&kept[i].fields);
    }
}

static inline int fuzz_table(bl_table_kind kind, const uint8_t *data, size_t size)
{
    static const char *const columns[] = {"text", "label"};
    bl_table_options options = {.kind = kind, .columns = columns, .n_columns = 2, .row_limit = fuzz_row_limit};
    bl_error error = {.code = BELAY_OK};
    bl_table *table;
    belay_code code = bl_table_open(fuzz_path(data, size), &options, &table, &error);
    fuzz_require(code == error.code && (code == BELAY_OK) == (table != NULL), "code, error and table agree");
    if (code == BELAY_OK)
        fuzz_rows(table, size);
    bl_table_close(table);
    return 0;
}

#endif
