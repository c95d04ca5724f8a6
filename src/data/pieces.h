/* SPDX-License-Identifier: Apache-2.0 */
/* Text cut into tokens.  The rules, on Unicode data of utf8proc:
 *
 *   normal form   NFKC with default-ignorable code points dropped and, unless keep_case is set, full case folding
 *                 (the toNFKC_Casefold of the Unicode standard, section 3.13): "ﬁ" is "fi", "Straße" is "strasse"
 *   char          each extended grapheme cluster (UAX 29), white space too
 *   word          from left to right over the code points:
 *                 - letters (L*), numbers (N*) and connectors (Pc) next to each other are one word;
 *                 - a wide letter (Lo of display width 2: ideographs, kana, hangul) is a word of its own;
 *                 - an apostrophe (U+0027, U+2019) between two of a word's letters or numbers belongs to it;
 *                 - marks (M*) belong to the token before them;
 *                 - any other punctuation or symbol (P*, S*) is a token of its own;
 *                 - separators (Z*) and controls (C*) end a token and are none themselves.
 *
 * The text must be UTF-8 without NUL: anything else is data.text, never passed on. */
#ifndef BL_DATA_PIECES_H
#define BL_DATA_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include <belay/data.h>

#include "base/error.h"

/* Scratch for one thread, used again and again.  Zero-initialised is valid. */
typedef struct bl_data_pieces {
    int32_t *points; /* the normalised text */
    int64_t n_points, points_capacity;
    char *bytes; /* room for all of it as UTF-8 */
    int64_t bytes_capacity;
    int64_t at;
    belay_tokens kind;
} bl_data_pieces;

/* Proves that a text is UTF-8 without NUL; `what` names it in the headline ("the text", "the label"). */
belay_code bl_data_text_check(const char *bytes, int64_t n_bytes, const char *what, bl_error *error);

/* Starts on a text, which may go away afterwards: data.text or mem.exhausted. */
belay_code bl_data_pieces_set(bl_data_pieces *pieces, belay_tokens kind, bool keep_case, const char *text,
                              int64_t n_bytes, bl_error *error);

/* The next token (valid until the next call); false at the end. */
bool bl_data_pieces_next(bl_data_pieces *pieces, const char **bytes, int64_t *n_bytes);

void bl_data_pieces_fini(bl_data_pieces *pieces);

#endif
