/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of launches that ran behind the host's back: told by the launch that made them, wherever they surface, in the
 * order of the launches, and never in time for the weights. */
#include "support/seeds.h"
#include "support/spoil.h"
#include "support/told.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <belay/devices.h>
#include <belay/nn.h>
#include <belay/optim.h>

#include "launch/flight.h"

enum { ROWS = 8, SEEDS = 20 };

static belay_context *open_sim(int64_t seed, bool launch_blocking)
{
    belay_context *context = seeds_open(seed, &(belay_options){.device = "sim:0", .launch_blocking = launch_blocking});
    belay_site_push(context, "start");
    return context;
}

static belay_tensor ids_of(belay_context *context, int64_t first, int64_t second)
{
    const int64_t ids[] = {first, second};
    return belay_tensor_from(context, BELAY_I64, belay_shape1(2), ids, sizeof ids);
}

static belay_tensor table_of(belay_context *context)
{
    return belay_tensor_name_set(belay_ones(context, BELAY_F32, belay_shape2(ROWS, 2)), "table");
}

static void for_all_seeds(void (*test)(int64_t seed))
{
    for (int64_t seed = SEEDS_THREADS; seed < seeds_n(SEEDS); seed++) {
        test(seed);
        test(seed == SEEDS_THREADS ? SEEDS_THREADS : seed + 1000000);
    }
}

#define WHEN_AT_START "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
#define BY_ONE                                                                                                         \
    "    likely: the value equals the bound: off by one, or a padding or special id that the table was not grown "     \
    "for\n"                                                                                                            \
    "    try: Count ids from 0; a padding or special token needs a row of its own: make the table one row larger.\n"

/* ---- whom it is blamed on -------------------------------------------------------------------------------------------- */

#ifdef BELAY_SMALL
static uint64_t n_forced; /* waits, over all seeds: a hasty one needs none */
#endif

static void blame(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_recording_set(context, false);
    belay_tensor table = table_of(context), good = ids_of(context, 1, 2), bad = ids_of(context, 3, ROWS);
    seeds_here(context, "the bad one");
    belay_embedding(table, bad, NULL);
    belay_tensor_free(bad);
    seeds_here(context, "a good one");
    for (int i = 0; i < 1000; i++)
        belay_tensor_free(belay_embedding(table, good, NULL));
    seeds_here(context, "the fence");
    assert_int_equal(belay_synchronise(context), BELAY_OK);
#ifdef BELAY_SMALL
    const char *surfaced = "a good one";
    n_forced += bl_flight_n_forced(context);
#else
    const char *surfaced = "the fence";
    assert_int_equal(bl_flight_n_forced(context), 0);
#endif
    told_expect("belay: ids[1] is 8, outside [0, 8) of table (index.range)\n"
                "    op: embedding, called at the bad one, launch 2\n"
                "    surfaced at: %s\n"
                "    tensors: table [8, 2] f32; ids [2] i64; on sim:0\n"
                "    bad: 1 of 2 elements; values 8\n" WHEN_AT_START BY_ONE,
                surfaced);
    assert_int_equal(belay_close(context), 3);
}

static void a_fault_is_blamed_on_its_launch_after_a_thousand_good_ones(void **state)
{
    (void)state;
    for_all_seeds(blame);
#ifdef BELAY_SMALL
    assert_true(n_forced > 0);
#endif
}

/* ---- several at once ------------------------------------------------------------------------------------------------- */

static void list(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_recording_set(context, false);
    belay_stream stream[3] = {belay_stream_current(context), belay_stream_open(context, "a"),
                              belay_stream_open(context, "b")};
    belay_tensor table = table_of(context), ids[8];
    for (int i = 0; i < 8; i++)
        ids[i] = ids_of(context, 0, 100 + i);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    for (int i = 0; i < 8; i++) {
        char label[] = "call 0";
        label[5] = (char)('0' + i);
        seeds_here(context, label);
        (void)belay_stream_use(stream[(i * 5 + 2) % 3]);
        belay_embedding(table, ids[i], NULL);
    }
    seeds_here(context, "the fence");
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_int_equal(belay_n_faults(context), 8);
    for (int i = 0; i < 8; i++) {
        belay_fault fault;
        char label[] = "call 0";
        label[5] = (char)('0' + i);
        assert_true(belay_fault_get(context, i, &fault));
        assert_string_equal(fault.site, label);
        assert_int_equal(fault.got, 100 + i);
        assert_int_equal(fault.code, BELAY_INDEX_RANGE);
    }
    belay_fault first;
    assert_true(belay_fault_first(context, &first));
    assert_string_equal(first.site, "call 0");
    assert_int_equal(belay_close(context), 3);
}

