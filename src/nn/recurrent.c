/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of recurrent layers, and the parts that both passes are written in.
 *
 * A unit: the input's products of all steps as one (they land in `gates`), then step by step what its cell does.  The
 * units of a layer read the same input; their results stand side by side in the next layer's. */
#include "nn/recurrent.h"

#include <stdio.h>

#include "grad/tape.h"

/* ---- parts and launches */

belay_tensor bl_pass_part(const bl_pass *p, belay_tensor buffer, int64_t number, belay_shape shape)
{
    const bl_slot *slot = bl_slot_get(p->context, buffer);
    int64_t stride[BELAY_MAX_RANK] = {0}, n;
    if (slot == NULL || !bl_shape_strides(&shape, stride, &n))
        return (belay_tensor){0};
    return bl_tensor_view(p->context, buffer, &shape, stride, slot->offset + number * n);
}

belay_tensor bl_pass_steps(const bl_pass *p, belay_tensor buffer, int64_t first, int64_t steps, int64_t width)
{
    const bl_slot *slot = bl_slot_get(p->context, buffer);
    belay_shape shape = belay_shape3(1, steps * p->all->batch, width);
    int64_t stride[BELAY_MAX_RANK] = {0}, n;
    if (slot == NULL || !bl_shape_strides(&shape, stride, &n))
        return (belay_tensor){0};
    return bl_tensor_view(p->context, buffer, &shape, stride, slot->offset + first * p->all->batch * width);
}

belay_tensor bl_pass_new(const bl_pass *p, belay_shape shape)
{
    const bl_slot *at = bl_slot_get(p->context, p->at);
    return at != NULL ? bl_tensor_new_on(p->context, at->storage->place, p->all->dtype, &shape, NULL)
                      : (belay_tensor){0};
}

belay_tensor bl_pass_zeros(const bl_pass *p, belay_shape shape)
{
    return bl_launch_fill_like(p->context, p->at, p->all->dtype, &shape, 0);
}

belay_tensor bl_pass_given(const bl_pass *p, belay_tensor states, int number)
{
    if (belay_tensor_is_nil(states))
        return states;
    return bl_pass_part(p, bl_launch_contiguous(p->context, states), number, bl_pass_state(p));
}

belay_tensor bl_pass_matrix(const bl_pass *p, belay_tensor tensor)
{
    belay_shape shape = belay_tensor_shape(tensor), matrix = belay_shape3(1, shape.size[0], shape.size[1]);
    return belay_tensor_is_nil(tensor) ? tensor : bl_launch_reshape(p->context, tensor, &matrix);
}

void bl_pass_drop(const bl_pass *p, const belay_tensor *views, int n)
{
    for (int i = 0; i < n; i++)
        bl_tensor_drop(p->context, views[i]);
}

