/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and pools as modules, first values as PyTorch's. */
#include <math.h>

#include "base/checked.h"
#include "nn/module.h"

/* ---- convolutions */

typedef struct conv {
    belay_tensor weight, bias;
    belay_conv_options options;
} conv;

static belay_tensor conv1d_forward(belay_module *module, belay_tensor x)
{
    const conv *self = belay_module_self(module);
    return belay_conv1d(x, self->weight, self->bias, &self->options);
}

static belay_tensor conv2d_forward(belay_module *module, belay_tensor x)
{
    const conv *self = belay_module_self(module);
    return belay_conv2d(x, self->weight, self->bias, &self->options);
}

static const belay_module_kind conv1d_kind = {"conv1d", sizeof(conv), conv1d_forward, NULL};
static const belay_module_kind conv2d_kind = {"conv2d", sizeof(conv), conv2d_forward, NULL};

/* False after conf.value: `field` of the first n axes is at least `least`. */
static bool axes_are_legal(belay_context *context, const char *maker, const char *field, const int64_t *value, int n,
                           int64_t least)
{
    for (int k = 0; k < n; k++)
        if (value[k] < least) {
            bl_context_raise(context, BELAY_CONF_VALUE, "%s[%d] of %s is %lld: it must be at least %lld", field, k,
                             maker, (long long)value[k], (long long)least);
            return false;
        }
    return true;
}

static bool groups_are_legal(belay_context *context, const char *maker, const belay_conv_module_options *o)
{
    if (o->groups == 0 || (o->groups > 0 && o->in % o->groups == 0 && o->out % o->groups == 0))
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE,
                     o->groups < 0 ? "groups of %s is %lld: it must be at least 0"
                                   : "groups of %s is %lld, which does not divide %lld channels in and %lld out",
                     maker, (long long)o->groups, (long long)o->in, (long long)o->out);
    return false;
}

static bool conv_is_legal(belay_context *context, const char *maker, int n, const belay_conv_module_options *o)
{
    return bl_module_needs(context, maker, "in", o->in) && bl_module_needs(context, maker, "out", o->out) &&
           axes_are_legal(context, maker, "kernel", o->kernel, n, 1) &&
           axes_are_legal(context, maker, "stride", o->stride, n, 0) &&
           axes_are_legal(context, maker, "padding", o->padding, n, 0) &&
           axes_are_legal(context, maker, "dilation", o->dilation, n, 0) && groups_are_legal(context, maker, o);
}

/* The maker of both: n axes slide. */
static belay_module *make_conv(belay_context *context, const belay_module_kind *kind, int n,
                               const belay_conv_module_options *options)
{
    static const belay_conv_module_options none = {0};
    const belay_conv_module_options *o = options != NULL ? options : &none;
    if (!belay_is_open(context) || !conv_is_legal(context, kind->name, n, o))
        return bl_module_nil();
    const int64_t groups = o->groups != 0 ? o->groups : 1, in = o->in / groups;
    const int64_t taps[] = {in, o->kernel[0], n == 2 ? o->kernel[1] : 1};
    int64_t fan_in;
    if (!bl_checked_product(taps, 3, &fan_in)) {
        bl_context_raise(context, BELAY_SIZE_OVERFLOW, "in of %s times its kernel is above 2^63 - 1", kind->name);
        return bl_module_nil();
    }
    belay_module *module = belay_module_new(context, kind);
    conv *self = belay_module_self(module);
    if (self == NULL)
        return module;
    for (int k = 0; k < n; k++) {
        self->options.stride[k] = o->stride[k];
        self->options.padding[k] = o->padding[k];
        self->options.dilation[k] = o->dilation[k];
    }
    self->options.groups = groups;
    double bound = 1 / sqrt((double)fan_in); /* what kaiming_uniform with a = sqrt(5) comes to */
    belay_init init = {BELAY_INIT_UNIFORM, -bound, bound};
    belay_shape shape = {2 + n, {o->out, in, o->kernel[0], o->kernel[1]}};
    self->weight = belay_module_add_parameter(module, "weight", o->dtype, shape, init);
    if (!o->no_bias)
        self->bias = belay_module_add_parameter(module, "bias", o->dtype, belay_shape1(o->out), init);
    return bl_module_whole(module);
}