static void faults_in_flight_on_three_streams_are_listed_by_launch(void **state)
{
    (void)state;
    for_all_seeds(list);
}

static void wait_for_one(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_recording_set(context, false);
    belay_stream a = belay_stream_open(context, "a"), b = belay_stream_open(context, "b");
    belay_tensor table = table_of(context), ids = ids_of(context, 0, ROWS);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    (void)belay_stream_use(a);
    seeds_here(context, "on a");
    belay_embedding(table, ids, NULL);
    (void)belay_stream_use(b);
    seeds_here(context, "on b");
    belay_embedding(table, ids, NULL);
    assert_int_equal(belay_stream_synchronise(b), BELAY_OK);
    belay_fault fault;
    assert_int_equal(belay_n_faults(context), 1);
    assert_true(belay_fault_get(context, 0, &fault));
    assert_string_equal(fault.site, "on b");
    assert_int_equal(belay_stream_synchronise(a), BELAY_OK);
    assert_int_equal(belay_n_faults(context), 2);
    assert_true(belay_fault_get(context, 1, &fault));
    assert_string_equal(fault.site, "on a");
    assert_int_equal(belay_close(context), 3);
}

static void what_was_not_waited_for_is_not_told(void **state)
{
    (void)state;
    for_all_seeds(wait_for_one);
}

static void close_stream(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_recording_set(context, false);
    belay_stream a = belay_stream_open(context, "a");
    belay_tensor table = table_of(context), ids = ids_of(context, 0, ROWS);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    (void)belay_stream_use(a);
    seeds_here(context, "the bad one");
    belay_embedding(table, ids, NULL);
    seeds_here(context, "the end");
    belay_stream_close(a);
    told_expect("belay: ids[1] is 8, outside [0, 8) of table (index.range)\n"
                "    op: embedding, called at the bad one, launch 2 on stream a\n"
                "    surfaced at: the end\n"
                "    tensors: table [8, 2] f32; ids [2] i64; on sim:0\n"
                "    bad: 1 of 2 elements; values 8\n" WHEN_AT_START BY_ONE);
    assert_int_equal(belay_close(context), 3);
}

static void a_stream_that_is_closed_tells_its_faults(void **state)
{
    (void)state;
    for_all_seeds(close_stream);
}

static void overwrite(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_recording_set(context, false);
    belay_tensor table = table_of(context), ids = ids_of(context, 0, ROWS);
    seeds_here(context, "the bad one");
    belay_embedding(table, ids, NULL);
    const int64_t good[] = {1, 2};
    assert_int_equal(belay_tensor_write(ids, good, sizeof good), BELAY_OK);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault));
    assert_int_equal(fault.got, ROWS);
    assert_int_equal(belay_close(context), 3);
}

static void ids_that_are_written_again_meanwhile_are_told_as_they_were(void **state)
{
    (void)state;
    for_all_seeds(overwrite);
}

/* One bad label in the forward, and ids that turn bad before the walk back. */
static void walk_back(belay_context *context)
{
    belay_tensor table = belay_tensor_requires_grad_set(table_of(context), true), ids = ids_of(context, 0, 1);
    belay_tensor labels = belay_tensor_name_set(ids_of(context, 0, 2), "labels");
    seeds_here(context, "the lookup");
    belay_tensor rows = belay_embedding(table, ids, NULL);
    seeds_here(context, "the loss");
    belay_tensor loss = belay_cross_entropy(rows, labels, NULL);
    const int64_t bad[] = {0, ROWS};
    assert_int_equal(spoil(ids, bad, sizeof bad), BELAY_OK);
    seeds_here(context, "the walk");
    belay_backward(loss);
    seeds_here(context, "the fence");
    assert_int_equal(belay_synchronise(context), BELAY_OK);
}

