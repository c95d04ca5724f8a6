/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of freed blocks, and its modes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "device/pool.h"

typedef struct usage {
    int64_t in_use, held, peak;
} usage;

static usage of(const bl_pool *pool)
{
    usage u;
    bl_pool_memory(pool, &u.in_use, &u.held, &u.peak);
    return u;
}

static void a_freed_block_is_handed_out_again(void **state)
{
    (void)state;
    bl_pool *pool = bl_pool_new(&bl_memory_source_host, BL_MEMORY_POOL, false);
    void *a = bl_pool_take(pool, 1000), *b = bl_pool_take(pool, 1000);
    assert_ptr_not_equal(a, b);
    bl_pool_give(pool, a, 1000);
    bl_memory_fail_at(0); /* nothing is asked of the system */
    assert_ptr_equal(bl_pool_take(pool, 990), a);
    bl_memory_fail_at(-1);
    bl_pool_give(pool, a, 990);
    bl_pool_give(pool, b, 1000);
    assert_int_equal(of(pool).in_use, 0);
    bl_pool_free(pool);
}

static void blocks_are_aligned_and_hold_what_was_asked_for(void **state)
{
    (void)state;
    bl_pool *pool = bl_pool_new(&bl_memory_source_host, BL_MEMORY_POOL, false);
    for (int64_t n = 0; n < 5000; n += 37) {
        char *block = bl_pool_take(pool, n);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        memset(block, 1, (size_t)n);
        assert_true(of(pool).in_use >= n && of(pool).in_use <= n + n / 4 + 64);
        bl_pool_give(pool, block, n);
    }
    bl_pool_free(pool);
}

static void sizes_without_a_class_are_no_memory(void **state)
{
    (void)state;
    bl_pool *pool = bl_pool_new(&bl_memory_source_host, BL_MEMORY_POOL, false);
    assert_null(bl_pool_take(pool, -1));
    for (int shift = 47; shift < 63; shift++) {
        assert_null(bl_pool_take(pool, INT64_C(1) << shift));
        assert_null(bl_pool_take(pool, (INT64_C(1) << shift) + (INT64_C(1) << (shift - 1)) - 1));
    }
    assert_null(bl_pool_take(pool, INT64_MAX));
    assert_int_equal(of(pool).in_use, 0);
    assert_int_equal(of(pool).peak, 0);
    bl_pool_give(pool, NULL, 100);
    bl_pool_free(pool);
    bl_pool_free(NULL);
}

static void held_blocks_are_given_up_when_memory_ends(void **state)
{
    (void)state;
    bl_pool *pool = bl_pool_new(&bl_memory_source_host, BL_MEMORY_POOL, false);
    void *small = bl_pool_take(pool, 100), *large = bl_pool_take(pool, 100000);
    bl_pool_give(pool, small, 100);
    bl_pool_give(pool, large, 100000);
    assert_true(of(pool).held > 100000);
    bl_memory_fail_at(0);
    void *other = bl_pool_take(pool, 5000);
    bl_memory_fail_at(-1);
    assert_non_null(other);
    assert_int_equal(of(pool).held, 0);
    bl_pool_give(pool, other, 5000);
    bl_pool_free(pool);
}

static void a_block_that_cannot_be_held_is_freed(void **state)
{
    (void)state;
    bl_pool *pool = bl_pool_new(&bl_memory_source_host, BL_MEMORY_POOL, false);
    void *block = bl_pool_take(pool, 100);
    bl_memory_fail_at(0); /* the stack of its class cannot grow */
    bl_pool_give(pool, block, 100);
    bl_memory_fail_at(-1);
    assert_int_equal(of(pool).in_use, 0);
    assert_int_equal(of(pool).held, 0);
    bl_pool_free(pool);
}

/* Batches of ever other sizes: what is held does not add up to all that ever was. */
static void what_is_held_is_bounded_by_the_peak(void **state)
{
    (void)state;
    bl_pool *pool = bl_pool_new(&bl_memory_source_host, BL_MEMORY_POOL, false);
    const int64_t mib = INT64_C(1) << 20;
    for (int64_t n = 8 * mib; n < 256 * mib; n += n / 4) {
        void *block = bl_pool_take(pool, n);
        assert_non_null(block);
        usage u = of(pool);
        assert_true(u.in_use + u.held <= u.peak + u.peak / 4 + 16 * mib);
        bl_pool_give(pool, block, n);
    }
    bl_pool_free(pool);
}

