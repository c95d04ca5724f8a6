/* SPDX-License-Identifier: Apache-2.0 */
/* What convolutions and pools refuse, and what they find on the way back, in whole texts. */
#include "support/spoil.h"
#include "support/told.h"

#include <stdio.h>

/* The call on line `line` was refused: headline, op, tensors. */
static void expect(belay_code code, int line, const char *what, const char *op, const char *tensors)
{
    told_expect("belay: %s (%s)\n    op: %s, called at test_conv_faults.c:%d\n    tensors: %s; on cpu\n" TOLD_START
                "%s",
                what, belay_code_name(code), op, line, tensors, told_try(code));
}

static void convolutions_that_do_not_fit_are_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor none = {0}, x = belay_zeros(context, BELAY_F32, (belay_shape){4, {2, 3, 8, 8}});
    belay_tensor w = belay_zeros(context, BELAY_F32, (belay_shape){4, {5, 3, 3, 3}});
    const char *both = "x [2, 3, 8, 8] f32; weight [5, 3, 3, 3] f32";
    int line = __LINE__ + 1;
    belay_conv2d(x, belay_zeros(context, BELAY_F32, (belay_shape){4, {5, 4, 3, 3}}), none, NULL);
    expect(BELAY_SHAPE_CONTRACT, line, "weight is [5, 4, 3, 3] where [5, 3, 3, 3] is needed", "conv2d",
           "x [2, 3, 8, 8] f32; weight [5, 4, 3, 3] f32");
    line = __LINE__ + 1;
    belay_conv2d(x, w, belay_zeros(context, BELAY_F32, belay_shape1(3)), NULL);
    expect(BELAY_SHAPE_CONTRACT, line, "bias is [3] where [5] is needed", "conv2d",
           "x [2, 3, 8, 8] f32; weight [5, 3, 3, 3] f32; bias [3] f32");
    line = __LINE__ + 1;
    belay_conv2d(x, belay_zeros(context, BELAY_F64, (belay_shape){4, {5, 3, 3, 3}}), none, NULL);
    expect(BELAY_TYPE_DTYPE, line, "weight is f64 where f32 is needed", "conv2d",
           "x [2, 3, 8, 8] f32; weight [5, 3, 3, 3] f64");
    line = __LINE__ + 1;
    belay_conv1d(x, w, none, NULL);
    expect(BELAY_SHAPE_RANK, line, "conv1d takes x [batch, in, time] and a weight [out, in, kernel], not 4 and 4 axes",
           "conv1d", both);
    assert_true(belay_tensor_is_nil(belay_conv2d(none, w, none, NULL))); /* nil absorbs */
    assert_true(belay_tensor_is_nil(belay_conv2d(x, none, none, NULL)));
    told_expect("%s", "");
    line = __LINE__ + 1;
    belay_conv2d(x, w, none, &(belay_conv_options){.groups = 3});
    expect(BELAY_CONF_VALUE, line, "groups of conv2d is 3, which does not divide 3 channels in and 5 out", "conv2d",
           both);
    line = __LINE__ + 1;
    belay_conv2d(x, w, none, &(belay_conv_options){.groups = -1});
    expect(BELAY_CONF_VALUE, line, "groups of conv2d is -1: it must be at least 1", "conv2d", both);
    line = __LINE__ + 1;
    belay_conv2d(x, belay_zeros(context, BELAY_F32, (belay_shape){4, {6, 3, 3, 3}}), none,
                 &(belay_conv_options){.groups = 3});
    expect(BELAY_SHAPE_CONTRACT, line, "weight is [6, 3, 3, 3] where [6, 1, 3, 3] is needed", "conv2d",
           "x [2, 3, 8, 8] f32; weight [6, 3, 3, 3] f32");
    line = __LINE__ + 1;
    belay_conv2d(belay_cast(x, BELAY_I32), belay_cast(w, BELAY_I32), none, NULL);
    expect(BELAY_TYPE_DTYPE, line, "conv2d takes floats, not i32", "conv2d",
           "x [2, 3, 8, 8] i32; weight [5, 3, 3, 3] i32");
    assert_int_equal(belay_close(context), 3);
}

static void windows_of_a_convolution_that_do_not_fit_are_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor none = {0}, x = belay_zeros(context, BELAY_F32, (belay_shape){4, {2, 3, 8, 8}});
    belay_tensor w = belay_zeros(context, BELAY_F32, (belay_shape){4, {5, 3, 3, 3}});
    static const struct {
        belay_conv_options options;
        belay_code code;
        const char *what;
    } refused[] = {
        {{.stride = {1, -2}}, BELAY_CONF_VALUE, "stride of conv2d along axis 3 is -2: it must be at least 1"},
        {{.padding = {-1, 0}}, BELAY_CONF_VALUE, "padding of conv2d along axis 2 is -1: it must be at least 0"},
        {{.dilation = {0, -1}}, BELAY_CONF_VALUE, "dilation of conv2d along axis 3 is -1: it must be at least 1"},
        {{.padding = {1, 1}, .dilation = {5, 1}},
         BELAY_SHAPE_CONTRACT,
         "a window of 11 does not fit along axis 2, which has 8 elements and padding of 1 on each side"},
        {{.padding = {INT64_MAX, 1}},
         BELAY_SIZE_OVERFLOW,
         "windows of conv2d along axis 2 reach beyond 2^63 - 1: kernel 3, dilation 1, padding 9223372036854775807"},
        {{.padding = {INT64_MAX / 4, INT64_MAX / 4}},
         BELAY_SIZE_OVERFLOW,
         "a kernel of [3, 3, 3] at [4611686018427387908, 4611686018427387908] positions: conv2d has more than 2^63 - 1 "
         "products an image"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        int line = __LINE__ + 1;
        assert_true(belay_tensor_is_nil(belay_conv2d(x, w, none, &refused[i].options)));
        expect(refused[i].code, line, refused[i].what, "conv2d", "x [2, 3, 8, 8] f32; weight [5, 3, 3, 3] f32");
    }
    belay_close(context);
}

