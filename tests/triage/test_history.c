/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU did before outlives a run, whatever happens to the file. */
#include "file/file_support.h"

#include "file/failpoint.h"
#include "file/path.h"
#include "triage/gpu.h"

#define UUID "GPU-5e1f0a2c-1111-2222-3333-444455556666"
#define HEAD "# belay gpu history 1\ttime\tmark\tcode\tpid\tgpc\ttpc\tprogram\n"

static bl_error error;

static bl_history *open_here(void)
{
    bl_history *history;
    check_ok(bl_history_open(&(bl_history_options){.folder = "gpus"}, &history, &error), &error);
    return history;
}

static int make_folder(void **state)
{
    (void)state;
    empty_here();
    return mkdir("gpus", 0700);
}

static void add(bl_history *history, int64_t time, int64_t code, int64_t pid, const char *program)
{
    bl_history_event event = {.time = time, .code = code, .pid = pid, .gpc = -1, .tpc = -1};
    snprintf(event.program, sizeof event.program, "%s", program);
    event.mark = bl_history_mark(program, (int64_t)strlen(program), time);
    check_ok(bl_history_add(history, UUID, &event, &error), &error);
}

static void events_outlive_the_run_in_order_of_time(void **state)
{
    (void)state;
    bl_history *history = open_here();
    add(history, 200, 31, 7, "b");
    add(history, 100, 13, -1, "my job, v2");
    check_ok(bl_history_save(history, &error), &error);
    bl_history_close(history);
    assert_file_is("gpus/" UUID ".tsv", HEAD "100\t5f12b442169abb10\t13\t-1\t-1\t-1\tmy job, v2\n"
                                             "200\tb3484ead7ccca10d\t31\t7\t-1\t-1\tb\n");
    history = open_here();
    int n;
    const bl_history_event *events = bl_history_get(history, UUID, &n);
    assert_int_equal(n, 2);
    assert_int_equal(events[0].time, 100);
    assert_int_equal(events[0].pid, -1);
    assert_string_equal(events[0].program, "my job, v2");
    assert_int_equal(events[1].code, 31);
    assert_string_equal(bl_history_note(history), "");
    bl_history_close(history);
}

static void one_event_that_is_told_twice_is_one(void **state)
{
    (void)state;
    bl_history *history = open_here();
    add(history, 100, 31, 7, "a");
    check_ok(bl_history_save(history, &error), &error);
    bl_history_close(history);
    history = open_here();
    add(history, 100, 31, 7, "a");
    int n;
    bl_history_get(history, UUID, &n);
    assert_int_equal(n, 1);
    bl_history_close(history);
}

static void counts_begin_after_the_window_and_the_last_repair(void **state)
{
    (void)state;
    bl_history *history = open_here();
    add(history, 100, 31, 1, "a");
    add(history, 200, 31, 2, "b");
    add(history, 300, 13, 2, "b");
    bl_history_count count = bl_history_count_get(history, UUID, 0, 0);
    assert_int_equal(count.n_events, 3);
    assert_int_equal(count.n_pids, 2);
    assert_int_equal(count.n_programs, 2);
    assert_int_equal(count.first, 100);
    assert_int_equal(count.last, 300);
    assert_int_equal(bl_history_count_get(history, UUID, 31, 0).n_events, 2);
    assert_int_equal(bl_history_count_get(history, UUID, 31, 150).n_events, 1);
    add(history, 250, 0, -1, "reset");
    count = bl_history_count_get(history, UUID, 0, 0);
    assert_int_equal(count.n_events, 1);
    assert_int_equal(count.first, 300);
    assert_int_equal(bl_history_count_get(history, "GPU-other", 0, 0).n_events, 0);
    bl_history_close(history);
}

static void the_oldest_go_when_there_is_no_room(void **state)
{
    (void)state;
    char program[16];
    bl_history *history = open_here();
    for (int i = 0; i < BL_HISTORY_MOST + 10; i++) {
        snprintf(program, sizeof program, "p%d", i);
        add(history, 1000 + i, 31, i, program);
    }
    add(history, 1, 31, 1, "older than all");
    int n;
    const bl_history_event *events = bl_history_get(history, UUID, &n);
    assert_int_equal(n, BL_HISTORY_MOST);
    assert_int_equal(events[0].time, 1010);
    assert_int_equal(events[n - 1].time, 1000 + BL_HISTORY_MOST + 9);
    check_ok(bl_history_save(history, &error), &error);
    bl_history_close(history);
    history = open_here();
    bl_history_get(history, UUID, &n);
    assert_int_equal(n, BL_HISTORY_MOST);
    bl_history_close(history);
}

