/* SPDX-License-Identifier: Apache-2.0 */
/* F11: one scale is zero, its inverse Inf, and by the time that a loss is NaN nobody knows where it began.  A GPU says
 * nothing.  With non-finite tracing Belay names the first operation whose output is not finite, with tensor, coordinates
 * and how many; without, a step whose gradients are not finite is not applied either. */
#include "gallery.h"

static void divide_by_nothing(gallery *g)
{
    const float widths[] = {2, 0, 4};
    belay_tensor width = belay_tensor_from(g->ctx, BELAY_F32, belay_shape1(CLASSES), widths, sizeof widths);
    width = belay_tensor_name_set(belay_tensor_to(width, g->device), "width");
    belay_batch batch = gallery_batch(g);
    belay_tensor logits = belay_forward(g->model, batch.tokens);
    belay_tensor scaled = belay_div(logits, width); /* here it begins */
    belay_backward(belay_cross_entropy(belay_mul(scaled, width), batch.labels, NULL));
}

static const injection injections[] = {
    {.what = "Inf scale, traced",
     .run = divide_by_nothing,
     .traces_nonfinite = true,
     .code = BELAY_NUM_NONFINITE,
     .named = "op;site;tensor;device;step;coordinates=first at [0, 1]"},
    {.what = "Inf scale, not traced", .run = divide_by_nothing, .code = BELAY_RUN_OVERFLOW, .named = "step"},
};

GALLERY_MAIN("a value that is not finite (F11)")
