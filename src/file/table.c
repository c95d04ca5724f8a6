/* SPDX-License-Identifier: Apache-2.0 */
#include "file/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/memory.h"
#include "file/json.h"
#include "file/reader.h"
#include "file/split.h"

enum { number_size = 32 };

struct bl_table {
    bl_file_stream *stream;
    bl_table_kind kind;
    int64_t row_limit;
    int64_t line; /* of the next byte not yet taken */
    int64_t first_offset, first_line;
    bool has_header, has_rows;
    int n_columns;
    int64_t n_header; /* fields of the header */
    char *columns[BL_TABLE_MAX_SELECTED];
    int64_t position[BL_TABLE_MAX_SELECTED]; /* of a column in the header */
    bl_table_field fields[BL_TABLE_MAX_SELECTED];
    json_t *object; /* .jsonl: the row whose texts were handed out */
    char numbers[BL_TABLE_MAX_SELECTED][number_size];
};

/* A row's bytes in the window, without its end. */
typedef struct record {
    char *bytes;
    int64_t n_bytes;
    int64_t line;
    int64_t offset;
} record;

bl_table_kind bl_table_kind_get(const bl_table *table) { return table->kind; }
const char *bl_table_path(const bl_table *table) { return bl_file_stream_path(table->stream); }

belay_code bl_table_kind_from(const char *path, bl_table_kind *kind, bl_error *error)
{
    static const struct {
        const char *extension;
        bl_table_kind kind;
    } rows[] = {{".tsv", BL_TABLE_TSV}, {".csv", BL_TABLE_CSV}, {".jsonl", BL_TABLE_JSONL}};
    const char *extension = bl_file_extension(path);
    for (int i = 0; i < BL_COUNT(rows); i++)
        if (strcasecmp(extension, rows[i].extension) == 0) {
            *kind = rows[i].kind;
            return BELAY_OK;
        }
    belay_code code =
        bl_error_set(error, BELAY_CONF_VALUE, "'%s' is no table: its name must end in .tsv, .csv or .jsonl", path);
    bl_error_advise(error, "Rename the file after what it holds, or convert it to one of the three.");
    return code;
}

/* ---- one row's bytes ------------------------------------------------------------------------------------------ */

static belay_code row_too_long(const bl_table *table, const bl_split_scan *scan, bl_error *error)
{
    belay_code code = bl_error_set(error, BELAY_FILE_LIMIT, "%s:%" PRId64 ": the row is longer than %" PRId64 " bytes",
                                   bl_table_path(table), table->line, table->row_limit);
    if (scan->state == BL_SPLIT_QUOTED)
        bl_error_fact(error, "a quote that opens on line %" PRId64 " is not closed before",
                      table->line + scan->quote_line);
    bl_error_advise(error, "Split the row, or check that the file is the table it should be.");
    return code;
}

static belay_code bad_quote(const bl_table *table, int64_t n_lines, const char *mistake, bl_error *error)
{
    belay_code code = bl_error_set(error, BELAY_FILE_FORMAT, "%s:%" PRId64 ": %s", bl_table_path(table),
                                   table->line + n_lines, mistake);
    bl_error_advise(error, "Put the whole field in quotes and double the quotes within it.");
    return code;
}

/* Brings one row into the window; `scan` tells where it ends.  *ended: by the end of the file. */
static belay_code find_end(bl_table *table, bl_split_scan *scan, bool *ended, bl_error *error)
{
    bool is_full = false;
    *ended = false;
    for (;;) {
        int64_t held;
        char *bytes = bl_file_stream_bytes(table->stream, &held);
        bool found =
            table->kind == BL_TABLE_CSV ? bl_split_csv_end(scan, bytes, held) : bl_split_line_end(scan, bytes, held);
        if (scan->mistake != NULL)
            return bad_quote(table, scan->n_lines, scan->mistake, error);
        if (found)
            return BELAY_OK;
        if (is_full)
            return row_too_long(table, scan, error);
        if (*ended && scan->state == BL_SPLIT_QUOTED)
            return bad_quote(table, scan->quote_line, "a quote opens here and is never closed", error);
        if (*ended)
            return BELAY_OK;
        TRY(bl_file_stream_more(table->stream, ended, &is_full, error));
    }
}

static bool is_blank(const bl_table *table, const record *row)
{
    if (table->kind != BL_TABLE_JSONL)
        return row->n_bytes == 0;
    for (int64_t i = 0; i < row->n_bytes; i++)
        if (row->bytes[i] != ' ' && row->bytes[i] != '\t' && row->bytes[i] != '\r')
            return false;
    return true;
}

