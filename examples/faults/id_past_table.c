/* SPDX-License-Identifier: Apache-2.0 */
/* F01: a vocabulary that is larger than the embedding's table, so that a batch holds ids past its last row; or a text
 * longer than the table of positions.  A GPU says "srcIndex < srcSelectDimSize", or an illegal memory access at some later
 * call.  Belay names id, coordinates, table and sample, and the step is not applied. */
#include "gallery.h"

static void train_on_the_id(gallery *g)
{
    g->tokens[gallery_sample(3)][2] = g->value;
    belay_batch batch = gallery_batch(g);
    belay_tensor logits = belay_forward(g->model, batch.tokens);
    belay_backward(belay_cross_entropy(logits, batch.labels, NULL));
}

/* Positions 0, 1, ... of a text that is one longer than the table: the value is its length. */
static void look_positions_up(gallery *g)
{
    belay_tensor table = belay_tensor_to(belay_zeros(g->ctx, BELAY_F32, belay_shape2(g->value - 1, 4)), g->device);
    belay_tensor positions = belay_tensor_to(belay_arange(g->ctx, BELAY_I64, g->value, 0, 1), g->device);
    belay_tensor_name_set(table, "positions.weight");
    belay_tensor_name_set(positions, "positions");
    belay_embedding(table, positions, NULL);
}

#define NAMED "op;layer;site;tensor;value;bound;coordinates;sample;step;device"

static const injection injections[] = {
    {.what = "id = rows", .run = train_on_the_id, .value = TOKENS, .code = BELAY_INDEX_RANGE, .named = NAMED},
    {.what = "id = 2^31 - 1", .run = train_on_the_id, .value = INT32_MAX, .code = BELAY_INDEX_RANGE, .named = NAMED},
    {.what = "id = 2^40", .run = train_on_the_id, .value = 1LL << 40, .code = BELAY_INDEX_RANGE, .named = NAMED},
    {.what = "position = table length",
     .run = look_positions_up,
     .value = 1025,
     .code = BELAY_INDEX_RANGE,
     .named = "op;site;tensor;value;bound;coordinates;step;device"},
};

GALLERY_MAIN("id past the table (F01)")
