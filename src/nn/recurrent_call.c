/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of recurrent functions: everything is proved before anything runs.
 *
 * A call gathers its inputs in the function's order first, so that casts and moves see all of them at once. */
#include <stdio.h>

#include "base/memory.h"
#include "nn/module.h"
#include "nn/recurrent.h"
#include "op/op.h"

enum { MOST_INPUTS = BL_RECURRENT_STATES + BL_RECURRENT_MAX_STATES + 4 * BL_RECURRENT_MAX_UNITS };

static const char *name_of(const bl_recurrent *r) { return r->cell->name; }

/* False after shape.contract or type.dtype: `what` has that shape, and x's dtype as everything has. */
static bool fits(belay_context *context, const bl_recurrent *r, belay_tensor x, const char *what, belay_tensor tensor,
                 belay_shape wanted)
{
    const bl_given given[] = {{"x", x}, {what, tensor}};
    return bl_slot_use(context, tensor) != NULL && bl_op_has_shape(context, name_of(r), given, 2, 1, &wanted) &&
           bl_op_has_dtype(context, name_of(r), given, 2, 1, r->dtype);
}

static bool unit_fits(belay_context *context, const bl_recurrent *r, const belay_tensor *in, int unit)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    int64_t sums = r->cell->n_gates * r->hidden;
    int layer = unit / r->directions;
    const belay_tensor tensor[] = {in[bl_recurrent_weight(r, unit, 0)], in[bl_recurrent_weight(r, unit, 1)],
                                   in[bl_recurrent_bias(r, unit, 0)], in[bl_recurrent_bias(r, unit, 1)]};
    const belay_shape wanted[] = {belay_shape2(sums, bl_recurrent_width(r, layer)), belay_shape2(sums, r->hidden),
                                  belay_shape1(sums), belay_shape1(sums)};
    for (int k = 0; k < 4; k++) {
        char what[48];
        if (k >= 2 && belay_tensor_is_nil(tensor[k]))
            continue;
        snprintf(what, sizeof what, "%s of %s %d", names[k], unit % r->directions == 1 ? "reverse" : "layer", layer);
        if (!fits(context, r, in[BL_RECURRENT_X], what, tensor[k], wanted[k]))
            return false;
    }
    return true;
}

static bool states_fit(belay_context *context, const bl_recurrent *r, const belay_tensor *in)
{
    static const char *const names[] = {"h0", "c0"};
    belay_shape wanted = belay_shape3(bl_recurrent_units(r), r->batch, r->hidden);
    for (int k = 0; k < r->cell->n_states; k++) {
        belay_tensor state = in[BL_RECURRENT_STATES + k];
        if (!belay_tensor_is_nil(state) && !fits(context, r, in[BL_RECURRENT_X], names[k], state, wanted))
            return false;
    }
    return true;
}

/* Sizes from x and the first unit's weights. */
static bool read_sizes(belay_context *context, const belay_tensor *in, bl_recurrent *r)
{
    belay_tensor x = in[BL_RECURRENT_X], hh = in[bl_recurrent_weight(r, 0, 1)];
    const bl_given given[] = {{"x", x}, {"weight_hh of layer 0", hh}};
    if (bl_slot_use(context, x) == NULL || bl_slot_use(context, hh) == NULL)
        return false;
    belay_shape shape = belay_tensor_shape(x), square = belay_tensor_shape(hh);
    if (shape.rank != 3) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, name_of(r), given, 2, "%s takes x [batch, time, in], not %d axes",
                        name_of(r), shape.rank);
        return false;
    }
    r->hidden = square.rank == 2 ? square.size[1] : 0;
    if (r->hidden < 1 || r->hidden > INT64_MAX / r->cell->n_gates) {
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, name_of(r), given, 2,
                        "weight_hh of layer 0 is no [%d hidden, hidden]", r->cell->n_gates);
        return false;
    }
    r->batch = shape.size[0];
    r->steps = shape.size[1];
    r->in = shape.size[2];
    r->dtype = belay_tensor_dtype(x);
    return true;
}

