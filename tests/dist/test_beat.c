/* SPDX-License-Identifier: Apache-2.0 */
/* Who is to blame, from what is known of the ranks; who took whose device; which words fit.  Without any process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "dist/beat.h"
#include "dist/calls.h"

#define S INT64_C(1000000000)

enum { SIZE = 4, MANY = 64 };

static bl_beat me;
static bl_peer peer[MANY];
static bl_roll roll;
static bl_failure failure;

static void wait_in(bl_beat *b, const char *what, uint64_t n_calls)
{
    b->waits = 1;
    b->wait_ns = 2 * S;
    b->n_calls = n_calls;
    snprintf(b->what, sizeof b->what, "%s", what);
    snprintf(b->site, sizeof b->site, "loop.c:7");
}

static void be_in(bl_beat *b, bl_phase phase, uint64_t n_calls)
{
    b->phase = phase;
    b->phase_ns = 5 * S;
    b->step = 12;
    b->epoch = 1;
    b->position = 48;
    b->n_calls = n_calls;
}

/* Rank 0 is this one; all wait in call 3, and were heard of a moment ago. */
static int start(void **state)
{
    (void)state;
    memset(&me, 0, sizeof me);
    memset(peer, 0, sizeof peer);
    roll = (bl_roll){.size = SIZE, .me = &me, .peer = peer, .now = 100 * S, .timeout = 2 * S, .old = S};
    wait_in(&me, "barrier #3", 4);
    for (int r = 1; r < MANY; r++) {
        peer[r].heard = roll.now - S / 10;
        peer[r].last.group = 1;
        wait_in(&peer[r].last, "barrier #3", 4);
    }
    return 0;
}

static void judge(void)
{
    const bl_work work = {.plane = BL_PLANE_WORDS, .number = 3, .is_started = true};
    bl_roll_deadline(&roll, &work, "barrier #3", 2 * S, NULL, &failure);
}

static void expect(const char *what, const char *facts)
{
    assert_int_equal(failure.fault.code, BELAY_COMM_DEADLINE);
    assert_string_equal(failure.fault.what, what);
    assert_string_equal(failure.fault.facts, facts);
}

#define WAITS "waits in barrier #3 at loop.c:7 since 2.0 s, outside of a step, at step 0, batch 0:0\n"

static void a_silent_rank_comes_before_one_that_is_elsewhere(void **state)
{
    (void)state;
    peer[1].last.waits = 0;
    be_in(&peer[1].last, BL_PHASE_FORWARD, 3);
    peer[2].heard = roll.now - 31 * S / 10;
    peer[2].last.waits = 0;
    be_in(&peer[2].last, BL_PHASE_BACKWARD, 3);
    judge();
    assert_int_equal(failure.n_culprits, 1);
    assert_int_equal(failure.culprit[0], 2);
    expect(
        "rank 2 was last heard of 3.1 s ago: in backward of step 12, batch 1:48; barrier #3 has waited 2.0 s for it",
        "rank 2 was last heard of 3.1 s ago: in backward of step 12, batch 1:48, since 5.0 s; its last call: barrier "
        "#3 at loop.c:7\n"
        "rank 0, this one, " WAITS
        "rank 1 is in forward of step 12, batch 1:48, since 5.0 s; its last call: barrier #3 at loop.c:7\n"
        "rank 3 " WAITS);
}

static void a_rank_that_was_never_heard_of_is_told_so(void **state)
{
    (void)state;
    memset(&peer[3].last, 0, sizeof peer[3].last);
    peer[3].heard = 90 * S;
    judge();
    expect("rank 3 was never heard of; barrier #3 has waited 2.0 s for it",
           "rank 3 was never heard of\nrank 0, this one, " WAITS "rank 1 " WAITS "rank 2 " WAITS);
}

/* A machine under load keeps rank 1 silent for a moment: it waits as all do, but for rank 3. */
static void a_rank_that_waits_is_not_to_blame_for_a_short_silence(void **state)
{
    (void)state;
    roll.old = S / 10;
    peer[1].heard = roll.now - S / 2;
    peer[3].heard = roll.now;
    peer[3].last.waits = 0;
    be_in(&peer[3].last, BL_PHASE_FORWARD, 3);
    judge();
    assert_int_equal(failure.n_culprits, 1);
    assert_int_equal(failure.culprit[0], 3);
    assert_string_equal(failure.fault.what,
                        "rank 3 is in forward of step 12, batch 1:48; barrier #3 has waited 2.0 s for it");
    peer[3].last = peer[2].last; /* and when all are there, it is */
    judge();
    assert_int_equal(failure.n_culprits, 1);
    assert_int_equal(failure.culprit[0], 1);
}