static belay_code check_text(const bl_table *table, const record *row, bl_error *error)
{
    int64_t bad = bl_split_first_bad(row->bytes, row->n_bytes);
    if (bad == row->n_bytes)
        return BELAY_OK;
    int64_t line = row->line, line_start = 0;
    for (int64_t i = 0; i < bad; i++)
        if (row->bytes[i] == '\n') {
            line++;
            line_start = i + 1;
        }
    unsigned byte = (unsigned char)row->bytes[bad];
    belay_code code = bl_error_set(error, BELAY_DATA_TEXT, "%s:%" PRId64 ": byte %" PRId64 " of the line is 0x%02X, %s",
                                   bl_table_path(table), line, bad - line_start + 1, byte,
                                   byte == 0 ? "a NUL" : "which is not UTF-8");
    if (row->offset + bad == 0 && byte >= 0xFE)
        bl_error_advise(error, "This looks like UTF-16; save the file as UTF-8.");
    return code;
}

/* The next row that is not blank, taken off the window; its bytes stay until the next read. */
static belay_code next_record(bl_table *table, record *row, bool *has_row, bl_error *error)
{
    *has_row = false;
    for (bool ended = false; !ended;) {
        bl_split_scan scan = {0};
        TRY(find_end(table, &scan, &ended, error));
        int64_t held;
        *row = (record){.bytes = bl_file_stream_bytes(table->stream, &held),
                        .n_bytes = scan.n_scanned,
                        .line = table->line,
                        .offset = bl_file_stream_offset(table->stream)};
        if (row->n_bytes > 0 && row->bytes[row->n_bytes - 1] == '\r')
            row->n_bytes--;
        if (row->n_bytes > table->row_limit)
            return row_too_long(table, &scan, error);
        bool blank = is_blank(table, row);
        if (!blank)
            TRY(check_text(table, row, error));
        bl_file_stream_take(table->stream, scan.n_scanned + !ended);
        table->line += scan.n_lines + !ended;
        *has_row = !blank;
        if (!blank)
            return BELAY_OK;
    }
    return BELAY_OK;
}

/* ---- the header ----------------------------------------------------------------------------------------------- */

/* A list of names for an error, cut to fit. */
typedef struct name_list {
    char text[640];
    size_t used;
} name_list;

static void add_name(name_list *list, const char *name, int64_t n_bytes)
{
    char quoted[BL_FILE_QUOTE];
    size_t room = sizeof list->text - list->used;
    if (room < BL_FILE_QUOTE + 8) {
        if (room > 8 && list->used > 0 && list->text[list->used - 1] != '.')
            list->used += (size_t)snprintf(list->text + list->used, room, ", ...");
        return;
    }
    list->used += (size_t)snprintf(list->text + list->used, room, "%s'%s'", list->used > 0 ? ", " : "",
                                   bl_file_quote(name, n_bytes, quoted));
}

static belay_code no_column(const bl_table *table, int column, const name_list *present, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    const char *name = table->columns[column];
    belay_code code = bl_error_set(error, BELAY_DATA_COLUMN, "'%s' has no column '%s'", bl_table_path(table),
                                   bl_file_quote(name, (int64_t)strlen(name), quoted));
    bl_error_fact(error, "columns present: %s", present->used > 0 ? present->text : "none");
    return code;
}

static belay_code note_column(bl_table *table, const char *name, int64_t n_bytes, int64_t index, bl_error *error)
{
    for (int i = 0; i < table->n_columns; i++) {
        if ((int64_t)strlen(table->columns[i]) != n_bytes || memcmp(table->columns[i], name, (size_t)n_bytes) != 0)
            continue;
        if (table->position[i] >= 0) {
            char quoted[BL_FILE_QUOTE];
            belay_code code = bl_error_set(error, BELAY_DATA_COLUMN, "'%s' has two columns '%s'", bl_table_path(table),
                                           bl_file_quote(name, n_bytes, quoted));
            bl_error_fact(error, "they are columns %" PRId64 " and %" PRId64, table->position[i] + 1, index + 1);
            bl_error_advise(error, "Rename one of them.");
            return code;
        }
        table->position[i] = index;
    }
    return BELAY_OK;
}

static belay_code read_header(bl_table *table, bl_error *error)
{
    record row;
    TRY(next_record(table, &row, &table->has_header, error));
    if (!table->has_header)
        return BELAY_OK;
    name_list present = {.used = 0};
    char *field;
    int64_t n_field, at = 0, n = 0;
    for (; bl_split_next(table->kind == BL_TABLE_CSV, row.bytes, row.n_bytes, &at, &field, &n_field); n++) {
        if (n >= BL_TABLE_MAX_COLUMNS)
            return bl_error_set(error, BELAY_FILE_LIMIT, "%s:%" PRId64 ": the header has more than %d columns",
                                bl_table_path(table), row.line, BL_TABLE_MAX_COLUMNS);
        if (table->kind == BL_TABLE_CSV)
            bl_split_unquote(&field, &n_field);
        add_name(&present, field, n_field);
        TRY(note_column(table, field, n_field, n, error));
    }
    table->n_header = n;
    for (int i = 0; i < table->n_columns; i++)
        if (table->position[i] < 0)
            return no_column(table, i, &present, error);
    return BELAY_OK;
}

