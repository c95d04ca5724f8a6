/* SPDX-License-Identifier: Apache-2.0 */
/* From logits and labels to figures, on the host. */
#ifndef BL_TRAIN_MEASURE_H
#define BL_TRAIN_MEASURE_H

#include <belay/train.h>

#include "train/watch.h"

/* Sums over samples. */
typedef struct bl_train_figures {
    double loss; /* mean loss of each batch times its samples */
    int64_t n_samples, n_right;
} bl_train_figures;

void bl_train_figures_add(bl_train_figures *to, const bl_train_figures *from);
/* Means; NaN without samples. */
double bl_train_figures_loss(const bl_train_figures *figures);
double bl_train_figures_accuracy(const bl_train_figures *figures);
/* The same as an evaluation's. */
void bl_train_figures_tell(const bl_train_figures *figures, belay_evaluation *out);

/* Host copies of a batch, grown and re-used. */
typedef struct bl_train_room {
    float *logits; /* [n, classes] */
    int64_t *labels;
    int64_t logits_capacity, labels_capacity;
} bl_train_room;

void bl_train_room_fini(bl_train_room *room);

/* Copies logits [n, classes] to room->logits; false after a fault, which was told. */
bool bl_train_read_logits(belay_context *context, belay_tensor logits, bl_train_room *room, int64_t *n,
                          int64_t *n_classes);

/* The place of the largest; a NaN is not. */
int64_t bl_train_largest(const float *values, int64_t n);

/* Adds a batch: its loss (one element), which rows were right, and, where `confusion` is not NULL, what became of each
 * label.  False after a fault, which was told; nothing is added then, nor when the values that were waited for brought
 * the batch's first fault to `watch` (NULL: who calls looks for itself). */
bool bl_train_measure(belay_context *context, belay_tensor logits, belay_tensor loss, belay_tensor labels,
                      const bl_train_watch *watch, bl_train_room *room, bl_train_figures *figures,
                      belay_evaluation *confusion);

/* Walks one epoch of `batches` in eval mode without recording; batches that fault are left out and counted.  `told` of
 * the watch that is set is called for each.  Ends early, with *stopped, when *stop asks.  out->confusion is allocated
 * at the first batch when `with_confusion`.  Code: of what made it impossible, which was told. */
typedef struct bl_train_pass {
    belay_module *model;
    belay_loader *batches;
    bl_train_room *room;
    const volatile sig_atomic_t *stop;
    bool with_confusion;
    bl_train_figures figures;                               /* out: the sums */
    void (*faulted)(void *state, const belay_batch *batch); /* after each batch that was left out; NULL: nobody */
    void *state;
    bool stopped;
} bl_train_pass;
BL_MUST_USE belay_code bl_train_evaluate(bl_train_pass *pass, belay_evaluation *out);

#endif
