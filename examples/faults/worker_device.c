/* SPDX-License-Identifier: Apache-2.0 */
/* A dataset that makes a tensor in a loader's worker, often by a collate function that "already moves it".  In a forked
 * worker CUDA says "Cannot re-initialize CUDA in forked subprocess"; in a thread two users of one device race.  Belay
 * refuses the call by name, the sample's batch faults, and the loop goes on. */
#include "gallery.h"

static belay_code get_on_the_device(void *state, int64_t index, belay_sample *sample)
{
    gallery *g = state;
    belay_tensor ids = belay_zeros(g->ctx, BELAY_I64, belay_shape1(SEQUENCE)); /* a worker has no business there */
    sample->n_ids = SEQUENCE;
    sample->label = belay_tensor_is_nil(ids) ? 0 : 1;
    sample->file = "words.tsv";
    sample->line = index + 2;
    return BELAY_OK;
}

static void load_in_a_worker(gallery *g)
{
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    belay_dataset *data =
        belay_dataset_callback(g->ctx, SAMPLES, get_on_the_device, g, &(belay_ids_options){.seq = SEQUENCE});
    belay_loader *batches = belay_loader_new(data, &(belay_loader_options){.batch = SAMPLES, .workers = g->value});
    belay_batch batch;
    gallery_expect(g, belay_loader_next(batches, &batch) && batch.code == BELAY_PLACE_WORKER);
    belay_backward(belay_cross_entropy(belay_forward(g->model, batch.tokens), batch.labels, NULL)); /* nothing */
    belay_loader_close(batches);
    belay_device_guard_close(guard);
}

static const injection injections[] = {
    {.what = "one worker",
     .run = load_in_a_worker,
     .value = 1,
     .code = BELAY_PLACE_WORKER,
     .named = "site;sample;step"},
};

GALLERY_MAIN("worker touching a device")
