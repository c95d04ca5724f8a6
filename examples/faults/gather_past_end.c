/* SPDX-License-Identifier: Apache-2.0 */
/* F03: an index that is exactly the length of its axis, or one that was computed from nothing.  A GPU reads or writes
 * another tensor's memory, or the whole context ends.  In Belay every op that selects by an index looks at it in the
 * kernel, when reading and when adding: the index is named with its place, the step is not applied. */
#include "gallery.h"

enum { ROWS = 5 };

static belay_tensor rows(gallery *g)
{
    belay_tensor x = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape2(ROWS, 2)), g->device);
    return belay_tensor_name_set(x, "x");
}

static belay_tensor index_of(gallery *g, belay_shape shape)
{
    const int64_t values[] = {0, g->value};
    belay_tensor index = belay_tensor_from(g->ctx, BELAY_I64, shape, values, sizeof values);
    return belay_tensor_name_set(belay_tensor_to(index, g->device), "index");
}

static void select_rows(gallery *g) { belay_index_select(rows(g), 0, index_of(g, belay_shape1(2)), NULL); }

static void gather(gallery *g) { belay_gather(rows(g), 0, index_of(g, belay_shape2(1, 2)), NULL); }

static void scatter(gallery *g)
{
    belay_tensor x = rows(g), index = index_of(g, belay_shape2(1, 2));
    belay_scatter_add(x, 0, index, x, NULL);
}

static void index_rows(gallery *g)
{
    belay_tensor index = index_of(g, belay_shape1(2));
    belay_index(rows(g), &index, 1, NULL);
}

#define NAMED "op;site;tensor;value;bound;coordinates;step;device"
#define BAD   .code = BELAY_INDEX_RANGE, .named = NAMED

static const injection injections[] = {
    {.what = "index_select at N", .run = select_rows, .value = ROWS, BAD},
    {.what = "gather at N", .run = gather, .value = ROWS, BAD},
    {.what = "scatter_add at N", .run = scatter, .value = ROWS, BAD},
    {.what = "index at N", .run = index_rows, .value = ROWS, BAD},
    {.what = "gather at -10^12", .run = gather, .value = -1000000000000, BAD},
    {.what = "scatter_add at -10^12", .run = scatter, .value = -1000000000000, BAD},
};

GALLERY_MAIN("index past the end (F03)")
