/* SPDX-License-Identifier: Apache-2.0 */
/* Freed blocks are kept by size class and handed out again, newest first.  Classes are four to a doubling, so that at
 * most a quarter of a block is unused.  What is in use and held together stays near the most that was ever in use, so
 * that batches of ever other sizes do not add up.  Book-keeping lies outside of the blocks: a stray write into one
 * cannot spoil it. */
#include "device/pool.h"

#include "base/checked.h"
#include "base/memory.h"

enum { N_CLASSES = 228, SMALLEST = 64, SLACK = 16 << 20 };

typedef struct block_stack {
    void **block;
    int64_t n, capacity;
} block_stack;

struct bl_pool {
    bl_memory_source source;
    bl_memory_mode mode;
    bool poison;
    block_stack stack[N_CLASSES];
    int64_t in_use, held, peak;
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
    return pool;
}

/* Gives the newest held block of a class back to the source. */
static void release_one(bl_pool *pool, int number)
{
    block_stack *stack = &pool->stack[number];
    pool->held -= size_of(number);
    pool->source.give(pool->source.state, stack->block[--stack->n], size_of(number));
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

void *bl_pool_take(bl_pool *pool, int64_t n_bytes)
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

void bl_pool_give(bl_pool *pool, void *block, int64_t n_bytes)
{
    int number;
    int64_t size;
    if (block == NULL || !class_of(n_bytes, &number, &size))
        return;
    block_stack *stack = &pool->stack[number];
    pool->in_use -= size;
    if (!bl_grow(&stack->block, &stack->capacity, stack->n + 1, sizeof(void *))) {
        pool->source.give(pool->source.state, block, size);
        return;
    }
    stack->block[stack->n++] = block;
    pool->held += size;
}

void bl_pool_memory(const bl_pool *pool, int64_t *in_use, int64_t *held, int64_t *peak)
{
    *in_use = pool->in_use;
    *held = pool->held;
    *peak = pool->peak;
}

bool bl_pool_damage(bl_pool *pool, bool look, bl_redzone_damage *out)
{
    (void)pool, (void)look, (void)out;
    return false;
}

bool bl_pool_is_out_of_mappings(const bl_pool *pool)
{
    (void)pool;
    return false;
}
