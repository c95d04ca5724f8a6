/* SPDX-License-Identifier: Apache-2.0 */
/* Configs are read within a limit and named by line and column when they are wrong; values are written whole or not. */
#include "file_support.h"

#include <pthread.h>

#include "file/atomic.h"
#include "file/json.h"

static bl_error error;

static json_t *must_read(const char *path)
{
    json_t *value;
    check_ok(bl_json_read(path, 0, &value, &error), &error);
    assert_non_null(value);
    return value;
}

static void what_is_written_is_read_again_in_the_same_order(void **state)
{
    (void)state;
    bl_json_init();
    json_t *value = json_pack("{s:i, s:f, s:s, s:[b, n], s:{}}", "zebra", 1, "alpha", 0.5, "text", "a\"\n\xc3\xbc",
                              "list", 1, "none");
    check_ok(bl_json_write("run.json", value, &error), &error);
    assert_file_is("run.json", "{\n  \"zebra\": 1,\n  \"alpha\": 0.5,\n  \"text\": \"a\\\"\\n\xc3\xbc\",\n"
                               "  \"list\": [\n    true,\n    null\n  ],\n  \"none\": {}\n}\n");
    json_t *again = must_read("run.json");
    assert_true(json_equal(value, again));
    json_decref(again);
    json_decref(value);
}

static void expect_fault(const char *content, const char *what)
{
    char expected[512];
    json_t *value;
    put_text("run.json", content);
    belay_code code = bl_json_read("run.json", 0, &value, &error);
    snprintf(expected, sizeof expected,
             "belay: run.json:%s (file.format)\n"
             "    try: Check the file at the place named; it may be cut short or of another kind.\n",
             what);
    check_error(code, &error, expected);
    assert_null(value);
}

static void a_mistake_is_named_by_line_and_column(void **state)
{
    (void)state;
    expect_fault("", "1: '[' or '{' expected near end of file");
    expect_fault("{\n  \"lr\": 0.1,\n  \"lr\": 0.2\n}", "3: column 6: duplicate object key near '\"lr\"'");
    expect_fault("{\n  \"lr\": 0.1\n  \"x\": 2\n}", "3: column 5: '}' expected near '\"x\"'");
    expect_fault("{\"lr\": nan}", "1: column 10: invalid token near 'nan'");
    expect_fault("{\"lr\": 1e999}", "1: column 12: real number overflow near '1e999'");
    expect_fault("{} x", "1: column 4: end of file expected near 'x'");
    expect_fault("{\"a\x1b[31m\": 1}", "1: column 3: control character 0x1b near '\"a'");
}

static void nesting_without_end_is_refused(void **state)
{
    (void)state;
    char *deep = malloc(1000001);
    memset(deep, '[', 1000000);
    deep[1000000] = '\0';
    put_text("run.json", deep);
    free(deep);
    json_t *value;
    belay_code code = bl_json_read("run.json", 0, &value, &error);
    assert_int_equal(code, BELAY_FILE_FORMAT);
    assert_non_null(strstr(error.what, "run.json:1: column 2049: maximum parsing depth reached"));
}

static void a_config_past_the_limit_is_refused(void **state)
{
    (void)state;
    json_t *value;
    put_text("run.json", "{\"text\": 1}");
    check_error(bl_json_read("run.json", 10, &value, &error), &error,
                "belay: 'run.json' is longer than 10 bytes (file.limit)\n"
                "    try: Split the data, or raise the limit that the message names.\n");
}

static void a_failing_write_leaves_the_old_config(void **state)
{
    (void)state;
    bl_json_init();
    json_t *value = json_pack("{s:i}", "new", 1);
    for (int64_t n = 0;; n++) {
        put_text("run.json", "old");
        bl_file_fail_at(n, BL_FILE_FAIL_EIO);
        belay_code code = bl_json_write("run.json", value, &error);
        bool reached = bl_file_fail_reached();
        bl_file_fail_at(-1, BL_FILE_FAIL_EIO);
        assert_int_equal(n_files_here(), 1);
        if (!reached) {
            check_ok(code, &error);
            break;
        }
        assert_int_equal(code, BELAY_FILE_WRITE);
        char *bytes = get_bytes("run.json", NULL);
        assert_true(strcmp(bytes, "old") == 0 || strcmp(bytes, "{\n  \"new\": 1\n}\n") == 0);
        free(bytes);
    }
    json_decref(value);
}

static belay_code read_and_write(void)
{
    json_t *value;
    TRY(bl_json_read("in.json", 0, &value, &error));
    belay_code code = bl_json_write("out.json", value, &error);
    json_decref(value);
    return code;
}

static void each_failing_allocation_is_named_and_leaks_nothing(void **state)
{
    (void)state;
    put_text("in.json", "{\"a\": [1, 2.5, \"a longer text that must grow its buffer\", {\"b\": {\"c\": [null]}}], "
                        "\"b\": 1, \"c\": 2, \"d\": 3, \"e\": 4, \"f\": 5, \"g\": 6, \"h\": 7, \"i\": 8, \"j\": 9}");
    bl_json_init();
    for (int64_t n = 0;; n++) {
        bl_memory_fail_at(n);
        belay_code code = read_and_write();
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed) {
            check_ok(code, &error);
            assert_true(n >= 20);
            break;
        }
        assert_int_equal(code, BELAY_MEM_EXHAUSTED);
        assert_true(strcmp(error.what, "no memory to read 'in.json'") == 0 ||
                    strcmp(error.what, "no memory to write 'out.json'") == 0);
    }
}

static void *read_in_a_thread(void *path)
{
    json_t *value = NULL;
    belay_code code = bl_json_read(path, 0, &value, NULL);
    json_decref(value);
    return code == BELAY_OK ? path : NULL;
}

static void many_threads_may_come_first(void **state)
{
    (void)state;
    static char path[] = "run.json";
    pthread_t threads[8];
    put_text(path, "{\"a\": [1, 2, 3]}");
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_a_thread, path), 0);
    for (int i = 0; i < 8; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, path);
    }
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, enter_scratch, leave_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(many_threads_may_come_first),
        IN_SCRATCH(what_is_written_is_read_again_in_the_same_order),
        IN_SCRATCH(a_mistake_is_named_by_line_and_column),
        IN_SCRATCH(nesting_without_end_is_refused),
        IN_SCRATCH(a_config_past_the_limit_is_refused),
        IN_SCRATCH(a_failing_write_leaves_the_old_config),
        IN_SCRATCH(each_failing_allocation_is_named_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
