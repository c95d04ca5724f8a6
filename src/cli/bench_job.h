/* SPDX-License-Identifier: Apache-2.0 */
/* What `belay bench` measures: the reference job, what memory modes and a software device cost it, the cost of a call,
 * the cost of the index tests. */
#ifndef BL_CLI_BENCH_JOB_H
#define BL_CLI_BENCH_JOB_H

#include <belay/nn.h>
#include <belay/optim.h>

#include "base/error.h"

/* A job ready to run steps: windows of `window` micro-batches and the optimizer's step over them. */
typedef struct bl_bench_job {
    belay_context *context;
    belay_module *model;
    belay_optimizer *optimizer;
    belay_tensor tokens, labels;
    int window;
    belay_tensor (*loss)(const struct bl_bench_job *job);
} bl_bench_job;

/* A text classifier of 2 LSTM layers on random words, batch 64, seq 20, Adam, clip 1: the reference job, and the one that
 * `make demo` trains (Embedding(80, 32), LSTM(32 -> 64, dropout 0.3), Linear(64, 5), a step a batch). */
typedef enum bl_bench_size { BL_BENCH_REFERENCE, BL_BENCH_DEMO } bl_bench_size;
bl_bench_job bl_bench_job_open(bl_bench_size size, const belay_options *options);
/* Runs a step up to the end of its work; seconds.  A fault is told when the job is closed. */
double bl_bench_job_step(const bl_bench_job *job);
/* A fault on the way means that what was measured was not the job: `what` did not run. */
BL_MUST_USE belay_code bl_bench_job_close(bl_bench_job *job, const char *what, bl_error *error);

double bl_bench_median(double *values, int n);

/* The reference job: Embedding(10000, 128) -> LSTM(128 -> 256, 2 layers) -> Linear(256, 5), batch 64, seq 20, Adam,
 * accumulate 4, clip 1, float32; and its products alone, window by window in turn. */
typedef struct bl_bench_reference {
    double job_seconds;      /* median, of a micro-batch with its share of the step */
    double products_seconds; /* median, of a micro-batch's products alone */
    double flop;             /* of a micro-batch's products */
    double square_flops;     /* per second, of a 2048 x 2048 x 2048 product */
    double memory_peak;      /* bytes that were in use at most */
    double memory_bound;     /* parameters, gradients, optimizer state, saved activations */
} bl_bench_reference;

BL_MUST_USE belay_code bl_bench_reference_run(int threads, int windows, bl_bench_reference *out, bl_error *error);

/* The reference job in another mode, or elsewhere, against the same job on the cpu with pooled memory: median quotient of
 * interleaved pairs of windows.  The software device has one thread, and so has what it is held against. */
typedef struct bl_bench_mode {
    const char *name;
    double quotient;
} bl_bench_mode;
enum { BL_BENCH_MODES = 5 };
BL_MUST_USE belay_code bl_bench_modes_run(int threads, int pairs, bl_bench_mode out[BL_BENCH_MODES], bl_error *error);

/* Seconds of one call on a tensor with one element: recorded add, and add with recording off. */
typedef struct bl_bench_call {
    double recorded_seconds;
    double plain_seconds;
} bl_bench_call;
BL_MUST_USE belay_code bl_bench_call_run(bl_bench_call *out, bl_error *error);

/* With the index tests against the same kernels compiled without them: median quotient of interleaved pairs. */
typedef struct bl_bench_guard {
    const char *name;
    double quotient;
} bl_bench_guard;
enum { BL_BENCH_GUARDS = 3 };
BL_MUST_USE belay_code bl_bench_guards_run(int threads, int pairs, bl_bench_guard out[BL_BENCH_GUARDS],
                                           bl_error *error);

#endif