static void damaged_lines_are_left_out_and_told(void **state)
{
    (void)state;
    put_text("gpus/" UUID ".tsv",
             HEAD "100\tc7a0cdc4ff90bab3\t13\t-1\t-1\t-1\tgood\n"
                  "nonsense\n"
                  "100\tc7a0cdc4ff90bab3\t13\t-1\t-1\t-1\tthe same mark\n"
                  "99999999999999999999\tc7a0cdc4ff90bab4\t13\t-1\t-1\t-1\ttoo late\n"
                  "100\tc7a0\t13\t-1\t-1\t-1\tshort mark\n"
                  "100\tc7a0cdc4ff90bab5\t13\t-1\t999\t-1\tno such part\n"
                  "100\tc7a0cdc4ff90bab6\t13\t-1\t-1\t-1\ta name that is longer than names may be here\n"
                  "100\tc7a0cdc4ff90bab7\t13\t-1\t-1\t-1\tcut of");
    bl_history *history = open_here();
    int n;
    const bl_history_event *events = bl_history_get(history, UUID, &n);
    assert_int_equal(n, 1);
    assert_string_equal(events[0].program, "good");
    assert_string_equal(bl_history_note(history),
                        "6 lines of the history of " UUID " could not be read and are left out.");
    bl_history_close(history);
}

static void a_file_that_cannot_be_read_is_an_empty_history(void **state)
{
    (void)state;
    int n;
    check_ok(bl_file_mkdir("gpus/" UUID ".tsv", &error), &error);
    bl_history *history = open_here();
    assert_null(bl_history_get(history, UUID, &n));
    assert_string_equal(bl_history_note(history),
                        "The history of " UUID " is left out: cannot open 'gpus/" UUID ".tsv': it is a directory.");
    bl_history_close(history);
    rmdir("gpus/" UUID ".tsv");
    char *much = malloc(1000000);
    memset(much, 'x', 1000000);
    put_bytes("gpus/" UUID ".tsv", much, 1000000);
    free(much);
    history = open_here();
    assert_null(bl_history_get(history, UUID, &n));
    assert_true(strlen(bl_history_note(history)) > 0);
    add(history, 100, 31, 7, "a"); /* it begins anew */
    check_ok(bl_history_save(history, &error), &error);
    bl_history_close(history);
    history = open_here();
    bl_history_get(history, UUID, &n);
    assert_int_equal(n, 1);
    bl_history_close(history);
}

static void off_reads_and_writes_nothing(void **state)
{
    (void)state;
    int n;
    bl_history *history;
    put_text("gpus/" UUID ".tsv", HEAD "100\tc7a0cdc4ff90bab3\t13\t-1\t-1\t-1\tgood\n");
    check_ok(bl_history_open(&(bl_history_options){.is_off = true, .folder = "gpus"}, &history, &error), &error);
    assert_null(bl_history_get(history, UUID, &n));
    add(history, 200, 31, 7, "a");
    check_ok(bl_history_save(history, &error), &error);
    assert_string_equal(bl_history_folder(history), "");
    bl_history_close(history);
    assert_file_is("gpus/" UUID ".tsv", HEAD "100\tc7a0cdc4ff90bab3\t13\t-1\t-1\t-1\tgood\n");
}

static void nothing_is_written_where_nothing_happened(void **state)
{
    (void)state;
    int n;
    rmdir("gpus");
    bl_history *history = open_here();
    bl_history_get(history, UUID, &n);
    check_ok(bl_history_save(history, &error), &error);
    assert_int_equal(n_files_here(), 0);
    add(history, 100, 31, 7, "a");
    check_ok(bl_history_save(history, &error), &error); /* makes the folder */
    assert_int_equal(n_files_here(), 1);
    bl_history_close(history);
}

static void the_place_comes_from_the_environment(void **state)
{
    (void)state;
    bl_history *history;
    setenv("XDG_STATE_HOME", "/state", 1);
    setenv("HOME", "/home/me", 1);
    check_ok(bl_history_open(NULL, &history, &error), &error);
    assert_string_equal(bl_history_folder(history), "/state/belay/gpu");
    bl_history_close(history);
    setenv("XDG_STATE_HOME", "relative", 1);
    check_ok(bl_history_open(NULL, &history, &error), &error);
    assert_string_equal(bl_history_folder(history), "/home/me/.local/state/belay/gpu");
    bl_history_close(history);
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    check_ok(bl_history_open(NULL, &history, &error), &error);
    assert_string_equal(bl_history_folder(history), "");
    assert_string_equal(bl_history_note(history),
                        "There is no place for the history of the GPUs: neither XDG_STATE_HOME nor HOME is set.");
    bl_history_close(history);
}

