/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of recurrent layers: a unit from its last step to its first, which turns what forward kept into the
 * gradients of the gates' sums, in place; then each weight's gradient as one product over all steps. */
#include "grad/tape.h"
#include "nn/recurrent.h"

/* The gradients of the sums that h of the step before went into. */
static belay_tensor inner_sums(const bl_pass *p, const bl_unit *u)
{
    return p->all->cell->has_one_sum ? u->gates : u->other;
}

static int64_t n_sums(const bl_pass *p) { return p->all->cell->n_gates * p->all->hidden; }

/* Sum over all steps of sums^T h of the step before; added to `into` where that is not nil. */
static belay_tensor recurrent_gradient(const bl_pass *p, const bl_unit *u, belay_tensor into)
{
    const bl_recurrent *r = p->all;
    bool add = !belay_tensor_is_nil(into);
    belay_tensor sum = into, sums = inner_sums(p, u);
    int64_t later = u->is_reverse ? 0 : 1, n = n_sums(p);
    if (r->steps > 1)
        sum = bl_pass_product(p, bl_pass_steps(p, sums, later, r->steps - 1, n), true,
                              bl_pass_steps(p, u->h, 1 - later, r->steps - 1, r->hidden), false, into, add);
    else if (!add)
        sum = bl_pass_zeros(p, belay_shape3(1, n, r->hidden));
    if (r->steps > 0 && !belay_tensor_is_nil(u->first_h) && !belay_tensor_is_nil(sum))
        sum = bl_pass_product(p, bl_pass_steps(p, sums, bl_unit_step(p, u, 0), 1, n), true,
                              bl_pass_part(p, u->first_h, 0, bl_pass_state_matrix(p)), false, sum, true);
    return sum;
}

/* A temporary in another shape, and only in that: whom it is handed to may take it over. */
static belay_tensor reshaped(const bl_pass *p, belay_tensor tensor, belay_shape shape)
{
    if (belay_tensor_is_nil(tensor))
        return tensor;
    belay_tensor view = bl_launch_reshape(p->context, tensor, &shape);
    bl_pass_drop(p, &tensor, 1);
    return view;
}

/* Gradients of weights go straight into what their leaves have collected. */
static void weight_gradients(const bl_pass *p, const belay_function_call *call, int number, const bl_unit *u,
                             belay_tensor *grad_in)
{
    const bl_recurrent *r = p->all;
    int ih = bl_recurrent_weight(r, number, 0), hh = bl_recurrent_weight(r, number, 1);
    if (belay_function_wants(call, ih)) {
        belay_tensor into = bl_pass_matrix(p, bl_function_collected(call, ih));
        belay_tensor gates = bl_pass_steps(p, u->gates, 0, r->steps, n_sums(p));
        belay_tensor sum = bl_pass_product(p, gates, true, u->x, false, into, !belay_tensor_is_nil(into));
        if (belay_tensor_is_nil(into))
            grad_in[ih] = reshaped(p, sum, belay_shape2(n_sums(p), bl_recurrent_width(r, number / r->directions)));
    }
    if (belay_function_wants(call, hh)) {
        belay_tensor into = bl_pass_matrix(p, bl_function_collected(call, hh));
        belay_tensor sum = recurrent_gradient(p, u, into);
        if (belay_tensor_is_nil(into))
            grad_in[hh] = reshaped(p, sum, belay_shape2(n_sums(p), r->hidden));
    }
}

static void bias_gradients(const bl_pass *p, const belay_function_call *call, int number, const bl_unit *u,
                           belay_tensor *grad_in)
{
    const bl_recurrent *r = p->all;
    belay_tensor sum = {0};
    for (int which = 0; which < 2; which++) {
        int k = bl_recurrent_bias(r, number, which);
        if (!belay_function_wants(call, k))
            continue;
        if (!belay_tensor_is_nil(sum) && r->cell->has_one_sum) {
            grad_in[k] = bl_launch_copy(p->context, sum); /* each leaf owns its gradient */
            continue;
        }
        belay_tensor sums = bl_pass_steps(p, which == 0 ? u->gates : inner_sums(p, u), 0, r->steps, n_sums(p));
        sum = grad_in[k] =
            reshaped(p, bl_launch_sum(p->context, sums, 1, r->steps * r->batch, n_sums(p), 1), belay_shape1(n_sums(p)));
    }
}

/* The gradient of the unit's input [1, steps batch, width], added to what another unit made of the same. */
static belay_tensor input_gradient(const bl_pass *p, const bl_unit *u, belay_tensor into)
{
    belay_tensor gates = bl_pass_steps(p, u->gates, 0, p->all->steps, n_sums(p));
    return bl_pass_product(p, gates, false, u->ih, false, into, !belay_tensor_is_nil(into));
}

/* Whether anything below a layer wants a gradient. */
static bool wants_below(const bl_recurrent *r, const belay_function_call *call, int layer)
{
    for (int k = 0; k < BL_RECURRENT_STATES + r->cell->n_states; k++)
        if (belay_function_wants(call, k))
            return true;
    for (int k = 0; k < 2 * layer * r->directions; k++)
        if (belay_function_wants(call, bl_recurrent_bias(r, 0, k)) ||
            belay_function_wants(call, bl_recurrent_weight(r, 0, k)))
            return true;
    return false;
}

