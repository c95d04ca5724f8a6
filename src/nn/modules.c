/* SPDX-License-Identifier: Apache-2.0 */
/* The small modules: each is its struct, its forward and its maker, first values as PyTorch's defaults. */
#include <math.h>
#include <stdio.h>

#include "launch/launch.h"
#include "nn/module.h"

/* U(-1/sqrt(n), 1/sqrt(n)): what kaiming_uniform with a = sqrt(5) comes to. */
static belay_init uniform_over(int64_t n)
{
    double bound = 1 / sqrt((double)n);
    return (belay_init){BELAY_INIT_UNIFORM, -bound, bound};
}

/* ---- embedding */

typedef struct embedding {
    belay_tensor weight;
    belay_embedding_options options;
} embedding;

static belay_tensor embedding_forward(belay_module *module, belay_tensor ids)
{
    const embedding *self = belay_module_self(module);
    return belay_embedding(self->weight, ids, &self->options);
}

static const belay_module_kind embedding_kind = {"embedding", sizeof(embedding), embedding_forward, NULL};

/* Row `row` of the table becomes zeros. */
static bool zero_row(belay_context *context, belay_tensor weight, int64_t row)
{
    belay_shape shape = belay_tensor_shape(weight);
    int64_t stride[BELAY_MAX_RANK] = {1};
    belay_shape width = belay_shape1(shape.size[1]);
    belay_tensor place = bl_tensor_view(context, weight, &width, stride, row * shape.size[1]);
    bl_call call = {.context = context, .op = BL_OP_fill, .dtype = belay_tensor_dtype(weight), .shape = width};
    call.into = place;
    bool done = !belay_tensor_is_nil(place) && bl_launch_run(&call);
    bl_tensor_drop(context, place);
    return done;
}

belay_module *belay_embedding_module(belay_context *context, const belay_embedding_module_options *options)
{
    static const belay_embedding_module_options none = {0};
    const belay_embedding_module_options *o = options != NULL ? options : &none;
    BL_ENTER(context);
    if (!belay_is_open(context) || !bl_module_needs(context, "embedding", "rows", o->rows) ||
        !bl_module_needs(context, "embedding", "width", o->width))
        return bl_module_nil();
    if (o->has_padding && (o->padding < 0 || o->padding >= o->rows)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "padding of embedding is %lld, outside [0, %lld)",
                         (long long)o->padding, (long long)o->rows);
        return bl_module_nil();
    }
    belay_module *module = belay_module_new(context, &embedding_kind);
    embedding *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->options = (belay_embedding_options){o->has_padding, o->padding, o->policy, o->cast_ids};
    self->weight = belay_module_add_parameter(module, "weight", o->dtype, belay_shape2(o->rows, o->width),
                                              (belay_init){BELAY_INIT_NORMAL, 0, 1});
    if (o->has_padding && !belay_module_is_nil(module) && !zero_row(context, self->weight, o->padding))
        module->is_broken = true;
    return bl_module_whole(module);
}

/* ---- linear */

typedef struct linear {
    belay_tensor weight, bias;
} linear;

static belay_tensor linear_forward(belay_module *module, belay_tensor x)
{
    const linear *self = belay_module_self(module);
    return belay_linear(x, self->weight, self->bias);
}

static const belay_module_kind linear_kind = {"linear", sizeof(linear), linear_forward, NULL};

belay_module *belay_linear_module(belay_context *context, const belay_linear_module_options *options)
{
    static const belay_linear_module_options none = {0};
    const belay_linear_module_options *o = options != NULL ? options : &none;
    BL_ENTER(context);
    if (!belay_is_open(context) || !bl_module_needs(context, "linear", "in", o->in) ||
        !bl_module_needs(context, "linear", "out", o->out))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &linear_kind);
    linear *self = belay_module_self(module);
    if (self == NULL)
        return module;
    belay_init init = uniform_over(o->in);
    self->weight = belay_module_add_parameter(module, "weight", o->dtype, belay_shape2(o->out, o->in), init);
    if (!o->no_bias)
        self->bias = belay_module_add_parameter(module, "bias", o->dtype, belay_shape1(o->out), init);
    return bl_module_whole(module);
}

/* ---- layer_norm */

typedef struct layer_norm {
    belay_tensor weight, bias;
    double eps;
} layer_norm;

static belay_tensor layer_norm_forward(belay_module *module, belay_tensor x)
{
    const layer_norm *self = belay_module_self(module);
    return belay_layer_norm(x, 1, self->weight, self->bias, self->eps);
}

