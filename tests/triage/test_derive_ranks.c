/* SPDX-License-Identifier: Apache-2.0 */
/* What several ranks say together, and the five questions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/memory.h"
#include "rank_support.h"
#include "triage/questions.h"

static const bl_event *derived(const rank_case *r, bl_signal signal) { return bl_events_first(r->c.events, signal); }

static void say_timeout(rank_case *r, int rank, int64_t seconds, const char *work)
{
    char text[512];
    snprintf(text, sizeof text,
             "[Rank %d] Watchdog caught collective operation timeout: WorkNCCL(%s, Timeout(ms)=600000) ran for 600067 "
             "milliseconds before timing out.",
             rank, work);
    rank_case_say(r, rank, rank, seconds, text);
}

/* ---- who failed first ---- */

static void a_rank_that_died_is_the_origin_and_the_others_are_echoes(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "misc/socket.cc:456 NCCL WARN Net : Connection closed by remote peer n2<39144>");
    rank_case_say(&r, 0, 0, 0, "NCCL INFO misc/socket.cc:472 -> 6");
    rank_case_say(&r, 0, 0, 0, "NCCL INFO init.cc:1089 -> 3");
    rank_case_say(&r, 1, 1, 0,
                  "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1269, internal error, NCCL version 2.14.3");
    rank_case_say(&r, 2, 2, 0, "Fatal Python error: Segmentation fault");
    rank_case_derive(&r);
    const bl_event *died = derived(&r, BL_SIGNAL_ranks_died);
    assert_fact(died, "died_rank", -1, "2");
    assert_fact(died, "how", -1, "segmentation fault in a host thread");
    assert_fact(died, "echo_rank", -1, "0");
    assert_fact(died, "echo_rank", -1, "1");
    assert_int_equal(died->rank, 2);
    assert_int_equal(died->file, 2);
    assert_non_null(derived(&r, BL_SIGNAL_ranks_waited_for_dead));
    assert_fact(derived(&r, BL_SIGNAL_ranks_nccl_chain), "nccl_result_chain", -1, "6");
    assert_fact(derived(&r, BL_SIGNAL_ranks_nccl_chain), "nccl_result_chain", -1, "3");
    rank_case_close(&r);
}

static void an_echo_is_no_origin_even_when_it_came_first(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    say_timeout(&r, 5, 1000, "SeqNum=4, OpType=BROADCAST, NumelIn=1, NumelOut=1");
    rank_case_say(&r, 0, 0, 1220, "ERROR cache writer: OSError: [Errno 28] No space left on device: '/data/cache'");
    rank_case_derive(&r);
    const bl_event *died = derived(&r, BL_SIGNAL_ranks_died);
    assert_fact(died, "exception", -1, "OSError 28");
    assert_fact(died, "seqnum", -1, "4");
    assert_fact(died, "optype_of_echo", -1, "BROADCAST");
    assert_int_equal(died->rank, 0);
    assert_null(derived(&r, BL_SIGNAL_ranks_one_waits));
    rank_case_close(&r);
}

static void failures_within_the_skew_of_clocks_have_no_order(void **state)
{
    (void)state;
    for (int apart = 1; apart <= 3; apart += 2) {
        rank_case r;
        rank_case_open(&r);
        rank_case_say(&r, 1, 1, 1000, "KeyError: 'label'");
        rank_case_say(&r, 2, 2, 1000 + apart, "KeyError: 'label'");
        rank_case_say(&r, 0, 0, 1010, "RuntimeError: [gloo/pair.cc:598] Connection closed by peer [10.0.0.4]:2911");
        rank_case_derive(&r);
        assert_true((derived(&r, BL_SIGNAL_ranks_died) != NULL) == (apart > 2));
        assert_true((derived(&r, BL_SIGNAL_ranks_died_several) != NULL) == (apart <= 2));
        assert_fact(derived(&r, BL_SIGNAL_ranks_waited_for_dead), "failed_rank", -1, "2");
        rank_case_close(&r);
    }
}

static void a_failure_with_a_class_of_its_own_is_no_plain_death(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(
        &r, 1, 1, 0,
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:1 and "
        "cuda:0!");
    rank_case_say(&r, 0, 0, 0, "NCCL WARN Net : Connection closed by remote peer n2<39144>");
    rank_case_derive(&r);
    assert_null(derived(&r, BL_SIGNAL_ranks_died));
    assert_int_equal(derived(&r, BL_SIGNAL_ranks_waited_for_dead)->rank, 1);
    rank_case_close(&r);
}

