/* SPDX-License-Identifier: Apache-2.0 */
/* A trained model read back from a run's folder.  The file's description of its model is believed only as far as the
 * file holds tensors of those sizes, so that what is made is never larger than what was read. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/object.h"
#include "file/json.h"
#include "file/path.h"
#include "nn/module.h"
#include "nn/recurrent.h"
#include "train/checkpoint.h"
#include "train/watch.h"

struct belay_run {
    belay_context *context; /* NULL: nil */
    char *path;
    belay_module *model;        /* belongs to the run */
    char *owner;                /* what the model says it belongs to */
    belay_tokenizer *tokenizer; /* NULL: none; held on to, as are the labels */
    belay_labels *labels;
    int64_t seq, n_classes;
    char number[24]; /* the label last given of a run without labels */
};

static belay_run nil_run;

/* ---- the description ---------------------------------------------------------------------------------------------- */

enum { MAX_WIDTH = 65536 };

typedef struct description {
    belay_text_classifier_options model;
    int64_t seq;
} description;

static belay_code get_int(const json_t *json, const char *key, int64_t low, int64_t high, const char *path,
                          int64_t *out, bl_error *error)
{
    const json_t *value = json_object_get(json, key);
    if (json_is_integer(value) && json_integer_value(value) >= low && json_integer_value(value) <= high) {
        *out = json_integer_value(value);
        return BELAY_OK;
    }
    return bl_error_set(error, BELAY_FILE_FORMAT,
                        "'%s' does not describe its model: '%s' is no whole number from %" PRId64 " to %" PRId64, path,
                        key, low, high);
}

static belay_code read_sizes(const json_t *json, const char *path, description *d, bl_error *error)
{
    int64_t layers = 1;
    belay_text_classifier_options *o = &d->model;
    bool is_lstm = o->model == BELAY_TEXT_LSTM;
    TRY(get_int(json, "n_tokens", 1, INT32_MAX, path, &o->n_tokens, error));
    TRY(get_int(json, "classes", 1, INT32_MAX, path, &o->classes, error));
    TRY(get_int(json, "seq", 1, INT32_MAX, path, &d->seq, error));
    TRY(get_int(json, "embed", 1, MAX_WIDTH, path, &o->embed, error));
    TRY(get_int(json, "hidden", is_lstm ? 1 : 0, MAX_WIDTH, path, &o->hidden, error));
    if (is_lstm)
        TRY(get_int(json, "layers", 1, BL_RECURRENT_MAX_UNITS, path, &layers, error));
    o->layers = (int)layers;
    o->no_hidden = o->hidden == 0;
    o->mean_all = json_is_true(json_object_get(json, "mean_all"));
    double dropout = json_number_value(json_object_get(json, "dropout"));
    o->dropout = dropout >= 0 && dropout < 1 ? dropout : 0;
    return BELAY_OK;
}

static belay_code read_description(const bl_safetensors *file, description *d, bl_error *error)
{
    const char *path = bl_safetensors_path(file), *text = bl_safetensors_metadata(file, "belay.model");
    json_t *json = NULL;
    if (text == NULL)
        return bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' does not say which model it belongs to", path);
    TRY(bl_json_parse(text, (int64_t)strlen(text), path, 1, &json, error));
    const char *kind = json_string_value(json_object_get(json, "model"));
    bool is_lstm = kind != NULL && strcmp(kind, "lstm") == 0, is_mean = kind != NULL && strcmp(kind, "mean") == 0;
    d->model.model = is_lstm ? BELAY_TEXT_LSTM : BELAY_TEXT_MEAN;
    belay_code code = is_lstm || is_mean
                          ? read_sizes(json, path, d, error)
                          : bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' is of a model of another kind", path);
    json_decref(json);
    return code;
}

