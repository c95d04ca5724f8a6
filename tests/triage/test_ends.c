/* SPDX-License-Identifier: Apache-2.0 */
/* Who of several ranks failed first, from what each left behind. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/atomic.h"
#include "triage/ends.h"

enum { MOST = 4 };

static bl_rank_end ended(int status, double wall)
{
    return (bl_rank_end){.is_up = true, .has_ended = true, .status = status, .wall = wall, .step = -1};
}

static bl_rank_end killed(int signal, double wall)
{
    bl_rank_end end = ended(-1, wall);
    end.signal = signal;
    return end;
}

/* It waited for a rank in vain. */
static bl_rank_end gave_up(const char *code, int culprit, double wall)
{
    bl_rank_end end = ended(5, wall);
    end.state = BL_RANK_FAILED;
    end.wall_failed = wall - 0.1;
    end.culprit[0] = culprit;
    end.n_culprits = culprit >= 0;
    snprintf(end.code, sizeof end.code, "%s", code);
    return end;
}

static bl_rank_end asked(int signal, double wall)
{
    bl_rank_end end = killed(signal, wall);
    end.asked = signal;
    return end;
}

static void expect(const bl_rank_end *ranks, int n, int first, int status, const char *parts)
{
    bl_rank_end copy[MOST];
    bl_ends ends = {.n = n, .rank = copy};
    memcpy(copy, ranks, (size_t)n * sizeof *copy);
    bl_ends_judge(&ends);
    assert_int_equal(ends.first, first);
    assert_int_equal(ends.status, status);
    for (int i = 0; i < n; i++)
        assert_int_equal(copy[i].part, parts[i] - '0');
}
#define EXPECT(first, status, parts, ...)                                                                              \
    do {                                                                                                               \
        const bl_rank_end ranks_[] = {__VA_ARGS__};                                                                    \
        expect(ranks_, (int)(sizeof ranks_ / sizeof *ranks_), first, status, parts);                                   \
    } while (0)

static void ranks_that_all_ended_well_have_no_culprit(void **state)
{
    (void)state;
    EXPECT(-1, 0, "333", ended(0, 3), ended(0, 1), ended(0, 2));
}

static void a_rank_that_died_comes_before_those_that_felt_it(void **state)
{
    (void)state;
    EXPECT(1, 137, "202", gave_up("comm.peer", 1, 1), killed(SIGKILL, 9), gave_up("comm.deadline", 1, 2));
    EXPECT(2, 3, "220", gave_up("comm.deadline", 2, 1), ended(5, 1), ended(3, 9));
}

static void of_two_that_died_the_earlier_is_named(void **state)
{
    (void)state;
    EXPECT(2, 139, "020", killed(SIGABRT, 5.5), gave_up("comm.peer", 0, 6), killed(SIGSEGV, 5.4));
}

static void what_the_library_told_first_counts_before_the_end_of_the_process(void **state)
{
    (void)state;
    bl_rank_end mismatch = ended(3, 9);
    mismatch.state = BL_RANK_FAILED;
    mismatch.wall_failed = 1;
    snprintf(mismatch.code, sizeof mismatch.code, "comm.mismatch");
    EXPECT(1, 3, "00", killed(SIGSEGV, 2), mismatch);
}

static void a_rank_that_was_stopped_is_named_whatever_ended_it(void **state)
{
    (void)state;
    bl_rank_end stopped = asked(SIGTERM, 1);
    stopped.held = SIGSTOP;
    EXPECT(1, 128 + SIGSTOP, "202", gave_up("comm.deadline", 1, 3), stopped, gave_up("comm.deadline", 1, 3));
    bl_rank_end woken = gave_up("comm.peer", 0, 5);
    woken.held = SIGSTOP;
    EXPECT(1, 128 + SIGSTOP, "20", gave_up("comm.deadline", 1, 3), woken);
}

static void a_rank_that_never_came_is_named_when_no_other_failed_by_itself(void **state)
{
    (void)state;
    EXPECT(2, 143, "221", gave_up("comm.deadline", 2, 3), gave_up("comm.deadline", 2, 2), asked(SIGTERM, 9));
    EXPECT(0, 137, "022", killed(SIGKILL, 1), gave_up("comm.peer", 0, 2), asked(SIGTERM, 9));
}

static void what_a_rank_heard_of_itself_does_not_excuse_it(void **state)
{
    (void)state;
    bl_rank_end hangs = asked(SIGTERM, 9), gives_up = ended(0, 1);
    hangs.state = gives_up.state = BL_RANK_FAILED;
    hangs.n_culprits = gives_up.n_culprits = 1;
    hangs.culprit[0] = gives_up.culprit[0] = 1;
    snprintf(hangs.code, sizeof hangs.code, "comm.deadline");
    snprintf(gives_up.code, sizeof gives_up.code, "comm.peer");
    EXPECT(1, 143, "21", gave_up("comm.deadline", 1, 3), hangs);
    EXPECT(1, 5, "20", gave_up("comm.peer", 1, 3), gives_up);
}

static void a_rank_that_opened_no_group_is_named_when_the_others_gave_up(void **state)
{
    (void)state;
    EXPECT(1, 143, "212", ended(5, 3), asked(SIGTERM, 9), ended(5, 2));
    EXPECT(1, 143, "22", asked(SIGTERM, 9), asked(SIGTERM, 8));
}

static void a_rank_that_never_began_is_the_worlds_failure(void **state)
{
    (void)state;
    bl_rank_end absent = {.status = -1};
    EXPECT(1, 4, "21", gave_up("comm.deadline", 1, 3), absent);
}

