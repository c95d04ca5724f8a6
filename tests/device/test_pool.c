/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of freed blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_freed_block_is_handed_out_again),
        cmocka_unit_test(blocks_are_aligned_and_hold_what_was_asked_for),
        cmocka_unit_test(sizes_without_a_class_are_no_memory),
        cmocka_unit_test(held_blocks_are_given_up_when_memory_ends),
        cmocka_unit_test(a_block_that_cannot_be_held_is_freed),
        cmocka_unit_test(what_is_held_is_bounded_by_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
