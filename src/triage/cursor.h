/* SPDX-License-Identifier: Apache-2.0 */
/* Small steps over bytes of a line, for parsers by hand.  A step that does not fit moves nothing and gives false; none
 * reads behind the end, and a number that does not fit its range does not fit. */
#ifndef BL_TRIAGE_CURSOR_H
#define BL_TRIAGE_CURSOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct bl_cursor {
    const char *at, *end;
} bl_cursor;

static inline int64_t bl_cursor_left(const bl_cursor *c) { return c->end - c->at; }

static inline bool bl_byte_is_digit(char byte) { return byte >= '0' && byte <= '9'; }
static inline bool bl_byte_is_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }
static inline bool bl_byte_is_word(char byte)
{
    return bl_byte_is_digit(byte) || bl_byte_is_letter(byte) || byte == '_';
}

static inline int bl_byte_hex(char byte)
{
    if (bl_byte_is_digit(byte))
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

/* Whether the rest begins with the literal. */
static inline bool bl_cursor_sees(const bl_cursor *c, const char *literal)
{
    if (literal[0] != '\0' && (c->at >= c->end || *c->at != literal[0]))
        return false; /* nearly always */
    size_t n = strlen(literal);
    return (size_t)(c->end - c->at) >= n && memcmp(c->at, literal, n) == 0;
}

static inline bool bl_cursor_take(bl_cursor *c, const char *literal)
{
    if (!bl_cursor_sees(c, literal))
        return false;
    c->at += strlen(literal);
    return true;
}

static inline void bl_cursor_skip_blanks(bl_cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
}

/* Decimal digits, at least one, of a number from 0 to `most`. */
static inline bool bl_cursor_decimal(bl_cursor *c, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = c->at;
    for (; at < c->end && bl_byte_is_digit(*at); at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) || __builtin_add_overflow(value, digit, &value) ||
            value > most)
            return false;
    }
    if (at == c->at)
        return false;
    c->at = at;
    *out = value;
    return true;
}

/* The same into a signed number. */
static inline bool bl_cursor_count(bl_cursor *c, int64_t most, int64_t *out)
{
    uint64_t value;
    if (!bl_cursor_decimal(c, (uint64_t)most, &value))
        return false;
    *out = (int64_t)value;
    return true;
}

static inline bool bl_cursor_small(bl_cursor *c, int most, int *out)
{
    uint64_t value;
    if (!bl_cursor_decimal(c, (uint64_t)most, &value))
        return false;
    *out = (int)value;
    return true;
}

/* Hex digits, no fewer than `least` and no more than `most` of them. */
static inline bool bl_cursor_hex(bl_cursor *c, int least, int most, uint64_t *out)
{
    uint64_t value = 0;
    int n = 0;
    const char *at = c->at;
    for (; at < c->end && bl_byte_hex(*at) >= 0; at++, n++) {
        if (n == most || value >> 60 != 0)
            return false;
        value = value << 4 | (uint64_t)bl_byte_hex(*at);
    }
    if (n < least)
        return false;
    c->at = at;
    *out = value;
    return true;
}

/* "0x" and up to 16 hex digits. */
static inline bool bl_cursor_0x(bl_cursor *c, uint64_t *out)
{
    bl_cursor try = *c;
    if (!bl_cursor_take(&try, "0x") || !bl_cursor_hex(&try, 1, 16, out))
        return false;
    *c = try;
    return true;
}

/* Where the literal is in the rest, NULL when it is not there. */
static inline const char *bl_cursor_find(const bl_cursor *c, const char *literal)
{
    size_t n = strlen(literal);
    for (const char *at = c->at; (size_t)(c->end - at) >= n; at++) {
        at = memchr(at, literal[0], (size_t)(c->end - at) - n + 1);
        if (at == NULL)
            return NULL;
        if (memcmp(at, literal, n) == 0)
            return at;
    }
    return NULL;
}

/* Moves behind the next occurrence of the literal. */
static inline bool bl_cursor_pass(bl_cursor *c, const char *literal)
{
    const char *found = bl_cursor_find(c, literal);
    if (found == NULL)
        return false;
    c->at = found + strlen(literal);
    return true;
}

#endif