/* From the last step to the first; the gradient of the first state goes to its place in those of h0 and c0. */
static bool walk_unit(const bl_pass *p, const bl_unit *u, int number, bl_flow *f, const belay_tensor *grad_out,
                      const belay_tensor *g_states)
{
    const bl_recurrent *r = p->all;
    belay_tensor first =
        belay_tensor_is_nil(g_states[0]) ? g_states[0] : bl_pass_part(p, g_states[0], number, bl_pass_state_matrix(p));
    if (!r->cell->begin(p, u, number, grad_out, f))
        return false;
    for (int64_t i = r->batch > 0 ? r->steps - 1 : -1; i >= 0; i--) {
        int64_t t = bl_unit_step(p, u, i);
        if (!r->cell->back(p, u, f, t, bl_unit_before(p, u, t), first))
            return false;
    }
    return r->cell->end(p, number, f, g_states);
}

/* One direction's part of what arrives at a layer, to work in; it is taken out of `above`. */
static belay_tensor take_direction(const bl_pass *p, belay_tensor *above, int d)
{
    const bl_recurrent *r = p->all;
    belay_tensor all = *above;
    if (belay_tensor_is_nil(all))
        return all;
    if (d == r->directions - 1)
        *above = (belay_tensor){0};
    if (r->directions == 1)
        return all;
    belay_tensor half =
        bl_launch_copy(p->context, bl_view_slice(p->context, all, 2, d * r->hidden, (d + 1) * r->hidden, 1));
    if (d == 1)
        bl_pass_drop(p, &all, 1);
    return half;
}

/* Walks a layer and gives the gradient of its input where that is wanted; false after a fault. */
static bool walk_layer(const bl_pass *p, const belay_function_call *call, int layer, belay_tensor above,
                       const belay_tensor *grad_out, belay_tensor *grad_in, const belay_tensor *g_states,
                       belay_tensor *below)
{
    const bl_recurrent *r = p->all;
    bool wants_input =
        layer > 0 ? wants_below(r, call, layer) : belay_function_wants(call, BL_RECURRENT_X); /* what lies below x */
    for (int d = 0; d < r->directions; d++) {
        int number = layer * r->directions + d;
        bl_unit u = bl_unit_saved(call, r, number);
        bool has_above = !belay_tensor_is_nil(above);
        bl_flow f = {.above = take_direction(p, &above, d)};
        if ((has_above && belay_tensor_is_nil(f.above)) || !walk_unit(p, &u, number, &f, grad_out, g_states))
            return false;
        weight_gradients(p, call, number, &u, grad_in);
        bias_gradients(p, call, number, &u, grad_in);
        const belay_tensor done[] = {f.above, f.h, f.c};
        bl_pass_drop(p, done, 3);
        if (!wants_input)
            continue;
        *below = input_gradient(p, &u, *below);
        if (belay_tensor_is_nil(*below))
            return false;
    }
    return true;
}

/* The gradient of a layer's input becomes what arrives at the layer below, or the gradient of x. */
static belay_tensor hand_down(const bl_pass *p, int layer, belay_tensor below)
{
    const bl_recurrent *r = p->all;
    below = reshaped(p, below, belay_shape3(r->steps, r->batch, bl_recurrent_width(r, layer)));
    if (layer == 0)
        return bl_pass_batch_first(p, below);
    return r->dropout > 0 && !belay_tensor_is_nil(below) ? bl_pass_dropout(p, layer - 1, below) : below;
}

void bl_recurrent_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                           belay_tensor *grad_in, int n_in)
{
    (void)n_out, (void)n_in;
    const bl_recurrent *r = state;
    const bl_pass p = {
        .context = belay_function_context(call), .all = r, .is_backward = true, .at = bl_unit_saved(call, r, 0).gates};
    belay_tensor g_states[BL_RECURRENT_MAX_STATES] = {{0}}, above = {0};
    for (int k = 0; k < r->cell->n_states; k++)
        if (belay_function_wants(call, BL_RECURRENT_STATES + k))
            g_states[k] = bl_pass_zeros(&p, belay_shape3(bl_recurrent_units(r), r->batch, r->hidden));
    if (!belay_tensor_is_nil(grad_out[0]))
        above = bl_launch_copy(p.context, bl_view_transpose(p.context, grad_out[0], 0, 1));
    for (int layer = r->layers - 1; layer >= 0; layer--) {
        belay_tensor below = {0};
        if (!walk_layer(&p, call, layer, above, grad_out, grad_in, g_states, &below))
            return;
        above = hand_down(&p, layer, below);
        if (layer > 0 && belay_tensor_is_nil(above))
            break;
    }
    if (belay_function_wants(call, BL_RECURRENT_X))
        grad_in[BL_RECURRENT_X] = above;
    for (int k = 0; k < r->cell->n_states; k++)
        grad_in[BL_RECURRENT_STATES + k] = g_states[k];
}
