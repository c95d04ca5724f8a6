/* SPDX-License-Identifier: Apache-2.0 */
/* The worker over a transport that does what a test says, by a clock that the test sets: the order of works, deadlines,
 * errors of the transport. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/worker.h"

#define S INT64_C(1000000000)

enum { SIZE = 3, MANY = 10 };

/* ---- the transport: a rank of three, whose peers are silent where they do not talk ------------------------------------ */

enum { NOWHERE, IN_OPEN, IN_START, IN_TEST, IN_SEND };

struct bl_transport {
    atomic_int n_started, n_over; /* operations; those with a number below n_over have ended */
    atomic_bool fails_to_start, fails_to_end, fails_to_open;
    atomic_int blocks;    /* where a call does not return until this is another */
    atomic_int is_inside; /* it does not */
    atomic_bool hurries;  /* time passes there */
    atomic_int n_closed, n_closed_whole;
    int rank;
    atomic_bool talks; /* each peer says again and again that it is in `phase` */
    atomic_int phase, n_tests;
    void *heartbeat[SIZE];
};

static bl_transport fake;

static void block(int where)
{
    if (fake.blocks != where)
        return;
    fake.is_inside = 1;
    while (fake.blocks == where) {
        if (fake.hurries)
            bl_clock_set(bl_clock_now() + S);
        usleep(1000);
    }
    fake.is_inside = 0;
}

static belay_code open_fake(bl_transport **out, bl_transport_place *place, bl_error *error)
{
    if (fake.fails_to_open)
        return bl_error_set(error, BELAY_COMM_FAILED, "the cable is not there");
    block(IN_OPEN);
    *out = &fake;
    *place = (bl_transport_place){.rank = fake.rank, .size = SIZE, .local_size = SIZE, .host = "node0"};
    return BELAY_OK;
}

static void close_fake(bl_transport *t, bool whole)
{
    t->n_closed_whole += whole;
    t->n_closed++;
}

static belay_code begin(bl_transport *t, int *request, bl_error *error)
{
    if (t->fails_to_start)
        return bl_error_set(error, BELAY_COMM_FAILED, "the cable is broken");
    int number = atomic_fetch_add(&t->n_started, 1);
    block(IN_START);
    *request = number;
    return BELAY_OK;
}

static belay_code all_reduce(bl_transport *t, bl_plane plane, void *data, int64_t n, belay_dtype dtype,
                             belay_group_op op, int *request, bl_error *error)
{
    (void)plane, (void)data, (void)n, (void)dtype, (void)op;
    return begin(t, request, error);
}

static belay_code broadcast(bl_transport *t, bl_plane plane, void *data, int64_t n, int root, int *request,
                            bl_error *error)
{
    (void)plane, (void)data, (void)n, (void)root;
    return begin(t, request, error);
}

static belay_code all_gather(bl_transport *t, bl_plane plane, const void *mine, void *all, int64_t n, int *request,
                             bl_error *error)
{
    (void)plane, (void)mine, (void)all, (void)n;
    return begin(t, request, error);
}

/* Numbers from 1000 on are messages: those to peers go off, those from them come when they talk. */
static belay_code send(bl_transport *t, int peer, const void *data, int64_t n, int *request, bl_error *error)
{
    (void)t, (void)data, (void)n, (void)error;
    block(IN_SEND);
    *request = 1000 + peer;
    return BELAY_OK;
}

static belay_code receive(bl_transport *t, int peer, void *data, int64_t n, int *request, bl_error *error)
{
    (void)n, (void)error;
    t->heartbeat[peer] = data;
    *request = 2000 + peer;
    return BELAY_OK;
}

static belay_code test(bl_transport *t, int request, bool *is_done, bl_error *error)
{
    if (request < 1000)
        block(IN_TEST);
    t->n_tests += request < 1000;
    *is_done = request >= 2000 ? t->talks : request >= 1000 || request < t->n_over;
    if (*is_done && request >= 2000)
        *(bl_beat *)t->heartbeat[request - 2000] =
            (bl_beat){.group = 1, .phase = (uint32_t)t->phase, .phase_ns = 3 * S, .host = "node0"};
    if (*is_done && request < 1000 && t->fails_to_end)
        return bl_error_set(error, BELAY_COMM_FAILED, "the cable was cut");
    return BELAY_OK;
}