static void identities_are_names_of_files(void **state)
{
    (void)state;
    char identity[BL_HISTORY_GPU];
    bl_history_identity(UUID, "host", "0000:3b:00", identity);
    assert_string_equal(identity, UUID);
    bl_history_identity("", "node-7.cluster", "0000:3b:00", identity);
    assert_string_equal(identity, "node-7.cluster-00003b00");
    bl_history_identity("", "../../etc/x", "unknown", identity);
    assert_string_equal(identity, "etcx-unknown");
    bl_history_identity("", "", "", identity);
    assert_string_equal(identity, "-");
}

static void names_from_a_log_cannot_break_the_file(void **state)
{
    (void)state;
    bl_history *history = open_here();
    add(history, 100, 31, 7, "a\tb\nc\x1b[31m");
    bl_history_event bad = {.time = -5, .code = 31, .pid = 1, .gpc = -1, .tpc = -1, .mark = 1};
    check_ok(bl_history_add(history, UUID, &bad, &error), &error);
    bad = (bl_history_event){.time = 200, .code = 13, .pid = INT64_MAX, .gpc = 4000, .tpc = -9, .mark = 2};
    check_ok(bl_history_add(history, UUID, &bad, &error), &error);
    check_ok(bl_history_add(history, "../evil", &bad, &error), &error);
    check_ok(bl_history_add(history, "", &bad, &error), &error);
    check_ok(bl_history_save(history, &error), &error);
    bl_history_close(history);
    history = open_here();
    int n;
    const bl_history_event *events = bl_history_get(history, UUID, &n);
    assert_int_equal(n, 2);
    assert_string_equal(events[0].program, "a?b?c?[31m");
    assert_int_equal(events[1].pid, -1);
    assert_int_equal(events[1].gpc, -1);
    assert_string_equal(bl_history_note(history), "");
    bl_history_close(history);
    assert_int_equal(n_files_here(), 1);
}

static void a_write_that_fails_loses_nothing(void **state)
{
    (void)state;
    bl_history *history = open_here();
    add(history, 100, 31, 7, "a");
    check_ok(bl_history_save(history, &error), &error);
    add(history, 200, 31, 8, "b");
    bool reached = true;
    for (int64_t point = 0; reached; point++) {
        bl_file_fail_at(point, BL_FILE_FAIL_ENOSPC);
        belay_code code = bl_history_save(history, &error);
        reached = bl_file_fail_reached();
        bl_file_fail_at(-1, BL_FILE_FAIL_ENOSPC);
        assert_int_equal(code, reached ? BELAY_FILE_WRITE : BELAY_OK);
        int n;
        bl_history *other = open_here();
        bl_history_get(other, UUID, &n);
        assert_true(n == 1 || n == 2);
        assert_string_equal(bl_history_note(other), "");
        bl_history_close(other);
    }
    bl_history_close(history);
}

static void without_memory_nothing_that_was_there_is_lost(void **state)
{
    (void)state;
    bool failed = true;
    for (int64_t n = 0; failed; n++) {
        bl_history *history = NULL;
        put_text("gpus/" UUID ".tsv", HEAD "100\tc7a0cdc4ff90bab3\t13\t-1\t-1\t-1\told\n");
        bl_memory_fail_at(n);
        belay_code code = bl_history_open(&(bl_history_options){.folder = "gpus"}, &history, &error);
        if (code == BELAY_OK) {
            bl_history_event event = {.time = 200, .code = 31, .pid = 1, .gpc = -1, .tpc = -1, .mark = 3};
            code = bl_history_add(history, UUID, &event, &error);
            if (code == BELAY_OK)
                code = bl_history_save(history, &error);
        }
        failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_true(code == BELAY_OK || (failed && code == BELAY_MEM_EXHAUSTED));
        assert_true(code != BELAY_OK || !failed || strlen(bl_history_note(history)) > 0);
        bl_history_close(history);
        int n_events;
        history = open_here();
        const bl_history_event *events = bl_history_get(history, UUID, &n_events);
        assert_string_equal(events[0].program, "old");
        assert_int_equal(n_events, failed ? 1 : 2);
        bl_history_close(history);
    }
}

