/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_gpt2.h"

#include <belay/grad.h>

#include "base/rng.h"
#include "cli/bench_products.h"
#include "tensor/context.h"

enum { BATCH = 4, TIME = 64, VOCABULARY = 50257, MOST_STEPS = 100 };

/* Texts of random tokens, each with the token behind it. */
static belay_tensor draw_texts(belay_context *context)
{
    uint16_t tokens[BATCH * (TIME + 1)];
    bl_rng_key key = {1, 0, 0, 9};
    for (uint64_t i = 0; i < BATCH * (TIME + 1); i++)
        tokens[i] = (uint16_t)bl_rng_below(&key, i, VOCABULARY);
    return belay_tensor_from(context, BELAY_U16, belay_shape2(BATCH, TIME + 1), tokens, sizeof tokens);
}

static belay_tensor text_loss(const bl_bench_job *job)
{
    belay_tensor logits = belay_forward(job->model, belay_slice(job->tokens, 1, 0, -1, 1));
    belay_tensor labels = belay_view(belay_slice(job->tokens, 1, 1, BELAY_END, 1), belay_shape1(-1));
    return belay_cross_entropy(belay_view(logits, belay_shape2(-1, VOCABULARY)), labels, NULL);
}

bl_bench_job bl_bench_gpt2_open(int threads)
{
    bl_bench_job job = {.window = 1, .loss = text_loss};
    job.context =
        belay_open(&(belay_options){.seed = 1, .threads = threads, .no_journal = true, .memory = BELAY_MEMORY_POOL});
    job.model = belay_gpt2(job.context, NULL);
    job.optimizer = belay_adamw(job.model, &(belay_adam_options){.lr = 3e-4, .weight_decay = 0.1});
    job.tokens = draw_texts(job.context);
    return job;
}

belay_code bl_bench_gpt2_run(int threads, int steps, bl_bench_gpt2 *out, bl_error *error)
{
    double seconds[MOST_STEPS], square = bl_products_square(threads, 3);
    bl_bench_job job = bl_bench_gpt2_open(threads);
    steps = steps < MOST_STEPS ? steps : MOST_STEPS;
    bl_bench_job_step(&job); /* warms up */
    for (int i = 0; i < steps; i++)
        seconds[i] = bl_bench_job_step(&job);
    out->step_seconds = bl_bench_median(seconds, steps);
    out->tokens_per_second = BATCH * TIME / out->step_seconds;
    out->step_flop = 6.0 * (double)belay_module_n_elements(job.model) * BATCH * TIME;
    out->memory_peak = (double)belay_memory_get(job.context).peak;
    if (belay_n_faults(job.context) == 0 && belay_optimizer_n_applied(job.optimizer) != steps + 1)
        bl_context_raise(job.context, BELAY_BUG_INVARIANT, "a step of GPT-2 was not applied");
    TRY(bl_bench_job_close(&job, "the steps of GPT-2", error));
    double again = bl_products_square(threads, 3);
    out->square_flops = 2.0 * 2048 * 2048 * 2048 / (again < square ? again : square);
    return BELAY_OK;
}
