/* SPDX-License-Identifier: Apache-2.0 */
/* The loop, on real children that fail: signals, exit codes, no memory, hangs, stops, ranks that die, children that
 * detach, floods of output, full disks.  Scripts wait for what they need; nothing here waits for a time to pass but where
 * the passing of time is what is tested. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "proc/child.h"
#include "proc/reap.h"
#include "proc/supervise.h"

#define SECOND INT64_C(1000000000)

static char folder[64], sh[] = "sh", dash_c[] = "-c";
static int nothing = -1;
static bl_text events;
static bl_supervise *run;

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/belay-supervise-XXXXXX");
    nothing = open("/dev/null", O_WRONLY);
    bl_text_clear(&events);
    return mkdtemp(folder) == NULL || nothing < 0;
}

static int finish(void **state)
{
    (void)state;
    char path[400];
    bl_supervise_close(run);
    run = NULL;
    close(nothing);
    bl_text_fini(&events);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 0);
    DIR *files = opendir(folder);
    for (struct dirent *entry; files != NULL && (entry = readdir(files)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    if (files != NULL)
        closedir(files);
    return rmdir(folder);
}

static void remember(void *state, const bl_supervise *s, const bl_supervise_event *e)
{
    static const char *const names[] = {"stopped", "continued",      "failed",      "terminating",
                                        "killing", "capture failed", "view failed", "silent"};
    bool *resumes = state;
    if (e->kind == BL_EVENT_STOPPED && resumes != NULL)
        (void)kill(bl_supervise_rank(s, e->rank)->pid, SIGCONT);
    bl_text_format(&events, "%s rank %d number %d\n", names[e->kind], e->rank, e->number);
}

static bl_supervise_options options(int n_ranks)
{
    return (bl_supervise_options){.n_ranks = n_ranks,
                                  .ranked = n_ranks > 1,
                                  .port = 29500,
                                  .folder = folder,
                                  .log_limit = 1 << 20,
                                  .grace = 20 * SECOND,
                                  .in = -1,
                                  .view_out = nothing,
                                  .view_err = nothing,
                                  .tell = remember};
}

/* Runs a script of sh, and proves that nothing is left of it. */
static void supervise(bl_supervise_options *o, const char *script)
{
    char *argv[] = {sh, dash_c, (char *)(uintptr_t)script, NULL};
    bl_error error = {0};
    bl_processes list;
    o->argv = argv;
    assert_int_equal(bl_supervise_run(o, &run, &error), BELAY_OK);
    assert_true(bl_processes_list(getpid(), &list));
    assert_int_equal(list.n, 0);
    bl_processes_fini(&list);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static const bl_rank_facts *rank(int i) { return bl_supervise_rank(run, i); }

/* A file of the folder, at most so much of it. */
static const char *text_of(const char *name)
{
    static char bytes[65536];
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    size_t n = file != NULL ? fread(bytes, 1, sizeof bytes - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    bytes[n] = '\0';
    return bytes;
}

/* ---- one program ------------------------------------------------------------------------------------------------------------- */

static void program_that_ends_well_is_no_failure(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    supervise(&o, "echo said; echo cried >&2; echo RANK=$RANK");
    assert_int_equal(bl_supervise_status(run), 0);
    assert_int_equal(bl_supervise_facts_get(run)->first_failed, -1);
    assert_string_equal(text_of("program.stdout.log"), "said\nRANK=\n");
    assert_string_equal(text_of("program.stderr.log"), "cried\n");
    assert_int_equal(rank(0)->stream[0].n_bytes, 11);
    assert_string_equal(bl_text_get(&events), "");
}

static void exit_codes_and_signals_are_told_as_a_shell_does(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int status, signal;
    } cases[] = {
        {"exit 3", 3, 0},
        {"exit 255", 255, 0},
        {"kill -SEGV $$", 128 + SIGSEGV, SIGSEGV},
        {"kill -ABRT $$", 128 + SIGABRT, SIGABRT},
        {"kill -KILL $$", 128 + SIGKILL, SIGKILL},
    };
    for (int i = 0; i < BL_COUNT(cases); i++) {
        bl_supervise_options o = options(1);
        bl_supervise_close(run);
        bl_text_clear(&events);
        supervise(&o, cases[i].script);
        assert_int_equal(bl_supervise_status(run), cases[i].status);
        assert_int_equal(rank(0)->signal, cases[i].signal);
        assert_int_equal(rank(0)->asked, 0);
        assert_string_equal(bl_text_get(&events), "failed rank 0 number 0\n");
    }
}

static void core_file_of_a_crash_is_found(void **state)
{
    (void)state;
    struct rlimit core;
    bl_core found;
    char here[4096], name[32], path[1024];
    bl_core_find(getpid(), "sh", 0, &found);
    assert_int_equal(getrlimit(RLIMIT_CORE, &core), 0);
    if (core.rlim_max == 0 || strcmp(found.pattern, "core") != 0) {
        print_message("skipped: core files need a limit and kernel.core_pattern core\n");
        skip();
    }
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    bl_supervise_options o = options(1);
    o.core = true;
    supervise(&o, "kill -SEGV $$");
    bl_core_find(rank(0)->pid, "sh", bl_supervise_facts_get(run)->started_wall, &found);
    assert_int_equal(chdir(here), 0);
    snprintf(name, sizeof name, "core.%d", (int)rank(0)->pid);
    assert_true(rank(0)->core_dumped);
    assert_true(found.is_file);
    assert_true(strcmp(found.where, "core") == 0 || strcmp(found.where, name) == 0);
    snprintf(path, sizeof path, "%s/%s", folder, found.where);
    assert_int_equal(unlink(path), 0);
}

static void program_without_memory_fails_by_itself(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    supervise(&o, "ulimit -v 65536; exec dd if=/dev/zero of=/dev/null bs=1G count=1");
    assert_int_equal(bl_supervise_status(run), 1);
    assert_non_null(strstr(text_of("program.stderr.log"), "memory exhausted"));
    assert_false(rank(0)->out_of_memory);
}

/* Version 1 or 2 of control groups, where we may make one. */
static bool make_group(char path[128])
{
    static const struct {
        const char *parent, *limit;
    } kinds[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}};
    for (int i = 0; i < BL_COUNT(kinds); i++) {
        char file[200];
        snprintf(path, 128, "%s/belay-test-%d", kinds[i].parent, (int)getpid());
        if (mkdir(path, 0777) != 0)
            continue;
        snprintf(file, sizeof file, "%s/%s", path, kinds[i].limit);
        int fd = open(file, O_WRONLY);
        if (fd >= 0 && write(fd, "33554432", 8) == 8) {
            close(fd);
            return true;
        }
        if (fd >= 0)
            close(fd);
        (void)rmdir(path);
    }
    return false;
}

