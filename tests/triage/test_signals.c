/* SPDX-License-Identifier: Apache-2.0 */
/* Every signal by its example, and every rule by its words: the tables are data, and here data is proved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "triage/match.h"
#include "triage/rule.h"
#include "triage/scan.h"

static bl_matcher *matcher;

static int open_matcher(void **state)
{
    bl_error error = {0};
    (void)state;
    if (bl_matcher_new(&matcher, &error) == BELAY_OK)
        return 0;
    print_error("%s\n", error.what);
    return 1;
}

static int close_matcher(void **state)
{
    (void)state;
    bl_matcher_free(matcher);
    return 0;
}

/* The events of one line that is looked at whole. */
static bl_events *events_of(const char *text)
{
    char scratch[4096];
    bl_line line = {.number = 1};
    bl_place place = {.time = BL_NO_TIME, .is_whole_read = true};
    bl_events *events = bl_events_new();
    assert_non_null(events);
    assert_true(strlen(text) < sizeof scratch);
    bl_line_parse(NULL, text, (int64_t)strlen(text), scratch, &line);
    bl_matcher_line(matcher, &line, NULL, -1, &place, events);
    bl_events_seal(events);
    return events;
}

static void each_example_shows_its_signal(void **state)
{
    (void)state;
    int n_wrong = 0;
    for (int i = 0; i < BL_N_SIGNALS; i++) {
        if (bl_signals[i].role == BL_ROLE_DERIVED)
            continue;
        bl_events *events = events_of(bl_signals[i].example);
        if (bl_events_first(events, (bl_signal)i) == NULL) {
            print_error("%s does not match its example: %s\n", bl_signals[i].name, bl_signals[i].example);
            n_wrong++;
        }
        bl_events_free(events);
    }
    assert_int_equal(n_wrong, 0);
}

static void derived_signals_have_no_pattern_and_others_have_one(void **state)
{
    (void)state;
    for (int i = 0; i < BL_N_SIGNALS; i++)
        if ((bl_signals[i].role == BL_ROLE_DERIVED) != (bl_signals[i].pattern[0] == '\0'))
            fail_msg("%s", bl_signals[i].name);
}

/* What the fast pass can look for. */
static void anchors_are_neither_too_short_nor_too_long(void **state)
{
    (void)state;
    const bl_anchors *anchors = bl_matcher_anchors(matcher);
    for (int i = 0; i < anchors->n; i++) {
        size_t length = strlen(anchors->list[i]);
        if (length < bl_scan_anchor_min || length > bl_scan_anchor_max)
            fail_msg("\"%s\" has %zu bytes", anchors->list[i], length);
    }
}

static void each_rule_names_signals_that_exist(void **state)
{
    (void)state;
    int n_wrong = 0;
    for (int i = 0; i < bl_n_rules; i++) {
        const char *const words[] = {bl_rules[i].needs, bl_rules[i].unless, bl_rules[i].with};
        for (int w = 0; w < 3; w++) {
            bl_condition condition;
            bl_error error = {0};
            if (bl_condition_parse(words[w], bl_rules[i].name, &condition, &error) != BELAY_OK) {
                print_error("%s\n", error.what);
                n_wrong++;
            }
        }
    }
    assert_int_equal(n_wrong, 0);
}

static void each_rule_has_a_name_of_its_own_and_says_why_and_what_next(void **state)
{
    (void)state;
    for (int i = 0; i < bl_n_rules; i++) {
        for (int j = 0; j < i; j++)
            assert_string_not_equal(bl_rules[i].name, bl_rules[j].name);
        if (bl_rules[i].why[0] == '\0' || bl_rules[i].next[0] == '\0' || bl_rules[i].needs[0] == '\0')
            fail_msg("%s", bl_rules[i].name);
    }
}

/* An insufficient verdict names no cause, and the class without a cause is never more than that. */
static void strength_and_class_agree(void **state)
{
    (void)state;
    for (int i = 0; i < bl_n_rules; i++)
        if ((bl_rules[i].class_ == BL_CLASS_UNKNOWN) != (bl_rules[i].strength == BL_STRENGTH_INSUFFICIENT))
            fail_msg("%s", bl_rules[i].name);
}

static void text_that_only_speaks_of_an_error_is_none(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "expected message: 'CUDA error: an illegal memory access was encountered'  ok",
        "[user] if you see \"CUDA error: out of memory\" lower --batch (hint printed at start)",
        "All done. Errors: 0. CUDA errors: 0.",
        "test_format_nccl_error ... ok",
        "    raise RuntimeError(\"CUDA error: device-side assert triggered\")",
        "changelog: fixed CUDA error: an illegal memory access was encountered in the fused kernel",
        "hint: for device-side assert triggered set CUDA_LAUNCH_BLOCKING=1",
        "WARNING - Retrying (Retry(total=4)) after connection broken by 'ConnectionResetError(104, 'Connection reset "
        "by "
        "peer')': /shards/001.tar",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        bl_events *events = events_of(lines[i]);
        for (int s = 0; s < BL_N_SIGNALS; s++)
            if (bl_signals[s].role == BL_ROLE_FAULT && bl_events_first(events, (bl_signal)s) != NULL)
                fail_msg("%s: %s", bl_signals[s].name, lines[i]);
        bl_events_free(events);
    }
}

static void an_exception_that_prints_its_text_in_marks_is_one(void **state)
{
    (void)state;
    bl_events *events = events_of("[W 2023-11-18 20:08:02,209] Trial 12 failed because of the following error: "
                                  "RuntimeError('CUDA error: device-side assert triggered').");
    assert_non_null(bl_events_first(events, BL_SIGNAL_error_710));
    bl_events_free(events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_example_shows_its_signal),
        cmocka_unit_test(derived_signals_have_no_pattern_and_others_have_one),
        cmocka_unit_test(anchors_are_neither_too_short_nor_too_long),
        cmocka_unit_test(each_rule_names_signals_that_exist),
        cmocka_unit_test(each_rule_has_a_name_of_its_own_and_says_why_and_what_next),
        cmocka_unit_test(strength_and_class_agree),
        cmocka_unit_test(text_that_only_speaks_of_an_error_is_none),
        cmocka_unit_test(an_exception_that_prints_its_text_in_marks_is_one),
    };
    return cmocka_run_group_tests(tests, open_matcher, close_matcher);
}