/* Whether the kernel can read a byte there: no signal is needed to learn it. */
static bool is_readable(const void *address)
{
    int end[2];
    assert_int_equal(pipe(end), 0);
    bool yes = write(end[1], address, 1) == 1;
    assert_true(yes || errno == EFAULT);
    (void)close(end[0]);
    (void)close(end[1]);
    return yes;
}

static bl_pool *pool_of(bl_memory_mode mode, bool poison)
{
    bl_pool *pool = bl_pool_new(&bl_memory_source_host, mode, poison);
    assert_non_null(pool);
    return pool;
}

static void assert_no_damage(bl_pool *pool)
{
    bl_redzone_damage damage;
    assert_false(bl_pool_damage(pool, true, &damage));
}

static void assert_damage(bl_pool *pool, bool look, const bl_redzone_damage *expected)
{
    bl_redzone_damage damage;
    assert_true(bl_pool_damage(pool, look, &damage));
    assert_ptr_equal(damage.block, expected->block);
    assert_int_equal(damage.n_bytes, expected->n_bytes);
    assert_int_equal(damage.is_behind, expected->is_behind);
    assert_int_equal(damage.first, expected->first);
    assert_int_equal(damage.n_changed, expected->n_changed);
}

static void every_mode_gives_blocks_that_may_be_written_whole(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2 * BL_N_MEMORY_MODES; mode++) {
        bl_pool *pool = pool_of((bl_memory_mode)(mode / 2), mode % 2 == 1);
        char *block[150];
        for (size_t i = 0; i < 150; i++) {
            block[i] = bl_pool_take(pool, (int64_t)i * 67);
            assert_non_null(block[i]);
            size_t divisor = i * 67 & -(i * 67); /* the power of two that divides the size: so does the dtype's */
            bool is_exact = mode / 2 == BL_MEMORY_EXACT && divisor != 0 && divisor < 64;
            assert_int_equal((uintptr_t)block[i] % (is_exact ? divisor : 64), 0);
            memset(block[i], (int)i, i * 67);
        }
        assert_no_damage(pool);
        for (int i = 0; i < 150; i++) {
            int at = (i * 97 + 13) % 150; /* in another order */
            for (int b = 0; b < at * 67; b++)
                assert_int_equal(block[at][b], (char)at);
            bl_pool_give(pool, block[at], at * 67);
        }
        assert_no_damage(pool);
        assert_int_equal(of(pool).in_use, 0);
        assert_true(of(pool).peak >= 67 * 149 * 150 / 2);
        assert_int_equal(bl_pool_trim(pool), mode / 2 < BL_MEMORY_EXACT ? of(pool).peak : 0);
        assert_int_equal(of(pool).held, 0);
        assert_false(bl_pool_is_out_of_mappings(pool));
        bl_pool_free(pool);
    }
}

static void a_watching_pool_refuses_what_is_no_size(void **state)
{
    (void)state;
    for (int mode = BL_MEMORY_REDZONE; mode < BL_N_MEMORY_MODES; mode++) {
        bl_pool *pool = pool_of((bl_memory_mode)mode, true);
        const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX - 63, INT64_MAX - 4096, INT64_C(1) << 62};
        for (int i = 0; i < 6; i++)
            assert_null(bl_pool_take(pool, wrong[i]));
        assert_int_equal(of(pool).in_use, 0);
        assert_int_equal(of(pool).peak, 0);
        assert_false(bl_pool_is_out_of_mappings(pool));
        bl_pool_free(pool);
    }
}

static void a_look_tells_each_damage_once_oldest_block_first(void **state)
{
    (void)state;
    bl_pool *pool = pool_of(BL_MEMORY_REDZONE, false);
    char *a = bl_pool_take(pool, 101), *b = bl_pool_take(pool, 20);
    b[20] = 1;
    b[83] = 2;
    a[-3] = 3;
    a[-64] = 4;
    a[101] = a[102] = 5;
    bl_redzone_damage none;
    assert_false(bl_pool_damage(pool, false, &none)); /* nothing was given back */
    assert_damage(pool, true, &(bl_redzone_damage){a, 101, false, 3, 2});
    assert_damage(pool, true, &(bl_redzone_damage){a, 101, true, 1, 2});
    assert_damage(pool, true, &(bl_redzone_damage){b, 20, true, 1, 2});
    assert_no_damage(pool);
    bl_pool_give(pool, a, 101);
    bl_pool_give(pool, b, 20);
    assert_no_damage(pool);
    bl_pool_free(pool);
}

