/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a Belay group say of each other, and whose word counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "rank_support.h"

#define LATE " was last heard of 3.0 s ago: in forward of step 4, batch 0:4; barrier #7 has waited 3.0 s for it"

static const bl_event *derived(const rank_case *r, bl_signal signal) { return bl_events_first(r->c.events, signal); }

static void derive(rank_case *r)
{
    bl_events_seal(r->c.events);
    bl_derive_run(&r->c);
    bl_derive_peers(&r->c);
}

/* What the library leaves of a rank whose group broke, in a file of that rank's number. */
static void leave_status(rank_case *r, int rank, const char *code, int culprit, const char *why)
{
    char line[512];
    snprintf(line, sizeof line, "  \"code\": \"%s\",", code);
    rank_case_say(r, rank, rank, 0, line);
    rank_case_say(r, rank, rank, 0, "  \"status\": 5,");
    rank_case_say(r, rank, rank, 0, "  \"culprits\": [");
    snprintf(line, sizeof line, "    %d", culprit);
    rank_case_say(r, rank, rank, 0, line);
    rank_case_say(r, rank, rank, 0, "  ],");
    snprintf(line, sizeof line, "  \"why\": \"%s\",", why);
    rank_case_say(r, rank, rank, 0, line);
}

static void assert_about(const rank_case *r, bl_signal signal, int rank, const char *words)
{
    const bl_event *event = derived(r, signal);
    assert_non_null(event);
    assert_int_equal(event->rank, rank);
    assert_fact(derived(r, BL_SIGNAL_peers_said), "ranks_say", -1, words);
}

static void a_rank_that_others_waited_for_is_named(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    leave_status(&r, 0, "comm.deadline", 1, "rank 1" LATE);
    leave_status(&r, 2, "comm.deadline", 1, "rank 1" LATE);
    derive(&r);
    assert_about(&r, BL_SIGNAL_peers_lost, 1, "rank 1" LATE);
    assert_int_equal(derived(&r, BL_SIGNAL_peers_said)->rank, 0);
    assert_int_equal(derived(&r, BL_SIGNAL_peers_said)->line, 6);
    rank_case_close(&r);
}

static void a_headline_alone_names_it_too(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(&r, 0, -1, 0, "belay: rank 1" LATE " (comm.deadline)");
    derive(&r);
    assert_about(&r, BL_SIGNAL_peers_lost, 1, "rank 1" LATE);
    rank_case_close(&r);
}

static void how_it_ended_stands_with_it(void **state)
{
    (void)state;
    static const char *const end[] = {"          \"rank\": 1,", "          \"part\": \"primary\",",
                                      "          \"signal\": \"SIGKILL\","};
    rank_case r;
    rank_case_open(&r);
    leave_status(&r, 0, "comm.deadline", 1, "rank 1" LATE);
    for (int i = 0; i < 3; i++)
        rank_case_say(&r, 3, -1, 0, end[i]);
    derive(&r);
    assert_about(&r, BL_SIGNAL_peers_died, 1, "rank 1" LATE);
    assert_fact(derived(&r, BL_SIGNAL_peers_died), "exit_signal", -1, "SIGKILL");
    assert_null(derived(&r, BL_SIGNAL_peers_lost));
    rank_case_close(&r);
}

static void a_reason_that_it_told_counts_more_than_its_status(void **state)
{
    (void)state;
    static const char *const words[] = {"rank 1 gave up: the disk is full",
                                        "rank 1 failed first: no memory for 'x': 8 bytes (mem.exhausted)"};
    for (int i = 0; i < 2; i++) {
        rank_case r;
        rank_case_open(&r);
        leave_status(&r, 0, "comm.peer", 1, words[i]);
        rank_case_say(&r, 3, -1, 0, "          \"rank\": 1,");
        rank_case_say(&r, 3, -1, 0, "          \"exit_status\": 3,");
        derive(&r);
        assert_about(&r, BL_SIGNAL_peers_gave_up, 1, words[i]);
        assert_null(derived(&r, BL_SIGNAL_peers_ended));
        rank_case_close(&r);
    }
}

