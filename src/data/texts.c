/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of labelled texts: from a file or from arrays, and the validation part split off one. */
#include <inttypes.h>
#include <string.h>

#include <belay/data.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/vocabulary.h"
#include "data/words.h"
#include "tensor/context.h"

/* ---- samples ---------------------------------------------------------------------------------------------------- */

static const bl_data_store *store_of(const belay_dataset *dataset)
{
    return dataset->parent != NULL ? &dataset->parent->store : &dataset->store;
}

static belay_code open_cursor(const belay_dataset *dataset, void **out, bl_error *error)
{
    bl_data_cursor *cursor = bl_alloc(1, sizeof *cursor);
    *out = cursor; /* closed by the caller, also after an error */
    if (cursor == NULL)
        return bl_data_no_memory(error, "a reader of the dataset", 0);
    return bl_data_cursor_init(cursor, store_of(dataset), error);
}

static void close_cursor(void *cursor)
{
    bl_data_cursor_fini(cursor);
    bl_free(cursor);
}

static belay_code get_text(const belay_dataset *dataset, void *cursor, int64_t index, belay_sample *sample,
                           bl_error *error)
{
    const bl_data_store *store = store_of(dataset);
    int64_t row = dataset->rows != NULL ? dataset->rows[index] : index;
    sample->file = store->path;
    sample->line = store->lines[row];
    sample->label = store->classes[row];
    return bl_data_store_get(store, cursor, row, sample->room, &sample->n_ids, error);
}

const bl_data_kind bl_data_kind_texts = {.open_cursor = open_cursor, .close_cursor = close_cursor, .get = get_text};

/* ---- making ----------------------------------------------------------------------------------------------------- */

static belay_code check_options(const belay_text_options *o, bl_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        {"seq", o->seq}, {"min_count", o->min_count}, {"max_tokens", o->max_tokens}, {"keep_bytes", o->keep_bytes}};
    for (int i = 0; i < BL_COUNT(sizes); i++)
        if (sizes[i].value < 0)
            return bl_error_set(error, BELAY_CONF_VALUE, "%s is %" PRId64 ", it must not be negative", sizes[i].name,
                                sizes[i].value);
    if (o->tokens != BELAY_TOKENS_CHAR && o->tokens != BELAY_TOKENS_WORD)
        return bl_error_set(error, BELAY_CONF_VALUE, "tokens is %d, it must be BELAY_TOKENS_CHAR or BELAY_TOKENS_WORD",
                            (int)o->tokens);
    if (o->max_tokens > INT32_MAX - BL_DATA_FIRST_TOKEN)
        return bl_error_set(error, BELAY_CONF_VALUE, "max_tokens is %" PRId64 ", the most is %d", o->max_tokens,
                            INT32_MAX - BL_DATA_FIRST_TOKEN);
    if (!(o->valid_split >= 0.0 && o->valid_split < 1.0))
        return bl_error_set(error, BELAY_CONF_VALUE, "valid_split is %g, it must be at least 0 and below 1",
                            bl_text_real(o->valid_split));
    return bl_data_seq_check(o->seq, error);
}

static int64_t or_default(int64_t value, int64_t otherwise) { return value != 0 ? value : otherwise; }

/* The dataset holds the tokenizer and labels given, or new ones of its own, which the plan then fills. */
static belay_code hold_tokenizer(belay_dataset *dataset, const belay_text_options *o, bl_error *error)
{
    bool is_given = o->tokenizer != NULL;
    belay_tokenizer *tokenizer =
        is_given ? o->tokenizer : bl_data_tokenizer_new(dataset->object.ctx, o->tokens, o->keep_case, error);
    if (tokenizer == NULL)
        return error->code;
    if (tokenizer->object.ctx != dataset->object.ctx)
        return bl_error_set(error, BELAY_LIFE_FOREIGN, "the tokenizer belongs to another context than the dataset");
    dataset->tokenizer = bl_data_object_hold(tokenizer);
    if (!is_given)
        bl_data_object_close(tokenizer);
    return BELAY_OK;
}

static belay_code hold_labels(belay_dataset *dataset, const belay_text_options *o, bl_error *error)
{
    bool is_given = o->labels != NULL;
    belay_labels *labels = is_given ? o->labels : bl_data_labels_new(dataset->object.ctx, error);
    if (labels == NULL)
        return error->code;
    if (labels->object.ctx != dataset->object.ctx)
        return bl_error_set(error, BELAY_LIFE_FOREIGN, "the labels belong to another context than the dataset");
    dataset->labels = bl_data_object_hold(labels);
    if (!is_given)
        bl_data_object_close(labels);
    return BELAY_OK;
}

