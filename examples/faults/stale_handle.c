/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor is used after its scope has closed or after it was freed, or is freed twice.  A caching allocator has given
 * the memory to another tensor by then: wrong numbers, and no error at all.  Belay's handles carry a generation: the
 * report names the tensor, where it died and where it was used. */
#include "gallery.h"

static belay_tensor ones(gallery *g, const char *name)
{
    belay_tensor x = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape2(2, 3)), g->device);
    return belay_tensor_name_set(x, name);
}

static void use_after_scope(gallery *g)
{
    belay_scope scope = belay_scope_open(g->ctx);
    belay_tensor hidden = ones(g, "hidden");
    belay_scope_close(scope);
    belay_relu(hidden);
}

static void use_after_free(gallery *g)
{
    belay_tensor hidden = ones(g, "hidden"), other;
    belay_tensor_free(hidden);
    other = ones(g, "other"); /* takes the block, perhaps the slot: the old handle is still told apart */
    belay_add(other, hidden);
}

static void free_twice(gallery *g)
{
    belay_tensor hidden = ones(g, "hidden");
    belay_tensor_free(hidden);
    belay_tensor_free(hidden);
}

static void use_after_module(gallery *g)
{
    belay_module *layer = belay_linear_module(g->ctx, &(belay_linear_module_options){.in = 3, .out = 2});
    belay_tensor weight = belay_module_parameter(layer, 0);
    belay_module_free(layer);
    belay_relu(weight);
}

#define STALE .code = BELAY_LIFE_STALE, .named = "site;tensor=tensor hidden [2, 3] f32;where it died=died;step"

static const injection injections[] = {
    {.what = "used after its scope", .run = use_after_scope, STALE},
    {.what = "used after it was freed", .run = use_after_free, STALE},
    {.what = "freed twice", .run = free_twice, STALE},
    {.what = "parameter of a freed module",
     .run = use_after_module,
     .code = BELAY_LIFE_STALE,
     .named = "site;tensor=tensor weight [2, 3] f32;where it died=died;step"},
};

GALLERY_MAIN("stale handle")
