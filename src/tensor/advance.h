/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that go on with a committed step, as running statistics do.  What computes a buffer's next values never writes
 * it: they wait here until the window at work ends, and the optimizer's step hands them over by a kernel that a refused
 * step turns off.  A window that is dropped forgets them. */
#ifndef BL_TENSOR_ADVANCE_H
#define BL_TENSOR_ADVANCE_H

#include "tensor/context.h"

typedef struct bl_advance {
    belay_tensor buffer;                        /* its owner's handle */
    belay_tensor next;                          /* owned here; same shape and dtype */
    belay_tensor flat_next, flat_buffer, state; /* of the step in work */
} bl_advance;

/* From the end of the window on, if its step is applied, `buffer` holds the values of `next`, a temporary which goes over
 * to the list; what was set before in this window is dropped.  False after mem.exhausted. */
bool bl_advance_set(belay_context *context, belay_tensor buffer, belay_tensor next);

/* The values that the buffer will have if the window is applied: those set last, else the buffer itself. */
belay_tensor bl_advance_get(const belay_context *context, belay_tensor buffer);

int64_t bl_advance_n(const belay_context *context);
bl_advance *bl_advance_at(const belay_context *context, int64_t number);

/* The window is over. */
void bl_advance_forget(belay_context *context);

#endif
