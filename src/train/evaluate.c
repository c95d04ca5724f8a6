/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation and prediction of a model on data that are not trained on. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/object.h"
#include "nn/module.h"
#include "tensor/place.h"
#include "train/measure.h"

belay_code belay_evaluate(belay_module *model, belay_dataset *data, int64_t batch, belay_evaluation *out)
{
    BL_ENTER(bl_module_context(model));
    belay_context *context = bl_module_use(model);
    if (out != NULL)
        *out = (belay_evaluation){.loss = (double)NAN, .accuracy = (double)NAN};
    if (context == NULL || bl_data_use(data, context->site) == NULL)
        return bl_caller_code(BELAY_CONF_ORDER);
    if (out == NULL)
        return bl_context_raise(context, BELAY_CONF_MISSING, "an evaluation needs room for its figures");
    bl_train_watch watch = {0};
    bl_train_room room = {0};
    bl_module_hold(model);
    int here = bl_place_go(context, bl_module_place(model));
    (void)bl_place_settle(context, NULL); /* faults in flight are no batch's */
    bl_train_watch_init(&watch, context);
    belay_loader *batches = belay_loader_new(data, &(belay_loader_options){.batch = batch});
    bl_train_pass pass = {.model = model, .batches = batches, .room = &room, .with_confusion = true};
    belay_code code = belay_loader_is_nil(batches) ? watch.first : bl_train_evaluate(&pass, out);
    belay_loader_close(batches);
    bl_train_watch_fini(&watch);
    bl_train_room_fini(&room);
    bl_place_go(context, here);
    bl_module_release(model);
    return code;
}

static double share(int64_t part, int64_t whole) { return whole > 0 ? (double)part / (double)whole : (double)NAN; }

belay_class_figures belay_evaluation_class(const belay_evaluation *e, int64_t class_id)
{
    belay_class_figures f = {.precision = (double)NAN, .recall = (double)NAN, .f1 = (double)NAN};
    if (e == NULL || e->confusion == NULL || class_id < 0 || class_id >= e->n_classes)
        return f;
    for (int64_t other = 0; other < e->n_classes; other++) {
        f.n_samples += e->confusion[class_id * e->n_classes + other];
        f.n_predicted += e->confusion[other * e->n_classes + class_id];
    }
    f.n_right = e->confusion[class_id * e->n_classes + class_id];
    f.precision = share(f.n_right, f.n_predicted);
    f.recall = share(f.n_right, f.n_samples);
    f.f1 = share(2 * f.n_right, f.n_samples + f.n_predicted);
    return f;
}

void belay_evaluation_fini(belay_evaluation *e)
{
    if (e == NULL)
        return;
    bl_free(e->confusion);
    *e = (belay_evaluation){.loss = (double)NAN, .accuracy = (double)NAN};
}

/* ---- prediction --------------------------------------------------------------------------------------------------- */

enum { ROWS = 64 };

