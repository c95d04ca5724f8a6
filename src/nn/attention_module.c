/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention under PyTorch's names: one table of three projections, heads, one projection back. */
#include <inttypes.h>
#include <math.h>

#include "nn/heads.h"
#include "op/op.h"

/* The projection back; as nn.Linear, but its bias starts as zeros. */
typedef struct projection {
    belay_tensor weight, bias;
} projection;

static belay_tensor projection_forward(belay_module *module, belay_tensor x)
{
    const projection *self = belay_module_self(module);
    return belay_linear(x, self->weight, self->bias);
}

static const belay_module_kind projection_kind = {"projection", sizeof(projection), projection_forward, NULL};

typedef struct attention {
    belay_tensor weight, bias; /* [3 embed, embed], [3 embed] */
    belay_module *out;
    int64_t embed, heads;
    bool causal;
    double dropout;
} attention;

static belay_tensor attend(const belay_module *module, belay_tensor q, belay_tensor k, belay_tensor v)
{
    const attention *self = belay_module_self(module);
    double dropout = belay_module_training_get(module) ? self->dropout : 0;
    belay_tensor y = belay_attention(q, k, v, &(belay_attention_options){.causal = self->causal, .dropout = dropout});
    return belay_forward(self->out, bl_heads_merge(y));
}

static belay_tensor attention_forward(belay_module *module, belay_tensor x)
{
    const attention *self = belay_module_self(module);
    if (!bl_heads_takes(module, x))
        return (belay_tensor){0};
    bl_heads h = bl_heads_split(belay_linear(x, self->weight, self->bias), self->heads);
    return attend(module, h.q, h.k, h.v);
}

static const belay_module_kind attention_kind = {"multihead_attention", sizeof(attention), attention_forward, NULL};

/* Projection number `part` of the table, in heads. */
static belay_tensor projected(const attention *self, belay_tensor x, int64_t part)
{
    int64_t begin = part * self->embed, end = begin + self->embed;
    belay_tensor weight = belay_slice(self->weight, 0, begin, end, 1), bias = self->bias;
    if (!belay_tensor_is_nil(bias))
        bias = belay_slice(bias, 0, begin, end, 1);
    return bl_heads_of(belay_linear(x, weight, bias), self->heads);
}

belay_tensor belay_multihead_attention_module_run(belay_module *module, belay_tensor query, belay_tensor key,
                                                  belay_tensor value)
{
    size_t length = 0;
    belay_tensor y = {0};
    const belay_tensor given[] = {query, key, value};
    BL_ENTER(bl_module_context(module));
    if (bl_module_use(module) == NULL)
        return y;
    for (int i = 0; i < 3; i++)
        if (belay_tensor_is_nil(given[i]))
            return y;
    if (module->kind != &attention_kind) {
        bl_context_raise(module->context, BELAY_CONF_VALUE, "module %s is no multihead_attention",
                         belay_module_name(module));
        return y;
    }
    if (!bl_module_begin(module, &length))
        return y;
    const attention *self = belay_module_self(module);
    if (bl_heads_takes(module, query) && bl_heads_takes(module, key) && bl_heads_takes(module, value))
        y = attend(module, projected(self, query, 0), projected(self, key, 1), projected(self, value, 2));
    bl_module_end(module, length);
    return y;
}

static belay_module *projection_back(belay_context *context, const belay_multihead_attention_module_options *o)
{
    belay_module *module = belay_module_new(context, &projection_kind);
    projection *self = belay_module_self(module);
    double bound = 1 / sqrt((double)o->embed);
    if (self == NULL)
        return module;
    self->weight = belay_module_add_parameter(module, "weight", o->dtype, belay_shape2(o->embed, o->embed),
                                              (belay_init){BELAY_INIT_UNIFORM, -bound, bound});
    if (!o->no_bias)
        self->bias = belay_module_add_parameter(module, "bias", o->dtype, belay_shape1(o->embed), (belay_init){0});
    return module;
}

static bool options_are_legal(belay_context *context, const belay_multihead_attention_module_options *o)
{
    static const char maker[] = "multihead_attention";
    if (!bl_module_needs(context, maker, "embed", o->embed) ||
        !bl_heads_divide(context, maker, "embed", o->embed, o->heads) || !bl_module_chance(context, maker, o->dropout))
        return false;
    if (o->embed <= INT64_MAX / 3)
        return true;
    bl_context_raise(context, BELAY_SIZE_OVERFLOW, "embed of %s is %" PRId64 ": three times that is above 2^63 - 1",
                     maker, o->embed);
    return false;
}

belay_module *belay_multihead_attention_module(belay_context *context,
                                               const belay_multihead_attention_module_options *options)
{
    static const belay_multihead_attention_module_options none = {0};
    const belay_multihead_attention_module_options *o = options != NULL ? options : &none;
    BL_ENTER(context);
    if (!belay_is_open(context) || !options_are_legal(context, o))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &attention_kind);
    attention *self = belay_module_self(module);
    if (self == NULL)
        return module;
    double bound = sqrt(6 / (4 * (double)o->embed)); /* Xavier's over [3 embed, embed] */
    self->embed = o->embed;
    self->heads = o->heads;
    self->causal = o->causal;
    self->dropout = o->dropout;
    self->weight = belay_module_add_parameter(module, "in_proj_weight", o->dtype, belay_shape2(3 * o->embed, o->embed),
                                              (belay_init){BELAY_INIT_UNIFORM, -bound, bound});
    if (!o->no_bias)
        self->bias =
            belay_module_add_parameter(module, "in_proj_bias", o->dtype, belay_shape1(3 * o->embed), (belay_init){0});
    self->out = BL_MODULE_ADD(module, "out_proj", projection_back(context, o));
    return bl_module_whole(module);
}
