/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: steps from given gradients, and the rates of schedules. */
#include <belay/amp.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/golden.h"

enum { MAX_PARAMETERS = 8, MAX_STEPS = 64 };

/* A leaf of every "param.*", in the order p0, p1, ... */
static int parameters_of(golden *g, belay_tensor out[MAX_PARAMETERS])
{
    int n = 0;
    for (; n < MAX_PARAMETERS; n++) {
        char name[16], full[32];
        snprintf(name, sizeof name, "p%d", n);
        snprintf(full, sizeof full, "param.%s", name);
        if (!golden_has(g, full))
            break;
        out[n] = belay_tensor_requires_grad_set(golden_input(g, name), true);
    }
    return n;
}

static void two_numbers(golden *g, const char *key, double out[2])
{
    char *end;
    out[0] = strtod(golden_text(g, key) + 1, &end);
    out[1] = strtod(end + strspn(end, ", "), NULL);
}

static double clip_option(golden *g) { return golden_is_null(g, "max_norm") ? 0 : golden_number(g, "max_norm"); }

belay_adam_options golden_adam_options(golden *g)
{
    double betas[2];
    two_numbers(g, "betas", betas);
    return (belay_adam_options){.lr = golden_number(g, "lr"),
                                .beta1 = betas[0],
                                .beta2 = betas[1],
                                .eps = golden_number(g, "eps"),
                                .weight_decay = golden_number(g, "weight_decay"),
                                .amsgrad = golden_flag(g, "amsgrad"),
                                .clip = clip_option(g)};
}

belay_sgd_options golden_sgd_options(golden *g)
{
    return (belay_sgd_options){.lr = golden_number(g, "lr"),
                               .momentum = golden_number(g, "momentum"),
                               .dampening = golden_number(g, "dampening"),
                               .nesterov = golden_flag(g, "nesterov"),
                               .weight_decay = golden_number(g, "weight_decay"),
                               .clip = clip_option(g)};
}

static belay_optimizer *optimizer_of(golden *g, const belay_tensor *parameters, int n)
{
    const char *op = golden_text(g, "op");
    if (strcmp(op, "sgd") == 0) {
        belay_sgd_options options = golden_sgd_options(g);
        return belay_sgd_over(g->context, parameters, n, &options);
    }
    belay_adam_options options = golden_adam_options(g);
    return strcmp(op, "adam") == 0 ? belay_adam_over(g->context, parameters, n, &options)
                                   : belay_adamw_over(g->context, parameters, n, &options);
}

/* The gradient of sum(p * g) is g, exactly. */
static void give_gradients(golden *g, const belay_tensor *parameters, int n, int64_t step)
{
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "grads.p%d", i);
        belay_backward(belay_sum(belay_mul(parameters[i], golden_input_row(g, name, step)), NULL));
    }
}

static void check_state(golden *g, const belay_optimizer *o)
{
    const char *name;
    belay_tensor tensor;
    for (int64_t i = 0; belay_optimizer_state_get(o, i, &name, &tensor); i++) {
        char full[128];
        snprintf(full, sizeof full, "output.state.%s", name);
        if (strcmp(name, "t") != 0 && strcmp(name, "state") != 0)
            golden_check(g, full, tensor);
    }
}

static void run_optimizer(golden *g)
{
    belay_tensor p[MAX_PARAMETERS];
    double norm[MAX_STEPS] = {0};
    int n = parameters_of(g, p), n_steps = (int)golden_number(g, "steps");
    belay_optimizer *o = optimizer_of(g, p, n);
    for (int step = 0; step < n_steps && step < MAX_STEPS; step++) {
        belay_scope scope = belay_scope_open(g->context);
        give_gradients(g, p, n, step);
        belay_optimizer_step(o);
        norm[step] = belay_optimizer_norm_get(o);
        for (int i = 0; i < n; i++) {
            char name[32];
            snprintf(name, sizeof name, "output.p%d", i);
            golden_check_row(g, name, step, p[i]);
        }
        belay_scope_close(scope);
    }
    check_state(g, o);
    if (golden_has(g, "output.total_norm"))
        golden_check_numbers(g, "output.total_norm", norm, n_steps);
    g->n_leaves = 0; /* nothing is walked back */
}

/* ---- the loss scale ---- */

static belay_grad_scaler *scaler_of(golden *g)
{
    return belay_grad_scaler_new(
        g->context, &(belay_grad_scaler_options){.init_scale = golden_number(g, "init_scale"),
                                                 .growth_factor = golden_number(g, "growth_factor"),
                                                 .backoff_factor = golden_number(g, "backoff_factor"),
                                                 .growth_interval = (int64_t)golden_number(g, "growth_interval")});
}

/* One window whose gradient is `gradient` times the scale. */
static void scaled_step(belay_grad_scaler *scaler, belay_optimizer *o, belay_tensor p, belay_tensor gradient)
{
    belay_tensor loss = belay_sum(belay_mul(p, gradient), NULL);
    belay_backward(belay_grad_scaler_scale(scaler, loss));
    belay_grad_scaler_step(scaler, o);
    belay_grad_scaler_update(scaler);
}

/* Overflows are what the files are about: any other word still fails them. */
static void forget_overflows(golden *g)
{
    belay_fault fault;
    for (int64_t i = 0; belay_fault_get(g->context, i, &fault); i++)
        if (fault.code != BELAY_RUN_OVERFLOW)
            return;
    g->told[0] = '\0';
}

