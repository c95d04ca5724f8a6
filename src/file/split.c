/* SPDX-License-Identifier: Apache-2.0 */
#include "file/split.h"

#include <string.h>

#include "base/text.h"

bool bl_split_line_end(bl_split_scan *scan, const char *bytes, int64_t n_bytes)
{
    int64_t from = scan->n_scanned;
    const char *newline = n_bytes > from ? memchr(bytes + from, '\n', (size_t)(n_bytes - from)) : NULL;
    scan->n_scanned = newline != NULL ? newline - bytes : n_bytes;
    return newline != NULL;
}

/* Inside quotes only a quote matters; ends of line are counted on the way. */
static void scan_quoted(bl_split_scan *scan, const char *bytes, int64_t n_bytes)
{
    const char *at = bytes + scan->n_scanned;
    const char *quote = memchr(at, '"', (size_t)(n_bytes - scan->n_scanned));
    const char *end = quote != NULL ? quote : bytes + n_bytes;
    while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        scan->n_lines++;
        at++;
    }
    scan->n_scanned = end - bytes;
    if (quote == NULL)
        return;
    scan->state = BL_SPLIT_QUOTE_SEEN;
    scan->n_scanned++;
}

static void scan_start(bl_split_scan *scan, char c)
{
    if (c == '"') {
        scan->state = BL_SPLIT_QUOTED;
        scan->quote_line = scan->n_lines;
    } else if (c != ',') {
        scan->state = BL_SPLIT_PLAIN;
    }
}

static void scan_plain(bl_split_scan *scan, char c)
{
    if (c == ',')
        scan->state = BL_SPLIT_FIELD_START;
    else if (c == '"')
        scan->mistake = "a quote stands inside a field that does not start with one";
}

static void scan_behind_quote(bl_split_scan *scan, char c)
{
    if (c == '"' && scan->state == BL_SPLIT_QUOTE_SEEN)
        scan->state = BL_SPLIT_QUOTED;
    else if (c == ',' && scan->state == BL_SPLIT_QUOTE_SEEN)
        scan->state = BL_SPLIT_FIELD_START;
    else if (c == '\r' && scan->state == BL_SPLIT_QUOTE_SEEN)
        scan->state = BL_SPLIT_CR_SEEN;
    else
        scan->mistake = "text follows a closing quote";
}

bool bl_split_csv_end(bl_split_scan *scan, const char *bytes, int64_t n_bytes)
{
    while (scan->n_scanned < n_bytes) {
        if (scan->state == BL_SPLIT_QUOTED) {
            scan_quoted(scan, bytes, n_bytes);
            continue;
        }
        char c = bytes[scan->n_scanned];
        if (c == '\n')
            return true;
        if (scan->state == BL_SPLIT_FIELD_START)
            scan_start(scan, c);
        else if (scan->state == BL_SPLIT_PLAIN)
            scan_plain(scan, c);
        else
            scan_behind_quote(scan, c);
        if (scan->mistake != NULL)
            return true;
        scan->n_scanned++;
    }
    return false;
}

/* Length of the quoted field at `bytes`, quotes counted; the scan has proved that it closes. */
static int64_t quoted_length(const char *bytes, int64_t n_bytes)
{
    int64_t i = 1;
    while (i < n_bytes) {
        const char *quote = memchr(bytes + i, '"', (size_t)(n_bytes - i));
        if (quote == NULL)
            return n_bytes;
        i = quote - bytes + 1;
        if (i == n_bytes || bytes[i] != '"')
            return i;
        i++;
    }
    return n_bytes;
}

bool bl_split_next(bool is_csv, char *bytes, int64_t n_bytes, int64_t *at, char **field, int64_t *n_field)
{
    if (*at > n_bytes)
        return false;
    int64_t left = n_bytes - *at;
    *field = bytes + *at;
    if (is_csv && left > 0 && (*field)[0] == '"') {
        *n_field = quoted_length(*field, left);
    } else {
        const char *separator = left > 0 ? memchr(*field, is_csv ? ',' : '\t', (size_t)left) : NULL;
        *n_field = separator != NULL ? separator - *field : left;
    }
    *at += *n_field + 1;
    return true;
}

void bl_split_unquote(char **field, int64_t *n_field)
{
    if (*n_field < 2 || (*field)[0] != '"')
        return;
    char *bytes = *field + 1;
    int64_t n = *n_field - 2, kept = 0;
    for (int64_t i = 0; i < n; i++) {
        bytes[kept++] = bytes[i];
        if (bytes[i] == '"')
            i++;
    }
    *field = bytes;
    *n_field = kept;
}

/* Whether eight bytes are all ASCII and none is NUL. */
static bool is_plain_word(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    uint64_t high = UINT64_C(0x8080808080808080);
    return ((word | ((word - UINT64_C(0x0101010101010101)) & ~word)) & high) == 0;
}

int64_t bl_split_first_bad(const char *bytes, int64_t n_bytes)
{
    int64_t i = 0;
    while (i < n_bytes) {
        if (n_bytes - i >= 8 && is_plain_word(bytes + i)) {
            i += 8;
            continue;
        }
        int length = bl_utf8_length(bytes + i, n_bytes - i);
        if (length == 0 || bytes[i] == '\0')
            return i;
        i += length;
    }
    return n_bytes;
}
