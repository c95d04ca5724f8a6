/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: turns host batches into tensors on the context's thread, and tells the context where their samples come
 * from.  Only this file of the room makes tensors. */
#include <inttypes.h>
#include <stdio.h>

#include <belay/data.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/feed.h"
#include "tensor/context.h"

#define MAX_WORKERS  1024
#define MAX_PREFETCH 65536

struct belay_loader {
    bl_data_object object;
    belay_dataset *dataset; /* held on to */
    bl_data_feed *feed;
    int64_t next_epoch, next_start; /* what the next begin is given */
    bool is_begun;                  /* an epoch has begun and not ended */
    bool has_epoch;                 /* an epoch has begun, ever */
    const bl_data_batch *given;     /* the batch last given, NULL: none */
    belay_tensor tokens, labels;
};

static belay_loader nil_loader;

bool belay_loader_is_nil(const belay_loader *loader) { return !BL_ASK(bl_data_context(loader)); }

/* ---- making ----------------------------------------------------------------------------------------------------- */

static void take_back(belay_loader *loader)
{
    belay_context *ctx = loader->object.ctx;
    bl_tensor_drop(ctx, loader->tokens);
    bl_tensor_drop(ctx, loader->labels);
    loader->tokens = loader->labels = (belay_tensor){0};
    loader->given = NULL;
    if (ctx->sample_state == loader)
        bl_context_batch_set(ctx, 0, NULL, NULL);
}

static void fini_loader(void *object)
{
    belay_loader *loader = object;
    take_back(loader);
    bl_data_feed_close(loader->feed);
    bl_data_object_drop(loader->dataset);
}

static const bl_data_class loader_class = {"a loader", "closed", sizeof(belay_loader), fini_loader};

static belay_code check_range(const char *name, int64_t value, int64_t most, bl_error *error)
{
    if (value >= 0 && value <= most)
        return BELAY_OK;
    return bl_error_set(error, BELAY_CONF_VALUE, "%s is %" PRId64 ", it must be from 0 to %" PRId64, name, value, most);
}

static belay_code check_options(const belay_loader_options *o, bl_error *error)
{
    TRY(check_range("batch", o->batch, INT32_MAX, error));
    TRY(check_range("workers", o->workers, MAX_WORKERS, error));
    TRY(check_range("prefetch", o->prefetch, MAX_PREFETCH, error));
    TRY(check_range("ranks", o->ranks, INT32_MAX, error));
    TRY(check_range("rank", o->rank, bl_max_i64(o->ranks, 1) - 1, error));
    TRY(check_range("start_epoch", o->start_epoch, UINT32_MAX, error));
    return check_range("start_batch", o->start_batch, UINT32_MAX, error);
}

static belay_code no_batch(int64_t n_samples, const bl_data_feed_options *options, bl_error *error)
{
    bl_error_set(error, BELAY_DATA_EMPTY, "drop_last leaves no batch: %" PRId64 " samples, batches of %" PRId64,
                 n_samples, options->batch * options->ranks);
    if (options->ranks > 1)
        bl_error_fact(error, "a batch is %" PRId64 " samples of each of %" PRId64 " ranks", options->batch,
                      options->ranks);
    bl_error_advise(error, "Give a batch that the samples fill, or leave drop_last out.");
    return BELAY_DATA_EMPTY;
}

static belay_code open_feed(belay_loader *loader, const belay_loader_options *o, bl_error *error)
{
    bl_data_feed_options options = {.batch = o->batch != 0 ? o->batch : 64,
                                    .rank = o->rank,
                                    .ranks = o->ranks,
                                    .n_workers = o->workers,
                                    .prefetch = o->prefetch != 0 ? o->prefetch : 2 * o->workers,
                                    .seed = o->seed != 0 ? o->seed : loader->object.ctx->seed,
                                    .shuffle = o->shuffle,
                                    .drop_last = o->drop_last};
    int64_t n_samples = loader->dataset->n_samples;
    TRY(bl_data_feed_open(loader->dataset, &options, &loader->feed, error));
    int64_t n_batches = bl_data_feed_n_batches(loader->feed);
    options.ranks = bl_max_i64(options.ranks, 1);
    if (n_batches == 0)
        return no_batch(n_samples, &options, error);
    if (n_batches > UINT32_MAX)
        return bl_error_set(error, BELAY_SIZE_OVERFLOW, "%" PRId64 " batches in an epoch, the most is %" PRIu32,
                            n_batches, UINT32_MAX);
    return check_range("start_batch", o->start_batch, n_batches, error);
}

