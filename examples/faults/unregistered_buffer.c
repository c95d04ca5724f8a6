/* SPDX-License-Identifier: Apache-2.0 */
/* A module keeps a tensor in its struct without registering it.  The module is moved to another device, the tensor stays:
 * "Expected all tensors to be on the same device", somewhere in the forward.  Belay names the operation, both devices, and
 * says which tensor belongs to no module; registered as a buffer it moves along. */
#include "gallery.h"

typedef struct shifted {
    belay_tensor scale, shift;
} shifted;

static belay_tensor shifted_forward(belay_module *module, belay_tensor x)
{
    const shifted *s = belay_module_self(module);
    return belay_mul(x, belay_add(s->scale, s->shift));
}

static const belay_module_kind shifted_kind = {
    .name = "shifted", .n_bytes = sizeof(shifted), .forward = shifted_forward};

static void move_the_module(gallery *g)
{
    belay_module *module = belay_module_new(g->ctx, &shifted_kind);
    shifted *s = belay_module_self(module);
    belay_device_guard guard = belay_device_guard_open(g->ctx, "cpu");
    s->scale = belay_module_add_parameter(module, "scale", BELAY_F32, belay_shape1(4), (belay_init){0});
    s->shift = belay_tensor_name_set(belay_ones(g->ctx, BELAY_F32, belay_shape1(4)), "shift");
    belay_device_guard_close(guard);
    if (g->value == 1)
        s->shift = belay_module_add_buffer(module, "shift", s->shift);
    const char *there = g->is_sim ? g->device : "sim:1";
    gallery_expect(g, belay_module_to(module, there) == BELAY_OK);
    belay_tensor x = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape1(4)), there);
    belay_tensor y = belay_forward(module, belay_tensor_name_set(x, "x"));
    if (g->value == 1)
        gallery_expect(g, belay_tensor_item(belay_sum(y, NULL)) > 3);
    belay_module_free(module);
}

static const injection injections[] = {
    {.what = "a tensor that no module knows",
     .run = move_the_module,
     .code = BELAY_PLACE_DEVICE,
     .named = "op;layer;site;tensor;step;both devices=lies on;why=belongs to no module"},
    {.what = "registered as a buffer", .run = move_the_module, .value = 1},
};

GALLERY_MAIN("unregistered buffer")