static void giving_back_finds_damage_and_keeps_it_until_it_is_told(void **state)
{
    (void)state;
    bl_pool *pool = pool_of(BL_MEMORY_REDZONE, true);
    char *block[100];
    for (int i = 0; i < 100; i++)
        block[i] = bl_pool_take(pool, 48);
    for (int i = 0; i < 100; i++) {
        block[i][48 + i % 64] = 0;
        bl_pool_give(pool, block[i], 48);
    }
    (void)bl_pool_trim(pool);
    for (int i = 0; i < 64; i++)
        assert_damage(pool, false, &(bl_redzone_damage){block[i], 48, true, i + 1, 1});
    assert_no_damage(pool); /* no more than that are kept */
    bl_pool_free(pool);
}

static void a_block_that_is_not_the_pools_own_is_left_alone(void **state)
{
    (void)state;
    bl_pool *pool = pool_of(BL_MEMORY_REDZONE, true);
    char *block = bl_pool_take(pool, 32), other[32] = {0};
    usage before = of(pool);
    bl_pool_give(pool, other, 32);
    bl_pool_give(pool, block + 8, 24);
    assert_int_equal(of(pool).in_use, before.in_use);
    assert_int_equal(of(pool).held, 0);
    bl_pool_give(pool, block, 32);
    bl_pool_give(pool, block, 32); /* twice */
    assert_int_equal(of(pool).in_use, 0);
    assert_int_equal(of(pool).held, before.in_use);
    bl_pool_free(pool);
}

static void an_exact_block_ends_at_an_inaccessible_page(void **state)
{
    (void)state;
    bl_pool *pool = pool_of(BL_MEMORY_EXACT, false);
    const int64_t page = sysconf(_SC_PAGESIZE),
                  sizes[] = {0, 1, 7, 8, 12, page - 8, page - 1, page, page + 4, 3 * page};
    for (int i = 0; i < 10; i++) {
        int64_t n = sizes[i];
        char *block = bl_pool_take(pool, n);
        assert_int_equal((uintptr_t)(block + n) % (uintptr_t)page, 0);
        assert_false(is_readable(block + n));
        assert_true(is_readable(block + n - 1));
        assert_int_equal(of(pool).in_use, n == 0 ? page : (n + page - 1) / page * page);
        if (n == 0 || n % page != 0) { /* its pages reach before its begin */
            block[-1] ^= 1;
            assert_damage(pool, true, &(bl_redzone_damage){block, n, false, 1, 1});
        } else {
            assert_false(is_readable(block - 1));
        }
        bl_pool_give(pool, block, n);
        assert_int_equal(of(pool).in_use, 0);
    }
    assert_int_equal(of(pool).held, 0);
    bl_pool_free(pool);
}

static void a_left_aligned_block_begins_behind_an_inaccessible_page(void **state)
{
    (void)state;
    bl_pool *pool = pool_of(BL_MEMORY_EXACT_LEFT, false);
    const int64_t page = sysconf(_SC_PAGESIZE);
    for (int64_t n = 0; n <= 2 * page; n += page / 2 - 3) {
        char *block = bl_pool_take(pool, n);
        assert_int_equal((uintptr_t)block % (uintptr_t)page, 0);
        assert_false(is_readable(block - 1));
        assert_false(is_readable(block + of(pool).in_use));
        memset(block, 1, (size_t)n);
        block[n] ^= 1;
        assert_damage(pool, true, &(bl_redzone_damage){block, n, true, 1, 1});
        bl_pool_give(pool, block, n);
        assert_no_damage(pool);
    }
    bl_pool_free(pool);
}

