/* SPDX-License-Identifier: Apache-2.0 */
/* The LSTM's public call, which proves shapes before anything runs, and its module. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "nn/lstm.h"
#include "nn/module.h"
#include "op/op.h"

/* ---- the call */

/* False after shape.contract or type.dtype: `what` has that shape, and x's dtype as everything has. */
static bool fits(belay_context *context, belay_tensor x, const char *what, belay_tensor tensor, belay_shape wanted)
{
    const bl_given given[] = {{"x", x}, {what, tensor}};
    return bl_slot_use(context, tensor) != NULL && bl_op_has_shape(context, "lstm", given, 2, 1, &wanted) &&
           bl_op_has_dtype(context, "lstm", given, 2, 1, belay_tensor_dtype(x));
}

static bool layer_fits(belay_context *context, const bl_lstm *s, belay_tensor x, int number,
                       const belay_lstm_weights *w)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    int64_t gates = 4 * s->hidden;
    const belay_tensor tensor[] = {w->ih, w->hh, w->bias_ih, w->bias_hh};
    const belay_shape wanted[] = {belay_shape2(gates, number == 0 ? s->in : s->hidden), belay_shape2(gates, s->hidden),
                                  belay_shape1(gates), belay_shape1(gates)};
    for (int k = 0; k < 4; k++) {
        char what[40];
        if (k >= 2 && belay_tensor_is_nil(tensor[k]))
            continue;
        snprintf(what, sizeof what, "%s of layer %d", names[k], number);
        if (!fits(context, x, what, tensor[k], wanted[k]))
            return false;
    }
    return true;
}

static bool state_fits(belay_context *context, const bl_lstm *s, belay_tensor x, const char *what, belay_tensor state)
{
    return belay_tensor_is_nil(state) || fits(context, x, what, state, belay_shape3(s->layers, s->batch, s->hidden));
}

/* Sizes from x and the first layer's weights. */
static bool read_sizes(belay_context *context, belay_tensor x, belay_tensor hh, int layers, bl_lstm *s)
{
    const bl_given given[] = {{"x", x}, {"weight_hh of layer 0", hh}};
    if (layers < 1 || layers > BL_LSTM_MAX_LAYERS) {
        bl_prove_refuse(context, BELAY_CONF_VALUE, "lstm", given, 2, "layers of lstm is %d, outside [1, %d]", layers,
                        BL_LSTM_MAX_LAYERS);
        return false;
    }
    if (bl_slot_use(context, x) == NULL || bl_slot_use(context, hh) == NULL)
        return false;
    belay_shape shape = belay_tensor_shape(x), square = belay_tensor_shape(hh);
    int64_t hidden = square.rank == 2 ? square.size[1] : 0;
    if (shape.rank != 3) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "lstm", given, 2, "lstm takes x [batch, time, in], not %d axes",
                        shape.rank);
        return false;
    }
    if (hidden < 1 || hidden > INT64_MAX / 4) {
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "lstm", given, 2,
                        "weight_hh of layer 0 is no [4 hidden, hidden]");
        return false;
    }
    *s = (bl_lstm){.layers = layers,
                   .batch = shape.size[0],
                   .steps = shape.size[1],
                   .in = shape.size[2],
                   .hidden = hidden,
                   .dtype = belay_tensor_dtype(x)};
    return true;
}

static bool call_is_legal(belay_context *context, belay_tensor x, belay_tensor h0, belay_tensor c0,
                          const belay_lstm_weights *weights, const belay_lstm_options *o, bl_lstm *s)
{
    if (weights == NULL) {
        bl_context_raise(context, BELAY_CONF_MISSING, "lstm needs the weights of its layers");
        return false;
    }
    if (!bl_module_chance(context, "lstm", o->dropout) ||
        !read_sizes(context, x, weights[0].hh, o->layers != 0 ? o->layers : 1, s))
        return false;
    for (int number = 0; number < s->layers; number++)
        if (!layer_fits(context, s, x, number, &weights[number]))
            return false;
    return state_fits(context, s, x, "h0", h0) && state_fits(context, s, x, "c0", c0);
}

static belay_lstm_result apply(belay_context *context, bl_lstm *s, belay_tensor x, belay_tensor h0, belay_tensor c0,
                               const belay_lstm_weights *weights)
{
    belay_tensor in[BL_LSTM_BIASES + 4 * BL_LSTM_MAX_LAYERS] = {x, h0, c0}, out[3];
    for (int number = 0; number < s->layers; number++) {
        in[bl_lstm_bias(number, 0)] = weights[number].bias_ih;
        in[bl_lstm_bias(number, 1)] = weights[number].bias_hh;
        in[bl_lstm_weight(s, number, 0)] = weights[number].ih;
        in[bl_lstm_weight(s, number, 1)] = weights[number].hh;
    }
    uint64_t optional = (UINT64_C(1) << bl_lstm_bias(s->layers, 0)) - 2; /* all but x and the weights */
    int n = BL_LSTM_BIASES + 4 * s->layers;
    if (!bl_op_meet(context, "lstm", NULL, in, n)) {
        bl_free(s);
        return (belay_lstm_result){0};
    }
    belay_function_apply(context, &bl_lstm_function, s, in, n, optional, out, 3);
    return (belay_lstm_result){out[0], out[1], out[2]};
}

