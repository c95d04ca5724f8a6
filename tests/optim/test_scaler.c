/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale: an overflow drops its window whole and lowers the scale once, a fault does not move it, the host waits
 * for nothing; and a call out of order is refused with both places named. */
#include "support/seeds.h"
#include "support/told.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <belay/amp.h>
#include <belay/debug.h>
#include <belay/devices.h>
#include <belay/nn.h>
#include <belay/op.h>
#include <belay/optim.h>

/* A weight of two elements, plain SGD over it at rate 1 and a scale of 8. */
typedef struct job {
    belay_context *context;
    belay_tensor weight;
    belay_optimizer *sgd;
    belay_grad_scaler *scaler;
} job;

static const float first_weight[2] = {1, 2};

static job open_job(belay_context *context, const belay_grad_scaler_options *options)
{
    job j = {.context = context, .weight = told_leaf(context, belay_shape1(2), first_weight)};
    belay_tensor_name_set(j.weight, "weight");
    j.sgd = belay_sgd_over(context, &j.weight, 1, &(belay_sgd_options){.lr = 1});
    j.scaler = belay_grad_scaler_new(context, options);
    return j;
}

static job open_eight(void) { return open_job(told_open(), &(belay_grad_scaler_options){.init_scale = 8}); }

/* A loss whose gradient is `gradient` for both elements. */
static belay_tensor loss_of(const job *j, float gradient)
{
    const float both[2] = {gradient, gradient};
    return belay_sum(belay_mul(j->weight, told_f32(j->context, belay_shape1(2), both)), NULL);
}

static void assert_weight(const job *j, float first, float second)
{
    float now[2];
    told_read(j->weight, now, 2);
    assert_true(now[0] == first);
    assert_true(now[1] == second);
}

/* A whole window. */
static void window(const job *j, float gradient)
{
    belay_backward(belay_grad_scaler_scale(j->scaler, loss_of(j, gradient)));
    belay_grad_scaler_step(j->scaler, j->sgd);
    belay_grad_scaler_update(j->scaler);
}

/* ---- what it does ---- */

static void a_step_divides_by_the_scale_and_an_overflow_halves_it_once(void **state)
{
    (void)state;
    job j = open_eight();
    window(&j, 0.5f);
    assert_weight(&j, 0.5f, 1.5f);
    assert_true(belay_optimizer_norm_get(j.sgd) == sqrt(0.5));
    assert_int_equal(belay_grad_scaler_growth_get(j.scaler), 1);
    window(&j, INFINITY);
    assert_weight(&j, 0.5f, 1.5f);
    assert_true(belay_grad_scaler_get(j.scaler) == 4);
    assert_int_equal(belay_grad_scaler_growth_get(j.scaler), 0);
    assert_true(belay_grad_scaler_found_inf(j.scaler));
    window(&j, 0.5f);
    assert_weight(&j, 0, 1);
    assert_true(belay_grad_scaler_get(j.scaler) == 4);
    assert_false(belay_grad_scaler_found_inf(j.scaler));
    assert_int_equal(belay_grad_scaler_n_backoffs(j.scaler), 1);
    assert_int_equal(belay_optimizer_n_overflowed(j.sgd), 1);
    belay_close(j.context);
}

static void unscaled_gradients_can_be_read_and_are_divided_no_second_time(void **state)
{
    (void)state;
    job j = open_eight();
    float gradient[2];
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.25f)));
    told_read(belay_tensor_grad(j.weight), gradient, 2);
    assert_true(gradient[0] == 2);
    belay_grad_scaler_unscale(j.scaler, j.sgd);
    told_read(belay_tensor_grad(j.weight), gradient, 2);
    assert_true(gradient[0] == 0.25f);
    belay_grad_scaler_step(j.scaler, j.sgd);
    belay_grad_scaler_update(j.scaler);
    assert_weight(&j, 0.75f, 1.75f);
    told_close(j.context);
}