static const bl_transport_api api = {.version = BL_TRANSPORT_VERSION,
                                     .name = "fake",
                                     .open = open_fake,
                                     .close = close_fake,
                                     .all_reduce = all_reduce,
                                     .broadcast = broadcast,
                                     .all_gather = all_gather,
                                     .send = send,
                                     .receive = receive,
                                     .test = test};

/* ---- what the tests are made of -------------------------------------------------------------------------------------- */

static bl_group_worker *worker;
static bl_work works[MANY];
static atomic_int n_ended, n_failed;

static void noted(void *state, bool failed)
{
    (void)state;
    n_failed += failed;
    n_ended++;
}

static void begin_anew(void)
{
    memset(&fake, 0, sizeof fake);
    memset(works, 0, sizeof works);
    n_ended = n_failed = 0;
    bl_clock_set(100 * S);
}

static int start(void **state)
{
    bl_error error;
    (void)state;
    begin_anew();
    worker = bl_worker_open(&api, 2 * S, NULL, NULL, &error);
    return worker == NULL;
}

static int stop(void **state)
{
    (void)state;
    bl_clock_set(-1);
    bl_worker_close(worker, true);
    return 0;
}

static void post(int i)
{
    works[i].plane = BL_PLANE_DATA;
    works[i].what = "bucket of a test";
    works[i].end = noted;
    bl_worker_post(worker, &works[i]);
}

/* A bounded wait for the worker, which goes by its own time. */
static void wait_for(const atomic_int *value, int wanted)
{
    for (int i = 0; i < 60000 && *value != wanted; i++)
        usleep(1000);
    assert_int_equal(*value, wanted);
}

static void wait_until_over(const bl_work *work)
{
    for (int i = 0; i < 60000 && !bl_work_is_over(work); i++)
        usleep(1000);
    assert_true(bl_work_is_over(work));
}

static void expect_failure(belay_code code, const char *what)
{
    bl_failure failure;
    for (int i = 0; i < 60000 && !bl_worker_has_failed(worker, NULL); i++)
        usleep(1000);
    assert_true(bl_worker_has_failed(worker, &failure));
    assert_int_equal(failure.fault.code, code);
    assert_string_equal(failure.fault.what, what);
}

/* ---- tests ----------------------------------------------------------------------------------------------------------- */

static void works_begin_in_order_and_few_are_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++)
        post(i);
    wait_for(&fake.n_started, BL_WORKS_UNDER_WAY);
    fake.n_over = 2;
    wait_for(&n_ended, 2);
    wait_for(&fake.n_started, BL_WORKS_UNDER_WAY + 2);
    fake.n_over = MANY;
    wait_for(&n_ended, MANY);
    assert_int_equal(n_failed, 0);
    for (int i = 0; i < MANY; i++) {
        wait_until_over(&works[i]);
        assert_int_equal(works[i].request, i);
    }
}

/* Words end one by one, so that what waits for one has all that came before. */
static void data_wait_for_the_word_about_them(void **state)
{
    (void)state;
    bl_word mine = {.kind = BL_CALL_ROUND}, all[SIZE];
    works[0].after = 2;
    post(0);
    for (int i = 1; i < 3; i++) {
        works[i] = (bl_work){.kind = BL_WORK_ALL_GATHER, .mine = &mine, .data = all, .n = BL_WORD_BYTES, .end = noted};
        bl_worker_post(worker, &works[i]);
    }
    wait_for(&fake.n_started, 1);
    fake.n_over = 1;
    wait_for(&n_ended, 1);
    wait_for(&fake.n_started, 2);
    assert_int_equal(works[0].is_started, false);
    fake.n_over = 2;
    wait_for(&fake.n_started, 3);
    fake.n_over = 3;
    wait_until_over(&works[0]);
    assert_int_equal(works[1].request, 0);
    assert_int_equal(works[2].request, 1);
    assert_int_equal(works[0].request, 2);
}