static void a_rank_that_left_with_status_0_inside_of_its_group_is_named(void **state)
{
    (void)state;
    bl_rank_end left = ended(0, 1);
    left.state = BL_RANK_RUNNING;
    EXPECT(1, 5, "20", gave_up("comm.deadline", 1, 3), left);
    left.asked = SIGTERM;
    EXPECT(-1, 0, "3", left);
}

static void ranks_that_only_lost_each_other_are_all_secondary(void **state)
{
    (void)state;
    EXPECT(1, 5, "22", gave_up("comm.deadline", 1, 3), gave_up("comm.deadline", 0, 2));
}

/* ---- files ------------------------------------------------------------------------------------------------------------------- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/belay-ends-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static void in_folder(const char *name, char path[160]) { snprintf(path, 160, "%s/%s", folder, name); }

static void put(const char *name, const char *words)
{
    char path[160];
    in_folder(name, path);
    assert_int_equal(bl_file_replace(path, words, (int64_t)strlen(words), NULL), BELAY_OK);
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"rank0.end",    "rank1.end",    "rank0.stdout.log", "rank1.stdout.log",
                                        "rank0.status", "rank1.status", "failed",           "stop"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        in_folder(names[i], path);
        (void)unlink(path);
    }
    return rmdir(folder);
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    int n_up, n_ended;
    bl_ends ends;
    bl_rank_end end = {.pid = 77, .status = -1, .signal = SIGTERM, .asked = SIGTERM, .held = SIGSTOP, .wall = 12.5};
    snprintf(end.host, sizeof end.host, "anna");
    assert_int_equal(bl_ends_write(folder, 1, &end, 11.25, NULL), BELAY_OK);
    put("rank0.stdout.log", "");
    put("rank1.stdout.log", "");
    put("rank0.status",
        "{\"rank\": 0, \"state\": \"failed\", \"code\": \"comm.deadline\", \"status\": 5, \"culprits\": [1, -3, "
        "\"x\"], \"step\": 41, \"phase\": \"backward\", \"why\": \"rank 1 did not come\", \"wall\": 13.5}");
    bl_ends_count(folder, 2, &n_up, &n_ended);
    assert_int_equal(n_up, 2);
    assert_int_equal(n_ended, 1);
    assert_true(bl_ends_has_failed(folder, 0));
    assert_false(bl_ends_has_failed(folder, 1));
    assert_int_equal(bl_ends_read(folder, 2, &ends, NULL), BELAY_OK);
    const bl_rank_end *r = &ends.rank[0];
    assert_true(r->is_up && !r->has_ended);
    assert_int_equal(r->state, BL_RANK_FAILED);
    assert_string_equal(r->code, "comm.deadline");
    assert_int_equal(r->n_culprits, 1);
    assert_int_equal(r->culprit[0], 1);
    assert_int_equal(r->step, 41);
    assert_string_equal(r->phase, "backward");
    assert_string_equal(r->why, "rank 1 did not come");
    assert_true(r->wall_failed == 13.5);
    r = &ends.rank[1];
    assert_int_equal(r->pid, 77);
    assert_int_equal(r->signal, SIGTERM);
    assert_int_equal(r->asked, SIGTERM);
    assert_int_equal(r->held, SIGSTOP);
    assert_string_equal(r->host, "anna");
    assert_true(r->wall == 12.5);
    assert_int_equal(ends.first, 1);
    assert_int_equal(ends.status, 128 + SIGSTOP);
    bl_ends_fini(&ends);
}

static void files_that_are_no_records_count_as_absent(void **state)
{
    (void)state;
    bl_ends ends;
    put("rank0.end", "[1, 2]");
    put("rank1.end", "{\"pid\": 1e300, \"status\": \"nine\", \"signal\": 99999999999, \"wall_end\": null}");
    put("rank0.status", "{\"state\"");
    assert_int_equal(bl_ends_read(folder, 2, &ends, NULL), BELAY_OK);
    assert_false(ends.rank[0].has_ended);
    assert_int_equal(ends.rank[0].state, BL_RANK_SILENT);
    assert_true(ends.rank[1].has_ended);
    assert_int_equal(ends.rank[1].pid, 0);
    assert_int_equal(ends.rank[1].status, -1);
    assert_int_equal(ends.rank[1].signal, 0);
    bl_ends_fini(&ends);
}

static void a_mark_is_seen_once_it_is_set(void **state)
{
    (void)state;
    assert_false(bl_ends_is_marked(folder, BL_MARK_FAILED));
    bl_ends_mark(folder, BL_MARK_FAILED);
    bl_ends_mark(folder, BL_MARK_FAILED);
    assert_true(bl_ends_is_marked(folder, BL_MARK_FAILED));
    assert_false(bl_ends_is_marked(folder, BL_MARK_STOP));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_all_ended_well_have_no_culprit),
        cmocka_unit_test(a_rank_that_died_comes_before_those_that_felt_it),
        cmocka_unit_test(of_two_that_died_the_earlier_is_named),
        cmocka_unit_test(what_the_library_told_first_counts_before_the_end_of_the_process),
        cmocka_unit_test(a_rank_that_was_stopped_is_named_whatever_ended_it),
        cmocka_unit_test(a_rank_that_never_came_is_named_when_no_other_failed_by_itself),
        cmocka_unit_test(what_a_rank_heard_of_itself_does_not_excuse_it),
        cmocka_unit_test(a_rank_that_opened_no_group_is_named_when_the_others_gave_up),
        cmocka_unit_test(a_rank_that_never_began_is_the_worlds_failure),
        cmocka_unit_test(a_rank_that_left_with_status_0_inside_of_its_group_is_named),
        cmocka_unit_test(ranks_that_only_lost_each_other_are_all_secondary),
        cmocka_unit_test_setup_teardown(what_was_written_is_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(files_that_are_no_records_count_as_absent, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_mark_is_seen_once_it_is_set, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
