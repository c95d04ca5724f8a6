/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that go on with a committed step, as running statistics do.  What computes a buffer's next values never writes
 * it: they wait here for the step of the optimizer that has their layer's parameters, which hands them over by a kernel
 * that a refused step turns off.  They are treated as the gradients of those parameters: a step or a discard of another
 * optimizer leaves them, a window with a fault drops all.  An optimizer that others step past loses its say over them. */
#ifndef BL_TENSOR_ADVANCE_H
#define BL_TENSOR_ADVANCE_H

#include "tensor/context.h"

enum { BL_ADVANCE_PATIENCE = 16 }; /* steps of other optimizers until what waits goes with theirs */

typedef struct bl_advance {
    belay_tensor buffer; /* its owner's handle */
    belay_tensor view;   /* held here: the same, for a handle that dies before the step */
    belay_tensor next;   /* owned here; same shape and dtype */
    belay_tensor leaf;   /* whose optimizer decides; nil: the next one to step */
    uint64_t storage, version;
    bool is_fresh;                                      /* set since the last step that passed */
    int n_passed;                                       /* steps of other optimizers */
    bool is_due;                                        /* of the step in work, as all below */
    belay_tensor target, flat_next, flat_buffer, state; /* target: nil when nobody can see the buffer any more */
} bl_advance;

/* From the step on that has `leaf`, if it is applied, `buffer`, which may be any view without repeated elements, holds the
 * values of `next`, a temporary which goes over to the list; what was set before is dropped.  False after
 * mem.exhausted. */
bool bl_advance_set(belay_context *context, belay_tensor buffer, belay_tensor next, belay_tensor leaf);

/* The values that the buffer will have if that step is applied: those set last; the buffer itself where nothing waits, or
 * where it was written since. */
belay_tensor bl_advance_get(const belay_context *context, belay_tensor buffer);

int64_t bl_advance_n(const belay_context *context);
bl_advance *bl_advance_at(const belay_context *context, int64_t number);

/* The buffer as it can be written: its handle, or, when that died, the view, if anybody else can see it.  Nil where
 * nobody can, and where it was written since: that is newer. */
belay_tensor bl_advance_target(belay_context *context, const bl_advance *entry);

/* True once. */
bool bl_advance_tells(belay_context *context);

/* Those that are due, or all. */
void bl_advance_forget(belay_context *context, bool all);

static inline bool bl_tensor_same(belay_tensor a, belay_tensor b)
{
    return a.context == b.context && a.slot == b.slot && a.generation == b.generation;
}

#endif
