/* SPDX-License-Identifier: Apache-2.0 */
/* A growable text.  Zero-initialised is a valid empty one.  When memory ends, the text keeps what it has and remembers
 * `failed`, so that a chain of appends is checked once, at its end. */
#ifndef BL_BASE_TEXT_H
#define BL_BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"

typedef struct bl_text {
    char *bytes; /* NUL-ended; NULL while nothing was appended */
    int64_t n_bytes;
    int64_t capacity;
    bool failed;
} bl_text;

void bl_text_add(bl_text *text, const char *string);
void bl_text_add_bytes(bl_text *text, const char *bytes, int64_t n_bytes);
void bl_text_format(bl_text *text, const char *format, ...) BL_PRINTF(2, 3);

/* A number for printf: a NaN without its sign, which says nothing to a reader. */
static inline double bl_text_real(double value) { return value != value ? __builtin_nan("") : value; }

/* Appends foreign bytes for a terminal: control characters as \xNN, invalid UTF-8 bytes as \xNN, at most `limit` input
 * bytes, then "...". */
void bl_text_add_escaped(bl_text *text, const char *bytes, int64_t n_bytes, int64_t limit);

/* The text, never NULL. */
const char *bl_text_get(const bl_text *text);
void bl_text_clear(bl_text *text);
void bl_text_fini(bl_text *text);

/* Length in bytes of the valid UTF-8 character at `bytes`, 0 when there is none (RFC 3629: no surrogates, no overlong
 * forms, at most U+10FFFF). */
int bl_utf8_length(const char *bytes, int64_t n_bytes);

#endif