static void a_work_that_is_not_over_fails_at_the_deadline_with_all_behind_it(void **state)
{
    (void)state;
    uint64_t word = 0;
    works[1].ended_word = &word;
    works[1].ended_value = 7;
    for (int i = 0; i < MANY; i++)
        post(i);
    wait_for(&fake.n_started, BL_WORKS_UNDER_WAY);
    assert_int_equal(n_ended, 0);
    bl_clock_set(103 * S);
    wait_for(&n_failed, MANY);
    for (int i = MANY - 1; i >= 0; i--) {
        wait_until_over(&works[i]);
        assert_int_equal(__atomic_load_n(&works[i].state, __ATOMIC_ACQUIRE), BL_WORK_FAILED);
    }
    assert_int_equal(__atomic_load_n(&word, __ATOMIC_ACQUIRE), 7);
    expect_failure(BELAY_COMM_DEADLINE,
                   "ranks 1, 2 are not heard of any more; bucket of a test has waited 3.0 s for them");
}

static void what_moves_is_not_late(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        post(i);
    for (int i = 1; i <= 3; i++) {
        bl_clock_set((100 + i) * S);
        fake.n_over = i;
        wait_for(&n_ended, i);
    }
    bl_clock_set(104 * S);
    fake.n_over = 4;
    wait_for(&n_ended, 4);
    assert_int_equal(n_failed, 0);
    assert_false(bl_worker_has_failed(worker, NULL));
}

/* The worker has seen what time it is. */
static void pass_to(int64_t time)
{
    bl_clock_set(time);
    int wanted = fake.n_tests + 100;
    for (int i = 0; i < 60000 && fake.n_tests < wanted && !bl_worker_has_failed(worker, NULL); i++)
        usleep(1000);
}

static void who_saves_has_ten_times_as_long(void **state)
{
    (void)state;
    fake.talks = true;
    fake.phase = BL_PHASE_SAVE;
    post(0);
    for (int i = 1; i < 10; i++) {
        pass_to(100 * S + i * (2 * S + S / 10));
        assert_false(bl_worker_has_failed(worker, NULL));
    }
    bl_clock_set(100 * S + 10 * (2 * S + S / 10));
    expect_failure(BELAY_COMM_DEADLINE, "ranks 1, 2 are somewhere else; bucket of a test has waited 21.0 s for them");
}

static void who_has_saved_has_as_long_again(void **state)
{
    (void)state;
    fake.talks = true;
    fake.phase = BL_PHASE_EVALUATE;
    post(0);
    pass_to(103 * S);
    fake.phase = BL_PHASE_DATA;
    pass_to(104 * S);
    assert_false(bl_worker_has_failed(worker, NULL));
    bl_clock_set(106 * S);
    expect_failure(BELAY_COMM_DEADLINE, "ranks 1, 2 are somewhere else; bucket of a test has waited 6.0 s for them");
}

static void an_error_at_the_start_is_told_as_the_transport_said_it(void **state)
{
    (void)state;
    fake.fails_to_start = true;
    post(0);
    expect_failure(BELAY_COMM_FAILED, "the cable is broken");
    wait_for(&n_failed, 1);
}

static void an_error_at_the_end_is_told_as_the_transport_said_it(void **state)
{
    (void)state;
    fake.fails_to_end = true;
    post(0);
    fake.n_over = 1;
    expect_failure(BELAY_COMM_FAILED, "the cable was cut");
    wait_for(&n_failed, 1);
    post(1); /* at once, by whoever posts it */
    assert_int_equal(n_failed, 2);
    assert_int_equal(works[1].state, BL_WORK_FAILED);
}

static void the_first_failure_counts(void **state)
{
    (void)state;
    bl_failure failure;
    for (int i = 0; i < 2; i++) {
        bl_failure_begin(&failure, i == 0 ? BELAY_COMM_PEER : BELAY_COMM_MISMATCH);
        snprintf(failure.fault.what, sizeof failure.fault.what, "failure %d", i);
        bl_worker_fail(worker, &failure);
    }
    expect_failure(BELAY_COMM_PEER, "failure 0");
}

