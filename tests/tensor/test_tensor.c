/* SPDX-License-Identifier: Apache-2.0 */
/* Makers, values in and out, names, sizes and views that are refused. */
#include "support/told.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/context.h"

static void values_come_back_as_they_went_in(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t values[] = {INT64_MIN, -1, 0, INT64_MAX};
    int64_t out[4];
    belay_tensor x = belay_tensor_from(context, BELAY_I64, belay_shape2(2, 2), values, sizeof values);
    assert_int_equal(belay_tensor_read(x, out, sizeof out), BELAY_OK);
    assert_memory_equal(out, values, sizeof out);
    const int64_t others[] = {1, 2, 3, 4};
    assert_int_equal(belay_tensor_write(x, others, sizeof others), BELAY_OK);
    assert_int_equal(belay_tensor_read(x, out, sizeof out), BELAY_OK);
    assert_memory_equal(out, others, sizeof out);
    assert_int_equal(belay_tensor_shape(x).rank, 2);
    assert_int_equal(belay_tensor_dtype(x), BELAY_I64);
    assert_int_equal(belay_tensor_n_elements(x), 4);
    assert_ptr_equal(belay_tensor_context(x), context);
    told_close(context);
}

static void a_strided_view_is_read_in_its_own_order(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const float values[] = {1, 2, 3, 4, 5, 6}, expected[] = {1, 4, 2, 5, 3, 6};
    belay_tensor x = belay_transpose(told_f32(context, belay_shape2(2, 3), values), 0, 1);
    float out[6];
    assert_false(belay_tensor_is_contiguous(x));
    told_read(x, out, 6);
    assert_memory_equal(out, expected, sizeof out);
    told_close(context);
}

static void an_item_is_one_value_of_any_dtype(void **state)
{
    (void)state;
    belay_context *context = told_open();
    for (int d = 0; d < BELAY_N_DTYPES; d++) {
        belay_tensor x = belay_full(context, d, belay_shape0(), 1);
        if (d != BELAY_F16)
            assert_true(belay_tensor_item(x) == 1);
        told_clear();
    }
    belay_faults_clear(context);
    assert_true(isnan(belay_tensor_item((belay_tensor){0})));
    int line = __LINE__ + 1;
    assert_true(isnan(belay_tensor_item(belay_zeros(context, BELAY_F32, belay_shape1(3)))));
    told_expect("belay: one value was asked of a tensor with 3 elements (shape.contract)\n"
                "    called at: test_tensor.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    assert_int_equal(belay_close(context), 3);
}

static void the_wrong_number_of_bytes_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    float values[6] = {0};
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_tensor_from(context, BELAY_F32, belay_shape2(2, 3), values, 20)));
    told_expect("belay: 20 bytes were given for a tensor [2, 3] f32 of 24 bytes (shape.contract)\n"
                "    called at: test_tensor.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape2(2, 3));
    assert_int_equal(belay_tensor_read(x, values, 28), BELAY_SHAPE_CONTRACT);
    assert_int_equal(belay_tensor_write(x, values, -1), BELAY_SHAPE_CONTRACT);
    assert_int_equal(context->n_storages_alive, 1);
    told_clear();
    assert_int_equal(belay_tensor_write(belay_transpose(x, 0, 1), values, 24), BELAY_SHAPE_CONTRACT);
    assert_non_null(strstr(told(), "belay: a tensor that is written must be contiguous (shape.contract)\n"));
    assert_int_equal(belay_close(context), 3);
}

static void absent_data_are_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_tensor_from(context, BELAY_F32, belay_shape1(2), NULL, 8)));
    told_expect("belay: 8 bytes were promised at a NULL pointer (conf.missing)\n"
                "    called at: test_tensor.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_MISSING));
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(2));
    assert_int_equal(belay_tensor_read(x, NULL, 8), BELAY_CONF_MISSING);
    assert_int_equal(belay_tensor_write(x, NULL, 8), BELAY_CONF_MISSING);
    belay_tensor none = belay_tensor_from(context, BELAY_F32, belay_shape1(0), NULL, 0);
    assert_true(belay_tensor_is_alive(none));
    assert_int_equal(belay_tensor_read(none, NULL, 0), BELAY_OK);
    assert_int_equal(belay_close(context), 2);
}

