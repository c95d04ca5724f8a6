/* SPDX-License-Identifier: Apache-2.0 */
#include "data/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/pieces.h"

belay_code bl_data_rows_open(bl_data_rows *rows, const char *path, const char *text, const char *label, bl_error *error)
{
    *rows = (bl_data_rows){.columns = {text != NULL ? text : "text", label != NULL ? label : "label"}};
    TRY(bl_table_open(path, &(bl_table_options){.columns = rows->columns, .n_columns = 2}, &rows->table, error));
    return bl_table_check_rows(rows->table, error);
}

belay_code bl_data_rows_from(bl_data_rows *rows, const char *const *texts, const char *const *labels, int64_t n_texts,
                             bl_error *error)
{
    *rows = (bl_data_rows){.texts = texts, .labels = labels, .n_texts = n_texts};
    if (texts == NULL || labels == NULL || n_texts <= 0)
        return bl_error_set(error, BELAY_DATA_EMPTY, "no texts or no labels were given (%" PRId64 " texts)", n_texts);
    return BELAY_OK;
}

void bl_data_rows_close(bl_data_rows *rows)
{
    bl_table_close(rows->table);
    *rows = (bl_data_rows){0};
}

void bl_data_rows_rewind(bl_data_rows *rows)
{
    rows->at = 0;
    if (rows->table != NULL)
        bl_table_rewind(rows->table);
}

belay_code bl_data_rows_blame(const bl_data_rows *rows, const bl_data_row *row, bl_error *error)
{
    char old[sizeof error->what];
    if (error == NULL)
        return BELAY_OK;
    snprintf(old, sizeof old, "%s", error->what);
    if (rows->table != NULL)
        snprintf(error->what, sizeof error->what, "%s:%" PRId64 ": %.256s", bl_table_path(rows->table), row->line, old);
    else
        snprintf(error->what, sizeof error->what, "texts[%" PRId64 "]: %.256s", row->offset, old);
    return error->code;
}

static belay_code check_label(const bl_data_rows *rows, const bl_data_row *row, bl_error *error)
{
    if (row->n_label > 0)
        return BELAY_OK;
    bl_error_set(error, BELAY_DATA_ROW, "the label is empty");
    return bl_data_rows_blame(rows, row, error);
}

static belay_code next_of_memory(bl_data_rows *rows, bl_data_row *row, bool *has_row, bl_error *error)
{
    *has_row = rows->at < rows->n_texts;
    if (!*has_row)
        return BELAY_OK;
    *row = (bl_data_row){.text = rows->texts[rows->at], .label = rows->labels[rows->at], .offset = rows->at};
    rows->at++;
    if (row->text == NULL || row->label == NULL) {
        bl_error_set(error, BELAY_DATA_ROW, "the %s is NULL", row->text == NULL ? "text" : "label");
        return bl_data_rows_blame(rows, row, error);
    }
    row->n_text = (int64_t)strlen(row->text);
    row->n_label = (int64_t)strlen(row->label);
    if (bl_data_text_check(row->label, row->n_label, "the label", error) != BELAY_OK)
        return bl_data_rows_blame(rows, row, error);
    return check_label(rows, row, error);
}

belay_code bl_data_rows_next(bl_data_rows *rows, bl_data_row *row, bool *has_row, bl_error *error)
{
    bl_table_row raw;
    if (rows->table == NULL)
        return next_of_memory(rows, row, has_row, error);
    TRY(bl_table_next(rows->table, &raw, has_row, error));
    if (!*has_row)
        return BELAY_OK;
    *row = (bl_data_row){.text = raw.fields[0].bytes,
                         .n_text = raw.fields[0].n_bytes,
                         .label = raw.fields[1].bytes,
                         .n_label = raw.fields[1].n_bytes,
                         .line = raw.line,
                         .offset = raw.offset};
    return check_label(rows, row, error);
}
