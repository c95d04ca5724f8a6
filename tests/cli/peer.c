/* SPDX-License-Identifier: Apache-2.0 */
/* The peer of `belay bench`, played by shell scripts: what it answers is used, and whatever it does, bench goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cli/bench_peer.h"

static char folder[] = "/tmp/belay-peer-XXXXXX";
static char program[64];

/* An interpreter that does that, whatever script it is given. */
static const char *interpreter(const char *body)
{
    FILE *file = fopen(program, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", body);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(program, 0700), 0);
    return program;
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(program, sizeof program, "%s/python", folder);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    return remove(program) == 0 && rmdir(folder) == 0 ? 0 : -1;
}

static void fastest_setting_of_threads_is_kept(void **state)
{
    (void)state;
    /* 8 s, less with threads of its own, more with those of its BLAS */
    bl_peer *peer = bl_peer_open(interpreter("echo torch 9.8.7; while read job threads steps; do "
                                             "echo $((8 - 2 * threads + 4 * (OPENBLAS_NUM_THREADS - 1))); done"),
                                 0);
    assert_string_equal(bl_peer_version(peer), "9.8.7");
    assert_string_equal(bl_peer_choose(peer, "demo", 2, 1), "2 threads, 1 of its BLAS");
    assert_true(bl_peer_seconds(peer, 3) == 4);
    assert_string_equal(bl_peer_choose(peer, "demo", 1, 1), "1 thread, 1 of its BLAS");
    assert_true(bl_peer_seconds(peer, 3) == 6);
    bl_peer_close(peer);
}

static void without_a_peer_the_reason_is_told(void **state)
{
    (void)state;
    char want[256];
    bl_peer *peer = bl_peer_open("/nonesuch/python", 0);
    assert_null(bl_peer_version(peer));
    assert_string_equal(bl_peer_why(peer), "cannot start '/nonesuch/python': No such file or directory");
    assert_null(bl_peer_choose(peer, "demo", 2, 1));
    bl_peer_close(peer);
    peer = bl_peer_open(interpreter("echo none No module named torch"), 0);
    snprintf(want, sizeof want, "%s: No module named torch", program);
    assert_string_equal(bl_peer_why(peer), want);
    bl_peer_close(peer);
    peer = bl_peer_open(interpreter("exit 3"), 0);
    snprintf(want, sizeof want, "%s ended without an answer", program);
    assert_string_equal(bl_peer_why(peer), want);
    bl_peer_close(peer);
    peer = bl_peer_open(interpreter("head -c 100000 /dev/zero | tr '\\0' x"), 0);
    snprintf(want, sizeof want, "%s ended without an answer", program);
    assert_string_equal(bl_peer_why(peer), want);
    bl_peer_close(peer);
}

static void answers_that_are_no_seconds_are_none(void **state)
{
    (void)state;
    bl_peer *peer = bl_peer_open(interpreter("echo torch 1; while read line; do echo nonsense; done"), 0);
    assert_null(bl_peer_choose(peer, "demo", 2, 1));
    bl_peer_close(peer);
    peer = bl_peer_open(interpreter("echo torch 1; read line; echo -1; read line; echo nan; exit 0"), 0);
    assert_null(bl_peer_choose(peer, "demo", 2, 1));
    bl_peer_close(peer);
    peer = bl_peer_open(interpreter("echo torch 1; read line; echo 2; exit 0"), 0);
    assert_string_equal(bl_peer_choose(peer, "demo", 2, 1), "1 thread, 1 of its BLAS");
    assert_true(bl_peer_seconds(peer, 1) == 0); /* it has ended */
    bl_peer_close(peer);
    bl_peer_close(NULL);
}

/* One that waits for ever: it costs its time once, is named, and the other settings are still tried. */
static void one_that_does_not_answer_is_ended_and_named(void **state)
{
    (void)state;
    char want[256];
    const int patience_ms = 100;
    bl_peer *peer = bl_peer_open(interpreter("exec tail -f /dev/null"), patience_ms);
    assert_null(bl_peer_version(peer));
    snprintf(want, sizeof want, "%s did not answer in 0.1 s", program);
    assert_string_equal(bl_peer_why(peer), want);
    assert_null(bl_peer_choose(peer, "demo", 2, 1));
    bl_peer_close(peer);

    peer = bl_peer_open(interpreter("echo torch 1; read line; [ $OPENBLAS_NUM_THREADS = 2 ] || exec tail -f /dev/null; "
                                    "echo 3; read line; echo 2; exec tail -f /dev/null"),
                        2000);
    assert_string_equal(bl_peer_version(peer), "1");
    assert_string_equal(bl_peer_choose(peer, "demo", 2, 1), "2 threads, 2 of its BLAS");
    snprintf(want, sizeof want, "%s did not answer in 2 s", program);
    assert_string_equal(bl_peer_why(peer), want);
    bl_peer_close(peer);
}

/* A byte now and then is no answer: the deadline is that of the whole line. */
static void drops_of_an_answer_do_not_move_its_deadline(void **state)
{
    (void)state;
    char want[256];
    int64_t begin = bl_clock_now();
    bl_peer *peer = bl_peer_open(interpreter("while printf .; do sleep 0.05; done"), 1000);
    snprintf(want, sizeof want, "%s did not answer in 1 s", program);
    assert_string_equal(bl_peer_why(peer), want);
    assert_true(bl_clock_now() - begin < 10 * (int64_t)1000000000);
    bl_peer_close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fastest_setting_of_threads_is_kept),
        cmocka_unit_test(without_a_peer_the_reason_is_told),
        cmocka_unit_test(answers_that_are_no_seconds_are_none),
        cmocka_unit_test(one_that_does_not_answer_is_ended_and_named),
        cmocka_unit_test(drops_of_an_answer_do_not_move_its_deadline),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