#define BAD_LABEL "    bad: 1 of 2 elements; values 2\n" WHEN_AT_START
#define BY_CLASSES                                                                                                     \
    "    likely: the value equals the number of classes: labels counted from 1, or a class that the model was not "    \
    "given\n"                                                                                                          \
    "    try: Subtract 1 from labels that count from 1; else give the model one more output.\n"

static void walk_back_on_sim(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    walk_back(context);
#ifdef BELAY_SMALL
    const char *surfaced = "", *echoes = ""; /* the ring was full at once */
#else
    const char *surfaced = ", launch 3\n    surfaced at: the fence";
    const char *echoes = "    echoes: 1 later fault of the same cause\n";
#endif
    told_expect("belay: labels[1] is 2, outside [0, 2) (index.label)\n"
                "    op: cross_entropy, called at the loss%s\n"
                "    tensors: x [2, 2] f32; labels [2] i64; on sim:0\n" BAD_LABEL "%s" BY_CLASSES
                "belay: ids[1] is 8, outside [0, 8) (index.range)\n"
                "    op: embedding_grad (backward), called at the lookup, launch 8\n"
                "    surfaced at: the fence\n"
                "    tensors: g_y [2, 2] f32; ids [2] i64; on sim:0\n"
                "    bad: 1 of 2 elements; values 8\n" WHEN_AT_START BY_ONE,
                surfaced, echoes);
    assert_int_equal(belay_close(context), 3);
}

static void a_fault_of_the_walk_back_alone_is_no_echo_of_another(void **state)
{
    (void)state;
    for_all_seeds(walk_back_on_sim);
    told_clear();
    belay_context *context = belay_open(&(belay_options){.log = told_remember, .no_journal = true});
    belay_site_push(context, "start");
    walk_back(context);
    told_expect("belay: labels[1] is 2, outside [0, 2) (index.label)\n"
                "    op: cross_entropy, called at the loss\n"
                "    tensors: x [2, 2] f32; labels [2] i64; on cpu\n" BAD_LABEL BY_CLASSES
                "belay: ids[1] is 8, outside [0, 8) (index.range)\n"
                "    op: embedding_grad (backward), called at the lookup\n"
                "    tensors: g_y [2, 2] f32; ids [2] i64; on cpu\n"
                "    bad: 1 of 2 elements; values 8\n" WHEN_AT_START BY_ONE);
    assert_int_equal(belay_close(context), 3);
}

static void close_one(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_recording_set(context, false);
    belay_tensor table = table_of(context);
    seeds_here(context, "the bad one");
    belay_embedding(table, ids_of(context, 0, ROWS), NULL);
    assert_int_equal(belay_n_faults(context), 0);
    assert_int_equal(belay_close(context), 3);
    assert_non_null(strstr(told(), "called at the bad one"));
}

static void close_tells_what_is_in_flight_and_answers_by_it(void **state)
{
    (void)state;
    for_all_seeds(close_one);
}

static void block(int64_t seed)
{
    belay_context *context = open_sim(seed, true);
    belay_recording_set(context, false);
    belay_tensor table = table_of(context);
    seeds_here(context, "the bad one");
    belay_embedding(table, ids_of(context, 0, ROWS), NULL);
    told_expect("belay: ids[1] is 8, outside [0, 8) of table (index.range)\n"
                "    op: embedding, called at the bad one\n"
                "    tensors: table [8, 2] f32; ids [2] i64; on sim:0\n"
                "    bad: 1 of 2 elements; values 8\n" WHEN_AT_START BY_ONE);
    assert_int_equal(belay_close(context), 3);
}

static void launch_blocking_tells_at_the_call(void **state)
{
    (void)state;
    for_all_seeds(block);
}

/* ---- beside the cpu -------------------------------------------------------------------------------------------------- */

