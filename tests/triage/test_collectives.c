/* SPDX-License-Identifier: Apache-2.0 */
/* The table of collectives: all printed forms, groups, who is alone, ties. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "rank_support.h"
#include "triage/collectives.h"

static void say_timeout(rank_case *r, int rank, const char *work)
{
    char text[512];
    snprintf(
        text, sizeof text,
        "[rank%d]:[E714 09:32:03.102331946 ProcessGroupNCCL.cpp:607] [Rank %d] Watchdog caught collective operation "
        "timeout: WorkNCCL(%s, Timeout(ms)=600000) ran for 600067 milliseconds before timing out.",
        rank, rank, work);
    rank_case_say(r, rank, rank, 0, text);
}

static bl_collectives table_of(rank_case *r)
{
    bl_collectives t;
    rank_case_derive(r);
    assert_true(bl_collectives_init(&r->c, &t));
    return t;
}

static void close_both(rank_case *r, bl_collectives *t)
{
    bl_collectives_fini(t);
    rank_case_close(r);
}

static void the_forms_of_all_versions_are_read(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0,
                  "[E ProcessGroupNCCL.cpp:566] [Rank 0] Watchdog caught collective operation timeout: "
                  "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1808843 milliseconds before timing out.");
    rank_case_say(
        &r, 1, 1, 0,
        "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
        "OpType=BROADCAST, TensorShape=[4, 2], Timeout(ms)=1800000) ran for 1800117 milliseconds before timing "
        "out.");
    rank_case_say(
        &r, 2, 2, 0,
        "[PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread terminated with exception: [Rank "
        "2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=_ALLGATHER_BASE, NumelIn=8, "
        "NumelOut=32, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.");
    rank_case_say(
        &r, 2, 2, 0,
        "[PG ID 0 PG GUID 0(default_pg) Rank 2]  failure detected by watchdog at work sequence id: 9 PG status: "
        "last enqueued work: 11, last completed work: 8");
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n, 3);
    assert_string_equal(t.rows[0].optype, "ALLREDUCE");
    assert_int_equal(t.rows[0].seqnum, -1);
    assert_int_equal(t.rows[0].timeout_ms, 1800000);
    assert_string_equal(t.rows[1].shape, "4, 2");
    assert_string_equal(t.rows[2].group, "default_pg");
    assert_int_equal(t.rows[2].numel, 8);
    assert_int_equal(t.rows[2].numel_out, 32);
    assert_int_equal(t.rows[2].last_enqueued, 11);
    assert_int_equal(t.rows[2].last_completed, 8);
    close_both(&r, &t);
}

static void a_repeated_line_is_one_row(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    say_timeout(&r, 4, "SeqNum=7, OpType=ALLREDUCE, NumelIn=5, NumelOut=5");
    rank_case_say(
        &r, 4, 4, 0,
        "  what():  [PG ID 1 PG GUID 3(mesh_dp) Rank 4] Process group watchdog thread terminated with exception: "
        "[Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=5, "
        "NumelOut=5, Timeout(ms)=600000) ran for 600067 milliseconds before timing out.");
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n, 1);
    assert_string_equal(t.rows[0].group, "mesh_dp");
    assert_int_equal(t.groups[0].meeting, BL_MEETING_ONE);
    close_both(&r, &t);
}

static void one_rank_that_prints_two_sizes_is_not_two_ranks(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    say_timeout(&r, 5, "SeqNum=30913, OpType=_REDUCE_SCATTER_BASE, NumelIn=117440512, NumelOut=14680064");
    rank_case_say(
        &r, 5, 5, 0,
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 5] Process group watchdog thread terminated with exception: "
        "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=30913, OpType=_REDUCE_SCATTER_BASE, "
        "NumelIn=117440512, NumelOut=117440512, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.");
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.rows[0].numel_out, 14680064);
    assert_int_equal(t.groups[0].meeting, BL_MEETING_ONE);
    assert_null(bl_events_first(r.c.events, BL_SIGNAL_ranks_apart));
    assert_null(bl_events_first(r.c.events, BL_SIGNAL_ranks_sizes_near));
    assert_non_null(bl_events_first(r.c.events, BL_SIGNAL_ranks_one_waits));
    close_both(&r, &t);
}

static void a_rank_that_is_not_named_is_no_second_one(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, -1, 0,
                  "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=64, "
                  "NumelOut=64, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.");
    say_timeout(&r, 4, "SeqNum=9, OpType=ALLREDUCE, NumelIn=5000, NumelOut=5000");
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.rows[0].rank, 4);
    assert_null(bl_events_first(r.c.events, BL_SIGNAL_ranks_apart));
    close_both(&r, &t);
}

static void one_rank_in_another_operation_is_alone(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 4; rank++)
        say_timeout(&r, rank,
                    rank == 2 ? "SeqNum=88, OpType=BROADCAST, NumelIn=1, NumelOut=1"
                              : "SeqNum=88, OpType=ALLREDUCE, NumelIn=500, NumelOut=500");
    bl_collectives t = table_of(&r);
    const bl_collective_group *g = bl_collectives_chief(&t);
    assert_int_equal(g->meeting, BL_MEETING_OPS);
    assert_int_equal(g->n_majority, 3);
    assert_false(g->is_tie);
    assert_int_equal(bl_collectives_alone(&t, g), 2);
    assert_true(t.rows[2].is_apart);
    close_both(&r, &t);
}

static void two_against_two_is_a_tie(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 4; rank++)
        say_timeout(&r, rank,
                    rank < 2 ? "SeqNum=88, OpType=ALLREDUCE, NumelIn=500, NumelOut=500"
                             : "SeqNum=90, OpType=ALLREDUCE, NumelIn=500, NumelOut=500");
    bl_collectives t = table_of(&r);
    const bl_collective_group *g = bl_collectives_chief(&t);
    assert_int_equal(g->meeting, BL_MEETING_SEQS);
    assert_true(g->is_tie);
    assert_int_equal(bl_collectives_alone(&t, g), -1);
    close_both(&r, &t);
}

static bl_meeting meeting_of(const char *first, const char *second)
{
    rank_case r;
    rank_case_open(&r);
    say_timeout(&r, 0, first);
    say_timeout(&r, 1, second);
    bl_collectives t = table_of(&r);
    bl_meeting meeting = bl_collectives_chief(&t)->meeting;
    close_both(&r, &t);
    return meeting;
}

static void sizes_are_near_by_dimension_0_or_by_a_quarter(void **state)
{
    (void)state;
    assert_int_equal(meeting_of("SeqNum=5, OpType=ALLREDUCE, NumelIn=1017, NumelOut=1017",
                                "SeqNum=5, OpType=ALLREDUCE, NumelIn=1016, NumelOut=1016"),
                     BL_MEETING_NEAR);
    assert_int_equal(meeting_of("SeqNum=5, OpType=ALLREDUCE, NumelIn=4208640, NumelOut=4208640",
                                "SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1"),
                     BL_MEETING_SIZES);
    assert_int_equal(
        meeting_of("SeqNum=5, OpType=ALLGATHER, TensorShape=[33, 8]", "SeqNum=5, OpType=ALLGATHER, TensorShape=[2, 8]"),
        BL_MEETING_NEAR);
    assert_int_equal(meeting_of("SeqNum=5, OpType=ALLGATHER, TensorShape=[33, 8]",
                                "SeqNum=5, OpType=ALLGATHER, TensorShape=[33, 7]"),
                     BL_MEETING_SIZES);
}

static void operations_that_may_be_uneven_are_not_called_so(void **state)
{
    (void)state;
    assert_int_equal(meeting_of("SeqNum=5, OpType=ALLTOALL_BASE, NumelIn=100, NumelOut=7",
                                "SeqNum=5, OpType=ALLTOALL_BASE, NumelIn=9, NumelOut=70"),
                     BL_MEETING_SAME);
    assert_int_equal(
        meeting_of("SeqNum=5, OpType=SEND, NumelIn=100, NumelOut=100", "SeqNum=6, OpType=RECV, NumelIn=9, NumelOut=9"),
        BL_MEETING_POINT);
}

static void only_ranks_of_one_group_are_compared(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 2; rank++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "[PG ID %d PG GUID %d(mesh_%s) Rank 0] Process group watchdog thread terminated with exception: [Rank 0] "
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=%d, OpType=ALLREDUCE, NumelIn=4, "
            "NumelOut=4, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
            rank, rank, rank == 0 ? "dp" : "tp", 10 + rank);
        rank_case_say(&r, rank, rank, 0, text);
    }
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n_groups, 2);
    assert_int_equal(bl_collectives_chief(&t)->meeting, BL_MEETING_ONE);
    close_both(&r, &t);
}

static void a_rank_that_does_not_wait_is_absent(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 4; rank++)
        if (rank == 2)
            rank_case_say(&r, rank, rank, 0, "step 10 of 20");
        else
            say_timeout(&r, rank, "SeqNum=88, OpType=ALLREDUCE, NumelIn=500, NumelOut=500");
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n_absent, 1);
    assert_int_equal(t.absent[0], 2);
    assert_int_equal(bl_collectives_chief(&t)->meeting, BL_MEETING_SAME);
    close_both(&r, &t);
}

static void fingerprints_stand_in_the_table_too(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(
        &r, 0, 1, 0,
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=50, OpType=ALLGATHER, TensorShape=[32, 8], TensorDtypes=Float), but "
        "Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=50, OpType=ALLGATHER, "
        "TensorShape=[33, 8], TensorDtypes=Float).");
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n, 2);
    assert_string_equal(t.rows[0].shape, "33, 8");
    assert_string_equal(t.rows[1].dtype, "Float");
    assert_int_equal(bl_collectives_chief(&t)->meeting, BL_MEETING_NEAR);
    close_both(&r, &t);
}

static void a_recorder_gives_the_last_entry_that_is_open(void **state)
{
    (void)state;
    static const char *const states[] = {"completed", "scheduled", "scheduled"};
    rank_case r;
    rank_case_open(&r);
    for (int i = 0; i < 3; i++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "{\"record_id\": %d, \"collective_seq_id\": %d, \"profiling_name\": \"nccl:all_reduce\", \"input_sizes\": "
            "[[3, 4]], \"state\": \"%s\"}",
            i, i + 5, states[i]);
        rank_case_say(&r, 0, 0, 0, text);
    }
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.rows[0].seqnum, 6);
    assert_int_equal(t.rows[0].last_completed, 5);
    assert_string_equal(t.rows[0].optype, "all_reduce");
    close_both(&r, &t);
}

static void nobody_waits_in_an_ordinary_log(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "step 1 loss 2.0");
    bl_collectives t = table_of(&r);
    assert_int_equal(t.n, 0);
    assert_null(bl_collectives_chief(&t));
    close_both(&r, &t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_forms_of_all_versions_are_read),
        cmocka_unit_test(a_repeated_line_is_one_row),
        cmocka_unit_test(one_rank_that_prints_two_sizes_is_not_two_ranks),
        cmocka_unit_test(a_rank_that_is_not_named_is_no_second_one),
        cmocka_unit_test(one_rank_in_another_operation_is_alone),
        cmocka_unit_test(two_against_two_is_a_tie),
        cmocka_unit_test(sizes_are_near_by_dimension_0_or_by_a_quarter),
        cmocka_unit_test(operations_that_may_be_uneven_are_not_called_so),
        cmocka_unit_test(only_ranks_of_one_group_are_compared),
        cmocka_unit_test(a_rank_that_does_not_wait_is_absent),
        cmocka_unit_test(fingerprints_stand_in_the_table_too),
        cmocka_unit_test(a_recorder_gives_the_last_entry_that_is_open),
        cmocka_unit_test(nobody_waits_in_an_ordinary_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
