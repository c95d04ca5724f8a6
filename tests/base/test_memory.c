/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/memory.h"

static void allocations_are_zeroed_and_may_be_empty(void **state)
{
    (void)state;
    char *bytes = bl_alloc(100, 3);
    assert_non_null(bytes);
    for (int i = 0; i < 300; i++)
        assert_int_equal(bytes[i], 0);
    bl_free(bytes);
    void *empty = bl_alloc(0, 8);
    assert_non_null(empty);
    bl_free(empty);
    bl_free(NULL);
}

static void a_size_that_overflows_is_no_memory(void **state)
{
    (void)state;
    void *kept = bl_alloc(1, 1);
    assert_null(bl_alloc(INT64_MAX, 2));
    assert_null(bl_alloc(-1, 1));
    assert_null(bl_alloc(1, -1));
    assert_null(bl_realloc(kept, INT64_MAX / 2, 4));
    assert_null(bl_alloc_aligned(-1, 64));
    assert_null(bl_alloc_aligned(INT64_MAX, 64));
    assert_null(bl_strndup("x", INT64_MAX));
    bl_free(kept);
}

static void aligned_blocks_are_aligned(void **state)
{
    (void)state;
    for (int64_t bytes = 0; bytes < 200; bytes += 33) {
        void *block = bl_alloc_aligned(bytes, 64);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        bl_free(block);
    }
}

static void the_nth_allocation_fails_and_only_that_one(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n++) {
        bl_memory_fail_at(n);
        for (int i = 0; i < 4; i++) {
            void *block = i % 2 == 0 ? bl_alloc(1, 8) : bl_alloc_aligned(8, 64);
            assert_true((block == NULL) == (i == n));
            assert_true(bl_memory_failed() == (i >= n));
            bl_free(block);
        }
        assert_int_equal(bl_memory_asked(), 4);
    }
    bl_memory_fail_at(-1);
    assert_false(bl_memory_failed());
}

static void growing_keeps_elements_and_a_failed_growth_keeps_the_array(void **state)
{
    (void)state;
    int64_t *array = NULL, capacity = 0;
    for (int64_t i = 0; i < 100; i++) {
        assert_true(bl_grow(&array, &capacity, i + 1, sizeof *array));
        array[i] = i;
    }
    for (int64_t i = 0; i < 100; i++)
        assert_int_equal(array[i], i);
    int64_t *before = array, had = capacity;
    bl_memory_fail_at(0);
    assert_false(bl_grow(&array, &capacity, capacity + 1, sizeof *array));
    bl_memory_fail_at(-1);
    assert_false(bl_grow(&array, &capacity, INT64_MAX, sizeof *array));
    assert_ptr_equal(array, before);
    assert_int_equal(capacity, had);
    bl_free(array);
}

static void copies_of_strings_end_where_asked(void **state)
{
    (void)state;
    char *whole = bl_strdup("rope"), *part = bl_strndup("rope", 2), *none = bl_strndup("rope", 0);
    assert_string_equal(whole, "rope");
    assert_string_equal(part, "ro");
    assert_string_equal(none, "");
    bl_free(whole);
    bl_free(part);
    bl_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_zeroed_and_may_be_empty),
        cmocka_unit_test(a_size_that_overflows_is_no_memory),
        cmocka_unit_test(aligned_blocks_are_aligned),
        cmocka_unit_test(the_nth_allocation_fails_and_only_that_one),
        cmocka_unit_test(growing_keeps_elements_and_a_failed_growth_keeps_the_array),
        cmocka_unit_test(copies_of_strings_end_where_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