static void its_own_fault_before_counts_more_than_what_others_say(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    leave_status(&r, 0, "comm.deadline", 1, "rank 1" LATE);
    rank_case_say(&r, 1, 1, 0, "belay: cannot open 'x.tsv': No such file or directory (file.open)");
    derive(&r);
    assert_null(derived(&r, BL_SIGNAL_peers_said));
    rank_case_close(&r);

    rank_case_open(&r); /* after it had heard of its group it is a consequence */
    leave_status(&r, 0, "comm.deadline", 1, "rank 1" LATE);
    rank_case_say(&r, 1, 1, 0, "belay: rank 1" LATE " (comm.deadline)");
    rank_case_say(&r, 1, 1, 0, "belay: cannot open 'x.tsv': No such file or directory (file.open)");
    derive(&r);
    assert_about(&r, BL_SIGNAL_peers_lost, 1, "rank 1" LATE);
    rank_case_close(&r);
}

static void a_rank_that_waited_itself_is_not_the_one(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    leave_status(&r, 0, "comm.deadline", 1, "rank 1" LATE);
    leave_status(&r, 3, "comm.deadline", 1, "rank 1" LATE);
    leave_status(&r, 1, "comm.deadline", 2, "rank 2" LATE);
    derive(&r);
    assert_about(&r, BL_SIGNAL_peers_lost, 2, "rank 2" LATE);
    rank_case_close(&r);
}

static void words_that_name_nobody_are_no_one_s(void **state)
{
    (void)state;
    rank_case r;
    rank_case_open(&r);
    rank_case_say(
        &r, 0, 0, 0,
        "belay: barrier #7 is not over after 3.0 s, although all 3 ranks are in it and heard of (comm.deadline)");
    rank_case_say(&r, 0, 0, 0, "  \"why\": \"rank 1 has words without a code\",");
    derive(&r);
    assert_null(derived(&r, BL_SIGNAL_peers_said));
    rank_case_close(&r);
}

typedef struct difference {
    const char *why;
    bl_signal signal;
    int rank;
} difference;

static void ranks_that_differ_are_told_by_what_they_differ_in(void **state)
{
    (void)state;
    static const difference rows[] = {
        {"rank 2 called barrier #2, where the 2 others called all_reduce #2 of 8 f32 by sum", BL_SIGNAL_peers_apart, 2},
        {"rank 2 called all_reduce #2 of 8 f32 by max, where the 2 others called all_reduce #2 of 8 f32 by sum",
         BL_SIGNAL_peers_differ, 2},
        {"ranks 2, 3 called all_reduce #2 of 8 f32 by max, and as many called all_reduce #2 of 8 f32 by sum: a tie",
         BL_SIGNAL_peers_differ, -1},
        {"rank 2 and ranks 0, 1 are about to train different things: they differ in parameter 2",
         BL_SIGNAL_peers_differ, 2},
        {"--lr differs: rank 1 and ranks 0, 2", BL_SIGNAL_peers_differ, 1},
        {"rank 1: samples of the data other than of ranks 0, 2", BL_SIGNAL_peers_differ, 1},
        {"rank 1 has other weights than ranks 0, 2", BL_SIGNAL_peers_drifted, 1},
        {"rank 1 has other weights than rank 0; as many say one as the other", BL_SIGNAL_peers_drifted, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rank_case r;
        rank_case_open(&r);
        leave_status(&r, 0, "comm.mismatch", rows[i].rank, rows[i].why);
        leave_status(&r, 1, "comm.peer", 0, "rank 0 gave up: it saw the others leave");
        derive(&r);
        assert_about(&r, rows[i].signal, rows[i].rank, rows[i].why);
        assert_null(derived(&r, BL_SIGNAL_peers_gave_up));
        rank_case_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_others_waited_for_is_named),
        cmocka_unit_test(a_headline_alone_names_it_too),
        cmocka_unit_test(how_it_ended_stands_with_it),
        cmocka_unit_test(a_reason_that_it_told_counts_more_than_its_status),
        cmocka_unit_test(its_own_fault_before_counts_more_than_what_others_say),
        cmocka_unit_test(a_rank_that_waited_itself_is_not_the_one),
        cmocka_unit_test(words_that_name_nobody_are_no_one_s),
        cmocka_unit_test(ranks_that_differ_are_told_by_what_they_differ_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
