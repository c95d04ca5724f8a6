/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files line*.c only: a cursor over bytes, and the pieces that may stand in front of a text.  A take
 * function moves the cursor behind what it found and returns true, or leaves everything as it was. */
#ifndef BL_TRIAGE_LINE_PARTS_H
#define BL_TRIAGE_LINE_PARTS_H

#include <string.h>

#include "triage/line.h"

typedef struct bl_cursor {
    const char *at, *end;
} bl_cursor;

static inline bool bl_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool bl_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline bool bl_is_alnum(char c) { return bl_is_digit(c) || bl_is_letter(c); }

static inline bool bl_is_one_of(char c, const char *set) { return c != '\0' && strchr(set, c) != NULL; }

/* The next byte, 0 at the end. */
static inline char bl_peek(const bl_cursor *c) { return c->at < c->end ? *c->at : '\0'; }

static inline bool bl_take_char(bl_cursor *c, char wanted)
{
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static inline bool bl_take_word(bl_cursor *c, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* Any number of blanks and tabs; how many. */
static inline int64_t bl_take_blanks(bl_cursor *c)
{
    const char *from = c->at;
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
    return c->at - from;
}

/* From `least` to `most` digits (at most 18), all that stand there: a longer run is none. */
static inline bool bl_take_digits(bl_cursor *c, int least, int most, int64_t *value)
{
    const char *at = c->at;
    int64_t sum = 0;
    int n = 0;
    for (; at < c->end && bl_is_digit(*at); at++, n++) {
        if (n == most)
            return false;
        sum = sum * 10 + (*at - '0');
    }
    if (n < least)
        return false;
    *value = sum;
    c->at = at;
    return true;
}

/* 'I', 'W', 'E', 'F' or 'D' for a word of levels as loggers write them, in capitals; else 0. */
char bl_line_take_level(bl_cursor *c);

/* What stood in front so far decides what may follow. */
typedef struct bl_front {
    const bl_line_style *style;
    bl_line *line;
    bool has_global_label; /* rank by [rankN], which a local label does not replace */
    bool has_syslog_stamp, has_stamp;
} bl_front;

/* line_wrapped.c: the message of a record that holds a line (JSON), with carriage returns for its line feeds, in
 * `scratch` (n_raw bytes); what stands beside it goes into the line.  False: the line is no such record. */
bool bl_line_unwrap(const bl_line_style *style, const char *raw, int64_t n_raw, char *scratch, bl_line *line,
                    int64_t *n_text);

/* line_time.c: a time stamp with its brackets and what parts it from the text. */
bool bl_line_take_time(bl_front *front, bl_cursor *c);
/* line_label.c: a label of the rank; a host, program, facility or container. */
bool bl_line_take_label(bl_front *front, bl_cursor *c);
bool bl_line_take_origin(bl_front *front, bl_cursor *c);
/* "[Rank 3]" near the beginning of the text, -1. */
int bl_line_said_rank(const char *text, int64_t n_text);
/* "3: " or "[3] ". */
bool bl_line_take_number_colon(bl_cursor *c, int64_t *rank);
bool bl_line_take_number_bracket(bl_cursor *c, int64_t *rank);

#endif
