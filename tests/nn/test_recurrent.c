/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent modules in both directions and GRUs: names, first values, state, and what is refused in whole texts. */
#include "nn/expect.h"

#include <belay/train.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const belay_tensor none = {0};

static void parameters_have_the_names_shapes_and_bounds_of_pytorch(void **state)
{
    (void)state;
    const named wanted[] = {
        {"weight_ih_l0", belay_shape2(12, 3)},
        {"weight_hh_l0", belay_shape2(12, 4)},
        {"bias_ih_l0", belay_shape1(12)},
        {"bias_hh_l0", belay_shape1(12)},
        {"weight_ih_l0_reverse", belay_shape2(12, 3)},
        {"weight_hh_l0_reverse", belay_shape2(12, 4)},
        {"bias_ih_l0_reverse", belay_shape1(12)},
        {"bias_hh_l0_reverse", belay_shape1(12)},
        {"weight_ih_l1", belay_shape2(12, 8)},
        {"weight_hh_l1", belay_shape2(12, 4)},
        {"bias_ih_l1", belay_shape1(12)},
        {"bias_hh_l1", belay_shape1(12)},
        {"weight_ih_l1_reverse", belay_shape2(12, 8)},
        {"weight_hh_l1_reverse", belay_shape2(12, 4)},
        {"bias_ih_l1_reverse", belay_shape1(12)},
        {"bias_hh_l1_reverse", belay_shape1(12)},
    };
    belay_context *context = told_open();
    belay_gru_module_options options = {.in = 3, .hidden = 4, .layers = 2, .bidirectional = true};
    belay_module *gru = belay_gru_module(context, &options);
    expect_parameters(gru, wanted, 16);
    for (int i = 0; i < 16; i++) {
        belay_tensor p = belay_module_parameter(gru, i);
        float values[12 * 8], largest = 0;
        told_read(p, values, belay_tensor_n_elements(p));
        for (int64_t k = 0; k < belay_tensor_n_elements(p); k++)
            largest = fmaxf(largest, fabsf(values[k]));
        assert_true(largest <= 0.5f && largest > 0.2f); /* 1 / sqrt(4) */
    }
    options.no_bias = true;
    options.bidirectional = false;
    assert_int_equal(belay_module_n_parameters(belay_gru_module(context, &options)), 4);
    told_close(context);
}

static void a_forward_is_the_run_without_a_state(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_recurrent_module_options options = {.in = 3, .hidden = 2, .layers = 2, .bidirectional = true};
    belay_module *gru = belay_gru_module(context, &options), *lstm = belay_lstm_module(context, &options);
    belay_tensor x = belay_normal(context, BELAY_F32, belay_shape3(2, 5, 3), 0, 1);
    float got[40], want[40];
    told_read(belay_forward(gru, x), got, 40);
    told_read(belay_gru_module_run(gru, x, belay_zeros(context, BELAY_F32, belay_shape3(4, 2, 2))).output, want, 40);
    assert_memory_equal(got, want, sizeof got);
    told_read(belay_forward(lstm, x), got, 40);
    told_read(belay_lstm_module_run(lstm, x, none, none).output, want, 40);
    assert_memory_equal(got, want, sizeof got);
    told_close(context);
}

/* A file of one loads into another, which then computes the same. */
static void a_saved_module_loads_into_another(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_gru_module_options options = {.in = 3, .hidden = 2, .bidirectional = true};
    belay_module *one = belay_gru_module(context, &options), *other = belay_gru_module(context, &options);
    belay_tensor x = belay_normal(context, BELAY_F32, belay_shape3(2, 3, 3), 0, 1);
    float got[24], want[24];
    char path[64];
    snprintf(path, sizeof path, "/tmp/belay_recurrent_%ld.safetensors", (long)getpid());
    assert_int_equal(belay_checkpoint_save(one, path, NULL, 0), BELAY_OK);
    assert_int_equal(belay_checkpoint_load(other, path), BELAY_OK);
    unlink(path);
    told_read(belay_forward(one, x), want, 24);
    told_read(belay_forward(other, x), got, 24);
    assert_memory_equal(got, want, sizeof got);
    told_close(context);
}

