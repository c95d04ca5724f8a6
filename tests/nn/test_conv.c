/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of convolutions and pools: names, shapes and first values, forwards, state, and what is refused. */
#include "support/told.h"

#include <belay/nn.h>
#include <belay/train.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const belay_conv_module_options wide = {
    .in = 3, .out = 8, .kernel = {2, 3}, .stride = {2, 1}, .padding = {0, 1}, .dilation = {1, 2}};

static void parameters_have_the_names_shapes_and_bounds_of_pytorch(void **state)
{
    (void)state;
    float values[144], largest = 0;
    belay_context *context = told_open();
    belay_module *conv = belay_conv2d_module(context, &wide);
    assert_int_equal(belay_module_n_parameters(conv), 2);
    assert_string_equal(belay_module_parameter_name(conv, 0), "weight");
    assert_string_equal(belay_module_parameter_name(conv, 1), "bias");
    belay_shape weight = belay_tensor_shape(belay_module_parameter(conv, 0));
    const int64_t sizes[] = {8, 3, 2, 3};
    assert_int_equal(weight.rank, 4);
    assert_memory_equal(weight.size, sizes, sizeof sizes);
    told_read(belay_module_parameter(conv, 0), values, 144);
    for (int i = 0; i < 144; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    assert_true(largest <= (float)(1 / sqrt(18)) && largest > 0.2f);
    belay_conv_module_options narrow = {.in = 3, .out = 2, .kernel = {5}, .no_bias = true};
    belay_module *one = belay_conv1d_module(context, &narrow);
    assert_int_equal(belay_module_n_parameters(one), 1);
    assert_int_equal(belay_tensor_shape(belay_module_find(one, "weight")).rank, 3);
    told_close(context);
}

static void forwards_are_the_calls(void **state)
{
    (void)state;
    float got[256], want[256];
    belay_context *context = told_open();
    belay_tensor x = belay_normal(context, BELAY_F32, (belay_shape){4, {2, 3, 5, 6}}, 0, 1);
    belay_module *conv = belay_conv2d_module(context, &wide);
    belay_conv_options options = {{2, 1}, {0, 1}, {1, 2}, 0};
    belay_tensor y = belay_conv2d(x, belay_module_find(conv, "weight"), belay_module_find(conv, "bias"), &options);
    told_read(belay_forward(conv, x), got, belay_tensor_n_elements(y));
    told_read(y, want, belay_tensor_n_elements(y));
    assert_memory_equal(got, want, (size_t)belay_tensor_n_elements(y) * 4);
    const belay_pool_options pool = {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}, .exclude_pad = true};
    belay_module *const modules[] = {belay_max_pool1d_module(context, &pool), belay_max_pool2d_module(context, &pool),
                                     belay_avg_pool1d_module(context, &pool), belay_avg_pool2d_module(context, &pool)};
    const belay_tensor results[] = {belay_max_pool1d(x, &pool, NULL), belay_max_pool2d(x, &pool, NULL),
                                    belay_avg_pool1d(x, &pool), belay_avg_pool2d(x, &pool)};
    for (int i = 0; i < 4; i++) {
        int64_t n = belay_tensor_n_elements(results[i]);
        assert_true(n > 0 && n <= 256);
        told_read(belay_forward(modules[i], x), got, n);
        told_read(results[i], want, n);
        assert_memory_equal(got, want, (size_t)n * 4);
    }
    told_close(context);
}

