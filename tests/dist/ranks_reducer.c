/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients averaged over ranks, and windows that end the same way on all of them.  What can go wrong and is survived runs
 * in one process; what breaks the group is a case of its own (see main). */
#include "dist/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <belay/belay.h>

#include "base/memory.h"
#include "dist/parts.h"

enum { IN = 5, HIDDEN = 7, OUT = 3, ROWS = 4, WEIGHTS = IN * HIDDEN + HIDDEN + HIDDEN * OUT + OUT };

typedef struct job {
    ranks r;
    belay_module *model;
    belay_reducer *reducer;
    belay_optimizer *sgd;
} job;

static job open_with(belay_ddp_options options)
{
    job j = {.r = ranks_open(20)};
    options.digest_every = options.digest_every != 0 ? options.digest_every : 1;
    j.model = belay_mlp(j.r.context, &(belay_mlp_options){.sizes = {IN, HIDDEN, OUT}});
    j.reducer = belay_ddp(j.model, j.r.group, &options);
    assert_false(belay_reducer_is_nil(j.reducer));
    j.sgd = belay_sgd(j.model, &(belay_sgd_options){.lr = 0.1, .momentum = 0.9});
    return j;
}

static job open_job(void) { return open_with((belay_ddp_options){.first_bucket_bytes = 64, .bucket_bytes = 128}); }

/* A rank's own batch. */
static belay_tensor input_of(const job *j, int rank, int step)
{
    float x[ROWS * IN];
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (float)((i * 7 + rank * 5 + step * 3) % 11) / 5 - 1;
    return belay_tensor_from(j->r.context, BELAY_F32, belay_shape2(ROWS, IN), x, sizeof x);
}

static belay_tensor mean_square(belay_tensor y) { return belay_mean(belay_mul(y, y), NULL); }

static belay_tensor loss_of(const job *j, int rank, int step)
{
    return mean_square(belay_forward(j->model, input_of(j, rank, step)));
}

static void read_weights(const belay_module *model, float out[WEIGHTS])
{
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        belay_tensor p = belay_module_parameter(model, i);
        int64_t n = belay_tensor_n_elements(p);
        assert_int_equal(belay_tensor_read(p, out, n * 4), BELAY_OK);
        out += n;
    }
}

static void read_gradients(const belay_module *model, float out[WEIGHTS])
{
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        belay_tensor p = belay_module_parameter(model, i);
        int64_t n = belay_tensor_n_elements(p);
        assert_int_equal(belay_tensor_read(belay_tensor_grad(p), out, n * 4), BELAY_OK);
        out += n;
    }
}

/* The same bits on all ranks. */
static void expect_same(const job *j, const float *values, int n)
{
    float all[8 * WEIGHTS];
    belay_scope scope = belay_scope_open(j->r.context);
    belay_tensor mine = belay_tensor_from(j->r.context, BELAY_F32, belay_shape1(n), values, n * 4);
    belay_tensor out = belay_zeros(j->r.context, BELAY_F32, belay_shape2(j->r.size, n));
    assert_int_equal(belay_group_all_gather(j->r.group, mine, out), BELAY_OK);
    assert_int_equal(belay_tensor_read(out, all, j->r.size * n * 4), BELAY_OK);
    belay_scope_close(scope);
    for (int q = 0; q < j->r.size; q++)
        assert_memory_equal(all + q * n, values, (size_t)n * 4);
}

static void expect_same_weights(const job *j)
{
    float w[WEIGHTS];
    read_weights(j->model, w);
    expect_same(j, w, WEIGHTS);
}

static void expect_weights(const job *j, const float *wanted, bool is_same)
{
    float w[WEIGHTS];
    read_weights(j->model, w);
    assert_int_equal(memcmp(w, wanted, sizeof w) == 0, is_same);
    expect_same(j, w, WEIGHTS);
}

static void step(const job *j, int step_number)
{
    belay_scope scope = belay_scope_open(j->r.context);
    belay_backward(loss_of(j, j->r.rank, step_number));
    belay_optimizer_step(j->sgd);
    belay_scope_close(scope);
}

/* One window: its backwards and the end of it. */
typedef void (*window)(job *j);