static void several_that_are_silent_are_listed(void **state)
{
    (void)state;
    peer[1].heard = peer[3].heard = 90 * S;
    judge();
    assert_int_equal(failure.n_culprits, 2);
    expect("ranks 1, 3 are not heard of any more; barrier #3 has waited 2.0 s for them",
           "rank 1 was last heard of 10.0 s ago: " WAITS "rank 3 was last heard of 10.0 s ago: " WAITS
           "rank 0, this one, " WAITS "rank 2 " WAITS);
}

static void several_that_are_elsewhere_are_listed(void **state)
{
    (void)state;
    for (int r = 1; r <= 2; r++) {
        wait_in(&peer[r].last, "barrier #2", 3);
        snprintf(peer[r].last.host, sizeof peer[r].last.host, "node7");
    }
    judge();
    expect("ranks 1, 2 are somewhere else; barrier #3 has waited 2.0 s for them",
           "rank 1 on node7 waits in barrier #2 at loop.c:7 since 2.0 s, outside of a step, at step 0, batch 0:0\n"
           "rank 2 on node7 waits in barrier #2 at loop.c:7 since 2.0 s, outside of a step, at step 0, batch 0:0\n"
           "rank 0, this one, " WAITS "rank 3 " WAITS);
}

static void nobody_is_blamed_when_all_are_there(void **state)
{
    (void)state;
    judge();
    assert_int_equal(failure.n_culprits, 0);
    expect("barrier #3 is not over after 2.0 s, although all 4 ranks are in it and heard of",
           "rank 0, this one, " WAITS "rank 1 " WAITS "rank 2 " WAITS "rank 3 " WAITS);
    assert_string_equal(failure.fault.advice,
                        "Look at the network between the hosts, or give the group a longer timeout.");
}

/* A bucket that this rank's own device has not filled is not the others' fault. */
static void a_rank_whose_own_work_is_not_ready_is_to_blame(void **state)
{
    (void)state;
    uint64_t ready = 0;
    const bl_work work = {.plane = BL_PLANE_DATA, .ready = &ready, .ready_at = 1};
    roll.size = 1;
    me.waits = 0;
    be_in(&me, BL_PHASE_BACKWARD, 4);
    bl_roll_deadline(&roll, &work, "bucket 3 of model", 2 * S, NULL, &failure);
    assert_int_equal(failure.n_culprits, 1);
    expect("rank 0 is in backward of step 12, batch 1:48; bucket 3 of model has waited 2.0 s for it",
           "rank 0, this one, is in backward of step 12, batch 1:48, since 5.0 s; its last call: barrier #3 at "
           "loop.c:7\n");
}

static bool is_excused(void)
{
    const bl_work work = {.plane = BL_PLANE_WORDS, .number = 3, .is_started = true};
    return bl_roll_is_excused(&roll, &work);
}

static void who_saves_or_evaluates_is_excused_while_it_is_heard_of(void **state)
{
    (void)state;
    assert_false(is_excused()); /* all are there */
    for (int r = 1; r <= 2; r++) {
        peer[r].last.waits = 0;
        be_in(&peer[r].last, r == 1 ? BL_PHASE_SAVE : BL_PHASE_EVALUATE, 3);
    }
    assert_true(is_excused());
    peer[2].heard = roll.now - 11 * S / 10; /* longer than a lost one */
    assert_false(is_excused());
    peer[2].heard = roll.now;
    peer[2].last.phase = BL_PHASE_FORWARD;
    assert_false(is_excused());
    peer[2].last.n_calls = 4; /* it has come */
    assert_true(is_excused());
    peer[3].heard = roll.now - 11 * S / 10; /* it has come, and is silent since: half of the timeout is over */
    assert_false(is_excused());
}

/* ---- many ranks ------------------------------------------------------------------------------------------------------ */

static int start_many(void **state)
{
    start(state);
    roll.size = MANY;
    return 0;
}

#define THERE "at loop.c:7, outside of a step, at step 0, batch 0:0\n"

