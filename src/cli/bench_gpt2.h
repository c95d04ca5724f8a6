/* SPDX-License-Identifier: Apache-2.0 */
/* What `belay bench` measures of a large model: steps of GPT-2. */
#ifndef BL_CLI_BENCH_GPT2_H
#define BL_CLI_BENCH_GPT2_H

#include "cli/bench_job.h"

/* GPT-2 of 124M parameters, ready to run steps: 4 texts of 64 random tokens, AdamW. */
bl_bench_job bl_bench_gpt2_open(int threads);

/* GPT-2 of 124M parameters on 4 texts of 64 random tokens: forward, cross-entropy, backward, AdamW, float32; and, before
 * and after, a product of 2048 x 2048 x 2048. */
typedef struct bl_bench_gpt2 {
    double step_seconds;      /* median */
    double tokens_per_second; /* by that */
    double step_flop;         /* 6 floating-point operations a parameter and token */
    double square_flops;      /* per second */
    double memory_peak;       /* bytes that were in use at most */
} bl_bench_gpt2;

BL_MUST_USE belay_code bl_bench_gpt2_run(int threads, int steps, bl_bench_gpt2 *out, bl_error *error);

#endif
