/* SPDX-License-Identifier: Apache-2.0 */
/* F04: a table of 262144 rows of 8960, and the id 239675: valid, and yet row * width passes 2^31.  A kernel that multiplies
 * in 32 bits reads 2 GiB before the table; the id is in range, so that no check of ids finds it.  A view multiplies in 64
 * bits by itself; one who flattens the table and multiplies too narrowly is told of the place, not of the id. */
#include "gallery.h"

enum { ROWS = 262144, WIDTH = 8960, LAST_GOOD = 239673 };

BELAY_KERNEL(narrow, "N: flat[M] ids:i64[N] -> y[N]", work, i)
{
    uint32_t row = (uint32_t)BELAY_GET1(int64_t, belay_view_of(work, 1), i);
    int32_t at = (int32_t)(row * (uint32_t)WIDTH);
    BELAY_AT1(float, belay_view_of(work, 2), i) = BELAY_GET1(float, belay_view_of(work, 0), at);
}

BELAY_KERNEL(wide, "N: table[RD] ids:i64[N] -> y[N]", work, i)
{
    int64_t row = BELAY_GET1(int64_t, belay_view_of(work, 1), i);
    BELAY_AT1(float, belay_view_of(work, 2), i) = BELAY_GET2(float, belay_view_of(work, 0), row, WIDTH - 1);
}

/* The table repeats one element: only its sizes are large. */
static void look_up(gallery *g, const belay_kernel *kernel, belay_shape table)
{
    belay_tensor one = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape1(1)), g->device);
    belay_tensor ids = belay_tensor_from(g->ctx, BELAY_I64, belay_shape1(1), &g->value, sizeof g->value);
    belay_tensor x = belay_tensor_name_set(belay_expand(one, table), "table"), y = belay_affine(one, 0, 0);
    ids = belay_tensor_name_set(belay_tensor_to(ids, g->device), "ids");
    belay_launch(g->ctx, kernel, &(belay_launch_options){.n_items = 1, .operand = {x, ids, y}});
    if (kernel == &wide || g->value <= LAST_GOOD)
        gallery_expect(g, belay_tensor_item(y) > 0);
}

static void look_up_narrow(gallery *g) { look_up(g, &narrow, belay_shape1((int64_t)ROWS * WIDTH)); }

static void look_up_wide(gallery *g) { look_up(g, &wide, belay_shape2(ROWS, WIDTH)); }

static const injection injections[] = {
    {.what = "id 239675, row * width in 32 bits",
     .run = look_up_narrow,
     .value = LAST_GOOD + 2,
     .code = BELAY_INDEX_RANGE,
     .named = "op;site;tensor;item;value;bound;count;device;step"},
    {.what = "id 239673, just below 2^31", .run = look_up_narrow, .value = LAST_GOOD},
    {.what = "id 239675 through a view", .run = look_up_wide, .value = LAST_GOOD + 2},
};

GALLERY_MAIN("row x width wrap with a valid id (F04)")
