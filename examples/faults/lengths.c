/* SPDX-License-Identifier: Apache-2.0 */
/* F06: buffers and kernels were made for the length of the first batch, and another length comes: 1, 2, 3, one below and
 * above a tile; a shorter one after training; training, evaluation and training again.  Kernels that count in tiles read
 * past the end.  In Belay every call is made for the sizes that it gets: any length is legal, and right. */
#include "gallery.h"

#include <math.h>

enum { LONGEST = 33, WIDTH = 5 };

/* The first steps of a long sequence are those of the same sequence cut short. */
static void run_lengths(gallery *g)
{
    static const int64_t lengths[] = {1, 2, 3, 7, 8, 9, 31, 32};
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    belay_lstm_module_options options = {.in = WIDTH, .hidden = WIDTH};
    belay_module *lstm = belay_lstm_module(g->ctx, &options);
    belay_tensor x = belay_uniform(g->ctx, BELAY_F32, belay_shape3(2, LONGEST, WIDTH), -1, 1);
    belay_tensor whole = belay_forward(lstm, x);
    for (int k = 0; k < 8; k++) {
        belay_tensor part = belay_forward(lstm, belay_slice(x, 1, 0, lengths[k], 1));
        belay_tensor distance = belay_squared_error(part, belay_slice(whole, 1, 0, lengths[k], 1));
        gallery_expect(g, belay_tensor_item(belay_amax(distance, NULL)) < 1e-12);
    }
    belay_device_guard_close(guard);
    belay_module_free(lstm);
}

/* Training, evaluation of one shorter sample, training. */
static void switch_modes(gallery *g)
{
    belay_tensor tokens = gallery_batch(g).tokens;
    double before = belay_tensor_item(belay_sum(belay_forward(g->model, tokens), NULL));
    belay_module_training_set(g->model, false);
    belay_tensor one = belay_forward(g->model, belay_slice(belay_slice(tokens, 0, 0, 1, 1), 1, 0, 1, 1));
    gallery_expect(g, isfinite(belay_tensor_item(belay_sum(one, NULL))));
    belay_module_training_set(g->model, true);
    double after = belay_tensor_item(belay_sum(belay_forward(g->model, tokens), NULL));
    gallery_expect(g, after >= before && after <= before);
}

static const injection injections[] = {
    {.what = "lengths 1, 2, 3, 7, 8, 9, 31, 32", .run = run_lengths},
    {.what = "train, evaluate shorter, train", .run = switch_modes},
};

GALLERY_MAIN("changing lengths (F06)")