static void beside(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_recording_set(context, false);
    belay_tensor far = table_of(context), far_ids = ids_of(context, 0, 20);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_int_equal(belay_device_set(context, "cpu"), BELAY_OK);
    belay_tensor near = table_of(context), near_ids = ids_of(context, 0, 30);
    seeds_here(context, "on sim");
    belay_embedding(far, far_ids, NULL);
    seeds_here(context, "on cpu");
    belay_embedding(near, near_ids, NULL);
    belay_fault fault;
    assert_int_equal(belay_n_faults(context), 1);
    assert_true(belay_fault_get(context, 0, &fault));
    assert_string_equal(fault.site, "on cpu");
    assert_int_equal(fault.got, 30);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_int_equal(belay_n_faults(context), 2);
    assert_true(belay_fault_get(context, 1, &fault));
    assert_string_equal(fault.site, "on sim");
    assert_int_equal(fault.got, 20);
    assert_int_equal(belay_close(context), 3);
}

static void a_launch_on_cpu_is_told_at_once_and_takes_no_others_fault(void **state)
{
    (void)state;
    for_all_seeds(beside);
}

/* ---- windows --------------------------------------------------------------------------------------------------------- */

enum { STEPS = 4, BATCH = 2 };

#ifdef BELAY_SMALL /* told before its echo has run */
#define SURFACED_IN_WINDOW ""
#define ECHOES             ""
#else
#define SURFACED_IN_WINDOW "    surfaced at: step\n"
#define ECHOES             "    echoes: 1 later fault of the same cause\n"
#endif

typedef struct weights {
    float table[ROWS * 2];
    int64_t applied, faulted;
} weights;

static bool sample_of(void *state, int64_t row, char *out, size_t size)
{
    snprintf(out, size, "train.tsv:%d", *(const int *)state * BATCH + (int)row + 2);
    return true;
}

static void train(belay_context *context, int bad_step, bool skips, weights *out)
{
    belay_module *model = belay_embedding_module(context, &(belay_embedding_module_options){.rows = ROWS, .width = 2});
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.1});
    belay_stream side = belay_stream_open(context, "side");
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    (void)belay_stream_use(side);
    for (int step = 0; step < STEPS; step++) {
        if (skips && step == bad_step)
            continue;
        belay_scope scope = belay_scope_open(context);
        belay_position_set(context, 0, (uint32_t)step);
        bl_context_batch_set(context, BATCH, sample_of, &step);
        belay_tensor ids = ids_of(context, step, step == bad_step ? ROWS + 3 : 1);
        seeds_here(context, "forward");
        belay_tensor loss = belay_sum(belay_forward(model, ids), NULL);
        int gone = 1000;
        bl_context_batch_set(context, BATCH, sample_of, &gone); /* the next one */
        seeds_here(context, "backward");
        belay_backward(loss);
        seeds_here(context, "step");
        belay_optimizer_step(adam);
        belay_scope_close(scope);
    }
    out->applied = belay_optimizer_n_applied(adam);
    out->faulted = belay_optimizer_n_faulted(adam);
    told_read(belay_module_parameter(model, 0), out->table, ROWS * 2);
}

static void train_both(int64_t seed)
{
    weights faulted, skipped;
    belay_context *context = open_sim(seed, false);
    train(context, 2, false, &faulted);
    told_expect("belay: ids[1] is 11, outside [0, 8) of weight (index.range)\n"
                "    op: embedding in layer embedding, called at forward, launch 28 on stream side\n"
                "%s"
                "    tensors: weight [8, 2] f32; ids [2] i64; on sim:0\n"
                "    bad: 1 of 2 elements; values 11\n"
                "    sample: train.tsv:7 (row 1 of the batch)\n"
                "    when: epoch 0, batch 2 (micro-batch 0 of its window), step 2, rank 0\n"
                "%s"
                "    likely: slightly above the bound: the tokenizer knows more ids than the table has rows\n"
                "    try: Make the table as large as the largest id plus 1; tokens that were added later need rows "
                "too.\n"
                "belay: step 2 was not applied: index.range in its window (run.window_lost)\n"
                "    called at: step\n"
                "    when: epoch 0, batch 2 (micro-batch 1 of its window), step 2, rank 0\n"
                "    try: See the fault named before.\n",
                SURFACED_IN_WINDOW, ECHOES);
    assert_int_equal(belay_close(context), 0); /* a good step came behind it */
    context = open_sim(seed, false);
    train(context, 2, true, &skipped);
    told_close(context);
    assert_int_equal(faulted.applied, STEPS - 1);
    assert_int_equal(faulted.faulted, 1);
    assert_memory_equal(faulted.table, skipped.table, sizeof faulted.table);
}

