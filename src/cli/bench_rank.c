/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_rank.h"

#include <belay/dist.h>
#include <belay/grad.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/bench_job.h"

enum {
    WIDTH = 1024,
    LAYERS = 12,
    BUCKET = 4 << 20,
    FEW = 64, /* samples: next to nothing to compute */
    SOME = 256,
    STEPS = 4, /* of a turn */
    TINY_STEPS = 200,
    MOST = 256
};

static double seconds_since(int64_t start) { return (double)(bl_clock_now() - start) * 1e-9; }

/* One side of a comparison: a job of the reference, with or without a reducer, or a small or a wide MLP. */
typedef struct side {
    belay_context *context;
    belay_group *group;
    bl_bench_job job;
    belay_reducer *reducer; /* NULL: none */
} side;

static belay_options rank_options(void) { return (belay_options){.seed = 1, .threads = 1, .no_journal = true}; }

static void print(const side *s, const char *name, double value)
{
    if (belay_group_rank(s->group) == 0)
        printf("%s %.9g\n", name, value);
}

/* The mean over the ranks; the same on all. */
static double mean_over_ranks(const side *s, double value)
{
    belay_scope scope = belay_scope_open(s->context);
    belay_tensor t = belay_tensor_from(s->context, BELAY_F64, belay_shape1(1), &value, sizeof value);
    if (belay_group_all_reduce(s->group, t, BELAY_GROUP_SUM) == BELAY_OK)
        (void)!belay_tensor_read(t, &value, sizeof value);
    belay_scope_close(scope);
    return value / belay_group_size(s->group);
}

static bool is_fine(const side *s) { return belay_is_open(s->context) && belay_n_faults(s->context) == 0; }

static void wait_for_all(const side *s) { (void)!belay_group_barrier(s->group); }

/* Seconds a step over a turn of them. */
static double turn(const side *s, int steps)
{
    int64_t start = bl_clock_now();
    for (int i = 0; i < steps; i++)
        bl_bench_job_step(&s->job);
    return seconds_since(start) / steps;
}

/* Turns of two sides, in an order that alternates, all ranks at once: the median of their times over all ranks. */
static bool measure_turns(const side *by, const side *a, const side *b, int turns, int steps, double out[2])
{
    const side *sides[2] = {a, b};
    double seconds[2][MOST];
    turns = turns < MOST ? turns : MOST;
    for (int i = 0; i < turns && is_fine(a) && is_fine(b); i++)
        for (int k = 0; k < 2; k++) {
            int which = (i + k) % 2;
            wait_for_all(by);
            seconds[which][i] = mean_over_ranks(by, turn(sides[which], steps));
        }
    if (!is_fine(a) || !is_fine(b) || !is_fine(by))
        return false;
    out[0] = bl_bench_median(seconds[0], turns);
    out[1] = bl_bench_median(seconds[1], turns);
    return true;
}

/* ---- models that are not the reference job ---------------------------------------------------------------------------- */

static belay_tensor mlp_loss(const bl_bench_job *job)
{
    return belay_mse(belay_forward(job->model, job->tokens), job->labels, BELAY_MEAN);
}

/* An MLP of `layers` square layers in a context that is there. */
static bl_bench_job mlp_open(belay_context *context, int layers, int64_t width)
{
    belay_mlp_options options = {.sizes = {0}};
    for (int i = 0; i <= layers; i++)
        options.sizes[i] = width;
    bl_bench_job job = {.context = context, .window = 1, .loss = mlp_loss};
    job.model = belay_mlp(context, &options);
    job.optimizer = belay_sgd(job.model, &(belay_sgd_options){.lr = 1e-3});
    return job;
}

static void batch_set(side *s, int64_t n, int64_t width)
{
    s->job.tokens = belay_full(s->context, BELAY_F32, belay_shape2(n, width), 0.5);
    s->job.labels = belay_zeros(s->context, BELAY_F32, belay_shape2(n, width));
}

/* ---- two ranks on one host -------------------------------------------------------------------------------------------- */

static side reference_open(void)
{
    belay_options options = rank_options();
    side s = {.job = bl_bench_job_open(BL_BENCH_REFERENCE, &options)};
    s.context = s.job.context;
    s.job.window = 1;
    belay_optimizer_divisor_set(s.job.optimizer, 1);
    return s;
}

static bool join(side *s)
{
    s->group = belay_group_open(s->context, &(belay_group_options){.maker = "mpi"});
    return !belay_group_is_nil(s->group) && belay_group_bind(s->group, "cpu") == BELAY_OK;
}

static bool average(side *s, const belay_ddp_options *options)
{
    s->reducer = belay_ddp(s->job.model, s->group, options);
    return !belay_reducer_is_nil(s->reducer);
}

/* What a step costs for being agreed on, where there is nothing to compute or to move. */
static bool run_tiny(const side *with, const side *without, double out[2])
{
    side a = {.context = with->context, .group = with->group, .job = mlp_open(with->context, 1, 1)};
    side b = {.context = without->context, .job = mlp_open(without->context, 1, 1)};
    batch_set(&a, 1, 1);
    batch_set(&b, 1, 1);
    return average(&a, NULL) && measure_turns(with, &a, &b, 9, TINY_STEPS, out);
}

static bool run_pair(side *with, side *without, int windows)
{
    double job[2], tiny[2];
    if (!join(with) || !average(with, NULL))
        return false;
    turn(with, STEPS);
    turn(without, STEPS);
    if (!measure_turns(with, with, without, windows, STEPS, job) || !run_tiny(with, without, tiny))
        return false;
    print(with, "pair_seconds", job[0]);
    print(with, "alone_seconds", job[1]);
    print(with, "agreement_seconds", tiny[0] - tiny[1]);
    return true;
}

