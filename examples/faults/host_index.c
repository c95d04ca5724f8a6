/* SPDX-License-Identifier: Apache-2.0 */
/* F08: the ids were left on the host while the table moved to the device (or the other way round).  A kernel that gets
 * the host's pointer ends with an illegal memory access; some libraries fault in the host instead.  Belay compares where
 * the tensors of an operation lie before anything runs, and names both. */
#include "gallery.h"

static const char *elsewhere(const gallery *g) { return g->is_sim ? "cpu" : "sim:0"; }

static void look_ids_up(gallery *g)
{
    belay_tensor ids = belay_tensor_to(gallery_batch(g).tokens, elsewhere(g));
    belay_forward(g->model, belay_tensor_name_set(ids, "ids"));
}

static void gather(gallery *g)
{
    belay_tensor x = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape2(3, 2)), g->device);
    belay_tensor index = belay_tensor_to(belay_zeros(g->ctx, BELAY_I64, belay_shape2(1, 2)), elsewhere(g));
    belay_gather(belay_tensor_name_set(x, "x"), 0, belay_tensor_name_set(index, "index"), NULL);
}

static void scatter(gallery *g)
{
    belay_tensor x = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape2(3, 2)), g->device);
    belay_tensor index = belay_tensor_to(belay_full(g->ctx, BELAY_I64, belay_shape2(1, 2), -100), elsewhere(g));
    belay_scatter_add(belay_tensor_name_set(x, "x"), 0, belay_tensor_name_set(index, "index"), x, NULL);
}

static const injection injections[] = {
    {.what = "ids elsewhere than the model",
     .run = look_ids_up,
     .code = BELAY_PLACE_DEVICE,
     .named = "op;layer;site;tensor;step;both devices=lies on"},
    {.what = "gather: index elsewhere than x",
     .run = gather,
     .code = BELAY_PLACE_DEVICE,
     .named = "op;site;tensor;step;both devices=lies on"},
    {.what = "scatter_add: index of -100 elsewhere than x",
     .run = scatter,
     .code = BELAY_PLACE_DEVICE,
     .named = "op;site;tensor;step;both devices=lies on"},
};

GALLERY_MAIN("host index on a device tensor (F08)")