static void a_file_that_may_not_be_read_is_not_replaced(void **state)
{
    (void)state;
    if (geteuid() == 0)
        skip(); /* root may read everything */
    put_text("gpus/" UUID ".tsv", HEAD "100\tc7a0cdc4ff90bab3\t13\t-1\t-1\t-1\told\n");
    chmod("gpus/" UUID ".tsv", 0);
    bl_history *history = open_here();
    add(history, 200, 31, 7, "a");
    check_ok(bl_history_save(history, &error), &error);
    bl_history_close(history);
    chmod("gpus/" UUID ".tsv", 0600);
    assert_file_is("gpus/" UUID ".tsv", HEAD "100\tc7a0cdc4ff90bab3\t13\t-1\t-1\t-1\told\n");
}

/* ---- with a fold ------------------------------------------------------------------------------------------------------ */

static bl_gpu_fold *fold_of(int pid, const char *program, int64_t time)
{
    char text[200];
    bl_kernel_event event;
    bl_gpu_fold *fold = bl_gpu_fold_new();
    static const char identity[] = "NVRM: GPU at PCI:0000:01:00: " UUID;
    assert_true(bl_kernel_read(identity, sizeof identity - 1, &event));
    assert_true(bl_gpu_fold_add(fold, &event, (bl_gpu_place){0, 1, time, BL_TIME_WALL}));
    snprintf(text, sizeof text, "NVRM: Xid (PCI:0000:01:00): 31, pid=%d, name=%s, Ch 00000010, intr 0", pid, program);
    assert_true(bl_kernel_read(text, (int64_t)strlen(text), &event));
    assert_true(bl_gpu_fold_add(fold, &event, (bl_gpu_place){0, 2, time, BL_TIME_WALL}));
    return fold;
}

static void the_third_run_that_faults_sees_the_others(void **state)
{
    (void)state;
    static const char *const programs[] = {"namd3", "relion", "pmemd.cuda"};
    for (int run = 0; run < 3; run++) {
        const bl_gpu_verdict *verdicts;
        int64_t time = INT64_C(1754390468000000) + run * INT64_C(3600000000);
        bl_gpu_fold *fold = fold_of(100 + run, programs[run], time);
        bl_history *history = open_here();
        bl_gpu_options options = {.history = history};
        assert_int_equal(bl_gpu_judge(fold, &options, &verdicts), 1);
        assert_int_equal(verdicts[0].class, run < 2 ? BL_GPU_CLASS_APPLICATION : BL_GPU_CLASS_SUSPECT);
        assert_int_equal(verdicts[0].n_from_history, run < 2 ? 0 : 2);
        check_ok(bl_gpu_remember(fold, history, "host", 0, 5, &error), &error);
        check_ok(bl_history_save(history, &error), &error);
        /* What was just remembered is not counted twice. */
        assert_int_equal(bl_gpu_judge(fold, &options, &verdicts), 1);
        assert_int_equal(verdicts[0].n_from_history, run < 2 ? 0 : 2);
        bl_history_close(history);
        bl_gpu_fold_free(fold);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(events_outlive_the_run_in_order_of_time, make_folder),
        cmocka_unit_test_setup(one_event_that_is_told_twice_is_one, make_folder),
        cmocka_unit_test_setup(counts_begin_after_the_window_and_the_last_repair, make_folder),
        cmocka_unit_test_setup(the_oldest_go_when_there_is_no_room, make_folder),
        cmocka_unit_test_setup(damaged_lines_are_left_out_and_told, make_folder),
        cmocka_unit_test_setup(a_file_that_cannot_be_read_is_an_empty_history, make_folder),
        cmocka_unit_test_setup(off_reads_and_writes_nothing, make_folder),
        cmocka_unit_test_setup(nothing_is_written_where_nothing_happened, make_folder),
        cmocka_unit_test_setup(the_place_comes_from_the_environment, make_folder),
        cmocka_unit_test(identities_are_names_of_files),
        cmocka_unit_test_setup(names_from_a_log_cannot_break_the_file, make_folder),
        cmocka_unit_test_setup(a_write_that_fails_loses_nothing, make_folder),
        cmocka_unit_test_setup(without_memory_nothing_that_was_there_is_lost, make_folder),
        cmocka_unit_test_setup(a_file_that_may_not_be_read_is_not_replaced, make_folder),
        cmocka_unit_test_setup(the_third_run_that_faults_sees_the_others, make_folder),
    };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