static void pools_that_do_not_fit_are_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape3(3, 8, 4));
    int line = __LINE__ + 1;
    belay_max_pool2d(x, NULL, NULL);
    expect(BELAY_CONF_VALUE, line, "kernel of max_pool2d along axis 1 is 0: it must be at least 1", "max_pool2d",
           "x [3, 8, 4] f32");
    line = __LINE__ + 1;
    belay_max_pool2d(x, &(belay_pool_options){.kernel = {2, 3}, .padding = {1, 2}}, NULL);
    expect(BELAY_CONF_VALUE, line, "padding of max_pool2d along axis 2 is 2, above half of its kernel of 3",
           "max_pool2d", "x [3, 8, 4] f32");
    line = __LINE__ + 1;
    belay_avg_pool1d(x, &(belay_pool_options){.kernel = {5}});
    expect(BELAY_SHAPE_CONTRACT, line,
           "a window of 5 does not fit along axis 2, which has 4 elements and padding of 0 on each side", "avg_pool1d",
           "x [3, 8, 4] f32");
    line = __LINE__ + 1;
    belay_avg_pool2d(belay_zeros(context, BELAY_F32, belay_shape1(4)), &(belay_pool_options){.kernel = {2, 2}});
    expect(BELAY_SHAPE_RANK, line, "avg_pool2d takes x with at least 2 axes, not 1", "avg_pool2d", "x [4] f32");
    belay_tensor at = x;
    assert_true(belay_tensor_is_nil(belay_max_pool1d((belay_tensor){0}, NULL, &at)));
    assert_true(belay_tensor_is_nil(at));
    assert_true(belay_tensor_is_nil(belay_avg_pool1d((belay_tensor){0}, NULL)));
    told_expect("%s", "");
    assert_int_equal(belay_close(context), 2);
}

/* What pools call one of their parts is not what the program has called. */
static void pools_are_named_as_they_were_called(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_I32, belay_shape3(2, 3, 8)), empty[2];
    const belay_pool_options two = {.kernel = {2, 2}}, padded = {.kernel = {2, 2}, .padding = {1, 1}};
    int line = __LINE__ + 1;
    belay_max_pool1d(x, &two, NULL);
    expect(BELAY_TYPE_DTYPE, line, "max_pool1d takes floats, not i32", "max_pool1d", "x [2, 3, 8] i32");
    line = __LINE__ + 1;
    belay_avg_pool2d(x, &padded);
    expect(BELAY_TYPE_DTYPE, line, "avg_pool2d takes floats, not i32", "avg_pool2d", "x [2, 3, 8] i32");
    empty[0] = belay_zeros(context, BELAY_F32, belay_shape3(2, 3, 0));
    empty[1] = belay_zeros(context, BELAY_F32, belay_shape3(0, 3, 4));
    line = __LINE__ + 1;
    belay_max_pool2d(empty[0], &padded, NULL); /* windows over padding alone */
    expect(BELAY_SHAPE_CONTRACT, line, "max_pool2d over no elements: there is no largest one", "max_pool2d",
           "x [2, 3, 0] f32");
    for (int i = 0; i < 2; i++) {
        belay_tensor_requires_grad_set(empty[i], true);
        belay_tensor y = i == 0 ? belay_avg_pool2d(empty[i], &padded) : belay_max_pool2d(empty[i], &padded, NULL);
        belay_backward(belay_sum(y, NULL));
        told_expect("%s", "");
    }
    belay_close(context);
}

static void indices_are_tested_again_on_the_way_back(void **state)
{
    (void)state;
    const float values[] = {1, 2, 3, 4, 5, 6};
    const int64_t bad[] = {1, 6, -1};
    float got[6];
    belay_context *context = told_open();
    belay_tensor x = told_leaf(context, belay_shape2(1, 6), values), at;
    belay_tensor_name_set(x, "x");
    int line = __LINE__ + 1;
    belay_tensor y = belay_max_pool1d(x, &(belay_pool_options){.kernel = {2}}, &at);
    assert_int_equal(spoil(at, bad, sizeof bad), BELAY_OK);
    belay_backward(belay_sum(y, NULL));
    told_expect("belay: at[0, 0, 1] is 6, outside [0, 6) (index.range)\n"
                "    op: max_pool_grad (backward), called at test_conv_faults.c:%d\n"
                "    tensors: g_y [1, 1, 3] f32; at [1, 1, 3] i64; on cpu\n"
                "    bad: 2 of 3 elements; values 6, -1\n" TOLD_START
                "    likely: the value equals the bound: off by one, or a padding or special id that the table was not "
                "grown for\n"
                "    try: Count ids from 0; a padding or special token needs a row of its own: make the table one row "
                "larger.\n",
                line);
    told_read(belay_tensor_grad(x), got, 6);
    const float wanted[] = {0, 1, 0, 0, 0, 0};
    assert_memory_equal(got, wanted, sizeof got);
    assert_int_equal(belay_close(context), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_that_do_not_fit_are_named),
        cmocka_unit_test(windows_of_a_convolution_that_do_not_fit_are_named),
        cmocka_unit_test(pools_that_do_not_fit_are_named),
        cmocka_unit_test(pools_are_named_as_they_were_called),
        cmocka_unit_test(indices_are_tested_again_on_the_way_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
