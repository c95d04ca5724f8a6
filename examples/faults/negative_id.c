/* SPDX-License-Identifier: Apache-2.0 */
/* F01: -1 as the mark of a missing token, or an id that a cast made negative.  A GPU reads before the table: another
 * tensor's numbers, or an illegal memory access.  NumPy and the indexing of PyTorch count from the end, an embedding does
 * not.  Belay names id, coordinates, table and sample, and the step is not applied. */
#include "gallery.h"

static void train_on_the_id(gallery *g)
{
    g->tokens[gallery_sample(0)][5] = g->value;
    belay_batch batch = gallery_batch(g);
    belay_tensor logits = belay_forward(g->model, batch.tokens);
    belay_backward(belay_cross_entropy(logits, batch.labels, NULL));
}

#define NAMED "op;layer;site;tensor;value;bound;coordinates;sample;step;device"

static const injection injections[] = {
    {.what = "id = -1", .run = train_on_the_id, .value = -1, .code = BELAY_INDEX_RANGE, .named = NAMED},
    {.what = "id = -2^31", .run = train_on_the_id, .value = INT32_MIN, .code = BELAY_INDEX_RANGE, .named = NAMED},
    {.what = "id = -2^63", .run = train_on_the_id, .value = INT64_MIN, .code = BELAY_INDEX_RANGE, .named = NAMED},
};

GALLERY_MAIN("negative id (F01)")
