/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward of the LSTM, written over launches.
 *
 * Everything inside is time-major, so that one step of all samples is one contiguous part of a buffer:
 *
 *   gates [steps, batch, 4 hidden]   c, h [steps, batch, hidden]
 *
 * Forward, a layer: the input's products of all steps as one (they land in `gates`), then step by step one product
 * with h of the step before, added into the step's gates, and one fused cell.  Backward, step by step from the last:
 * one fused cell, which turns the saved gates into the gradients of their sums in place, and one product that carries
 * them to the step before; then each weight's gradient as one product over all steps. */
#include "nn/lstm.h"

#include <stdio.h>

#include "base/memory.h"
#include "grad/tape.h"

/* What backward needs of a layer, in the order in which it is saved. */
enum { SAVED_X, SAVED_GATES, SAVED_C, SAVED_H, SAVED_FIRST_C, SAVED_FIRST_H, SAVED_IH, SAVED_HH, N_SAVED };

/* A pass at work. */
typedef struct pass {
    belay_context *context;
    const bl_lstm *lstm;
    bool is_backward;
    belay_tensor at; /* what is made of nothing lies where this does */
} pass;

/* ---- parts and launches */

/* Part number `number` of a contiguous buffer, seen in that shape. */
static belay_tensor part(const pass *p, belay_tensor buffer, int64_t number, belay_shape shape)
{
    const bl_slot *slot = bl_slot_get(p->context, buffer);
    int64_t stride[BELAY_MAX_RANK] = {0}, n;
    if (slot == NULL || !bl_shape_strides(&shape, stride, &n))
        return (belay_tensor){0};
    return bl_tensor_view(p->context, buffer, &shape, stride, slot->offset + number * n);
}

static belay_shape state_shape(const pass *p) { return belay_shape2(p->lstm->batch, p->lstm->hidden); }
static belay_shape state_matrix(const pass *p) { return belay_shape3(1, p->lstm->batch, p->lstm->hidden); }
static belay_shape gates_matrix(const pass *p) { return belay_shape3(1, p->lstm->batch, 4 * p->lstm->hidden); }
static belay_shape gates_shape(const pass *p) { return belay_shape3(p->lstm->batch, 4, p->lstm->hidden); }

/* One matrix [1, rows, columns] of all steps from `first` on, of a time-major buffer. */
static belay_tensor all_steps(const pass *p, belay_tensor buffer, int64_t first, int64_t steps, int64_t width)
{
    const bl_slot *slot = bl_slot_get(p->context, buffer);
    belay_shape shape = belay_shape3(1, steps * p->lstm->batch, width);
    int64_t stride[BELAY_MAX_RANK] = {0}, n;
    if (slot == NULL || !bl_shape_strides(&shape, stride, &n))
        return (belay_tensor){0};
    return bl_tensor_view(p->context, buffer, &shape, stride, slot->offset + first * p->lstm->batch * width);
}