static void the_norm_is_clipped_after_it_is_unscaled(void **state)
{
    (void)state;
    belay_context *context = told_open();
    job j = open_job(context, NULL);
    belay_optimizer *clipped = belay_sgd_over(context, &j.weight, 1, &(belay_sgd_options){.lr = 1, .clip = 1});
    j.sgd = clipped;
    window(&j, 0.5f); /* a norm of 0.7: not clipped, whatever the scale makes of it */
    assert_weight(&j, 0.5f, 1.5f);
    told_close(context);
}

static void a_fault_in_the_window_moves_no_scale(void **state)
{
    (void)state;
    job j = open_job(told_open(), &(belay_grad_scaler_options){.init_scale = 8, .growth_interval = 2});
    window(&j, 0.5f);
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, INFINITY)));
    belay_add(j.weight, belay_zeros(j.context, BELAY_F32, belay_shape1(3)));
    belay_grad_scaler_step(j.scaler, j.sgd);
    belay_grad_scaler_update(j.scaler);
    assert_weight(&j, 0.5f, 1.5f);
    assert_true(belay_grad_scaler_get(j.scaler) == 8);
    assert_int_equal(belay_grad_scaler_growth_get(j.scaler), 1);
    window(&j, 0.5f);
    assert_true(belay_grad_scaler_get(j.scaler) == 16);
    belay_close(j.context);
}

static void a_fixed_scale_stays_and_refuses_overflows_all_the_same(void **state)
{
    (void)state;
    job j =
        open_job(told_open(), &(belay_grad_scaler_options){.init_scale = 8, .growth_interval = 1, .is_fixed = true});
    window(&j, 0.5f);
    window(&j, INFINITY);
    assert_weight(&j, 0.5f, 1.5f);
    assert_true(belay_grad_scaler_get(j.scaler) == 8);
    assert_int_equal(belay_grad_scaler_n_backoffs(j.scaler), 0);
    belay_close(j.context);
}

static void two_optimizers_share_a_scale_that_moves_once(void **state)
{
    (void)state;
    job j = open_eight();
    const float one = 1;
    belay_tensor other = told_leaf(j.context, belay_shape1(1), &one);
    belay_optimizer *second = belay_sgd_over(j.context, &other, 1, &(belay_sgd_options){.lr = 1});
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, INFINITY)));
    belay_backward(belay_grad_scaler_scale(j.scaler, belay_sum(other, NULL)));
    belay_grad_scaler_step(j.scaler, j.sgd);
    belay_grad_scaler_step(j.scaler, second);
    belay_grad_scaler_update(j.scaler);
    float now;
    told_read(other, &now, 1);
    assert_true(now == 0);
    assert_weight(&j, 1, 2);
    assert_true(belay_grad_scaler_get(j.scaler) == 4);
    belay_close(j.context);
}

/* Its state written into a new one: the sequence goes on as it would have. */
static void a_scale_goes_on_from_its_state(void **state)
{
    (void)state;
    double kept[8], expected[6];
    job j = open_job(told_open(), &(belay_grad_scaler_options){.init_scale = 8, .growth_interval = 2});
    for (int i = 0; i < 9; i++) {
        if (i == 3)
            assert_int_equal(belay_tensor_read(belay_grad_scaler_state(j.scaler), kept, sizeof kept), BELAY_OK);
        window(&j, i == 5 ? INFINITY : 0.5f);
        if (i >= 3)
            expected[i - 3] = belay_grad_scaler_get(j.scaler);
    }
    belay_grad_scaler_free(j.scaler);
    j.scaler = belay_grad_scaler_new(j.context, &(belay_grad_scaler_options){.growth_interval = 2});
    assert_int_equal(belay_tensor_write(belay_grad_scaler_state(j.scaler), kept, sizeof kept), BELAY_OK);
    for (int i = 3; i < 9; i++) {
        window(&j, i == 5 ? INFINITY : 0.5f);
        assert_true(belay_grad_scaler_get(j.scaler) == expected[i - 3]);
    }
    belay_close(j.context);
}

/* ---- behind the host's back ---- */

enum { STEPS = 40 };

static bool is_bad(int step) { return step % 7 == 3 || step % 7 == 4; }