belay_lstm_result belay_lstm(belay_tensor x, belay_tensor h0, belay_tensor c0, const belay_lstm_weights *weights,
                             const belay_lstm_options *options)
{
    static const belay_lstm_options none = {0};
    const belay_lstm_options *o = options != NULL ? options : &none;
    belay_context *context = bl_tensor_context(x);
    bl_lstm sizes;
    BL_ENTER(context);
    if (context == NULL || !call_is_legal(context, x, h0, c0, weights, o, &sizes))
        return (belay_lstm_result){0};
    bl_lstm *s = bl_alloc(1, sizeof *s);
    if (s == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to apply lstm");
        return (belay_lstm_result){0};
    }
    *s = sizes;
    if (o->training && o->dropout > 0) {
        s->dropout = o->dropout;
        for (int number = 0; number + 1 < s->layers; number++)
            s->key[number] = bl_context_key(context);
    }
    return apply(context, s, x, h0, c0, weights);
}

/* ---- the module */

typedef struct lstm {
    int layers;
    double dropout;
    belay_lstm_weights weights[BL_LSTM_MAX_LAYERS];
} lstm;

static belay_lstm_result run(const belay_module *module, belay_tensor x, belay_tensor h0, belay_tensor c0)
{
    const lstm *self = belay_module_self(module);
    belay_lstm_options options = {self->layers, self->dropout, belay_module_training_get(module)};
    return belay_lstm(x, h0, c0, self->weights, &options);
}

static belay_tensor lstm_forward(belay_module *module, belay_tensor x)
{
    belay_tensor zeros = {0};
    return run(module, x, zeros, zeros).output;
}

static const belay_module_kind lstm_kind = {"lstm", sizeof(lstm), lstm_forward, NULL};

belay_lstm_result belay_lstm_module_run(belay_module *module, belay_tensor x, belay_tensor h0, belay_tensor c0)
{
    size_t length = 0;
    BL_ENTER(bl_module_context(module));
    if (bl_module_use(module) == NULL || belay_tensor_is_nil(x))
        return (belay_lstm_result){0};
    if (module->kind != &lstm_kind) {
        bl_context_raise(module->context, BELAY_CONF_VALUE, "module %s is no lstm", belay_module_name(module));
        return (belay_lstm_result){0};
    }
    if (!bl_module_begin(module, &length))
        return (belay_lstm_result){0};
    belay_lstm_result result = run(module, x, h0, c0);
    bl_module_end(module, length);
    return result;
}

/* "weight_ih_l0" and its fellows. */
static belay_tensor add(belay_module *module, const char *name, int number, belay_dtype dtype, belay_shape shape,
                        belay_init init)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s_l%d", name, number);
    return belay_module_add_parameter(module, numbered, dtype, shape, init);
}

static void add_layer(belay_module *module, int number, const belay_lstm_module_options *o, belay_lstm_weights *w)
{
    int64_t gates = 4 * o->hidden;
    double bound = 1 / sqrt((double)o->hidden);
    belay_init init = {BELAY_INIT_UNIFORM, -bound, bound};
    w->ih = add(module, "weight_ih", number, o->dtype, belay_shape2(gates, number == 0 ? o->in : o->hidden), init);
    w->hh = add(module, "weight_hh", number, o->dtype, belay_shape2(gates, o->hidden), init);
    if (o->no_bias)
        return;
    w->bias_ih = add(module, "bias_ih", number, o->dtype, belay_shape1(gates), init);
    w->bias_hh = add(module, "bias_hh", number, o->dtype, belay_shape1(gates), init);
}

static bool options_are_legal(belay_context *context, const belay_lstm_module_options *o)
{
    if (!bl_module_needs(context, "lstm", "in", o->in) || !bl_module_needs(context, "lstm", "hidden", o->hidden) ||
        !bl_module_chance(context, "lstm", o->dropout))
        return false;
    if (o->hidden > INT64_MAX / 4) {
        bl_context_raise(context, BELAY_SIZE_OVERFLOW, "hidden of lstm is %lld: four times that is above 2^63 - 1",
                         (long long)o->hidden);
        return false;
    }
    if (o->layers >= 0 && o->layers <= BL_LSTM_MAX_LAYERS)
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE, "layers of lstm is %d, outside [1, %d]", o->layers, BL_LSTM_MAX_LAYERS);
    return false;
}

belay_module *belay_lstm_module(belay_context *context, const belay_lstm_module_options *options)
{
    static const belay_lstm_module_options none = {0};
    const belay_lstm_module_options *o = options != NULL ? options : &none;
    BL_ENTER(context);
    if (!belay_is_open(context) || !options_are_legal(context, o))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &lstm_kind);
    lstm *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->layers = o->layers != 0 ? o->layers : 1;
    self->dropout = o->dropout;
    for (int number = 0; number < self->layers; number++)
        add_layer(module, number, o, &self->weights[number]);
    return bl_module_whole(module);
}
