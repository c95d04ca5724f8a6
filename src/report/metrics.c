/* SPDX-License-Identifier: Apache-2.0 */
#include "report/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "file/reader.h"

enum { LINE = 4096 };

typedef enum kind { INT, REAL } kind;

static const struct {
    const char *name;
    kind kind;
    size_t offset;
} columns[] = {
#define X(kind, name) {#name, kind, offsetof(bl_report_metrics, name)},
    BL_REPORT_METRICS(X)
#undef X
};

void bl_report_metrics_head(bl_text *out)
{
    for (int i = 0; i < BL_COUNT(columns); i++) {
        bl_text_add(out, i > 0 ? "," : "");
        bl_text_add(out, columns[i].name);
    }
}

void bl_report_metrics_line(const bl_report_metrics *row, bl_text *out)
{
    for (int i = 0; i < BL_COUNT(columns); i++) {
        const void *at = (const char *)row + columns[i].offset;
        bl_text_add(out, i > 0 ? "," : "");
        if (columns[i].kind == INT)
            bl_text_format(out, "%" PRId64, *(const int64_t *)at);
        else if (!isnan(*(const double *)at))
            bl_text_format(out, "%.9g", *(const double *)at);
    }
}

/* One field up to `end`; false when it is no number. */
static bool read_field(const char *text, const char *end, int column, bl_report_metrics *row)
{
    char *stopped;
    void *at = (char *)row + columns[column].offset;
    errno = 0;
    if (columns[column].kind == INT) {
        *(int64_t *)at = strtoll(text, &stopped, 10);
        return stopped == end && end > text && errno == 0;
    }
    *(double *)at = (double)NAN;
    if (text == end)
        return true;
    *(double *)at = strtod(text, &stopped);
    return stopped == end;
}

static bool read_row(const char *line, int64_t n_bytes, bl_report_metrics *row)
{
    char copy[LINE];
    if (n_bytes >= LINE || memchr(line, '\0', (size_t)n_bytes) != NULL)
        return false;
    memcpy(copy, line, (size_t)n_bytes);
    copy[n_bytes] = '\0';
    const char *at = copy;
    for (int i = 0; i < BL_COUNT(columns); i++) {
        const char *end = at + strcspn(at, ",");
        bool is_last = i == BL_COUNT(columns) - 1;
        if (!read_field(at, end, i, row) || (*end == '\0') != is_last)
            return false;
        at = end + !is_last;
    }
    return true;
}

static belay_code check_head(const char *line, int64_t n_bytes, const char *path, bl_error *error)
{
    bl_text head = {0};
    bl_report_metrics_head(&head);
    bool is_whole = !head.failed;
    bool is_same = n_bytes == head.n_bytes && memcmp(line, bl_text_get(&head), (size_t)n_bytes) == 0;
    bl_text_fini(&head);
    if (!is_whole)
        return bl_file_no_memory(error, "read", path);
    if (is_same)
        return BELAY_OK;
    return bl_error_set(error, BELAY_FILE_FORMAT, "'%s' does not start with the columns of a metrics file", path);
}

static belay_code read_rows(bl_file_stream *stream, bl_report_metrics **rows, int64_t *n_rows, bl_error *error)
{
    const char *line, *path = bl_file_stream_path(stream);
    int64_t n_bytes, capacity = 0;
    for (int64_t number = 1;; number++) {
        TRY(bl_file_stream_line(stream, number, &line, &n_bytes, error));
        if (line == NULL)
            return BELAY_OK;
        if (number == 1) {
            TRY(check_head(line, n_bytes, path, error));
            continue;
        }
        if (!bl_grow(rows, &capacity, *n_rows + 1, sizeof **rows))
            return bl_file_no_memory(error, "read", path);
        if (!read_row(line, n_bytes, &(*rows)[*n_rows]))
            return bl_error_set(error, BELAY_FILE_FORMAT, "%s:%" PRId64 ": not a line of metrics", path, number);
        ++*n_rows;
    }
}

belay_code bl_report_metrics_read(const char *path, bl_report_metrics **rows, int64_t *n_rows, bl_error *error)
{
    bl_file_stream *stream;
    *rows = NULL;
    *n_rows = 0;
    TRY(bl_file_stream_open(path, LINE, &stream, error));
    belay_code code = read_rows(stream, rows, n_rows, error);
    bl_file_stream_close(stream);
    if (code == BELAY_OK)
        return BELAY_OK;
    bl_free(*rows);
    *rows = NULL;
    *n_rows = 0;
    return code;
}