static void a_faulted_window_is_as_if_its_batch_did_not_exist(void **state)
{
    (void)state;
    for_all_seeds(train_both);
}

/* A look-up on a stream that the step has nothing to do with. */
static void fault_aside(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_module *model = belay_embedding_module(context, &(belay_embedding_module_options){.rows = ROWS, .width = 2});
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.1});
    belay_stream main = belay_stream_current(context), side = belay_stream_open(context, "side");
    belay_tensor table = table_of(context), bad = ids_of(context, 0, ROWS);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    for (int step = 0; step < 3; step++) {
        (void)belay_stream_use(side);
        if (step == 1)
            belay_embedding(table, bad, NULL);
        (void)belay_stream_use(main);
        belay_backward(belay_sum(belay_forward(model, ids_of(context, step, 1)), NULL));
        belay_optimizer_step(sgd);
    }
    assert_int_equal(belay_optimizer_n_applied(sgd), 2);
    assert_int_equal(belay_optimizer_n_faulted(sgd), 1);
    belay_recording_set(context, false);
    belay_tensor ids = ids_of(context, 0, ROWS);
    belay_embedding(table, ids, NULL); /* outside of a window */
    belay_recording_set(context, true);
    belay_backward(belay_sum(belay_forward(model, ids_of(context, 3, 1)), NULL));
    belay_optimizer_step(sgd);
    assert_int_equal(belay_optimizer_n_applied(sgd), 3);
    assert_int_equal(belay_close(context), 0);
}

static void the_gate_hears_of_every_stream_and_of_launches_in_the_window_only(void **state)
{
    (void)state;
    for_all_seeds(fault_aside);
}

static void discard(int64_t seed)
{
    belay_context *context = open_sim(seed, false);
    belay_module *model = belay_embedding_module(context, &(belay_embedding_module_options){.rows = ROWS, .width = 2});
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.1});
    belay_backward(belay_sum(belay_forward(model, ids_of(context, 0, ROWS)), NULL));
    belay_optimizer_discard(sgd); /* and the fault with it */
    belay_backward(belay_sum(belay_forward(model, ids_of(context, 0, 1)), NULL));
    belay_optimizer_step(sgd);
    assert_int_equal(belay_optimizer_n_applied(sgd), 1);
    assert_int_equal(belay_n_faults(context), 1);
    assert_int_equal(belay_close(context), 0);
}

static void a_discarded_window_leaves_the_next_gate_open(void **state)
{
    (void)state;
    for_all_seeds(discard);
}

int main(void)
{
    setenv("BELAY_SIM_BYTES", "16777216", 1); /* quick to open */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_is_blamed_on_its_launch_after_a_thousand_good_ones),
        cmocka_unit_test(faults_in_flight_on_three_streams_are_listed_by_launch),
        cmocka_unit_test(what_was_not_waited_for_is_not_told),
        cmocka_unit_test(a_stream_that_is_closed_tells_its_faults),
        cmocka_unit_test(ids_that_are_written_again_meanwhile_are_told_as_they_were),
        cmocka_unit_test(close_tells_what_is_in_flight_and_answers_by_it),
        cmocka_unit_test(launch_blocking_tells_at_the_call),
        cmocka_unit_test(a_fault_of_the_walk_back_alone_is_no_echo_of_another),
        cmocka_unit_test(a_launch_on_cpu_is_told_at_once_and_takes_no_others_fault),
        cmocka_unit_test(a_faulted_window_is_as_if_its_batch_did_not_exist),
        cmocka_unit_test(the_gate_hears_of_every_stream_and_of_launches_in_the_window_only),
        cmocka_unit_test(a_discarded_window_leaves_the_next_gate_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
