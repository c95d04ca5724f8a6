/* SPDX-License-Identifier: Apache-2.0 */
/* The GRU's public call and its module. */
#include "base/memory.h"
#include "nn/module.h"
#include "nn/recurrent.h"

static const belay_function gru_function = {
    .name = "gru", .forward = bl_recurrent_forward, .backward = bl_recurrent_backward, .free = bl_free};

belay_gru_result belay_gru(belay_tensor x, belay_tensor h0, const belay_gru_weights *weights,
                           const belay_gru_options *options)
{
    belay_tensor out[2];
    BL_ENTER(bl_tensor_context(x));
    bl_recurrent_call(&bl_gru_cell, &gru_function, x, &h0, weights, options, out);
    return (belay_gru_result){out[0], out[1]};
}

/* ---- the module */

static belay_gru_result run(const belay_module *module, belay_tensor x, belay_tensor h0)
{
    const bl_recurrent_module *self = belay_module_self(module);
    belay_gru_options options = bl_recurrent_module_options(module);
    return belay_gru(x, h0, self->weights, &options);
}

static belay_tensor gru_forward(belay_module *module, belay_tensor x)
{
    return run(module, x, (belay_tensor){0}).output;
}

static const belay_module_kind gru_kind = {"gru", sizeof(bl_recurrent_module), gru_forward, NULL};

belay_gru_result belay_gru_module_run(belay_module *module, belay_tensor x, belay_tensor h0)
{
    size_t length = 0;
    BL_ENTER(bl_module_context(module));
    if (bl_recurrent_module_begin(module, &gru_kind, x, &length) == NULL)
        return (belay_gru_result){0};
    belay_gru_result result = run(module, x, h0);
    bl_module_end(module, length);
    return result;
}

belay_module *belay_gru_module(belay_context *context, const belay_gru_module_options *options)
{
    BL_ENTER(context);
    return bl_recurrent_module_new(context, &bl_gru_cell, &gru_kind, options);
}
