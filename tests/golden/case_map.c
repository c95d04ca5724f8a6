/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops. */
#include <math.h>
#include <string.h>

#include "golden/golden.h"

static void run_gelu(golden *g)
{
    bool is_tanh = strcmp(golden_text(g, "approximate"), "tanh") == 0;
    belay_tensor x = golden_input(g, "x");
    golden_output(g, "y", is_tanh ? belay_gelu_tanh(x) : belay_gelu(x));
}

static void run_where(golden *g)
{
    belay_tensor a = golden_input(g, "a"), b = golden_input(g, "b");
    golden_output(g, "y", belay_where(golden_input(g, "cond"), a, b));
}

static void run_clamp(golden *g)
{
    double low = golden_is_null(g, "min") ? -(double)INFINITY : golden_number(g, "min");
    double high = golden_is_null(g, "max") ? (double)INFINITY : golden_number(g, "max");
    golden_output(g, "y", belay_clamp(golden_input(g, "x"), low, high));
}

static void run_dropout(golden *g)
{
    golden_output(g, "y", belay_dropout(golden_input(g, "x"), golden_number(g, "p"), golden_flag(g, "training")));
}

static void run_convert(golden *g)
{
    belay_tensor x = golden_input(g, "f32");
    belay_tensor bf16 = belay_cast(x, BELAY_BF16), f16 = belay_cast(x, BELAY_F16);
    g->bits = true;
    golden_check(g, "output.bf16", bf16);
    golden_check(g, "output.f16", f16);
    golden_check(g, "output.bf16_to_f32", belay_cast(bf16, BELAY_F32));
    golden_check(g, "output.f16_to_f32", belay_cast(f16, BELAY_F32));
}

const golden_op golden_map_ops[] = {
    {"add", .binary = belay_add},        {"sub", .binary = belay_sub},
    {"mul", .binary = belay_mul},        {"div", .binary = belay_div},
    {"relu", .unary = belay_relu},       {"tanh", .unary = belay_tanh},
    {"sigmoid", .unary = belay_sigmoid}, {"silu", .unary = belay_silu},
    {"gelu", .run = run_gelu},           {"where", .run = run_where},
    {"clamp", .run = run_clamp},         {"dropout", .run = run_dropout},
    {"convert", .run = run_convert},     {0},
};
