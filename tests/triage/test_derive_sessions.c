/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded sessions: which setting parts the runs that fail from those that pass, and when nothing may be said. */
#include "derive_support.h"

#define FAULT  "step 1 loss 3.0\nRuntimeError: CUDA error: an illegal memory access was encountered\n"
#define PASSES "step 1 loss 3.0\nstep 2 loss 2.9\nstep 3 loss 2.8\ntraining finished\n"
#define HANGS                                                                                                          \
    "[rank0]: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "            \
    "NumelIn=2557, NumelOut=2557, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
#define IS_NAN "step=1 loss: 11.2\nstep=2 loss: 11.1\nstep=3 loss: nan\n"

typedef struct session_row {
    const char *text;
    bl_signal signal; /* BL_N_SIGNALS: none of all */
} session_row;

static const session_row rows[] = {
    {"$ python t.py\n" FAULT "$ CUDA_LAUNCH_BLOCKING=1 python t.py\n" PASSES, BL_SIGNAL_session_blocking_cures},
    {"u@h:~$ python t.py\n" FAULT "u@h:~$ export CUDA_LAUNCH_BLOCKING=1\nu@h:~$ python t.py\n" PASSES,
     BL_SIGNAL_session_blocking_cures},
    {FAULT "rerun with CUDA_LAUNCH_BLOCKING=1: 2000 steps ok\n", BL_SIGNAL_session_blocking_cures},
    {"$ CUDA_LAUNCH_BLOCKING=1 torchrun t.py\n" HANGS "$ torchrun t.py\n" PASSES, BL_SIGNAL_session_blocking_hangs},
    {"$ torchrun t.py\n" HANGS
     "$ nvidia-smi topo -m\nGPU0\t X \tPHB\t0-31\n$ NCCL_P2P_DISABLE=1 torchrun t.py\n" PASSES,
     BL_SIGNAL_session_peer_copies},
    {"[graph] captured 12 kernels\n    graphed.replay()\n" FAULT "[check] use_graph=False, same data: 2 epochs ok\n",
     BL_SIGNAL_session_graph},
    {"    graphed.replay()\n" FAULT "eager mode, same data: 500 steps ok\n", BL_SIGNAL_session_graph},
    {"overlap_comm=true\n" IS_NAN "overlap_comm=false\n" PASSES "overlap_comm=true\n" IS_NAN,
     BL_SIGNAL_session_overlap},
    {"mode=inductor dynamic=True\n" FAULT "mode=eager same inputs: ok\n", BL_SIGNAL_session_eager_ok},
    {IS_NAN "with torch.cuda.synchronize() after each copy: clean\n", BL_SIGNAL_session_sync},
    {"non_blocking=True\n" IS_NAN "non_blocking=False, same seed: clean\n", BL_SIGNAL_session_streams},
    {FAULT "torch.backends.cudnn.enabled=False: 1000 steps ok\n", BL_SIGNAL_session_vendor},
    {"args: gpu=1 opt_level=O1\n" FAULT "rerun gpu=0: 400 iterations ok\nrerun gpu=1 opt_level=O0: 400 iterations ok\n",
     BL_SIGNAL_session_device},
    {"CUDA_VISIBLE_DEVICES=2 python m.py\n" FAULT "CUDA_VISIBLE_DEVICES=1 python m.py\n" PASSES,
     BL_SIGNAL_session_other_gpu_ok},
    /* and nothing follows from these */
    {FAULT "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n", BL_N_SIGNALS},
    {"$ python t.py\n" FAULT "$ CUDA_LAUNCH_BLOCKING=1 python t.py\n" FAULT, BL_N_SIGNALS},
    {"$ python t.py\n" FAULT "$ CUDA_LAUNCH_BLOCKING=1 python t.py\n" PASSES "$ python t.py\n" PASSES, BL_N_SIGNALS},
    {"$ python t.py\nModuleNotFoundError: No module named 'foo'\n$ CUDA_LAUNCH_BLOCKING=1 python t.py\n" PASSES,
     BL_N_SIGNALS},
    {"$ CUDA_LAUNCH_BLOCKING=1 python t.py\n" FAULT "$ cat log | grep done\ndone\n", BL_N_SIGNALS},
    {"mode=inductor\n" FAULT "mode=eager: IndexError: index 131 is out of bounds\n", BL_N_SIGNALS},
    {"overlap_comm=true\n" IS_NAN "overlap_comm=false\n" IS_NAN, BL_N_SIGNALS},
    {"use_graph=True\n" PASSES, BL_N_SIGNALS},
};

static void the_setting_that_parts_the_runs_is_found(void **state)
{
    told_case told;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tell_text(&told, rows[i].text);
        bl_derive_sessions(&told.c);
        const bl_event *setting = seen(&told, BL_SIGNAL_session_setting);
        if (rows[i].signal == BL_N_SIGNALS && setting != NULL)
            fail_msg("row %zu: %s parts its runs", i, bl_event_get(setting, "setting"));
        if (rows[i].signal != BL_N_SIGNALS && seen(&told, rows[i].signal) == NULL)
            fail_msg("row %zu is not %s", i, bl_signals[rows[i].signal].name);
        forget_texts(&told);
    }
}

