/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks by what logs say of themselves, and what stacks, tables of stalls and queues of collectives mean together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rank_support.h"
#include "triage/file_ranks.h"

static const bl_event *derived(const rank_case *r, bl_signal signal) { return bl_events_first(r->c.events, signal); }

static int told_of(const char *const *lines, int n)
{
    bl_line_style style;
    bl_line_style_init(&style, "eval.g6.log");
    for (int i = 0; i < n; i++)
        bl_line_style_learn(&style, lines[i], (int64_t)strlen(lines[i]));
    bl_line_style_settle(&style);
    return bl_line_style_told(&style);
}

static void a_log_that_names_one_rank_throughout_tells_it(void **state)
{
    (void)state;
    static const char *const labels[] = {"INFO:root:[host=gx01][grank=6] sampler", "INFO:root:[grank=6] assigned",
                                         "ValueError: need at least one array to concatenate"};
    static const char *const variable[] = {"[t] env LOCAL_RANK=0 RANK=2 WORLD_SIZE=4", "step 1", "step 2", "step 3"};
    static const char *const several[] = {"[rank=0] step 1", "[rank=1] step 1"};
    static const char *const seldom[] = {"[rank 0] start", "step 1", "step 2", "step 3"};
    static const char *const local[] = {"local_rank: 3", "[local_rank=3] step 1"};
    assert_int_equal(told_of(labels, 3), 6);
    assert_int_equal(told_of(variable, 4), 2);
    assert_int_equal(told_of(several, 2), -1);
    assert_int_equal(told_of(seldom, 4), -1);
    assert_int_equal(told_of(local, 2), -1);
}

static void one_file_alone_is_no_rank_and_two_of_one_rank_are_none(void **state)
{
    (void)state;
    bl_source two[] = {{.rank = -1, .told_rank = 1}, {.rank = -1, .told_rank = 3}};
    bl_events *events = bl_events_new();
    assert_non_null(events);
    bl_file_ranks_settle(two, 1, events);
    assert_int_equal(two[0].rank, -1);
    two[1].told_rank = 1;
    bl_file_ranks_settle(two, 2, events);
    assert_int_equal(two[0].rank, -1);
    two[1].told_rank = 3;
    bl_file_ranks_settle(two, 2, events);
    assert_int_equal(two[0].rank, 1);
    assert_int_equal(two[1].rank, 3);
    bl_events_free(events);
}

static void names_of_logs_of_launchers_tell_ranks(void **state)
{
    (void)state;
    assert_int_equal(bl_line_rank_of_path("log/workerlog.2"), 2);
    assert_int_equal(bl_line_rank_of_path("r3.log"), 3);
    assert_int_equal(bl_line_rank_of_path("trainer-2.out"), 2);
    assert_int_equal(bl_line_rank_of_path("run3.log"), -1);
    assert_int_equal(bl_line_rank_of_path("dr3.log"), -1);
}

static void expect_rank(const char *text, int rank, const char *rest)
{
    char scratch[256];
    bl_line line = {.number = 1};
    bl_line_parse(NULL, text, (int64_t)strlen(text), scratch, &line);
    assert_int_equal(line.rank, rank);
    assert_int_equal(line.n_text, strlen(rest));
    assert_memory_equal(line.text, rest, strlen(rest));
}

static void labels_of_mpi_libraries_are_ranks(void **state)
{
    (void)state;
    expect_rank("[gpu07:mpi_rank_3][error_sighandler] Caught error", 3, "[error_sighandler] Caught error");
    expect_rank("[gpu07:mpispawn_0][readline] Unexpected", -1, "[gpu07:mpispawn_0][readline] Unexpected");
    expect_rank("Rank 3 failed to pass monitoredBarrier in 30000 ms", -1,
                "Rank 3 failed to pass monitoredBarrier in 30000 ms");
}

static void stacks_in_other_collectives_are_apart(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, -1, 0, "== py-spy dump --pid 9100 (rank 0) at 03:40:11 ==");
    rank_case_say(&r, 0, -1, 0, "    all_reduce (torch/distributed/distributed_c10d.py:2806)");
    rank_case_say(&r, 0, -1, 0, "== py-spy dump --pid 9102 (rank 2) at 03:40:11 ==");
    rank_case_say(&r, 0, -1, 0, "    barrier (torch/distributed/distributed_c10d.py:4159)");
    rank_case_derive(&r);
    assert_fact(derived(&r, BL_SIGNAL_ranks_stacks_apart), "optype", 2, "barrier");
    assert_null(derived(&r, BL_SIGNAL_ranks_apart));
    rank_case_close(&r);
}

