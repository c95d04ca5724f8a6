/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/window.h"

#include "tensor/place.h"

static bl_window *window_at(belay_context *context, uint64_t number)
{
    return &context->windows[bl_window_place(number)];
}

void bl_window_fault(belay_context *context, uint64_t number, belay_code code)
{
    bool is_here = number == context->window;
    if (number > context->window || number < context->first_window)
        return;
    bool *faulted = is_here ? &context->window_faulted : &window_at(context, number)->faulted;
    belay_code *first = is_here ? &context->window_code : &window_at(context, number)->code;
    *first = *faulted ? *first : code;
    *faulted = true;
    bl_gate_close(&context->ring->window[bl_window_place(number)].gate, (uint32_t)code); /* kernels do, too */
}

/* The next window begins with its gate open; nobody writes to those words any more. */
static void begin(belay_context *context)
{
    context->window++;
    context->ring->window[bl_window_place(context->window)] = (bl_window_words){0};
    context->window_faulted = false;
    context->window_code = BELAY_OK;
    context->micro_batch = 0;
    context->mixed.first_bad.is_there = false;
}

void bl_window_end(belay_context *context, struct belay_optimizer *optimizer)
{
    *window_at(context, context->window) = (bl_window){.number = context->window,
                                                       .optimizer = optimizer,
                                                       .faulted = context->window_faulted,
                                                       .code = context->window_code,
                                                       .step = context->step,
                                                       .epoch = context->epoch,
                                                       .position = context->position,
                                                       .micro_batch = context->micro_batch,
                                                       .site = context->site,
                                                       .launch = context->n_launches,
                                                       .first_bad = context->mixed.first_bad};
    if (context->window + 1 - context->first_window == BL_RING_WINDOWS)
        bl_window_settle(context, "as many windows as the ring holds were not decided");
    begin(context);
}

void bl_window_drop(belay_context *context)
{
    bl_window_settle(context, "an optimizer's window was dropped");
    begin(context);
    context->first_window = context->window;
}

/* Closed by none of this context's own faults: another rank's, in data parallel. */
static void hear_gate(const belay_context *context, bl_window *window)
{
    uint32_t gate = bl_gate_get(&context->ring->window[bl_window_place(window->number)].gate);
    if (window->faulted || gate <= BL_GATE_CLOSED)
        return;
    window->faulted = true;
    window->code = (belay_code)gate;
}

void bl_window_look(belay_context *context)
{
    while (context->first_window < context->window) {
        uint64_t number = context->first_window;
        uint32_t *word = &context->ring->window[bl_window_place(number)].outcome;
        uint32_t outcome = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (outcome == BL_WINDOW_OPEN)
            return;
        if (context->fence_hooks != NULL &&
            !context->fence_hooks->look_upto(context, window_at(context, number)->launch))
            return; /* a question asked in the middle of its faults; the look that tells them goes on to it */
        if (context->first_window != number) /* who was told has settled it */
            continue;
        bl_window window = *window_at(context, number);
        hear_gate(context, &window);
        context->first_window++;
        context->tell_window(context, &window, outcome);
    }
}

/* What is undecided then was lost with its device. */
void bl_window_settle(belay_context *context, const char *why)
{
    (void)bl_place_settle(context, why);
    context->first_window = context->window;
}
