/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets: what all of them share, and the two whose ids come from the caller.  Texts: texts.c. */
#include "data/dataset.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/vocabulary.h"
#include "data/words.h"
#include "tensor/context.h"

static belay_dataset nil_dataset;

belay_dataset *bl_data_dataset_nil(void) { return &nil_dataset; }
bool belay_dataset_is_nil(const belay_dataset *dataset) { return !BL_ASK(bl_data_context(dataset)); }

static void fini_dataset(void *object)
{
    belay_dataset *dataset = object;
    bl_data_store_fini(&dataset->store);
    bl_data_object_drop(dataset->parent);
    bl_data_object_drop(dataset->tokenizer);
    bl_data_object_drop(dataset->labels);
    bl_free(dataset->ids);
    bl_free(dataset->classes);
}

static const bl_data_class dataset_class = {"a dataset", "closed", sizeof(belay_dataset), fini_dataset};

belay_dataset *bl_data_dataset_new(belay_context *ctx, const bl_data_kind *kind)
{
    bl_error error;
    if (!bl_data_has_context(ctx))
        return &nil_dataset;
    belay_dataset *dataset = bl_data_object_new(ctx, &dataset_class, &error);
    if (dataset == NULL) {
        bl_data_raise(ctx, &error);
        return &nil_dataset;
    }
    dataset->kind = kind;
    return dataset;
}

belay_dataset *bl_data_dataset_fail(belay_dataset *dataset, const bl_error *error)
{
    bl_data_raise(dataset->object.ctx, error);
    belay_dataset_close(dataset);
    return &nil_dataset;
}

void belay_dataset_close(belay_dataset *dataset)
{
    if (BL_ASK(BL_DATA_USE(dataset)))
        bl_data_object_close(dataset);
}

/* ---- questions -------------------------------------------------------------------------------------------------- */

int64_t belay_dataset_n_samples(const belay_dataset *dataset)
{
    return BL_ASK(BL_DATA_USE(dataset)) ? dataset->n_samples : 0;
}

int64_t belay_dataset_seq(const belay_dataset *dataset) { return BL_ASK(BL_DATA_USE(dataset)) ? dataset->seq : 0; }

int64_t belay_dataset_n_tokens(const belay_dataset *dataset)
{
    return BL_ASK(BL_DATA_USE(dataset)) ? dataset->n_tokens : 0;
}

int64_t belay_dataset_n_classes(const belay_dataset *dataset)
{
    return BL_ASK(BL_DATA_USE(dataset)) ? dataset->n_classes : 0;
}

belay_tokenizer *belay_dataset_tokenizer(const belay_dataset *dataset)
{
    return BL_ASK(BL_DATA_USE(dataset)) && dataset->tokenizer != NULL ? dataset->tokenizer : bl_data_tokenizer_nil();
}

belay_labels *belay_dataset_labels(const belay_dataset *dataset)
{
    return BL_ASK(BL_DATA_USE(dataset)) && dataset->labels != NULL ? dataset->labels : bl_data_labels_nil();
}

/* ---- ids from the caller ---------------------------------------------------------------------------------------- */

belay_code bl_data_seq_check(int64_t seq, bl_error *error)
{
    const int64_t most = INT64_MAX / (int64_t)sizeof(int64_t) - 1024;
    if (seq <= most)
        return BELAY_OK;
    bl_error_set(error, BELAY_SIZE_OVERFLOW, "seq is %" PRId64 ": the most ids that a sample can have are %" PRId64,
                 seq, most);
    bl_error_advise(error, "Give the number of ids at which a text is cut, such as 20.");
    return BELAY_SIZE_OVERFLOW;
}

static belay_code check_ids_options(const char *maker, int64_t n, const belay_ids_options *options, bl_error *error)
{
    if (n <= 0)
        return bl_error_set(error, BELAY_DATA_EMPTY, "%s: %" PRId64 " samples are not a dataset", maker, n);
    if (options == NULL || options->seq == 0)
        return bl_error_set(error, BELAY_CONF_VALUE, "%s: seq must be given", maker);
    if (options->seq < 0 || options->n_tokens < 0 || options->n_classes < 0)
        return bl_error_set(error, BELAY_CONF_VALUE,
                            "%s: seq %" PRId64 ", n_tokens %" PRId64 ", n_classes %" PRId64 ": none may be negative",
                            maker, options->seq, options->n_tokens, options->n_classes);
    return bl_data_seq_check(options->seq, error);
}

