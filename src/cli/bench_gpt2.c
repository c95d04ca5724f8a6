/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_gpt2.h"

#include <belay/grad.h>
#include <belay/nn.h>
#include <belay/optim.h>

#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench_products.h"

enum { BATCH = 4, TIME = 64, VOCABULARY = 50257, MOST_STEPS = 100 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Texts of random tokens, each with the token behind it. */
static belay_tensor draw_texts(belay_context *context)
{
    uint16_t tokens[BATCH * (TIME + 1)];
    bl_rng_key key = {1, 0, 0, 9};
    for (uint64_t i = 0; i < BATCH * (TIME + 1); i++)
        tokens[i] = (uint16_t)bl_rng_below(&key, i, VOCABULARY);
    return belay_tensor_from(context, BELAY_U16, belay_shape2(BATCH, TIME + 1), tokens, sizeof tokens);
}

static double step_seconds(belay_context *context, belay_module *model, belay_optimizer *adam, belay_tensor texts)
{
    int64_t start = bl_clock_now();
    belay_scope scope = belay_scope_open(context);
    belay_tensor logits = belay_forward(model, belay_slice(texts, 1, 0, -1, 1));
    belay_tensor labels = belay_view(belay_slice(texts, 1, 1, BELAY_END, 1), belay_shape1(-1));
    belay_backward(belay_cross_entropy(belay_view(logits, belay_shape2(-1, VOCABULARY)), labels, NULL));
    belay_optimizer_step(adam);
    belay_scope_close(scope);
    return (double)(bl_clock_now() - start) * 1e-9;
}

belay_code bl_bench_gpt2_run(int threads, int steps, bl_bench_gpt2 *out, bl_error *error)
{
    double seconds[MOST_STEPS], square = bl_products_square(threads, 3);
    belay_fault fault;
    belay_code code = BELAY_OK;
    belay_context *context =
        belay_open(&(belay_options){.seed = 1, .threads = threads, .no_journal = true, .memory = BELAY_MEMORY_POOL});
    belay_module *model = belay_gpt2(context, NULL);
    belay_optimizer *adam = belay_adamw(model, &(belay_adam_options){.lr = 3e-4, .weight_decay = 0.1});
    belay_tensor texts = draw_texts(context);
    steps = steps < MOST_STEPS ? steps : MOST_STEPS;
    for (int i = -1; i < steps; i++) { /* the first one warms up */
        double of_step = step_seconds(context, model, adam, texts);
        if (i >= 0)
            seconds[i] = of_step;
    }
    qsort(seconds, (size_t)steps, sizeof seconds[0], by_size);
    out->step_seconds = seconds[steps / 2];
    out->tokens_per_second = BATCH * TIME / out->step_seconds;
    out->step_flop = 6.0 * (double)belay_module_n_elements(model) * BATCH * TIME;
    out->memory_peak = (double)belay_memory_get(context).peak;
    if (!belay_is_open(context))
        code = bl_error_set(error, BELAY_MEM_EXHAUSTED, "no context for the steps of GPT-2");
    else if (belay_fault_get(context, 0, &fault))
        code = bl_error_set(error, fault.code, "the steps of GPT-2 did not run: %s", fault.text);
    else if (belay_optimizer_n_applied(adam) != steps + 1)
        code = bl_error_set(error, BELAY_BUG_INVARIANT, "a step of GPT-2 was not applied");
    belay_close(context);
    double again = bl_products_square(threads, 3);
    out->square_flops = 2.0 * 2048 * 2048 * 2048 / (again < square ? again : square);
    return code;
}