static void both_runs_are_named_by_their_lines(void **state)
{
    told_case told;
    (void)state;
    tell_text(&told, rows[3].text);
    bl_derive_sessions(&told.c);
    const bl_event *failed = seen(&told, BL_SIGNAL_session_failed);
    assert_int_equal(failed->line, 1);
    assert_int_equal(failed->rank, -1);
    assert_fact(failed, "seqnum", "1");
    assert_fact(failed, "numel", "2557");
    assert_int_equal(seen(&told, BL_SIGNAL_session_blocking_hangs)->line, 2);
    assert_int_equal(seen(&told, BL_SIGNAL_session_passed)->line, 7);
    assert_fact(seen(&told, BL_SIGNAL_session_setting), "env", "CUDA_LAUNCH_BLOCKING=1");
    forget_texts(&told);
}

static void the_first_step_with_nan_and_the_stage_are_told(void **state)
{
    told_case told;
    (void)state;
    tell_text(&told, "stage=2 overlap_comm=true\n" IS_NAN "stage=2 overlap_comm=false\n" PASSES);
    bl_derive_sessions(&told.c);
    assert_fact(seen(&told, BL_SIGNAL_session_setting), "first_nan_step", "3");
    assert_fact(seen(&told, BL_SIGNAL_session_setting), "zero_stage", "2");
    forget_texts(&told);
}

static void runs_in_two_files_are_compared_when_both_name_the_setting(void **state)
{
    static const char *const texts[] = {"overlap_comm=true\n" IS_NAN, "overlap_comm=false\n" PASSES};
    static const char *const unsaid[] = {"overlap_comm=true\n" IS_NAN, PASSES};
    told_case told;
    (void)state;
    tell_texts(&told, 2, texts);
    bl_derive_sessions(&told.c);
    assert_non_null(seen(&told, BL_SIGNAL_session_overlap));
    forget_texts(&told);
    tell_texts(&told, 2, unsaid);
    bl_derive_sessions(&told.c);
    assert_null(seen(&told, BL_SIGNAL_session_overlap));
    forget_texts(&told);
}

/* Only the first faults of a kind and the last are kept: a run between them is not taken for a good one. */
static void a_run_whose_faults_may_not_have_been_kept_is_not_good(void **state)
{
    static char text[32768];
    told_case told;
    (void)state;
    text[0] = '\0';
    strcat(text, "$ python t.py\n");
    for (int i = 0; i < 100; i++)
        strcat(text, "RuntimeError: CUDA error: an illegal memory access was encountered\n");
    strcat(text, "$ CUDA_LAUNCH_BLOCKING=1 python t.py\n" PASSES);
    strcat(text, "RuntimeError: CUDA error: an illegal memory access was encountered\n");
    strcat(text, "$ python t.py\n" FAULT);
    tell_text(&told, text);
    bl_derive_sessions(&told.c);
    assert_null(seen(&told, BL_SIGNAL_session_setting));
    forget_texts(&told);
}

static void copies_that_arrive_wrong_only_between_peers_are_told(void **state)
{
    told_case told;
    (void)state;
    tell_text(&told, "cuda:0 -> cuda:1   mismatches 1660 of 16777216   (via host: 0)\n"
                     "cuda:2 -> cuda:1   mismatches 1591 of 16777216   (via host: 0)\n");
    bl_derive_sessions(&told.c);
    assert_fact(seen(&told, BL_SIGNAL_peercopy_wrong), "gpus", "3");
    assert_fact(seen(&told, BL_SIGNAL_peercopy_wrong), "elements", "16777216");
    forget_texts(&told);
    tell_text(&told, "GPU0 to GPU1: 812 mismatches of 1048576\n");
    bl_derive_sessions(&told.c);
    assert_non_null(seen(&told, BL_SIGNAL_peercopy_suspect));
    forget_texts(&told);
    tell_text(&told, "cuda:0 -> cuda:1   mismatches 0 of 16777216   (via host: 0)\n");
    bl_derive_sessions(&told.c);
    assert_null(seen(&told, BL_SIGNAL_peercopy_wrong));
    assert_null(seen(&told, BL_SIGNAL_peercopy_suspect));
    forget_texts(&told);
}

static void a_replay_is_blamed_only_when_nothing_failed_before(void **state)
{
    told_case told;
    (void)state;
    tell_text(&told, "    graphed.replay()\n" FAULT);
    bl_derive_sessions(&told.c);
    assert_non_null(seen(&told, BL_SIGNAL_graphfault_first));
    forget_texts(&told);
    tell_text(&told, FAULT "    graphed.replay()\n" FAULT);
    bl_derive_sessions(&told.c);
    assert_null(seen(&told, BL_SIGNAL_graphfault_first));
    forget_texts(&told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_setting_that_parts_the_runs_is_found),
        cmocka_unit_test(both_runs_are_named_by_their_lines),
        cmocka_unit_test(the_first_step_with_nan_and_the_stage_are_told),
        cmocka_unit_test(runs_in_two_files_are_compared_when_both_name_the_setting),
        cmocka_unit_test(a_run_whose_faults_may_not_have_been_kept_is_not_good),
        cmocka_unit_test(copies_that_arrive_wrong_only_between_peers_are_told),
        cmocka_unit_test(a_replay_is_blamed_only_when_nothing_failed_before),
    };
    return cmocka_run_group_tests(tests, open_matcher, close_matcher);
}
