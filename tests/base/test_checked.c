/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checked.h"

static void sums_are_exact_or_refused(void **state)
{
    (void)state;
    int64_t out = 77;
    assert_true(bl_checked_add(INT64_MAX - 1, 1, &out));
    assert_true(out == INT64_MAX);
    assert_true(bl_checked_add(INT64_MIN, INT64_MAX, &out));
    assert_int_equal(out, -1);
    assert_false(bl_checked_add(INT64_MAX, 1, &out));
    assert_false(bl_checked_add(INT64_MIN, -1, &out));
    assert_int_equal(out, -1);
}

static void products_are_exact_or_refused(void **state)
{
    (void)state;
    int64_t out = 77;
    assert_true(bl_checked_mul(INT64_C(3037000499), INT64_C(3037000499), &out));
    assert_true(out == INT64_C(9223372030926249001));
    assert_false(bl_checked_mul(INT64_C(3037000500), INT64_C(3037000500), &out));
    assert_false(bl_checked_mul(INT64_MIN, -1, &out));
    assert_false(bl_checked_mul(INT64_MAX, 2, &out));
    assert_true(out == INT64_C(9223372030926249001));
    assert_true(bl_checked_mul(INT64_MIN, 1, &out));
    assert_true(out == INT64_MIN);
}

static void a_product_with_a_zero_is_zero_however_large_the_rest(void **state)
{
    (void)state;
    int64_t out = 77;
    assert_true(bl_checked_product((const int64_t[]){INT64_MAX, INT64_MAX, 0}, 3, &out));
    assert_int_equal(out, 0);
    assert_true(bl_checked_product((const int64_t[]){0, INT64_MAX, INT64_MAX}, 3, &out));
    assert_int_equal(out, 0);
    assert_true(bl_checked_product(NULL, 0, &out));
    assert_int_equal(out, 1);
}

static void a_product_of_a_negative_size_is_refused_even_beside_a_zero(void **state)
{
    (void)state;
    int64_t out = 77;
    assert_false(bl_checked_product((const int64_t[]){0, -1}, 2, &out));
    assert_false(bl_checked_product((const int64_t[]){-1, 0}, 2, &out));
    assert_false(bl_checked_product((const int64_t[]){INT64_C(1) << 32, INT64_C(1) << 31}, 2, &out));
    assert_int_equal(out, 77);
}

static void narrowing_takes_what_fits(void **state)
{
    (void)state;
    int small = 77;
    size_t size = 77;
    assert_true(bl_checked_int(INT_MAX, &small));
    assert_int_equal(small, INT_MAX);
    assert_true(bl_checked_int(INT_MIN, &small));
    assert_int_equal(small, INT_MIN);
    assert_false(bl_checked_int((int64_t)INT_MAX + 1, &small));
    assert_false(bl_checked_int((int64_t)INT_MIN - 1, &small));
    assert_int_equal(small, INT_MIN);
    assert_false(bl_checked_size(-1, &size));
    assert_int_equal(size, 77);
    assert_true(bl_checked_size(INT64_MAX, &size));
    assert_true(size == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact_or_refused),
        cmocka_unit_test(products_are_exact_or_refused),
        cmocka_unit_test(a_product_with_a_zero_is_zero_however_large_the_rest),
        cmocka_unit_test(a_product_of_a_negative_size_is_refused_even_beside_a_zero),
        cmocka_unit_test(narrowing_takes_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