static void run_steps(belay_context *context, float weight[2], double *scale)
{
    job j = open_job(context, &(belay_grad_scaler_options){.init_scale = 1024, .growth_interval = 3});
    for (int step = 0; step < STEPS; step++) {
        belay_scope scope = belay_scope_open(context);
        window(&j, is_bad(step) ? INFINITY : 0.125f);
        belay_scope_close(scope);
    }
    assert_null(strstr(told(), "(run.sync_refused)"));
    belay_sync_debug_set(context, BELAY_SYNC_DEBUG_OFF);
    *scale = belay_grad_scaler_get(j.scaler);
    told_read(j.weight, weight, 2);
}

static void a_loop_under_a_scale_never_waits_and_ends_as_on_cpu(void **state)
{
    (void)state;
    float cpu[2], sim[2];
    double scale[2];
    belay_context *context = told_open();
    run_steps(context, cpu, &scale[0]);
    belay_close(context);
    for (int64_t seed = 0; seed < 20; seed++) {
        context = seeds_open(
            seed,
            &(belay_options){.device = "sim:0", .sync_debug = BELAY_SYNC_DEBUG_ERROR, .memory = BELAY_MEMORY_POOL});
        run_steps(context, sim, &scale[1]);
        assert_memory_equal(cpu, sim, sizeof cpu);
        assert_true(scale[0] == scale[1]);
        belay_close(context);
    }
}

/* ---- overflow reports ---- */

/* The fact that begins so, of the last paragraph that has one. */
static void assert_fact(const char *begin, const char *expected)
{
    const char *at = NULL;
    for (const char *next = told(); (next = strstr(next, begin)) != NULL; next++)
        at = next;
    assert_non_null(at);
    char line[512];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    assert_string_equal(line, expected);
}

static void overflows_until_a_first_step_are_warm_up(void **state)
{
    (void)state;
    job j = open_eight();
    for (int i = 0; i < 3; i++)
        window(&j, INFINITY); /* at 8, 4 and 2 */
    assert_fact("the loss scale was", "the loss scale was 2; overflows in a row: 3");
    assert_fact("this is",
                "this is ordinary warm-up: no step has been applied yet, and the scale is still finding its place");
    window(&j, INFINITY);
    assert_fact("the loss scale was", "the loss scale was 1; overflows in a row: 4");
    assert_fact("this is", "this is divergence: a loss scale of 1 or below makes no gradient larger");
    belay_close(j.context);
}

static void overflows_in_a_row_after_steps_are_divergence(void **state)
{
    (void)state;
    job j = open_job(told_open(), NULL);
    window(&j, 0.5f);
    for (int i = 0; i < 3; i++)
        window(&j, INFINITY);
    assert_fact("this is", "this is ordinary now and then: steps had been applied before, and the scale backs off to "
                           "where they can be again");
    window(&j, INFINITY);
    assert_fact("this is", "this is divergence: steps had been applied before, and 4 in a row were not");
    assert_fact("try:",
                "try: Lower the learning rate or clip, and go on from a checkpoint of before; --trace-nonfinite "
                "names the first op.");
    window(&j, 0.5f);
    window(&j, INFINITY);
    assert_fact("this is", "this is ordinary now and then: steps had been applied before, and the scale backs off to "
                           "where they can be again");
    belay_close(j.context);
}

static void tracing_names_the_first_op_of_an_overflow_and_drops_the_window_as_one(void **state)
{
    (void)state;
    belay_context *context =
        belay_open(&(belay_options){.log = told_remember, .no_journal = true, .trace_nonfinite = true});
    told_clear();
    const float factor[2] = {3e38f, 1};
    job j = open_eight();
    belay_close(j.context);
    told_clear();
    j = open_job(context, &(belay_grad_scaler_options){.init_scale = 8});
    belay_tensor loss = belay_sum(belay_mul(j.weight, told_f32(context, belay_shape1(2), factor)), NULL);
    int line = __LINE__ + 1;
    belay_tensor scaled = belay_grad_scaler_scale(j.scaler, loss);
    belay_backward(scaled);
    int step = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    belay_grad_scaler_update(j.scaler);
    told_expect("belay: step 0 was not applied: the gradient of weight [2] is not finite (run.overflow)\n"
                "    called at: test_scaler.c:%d\n"
                "    bad: 1 of 2 elements, first at [0]: inf\n"
                "    the others lie in [8, 8]\n"
                "    the first op: mul at test_scaler.c:%d\n"
                "    its result: [] f32, bad: 1 of 1 elements, first at []: inf\n"
                "    the loss scale was 8; overflows in a row: 1\n"
                "    this is ordinary warm-up: no step has been applied yet, and the scale is still finding its place\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n%s",
                step, line, told_try(BELAY_RUN_OVERFLOW));
    assert_true(belay_grad_scaler_get(j.scaler) == 4);
    belay_close(context);
}

