/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_job.h"

#include <belay/devices.h>
#include <belay/grad.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/bench_products.h"
#include "device/cpu/kernel.h"
#include "tensor/context.h"

enum { BATCH = 64, SEQ = 20, ROWS = 10000, EMBED = 128, HIDDEN = 256, LAYERS = 2, CLASSES = 5, WINDOW = 4 };

static double seconds_since(int64_t start) { return (double)(bl_clock_now() - start) * 1e-9; }

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bl_bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static belay_options quiet_options(int threads)
{
    return (belay_options){.seed = 1, .threads = threads, .no_journal = true, .memory = BELAY_MEMORY_POOL};
}

static belay_context *open_quiet(int threads)
{
    belay_options options = quiet_options(threads);
    return belay_open(&options);
}

/* Closes; a fault on the way means that what was measured was not the job. */
static belay_code close_checked(belay_context *context, const char *what, bl_error *error)
{
    belay_fault fault;
    belay_code code = BELAY_OK;
    if (!belay_is_open(context))
        code = bl_error_set(error, BELAY_MEM_EXHAUSTED, "no context for %s", what);
    else if (belay_fault_get(context, 0, &fault))
        code = bl_error_set(error, fault.code, "%s did not run: %s", what, fault.text);
    belay_close(context);
    return code;
}

/* ---- the reference job ------------------------------------------------------------------------------------------------ */

static belay_tensor random_ids(belay_context *context, belay_shape shape, int64_t below, uint32_t draw)
{
    int64_t n = shape.size[0] * (shape.rank > 1 ? shape.size[1] : 1);
    int64_t *ids = bl_alloc(n, sizeof *ids);
    bl_rng_key key = {1, 0, 0, draw};
    for (int64_t i = 0; ids != NULL && i < n; i++)
        ids[i] = (int64_t)bl_rng_below(&key, (uint64_t)i, (uint64_t)below);
    belay_tensor tensor = belay_tensor_from(context, BELAY_I64, shape, ids, n * (int64_t)sizeof *ids);
    bl_free(ids);
    return tensor;
}

static belay_tensor classifier_loss(const bl_bench_job *job)
{
    return belay_cross_entropy(belay_forward(job->model, job->tokens), job->labels, NULL);
}

bl_bench_job bl_bench_job_open(bl_bench_size size, const belay_options *options)
{
    const bool is_demo = size == BL_BENCH_DEMO;
    const int64_t rows = is_demo ? 80 : ROWS;
    bl_bench_job job = {.context = belay_open(options), .window = is_demo ? 1 : WINDOW, .loss = classifier_loss};
    job.model = belay_text_classifier(job.context, &(belay_text_classifier_options){.n_tokens = rows,
                                                                                    .classes = CLASSES,
                                                                                    .embed = is_demo ? 32 : EMBED,
                                                                                    .hidden = is_demo ? 64 : HIDDEN,
                                                                                    .layers = LAYERS,
                                                                                    .dropout = is_demo ? 0.3 : 0});
    job.optimizer = belay_adam(job.model, &(belay_adam_options){.lr = 1e-3, .clip = 1});
    belay_optimizer_divisor_set(job.optimizer, job.window);
    job.tokens = random_ids(job.context, belay_shape2(BATCH, SEQ), rows, 1);
    job.labels = random_ids(job.context, belay_shape1(BATCH), CLASSES, 2);
    return job;
}

double bl_bench_job_step(const bl_bench_job *job)
{
    int64_t start = bl_clock_now();
    for (int i = 0; i < job->window; i++) {
        belay_scope scope = belay_scope_open(job->context);
        belay_backward(job->loss(job));
        belay_scope_close(scope);
    }
    belay_optimizer_step(job->optimizer);
    return belay_synchronise(job->context) == BELAY_OK ? seconds_since(start) : 0;
}

belay_code bl_bench_job_close(bl_bench_job *job, const char *what, bl_error *error)
{
    return close_checked(job->context, what, error);
}

/* Bytes that no implementation does without: three floats of optimizer and gradient beside each parameter, and what
 * backward reads: per layer gates, c and h of each step, its input; logits. */
static double memory_bound(const belay_module *model)
{
    double activations = (double)BATCH * SEQ * (EMBED + LAYERS * (4.0 * HIDDEN + 2.0 * HIDDEN)) + BATCH * CLASSES;
    return 4.0 * (4.0 * (double)belay_module_n_elements(model) + activations);
}

