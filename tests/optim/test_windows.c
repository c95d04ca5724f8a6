/* SPDX-License-Identifier: Apache-2.0 */
/* Windows on a device that runs behind the host's back: a step waits for nothing, each window's faults refuse its own
 * step and no other, and what became of a step is told in order, at whatever call the host hears of it. */
#include "support/seeds.h"
#include "support/told.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <belay/devices.h>
#include <belay/nn.h>
#include <belay/op.h>
#include <belay/optim.h>

enum { ROWS = 8, SEEDS = 20, STEPS = 9 };

static belay_context *open_on(const char *device, int64_t seed, belay_sync_debug sync_debug)
{
    belay_options options = {.device = device, .sync_debug = sync_debug};
    if (sync_debug == BELAY_SYNC_DEBUG_ERROR) /* other modes look at each window's red zones, and wait */
        options.memory = BELAY_MEMORY_POOL;
    return seeds_open(seed, &options);
}

static void for_all_seeds(void (*test)(int64_t seed))
{
    for (int64_t seed = SEEDS_THREADS; seed < seeds_n(SEEDS); seed++)
        test(seed);
}

static belay_tensor ids_of(belay_context *context, int64_t first, int64_t second)
{
    const int64_t ids[] = {first, second};
    return belay_tensor_from(context, BELAY_I64, belay_shape1(2), ids, sizeof ids);
}

static belay_module *table_of(belay_context *context)
{
    return belay_embedding_module(context, &(belay_embedding_module_options){.rows = ROWS, .width = 2});
}

/* Steps 2 and 5 have a bad id, step 4 a loss without bound. */
static void train(belay_context *context, belay_optimizer *adam, belay_module *model)
{
    for (int step = 0; step < STEPS; step++) {
        belay_scope scope = belay_scope_open(context);
        belay_tensor ids = ids_of(context, step % ROWS, step == 2 || step == 5 ? ROWS : 1);
        belay_tensor loss = belay_sum(belay_forward(model, ids), NULL);
        belay_backward(step == 4 ? belay_mul(loss, belay_full(context, BELAY_F32, belay_shape0(), INFINITY)) : loss);
        belay_optimizer_step(adam);
        belay_scope_close(scope);
    }
}

static void train_to_the_end(belay_context *context, float table[ROWS * 2])
{
    belay_module *model = table_of(context);
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.1});
    train(context, adam, model);
    assert_int_equal(belay_optimizer_n_applied(adam), STEPS - 3);
    assert_int_equal(belay_optimizer_n_faulted(adam), 2);
    assert_int_equal(belay_optimizer_n_overflowed(adam), 1);
    told_read(belay_module_parameter(model, 0), table, ROWS * 2);
}

/* The headlines that begin so, in the order in which they came. */
static void headlines(const char *begin, char out[512])
{
    out[0] = '\0';
    for (const char *at = told(); (at = strstr(at, begin)) != NULL; at++)
        snprintf(out + strlen(out), 512 - strlen(out), "%.*s\n", (int)strcspn(at, "\n"), at);
}

/* Those of steps that were refused. */
static void refusals(char out[512]) { headlines("belay: step ", out); }

static void train_as_cpu(int64_t seed)
{
    float cpu[ROWS * 2], sim[ROWS * 2];
    char words[512];
    belay_context *context = open_on("cpu", seed, BELAY_SYNC_DEBUG_OFF);
    train_to_the_end(context, cpu);
    belay_close(context);
    context = open_on("sim:0", seed, BELAY_SYNC_DEBUG_OFF);
    train_to_the_end(context, sim);
    refusals(words);
    assert_string_equal(words,
                        "belay: step 2 was not applied: index.range in its window (run.window_lost)\n"
                        "belay: step 4 was not applied: the gradient of weight [8, 2] is not finite (run.overflow)\n"
                        "belay: step 5 was not applied: index.range in its window (run.window_lost)\n");
    assert_memory_equal(cpu, sim, sizeof cpu);
    assert_int_equal(belay_close(context), 0); /* a good step came behind them */
}

static void refused_steps_are_told_in_order_and_leave_the_weights_of_cpu(void **state)
{
    (void)state;
    for_all_seeds(train_as_cpu);
}

static void train_without_waiting(int64_t seed)
{
    belay_context *context = open_on("sim:0", seed, BELAY_SYNC_DEBUG_ERROR);
    belay_module *model = table_of(context);
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.1});
    train(context, adam, model);
    assert_null(strstr(told(), "(run.sync_refused)"));
