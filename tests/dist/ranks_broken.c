/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that break, one a run: ranks that differ, give up, do not come or die.  Every rank that lives is told the whole
 * report once (broken_*.expected), what it asks of the group then is refused in silence, and the context's end is prompt and
 * gives the report's status. */
#include "dist/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <belay/devices.h>

#include "base/clock.h"
#include "base/memory.h"
#include "device/device.h"
#include "dist/worker.h"

enum { ODD = 2 }; /* the rank that does something else, where there are three or more */

static ranks r;

/* ---- what the scenarios are made of ---------------------------------------------------------------------------------- */

/* What was told here since the last time. */
static void show(void)
{
    static char text[16384];
    ranks_steady(told(), text, sizeof text);
    printf("%s", text);
    told_clear();
}

static void begin(double timeout)
{
    r = ranks_open(timeout);
    belay_site_push(r.context, "before");
    assert_int_equal(belay_group_barrier(r.group), BELAY_OK);
    belay_site_pop(r.context);
    belay_site_push(r.context, "loop");
}

/* A bounded wait: heartbeats come and go meanwhile. */
static void wait_for(bool (*is_true)(void))
{
    int64_t begin = bl_clock_now();
    while (!is_true() && bl_clock_now() - begin < INT64_C(60000000000))
        usleep(1000);
    assert_true(is_true());
}

static bool has_told(void) { return bl_worker_has_told(r.group->worker); }
static bool has_failed(void) { return bl_worker_has_failed(r.group->worker, NULL); }

static belay_code reduce(belay_group_op op)
{
    const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    return belay_group_all_reduce(r.group, told_f32(r.context, belay_shape1(8), values), op);
}

static belay_code barrier(void) { return belay_group_barrier(r.group); }

static void end(belay_code code)
{
    show();
    assert_int_equal(barrier(), code);
    assert_int_equal(reduce(BELAY_GROUP_SUM), code);
    told_expect("%s", "");
    int64_t before = bl_clock_now();
    assert_int_equal(belay_close(r.context), belay_code_status(code));
    assert_true(bl_clock_now() - before < INT64_C(10000000000));
    told_expect("%s", "");
}

/* ---- ranks that differ ----------------------------------------------------------------------------------------------- */

static void a_rank_that_skips_a_collective_is_named(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(r.rank != ODD ? reduce(BELAY_GROUP_SUM) : barrier(), BELAY_COMM_MISMATCH);
    end(BELAY_COMM_MISMATCH);
}

static void a_rank_that_swaps_two_is_named(void **state)
{
    (void)state;
    begin(0);
    const float values[2] = {1, 2};
    belay_tensor two = told_f32(r.context, belay_shape1(2), values);
    belay_code code = r.rank == ODD ? belay_group_broadcast(r.group, two, 1) : reduce(BELAY_GROUP_SUM);
    assert_int_equal(code, BELAY_COMM_MISMATCH);
    code = r.rank != ODD ? belay_group_broadcast(r.group, two, 1) : reduce(BELAY_GROUP_SUM);
    assert_int_equal(code, BELAY_COMM_MISMATCH);
    end(BELAY_COMM_MISMATCH);
}

static void max_for_sum_is_named(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(reduce(r.rank == ODD ? BELAY_GROUP_MAX : BELAY_GROUP_SUM), BELAY_COMM_MISMATCH);
    end(BELAY_COMM_MISMATCH);
}

static void two_and_two_are_a_tie(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(reduce(r.rank >= r.size / 2 ? BELAY_GROUP_MAX : BELAY_GROUP_SUM), BELAY_COMM_MISMATCH);
    end(BELAY_COMM_MISMATCH);
}

static void three_that_all_differ_are_a_tie(void **state)
{
    (void)state;
    begin(0);
    belay_code code = r.rank == 0 ? barrier() : reduce(r.rank == 1 ? BELAY_GROUP_MAX : BELAY_GROUP_SUM);
    assert_int_equal(code, BELAY_COMM_MISMATCH);
    end(BELAY_COMM_MISMATCH);
}

/* Its own fault, then the group's. */
static void a_rank_whose_call_is_refused_does_not_keep_the_others_waiting(void **state)
{
    (void)state;
    begin(0);
    belay_tensor two = told_f32(r.context, belay_shape1(2), (float[]){1, 2});
    if (r.rank == ODD)
        belay_tensor_free(two);
    assert_int_equal(belay_group_all_reduce(r.group, two, BELAY_GROUP_SUM), BELAY_COMM_MISMATCH);
    show();
    assert_int_equal(belay_close(r.context), 3);
}