static void a_value_that_is_not_finite_is_told_though_the_step_is_applied(void **state)
{
    (void)state;
    belay_context *context =
        belay_open(&(belay_options){.log = told_remember, .no_journal = true, .trace_nonfinite = true});
    told_clear();
    const float factor[2] = {3e38f, 1};
    job j = open_job(context, &(belay_grad_scaler_options){.init_scale = 8});
    int line = __LINE__ + 1;
    belay_mul(belay_mul(j.weight, told_f32(context, belay_shape1(2), factor)), j.weight); /* of no part in the loss */
    belay_exp(belay_affine(j.weight, 100, 0));
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f)));
    int step = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    belay_grad_scaler_update(j.scaler);
    told_expect("belay: step 0 was applied; a value of its window was not finite (num.traced)\n"
                "    called at: test_scaler.c:%d\n"
                "    the first op: exp at test_scaler.c:%d\n"
                "    its result: [2] f32, bad: 2 of 2 elements, first at [0]: inf\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n%s",
                step, line + 1, told_try(BELAY_NUM_TRACED));
    assert_weight(&j, 0.5f, 1.5f);
    belay_exp(belay_affine(j.weight, 1000, 0));
    int discarded = __LINE__ + 1;
    belay_optimizer_discard(j.sgd);
    told_expect("belay: step 1 was discarded; a value of its window was not finite (num.traced)\n"
                "    called at: test_scaler.c:%d\n"
                "    the first op: exp at test_scaler.c:%d\n"
                "    its result: [2] f32, bad: 2 of 2 elements, first at [0]: inf\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n%s",
                discarded, discarded - 2, told_try(BELAY_NUM_TRACED));
    assert_int_equal(belay_close(context), 0);
}

static void an_overflow_says_which_parameter_without_a_name_and_that_a_scale_is_fixed(void **state)
{
    (void)state;
    job j = open_job(told_open(), &(belay_grad_scaler_options){.init_scale = 8, .is_fixed = true});
    belay_tensor_name_set(j.weight, "");
    const float one = 1;
    const belay_tensor both[] = {told_leaf(j.context, belay_shape1(1), &one), j.weight};
    j.sgd = belay_sgd_over(j.context, both, 2, &(belay_sgd_options){.lr = 1});
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, INFINITY)));
    int line = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    told_expect("belay: step 0 was not applied: the gradient of parameter 1 [2] is not finite (run.overflow)\n"
                "    called at: test_scaler.c:%d\n"
                "    bad: 2 of 2 elements, first at [0]: inf\n"
                "    the loss scale was 8; overflows in a row: 1\n"
                "    the scale is fixed, it does not back off\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n"
                "    try: Take a lower fixed scale, or one that moves, if it repeats.\n",
                line);
    belay_close(j.context);
}

/* ---- several optimizers ---- */

