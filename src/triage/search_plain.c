/* SPDX-License-Identifier: Apache-2.0 */
/* Wu and Manber's search (A fast algorithm for multi-pattern searching, 1994): a window as long as the shortest literal
 * slides over the text; its last two bytes tell how far it may move before any literal can begin in it. */
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "triage/search.h"

enum { n_pairs = 1 << 16 };

struct bl_search_plain {
    bl_literals literals;
    int64_t window;
    uint8_t shift[n_pairs];
    uint16_t first[n_pairs]; /* of the literals whose window ends in that pair: 1 + number, then `next`; 0: none */
    uint16_t *next;
};

static unsigned pair_at(const char *bytes) { return (unsigned char)bytes[0] | (unsigned)(unsigned char)bytes[1] << 8; }

static void add(bl_search_plain *search, int number)
{
    const char *bytes = search->literals.list[number];
    for (int64_t i = 0; i + 2 <= search->window; i++) {
        uint8_t *shift = &search->shift[pair_at(bytes + i)];
        int64_t left = search->window - 2 - i;
        if (left < *shift)
            *shift = (uint8_t)left;
    }
    uint16_t *first = &search->first[pair_at(bytes + search->window - 2)];
    search->next[number] = *first;
    *first = (uint16_t)(number + 1);
}

bl_search_plain *bl_search_plain_new(const bl_literals *literals)
{
    bl_search_plain *search = bl_alloc(1, sizeof *search);
    if (search == NULL)
        return NULL;
    search->literals = *literals;
    search->window = bl_min_i64(literals->shortest, 200);
    search->next = bl_alloc(literals->n, sizeof *search->next);
    if (search->next == NULL) {
        bl_search_plain_free(search);
        return NULL;
    }
    memset(search->shift, (int)search->window - 1, sizeof search->shift);
    for (int i = 0; i < literals->n; i++)
        add(search, i);
    return search;
}

void bl_search_plain_free(bl_search_plain *search)
{
    if (search == NULL)
        return;
    bl_free(search->next);
    bl_free(search);
}

static void try_literals(const bl_search_plain *search, const char *bytes, int64_t start, int64_t n_bytes, int number,
                         bl_search_hit hit, void *state)
{
    for (; number != 0; number = search->next[number - 1]) {
        int64_t n = search->literals.n_bytes[number - 1];
        if (n <= n_bytes - start && memcmp(bytes + start, search->literals.list[number - 1], (size_t)n) == 0)
            hit(state, number - 1, start + n);
    }
}

void bl_search_plain_run(const bl_search_plain *search, const char *bytes, int64_t n_bytes, bl_search_hit hit,
                         void *state)
{
    int64_t last = search->window - 2; /* place in the window of its last pair */
    for (int64_t at = last; at + 2 <= n_bytes;) {
        unsigned pair = pair_at(bytes + at);
        if (search->shift[pair] != 0) {
            at += search->shift[pair];
            continue;
        }
        try_literals(search, bytes, at - last, n_bytes, search->first[pair], hit, state);
        at++;
    }
}

uint64_t bl_search_key(const bl_literals *literals)
{
    uint64_t key = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (int i = 0; i < literals->n; i++)
        for (int64_t j = 0; j <= literals->n_bytes[i]; j++) /* with the NUL, which parts two literals */
            key = (key ^ (unsigned char)literals->list[i][j]) * UINT64_C(0x100000001b3);
    return key;
}
