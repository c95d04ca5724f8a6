/* SPDX-License-Identifier: Apache-2.0 */
/* Explain as a call: memory that ends, texts that would act on a terminal, files in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "triage/tell.h"

static char folder[64];
static bl_log_tools tools;
static bool was_reached; /* the allocation that was to fail */

static const struct {
    const char *name, *text;
} files[] = {
    {"rank0\033[2J\n\302\233\377.log",
     "2026-04-08 10:15:19 epoch 0 step 7 loss 2.1\n"
     "2026-04-08 10:15:20 x.cu:12: indexSelectSmallIndex: block: [3,0,0], thread: [64,0,0] Assertion "
     "`srcIndex < srcSelectDimSize` failed.\n"
     "2026-04-08 10:15:21 RuntimeError: CUDA error: device-side assert triggered \033[31m\302\233 \177\n"},
    {"rank1.log", "[rank1]:[E714 09:32:03.102331946 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective "
                  "operation timeout: WorkNCCL(SeqNum=118, OpType=ALLREDUCE, NumelIn=524288, NumelOut=524288, "
                  "Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"},
    {"dmesg.log", "[ 10.0] NVRM: Xid (PCI:0000:41:00): 31, pid=99, name=python, Ch 00000008\n"},
};
enum { N_FILES = sizeof files / sizeof files[0] };
static char paths[N_FILES][128];
static const char *list[N_FILES];

static int make_files(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/belay-test-explain-XXXXXX");
    if (mkdtemp(folder) == NULL || bl_log_tools_init(&tools, NULL) != BELAY_OK)
        return -1;
    for (int i = 0; i < N_FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, files[i].name);
        list[i] = paths[i];
        FILE *file = fopen(paths[i], "w");
        if (file == NULL || fputs(files[i].text, file) < 0 || fclose(file) != 0)
            return -1;
    }
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++)
        unlink(paths[i]);
    bl_log_tools_fini(&tools);
    return rmdir(folder);
}

static bl_explain *explained(const char *const *given, int n)
{
    bl_explain *explain = NULL;
    bl_error error = {0};
    assert_int_equal(
        bl_explain_run(&(bl_explain_options){.paths = given, .n_paths = n, .tools = &tools}, &explain, &error),
        BELAY_OK);
    return explain;
}

/* All three forms, one behind the other; false without memory.  Memory fails no longer when the document is written:
 * that is the business of its library. */
static bool tell_all(const bl_explain *explain, bl_text *out)
{
    json_t *document = json_object();
    bl_tell_text(explain, out);
    bl_tell_html(explain, out);
    bool ok = document != NULL && bl_tell_json(explain, document) && !out->failed;
    was_reached = was_reached && bl_memory_failed();
    bl_memory_fail_at(-1);
    char *text = ok ? json_dumps(document, 0) : NULL;
    bl_text_add(out, text != NULL ? text : "");
    free(text);
    json_decref(document);
    return ok;
}

static void every_allocation_may_fail(void **state)
{
    bl_explain *usual = explained(list, N_FILES);
    bl_text expected = {0};
    int64_t n = 0;
    (void)state;
    assert_true(tell_all(usual, &expected));
    for (was_reached = true; was_reached; n++) {
        bl_explain *explain = NULL;
        bl_error error = {0};
        bl_text told = {0};
        bl_memory_fail_at(n);
        belay_code code =
            bl_explain_run(&(bl_explain_options){.paths = list, .n_paths = N_FILES, .tools = &tools}, &explain, &error);
        bool is_told = code == BELAY_OK && tell_all(explain, &told);
        was_reached = code == BELAY_OK ? was_reached : bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_true(code == BELAY_OK || code == BELAY_MEM_EXHAUSTED);
        if (is_told && strcmp(bl_text_get(&told), bl_text_get(&expected)) != 0)
            fail_msg("allocation %lld fails and another thing is told:\n%s", (long long)n, bl_text_get(&told));
        bl_text_fini(&told);
        bl_explain_free(explain);
    }
    assert_true(n > 50);
    bl_text_fini(&expected);
    bl_explain_free(usual);
}

static void no_control_leaves_in_any_form(void **state)
{
    bl_explain *explain = explained(list, N_FILES);
    bl_text told = {0};
    (void)state;
    bl_tell_text(explain, &told);
    bl_tell_html(explain, &told);
    assert_non_null(strstr(told.bytes, "rank0\\x1B[2J\\x0A\\xC2\\x9B\\xFF.log:2"));
    assert_non_null(strstr(told.bytes, "triggered \\xC2\\x9B \\x7F"));
    for (int64_t i = 0; i < told.n_bytes; i++) {
        unsigned char byte = (unsigned char)told.bytes[i], next = (unsigned char)told.bytes[i + 1];
        assert_true((byte >= 0x20 || byte == '\n') && byte != 0x7f && !(byte == 0xc2 && next < 0xa0));
    }
    bl_text_fini(&told);
    bl_explain_free(explain);
}

static void the_order_of_the_arguments_changes_nothing(void **state)
{
    const char *const others[] = {list[2], list[0], list[1], list[0]};
    bl_explain *one = explained(list, N_FILES), *two = explained(others, 4);
    bl_text first = {0}, second = {0};
    (void)state;
    assert_true(tell_all(one, &first) && tell_all(two, &second));
    assert_string_equal(first.bytes, second.bytes);
    bl_text_fini(&first);
    bl_text_fini(&second);
    bl_explain_free(one);
    bl_explain_free(two);
}

static void what_cannot_be_read_is_a_note_unless_nothing_can(void **state)
{
    const char *const some[] = {"/nowhere/a\nb.log", list[0]};
    bl_explain *explain = explained(some, 2), *none = NULL;
    bl_error error = {0};
    (void)state;
    assert_string_equal(bl_explain_notes(explain),
                        "not read: cannot open '/nowhere/a\\x0Ab.log': No such file or directory\n");
    bl_explain_free(explain);
    assert_int_equal(bl_explain_run(&(bl_explain_options){.paths = some, .n_paths = 1, .tools = &tools}, &none, &error),
                     BELAY_FILE_OPEN);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(no_control_leaves_in_any_form),
        cmocka_unit_test(the_order_of_the_arguments_changes_nothing),
        cmocka_unit_test(what_cannot_be_read_is_a_note_unless_nothing_can),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
