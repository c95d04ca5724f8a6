/* SPDX-License-Identifier: Apache-2.0 */
/* A module of one's own: a residual block, y = x + scale * down(gelu(up(norm(x)))), with children and a parameter.
 * Three of them learn to turn a vector around; then the program prints the loss and the names that a checkpoint has. */
#include <belay/grad.h>
#include <belay/nn.h>
#include <belay/optim.h>

#include <stdio.h>

struct residual {
    belay_module *norm, *up, *down;
    belay_tensor scale;
};

static belay_tensor residual_forward(belay_module *module, belay_tensor x) /* [batch, width] */
{
    const struct residual *r = belay_module_self(module);
    belay_tensor y = belay_gelu(belay_forward(r->up, belay_forward(r->norm, x)));
    return belay_add(x, belay_mul(r->scale, belay_forward(r->down, y)));
}

static const belay_module_kind residual_kind = {
    .name = "residual", .n_bytes = sizeof(struct residual), .forward = residual_forward};

static belay_module *residual(belay_context *ctx, int64_t width)
{
    belay_module *module = belay_module_new(ctx, &residual_kind);
    struct residual *r = belay_module_self(module);
    if (r == NULL)
        return module; /* no memory: a nil module, which absorbs */
    r->norm = belay_module_add_child(module, "norm",
                                     belay_layer_norm_module(ctx, &(belay_layer_norm_module_options){.width = width}));
    r->up = belay_module_add_child(
        module, "up", belay_linear_module(ctx, &(belay_linear_module_options){.in = width, .out = 4 * width}));
    r->down = belay_module_add_child(
        module, "down", belay_linear_module(ctx, &(belay_linear_module_options){.in = 4 * width, .out = width}));
    r->scale = belay_module_add_parameter(module, "scale", BELAY_F32, belay_shape1(width),
                                          (belay_init){BELAY_INIT_CONSTANT, 0.1, 0});
    return module;
}

int main(void)
{
    enum { WIDTH = 8, BATCH = 32, STEPS = 300 };
    belay_context *ctx = belay_open(&(belay_options){.seed = 1, .log = belay_log_stderr});
    belay_module *model = belay_sequential_module(ctx);
    const char *const names[] = {"first", "second", "third"};
    for (int i = 0; i < 3; i++)
        belay_module_add_child(model, names[i], residual(ctx, WIDTH));
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 3e-3});

    int64_t backwards[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        backwards[i] = WIDTH - 1 - i;
    double loss = 0;
    for (int step = 0; step < STEPS; step++) {
        belay_scope scope = belay_scope_open(ctx);
        belay_tensor x = belay_normal(ctx, BELAY_F32, belay_shape2(BATCH, WIDTH), 0, 1);
        belay_tensor order = belay_tensor_from(ctx, BELAY_I64, belay_shape1(WIDTH), backwards, sizeof backwards);
        belay_tensor error = belay_mse(belay_forward(model, x), belay_index_select(x, 1, order, NULL), BELAY_MEAN);
        belay_backward(error);
        belay_optimizer_step(adam);
        loss = belay_tensor_item(error);
        belay_scope_close(scope);
    }
    printf("loss after %d steps: %.4f\n", STEPS, loss);
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++)
        printf("%s\n", belay_module_parameter_name(model, i));
    return belay_close(ctx);
}