/* A window that all drop, whatever one rank made of it, and a step behind it that all apply. */
static void dropped_by_all(window bad)
{
    float before[WEIGHTS];
    job j = open_job();
    read_weights(j.model, before);
    belay_scope scope = belay_scope_open(j.r.context);
    bad(&j);
    assert_false(belay_optimizer_is_applied(j.sgd));
    expect_weights(&j, before, true);
    belay_scope_close(scope);
    told_clear();
    step(&j, 1);
    assert_true(belay_optimizer_is_applied(j.sgd));
    expect_weights(&j, before, false);
    belay_close(j.r.context);
}

/* ---- averages -------------------------------------------------------------------------------------------------------- */

static void a_gradient_is_the_mean_of_the_ranks(void **state)
{
    (void)state;
    job j = open_job();
    float got[WEIGHTS], one[WEIGHTS], mean[WEIGHTS] = {0};
    belay_scope scope = belay_scope_open(j.r.context);
    belay_ddp_sync_set(j.reducer, false);
    for (int q = 0; q < j.r.size; q++) { /* what each rank has, one after the other */
        belay_backward(loss_of(&j, q, 0));
        read_gradients(j.model, one);
        for (int i = 0; i < WEIGHTS; i++)
            mean[i] += one[i] / (float)j.r.size;
        belay_module_grads_clear(j.model);
    }
    belay_ddp_sync_set(j.reducer, true);
    belay_backward(loss_of(&j, j.r.rank, 0));
    read_gradients(j.model, got);
    for (int i = 0; i < WEIGHTS; i++)
        assert_float_equal(got[i], mean[i], 1e-6);
    expect_same(&j, got, WEIGHTS);
    belay_optimizer_step(j.sgd);
    belay_scope_close(scope);
    ranks_close(&j.r);
}

static void weights_stay_the_same_on_all_ranks(void **state)
{
    (void)state;
    float first[WEIGHTS];
    job j = open_job();
    read_weights(j.model, first);
    int64_t before = belay_reducer_bucket_of(j.reducer, 0);
    for (int i = 0; i < 10; i++)
        step(&j, i);
    expect_weights(&j, first, false);
    assert_int_equal(belay_reducer_n_reduced(j.reducer), 10);
    assert_true(belay_reducer_bucket_of(j.reducer, 0) == before); /* an MLP's guess was right */
    ranks_close(&j.r);
}

/* Accumulated over two backwards, reduced once or twice: the same sums. */
static void accumulation_reduces_once_or_each_time(void **state)
{
    (void)state;
    float once[WEIGHTS], twice[WEIGHTS];
    for (int n = 1; n <= 2; n++) {
        job j = open_job();
        belay_scope scope = belay_scope_open(j.r.context);
        belay_ddp_sync_set(j.reducer, n == 2);
        belay_backward(loss_of(&j, j.r.rank, 0));
        belay_ddp_sync_set(j.reducer, true);
        belay_backward(loss_of(&j, j.r.rank, 1));
        read_gradients(j.model, n == 1 ? once : twice);
        expect_same(&j, n == 1 ? once : twice, WEIGHTS);
        assert_int_equal(belay_reducer_n_reduced(j.reducer), n);
        belay_optimizer_step(j.sgd);
        assert_true(belay_optimizer_is_applied(j.sgd));
        belay_scope_close(scope);
        ranks_close(&j.r);
    }
    for (int i = 0; i < WEIGHTS; i++)
        assert_float_equal(once[i], twice[i], 1e-6);
}

/* ---- an op of the user's own ------------------------------------------------------------------------------------------- */

/* y = w x, whose backward keeps what it gives: the reduction goes on in the bucket and changes nothing of it. */
typedef struct keeper {
    belay_tensor kept;
} keeper;

static void multiply(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                     int n_out)
{
    (void)state, (void)n_in, (void)n_out;
    belay_function_save(call, in[1]);
    out[0] = belay_mul(in[0], in[1]);
}

static void multiply_back(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                          belay_tensor *grad_in, int n_in)
{
    keeper *k = state;
    (void)n_out, (void)n_in;
    grad_in[0] = belay_mul(grad_out[0], belay_function_saved(call, 0));
    k->kept = belay_keep(grad_in[0]);
}

static keeper keeps;