/* The tensor is there in that shape; a `rows` of -1 stands for any number. */
static belay_code check_shape(const bl_safetensors *file, const char *name, int64_t rows, int64_t columns,
                              bl_error *error)
{
    const bl_safetensors_entry *entry = bl_safetensors_find(file, name);
    if (entry != NULL && entry->rank == 2 && entry->shape[0] == rows && entry->shape[1] == columns)
        return BELAY_OK;
    return bl_error_set(error, BELAY_FILE_MISMATCH,
                        "'%s' does not hold '%s' as [%" PRId64 ", %" PRId64 "], as its description says",
                        bl_safetensors_path(file), name, rows, columns);
}

static belay_code check_sizes(const bl_safetensors *file, const description *d, bl_error *error)
{
    const belay_text_classifier_options *o = &d->model;
    TRY(check_shape(file, "embedding.weight", o->n_tokens, o->embed, error));
    if (o->model == BELAY_TEXT_MEAN) {
        if (!o->no_hidden)
            TRY(check_shape(file, "hidden.weight", o->hidden, o->embed, error));
        return check_shape(file, "fc.weight", o->classes, o->no_hidden ? o->embed : o->hidden, error);
    }
    for (int layer = 0; layer < o->layers; layer++) {
        char name[48];
        snprintf(name, sizeof name, "lstm.weight_hh_l%d", layer);
        TRY(check_shape(file, name, 4 * o->hidden, o->hidden, error));
    }
    return check_shape(file, "fc.weight", o->classes, o->hidden, error);
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* What may not be looked at may be there: opening it says why not. */
static bool is_absent(const char *path) { return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR); }

static belay_code find_checkpoint(const char *path, char **out, bl_error *error)
{
    static const char *const names[] = {"best.safetensors", "last.safetensors"};
    bool is_folder = bl_file_kind_get(path) == BL_FILE_FOLDER;
    *out = is_folder ? NULL : bl_strdup(path);
    for (int i = 0; i < BL_COUNT(names) && is_folder; i++) {
        bl_free(*out);
        *out = bl_file_join(path, names[i]);
        if (*out == NULL || !is_absent(*out))
            break;
    }
    if (*out == NULL)
        return bl_file_no_memory(error, "open", path);
    if (!is_folder || !is_absent(*out))
        return BELAY_OK;
    bl_error_set(error, BELAY_FILE_OPEN, "no checkpoint was written to '%s' yet", path);
    bl_error_advise(error, "Train until the end of an epoch; --resume starts such a run over.");
    return BELAY_FILE_OPEN;
}

/* What the context was told by a maker that failed. */
static belay_code made(const bl_train_watch *watch) { return watch->first; }

static belay_code open_words(belay_run *run, const bl_safetensors *file, const description *d, bl_train_watch *watch,
                             bl_error *error)
{
    const char *tokenizer = bl_safetensors_metadata(file, "belay.tokenizer");
    const char *labels = bl_safetensors_metadata(file, "belay.labels");
    if (tokenizer != NULL)
        run->tokenizer = bl_data_object_hold(belay_tokenizer_from_json(run->context, tokenizer));
    if (labels != NULL)
        run->labels = bl_data_object_hold(belay_labels_from_json(run->context, labels));
    TRY(made(watch));
    if (tokenizer != NULL && belay_tokenizer_n_tokens(run->tokenizer) != d->model.n_tokens)
        return bl_error_set(error, BELAY_FILE_MISMATCH,
                            "'%s' has a vocabulary of %" PRId64 " tokens for a table of %" PRId64 " rows", run->path,
                            belay_tokenizer_n_tokens(run->tokenizer), d->model.n_tokens);
    if (labels != NULL && belay_labels_n_classes(run->labels) != d->model.classes)
        return bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' has %" PRId64 " labels for %" PRId64 " classes",
                            run->path, belay_labels_n_classes(run->labels), d->model.classes);
    return BELAY_OK;
}

/* Nobody frees the model or makes it a part of another: it goes with the run. */
static belay_code own_model(belay_run *run, bl_error *error)
{
    size_t size = strlen(run->path) + sizeof "the run ''";
    run->owner = bl_alloc((int64_t)size, 1);
    if (run->owner == NULL)
        return bl_file_no_memory(error, "open", run->path);
    snprintf(run->owner, size, "the run '%s'", run->path);
    bl_module_belong(run->model, run->owner);
    return BELAY_OK;
}

