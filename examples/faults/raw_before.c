/* SPDX-License-Identifier: Apache-2.0 */
/* F07: a kernel of one's own goes before its tensor, through a raw pointer and an index that went below 0.  A GPU's pool
 * hides it: the numbers of the block before change, or its book-keeping.  In memory mode `exact-left` every block begins
 * behind an inaccessible page and the access is named; in mode `redzone` a write is found when the block dies. */
#include "gallery.h"

typedef struct stray_params {
    int64_t at, writes;
} stray_params;

BELAY_KERNEL(stray, "*: x[N]! ->", work, i)
{
    const stray_params *p = BELAY_PARAMS(stray_params, work);
    volatile char *place = (volatile char *)belay_view_raw(belay_view_of(work, 0)) + p->at;
    if (p->writes != 0)
        *place = 1;
    else
        BELAY_AT1(float, belay_view_of(work, 0), i) = (float)*place;
}

static void touch(gallery *g, bool writes)
{
    const stray_params params = {g->value, writes};
    belay_launch_options options = {.n_items = 1, .params = &params, .params_bytes = sizeof params};
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    options.operand[0] = belay_zeros(g->ctx, BELAY_F32, belay_shape1(12));
    belay_device_guard_close(guard);
    belay_tensor_name_set(options.operand[0], "x");
    belay_launch(g->ctx, &stray, &options);
}

static void write_byte(gallery *g) { touch(g, true); }

static void read_byte(gallery *g) { touch(g, false); }

#define EXACT                                                                                                          \
    .memory = BELAY_MEMORY_EXACT_LEFT, .code = BELAY_MEM_ACCESS, .loses_device = true,                                 \
    .named = "op;site;tensor;device;step;bytes=before the begin of x (48 bytes);made at=made at"

static const injection injections[] = {
    {.what = "writes 1 byte before the begin", .run = write_byte, .value = -1, EXACT},
    {.what = "writes 8 bytes before the begin", .run = write_byte, .value = -8, EXACT},
    {.what = "reads 1 byte before the begin", .run = read_byte, .value = -1, EXACT},
    {.what = "writes 1 byte before the begin, red zones",
     .run = write_byte,
     .value = -1,
     .memory = BELAY_MEMORY_REDZONE,
     .code = BELAY_MEM_REDZONE,
     .named = "site;step;bytes=1 byte before the begin of x (48 bytes);made at=made at"},
};

GALLERY_MAIN("raw access before the block (F07)")