static void sizes_are_proved_before_memory_is_asked_for(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t big = INT64_C(1) << 40;
    const struct {
        belay_shape shape;
        const char *words;
    } cases[] = {
        {{3, {big, big, 1}},
         "a tensor of shape [1099511627776, 1099511627776, 1] has more bytes than 2^63 - 1 "
         "(size.overflow)"},
        {{3, {big, 0, big}},
         "a tensor of shape [1099511627776, 0, 1099511627776] has more bytes than 2^63 - 1 "
         "(size.overflow)"},
        {{1, {INT64_MAX}}, "a tensor of shape [9223372036854775807] has more bytes than 2^63 - 1 (size.overflow)"},
        {{2, {3, -1}}, "a tensor of shape [3, -1] has a negative size (shape.contract)"},
        {{9, {1}}, "a tensor of 9 axes: the most are 8 (shape.rank)"},
        {{-1, {1}}, "a tensor of -1 axes: the most are 8 (shape.rank)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int line = __LINE__ + 1;
        assert_true(belay_tensor_is_nil(belay_zeros(context, BELAY_F32, cases[i].shape)));
        char said[512];
        snprintf(said, sizeof said, "belay: %s\n    called at: test_tensor.c:%d\n", cases[i].words, line);
        assert_true(words_have(told(), said));
        told_clear();
    }
    assert_int_equal(context->n_storages_alive, 0);
    assert_int_equal(belay_close(context), 3);
}

static void memory_that_ends_leaves_the_context_usable(void **state)
{
    (void)state;
    told_clear();
    belay_context *context =
        belay_open(&(belay_options){.log = told_remember, .no_journal = true, .memory = BELAY_MEMORY_POOL});
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(8));
    for (int shift = 46; shift < 61; shift++) {
        int line = __LINE__ + 1;
        assert_true(belay_tensor_is_nil(belay_zeros(context, BELAY_F32, belay_shape1(INT64_C(1) << shift))));
        told_expect("belay: no memory for a tensor of %lld bytes (mem.exhausted)\n"
                    "    called at: test_tensor.c:%d\n"
                    "    in use: 64 bytes, held: 0 bytes\n" TOLD_START "%s",
                    4LL << shift, line, told_try(BELAY_MEM_EXHAUSTED));
    }
    assert_true(belay_tensor_item(belay_sum(x, NULL)) == 8);
    assert_int_equal(belay_close(context), 4);
}

static void a_dtype_that_is_none_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_tensor_from(context, (belay_dtype)77, belay_shape1(1), "abcd", 4)));
    told_expect("belay: dtype 77 is none (type.dtype)\n"
                "    called at: test_tensor.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_TYPE_DTYPE));
    assert_int_equal(belay_close(context), 3);
}