static void run_scale(golden *g)
{
    double scale[MAX_STEPS] = {0}, growth[MAX_STEPS] = {0};
    const float zero = 0;
    const void *bytes;
    const bl_safetensors_entry *found = golden_bytes(g, "input.found_inf", &bytes);
    int n_steps = found != NULL && found->shape[0] <= MAX_STEPS ? (int)found->shape[0] : 0;
    belay_device_guard there = golden_there(g);
    belay_tensor p = golden_from(g, BELAY_F32, belay_shape1(1), &zero, sizeof zero);
    belay_tensor_requires_grad_set(p, true);
    belay_optimizer *o = belay_sgd_over(g->context, &p, 1, &(belay_sgd_options){.lr = 1e-40});
    belay_grad_scaler *scaler = scaler_of(g);
    for (int step = 0; step < n_steps; step++) {
        belay_scope scope = belay_scope_open(g->context);
        float gradient = ((const float *)bytes)[step] != 0 ? INFINITY : 1;
        scaled_step(scaler, o, p, golden_from(g, BELAY_F32, belay_shape1(1), &gradient, sizeof gradient));
        scale[step] = belay_grad_scaler_get(scaler);
        growth[step] = (double)belay_grad_scaler_growth_get(scaler);
        belay_scope_close(scope);
    }
    golden_back(there);
    golden_check_numbers(g, "output.scale", scale, n_steps);
    golden_check_numbers(g, "output.growth_tracker", growth, n_steps);
    forget_overflows(g);
}

/* The file's gradients are scaled: what the loss is made of is them over the scale, which is a power of two. */
static void give_scaled(golden *g, belay_grad_scaler *scaler, const belay_tensor *p, int n, int64_t step)
{
    double scale = belay_grad_scaler_get(scaler);
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "scaled_grads.p%d", i);
        belay_tensor gradient = belay_affine(golden_input_row(g, name, step), 1 / scale, 0);
        belay_backward(belay_grad_scaler_scale(scaler, belay_sum(belay_mul(p[i], gradient), NULL)));
    }
}

static void run_scaled_sgd(golden *g)
{
    belay_tensor p[MAX_PARAMETERS];
    double scale[MAX_STEPS] = {0}, found[MAX_STEPS] = {0};
    int n = parameters_of(g, p), n_steps = (int)golden_number(g, "steps");
    belay_device_guard there = golden_there(g);
    belay_grad_scaler *scaler = scaler_of(g);
    golden_back(there);
    belay_optimizer *o = belay_sgd_over(
        g->context, p, n, &(belay_sgd_options){.lr = golden_number(g, "lr"), .momentum = golden_number(g, "momentum")});
    for (int step = 0; step < n_steps && step < MAX_STEPS; step++) {
        belay_scope scope = belay_scope_open(g->context);
        give_scaled(g, scaler, p, n, step);
        belay_grad_scaler_step(scaler, o);
        belay_grad_scaler_update(scaler);
        scale[step] = belay_grad_scaler_get(scaler);
        found[step] = belay_grad_scaler_found_inf(scaler);
        for (int i = 0; i < n; i++) {
            char name[32];
            snprintf(name, sizeof name, "output.p%d", i);
            golden_check_row(g, name, step, p[i]);
        }
        belay_scope_close(scope);
    }
    golden_check_numbers(g, "output.scale", scale, n_steps);
    golden_check_numbers(g, "output.found_inf", found, n_steps);
    forget_overflows(g);
    g->n_leaves = 0; /* nothing is walked back */
}

/* ---- schedules ---- */

static void run_schedule(golden *g, const belay_schedule *schedule)
{
    double lr[MAX_STEPS] = {0};
    int n_steps = (int)golden_number(g, "steps");
    const float zero = 0;
    belay_tensor p = golden_from(g, BELAY_F32, belay_shape1(1), &zero, sizeof zero);
    belay_tensor_requires_grad_set(p, true);
    belay_sgd_options options = {.lr = golden_number(g, "base_lr"), .schedule = *schedule};
    belay_optimizer *o = belay_sgd_over(g->context, &p, 1, &options);
    for (int step = 0; step < n_steps && step < MAX_STEPS; step++) {
        belay_optimizer_step(o);
        lr[step] = belay_optimizer_lr_get(o);
    }
    golden_check_numbers(g, "output.lr", lr, n_steps);
}

static void run_step_lr(golden *g)
{
    run_schedule(g, &(belay_schedule){.kind = BELAY_SCHEDULE_STEP,
                                      .period = (int64_t)golden_number(g, "step_size"),
                                      .gamma = golden_number(g, "gamma")});
}

static void run_cosine_lr(golden *g)
{
    run_schedule(g, &(belay_schedule){.kind = BELAY_SCHEDULE_COSINE,
                                      .period = (int64_t)golden_number(g, "T_max"),
                                      .end = golden_number(g, "eta_min")});
}

static void run_linear_lr(golden *g)
{
    run_schedule(g, &(belay_schedule){.warmup = (int64_t)golden_number(g, "total_iters"),
                                      .warmup_start = golden_number(g, "start_factor")});
}

static void run_lambda_lr(golden *g)
{
    int64_t warmup = (int64_t)golden_number(g, "warmup_steps");
    run_schedule(g, &(belay_schedule){.kind = BELAY_SCHEDULE_LINEAR,
                                      .period = (int64_t)golden_number(g, "total_steps") - warmup,
                                      .warmup = warmup});
}

const golden_op golden_optim_ops[] = {
    {"sgd", .run = run_optimizer},
    {"adam", .run = run_optimizer},
    {"adamw", .run = run_optimizer},
    {"grad_scaler", .run = run_scale},
    {"grad_scaler_sgd", .run = run_scaled_sgd},
    {"StepLR", .run = run_step_lr},
    {"CosineAnnealingLR", .run = run_cosine_lr},
    {"LinearLR", .run = run_linear_lr},
    {"LambdaLR", .run = run_lambda_lr},
    {0},
};