/* Each step that was refused is told, and no call is out of order. */
static void a_fault_is_of_every_optimizer_of_its_window(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:0"};
    for (int d = 0; d < 2; d++) {
        const float one = 1;
        job j = open_job(belay_open(&(belay_options){.device = devices[d], .log = told_remember, .no_journal = true}),
                         &(belay_grad_scaler_options){.init_scale = 8, .growth_interval = 1});
        belay_tensor other = told_leaf(j.context, belay_shape1(1), &one);
        belay_optimizer *second = belay_sgd_over(j.context, &other, 1, &(belay_sgd_options){.lr = 1});
        for (int order = 0; order < 2; order++) { /* the fault before a backward, and after it */
            if (order == 1)
                belay_backward(belay_grad_scaler_scale(j.scaler, belay_add(loss_of(&j, 0.5f), belay_sum(other, NULL))));
            belay_add(j.weight, belay_zeros(j.context, BELAY_F32, belay_shape1(3)));
            told_clear();
            int line = __LINE__ + 1;
            belay_grad_scaler_unscale(j.scaler, j.sgd);
            belay_grad_scaler_step(j.scaler, j.sgd);
            belay_grad_scaler_unscale(j.scaler, second);
            belay_grad_scaler_step(j.scaler, second);
            belay_grad_scaler_update(j.scaler);
            assert_false(belay_optimizer_is_applied(second));
            assert_null(strstr(told(), "conf.order"));
            for (int k = 0; k < 2 && d == 0; k++) { /* sim:0 tells them at later calls */
                char expected[512];
                snprintf(expected, sizeof expected,
                         "belay: step %d was not applied: shape.contract in its window (run.window_lost)\n"
                         "    called at: test_scaler.c:%d\n"
                         "    when: epoch 0, batch %d (micro-batch %d of its window), step %d, rank 0\n%s",
                         2 * order + k, line + 1 + 2 * k, order, order * (1 - k), 2 * order + k,
                         told_try(BELAY_RUN_WINDOW_LOST));
                if (!words_have(told(), expected))
                    fail_msg("not told: %sbut: %s", expected, told());
            }
        }
        assert_weight(&j, 1, 2);
        assert_int_equal(belay_optimizer_n_faulted(j.sgd), 2);
        assert_int_equal(belay_optimizer_n_faulted(second), 2);
        assert_int_equal(belay_grad_scaler_growth_get(j.scaler), 0);
        assert_true(belay_grad_scaler_get(j.scaler) == 8);
        belay_close(j.context);
    }
}

/* Without a scale, too.  What was walked back behind the window that was lost is not of it. */
static void a_plain_step_whose_gradients_went_with_another_window_is_refused(void **state)
{
    (void)state;
    const float ones[2] = {1, 1};
    job j = open_job(told_open(), NULL);
    belay_tensor other = told_leaf(j.context, belay_shape1(1), ones),
                 third = told_leaf(j.context, belay_shape1(1), ones);
    belay_optimizer *second = belay_sgd_over(j.context, &other, 1, &(belay_sgd_options){.lr = 1});
    belay_optimizer *last = belay_sgd_over(j.context, &third, 1, &(belay_sgd_options){.lr = 1});
    belay_backward(belay_add(loss_of(&j, 0.5f), belay_sum(other, NULL)));
    belay_add(j.weight, belay_zeros(j.context, BELAY_F32, belay_shape1(3)));
    belay_optimizer_step(j.sgd);
    told_clear();
    belay_backward(belay_sum(third, NULL));
    int line = __LINE__ + 1;
    belay_optimizer_step(second);
    told_expect("belay: step 1 was not applied: shape.contract in its window (run.window_lost)\n"
                "    called at: test_scaler.c:%d\n"
                "    when: epoch 0, batch 2 (micro-batch 1 of its window), step 1, rank 0\n%s",
                line, told_try(BELAY_RUN_WINDOW_LOST));
    belay_optimizer_step(last);
    told_expect("%s", "");
    float now;
    told_read(third, &now, 1);
    assert_true(now == 0);
    assert_int_equal(belay_optimizer_n_applied(second), 0);
    assert_int_equal(belay_optimizer_n_faulted(second), 1);
    belay_optimizer_step(second); /* the window after it: nothing was lost since */
    assert_int_equal(belay_optimizer_n_applied(second), 1);
    belay_close(j.context);
}

/* ---- walks inside of walks ---- */

static void pass_through(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                         int n_out)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    out[0] = belay_mul(in[0], in[0]);
}