static void program_that_the_kernel_kills_for_memory_is_told_as_such(void **state)
{
    (void)state;
    char path[128], script[1024];
    if (!make_group(path)) {
        print_message("skipped: making a control group needs root\n");
        skip();
    }
    bl_supervise_options o = options(1);
    snprintf(script, sizeof script, "echo $$ >%s/cgroup.procs || exit 9; exec tail /dev/zero", path);
    supervise(&o, script);
    (void)rmdir(path);
    const bl_supervise_facts *facts = bl_supervise_facts_get(run);
    assert_int_equal(rank(0)->signal, SIGKILL);
    assert_int_equal(rank(0)->asked, 0);
    assert_true(facts->kills.in_machine >= 1);
    if (facts->kernel_log->why[0] == '\0') {
        assert_true(rank(0)->out_of_memory);
        assert_true(facts->kernel_log->is_ours[0]);
        assert_true(facts->kernel_log->n_lines > 0);
        assert_non_null(strstr(text_of("kernel.log"), "out of memory: Killed process"));
    }
}

/* The kernel's log is either there, or it is said why not. */
static void kernel_log_is_kept_or_its_absence_told(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    supervise(&o, "exit 0");
    const bl_kernel_log *log = bl_supervise_facts_get(run)->kernel_log;
    struct stat status;
    char path[128];
    snprintf(path, sizeof path, "%s/kernel.log", folder);
    if (log->why[0] == '\0')
        assert_int_equal(stat(path, &status), 0);
    else
        assert_memory_equal(log->why, "no kernel log available: /dev/kmsg: ", 36);
}

/* ---- many ranks --------------------------------------------------------------------------------------------------------------- */

