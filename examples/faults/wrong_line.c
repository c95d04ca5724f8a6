/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a GPU return at once, and what a kernel met surfaces at a later call: the line that an error names is that of
 * the first read, hundreds of good launches behind the bad one.  The usual advice is to run again, slowly, with
 * CUDA_LAUNCH_BLOCKING.  Belay keeps what each launch was: the report names the line that launched it, and beside it the
 * one where it surfaced. */
#include "gallery.h"

static void bad_then_good(gallery *g)
{
    g->tokens[gallery_sample(2)][1] = TOKENS;
    belay_tensor logits = belay_forward(g->model, gallery_batch(g).tokens);
    belay_tensor good = logits;
    for (int64_t i = 0; i < g->value; i++)
        good = belay_affine(good, 0.5, 1);
    (void)belay_tensor_item(belay_sum(good, NULL));
}

#define NAMED "op;layer;site;tensor;value;bound;coordinates;sample;step;device;own line=wrong_line.c:11"

static const injection injections[] = {
    {.what = "1 good launch behind it",
     .run = bad_then_good,
     .value = 1,
     .code = BELAY_INDEX_RANGE,
     .named = NAMED,
     .named_on_sim = "surfaced"},
    {.what = "300 good launches behind it",
     .run = bad_then_good,
     .value = 300,
     .code = BELAY_INDEX_RANGE,
     .named = NAMED,
     .named_on_sim = "surfaced"},
};

GALLERY_MAIN("the wrong line under asynchrony")