static belay_code pair(int windows, bl_error *error)
{
    side with = reference_open(), without = reference_open();
    bool is_done = run_pair(&with, &without, windows);
    belay_code alone = bl_bench_job_close(&without.job, "the reference job", error);
    belay_code code = bl_bench_job_close(&with.job, "the reference job of two ranks", error);
    if (code == BELAY_OK && alone == BELAY_OK && !is_done)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "the reference job of two ranks did not run");
    return code != BELAY_OK ? code : alone;
}

/* ---- two ranks on a slow network -------------------------------------------------------------------------------------- */

static side wide_open(const side *by, bool overlaps)
{
    side s = {.context = by->context, .group = by->group, .job = mlp_open(by->context, LAYERS, WIDTH)};
    belay_ddp_options options = {
        .first_bucket_bytes = BUCKET, .bucket_bytes = BUCKET, .no_overlap = !overlaps, .digest_every = -1};
    (void)average(&s, &options);
    return s;
}

/* Seconds of forward and of backward for n samples, without a reduction. */
static void time_backward(side *s, int64_t n, double *forward, double *backward)
{
    (void)belay_ddp_sync_set(s->reducer, false);
    batch_set(s, n, WIDTH);
    for (int i = 0; i < 2; i++) {
        belay_scope scope = belay_scope_open(s->context);
        int64_t start = bl_clock_now();
        belay_tensor loss = mlp_loss(&s->job);
        *forward = seconds_since(start);
        start = bl_clock_now();
        belay_backward(loss);
        *backward = seconds_since(start);
        belay_scope_close(scope);
    }
    (void)belay_ddp_sync_set(s->reducer, true);
}

/* Samples whose backward takes as long as the reduction of all gradients: a guess, and two looks at how far off it is. */
static int64_t choose_batch(side *blocking, double *reduction)
{
    double forward, backward, few[2];
    int64_t n = SOME;
    time_backward(blocking, FEW, &few[0], &few[1]);
    turn(blocking, 1);
    double step = mean_over_ranks(blocking, turn(blocking, 2));
    *reduction = step - mean_over_ranks(blocking, few[0] + few[1]);
    for (int i = 0; i < 3; i++) {
        time_backward(blocking, n, &forward, &backward);
        double of_one = mean_over_ranks(blocking, backward) / (double)n;
        n = (int64_t)(*reduction / of_one / FEW + 0.5) * FEW;
        n = n < FEW ? FEW : n > 64 * FEW ? 64 * FEW : n;
    }
    return n;
}

static bool run_wide(side *by, int windows)
{
    double seconds[2], reduction, forward = 0, backward = 0;
    side over = wide_open(by, true), blocking = wide_open(by, false);
    if (belay_reducer_is_nil(over.reducer) || belay_reducer_is_nil(blocking.reducer))
        return false;
    int64_t n = choose_batch(&blocking, &reduction);
    time_backward(&blocking, n, &forward, &backward);
    batch_set(&over, n, WIDTH);
    batch_set(&blocking, n, WIDTH);
    turn(&over, 2);
    turn(&blocking, 2);
    if (!measure_turns(by, &over, &blocking, windows, 1, seconds))
        return false;
    print(by, "wide_batch", (double)n);
    print(by, "wide_reduction_seconds", reduction);
    print(by, "wide_backward_seconds", backward);
    print(by, "wide_seconds", seconds[0]);
    print(by, "wide_blocking_seconds", seconds[1]);
    belay_reducer_free(over.reducer);
    belay_reducer_free(blocking.reducer);
    return true;
}

/* Seconds of the reference job's step under a reducer that is made for it, since a module has one at a time. */
static bool time_reference(side *by, bool overlaps, double *seconds)
{
    if (!average(by, &(belay_ddp_options){.no_overlap = !overlaps, .digest_every = -1}))
        return false;
    turn(by, 2); /* the order of buckets is learned */
    *seconds = mean_over_ranks(by, turn(by, 2));
    belay_reducer_free(by->reducer);
    return is_fine(by);
}

static bool run_reference(side *by, int windows)
{
    double seconds[2][MOST];
    windows = windows < MOST ? windows : MOST;
    for (int i = 0; i < windows; i++)
        for (int k = 0; k < 2; k++)
            if (!time_reference(by, (i + k) % 2 != 0, &seconds[(i + k) % 2][i]))
                return false;
    print(by, "reference_seconds", bl_bench_median(seconds[1], windows));
    print(by, "reference_blocking_seconds", bl_bench_median(seconds[0], windows));
    return true;
}

static belay_code wire(int windows, bl_error *error)
{
    side by = reference_open();
    bool is_done = join(&by) && run_wide(&by, windows) && run_reference(&by, windows);
    belay_code code = bl_bench_job_close(&by.job, "a job of two ranks on a slow network", error);
    if (code == BELAY_OK && !is_done)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "a job of two ranks on a slow network did not run");
    return code;
}

belay_code bl_bench_rank_run(const char *job, int windows, bl_error *error)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(job, "pair") == 0)
        return pair(windows, error);
    if (strcmp(job, "wire") == 0)
        return wire(windows, error);
    return bl_error_set(error, BELAY_CONF_UNKNOWN, "there is no job of ranks called '%.40s'", job);
}