static void a_table_of_stalls_with_two_sides_is_told_as_such(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, -1, 0,
                  "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
                  "ranks and are waiting for remainder of ranks for more than 60 seconds.");
    rank_case_say(&r, 0, -1, 0, "Missing ranks:");
    rank_case_say(&r, 0, -1, 0, "0: [allgather.metrics]");
    rank_case_say(&r, 0, -1, 0, "1: [allgather.metrics]");
    rank_case_say(&r, 0, -1, 0, "3: [allreduce.weight, allreduce.bias ...]");
    rank_case_say(&r, 0, -1, 0, "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.");
    rank_case_derive(&r);
    assert_fact(derived(&r, BL_SIGNAL_ranks_stall_sides), "missing_ranks", -1, "3");
    assert_null(derived(&r, BL_SIGNAL_ranks_waited_for_dead));
    rank_case_close(&r);
}

static void what_one_rank_misses_later_is_no_other_side(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int i = 0; i < 2; i++) {
        rank_case_say(&r, 0, -1, 0,
                      "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
                      "ranks and are waiting for remainder of ranks for more than 60 seconds.");
        rank_case_say(&r, 0, -1, 0, "Missing ranks:");
        rank_case_say(&r, 0, -1, 0, i == 0 ? "3: [allreduce.weight]" : "3: [allgather.metrics]");
    }
    rank_case_derive(&r);
    assert_null(derived(&r, BL_SIGNAL_ranks_stall_sides));
    assert_fact(derived(&r, BL_SIGNAL_ranks_stalled), "missing_ranks", -1, "3");
    rank_case_close(&r);
}

static void communicators_in_crossed_order_are_told(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "enqueue comm=dp op=all_reduce seq=880");
    rank_case_say(&r, 0, 0, 0, "enqueue comm=tp op=all_reduce seq=7041");
    rank_case_say(&r, 1, 1, 0, "enqueue comm=tp op=all_reduce seq=7041");
    rank_case_say(&r, 1, 1, 0, "enqueue comm=dp op=all_reduce seq=880");
    rank_case_derive(&r);
    assert_fact(derived(&r, BL_SIGNAL_ranks_comm_order), "seqnum", -1, "880");
    rank_case_close(&r);
}

static void communicators_in_one_order_are_not(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 2; rank++) {
        rank_case_say(&r, rank, rank, 0, "enqueue comm=dp op=all_reduce seq=880");
        rank_case_say(&r, rank, rank, 0, "enqueue comm=tp op=all_reduce seq=7041");
    }
    rank_case_derive(&r);
    assert_null(derived(&r, BL_SIGNAL_ranks_comm_order));
    rank_case_close(&r);
}

static void the_kernels_line_about_a_process_is_the_rank_that_the_launcher_names(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, -1, 0, "Memory cgroup out of memory: Killed process 5514 (python3) total-vm:402113220kB");
    rank_case_say(&r, 1, -1, 0, "  rank      : 3 (local_rank: 3)");
    rank_case_say(&r, 1, -1, 0, "  exitcode  : -9 (pid: 5514)");
    rank_case_derive(&r);
    assert_int_equal(derived(&r, BL_SIGNAL_host_memory)->rank, 3);
    rank_case_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_that_names_one_rank_throughout_tells_it),
        cmocka_unit_test(one_file_alone_is_no_rank_and_two_of_one_rank_are_none),
        cmocka_unit_test(names_of_logs_of_launchers_tell_ranks),
        cmocka_unit_test(labels_of_mpi_libraries_are_ranks),
        cmocka_unit_test(stacks_in_other_collectives_are_apart),
        cmocka_unit_test(a_table_of_stalls_with_two_sides_is_told_as_such),
        cmocka_unit_test(what_one_rank_misses_later_is_no_other_side),
        cmocka_unit_test(communicators_in_crossed_order_are_told),
        cmocka_unit_test(communicators_in_one_order_are_not),
        cmocka_unit_test(the_kernels_line_about_a_process_is_the_rank_that_the_launcher_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