/* Softmax of a row at its largest value. */
static belay_prediction prediction_of(const float *logits, int64_t n_classes)
{
    int64_t best = bl_train_largest(logits, n_classes);
    double sum = 0;
    for (int64_t i = 0; i < n_classes; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    return (belay_prediction){.class_id = best, .probability = 1 / sum};
}

static bool are_finite(const float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* Words for a fault about a row: its number in the caller's ids. */
static bool describe_row(void *state, int64_t row, char *out, size_t size)
{
    snprintf(out, size, "row %" PRId64 " of the ids", *(const int64_t *)state + row);
    return true;
}

typedef struct rows {
    belay_module *model;
    const int64_t *ids; /* [n, seq] of the caller */
    int64_t seq;
    bl_train_room room;
    belay_prediction *out;
} rows;

/* Rows first .. first + n - 1 together; the code of the first fault. */
static belay_code predict_rows(rows *r, int64_t first, int64_t n)
{
    belay_context *context = belay_module_context(r->model);
    bl_train_watch watch = {0};
    int64_t n_rows = 0, n_classes = 0;
    bl_train_watch_init(&watch, context);
    bl_context_batch_set(context, n, describe_row, &first);
    belay_scope scope = belay_scope_open(context);
    belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape2(n, r->seq), r->ids + first * r->seq,
                                            n * r->seq * (int64_t)sizeof *r->ids);
    belay_tensor logits = belay_forward(r->model, belay_tensor_name_set(tokens, "tokens"));
    bool is_good = watch.n_faults == 0 && !belay_tensor_is_nil(logits) &&
                   bl_train_read_logits(context, logits, &r->room, &n_rows, &n_classes) && n_rows == n &&
                   watch.n_faults == 0; /* of an asynchronous device they come with the values */
    if (is_good && !are_finite(r->room.logits, n * n_classes)) {
        bl_context_raise(context, BELAY_NUM_NONFINITE, "the model gave %s a logit that is Inf or NaN",
                         n == 1 ? "this row" : "these rows");
        is_good = false;
    }
    belay_scope_close(scope);
    bl_context_batch_set(context, 0, NULL, NULL);
    bl_train_watch_fini(&watch);
    for (int64_t i = 0; i < n && is_good; i++)
        r->out[first + i] = prediction_of(r->room.logits + i * n_classes, n_classes);
    if (is_good)
        return BELAY_OK;
    return watch.first != BELAY_OK ? watch.first : BELAY_SHAPE_CONTRACT;
}

/* The same without a word, and without a trace when it fails. */
static belay_code try_rows(rows *r, int64_t first, int64_t n)
{
    belay_context *context = belay_module_context(r->model);
    belay_log_function log = context->log;
    int64_t n_before = context->n_faults;
    context->log = NULL;
    belay_code code = predict_rows(r, first, n);
    context->log = log;
    if (code != BELAY_OK)
        bl_context_rewind(context, n_before);
    return code;
}

/* A group with a bad row is asked row by row, so that only that one is refused, and named. */
static belay_code predict_group(rows *r, int64_t first, int64_t n)
{
    if (n > 1 && try_rows(r, first, n) == BELAY_OK)
        return BELAY_OK;
    for (int64_t i = first; i < first + n; i++) {
        belay_code code = predict_rows(r, i, 1);
        if (code != BELAY_OK)
            r->out[i] = (belay_prediction){.class_id = -1, .code = code};
        if (belay_code_severity(code) >= BELAY_SEVERITY_FATAL)
            return code;
    }
    return BELAY_OK;
}

belay_code belay_predict(belay_module *model, const int64_t *ids, int64_t n, int64_t seq, belay_prediction *out)
{
    BL_ENTER(bl_module_context(model));
    belay_context *context = bl_module_use(model);
    if (context == NULL)
        return bl_caller_code(BELAY_CONF_ORDER);
    int64_t n_bytes;
    const int64_t sizes[] = {n, seq, (int64_t)sizeof *ids};
    if (!bl_checked_product(sizes, 3, &n_bytes))
        return bl_context_raise(context, BELAY_CONF_VALUE, "ids of %" PRId64 " rows and %" PRId64 " columns", n, seq);
    if (n > 0 && (ids == NULL || out == NULL))
        return bl_context_raise(context, BELAY_CONF_MISSING, "a prediction of %" PRId64 " rows needs %s", n,
                                ids == NULL ? "their ids" : "room for what is predicted");
    rows r = {.model = model, .ids = ids, .seq = seq, .out = out};
    bl_module_hold(model);
    int here = bl_place_go(context, bl_module_place(model));
    (void)bl_place_settle(context, NULL); /* faults in flight are no row's */
    bool was_training = belay_module_training_get(model), was_recording = belay_recording_set(context, false);
    belay_module_training_set(model, false);
    belay_code code = BELAY_OK;
    for (int64_t first = 0; first < n && code == BELAY_OK; first += ROWS)
        code = predict_group(&r, first, bl_min_i64(ROWS, n - first));
    belay_module_training_set(model, was_training);
    belay_recording_set(context, was_recording);
    bl_train_room_fini(&r.room);
    bl_place_go(context, here);
    bl_module_release(model);
    return code;
}