static void many_that_are_alike_share_a_line(void **state)
{
    (void)state;
    peer[9].heard = 90 * S;
    for (int r = 30; r < 40; r += 1 + (r == 32)) { /* but for 33 */
        peer[r].last.waits = 0;
        be_in(&peer[r].last, BL_PHASE_FORWARD, 4);
        peer[r].last.phase_ns = r * S;
    }
    for (int r = 50; r < 54; r++)
        wait_in(&peer[r].last, "all_reduce #3", 4);
    judge();
    expect("rank 9 was last heard of 10.0 s ago: waits in barrier #3; barrier #3 has waited 2.0 s for it",
           "rank 9 was last heard of 10.0 s ago: " WAITS "rank 0, this one, " WAITS
           "ranks 1-8, 10-29, 33, 40-49, 54-63 wait in barrier #3 " THERE
           "ranks 30-32, 34-39 are in forward of step 12, batch 1:48; their last call: barrier #3 at loop.c:7\n"
           "rank 50 waits in all_reduce #3 at loop.c:7 since 2.0 s, outside of a step, at step 0, batch 0:0\n"
           "rank 51 waits in all_reduce #3 at loop.c:7 since 2.0 s, outside of a step, at step 0, batch 0:0\n"
           "rank 52 waits in all_reduce #3 at loop.c:7 since 2.0 s, outside of a step, at step 0, batch 0:0\n"
           "and 1 other rank\n");
}

static void many_that_are_silent_share_a_line_when_the_first_were_told(void **state)
{
    (void)state;
    for (int r = 20; r < MANY; r++)
        peer[r].heard = (r < 60 ? 90 : 85) * S;
    for (int r = 10; r < 20; r++) {
        memset(&peer[r].last, 0, sizeof peer[r].last);
        peer[r].heard = 80 * S;
    }
    judge();
    expect("ranks 10, 11, 12, 13, 14, 15, 16, 17 are not heard of any more; barrier #3 has waited 2.0 s for them",
           "rank 10 was never heard of\nrank 11 was never heard of\nrank 12 was never heard of\n"
           "rank 13 was never heard of\nrank 14 was never heard of\nrank 15 was never heard of\n"
           "rank 16 was never heard of\nrank 17 was never heard of\nrank 0, this one, " WAITS
           "ranks 1-9 wait in barrier #3 " THERE "rank 18 was never heard of\nrank 19 was never heard of\n"
           "ranks 20-63 were last heard of 10.0 s ago or before: waiting in barrier #3 " THERE);
}

static void what_has_no_room_is_counted(void **state)
{
    (void)state;
    for (int r = 0; r < MANY; r++) {
        bl_beat *b = r == 0 ? &me : &peer[r].last;
        snprintf(b->site, sizeof b->site, "a_rather_long_name_of_a_file_of_rank_%d.c:7", r);
        snprintf(b->host, sizeof b->host, "node%d", r / 8);
    }
    judge();
#define TELL(who, number)                                                                                              \
    "rank " who " waits in barrier #3 at a_rather_long_name_of_a_file_of_rank_" number                                 \
    ".c:7 since 2.0 s, outside of a step, at step 0, batch 0:0\n"
    expect("barrier #3 is not over after 2.0 s, although all 64 ranks are in it and heard of",
           TELL("0, this one,", "0") TELL("1", "1") TELL("2", "2") TELL("3", "3")
               TELL("4", "4") "and 59 other ranks\n");
}

/* Of ten that are silent eight are named; the first have lines of their own. */
static void culprits_leave_room_for_others(void **state)
{
    (void)state;
    for (int r = 20; r < 30; r++)
        peer[r].heard = 90 * S;
    judge();
    assert_int_equal(failure.n_culprits, BL_MAX_CULPRITS);
    expect("ranks 20, 21, 22, 23, 24, 25, 26, 27 are not heard of any more; barrier #3 has waited 2.0 s for them",
           "rank 20 was last heard of 10.0 s ago: " WAITS "rank 21 was last heard of 10.0 s ago: " WAITS
           "rank 22 was last heard of 10.0 s ago: " WAITS "rank 0, this one, " WAITS
           "ranks 1-19, 30-63 wait in barrier #3 " THERE
           "ranks 23-29 were last heard of 10.0 s ago or before: waiting in barrier #3 " THERE);
}

/* ---- what a peer says ------------------------------------------------------------------------------------------------ */

static void hear(int r, belay_code code, int culprit, const char *why)
{
    peer[r].last.code = (int32_t)code;
    peer[r].last.n_culprits = 1;
    peer[r].last.culprit[0] = culprit;
    snprintf(peer[r].last.why, sizeof peer[r].last.why, "%s", why);
    bl_roll_adopt(&roll, r, &failure);
}

static void a_peer_that_met_something_of_its_own_is_the_culprit(void **state)
{
    (void)state;
    hear(2, BELAY_COMM_FAILED, 2, "MPI: MPI_Test failed: no route");
    assert_int_equal(failure.fault.code, BELAY_COMM_PEER);
    assert_int_equal(failure.culprit[0], 2);
    assert_string_equal(failure.fault.what, "rank 2 failed first: MPI: MPI_Test failed: no route (comm.failed)");
    assert_string_equal(failure.fault.facts, "rank 2 " WAITS);
}