belay_loader *belay_loader_new(belay_dataset *dataset, const belay_loader_options *options)
{
    static const belay_loader_options defaults;
    const belay_loader_options *o = options != NULL ? options : &defaults;
    bl_error error;
    belay_context *ctx = BL_DATA_USE(dataset);
    BL_ENTER(ctx);
    if (ctx == NULL)
        return &nil_loader;
    belay_code code = check_options(o, &error);
    belay_loader *loader = code == BELAY_OK ? bl_data_object_new(ctx, &loader_class, &error) : &nil_loader;
    if (loader != NULL && code == BELAY_OK) {
        loader->dataset = bl_data_object_hold(dataset);
        loader->next_epoch = o->start_epoch;
        loader->next_start = o->start_batch;
        code = open_feed(loader, o, &error);
    }
    if (loader != NULL && code == BELAY_OK)
        return loader;
    bl_data_raise(ctx, &error);
    bl_data_object_close(loader);
    return &nil_loader;
}

belay_loader *belay_loader_open(belay_context *ctx, const char *path, const belay_loader_options *options)
{
    BL_ENTER(ctx);
    belay_dataset *dataset = belay_dataset_open(ctx, path, options != NULL ? &options->data : NULL);
    belay_loader *loader = belay_loader_new(dataset, options);
    belay_dataset_close(dataset); /* the loader holds on to it */
    return loader;
}