static void groups_cut_the_weight_and_its_bound(void **state)
{
    (void)state;
    float got[256], want[256], values[72], largest = 0;
    belay_context *context = told_open();
    belay_tensor x = belay_normal(context, BELAY_F32, (belay_shape){4, {2, 4, 5, 6}}, 0, 1);
    belay_module *conv = belay_conv2d_module(
        context, &(belay_conv_module_options){.in = 4, .out = 8, .kernel = {3, 3}, .no_bias = true, .groups = 4});
    const int64_t sizes[] = {8, 1, 3, 3};
    belay_tensor weight = belay_module_find(conv, "weight");
    assert_memory_equal(belay_tensor_shape(weight).size, sizes, sizeof sizes);
    told_read(weight, values, 72);
    for (int i = 0; i < 72; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    assert_true(largest <= 1.0f / 3 && largest > 0.3f);
    belay_tensor y = belay_conv2d(x, weight, (belay_tensor){0}, &(belay_conv_options){.groups = 4});
    int64_t n = belay_tensor_n_elements(y);
    assert_int_equal(n, 2 * 8 * 3 * 4);
    told_read(belay_forward(conv, x), got, n);
    told_read(y, want, n);
    assert_memory_equal(got, want, (size_t)n * 4);
    told_close(context);
}

static void a_saved_module_loads_into_another(void **state)
{
    (void)state;
    float got[2], want[2];
    char path[64];
    belay_context *context = told_open();
    const belay_conv_module_options options = {.in = 1, .out = 2, .kernel = {3}};
    belay_module *one = belay_conv1d_module(context, &options), *other = belay_conv1d_module(context, &options);
    belay_tensor x = belay_normal(context, BELAY_F32, belay_shape3(1, 1, 3), 0, 1);
    snprintf(path, sizeof path, "/tmp/belay_conv_%ld.safetensors", (long)getpid());
    assert_int_equal(belay_checkpoint_save(one, path, NULL, 0), BELAY_OK);
    assert_int_equal(belay_checkpoint_load(other, path), BELAY_OK);
    unlink(path);
    told_read(belay_forward(one, x), want, 2);
    told_read(belay_forward(other, x), got, 2);
    assert_memory_equal(got, want, sizeof got);
    told_close(context);
}

static belay_module *refused(belay_context *context, int which)
{
    switch (which) {
    case 0:
        return belay_conv1d_module(context, NULL);
    case 1:
        return belay_conv2d_module(context, &(belay_conv_module_options){.in = 2, .kernel = {3, 3}});
    case 2:
        return belay_conv2d_module(context, &(belay_conv_module_options){.in = 2, .out = 2, .kernel = {3}});
    case 3:
        return belay_conv1d_module(context,
                                   &(belay_conv_module_options){.in = 2, .out = 2, .kernel = {3}, .stride = {-1}});
    case 4:
        return belay_conv1d_module(context, &(belay_conv_module_options){.in = INT64_MAX / 2, .out = 2, .kernel = {3}});
    case 5:
        return belay_max_pool1d_module(context, NULL);
    case 8:
        return belay_conv1d_module(context,
                                   &(belay_conv_module_options){.in = 4, .out = 6, .kernel = {3}, .groups = 4});
    case 9:
        return belay_conv1d_module(context,
                                   &(belay_conv_module_options){.in = 4, .out = 6, .kernel = {3}, .groups = -2});
    case 6:
        return belay_avg_pool2d_module(context, &(belay_pool_options){.kernel = {3, 3}, .padding = {1, 2}});
    default:
        return belay_max_pool2d_module(context, &(belay_pool_options){.kernel = {3, 3}, .stride = {0, -1}});
    }
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    static const char *const words[] = {
        "in of conv1d is 0: it must be at least 1",
        "out of conv2d is 0: it must be at least 1",
        "kernel[1] of conv2d is 0: it must be at least 1",
        "stride[0] of conv1d is -1: it must be at least 0",
        "in of conv1d times its kernel is above 2^63 - 1",
        "kernel[0] of max_pool1d is 0: it must be at least 1",
        "padding[1] of avg_pool2d is 2, above half of its kernel of 3",
        "stride[1] of max_pool2d is -1: it must be at least 0",
        "groups of conv1d is 4, which does not divide 4 channels in and 6 out",
        "groups of conv1d is -2: it must be at least 0",
    };
    for (int i = 0; i < 10; i++) {
        belay_context *context = told_open();
        belay_code code = i == 4 ? BELAY_SIZE_OVERFLOW : BELAY_CONF_VALUE;
        assert_true(belay_module_is_nil(refused(context, i)));
        char head[160];
        snprintf(head, sizeof head, "belay: %s (%s)\n    called at: test_conv.c:", words[i], belay_code_name(code));
        assert_int_equal(strncmp(told(), head, strlen(head)), 0);
        const char *tail = strstr(told(), TOLD_START);
        assert_non_null(tail);
        assert_string_equal(tail + strlen(TOLD_START), told_try(code));
        assert_int_not_equal(belay_close(context), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_the_names_shapes_and_bounds_of_pytorch),
        cmocka_unit_test(forwards_are_the_calls),
        cmocka_unit_test(groups_cut_the_weight_and_its_bound),
        cmocka_unit_test(a_saved_module_loads_into_another),
        cmocka_unit_test(options_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
