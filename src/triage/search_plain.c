/* SPDX-License-Identifier: Apache-2.0 */
/* Shift-or (Baeza-Yates and Gonnet, 1992) over pairs of bytes, as a filter: literals are dealt into eight buckets, and a
 * bucket wakes where each of the four pairs of a window is one that some literal of it has in that place.  A window is
 * the first five bytes of a literal, or all of a shorter one.  Where a bucket wakes, literals are compared. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "triage/search.h"

enum { n_pairs = 1 << 14, n_keys = 1 << 12, n_places = 4, n_buckets = 8, window = n_places + 1, key_bytes = 4 };

struct bl_search_plain {
    bl_literals literals;
    /* Byte `place` of a pair's word: a bit is 1 for a bucket whose literals do not have the pair there. */
    uint32_t words[n_pairs];
    /* 1 + number of the first literal whose window ends in these bytes, 0 for none; the next one. */
    uint16_t first[n_keys];
    uint16_t first_short[n_pairs]; /* of windows that are shorter than a key: by their last pair */
    uint16_t *next;
};

static unsigned pair_at(const char *bytes) { return (unsigned)(bytes[0] & 127) | (unsigned)(bytes[1] & 127) << 7; }

static unsigned key_at(const char *bytes)
{
    uint32_t key;
    memcpy(&key, bytes, sizeof key);
    return key * UINT32_C(2654435761) >> 20;
}

static int64_t window_of(const bl_search_plain *search, int number)
{
    return bl_min_i64(search->literals.n_bytes[number], window);
}

/* A window shorter than the others asks nothing of the places in front of it. */
static void add_to_bucket(bl_search_plain *search, int number, int bucket)
{
    uint32_t bit = UINT32_C(1) << bucket;
    int64_t n_own = window_of(search, number) - 1;
    for (int place = 0; place < n_places; place++) {
        uint32_t mask = ~(bit << 8 * place);
        if (place < n_places - n_own)
            for (int pair = 0; pair < n_pairs; pair++)
                search->words[pair] &= mask;
        else
            search->words[pair_at(search->literals.list[number] + place - (n_places - n_own))] &= mask;
    }
}

static void add_to_chain(bl_search_plain *search, int number)
{
    int64_t n = window_of(search, number);
    const char *end = search->literals.list[number] + n;
    uint16_t *first = n < key_bytes ? &search->first_short[pair_at(end - 2)] : &search->first[key_at(end - key_bytes)];
    search->next[number] = *first;
    *first = (uint16_t)(number + 1);
}

typedef struct entry {
    const char *bytes;
    int number;
} entry;

static int compare(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->bytes, ((const entry *)b)->bytes);
}

/* Short windows have a bucket of their own, which wakes often; the others are dealt in order, so that those of a bucket
 * begin alike. */
static bool deal(bl_search_plain *search)
{
    int n = search->literals.n, n_long = 0;
    entry *sorted = bl_alloc(n, sizeof *sorted);
    if (sorted == NULL)
        return false;
    for (int i = 0; i < n; i++) {
        if (window_of(search, i) < window)
            add_to_bucket(search, i, 0);
        else
            sorted[n_long++] = (entry){search->literals.list[i], i};
        add_to_chain(search, i);
    }
    qsort(sorted, (size_t)n_long, sizeof *sorted, compare);
    for (int i = 0; i < n_long; i++)
        add_to_bucket(search, sorted[i].number, 1 + i * (n_buckets - 1) / n_long);
    bl_free(sorted);
    return true;
}

bl_search_plain *bl_search_plain_new(const bl_literals *literals)
{
    bl_search_plain *search = bl_alloc(1, sizeof *search);
    if (search == NULL)
        return NULL;
    search->literals = *literals;
    memset(search->words, 0xff, sizeof search->words);
    search->next = bl_alloc(literals->n, sizeof *search->next);
    if (search->next == NULL || !deal(search)) {
        bl_search_plain_free(search);
        return NULL;
    }
    return search;
}

void bl_search_plain_free(bl_search_plain *search)
{
    if (search == NULL)
        return;
    bl_free(search->next);
    bl_free(search);
}

typedef struct text {
    const char *bytes;
    int64_t n_bytes;
    bl_search_hit hit;
    void *state;
} text;

/* The literals of a chain whose window ends in front of byte `end`. */
static void try_chain(const bl_search_plain *search, const text *t, int64_t end, unsigned first)
{
    for (unsigned i = first; i != 0; i = search->next[i - 1]) {
        int number = (int)i - 1;
        int64_t n = search->literals.n_bytes[number], start = end - window_of(search, number);
        if (start >= 0 && n <= t->n_bytes - start &&
            memcmp(t->bytes + start, search->literals.list[number], (size_t)n) == 0)
            t->hit(t->state, number, start + n);
    }
}

static void wake(const bl_search_plain *search, const text *t, int64_t end)
{
    try_chain(search, t, end, search->first_short[pair_at(t->bytes + end - 2)]);
    if (end >= key_bytes)
        try_chain(search, t, end, search->first[key_at(t->bytes + end - key_bytes)]);
}

void bl_search_plain_run(const bl_search_plain *search, const char *bytes, int64_t n_bytes, bl_search_hit hit,
                         void *state)
{
    text t = {bytes, n_bytes, hit, state};
    uint32_t seen = 0;
    for (int64_t i = 0; i + 1 < n_bytes; i++) {
        seen = seen << 8 | search->words[pair_at(bytes + i)];
        if (seen < UINT32_C(0xff000000))
            wake(search, &t, i + 2);
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