static belay_tensor scaled_forward(belay_module *module, belay_tensor x)
{
    static const belay_function function = {.name = "scaled", .forward = multiply, .backward = multiply_back};
    belay_tensor in[2] = {*(belay_tensor *)belay_module_self(module), x}, out[1];
    belay_function_apply(belay_module_context(module), &function, &keeps, in, 2, 0, out, 1);
    return out[0];
}

static const belay_module_kind scaled_kind = {"scaled", sizeof(belay_tensor), scaled_forward, NULL};

static void what_a_function_keeps_is_not_what_is_reduced(void **state)
{
    (void)state;
    ranks r = ranks_open(20);
    belay_module *module = belay_module_new(r.context, &scaled_kind);
    belay_tensor *w = belay_module_self(module);
    *w = belay_module_add_parameter(module, "w", BELAY_F32, belay_shape1(3),
                                    (belay_init){.kind = BELAY_INIT_CONSTANT, .a = 1});
    assert_false(belay_reducer_is_nil(belay_ddp(module, r.group, NULL)));
    float x[3], got[3];
    for (int i = 0; i < 3; i++)
        x[i] = (float)(r.rank + i);
    belay_scope scope = belay_scope_open(r.context);
    belay_backward(
        belay_sum(belay_forward(module, belay_tensor_from(r.context, BELAY_F32, belay_shape1(3), x, sizeof x)), NULL));
    assert_int_equal(belay_tensor_read(belay_tensor_grad(*w), got, sizeof got), BELAY_OK);
    for (int i = 0; i < 3; i++)
        assert_float_equal(got[i], (float)i + (float)(r.size - 1) / 2, 1e-6);
    assert_int_equal(belay_tensor_read(keeps.kept, got, sizeof got), BELAY_OK);
    assert_memory_equal(got, x, sizeof x);
    belay_scope_close(scope);
    ranks_close(&r);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------------- */

static belay_tensor shifted_forward(belay_module *module, belay_tensor x)
{
    return belay_add(belay_mul(belay_module_parameter(module, 0), x), belay_module_buffer(module, 0));
}

static const belay_module_kind shifted_kind = {"shifted", 8, shifted_forward, NULL};

static float shift_of(const belay_module *module)
{
    float value;
    assert_int_equal(belay_tensor_read(belay_module_buffer(module, 0), &value, 4), BELAY_OK);
    return value;
}

/* All begin with rank 0's; after that they are shared at each forward where that was asked for. */
static void buffers_are_rank_0s_at_the_start_and_at_each_forward_if_asked(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        ranks r = ranks_open(20);
        belay_module *module = belay_module_new(r.context, &shifted_kind);
        const float one = 1, own = (float)r.rank, later = (float)(10 + r.rank);
        (void)belay_module_add_parameter(module, "w", BELAY_F32, belay_shape1(1),
                                         (belay_init){.kind = BELAY_INIT_CONSTANT, .a = 1});
        belay_tensor shift =
            belay_module_add_buffer(module, "shift", belay_tensor_from(r.context, BELAY_F32, belay_shape1(1), &own, 4));
        belay_reducer *ddp = belay_ddp(module, r.group, &(belay_ddp_options){.broadcast_buffers = asked == 1});
        assert_true(shift_of(module) == 0);
        assert_int_equal(belay_tensor_write(shift, &later, 4), BELAY_OK);
        belay_scope scope = belay_scope_open(r.context);
        (void)belay_ddp_forward(ddp, belay_tensor_from(r.context, BELAY_F32, belay_shape1(1), &one, 4));
        assert_true(shift_of(module) == (asked == 1 ? 10 : later));
        belay_scope_close(scope);
        ranks_close(&r);
    }
}

/* ---- windows that some rank cannot fill ------------------------------------------------------------------------------- */