/* Computes its forward again and walks that back, as one that saves memory does: the leaf in `state` is reached by it. */
static void compute_again(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                          belay_tensor *grad_in, int n_in)
{
    (void)n_out, (void)n_in;
    const belay_tensor *leaf = state;
    belay_context *context = belay_function_context(call);
    bool was = belay_recording_set(context, true);
    belay_tensor y = belay_mul(*leaf, *leaf);
    belay_recording_set(context, was);
    belay_backward_from(y, grad_out[0]);
    grad_in[0] = (belay_tensor){0};
}

static void a_walk_inside_of_a_walk_is_under_the_same_scale(void **state)
{
    (void)state;
    static const belay_function again = {.name = "again", .forward = pass_through, .backward = compute_again};
    const float three = 3;
    job j = open_eight();
    belay_tensor leaf = told_leaf(j.context, belay_shape1(1), &three), y;
    belay_optimizer *sgd = belay_sgd_over(j.context, &leaf, 1, &(belay_sgd_options){.lr = 0.25});
    told_clear();
    belay_function_apply(j.context, &again, &leaf, &leaf, 1, 0, &y, 1);
    belay_backward(belay_grad_scaler_scale(j.scaler, belay_sum(y, NULL)));
    belay_grad_scaler_step(j.scaler, sgd);
    belay_grad_scaler_update(j.scaler);
    float now;
    told_read(leaf, &now, 1);
    assert_true(now == 1.5f); /* 3 - 6 / 4 */
    told_close(j.context);
}

/* ---- the scale's bounds and its state ---- */

/* As PyTorch's, whose sequence the golden amp_scale_floor holds. */
static void a_scale_that_reached_zero_applies_nothing_and_says_so(void **state)
{
    (void)state;
    job j = open_job(told_open(), &(belay_grad_scaler_options){.init_scale = 0x1p-148, .growth_interval = 1});
    window(&j, INFINITY);
    assert_true(belay_grad_scaler_get(j.scaler) == 0x1p-149);
    window(&j, INFINITY);
    assert_true(belay_grad_scaler_get(j.scaler) == 0);
    assert_int_equal(belay_grad_scaler_n_backoffs(j.scaler), 2);
    for (int i = 0; i < 3; i++) {
        told_clear();
        window(&j, 0.5f);
        assert_non_null(strstr(told(), "the loss scale was 0; overflows in a row: "));
        assert_non_null(strstr(told(), "this is divergence: nothing raises a scale of 0, no step will be applied "
                                       "under it again\n"));
        assert_weight(&j, 1, 2);
        assert_true(belay_grad_scaler_get(j.scaler) == 0);
    }
    belay_close(j.context);
}

static void values_that_no_scale_can_have_are_refused_at_the_next_call(void **state)
{
    (void)state;
    static const struct {
        double state[8];
        const char *words;
    } written[] = {
        {{NAN}, "a scale of nan, outside the positive values of f32, (0, 3.40282e+38]"},
        {{0}, "a scale of 0, outside the positive values of f32, (0, 3.40282e+38]"},
        {{-8}, "a scale of -8, outside the positive values of f32, (0, 3.40282e+38]"},
        {{1e300}, "a scale of 1e+300, outside the positive values of f32, (0, 3.40282e+38]"},
        {{8, -1}, "a growth count of -1, outside the counts from 0 to 9007199254740992"},
        {{8, 0, 0, 0, 1.5}, "a number of overflows in a row of 1.5, outside the counts from 0 to 9007199254740992"},
    };
    static const double good[8] = {16};
    job j = open_eight();
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        belay_tensor at = belay_grad_scaler_state(j.scaler);
        assert_int_equal(belay_tensor_write(at, written[i].state, sizeof written[i].state), BELAY_OK);
        belay_tensor loss = loss_of(&j, 0.5f);
        for (int k = 0; k < 2; k++) { /* as long as it is so */
            int line = __LINE__ + 1;
            assert_true(belay_tensor_is_nil(belay_grad_scaler_scale(j.scaler, loss)));
            told_expect("belay: the state that was written into a loss scale has %s (conf.value)\n"
                        "    called at: test_scaler.c:%d\n"
                        "    when: epoch 0, batch %d (micro-batch 0 of its window), step %d, rank 0\n%s",
                        written[i].words, line, (int)i, (int)i, told_try(BELAY_CONF_VALUE));
        }
        belay_optimizer_discard(j.sgd);
        assert_int_equal(belay_tensor_write(at, good, sizeof good), BELAY_OK);
        window(&j, 0);
        told_expect("%s", "");
        assert_true(belay_grad_scaler_get(j.scaler) == 16);
    }
    belay_close(j.context);
}

