/* SPDX-License-Identifier: Apache-2.0 */
/* Windows that slide along axes: how many positions they have. */
#include "op/slide.h"

#include <inttypes.h>

#include "base/checked.h"

static bool is_at_least(const bl_slides *all, int axis, const char *what, int64_t value, int64_t least)
{
    if (value >= least)
        return true;
    bl_prove_refuse(all->context, BELAY_CONF_VALUE, all->op, all->given, all->n_given,
                    "%s of %s along axis %d is %" PRId64 ": it must be at least %" PRId64, what, all->op, axis, value,
                    least);
    return false;
}

bool bl_slide_positions(const bl_slides *all, int axis, int64_t size, const bl_slide *w, int64_t *positions)
{
    int64_t span, room;
    if (!is_at_least(all, axis, "kernel", w->kernel, 1) || !is_at_least(all, axis, "stride", w->stride, 1) ||
        !is_at_least(all, axis, "padding", w->padding, 0) || !is_at_least(all, axis, "dilation", w->dilation, 1))
        return false;
    if (!bl_checked_mul(w->dilation, w->kernel - 1, &span) || !bl_checked_add(span, 1, &span) ||
        !bl_checked_mul(w->padding, 2, &room) || !bl_checked_add(room, size, &room)) {
        bl_prove_refuse(all->context, BELAY_SIZE_OVERFLOW, all->op, all->given, all->n_given,
                        "windows of %s along axis %d reach beyond 2^63 - 1: kernel %" PRId64 ", dilation %" PRId64
                        ", padding %" PRId64,
                        all->op, axis, w->kernel, w->dilation, w->padding);
        return false;
    }
    if (span > room) {
        bl_prove_refuse(all->context, BELAY_SHAPE_CONTRACT, all->op, all->given, all->n_given,
                        "a window of %" PRId64 " does not fit along axis %d, which has %" PRId64
                        " elements and padding of %" PRId64 " on each side",
                        span, axis, size, w->padding);
        return false;
    }
    *positions = (room - span) / w->stride + 1;
    return true;
}
