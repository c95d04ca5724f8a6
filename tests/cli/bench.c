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

#include <cmocka.h>

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

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "explain") == 0)
        return play_explain(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_come_of_logs_with_a_fault_on_each_thousandth_line),
        cmocka_unit_test(an_explain_that_finds_nothing_is_told),
        cmocka_unit_test(a_folder_that_is_not_there_and_one_without_room_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