static const belay_module_kind layer_norm_kind = {"layer_norm", sizeof(layer_norm), layer_norm_forward, NULL};

belay_module *belay_layer_norm_module(belay_context *context, const belay_layer_norm_module_options *options)
{
    static const belay_layer_norm_module_options none = {0};
    const belay_layer_norm_module_options *o = options != NULL ? options : &none;
    BL_ENTER(context);
    if (!belay_is_open(context) || !bl_module_needs(context, "layer_norm", "width", o->width))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &layer_norm_kind);
    layer_norm *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->eps = o->eps;
    if (!o->no_affine) {
        belay_shape shape = belay_shape1(o->width);
        self->weight =
            belay_module_add_parameter(module, "weight", o->dtype, shape, (belay_init){BELAY_INIT_CONSTANT, 1, 0});
        self->bias = belay_module_add_parameter(module, "bias", o->dtype, shape, (belay_init){BELAY_INIT_ZEROS, 0, 0});
    }
    return bl_module_whole(module);
}

/* ---- dropout */

typedef struct dropout {
    double p;
} dropout;

static belay_tensor dropout_forward(belay_module *module, belay_tensor x)
{
    const dropout *self = belay_module_self(module);
    return belay_dropout(x, self->p, belay_module_training_get(module));
}

static const belay_module_kind dropout_kind = {"dropout", sizeof(dropout), dropout_forward, NULL};

belay_module *belay_dropout_module(belay_context *context, double p)
{
    BL_ENTER(context);
    if (!belay_is_open(context) || !bl_module_chance(context, "dropout", p))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &dropout_kind);
    dropout *self = belay_module_self(module);
    if (self != NULL)
        self->p = p;
    return module;
}

/* ---- map */

typedef struct map {
    belay_tensor (*map)(belay_tensor x);
} map;

static belay_tensor map_forward(belay_module *module, belay_tensor x)
{
    const map *self = belay_module_self(module);
    return self->map(x);
}

static const belay_module_kind map_kind = {"map", sizeof(map), map_forward, NULL};

belay_module *belay_map_module(belay_context *context, belay_tensor (*function)(belay_tensor x))
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return bl_module_nil();
    if (function == NULL) {
        bl_context_raise(context, BELAY_CONF_VALUE, "a map module was made without its function");
        return bl_module_nil();
    }
    belay_module *module = belay_module_new(context, &map_kind);
    map *self = belay_module_self(module);
    if (self != NULL)
        self->map = function;
    return module;
}

/* ---- sequential and what is built on it */

static belay_tensor sequential_forward(belay_module *module, belay_tensor x)
{
    for (int64_t i = 0; i < module->n_children; i++)
        x = belay_forward(module->child[i], x);
    return x;
}

static const belay_module_kind sequential_kind = {"sequential", 0, sequential_forward, NULL};
static const belay_module_kind mlp_kind = {"mlp", 0, sequential_forward, NULL};

belay_module *belay_sequential_module(belay_context *context)
{
    BL_ENTER(context);
    return belay_module_new(context, &sequential_kind);
}

/* Appends under the next number. */
static void append(belay_module *module, belay_module *child)
{
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)module->n_children);
    belay_module_add_child(module, name, child);
}

belay_module *belay_mlp(belay_context *context, const belay_mlp_options *options)
{
    static const belay_mlp_options none = {0};
    const belay_mlp_options *o = options != NULL ? options : &none;
    int n = 0;
    BL_ENTER(context);
    while (n < BL_COUNT(o->sizes) && o->sizes[n] != 0)
        n++;
    if (!belay_is_open(context) || !bl_module_needs(context, "mlp", "sizes[0]", o->sizes[0]) ||
        !bl_module_needs(context, "mlp", "sizes[1]", o->sizes[1]) || !bl_module_chance(context, "mlp", o->dropout))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &mlp_kind);
    for (int i = 0; i + 1 < n; i++) {
        append(module, belay_linear_module(context, &(belay_linear_module_options){
                                                        .in = o->sizes[i], .out = o->sizes[i + 1], .dtype = o->dtype}));
        if (i + 2 == n || belay_module_is_nil(module))
            break;
        append(module, belay_map_module(context, o->map != NULL ? o->map : belay_relu));
        if (o->dropout > 0)
            append(module, belay_dropout_module(context, o->dropout));
    }
    return bl_module_whole(module);
}
