/* SPDX-License-Identifier: Apache-2.0 */
/* What the modules of recurrent layers share: parameters under PyTorch's names, options, runs. */
#include <math.h>
#include <stdio.h>

#include "nn/module.h"
#include "nn/recurrent.h"

/* "weight_ih_l0", "weight_ih_l0_reverse" and their fellows. */
static belay_tensor add(belay_module *module, const char *name, int layer, bool is_reverse, belay_dtype dtype,
                        belay_shape shape, belay_init init)
{
    char numbered[48];
    snprintf(numbered, sizeof numbered, "%s_l%d%s", name, layer, is_reverse ? "_reverse" : "");
    return belay_module_add_parameter(module, numbered, dtype, shape, init);
}

static void add_unit(belay_module *module, const bl_recurrent_cell *cell, int layer, bool is_reverse,
                     const belay_recurrent_module_options *o, belay_recurrent_weights *w)
{
    int64_t sums = cell->n_gates * o->hidden;
    int64_t width = layer == 0 ? o->in : o->bidirectional ? 2 * o->hidden : o->hidden;
    double bound = 1 / sqrt((double)o->hidden);
    belay_init init = {BELAY_INIT_UNIFORM, -bound, bound};
    w->ih = add(module, "weight_ih", layer, is_reverse, o->dtype, belay_shape2(sums, width), init);
    w->hh = add(module, "weight_hh", layer, is_reverse, o->dtype, belay_shape2(sums, o->hidden), init);
    if (o->no_bias)
        return;
    w->bias_ih = add(module, "bias_ih", layer, is_reverse, o->dtype, belay_shape1(sums), init);
    w->bias_hh = add(module, "bias_hh", layer, is_reverse, o->dtype, belay_shape1(sums), init);
}

static bool options_are_legal(belay_context *context, const bl_recurrent_cell *cell,
                              const belay_recurrent_module_options *o)
{
    static const char *const times[] = {"", "", "", "three", "four"};
    const int most = o->bidirectional ? BL_RECURRENT_MAX_UNITS / 2 : BL_RECURRENT_MAX_UNITS;
    if (!bl_module_needs(context, cell->name, "in", o->in) ||
        !bl_module_needs(context, cell->name, "hidden", o->hidden) ||
        !bl_module_chance(context, cell->name, o->dropout))
        return false;
    if (o->hidden > INT64_MAX / cell->n_gates) {
        bl_context_raise(context, BELAY_SIZE_OVERFLOW, "hidden of %s is %lld: %s times that is above 2^63 - 1",
                         cell->name, (long long)o->hidden, times[cell->n_gates]);
        return false;
    }
    if (o->layers >= 0 && o->layers <= most)
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE, "layers of %s is %d, outside [1, %d]%s", cell->name, o->layers, most,
                     o->bidirectional ? " in both directions" : "");
    return false;
}

belay_module *bl_recurrent_module_new(belay_context *context, const bl_recurrent_cell *cell,
                                      const belay_module_kind *kind, const belay_recurrent_module_options *options)
{
    static const belay_recurrent_module_options none = {0};
    const belay_recurrent_module_options *o = options != NULL ? options : &none;
    if (!belay_is_open(context) || !options_are_legal(context, cell, o))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, kind);
    bl_recurrent_module *self = belay_module_self(module);
    if (self == NULL)
        return module;
    int layers = o->layers != 0 ? o->layers : 1, directions = o->bidirectional ? 2 : 1;
    self->options =
        (belay_recurrent_options){.layers = layers, .dropout = o->dropout, .bidirectional = o->bidirectional};
    for (int unit = 0; unit < layers * directions; unit++)
        add_unit(module, cell, unit / directions, unit % directions == 1, o, &self->weights[unit]);
    return bl_module_whole(module);
}

belay_recurrent_options bl_recurrent_module_options(const belay_module *module)
{
    const bl_recurrent_module *self = belay_module_self(module);
    belay_recurrent_options options = self->options;
    options.training = belay_module_training_get(module);
    return options;
}

const bl_recurrent_module *bl_recurrent_module_begin(belay_module *module, const belay_module_kind *kind,
                                                     belay_tensor x, size_t *length)
{
    if (bl_module_use(module) == NULL || belay_tensor_is_nil(x))
        return NULL;
    if (module->kind != kind) {
        bl_context_raise(module->context, BELAY_CONF_VALUE, "module %s is no %s", belay_module_name(module),
                         kind->name);
        return NULL;
    }
    return bl_module_begin(module, length) ? belay_module_self(module) : NULL;
}
