/* SPDX-License-Identifier: Apache-2.0 */
/* F07: a kernel of one's own goes past the end of its tensor, through a raw pointer.  A GPU's pool hides it: the next
 * block's numbers change.  In memory mode `exact` Belay ends every block at an inaccessible page: the access is named with
 * tensor, bytes past the end, and where the tensor was made.  In mode `redzone` a write is found when the block dies.
 * The cpu goes on; a software device is lost, as a GPU would be. */
#include "gallery.h"

enum { BYTES = 44 }; /* of eleven floats */

typedef struct stray_params {
    int64_t at, writes;
} stray_params;

BELAY_KERNEL(stray, "*: x[N]! ->", work, i)
{
    const stray_params *p = BELAY_PARAMS(stray_params, work);
    volatile char *place = (volatile char *)belay_view_raw(belay_view_of(work, 0)) + p->at;
    if (p->writes)
        *place = 1;
    else
        BELAY_AT1(float, belay_view_of(work, 0), i) = (float)*place;
}

static void touch(gallery *g, bool writes)
{
    const stray_params params = {g->value, writes};
    belay_launch_options options = {.n_items = 1, .params = &params, .params_bytes = sizeof params};
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    options.operand[0] = belay_zeros(g->ctx, BELAY_F32, belay_shape1(BYTES / 4));
    belay_device_guard_close(guard);
    belay_tensor_name_set(options.operand[0], "x");
    belay_launch(g->ctx, &stray, &options);
}

static void write_byte(gallery *g) { touch(g, true); }

static void read_byte(gallery *g) { touch(g, false); }

#define EXACT                                                                                                          \
    .memory = BELAY_MEMORY_EXACT, .code = BELAY_MEM_ACCESS, .loses_device = true,                                      \
    .named = "op;site;tensor;device;step;bytes=past the end of x (44 bytes);made at=made at"

static const injection injections[] = {
    {.what = "writes 1 byte past the end", .run = write_byte, .value = BYTES, EXACT},
    {.what = "writes 99 bytes past the end", .run = write_byte, .value = BYTES + 98, EXACT},
    {.what = "reads 1 byte past the end", .run = read_byte, .value = BYTES, EXACT},
    {.what = "reads 99 bytes past the end", .run = read_byte, .value = BYTES + 98, EXACT},
    {.what = "writes 1 byte past the end, red zones",
     .run = write_byte,
     .value = BYTES,
     .memory = BELAY_MEMORY_REDZONE,
     .code = BELAY_MEM_REDZONE,
     .named = "site;step;bytes=1 byte past the end of x (44 bytes);made at=made at"},
};

GALLERY_MAIN("raw overrun (F07)")
