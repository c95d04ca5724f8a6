/* SPDX-License-Identifier: Apache-2.0 */
/* F09: a tensor is freed on one stream while another still reads it; the pool hands its memory to the next tensor, and the
 * reader computes with that one's numbers.  PyTorch asks for record_stream, which is easily forgotten.  Belay knows who
 * used what: the tensor may be freed at any time, and its memory is not used again before the reader has passed. */
#include "gallery.h"

enum { N = 1 << 14, USES = 8 };

static void free_while_it_is_read(gallery *g)
{
    static float out[N];
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    belay_stream usual = belay_stream_current(g->ctx), reader = belay_stream_open(g->ctx, "reader");
    belay_tensor x = belay_full(g->ctx, BELAY_F32, belay_shape1(N), 1);
    gallery_expect(g, belay_stream_wait(reader, belay_event_record(usual)) == BELAY_OK);
    belay_stream_use(reader);
    belay_tensor y = belay_affine(x, 2, 0);
    for (int i = 0; i < USES; i++)
        y = belay_add(y, x);
    belay_stream_use(usual);
    belay_tensor_free(x); /* while the reader may be at its first use */
    for (int i = 0; i < USES; i++)
        belay_full(g->ctx, BELAY_F32, belay_shape1(N), 1000); /* of the same size */
    gallery_expect(g, belay_stream_wait(usual, belay_event_record(reader)) == BELAY_OK);
    gallery_expect(g, belay_tensor_read(y, out, sizeof out) == BELAY_OK);
    for (int i = 0; i < N; i++)
        gallery_expect(g, out[i] > 2 + USES - 0.5F && out[i] < 2 + USES + 0.5F);
    belay_stream_close(reader);
    belay_device_guard_close(guard);
}

static const injection injections[] = {
    {.what = "freed while another stream reads it", .run = free_while_it_is_read},
    {.what = "the same with exact memory", .run = free_while_it_is_read, .memory = BELAY_MEMORY_EXACT},
    {.what = "the same between red zones", .run = free_while_it_is_read, .memory = BELAY_MEMORY_REDZONE},
};

GALLERY_MAIN("freed while it is in use (F09)")
