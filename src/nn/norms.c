/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that normalise, beside layer_norm: parameters and buffers under PyTorch's names. */
#include "nn/module.h"
#include "op/batch_norm.h"

static const belay_init ones = {BELAY_INIT_CONSTANT, 1, 0};

/* ---- rms_norm */

typedef struct rms_norm {
    belay_tensor weight;
    double eps;
} rms_norm;

static belay_tensor rms_norm_forward(belay_module *module, belay_tensor x)
{
    const rms_norm *self = belay_module_self(module);
    return belay_rms_norm(x, 1, self->weight, self->eps);
}

static const belay_module_kind rms_norm_kind = {"rms_norm", sizeof(rms_norm), rms_norm_forward, NULL};

belay_module *belay_rms_norm_module(belay_context *context, const belay_rms_norm_module_options *options)
{
    static const belay_rms_norm_module_options none = {0};
    const belay_rms_norm_module_options *o = options != NULL ? options : &none;
    BL_ENTER(context);
    if (!belay_is_open(context) || !bl_module_needs(context, "rms_norm", "width", o->width))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &rms_norm_kind);
    rms_norm *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->eps = o->eps;
    if (!o->no_affine)
        self->weight = belay_module_add_parameter(module, "weight", o->dtype, belay_shape1(o->width), ones);
    return bl_module_whole(module);
}

/* ---- batch_norm */

typedef struct batch_norm {
    belay_tensor weight, bias, running_mean, running_var;
    belay_batch_norm_options options;
} batch_norm;

/* A parameter that an optimizer has: of the module or below it. */
static belay_tensor stepped_in(const belay_module *module)
{
    belay_tensor found = {0};
    for (int64_t i = 0; i < module->parameters.n && belay_tensor_is_nil(found); i++)
        if (bl_op_is_stepped(module->context, module->parameters.entry[i].tensor))
            found = module->parameters.entry[i].tensor;
    for (int64_t i = 0; i < module->n_children && belay_tensor_is_nil(found); i++)
        found = stepped_in(module->child[i]);
    return found;
}

/* The same of the nearest module around it that has one. */
static belay_tensor stepped_around(const belay_module *module)
{
    belay_tensor found = {0};
    for (; module != NULL && belay_tensor_is_nil(found); module = module->parent)
        found = stepped_in(module);
    return found;
}

static belay_tensor batch_norm_forward(belay_module *module, belay_tensor x)
{
    const batch_norm *self = belay_module_self(module);
    belay_batch_norm_options options = self->options;
    options.training = belay_module_training_get(module);
    belay_tensor around = options.training ? stepped_around(module) : (belay_tensor){0};
    return bl_op_batch_norm(x, self->running_mean, self->running_var, self->weight, self->bias, &options, around);
}

static const belay_module_kind batch_norm_kind = {"batch_norm", sizeof(batch_norm), batch_norm_forward, NULL};

static bool numbers_are_legal(belay_context *context, const belay_batch_norm_module_options *o)
{
    if (!(o->momentum >= 0 && o->momentum <= 1)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "momentum of batch_norm is %g, outside [0, 1]",
                         bl_text_real(o->momentum));
        return false;
    }
    if (o->no_momentum && (o->momentum > 0 || o->cumulative)) {
        bl_context_raise(context, BELAY_CONF_CONFLICT, "batch_norm was asked for no momentum, and for %s",
                         o->cumulative ? "cumulative statistics" : "one");
        return false;
    }
    if (o->cumulative && o->no_tracking) {
        bl_context_raise(context, BELAY_CONF_CONFLICT,
                         "batch_norm was asked for running statistics that are cumulative, and for none");
        return false;
    }
    return true;
}

static void add_buffers(belay_module *module, batch_norm *self, const belay_batch_norm_module_options *o)
{
    belay_context *context = belay_module_context(module);
    belay_shape shape = belay_shape1(o->channels);
    self->running_mean = belay_module_add_buffer(module, "running_mean", belay_zeros(context, o->dtype, shape));
    if (!belay_module_is_nil(module))
        self->running_var = belay_module_add_buffer(module, "running_var", belay_ones(context, o->dtype, shape));
    if (!belay_module_is_nil(module))
        self->options.n_tracked =
            belay_module_add_buffer(module, "num_batches_tracked", belay_zeros(context, BELAY_I64, belay_shape0()));
}

belay_module *belay_batch_norm_module(belay_context *context, const belay_batch_norm_module_options *options)
{
    static const belay_batch_norm_module_options none = {0};
    const belay_batch_norm_module_options *o = options != NULL ? options : &none;
    BL_ENTER(context);
    if (!belay_is_open(context) || !bl_module_needs(context, "batch_norm", "channels", o->channels) ||
        !numbers_are_legal(context, o))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &batch_norm_kind);
    batch_norm *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->options = (belay_batch_norm_options){
        .momentum = o->momentum, .no_momentum = o->no_momentum, .cumulative = o->cumulative, .eps = o->eps};
    if (!o->no_affine) {
        belay_shape shape = belay_shape1(o->channels);
        self->weight = belay_module_add_parameter(module, "weight", o->dtype, shape, ones);
        self->bias = belay_module_add_parameter(module, "bias", o->dtype, shape, (belay_init){BELAY_INIT_ZEROS, 0, 0});
    }
    if (!o->no_tracking && !belay_module_is_nil(module))
        add_buffers(module, self, o);
    return bl_module_whole(module);
}
