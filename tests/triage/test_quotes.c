/* SPDX-License-Identifier: Apache-2.0 */
/* What a log only quotes, and what its later lines contradict, is no failure; what looks like it and is none stays one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "triage/explain.h"
#include "triage/read_log.h"

static bl_log_tools tools;
static char path[64];

static int open_tools(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/belay-test-quotes-XXXXXX");
    int file = mkstemp(path);
    return file < 0 || close(file) != 0 || bl_log_tools_init(&tools, NULL) != BELAY_OK ? -1 : 0;
}

static int close_tools(void **state)
{
    (void)state;
    bl_log_tools_fini(&tools);
    return unlink(path);
}

/* The rule of the first verdict, "" for none; `steps` lines of training stand before and behind the text. */
static const char *rule_of(int steps, const char *text)
{
    const char *paths[] = {path};
    bl_explain *explain = NULL;
    bl_error error = {0};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int step = 0; step < steps; step++)
        fprintf(file, "step %d loss 2.5\n", step);
    fputs(text, file);
    for (int step = steps; step < 2 * steps; step++)
        fprintf(file, "step %d loss 2.5\n", step);
    assert_int_equal(fclose(file), 0);
    bl_explain_options options = {.paths = paths, .n_paths = 1, .tools = &tools};
    assert_int_equal(bl_explain_run(&options, &explain, &error), BELAY_OK);
    const bl_findings *findings = bl_explain_findings(explain);
    const char *rule = findings->n_verdicts > 0 ? findings->verdicts[0].rule->name : "";
    bl_explain_free(explain);
    return rule;
}

#define BL_FAULT "RuntimeError: CUDA error: device-side assert triggered\n"
#define BL_XID   "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"

static void what_a_model_wrote_between_marks_is_no_failure(void **state)
{
    (void)state;
    assert_string_equal(rule_of(0, "--- sample at step 2000 ---\n" BL_FAULT BL_XID "--- end of sample ---\n"), "");
    assert_string_equal(rule_of(0, "<sample>\n" BL_FAULT "</sample>\n"), "");
    assert_string_equal(rule_of(0, "=== generated text ===\n" BL_FAULT "=== END generated text ===\n"), "");
}

static void a_sample_that_never_ends_quotes_nothing(void **state)
{
    (void)state;
    assert_string_equal(rule_of(0, "--- generating samples ---\n" BL_FAULT), "bare_710");
    assert_string_equal(rule_of(0, "--- sample 1 ---\n--- end of sample ---\n" BL_FAULT), "bare_710");
    assert_string_equal(rule_of(0, "--- samples ---\n[ 8123.400112] " BL_XID), "gpu_hardware");
}

#define BL_TESTS "===== test session starts =====\ntests/a.py::b PASSED\n--- Captured stderr call ---\n"

static void tests_that_passed_had_no_failure(void **state)
{
    (void)state;
    assert_string_equal(rule_of(0, BL_TESTS BL_FAULT BL_XID "===== 213 passed, 1 xfailed in 41.22s =====\n"), "");
    assert_string_equal(rule_of(0, "[==========] Running 2 tests.\n" BL_FAULT "[  PASSED  ] 2 tests.\n"), "");
}

static void tests_that_failed_had_one(void **state)
{
    (void)state;
    assert_string_equal(rule_of(0, BL_TESTS BL_FAULT "===== 1 failed, 212 passed in 41.22s =====\n"), "bare_710");
    assert_string_equal(rule_of(0, BL_TESTS BL_FAULT), "bare_710");
}

static void no_process_counts_on_after_a_sticky_error(void **state)
{
    (void)state;
    assert_string_equal(rule_of(20, BL_FAULT), "");
    assert_string_equal(rule_of(0, BL_FAULT), "bare_710");
}

static void a_process_that_came_again_had_ended(void **state)
{
    (void)state;
    assert_string_equal(rule_of(20, BL_FAULT "step 10 loss 2.5\n"), "bare_710");
    assert_string_equal(rule_of(20, "  File \"train.py\", line 7, in main\n" BL_FAULT), "bare_710");
}

#define BL_STALL                                                                                                       \
    "W stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset "   \
    "of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"

static void a_stall_is_over_when_training_goes_on(void **state)
{
    (void)state;
    assert_string_equal(rule_of(20, BL_STALL), "");
    assert_string_equal(rule_of(0, "step 7 loss 2.5\n" BL_STALL), "stalled_subset");
}

static void a_line_that_is_one_quotation_quotes_nobody(void **state)
{
    (void)state;
    assert_string_equal(rule_of(0, "\"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!\"\n"),
                        "no_kernel_image");
    assert_string_equal(rule_of(0, "he wrote \"hipErrorNoBinaryForGpu: Unable to find it\"\n"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_model_wrote_between_marks_is_no_failure),
        cmocka_unit_test(a_sample_that_never_ends_quotes_nothing),
        cmocka_unit_test(tests_that_passed_had_no_failure),
        cmocka_unit_test(tests_that_failed_had_one),
        cmocka_unit_test(no_process_counts_on_after_a_sticky_error),
        cmocka_unit_test(a_process_that_came_again_had_ended),
        cmocka_unit_test(a_stall_is_over_when_training_goes_on),
        cmocka_unit_test(a_line_that_is_one_quotation_quotes_nobody),
    };
    return cmocka_run_group_tests(tests, open_tools, close_tools);
}