static void echoes_alone_name_no_origin(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0,
                  "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.");
    rank_case_derive(&r);
    assert_int_equal(derived(&r, BL_SIGNAL_ranks_echo_only)->rank, -1);
    assert_null(derived(&r, BL_SIGNAL_ranks_died));
    rank_case_close(&r);
}

static void the_only_silent_rank_among_closed_connections_is_suspected(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 3; rank++)
        rank_case_say(&r, rank, rank, 0,
                      rank == 1 ? "step 10 loss 2" : "socketProgress: Connection closed by remote peer n2<3322>");
    rank_case_derive(&r);
    assert_int_equal(derived(&r, BL_SIGNAL_ranks_went_silent)->rank, 1);
    rank_case_close(&r);
}

static void a_launcher_names_the_rank_that_died(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "NCCL WARN Net : Connection closed by remote peer n2<39144>");
    rank_case_say(
        &r, 1, -1, 0,
        "mpirun noticed that process rank 2 with PID 4711 on node n3 exited on signal 11 (Segmentation fault).");
    rank_case_derive(&r);
    assert_fact(derived(&r, BL_SIGNAL_ranks_died), "died_rank", -1, "2");
    assert_fact(derived(&r, BL_SIGNAL_ranks_died), "signal", -1, "11");
    rank_case_close(&r);
}

static void a_root_cause_of_the_launcher_counts_when_others_felt_it(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    say_timeout(&r, 4, 0, "SeqNum=22107, OpType=_ALLGATHER_BASE, NumelIn=8, NumelOut=64");
    rank_case_say(&r, 0, -1, 0, "Root Cause (first observed failure):");
    rank_case_say(&r, 0, -1, 0, "[0]:");
    rank_case_say(&r, 0, -1, 0, "  rank      : 5 (local_rank: 5)");
    rank_case_say(&r, 0, -1, 0, "  exitcode  : 1 (pid: 8826)");
    rank_case_derive(&r);
    assert_int_equal(derived(&r, BL_SIGNAL_ranks_root_cause)->rank, 5);
    assert_fact(derived(&r, BL_SIGNAL_ranks_root_cause), "exitcode", -1, "1");
    rank_case_close(&r);
}

/* ---- who waits in what ---- */

static void one_waiting_rank_is_told_with_its_numbers(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    say_timeout(&r, 4, 0, "SeqNum=7411, OpType=ALLREDUCE, NumelIn=233308160, NumelOut=233308160");
    rank_case_say(
        &r, 4, 4, 0,
        "[PG 1 Rank 4] Timeout at NCCL work: 7411, last enqueued NCCL work: 7413, last completed NCCL work: 7410.");
    rank_case_derive(&r);
    const bl_event *event = derived(&r, BL_SIGNAL_ranks_one_waits);
    assert_fact(event, "seqnum", -1, "7411");
    assert_fact(event, "numel", 4, "233308160");
    assert_fact(event, "last_completed", -1, "7410");
    assert_fact(event, "rank", -1, "4");
    rank_case_close(&r);
}

static void ranks_at_other_places_are_told_with_phase_and_steps(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "rank: 0, step_in_slice: 2290/2290, (loss_avg_rank: 0.387)");
    say_timeout(&r, 0, 0, "SeqNum=3391, OpType=ALLREDUCE, NumelIn=4208640, NumelOut=4208640");
    rank_case_say(&r, 1, 1, 0, "rank: 1, step_in_slice: 2289/2289, (loss_avg_rank: 0.387)");
    rank_case_say(&r, 1, 1, 0, "rank: 1, Validate epoch: 1");
    say_timeout(&r, 1, 0, "SeqNum=3391, OpType=ALLREDUCE, NumelIn=1, NumelOut=1");
    rank_case_derive(&r);
    const bl_event *event = derived(&r, BL_SIGNAL_ranks_apart);
    assert_fact(event, "seqnum", -1, "3391");
    assert_fact(event, "numel", 0, "4208640");
    assert_fact(event, "numel", 1, "1");
    assert_fact(event, "phase", 0, "train");
    assert_fact(event, "phase", 1, "validate");
    assert_fact(event, "steps", 1, "2289");
    assert_fact(event, "majority", -1, "tie");
    assert_int_equal(event->rank, -1);
    assert_int_equal(derived(&r, BL_SIGNAL_ranks_other_side)->file, 1);
    rank_case_close(&r);
}

