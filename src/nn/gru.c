/* SPDX-License-Identifier: Apache-2.0 */
/* One step of a GRU, forward and back.
 *
 * The sums of h of the step before stand apart from those of x, because r multiplies them alone: `other`
 * [steps, batch, 3 hidden] takes their product.  Back: one fused cell turns both into the gradients of their sums in
 * place and leaves what goes to h of the step before past the gates, to which one product adds what goes through them.
 * `first` is h before the first step, `first_h` the same or nil for zeros, whose product is left out. */
#include "grad/tape.h"
#include "nn/recurrent.h"

static belay_tensor bias_or_zeros(const bl_pass *p, belay_tensor bias)
{
    belay_shape shape = belay_shape2(3, p->all->hidden);
    return belay_tensor_is_nil(bias) ? bl_pass_zeros(p, shape) : bl_launch_reshape(p->context, bias, &shape);
}

static bool gru_open(const bl_pass *p, bl_unit *u, const belay_tensor *biases, belay_tensor second)
{
    (void)second;
    const bl_recurrent *r = p->all;
    u->first = belay_tensor_is_nil(u->first_h) ? bl_pass_zeros(p, bl_pass_state(p)) : u->first_h;
    bool done = !belay_tensor_is_nil(u->first);
    for (int k = 0; k < 2 && done; k++) {
        u->bias[k] = bias_or_zeros(p, biases[k]);
        done = !belay_tensor_is_nil(u->bias[k]);
    }
    if (done)
        u->other = bl_pass_new(p, belay_shape3(r->steps, r->batch, 3 * r->hidden));
    return !belay_tensor_is_nil(u->other);
}

static bool fill_with_zeros(const bl_pass *p, belay_tensor matrix)
{
    bl_call call = {.context = p->context, .op = BL_OP_fill, .dtype = p->all->dtype, .into = matrix};
    call.shape = bl_pass_gates_matrix(p);
    return bl_launch_run(&call);
}

static bool gru_step(const bl_pass *p, const bl_unit *u, int64_t t, int64_t before)
{
    belay_tensor gates = bl_pass_part(p, u->gates, t, bl_pass_gates(p));
    belay_tensor inner = bl_pass_part(p, u->other, t, bl_pass_gates(p));
    belay_tensor matrix = bl_pass_part(p, u->other, t, bl_pass_gates_matrix(p));
    belay_tensor h = bl_pass_part(p, u->h, t, bl_pass_state(p));
    belay_tensor state = before >= 0 ? u->h : u->first;
    belay_tensor before_h = bl_pass_part(p, state, before >= 0 ? before : 0, bl_pass_state(p));
    belay_tensor factor = bl_pass_part(p, state, before >= 0 ? before : 0, bl_pass_state_matrix(p));
    bool is_zero = before < 0 && belay_tensor_is_nil(u->first_h);
    bool done = is_zero ? fill_with_zeros(p, matrix)
                        : !belay_tensor_is_nil(bl_pass_product(p, factor, false, u->hh, true, matrix, false));
    const belay_tensor operand[] = {gates, inner, u->bias[0], u->bias[1], before_h, h};
    done = done && bl_pass_cell(p, BL_OP_gru_cell, operand, BL_COUNT(operand));
    const belay_tensor views[] = {gates, inner, matrix, h, before_h, factor};
    bl_pass_drop(p, views, BL_COUNT(views));
    return done;
}

/* The gradient of h is kept apart from `above`, which each step reads. */
static bool gru_begin(const bl_pass *p, const bl_unit *u, int number, const belay_tensor *grad_out, bl_flow *f)
{
    (void)u;
    belay_tensor given = bl_pass_given(p, grad_out[1], number);
    belay_tensor h =
        belay_tensor_is_nil(given) ? bl_pass_zeros(p, bl_pass_state(p)) : bl_launch_copy(p->context, given);
    f->h = bl_pass_part(p, h, 0, bl_pass_state_matrix(p));
    return !belay_tensor_is_nil(f->h);
}

static bool gru_back(const bl_pass *p, const bl_unit *u, const bl_flow *f, int64_t t, int64_t before,
                     belay_tensor first)
{
    belay_tensor gates = bl_pass_part(p, u->gates, t, bl_pass_gates(p));
    belay_tensor inner = bl_pass_part(p, u->other, t, bl_pass_gates(p));
    belay_tensor matrix = bl_pass_part(p, u->other, t, bl_pass_gates_matrix(p));
    belay_tensor before_h = bl_pass_part(p, before >= 0 ? u->h : u->first, before >= 0 ? before : 0, bl_pass_state(p));
    belay_tensor above = {0}, g_h = bl_pass_part(p, f->h, 0, bl_pass_state(p));
    if (!belay_tensor_is_nil(f->above))
        above = bl_pass_part(p, f->above, t, bl_pass_state(p));
    const belay_tensor operand[] = {gates, inner, before_h, above, g_h};
    bool done = bl_pass_cell(p, BL_OP_gru_cell_grad, operand, BL_COUNT(operand));
    if (done && (before >= 0 || !belay_tensor_is_nil(first)))
        done = !belay_tensor_is_nil(bl_pass_product(p, matrix, false, u->hh, false, f->h, true));
    const belay_tensor views[] = {gates, inner, matrix, before_h, above, g_h};
    bl_pass_drop(p, views, BL_COUNT(views));
    return done;
}

static bool gru_end(const bl_pass *p, int number, const bl_flow *f, const belay_tensor *g_states)
{
    return belay_tensor_is_nil(g_states[0]) ||
           bl_launch_move(p->context, bl_pass_part(p, g_states[0], number, bl_pass_state_matrix(p)), f->h);
}

const bl_recurrent_cell bl_gru_cell = {.name = "gru",
                                       .n_gates = 3,
                                       .n_states = 1,
                                       .has_one_sum = false,
                                       .open = gru_open,
                                       .step = gru_step,
                                       .begin = gru_begin,
                                       .back = gru_back,
                                       .end = gru_end};
