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
    assert_fact("this is", "this is ordinary: the scale had grown to where gradients overflow");
    window(&j, INFINITY);
    assert_fact("this is", "this is divergence: steps had been applied at such a scale, and 4 in a row were not");
    assert_fact("try:",
                "try: Lower the learning rate or clip, and go on from a checkpoint of before; --trace-nonfinite "
                "names the first op.");
    window(&j, 0.5f);
    window(&j, INFINITY);
    assert_fact("this is", "this is ordinary: the scale had grown to where gradients overflow");
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

/* ---- the order of calls ---- */

/* A refusal that names what came before. */
static void expect_order(const char *what, int line, const char *earlier, int before, const char *advice, int batch)
{
    char when[128];
    snprintf(when, sizeof when, "    when: epoch 0, batch %d (micro-batch %d of its window), step 0, rank 0\n", batch,
             batch);
    told_expect("belay: %s (conf.order)\n"
                "    called at: test_scaler.c:%d\n"
                "    %s at test_scaler.c:%d\n%s    try: %s\n",
                what, line, earlier, before, when, advice);
}

static void a_second_step_without_an_update_is_refused(void **state)
{
    (void)state;
    job j = open_eight();
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f)));
    int first = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    told_clear();
    int line = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    told_expect("belay: belay_grad_scaler_step twice without an update (conf.order)\n"
                "    called at: test_scaler.c:%d\n"
                "    the step before was made at test_scaler.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n"
                "    try: Call belay_grad_scaler_update once after the steps of a window.\n",
                line, first);
    belay_grad_scaler_update(j.scaler);
    assert_weight(&j, 0.5f, 1.5f);
    window(&j, 0.5f);
    assert_weight(&j, 0, 1);
    belay_close(j.context);
}

static void a_second_unscale_is_refused_and_its_window_lost(void **state)
{
    (void)state;
    job j = open_eight();
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f)));
    int first = __LINE__ + 1;
    belay_grad_scaler_unscale(j.scaler, j.sgd);
    int line = __LINE__ + 1;
    belay_grad_scaler_unscale(j.scaler, j.sgd);
    expect_order("belay_grad_scaler_unscale twice in a window", line, "the gradients were unscaled", first,
                 "Unscale the gradients of an optimizer once.", 1);
    belay_grad_scaler_step(j.scaler, j.sgd);
    belay_grad_scaler_update(j.scaler);
    assert_weight(&j, 1, 2);
    assert_true(belay_grad_scaler_get(j.scaler) == 8);
    belay_close(j.context);
}

static void an_unscale_after_the_step_is_refused(void **state)
{
    (void)state;
    job j = open_eight();
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f)));
    int first = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    told_clear();
    int line = __LINE__ + 1;
    belay_grad_scaler_unscale(j.scaler, j.sgd);
    told_expect("belay: belay_grad_scaler_unscale after the step (conf.order)\n"
                "    called at: test_scaler.c:%d\n"
                "    the step was made at test_scaler.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n"
                "    try: Unscale before belay_grad_scaler_step.\n",
                line, first);
    belay_close(j.context);
}

static void a_step_without_a_backward_is_refused(void **state)
{
    (void)state;
    job j = open_eight();
    int first = __LINE__ + 1;
    belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f));
    int line = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    expect_order("belay_grad_scaler_step without a backward", line, "the loss was scaled", first,
                 "Call belay_backward on the scaled loss first.", 0);
    window(&j, 0.5f);
    assert_weight(&j, 0.5f, 1.5f);
    belay_close(j.context);
}

static void a_step_before_anything_was_scaled_is_refused(void **state)
{
    (void)state;
    job j = open_eight();
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f)));
    belay_grad_scaler_step(j.scaler, j.sgd);
    int first = __LINE__ + 1;
    belay_grad_scaler_update(j.scaler);
    told_clear();
    int line = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    told_expect("belay: belay_grad_scaler_step before a loss was scaled (conf.order)\n"
                "    called at: test_scaler.c:%d\n"
                "    the scale was updated last at test_scaler.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n"
                "    try: Scale the loss by belay_grad_scaler_scale and walk it back first.\n",
                line, first);
    belay_close(j.context);
}

static void a_step_on_the_gradients_of_an_unscaled_loss_is_refused(void **state)
{
    (void)state;
    job j = open_eight();
    belay_autocast half = belay_autocast_open(j.context, BELAY_F16);
    belay_tensor loss = loss_of(&j, 0.5f);
    belay_autocast_close(half);
    int first = __LINE__ + 1;
    belay_backward(loss);
    int line = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    expect_order("belay_grad_scaler_step on gradients of a loss that was not scaled", line, "that loss was walked back",
                 first, "Walk back what belay_grad_scaler_scale gives.", 1);
    assert_weight(&j, 1, 2);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(j.weight)));
    belay_close(j.context);
}

