/* SPDX-License-Identifier: Apache-2.0 */
/* A pre-norm decoder block under GPT-2's names: x + attn(ln_1(x)), then + mlp(ln_2(x)).  Its projections keep their
 * weights as [in, out], the way Hugging Face's files of GPT-2 do. */
#include "nn/transformer.h"

#include <inttypes.h>
#include <math.h>

#include "nn/heads.h"
#include "op/op.h"

/* ---- projection with a weight [in, out] */

typedef struct projection {
    belay_tensor weight, bias;
} projection;

/* All rows as one matrix: one large product. */
static belay_tensor projection_forward(belay_module *module, belay_tensor x)
{
    const projection *self = belay_module_self(module);
    belay_shape shape = belay_tensor_shape(x), rows;
    if (shape.rank < 1 || !bl_op_fold(module->context, &shape, shape.rank - 1, shape.rank, &rows))
        return (belay_tensor){0};
    belay_tensor y = belay_matmul(belay_view(x, belay_shape2(rows.size[0], rows.size[1])), self->weight);
    if (belay_tensor_is_nil(y))
        return y;
    shape.size[shape.rank - 1] = belay_tensor_shape(y).size[1];
    return belay_view(belay_add(y, self->bias), shape);
}

static const belay_module_kind projection_kind = {"projection", sizeof(projection), projection_forward, NULL};

static belay_module *project(belay_context *context, belay_dtype dtype, int64_t in, int64_t out, double deviation)
{
    belay_module *module = belay_module_new(context, &projection_kind);
    projection *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->weight = belay_module_add_parameter(module, "weight", dtype, belay_shape2(in, out),
                                              (belay_init){BELAY_INIT_NORMAL, 0, deviation});
    self->bias = belay_module_add_parameter(module, "bias", dtype, belay_shape1(out), (belay_init){0});
    return module;
}

/* ---- attention and the two layers behind it */

typedef struct branch {
    belay_module *first, *second;
    int64_t heads;
    double dropout; /* of probabilities */
} branch;

static belay_tensor attn_forward(belay_module *module, belay_tensor x)
{
    const branch *self = belay_module_self(module);
    if (!bl_heads_takes(module, x))
        return (belay_tensor){0};
    bl_heads h = bl_heads_split(belay_forward(self->first, x), self->heads);
    double dropout = belay_module_training_get(module) ? self->dropout : 0;
    belay_tensor y = belay_attention(h.q, h.k, h.v, &(belay_attention_options){.causal = true, .dropout = dropout});
    return belay_forward(self->second, bl_heads_merge(y));
}

static belay_tensor mlp_forward(belay_module *module, belay_tensor x)
{
    const branch *self = belay_module_self(module);
    return belay_forward(self->second, belay_gelu_tanh(belay_forward(self->first, x)));
}

static const belay_module_kind attn_kind = {"attn", sizeof(branch), attn_forward, NULL};
static const belay_module_kind mlp_kind = {"mlp", sizeof(branch), mlp_forward, NULL};

/* Two projections, width to `inner` and `back` to width; the second starts smaller, by the number of residual sums. */
static belay_module *branch_of(belay_context *context, const belay_module_kind *kind,
                               const belay_transformer_block_module_options *o, const char *first, int64_t inner,
                               int64_t back)
{
    belay_module *module = belay_module_new(context, kind);
    branch *self = belay_module_self(module);
    if (self == NULL)
        return module;
    double layers = (double)(o->layers != 0 ? o->layers : 1);
    self->heads = o->heads;
    self->dropout = o->dropout;
    self->first = BL_MODULE_ADD(module, first, project(context, o->dtype, o->width, inner, BL_GPT2_DEVIATION));
    self->second = BL_MODULE_ADD(module, "c_proj",
                                 project(context, o->dtype, back, o->width, BL_GPT2_DEVIATION / sqrt(2 * layers)));
    return module;
}

/* ---- the block */

typedef struct block {
    belay_module *ln_1, *attn, *ln_2, *mlp;
    double dropout;
} block;

static belay_tensor block_forward(belay_module *module, belay_tensor x)
{
    const block *self = belay_module_self(module);
    bool drops = belay_module_training_get(module);
    belay_tensor y = belay_forward(self->attn, belay_forward(self->ln_1, x));
    x = belay_add(x, belay_dropout(y, self->dropout, drops));
    y = belay_forward(self->mlp, belay_forward(self->ln_2, x));
    return belay_add(x, belay_dropout(y, self->dropout, drops));
}

static const belay_module_kind block_kind = {"transformer_block", sizeof(block), block_forward, NULL};

static bool options_are_legal(belay_context *context, const belay_transformer_block_module_options *o)
{
    static const char maker[] = "transformer_block";
    if (!bl_module_needs(context, maker, "width", o->width) ||
        !bl_heads_divide(context, maker, "width", o->width, o->heads) ||
        !bl_module_chance(context, maker, o->dropout) ||
        (o->layers != 0 && !bl_module_needs(context, maker, "layers", o->layers)) ||
        (o->hidden != 0 && !bl_module_needs(context, maker, "hidden", o->hidden)))
        return false;
    if (o->width <= INT64_MAX / 4)
        return true;
    bl_context_raise(context, BELAY_SIZE_OVERFLOW, "width of %s is %" PRId64 ": four times that is above 2^63 - 1",
                     maker, o->width);
    return false;
}

belay_module *belay_transformer_block_module(belay_context *context,
                                             const belay_transformer_block_module_options *options)
{
    static const belay_transformer_block_module_options none = {0};
    const belay_transformer_block_module_options *o = options != NULL ? options : &none;
    BL_ENTER(context);
    if (!belay_is_open(context) || !options_are_legal(context, o))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &block_kind);
    block *self = belay_module_self(module);
    if (self == NULL)
        return module;
    belay_layer_norm_module_options norm = {.width = o->width, .eps = o->eps, .dtype = o->dtype};
    int64_t hidden = o->hidden != 0 ? o->hidden : 4 * o->width;
    self->dropout = o->dropout;
    self->ln_1 = BL_MODULE_ADD(module, "ln_1", belay_layer_norm_module(context, &norm));
    self->attn = BL_MODULE_ADD(module, "attn", branch_of(context, &attn_kind, o, "c_attn", 3 * o->width, o->width));
    self->ln_2 = BL_MODULE_ADD(module, "ln_2", belay_layer_norm_module(context, &norm));
    self->mlp = BL_MODULE_ADD(module, "mlp", branch_of(context, &mlp_kind, o, "c_fc", hidden, hidden));
    return bl_module_whole(module);
}