static void a_transport_that_does_not_open_says_why(void **state)
{
    (void)state;
    bl_error error;
    memset(&fake, 0, sizeof fake);
    fake.fails_to_open = true;
    assert_null(bl_worker_open(&api, 2 * S, NULL, NULL, &error));
    assert_int_equal(error.code, BELAY_COMM_FAILED);
    assert_string_equal(error.what, "the cable is not there");
}

/* ---- a call that does not return ------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/belay_worker_XXXXXX";

static int start_as(int rank)
{
    bl_error error;
    begin_anew();
    fake.rank = rank;
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    worker = bl_worker_open(&api, 2 * S, folder, NULL, &error);
    return worker == NULL;
}

static int start_with_status(void **state)
{
    (void)state;
    return start_as(0);
}

static int start_as_last(void **state)
{
    (void)state;
    return start_as(SIZE - 1);
}

/* The worker is let go, and leaves. */
static int let_go(void **state)
{
    (void)state;
    fake.hurries = fake.talks = false;
    fake.blocks = NOWHERE;
    wait_for(&fake.n_closed, 1);
    bl_clock_set(-1);
    return 0;
}

static void expect_status(const char *why)
{
    char path[64], words[160];
    snprintf(path, sizeof path, "%s/rank%d.status", folder, fake.rank);
    json_t *status = json_load_file(path, 0, NULL);
    assert_non_null(status);
    snprintf(words, sizeof words, "%s", json_string_value(json_object_get(status, "state")));
    assert_string_equal(words, "failed");
    assert_string_equal(json_string_value(json_object_get(status, "code")), "comm.deadline");
    assert_int_equal(json_array_size(json_object_get(status, "culprits")), 0);
    assert_string_equal(json_string_value(json_object_get(status, "why")), why);
    json_decref(status);
    unlink(path);
    rmdir(folder);
}

