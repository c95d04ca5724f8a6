/* SPDX-License-Identifier: Apache-2.0 */
/* The window's buffers at its end: views are made before the decision, so that memory that ends refuses the step; after
 * it one kernel a buffer reads from device memory whether it was applied. */
#include "tensor/advance.h"

#include "optim/optim.h"

static belay_tensor flat(belay_context *context, belay_tensor tensor)
{
    belay_shape shape = belay_shape1(belay_tensor_n_elements(tensor));
    return bl_launch_reshape(context, tensor, &shape);
}

/* A buffer that was moved to another device in this window takes its values along. */
static bool make_views(const belay_optimizer *o, bl_advance *e)
{
    belay_context *context = o->context;
    const bl_slot *buffer = bl_slot_get(context, e->buffer), *next = bl_slot_get(context, e->next);
    const bl_slot *state = bl_slot_get(context, o->state);
    belay_shape shape = belay_shape1(BL_OPTIM_STATE);
    int place = buffer->storage->place;
    bool is_moved = next->storage->place != place, is_apart = state->storage->place != place;
    e->flat_buffer = flat(context, e->buffer);
    e->flat_next = flat(context, is_moved ? bl_launch_to(context, e->next, place) : e->next);
    e->state = is_apart ? bl_launch_fill_like(context, e->buffer, BELAY_F64, &shape, 0) : o->state;
    return !belay_tensor_is_nil(e->flat_buffer) && !belay_tensor_is_nil(e->flat_next) && !belay_tensor_is_nil(e->state);
}

bool bl_optim_advance_prepare(belay_optimizer *o)
{
    bool whole = true;
    for (int64_t i = 0; i < bl_advance_n(o->context); i++) {
        bl_advance *e = bl_advance_at(o->context, i);
        e->flat_buffer = (belay_tensor){0};
        if (bl_slot_get(o->context, e->buffer) != NULL) /* else its owner is gone */
            whole = make_views(o, e) && whole;
    }
    return whole;
}

/* The decision where a buffer lies that is on another device: the host waits for it. */
static bool carry_state(const belay_optimizer *o, belay_tensor to)
{
    double state[BL_OPTIM_STATE] = {0};
    const bl_slot *from = bl_slot_get(o->context, o->state);
    return bl_place_read(o->context, from, 0, state, (int64_t)sizeof state) == BELAY_OK &&
           bl_place_write(o->context, bl_slot_get(o->context, to), 0, state, (int64_t)sizeof state) == BELAY_OK;
}

bool bl_optim_advance_run(belay_optimizer *o)
{
    bool ran = true;
    for (int64_t i = 0; i < bl_advance_n(o->context); i++) {
        const bl_advance *e = bl_advance_at(o->context, i);
        if (belay_tensor_is_nil(e->flat_buffer))
            continue;
        bl_call call = {.context = o->context, .op = BL_OP_advance, .n_in = 3};
        call.in[0] = e->flat_next;
        call.in[1] = e->flat_buffer;
        call.in[2] = e->state;
        bool is_apart = e->state.slot != o->state.slot;
        ran = (!is_apart || carry_state(o, e->state)) && bl_launch_run(&call) && ran;
    }
    return ran;
}