static void an_exact_block_that_is_given_back_is_gone_and_its_address_rests(void **state)
{
    (void)state;
    bl_pool *pool = pool_of(BL_MEMORY_EXACT, false);
    char *first = bl_pool_take(pool, 4096);
    bl_pool_give(pool, first, 4096);
    assert_false(is_readable(first));
    for (int i = 0; i < 100; i++) {
        char *next = bl_pool_take(pool, 4096);
        assert_ptr_not_equal(next, first);
        bl_pool_give(pool, next, 4096);
    }
    assert_false(is_readable(first));
    for (int i = 0; i < 1000; i++) { /* the rest ends some time */
        char *next = bl_pool_take(pool, INT64_C(1) << 30);
        assert_non_null(next);
        bl_pool_give(pool, next, INT64_C(1) << 30);
    }
    bl_pool_free(pool);
}

/* Values of the pattern in a dtype: bits of f16 and bf16 are looked at as such. */
static void assert_not_a_number(const void *at)
{
    double f64;
    float f32;
    uint16_t u16;
    int64_t i64;
    int32_t i32;
    memcpy(&f64, at, 8);
    memcpy(&f32, at, 4);
    memcpy(&u16, at, 2);
    memcpy(&i64, at, 8);
    memcpy(&i32, at, 4);
    assert_true(isnan(f64) && isnan(f32));
    assert_true((u16 & 0x7c00) == 0x7c00 && (u16 & 0x3ff) != 0); /* f16 */
    assert_true((u16 & 0x7f80) == 0x7f80 && (u16 & 0x7f) != 0);  /* bf16 */
    assert_true(i64 > INT64_C(1) << 40 || i64 < -(INT64_C(1) << 40));
    assert_true(i32 > 1 << 30 || i32 < -1);
}

static void poison_is_no_number_and_tells_what_it_marks(void **state)
{
    (void)state;
    for (int mode = BL_MEMORY_POOL; mode <= BL_MEMORY_REDZONE; mode++) {
        bl_pool *pool = pool_of((bl_memory_mode)mode, true);
        for (int tenant = 1; tenant <= 4200; tenant++) {
            uint64_t *block = bl_pool_take(pool, 804);
            int64_t generation = -1;
            for (int i = 0; i < 100; i++) {
                assert_int_equal(bl_pool_poison(block[i], &generation), BL_POISON_FRESH);
                assert_not_a_number(&block[i]);
            }
            assert_int_equal(((uint32_t *)block)[200], 0x7fff7fff);
            assert_int_equal(generation, -1);
            memset(block, 0, 804);
            bl_pool_give(pool, block, 804);
            for (int i = 0; i < 100; i++) { /* it is held, so the bytes are still there */
                assert_int_equal(bl_pool_poison(block[i], &generation), BL_POISON_FREED);
                assert_int_equal(generation, tenant);
                assert_not_a_number(&block[i]);
            }
        }
        bl_pool_free(pool);
    }
    int64_t generation;
    const uint64_t others[] = {0, UINT64_MAX, UINT64_C(0x7ffb7ffb7ffb7ffb), UINT64_C(0x3ff0000000000000),
                               1, 0x7fff7fff};
    for (int i = 0; i < 6; i++)
        assert_int_equal(bl_pool_poison(others[i], &generation), BL_POISON_NONE);
}

static void exact_blocks_are_fresh_where_asked_and_zero_else(void **state)
{
    (void)state;
    for (int poison = 0; poison < 2; poison++) {
        bl_pool *pool = pool_of(BL_MEMORY_EXACT, poison == 1);
        const uint64_t *block = bl_pool_take(pool, 80000);
        for (int i = 0; i < 10000; i++)
            assert_int_equal(block[i], poison == 1 ? UINT64_C(0x7fff7fff7fff7fff) : 0);
        bl_pool_give(pool, (void *)block, 80000);
        bl_pool_free(pool);
    }
}

/* A source whose blocks the host may not touch at their addresses, with room for some blocks of pages. */
typedef struct hidden {
    char *device, *alias;
    int64_t used;
    int n_pages_left;
} hidden;

enum { HIDDEN_BYTES = 1 << 20 };

static void *hidden_take(void *state, int64_t n_bytes)
{
    hidden *h = state;
    if (n_bytes > HIDDEN_BYTES - h->used)
        return NULL;
    void *block = h->device + h->used;
    h->used += (n_bytes + 4095) / 4096 * 4096;
    return block;
}

static void hidden_give(void *state, void *block, int64_t n_bytes) { (void)state, (void)block, (void)n_bytes; }

static void *hidden_take_pages(void *state, int64_t n_bytes)
{
    hidden *h = state;
    assert_int_equal(n_bytes % 4096, 0);
    return h->n_pages_left-- > 0 ? hidden_take(state, n_bytes) : NULL;
}

