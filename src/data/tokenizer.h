/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary: which token has which id, and how a text is cut to look them up (data/pieces.h).
 *
 *   id 0  padding       id 1  unknown       id 2 ...  tokens, the most frequent first, equal counts in byte order
 *
 * Once made it never changes, so threads may encode with it at the same time, each with pieces of its own. */
#ifndef BL_DATA_TOKENIZER_H
#define BL_DATA_TOKENIZER_H

#include <belay/data.h>

#include "base/error.h"
#include "data/pieces.h"
#include "data/strings.h"

enum { BL_DATA_ID_PADDING = 0, BL_DATA_ID_UNKNOWN = 1, BL_DATA_FIRST_TOKEN = 2 };

#define BL_DATA_MAX_TOKENS INT64_C(1000000) /* the default of max_tokens */

typedef struct bl_data_vocabulary {
    belay_tokens kind;
    bool keep_case;
    bl_data_strings tokens; /* token i has id i + 2 */
} bl_data_vocabulary;

/* Adds the tokens of a text to counts. */
BL_MUST_USE belay_code bl_data_count_tokens(bl_data_strings *counts, bl_data_pieces *pieces, belay_tokens kind,
                                            bool keep_case, const char *text, int64_t n_bytes, bl_error *error);

/* Fills the tokens of a vocabulary whose kind and case are set with those counted at least min_count times, at most
 * max_tokens of them.  After an error it holds some of them: fini. */
BL_MUST_USE belay_code bl_data_vocabulary_fill(bl_data_vocabulary *vocabulary, const bl_data_strings *counts,
                                               int64_t min_count, int64_t max_tokens, bl_error *error);
void bl_data_vocabulary_fini(bl_data_vocabulary *vocabulary);

/* Ids of a text: writes at most `seq`, *n_ids of them; what comes after is cut off, padding is the caller's. */
BL_MUST_USE belay_code bl_data_encode(const bl_data_vocabulary *vocabulary, bl_data_pieces *pieces, const char *text,
                                      int64_t n_bytes, int64_t *ids, int64_t seq, int64_t *n_ids, bl_error *error);

#endif
