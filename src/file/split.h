/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of rows, without files: where a row ends, where its fields lie, whether its bytes are text.  For table.c;
 * all of it works on bytes at hand and allocates nothing. */
#ifndef BL_FILE_SPLIT_H
#define BL_FILE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

/* What the search for a row's end has seen so far.  Zero-initialised at the start of a row. */
typedef struct bl_split_scan {
    enum { BL_SPLIT_FIELD_START, BL_SPLIT_PLAIN, BL_SPLIT_QUOTED, BL_SPLIT_QUOTE_SEEN, BL_SPLIT_CR_SEEN } state;
    int64_t n_scanned;   /* bytes looked at */
    int64_t n_lines;     /* ends of line among them, the row's own end not counted */
    int64_t quote_line;  /* n_lines where the last quote opened */
    const char *mistake; /* NULL, or what is wrong with the byte at n_scanned */
} bl_split_scan;

/* Looks at bytes[n_scanned .. n_bytes); true when the row's "\n" is at bytes[n_scanned], or when there is a mistake.
 * Call again with more bytes otherwise. */
bool bl_split_line_end(bl_split_scan *scan, const char *bytes, int64_t n_bytes);
bool bl_split_csv_end(bl_split_scan *scan, const char *bytes, int64_t n_bytes);

/* The field that starts at *at, raw (in .csv with its quotes); moves *at behind its separator; false after the last. */
bool bl_split_next(bool is_csv, char *bytes, int64_t n_bytes, int64_t *at, char **field, int64_t *n_field);

/* Takes the quotes off a .csv field, in place; a field without quotes stays as it is. */
void bl_split_unquote(char **field, int64_t *n_field);

/* Index of the first byte that is NUL or not UTF-8, or n_bytes. */
int64_t bl_split_first_bad(const char *bytes, int64_t n_bytes);

#endif