static void an_uneven_batch_is_near_and_names_the_lone_rank(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 3; rank++)
        say_timeout(&r, rank, 0,
                    rank == 1 ? "SeqNum=5, OpType=ALLGATHER, TensorShape=[31, 8]"
                              : "SeqNum=5, OpType=ALLGATHER, TensorShape=[32, 8]");
    rank_case_derive(&r);
    const bl_event *event = derived(&r, BL_SIGNAL_ranks_sizes_near);
    assert_fact(event, "differing_field", -1, "TensorShape dim 0");
    assert_fact(event, "shape", 1, "[31, 8]");
    assert_fact(event, "alone", -1, "1");
    assert_int_equal(event->rank, 1);
    rank_case_close(&r);
}

static void a_first_collective_with_unknown_devices_is_unbound(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 2; rank++) {
        rank_case_say(&r, rank, rank, 0,
                      "using GPU 1 to perform barrier as devices used by this process are currently unknown. This can "
                      "potentially cause a hang if this rank to GPU mapping is incorrect.");
        say_timeout(&r, rank, 0, "SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1");
    }
    rank_case_derive(&r);
    assert_non_null(derived(&r, BL_SIGNAL_ranks_unbound));
    assert_null(derived(&r, BL_SIGNAL_ranks_all_wait));
    rank_case_close(&r);
}

static void the_missing_rank_of_a_barrier_is_blamed_not_who_tells(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "RuntimeError: Rank 3 failed to pass monitoredBarrier in 30000 ms");
    rank_case_derive(&r);
    assert_int_equal(derived(&r, BL_SIGNAL_ranks_missed_barrier)->rank, 3);
    assert_null(derived(&r, BL_SIGNAL_ranks_waited_for_dead));
    rank_case_close(&r);
}

/* ---- devices, parameters, scales, ends ---- */

static void a_shared_gpu_is_told_by_its_address(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 2, 0,
                  "init.cc:788 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000");
    rank_case_say(&r, 0, 1, 0,
                  "init.cc:788 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000");
    rank_case_derive(&r);
    const bl_event *event = derived(&r, BL_SIGNAL_ranks_share_gpu);
    assert_fact(event, "pci", -1, "0000:01:00");
    assert_fact(event, "sharing_rank", -1, "0");
    assert_fact(event, "sharing_rank", -1, "1");
    assert_fact(event, "sharing_rank", -1, "2");
    rank_case_close(&r);
}

static void ordinals_that_fail_from_one_rank_on_are_global_ranks(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 4; rank++) {
        rank_case_say(&r, rank, rank, 0, "host=n1 visible=2");
        if (rank >= 2)
            rank_case_say(&r, rank, rank, 0, "RuntimeError: CUDA error: invalid device ordinal");
    }
    rank_case_derive(&r);
    const bl_event *event = derived(&r, BL_SIGNAL_ranks_ordinal_global);
    assert_fact(event, "failing_rank", -1, "2");
    assert_fact(event, "failing_rank", -1, "3");
    assert_fact(event, "gpus_per_node", -1, "2");
    assert_fact(event, "first_bad_ordinal", -1, "2");
    rank_case_close(&r);
}

static void one_bad_ordinal_is_not_taken_for_a_global_rank(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "RuntimeError: CUDA error: invalid device ordinal");
    rank_case_say(&r, 1, 1, 0, "step 1 loss 2");
    rank_case_derive(&r);
    assert_null(derived(&r, BL_SIGNAL_ranks_ordinal_global));
    assert_non_null(derived(&r, BL_SIGNAL_ranks_ordinal));
    rank_case_close(&r);
}

static void unused_parameters_are_told_one_by_one(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "Parameters which did not receive grad for rank 0: aux.bias, aux.weight");
    rank_case_say(&r, 0, 0, 0, "Parameter indices which did not receive grad for rank 0: 211 212");
    rank_case_derive(&r);
    const bl_event *event = derived(&r, BL_SIGNAL_ranks_unused);
    assert_fact(event, "parameter", -1, "aux.bias");
    assert_fact(event, "parameter", -1, "aux.weight");
    assert_fact(event, "index", -1, "211");
    assert_fact(event, "index", -1, "212");
    rank_case_close(&r);
}

static void a_rank_that_skips_alone_is_the_origin_of_drift(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "rank 0 step 37 found_inf=0 loss 2.4398 scale 65536");
    rank_case_say(&r, 1, 1, 0, "rank 1 step 37 found_inf=1 local shard, step skipped, scale 65536 -> 32768");
    rank_case_derive(&r);
    const bl_event *event = derived(&r, BL_SIGNAL_ranks_scale_differs);
    assert_int_equal(event->rank, 1);
    assert_fact(event, "step", -1, "37");
    assert_fact(event, "scale", 0, "65536");
    assert_fact(event, "scale", 1, "32768");
    assert_fact(event, "found_inf", 0, "0");
    assert_fact(event, "found_inf", 1, "1");
    rank_case_close(&r);
}

