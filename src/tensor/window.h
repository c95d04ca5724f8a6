/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of a context: the one at work, and those whose end the device has yet to decide.
 *
 * A window's launches close its own gate, whatever the host has gone on to: the ring holds words for BL_RING_WINDOWS.
 * Windows are told in their order, each after the faults of its launches. */
#ifndef BL_TENSOR_WINDOW_H
#define BL_TENSOR_WINDOW_H

#include "base/gate.h"
#include "tensor/context.h"

/* Where a window's words lie in the ring. */
static inline uint8_t bl_window_place(uint64_t window) { return (uint8_t)(window % BL_RING_WINDOWS); }
/* The gate of the window at work. */
static inline uint32_t *bl_window_gate(const belay_context *context)
{
    return &context->ring->window[bl_window_place(context->window)].gate;
}

/* A fault of window `number`: its gate closes.  Nothing when it has been told. */
void bl_window_fault(belay_context *context, uint64_t number, belay_code code);

/* The window at work has ended by that optimizer's step, whose decision was put on the device: the next one begins.  The
 * host waits only if it is a whole ring ahead of the device. */
void bl_window_end(belay_context *context, struct belay_optimizer *optimizer);
/* The same of one that comes to nothing: the host waits for all that may still close its gate. */
void bl_window_drop(belay_context *context);

/* Tells the windows that were decided; waits for nothing.  While faults are being told it does nothing: whoever tells
 * them looks again. */
void bl_window_look(belay_context *context);
/* Tells all that have ended: the host waits for them.  `why` as of bl_place_settle. */
void bl_window_settle(belay_context *context, const char *why);

#endif
