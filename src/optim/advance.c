/* SPDX-License-Identifier: Apache-2.0 */
/* The window's buffers at its end: views are made before the decision, so that memory that ends refuses the step; after
 * it one kernel a buffer reads from device memory whether it was applied. */
#include "tensor/advance.h"

#include <inttypes.h>
#include <stdio.h>

#include "optim/optim.h"

static belay_tensor flat(belay_context *context, belay_tensor tensor)
{
    belay_shape shape = belay_shape1(belay_tensor_n_elements(tensor));
    return bl_launch_reshape(context, tensor, &shape);
}

static bool has(const belay_optimizer *o, belay_tensor leaf, int64_t *at)
{
    for (int64_t i = 0; i < o->n; i++) {
        int64_t k = *at + i < o->n ? *at + i : *at + i - o->n;
        if (bl_tensor_same(o->parameter[k].leaf, leaf)) {
            *at = k;
            return true;
        }
    }
    return false;
}

/* Another optimizer of the leaf; NULL: there is none. */
static belay_optimizer *holder_of(const belay_optimizer *o, belay_tensor leaf)
{
    for (const bl_member *m = o->context->members; m != NULL; m = m->next) {
        belay_optimizer *other = bl_optim_of(m);
        int64_t at = 0;
        if (other != NULL && other != o && has(other, leaf, &at))
            return other;
    }
    return NULL;
}

static bool is_passed(const belay_optimizer *o) { return o != NULL && o->is_passed; }

static bool some_are_passed(const belay_context *context)
{
    for (const bl_member *m = context->members; m != NULL; m = m->next) {
        const belay_optimizer *other = bl_optim_of(m);
        if (other != NULL && other->is_passed)
            return true;
    }
    return false;
}

/* What waits for a leaf that no optimizer has any more, or that wants no gradient, goes with the next one; so does what
 * waits for an optimizer that others have stepped past: one of all, kept from a first phase, beside one of the head. */
void bl_optim_advance_find(belay_optimizer *o)
{
    int64_t at = 0; /* buffers lie in the order of their leaves, or nearly */
    bool some = bl_advance_n(o->context) > 0 && some_are_passed(o->context);
    o->is_passed = false;
    for (int64_t i = 0; i < bl_advance_n(o->context); i++) {
        bl_advance *e = bl_advance_at(o->context, i);
        const bl_slot *leaf = bl_slot_get(o->context, e->leaf);
        e->is_due = leaf == NULL || leaf->n_optimizers == 0 || !leaf->requires_grad || has(o, e->leaf, &at) ||
                    (some && is_passed(holder_of(o, e->leaf)));
    }
}

static const char *rule_of(const belay_optimizer *o)
{
    return o == NULL                       ? "optimizer"
           : o->rule.op == BL_OP_optim_sgd ? "sgd"
           : o->rule.params.i[1] != 0      ? "adamw"
                                           : "adam";
}

static void tell_waiting(const belay_optimizer *o, const bl_advance *e)
{
    bl_report_fault f;
    const belay_optimizer *holder = holder_of(o, e->leaf);
    const bl_slot *view = bl_slot_get(o->context, e->view);
    const char *name = view != NULL ? bl_journal_text_get(o->context->journal, view->name) : "";
    int64_t n = 0;
    for (int64_t i = 0; i < bl_advance_n(o->context); i++)
        n += !bl_advance_at(o->context, i)->is_due;
    bl_report_fault_init(&f, BELAY_RUN_WAITING);
    snprintf(f.what, sizeof f.what, "%.200s waits for a step of the %s that has its layer's parameters, and none comes",
             name[0] != '\0' ? name : "a running statistic", rule_of(holder));
    bl_report_fault_fact(&f, "steps of other optimizers meanwhile: %d", BL_ADVANCE_PATIENCE);
    bl_report_fault_fact(&f, "buffers that wait: %" PRId64 "; they go with the steps of others from now on", n);
    bl_context_fault(o->context, &f);
}

/* An optimizer that is kept and not stepped any more would keep what waits for ever: it is passed over, which is told
 * once. */
static void count_passed(const belay_optimizer *o, bl_advance *e)
{
    if (!e->is_fresh)
        return;
    e->is_fresh = false;
    if (++e->n_passed != BL_ADVANCE_PATIENCE)
        return;
    belay_optimizer *holder = holder_of(o, e->leaf);
    if (holder != NULL)
        holder->is_passed = true;
    if (bl_advance_tells(o->context))
        tell_waiting(o, e);
}

/* A buffer that was moved to another device in this window takes its values along; one that is not contiguous is written
 * by way of a copy. */
static bool make_views(const belay_optimizer *o, bl_advance *e)
{
    belay_context *context = o->context;
    const bl_slot *buffer = bl_slot_get(context, e->target), *next = bl_slot_get(context, e->next);
    const bl_slot *state = bl_slot_get(context, o->state);
    belay_shape shape = belay_shape1(BL_OPTIM_STATE);
    int place = buffer->storage->place;
    bool is_moved = next->storage->place != place, is_apart = state->storage->place != place;
    e->flat_buffer = flat(context, e->target);
    e->flat_next = flat(context, is_moved ? bl_launch_to(context, e->next, place) : e->next);
    e->state = is_apart ? bl_launch_fill_like(context, e->target, BELAY_F64, &shape, 0) : o->state;
    return !belay_tensor_is_nil(e->flat_buffer) && !belay_tensor_is_nil(e->flat_next) && !belay_tensor_is_nil(e->state);
}

bool bl_optim_advance_prepare(belay_optimizer *o)
{
    bool whole = true;
    for (int64_t i = 0; i < bl_advance_n(o->context); i++) {
        bl_advance *e = bl_advance_at(o->context, i);
        e->flat_buffer = (belay_tensor){0};
        if (!e->is_due)
            count_passed(o, e);
        e->target = e->is_due ? bl_advance_target(o->context, e) : (belay_tensor){0};
        if (!belay_tensor_is_nil(e->target))
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

static bool run(const belay_optimizer *o, const bl_advance *e)
{
    belay_context *context = o->context;
    bl_call call = {.context = context, .op = BL_OP_advance, .n_in = 3, .in = {e->flat_next, e->flat_buffer, e->state}};
    if (e->state.slot != o->state.slot && !carry_state(o, e->state))
        return false;
    return bl_launch_run(&call) && (bl_slot_is_contiguous(bl_slot_get(context, e->target)) ||
                                    bl_launch_move(context, e->target, e->flat_buffer));
}

bool bl_optim_advance_run(belay_optimizer *o)
{
    bool ran = true;
    for (int64_t i = 0; i < bl_advance_n(o->context); i++) {
        const bl_advance *e = bl_advance_at(o->context, i);
        if (e->is_due && !belay_tensor_is_nil(e->target))
            ran = run(o, e) && ran;
    }
    return ran;
}
