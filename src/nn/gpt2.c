/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019) under Hugging Face's names:
 * transformer.{wte, wpe, h.N, ln_f}.  The head is the token table. */
#include <inttypes.h>
#include <stdio.h>

#include "nn/heads.h"
#include "nn/transformer.h"
#include "op/op.h"

enum { MAX_LAYERS = 4096 };

/* ---- a table of rows: of tokens, of places */

typedef struct table {
    belay_tensor weight;
} table;

static belay_tensor table_forward(belay_module *module, belay_tensor ids)
{
    const table *self = belay_module_self(module);
    return belay_embedding(self->weight, ids, NULL);
}

static const belay_module_kind table_kind = {"table", sizeof(table), table_forward, NULL};

/* Its weight is registered: belay_module_self of the result is a table. */
static belay_module *table_of(belay_context *context, belay_dtype dtype, int64_t rows, int64_t width)
{
    belay_module *module = belay_module_new(context, &table_kind);
    table *self = belay_module_self(module);
    if (self != NULL)
        self->weight = belay_module_add_parameter(module, "weight", dtype, belay_shape2(rows, width),
                                                  (belay_init){BELAY_INIT_NORMAL, 0, BL_GPT2_DEVIATION});
    return module;
}

static belay_tensor weight_of(const belay_module *module)
{
    const table *self = belay_module_self(module);
    return self != NULL ? self->weight : (belay_tensor){0};
}

/* ---- the transformer: ids [batch, time] -> [batch, time, width] */

typedef struct body {
    belay_module *wte, *wpe, *h, *ln_f;
    int64_t context;
    double dropout;
} body;

static bool takes_ids(const belay_module *module, belay_tensor ids)
{
    const body *self = belay_module_self(module);
    const bl_given given = {"ids", ids};
    belay_shape shape = belay_tensor_shape(ids);
    if (shape.rank != 2)
        bl_prove_refuse(module->context, BELAY_SHAPE_RANK, "gpt2", &given, 1,
                        "gpt2 takes ids [batch, time], not %d axes", shape.rank);
    else if (shape.size[1] > self->context)
        bl_prove_refuse(module->context, BELAY_SHAPE_CONTRACT, "gpt2", &given, 1,
                        "gpt2 was given %" PRId64 " tokens in a row; its context holds %" PRId64, shape.size[1],
                        self->context);
    else
        return true;
    return false;
}

static belay_tensor body_forward(belay_module *module, belay_tensor ids)
{
    const body *self = belay_module_self(module);
    if (!takes_ids(module, ids))
        return (belay_tensor){0};
    belay_tensor places = belay_slice(weight_of(self->wpe), 0, 0, belay_tensor_shape(ids).size[1], 1);
    belay_tensor x = belay_add(belay_forward(self->wte, ids), places);
    x = belay_dropout(x, self->dropout, belay_module_training_get(module));
    return belay_forward(self->ln_f, belay_forward(self->h, x));
}

static const belay_module_kind body_kind = {"transformer", sizeof(body), body_forward, NULL};

/* Blocks named by their numbers. */
static belay_module *blocks_of(belay_context *context, const belay_gpt2_options *o)
{
    belay_module *blocks = belay_sequential_module(context);
    belay_transformer_block_module_options block = {
        .width = o->width, .heads = o->heads, .layers = o->layers, .dropout = o->dropout, .dtype = o->dtype};
    for (int64_t i = 0; i < o->layers && !belay_module_is_nil(blocks); i++) {
        char name[24];
        snprintf(name, sizeof name, "%" PRId64, i);
        BL_MODULE_ADD(blocks, name, belay_transformer_block_module(context, &block));
    }
    return blocks;
}

static belay_module *body_of(belay_context *context, const belay_gpt2_options *o)
{
    belay_module *module = belay_module_new(context, &body_kind);
    body *self = belay_module_self(module);
    if (self == NULL)
        return module;
    belay_layer_norm_module_options norm = {.width = o->width, .dtype = o->dtype};
    self->context = o->context;
    self->dropout = o->dropout;
    self->wte = BL_MODULE_ADD(module, "wte", table_of(context, o->dtype, o->vocabulary, o->width));
    self->wpe = BL_MODULE_ADD(module, "wpe", table_of(context, o->dtype, o->context, o->width));
    self->h = BL_MODULE_ADD(module, "h", blocks_of(context, o));
    self->ln_f = BL_MODULE_ADD(module, "ln_f", belay_layer_norm_module(context, &norm));
    return module;
}

/* ---- the model */

typedef struct gpt2 {
    belay_module *transformer;
} gpt2;

static belay_tensor gpt2_forward(belay_module *module, belay_tensor ids)
{
    const gpt2 *self = belay_module_self(module);
    const body *inner = belay_module_self(self->transformer);
    return belay_linear(belay_forward(self->transformer, ids), weight_of(inner->wte), (belay_tensor){0});
}

static const belay_module_kind gpt2_kind = {"gpt2", sizeof(gpt2), gpt2_forward, NULL};

static belay_gpt2_options with_defaults(const belay_gpt2_options *options)
{
    belay_gpt2_options o = options != NULL ? *options : (belay_gpt2_options){0};
    o.vocabulary = o.vocabulary != 0 ? o.vocabulary : 50257;
    o.context = o.context != 0 ? o.context : 1024;
    o.layers = o.layers != 0 ? o.layers : 12;
    o.heads = o.heads != 0 ? o.heads : 12;
    o.width = o.width != 0 ? o.width : 768;
    return o;
}

static bool options_are_legal(belay_context *context, const belay_gpt2_options *o)
{
    static const char maker[] = "gpt2";
    return bl_module_needs(context, maker, "vocabulary", o->vocabulary) &&
           bl_module_needs(context, maker, "context", o->context) &&
           bl_module_counts(context, maker, "layers", o->layers, MAX_LAYERS) &&
           bl_module_needs(context, maker, "width", o->width) &&
           bl_heads_divide(context, maker, "width", o->width, o->heads) && bl_module_chance(context, maker, o->dropout);
}

belay_module *belay_gpt2(belay_context *context, const belay_gpt2_options *options)
{
    belay_gpt2_options o = with_defaults(options);
    BL_ENTER(context);
    if (!belay_is_open(context) || !options_are_legal(context, &o))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, &gpt2_kind);
    gpt2 *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->transformer = BL_MODULE_ADD(module, "transformer", body_of(context, &o));
    return bl_module_whole(module);
}
