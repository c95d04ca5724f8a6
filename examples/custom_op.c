/* SPDX-License-Identifier: Apache-2.0 */
/* An op of one's own with a gradient: swish(x, beta) = x s(beta x) with s(z) = 1 / (1 + exp(-z)), of two kernels under a
 * belay_function (Ramachandran et al., "Searching for Activation Functions", 2017).  Then a net of it learns to draw a
 * parabola, beta with it. */
#include <belay/grad.h>
#include <belay/launch.h>
#include <belay/nn.h>
#include <belay/optim.h>

#include <math.h>
#include <stdio.h>

enum { X, BETA, Y };
BELAY_KERNEL(swish_forward, "N: x[N] beta[] -> y[N]", work, i)
{
    float x = BELAY_GET1(float, belay_view_of(work, X), i), beta = BELAY_GET0(float, belay_view_of(work, BETA));
    BELAY_AT1(float, belay_view_of(work, Y), i) = x / (1 + expf(-beta * x));
}

/* dy/dx = s + beta x s (1 - s), dy/dbeta = x^2 s (1 - s); the latter is summed up by the caller. */
enum { G_Y = 2, G_X, G_BETA };
BELAY_KERNEL(swish_backward, "N: x[N] beta[] g_y[N] -> g_x[N] g_beta[N]", work, i)
{
    float x = BELAY_GET1(float, belay_view_of(work, X), i), beta = BELAY_GET0(float, belay_view_of(work, BETA));
    float g = BELAY_GET1(float, belay_view_of(work, G_Y), i), s = 1 / (1 + expf(-beta * x));
    BELAY_AT1(float, belay_view_of(work, G_X), i) = g * (s + beta * x * s * (1 - s));
    BELAY_AT1(float, belay_view_of(work, G_BETA), i) = g * x * x * s * (1 - s);
}

/* Kernels see the elements in a row, whatever the shape. */
static belay_tensor flat(belay_tensor x)
{
    return belay_view(belay_contiguous(x), belay_shape1(belay_tensor_n_elements(x)));
}

static void forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                    int n_out)
{
    (void)state, (void)n_in, (void)n_out;
    int64_t n = belay_tensor_n_elements(in[0]);
    belay_context *ctx = belay_function_context(call);
    belay_tensor y = belay_zeros(ctx, BELAY_F32, belay_shape1(n));
    belay_launch(ctx, &swish_forward, &(belay_launch_options){.n_items = n, .operand = {flat(in[0]), in[1], y}});
    belay_function_save(call, in[0]);
    belay_function_save(call, in[1]);
    out[0] = belay_view(y, belay_tensor_shape(in[0]));
}

static void backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                     belay_tensor *grad_in, int n_in)
{
    (void)state, (void)n_out, (void)n_in;
    belay_tensor x = belay_function_saved(call, 0), beta = belay_function_saved(call, 1);
    int64_t n = belay_tensor_n_elements(x);
    belay_context *ctx = belay_function_context(call);
    belay_tensor g_x = belay_zeros(ctx, BELAY_F32, belay_shape1(n)),
                 g_beta = belay_zeros(ctx, BELAY_F32, belay_shape1(n));
    belay_launch(ctx, &swish_backward,
                 &(belay_launch_options){.n_items = n, .operand = {flat(x), beta, flat(grad_out[0]), g_x, g_beta}});
    grad_in[0] = belay_view(g_x, belay_tensor_shape(x));
    grad_in[1] = belay_sum(g_beta, NULL);
}

static belay_tensor swish(belay_context *ctx, belay_tensor x, belay_tensor beta)
{
    static const belay_function function = {.name = "swish", .forward = forward, .backward = backward};
    belay_tensor y;
    belay_function_apply(ctx, &function, NULL, (const belay_tensor[]){x, beta}, 2, 0, &y, 1);
    return y;
}

/* A layer of it, with beta as its parameter. */
struct layer {
    belay_tensor beta;
};
static belay_tensor layer_forward(belay_module *module, belay_tensor x)
{
    const struct layer *layer = belay_module_self(module);
    return swish(belay_tensor_context(x), x, layer->beta);
}
static const belay_module_kind layer_kind = {
    .name = "swish", .n_bytes = sizeof(struct layer), .forward = layer_forward};

int main(int argc, char **argv)
{
    enum { BATCH = 64, STEPS = 400 };
    belay_context *ctx =
        belay_open(&(belay_options){.device = argc > 1 ? argv[1] : "cpu", .seed = 1, .log = belay_log_stderr});
    belay_module *model = belay_sequential_module(ctx), *layer = belay_module_new(ctx, &layer_kind);
    struct layer *self = belay_module_self(layer);
    if (self != NULL)
        self->beta = belay_module_add_parameter(layer, "beta", BELAY_F32, belay_shape0(),
                                                (belay_init){BELAY_INIT_CONSTANT, 1, 0});
    belay_module_add_child(model, "in", belay_linear_module(ctx, &(belay_linear_module_options){.in = 1, .out = 16}));
    belay_module_add_child(model, "swish", layer);
    belay_module_add_child(model, "out", belay_linear_module(ctx, &(belay_linear_module_options){.in = 16, .out = 1}));
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 1e-2f});
    double loss = 0;
    for (int step = 0; step < STEPS; step++) {
        belay_scope scope = belay_scope_open(ctx);
        belay_tensor x = belay_uniform(ctx, BELAY_F32, belay_shape2(BATCH, 1), -1, 1);
        belay_tensor error = belay_mse(belay_forward(model, x), belay_mul(x, x), BELAY_MEAN);
        belay_backward(error);
        belay_optimizer_step(adam);
        loss = belay_tensor_item(error);
        belay_scope_close(scope);
    }
    printf("loss after %d steps: %.4f\n", STEPS, loss);
    return belay_close(ctx);
}
