/* SPDX-License-Identifier: Apache-2.0 */
/* Many pools keep a header in front of each block: size, next free block.  A kernel that writes there spoils the pool,
 * and the crash comes at some later malloc, far from the kernel.  Belay keeps its book-keeping outside of device memory:
 * such a write spoils nothing of it.  In mode `redzone` it is found, in mode `exact-left` the kernel is named. */
#include "gallery.h"

BELAY_KERNEL(write_header, "*: x[N]! ->", work, i)
{
    volatile char *header = (volatile char *)belay_view_raw(belay_view_of(work, 0)) - 16;
    for (int k = 0; k < 16; k++)
        header[k] = -1;
    BELAY_AT1(float, belay_view_of(work, 0), i) = 1;
}

static belay_tensor block(gallery *g, double value) { return belay_full(g->ctx, BELAY_F32, belay_shape1(12), value); }

/* Blocks are taken, given back, and taken again: each has the bytes that were written to it. */
static void use_pool(gallery *g)
{
    belay_tensor x[64];
    for (int i = 0; i < 64; i++)
        x[i] = block(g, i);
    for (int i = 0; i < 64; i += 2) {
        belay_tensor_free(x[i]);
        x[i] = block(g, i);
    }
    for (int i = 0; i < 64; i++) {
        float out[12] = {0};
        gallery_expect(g,
                       belay_tensor_read(x[i], out, sizeof out) == BELAY_OK && (int)out[0] == i && (int)out[11] == i);
    }
}

static void write_where_a_header_would_lie(gallery *g)
{
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    belay_tensor x = belay_tensor_name_set(block(g, 0), "x");
    belay_launch(g->ctx, &write_header, &(belay_launch_options){.n_items = 1, .operand = {x}});
    if (g->value == 0)
        use_pool(g);
    belay_device_guard_close(guard);
}

static const injection injections[] = {
    {.what = "16 bytes before the block, red zones",
     .run = write_where_a_header_would_lie,
     .memory = BELAY_MEMORY_REDZONE,
     .code = BELAY_MEM_REDZONE,
     .named = "site;step;bytes=1 byte before the begin of x (48 bytes)"},
    {.what = "16 bytes before the block, exact",
     .run = write_where_a_header_would_lie,
     .value = 1,
     .memory = BELAY_MEMORY_EXACT_LEFT,
     .code = BELAY_MEM_ACCESS,
     .loses_device = true,
     .named = "op;site;tensor;device;step;bytes=before the begin of x (48 bytes);made at=made at"},
};

GALLERY_MAIN("a write where a pool header would lie")
