/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.csv and report.html. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "report/html.h"
#include "report/metrics.h"

static char scratch[64];

static int enter(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/belay-html-XXXXXX");
    return mkdtemp(scratch) != NULL && chdir(scratch) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    static const char *const names[] = {"run.json", "metrics.csv", "faults.jsonl", "report.html"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(names[i]);
    return chdir("/") == 0 && rmdir(scratch) == 0 ? 0 : -1;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    fputs(text, file);
    fclose(file);
}

/* The page; the caller frees it. */
static char *make_page(void)
{
    bl_error error = {0};
    if (bl_report_html(".", &error) != BELAY_OK)
        fail_msg("%s", error.what);
    FILE *file = fopen("report.html", "r");
    char *page = calloc(1 << 20, 1);
    assert_true(fread(page, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return page;
}

#define HEAD                                                                                                           \
    "epoch,steps,train_loss,train_accuracy,valid_loss,valid_accuracy,lr,samples_per_second,seconds,faults,skipped,"    \
    "best\n"

/* ---- metrics ------------------------------------------------------------------------------------------------------ */

static void a_line_of_metrics_reads_back_as_it_was(void **state)
{
    (void)state;
    const bl_report_metrics row = {.epoch = 3,
                                   .steps = 40,
                                   .train_loss = 1.25,
                                   .train_accuracy = 0.5,
                                   .valid_loss = (double)NAN,
                                   .valid_accuracy = (double)NAN,
                                   .lr = 1e-3,
                                   .samples_per_second = 1234.5,
                                   .seconds = 60,
                                   .faults = 2,
                                   .skipped = 1,
                                   .best = 1};
    bl_text text = {0};
    bl_report_metrics *rows;
    int64_t n;
    bl_error error = {0};
    bl_report_metrics_head(&text);
    bl_text_add(&text, "\n");
    bl_report_metrics_line(&row, &text);
    bl_text_add(&text, "\n");
    assert_string_equal(bl_text_get(&text), HEAD "3,40,1.25,0.5,,,0.001,1234.5,60,2,1,1\n");
    write_file("metrics.csv", bl_text_get(&text));
    assert_int_equal(bl_report_metrics_read("metrics.csv", &rows, &n, &error), BELAY_OK);
    assert_int_equal(n, 1);
    assert_int_equal(rows[0].epoch, 3);
    assert_true(rows[0].train_loss == 1.25 && isnan(rows[0].valid_loss) && rows[0].samples_per_second == 1234.5);
    assert_int_equal(rows[0].best, 1);
    bl_free(rows);
    bl_text_fini(&text);
}

static void what_is_no_metrics_is_refused_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"epoch,loss\n", "'metrics.csv' does not start with the columns of a metrics file"},
        {HEAD "3,40,1.25,0.5,,,0.001,1234.5,60,2,1\n", "metrics.csv:2: not a line of metrics"},
        {HEAD "3,40,1.25,0.5,,,0.001,1234.5,60,2,1,1,9\n", "metrics.csv:2: not a line of metrics"},
        {HEAD "3,40,x,0.5,,,0.001,1234.5,60,2,1,1\n", "metrics.csv:2: not a line of metrics"},
        {HEAD ",40,1,0.5,,,0.001,1234.5,60,2,1,1\n", "metrics.csv:2: not a line of metrics"},
        {HEAD "99999999999999999999,40,1,0.5,,,0.001,1234.5,60,2,1,1\n", "metrics.csv:2: not a line of metrics"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bl_report_metrics *rows;
        int64_t n;
        bl_error error = {0};
        write_file("metrics.csv", cases[i].text);
        assert_int_equal(bl_report_metrics_read("metrics.csv", &rows, &n, &error), BELAY_FILE_FORMAT);
        assert_string_equal(error.what, cases[i].what);
        assert_null(rows);
    }
}

/* ---- the page ----------------------------------------------------------------------------------------------------- */

static void an_empty_folder_makes_a_page(void **state)
{
    (void)state;
    char *page = make_page();
    assert_non_null(strstr(page, "</html>"));
    free(page);
}

static void the_page_needs_nothing_outside_of_itself(void **state)
{
    (void)state;
    static const char *const foreign[] = {"http", "src=", "href=", "@import", "url(", "<script"};
    write_file("metrics.csv", HEAD "0,4,1.5,0.3,1.6,0.25,0.001,100,5,0,0,1\n1,8,1.2,0.5,1.4,0.4,0.001,110,10,1,1,1\n");
    write_file("faults.jsonl", "{\"code\":\"index.range\",\"policy\":\"skipped\",\"text\":\"belay: words\\n\","
                               "\"inputs\":{\"min\":-1,\"max\":7}}\n");
    write_file("run.json", "{\"settings\":{\"lr\":{\"value\":0.001,\"set_by\":\"default\"}},"
                           "\"outcome\":{\"best_accuracy\":0.4}}\n");
    char *page = make_page();
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        assert_null(strstr(page, foreign[i]));
    assert_non_null(strstr(page, "<figcaption>Loss"));
    assert_non_null(strstr(page, "<figcaption>Accuracy"));
    assert_non_null(strstr(page, "<figcaption>Samples a second"));
    assert_non_null(strstr(page, "<polyline class=\"a\" points=\"52.0,"));
    assert_non_null(strstr(page, "<pre>belay: words\n    inputs: -1 .. 7\n    taken: skipped\n</pre>"));
    assert_non_null(strstr(page, "<details><summary>All facts</summary>\n<table class=\"facts\">\n"
                                 "<tr><td>code</td><td>index.range</td></tr>\n"
                                 "<tr><td>policy</td><td>skipped</td></tr>\n"
                                 "<tr><td>inputs</td><td>{&quot;min&quot;:-1,&quot;max&quot;:7}</td></tr>\n"
                                 "</table></details>\n"));
    assert_non_null(strstr(page, "<tr><td>lr</td><td>0.001</td><td>default</td></tr>"));
    assert_non_null(strstr(page, "<tr><td>best accuracy</td><td>0.4</td></tr>"));
    free(page);
}

static void text_from_files_is_escaped(void **state)
{
    (void)state;
    write_file("faults.jsonl", "{\"text\":\"<script>alert(1)</script> & \\u001b[31m\",\"policy\":\"<b>\"}\n");
    write_file("run.json", "{\"settings\":{\"<i>\":{\"value\":\"</table>\",\"set_by\":\"\\\"x\\\"\"}},"
                           "\"outcome\":{\"<u>\":\"'\"}}\n");
    char *page = make_page();
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<b>"));
    assert_null(strstr(page, "<i>"));
    assert_null(strstr(page, "<u>"));
    assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt; &amp; \\x1B[31m"));
    assert_non_null(strstr(page, "&lt;/table&gt;"));
    free(page);
}

static void faults_past_the_limit_are_counted(void **state)
{
    (void)state;
    FILE *file = fopen("faults.jsonl", "w");
    for (int i = 0; i < BL_REPORT_HTML_FAULTS + 5; i++)
        fprintf(file, "{\"text\":\"fault %d\\n\"}\n", i);
    fclose(file);
    char *page = make_page();
    assert_non_null(strstr(page, "<pre>fault 199\n</pre>"));
    assert_null(strstr(page, "<pre>fault 200\n"));
    assert_non_null(strstr(page, "5 more in faults.jsonl."));
    free(page);
}

static void the_page_survives_the_failure_of_any_allocation(void **state)
{
    (void)state;
    write_file("metrics.csv", HEAD "0,4,1.5,0.3,1.6,0.25,0.001,100,5,0,0,1\n");
    write_file("faults.jsonl", "{\"text\":\"a fault\"}\n");
    write_file("run.json", "{\"settings\":{\"lr\":{\"value\":0.001,\"set_by\":\"default\"}}}\n");
    for (int64_t n = 0;; n++) {
        bl_error error = {0};
        bl_memory_fail_at(n);
        belay_code code = bl_report_html(".", &error);
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_int_equal(code, failed ? BELAY_MEM_EXHAUSTED : BELAY_OK);
        if (!failed)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_of_metrics_reads_back_as_it_was, enter, leave),
        cmocka_unit_test_setup_teardown(what_is_no_metrics_is_refused_with_its_line, enter, leave),
        cmocka_unit_test_setup_teardown(an_empty_folder_makes_a_page, enter, leave),
        cmocka_unit_test_setup_teardown(the_page_needs_nothing_outside_of_itself, enter, leave),
        cmocka_unit_test_setup_teardown(text_from_files_is_escaped, enter, leave),
        cmocka_unit_test_setup_teardown(faults_past_the_limit_are_counted, enter, leave),
        cmocka_unit_test_setup_teardown(the_page_survives_the_failure_of_any_allocation, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