/* ---- .tsv and .csv -------------------------------------------------------------------------------------------- */

static belay_code ragged(const bl_table *table, const record *row, int64_t n, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    belay_code code =
        bl_error_set(error, BELAY_DATA_ROW, "%s:%" PRId64 ": the row has %" PRId64 " field%s, the header has %" PRId64,
                     bl_table_path(table), row->line, n, n == 1 ? "" : "s", table->n_header);
    bl_error_fact(error, "the row begins: %s", bl_file_quote(row->bytes, row->n_bytes, quoted));
    return code;
}

/* A column asked for twice is unquoted once. */
static void unquote_fields(bl_table *table)
{
    for (int i = 0; i < table->n_columns; i++) {
        int first = 0;
        while (table->position[first] != table->position[i])
            first++;
        if (first < i) {
            table->fields[i] = table->fields[first];
            continue;
        }
        char *bytes = (char *)(uintptr_t)table->fields[i].bytes;
        bl_split_unquote(&bytes, &table->fields[i].n_bytes);
        table->fields[i].bytes = bytes;
    }
}

static belay_code split_fields(bl_table *table, const record *row, bl_error *error)
{
    bool is_csv = table->kind == BL_TABLE_CSV;
    char *field;
    int64_t n_field, at = 0, n = 0;
    for (; bl_split_next(is_csv, row->bytes, row->n_bytes, &at, &field, &n_field); n++)
        for (int i = 0; i < table->n_columns; i++)
            if (table->position[i] == n)
                table->fields[i] = (bl_table_field){.bytes = field, .n_bytes = n_field};
    if (n != table->n_header)
        return ragged(table, row, n, error);
    if (is_csv)
        unquote_fields(table);
    return BELAY_OK;
}

/* ---- .jsonl --------------------------------------------------------------------------------------------------- */

static const char *json_kind(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a text", [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a number",    [JSON_TRUE] = "true",      [JSON_FALSE] = "false",   [JSON_NULL] = "null"};
    return names[json_typeof(value)];
}

static void list_keys(json_t *object, name_list *list)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) { add_name(list, key, (int64_t)strlen(key)); }
}

static belay_code no_key(const bl_table *table, const record *row, int column, bl_error *error)
{
    name_list present = {.used = 0};
    list_keys(table->object, &present);
    if (!table->has_rows) /* the first row stands for the header */
        return no_column(table, column, &present, error);
    char quoted[BL_FILE_QUOTE];
    const char *name = table->columns[column];
    belay_code code = bl_error_set(error, BELAY_DATA_ROW, "%s:%" PRId64 ": the row has no '%s'", bl_table_path(table),
                                   row->line, bl_file_quote(name, (int64_t)strlen(name), quoted));
    bl_error_fact(error, "columns present: %s", present.used > 0 ? present.text : "none");
    return code;
}

