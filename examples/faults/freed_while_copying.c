/* SPDX-License-Identifier: Apache-2.0 */
/* F09: the host changes or frees memory while a copy that nobody waited for still reads it; or copies ordinary memory and
 * launches on another stream.  A GPU says nothing: half of the batch is the next one.  Belay finds the change when the
 * host has waited, and names the copy's line; memory that was freed stays until the copy has ended.  On the cpu a copy has
 * ended when its call returns. */
#include "gallery.h"

enum { N = 1 << 17, BYTES = N * 4 }; /* 512 KiB */

static void fill(float *values, float value)
{
    for (int i = 0; values != NULL && i < N; i++)
        values[i] = value;
}

static void change_under_copy(gallery *g)
{
    belay_tensor x = belay_tensor_to(belay_zeros(g->ctx, BELAY_F32, belay_shape1(N)), g->device);
    belay_host batch = belay_host_new(g->ctx, BYTES);
    fill(belay_host_data(batch), 1);
    belay_tensor_name_set(x, "x");
    gallery_expect(g, belay_tensor_write_later(x, batch, 0, BYTES) == BELAY_OK);
    if (g->value == 1)
        gallery_expect(g, belay_device_synchronise(g->ctx, g->device) == BELAY_OK);
    fill(belay_host_data(batch), 2); /* the next batch, too early */
    gallery_expect(g, belay_device_synchronise(g->ctx, g->device) == BELAY_OK);
    belay_host_free(batch);
}

static void free_under_copy(gallery *g)
{
    belay_tensor x = belay_tensor_to(belay_zeros(g->ctx, BELAY_F32, belay_shape1(N)), g->device);
    belay_host batch = belay_host_new(g->ctx, BYTES);
    fill(belay_host_data(batch), 1);
    belay_tensor_name_set(x, "x");
    gallery_expect(g, belay_tensor_write_later(x, batch, 0, BYTES) == BELAY_OK);
    belay_host_free(batch);
    gallery_expect(g, belay_tensor_item(belay_mean(x, NULL)) > 0.5); /* the copy had its bytes */
}

#define ON_SIM .code = BELAY_LIFE_HOST, .is_legal_on_cpu = true

static const injection injections[] = {
    {.what = "changed while a copy reads it",
     .run = change_under_copy,
     ON_SIM,
     .named = "site;surfaced;step;tensor=copy to x;bytes=first changed: of bytes [0, "},
    {.what = "changed when the copy has ended", .run = change_under_copy, .value = 1},
    {.what = "freed while a copy reads it",
     .run = free_under_copy,
     ON_SIM,
     .named = "site;other site;step;tensor=copy to x;bytes=copied: bytes [0, 524288)"},
};

GALLERY_MAIN("freed while a copy runs (F09)")
