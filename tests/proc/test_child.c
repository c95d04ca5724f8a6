/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one program, and the tree of what it starts. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/child.h"
#include "proc/reap.h"

static char sh[] = "sh", dash_c[] = "-c";

static pid_t start(char *script, const char *const *set, int n_set, int out)
{
    char *argv[] = {sh, dash_c, script, NULL};
    bl_child_spec spec = {.argv = argv, .set = set, .n_set = n_set, .in = -1, .out = out, .err = -1, .own_group = true};
    bl_error error = {0};
    pid_t pid;
    assert_int_equal(bl_child_start(&spec, &pid, &error), BELAY_OK);
    return pid;
}

static int end_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void expect_refusal(char *name, const char *what, const char *advice)
{
    char *argv[] = {name, NULL};
    bl_child_spec spec = {.argv = argv, .in = -1, .out = -1, .err = -1};
    bl_error error = {0};
    pid_t pid;
    assert_int_equal(bl_child_start(&spec, &pid, &error), BELAY_FILE_OPEN);
    assert_string_equal(error.what, what);
    assert_string_equal(bl_error_advice(&error), advice);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing was left behind */
}

static void child_that_cannot_be_started_is_an_error_by_name(void **state)
{
    (void)state;
    char unknown[] = "belay-no-such-program", path[] = "/etc/passwd", folder[] = "/tmp", empty[] = "",
         odd[] = "a\x1b[31mb c";
    const char *spelling = "Check the spelling and PATH; arguments are separate words, not one quoted text.";
    const char *program = "Check that the file is a program that you may execute.";
    expect_refusal(unknown, "cannot start 'belay-no-such-program': No such file or directory", spelling);
    expect_refusal(path, "cannot start '/etc/passwd': Permission denied", program);
    expect_refusal(folder, "cannot start '/tmp': Is a directory", program);
    expect_refusal(empty, "cannot start '': No such file or directory", spelling);
    expect_refusal(odd, "cannot start 'a\\x1B[31mb c': No such file or directory", spelling);
}

static void child_without_an_interpreter_is_an_error_by_name(void **state)
{
    (void)state;
    char path[] = "/tmp/belay-script-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "echo hi\n", 8) == 8 && fchmod(fd, 0700) == 0);
    close(fd);
    char what[128];
    snprintf(what, sizeof what, "cannot start '%s': Exec format error", path);
    expect_refusal(path, what, "A script needs a first line such as #!/bin/sh; a binary must be for this processor.");
    unlink(path);
}

static void child_sees_what_was_set_and_the_later_of_two(void **state)
{
    (void)state;
    int ends[2];
    bl_error error = {0};
    char words[64] = {0}, script[] = "echo $BELAY_A $BELAY_B $BELAY_C";
    const char *set[] = {"BELAY_A=1", "BELAY_B=2", "BELAY_B=3"};
    setenv("BELAY_A", "ours", 1);
    setenv("BELAY_C", "kept", 1);
    assert_int_equal(bl_child_pipe(ends, &error), BELAY_OK);
    pid_t pid = start(script, set, 3, ends[1]);
    assert_int_equal(end_of(pid), 0);
    assert_true(read(ends[0], words, sizeof words - 1) > 0);
    assert_string_equal(words, "1 3 kept\n");
    close(ends[0]);
    close(ends[1]);
}

/* What we inherited ourselves is kept from it first. */
static void child_is_given_three_descriptors_and_no_more(void **state)
{
    (void)state;
    int ends[2];
    bl_error error = {0};
    char words[256] = {0}, script[] = "ls /proc/$$/fd; exit 0";
    for (int fd = 3; fd < 1024; fd++)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    assert_int_equal(bl_child_pipe(ends, &error), BELAY_OK);
    assert_int_equal(end_of(start(script, NULL, 0, ends[1])), 0);
    assert_true(read(ends[0], words, sizeof words - 1) > 0);
    assert_string_equal(words, "0\n1\n2\n");
    close(ends[0]);
    close(ends[1]);
}

static void child_is_started_with_signals_as_a_program_expects_them(void **state)
{
    (void)state;
    char script[] = "kill -PIPE $$; exit 9";
    sigset_t set, old;
    sigfillset(&set);
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, &old);
    int status = end_of(start(script, NULL, 0, -1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGPIPE, before);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGPIPE);
}

static void signals_have_names(void **state)
{
    (void)state;
    char buffer[24];
    assert_string_equal(bl_signal_name(SIGSEGV, buffer), "SIGSEGV");
    assert_string_equal(bl_signal_name(SIGRTMIN + 3, buffer), "SIGRTMIN+3");
    assert_string_equal(bl_signal_name(99, buffer), "signal 99");
}

/* Waits until a line came. */
static void wait_line(int fd)
{
    char byte = 0;
    (void)fcntl(fd, F_SETFL, 0);
    while (byte != '\n' && read(fd, &byte, 1) == 1)
        continue;
}

static void tree_holds_a_process_that_left_its_group_and_session(void **state)
{
    (void)state;
    int ends[2];
    bl_error error = {0};
    bl_processes list;
    char script[] = "(setsid sh -c 'sleep 1000 & echo x; exec sleep 1000' &)";
    assert_int_equal(bl_reap_open(&error), BELAY_OK);
    assert_int_equal(bl_child_pipe(ends, &error), BELAY_OK);
    pid_t pid = start(script, NULL, 0, ends[1]);
    close(ends[1]);
    wait_line(ends[0]);
    assert_int_equal(end_of(pid), 0);
    assert_true(bl_processes_list(getpid(), &list));
    assert_int_equal(list.n, 2);
    assert_int_equal(list.process[0].parent, getpid());
    for (int i = 0; i < 2; i++)
        assert_true(bl_process_is_below_us(list.process[i].pid));
    assert_false(bl_process_is_below_us(getpid()));
    assert_false(bl_process_is_below_us(getppid()));
    assert_false(bl_process_is_below_us(pid));
    bl_processes_fini(&list);
    assert_int_equal(bl_reap_signal(SIGKILL), 2);
    int n = 0;
    while (waitpid(-1, NULL, 0) > 0)
        n++;
    assert_int_equal(n, 2);
    assert_int_equal(bl_reap_signal(SIGKILL), 0);
    close(ends[0]);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void process_of_any_name_is_read(void **state)
{
    (void)state;
    bl_process self;
    char before[16] = {0};
    (void)prctl(PR_GET_NAME, before);
    (void)prctl(PR_SET_NAME, "a) R 1 (b");
    bool found = bl_process_get(getpid(), &self);
    (void)prctl(PR_SET_NAME, before);
    assert_true(found);
    assert_string_equal(self.name, "a) R 1 (b");
    assert_int_equal(self.parent, getppid());
    assert_int_equal(self.state, 'R');
    assert_false(bl_process_get(0x7FFFFFFF, &self));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_that_cannot_be_started_is_an_error_by_name),
        cmocka_unit_test(child_without_an_interpreter_is_an_error_by_name),
        cmocka_unit_test(child_sees_what_was_set_and_the_later_of_two),
        cmocka_unit_test(child_is_given_three_descriptors_and_no_more),
        cmocka_unit_test(child_is_started_with_signals_as_a_program_expects_them),
        cmocka_unit_test(signals_have_names),
        cmocka_unit_test(tree_holds_a_process_that_left_its_group_and_session),
        cmocka_unit_test(process_of_any_name_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