/* Wrong labels on one rank: all drop the window, and go on. */
static void a_fault_on_one_rank_drops_the_window_on_all(void **state)
{
    (void)state;
    float before[WEIGHTS];
    job j = open_job();
    step(&j, 0);
    for (int culprit = 0; culprit < j.r.size; culprit++) {
        read_weights(j.model, before);
        bool is_bad = j.r.rank == culprit;
        const int64_t labels[ROWS] = {0, is_bad ? OUT : 1, 2, 0};
        belay_scope scope = belay_scope_open(j.r.context);
        belay_tensor want = belay_tensor_from(j.r.context, BELAY_I64, belay_shape1(ROWS), labels, sizeof labels);
        belay_backward(belay_cross_entropy(belay_forward(j.model, input_of(&j, j.r.rank, 1)), want, NULL));
        if (is_bad)
            assert_non_null(strstr(told(), "(index.label)"));
        else
            told_expect("%s", "");
        told_clear();
        int line = __LINE__ + 1;
        belay_optimizer_step(j.sgd);
        if (!is_bad) {
            char at[64];
            snprintf(at, sizeof at, "called at: ranks_reducer.c:%d\n", line);
            assert_non_null(strstr(told(), "was not applied: index.label in its window (run.window_lost)\n"));
            assert_non_null(strstr(told(), at));
        }
        told_clear();
        assert_false(belay_optimizer_is_applied(j.sgd));
        expect_weights(&j, before, true);
        belay_scope_close(scope);
        step(&j, 2);
        assert_true(belay_optimizer_is_applied(j.sgd));
        expect_weights(&j, before, false);
    }
    belay_close(j.r.context);
}

/* Nothing came of its forward: it reduces zeros, and says so. */
static void without_a_loss(job *j)
{
    belay_tensor x = input_of(j, j->r.rank, 0);
    if (j->r.rank == 1) /* a shape that no layer takes */
        x = belay_transpose(x, 0, 1);
    belay_tensor loss = belay_mean(belay_forward(j->model, x), NULL);
    assert_int_equal(belay_tensor_is_nil(loss), j->r.rank == 1);
    belay_backward(loss);
    belay_optimizer_step(j->sgd);
}

static void a_rank_whose_loss_is_nil_holds_nobody_up(void **state)
{
    (void)state;
    dropped_by_all(without_a_loss);
}

/* One of several backwards of a window is missing on a rank that faulted: it catches up. */
static void without_a_backward(job *j)
{
    for (int k = 0; k < 2; k++) {
        belay_tensor x = input_of(j, j->r.rank, k);
        if (j->r.rank == 0 && k == 0)
            x = belay_transpose(x, 0, 1);
        belay_backward(belay_mean(belay_forward(j->model, x), NULL));
    }
    belay_optimizer_step(j->sgd);
    assert_int_equal(belay_reducer_n_reduced(j->reducer), 2);
}

static void a_rank_that_faulted_early_in_a_window_catches_up(void **state)
{
    (void)state;
    dropped_by_all(without_a_backward);
}

/* A rank without data in a window takes what the others have. */
static void a_rank_without_a_backward_takes_the_mean_of_all(void **state)
{
    (void)state;
    job j = open_job();
    float one[WEIGHTS], got[WEIGHTS], w[WEIGHTS];
    belay_scope scope = belay_scope_open(j.r.context);
    belay_ddp_sync_set(j.reducer, false);
    belay_backward(loss_of(&j, 0, 0));
    read_gradients(j.model, one);
    belay_module_grads_clear(j.model);
    belay_ddp_sync_set(j.reducer, true);
    read_weights(j.model, w);
    if (j.r.rank == 0)
        belay_backward(loss_of(&j, 0, 0));
    belay_optimizer_step(j.sgd);
    assert_true(belay_optimizer_is_applied(j.sgd));
    read_weights(j.model, got);
    for (int i = 0; i < WEIGHTS; i++)
        assert_float_equal(got[i], w[i] - 0.1f * one[i] / (float)j.r.size, 1e-6);
    expect_same(&j, got, WEIGHTS);
    belay_scope_close(scope);
    ranks_close(&j.r);
}

static void discarded_by_one(job *j)
{
    belay_backward(loss_of(j, j->r.rank, 0));
    if (j->r.rank == 0)
        belay_optimizer_discard(j->sgd);
    else
        belay_optimizer_step(j->sgd);
}

static void a_window_that_one_rank_discards_is_dropped_by_all(void **state)
{
    (void)state;
    dropped_by_all(discarded_by_one);
}

/* It cannot say what its weights are, which is no reason to call them others than the rest's. */
static void without_memory_to_compare(job *j)
{
    belay_backward(loss_of(j, j->r.rank, 0));
    if (j->r.rank == 1)
        bl_memory_fail_at(0);
    belay_optimizer_step(j->sgd);
    bl_memory_fail_at(-1);
    if (j->r.rank == 1)
        assert_non_null(strstr(told(), "belay: no memory to compare "));
    assert_non_null(strstr(told(), "was not applied: mem.exhausted in its window"));
}