static void a_rank_without_memory_does_not_keep_the_others_waiting(void **state)
{
    (void)state;
    begin(0);
    belay_tensor two = told_f32(r.context, belay_shape1(2), (float[]){1, 2});
    if (r.rank == ODD)
        bl_memory_fail_at(0);
    assert_int_equal(belay_group_all_reduce(r.group, two, BELAY_GROUP_SUM), BELAY_COMM_MISMATCH);
    bl_memory_fail_at(-1);
    show();
    assert_int_equal(belay_close(r.context), r.rank == ODD ? 4 : 3);
}

/* Host memory that rooms above hand around. */
static void a_rank_without_room_for_all_does_not_keep_the_others_waiting(void **state)
{
    (void)state;
    begin(0);
    char mine[8] = {0}, all[8 * 3];
    assert_int_equal(bl_group_host_all_gather(r.group, mine, all, INT64_MAX / 2, "too much"), BELAY_SIZE_OVERFLOW);
    if (r.rank == ODD)
        bl_memory_fail_at(1);
    assert_int_equal(bl_group_host_all_gather(r.group, mine, all, sizeof mine, "what each says"), BELAY_COMM_MISMATCH);
    bl_memory_fail_at(-1);
    show();
    assert_int_equal(belay_close(r.context), belay_code_status(BELAY_SIZE_OVERFLOW));
}

/* Without the last call of the rank told of: its word or its data, whichever it had to wait for. */
static void show_without_call(void)
{
    static char text[16384];
    ranks_steady(told(), text, sizeof text);
    char *at = strstr(text, "; its last call: ");
    if (at != NULL) {
        const char *end = at + strcspn(at, "\n");
        memmove(at, end, strlen(end) + 1);
    }
    printf("%s", text);
    told_clear();
}

/* The others have theirs when its device turns out to be lost. */
static void a_rank_that_cannot_write_what_came_gives_up(void **state)
{
    (void)state;
    char byte = 0;
    setenv("BELAY_SIM_DEVICES", "3", 1);
    r = ranks_open_unbound(0);
    assert_int_equal(belay_group_bind(r.group, "sim"), BELAY_OK);
    belay_site_push(r.context, "loop");
    belay_tensor two = told_f32(r.context, belay_shape1(2), (float[]){1, 2});
    assert_int_equal(belay_synchronise(r.context), BELAY_OK);
    bl_device *device = r.context->device;
    if (r.rank == ODD)
        (void)device->api->copy_in_later(device, 0, (void *)(uintptr_t)64, &byte, 1);
    belay_code code = belay_group_broadcast(r.group, two, 0);
    if (r.rank == ODD)
        assert_int_equal(code, BELAY_PLACE_LOST);
    else
        assert_true(code == BELAY_OK || code == BELAY_COMM_PEER); /* it may hear of it within the call */
    assert_int_equal(barrier(), BELAY_COMM_PEER);
    show_without_call();
    assert_int_equal(belay_close(r.context), r.rank == ODD ? 6 : 5);
}

static void a_rank_that_closes_while_others_reduce_is_named(void **state)
{
    (void)state;
    begin(0);
    if (r.rank == ODD) {
        assert_int_equal(belay_close(r.context), 3);
        show();
        return;
    }
    assert_int_equal(reduce(BELAY_GROUP_SUM), BELAY_COMM_MISMATCH);
    end(BELAY_COMM_MISMATCH);
}

/* ---- ranks that give up ---------------------------------------------------------------------------------------------- */

static void a_rank_that_gives_up_is_heard_at_once(void **state)
{
    (void)state;
    begin(0);
    if (r.rank == ODD) {
        wait_for(has_told);
        belay_group_abort(r.group, "the disk is full");
        assert_int_equal(barrier(), BELAY_COMM_PEER);
        assert_int_equal(belay_close(r.context), 3);
        told_expect("%s", "");
        return;
    }
    assert_int_equal(reduce(BELAY_GROUP_SUM), BELAY_COMM_PEER);
    end(BELAY_COMM_PEER);
    r.context = told_open();
    belay_site_push(r.context, "again");
    assert_true(belay_group_is_nil(belay_group_open(r.context, NULL)));
    show();
    assert_int_equal(belay_close(r.context), 4);
}

static void a_rank_with_a_fatal_fault_gives_up_when_it_closes(void **state)
{
    (void)state;
    begin(0);
    if (r.rank == ODD) {
        wait_for(has_told);
        belay_fault_raise(r.context, BELAY_PLACE_LOST, "device sim:0 is lost");
        show();
        assert_int_equal(belay_close(r.context), 6);
        return;
    }
    assert_int_equal(reduce(BELAY_GROUP_SUM), BELAY_COMM_PEER);
    end(BELAY_COMM_PEER);
}