static void views_past_their_storage_are_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(6));
    const struct {
        belay_shape shape;
        int64_t stride[2], offset;
        bool fits;
    } cases[] = {
        {{2, {2, 3}}, {3, 1}, 0, true}, {{2, {2, 3}}, {3, 1}, 1, false},   {{2, {3, 3}}, {3, 1}, 0, false},
        {{1, {6}}, {1}, 0, true},       {{1, {1}}, {100}, 5, true},        {{1, {1}}, {1}, 6, false},
        {{1, {3}}, {2}, 1, true},       {{1, {3}}, {-1}, 5, false},        {{1, {1}}, {1}, -1, false},
        {{1, {0}}, {1}, 6, true},       {{1, {100}}, {0}, 5, true},        {{2, {2, 2}}, {INT64_MAX, 1}, 0, false},
        {{0, {0}}, {0}, 5, true},       {{0, {0}}, {0}, INT64_MAX, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t stride[BELAY_MAX_RANK] = {cases[i].stride[0], cases[i].stride[1]};
        belay_tensor y = bl_tensor_view(context, x, &cases[i].shape, stride, cases[i].offset);
        assert_true(belay_tensor_is_nil(y) == !cases[i].fits);
        assert_true((strstr(told(), "reaches past the bytes of the tensor that it views (size.extent)\n") == NULL) ==
                    cases[i].fits);
        told_clear();
    }
    belay_shape wide = belay_shape2(INT64_C(1) << 40, INT64_C(1) << 40);
    const int64_t none[BELAY_MAX_RANK] = {0};
    assert_true(belay_tensor_is_nil(bl_tensor_view(context, x, &wide, none, 0)));
    assert_non_null(strstr(told(), "has more bytes than 2^63 - 1 (size.overflow)\n"));
    assert_int_equal(belay_close(context), 3);
}

static void a_view_with_too_many_axes_is_refused_before_it_is_read(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_shape shape = {.rank = 100, .size = {1, 1, 1, 1, 1, 1, 1, 1}};
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_view(belay_ones(context, BELAY_F32, belay_shape1(1)), shape)));
    told_expect("belay: a view of 100 axes: the most are 8 (shape.rank)\n"
                "    op: view, called at test_tensor.c:%d\n"
                "    tensors: x [1] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_RANK));
    assert_int_equal(belay_close(context), 3);
}

static void a_name_is_copied_and_goes_to_views(void **state)
{
    (void)state;
    belay_context *context = told_open();
    char name[] = "weight";
    belay_tensor x = belay_tensor_name_set(belay_zeros(context, BELAY_F32, belay_shape1(4)), name);
    name[0] = 'W';
    assert_string_equal(belay_tensor_name(x), "weight");
    assert_string_equal(belay_tensor_name(belay_view(x, belay_shape2(2, 2))), "weight");
    belay_tensor_name_set(x, NULL);
    assert_string_equal(belay_tensor_name(x), "");
    told_close(context);
}

static void gradients_are_for_floats_and_leaves(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor ids = belay_zeros(context, BELAY_I64, belay_shape1(2));
    int line = __LINE__ + 1;
    belay_tensor_requires_grad_set(ids, true);
    told_expect("belay: a tensor of dtype i64 cannot have a gradient (type.dtype)\n"
                "    called at: test_tensor.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_TYPE_DTYPE));
    assert_false(belay_tensor_requires_grad(ids));
    belay_tensor x = told_leaf(context, belay_shape1(1), (const float[]){1}), y = belay_neg(x);
    assert_true(belay_tensor_requires_grad(x));
    assert_true(belay_tensor_requires_grad(y));
    line = __LINE__ + 1;
    belay_tensor_requires_grad_set(y, true);
    told_expect("belay: a gradient was asked of a tensor that a recorded op made (life.tape)\n"
                "    called at: test_tensor.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_TAPE));
    assert_true(belay_tensor_is_nil(belay_tensor_grad(x)));
    assert_int_equal(belay_close(context), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back_as_they_went_in),
        cmocka_unit_test(a_strided_view_is_read_in_its_own_order),
        cmocka_unit_test(an_item_is_one_value_of_any_dtype),
        cmocka_unit_test(the_wrong_number_of_bytes_is_refused),
        cmocka_unit_test(absent_data_are_refused),
        cmocka_unit_test(sizes_are_proved_before_memory_is_asked_for),
        cmocka_unit_test(memory_that_ends_leaves_the_context_usable),
        cmocka_unit_test(a_dtype_that_is_none_is_refused),
        cmocka_unit_test(views_past_their_storage_are_refused),
        cmocka_unit_test(a_view_with_too_many_axes_is_refused_before_it_is_read),
        cmocka_unit_test(a_name_is_copied_and_goes_to_views),
        cmocka_unit_test(gradients_are_for_floats_and_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