static void a_skip_of_all_ranks_is_no_drift(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 2; rank++) {
        rank_case_say(&r, rank, rank, 0, "step 37 found_inf=1 step skipped, scale 65536 -> 32768");
        rank_case_say(&r, rank, rank, 0, "step 38 found_inf=0 loss 2.4 scale 32768");
    }
    rank_case_derive(&r);
    assert_null(derived(&r, BL_SIGNAL_ranks_scale_differs));
    rank_case_close(&r);
}

static void settings_of_some_ranks_only_are_told(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    for (int rank = 0; rank < 4; rank++) {
        char text[128];
        snprintf(text, sizeof text, "NCCL INFO comm 0x55aa00 rank %d nranks 4 cudaDev 0 busId 1c000 - Init COMPLETE",
                 rank);
        rank_case_say(&r, rank, rank, 0, text);
        if (rank >= 2)
            rank_case_say(&r, rank, rank, 0, "NCCL INFO NCCL_PROTO set by environment to LL128");
    }
    rank_case_derive(&r);
    assert_fact(derived(&r, BL_SIGNAL_ranks_env_differs), "env_differs", -1, "NCCL_PROTO=LL128 on ranks 2 and 3 only");
    rank_case_close(&r);
}

static const int64_t base_seconds = 1738985776; /* 2025-02-08T03:36:16Z */

static void output_that_stopped_long_before_the_limit_is_a_hang(void **state)
{
    (void)state;
    static const char *const ends[] = {"2025-02-08T03:40:16", "2025-02-08T12:00:16"};
    for (int i = 0; i < 2; i++) {
        char text[160];
        rank_case r;
        rank_case_open(&r);
        rank_case_say(&r, 0, -1, base_seconds, "I train: it 93999 lm 2.2600");
        snprintf(text, sizeof text, "slurmstepd: error: *** JOB 901 ON n1 CANCELLED AT %s DUE TO TIME LIMIT ***",
                 ends[i]);
        rank_case_say(&r, 0, -1, 0, text);
        rank_case_derive(&r);
        const bl_event *event = derived(&r, i == 0 ? BL_SIGNAL_ranks_ran_out : BL_SIGNAL_ranks_hang);
        assert_fact(event, "cancelled", -1, ends[i]);
        assert_fact(event, "last_iteration", -1, "93999");
        assert_fact(event, "last_time", -1, "2025-02-08T03:36:16.000000");
        rank_case_close(&r);
    }
}

/* ---- questions ---- */

static void questions_are_answered_from_evidence_only(void **state)
{
    (void)state;
    rank_case r;
    bl_questions q;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "# control: single GPU, same seed: 2000 steps clean");
    rank_case_say(&r, 0, 0, 0, "$ CUDA_LAUNCH_BLOCKING=1 torchrun --nproc_per_node=2 train.py");
    rank_case_say(&r, 0, 0, 0,
                  "  File \"/usr/lib/python3/torch/distributed/distributed_c10d.py\", line 2050, in all_reduce");
    rank_case_say(&r, 0, 0, 0, "RuntimeError: CUDA error: an illegal memory access was encountered");
    rank_case_derive(&r);
    bl_questions_answer(&r.c, &q);
    assert_string_equal(bl_answer_describe(BL_QUESTION_NAMES, q.list[BL_QUESTION_NAMES].answer), "no");
    assert_string_equal(bl_answer_describe(BL_QUESTION_ALONE, q.list[BL_QUESTION_ALONE].answer), "yes");
    assert_string_equal(bl_answer_describe(BL_QUESTION_DIFFER, q.list[BL_QUESTION_DIFFER].answer), "not in these logs");
    assert_string_equal(bl_answer_describe(BL_QUESTION_BLOCKING, q.list[BL_QUESTION_BLOCKING].answer), "yes");
    assert_string_equal(bl_answer_describe(BL_QUESTION_CURES, q.list[BL_QUESTION_CURES].answer), "not in these logs");
    assert_string_equal(bl_answer_describe(BL_QUESTION_STREAM, q.list[BL_QUESTION_STREAM].answer), "communication");
    assert_int_equal(q.list[BL_QUESTION_ALONE].event->line, 1);
    assert_null(q.list[BL_QUESTION_CURES].event);
    rank_case_close(&r);
}

