/* SPDX-License-Identifier: Apache-2.0 */
/* Ops with data-dependent indices. */
#include "golden/golden.h"

static void run_embedding(golden *g)
{
    belay_embedding_options options = {.has_padding = !golden_is_null(g, "padding_idx")};
    options.padding = options.has_padding ? (int64_t)golden_number(g, "padding_idx") : 0;
    belay_tensor weight = golden_input(g, "weight");
    golden_output(g, "y", belay_embedding(weight, golden_input(g, "ids"), &options));
}

static int dim_of(golden *g) { return (int)golden_number(g, "dim"); }

static void run_index_select(golden *g)
{
    belay_tensor x = golden_input(g, "x");
    golden_output(g, "y", belay_index_select(x, dim_of(g), golden_input(g, "index"), NULL));
}

static void run_gather(golden *g)
{
    belay_tensor x = golden_input(g, "x");
    golden_output(g, "y", belay_gather(x, dim_of(g), golden_input(g, "index"), NULL));
}

static void run_scatter_add(golden *g)
{
    belay_tensor x = golden_input(g, "x"), index = golden_input(g, "index");
    golden_output(g, "y", belay_scatter_add(x, dim_of(g), index, golden_input(g, "src"), NULL));
}

static void run_index_add(golden *g)
{
    belay_tensor x = golden_input(g, "x"), index = golden_input(g, "index");
    double alpha = golden_is_null(g, "alpha") ? 1 : golden_number(g, "alpha");
    golden_output(g, "y", belay_index_add(x, dim_of(g), index, golden_input(g, "src"), alpha, NULL));
}

const golden_op golden_index_ops[] = {
    {"embedding", .run = run_embedding},     {"index_select", .run = run_index_select}, {"gather", .run = run_gather},
    {"scatter_add", .run = run_scatter_add}, {"index_add", .run = run_index_add},       {0},
};