static void ranks_are_told_who_they_are(void **state)
{
    (void)state;
    bl_supervise_options o = options(3);
    supervise(&o, "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT");
    assert_string_equal(text_of("rank0.stdout.log"), "0 0 3 3 localhost 29500\n");
    assert_string_equal(text_of("rank2.stdout.log"), "2 2 3 3 localhost 29500\n");
}

/* The others are asked to end once their time is over; the status is that of the rank that failed first. */
static void rank_that_dies_among_four_is_named_and_the_others_end(void **state)
{
    (void)state;
    bl_supervise_options o = options(4);
    o.grace = SECOND / 10;
    supervise(&o, "test $RANK = 2 && kill -SEGV $$; exec sleep 1000");
    assert_int_equal(bl_supervise_facts_get(run)->first_failed, 2);
    assert_int_equal(bl_supervise_status(run), 128 + SIGSEGV);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rank(i)->signal, i == 2 ? SIGSEGV : SIGTERM);
        assert_int_equal(rank(i)->asked, i == 2 ? 0 : SIGTERM);
    }
    assert_string_equal(bl_text_get(&events), "failed rank 2 number 0\nterminating rank 0 number 3\n");
}

/* Rank 1 fails only once rank 0 ignores the signal. */
static void ranks_that_ignore_sigterm_are_killed(void **state)
{
    (void)state;
    char script[1024];
    bl_supervise_options o = options(2);
    o.grace = SECOND / 10;
    snprintf(script, sizeof script,
             "test $RANK = 0 && { trap '' TERM; echo x >%s/ready; while :; do sleep 1000; done; }; until test -s "
             "%s/ready; do :; done; exit 4",
             folder, folder);
    supervise(&o, script);
    assert_int_equal(bl_supervise_status(run), 4);
    assert_int_equal(rank(0)->signal, SIGKILL);
    assert_int_equal(rank(0)->asked, SIGKILL);
}

/* Rank 0 goes on until rank 1 is gone. */
static void rank_that_ends_well_leaves_the_others_alone(void **state)
{
    (void)state;
    char script[1024];
    bl_supervise_options o = options(2);
    o.grace = 0;
    snprintf(script, sizeof script,
             "test $RANK = 1 && { echo $$ >%s/pid; exit 0; }; until test -s %s/pid; do :; done; while kill -0 $(cat "
             "%s/pid) 2>/dev/null; do :; done; exit 0",
             folder, folder, folder);
    supervise(&o, script);
    assert_int_equal(bl_supervise_status(run), 0);
    assert_string_equal(bl_text_get(&events), "");
}

/* Each rank ends once the next one has, so that the last is the first to fail. */
static void order_of_deaths_is_the_order_told(void **state)
{
    (void)state;
    char script[1024];
    bl_supervise_options o = options(4);
    snprintf(script, sizeof script,
             "cd %s; echo $$ >pid$RANK; next=$((RANK + 1)); test $next = 4 || { until test -s pid$next; do :; done; "
             "while kill -0 $(cat pid$next) 2>/dev/null; do :; done; }; exit $((10 + RANK))",
             folder);
    supervise(&o, script);
    assert_int_equal(bl_supervise_facts_get(run)->first_failed, 3);
    assert_int_equal(bl_supervise_status(run), 13);
    assert_true(rank(3)->ended <= rank(2)->ended && rank(2)->ended <= rank(1)->ended);
}

/* ---- signals ------------------------------------------------------------------------------------------------------------------- */

static int n_looks;

static void end_it(void *state, bl_supervise *s)
{
    (void)state;
    if (++n_looks == 3 || bl_supervise_rank(s, 0)->stopped != 0)
        bl_supervise_end(s, 20 * SECOND);
}

static void owner_that_looks_ends_the_run(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    n_looks = 0;
    o.name = "rank7";
    o.no_kernel_log = true;
    o.watch = (bl_supervise_watch){.look = end_it, .look_every = SECOND / 100};
    supervise(&o, "echo said; exec sleep 1000");
    assert_int_equal(n_looks >= 3, true);
    assert_int_equal(rank(0)->signal, SIGTERM);
    assert_int_equal(rank(0)->asked, SIGTERM);
    assert_int_equal(rank(0)->held, 0);
    assert_string_equal(text_of("rank7.stdout.log"), "said\n");
}