static bool field_from_json(const json_t *value, char number[number_size], bl_table_field *field)
{
    if (json_is_string(value)) {
        *field = (bl_table_field){json_string_value(value), (int64_t)json_string_length(value)};
        return true;
    }
    int n;
    if (json_is_integer(value))
        n = snprintf(number, number_size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        n = snprintf(number, number_size, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        n = snprintf(number, number_size, "%s", json_is_true(value) ? "true" : "false");
    else
        return false;
    *field = (bl_table_field){number, n};
    return true;
}

static belay_code pick_values(bl_table *table, const record *row, bl_error *error)
{
    for (int i = 0; i < table->n_columns; i++) {
        const json_t *value = json_object_get(table->object, table->columns[i]);
        if (value == NULL)
            return no_key(table, row, i, error);
        if (field_from_json(value, table->numbers[i], &table->fields[i]))
            continue;
        char quoted[BL_FILE_QUOTE];
        return bl_error_set(error, BELAY_DATA_ROW, "%s:%" PRId64 ": '%s' is %s, wanted a text, a number or a boolean",
                            bl_table_path(table), row->line,
                            bl_file_quote(table->columns[i], (int64_t)strlen(table->columns[i]), quoted),
                            json_kind(value));
    }
    return BELAY_OK;
}

static belay_code parse_object(bl_table *table, const record *row, bl_error *error)
{
    TRY(bl_json_parse(row->bytes, row->n_bytes, bl_table_path(table), row->line, &table->object, error));
    if (!json_is_object(table->object))
        return bl_error_set(error, BELAY_DATA_ROW, "%s:%" PRId64 ": the row is %s, wanted an object",
                            bl_table_path(table), row->line, json_kind(table->object));
    return pick_values(table, row, error);
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

static void forget_object(bl_table *table)
{
    json_decref(table->object);
    table->object = NULL;
}

belay_code bl_table_next(bl_table *table, bl_table_row *row, bool *has_row, bl_error *error)
{
    record found;
    bool has_record;
    *has_row = false;
    forget_object(table);
    TRY(next_record(table, &found, &has_record, error));
    if (!has_record)
        return BELAY_OK;
    TRY(table->kind == BL_TABLE_JSONL ? parse_object(table, &found, error) : split_fields(table, &found, error));
    *row = (bl_table_row){.line = found.line, .offset = found.offset, .fields = table->fields};
    *has_row = true;
    return BELAY_OK;
}

void bl_table_seek(bl_table *table, int64_t offset, int64_t line)
{
    table->line = line;
    if (offset != bl_file_stream_offset(table->stream))
        bl_file_stream_seek(table->stream, offset);
}

void bl_table_rewind(bl_table *table) { bl_table_seek(table, table->first_offset, table->first_line); }

belay_code bl_table_check_rows(const bl_table *table, bl_error *error)
{
    if (table->has_rows)
        return BELAY_OK;
    return bl_error_set(error, BELAY_DATA_EMPTY, "'%s' %s", bl_table_path(table),
                        table->has_header ? "has a header and no rows" : "is empty");
}

static belay_code copy_options(bl_table *table, const char *path, const bl_table_options *options, bl_error *error)
{
    if (options->n_columns < 0 || options->n_columns > BL_TABLE_MAX_SELECTED)
        return bl_error_set(error, BELAY_CONF_VALUE, "%d columns were asked of '%s'; it can be 0 to %d",
                            options->n_columns, path, BL_TABLE_MAX_SELECTED);
    table->row_limit = options->row_limit > 0 ? options->row_limit : BL_TABLE_ROW_LIMIT;
    table->line = 1;
    table->kind = options->kind;
    for (; table->n_columns < options->n_columns; table->n_columns++) {
        table->position[table->n_columns] = -1;
        table->columns[table->n_columns] = bl_strdup(options->columns[table->n_columns]);
        if (table->columns[table->n_columns] == NULL)
            return bl_file_no_memory(error, "read", path);
    }
    return BELAY_OK;
}

static belay_code skip_byte_order_mark(bl_table *table, bl_error *error)
{
    bool ended = false, is_full = false;
    int64_t held;
    char *bytes = bl_file_stream_bytes(table->stream, &held);
    while (held < 3 && !ended && !is_full) {
        TRY(bl_file_stream_more(table->stream, &ended, &is_full, error));
        bytes = bl_file_stream_bytes(table->stream, &held);
    }
    if (held >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0)
        bl_file_stream_take(table->stream, 3);
    return BELAY_OK;
}

static belay_code start(bl_table *table, const char *path, const bl_table_options *options, bl_error *error)
{
    int64_t window;
    TRY(copy_options(table, path, options, error));
    if (!bl_checked_add(table->row_limit, 3, &window)) /* the row, its end, and one to see that it is too long */
        return bl_error_set(error, BELAY_CONF_VALUE, "a row limit of %" PRId64 " bytes is too large", table->row_limit);
    TRY(bl_file_stream_open(path, window, &table->stream, error));
    if (table->kind == BL_TABLE_BY_NAME)
        TRY(bl_table_kind_from(path, &table->kind, error));
    TRY(skip_byte_order_mark(table, error));
    if (table->kind != BL_TABLE_JSONL)
        TRY(read_header(table, error));
    table->first_offset = bl_file_stream_offset(table->stream);
    table->first_line = table->line;
    bl_table_row row;
    TRY(bl_table_next(table, &row, &table->has_rows, error));
    bl_table_rewind(table);
    return BELAY_OK;
}

belay_code bl_table_open(const char *path, const bl_table_options *options, bl_table **out, bl_error *error)
{
    *out = NULL;
    bl_table *table = bl_alloc(1, sizeof *table);
    if (table == NULL)
        return bl_file_no_memory(error, "read", path);
    belay_code code = start(table, path, options, error);
    if (code != BELAY_OK)
        bl_table_close(table);
    else
        *out = table;
    return code;
}

void bl_table_close(bl_table *table)
{
    if (table == NULL)
        return;
    forget_object(table);
    for (int i = 0; i < table->n_columns; i++)
        bl_free(table->columns[i]);
    bl_file_stream_close(table->stream);
    bl_free(table);
}