static void a_rank_that_cannot_read_its_weights_drops_the_window_on_all(void **state)
{
    (void)state;
    dropped_by_all(without_memory_to_compare);
}

/* ---- parameters that a loss does not reach ----------------------------------------------------------------------------- */

static belay_tensor part_loss(const job *j, bool whole, int n)
{
    belay_tensor x = input_of(j, j->r.rank, n);
    return mean_square(whole ? belay_forward(j->model, x) : belay_forward(belay_module_child(j->model, 0), x));
}

/* The second layer is used by some ranks, by all, by none: who did not use it gives zeros; what nobody used stays. */
static void unused_parameters_alternate(void **state)
{
    (void)state;
    job j =
        open_with((belay_ddp_options){.first_bucket_bytes = 64, .bucket_bytes = 64, .find_unused_parameters = true});
    belay_tensor second = belay_module_find(j.model, "2.weight");
    for (int i = 0; i < 6; i++) {
        float before[HIDDEN * OUT], after[HIDDEN * OUT];
        bool whole = i % 3 == 0 ? j.r.rank == i % j.r.size : i % 3 == 1;
        bool anybody = i % 3 != 2;
        assert_int_equal(belay_tensor_read(second, before, sizeof before), BELAY_OK);
        belay_scope scope = belay_scope_open(j.r.context);
        belay_backward(part_loss(&j, whole, i));
        belay_optimizer_step(j.sgd);
        assert_true(belay_optimizer_is_applied(j.sgd));
        belay_scope_close(scope);
        assert_int_equal(belay_tensor_read(second, after, sizeof after), BELAY_OK);
        assert_int_equal(memcmp(before, after, sizeof before) == 0, !anybody);
        expect_same_weights(&j);
    }
    ranks_close(&j.r);
}

static void with_an_unused_parameter(job *j)
{
    belay_backward(part_loss(j, j->r.rank != 0, 0));
    if (j->r.rank == 0)
        assert_non_null(strstr(told(), "    they are: 2.weight and 2.bias\n"));
    belay_optimizer_step(j->sgd);
    if (j->r.rank != 0)
        assert_non_null(strstr(told(), "was not applied: comm.unused in its window"));
}

static void an_unused_parameter_is_named_and_the_window_dropped_by_all(void **state)
{
    (void)state;
    dropped_by_all(with_an_unused_parameter);
}

/* Neither a part that is trained from some step on, nor one that is frozen then, is what the reducer was made for. */
static void parameters_that_change_sides_want_another_reducer(void **state)
{
    (void)state;
    job j = {.r = ranks_open(20)};
    float before[WEIGHTS];
    j.model = belay_mlp(j.r.context, &(belay_mlp_options){.sizes = {IN, HIDDEN, OUT}});
    belay_tensor first = belay_module_find(j.model, "0.weight");
    belay_tensor_requires_grad_set(first, false);
    j.reducer = belay_ddp(j.model, j.r.group, NULL);
    j.sgd = belay_sgd(j.model, &(belay_sgd_options){.lr = 0.1});
    step(&j, 0);
    assert_true(belay_optimizer_is_applied(j.sgd));
    read_weights(j.model, before);
    belay_optimizer_free(j.sgd);
    belay_tensor_requires_grad_set(first, true);
    j.sgd = belay_sgd(j.model, &(belay_sgd_options){.lr = 0.1});
    told_expect("%s", "");
    step(&j, 1);
    assert_non_null(strstr(told(), "belay: parameter 0.weight wants a gradient, and did not when its reducer was made "
                                   "(conf.order)\n"));
    told_clear();
    assert_false(belay_optimizer_is_applied(j.sgd));
    expect_weights(&j, before, true);
    belay_reducer_free(j.reducer);
    j.reducer = belay_ddp(j.model, j.r.group, NULL);
    step(&j, 2);
    assert_true(belay_optimizer_is_applied(j.sgd));
    expect_weights(&j, before, false);
    told_expect("%s", "");
    belay_tensor_requires_grad_set(first, false);
    step(&j, 3);
    assert_non_null(
        strstr(told(), "    they are: 0.weight\n    1 of them want no gradient any more: make the reducer anew\n"));
    assert_false(belay_optimizer_is_applied(j.sgd));
    belay_close(j.r.context);
}

