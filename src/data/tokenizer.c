/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/words.h"

belay_code bl_data_count_tokens(bl_data_strings *counts, bl_data_pieces *pieces, belay_tokens kind, bool keep_case,
                                const char *text, int64_t n_bytes, bl_error *error)
{
    const char *token;
    int64_t n;
    TRY(bl_data_pieces_set(pieces, kind, keep_case, text, n_bytes, error));
    while (bl_data_pieces_next(pieces, &token, &n)) {
        int64_t number = bl_data_strings_add(counts, token, n);
        if (number < 0)
            return bl_data_no_memory(error, "the tokens of the texts", counts->n);
        counts->counts[number]++;
    }
    return BELAY_OK;
}

typedef struct candidate {
    const char *bytes;
    int64_t n_bytes, count;
} candidate;

static int by_count_then_bytes(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return bl_data_strings_compare(x->bytes, x->n_bytes, y->bytes, y->n_bytes);
}

belay_code bl_data_vocabulary_fill(bl_data_vocabulary *vocabulary, const bl_data_strings *counts, int64_t min_count,
                                   int64_t max_tokens, bl_error *error)
{
    candidate *found = bl_alloc(counts->n, sizeof *found);
    int64_t n_found = 0;
    if (found == NULL)
        return bl_data_no_memory(error, "the vocabulary", counts->n);
    for (int64_t i = 0; i < counts->n; i++)
        if (counts->counts[i] >= min_count) {
            candidate *next = &found[n_found++];
            next->bytes = bl_data_strings_get(counts, i, &next->n_bytes);
            next->count = counts->counts[i];
        }
    qsort(found, (size_t)n_found, sizeof *found, by_count_then_bytes);
    bool fits = true;
    for (int64_t i = 0; i < bl_min_i64(n_found, max_tokens) && fits; i++)
        fits = bl_data_strings_add(&vocabulary->tokens, found[i].bytes, found[i].n_bytes) >= 0;
    bl_free(found);
    return fits ? BELAY_OK : bl_data_no_memory(error, "the vocabulary", counts->n);
}

void bl_data_vocabulary_fini(bl_data_vocabulary *vocabulary) { bl_data_strings_fini(&vocabulary->tokens); }

belay_code bl_data_encode(const bl_data_vocabulary *vocabulary, bl_data_pieces *pieces, const char *text,
                          int64_t n_bytes, int64_t *ids, int64_t seq, int64_t *n_ids, bl_error *error)
{
    const char *token;
    int64_t n, filled = 0;
    TRY(bl_data_pieces_set(pieces, vocabulary->kind, vocabulary->keep_case, text, n_bytes, error));
    while (filled < seq && bl_data_pieces_next(pieces, &token, &n)) {
        int64_t number = bl_data_strings_find(&vocabulary->tokens, token, n);
        ids[filled++] = number >= 0 ? number + BL_DATA_FIRST_TOKEN : BL_DATA_ID_UNKNOWN;
    }
    *n_ids = filled;
    return BELAY_OK;
}