belay_code bl_bench_reference_run(int threads, int windows, bl_bench_reference *out, bl_error *error)
{
    belay_options options = quiet_options(threads);
    bl_bench_job job = bl_bench_job_open(BL_BENCH_REFERENCE, &options);
    belay_context *context = job.context;
    bl_products *products = bl_products_new(threads);
    double *together = bl_alloc(windows, sizeof *together), *alone = bl_alloc(windows, sizeof *alone);
    bool has_memory = products != NULL && together != NULL && alone != NULL;
    if (!has_memory)
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for the products of the reference job");
    bl_bench_job_step(&job);
    if (belay_n_faults(context) == 0 && !(belay_optimizer_norm_get(job.optimizer) > 0))
        bl_context_raise(context, BELAY_BUG_INVARIANT, "the reference job made no gradient");
    for (int i = 0; i < windows && has_memory && belay_n_faults(context) == 0; i++) {
        together[i] = bl_bench_job_step(&job) / WINDOW;
        int64_t start = bl_clock_now();
        for (int j = 0; j < WINDOW; j++)
            bl_products_run(products);
        alone[i] = seconds_since(start) / WINDOW;
    }
    if (has_memory && belay_n_faults(context) == 0) {
        out->job_seconds = bl_bench_median(together, windows);
        out->products_seconds = bl_bench_median(alone, windows);
        out->flop = bl_products_flop(products);
        out->square_flops = 2.0 * 2048 * 2048 * 2048 / bl_products_square(threads, 3);
        out->memory_peak = (double)belay_memory_get(context).peak;
        out->memory_bound = memory_bound(job.model);
    }
    bl_products_free(products);
    bl_free(together);
    bl_free(alone);
    return bl_bench_job_close(&job, "the reference job", error);
}

/* ---- its modes -------------------------------------------------------------------------------------------------------- */

static double mode_quotient(const bl_bench_job *job, const bl_bench_job *base, int pairs)
{
    double quotient[64] = {0};
    pairs = pairs < 64 ? pairs : 64;
    bl_bench_job_step(job);
    bl_bench_job_step(base);
    for (int i = 0; i < pairs; i++) {
        bool is_base_first = i % 2 == 0;
        double first = bl_bench_job_step(is_base_first ? base : job);
        double second = bl_bench_job_step(is_base_first ? job : base);
        quotient[i] = is_base_first ? second / first : first / second;
    }
    return bl_bench_median(quotient, pairs);
}

belay_code bl_bench_modes_run(int threads, int pairs, bl_bench_mode out[BL_BENCH_MODES], bl_error *error)
{
    static const struct {
        const char *name, *device;
        belay_memory_mode memory;
        bool poison;
    } modes[BL_BENCH_MODES] = {
        {"red zones", "cpu", BELAY_MEMORY_REDZONE, false},
        {"poison", "cpu", BELAY_MEMORY_POOL, true},
        {"exact blocks", "cpu", BELAY_MEMORY_EXACT, false},
        {"exact blocks, poison", "cpu", BELAY_MEMORY_EXACT, true},
        {"a software device, one thread each", "sim:0", BELAY_MEMORY_POOL, false},
    };
    for (int i = 0; i < BL_BENCH_MODES; i++) {
        bool is_cpu = strcmp(modes[i].device, "cpu") == 0;
        belay_options options = {.seed = 1, .threads = is_cpu ? threads : 1, .no_journal = true};
        options.memory = BELAY_MEMORY_POOL;
        bl_bench_job base = bl_bench_job_open(BL_BENCH_REFERENCE, &options);
        options.device = modes[i].device;
        options.memory = modes[i].memory;
        options.poison = modes[i].poison;
        bl_bench_job job = bl_bench_job_open(BL_BENCH_REFERENCE, &options);
        out[i] = (bl_bench_mode){modes[i].name, mode_quotient(&job, &base, pairs)};
        belay_code code = bl_bench_job_close(&base, "the reference job", error);
        belay_code of_mode = bl_bench_job_close(&job, modes[i].name, error);
        if (code != BELAY_OK || of_mode != BELAY_OK)
            return code != BELAY_OK ? code : of_mode;
    }
    return BELAY_OK;
}

/* ---- one call ------------------------------------------------------------------------------------------------------------ */