static void take_options(belay_dataset *dataset, int64_t n, const belay_ids_options *options)
{
    dataset->n_samples = n;
    dataset->seq = options->seq;
    dataset->n_tokens = options->n_tokens;
    dataset->n_classes = options->n_classes;
}

static belay_code get_ids(const belay_dataset *dataset, void *cursor, int64_t index, belay_sample *sample,
                          bl_error *error)
{
    (void)cursor;
    (void)error;
    sample->ids = dataset->ids + index * dataset->seq;
    sample->n_ids = dataset->seq;
    sample->label = dataset->classes[index];
    return BELAY_OK;
}

const bl_data_kind bl_data_kind_ids = {.get = get_ids};

static belay_code copy_ids(belay_dataset *dataset, const int64_t *ids, const int64_t *labels, bl_error *error)
{
    const int64_t sizes[] = {dataset->n_samples, dataset->seq, (int64_t)sizeof *ids};
    int64_t n_bytes;
    if (ids == NULL || labels == NULL)
        return bl_error_set(error, BELAY_CONF_VALUE, "belay_dataset_ids: %s is NULL", ids == NULL ? "ids" : "labels");
    if (!bl_checked_product(sizes, 3, &n_bytes))
        return bl_error_set(error, BELAY_SIZE_OVERFLOW,
                            "belay_dataset_ids: %" PRId64 " samples of %" PRId64 " ids are too many",
                            dataset->n_samples, dataset->seq);
    dataset->ids = bl_alloc(n_bytes, 1);
    dataset->classes = bl_alloc(dataset->n_samples, sizeof *labels);
    if (dataset->ids == NULL || dataset->classes == NULL)
        return bl_data_no_memory(error, "the samples of a dataset", 0);
    memcpy(dataset->ids, ids, (size_t)n_bytes);
    memcpy(dataset->classes, labels, (size_t)dataset->n_samples * sizeof *labels);
    return BELAY_OK;
}

belay_dataset *belay_dataset_ids(belay_context *ctx, const int64_t *ids, const int64_t *labels, int64_t n,
                                 const belay_ids_options *options)
{
    BL_ENTER(ctx);
    bl_error error;
    belay_dataset *dataset = bl_data_dataset_new(ctx, &bl_data_kind_ids);
    if (belay_dataset_is_nil(dataset))
        return dataset;
    if (check_ids_options("belay_dataset_ids", n, options, &error) != BELAY_OK)
        return bl_data_dataset_fail(dataset, &error);
    take_options(dataset, n, options);
    if (copy_ids(dataset, ids, labels, &error) != BELAY_OK)
        return bl_data_dataset_fail(dataset, &error);
    return dataset;
}

/* ---- a callback ------------------------------------------------------------------------------------------------- */

static belay_code get_callback(const belay_dataset *dataset, void *cursor, int64_t index, belay_sample *sample,
                               bl_error *error)
{
    (void)cursor;
    belay_code code = dataset->callback(dataset->state, index, sample);
    if (code == BELAY_OK)
        return BELAY_OK;
    if (sample->why == NULL)
        return bl_error_set(error, code, "get failed and gave no reason");
    bl_text why = {0};
    bl_text_add_escaped(&why, sample->why, (int64_t)strlen(sample->why), 300);
    bl_error_set(error, code, "%s", bl_text_get(&why));
    bl_text_fini(&why);
    return code;
}

const bl_data_kind bl_data_kind_callback = {.get = get_callback};

belay_dataset *belay_dataset_callback(belay_context *ctx, int64_t n_samples, belay_sample_get get, void *state,
                                      const belay_ids_options *options)
{
    BL_ENTER(ctx);
    bl_error error;
    belay_dataset *dataset = bl_data_dataset_new(ctx, &bl_data_kind_callback);
    if (belay_dataset_is_nil(dataset))
        return dataset;
    belay_code code = check_ids_options("belay_dataset_callback", n_samples, options, &error);
    if (code == BELAY_OK && get == NULL)
        code = bl_error_set(&error, BELAY_CONF_VALUE, "belay_dataset_callback: get is NULL");
    if (code != BELAY_OK)
        return bl_data_dataset_fail(dataset, &error);
    take_options(dataset, n_samples, options);
    dataset->callback = get;
    dataset->state = state;
    return dataset;
}
