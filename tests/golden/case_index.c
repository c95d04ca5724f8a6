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

const golden_op golden_index_ops[] = {
    {"embedding", .run = run_embedding},
    {0},
};