/* ---- options ---- */

static void expect_option(belay_context *context, const belay_grad_scaler_options *options, const char *words)
{
    int line = __LINE__ + 1;
    belay_grad_scaler *nil = belay_grad_scaler_new(context, options);
    told_expect("belay: %s (conf.value)\n    called at: test_scaler.c:%d\n" TOLD_START "%s", words, line,
                told_try(BELAY_CONF_VALUE));
    assert_true(belay_tensor_is_nil(belay_grad_scaler_state(nil)));
    assert_true(belay_tensor_is_nil(belay_grad_scaler_scale(nil, belay_ones(context, BELAY_F32, belay_shape0()))));
    belay_grad_scaler_update(nil);
    belay_grad_scaler_free(nil);
    told_expect("%s", "");
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    expect_option(context, &(belay_grad_scaler_options){.init_scale = -1},
                  "init_scale of a loss scale is -1, outside the positive values of f32, (0, 3.40282e+38]");
    expect_option(context, &(belay_grad_scaler_options){.init_scale = 1e39},
                  "init_scale of a loss scale is 1e+39, outside the positive values of f32, (0, 3.40282e+38]");
    expect_option(context, &(belay_grad_scaler_options){.init_scale = 1e-46}, /* 0 in f32 */
                  "init_scale of a loss scale is 1e-46, outside the positive values of f32, (0, 3.40282e+38]");
    expect_option(context, &(belay_grad_scaler_options){.growth_factor = 1},
                  "growth_factor of a loss scale is 1, outside (1, inf)");
    expect_option(context, &(belay_grad_scaler_options){.backoff_factor = 1},
                  "backoff_factor of a loss scale is 1, outside (0, 1)");
    expect_option(context, &(belay_grad_scaler_options){.growth_interval = -3},
                  "growth_interval of a loss scale is -3, outside [1, 2147483647]");
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_divides_by_the_scale_and_an_overflow_halves_it_once),
        cmocka_unit_test(unscaled_gradients_can_be_read_and_are_divided_no_second_time),
        cmocka_unit_test(the_norm_is_clipped_after_it_is_unscaled),
        cmocka_unit_test(a_fault_in_the_window_moves_no_scale),
        cmocka_unit_test(a_fixed_scale_stays_and_refuses_overflows_all_the_same),
        cmocka_unit_test(two_optimizers_share_a_scale_that_moves_once),
        cmocka_unit_test(a_scale_goes_on_from_its_state),
        cmocka_unit_test(a_loop_under_a_scale_never_waits_and_ends_as_on_cpu),
        cmocka_unit_test(overflows_until_a_first_step_are_warm_up),
        cmocka_unit_test(overflows_in_a_row_after_steps_are_divergence),
        cmocka_unit_test(tracing_names_the_first_op_of_an_overflow_and_drops_the_window_as_one),
        cmocka_unit_test(a_value_that_is_not_finite_is_told_though_the_step_is_applied),
        cmocka_unit_test(an_overflow_says_which_parameter_without_a_name_and_that_a_scale_is_fixed),
        cmocka_unit_test(a_fault_is_of_every_optimizer_of_its_window),
        cmocka_unit_test(a_plain_step_whose_gradients_went_with_another_window_is_refused),
        cmocka_unit_test(a_walk_inside_of_a_walk_is_under_the_same_scale),
        cmocka_unit_test(a_scale_that_reached_zero_applies_nothing_and_says_so),
        cmocka_unit_test(values_that_no_scale_can_have_are_refused_at_the_next_call),
        cmocka_unit_test(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
