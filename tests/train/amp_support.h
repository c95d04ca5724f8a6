/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of training in mixed precision share: runs in 16 bits of a small model, whose backward can be made to
 * overflow in one micro-batch. */
#ifndef BL_TESTS_AMP_SUPPORT_H
#define BL_TESTS_AMP_SUPPORT_H

#include "train/train_support.h"

#include "tensor/context.h"

/* ---- a model whose backward overflows in one micro-batch ---- */

typedef struct poisoned {
    belay_module *inner;
    int64_t epoch, position; /* of that micro-batch; -1: none */
} poisoned;

static inline void pass_on(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                           int n_out)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    out[0] = in[0];
}

static inline void make_inf(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                            belay_tensor *grad_in, int n_in)
{
    (void)call, (void)state, (void)n_out, (void)n_in;
    grad_in[0] = belay_affine(grad_out[0], INFINITY, 0);
}

static const belay_function poison = {.name = "poison", .forward = pass_on, .backward = make_inf};

static inline belay_tensor poisoned_forward(belay_module *module, belay_tensor x)
{
    const poisoned *self = belay_module_self(module);
    belay_context *context = belay_module_context(module);
    belay_tensor y = belay_forward(self->inner, x), out = y;
    if (belay_recording_get(context) && context->epoch == self->epoch && context->position == self->position)
        belay_function_apply(context, &poison, NULL, &y, 1, 0, &out, 1);
    return out;
}

static const belay_module_kind poisoned_kind = {"poisoned", sizeof(poisoned), poisoned_forward, NULL};

/* ---- runs ---- */

typedef struct amp_trial {
    trial trial;
    uint64_t seed;
    belay_dtype dtype;
    bool has_scaler;
    belay_grad_scaler_options scaler;
    int64_t bad_epoch, bad_position;
    int bad_rank; /* on which it is, of a run over ranks */
    double scale; /* at its end */
    int64_t n_backoffs;
} amp_trial;

static inline amp_trial new_amp_trial(belay_dtype dtype)
{
    return (amp_trial){.trial = new_trial(),
                       .seed = 7,
                       .dtype = dtype,
                       .has_scaler = dtype == BELAY_F16,
                       .bad_epoch = -1,
                       .bad_position = -1};
}

static inline void run_amp_trial(amp_trial *a)
{
    trial *t = &a->trial;
    belay_context *context = belay_open(&(belay_options){
        .seed = a->seed, .threads = 1, .log = t->told != NULL ? hear : NULL, .log_state = t->told, .no_journal = true});
    belay_module *model = belay_module_new(context, &poisoned_kind);
    *(poisoned *)belay_module_self(model) = (poisoned){
        belay_module_add_child(model, "inner", small_model(context, t->is_mean)), a->bad_epoch, a->bad_position};
    belay_train_options options = t->options;
    if (t->is_ranked)
        join_ranks(t, context, model, &options);
    if (t->rank != a->bad_rank)
        ((poisoned *)belay_module_self(model))->epoch = -1;
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02, .clip = 1});
    belay_grad_scaler *scaler = a->has_scaler ? belay_grad_scaler_new(context, &a->scaler) : NULL;
    options.valid = open_samples(context, &t->valid, t->n_valid);
    options.autocast = a->dtype;
    options.scaler = scaler;
    options.seed = 3;
    t->code = belay_train(model, adam, open_samples(context, &t->samples, t->n_samples), &options, &t->result);
    a->scale = belay_grad_scaler_get(scaler);
    a->n_backoffs = belay_grad_scaler_n_backoffs(scaler);
    t->weights = read_weights(model, &t->n_weights);
    t->closed = belay_close(context);
}

#endif