/* ---- loss scale -------------------------------------------------------------------------------------------------------- */

static float scale_of(belay_grad_scaler *scaler)
{
    double s[8];
    assert_int_equal(belay_tensor_read(belay_grad_scaler_state(scaler), s, sizeof s), BELAY_OK);
    return (float)s[0];
}

static void an_overflow_on_one_rank_halves_the_scale_on_all(void **state)
{
    (void)state;
    float before[WEIGHTS], scale;
    job j = open_job();
    belay_grad_scaler *scaler = belay_grad_scaler_new(j.r.context, &(belay_grad_scaler_options){.init_scale = 1024});
    for (int i = 0; i < 3; i++) {
        read_weights(j.model, before);
        belay_scope scope = belay_scope_open(j.r.context);
        belay_tensor loss = loss_of(&j, j.r.rank, i);
        if (j.r.rank == 1 && i == 1) {
            const float inf = INFINITY;
            loss = belay_mul(loss, belay_tensor_from(j.r.context, BELAY_F32, belay_shape0(), &inf, 4));
        }
        belay_backward(belay_grad_scaler_scale(scaler, loss));
        if (i == 2) /* divided before the step, once the ranks have agreed */
            belay_grad_scaler_unscale(scaler, j.sgd);
        belay_grad_scaler_step(scaler, j.sgd);
        belay_grad_scaler_update(scaler);
        assert_int_equal(belay_optimizer_is_applied(j.sgd), i != 1);
        expect_weights(&j, before, i == 1);
        belay_scope_close(scope);
        told_clear();
        scale = scale_of(scaler);
        assert_true(scale == (i == 0 ? 1024 : 512));
        expect_same(&j, &scale, 1);
    }
    belay_close(j.r.context);
}

/* A parameter of the same optimizer that is in no bucket: its overflow is everybody's. */
static void an_overflow_outside_of_the_buckets_is_everybodys(void **state)
{
    (void)state;
    float before[WEIGHTS];
    job j = open_job();
    const float one = 1;
    belay_tensor extra = belay_keep(belay_tensor_from(j.r.context, BELAY_F32, belay_shape0(), &one, 4));
    belay_tensor_requires_grad_set(extra, true);
    belay_tensor list[5];
    for (int i = 0; i < 4; i++)
        list[i] = belay_module_parameter(j.model, i);
    list[4] = extra;
    belay_optimizer *both = belay_sgd_over(j.r.context, list, 5, &(belay_sgd_options){.lr = 0.1});
    read_weights(j.model, before);
    belay_scope scope = belay_scope_open(j.r.context);
    const float factor = j.r.rank == 0 ? INFINITY : 1;
    belay_tensor scale = belay_tensor_from(j.r.context, BELAY_F32, belay_shape0(), &factor, 4);
    belay_backward(belay_add(loss_of(&j, j.r.rank, 0), belay_mul(extra, scale)));
    belay_optimizer_step(both);
    assert_false(belay_optimizer_is_applied(both));
    assert_int_equal(belay_optimizer_n_overflowed(both), 1);
    assert_non_null(strstr(told(),
                           "belay: 1 of 5 parameters of an optimizer lies in no reducer: each rank steps it by its "
                           "own gradients (comm.outside)\n"));
    assert_non_null(strstr(told(), "    it is: number 4\n"));
    expect_weights(&j, before, true);
    belay_scope_close(scope);
    belay_close(j.r.context);
}

/* The reducer averages the first layer alone; the optimizer steps both.  Returns the line of the last step. */
static int step_both(const job *j, bool reaches_second, int n)
{
    int line = 0;
    for (int i = 0; i < n; i++) {
        belay_scope scope = belay_scope_open(j->r.context);
        belay_tensor x = input_of(j, j->r.rank, i);
        belay_backward(mean_square(belay_forward(reaches_second ? j->model : belay_module_child(j->model, 0), x)));
        line = __LINE__ + 1;
        belay_optimizer_step(j->sgd);
        assert_true(belay_optimizer_is_applied(j->sgd));
        belay_scope_close(scope);
    }
    return line;
}