/* The main thread waits as long as the worker has time, and somewhat longer; then all works have failed. */
static void expect_stuck(int n, const char *why)
{
    bl_failure failure;
    bl_clock_set(104 * S);
    bl_worker_wait(worker, &works[n - 1], "bucket of a test", "loop.c:7");
    assert_int_equal(n_failed, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(works[i].state, BL_WORK_FAILED);
    expect_failure(BELAY_COMM_DEADLINE, why);
    assert_true(bl_worker_has_failed(worker, &failure));
    assert_int_equal(failure.n_culprits, 0);
    assert_string_equal(failure.fault.facts, "this rank sends no heartbeats meanwhile: the others take it for dead\n");
    assert_string_equal(
        failure.fault.advice,
        "Look at the network and the load of this host; a debugger shows where its thread belay-group stands.");
    expect_status(why);
}

/* What is over is the caller's again, whenever the call comes back. */
static void expect_left_alone(int n)
{
    static const bl_work zero;
    memset(works, 0, sizeof works);
    fake.n_over = n;
    fake.blocks = NOWHERE;
    assert_false(bl_worker_close(worker, true));
    wait_for(&fake.n_closed, 1);
    assert_int_equal(fake.n_closed_whole, 0);
    assert_int_equal(n_ended, n);
    for (int i = 0; i < n; i++)
        assert_memory_equal(&works[i], &zero, sizeof zero);
}

static void a_start_that_does_not_return_is_given_up(void **state)
{
    (void)state;
    fake.blocks = IN_START;
    for (int i = 0; i < 3; i++)
        post(i);
    wait_for(&fake.is_inside, 1);
    expect_stuck(3,
                 "the call all_reduce of fake for bucket of a test does not return; bucket of a test has waited 4.0 s");
    post(3); /* at once, by whoever posts it */
    assert_int_equal(n_failed, 4);
    expect_left_alone(4);
}

static void a_test_that_does_not_return_is_given_up(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        post(i);
    wait_for(&fake.n_started, 3);
    fake.blocks = IN_TEST;
    wait_for(&fake.is_inside, 1);
    expect_stuck(3, "the call test of fake for bucket of a test does not return; bucket of a test has waited 4.0 s");
    expect_left_alone(3);
}

/* Closing does not wait for it either.  Rank 0, which was heard of until then, saves, and not this one. */
static void a_heartbeat_that_does_not_return_is_given_up(void **state)
{
    (void)state;
    fake.talks = true;
    post(0);
    pass_to(100 * S);
    fake.blocks = IN_SEND;
    bl_clock_set(101 * S); /* another is due */
    wait_for(&fake.is_inside, 1);
    expect_stuck(1,
                 "the call send of fake for a heartbeat to rank 0 does not return; bucket of a test has waited 4.0 s");
    assert_int_equal(bl_worker_lowest_survivor(worker), 0);
    fake.hurries = true;
    assert_false(bl_worker_close(worker, true));
    assert_int_equal(fake.n_closed, 0);
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

static void expect_no_opening(const bl_transport_api *over, belay_code code, const char *what, const char *facts,
                              const char *advice)
{
    bl_error error = {0};
    assert_null(bl_worker_open(over, 2 * S, NULL, NULL, &error));
    assert_int_equal(error.code, code);
    assert_string_equal(error.what, what);
    assert_string_equal(error.facts, facts);
    assert_string_equal(error.advice, advice);
}

static void expect_no_start(const bl_transport_api *over)
{
    begin_anew();
    fake.blocks = IN_OPEN;
    fake.hurries = true;
    expect_no_opening(over, BELAY_COMM_DEADLINE, "fake did not start within 30.0 s",
                      "a rank that opens no group, or has died, keeps all others waiting here\n",
                      "Look for a rank that has not come this far, or start fewer ranks on these cores.");
    fake.hurries = false;
}

static void an_opening_ends_at_its_deadline_and_another_one_may_follow(void **state)
{
    expect_no_start(&api);
    let_go(state); /* what opens too late is closed again */
    assert_int_equal(fake.n_closed_whole, 0);
    assert_int_equal(start(state), 0);
    stop(state);
    assert_int_equal(fake.n_closed_whole, 1);
}

/* As with MPI, whose thread has not come back from its start. */
static void a_transport_that_never_opened_is_not_opened_again(void **state)
{
    static bl_transport_api kept;
    kept = api;
    kept.is_lasting = true;
    expect_no_start(&kept);
    for (int i = 0; i < 2; i++) {
        expect_no_opening(&kept, BELAY_COMM_FAILED,
                          "fake cannot be used in this process again: its start never came to an end", "",
                          "Start the ranks anew.");
        let_go(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(works_begin_in_order_and_few_are_under_way, start, stop),
        cmocka_unit_test_setup_teardown(data_wait_for_the_word_about_them, start, stop),
        cmocka_unit_test_setup_teardown(a_work_that_is_not_over_fails_at_the_deadline_with_all_behind_it, start, stop),
        cmocka_unit_test_setup_teardown(what_moves_is_not_late, start, stop),
        cmocka_unit_test_setup_teardown(who_saves_has_ten_times_as_long, start, stop),
        cmocka_unit_test_setup_teardown(who_has_saved_has_as_long_again, start, stop),
        cmocka_unit_test_setup_teardown(an_error_at_the_start_is_told_as_the_transport_said_it, start, stop),
        cmocka_unit_test_setup_teardown(an_error_at_the_end_is_told_as_the_transport_said_it, start, stop),
        cmocka_unit_test_setup_teardown(the_first_failure_counts, start, stop),
        cmocka_unit_test(a_transport_that_does_not_open_says_why),
        cmocka_unit_test_setup_teardown(a_start_that_does_not_return_is_given_up, start_with_status, let_go),
        cmocka_unit_test_setup_teardown(a_test_that_does_not_return_is_given_up, start_with_status, let_go),
        cmocka_unit_test_setup_teardown(a_heartbeat_that_does_not_return_is_given_up, start_as_last, let_go),
        cmocka_unit_test(an_opening_ends_at_its_deadline_and_another_one_may_follow),
        cmocka_unit_test(a_transport_that_never_opened_is_not_opened_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
