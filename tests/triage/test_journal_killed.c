/* SPDX-License-Identifier: Apache-2.0 */
/* What belay explain tells of a process that was killed: the last launches of each stream, and what was in flight.  Each
 * process dies in a kernel, or at a place of its program, so that the same is in flight every time. */
#include "support/told.h"

#include <belay/devices.h>
#include <belay/kernel.h>
#include <belay/launch.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "triage/tell.h"

static char folder[64], journal_path[96];

static int make_folder(void **state)
{
    (void)state;
    static const char *const modes[] = {"BELAY_SIM_SEED", "BELAY_LAUNCH_BLOCKING", "BELAY_SYNC_DEBUG", "BELAY_MEMORY"};
    for (int i = 0; i < BL_COUNT(modes); i++)
        unsetenv(modes[i]);
    snprintf(folder, sizeof folder, "/tmp/belay-test-killed-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(journal_path, sizeof journal_path, "%s/journal", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(journal_path);
    return rmdir(folder);
}

/* ---- processes that die ---------------------------------------------------------------------------------------------- */

/* All that the program wants to launch has been put. */
static int is_put;

BELAY_KERNEL(dies, "*: x[N]! ->", work, i)
{
    (void)work, (void)i;
    while (__atomic_load_n(&is_put, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    kill(getpid(), SIGKILL);
}

static belay_tensor ones(belay_context *context, const char *site)
{
    belay_site_push(context, site);
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(8));
    belay_site_pop(context);
    return x;
}

static belay_tensor twice(belay_context *context, belay_tensor x, const char *site)
{
    belay_site_push(context, site);
    belay_tensor y = belay_affine(x, 2, 0);
    belay_site_pop(context);
    return y;
}

static void die_in_kernel(belay_context *context, belay_tensor x, const char *site)
{
    belay_site_push(context, site);
    belay_launch(context, &dies, &(belay_launch_options){.n_items = 1, .operand = {x}});
    belay_site_pop(context);
}

static belay_context *open_run(const char *device)
{
    return belay_open(&(belay_options){.device = device, .journal = journal_path, .threads = 1});
}

static void end_here(void)
{
    __atomic_store_n(&is_put, 1, __ATOMIC_RELEASE);
    for (;;)
        pause();
}

static void inside_of_a_kernel_on_cpu(void)
{
    belay_context *context = open_run("cpu");
    belay_tensor x = twice(context, ones(context, "train.c:1"), "train.c:2");
    is_put = 1;
    die_in_kernel(context, x, "train.c:3");
}

static void outside_of_a_kernel_on_cpu(void)
{
    belay_context *context = open_run("cpu");
    twice(context, ones(context, "train.c:1"), "train.c:2");
    kill(getpid(), SIGKILL);
}

/* The ring of the small build holds four launches, and no more may be in flight. */
#ifdef BELAY_SMALL
enum { N_BEHIND = 1 };
#else
enum { N_BEHIND = 5 };
#endif

/* Three streams of sim:0 have work: the default one has ended its own, `slow` is in a kernel, and the third waits for
 * that.  Of a fourth nothing is said. */
static void on_streams(void)
{
    belay_context *context = open_run("sim:0");
    twice(context, ones(context, "train.c:1"), "train.c:2");
    if (belay_synchronise(context) != BELAY_OK)
        _exit(1);
    belay_stream slow = belay_stream_open(context, "slow"), third = belay_stream_open(context, NULL);
    (void)belay_stream_open(context, "idle");
    (void)belay_stream_use(slow);
    belay_tensor x = ones(context, "train.c:3");
    die_in_kernel(context, x, "train.c:4");
    for (int i = 0; i < N_BEHIND; i++)
        twice(context, x, "train.c:5");
    (void)belay_stream_use(third);
    if (belay_stream_wait(third, belay_event_record(slow)) != BELAY_OK)
        _exit(1);
    twice(context, ones(context, "train.c:6"), "train.c:7");
    end_here();
}

/* One that is not in a kernel: how far its streams have got is a matter of the seed. */
static void seeded(void)
{
    setenv("BELAY_SIM_SEED", "11", 1);
    belay_context *context = open_run("sim:0");
    belay_stream side = belay_stream_open(context, "side");
    belay_tensor x = ones(context, "train.c:1");
    for (int i = 0; i < 10; i++)
        x = twice(context, x, "train.c:2");
    (void)belay_stream_use(side);
    for (int i = 0; i < 10; i++)
        ones(context, "train.c:3");
    kill(getpid(), SIGKILL);
}

static pid_t killed(void (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return child;
}

/* ---- what is told ---------------------------------------------------------------------------------------------------- */

/* Puts `with` where `what` stands. */
static void replace(char *text, const char *what, const char *with)
{
    size_t n = strlen(what), m = strlen(with);
    for (char *at = strstr(text, what); at != NULL; at = strstr(at + m, what)) {
        memmove(at + m, at + n, strlen(at + n) + 1);
        memcpy(at, with, m);
    }
}

/* The whole text, with what no two runs share replaced. */
static char *explained(pid_t pid)
{
    const char *const paths[] = {folder};
    bl_explain *explain = NULL;
    bl_error error = {0};
    bl_text text = {0};
    char number[32];
    assert_int_equal(bl_explain_run(&(bl_explain_options){.paths = paths, .n_paths = 1}, &explain, &error), BELAY_OK);
    bl_tell_text(explain, &text);
    bl_explain_free(explain);
    char *copy = strdup(bl_text_get(&text));
    bl_text_fini(&text);
    snprintf(number, sizeof number, "%d", (int)pid);
    replace(copy, folder, "RUN");
    replace(copy, number, "P");
    for (char *at = copy; (at = strstr(at, ", begun ")) != NULL; at += strlen(", begun T"))
        if (strstr(at, " UTC") != NULL)
            memmove(at + strlen(", begun T"), strstr(at, " UTC") + 4, strlen(strstr(at, " UTC") + 4) + 1);
    for (char *at = copy; (at = strstr(at, ", begun ")) != NULL; at++)
        at[strlen(", begun ")] = 'T';
    return copy;
}

static void expect_told(void (*body)(void), const char *expected)
{
    char *text = explained(killed(body));
    assert_string_equal(text, expected);
    free(text);
}

#define AT_START ", epoch 0, batch 0, step 0"

/* `last` is the last launch, `facts` what the verdict knows of it, `streams` the lines behind the journal's. */
#define TOLD(last, facts, streams)                                                                                     \
    "1 file, 0 lines\n\n"                                                                                              \
    "1. insufficient-evidence (insufficient)\n"                                                                        \
    "  There was a failure, but these logs do not tell which.\n"                                                       \
    "  why:\n"                                                                                                         \
    "    The process never closed its journal, and nothing here says why: it was ended from outside (SIGKILL, want\n"  \
    "    of memory, the time limit of a job, a machine that went down), or by a signal whose message is in none of\n"  \
    "    these files. The journal tells what it was doing.\n"                                                          \
    "  evidence:\n"                                                                                                    \
    "    RUN/journal\n"                                                                                                \
    "        | process P, begun T, never closed; its last launch was " last AT_START "\n"                              \
    "  facts:\n"                                                                                                       \
    "    pid = P\n" facts "  not this:\n"                                                                              \
    "    index-oob-embedding: the last launch is where it was, not what ended it; an index out of range would have\n"  \
    "    been named in faults.jsonl and on stderr.\n"                                                                  \
    "  next:\n"                                                                                                        \
    "    - give the output of the program and the kernel log, too: belay explain RUN train.log dmesg.txt\n"            \
    "    - dmesg -T | grep -i -E 'killed process|segfault|Xid'\n"                                                      \
    "    - belay run -- CMD keeps all of these the next time\n\n"                                                      \
    "journals:\n"                                                                                                      \
    "    RUN/journal: process P, begun T, never closed; its last launch was " last AT_START "\n" streams "\n"

#define LAST_FACTS(op, site, launch)                                                                                   \
    "    op = " op "\n"                                                                                                \
    "    site = " site "\n"                                                                                            \
    "    launch = " launch "\n"                                                                                        \
    "    epoch = 0\n"                                                                                                  \
    "    batch = 0\n"                                                                                                  \
    "    step = 0\n"

static void a_process_that_died_in_a_kernel_on_cpu_is_told_so(void **state)
{
    (void)state;
    expect_told(inside_of_a_kernel_on_cpu,
                TOLD("#3 dies at train.c:3",
                     LAST_FACTS("dies", "train.c:3", "3") "    stream = cpu\n"
                                                          "    launch_state = running\n"
                                                          "    first_in_flight = cpu: #3 dies at train.c:3" AT_START
                                                          ", running\n"
                                                          "    in_flight = 1\n",
                     "        cpu: inside of a kernel\n"
                     "            #1 fill at train.c:1" AT_START ": ended\n"
                     "            #2 affine at train.c:2" AT_START ": ended\n"
                     "            #3 dies at train.c:3" AT_START ": running\n"));
}

static void a_process_that_died_outside_of_a_kernel_is_told_so(void **state)
{
    (void)state;
    expect_told(outside_of_a_kernel_on_cpu, TOLD("#2 affine at train.c:2",
                                                 LAST_FACTS("affine", "train.c:2", "2") "    stream = cpu\n"
                                                                                        "    launch_state = ended\n"
                                                                                        "    in_flight = 0\n",
                                                 "        cpu: outside of a kernel\n"
                                                 "            #1 fill at train.c:1" AT_START ": ended\n"
                                                 "            #2 affine at train.c:2" AT_START ": ended\n"));
}

static void each_stream_is_told_with_what_was_in_flight_on_it(void **state)
{
    (void)state;
#ifdef BELAY_SMALL /* the ring has forgotten what ended first */
    expect_told(on_streams,
                TOLD("#7 affine at train.c:7",
                     LAST_FACTS("affine", "train.c:7",
                                "7") "    first_in_flight = sim:0, stream slow: #4 dies at train.c:4" AT_START
                                     ", running or next to run\n"
                                     "    stream = sim:0, stream 2\n"
                                     "    launch_state = queued\n"
                                     "    first_in_flight = sim:0, stream 2: #6 fill at train.c:6" AT_START ", queued\n"
                                     "    in_flight = 4\n",
                     "        sim:0, stream slow: 2 launches in flight\n"
                     "            #4 dies at train.c:4" AT_START ": running or next to run\n"
                     "            #5 affine at train.c:5" AT_START ": queued\n"
                     "        sim:0, stream 2: 2 launches and 1 other command (a copy or a wait) in flight\n"
                     "            #6 fill at train.c:6" AT_START ": queued\n"
                     "            #7 affine at train.c:7" AT_START ": queued\n"
                     "        of all streams: 4 launches and 1 other command (a copy or a wait) in flight\n"));
#else
    expect_told(on_streams,
                TOLD("#11 affine at train.c:7",
                     LAST_FACTS("affine", "train.c:7",
                                "11") "    first_in_flight = sim:0, stream slow: #4 dies at train.c:4" AT_START
                                      ", running or next to run\n"
                                      "    stream = sim:0, stream 2\n"
                                      "    launch_state = queued\n"
                                      "    first_in_flight = sim:0, stream 2: #10 fill at train.c:6" AT_START
                                      ", queued\n"
                                      "    in_flight = 8\n",
                     "        sim:0, default stream: nothing in flight\n"
                     "            #1 fill at train.c:1" AT_START ": ended\n"
                     "            #2 affine at train.c:2" AT_START ": ended\n"
                     "        sim:0, stream slow: 6 launches in flight\n"
                     "            #4 dies at train.c:4" AT_START ": running or next to run\n"
                     "            and 2 behind it, queued\n"
                     "            #7 affine at train.c:5" AT_START ": queued\n"
                     "            #8 affine at train.c:5" AT_START ": queued\n"
                     "            #9 affine at train.c:5" AT_START ": queued\n"
                     "        sim:0, stream 2: 2 launches and 1 other command (a copy or a wait) in flight\n"
                     "            #10 fill at train.c:6" AT_START ": queued\n"
                     "            #11 affine at train.c:7" AT_START ": queued\n"
                     "        of all streams: 8 launches and 1 other command (a copy or a wait) in flight\n"));
#endif
}

static void what_a_seeded_device_had_in_flight_is_the_same_each_time(void **state)
{
    (void)state;
    char *first = explained(killed(seeded)), *second = explained(killed(seeded));
    assert_string_equal(first, second);
    free(first);
    free(second);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(a_process_that_died_in_a_kernel_on_cpu_is_told_so),
        TEST(a_process_that_died_outside_of_a_kernel_is_told_so),
        TEST(each_stream_is_told_with_what_was_in_flight_on_it),
        TEST(what_a_seeded_device_had_in_flight_is_the_same_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