belay_tensor bl_pass_product(const bl_pass *p, belay_tensor a, bool a_transposed, belay_tensor b, bool b_transposed,
                             belay_tensor into, bool add)
{
    bl_call call = {.context = p->context, .op = BL_OP_matmul, .n_in = 2, .in = {a, b}, .into = into};
    call.params.i[0] = a_transposed;
    call.params.i[1] = b_transposed;
    call.params.i[2] = add;
    call.is_backward = p->is_backward;
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

bool bl_pass_cell(const bl_pass *p, int op, const belay_tensor *operand, int n)
{
    bl_call call = {.context = p->context, .op = op, .n_in = n, .is_backward = p->is_backward};
    for (int k = 0; k < n; k++)
        call.in[k] = operand[k];
    return bl_launch_run(&call);
}

belay_tensor bl_pass_dropout(const bl_pass *p, int layer, belay_tensor x)
{
    double drop = p->all->dropout;
    bl_call call = {.context = p->context, .op = BL_OP_lstm_dropout, .n_in = 1, .in = {x}};
    call.params = (bl_params){.f = {drop, 1 / (1 - drop)}, .rng = p->all->key[layer]};
    call.params.i[0] = p->all->sample_first * p->all->steps * p->all->directions * p->all->hidden;
    call.is_backward = p->is_backward;
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

belay_tensor bl_pass_batch_first(const bl_pass *p, belay_tensor tensor)
{
    return belay_tensor_is_nil(tensor) ? tensor : bl_view_transpose(p->context, tensor, 0, 1);
}

/* ---- what is kept */

enum { SAVED_X, SAVED_GATES, SAVED_OTHER, SAVED_H, SAVED_FIRST, SAVED_FIRST_H, SAVED_IH, SAVED_HH, N_SAVED };

bool bl_unit_save(belay_function_call *call, int number, const bl_unit *u)
{
    const belay_tensor saved[N_SAVED] = {u->x, u->gates, u->other, u->h, u->first, u->first_h, u->ih, u->hh};
    if (!belay_function_records(call))
        return true;
    for (int k = 0; k < N_SAVED; k++) {
        int at = belay_function_save(call, saved[k]);
        if (at != number * N_SAVED + k ||
            belay_tensor_is_nil(belay_function_saved(call, at)) != belay_tensor_is_nil(saved[k]))
            return false;
    }
    return true;
}

bl_unit bl_unit_saved(const belay_function_call *call, const bl_recurrent *r, int number)
{
    const int at = number * N_SAVED;
    return (bl_unit){.is_reverse = number % r->directions == 1,
                     .x = belay_function_saved(call, at + SAVED_X),
                     .gates = belay_function_saved(call, at + SAVED_GATES),
                     .other = belay_function_saved(call, at + SAVED_OTHER),
                     .h = belay_function_saved(call, at + SAVED_H),
                     .first = belay_function_saved(call, at + SAVED_FIRST),
                     .first_h = belay_function_saved(call, at + SAVED_FIRST_H),
                     .ih = belay_function_saved(call, at + SAVED_IH),
                     .hh = belay_function_saved(call, at + SAVED_HH)};
}

/* ---- forward */

static bool run_unit(const bl_pass *p, bl_unit *u)
{
    const bl_recurrent *r = p->all;
    for (int64_t i = 0; i < r->steps && r->batch > 0; i++) {
        int64_t t = bl_unit_step(p, u, i);
        if (!r->cell->step(p, u, t, bl_unit_before(p, u, t)))
            return false;
    }
    return true;
}

/* Copies the unit's state after the last step to its place in h_n or c_n. */
static bool store_last(const bl_pass *p, belay_tensor all, int number, const bl_unit *u, belay_tensor buffer,
                       belay_tensor first)
{
    belay_tensor place = bl_pass_part(p, all, number, bl_pass_state(p));
    if (p->all->steps > 0)
        return bl_launch_move(p->context, place, bl_pass_part(p, buffer, bl_unit_last(p, u), bl_pass_state(p)));
    return belay_tensor_is_nil(first) || bl_launch_move(p->context, place, first);
}

/* Runs a unit over x; its h is the caller's. */
static bool forward_unit(const bl_pass *p, belay_function_call *call, int number, const belay_tensor *in,
                         belay_tensor x, const belay_tensor *out, belay_tensor *h)
{
    const bl_recurrent *r = p->all;
    bool has_second = r->cell->n_states > 1;
    bl_unit u = {.is_reverse = number % r->directions == 1,
                 .x = x,
                 .first_h = bl_pass_given(p, in[BL_RECURRENT_STATES], number),
                 .ih = bl_pass_matrix(p, in[bl_recurrent_weight(r, number, 0)]),
                 .hh = bl_pass_matrix(p, in[bl_recurrent_weight(r, number, 1)])};
    belay_tensor second = has_second ? bl_pass_given(p, in[BL_RECURRENT_STATES + 1], number) : (belay_tensor){0};
    bool done = r->cell->open(p, &u, &in[bl_recurrent_bias(r, number, 0)], second);
    if (done)
        u.gates = bl_pass_product(p, x, false, u.ih, true, (belay_tensor){0}, false);
    if (!belay_tensor_is_nil(u.gates))
        u.h = bl_pass_new(p, belay_shape3(r->steps, r->batch, r->hidden));
    done = !belay_tensor_is_nil(u.h) && run_unit(p, &u) && bl_unit_save(call, number, &u) &&
           store_last(p, out[1], number, &u, u.h, u.first_h) &&
           (!has_second || store_last(p, out[2], number, &u, u.other, u.first));
    const belay_tensor kept[] = {u.gates, u.other};
    bl_pass_drop(p, kept, 2);
    *h = u.h;
    return done;
}

/* What the layer's units made, [steps, batch, directions hidden]. */
static belay_tensor side_by_side(const bl_pass *p, const belay_tensor *h)
{
    const bl_recurrent *r = p->all;
    if (r->directions == 1)
        return h[0];
    belay_tensor both = bl_pass_new(p, belay_shape3(r->steps, r->batch, 2 * r->hidden));
    for (int d = 0; d < 2; d++) {
        belay_tensor half = bl_view_slice(p->context, both, 2, d * r->hidden, (d + 1) * r->hidden, 1);
        if (!bl_launch_move(p->context, half, h[d]))
            return (belay_tensor){0};
        bl_pass_drop(p, &half, 1);
    }
    bl_pass_drop(p, h, 2);
    return both;
}

/* The units of a layer, each in a layer path of its own; nil after a fault. */
static belay_tensor forward_layer(const bl_pass *p, belay_function_call *call, int layer, const belay_tensor *in,
                                  belay_tensor x, const belay_tensor *out)
{
    const bl_recurrent *r = p->all;
    belay_tensor h[2] = {{0}};
    bool done = true;
    for (int d = 0; d < r->directions && done; d++) {
        size_t length = d == 1 ? bl_layer_push(p->context, "reverse") : 0;
        done = forward_unit(p, call, layer * r->directions + d, in, x, out, &h[d]);
        if (d == 1)
            bl_layer_pop(p->context, length);
    }
    return done ? side_by_side(p, h) : (belay_tensor){0};
}

/* x as one time-major matrix. */
static belay_tensor time_major(const bl_pass *p, belay_tensor x)
{
    belay_shape matrix = belay_shape3(1, p->all->steps * p->all->batch, p->all->in);
    belay_tensor turned = bl_view_transpose(p->context, x, 0, 1);
    return belay_tensor_is_nil(turned) ? turned : bl_launch_reshape(p->context, turned, &matrix);
}

void bl_recurrent_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                          int n_out)
{
    (void)n_in;
    const bl_recurrent *r = state;
    const bl_pass p = {.context = belay_function_context(call), .all = r, .at = in[BL_RECURRENT_X]};
    belay_tensor x = time_major(&p, in[BL_RECURRENT_X]), y = {0};
    belay_tensor result[1 + BL_RECURRENT_MAX_STATES] = {x};
    for (int o = 1; o < n_out; o++) {
        if (belay_tensor_is_nil(result[o - 1])) /* what is missing was told */
            return;
        result[o] = bl_pass_zeros(&p, belay_shape3(bl_recurrent_units(r), r->batch, r->hidden));
    }
    for (int layer = 0; layer < r->layers; layer++) {
        char name[24];
        snprintf(name, sizeof name, "layer%d", layer);
        size_t length = bl_layer_push(p.context, name);
        y = forward_layer(&p, call, layer, in, x, result);
        if (!belay_tensor_is_nil(y) && layer + 1 < r->layers)
            x = bl_pass_steps(&p, r->dropout > 0 ? bl_pass_dropout(&p, layer, y) : y, 0, r->steps,
                              r->directions * r->hidden);
        bl_layer_pop(p.context, length);
        if (belay_tensor_is_nil(y))
            return;
    }
    result[0] = bl_pass_batch_first(&p, y);
    for (int o = 0; o < n_out && !belay_tensor_is_nil(result[0]); o++)
        out[o] = result[o];
}