static void a_plain_step_on_scaled_gradients_is_refused(void **state)
{
    (void)state;
    job j = open_eight();
    int first = __LINE__ + 1;
    belay_tensor scaled = belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f));
    belay_backward(scaled);
    int line = __LINE__ + 1;
    belay_optimizer_step(j.sgd);
    expect_order("belay_optimizer_step on gradients that a loss scale has multiplied", line, "the loss was scaled",
                 first, "Call belay_grad_scaler_step and belay_grad_scaler_update in its place.", 1);
    assert_weight(&j, 1, 2);
    belay_backward(loss_of(&j, 0.5f)); /* without a scale: as ever */
    belay_optimizer_step(j.sgd);
    assert_weight(&j, 0.5f, 1.5f);
    belay_close(j.context);
}

static void an_update_without_a_step_is_refused_and_costs_no_window(void **state)
{
    (void)state;
    job j = open_eight();
    int first = __LINE__ + 1;
    belay_tensor scaled = belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f));
    belay_backward(scaled);
    int line = __LINE__ + 1;
    belay_grad_scaler_update(j.scaler);
    expect_order("belay_grad_scaler_update without a step", line, "the loss was scaled", first,
                 "Call belay_grad_scaler_step first.", 1);
    belay_grad_scaler_step(j.scaler, j.sgd);
    belay_grad_scaler_update(j.scaler);
    assert_weight(&j, 0.5f, 1.5f);
    belay_close(j.context);
}

static void a_loss_scaled_between_step_and_update_is_refused(void **state)
{
    (void)state;
    job j = open_eight();
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f)));
    int first = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    told_clear();
    belay_tensor loss = loss_of(&j, 0.5f);
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_grad_scaler_scale(j.scaler, loss)));
    told_expect("belay: belay_grad_scaler_scale after a step whose update has not come (conf.order)\n"
                "    called at: test_scaler.c:%d\n"
                "    the step was made at test_scaler.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n"
                "    try: Call belay_grad_scaler_update once after the steps of a window.\n",
                line, first);
    belay_close(j.context);
}

static void a_backward_after_the_unscale_is_refused_at_the_step(void **state)
{
    (void)state;
    job j = open_eight();
    belay_tensor one = belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f));
    belay_tensor two = belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.25f));
    belay_backward(one);
    int first = __LINE__ + 1;
    belay_grad_scaler_unscale(j.scaler, j.sgd);
    belay_backward(two);
    int line = __LINE__ + 1;
    belay_grad_scaler_step(j.scaler, j.sgd);
    expect_order("a loss was walked back into gradients that were unscaled already", line,
                 "the gradients were unscaled", first, "Unscale after the window's last backward.", 2);
    assert_weight(&j, 1, 2);
    belay_close(j.context);
}

static void a_loss_of_before_the_update_is_not_walked_back_after_it(void **state)
{
    (void)state;
    job j = open_eight();
    int line = __LINE__ + 1;
    belay_tensor late = belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f));
    belay_backward(belay_grad_scaler_scale(j.scaler, loss_of(&j, 0.5f)));
    belay_grad_scaler_step(j.scaler, j.sgd);
    int update = __LINE__ + 1;
    belay_grad_scaler_update(j.scaler);
    told_clear();
    belay_backward(late);
    told_expect("belay: a loss was walked back after the update of the scale that it was multiplied by (conf.order)\n"
                "    called at: test_scaler.c:%d\n"
                "    the scale was updated at test_scaler.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n"
                "    try: Call belay_grad_scaler_update after the window's last backward.\n",
                line, update);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(j.weight)));
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
                  "init_scale of a loss scale is -1, outside the positive values of f32");
    expect_option(context, &(belay_grad_scaler_options){.init_scale = 1e39},
                  "init_scale of a loss scale is 1e+39, outside the positive values of f32");
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
        cmocka_unit_test(a_second_step_without_an_update_is_refused),
        cmocka_unit_test(a_second_unscale_is_refused_and_its_window_lost),
        cmocka_unit_test(an_unscale_after_the_step_is_refused),
        cmocka_unit_test(a_step_without_a_backward_is_refused),
        cmocka_unit_test(a_step_before_anything_was_scaled_is_refused),
        cmocka_unit_test(a_step_on_the_gradients_of_an_unscaled_loss_is_refused),
        cmocka_unit_test(a_plain_step_on_scaled_gradients_is_refused),
        cmocka_unit_test(an_update_without_a_step_is_refused_and_costs_no_window),
        cmocka_unit_test(a_loss_scaled_between_step_and_update_is_refused),
        cmocka_unit_test(a_backward_after_the_unscale_is_refused_at_the_step),
        cmocka_unit_test(a_loss_of_before_the_update_is_not_walked_back_after_it),
        cmocka_unit_test(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
