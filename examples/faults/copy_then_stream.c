/* SPDX-License-Identifier: Apache-2.0 */
/* F09: an ordinary array is copied to the device, and a kernel is launched on a stream that does not wait for the one of
 * the copy.  On a GPU the kernel reads the old numbers, in most runs or in few, as the size of the copy decides; no tool
 * says so.  Belay asks what orders the two, whatever the size and whatever has ended: without an event the launch is
 * refused, and both lines are named. */
#include "gallery.h"

static void copy_and_launch(gallery *g)
{
    static float array[1 << 17];
    const int64_t n = g->value == 1 ? 8 : 1 << 17, n_bytes = n * (int64_t)sizeof *array;
    for (int64_t i = 0; i < n; i++)
        array[i] = 3;
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    belay_tensor x = belay_tensor_name_set(belay_zeros(g->ctx, BELAY_F32, belay_shape1(n)), "x");
    belay_stream usual = belay_stream_current(g->ctx), other = belay_stream_open(g->ctx, "other");
    gallery_expect(g, belay_tensor_write(x, array, n_bytes) == BELAY_OK);
    if (g->value == 2)
        gallery_expect(g, belay_stream_wait(other, belay_event_record(usual)) == BELAY_OK);
    belay_stream_use(other);
    belay_tensor mean = belay_mean(x, NULL);
    if (!belay_tensor_is_nil(mean))
        gallery_expect(g, belay_tensor_item(mean) > 2.9);
    belay_stream_use(usual);
    belay_stream_close(other);
    belay_device_guard_close(guard);
}

#define UNORDERED                                                                                                      \
    .run = copy_and_launch, .code = BELAY_LIFE_STREAM, .is_legal_on_cpu = true,                                        \
    .named = "op;site;other site;tensor;device;stream;step"

static const injection injections[] = {
    {.what = "512 KiB, then another stream", .value = 0, UNORDERED},
    {.what = "32 bytes, then another stream", .value = 1, UNORDERED},
    {.what = "512 KiB, an event between", .run = copy_and_launch, .value = 2},
};

GALLERY_MAIN("a copy, then a launch on another stream (F09)")