static void an_optimizer_of_what_no_reducer_averages_is_warned_once(void **state)
{
    (void)state;
    job j = open_job();
    belay_reducer_free(j.reducer);
    j.reducer = belay_ddp(belay_module_child(j.model, 0), j.r.group, NULL);
    (void)step_both(&j, false, 1); /* without gradients there */
    told_expect("%s", "");
    int line = step_both(&j, true, 2);
    told_expect(
        "belay: 2 of 4 parameters of an optimizer lie in no reducer: each rank steps them by its own gradients "
        "(comm.outside)\n    called at: ranks_reducer.c:%d\n    they are: 2.weight and 2.bias\n    when: epoch 0, "
        "batch 2 (micro-batch 1 of its window), step 1, rank %d\n%s",
        line, j.r.rank, told_try(BELAY_COMM_OUTSIDE));
    assert_int_equal(belay_close(j.r.context), 0);
}

/* ---- what breaks the group --------------------------------------------------------------------------------------------- */

static void expect_differs(const job *j, int odd, const char *how)
{
    char words[160];
    snprintf(words, sizeof words, "belay: %s%d %s than ", j->r.size == 2 ? "rank " : "rank ", odd, how);
    if (strstr(told(), words) == NULL)
        fail_msg("no '%s' in:\n%s", words, told());
    assert_non_null(strstr(told(), "(comm.mismatch)\n"));
    assert_false(belay_optimizer_is_applied(j->sgd));
    assert_int_equal(belay_close(j->r.context), 3);
}

static void another_loss_scale_is_named(void **state)
{
    (void)state;
    job j = open_job();
    double scale = j.r.rank == j.r.size - 1 ? 32768 : 65536;
    belay_grad_scaler *scaler = belay_grad_scaler_new(j.r.context, &(belay_grad_scaler_options){.init_scale = scale});
    belay_scope scope = belay_scope_open(j.r.context);
    belay_backward(belay_grad_scaler_scale(scaler, loss_of(&j, j.r.rank, 0)));
    belay_grad_scaler_step(scaler, j.sgd);
    belay_scope_close(scope);
    char facts[96];
    snprintf(facts, sizeof facts, "    rank %d: 32768\n", j.r.size - 1);
    assert_non_null(strstr(told(), facts));
    expect_differs(&j, j.r.size - 1, "has another loss scale");
}

static void other_weights_are_named(void **state)
{
    (void)state;
    job j = open_job();
    step(&j, 0);
    if (j.r.rank == 1) {
        float bias[HIDDEN] = {1};
        assert_int_equal(belay_tensor_write(belay_module_find(j.model, "0.bias"), bias, sizeof bias), BELAY_OK);
    }
    step(&j, 1);
    expect_differs(&j, 1, "has other weights");
}

static void a_rank_that_reduces_less_often_is_named(void **state)
{
    (void)state;
    job j = open_job();
    belay_scope scope = belay_scope_open(j.r.context);
    belay_backward(loss_of(&j, j.r.rank, 0));
    int line = __LINE__ + 2;
    if (j.r.rank != 1)
        belay_backward(loss_of(&j, j.r.rank, 1));
    belay_optimizer_step(j.sgd);
    belay_scope_close(scope);
    assert_false(belay_optimizer_is_applied(j.sgd));
    const char *who = j.r.rank == 1 ? "batch 1 (micro-batch 1" : "batch 2 (micro-batch 2";
    ranks_expect(
        "belay: rank 1 called the end of a window #7, where the 2 others called averaging #7 by reducer 0 "
        "(0.weight and 3 others) (comm.mismatch)\n"
        "    called at: ranks_reducer.c:%d\n"
        "    rank 1: the end of a window #7 at ranks_reducer.c:%d, step 0, batch 0:1\n"
        "    ranks 0, 2: averaging #7 by reducer 0 (0.weight and 3 others) at ranks_reducer.c:%d, step 0, batch 0:1\n"
        "    when: epoch 0, %s of its window), step 0, rank %d\n"
        "    try: Compare the rank named with the others: same program, settings, data and order of calls.\n"
        "belay: step 0 was not applied: comm.mismatch in its window (run.window_lost)\n"
        "    called at: ranks_reducer.c:%d\n"
        "    when: epoch 0, %s of its window), step 0, rank %d\n"
        "    try: See the fault named before.\n",
        line + 1, line + 1, line, who, j.r.rank, line + 1, who, j.r.rank);
    assert_int_equal(belay_close(j.r.context), 3);
}