/* ---- ranks that do not come ------------------------------------------------------------------------------------------ */

/* Its heartbeats go on. */
static void a_rank_that_is_elsewhere_is_named_at_the_deadline(void **state)
{
    (void)state;
    begin(2);
    if (r.rank == ODD) {
        bl_group_phase(r.group, BL_PHASE_FORWARD);
        wait_for(has_failed);
        assert_int_equal(barrier(), BELAY_COMM_DEADLINE);
    } else {
        assert_int_equal(reduce(BELAY_GROUP_SUM), BELAY_COMM_DEADLINE);
        assert_int_equal(bl_group_lowest_survivor(r.group), 0);
    }
    end(BELAY_COMM_DEADLINE);
}

/* The words agree, and yet one rank launches nothing. */
static void a_rank_that_launches_less_is_named_at_the_deadline(void **state)
{
    (void)state;
    begin(2);
    float value = 1;
    bl_work work = {.plane = BL_PLANE_DATA, .data = &value, .n = 1, .what = "bucket 0 of model"};
    if (r.rank == ODD) {
        bl_group_phase(r.group, BL_PHASE_BACKWARD);
        wait_for(has_failed);
        assert_int_equal(barrier(), BELAY_COMM_DEADLINE);
    } else {
        bl_group_post(r.group, &work);
        assert_false(bl_group_wait(r.group, &work));
    }
    end(BELAY_COMM_DEADLINE);
}

static void die(int how)
{
    bl_group_phase(r.group, BL_PHASE_BACKWARD);
    wait_for(has_told);
    if (how == 0)
        _exit(9);
    raise(how);
}

static void expect_death(int rank, int how)
{
    begin(2);
    if (r.rank == rank)
        die(how);
    assert_int_equal(reduce(BELAY_GROUP_SUM), BELAY_COMM_DEADLINE);
    assert_int_equal(bl_group_lowest_survivor(r.group), rank == 0 ? 1 : 0);
    end(BELAY_COMM_DEADLINE);
}

static void a_rank_that_is_stopped_is_named_at_the_deadline(void **state)
{
    (void)state;
    expect_death(ODD, SIGSTOP);
}

static void a_rank_that_is_killed_is_named_at_the_deadline(void **state)
{
    (void)state;
    expect_death(0, SIGKILL);
}

static void a_rank_that_leaves_is_named_at_the_deadline(void **state)
{
    (void)state;
    expect_death(1, 0);
}

int main(int argc, char **argv)
{
    const struct {
        const char *word;
        struct CMUnitTest test;
    } rows[] = {
        {"skip", cmocka_unit_test(a_rank_that_skips_a_collective_is_named)},
        {"swap", cmocka_unit_test(a_rank_that_swaps_two_is_named)},
        {"max", cmocka_unit_test(max_for_sum_is_named)},
        {"tie", cmocka_unit_test(two_and_two_are_a_tie)},
        {"three", cmocka_unit_test(three_that_all_differ_are_a_tie)},
        {"refused", cmocka_unit_test(a_rank_whose_call_is_refused_does_not_keep_the_others_waiting)},
        {"memory", cmocka_unit_test(a_rank_without_memory_does_not_keep_the_others_waiting)},
        {"room", cmocka_unit_test(a_rank_without_room_for_all_does_not_keep_the_others_waiting)},
        {"lost", cmocka_unit_test(a_rank_that_cannot_write_what_came_gives_up)},
        {"close", cmocka_unit_test(a_rank_that_closes_while_others_reduce_is_named)},
        {"abort", cmocka_unit_test(a_rank_that_gives_up_is_heard_at_once)},
        {"fatal", cmocka_unit_test(a_rank_with_a_fatal_fault_gives_up_when_it_closes)},
        {"late", cmocka_unit_test(a_rank_that_is_elsewhere_is_named_at_the_deadline)},
        {"bucket", cmocka_unit_test(a_rank_that_launches_less_is_named_at_the_deadline)},
        {"stop", cmocka_unit_test(a_rank_that_is_stopped_is_named_at_the_deadline)},
        {"kill", cmocka_unit_test(a_rank_that_is_killed_is_named_at_the_deadline)},
        {"exit", cmocka_unit_test(a_rank_that_leaves_is_named_at_the_deadline)},
    };
    for (size_t i = 0; argc == 2 && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(argv[1], rows[i].word) == 0) {
            const struct CMUnitTest tests[] = {rows[i].test};
            return cmocka_run_group_tests(tests, NULL, NULL);
        }
    fprintf(stderr, "usage: ranks_broken SCENARIO\n");
    return 2;
}
