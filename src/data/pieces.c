/* SPDX-License-Identifier: Apache-2.0 */
#include "data/pieces.h"

#include <utf8proc.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"

belay_code bl_data_text_check(const char *bytes, int64_t n_bytes, const char *what, bl_error *error)
{
    for (int64_t i = 0; i < n_bytes;) {
        int length = bl_utf8_length(bytes + i, n_bytes - i);
        if (bytes[i] == '\0')
            return bl_error_set(error, BELAY_DATA_TEXT, "byte %lld of %s is NUL", (long long)i + 1, what);
        if (length == 0)
            return bl_error_set(error, BELAY_DATA_TEXT, "byte %lld of %s is not UTF-8 (0x%02X)", (long long)i + 1, what,
                                (unsigned char)bytes[i]);
        i += length;
    }
    return BELAY_OK;
}

static belay_code out_of_memory(bl_error *error, int64_t n_bytes)
{
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to cut a text of %lld bytes into tokens",
                        (long long)n_bytes);
}

belay_code bl_data_pieces_set(bl_data_pieces *pieces, belay_tokens kind, bool keep_case, const char *text,
                              int64_t n_bytes, bl_error *error)
{
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE | UTF8PROC_IGNORE;
    if (!keep_case)
        options |= UTF8PROC_CASEFOLD;
    pieces->kind = kind;
    pieces->at = pieces->n_points = 0;
    TRY(bl_data_text_check(text, n_bytes, "the text", error));
    utf8proc_ssize_t n = 0;
    do {
        if (!bl_grow(&pieces->points, &pieces->points_capacity, bl_max_i64(n, n_bytes), sizeof *pieces->points))
            return out_of_memory(error, n_bytes);
        n = utf8proc_decompose((const utf8proc_uint8_t *)text, n_bytes, pieces->points, pieces->points_capacity,
                               options);
    } while (n > pieces->points_capacity);
    int64_t room;
    if (n >= 0)
        n = utf8proc_normalize_utf32(pieces->points, n, options);
    if (n < 0)
        return bl_error_set(error, BELAY_DATA_TEXT, "the text cannot be normalised: %s", utf8proc_errmsg(n));
    if (!bl_checked_mul(n, 4, &room) || !bl_grow(&pieces->bytes, &pieces->bytes_capacity, room, 1))
        return out_of_memory(error, n_bytes);
    pieces->n_points = n;
    return BELAY_OK;
}

static int64_t cluster_end(const bl_data_pieces *pieces, int64_t start)
{
    utf8proc_int32_t state = 0;
    int64_t end = start + 1;
    while (end < pieces->n_points &&
           !utf8proc_grapheme_break_stateful(pieces->points[end - 1], pieces->points[end], &state))
        end++;
    return end;
}

typedef enum point_class { POINT_GAP, POINT_MARK, POINT_WORD, POINT_CONNECTOR, POINT_ALONE } point_class;

static point_class class_of(int32_t point)
{
    switch (utf8proc_category(point)) {
    case UTF8PROC_CATEGORY_LO:
        return utf8proc_charwidth(point) == 2 ? POINT_ALONE : POINT_WORD;
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return POINT_WORD;
    case UTF8PROC_CATEGORY_PC:
        return POINT_CONNECTOR;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return POINT_MARK;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return POINT_GAP;
    default:
        return POINT_ALONE;
    }
}

static bool is_apostrophe(int32_t point) { return point == 0x27 || point == 0x2019; }

static int64_t skip_marks(const bl_data_pieces *pieces, int64_t at)
{
    while (at < pieces->n_points && class_of(pieces->points[at]) == POINT_MARK)
        at++;
    return at;
}

/* The end of a word that starts at `start`: words, connectors and marks, and an apostrophe with a word on both sides.
 */
static int64_t word_end(const bl_data_pieces *pieces, int64_t start)
{
    int64_t end = start;
    bool after_word = false; /* the last point that is no mark is a letter or a number */
    while (end < pieces->n_points) {
        point_class class = class_of(pieces->points[end]);
        bool joins = after_word && is_apostrophe(pieces->points[end]) && end + 1 < pieces->n_points &&
                     class_of(pieces->points[end + 1]) == POINT_WORD;
        if (class != POINT_WORD && class != POINT_CONNECTOR && class != POINT_MARK && !joins)
            break;
        if (class != POINT_MARK)
            after_word = class == POINT_WORD;
        end++;
    }
    return end;
}

static int64_t token_end(const bl_data_pieces *pieces, int64_t start)
{
    point_class class = class_of(pieces->points[start]);
    if (class == POINT_WORD || class == POINT_CONNECTOR)
        return word_end(pieces, start);
    return skip_marks(pieces, start + 1);
}

bool bl_data_pieces_next(bl_data_pieces *pieces, const char **bytes, int64_t *n_bytes)
{
    if (pieces->kind == BELAY_TOKENS_WORD)
        while (pieces->at < pieces->n_points && class_of(pieces->points[pieces->at]) == POINT_GAP)
            pieces->at++;
    if (pieces->at >= pieces->n_points)
        return false;
    int64_t end = pieces->kind == BELAY_TOKENS_WORD ? token_end(pieces, pieces->at) : cluster_end(pieces, pieces->at);
    int64_t n = 0;
    for (; pieces->at < end; pieces->at++)
        n += utf8proc_encode_char(pieces->points[pieces->at], (utf8proc_uint8_t *)pieces->bytes + n);
    *bytes = pieces->bytes;
    *n_bytes = n;
    return true;
}

void bl_data_pieces_fini(bl_data_pieces *pieces)
{
    bl_free(pieces->points);
    bl_free(pieces->bytes);
    *pieces = (bl_data_pieces){0};
}
