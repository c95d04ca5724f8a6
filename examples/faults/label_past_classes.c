/* SPDX-License-Identifier: Apache-2.0 */
/* F02: labels that count from 1, the mask of another data set, or bytes read as labels.  A GPU says "t >= 0 && t <
 * n_classes" at some later call, and its context is gone; some versions read past the row and say nothing.  Belay takes
 * labels of any integer dtype, looks at each value, and names the sample; the step is not applied. */
#include "gallery.h"

static void train_on_the_label(gallery *g)
{
    g->labels[gallery_sample(1)] = g->value;
    belay_batch batch = gallery_batch(g);
    belay_tensor logits = belay_forward(g->model, batch.tokens);
    belay_backward(belay_cross_entropy(logits, batch.labels, NULL));
}

/* The same as bytes, one to a label: legal, when the values are. */
static void train_on_bytes(gallery *g)
{
    const uint8_t bytes[SAMPLES] = {0, (uint8_t)g->value, 1, 2};
    const int64_t wide[SAMPLES] = {0, g->value, 1, 2};
    belay_shape shape = belay_shape1(SAMPLES);
    belay_tensor logits = belay_forward(g->model, gallery_batch(g).tokens);
    belay_tensor labels = belay_tensor_to(belay_tensor_from(g->ctx, BELAY_U8, shape, bytes, sizeof bytes), g->device);
    belay_tensor loss = belay_cross_entropy(logits, belay_tensor_name_set(labels, "labels"), NULL);
    if (g->value >= CLASSES)
        return;
    labels = belay_tensor_to(belay_tensor_from(g->ctx, BELAY_I64, shape, wide, sizeof wide), g->device);
    double same = belay_tensor_item(loss) - belay_tensor_item(belay_cross_entropy(logits, labels, NULL));
    gallery_expect(g, same >= 0 && same <= 0);
}

#define NAMED "op;site;tensor;value;bound;coordinates;sample;step;device"

static const injection injections[] = {
    {.what = "label = classes", .run = train_on_the_label, .value = CLASSES, .code = BELAY_INDEX_LABEL, .named = NAMED},
    {.what = "label = 2^31 - 1",
     .run = train_on_the_label,
     .value = INT32_MAX,
     .code = BELAY_INDEX_LABEL,
     .named = NAMED},
    {.what = "label = -2^31", .run = train_on_the_label, .value = INT32_MIN, .code = BELAY_INDEX_LABEL, .named = NAMED},
    {.what = "label 250 in u8", .run = train_on_bytes, .value = 250, .code = BELAY_INDEX_LABEL, .named = NAMED},
    {.what = "labels as u8", .run = train_on_bytes, .value = CLASSES - 1},
};

GALLERY_MAIN("label past the classes (F02)")