static void what_had_stopped_a_rank_that_is_ended_is_kept(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    n_looks = 3; /* only the stop ends it */
    o.watch = (bl_supervise_watch){.look = end_it, .look_every = SECOND / 100};
    supervise(&o, "kill -STOP $$; exec sleep 1000");
    assert_int_equal(rank(0)->signal, SIGTERM);
    assert_int_equal(rank(0)->held, SIGSTOP);
    assert_true(rank(0)->held_since > rank(0)->started);
}

static bool stop_otherwise(void *state, bl_supervise *s, int number)
{
    (void)s;
    *(int *)state = number;
    return kill(bl_supervise_rank(s, 0)->pid, SIGUSR1) == 0;
}

static void owner_that_stops_the_ranks_itself_has_nothing_forwarded(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    int number = 0;
    o.watch = (bl_supervise_watch){.stop = stop_otherwise, .state = &number};
    supervise(&o, "trap 'exit 7' USR1; trap 'exit 8' TERM; kill -TERM $PPID; while :; do :; done");
    assert_int_equal(number, SIGTERM);
    assert_int_equal(rank(0)->status, 7);
    assert_int_equal(bl_supervise_facts_get(run)->stop_signal, SIGTERM);
}

static void lines_of_a_launcher_are_taken_apart(void **state)
{
    (void)state;
    int ends[2];
    char came[256];
    assert_int_equal(pipe(ends), 0);
    bl_supervise_options o = options(1);
    o.n_marked = 2;
    o.plain_first = true;
    o.name = "mpirun";
    o.view_out = ends[1];
    supervise(&o, "printf '\\0361\\037one\\nnoise\\n\\0360\\037zero\\n\\0369\\037none\\nlast'");
    ssize_t n = read(ends[0], came, sizeof came - 1);
    came[n > 0 ? n : 0] = '\0';
    assert_string_equal(came, "[rank1]: one\nzero\n");
    assert_string_equal(text_of("mpirun.stdout.log"), "noise\n\x1e"
                                                      "9\x1fnone\nlast");
    close(ends[0]);
    close(ends[1]);
}

static void stop_and_continuation_of_a_rank_are_told(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    bool resumes = true;
    o.state = &resumes;
    supervise(&o, "kill -STOP $$; exit 0");
    assert_int_equal(bl_supervise_status(run), 0);
    assert_int_equal(rank(0)->n_stops, 1);
    assert_int_equal(rank(0)->stopped, 0);
    char expected[128];
    snprintf(expected, sizeof expected, "stopped rank 0 number %d\ncontinued rank 0 number 0\n", SIGSTOP);
    assert_string_equal(bl_text_get(&events), expected);
}

/* The script interrupts its supervisor, which is this process. */
static void interrupt_reaches_all_ranks_and_leaves_nothing(void **state)
{
    (void)state;
    bl_supervise_options o = options(2);
    char script[1024];
    snprintf(
        script, sizeof script,
        "trap 'echo got it; exit 7' INT; (exec sleep 1000) & echo x >%s/ready$RANK; test $RANK = 0 && { until test "
        "-s %s/ready1; do :; done; kill -INT $PPID; }; while :; do sleep 0.02; done",
        folder, folder);
    supervise(&o, script);
    assert_int_equal(bl_supervise_facts_get(run)->stop_signal, SIGINT);
    assert_int_equal(bl_supervise_status(run), 7);
    assert_string_equal(text_of("rank0.stdout.log"), "got it\n");
    assert_string_equal(text_of("rank1.stdout.log"), "got it\n");
    assert_int_equal(rank(1)->asked, SIGINT);
}

static void program_that_ignores_the_interrupt_is_killed_after_grace(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    o.grace = SECOND / 10;
    supervise(&o, "trap '' INT TERM; (trap '' INT TERM; while :; do sleep 1000; done) & kill -INT $PPID; "
                  "while :; do sleep 1000; done");
    assert_int_equal(rank(0)->signal, SIGKILL);
    assert_int_equal(bl_supervise_status(run), 137);
    assert_memory_equal(bl_text_get(&events), "killing rank 0 number ", 22);
    assert_int_equal(rank(0)->asked, SIGKILL);
}