/* A nil object given as an option absorbs: its fault has been told.  That of one that has ended is told here. */
static bool is_absorbed(const belay_text_options *o, uintptr_t site)
{
    return (o->tokenizer != NULL && bl_data_use(o->tokenizer, site) == NULL) ||
           (o->labels != NULL && bl_data_use(o->labels, site) == NULL);
}

static belay_dataset *new_dataset(belay_context *ctx, const belay_text_options *o)
{
    return is_absorbed(o, ctx != NULL ? ctx->site : 0) ? bl_data_dataset_nil()
                                                       : bl_data_dataset_new(ctx, &bl_data_kind_texts);
}

static belay_code fill(belay_dataset *dataset, bl_data_rows *rows, const belay_text_options *o, bl_error *error)
{
    TRY(hold_tokenizer(dataset, o, error));
    TRY(hold_labels(dataset, o, error));
    bl_data_plan plan = {.min_count = or_default(o->min_count, 1),
                         .max_tokens = or_default(o->max_tokens, BL_DATA_MAX_TOKENS),
                         .seq = or_default(o->seq, 20),
                         .keep_bytes = or_default(o->keep_bytes, BL_DATA_KEEP_BYTES),
                         .valid_split = o->valid_split,
                         .seed = o->seed != 0 ? o->seed : bl_data_seed(dataset->object.ctx),
                         .vocabulary = &dataset->tokenizer->vocabulary,
                         .labels = &dataset->labels->set,
                         .make_vocabulary = dataset->tokenizer != o->tokenizer,
                         .make_labels = dataset->labels != o->labels};
    TRY(bl_data_store_fill(&dataset->store, rows, &plan, error));
    dataset->seq = plan.seq;
    dataset->n_tokens = belay_tokenizer_n_tokens(dataset->tokenizer);
    dataset->n_classes = belay_labels_n_classes(dataset->labels);
    dataset->rows = dataset->store.train;
    dataset->n_samples = dataset->rows != NULL ? dataset->store.n_train : dataset->store.n_rows;
    return BELAY_OK;
}

static belay_dataset *finish(belay_dataset *dataset, belay_code code, bl_data_rows *rows, const belay_text_options *o,
                             bl_error *error)
{
    if (code == BELAY_OK)
        code = fill(dataset, rows, o, error);
    bl_data_rows_close(rows);
    return code == BELAY_OK ? dataset : bl_data_dataset_fail(dataset, error);
}

belay_dataset *belay_dataset_open(belay_context *ctx, const char *path, const belay_text_options *options)
{
    BL_ENTER(ctx);
    static const belay_text_options defaults;
    const belay_text_options *o = options != NULL ? options : &defaults;
    bl_error error;
    bl_data_rows rows = {0};
    belay_dataset *dataset = new_dataset(ctx, o);
    if (belay_dataset_is_nil(dataset))
        return dataset;
    belay_code code = check_options(o, &error);
    if (code == BELAY_OK && path == NULL)
        code = bl_error_set(&error, BELAY_CONF_MISSING, "a dataset needs the path of a file");
    if (code == BELAY_OK)
        code = bl_data_rows_open(&rows, path, o->text, o->label, &error);
    return finish(dataset, code, &rows, o, &error);
}

belay_dataset *belay_dataset_texts(belay_context *ctx, const char *const *texts, const char *const *labels, int64_t n,
                                   const belay_text_options *options)
{
    BL_ENTER(ctx);
    static const belay_text_options defaults;
    const belay_text_options *o = options != NULL ? options : &defaults;
    bl_error error;
    bl_data_rows rows = {0};
    belay_dataset *dataset = new_dataset(ctx, o);
    if (belay_dataset_is_nil(dataset))
        return dataset;
    belay_code code = check_options(o, &error);
    if (code == BELAY_OK)
        code = bl_data_rows_from(&rows, texts, labels, n, &error);
    return finish(dataset, code, &rows, o, &error);
}

belay_dataset *belay_dataset_validation(belay_dataset *dataset)
{
    bl_error error;
    belay_context *ctx = BL_DATA_USE(dataset);
    BL_ENTER(ctx);
    if (ctx == NULL)
        return bl_data_dataset_nil();
    belay_dataset *part = bl_data_dataset_new(dataset->object.ctx, &bl_data_kind_texts);
    if (belay_dataset_is_nil(part))
        return part;
    if (dataset->store.valid == NULL) {
        bl_error_set(&error, BELAY_CONF_ORDER, "the dataset has no validation part; make it with valid_split");
        return bl_data_dataset_fail(part, &error);
    }
    part->parent = bl_data_object_hold(dataset);
    part->tokenizer = bl_data_object_hold(dataset->tokenizer);
    part->labels = bl_data_object_hold(dataset->labels);
    part->rows = dataset->store.valid;
    part->n_samples = dataset->store.n_valid;
    part->seq = dataset->seq;
    part->n_tokens = dataset->n_tokens;
    part->n_classes = dataset->n_classes;
    return part;
}
