/* SPDX-License-Identifier: Apache-2.0 */
/* F18: after an illegal access a GPU's context is lost; a program that goes on gets the same error from each call, and a
 * log of a thousand lines whose first was the only one that said something.  Belay names the access first; every later
 * call is place.lost with that cause and how many calls were refused, returns nothing, and the status is 6.  The cpu, where
 * an access can be ended alone, goes on. */
#include "gallery.h"

typedef struct address {
    int64_t at;
} address;

BELAY_KERNEL(read_astray, "*: x[N]! ->", work, i)
{
    const volatile float *stray = (const volatile float *)(uintptr_t)BELAY_PARAMS(address, work)->at;
    BELAY_AT1(float, belay_view_of(work, 0), i) = *stray;
}

static void go_on(gallery *g)
{
    belay_tensor x = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape1(4)), g->device);
    belay_tensor_name_set(x, "x");
    const address params = {.at = 8}; /* a field of a struct that is not there */
    belay_launch_options options = {.n_items = 1, .operand = {x}, .params = &params, .params_bytes = sizeof params};
    belay_launch(g->ctx, &read_astray, &options);
    belay_code code = belay_device_synchronise(g->ctx, g->device);
    gallery_expect(g, code == (g->is_sim ? BELAY_PLACE_LOST : BELAY_OK));
    for (int i = 0; i < 100; i++) {
        float out[4];
        code = belay_tensor_read(x, out, sizeof out);
        gallery_expect(g, code == (g->is_sim ? BELAY_PLACE_LOST : BELAY_OK));
    }
    gallery_expect(g, belay_device_is_lost(g->ctx, g->device) == g->is_sim);
}

static const injection injections[] = {
    {.what = "100 calls after it",
     .run = go_on,
     .code = BELAY_MEM_ACCESS,
     .loses_device = true,
     .named = "op;site;tensor;device;step;value=a null pointer"},
};

GALLERY_MAIN("a hundred calls after a lost context (F18)")