static void *hidden_host(void *state, void *address)
{
    hidden *h = state;
    assert_in_range((uintptr_t)address, (uintptr_t)h->device, (uintptr_t)h->device + HIDDEN_BYTES - 1);
    return h->alias + ((char *)address - h->device);
}

static hidden hidden_open(int n_pages)
{
    void *range = mmap(NULL, HIDDEN_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(range, MAP_FAILED);
    return (hidden){range, calloc(1, HIDDEN_BYTES), 0, n_pages};
}

static void hidden_close(hidden *h)
{
    (void)munmap(h->device, HIDDEN_BYTES);
    free(h->alias);
}

static bl_memory_source hidden_source(hidden *h)
{
    return (bl_memory_source){h, hidden_take, hidden_give, hidden_take_pages, hidden_give, hidden_host};
}

static void bytes_are_touched_where_the_source_says(void **state)
{
    (void)state;
    for (int mode = 0; mode < BL_N_MEMORY_MODES; mode++) {
        hidden h = hidden_open(100);
        bl_memory_source source = hidden_source(&h);
        bl_pool *pool = bl_pool_new(&source, (bl_memory_mode)mode, true);
        char *block = bl_pool_take(pool, 100);
        unsigned char *seen = hidden_host(&h, block);
        assert_int_equal(seen[0], 0xff);
        assert_int_equal(seen[99], 0x7f);
        seen[mode == BL_MEMORY_EXACT ? -1 : 100] ^= 1;
        bl_pool_give(pool, block, 100);
        bl_redzone_damage damage;
        assert_int_equal(bl_pool_damage(pool, false, &damage), mode != BL_MEMORY_POOL);
        bl_pool_free(pool);
        hidden_close(&h);
    }
}

static void a_block_that_went_back_to_the_source_begins_anew(void **state)
{
    (void)state;
    hidden h = hidden_open(0);
    bl_memory_source source = hidden_source(&h);
    bl_pool *pool = bl_pool_new(&source, BL_MEMORY_REDZONE, true);
    for (int64_t round = 0; round < 3; round++) {
        char *block = bl_pool_take(pool, 8);
        for (int64_t generation = 1, told = 0; generation < 4; generation++) {
            bl_pool_give(pool, block, 8);
            uint64_t word;
            memcpy(&word, hidden_host(&h, block), 8);
            assert_int_equal(bl_pool_poison(word, &told), BL_POISON_FREED);
            assert_int_equal(told, generation);
            assert_ptr_equal(bl_pool_take(pool, 8), block);
        }
        bl_pool_give(pool, block, 8);
        assert_true(bl_pool_trim(pool) > 0);
        h.used = 0; /* the source gives the same address again */
    }
    bl_pool_free(pool);
    hidden_close(&h);
}

static void without_mappings_blocks_are_red_zoned_ones(void **state)
{
    (void)state;
    hidden h = hidden_open(3);
    bl_memory_source source = hidden_source(&h);
    bl_pool *pool = bl_pool_new(&source, BL_MEMORY_EXACT, true);
    char *block[6];
    for (int i = 0; i < 6; i++) {
        assert_int_equal(bl_pool_is_out_of_mappings(pool), i > 3);
        block[i] = bl_pool_take(pool, 600);
        assert_non_null(block[i]);
        h.n_pages_left += i == 3; /* what comes back later changes nothing */
    }
    assert_int_equal(of(pool).in_use, 3 * 4096 + 3 * 768);
    ((char *)hidden_host(&h, block[0]))[-1] = 0;
    ((char *)hidden_host(&h, block[5]))[601] = 0;
    assert_damage(pool, true, &(bl_redzone_damage){block[0], 600, false, 1, 1});
    assert_damage(pool, true, &(bl_redzone_damage){block[5], 600, true, 2, 1});
    for (int i = 0; i < 6; i++)
        bl_pool_give(pool, block[i], 600);
    assert_no_damage(pool);
    assert_int_equal(of(pool).in_use, 0);
    assert_int_equal(of(pool).held, 3 * 768);
    assert_null(bl_pool_take(pool, HIDDEN_BYTES)); /* and memory ends as ever */
    assert_int_equal(of(pool).held, 0);
    bl_pool_free(pool);
    hidden_close(&h);
}

static void a_process_keeps_mappings_for_all_else(void **state)
{
    (void)state;
    bl_pool *pool = pool_of(BL_MEMORY_EXACT, false);
    enum { MOST = 200000 };
    char **block = calloc(MOST, sizeof *block);
    int n = 0;
    while (n < MOST && !bl_pool_is_out_of_mappings(pool)) {
        block[n] = bl_pool_take(pool, 8);
        assert_non_null(block[n]);
        n++;
    }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map[200];
    for (int i = 0; i < 200; i++) { /* alternately, so that none joins the one before it */
        map[i] = mmap(NULL, page, i % 2 == 0 ? PROT_READ : PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(map[i], MAP_FAILED);
    }
    for (int i = 0; i < 200; i++)
        (void)munmap(map[i], page);
    for (int i = 0; i < n; i++)
        bl_pool_give(pool, block[i], 8);
    assert_int_equal(of(pool).in_use, 0);
    bl_pool_free(pool);
    pool = pool_of(BL_MEMORY_EXACT, false); /* they came back */
    bl_pool_give(pool, bl_pool_take(pool, 8), 8);
    assert_false(bl_pool_is_out_of_mappings(pool));
    bl_pool_free(pool);
    free(block);
}

/* A hundred blocks in and out; false when one could not be had. */
static bool job(bl_memory_mode mode, bool poison)
{
    bl_pool *pool = bl_pool_new(&bl_memory_source_host, mode, poison);
    void *block[100] = {0};
    bool whole = pool != NULL;
    for (int i = 0; whole && i < 100; i++) {
        block[i] = bl_pool_take(pool, i * 8);
        whole = block[i] != NULL;
        if (i % 3 == 2) {
            bl_pool_give(pool, block[i - 1], (i - 1) * 8);
            block[i - 1] = NULL;
        }
    }
    for (int i = 0; pool != NULL && i < 100; i++)
        bl_pool_give(pool, block[i], i * 8);
    if (pool != NULL)
        assert_int_equal(of(pool).in_use, 0);
    bl_pool_free(pool);
    return whole;
}

static void any_allocation_of_a_pool_may_fail(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2 * BL_N_MEMORY_MODES; mode++) {
        int64_t n = 0;
        bool failed = true;
        for (; failed; n++) {
            bl_memory_fail_at(n);
            bool whole = job((bl_memory_mode)(mode / 2), mode % 2 == 1);
            failed = bl_memory_failed();
            bl_memory_fail_at(-1);
            assert_true(whole || failed);
        }
        assert_true(n > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_freed_block_is_handed_out_again),
        cmocka_unit_test(blocks_are_aligned_and_hold_what_was_asked_for),
        cmocka_unit_test(sizes_without_a_class_are_no_memory),
        cmocka_unit_test(held_blocks_are_given_up_when_memory_ends),
        cmocka_unit_test(a_block_that_cannot_be_held_is_freed),
        cmocka_unit_test(what_is_held_is_bounded_by_the_peak),
        cmocka_unit_test(every_mode_gives_blocks_that_may_be_written_whole),
        cmocka_unit_test(a_watching_pool_refuses_what_is_no_size),
        cmocka_unit_test(a_look_tells_each_damage_once_oldest_block_first),
        cmocka_unit_test(giving_back_finds_damage_and_keeps_it_until_it_is_told),
        cmocka_unit_test(a_block_that_is_not_the_pools_own_is_left_alone),
        cmocka_unit_test(an_exact_block_ends_at_an_inaccessible_page),
        cmocka_unit_test(a_left_aligned_block_begins_behind_an_inaccessible_page),
        cmocka_unit_test(an_exact_block_that_is_given_back_is_gone_and_its_address_rests),
        cmocka_unit_test(poison_is_no_number_and_tells_what_it_marks),
        cmocka_unit_test(exact_blocks_are_fresh_where_asked_and_zero_else),
        cmocka_unit_test(bytes_are_touched_where_the_source_says),
        cmocka_unit_test(a_block_that_went_back_to_the_source_begins_anew),
        cmocka_unit_test(without_mappings_blocks_are_red_zoned_ones),
        cmocka_unit_test(a_process_keeps_mappings_for_all_else),
        cmocka_unit_test(any_allocation_of_a_pool_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
