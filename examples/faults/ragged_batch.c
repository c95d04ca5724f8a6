/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel is written for batches of 8, and an epoch's last batch has 5.  A GPU reads and writes past the end: into the
 * padding of the block, mostly without a word.  Belay compares sizes and number of items with the kernel's signature
 * before it runs; what the signature leaves open the views catch, item by item. */
#include "gallery.h"

enum { FULL = 8 };

BELAY_KERNEL(fixed_size, "N: x[8] -> y[N]", work, i)
{
    BELAY_AT1(float, belay_view_of(work, 1), i) = BELAY_GET1(float, belay_view_of(work, 0), i);
}

BELAY_KERNEL(by_item, "N: x[N] -> y[N]", work, i)
{
    BELAY_AT1(float, belay_view_of(work, 1), i) = BELAY_GET1(float, belay_view_of(work, 0), i);
}

BELAY_KERNEL(anyhow, "*: x[N] -> y[N]", work, i)
{
    for (int k = 0; k < FULL; k++)
        BELAY_AT1(float, belay_view_of(work, 1), i *FULL + k) = BELAY_GET1(float, belay_view_of(work, 0), k);
}

static void launch(gallery *g, const belay_kernel *kernel, int64_t n_items)
{
    belay_tensor x = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape1(5)), g->device);
    belay_tensor y = belay_tensor_to(belay_zeros(g->ctx, BELAY_F32, belay_shape1(5)), g->device);
    belay_tensor_name_set(x, "last batch");
    belay_tensor_name_set(y, "result");
    belay_launch(g->ctx, kernel, &(belay_launch_options){.n_items = n_items, .operand = {x, y}});
}

static void launch_fixed(gallery *g) { launch(g, &fixed_size, 5); }

static void launch_items(gallery *g) { launch(g, &by_item, FULL); }

static void launch_anyhow(gallery *g) { launch(g, &anyhow, 1); }

static const injection injections[] = {
    {.what = "the signature says 8",
     .run = launch_fixed,
     .code = BELAY_SHAPE_CONTRACT,
     .named = "op;site;tensor;device;step;both sides=has size 5"},
    {.what = "8 items for 5 rows",
     .run = launch_items,
     .code = BELAY_SHAPE_CONTRACT,
     .named = "op;site;tensor;device;step;both sides=launched with 8 items, its tensors have 5"},
    {.what = "the body counts to 8",
     .run = launch_anyhow,
     .code = BELAY_INDEX_RANGE,
     .named = "op;site;tensor;item;value;bound;count;device;step"},
};

GALLERY_MAIN("ragged last batch against a fixed-size kernel")
