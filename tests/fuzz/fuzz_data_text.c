/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a text: refused, or cut into tokens that are UTF-8 and not empty, and encoded into known ids. */
#include "fuzz_support.h"

#include "base/memory.h"
#include "data/tokenizer.h"

enum { seq = 16 };

static void run(belay_tokens kind, bool keep_case, const char *text, int64_t n_bytes)
{
    bl_data_strings counts = {0};
    bl_data_pieces pieces = {0};
    bl_data_vocabulary v = {.kind = kind, .keep_case = keep_case};
    int64_t ids[seq], n_ids = 0, n_tokens = 0;
    bl_error error;
    if (bl_data_count_tokens(&counts, &pieces, kind, keep_case, text, n_bytes, &error) == BELAY_OK) {
        for (int64_t i = 0; i < counts.n; i++) {
            int64_t n;
            const char *token = bl_data_strings_get(&counts, i, &n);
            fuzz_require(n > 0 && bl_data_text_check(token, n, "the token", &error) == BELAY_OK, "tokens are text");
            n_tokens += counts.counts[i];
        }
        fuzz_require(bl_data_vocabulary_fill(&v, &counts, 1, 100, &error) == BELAY_OK, "tokens make a vocabulary");
        fuzz_require(bl_data_encode(&v, &pieces, text, n_bytes, ids, seq, &n_ids, &error) == BELAY_OK,
                     "what was counted can be encoded");
        fuzz_require(n_ids == (n_tokens < seq ? n_tokens : seq), "each token has an id");
        for (int64_t i = 0; i < n_ids; i++)
            fuzz_require(ids[i] >= 1 && ids[i] < v.tokens.n + 2, "ids are known");
    }
    bl_data_strings_fini(&counts);
    bl_data_pieces_fini(&pieces);
    bl_data_vocabulary_fini(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int way = 0; way < 4; way++)
        run(way & 1 ? BELAY_TOKENS_WORD : BELAY_TOKENS_CHAR, way & 2, (const char *)data, (int64_t)size);
    return 0;
}
