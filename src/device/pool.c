/* SPDX-License-Identifier: Apache-2.0 */
/* Freed blocks are kept by size class and handed out again, newest first.  Classes are four to a doubling, so that at
 * most a quarter of a block is unused.  What is in use and held together stays near the most that was ever in use, so
 * that batches of ever other sizes do not add up.
 *
 * A pool of mode POOL without poison does no more than that.  Any other one watches its blocks: it has a row for each
 * that is in use or held, and dresses them in zones and poison.  "Raw" is a block as the source gave it: its zone lies
 * at its begin. */
#include "device/pool.h"

#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/block.h"

enum { N_CLASSES = 228, SMALLEST = 64, SLACK = 16 << 20, N_DAMAGES = 64 };

typedef struct block_stack {
    void **block;
    int64_t n, capacity;
} block_stack;

struct bl_pool {
    bl_memory_source source;
    bl_memory_mode mode;
    bool poison, is_watching, is_out_of_mappings;
    int zone; /* bytes before and behind each pooled block */
    block_stack stack[N_CLASSES];
    int64_t in_use, held, peak;
    bl_block_table blocks;
    uint64_t serial;
    bl_redzone_damage damage[N_DAMAGES]; /* found when blocks were given back */
    int n_damages;
};

/* Class and rounded size: 64, 80, 96, 112, 128, 160, 192, ...; false when the size overflows. */
static bool class_of(int64_t n_bytes, int *number, int64_t *size)
{
    int64_t base = SMALLEST;
    int index = 0;
    while (base <= INT64_MAX / 4 && n_bytes > 2 * base) {
        base *= 2;
        index += 4;
    }
    if (n_bytes > 2 * base)
        return false;
    for (int quarter = 0; quarter <= 4; quarter++)
        if (base + quarter * (base / 4) >= n_bytes) {
            *number = index + quarter;
            *size = base + quarter * (base / 4);
            return true;
        }
    return false;
}

/* The rounded size of a class. */
static int64_t size_of(int number)
{
    int64_t base = (int64_t)SMALLEST << number / 4;
    return base + number % 4 * (base / 4);
}

bl_pool *bl_pool_new(const bl_memory_source *source, bl_memory_mode mode, bool poison)
{
    bl_pool *pool = bl_alloc(1, sizeof(bl_pool));
    if (pool == NULL)
        return NULL;
    pool->source = *source;
    pool->mode = mode;
    pool->poison = poison;
    pool->is_watching = mode != BL_MEMORY_POOL || poison;
    pool->zone = mode != BL_MEMORY_POOL ? BL_ZONE_BYTES : 0;
    return pool;
}

/* Gives a raw block back to the source. */
static void return_raw(bl_pool *pool, void *raw, int64_t size)
{
    if (pool->is_watching)
        bl_block_remove(&pool->blocks, (char *)raw + pool->zone);
    pool->source.give(pool->source.state, raw, size);
}

/* Gives the newest held block of a class back to the source. */
static void release_one(bl_pool *pool, int number)
{
    block_stack *stack = &pool->stack[number];
    pool->held -= size_of(number);
    return_raw(pool, stack->block[--stack->n], size_of(number));
}

int64_t bl_pool_trim(bl_pool *pool)
{
    int64_t held = pool->held;
    for (int c = 0; c < N_CLASSES; c++)
        while (pool->stack[c].n > 0)
            release_one(pool, c);
    return held;
}

void bl_pool_free(bl_pool *pool)
{
    if (pool == NULL)
        return;
    (void)bl_pool_trim(pool);
    for (int c = 0; c < N_CLASSES; c++)
        bl_free(pool->stack[c].block);
    bl_block_table_fini(&pool->blocks);
    bl_free(pool);
}

/* Gives held blocks back, the largest first, until `size` more bytes pass the peak by a quarter and SLACK at most. */
static void make_room(bl_pool *pool, int64_t size)
{
    int64_t peak = bl_max_i64(pool->peak, pool->in_use + size), limit = peak + peak / 4 + SLACK;
    for (int c = N_CLASSES - 1; c >= 0 && pool->in_use + pool->held + size > limit; c--)
        while (pool->stack[c].n > 0 && pool->in_use + pool->held + size > limit)
            release_one(pool, c);
}