static belay_code open_file(belay_run *run, bl_safetensors *file, bl_train_watch *watch, bl_error *error)
{
    description d = {0};
    TRY(read_description(file, &d, error));
    TRY(check_sizes(file, &d, error));
    TRY(open_words(run, file, &d, watch, error));
    run->seq = d.seq;
    run->n_classes = d.model.classes;
    run->model = belay_text_classifier(run->context, &d.model);
    TRY(made(watch));
    TRY(own_model(run, error));
    bl_checkpoint list = {0};
    belay_code code = bl_checkpoint_add_model(&list, run->model, error);
    if (code == BELAY_OK)
        code = bl_checkpoint_read(&list, true, file, error);
    bl_checkpoint_fini(&list);
    return code;
}

static belay_code open_run(belay_run *run, const char *path, bl_train_watch *watch, bl_error *error)
{
    bl_safetensors *file = NULL;
    TRY(find_checkpoint(path, &run->path, error));
    TRY(bl_safetensors_open(run->path, &file, error));
    belay_code code = open_file(run, file, watch, error);
    bl_safetensors_close(file);
    return code;
}

static void free_run(void *object)
{
    belay_run *run = object;
    bl_data_object_drop(run->tokenizer);
    bl_data_object_drop(run->labels);
    bl_free(run->owner);
    bl_free(run->path);
    bl_free(run);
}

static belay_context *context_of(const belay_run *run) { return run != NULL ? bl_context_here(run->context) : NULL; }

belay_run *belay_run_open(belay_context *context, const char *path)
{
    BL_ENTER(context);
    bl_error error = {0};
    if (!belay_is_open(context))
        return &nil_run;
    if (path == NULL) {
        bl_context_raise(context, BELAY_CONF_MISSING, "a run needs the path of its folder");
        return &nil_run;
    }
    belay_run *run = bl_alloc(1, sizeof *run);
    if (run == NULL || !bl_context_adopt(context, run, free_run)) {
        bl_free(run);
        bl_train_tell(context, bl_file_no_memory(&error, "open", path), &error);
        return &nil_run;
    }
    bl_train_watch watch = {0};
    run->context = context;
    bool was_recording = belay_recording_set(context, false);
    bl_train_watch_init(&watch, context);
    belay_code code = open_run(run, path, &watch, &error);
    bl_train_watch_fini(&watch);
    bl_train_tell(context, code, &error);
    belay_recording_set(context, was_recording);
    if (code == BELAY_OK)
        return run;
    belay_run_close(run);
    return &nil_run;
}

static void raise_at_work(const belay_run *run)
{
    bl_error error;
    bl_error_set(&error, BELAY_CONF_ORDER, "%s was closed while its model is at work", run->owner);
    bl_error_advise(&error, "Close it after the call that works with its model has returned.");
    bl_context_raise_error(run->context, &error);
}

void belay_run_close(belay_run *run)
{
    BL_ENTER(context_of(run));
    if (belay_run_is_nil(run))
        return;
    if (run->model != NULL && bl_module_held(run->model) != NULL) {
        raise_at_work(run);
        return;
    }
    if (bl_module_context(run->model) != NULL) { /* the nil one is not written to */
        bl_module_belong(run->model, NULL);
        belay_module_free(run->model);
    }
    belay_tokenizer_free(run->tokenizer);
    belay_labels_free(run->labels);
    bl_context_forget(run->context, run);
    free_run(run);
}

/* ---- questions ---------------------------------------------------------------------------------------------------- */