belay_module *belay_conv1d_module(belay_context *context, const belay_conv_module_options *options)
{
    BL_ENTER(context);
    return make_conv(context, &conv1d_kind, 1, options);
}

belay_module *belay_conv2d_module(belay_context *context, const belay_conv_module_options *options)
{
    BL_ENTER(context);
    return make_conv(context, &conv2d_kind, 2, options);
}

/* ---- pools */

typedef struct pool {
    belay_pool_options options;
} pool;

static const belay_pool_options *options_of(const belay_module *module)
{
    const pool *self = belay_module_self(module);
    return &self->options;
}

static belay_tensor max_pool1d_forward(belay_module *module, belay_tensor x)
{
    return belay_max_pool1d(x, options_of(module), NULL);
}
static belay_tensor max_pool2d_forward(belay_module *module, belay_tensor x)
{
    return belay_max_pool2d(x, options_of(module), NULL);
}
static belay_tensor avg_pool1d_forward(belay_module *module, belay_tensor x)
{
    return belay_avg_pool1d(x, options_of(module));
}
static belay_tensor avg_pool2d_forward(belay_module *module, belay_tensor x)
{
    return belay_avg_pool2d(x, options_of(module));
}

static const belay_module_kind max_pool1d_kind = {"max_pool1d", sizeof(pool), max_pool1d_forward, NULL};
static const belay_module_kind max_pool2d_kind = {"max_pool2d", sizeof(pool), max_pool2d_forward, NULL};
static const belay_module_kind avg_pool1d_kind = {"avg_pool1d", sizeof(pool), avg_pool1d_forward, NULL};
static const belay_module_kind avg_pool2d_kind = {"avg_pool2d", sizeof(pool), avg_pool2d_forward, NULL};

static bool padding_is_legal(belay_context *context, const char *maker, int n, const belay_pool_options *o)
{
    for (int k = 0; k < n; k++)
        if (o->padding[k] > o->kernel[k] / 2) {
            bl_context_raise(context, BELAY_CONF_VALUE, "padding[%d] of %s is %lld, above half of its kernel of %lld",
                             k, maker, (long long)o->padding[k], (long long)o->kernel[k]);
            return false;
        }
    return true;
}

static belay_module *make_pool(belay_context *context, const belay_module_kind *kind, int n,
                               const belay_pool_options *options)
{
    static const belay_pool_options none = {{0}, {0}, {0}, false};
    const belay_pool_options *o = options != NULL ? options : &none;
    if (!belay_is_open(context) || !axes_are_legal(context, kind->name, "kernel", o->kernel, n, 1) ||
        !axes_are_legal(context, kind->name, "stride", o->stride, n, 0) ||
        !axes_are_legal(context, kind->name, "padding", o->padding, n, 0) ||
        !padding_is_legal(context, kind->name, n, o))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, kind);
    pool *self = belay_module_self(module);
    if (self != NULL)
        self->options = *o;
    return module;
}

belay_module *belay_max_pool1d_module(belay_context *context, const belay_pool_options *options)
{
    BL_ENTER(context);
    return make_pool(context, &max_pool1d_kind, 1, options);
}

belay_module *belay_max_pool2d_module(belay_context *context, const belay_pool_options *options)
{
    BL_ENTER(context);
    return make_pool(context, &max_pool2d_kind, 2, options);
}

belay_module *belay_avg_pool1d_module(belay_context *context, const belay_pool_options *options)
{
    BL_ENTER(context);
    return make_pool(context, &avg_pool1d_kind, 1, options);
}

belay_module *belay_avg_pool2d_module(belay_context *context, const belay_pool_options *options)
{
    BL_ENTER(context);
    return make_pool(context, &avg_pool2d_kind, 2, options);
}
