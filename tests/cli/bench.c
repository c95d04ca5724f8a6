/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `belay bench` that times `belay explain`, which it starts as it was started itself: here that is this
 * program, and it plays the command. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/bench_ddp.h"
#include "cli/bench_explain.h"

/* Status 1 for a log of that many lines with a fault on each thousandth, or of fault lines alone; else 9, or what the test
 * wants. */
static int play_explain(const char *path)
{
    char line[512];
    int n_lines = 0, n_faults = 0;
    FILE *log = fopen(path, "r");
    const char *wanted = getenv("BENCH_TEST_STATUS");
    while (log != NULL && fgets(line, sizeof line, log) != NULL) {
        n_lines++;
        n_faults += strstr(line, "Assertion `srcIndex < srcSelectDimSize` failed.") != NULL;
    }
    if (log != NULL)
        fclose(log);
    if (wanted != NULL)
        return atoi(wanted);
    return n_lines >= 1000 && (n_faults == n_lines || n_faults == n_lines / 1000) ? 1 : 9;
}

static void figures_come_of_logs_with_a_fault_on_each_thousandth_line(void **state)
{
    (void)state;
    bl_bench_explain e = {0};
    bl_error error = {0};
    assert_int_equal(bl_bench_explain_run(1, &e, &error), BELAY_OK);
    assert_true(e.bytes_per_second > 0 && e.share > 0 && e.small_seconds > 0 && e.faults_per_second > 0);
    assert_true(e.memory > 1 << 16);
}

static void an_explain_that_finds_nothing_is_told(void **state)
{
    (void)state;
    bl_bench_explain e = {0};
    bl_error error = {0};
    setenv("BENCH_TEST_STATUS", "0", 1);
    assert_int_equal(bl_bench_explain_run(1, &e, &error), BELAY_BUG_INVARIANT);
    unsetenv("BENCH_TEST_STATUS");
    assert_string_equal(error.what, "belay explain did not find the fault in a log: wait status 0");
}

static void a_folder_that_is_not_there_and_one_without_room_are_named(void **state)
{
    (void)state;
    bl_bench_explain e = {0};
    bl_error error = {0};
    setenv("TMPDIR", "/no/such", 1);
    assert_int_equal(bl_bench_explain_run(1, &e, &error), BELAY_FILE_WRITE);
    assert_string_equal(error.what, "cannot make a log of 1048576 bytes in /no/such: No such file or directory");
    assert_string_equal(error.advice, "Set TMPDIR to a folder with room, or give a smaller --log-mib.");

    struct rlimit was, small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setenv("TMPDIR", "/tmp", 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    belay_code code = bl_bench_explain_run(2, &e, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    unsetenv("TMPDIR");
    assert_int_equal(code, BELAY_FILE_WRITE);
    assert_string_equal(error.what, "cannot write a log of 2097152 bytes in /tmp: File too large");
}

/* ---- ranks ----------------------------------------------------------------------------------------------------------- */

/* What rank 0 prints, or what the test wants of it. */
static int play_rank(const char *job)
{
    const char *wanted = getenv("BENCH_TEST_RANK");
    if (wanted != NULL)
        return puts(wanted) < 0 || strncmp(wanted, "belay: ", 7) == 0 ? 3 : 0;
    if (strcmp(job, "--rank-of=pair") != 0)
        return 9;
    puts("noise pair_seconds 9\npair_seconds 0.5\nalone_seconds 0.25\nagreement_seconds 0.001");
    return 0;
}

/* PATH is a folder with an mpirun that starts one rank, this program. */
static void with_launcher(char folder[64])
{
    char path[128];
    snprintf(folder, 64, "/tmp/belay-bench-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/mpirun", folder);
    FILE *script = fopen(path, "w");
    assert_non_null(script);
    fputs("#!/bin/sh\nshift 4\nexec \"$@\"\n", script);
    assert_int_equal(fclose(script), 0);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(setenv("PATH", folder, 1), 0);
}

static void without_launcher(const char *folder)
{
    char path[128];
    snprintf(path, sizeof path, "%s/mpirun", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void figures_come_of_what_the_ranks_print(void **state)
{
    (void)state;
    char folder[64];
    bl_bench_pair p;
    bl_error error = {0};
    with_launcher(folder);
    assert_int_equal(bl_bench_pair_run(2, &p, &error), BELAY_OK);
    assert_string_equal(p.skipped, "");
    assert_float_equal(p.seconds, 0.5, 0);
    assert_float_equal(p.alone_seconds, 0.25, 0);
    assert_float_equal(p.agreement_seconds, 0.001, 0);
    without_launcher(folder);
}

static void ranks_that_fail_or_say_nothing_are_told(void **state)
{
    (void)state;
    char folder[64];
    bl_bench_pair p;
    bl_error error = {0};
    with_launcher(folder);
    setenv("BENCH_TEST_RANK", "belay: rank 1 is gone (comm.peer)", 1);
    assert_int_equal(bl_bench_pair_run(2, &p, &error), BELAY_BUG_INVARIANT);
    assert_string_equal(error.what, "two ranks on this host failed: wait status 768");
    assert_string_equal(error.facts, "it said: belay: rank 1 is gone (comm.peer)\n");
    error = (bl_error){0};
    setenv("BENCH_TEST_RANK", "pair_seconds 1", 1);
    assert_int_equal(bl_bench_pair_run(2, &p, &error), BELAY_BUG_INVARIANT);
    assert_string_equal(error.what, "ranks did not say alone_seconds");
    assert_string_equal(error.facts, "it said: pair_seconds 1\n");
    unsetenv("BENCH_TEST_RANK");
    without_launcher(folder);
}

static void what_cannot_be_started_is_skipped_by_name(void **state)
{
    (void)state;
    bl_bench_pair p;
    bl_bench_wire w;
    bl_error error = {0};
    setenv("PATH", "/no/such", 1);
    assert_int_equal(bl_bench_pair_run(2, &p, &error), BELAY_OK);
    assert_string_equal(p.skipped, "mpirun is not on PATH");
    assert_int_equal(bl_bench_wire_run(2, &w, &error), BELAY_OK);
    assert_string_equal(w.skipped, geteuid() == 0 ? "mpirun is not on PATH" : "only root makes network namespaces");
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "bench") == 0)
        return play_rank(argv[2]);
    if (argc == 3 && strcmp(argv[1], "explain") == 0)
        return play_explain(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_come_of_logs_with_a_fault_on_each_thousandth_line),
        cmocka_unit_test(an_explain_that_finds_nothing_is_told),
        cmocka_unit_test(a_folder_that_is_not_there_and_one_without_room_are_named),
        cmocka_unit_test(figures_come_of_what_the_ranks_print),
        cmocka_unit_test(ranks_that_fail_or_say_nothing_are_told),
        cmocka_unit_test(what_cannot_be_started_is_skipped_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
