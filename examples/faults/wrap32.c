/* SPDX-License-Identifier: Apache-2.0 */
/* F04: sizes past 2^31.  A kernel that counts in 32 bits computes a negative place and reads there; a launch gets a size
 * that has wrapped, does nothing and says nothing.  Belay's sizes are 64 bits wide, products are checked, and a place that
 * a kernel of one's own computes too narrowly is caught by its view.  Only numbers are large here: the views repeat one
 * element. */
#include "gallery.h"

BELAY_KERNEL(narrow, "*: x[N] -> y[M]", work, i)
{
    int32_t at = (int32_t)(uint32_t)belay_view_size(belay_view_of(work, 0), 0) - 1; /* the last, in 32 bits */
    BELAY_AT1(float, belay_view_of(work, 1), i) = BELAY_GET1(float, belay_view_of(work, 0), at);
}

static belay_tensor repeated(gallery *g, int64_t n)
{
    belay_tensor one = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape1(1)), g->device);
    return belay_tensor_name_set(belay_expand(one, belay_shape1(n)), "x");
}

static void read_the_last(gallery *g)
{
    belay_tensor x = repeated(g, g->value), y = belay_affine(repeated(g, 1), 0, 0);
    belay_launch(g->ctx, &narrow, &(belay_launch_options){.n_items = 1, .operand = {x, y}});
    if (g->value < INT32_MAX)
        gallery_expect(g, belay_tensor_item(y) > 0);
}

/* Belay's own: the last element of a tensor that long, and a product of sizes that passes 2^63. */
static void select_the_last(gallery *g)
{
    belay_tensor x = repeated(g, g->value);
    gallery_expect(g, belay_tensor_n_elements(x) == g->value);
    gallery_expect(g, belay_tensor_item(belay_select(x, 0, -1)) > 0);
}

static void expand_past_all(gallery *g) { belay_expand(repeated(g, 1), belay_shape2(g->value, g->value)); }

#define TWO_31 (1LL << 31)

static const injection injections[] = {
    {.what = "2^31 elements, 32-bit place",
     .run = read_the_last,
     .value = TWO_31 + 1,
     .code = BELAY_INDEX_RANGE,
     .named = "op;site;tensor;item;value;bound;device;step"},
    {.what = "2^31 - 1 elements", .run = select_the_last, .value = TWO_31 - 1},
    {.what = "2^31 elements", .run = select_the_last, .value = TWO_31},
    {.what = "2^31 + 5 elements", .run = select_the_last, .value = TWO_31 + 5},
    {.what = "2^40 x 2^40 elements",
     .run = expand_past_all,
     .value = 1LL << 40,
     .code = BELAY_SIZE_OVERFLOW,
     .named = "site;step"},
};

GALLERY_MAIN("32-bit wrap (F04)")
