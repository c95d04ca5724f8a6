/* SPDX-License-Identifier: Apache-2.0 */
/* One step of an LSTM, forward and back.
 *
 * Forward: one product with h of the step before, added into the step's gates, and one fused cell.  Back: one fused
 * cell, which turns the saved gates into the gradients of their sums in place, and one product that carries them to the
 * step before.  `other` is c, `first` the c before the first step. */
#include "grad/tape.h"
#include "nn/recurrent.h"

/* b_ih + b_hh as [4, hidden]. */
static belay_tensor joint_bias(const bl_pass *p, const belay_tensor *biases)
{
    belay_shape shape = belay_shape2(4, p->all->hidden);
    belay_tensor a = biases[0], b = biases[1];
    if (belay_tensor_is_nil(a) && belay_tensor_is_nil(b))
        return bl_pass_zeros(p, shape);
    if (!belay_tensor_is_nil(a) && !belay_tensor_is_nil(b)) {
        bl_call call = {.context = p->context, .op = BL_OP_add, .n_in = 2, .in = {a, b}};
        a = bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
    } else if (belay_tensor_is_nil(a)) {
        a = b;
    }
    return belay_tensor_is_nil(a) ? a : bl_launch_reshape(p->context, a, &shape);
}

static bool lstm_open(const bl_pass *p, bl_unit *u, const belay_tensor *biases, belay_tensor c0)
{
    const bl_recurrent *r = p->all;
    u->first = belay_tensor_is_nil(c0) ? bl_pass_zeros(p, bl_pass_state(p)) : c0;
    if (!belay_tensor_is_nil(u->first))
        u->bias[0] = joint_bias(p, biases);
    if (!belay_tensor_is_nil(u->bias[0]))
        u->other = bl_pass_new(p, belay_shape3(r->steps, r->batch, r->hidden));
    return !belay_tensor_is_nil(u->other);
}

static bool lstm_step(const bl_pass *p, const bl_unit *u, int64_t t, int64_t before)
{
    belay_tensor gates = bl_pass_part(p, u->gates, t, bl_pass_gates(p));
    belay_tensor matrix = bl_pass_part(p, u->gates, t, bl_pass_gates_matrix(p));
    belay_tensor c = bl_pass_part(p, u->other, t, bl_pass_state(p)), h = bl_pass_part(p, u->h, t, bl_pass_state(p));
    belay_tensor before_c = before >= 0 ? bl_pass_part(p, u->other, before, bl_pass_state(p)) : u->first;
    bool is_zero = before < 0 && belay_tensor_is_nil(u->first_h);
    belay_tensor before_h = {0};
    if (!is_zero)
        before_h = bl_pass_part(p, before >= 0 ? u->h : u->first_h, before >= 0 ? before : 0, bl_pass_state_matrix(p));
    const belay_tensor operand[] = {gates, u->bias[0], before_c, c, h};
    bool done = is_zero || !belay_tensor_is_nil(bl_pass_product(p, before_h, false, u->hh, true, matrix, true));
    done = done && bl_pass_cell(p, BL_OP_lstm_cell, operand, BL_COUNT(operand));
    const belay_tensor views[] = {gates, matrix, c, h, before_h, before_c};
    bl_pass_drop(p, views, before >= 0 ? 6 : 5);
    return done;
}

/* A state's gradient to work in: a copy of what arrived at unit `number` of h_n or c_n, or zeros. */
static belay_tensor arrived(const bl_pass *p, belay_tensor all, int number)
{
    belay_tensor given = bl_pass_given(p, all, number);
    return belay_tensor_is_nil(given) ? bl_pass_zeros(p, bl_pass_state(p)) : bl_launch_copy(p->context, given);
}

/* What arrives at the last step: the state's gradient flows through `above` where there is one. */
static bool lstm_begin(const bl_pass *p, const bl_unit *u, int number, const belay_tensor *grad_out, bl_flow *f)
{
    f->c = arrived(p, grad_out[2], number);
    if (belay_tensor_is_nil(f->above) || p->all->steps == 0) {
        f->h = bl_pass_part(p, arrived(p, grad_out[1], number), 0, bl_pass_state_matrix(p));
        return !belay_tensor_is_nil(f->c) && !belay_tensor_is_nil(f->h);
    }
    belay_tensor given = bl_pass_given(p, grad_out[1], number);
    bool done = true;
    if (!belay_tensor_is_nil(given))
        done = bl_launch_add_to(p->context, bl_pass_part(p, f->above, bl_unit_last(p, u), bl_pass_state(p)), given);
    return done && !belay_tensor_is_nil(f->c);
}

/* The step's gates become gradients; these go to h of the step before, for the first step to `first` or nowhere. */
static bool lstm_back(const bl_pass *p, const bl_unit *u, const bl_flow *f, int64_t t, int64_t before,
                      belay_tensor first)
{
    bool has_above = !belay_tensor_is_nil(f->above), is_first = before < 0;
    belay_tensor gates = bl_pass_part(p, u->gates, t, bl_pass_gates(p));
    belay_tensor matrix = bl_pass_part(p, u->gates, t, bl_pass_gates_matrix(p));
    belay_tensor c = bl_pass_part(p, u->other, t, bl_pass_state(p));
    belay_tensor before_c = is_first ? u->first : bl_pass_part(p, u->other, before, bl_pass_state(p));
    belay_tensor g_h = bl_pass_part(p, has_above ? f->above : f->h, has_above ? t : 0, bl_pass_state(p));
    belay_tensor to =
        !is_first && has_above ? bl_pass_part(p, f->above, before, bl_pass_state_matrix(p)) : (belay_tensor){0};
    belay_tensor into = is_first ? first : has_above ? to : f->h;
    const belay_tensor operand[] = {gates, c, before_c, g_h, f->c};
    bool done = bl_pass_cell(p, BL_OP_lstm_cell_grad, operand, BL_COUNT(operand));
    if (done && !belay_tensor_is_nil(into))
        done = !belay_tensor_is_nil(bl_pass_product(p, matrix, false, u->hh, false, into, !is_first && has_above));
    const belay_tensor views[] = {gates, matrix, c, g_h, to, before_c};
    bl_pass_drop(p, views, is_first ? 5 : 6);
    return done;
}

/* The walk has written the gradient of h0, unless there was no step. */
static bool lstm_end(const bl_pass *p, int number, const bl_flow *f, const belay_tensor *g_states)
{
    const belay_tensor from[] = {f->h, f->c};
    for (int k = p->all->steps == 0 ? 0 : 1; k < 2; k++) {
        if (belay_tensor_is_nil(g_states[k]))
            continue;
        belay_tensor to = bl_pass_part(p, g_states[k], number, bl_pass_state(p));
        if (!bl_launch_move(p->context, to, bl_pass_part(p, from[k], 0, bl_pass_state(p))))
            return false;
    }
    return true;
}

const bl_recurrent_cell bl_lstm_cell = {.name = "lstm",
                                        .n_gates = 4,
                                        .n_states = 2,
                                        .has_one_sum = true,
                                        .open = lstm_open,
                                        .step = lstm_step,
                                        .begin = lstm_begin,
                                        .back = lstm_back,
                                        .end = lstm_end};