bool belay_run_is_nil(const belay_run *run) { return !BL_ASK(context_of(run)); }
const char *belay_run_path(const belay_run *run) { return BL_ASK(context_of(run)) ? run->path : NULL; }
belay_module *belay_run_model(const belay_run *run) { return BL_ASK(context_of(run)) ? run->model : NULL; }
belay_tokenizer *belay_run_tokenizer(const belay_run *run) { return BL_ASK(context_of(run)) ? run->tokenizer : NULL; }
belay_labels *belay_run_labels(const belay_run *run) { return BL_ASK(context_of(run)) ? run->labels : NULL; }
int64_t belay_run_seq(const belay_run *run) { return BL_ASK(context_of(run)) ? run->seq : 0; }
int64_t belay_run_n_classes(const belay_run *run) { return BL_ASK(context_of(run)) ? run->n_classes : 0; }

void belay_run_text_options(const belay_run *run, belay_text_options *options)
{
    if (!BL_ASK(context_of(run)))
        return;
    options->seq = run->seq;
    options->tokenizer = run->tokenizer;
    options->labels = run->labels;
}

const char *belay_run_label(belay_run *run, int64_t class_id)
{
    BL_ENTER(context_of(run));
    if (belay_run_is_nil(run) || class_id < 0 || class_id >= run->n_classes)
        return NULL;
    if (run->labels != NULL)
        return belay_labels_name(run->labels, class_id);
    snprintf(run->number, sizeof run->number, "%" PRId64, class_id);
    return run->number;
}

/* ---- prediction --------------------------------------------------------------------------------------------------- */

/* A text that cannot be read stands as a row of padding, and its code is put back after the prediction. */
static belay_code predict_texts(belay_run *run, const char *const *texts, int64_t n, int64_t *ids, belay_code *codes,
                                belay_prediction *out)
{
    for (int64_t i = 0; i < n; i++)
        codes[i] = belay_tokenizer_encode(run->tokenizer, texts[i], texts[i] != NULL ? (int64_t)strlen(texts[i]) : -1,
                                          ids + i * run->seq, run->seq);
    for (int64_t i = 0; i < n; i++)
        if (codes[i] != BELAY_OK)
            memset(ids + i * run->seq, 0, (size_t)run->seq * sizeof *ids);
    belay_code code = belay_predict(run->model, ids, n, run->seq, out);
    for (int64_t i = 0; i < n; i++)
        if (codes[i] != BELAY_OK)
            out[i] = (belay_prediction){.class_id = -1, .code = codes[i]};
    return code;
}

belay_code belay_run_predict(belay_run *run, const char *const *texts, int64_t n, belay_prediction *out)
{
    BL_ENTER(context_of(run));
    if (belay_run_is_nil(run))
        return bl_caller_code(BELAY_CONF_ORDER);
    if (run->tokenizer == NULL)
        return bl_context_raise(run->context, BELAY_CONF_ORDER, "'%s' has no tokenizer to read texts with", run->path);
    if (n < 0)
        return bl_context_raise(run->context, BELAY_CONF_VALUE, "%" PRId64 " texts to predict", n);
    if (n > 0 && (texts == NULL || out == NULL))
        return bl_context_raise(run->context, BELAY_CONF_MISSING, "a prediction of %" PRId64 " texts needs %s", n,
                                texts == NULL ? "them" : "room for what is predicted");
    const int64_t sizes[] = {n, run->seq, (int64_t)sizeof(int64_t)};
    int64_t n_bytes;
    if (!bl_checked_product(sizes, 3, &n_bytes))
        return bl_context_raise(run->context, BELAY_SIZE_OVERFLOW,
                                "the ids of %" PRId64 " texts, %" PRId64 " each, have more bytes than 2^63 - 1", n,
                                run->seq);
    int64_t *ids = bl_alloc(n_bytes, 1);
    belay_code *codes = bl_alloc(n, sizeof *codes);
    belay_code code = BELAY_MEM_EXHAUSTED;
    bool was_recording = belay_recording_set(run->context, false);
    bl_module_hold(run->model);
    if (ids != NULL && codes != NULL)
        code = predict_texts(run, texts, n, ids, codes, out);
    else
        bl_context_raise(run->context, code, "no memory for the ids of %" PRId64 " texts", n);
    bl_module_release(run->model);
    belay_recording_set(run->context, was_recording);
    bl_free(ids);
    bl_free(codes);
    return code;
}