static void *take_raw(bl_pool *pool, int64_t n_bytes)
{
    int number;
    int64_t size;
    if (n_bytes < 0 || !class_of(n_bytes, &number, &size))
        return NULL;
    block_stack *stack = &pool->stack[number];
    void *block;
    if (stack->n > 0) {
        block = stack->block[--stack->n];
        pool->held -= size;
    } else {
        make_room(pool, size);
        block = pool->source.take(pool->source.state, size);
        if (block == NULL && bl_pool_trim(pool) > 0)
            block = pool->source.take(pool->source.state, size);
        if (block == NULL)
            return NULL;
    }
    pool->in_use += size;
    pool->peak = bl_max_i64(pool->peak, pool->in_use);
    return block;
}

static void give_raw(bl_pool *pool, void *block, int64_t n_bytes)
{
    int number;
    int64_t size;
    if (!class_of(n_bytes, &number, &size))
        return;
    block_stack *stack = &pool->stack[number];
    pool->in_use -= size;
    if (!bl_grow(&stack->block, &stack->capacity, stack->n + 1, sizeof(void *))) {
        return_raw(pool, block, size);
        return;
    }
    stack->block[stack->n++] = block;
    pool->held += size;
}

/* Where the host sees a block's first byte.  The source is asked about a byte that is surely its own: of a block of no
 * bytes the begin itself may be the inaccessible page. */
static unsigned char *seen(const bl_pool *pool, const bl_block *block)
{
    unsigned char *zone = pool->source.host(pool->source.state, block->address - block->before);
    return zone + block->before;
}

static bool is_exact(const bl_pool *pool)
{
    return (pool->mode == BL_MEMORY_EXACT || pool->mode == BL_MEMORY_EXACT_LEFT) && !pool->is_out_of_mappings;
}

/* Bytes of the pages of an exact block, and the distance of its begin from theirs.  One that ends with them is aligned as
 * far as its size is: to its dtype, which divides the size, and to no more than a kernel may count on. */
static bool exact_layout(const bl_pool *pool, int64_t n_bytes, int64_t *size, int64_t *begin)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    int64_t padded;
    if (!bl_checked_add(bl_max_i64(n_bytes, 1), page - 1, &padded))
        return false;
    *size = padded - padded % page;
    *begin = pool->mode == BL_MEMORY_EXACT ? *size - n_bytes : 0;
    return true;
}

/* A row for a block of its own pages; address NULL when there is none. */
static bl_block take_exact(bl_pool *pool, int64_t n_bytes)
{
    bl_block block = {.n_bytes = n_bytes, .is_exact = true};
    int64_t size, begin;
    char *pages = exact_layout(pool, n_bytes, &size, &begin) ? pool->source.take_pages(pool->source.state, size) : NULL;
    if (pages == NULL)
        return block;
    block.address = pages + begin;
    block.before = (int)bl_min_i64(begin, BL_ZONE_BYTES);
    block.behind = (int)bl_min_i64(size - begin - n_bytes, BL_ZONE_BYTES);
    pool->in_use += size;
    pool->peak = bl_max_i64(pool->peak, pool->in_use);
    return block;
}

static void give_exact(bl_pool *pool, const bl_block *block)
{
    int64_t size, begin;
    if (!exact_layout(pool, block->n_bytes, &size, &begin))
        return;
    pool->in_use -= size;
    pool->source.give_pages(pool->source.state, block->address - begin, size);
}

/* A row for a pooled block with its zones; address NULL when there is no memory. */
static bl_block take_zoned(bl_pool *pool, int64_t n_bytes)
{
    bl_block block = {.n_bytes = n_bytes, .before = pool->zone, .behind = pool->zone};
    int64_t all;
    char *raw = bl_checked_add(n_bytes, 2 * pool->zone, &all) ? take_raw(pool, all) : NULL;
    if (raw == NULL)
        return block;
    block.address = raw + pool->zone;
    const bl_block *held = bl_block_find(&pool->blocks, block.address);
    block.generation = held != NULL ? held->generation : 0;
    return block;
}

static void *take_watched(bl_pool *pool, int64_t n_bytes)
{
    bl_block block = {0};
    if (n_bytes < 0 || !bl_block_reserve(&pool->blocks))
        return NULL;
    if (is_exact(pool))
        block = take_exact(pool, n_bytes);
    if (block.address == NULL) {
        block = take_zoned(pool, n_bytes);
        if (block.address == NULL)
            return NULL;
        if (is_exact(pool))
            pool->is_out_of_mappings = true;
    }
    block.serial = ++pool->serial;
    *bl_block_put(&pool->blocks, block.address) = block;
    unsigned char *begin = seen(pool, &block);
    bl_block_fence(&block, begin);
    if (pool->poison)
        bl_block_poison_fresh(&block, begin);
    return block.address;
}

