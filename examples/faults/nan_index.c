/* SPDX-License-Identifier: Apache-2.0 */
/* F11: a float becomes an index, and it is NaN or Inf: a scale of zero, a division by a count of nothing.  The cast gives
 * any number, and a GPU ends with an illegal memory access in a kernel that is right.  In Belay a float becomes an index by
 * a checked cast only, in an op (cast_ids) and in a kernel (belay_index_of): the index is never used. */
#include "gallery.h"

#include <math.h>

static const double bad[] = {NAN, INFINITY, 3e9, 1.5};

BELAY_KERNEL(pick, "N: x[N] table[M] -> y[N]", work, i)
{
    int64_t at = belay_index_of(work, (double)BELAY_GET1(float, belay_view_of(work, 0), i));
    BELAY_AT1(float, belay_view_of(work, 2), i) = BELAY_GET1(float, belay_view_of(work, 1), at);
}

static belay_tensor floats(gallery *g, const char *name)
{
    const float values[] = {1, (float)bad[g->value]};
    belay_tensor x = belay_tensor_from(g->ctx, BELAY_F32, belay_shape1(2), values, sizeof values);
    return belay_tensor_name_set(belay_tensor_to(x, g->device), name);
}

static void look_up(gallery *g)
{
    belay_tensor table = belay_module_find(g->model, "embedding.weight");
    belay_embedding(table, floats(g, "places"), &(belay_embedding_options){.cast_ids = true});
}

static void launch(gallery *g)
{
    belay_tensor places = floats(g, "places"), y = belay_affine(places, 0, 0);
    belay_launch(g->ctx, &pick, &(belay_launch_options){.n_items = 2, .operand = {places, places, y}});
}

#define NAMED     "op;site;tensor;value;bound;coordinates;device;step"
#define IN_OP     .run = look_up, .code = BELAY_NUM_CAST, .named = NAMED
#define IN_KERNEL .run = launch, .code = BELAY_NUM_CAST, .named = "op;site;item;count;device;step"

static const injection injections[] = {
    {.what = "id = NaN", .value = 0, IN_OP},
    {.what = "id = Inf", .value = 1, IN_OP},
    {.what = "id = 3e9", .value = 2, .run = look_up, .code = BELAY_INDEX_RANGE, .named = NAMED},
    {.what = "id = 1.5", .value = 3, IN_OP},
    {.what = "NaN in a kernel", .value = 0, IN_KERNEL},
    {.what = "Inf in a kernel", .value = 1, IN_KERNEL},
};

GALLERY_MAIN("NaN turned index (F11)")