/* a b into `into`, or, where that is nil, into a new tensor.  The factors may be stored transposed. */
static belay_tensor product(const pass *p, belay_tensor a, bool a_transposed, belay_tensor b, bool b_transposed,
                            belay_tensor into, bool add)
{
    bl_call call = {.context = p->context, .op = BL_OP_matmul, .n_in = 2, .in = {a, b}, .into = into};
    call.params.i[0] = a_transposed;
    call.params.i[1] = b_transposed;
    call.params.i[2] = add;
    call.is_backward = p->is_backward;
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

static bool cell(const pass *p, int op, belay_tensor a, belay_tensor b, belay_tensor c, belay_tensor d, belay_tensor e)
{
    bl_call call = {.context = p->context, .op = op, .n_in = 5, .in = {a, b, c, d, e}, .is_backward = p->is_backward};
    return bl_launch_run(&call);
}

static belay_tensor zeros(const pass *p, belay_shape shape)
{
    return bl_launch_fill_like(p->context, p->at, p->lstm->dtype, &shape, 0);
}

/* Dropout between layers, and its gradient: the same numbers are drawn again. */
static belay_tensor drop_out(const pass *p, int layer, belay_tensor x)
{
    double drop = p->lstm->dropout;
    bl_call call = {.context = p->context, .op = BL_OP_lstm_dropout, .n_in = 1, .in = {x}};
    call.params = (bl_params){.f = {drop, 1 / (1 - drop)}, .rng = p->lstm->key[layer]};
    call.is_backward = p->is_backward;
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

static void drop(const pass *p, belay_tensor tensor) { bl_tensor_drop(p->context, tensor); }

/* A matrix as the product's kernel takes it. */
static belay_tensor as_matrix(const pass *p, belay_tensor tensor)
{
    belay_shape shape = belay_tensor_shape(tensor), matrix = belay_shape3(1, shape.size[0], shape.size[1]);
    return belay_tensor_is_nil(tensor) ? tensor : bl_launch_reshape(p->context, tensor, &matrix);
}

/* The state before the first step: layer `layer` of h0 or c0; nil where that is nil. */
static belay_tensor given_state(const pass *p, belay_tensor state, int layer)
{
    if (belay_tensor_is_nil(state))
        return state;
    return part(p, bl_launch_contiguous(p->context, state), layer, state_shape(p));
}

/* ---- forward */

typedef struct layer {
    belay_tensor x;                /* [1, steps batch, in] */
    belay_tensor gates, c, h;      /* of all steps */
    belay_tensor first_c, first_h; /* [batch, hidden]; first_h is nil for zeros */
    belay_tensor ih, hh, bias;
} layer;

/* b_ih + b_hh as [4, hidden]. */
static belay_tensor joint_bias(const pass *p, const belay_tensor *biases)
{
    belay_shape shape = belay_shape2(4, p->lstm->hidden);
    belay_tensor a = biases[0], b = biases[1];
    if (belay_tensor_is_nil(a) && belay_tensor_is_nil(b))
        return zeros(p, shape);
    if (!belay_tensor_is_nil(a) && !belay_tensor_is_nil(b)) {
        bl_call call = {.context = p->context, .op = BL_OP_add, .n_in = 2, .in = {a, b}};
        a = bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
    } else if (belay_tensor_is_nil(a)) {
        a = b;
    }
    return belay_tensor_is_nil(a) ? a : bl_launch_reshape(p->context, a, &shape);
}

static bool run_step(const pass *p, const layer *l, int64_t t)
{
    belay_tensor gates = part(p, l->gates, t, gates_shape(p)), matrix = part(p, l->gates, t, gates_matrix(p));
    belay_tensor c = part(p, l->c, t, state_shape(p)), h = part(p, l->h, t, state_shape(p));
    belay_tensor before_c = t > 0 ? part(p, l->c, t - 1, state_shape(p)) : l->first_c;
    belay_tensor before_h = t > 0                             ? part(p, l->h, t - 1, state_matrix(p))
                            : belay_tensor_is_nil(l->first_h) ? l->first_h
                                                              : part(p, l->first_h, 0, state_matrix(p));
    bool is_zero = t == 0 && belay_tensor_is_nil(l->first_h);
    bool done = is_zero || !belay_tensor_is_nil(product(p, before_h, false, l->hh, true, matrix, true));
    done = done && cell(p, BL_OP_lstm_cell, gates, l->bias, before_c, c, h);
    const belay_tensor views[] = {gates, matrix, c, h, before_h};
    for (int i = 0; i < BL_COUNT(views); i++)
        drop(p, views[i]);
    if (t > 0)
        drop(p, before_c);
    return done;
}

static bool run_layer(const pass *p, layer *l)
{
    const bl_lstm *s = p->lstm;
    belay_shape shape = belay_shape3(s->steps, s->batch, s->hidden);
    l->gates = product(p, l->x, false, l->ih, true, (belay_tensor){0}, false);
    const bl_slot *at = bl_slot_get(p->context, p->at);
    l->c = bl_tensor_new_on(p->context, at->storage->place, s->dtype, &shape, NULL);
    l->h = bl_tensor_new_on(p->context, at->storage->place, s->dtype, &shape, NULL);
    bool done = !belay_tensor_is_nil(l->gates) && !belay_tensor_is_nil(l->c) && !belay_tensor_is_nil(l->h) &&
                !belay_tensor_is_nil(l->bias) && !belay_tensor_is_nil(l->first_c);
    for (int64_t t = 0; t < s->steps && s->batch > 0 && done; t++)
        done = run_step(p, l, t);
    return done;
}

/* Keeps a layer for backward; false when memory ended. */
static bool save_layer(belay_function_call *call, int number, const layer *l)
{
    const belay_tensor saved[N_SAVED] = {l->x, l->gates, l->c, l->h, l->first_c, l->first_h, l->ih, l->hh};
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

/* Copies the layer's state after the last step to its place in h_n or c_n. */
static bool store_last(const pass *p, belay_tensor all, int number, belay_tensor buffer, belay_tensor first)
{
    belay_tensor place = part(p, all, number, state_shape(p));
    if (p->lstm->steps > 0)
        return bl_launch_move(p->context, place, part(p, buffer, p->lstm->steps - 1, state_shape(p)));
    return belay_tensor_is_nil(first) || bl_launch_move(p->context, place, first);
}

static bool forward_layer(const pass *p, belay_function_call *call, int number, const belay_tensor *in, belay_tensor x,
                          const belay_tensor *out, belay_tensor *h)
{
    layer l = {.x = x,
               .first_c = given_state(p, in[BL_LSTM_C0], number),
               .first_h = given_state(p, in[BL_LSTM_H0], number),
               .ih = as_matrix(p, in[bl_lstm_weight(p->lstm, number, 0)]),
               .hh = as_matrix(p, in[bl_lstm_weight(p->lstm, number, 1)]),
               .bias = joint_bias(p, &in[bl_lstm_bias(number, 0)])};
    if (belay_tensor_is_nil(in[BL_LSTM_C0]))
        l.first_c = zeros(p, state_shape(p));
    bool done = run_layer(p, &l) && save_layer(call, number, &l) && store_last(p, out[1], number, l.h, l.first_h) &&
                store_last(p, out[2], number, l.c, l.first_c);
    drop(p, l.gates);
    drop(p, l.c);
    *h = l.h;
    return done;
}

/* y [batch, steps, hidden] as a view of the time-major h. */
static belay_tensor batch_first(const pass *p, belay_tensor h)
{
    return belay_tensor_is_nil(h) ? h : bl_view_transpose(p->context, h, 0, 1);
}

/* x as one time-major matrix. */
static belay_tensor time_major(const pass *p, belay_tensor x)
{
    belay_shape matrix = belay_shape3(1, p->lstm->steps * p->lstm->batch, p->lstm->in);
    belay_tensor turned = bl_view_transpose(p->context, x, 0, 1);
    return belay_tensor_is_nil(turned) ? turned : bl_launch_reshape(p->context, turned, &matrix);
}

static void lstm_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                         int n_out)
{
    (void)n_in, (void)n_out;
    const bl_lstm *s = state;
    const pass p = {.context = belay_function_context(call), .lstm = s, .at = in[BL_LSTM_X]};
    belay_tensor x = time_major(&p, in[BL_LSTM_X]), h = {0};
    belay_tensor result[3] = {{0}};
    for (int o = 1; o < 3; o++)
        result[o] = zeros(&p, belay_shape3(s->layers, s->batch, s->hidden));
    bool done = true;
    for (int number = 0; number < s->layers && done; number++) {
        char name[24];
        snprintf(name, sizeof name, "layer%d", number);
        size_t length = bl_layer_push(p.context, name);
        done = forward_layer(&p, call, number, in, x, result, &h);
        if (done && number + 1 < s->layers)
            x = all_steps(&p, s->dropout > 0 ? drop_out(&p, number, h) : h, 0, s->steps, s->hidden);
        bl_layer_pop(p.context, length);
    }
    result[0] = done ? batch_first(&p, h) : (belay_tensor){0};
    for (int o = 0; o < 3 && !belay_tensor_is_nil(result[0]); o++)
        out[o] = result[o];
}

/* ---- backward */

/* What goes from step to step and from layer to layer. */
typedef struct flow {
    belay_tensor above; /* [steps, batch, hidden] from the layer above or y; nil: nothing but the last step's */
    belay_tensor h;     /* [1, batch, hidden] at the step in work, where `above` is nil */
    belay_tensor c;     /* [batch, hidden] at the step in work */
} flow;

static layer saved_layer(const belay_function_call *call, int number)
{
    const int at = number * N_SAVED;
    return (layer){.x = belay_function_saved(call, at + SAVED_X),
                   .gates = belay_function_saved(call, at + SAVED_GATES),
                   .c = belay_function_saved(call, at + SAVED_C),
                   .h = belay_function_saved(call, at + SAVED_H),
                   .first_c = belay_function_saved(call, at + SAVED_FIRST_C),
                   .first_h = belay_function_saved(call, at + SAVED_FIRST_H),
                   .ih = belay_function_saved(call, at + SAVED_IH),
                   .hh = belay_function_saved(call, at + SAVED_HH)};
}

/* A state's gradient to work in: a copy of what arrived at layer `number` of h_n or c_n, or zeros. */
static belay_tensor arrived_state(const pass *p, belay_tensor all, int number)
{
    belay_tensor given = given_state(p, all, number);
    return belay_tensor_is_nil(given) ? zeros(p, state_shape(p)) : bl_launch_copy(p->context, given);
}

/* What arrives at the layer's last step. */
static bool begin_layer(const pass *p, const belay_tensor *grad_out, int number, flow *f)
{
    f->c = arrived_state(p, grad_out[2], number);
    if (belay_tensor_is_nil(f->above) || p->lstm->steps == 0) {
        f->h = part(p, arrived_state(p, grad_out[1], number), 0, state_matrix(p));
        return !belay_tensor_is_nil(f->c) && !belay_tensor_is_nil(f->h);
    }
    belay_tensor given = given_state(p, grad_out[1], number);
    bool done = true;
    if (!belay_tensor_is_nil(given))
        done = bl_launch_add_to(p->context, part(p, f->above, p->lstm->steps - 1, state_shape(p)), given);
    return done && !belay_tensor_is_nil(f->c);
}

/* The step's gates become gradients; these go to h of the step before, for the first step to `first` or nowhere. */
static bool walk_step(const pass *p, const layer *l, const flow *f, int64_t t, belay_tensor first)
{
    bool has_above = !belay_tensor_is_nil(f->above);
    belay_tensor gates = part(p, l->gates, t, gates_shape(p)), matrix = part(p, l->gates, t, gates_matrix(p));
    belay_tensor c = part(p, l->c, t, state_shape(p));
    belay_tensor before = t > 0 ? part(p, l->c, t - 1, state_shape(p)) : l->first_c;
    belay_tensor g_h = part(p, has_above ? f->above : f->h, has_above ? t : 0, state_shape(p));
    belay_tensor to = t > 0 && has_above ? part(p, f->above, t - 1, state_matrix(p)) : (belay_tensor){0};
    belay_tensor into = t == 0 ? first : has_above ? to : f->h;
    bool done = cell(p, BL_OP_lstm_cell_grad, gates, c, before, g_h, f->c);
    if (done && !belay_tensor_is_nil(into))
        done = !belay_tensor_is_nil(product(p, matrix, false, l->hh, false, into, t > 0 && has_above));
    const belay_tensor views[] = {gates, matrix, c, g_h, to};
    for (int i = 0; i < BL_COUNT(views); i++)
        drop(p, views[i]);
    if (t > 0)
        drop(p, before);
    return done;
}

/* Sum over all steps of gates^T h of the step before; added to `into` where that is not nil. */
static belay_tensor recurrent_gradient(const pass *p, const layer *l, belay_tensor into)
{
    const bl_lstm *s = p->lstm;
    bool add = !belay_tensor_is_nil(into);
    belay_tensor sum = into;
    if (s->steps > 1)
        sum = product(p, all_steps(p, l->gates, 1, s->steps - 1, 4 * s->hidden), true,
                      all_steps(p, l->h, 0, s->steps - 1, s->hidden), false, into, add);
    else if (!add)
        sum = zeros(p, belay_shape3(1, 4 * s->hidden, s->hidden));
    if (s->steps > 0 && !belay_tensor_is_nil(l->first_h) && !belay_tensor_is_nil(sum))
        sum = product(p, all_steps(p, l->gates, 0, 1, 4 * s->hidden), true, part(p, l->first_h, 0, state_matrix(p)),
                      false, sum, true);
    return sum;
}

/* A temporary in another shape, and only in that: whom it is handed to may take it over. */
static belay_tensor reshaped(const pass *p, belay_tensor tensor, belay_shape shape)
{
    if (belay_tensor_is_nil(tensor))
        return tensor;
    belay_tensor view = bl_launch_reshape(p->context, tensor, &shape);
    drop(p, tensor);
    return view;
}

/* Gradients of weights go straight into what their leaves have collected. */
static void weight_gradients(const pass *p, const belay_function_call *call, int number, const layer *l,
                             belay_tensor *grad_in)
{
    const bl_lstm *s = p->lstm;
    int ih = bl_lstm_weight(s, number, 0), hh = bl_lstm_weight(s, number, 1);
    belay_tensor gates = all_steps(p, l->gates, 0, s->steps, 4 * s->hidden);
    if (belay_function_wants(call, ih)) {
        belay_tensor into = as_matrix(p, bl_function_collected(call, ih));
        belay_tensor sum = product(p, gates, true, l->x, false, into, !belay_tensor_is_nil(into));
        if (belay_tensor_is_nil(into))
            grad_in[ih] = reshaped(p, sum, belay_shape2(4 * s->hidden, number == 0 ? s->in : s->hidden));
    }
    if (belay_function_wants(call, hh)) {
        belay_tensor into = as_matrix(p, bl_function_collected(call, hh));
        belay_tensor sum = recurrent_gradient(p, l, into);
        if (belay_tensor_is_nil(into))
            grad_in[hh] = reshaped(p, sum, belay_shape2(4 * s->hidden, s->hidden));
    }
    belay_tensor sum = {0};
    for (int which = 0; which < 2; which++) {
        int k = bl_lstm_bias(number, which);
        if (!belay_function_wants(call, k))
            continue;
        if (belay_tensor_is_nil(sum))
            sum = grad_in[k] = reshaped(p, bl_launch_sum(p->context, gates, 1, s->steps * s->batch, 4 * s->hidden, 1),
                                        belay_shape1(4 * s->hidden));
        else
            grad_in[k] = bl_launch_copy(p->context, sum); /* each leaf owns its gradient */
    }
}

/* The gradient of the layer's input, time-major [steps, batch, width]. */
static belay_tensor input_gradient(const pass *p, const layer *l, int64_t width)
{
    const bl_lstm *s = p->lstm;
    belay_tensor gates = all_steps(p, l->gates, 0, s->steps, 4 * s->hidden);
    return reshaped(p, product(p, gates, false, l->ih, false, (belay_tensor){0}, false),
                    belay_shape3(s->steps, s->batch, width));
}

/* Whether anything below layer `number` wants a gradient. */
static bool wants_below(const bl_lstm *s, const belay_function_call *call, int number)
{
    if (belay_function_wants(call, BL_LSTM_X) || belay_function_wants(call, BL_LSTM_H0) ||
        belay_function_wants(call, BL_LSTM_C0))
        return true;
    for (int k = 0; k < 2 * number; k++)
        if (belay_function_wants(call, bl_lstm_bias(0, k)) || belay_function_wants(call, bl_lstm_weight(s, 0, k)))
            return true;
    return false;
}

/* From the last step to the first; the gradient of the first state goes to its place in those of h0 and c0. */
static bool walk_layer(const pass *p, const layer *l, int number, flow *f, belay_tensor g_h0, belay_tensor g_c0)
{
    belay_tensor first = belay_tensor_is_nil(g_h0) ? g_h0 : part(p, g_h0, number, state_matrix(p));
    for (int64_t t = p->lstm->batch > 0 ? p->lstm->steps - 1 : -1; t >= 0; t--)
        if (!walk_step(p, l, f, t, first))
            return false;
    if (p->lstm->steps == 0 && !belay_tensor_is_nil(first) && !bl_launch_move(p->context, first, f->h))
        return false;
    return belay_tensor_is_nil(g_c0) || bl_launch_move(p->context, part(p, g_c0, number, state_shape(p)), f->c);
}

static void lstm_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                          belay_tensor *grad_in, int n_in)
{
    (void)n_out, (void)n_in;
    const bl_lstm *s = state;
    const pass p = {.context = belay_function_context(call),
                    .lstm = s,
                    .is_backward = true,
                    .at = belay_function_saved(call, SAVED_GATES)};
    flow f = {0};
    belay_tensor g_state[2] = {{0}};
    for (int k = 0; k < 2; k++)
        if (belay_function_wants(call, BL_LSTM_H0 + k))
            g_state[k] = zeros(&p, belay_shape3(s->layers, s->batch, s->hidden));
    if (!belay_tensor_is_nil(grad_out[0]))
        f.above = bl_launch_copy(p.context, bl_view_transpose(p.context, grad_out[0], 0, 1));
    for (int number = s->layers - 1; number >= 0; number--) {
        layer l = saved_layer(call, number);
        if (!begin_layer(&p, grad_out, number, &f) || !walk_layer(&p, &l, number, &f, g_state[0], g_state[1]))
            return;
        weight_gradients(&p, call, number, &l, grad_in);
        drop(&p, f.above);
        f.above = (belay_tensor){0};
        if (!wants_below(s, call, number))
            break;
        if (number > 0) {
            f.above = input_gradient(&p, &l, s->hidden);
            if (s->dropout > 0)
                f.above = drop_out(&p, number - 1, f.above);
            if (belay_tensor_is_nil(f.above))
                return;
        } else if (belay_function_wants(call, BL_LSTM_X)) {
            grad_in[BL_LSTM_X] = batch_first(&p, input_gradient(&p, &l, s->in));
        }
    }
    for (int k = 0; k < 2; k++)
        grad_in[BL_LSTM_H0 + k] = g_state[k];
}

const belay_function bl_lstm_function = {
    .name = "lstm", .forward = lstm_forward, .backward = lstm_backward, .free = bl_free};