static bool inputs_are_legal(belay_context *context, const belay_tensor *in, bl_recurrent *r)
{
    if (!read_sizes(context, in, r))
        return false;
    for (int unit = 0; unit < bl_recurrent_units(r); unit++)
        if (!unit_fits(context, r, in, unit))
            return false;
    return states_fit(context, r, in);
}

static bool options_are_legal(belay_context *context, const bl_recurrent *r, belay_tensor x,
                              const belay_recurrent_weights *weights, const belay_recurrent_options *o)
{
    int most = BL_RECURRENT_MAX_UNITS / r->directions;
    if (weights == NULL) {
        bl_context_raise(context, BELAY_CONF_MISSING, "%s needs the weights of its layers", name_of(r));
        return false;
    }
    if (!bl_module_chance(context, name_of(r), o->dropout))
        return false;
    if (r->layers >= 1 && r->layers <= most)
        return true;
    const bl_given given[] = {{"x", x}};
    bl_prove_refuse(context, BELAY_CONF_VALUE, name_of(r), given, 1, "layers of %s is %d, outside [1, %d]%s",
                    name_of(r), r->layers, most, r->directions == 2 ? " in both directions" : "");
    return false;
}

/* The inputs in the function's order; how many. */
static int gather(const bl_recurrent *r, belay_tensor x, const belay_tensor *states,
                  const belay_recurrent_weights *weights, belay_tensor *in)
{
    in[BL_RECURRENT_X] = x;
    for (int k = 0; k < r->cell->n_states; k++)
        in[BL_RECURRENT_STATES + k] = states[k];
    for (int unit = 0; unit < bl_recurrent_units(r); unit++) {
        in[bl_recurrent_bias(r, unit, 0)] = weights[unit].bias_ih;
        in[bl_recurrent_bias(r, unit, 1)] = weights[unit].bias_hh;
        in[bl_recurrent_weight(r, unit, 0)] = weights[unit].ih;
        in[bl_recurrent_weight(r, unit, 1)] = weights[unit].hh;
    }
    return bl_recurrent_weight(r, bl_recurrent_units(r), 0);
}

static void apply(belay_context *context, const bl_recurrent *sizes, const belay_function *function, belay_tensor *in,
                  int n, belay_tensor *out)
{
    if (!bl_op_meet(context, name_of(sizes), NULL, in, n))
        return;
    bl_recurrent *r = bl_alloc(1, sizeof *r);
    if (r == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to apply %s", name_of(sizes));
        return;
    }
    *r = *sizes;
    for (int layer = 0; layer + 1 < r->layers && r->dropout > 0; layer++)
        r->key[layer] = bl_context_key(context);
    r->sample_first = bl_context_first_element(context, r->batch, r->batch);
    int weights = bl_recurrent_weight(r, 0, 0);
    uint64_t optional = (weights < 64 ? UINT64_C(1) << weights : 0) - 2; /* all but x and the weights */
    belay_function_apply(context, function, r, in, n, optional, out, 1 + r->cell->n_states);
}

void bl_recurrent_call(const bl_recurrent_cell *cell, const belay_function *function, belay_tensor x,
                       const belay_tensor *states, const belay_recurrent_weights *weights,
                       const belay_recurrent_options *options, belay_tensor *out)
{
    static const belay_recurrent_options none = {0};
    const belay_recurrent_options *o = options != NULL ? options : &none;
    belay_context *context = bl_tensor_context(x);
    bl_recurrent r = {.cell = cell,
                      .layers = o->layers != 0 ? o->layers : 1,
                      .directions = o->bidirectional ? 2 : 1,
                      .dropout = o->training ? o->dropout : 0};
    belay_tensor in[MOST_INPUTS] = {{0}};
    for (int k = 0; k < 1 + cell->n_states; k++)
        out[k] = (belay_tensor){0};
    if (context == NULL || !options_are_legal(context, &r, x, weights, o))
        return;
    int n = gather(&r, x, states, weights, in);
    if (bl_op_autocast(context, BL_OP_matmul, in, n) && inputs_are_legal(context, in, &r))
        apply(context, &r, function, in, n, out);
}