static void a_hint_about_blocking_mode_answers_nothing(void **state)
{
    (void)state;
    rank_case r;
    bl_questions q;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "For debugging consider passing CUDA_LAUNCH_BLOCKING=1");
    rank_case_say(&r, 0, 0, 0, "RuntimeError: CUDA error: an illegal memory access was encountered");
    rank_case_derive(&r);
    bl_questions_answer(&r.c, &q);
    assert_int_equal(q.list[BL_QUESTION_BLOCKING].answer, BL_ANSWER_NOT_TOLD);
    assert_int_equal(q.list[BL_QUESTION_STREAM].answer, BL_ANSWER_NOT_TOLD);
    rank_case_close(&r);
}

static void memory_that_ends_is_noted_and_nothing_leaks(void **state)
{
    (void)state;
    bool failed = true;
    for (int64_t n = 0; failed; n++) {
        rank_case r;
        rank_case_open(&r);
        rank_case_say(&r, 0, 0, 0, "NCCL WARN Net : Connection closed by remote peer n2<39144>");
        rank_case_say(&r, 1, 1, 0, "NCCL INFO comm 0x55aa00 rank 1 nranks 2 cudaDev 0 busId 1c000 - Init COMPLETE");
        rank_case_say(&r, 0, 0, 0, "NCCL INFO comm 0x55aa00 rank 0 nranks 2 cudaDev 0 busId 1c000 - Init COMPLETE");
        rank_case_say(&r, 1, 1, 0, "NCCL INFO NCCL_PROTO set by environment to LL128");
        say_timeout(&r, 0, 0, "SeqNum=5, OpType=ALLREDUCE, NumelIn=8, NumelOut=8");
        rank_case_say(&r, 1, 1, 0, "Fatal Python error: Segmentation fault");
        bl_memory_fail_at(n);
        rank_case_derive(&r);
        failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_true(!failed || bl_events_lack_memory(r.c.events));
        rank_case_close(&r);
    }
}

static void an_ordinary_log_derives_nothing(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, 0, 0, "step 1 loss 2.0 scale 65536");
    rank_case_say(&r, 0, 0, 0,
                  "[W socket.cpp:663] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 111 - "
                  "Connection refused).");
    rank_case_say(&r, 0, 0, 0,
                  "ERROR - shard 002: urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool: Read timed out. "
                  "(attempt 1 of 5)");
    rank_case_say(&r, 0, 0, 0, "step 2 loss 1.9 scale 65536");
    rank_case_derive(&r);
    for (int s = 0; s < BL_N_SIGNALS; s++)
        if (bl_signals[s].role == BL_ROLE_DERIVED && derived(&r, (bl_signal)s) != NULL)
            fail_msg("%s", bl_signals[s].name);
    rank_case_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_died_is_the_origin_and_the_others_are_echoes),
        cmocka_unit_test(an_echo_is_no_origin_even_when_it_came_first),
        cmocka_unit_test(failures_within_the_skew_of_clocks_have_no_order),
        cmocka_unit_test(a_failure_with_a_class_of_its_own_is_no_plain_death),
        cmocka_unit_test(echoes_alone_name_no_origin),
        cmocka_unit_test(the_only_silent_rank_among_closed_connections_is_suspected),
        cmocka_unit_test(a_launcher_names_the_rank_that_died),
        cmocka_unit_test(a_root_cause_of_the_launcher_counts_when_others_felt_it),
        cmocka_unit_test(one_waiting_rank_is_told_with_its_numbers),
        cmocka_unit_test(ranks_at_other_places_are_told_with_phase_and_steps),
        cmocka_unit_test(an_uneven_batch_is_near_and_names_the_lone_rank),
        cmocka_unit_test(a_first_collective_with_unknown_devices_is_unbound),
        cmocka_unit_test(the_missing_rank_of_a_barrier_is_blamed_not_who_tells),
        cmocka_unit_test(a_shared_gpu_is_told_by_its_address),
        cmocka_unit_test(ordinals_that_fail_from_one_rank_on_are_global_ranks),
        cmocka_unit_test(one_bad_ordinal_is_not_taken_for_a_global_rank),
        cmocka_unit_test(unused_parameters_are_told_one_by_one),
        cmocka_unit_test(a_rank_that_skips_alone_is_the_origin_of_drift),
        cmocka_unit_test(a_skip_of_all_ranks_is_no_drift),
        cmocka_unit_test(settings_of_some_ranks_only_are_told),
        cmocka_unit_test(output_that_stopped_long_before_the_limit_is_a_hang),
        cmocka_unit_test(questions_are_answered_from_evidence_only),
        cmocka_unit_test(a_hint_about_blocking_mode_answers_nothing),
        cmocka_unit_test(an_ordinary_log_derives_nothing),
        cmocka_unit_test(memory_that_ends_is_noted_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