static double call_seconds(belay_context *context, belay_tensor x, bool recording)
{
    enum { CALLS = 1000, ROUNDS = 101 };
    double seconds[ROUNDS];
    bool was = belay_recording_set(context, recording);
    for (int round = 0; round < ROUNDS; round++) {
        belay_scope scope = belay_scope_open(context);
        int64_t start = bl_clock_now();
        belay_tensor y = x;
        for (int i = 0; i < CALLS; i++)
            y = belay_add(y, x);
        seconds[round] = seconds_since(start) / CALLS;
        belay_scope_close(scope);
    }
    belay_recording_set(context, was);
    return bl_bench_median(seconds, ROUNDS);
}

belay_code bl_bench_call_run(bl_bench_call *out, bl_error *error)
{
    belay_context *context = open_quiet(1);
    belay_tensor x = belay_tensor_requires_grad_set(belay_ones(context, BELAY_F32, belay_shape1(1)), true);
    out->recorded_seconds = call_seconds(context, x, true);
    out->plain_seconds = call_seconds(context, x, false);
    return close_checked(context, "the calls", error);
}

/* ---- the index tests ------------------------------------------------------------------------------------------------------ */

/* The same families stamped without index tests; for this command only. */
extern const bl_cpu_family bl_cpu_family_unchecked_index[];
extern const bl_cpu_family bl_cpu_family_unchecked_loss[];

/* Puts the entries of a family into the device's table. */
static void use_family(belay_context *context, const bl_cpu_family *family)
{
    bl_cpu *cpu = (bl_cpu *)context->device;
    for (; family->entry != NULL; family++)
        for (int i = 0; i < family->n; i++)
            cpu->entry[family->entry[i].op][family->entry[i].dtype] = &family->entry[i];
}

static void use_checked(belay_context *context, bool checked)
{
    if (!checked) {
        use_family(context, bl_cpu_family_unchecked_index);
        use_family(context, bl_cpu_family_unchecked_loss);
        return;
    }
    for (const bl_cpu_family *const *family = bl_cpu_families; *family != NULL; family++)
        use_family(context, *family);
}

typedef struct guard_job {
    belay_tensor a, index;
    belay_tensor (*run)(const struct guard_job *job);
} guard_job;

static belay_tensor run_embedding(const guard_job *job) { return belay_embedding(job->a, job->index, NULL); }
static belay_tensor run_gather(const guard_job *job) { return belay_gather(job->a, 1, job->index, NULL); }
static belay_tensor run_loss(const guard_job *job) { return belay_cross_entropy(job->a, job->index, NULL); }

static double job_seconds(belay_context *context, const guard_job *job, bool checked)
{
    use_checked(context, checked);
    belay_scope scope = belay_scope_open(context);
    int64_t start = bl_clock_now();
    job->run(job);
    double seconds = seconds_since(start);
    belay_scope_close(scope);
    return seconds;
}

/* Median of with / without over pairs, each pair in the other order than the one before. */
static double guard_quotient(belay_context *context, const guard_job *job, int pairs)
{
    double quotient[64] = {0};
    pairs = pairs < 64 ? pairs : 64;
    job_seconds(context, job, true);
    job_seconds(context, job, false);
    for (int i = 0; i < pairs; i++) {
        double first = job_seconds(context, job, i % 2 == 0), second = job_seconds(context, job, i % 2 != 0);
        quotient[i] = i % 2 == 0 ? first / second : second / first;
    }
    use_checked(context, true);
    return bl_bench_median(quotient, pairs);
}

belay_code bl_bench_guards_run(int threads, int pairs, bl_bench_guard out[BL_BENCH_GUARDS], bl_error *error)
{
    belay_context *context = open_quiet(threads);
    belay_recording_set(context, false);
    guard_job jobs[BL_BENCH_GUARDS] = {
        {belay_uniform(context, BELAY_F32, belay_shape2(1000000, 8), -1, 1),
         random_ids(context, belay_shape1(1000000), 1000000, 3), run_embedding},
        {belay_uniform(context, BELAY_F32, belay_shape2(4096, 1024), -1, 1),
         random_ids(context, belay_shape2(4096, 512), 1024, 4), run_gather},
        {belay_uniform(context, BELAY_F32, belay_shape2(64, 50000), -1, 1),
         random_ids(context, belay_shape1(64), 50000, 5), run_loss},
    };
    static const char *const names[BL_BENCH_GUARDS] = {"embedding, 1,000,000 rows of 8", "gather, 4096 x 512 of 1024",
                                                       "cross-entropy, 50,000 classes"};
    for (int i = 0; i < BL_BENCH_GUARDS && belay_n_faults(context) == 0; i++)
        out[i] = (bl_bench_guard){names[i], guard_quotient(context, &jobs[i], pairs)};
    return close_checked(context, "the index tests", error);
}