#ifndef BELAY_SMALL /* whose rings are full at once */
    assert_null(strstr(told(), "(run.sync)"));
#endif
    assert_int_equal(belay_optimizer_n_applied(adam), STEPS - 3);
    belay_close(context);
}

static void a_loop_of_steps_never_makes_the_host_wait(void **state)
{
    (void)state;
    for (int64_t seed = 0; seed < SEEDS; seed++) /* with threads a slow one may fill the ring of windows */
        train_without_waiting(seed);
}

static void stays_in_front(int64_t seed)
{
    belay_fault first;
    belay_context *context = open_on("sim:0", seed, BELAY_SYNC_DEBUG_OFF);
    belay_module *model = table_of(context);
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.1});
    belay_backward(belay_sum(belay_forward(model, ids_of(context, 0, 1)), NULL));
    belay_optimizer_step(sgd);
    belay_add(belay_zeros(context, BELAY_F32, belay_shape1(2)), belay_zeros(context, BELAY_F32, belay_shape1(3)));
    assert_true(belay_optimizer_is_applied(sgd));
    assert_true(belay_fault_first(context, &first));
    assert_int_equal(first.code, BELAY_SHAPE_CONTRACT);
    belay_backward(belay_sum(belay_forward(model, ids_of(context, 0, 1)), NULL));
    belay_optimizer_step(sgd);
    assert_int_equal(belay_optimizer_n_faulted(sgd), 1);
    assert_int_equal(belay_close(context), 3);
}

static void a_fault_behind_a_good_step_is_not_forgotten_when_that_is_heard_of(void **state)
{
    (void)state;
    for_all_seeds(stays_in_front);
}

static void an_overflow_is_told_by_its_parameter_and_chunk_when_the_gradients_are_gone(void **state)
{
    (void)state;
    static float scale[3000];
    belay_context *context = open_on("sim:0", 1, BELAY_SYNC_DEBUG_OFF);
    belay_tensor p[2] = {belay_tensor_requires_grad_set(belay_ones(context, BELAY_F32, belay_shape1(5)), true),
                         belay_tensor_requires_grad_set(belay_ones(context, BELAY_F32, belay_shape2(2, 1500)), true)};
    belay_tensor_name_set(p[0], "small");
    belay_tensor_name_set(p[1], "large");
    scale[2047] = INFINITY;
    belay_optimizer *sgd = belay_sgd_over(context, p, 2, &(belay_sgd_options){.lr = 1});
    belay_tensor factors = told_f32(context, belay_shape2(2, 1500), scale);
    belay_backward(belay_add(belay_sum(p[0], NULL), belay_sum(belay_mul(p[1], factors), NULL)));
    int line = __LINE__ + 1;
    belay_optimizer_step(sgd);
    assert_false(belay_optimizer_is_applied(sgd));
    told_expect(
        "belay: step 0 was not applied: the gradient of large [2, 1500] is not finite (run.overflow)\n"
        "    called at: test_windows.c:%d\n"
        "    surfaced at: test_windows.c:%d\n"
        "    the first bad element lies between [0, 1024] and [1, 547]; launch blocking tells which and what it "
        "is\n"
        "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n%s",
        line, line + 1, told_try(BELAY_RUN_OVERFLOW));
    assert_int_equal(belay_close(context), 0);
}

static void tell_before_free(int64_t seed)
{
    belay_context *context = open_on("sim:0", seed, BELAY_SYNC_DEBUG_OFF);
    belay_module *model = table_of(context);
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.1});
    belay_backward(belay_sum(belay_forward(model, ids_of(context, 0, ROWS)), NULL));
    belay_optimizer_step(sgd);
    belay_optimizer_free(sgd);
    assert_non_null(strstr(told(), "belay: step 0 was not applied: index.range in its window (run.window_lost)\n"));
    assert_int_equal(belay_close(context), 3);
}

static void what_became_of_a_step_is_told_before_its_optimizer_is_freed(void **state)
{
    (void)state;
    for_all_seeds(tell_before_free);
}

/* A log callback that asks at the first bad index. */
typedef struct question {
    const belay_optimizer *of;
    int n_asked;
    bool is_applied; /* the answer */
} question;

static void remember_and_ask(void *state, belay_code code, const char *text)
{
    question *q = state;
    told_remember(NULL, code, text);
    if (code == BELAY_INDEX_RANGE && q->n_asked++ == 0)
        q->is_applied = belay_optimizer_is_applied(q->of);
}

