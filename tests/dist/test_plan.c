/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameter lies in which bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checked.h"
#include "dist/plan.h"

/* f32 parameters of 16 elements fill 64 bytes: views begin where they end. */
static const bl_plan_parameter four[] = {{16, BELAY_F32}, {16, BELAY_F32}, {16, BELAY_F32}, {16, BELAY_F32}};
static const int64_t last_first[] = {3, 2, 1, 0};

static void the_first_bucket_is_small_and_the_others_are_not(void **state)
{
    (void)state;
    bl_plan plan;
    assert_true(bl_plan_make(four, last_first, 4, 64, 128, &plan));
    assert_int_equal(plan.n_buckets, 3);
    const int64_t bucket[] = {2, 1, 1, 0}, offset[] = {0, 16, 0, 0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(plan.place[i].bucket, bucket[i]);
        assert_int_equal(plan.place[i].offset, offset[i]);
    }
    assert_int_equal(plan.bucket[1].n_elements, 32);
    assert_int_equal(plan.bucket[1].n_parameters, 2);
    bl_plan_free(&plan);
}

static void dtypes_never_share_a_bucket(void **state)
{
    (void)state;
    const bl_plan_parameter mixed[] = {{3, BELAY_F32}, {5, BELAY_BF16}, {7, BELAY_F32}, {2, BELAY_BF16}};
    bl_plan plan;
    assert_true(bl_plan_make(mixed, last_first, 4, 1 << 20, 1 << 20, &plan));
    assert_int_equal(plan.n_buckets, 2);
    assert_int_equal(plan.bucket[0].dtype, BELAY_BF16); /* of parameter 3, the first in the order */
    assert_int_equal(plan.bucket[1].dtype, BELAY_F32);
    assert_int_equal(plan.place[3].bucket, 0);
    assert_int_equal(plan.place[1].bucket, 0);
    assert_int_equal(plan.place[1].offset, 32); /* behind 2 elements of 2 bytes, at the next 64 */
    assert_int_equal(plan.place[0].bucket, 1);
    assert_int_equal(plan.place[0].offset, 16);
    assert_int_equal(plan.bucket[1].n_elements, 32);
    bl_plan_free(&plan);
}

static void a_parameter_that_is_larger_than_a_bucket_has_one_alone(void **state)
{
    (void)state;
    const bl_plan_parameter sizes[] = {{1, BELAY_F32}, {1000, BELAY_F32}, {1, BELAY_F32}};
    const int64_t order[] = {2, 1, 0};
    bl_plan plan;
    assert_true(bl_plan_make(sizes, order, 3, 4, 400, &plan));
    assert_int_equal(plan.n_buckets, 3);
    assert_int_equal(plan.bucket[1].n_parameters, 1);
    assert_int_equal(plan.bucket[1].n_elements, 1008);
    bl_plan_free(&plan);
}

static void nothing_to_reduce_is_no_bucket(void **state)
{
    (void)state;
    bl_plan plan;
    assert_true(bl_plan_make(NULL, NULL, 0, 64, 64, &plan));
    assert_int_equal(plan.n_buckets, 0);
    bl_plan_free(&plan);
}

static void empty_parameters_take_no_room(void **state)
{
    (void)state;
    const bl_plan_parameter sizes[] = {{0, BELAY_F32}, {4, BELAY_F32}, {0, BELAY_F32}};
    const int64_t order[] = {0, 1, 2};
    bl_plan plan;
    assert_true(bl_plan_make(sizes, order, 3, 1 << 20, 1 << 20, &plan));
    assert_int_equal(plan.n_buckets, 1);
    assert_int_equal(plan.bucket[0].n_elements, 16);
    assert_int_equal(plan.bucket[0].n_parameters, 3);
    bl_plan_free(&plan);
}

static void sizes_that_overflow_are_no_plan(void **state)
{
    (void)state;
    const bl_plan_parameter sizes[] = {{64, BELAY_F32}, {INT64_MAX - 5, BELAY_F32}};
    const int64_t order[] = {0, 1};
    bl_plan plan;
    assert_false(bl_plan_make(sizes, order, 2, INT64_MAX, INT64_MAX, &plan));
    assert_null(plan.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_bucket_is_small_and_the_others_are_not),
        cmocka_unit_test(dtypes_never_share_a_bucket),
        cmocka_unit_test(a_parameter_that_is_larger_than_a_bucket_has_one_alone),
        cmocka_unit_test(nothing_to_reduce_is_no_bucket),
        cmocka_unit_test(empty_parameters_take_no_room),
        cmocka_unit_test(sizes_that_overflow_are_no_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
