/* SPDX-License-Identifier: Apache-2.0 */
/* Whole training runs: forward, loss, backward, accumulation, clipping, step, through the modules. */
#include <stdio.h>
#include <string.h>

#include "golden/golden.h"

enum { MOST = 64 };

/* One run: `loss` computes micro-batch number i. */
typedef struct training {
    golden *g;
    belay_module *model;
    belay_optimizer *optimizer;
    belay_tensor (*loss)(golden *g, belay_module *model, int64_t i);
    int n_micro, accumulate;
    double losses[MOST], norms[MOST], rates[MOST];
} training;

void golden_load_parameters(golden *g, belay_module *model)
{
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        char name[128];
        const void *bytes;
        snprintf(name, sizeof name, "param.%s", belay_module_parameter_name(model, i));
        const bl_safetensors_entry *entry = golden_bytes(g, name, &bytes);
        if (entry != NULL && belay_tensor_write(belay_module_parameter(model, i), bytes, entry->n_bytes) != BELAY_OK)
            golden_fail(g, "%s does not fit the model's parameter", name);
    }
}

void golden_check_parameters(golden *g, const belay_module *model, const char *prefix, bool is_grad)
{
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        char name[128];
        belay_tensor parameter = belay_module_parameter(model, i);
        snprintf(name, sizeof name, "%s%s", prefix, belay_module_parameter_name(model, i));
        golden_check(g, name, is_grad ? belay_tensor_grad(parameter) : parameter);
    }
}

/* The file's gradients are those of the mean over the window; ours are divided in the step. */
static void close_window(training *t, int window)
{
    if (window == 0) {
        t->g->scale = 1.0 / t->accumulate;
        golden_check_parameters(t->g, t->model, "grad.", true);
        t->g->scale = 1;
    }
    belay_optimizer_step(t->optimizer);
    t->norms[window] = belay_optimizer_norm_get(t->optimizer);
    t->rates[window] = belay_optimizer_lr_get(t->optimizer);
}

static void train(training *t)
{
    int n = t->n_micro < MOST ? t->n_micro : MOST;
    golden_load_parameters(t->g, t->model);
    belay_optimizer_divisor_set(t->optimizer, t->accumulate);
    for (int i = 0; i < n; i++) {
        belay_scope scope = belay_scope_open(t->g->context);
        belay_tensor loss = t->loss(t->g, t->model, i);
        belay_backward(loss);
        t->losses[i] = belay_tensor_item(loss);
        if ((i + 1) % t->accumulate == 0)
            close_window(t, i / t->accumulate);
        belay_scope_close(scope);
    }
    golden_check_numbers(t->g, "output.loss", t->losses, n);
    golden_check_parameters(t->g, t->model, "output.final.", false);
}

/* ---- text classifiers ---- */

static belay_tensor text_loss(golden *g, belay_module *model, int64_t i)
{
    belay_tensor logits = belay_forward(model, golden_input_row(g, "ids", i));
    return belay_cross_entropy(logits, golden_input_row(g, "labels", i), NULL);
}

static belay_module *text_model(golden *g, belay_text_model model)
{
    belay_text_classifier_options options = {.model = model,
                                             .n_tokens = (int64_t)golden_number(g, "vocab"),
                                             .classes = (int64_t)golden_number(g, "classes"),
                                             .embed = (int64_t)golden_number(g, "dim"),
                                             .hidden = (int64_t)golden_number(g, "hidden")};
    options.layers = model == BELAY_TEXT_LSTM ? (int)golden_number(g, "layers") : 0;
    belay_device_guard there = golden_there(g);
    belay_module *made = belay_text_classifier(g->context, &options);
    golden_back(there);
    return made;
}

static void train_lstm(golden *g)
{
    belay_adam_options options = golden_adam_options(g);
    training t = {.g = g,
                  .model = text_model(g, BELAY_TEXT_LSTM),
                  .loss = text_loss,
                  .n_micro = (int)golden_number(g, "micro_batches"),
                  .accumulate = (int)golden_number(g, "accumulation")};
    t.optimizer = belay_adam(t.model, &options);
    train(&t);
    golden_check_numbers(g, "output.clip_norm", t.norms, t.n_micro / t.accumulate);
}

static void train_mean_pool(golden *g)
{
    belay_sgd_options options = golden_sgd_options(g);
    options.schedule = (belay_schedule){.kind = BELAY_SCHEDULE_STEP,
                                        .period = (int64_t)golden_number(g, "step_size"),
                                        .gamma = golden_number(g, "gamma")};
    training t = {.g = g,
                  .model = text_model(g, BELAY_TEXT_MEAN),
                  .loss = text_loss,
                  .n_micro = (int)golden_number(g, "steps"),
                  .accumulate = 1};
    t.optimizer = belay_sgd(t.model, &options);
    train(&t);
    golden_check_numbers(g, "output.lr", t.rates, t.n_micro);
}

/* ---- multi-layer perceptron ---- */

static belay_tensor mlp_loss(golden *g, belay_module *model, int64_t i)
{
    return belay_mse(belay_forward(model, golden_input_row(g, "x", i)), golden_input_row(g, "target", i), BELAY_MEAN);
}

static void train_mlp(golden *g)
{
    belay_sgd_options options = golden_sgd_options(g);
    belay_mlp_options sizes = {.sizes = {(int64_t)golden_number(g, "in_features"), (int64_t)golden_number(g, "hidden"),
                                         (int64_t)golden_number(g, "out_features")}};
    belay_device_guard there = golden_there(g);
    belay_module *model = belay_mlp(g->context, &sizes);
    golden_back(there);
    training t = {.g = g, .model = model, .loss = mlp_loss, .n_micro = (int)golden_number(g, "steps"), .accumulate = 1};
    t.optimizer = belay_sgd(t.model, &options);
    train(&t);
}

static void run_train(golden *g)
{
    const struct {
        const char *name;
        void (*run)(golden *g);
    } runs[] = {{"train_lstm", train_lstm},
                {"train_mean_pool", train_mean_pool},
                {"train_mlp", train_mlp},
                {"train_gpt", golden_train_gpt}};
    const char *name = golden_text(g, "case");
    for (int i = 0; i < BL_COUNT(runs); i++)
        if (strcmp(name, runs[i].name) == 0) {
            runs[i].run(g);
            return;
        }
    golden_skip(g);
}

const golden_op golden_train_ops[] = {
    {"train", .run = run_train},
    {0},
};
