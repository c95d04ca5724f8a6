/* SPDX-License-Identifier: Apache-2.0 */
/* Two streams write one tensor, and nothing says which goes first.  A GPU says nothing: the result depends on luck, and
 * a run in a debugger is right.  Belay keeps a clock for each stream and refuses the second use at its call, naming both
 * lines; with an event between the two it is legal.  On the cpu there is one order, that of the calls. */
#include "gallery.h"

BELAY_KERNEL(add_one, "N: y[N]! ->", work, i) { BELAY_AT1(float, belay_view_of(work, 0), i) += 1; }

static void produce(gallery *g, belay_tensor y)
{
    belay_launch(g->ctx, &add_one, &(belay_launch_options){.n_items = 4, .operand = {y}});
}

static void write_from_two(gallery *g)
{
    belay_tensor y = belay_tensor_to(belay_zeros(g->ctx, BELAY_F32, belay_shape1(4)), g->device);
    belay_tensor_name_set(y, "shared");
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    belay_stream usual = belay_stream_current(g->ctx);
    belay_stream left = belay_stream_open(g->ctx, "left"), right = belay_stream_open(g->ctx, "right");
    belay_code code = belay_stream_wait(left, belay_event_record(usual)); /* y is there */
    belay_stream_use(left);
    produce(g, y);
    if (g->value == 1 && code == BELAY_OK)
        code = belay_stream_wait(right, belay_event_record(left));
    belay_stream_use(right);
    produce(g, y); /* behind what left writes? */
    belay_stream_use(usual);
    belay_stream_close(left);
    belay_stream_close(right);
    belay_device_guard_close(guard);
    float out[4];
    bool is_refused = g->is_sim && g->value == 0;
    if (belay_tensor_read(y, out, sizeof out) == BELAY_OK)
        gallery_expect(g, code == BELAY_OK && out[0] > (is_refused ? 0 : 1) && out[3] < 3);
}

static const injection injections[] = {
    {.what = "two streams write one tensor",
     .run = write_from_two,
     .code = BELAY_LIFE_STREAM,
     .is_legal_on_cpu = true,
     .named = "op;site;other site;tensor;stream;device;step"},
    {.what = "an event between them", .run = write_from_two, .value = 1},
};

GALLERY_MAIN("two producer streams")