void belay_loader_close(belay_loader *loader)
{
    if (BL_ASK(BL_DATA_USE(loader)))
        bl_data_object_close(loader);
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

/* Words for a fault about row `row` of the batch in work. */
static bool describe(void *state, int64_t row, char *out, size_t size)
{
    const belay_loader *loader = state;
    const char *file;
    int64_t line, index = belay_loader_origin(loader, row, &file, &line);
    if (index < 0)
        return false;
    if (file == NULL)
        snprintf(out, size, "sample %" PRId64, index);
    else if (line == 0)
        snprintf(out, size, "%s, sample %" PRId64, file, index);
    else
        snprintf(out, size, "%s:%" PRId64, file, line);
    return true;
}

static belay_tensor make_tensor(belay_context *ctx, const belay_shape *shape, const int64_t *data, int64_t n_elements,
                                const char *name)
{
    belay_tensor tensor = belay_tensor_from(ctx, BELAY_I64, *shape, data, n_elements * (int64_t)sizeof *data);
    if (belay_tensor_is_nil(tensor))
        return tensor;
    bl_slot_get(ctx, tensor)->is_batch = true;
    return bl_tensor_own(ctx, belay_tensor_name_set(tensor, name));
}

/* The host batch's sizes were proved when its memory was asked for. */
static belay_code make_tensors(belay_loader *loader)
{
    belay_context *ctx = loader->object.ctx;
    const bl_data_batch *host = loader->given;
    int64_t n = host->n_samples, seq = loader->dataset->seq, before = belay_n_faults(ctx);
    belay_shape tokens = belay_shape2(n, seq), labels = belay_shape1(n);
    belay_fault fault;
    loader->tokens = make_tensor(ctx, &tokens, host->ids, n * seq, "tokens");
    loader->labels = make_tensor(ctx, &labels, host->labels, n, "labels");
    if (!belay_tensor_is_nil(loader->tokens) && !belay_tensor_is_nil(loader->labels))
        return BELAY_OK;
    return belay_fault_get(ctx, before, &fault) ? fault.code : BELAY_MEM_EXHAUSTED;
}

/* The context's fault for a batch with a sample that was refused, naming its place. */
static belay_code raise_refused(belay_loader *loader)
{
    const bl_data_batch *host = loader->given;
    bl_report_fault fault;
    bl_report_fault_init(&fault, host->code);
    snprintf(fault.what, sizeof fault.what, "%s", host->error.what);
    snprintf(fault.facts, sizeof fault.facts, "%.760s", host->error.facts);
    if (host->site != 0)
        bl_context_site_tell(loader->object.ctx, host->site, &fault);
    describe(loader, host->bad_row, fault.sample, sizeof fault.sample);
    fault.sample_row = host->bad_row;
    return bl_context_fault(loader->object.ctx, &fault);
}

static void give(belay_loader *loader, const bl_data_batch *host, belay_batch *batch)
{
    belay_context *ctx = loader->object.ctx;
    loader->given = host;
    belay_position_set(ctx, (uint32_t)host->epoch, (uint32_t)host->position);
    bl_context_batch_set(ctx, host->n_samples, describe, loader);
    bl_context_sample_first_set(ctx, host->first);
    belay_code code = host->code != BELAY_OK ? raise_refused(loader)
                      : host->n_samples == 0 ? BELAY_OK /* a rank without a part: nil handles */
                                             : make_tensors(loader);
    if (batch == NULL)
        return;
    bool is_whole = code == BELAY_OK;
    *batch = (belay_batch){.tokens = is_whole ? loader->tokens : (belay_tensor){0},
                           .labels = is_whole ? loader->labels : (belay_tensor){0},
                           .n_samples = host->n_samples,
                           .n_global = host->n_global,
                           .first = host->first,
                           .epoch = host->epoch,
                           .position = host->position,
                           .code = code};
}

static void begin(belay_loader *loader)
{
    bl_data_feed_begin(loader->feed, loader->next_epoch, loader->next_start);
    loader->next_epoch++;
    loader->next_start = 0;
    loader->is_begun = loader->has_epoch = true;
}

static bool end(belay_batch *batch)
{
    if (batch != NULL)
        *batch = (belay_batch){0};
    return false;
}

static bool hand_over(belay_loader *loader, const bl_data_batch *host, belay_batch *batch)
{
    if (host == NULL)
        return end(batch);
    give(loader, host, batch);
    return true;
}

bool belay_loader_next(belay_loader *loader, belay_batch *batch)
{
    belay_context *ctx = BL_DATA_USE(loader);
    BL_ENTER(ctx);
    if (ctx == NULL || belay_loader_is_nil(loader))
        return end(batch);
    bl_data_object_hold(loader); /* what is called from here may close it */
    take_back(loader);
    if (!loader->is_begun)
        begin(loader);
    const bl_data_batch *host = bl_data_feed_next(loader->feed);
    loader->is_begun = host != NULL;
    bool is_there = hand_over(loader, host, batch);
    bl_data_object_drop(loader);
    return is_there;
}

bool belay_loader_get(belay_loader *loader, int64_t position, belay_batch *batch)
{
    belay_context *ctx = BL_DATA_USE(loader);
    BL_ENTER(ctx);
    if (ctx == NULL || belay_loader_is_nil(loader))
        return end(batch);
    bl_data_object_hold(loader);
    take_back(loader);
    if (!loader->has_epoch)
        begin(loader);
    const bl_data_batch *host = bl_data_feed_get(loader->feed, position);
    bool is_there = hand_over(loader, host, batch);
    bl_data_object_drop(loader);
    return is_there;
}

/* ---- questions -------------------------------------------------------------------------------------------------- */

belay_dataset *belay_loader_dataset(const belay_loader *loader)
{
    return BL_ASK(BL_DATA_USE(loader)) ? loader->dataset : bl_data_dataset_nil();
}

int64_t belay_loader_n_samples(const belay_loader *loader)
{
    return BL_ASK(BL_DATA_USE(loader)) ? loader->dataset->n_samples : 0;
}

int64_t belay_loader_n_tokens(const belay_loader *loader)
{
    return BL_ASK(BL_DATA_USE(loader)) ? loader->dataset->n_tokens : 0;
}

int64_t belay_loader_n_classes(const belay_loader *loader)
{
    return BL_ASK(BL_DATA_USE(loader)) ? loader->dataset->n_classes : 0;
}

int64_t belay_loader_n_batches(const belay_loader *loader)
{
    return BL_ASK(BL_DATA_USE(loader)) ? bl_data_feed_n_batches(loader->feed) : 0;
}

int64_t belay_loader_n_workers(const belay_loader *loader)
{
    return BL_ASK(BL_DATA_USE(loader)) ? bl_data_feed_n_workers(loader->feed) : 0;
}

int64_t belay_loader_origin(const belay_loader *loader, int64_t row, const char **file, int64_t *line)
{
    const bl_data_batch *host = BL_ASK(BL_DATA_USE(loader)) ? loader->given : NULL;
    bool is_there = host != NULL && row >= 0 && row < host->n_samples;
    if (file != NULL)
        *file = is_there && host->files[row] >= 0 ? bl_text_get(&host->names) + host->files[row] : NULL;
    if (line != NULL)
        *line = is_there ? host->lines[row] : 0;
    return is_there ? host->indices[row] : -1;
}
