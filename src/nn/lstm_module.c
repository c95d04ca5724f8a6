/* SPDX-License-Identifier: Apache-2.0 */
/* The LSTM's public call and its module. */
#include "base/memory.h"
#include "nn/module.h"
#include "nn/recurrent.h"

static const belay_function lstm_function = {
    .name = "lstm", .forward = bl_recurrent_forward, .backward = bl_recurrent_backward, .free = bl_free};

belay_lstm_result belay_lstm(belay_tensor x, belay_tensor h0, belay_tensor c0, const belay_lstm_weights *weights,
                             const belay_lstm_options *options)
{
    const belay_tensor states[] = {h0, c0};
    belay_tensor out[3];
    BL_ENTER(bl_tensor_context(x));
    bl_recurrent_call(&bl_lstm_cell, &lstm_function, x, states, weights, options, out);
    return (belay_lstm_result){out[0], out[1], out[2]};
}

/* ---- the module */

static belay_lstm_result run(const belay_module *module, belay_tensor x, belay_tensor h0, belay_tensor c0)
{
    const bl_recurrent_module *self = belay_module_self(module);
    belay_lstm_options options = bl_recurrent_module_options(module);
    return belay_lstm(x, h0, c0, self->weights, &options);
}

static belay_tensor lstm_forward(belay_module *module, belay_tensor x)
{
    belay_tensor zeros = {0};
    return run(module, x, zeros, zeros).output;
}

static const belay_module_kind lstm_kind = {"lstm", sizeof(bl_recurrent_module), lstm_forward, NULL};

belay_lstm_result belay_lstm_module_run(belay_module *module, belay_tensor x, belay_tensor h0, belay_tensor c0)
{
    size_t length = 0;
    BL_ENTER(bl_module_context(module));
    if (bl_recurrent_module_begin(module, &lstm_kind, x, &length) == NULL)
        return (belay_lstm_result){0};
    belay_lstm_result result = run(module, x, h0, c0);
    bl_module_end(module, length);
    return result;
}

belay_module *belay_lstm_module(belay_context *context, const belay_lstm_module_options *options)
{
    BL_ENTER(context);
    return bl_recurrent_module_new(context, &bl_lstm_cell, &lstm_kind, options);
}
