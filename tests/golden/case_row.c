/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, rows, losses. */
#include <string.h>

#include "golden/golden.h"

static belay_axes axes_option(golden *g, const char *key)
{
    int64_t dims[BELAY_MAX_RANK];
    belay_axes axes = {.n = golden_list(g, key, dims)};
    for (int i = 0; i < axes.n; i++)
        axes.axis[i] = (int)dims[i];
    axes.keep = !golden_is_null(g, "keepdim") && golden_flag(g, "keepdim");
    return axes;
}

static void run_sum(golden *g)
{
    belay_axes axes = axes_option(g, "dims");
    golden_output(g, "y", belay_sum(golden_input(g, "x"), &axes));
}

static void run_mean(golden *g)
{
    belay_axes axes = axes_option(g, "dims");
    golden_output(g, "y", belay_mean(golden_input(g, "x"), &axes));
}

static void run_amax(golden *g)
{
    belay_axes axes = axes_option(g, "dims");
    golden_output(g, "y", belay_amax(golden_input(g, "x"), &axes));
}

static void run_max(golden *g)
{
    belay_tensor x = golden_input(g, "x"), indices = {0};
    if (golden_is_null(g, "dim")) {
        golden_output(g, "y", belay_amax(x, NULL));
        return;
    }
    int axis = (int)golden_number(g, "dim");
    bool keep = golden_flag(g, "keepdim");
    golden_output(g, "values", belay_max(x, axis, keep, &indices));
    golden_check(g, "output.indices", indices);
    golden_check(g, "output.indices", belay_argmax(x, axis, keep));
}

static void run_layer_norm(golden *g)
{
    int64_t shape[BELAY_MAX_RANK];
    int n_axes = golden_list(g, "normalized_shape", shape);
    bool is_affine = golden_flag(g, "affine");
    belay_tensor x = golden_input(g, "x");
    belay_tensor weight = is_affine ? golden_input(g, "weight") : (belay_tensor){0};
    belay_tensor bias = is_affine ? golden_input(g, "bias") : (belay_tensor){0};
    golden_output(g, "y", belay_layer_norm(x, n_axes, weight, bias, golden_number(g, "eps")));
}

static void run_rms_norm(golden *g)
{
    int64_t shape[BELAY_MAX_RANK];
    int n_axes = golden_list(g, "normalized_shape", shape);
    belay_tensor x = golden_input(g, "x");
    golden_output(g, "y", belay_rms_norm(x, n_axes, golden_input(g, "weight"), golden_number(g, "eps")));
}

static void run_batch_norm(golden *g)
{
    belay_batch_norm_options options = {.training = golden_flag(g, "training"),
                                        .momentum = golden_number(g, "momentum"),
                                        .eps = golden_number(g, "eps")};
    belay_tensor x = golden_input(g, "x"), weight = golden_input(g, "weight");
    belay_tensor mean = golden_input(g, "running_mean"), var = golden_input(g, "running_var");
    belay_optimizer *sgd = belay_sgd_over(g->context, &weight, 1, &(belay_sgd_options){.lr = 1});
    belay_tensor y = belay_batch_norm(x, mean, var, weight, golden_input(g, "bias"), &options);
    belay_optimizer_step(sgd); /* there is no gradient yet: it moves on the running statistics alone */
    golden_check(g, "output.running_mean", mean);
    golden_check(g, "output.running_var", var);
    golden_output(g, "y", y);
}

static void run_softmax(golden *g)
{
    golden_output(g, "y", belay_softmax(golden_input(g, "x"), (int)golden_number(g, "dim")));
}

static void run_log_softmax(golden *g)
{
    golden_output(g, "y", belay_log_softmax(golden_input(g, "x"), (int)golden_number(g, "dim")));
}

/* ---- losses ---- */

static belay_reduction reduction_option(golden *g)
{
    const char *text = golden_text(g, "reduction");
    return strcmp(text, "sum") == 0 ? BELAY_SUM : strcmp(text, "none") == 0 ? BELAY_NONE : BELAY_MEAN;
}

static void run_cross_entropy(golden *g)
{
    belay_cross_entropy_options options = {.reduction = reduction_option(g),
                                           .has_ignore = true,
                                           .ignore = (int64_t)golden_number(g, "ignore_index"),
                                           .label_smoothing = golden_number(g, "label_smoothing")};
    if (golden_flag(g, "class_weights"))
        options.weight = golden_input(g, "weight");
    belay_tensor x = golden_input(g, "x");
    golden_output(g, "loss", belay_cross_entropy(x, golden_input(g, "target"), &options));
}

static void run_nll_loss(golden *g)
{
    belay_nll_loss_options options = {
        .reduction = reduction_option(g), .has_ignore = true, .ignore = (int64_t)golden_number(g, "ignore_index")};
    if (golden_flag(g, "class_weights"))
        options.weight = golden_input(g, "weight");
    belay_tensor x = golden_input(g, "x");
    golden_output(g, "loss", belay_nll_loss(x, golden_input(g, "target"), &options));
}

static void run_bce_with_logits(golden *g)
{
    belay_bce_with_logits_options options = {.reduction = reduction_option(g)};
    if (golden_flag(g, "weighted")) {
        options.weight = golden_input(g, "weight");
        options.pos_weight = golden_input(g, "pos_weight");
    }
    belay_tensor x = golden_input(g, "x");
    golden_output(g, "loss", belay_bce_with_logits(x, golden_input(g, "target"), &options));
}

static void run_mse(golden *g)
{
    belay_tensor x = golden_input(g, "x");
    golden_output(g, "loss", belay_mse(x, golden_input(g, "target"), reduction_option(g)));
}

const golden_op golden_row_ops[] = {
    {"sum", .run = run_sum},
    {"mean", .run = run_mean},
    {"amax", .run = run_amax},
    {"max", .run = run_max},
    {"layer_norm", .run = run_layer_norm},
    {"rms_norm", .run = run_rms_norm},
    {"batch_norm", .run = run_batch_norm},
    {"softmax", .run = run_softmax},
    {"log_softmax", .run = run_log_softmax},
    {"cross_entropy", .run = run_cross_entropy},
    {"nll_loss", .run = run_nll_loss},
    {"bce_with_logits", .run = run_bce_with_logits},
    {"mse_loss", .run = run_mse},
    {0},
};
