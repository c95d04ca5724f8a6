/* SPDX-License-Identifier: Apache-2.0 */
/* Sees the faults that a context tells while it is set, and hands them on to whoever looked before.  Watches are taken
 * off in the reverse of the order in which they were set. */
#ifndef BL_TRAIN_WATCH_H
#define BL_TRAIN_WATCH_H

#include "tensor/context.h"

typedef struct bl_train_watch {
    belay_context *context;
    int64_t n_faults; /* warnings not counted */
    belay_code first; /* of them */
    belay_code fatal; /* the first after which nothing can go on, BELAY_OK: none */
    void (*told)(void *state, const bl_report_fault *fault); /* each, warnings too; NULL: nobody */
    void *state;
    void (*before)(void *state, const bl_report_fault *fault);
    void *before_state;
} bl_train_watch;

/* `told` and `state` are the caller's to set before. */
void bl_train_watch_init(bl_train_watch *watch, belay_context *context);
void bl_train_watch_fini(bl_train_watch *watch);

/* Tells an error of a lower room as a fault that gates no step; one without a code was told before.  Returns `code`. */
belay_code bl_train_tell(belay_context *context, belay_code code, const bl_error *error);

#endif
