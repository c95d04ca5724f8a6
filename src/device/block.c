/* SPDX-License-Identifier: Apache-2.0 */
/* The table is open addressing with linear probing, at most half full; a removal closes the gap, so that there are no
 * tombstones.
 *
 * Patterns are made of 16-bit words that are quiet NaNs in f16 and bf16, hence in f32, and in f64 by the word on top;
 * as integers they are far out of any range.  Zone 0x7ffb, fresh 0x7fff, given back 0xffc0 with 5 bits of the
 * generation in each of three words, and 0xfff8 with 2 more on top. */
#include "device/block.h"

#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

static const uint64_t zone_word = UINT64_C(0x7ffb7ffb7ffb7ffb), fresh_word = UINT64_C(0x7fff7fff7fff7fff),
                      freed_word = UINT64_C(0xfff8ffc0ffc0ffc0);
static const uint64_t generation_bits = UINT64_C(0x0003001f001f001f);

/* Where the search for an address begins (Fibonacci hashing). */
static int64_t home(const bl_block_table *table, const void *address)
{
    uint64_t mixed = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);
    return (int64_t)(mixed >> 32) & (table->capacity - 1);
}

static int64_t after(const bl_block_table *table, int64_t i) { return (i + 1) & (table->capacity - 1); }

/* The row of an address, or the free one where it belongs. */
static bl_block *row_of(const bl_block_table *table, const void *address)
{
    int64_t i = home(table, address);
    while (table->row[i].address != NULL && table->row[i].address != address)
        i = after(table, i);
    return &table->row[i];
}

bool bl_block_reserve(bl_block_table *table)
{
    if (table->n < table->capacity / 2)
        return true;
    bl_block_table bigger = {.n = table->n, .capacity = bl_max_i64(64, 2 * table->capacity)};
    bigger.row = bl_alloc(bigger.capacity, sizeof(bl_block));
    if (bigger.row == NULL)
        return false;
    for (int64_t i = 0; i < table->capacity; i++)
        if (table->row[i].address != NULL)
            *row_of(&bigger, table->row[i].address) = table->row[i];
    bl_free(table->row);
    *table = bigger;
    return true;
}

bl_block *bl_block_find(const bl_block_table *table, const void *address)
{
    bl_block *row = table->capacity > 0 && address != NULL ? row_of(table, address) : NULL;
    return row != NULL && row->address != NULL ? row : NULL;
}

bl_block *bl_block_put(bl_block_table *table, void *address)
{
    bl_block *row = row_of(table, address);
    if (row->address == NULL) {
        row->address = address;
        table->n++;
    }
    return row;
}

void bl_block_remove(bl_block_table *table, const void *address)
{
    bl_block *row = bl_block_find(table, address);
    if (row == NULL)
        return;
    int64_t gap = row - table->row;
    for (int64_t i = after(table, gap); table->row[i].address != NULL; i = after(table, i)) {
        int64_t from_home = (i - home(table, table->row[i].address)) & (table->capacity - 1);
        if (from_home >= ((i - gap) & (table->capacity - 1))) {
            table->row[gap] = table->row[i];
            gap = i;
        }
    }
    table->row[gap] = (bl_block){0};
    table->n--;
}

void bl_block_table_fini(bl_block_table *table)
{
    bl_free(table->row);
    *table = (bl_block_table){0};
}

static void fill(unsigned char *at, int64_t n_bytes, uint64_t word)
{
    int64_t whole = n_bytes - n_bytes % 8;
    for (int64_t i = 0; i < whole; i += 8)
        memcpy(at + i, &word, 8);
    if (n_bytes > whole)
        memcpy(at + whole, &word, (size_t)(n_bytes - whole));
}

static bool holds(const unsigned char *zone, int n_bytes)
{
    unsigned char pattern[BL_ZONE_BYTES];
    fill(pattern, BL_ZONE_BYTES, zone_word);
    return memcmp(zone, pattern, (size_t)n_bytes) == 0;
}

void bl_block_fence(const bl_block *block, unsigned char *begin)
{
    fill(begin - block->before, block->before, zone_word);
    fill(begin + block->n_bytes, block->behind, zone_word);
}

bool bl_block_is_damaged(const bl_block *block, const unsigned char *begin)
{
    return !holds(begin - block->before, block->before) || !holds(begin + block->n_bytes, block->behind);
}

bool bl_block_damage(const bl_block *block, unsigned char *begin, bl_redzone_damage *out)
{
    bool is_behind = holds(begin - block->before, block->before);
    unsigned char *zone = is_behind ? begin + block->n_bytes : begin - block->before;
    int n_bytes = is_behind ? block->behind : block->before;
    if (holds(zone, n_bytes))
        return false;
    unsigned char pattern[BL_ZONE_BYTES];
    fill(pattern, BL_ZONE_BYTES, zone_word);
    *out = (bl_redzone_damage){.block = block->address, .n_bytes = block->n_bytes, .is_behind = is_behind};
    for (int i = 0; i < n_bytes; i++)
        if (zone[i] != pattern[i]) {
            out->n_changed++;
            if (!is_behind || out->first == 0)
                out->first = is_behind ? i + 1 : n_bytes - i;
        }
    fill(zone, n_bytes, zone_word);
    return true;
}

void bl_block_poison_fresh(const bl_block *block, unsigned char *begin) { fill(begin, block->n_bytes, fresh_word); }

void bl_block_poison_freed(const bl_block *block, unsigned char *begin)
{
    uint64_t generation = (uint64_t)block->generation, word = 0;
    for (int digit = 0; digit < 4; digit++)
        word |= (generation >> (5 * digit) & 31) << (16 * digit);
    fill(begin, block->n_bytes, freed_word | (word & generation_bits));
}

bl_poison bl_pool_poison(uint64_t word, int64_t *generation)
{
    if (word == fresh_word)
        return BL_POISON_FRESH;
    if ((word & ~generation_bits) != freed_word)
        return BL_POISON_NONE;
    *generation = 0;
    for (int digit = 0; digit < 4; digit++)
        *generation |= (int64_t)((word & generation_bits) >> (16 * digit) & 31) << (5 * digit);
    return BL_POISON_FREED;
}