static void note_damage(bl_pool *pool, const bl_block *block, unsigned char *begin)
{
    bl_redzone_damage damage;
    while (bl_block_damage(block, begin, &damage))
        if (pool->n_damages < N_DAMAGES)
            pool->damage[pool->n_damages++] = damage;
}

static void give_watched(bl_pool *pool, void *address)
{
    bl_block *row = bl_block_find(&pool->blocks, address);
    if (row == NULL || row->is_held)
        return;
    unsigned char *begin = seen(pool, row);
    note_damage(pool, row, begin);
    row->is_held = true;
    row->generation++;
    const bl_block block = *row;
    if (block.is_exact) {
        bl_block_remove(&pool->blocks, address);
        give_exact(pool, &block);
        return;
    }
    if (pool->poison)
        bl_block_poison_freed(&block, begin);
    give_raw(pool, block.address - block.before, block.n_bytes + block.before + block.behind);
}

void *bl_pool_take(bl_pool *pool, int64_t n_bytes)
{
    return pool->is_watching ? take_watched(pool, n_bytes) : take_raw(pool, n_bytes);
}

void bl_pool_give(bl_pool *pool, void *block, int64_t n_bytes)
{
    if (block == NULL)
        return;
    if (pool->is_watching)
        give_watched(pool, block);
    else
        give_raw(pool, block, n_bytes);
}

/* A raw block leaves. */
static void leave_raw(bl_pool *pool, void *raw, int64_t n_bytes, bl_left *out)
{
    int number;
    int64_t size = n_bytes;
    if (class_of(n_bytes, &number, &size))
        pool->in_use -= size;
    *out = (bl_left){pool->source, raw, size, false};
}

static void leave_exact(bl_pool *pool, const bl_block *block, bl_left *out)
{
    int64_t size = 0, begin = 0;
    if (exact_layout(pool, block->n_bytes, &size, &begin)) /* as when it was taken */
        pool->in_use -= size;
    *out = (bl_left){pool->source, block->address - begin, size, true};
}

void bl_pool_leave(bl_pool *pool, void *address, int64_t n_bytes, bl_left *out)
{
    const bl_block *row = pool->is_watching ? bl_block_find(&pool->blocks, address) : NULL;
    if (row == NULL) {
        leave_raw(pool, address, n_bytes, out);
        return;
    }
    const bl_block block = *row;
    note_damage(pool, &block, seen(pool, &block));
    bl_block_remove(&pool->blocks, address);
    if (block.is_exact)
        leave_exact(pool, &block, out);
    else
        leave_raw(pool, block.address - block.before, block.n_bytes + block.before + block.behind, out);
}

void bl_left_give(const bl_left *left)
{
    if (left->is_pages)
        left->source.give_pages(left->source.state, left->begin, left->n_bytes);
    else
        left->source.give(left->source.state, left->begin, left->n_bytes);
}

void bl_pool_memory(const bl_pool *pool, int64_t *in_use, int64_t *held, int64_t *peak)
{
    *in_use = pool->in_use;
    *held = pool->held;
    *peak = pool->peak;
}

/* The block in use that was taken first of those that are damaged. */
static const bl_block *first_damaged(const bl_pool *pool)
{
    const bl_block *first = NULL;
    for (int64_t i = 0; i < pool->blocks.capacity; i++) {
        const bl_block *row = &pool->blocks.row[i];
        if (row->address != NULL && !row->is_held && (first == NULL || row->serial < first->serial) &&
            bl_block_is_damaged(row, seen(pool, row)))
            first = row;
    }
    return first;
}

bool bl_pool_damage(bl_pool *pool, bool look, bl_redzone_damage *out)
{
    if (pool->n_damages > 0) {
        *out = pool->damage[0];
        memmove(pool->damage, pool->damage + 1, (size_t)--pool->n_damages * sizeof *out);
        return true;
    }
    const bl_block *block = look && pool->zone > 0 ? first_damaged(pool) : NULL;
    return block != NULL && bl_block_damage(block, seen(pool, block), out);
}

bool bl_pool_is_out_of_mappings(const bl_pool *pool) { return pool->is_out_of_mappings; }