static void a_peer_that_tells_of_another_is_not(void **state)
{
    (void)state;
    hear(1, BELAY_COMM_PEER, 3, "rank 3 gave up: enough");
    assert_int_equal(failure.fault.code, BELAY_COMM_PEER);
    assert_int_equal(failure.n_culprits, 1);
    assert_int_equal(failure.culprit[0], 3);
    assert_string_equal(failure.fault.what, "rank 3 gave up: enough");
    hear(1, BELAY_COMM_PEER, 77, "a rank that there is not");
    assert_int_equal(failure.n_culprits, 0);
}

/* ---- devices --------------------------------------------------------------------------------------------------------- */

/* Two hosts of two ranks each. */
static void take(bl_word all[SIZE], int r, const char *device, const char *name)
{
    bl_transport_place place = {.rank = r, .size = SIZE, .local_rank = r % 2, .local_size = 2, .leader = r / 2 * 2};
    snprintf(place.host, sizeof place.host, "node%d", r / 2);
    memset(&all[r], 0, sizeof all[r]);
    bl_bind_say(&place, device, name, &all[r]);
}

static void one_number_on_two_hosts_is_two_devices(void **state)
{
    (void)state;
    bl_word all[SIZE];
    bl_report_fault fault;
    for (int r = 0; r < SIZE; r++)
        take(all, r, "sim", r % 2 == 0 ? "sim:0" : "sim:1");
    assert_int_equal(bl_bind_check(all, SIZE, &fault), BELAY_OK);
}

static void a_global_rank_as_a_device_is_refused(void **state)
{
    (void)state;
    bl_word all[SIZE];
    bl_report_fault fault;
    const char *const names[SIZE] = {"cuda:0", "cuda:1", "cuda:2", "cuda:3"};
    for (int r = 0; r < SIZE; r++)
        take(all, r, names[r], names[r]);
    assert_int_equal(bl_bind_check(all, SIZE, &fault), BELAY_PLACE_SHARED);
    assert_string_equal(fault.what,
                        "rank 2 took device cuda:2: that is its rank among all, where the local rank was meant");
    assert_string_equal(fault.facts, "rank 0: cuda:0, local rank 0 on node0\nrank 1: cuda:1, local rank 1 on node0\n"
                                     "rank 2: cuda:2, local rank 0 on node1\nrank 3: cuda:3, local rank 1 on node1\n");
    assert_string_equal(fault.advice,
                        "Give belay_group_bind the kind of device alone: each rank then takes that of its local rank.");
}

/* As it came: the name without an end, and behind it hosts that differ. */
static void a_name_without_an_end_is_compared_as_far_as_it_goes(void **state)
{
    (void)state;
    bl_word all[SIZE];
    bl_report_fault fault;
    for (int r = 0; r < SIZE; r++)
        take(all, r, "sim", r % 2 == 0 ? "sim:0" : "sim:1");
    memset(all[0].more, 'x', 16);
    memset(all[1].more, 'x', 16);
    all[0].more[16] = 'y';
    assert_int_equal(bl_bind_check(all, SIZE, &fault), BELAY_PLACE_SHARED);
    assert_string_equal(fault.what, "ranks 0 and 1 are both on device xxxxxxxxxxxxxxx of node0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_silent_rank_comes_before_one_that_is_elsewhere, start),
        cmocka_unit_test_setup(a_rank_that_was_never_heard_of_is_told_so, start),
        cmocka_unit_test_setup(a_rank_that_waits_is_not_to_blame_for_a_short_silence, start),
        cmocka_unit_test_setup(several_that_are_silent_are_listed, start),
        cmocka_unit_test_setup(several_that_are_elsewhere_are_listed, start),
        cmocka_unit_test_setup(nobody_is_blamed_when_all_are_there, start),
        cmocka_unit_test_setup(a_rank_whose_own_work_is_not_ready_is_to_blame, start),
        cmocka_unit_test_setup(who_saves_or_evaluates_is_excused_while_it_is_heard_of, start),
        cmocka_unit_test_setup(many_that_are_alike_share_a_line, start_many),
        cmocka_unit_test_setup(many_that_are_silent_share_a_line_when_the_first_were_told, start_many),
        cmocka_unit_test_setup(what_has_no_room_is_counted, start_many),
        cmocka_unit_test_setup(culprits_leave_room_for_others, start_many),
        cmocka_unit_test_setup(a_peer_that_met_something_of_its_own_is_the_culprit, start),
        cmocka_unit_test_setup(a_peer_that_tells_of_another_is_not, start),
        cmocka_unit_test(one_number_on_two_hosts_is_two_devices),
        cmocka_unit_test(a_global_rank_as_a_device_is_refused),
        cmocka_unit_test(a_name_without_an_end_is_compared_as_far_as_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
