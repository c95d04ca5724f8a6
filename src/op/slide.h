/* SPDX-License-Identifier: Apache-2.0 */
/* Windows that slide along axes: what convolutions and pools have in common. */
#ifndef BL_OP_SLIDE_H
#define BL_OP_SLIDE_H

#include "op/op.h"

/* Along one axis. */
typedef struct bl_slide {
    int64_t kernel, stride, padding, dilation;
} bl_slide;

/* What the windows slide over: one of what `op` was given, first of `given`. */
typedef struct bl_slides {
    belay_context *context;
    const char *op;
    const bl_given *given;
    int n_given;
} bl_slides;

/* The number of positions along an axis of that size.  False after conf.value (an option out of its range),
 * size.overflow, or shape.contract (not even one window fits). */
bool bl_slide_positions(const bl_slides *all, int axis, int64_t size, const bl_slide *w, int64_t *positions);

#endif
