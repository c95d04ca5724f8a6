/* SPDX-License-Identifier: Apache-2.0 */
#include "train/measure.h"

#include <math.h>

#include "base/checked.h"
#include "base/memory.h"

void bl_train_figures_add(bl_train_figures *to, const bl_train_figures *from)
{
    to->loss += from->loss;
    to->n_samples += from->n_samples;
    to->n_right += from->n_right;
}

double bl_train_figures_loss(const bl_train_figures *f)
{
    return f->n_samples > 0 ? f->loss / (double)f->n_samples : (double)NAN;
}

double bl_train_figures_accuracy(const bl_train_figures *f)
{
    return f->n_samples > 0 ? (double)f->n_right / (double)f->n_samples : (double)NAN;
}

void bl_train_figures_tell(const bl_train_figures *f, belay_evaluation *out)
{
    out->n_samples = f->n_samples;
    out->loss = bl_train_figures_loss(f);
    out->accuracy = bl_train_figures_accuracy(f);
}

void bl_train_room_fini(bl_train_room *room)
{
    bl_free(room->logits);
    bl_free(room->labels);
    *room = (bl_train_room){0};
}

static bool no_room(belay_context *context)
{
    bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for the results of a batch on the host");
    return false;
}

bool bl_train_read_logits(belay_context *context, belay_tensor logits, bl_train_room *room, int64_t *n,
                          int64_t *n_classes)
{
    belay_shape shape = belay_tensor_shape(logits);
    int64_t n_elements = belay_tensor_n_elements(logits);
    if (shape.rank != 2 || shape.size[1] == 0) {
        bl_context_raise(context, BELAY_SHAPE_CONTRACT,
                         "the model gives a result of rank %d, not logits [batch, classes]", shape.rank);
        return false;
    }
    *n = shape.size[0];
    *n_classes = shape.size[1];
    if (!bl_grow(&room->logits, &room->logits_capacity, n_elements, sizeof *room->logits))
        return no_room(context);
    bool was = belay_recording_set(context, false);
    belay_tensor f32 = belay_tensor_dtype(logits) == BELAY_F32 ? logits : belay_cast(logits, BELAY_F32);
    belay_code code = belay_tensor_read(f32, room->logits, n_elements * (int64_t)sizeof *room->logits);
    belay_recording_set(context, was);
    return code == BELAY_OK;
}

static bool read_labels(belay_context *context, belay_tensor labels, int64_t n, bl_train_room *room)
{
    if (belay_tensor_n_elements(labels) != n || belay_tensor_dtype(labels) != BELAY_I64) {
        bl_context_raise(context, BELAY_SHAPE_CONTRACT,
                         "the model gives logits for another number of rows than there are labels");
        return false;
    }
    if (!bl_grow(&room->labels, &room->labels_capacity, n, sizeof *room->labels))
        return no_room(context);
    return belay_tensor_read(labels, room->labels, n * (int64_t)sizeof *room->labels) == BELAY_OK;
}

int64_t bl_train_largest(const float *values, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (values[i] > values[best] || isnan(values[best]))
            best = i;
    return best;
}

static bool make_confusion(belay_context *context, belay_evaluation *e, int64_t n_classes)
{
    int64_t n;
    e->n_classes = n_classes;
    if (e->confusion == NULL && bl_checked_mul(n_classes, n_classes, &n))
        e->confusion = bl_alloc(n, sizeof *e->confusion);
    return e->confusion != NULL || no_room(context);
}

bool bl_train_measure(belay_context *context, belay_tensor logits, belay_tensor loss, belay_tensor labels,
                      const bl_train_watch *watch, bl_train_room *room, bl_train_figures *figures,
                      belay_evaluation *confusion)
{
    int64_t n, n_classes;
    if (!bl_train_read_logits(context, logits, room, &n, &n_classes) || !read_labels(context, labels, n, room) ||
        (watch != NULL && watch->n_faults > 0) || (confusion != NULL && !make_confusion(context, confusion, n_classes)))
        return false;
    for (int64_t i = 0; i < n; i++) {
        int64_t predicted = bl_train_largest(room->logits + i * n_classes, n_classes), label = room->labels[i];
        figures->n_right += predicted == label;
        if (confusion != NULL && label >= 0 && label < n_classes)
            confusion->confusion[label * n_classes + predicted]++;
    }
    figures->n_samples += n;
    figures->loss += belay_tensor_item(loss) * (double)n;
    return true;
}

/* ---- a pass without recording ------------------------------------------------------------------------------------- */

static bool evaluate_batch(const bl_train_pass *pass, const belay_batch *batch, bl_train_figures *figures,
                           belay_evaluation *out)
{
    belay_context *context = belay_module_context(pass->model);
    bl_train_watch watch = {0};
    bl_train_watch_init(&watch, context);
    belay_scope scope = belay_scope_open(context);
    belay_tensor logits = belay_forward(pass->model, batch->tokens);
    belay_tensor loss = belay_cross_entropy(logits, batch->labels, NULL);
    bool is_good = watch.n_faults == 0 && !belay_tensor_is_nil(loss) &&
                   bl_train_measure(context, logits, loss, batch->labels, &watch, pass->room, figures,
                                    pass->with_confusion ? out : NULL);
    belay_scope_close(scope);
    bl_train_watch_fini(&watch);
    return is_good;
}

static belay_code walk(bl_train_pass *pass, bl_train_watch *watch, belay_evaluation *out)
{
    bl_train_figures figures = {0};
    belay_batch batch;
    while (!pass->stopped && belay_loader_next(pass->batches, &batch)) {
        bool is_empty = batch.code == BELAY_OK && batch.n_samples == 0; /* others have a part of it */
        if (!is_empty && (batch.code != BELAY_OK || !evaluate_batch(pass, &batch, &figures, out))) {
            out->n_faulted_batches++;
            if (pass->faulted != NULL)
                pass->faulted(pass->state, &batch);
        }
        if (watch->fatal != BELAY_OK)
            return watch->fatal;
        pass->stopped = pass->stop != NULL && *pass->stop != 0;
    }
    pass->figures = figures;
    bl_train_figures_tell(&figures, out);
    return BELAY_OK;
}

belay_code bl_train_evaluate(bl_train_pass *pass, belay_evaluation *out)
{
    belay_context *context = belay_module_context(pass->model);
    bl_train_watch watch = {0};
    *out = (belay_evaluation){.loss = (double)NAN, .accuracy = (double)NAN};
    pass->stopped = false;
    bl_train_watch_init(&watch, context);
    bool was_training = belay_module_training_get(pass->model), was_recording = belay_recording_set(context, false);
    belay_module_training_set(pass->model, false);
    belay_code code = walk(pass, &watch, out);
    belay_module_training_set(pass->model, was_training);
    belay_recording_set(context, was_recording);
    bl_train_watch_fini(&watch);
    return code;
}
