/* SPDX-License-Identifier: Apache-2.0 */
/* F05: an empty batch, an empty segment, a filter that leaves nothing.  A GPU answers a grid of 0 blocks with "invalid
 * configuration argument", which surfaces at some later call; kernels that do start may read element -1.  In Belay no
 * elements is a size like any other: nothing is launched, and sums of nothing are zero. */
#include "gallery.h"

BELAY_KERNEL(double_it, "N: x[N] -> y[N]", work, i)
{
    BELAY_AT1(float, belay_view_of(work, 1), i) = 2 * BELAY_GET1(float, belay_view_of(work, 0), i);
}

static belay_tensor zeros(gallery *g, belay_dtype dtype, belay_shape shape)
{
    return belay_tensor_to(belay_zeros(g->ctx, dtype, shape), g->device);
}

static void launch_nothing(gallery *g)
{
    belay_tensor x = zeros(g, BELAY_F32, belay_shape1(0)), y = zeros(g, BELAY_F32, belay_shape1(0));
    belay_launch(g->ctx, &double_it, &(belay_launch_options){.n_items = 0, .operand = {x, y}});
    gallery_expect(g, belay_tensor_n_elements(y) == 0);
}

static void forward_nothing(gallery *g)
{
    belay_tensor logits = belay_forward(g->model, zeros(g, BELAY_I64, belay_shape2(0, SEQUENCE)));
    gallery_expect(g, belay_tensor_shape(logits).size[0] == 0 && belay_tensor_shape(logits).size[1] == CLASSES);
    double sum = belay_tensor_item(belay_sum(logits, NULL));
    gallery_expect(g, sum >= 0 && sum <= 0);
}

/* Nothing as the first, the middle and the last part. */
static void join_nothing(gallery *g)
{
    belay_tensor none = zeros(g, BELAY_F32, belay_shape1(0)), parts[5] = {none, none, none, none, none};
    const int64_t sizes[] = {0, 2, 0, 1, 0};
    parts[1] = belay_affine(zeros(g, BELAY_F32, belay_shape1(2)), 1, 3);
    parts[3] = belay_affine(zeros(g, BELAY_F32, belay_shape1(1)), 1, 5);
    belay_tensor whole = belay_cat(parts, 5, 0);
    float out[3];
    gallery_expect(g, belay_tensor_read(whole, out, sizeof out) == BELAY_OK && out[1] > 2 && out[2] > 4);
    belay_split(whole, 0, sizes, 5, parts);
    gallery_expect(g, belay_tensor_n_elements(parts[4]) == 0 && belay_tensor_item(parts[3]) > 4);
}

static const injection injections[] = {
    {.what = "a launch of 0 items", .run = launch_nothing},
    {.what = "a batch of 0 samples", .run = forward_nothing},
    {.what = "empty segments first, in the middle, last", .run = join_nothing},
};

GALLERY_MAIN("zero-size launch (F05)")