/* Behind the ranks' agreement: the update cannot be launched, for want of what the optimizer computes in. */
static void take_away(void *state, belay_optimizer *optimizer)
{
    (void)state;
    bl_tensor_drop(optimizer->context, optimizer->partial);
}

/* The others have applied the window, this rank has not: it does not go on with weights of its own. */
static void a_rank_that_cannot_apply_what_was_agreed_on_gives_up(void **state)
{
    (void)state;
    job j = open_job();
    bl_commit_hook hook = {.at = {[BL_COMMIT_RUN] = take_away}};
    step(&j, 0);
    if (j.r.rank == 1)
        bl_optim_hook_add(j.r.context, &hook);
    step(&j, 1);
    if (j.r.rank == 1)
        bl_optim_hook_remove(j.r.context, &hook);
    step(&j, 2);
    const char *words =
        "belay: rank 1 gave up: tensor squares [4] f64 was used after it had died (life.stale) (comm.peer)\n";
    bool is_named = strstr(told(), words) != NULL;
    assert_int_equal(is_named, j.r.rank != 1);
    assert_int_equal(belay_optimizer_n_applied(j.sgd), j.r.rank == 1 ? 1 : 2);
    assert_false(belay_optimizer_is_applied(j.sgd));
    assert_int_not_equal(belay_close(j.r.context), 0);
}

static void a_rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    job j = open_job();
    step(&j, 0);
    if (j.r.rank == 1) {
        belay_close(j.r.context);
        return;
    }
    step(&j, 1);
    assert_non_null(strstr(told(), "rank 1"));
    assert_false(belay_optimizer_is_applied(j.sgd));
    assert_int_not_equal(belay_close(j.r.context), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest whole[] = {
        cmocka_unit_test(a_gradient_is_the_mean_of_the_ranks),
        cmocka_unit_test(weights_stay_the_same_on_all_ranks),
        cmocka_unit_test(accumulation_reduces_once_or_each_time),
        cmocka_unit_test(what_a_function_keeps_is_not_what_is_reduced),
        cmocka_unit_test(buffers_are_rank_0s_at_the_start_and_at_each_forward_if_asked),
        cmocka_unit_test(a_fault_on_one_rank_drops_the_window_on_all),
        cmocka_unit_test(a_rank_whose_loss_is_nil_holds_nobody_up),
        cmocka_unit_test(a_rank_that_faulted_early_in_a_window_catches_up),
        cmocka_unit_test(a_rank_without_a_backward_takes_the_mean_of_all),
        cmocka_unit_test(a_window_that_one_rank_discards_is_dropped_by_all),
        cmocka_unit_test(a_rank_that_cannot_read_its_weights_drops_the_window_on_all),
        cmocka_unit_test(unused_parameters_alternate),
        cmocka_unit_test(an_unused_parameter_is_named_and_the_window_dropped_by_all),
        cmocka_unit_test(parameters_that_change_sides_want_another_reducer),
        cmocka_unit_test(an_overflow_on_one_rank_halves_the_scale_on_all),
        cmocka_unit_test(an_overflow_outside_of_the_buckets_is_everybodys),
        cmocka_unit_test(an_optimizer_of_what_no_reducer_averages_is_warned_once),
    };
    static const struct {
        const char *word;
        struct CMUnitTest test;
    } breaks[] = {
        {"scale", cmocka_unit_test(another_loss_scale_is_named)},
        {"weights", cmocka_unit_test(other_weights_are_named)},
        {"less", cmocka_unit_test(a_rank_that_reduces_less_often_is_named)},
        {"spoils", cmocka_unit_test(a_rank_that_cannot_apply_what_was_agreed_on_gives_up)},
        {"leaves", cmocka_unit_test(a_rank_that_leaves_early_is_named)},
    };
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0] && argc > 1; i++)
        if (strcmp(argv[1], breaks[i].word) == 0) {
            const struct CMUnitTest one[] = {breaks[i].test};
            return cmocka_run_group_tests(one, NULL, NULL);
        }
    return argc > 1 ? 2 : cmocka_run_group_tests(whole, NULL, NULL);
}