/* Two bad ids in one window, then a step; the event lies between. */
static belay_event step_with_two_faults(belay_context *context, belay_optimizer *sgd, belay_module *model)
{
    belay_tensor x = belay_forward(model, ids_of(context, 0, ROWS)), y = belay_forward(model, ids_of(context, ROWS, 0));
    belay_backward(belay_add(belay_sum(x, NULL), belay_sum(y, NULL)));
    belay_event faulted = belay_event_record(belay_stream_current(context));
    belay_optimizer_step(sgd);
    return faulted;
}

static void ask_while_told(int64_t seed, bool waits_for_faults)
{
    char words[512];
    question q = {.is_applied = true};
    belay_context *context = seeds_open(
        seed,
        &(belay_options){.device = "sim:0",
                         .memory = BELAY_MEMORY_POOL, /* others look at red zones, and wait, before a window ends */
                         .log = remember_and_ask,
                         .log_state = &q});
    belay_module *model = table_of(context);
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.1});
    q.of = sgd;
    belay_event faulted = step_with_two_faults(context, sgd, model);
    if (waits_for_faults)
        assert_int_equal(belay_event_synchronise(faulted), BELAY_OK);
    else
        assert_int_equal(belay_synchronise(context), BELAY_OK);
    headlines("belay: ", words);
    assert_string_equal(words, "belay: ids[1] is 8, outside [0, 8) of weight (index.range)\n"
                               "belay: ids[0] is 8, outside [0, 8) of weight (index.range)\n"
                               "belay: step 0 was not applied: index.range in its window (run.window_lost)\n");
    assert_int_equal(q.n_asked, 2);
    assert_false(q.is_applied);
    assert_int_equal(belay_optimizer_n_faulted(sgd), 1);
    assert_int_equal(belay_close(context), 3);
}

static void ask_at_the_end_of_the_window(int64_t seed) { ask_while_told(seed, false); }

static void a_question_asked_at_a_fault_is_answered_and_its_window_told_behind_the_other_faults(void **state)
{
    (void)state;
    for_all_seeds(ask_at_the_end_of_the_window);
}

#ifndef BELAY_SMALL /* whose rings are full, and the faults told, before the window ends */
/* The host knows of the faults and, until the question waits, of no window. */
static void ask_before_the_end_of_the_window(int64_t seed) { ask_while_told(seed, true); }

static void a_window_that_a_question_waited_for_is_told_by_the_call_that_told_its_faults(void **state)
{
    (void)state;
    for_all_seeds(ask_before_the_end_of_the_window);
}
#endif

/* One backward for two optimizers: the window ends with the first step. */
static void step_two(int64_t seed)
{
    belay_context *context = open_on("sim:0", seed, BELAY_SYNC_DEBUG_OFF);
    belay_module *a = table_of(context), *b = table_of(context);
    belay_optimizer *first = belay_sgd(a, &(belay_sgd_options){.lr = 0.1});
    belay_optimizer *second = belay_sgd(b, &(belay_sgd_options){.lr = 0.1});
    float before[ROWS * 2], after[ROWS * 2];
    told_read(belay_module_parameter(b, 0), before, ROWS * 2);
    belay_tensor x = belay_forward(a, ids_of(context, 0, ROWS)), y = belay_forward(b, ids_of(context, 0, 1));
    belay_backward(belay_sum(belay_add(x, y), NULL));
    belay_optimizer_step(first);
    belay_optimizer_step(second);
    told_read(belay_module_parameter(b, 0), after, ROWS * 2);
    assert_memory_equal(before, after, sizeof before);
    belay_close(context);
}

static void gradients_of_a_lost_window_reach_no_other_optimizer(void **state)
{
    (void)state;
    for_all_seeds(step_two);
}

int main(void)
{
    setenv("BELAY_SIM_BYTES", "16777216", 1); /* quick to open */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_steps_are_told_in_order_and_leave_the_weights_of_cpu),
        cmocka_unit_test(a_loop_of_steps_never_makes_the_host_wait),
        cmocka_unit_test(a_fault_behind_a_good_step_is_not_forgotten_when_that_is_heard_of),
        cmocka_unit_test(an_overflow_is_told_by_its_parameter_and_chunk_when_the_gradients_are_gone),
        cmocka_unit_test(what_became_of_a_step_is_told_before_its_optimizer_is_freed),
        cmocka_unit_test(a_question_asked_at_a_fault_is_answered_and_its_window_told_behind_the_other_faults),
#ifndef BELAY_SMALL
        cmocka_unit_test(a_window_that_a_question_waited_for_is_told_by_the_call_that_told_its_faults),
#endif
        cmocka_unit_test(gradients_of_a_lost_window_reach_no_other_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