static void shapes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_gru_module_options options = {.in = 3, .hidden = 2, .bidirectional = true};
    belay_module *gru = belay_gru_module(context, &options);
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape3(4, 5, 7));
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_forward(gru, x)));
    told_expect("belay: weight_ih of layer 0 is [6, 3] where [6, 7] is needed (shape.contract)\n"
                "    op: gru in layer gru, called at test_recurrent.c:%d\n"
                "    tensors: x [4, 5, 7] f32; weight_ih_l0 [6, 3] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    x = belay_zeros(context, BELAY_F32, belay_shape3(4, 5, 3));
    line = __LINE__ + 1;
    belay_gru_module_run(gru, x, belay_zeros(context, BELAY_F32, belay_shape3(1, 4, 2)));
    told_expect("belay: h0 is [1, 4, 2] where [2, 4, 2] is needed (shape.contract)\n"
                "    op: gru in layer gru, called at test_recurrent.c:%d\n"
                "    tensors: x [4, 5, 3] f32; h0 [1, 4, 2] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    belay_gru_weights weights[2] = {{belay_zeros(context, BELAY_F32, belay_shape2(6, 3)),
                                     belay_zeros(context, BELAY_F32, belay_shape2(6, 2)), none, none}};
    weights[1] = weights[0];
    weights[1].bias_hh = belay_zeros(context, BELAY_F32, belay_shape1(2));
    line = __LINE__ + 1;
    belay_gru(x, none, weights, &(belay_gru_options){.bidirectional = true});
    told_expect("belay: bias_hh of reverse 0 is [2] where [6] is needed (shape.contract)\n"
                "    op: gru, called at test_recurrent.c:%d\n"
                "    tensors: x [4, 5, 3] f32; bias_hh of reverse 0 [2] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    weights[0].hh = belay_zeros(context, BELAY_F32, belay_shape1(6));
    line = __LINE__ + 1;
    belay_gru(x, none, weights, NULL);
    told_expect("belay: weight_hh of layer 0 is no [3 hidden, hidden] (shape.contract)\n"
                "    op: gru, called at test_recurrent.c:%d\n"
                "    tensors: x [4, 5, 3] f32; weight_hh of layer 0 [6] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    line = __LINE__ + 1;
    belay_forward(gru, belay_zeros(context, BELAY_F64, belay_shape3(4, 5, 3)));
    told_expect("belay: weight_ih of layer 0 is f32 where f64 is needed (type.dtype)\n"
                "    op: gru in layer gru, called at test_recurrent.c:%d\n"
                "    tensors: x [4, 5, 3] f64; weight_ih_l0 [6, 3] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_TYPE_DTYPE));
    line = __LINE__ + 1;
    belay_forward(gru, belay_zeros(context, BELAY_F32, belay_shape2(4, 3)));
    told_expect("belay: gru takes x [batch, time, in], not 2 axes (shape.rank)\n"
                "    op: gru in layer gru, called at test_recurrent.c:%d\n"
                "    tensors: x [4, 3] f32; weight_hh_l0 [6, 2] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_RANK));
    assert_int_equal(belay_close(context), 3);
}

static void calls_with_options_out_of_range_are_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape3(4, 5, 3));
    belay_recurrent_weights weights[1] = {{none, none, none, none}};
    int line = __LINE__ + 1;
    belay_gru(x, none, NULL, NULL);
    told_expect("belay: gru needs the weights of its layers (conf.missing)\n"
                "    called at: test_recurrent.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_MISSING));
    line = __LINE__ + 1;
    belay_lstm(x, none, none, weights, &(belay_lstm_options){.layers = 16, .bidirectional = true});
    told_expect("belay: layers of lstm is 16, outside [1, 15] in both directions (conf.value)\n"
                "    op: lstm, called at test_recurrent.c:%d\n"
                "    tensors: x [4, 5, 3] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_VALUE));
    line = __LINE__ + 1;
    belay_gru(x, none, weights, &(belay_gru_options){.dropout = 1.5});
    told_expect("belay: dropout of gru is 1.5, outside [0, 1) (conf.value)\n"
                "    called at: test_recurrent.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_VALUE));
    assert_true(belay_tensor_is_nil(belay_gru(none, none, weights, NULL).h_n)); /* nil absorbs */
    assert_true(belay_tensor_is_nil(belay_gru(x, none, weights, NULL).h_n));
    told_expect("%s", "");
    assert_int_equal(belay_close(context), 2);
}

static void modules_with_options_out_of_range_are_nil(void **state)
{
    (void)state;
    static const belay_recurrent_module_options options[] = {
        {.hidden = 2},
        {.in = 4},
        {.in = 4, .hidden = 2, .layers = 16, .bidirectional = true},
        {.in = 4, .hidden = 2, .layers = -1},
        {.in = 4, .hidden = 2, .dropout = -0.5},
        {.in = 4, .hidden = INT64_MAX / 2},
    };
    static const char *const words[] = {
        "in of gru is 0: it must be at least 1",
        "hidden of gru is 0: it must be at least 1",
        "layers of gru is 16, outside [1, 15] in both directions",
        "layers of gru is -1, outside [1, 30]",
        "dropout of gru is -0.5, outside [0, 1)",
        "hidden of gru is 4611686018427387903: three times that is above 2^63 - 1",
    };
    for (int i = 0; i < 6; i++) {
        belay_context *context = told_open();
        belay_code code = i == 5 ? BELAY_SIZE_OVERFLOW : BELAY_CONF_VALUE;
        int line = __LINE__ + 1;
        belay_module *module = belay_gru_module(context, &options[i]);
        told_expect("belay: %s (%s)\n"
                    "    called at: test_recurrent.c:%d\n" TOLD_START "%s",
                    words[i], belay_code_name(code), line, told_try(code));
        assert_true(belay_module_is_nil(module));
        assert_true(belay_tensor_is_nil(belay_gru_module_run(module, none, none).output));
        assert_int_not_equal(belay_close(context), 0);
    }
}

static void a_run_of_another_kind_of_module_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *lstm = belay_lstm_module(context, &(belay_lstm_module_options){.in = 3, .hidden = 2});
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape3(4, 5, 3));
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_gru_module_run(lstm, x, none).output));
    told_expect("belay: module lstm is no gru (conf.value)\n"
                "    called at: test_recurrent.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_VALUE));
    assert_int_equal(belay_close(context), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_the_names_shapes_and_bounds_of_pytorch),
        cmocka_unit_test(a_forward_is_the_run_without_a_state),
        cmocka_unit_test(a_saved_module_loads_into_another),
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
        cmocka_unit_test(calls_with_options_out_of_range_are_named),
        cmocka_unit_test(modules_with_options_out_of_range_are_nil),
        cmocka_unit_test(a_run_of_another_kind_of_module_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