static void second_interrupt_kills_at_once(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    o.grace = 1000 * SECOND;
    supervise(&o, "trap '' INT; kill -INT $PPID; while :; do sleep 0.3; kill -INT $PPID; done");
    assert_int_equal(rank(0)->signal, SIGKILL);
}

static void stopped_program_can_be_ended(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    supervise(&o, "me=$$; (until test \"$(cut -d' ' -f3 /proc/$me/stat)\" = T; do :; done; kill -TERM $PPID) & "
                  "kill -STOP $$; while :; do sleep 1000; done");
    assert_int_equal(bl_supervise_facts_get(run)->stop_signal, SIGTERM);
    assert_int_equal(rank(0)->signal, SIGTERM);
}

static void program_that_stops_when_it_is_asked_to_end_is_continued(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    o.grace = 1000 * SECOND;
    supervise(&o, "trap 'kill -STOP $$; exit 7' TERM; kill -TERM $PPID; while :; do sleep 0.01; done");
    assert_int_equal(rank(0)->signal, 0);
    assert_int_equal(rank(0)->status, 7);
}

static void other_signals_are_handed_on(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    supervise(&o, "trap 'echo usr1; exit 0' USR1; trap 'echo hup; kill -USR1 $PPID' HUP; trap 'echo winch; kill -HUP "
                  "$PPID' WINCH; kill -WINCH $PPID; while :; do sleep 0.02; done");
    assert_int_equal(bl_supervise_status(run), 0);
    assert_string_equal(text_of("program.stdout.log"), "winch\nhup\nusr1\n");
}

/* ---- what is left behind -------------------------------------------------------------------------------------------------------- */

static void child_that_detaches_is_ended_and_told(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    o.grace = SECOND / 10;
    supervise(&o, "(setsid sh -c 'setsid sleep 1000 & trap \"\" TERM; while :; do sleep 1000; done' &); exit 5");
    const bl_supervise_facts *facts = bl_supervise_facts_get(run);
    assert_int_equal(bl_supervise_status(run), 5);
    assert_int_equal(facts->n_left, 3);
    assert_non_null(strstr(facts->left[0], " s"));
}

static void child_that_ends_by_itself_is_waited_for_and_not_told(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    supervise(&o, "me=$$; (while kill -0 $me 2>/dev/null; do :; done; echo last) & exit 0");
    assert_int_equal(bl_supervise_facts_get(run)->n_left, 0);
    assert_string_equal(text_of("program.stdout.log"), "last\n");
    assert_string_equal(bl_text_get(&events), "");
}

