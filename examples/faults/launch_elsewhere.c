/* SPDX-License-Identifier: Apache-2.0 */
/* F08: the current device is 0, the tensors lie on 1.  A raw launch goes to the current device, whose kernel reads an
 * address of the other: an illegal memory access, only when the device is not 0.  Belay's operations follow their tensors,
 * whatever the current device is; a raw launch that asks for another device is refused, and both are named. */
#include "gallery.h"

BELAY_KERNEL(double_it, "N: x[N]! ->", work, i) { BELAY_AT1(float, belay_view_of(work, 0), i) *= 2; }

static belay_tensor ones(gallery *g)
{
    belay_tensor x = belay_tensor_to(belay_ones(g->ctx, BELAY_F32, belay_shape1(4)), g->device);
    return belay_tensor_name_set(x, "x");
}

static void launch_elsewhere(gallery *g)
{
    const char *elsewhere = g->is_sim ? "cpu" : "sim:0";
    belay_launch(g->ctx, &double_it, &(belay_launch_options){.n_items = 4, .operand = {ones(g)}, .device = elsewhere});
}

static void work_while_another_is_current(gallery *g)
{
    belay_tensor x = ones(g);
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->is_sim ? "cpu" : "sim:1");
    belay_tensor y = belay_add(x, x);
    belay_launch(g->ctx, &double_it, &(belay_launch_options){.n_items = 4, .operand = {y}});
    double sum = belay_tensor_item(belay_sum(y, NULL));
    gallery_expect(g, sum > 15 && sum < 17);
    belay_device_guard_close(guard);
}

static const injection injections[] = {
    {.what = "a launch beside its tensors",
     .run = launch_elsewhere,
     .code = BELAY_PLACE_DEVICE,
     .named = "op;site;tensor;device;step;both devices=was launched on"},
    {.what = "work while another device is current", .run = work_while_another_is_current},
};

GALLERY_MAIN("a raw launch on another device than its tensors (F08)")
