/* SPDX-License-Identifier: Apache-2.0 */
/* Text classifiers: ids [batch, time] -> logits [batch, classes].  Id 0 is padding. */
#include <math.h>

#include "launch/launch.h"
#include "nn/module.h"
#include "nn/recurrent.h"

typedef struct classifier {
    belay_module *embedding, *lstm, *hidden, *fc;
    double dropout;
    bool mean_all;
} classifier;

/* The last layer's h after the last step, padding included. */
static belay_tensor lstm_forward(belay_module *module, belay_tensor ids)
{
    const classifier *self = belay_module_self(module);
    belay_tensor none = {0}, x = belay_forward(self->embedding, ids);
    belay_tensor h = belay_lstm_module_run(self->lstm, x, none, none).h_n;
    return belay_forward(self->fc, belay_select(h, 0, -1));
}

/* Mean over the positions whose id is not 0; a text without any gives zeros. */
static belay_tensor mean_of_tokens(belay_tensor x, belay_tensor ids)
{
    belay_context *context = belay_tensor_context(ids);
    belay_shape shape = belay_tensor_shape(ids);
    const belay_shape one = belay_shape0();
    belay_tensor zero = bl_launch_fill_like(context, ids, belay_tensor_dtype(ids), &one, 0);
    belay_tensor is_token = belay_cast(belay_ne(ids, zero), belay_tensor_dtype(x));
    belay_tensor n = belay_clamp(belay_sum(is_token, &(belay_axes){.n = 1, .axis = {1}, .keep = true}), 1, INFINITY);
    belay_tensor masked = belay_mul(x, belay_view(is_token, belay_shape3(shape.size[0], shape.size[1], 1)));
    return belay_div(belay_sum(masked, &(belay_axes){.n = 1, .axis = {1}}), n);
}

static belay_tensor mean_forward(belay_module *module, belay_tensor ids)
{
    const classifier *self = belay_module_self(module);
    belay_tensor x = belay_forward(self->embedding, ids);
    if (belay_tensor_is_nil(x))
        return x;
    if (belay_tensor_shape(ids).rank != 2) {
        belay_fault_raise(belay_tensor_context(ids), BELAY_SHAPE_RANK,
                          "a text classifier takes ids [batch, time], not %d axes", belay_tensor_shape(ids).rank);
        return (belay_tensor){0};
    }
    x = self->mean_all ? belay_mean(x, &(belay_axes){.n = 1, .axis = {1}}) : mean_of_tokens(x, ids);
    if (self->hidden != NULL)
        x = belay_tanh(belay_forward(self->hidden, x));
    return belay_forward(self->fc, belay_dropout(x, self->dropout, belay_module_training_get(module)));
}

static const belay_module_kind lstm_kind = {"classifier", sizeof(classifier), lstm_forward, NULL};
static const belay_module_kind mean_kind = {"classifier", sizeof(classifier), mean_forward, NULL};

/* Sizes with their defaults. */
static belay_text_classifier_options with_defaults(const belay_text_classifier_options *options)
{
    belay_text_classifier_options o = *options;
    o.embed = o.embed != 0 ? o.embed : 128;
    o.hidden = o.hidden != 0 ? o.hidden : 256;
    o.layers = o.layers != 0 ? o.layers : 2;
    return o;
}

static bool options_are_legal(belay_context *context, const belay_text_classifier_options *o)
{
    static const char maker[] = "text_classifier";
    if (o->model != BELAY_TEXT_LSTM && o->model != BELAY_TEXT_MEAN) {
        bl_context_raise(context, BELAY_CONF_VALUE, "model of text_classifier is %d, which is no model", (int)o->model);
        return false;
    }
    return bl_module_needs(context, maker, "n_tokens", o->n_tokens) &&
           bl_module_needs(context, maker, "classes", o->classes) &&
           bl_module_needs(context, maker, "embed", o->embed) && bl_module_needs(context, maker, "hidden", o->hidden) &&
           (o->model == BELAY_TEXT_MEAN ||
            bl_module_counts(context, maker, "layers", o->layers, BL_RECURRENT_MAX_UNITS)) &&
           bl_module_chance(context, maker, o->dropout);
}

static void add_body(belay_context *context, belay_module *module, classifier *self,
                     const belay_text_classifier_options *o)
{
    int64_t width = o->hidden;
    if (o->model == BELAY_TEXT_LSTM) {
        belay_lstm_module_options lstm = {
            .in = o->embed, .hidden = o->hidden, .layers = o->layers, .dropout = o->dropout, .dtype = o->dtype};
        self->lstm = BL_MODULE_ADD(module, "lstm", belay_lstm_module(context, &lstm));
    } else if (!o->no_hidden) {
        belay_linear_module_options hidden = {.in = o->embed, .out = o->hidden, .dtype = o->dtype};
        self->hidden = BL_MODULE_ADD(module, "hidden", belay_linear_module(context, &hidden));
    } else {
        width = o->embed;
    }
    belay_linear_module_options fc = {.in = width, .out = o->classes, .dtype = o->dtype};
    self->fc = BL_MODULE_ADD(module, "fc", belay_linear_module(context, &fc));
}

belay_module *belay_text_classifier(belay_context *context, const belay_text_classifier_options *options)
{
    static const belay_text_classifier_options none = {0};
    belay_text_classifier_options o = with_defaults(options != NULL ? options : &none);
    BL_ENTER(context);
    if (!belay_is_open(context) || !options_are_legal(context, &o))
        return bl_module_nil();
    belay_module *module = belay_module_new(context, o.model == BELAY_TEXT_LSTM ? &lstm_kind : &mean_kind);
    classifier *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->dropout = o.dropout;
    self->mean_all = o.mean_all;
    belay_embedding_module_options embedding = {.rows = o.n_tokens,
                                                .width = o.embed,
                                                .has_padding = true,
                                                .policy = o.policy,
                                                .cast_ids = o.cast_ids,
                                                .dtype = o.dtype};
    self->embedding = BL_MODULE_ADD(module, "embedding", belay_embedding_module(context, &embedding));
    add_body(context, module, self, &o);
    return bl_module_whole(module);
}