/* Our own death by SIGKILL takes the ranks along. */
static void death_of_the_supervisor_ends_the_ranks(void **state)
{
    (void)state;
    int ends[2];
    bl_error error = {0};
    char script[1024], byte = 0;
    assert_int_equal(bl_child_pipe(ends, &error), BELAY_OK);
    assert_int_equal(fcntl(ends[0], F_SETFL, 0), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bl_supervise_options o = options(1);
        char *argv[] = {sh, dash_c, script, NULL};
        snprintf(script, sizeof script, "echo x >&%d; exec sleep 1000", ends[1]);
        (void)fcntl(ends[1], F_SETFD, 0);
        o.argv = argv;
        (void)!bl_supervise_run(&o, &run, &error);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    while (read(ends[0], &byte, 1) == 1) /* its end comes when the program is gone */
        continue;
    close(ends[0]);
}

/* ---- silence ------------------------------------------------------------------------------------------------------------------------ */

static void silent_run_gets_the_stacks_of_all_ranks(void **state)
{
    (void)state;
    bl_supervise_options o = options(2);
    char script[1024];
    o.quiet = SECOND / 5;
    o.grace = 0;
    snprintf(script, sizeof script,
             "echo step $RANK; test $RANK = 1 && exec sleep 1000; until test -s %s/silence_1.txt; do :; done; exit 9",
             folder);
    supervise(&o, script);
    const char *stacks = text_of("silence_1.txt");
    char expected[64];
    assert_int_equal(bl_supervise_facts_get(run)->n_silences, 1);
    snprintf(expected, sizeof expected, "rank 1: process %d sleep, state S, 1 threads\n", (int)rank(1)->pid);
    assert_non_null(strstr(stacks, expected));
    snprintf(expected, sizeof expected, "rank 0: process %d sh, state ", (int)rank(0)->pid);
    assert_non_null(strstr(stacks, expected));
    assert_non_null(strstr(stacks, "\n    wchan: "));
    assert_true(rank(0)->cores >= 0);
    assert_true(rank(1)->cores >= 0 && rank(1)->cores < 0.05);
    assert_non_null(strstr(bl_text_get(&events), "silent rank 0 number 1\n"));
}

static void gdb_that_is_absent_is_told_and_does_no_harm(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    char script[1024];
    o.quiet = SECOND / 10;
    o.gdb = "/belay-no-such-gdb";
    snprintf(script, sizeof script, "until grep -q 'cannot start' %s/silence_1.txt 2>/dev/null; do :; done", folder);
    supervise(&o, script);
    assert_int_equal(bl_supervise_status(run), 0);
    assert_non_null(strstr(text_of("silence_1.txt"), "cannot start '/belay-no-such-gdb': No such file or directory\n"));
}

/* The program ends once its gdb runs, which then would go on for ever. */
static void gdb_that_hangs_ends_with_the_run(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    char path[128], script[1024];
    snprintf(path, sizeof path, "%s/gdb", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\necho hangs at $4\nexec sleep 1000\n");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0700), 0);
    o.quiet = SECOND / 10;
    o.gdb = path;
    snprintf(script, sizeof script, "until grep -q 'hangs at' %s/silence_1.txt 2>/dev/null; do :; done; exit 3",
             folder);
    supervise(&o, script);
    char expected[64];
    snprintf(expected, sizeof expected, "\ngdb of process %d\nhangs at %d\n", (int)rank(0)->pid, (int)rank(0)->pid);
    assert_int_equal(bl_supervise_status(run), 3);
    assert_int_equal(bl_supervise_facts_get(run)->n_left, 0);
    assert_non_null(strstr(text_of("silence_1.txt"), expected));
    assert_non_null(strstr(bl_text_get(&events), "silent rank 0 number 1\n"));
}

static void run_that_speaks_is_not_silent(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    o.quiet = 100 * SECOND;
    supervise(&o, "echo one");
    assert_int_equal(bl_supervise_facts_get(run)->n_silences, 0);
}

/* ---- output -------------------------------------------------------------------------------------------------------------------------- */

static void flood_of_output_is_bounded_and_counted(void **state)
{
    (void)state;
    bl_supervise_options o = options(1);
    int64_t total = getenv("BELAY_SOAK") != NULL ? 1000000000 : 50000000;
    char script[1024];
    snprintf(script, sizeof script, "yes 'a line as a training log has them' | head -c %lld; echo end",
             (long long)total);
    supervise(&o, script);
    bl_capture_facts facts = rank(0)->stream[0];
    assert_int_equal(facts.n_bytes, total + 4);
    assert_true(facts.n_bytes - facts.n_dropped <= o.log_limit);
    assert_true(facts.n_bytes - facts.n_dropped >= o.log_limit / 2);
    int64_t n;
    const char *tail = bl_supervise_tail(run, 0, 0, &n);
    assert_memory_equal(tail + n - 4, "end\n", 4);
}

static void full_disk_does_not_end_the_program(void **state)
{
    (void)state;
    struct rlimit before, small;
    bl_supervise_options o = options(1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    supervise(&o, "yes | head -c 100000; echo done >&2");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    char expected[64];
    assert_int_equal(bl_supervise_status(run), 0);
    assert_int_equal(rank(0)->stream[0].n_bytes, 100000);
    assert_int_equal(rank(0)->stream[0].failure, EFBIG);
    assert_int_equal(bl_supervise_facts_get(run)->n_unkept, 1);
    assert_string_equal(text_of("program.stderr.log"), "done\n");
    snprintf(expected, sizeof expected, "capture failed rank 0 number %d\n", EFBIG);
    assert_string_equal(bl_text_get(&events), expected);
}

static void reader_that_goes_away_is_told_to_a_single_program(void **state)
{
    (void)state;
    int ends[2];
    bl_supervise_options o = options(1);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    o.view_out = ends[1];
    supervise(&o, "exec yes");
    close(ends[1]);
    assert_int_equal(rank(0)->signal, SIGPIPE);
    assert_int_equal(bl_supervise_facts_get(run)->view_failure[0], EPIPE);
}

/* ---- starts that fail ------------------------------------------------------------------------------------------------------------------ */

static void program_that_is_not_there_leaves_nothing(void **state)
{
    (void)state;
    char name[] = "belay-no-such-program";
    char *argv[] = {name, NULL};
    bl_supervise_options o = options(3);
    bl_error error = {0};
    o.argv = argv;
    assert_int_equal(bl_supervise_run(&o, &run, &error), BELAY_FILE_OPEN);
    assert_string_equal(error.what, "cannot start 'belay-no-such-program': No such file or directory");
    assert_null(run);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void folder_that_is_not_there_is_an_error_by_name(void **state)
{
    (void)state;
    char name[] = "true";
    char *argv[] = {name, NULL};
    bl_supervise_options o = options(1);
    bl_error error = {0};
    o.argv = argv;
    o.folder = "/nowhere";
    assert_int_equal(bl_supervise_run(&o, &run, &error), BELAY_FILE_WRITE);
    assert_string_equal(error.what, "cannot write '/nowhere/program.stdout.log': No such file or directory");
}

/* Every allocation of a run fails once: the run is as ever, or a named error, and nothing is left of it. */
static void want_of_memory_is_named_and_leaves_nothing(void **state)
{
    (void)state;
    char script[] = "echo said; (setsid sleep 1000 &); exit 3";
    char *argv[] = {sh, dash_c, script, NULL};
    bl_supervise_options o = options(2);
    bool reached = true;
    o.argv = argv;
    o.grace = 0;
    o.quiet = 1000 * SECOND;
    for (int64_t n = 0; reached; n++) {
        bl_error error = {0};
        bl_supervise_close(run);
        run = NULL;
        bl_memory_fail_at(n);
        belay_code code = bl_supervise_run(&o, &run, &error);
        reached = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (code == BELAY_OK)
            assert_int_equal(bl_supervise_status(run), 3);
        else
            assert_int_equal(code, BELAY_MEM_EXHAUSTED);
        assert_true(code == BELAY_OK || (reached && run == NULL));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_true(n < 2000);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
    const struct CMUnitTest tests[] = {
        TEST(program_that_ends_well_is_no_failure),
        TEST(exit_codes_and_signals_are_told_as_a_shell_does),
        TEST(core_file_of_a_crash_is_found),
        TEST(program_without_memory_fails_by_itself),
        TEST(program_that_the_kernel_kills_for_memory_is_told_as_such),
        TEST(kernel_log_is_kept_or_its_absence_told),
        TEST(ranks_are_told_who_they_are),
        TEST(rank_that_dies_among_four_is_named_and_the_others_end),
        TEST(ranks_that_ignore_sigterm_are_killed),
        TEST(rank_that_ends_well_leaves_the_others_alone),
        TEST(order_of_deaths_is_the_order_told),
        TEST(owner_that_looks_ends_the_run),
        TEST(what_had_stopped_a_rank_that_is_ended_is_kept),
        TEST(owner_that_stops_the_ranks_itself_has_nothing_forwarded),
        TEST(lines_of_a_launcher_are_taken_apart),
        TEST(stop_and_continuation_of_a_rank_are_told),
        TEST(interrupt_reaches_all_ranks_and_leaves_nothing),
        TEST(program_that_ignores_the_interrupt_is_killed_after_grace),
        TEST(second_interrupt_kills_at_once),
        TEST(stopped_program_can_be_ended),
        TEST(program_that_stops_when_it_is_asked_to_end_is_continued),
        TEST(other_signals_are_handed_on),
        TEST(child_that_detaches_is_ended_and_told),
        TEST(child_that_ends_by_itself_is_waited_for_and_not_told),
        TEST(death_of_the_supervisor_ends_the_ranks),
        TEST(silent_run_gets_the_stacks_of_all_ranks),
        TEST(gdb_that_is_absent_is_told_and_does_no_harm),
        TEST(gdb_that_hangs_ends_with_the_run),
        TEST(run_that_speaks_is_not_silent),
        TEST(flood_of_output_is_bounded_and_counted),
        TEST(full_disk_does_not_end_the_program),
        TEST(reader_that_goes_away_is_told_to_a_single_program),
        TEST(program_that_is_not_there_leaves_nothing),
        TEST(folder_that_is_not_there_is_an_error_by_name),
        TEST(want_of_memory_is_named_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
