/* SPDX-License-Identifier: Apache-2.0 */
#include "data/strings.h"

#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

#define MAX_STRINGS INT32_MAX

/* FNV-1a with a final mix, so that the low bits that pick a slot depend on every byte. */
static uint64_t hash_of(const char *bytes, int64_t n_bytes)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < n_bytes; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    hash ^= hash >> 32;
    hash *= 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

const char *bl_data_strings_get(const bl_data_strings *set, int64_t number, int64_t *n_bytes)
{
    int64_t start = number > 0 ? set->ends[number - 1] + 1 : 0;
    if (n_bytes != NULL)
        *n_bytes = set->ends[number] - start;
    return set->bytes + start;
}

/* The slot where the string is, or the free one where it would go. */
static int64_t slot_of(const bl_data_strings *set, const char *bytes, int64_t n_bytes)
{
    int64_t mask = set->n_slots - 1;
    int64_t slot = (int64_t)(hash_of(bytes, n_bytes) & (uint64_t)mask);
    for (; set->slots[slot] != 0; slot = (slot + 1) & mask) {
        int64_t n;
        const char *there = bl_data_strings_get(set, (int64_t)set->slots[slot] - 1, &n);
        if (n == n_bytes && memcmp(there, bytes, (size_t)n) == 0)
            break;
    }
    return slot;
}

int64_t bl_data_strings_find(const bl_data_strings *set, const char *bytes, int64_t n_bytes)
{
    if (set->n == 0)
        return -1;
    return (int64_t)set->slots[slot_of(set, bytes, n_bytes)] - 1;
}

static bool grow_slots(bl_data_strings *set)
{
    if (set->n_slots > 2 * (set->n + 1))
        return true;
    int64_t old_n = set->n_slots;
    uint32_t *old = set->slots, *bigger = bl_alloc(old_n > 0 ? 2 * old_n : 64, sizeof *bigger);
    if (bigger == NULL)
        return false;
    set->slots = bigger;
    set->n_slots = old_n > 0 ? 2 * old_n : 64;
    for (int64_t i = 0; i < set->n; i++) {
        int64_t n_bytes;
        const char *bytes = bl_data_strings_get(set, i, &n_bytes);
        set->slots[slot_of(set, bytes, n_bytes)] = (uint32_t)(i + 1);
    }
    bl_free(old);
    return true;
}

static bool make_room(bl_data_strings *set, int64_t n_bytes)
{
    int64_t wanted;
    return set->n < MAX_STRINGS && bl_checked_add(set->n_bytes, n_bytes, &wanted) &&
           bl_checked_add(wanted, 1, &wanted) && bl_grow(&set->bytes, &set->bytes_capacity, wanted, 1) &&
           bl_grow(&set->ends, &set->ends_capacity, set->n + 1, sizeof *set->ends) &&
           bl_grow(&set->counts, &set->counts_capacity, set->n + 1, sizeof *set->counts) && grow_slots(set);
}

int64_t bl_data_strings_add(bl_data_strings *set, const char *bytes, int64_t n_bytes)
{
    int64_t known = bl_data_strings_find(set, bytes, n_bytes);
    if (known >= 0)
        return known;
    if (!make_room(set, n_bytes))
        return -1;
    if (n_bytes > 0)
        memcpy(set->bytes + set->n_bytes, bytes, (size_t)n_bytes);
    set->bytes[set->n_bytes + n_bytes] = '\0';
    int64_t slot = slot_of(set, bytes, n_bytes);
    set->ends[set->n] = set->n_bytes + n_bytes;
    set->counts[set->n] = 0;
    set->n_bytes += n_bytes + 1;
    set->slots[slot] = (uint32_t)++set->n;
    return set->n - 1;
}

int bl_data_strings_compare(const char *a, int64_t n_a, const char *b, int64_t n_b)
{
    int64_t shorter = bl_min_i64(n_a, n_b);
    int order = shorter > 0 ? memcmp(a, b, (size_t)shorter) : 0;
    return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

void bl_data_strings_fini(bl_data_strings *set)
{
    bl_free(set->bytes);
    bl_free(set->ends);
    bl_free(set->counts);
    bl_free(set->slots);
    *set = (bl_data_strings){0};
}
