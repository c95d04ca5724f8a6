/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and pools. */
#include "golden/golden.h"

static belay_conv_options conv_options(golden *g)
{
    int64_t stride[BELAY_MAX_RANK] = {0}, padding[BELAY_MAX_RANK] = {0}, dilation[BELAY_MAX_RANK] = {0};
    belay_conv_options options = {{0}, {0}, {0}, 0};
    int n = golden_list(g, "stride", stride);
    golden_list(g, "padding", padding);
    golden_list(g, "dilation", dilation);
    for (int k = 0; k < n && k < 2; k++) {
        options.stride[k] = stride[k];
        options.padding[k] = padding[k];
        options.dilation[k] = dilation[k];
    }
    return options;
}

static void run_conv(golden *g,
                     belay_tensor (*conv)(belay_tensor, belay_tensor, belay_tensor, const belay_conv_options *))
{
    belay_conv_options options = conv_options(g);
    if (golden_number(g, "groups") != 1) {
        golden_skip(g);
        return;
    }
    belay_tensor x = golden_input(g, "x"), weight = golden_input(g, "weight"), bias = {0};
    if (golden_flag(g, "bias"))
        bias = golden_input(g, "bias");
    golden_output(g, "y", conv(x, weight, bias, &options));
}

static void run_conv1d(golden *g) { run_conv(g, belay_conv1d); }
static void run_conv2d(golden *g) { run_conv(g, belay_conv2d); }

/* A single number is of both axes. */
static void both(golden *g, const char *key, int64_t out[2])
{
    int64_t given[BELAY_MAX_RANK] = {0};
    int n = golden_list(g, key, given);
    out[0] = given[0];
    out[1] = n > 1 ? given[1] : given[0];
}

static belay_pool_options pool_options(golden *g)
{
    belay_pool_options options = {{0}, {0}, {0}, false};
    both(g, "kernel_size", options.kernel);
    both(g, "stride", options.stride);
    both(g, "padding", options.padding);
    return options;
}

static void run_max_pool1d(golden *g)
{
    belay_pool_options options = pool_options(g);
    golden_output(g, "y", belay_max_pool1d(golden_input(g, "x"), &options, NULL));
}

static void run_max_pool2d(golden *g)
{
    belay_pool_options options = pool_options(g);
    golden_output(g, "y", belay_max_pool2d(golden_input(g, "x"), &options, NULL));
}

static void run_avg_pool1d(golden *g)
{
    belay_pool_options options = pool_options(g);
    options.exclude_pad = !golden_flag(g, "count_include_pad");
    golden_output(g, "y", belay_avg_pool1d(golden_input(g, "x"), &options));
}

static void run_avg_pool2d(golden *g)
{
    belay_pool_options options = pool_options(g);
    options.exclude_pad = !golden_flag(g, "count_include_pad");
    golden_output(g, "y", belay_avg_pool2d(golden_input(g, "x"), &options));
}

const golden_op golden_conv_ops[] = {
    {"conv1d", .run = run_conv1d},
    {"conv2d", .run = run_conv2d},
    {"max_pool1d", .run = run_max_pool1d},
    {"max_pool2d", .run = run_max_pool2d},
    {"avg_pool1d", .run = run_avg_pool1d},
    {"avg_pool2d", .run = run_avg_pool2d},
    {0},
};
