/* SPDX-License-Identifier: Apache-2.0 */
/* trace.json: what it holds, and that it can be read whatever happened while it was written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/memory.h"
#include "file/failpoint.h"
#include "report/trace.h"

static char scratch[64];

static int enter(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/belay-trace-XXXXXX");
    bl_clock_set(1000000);
    return mkdtemp(scratch) != NULL && chdir(scratch) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    bl_clock_set(-1);
    unlink("trace.json");
    return chdir("/") == 0 && rmdir(scratch) == 0 ? 0 : -1;
}

static bl_trace *open_trace(int64_t limit)
{
    bl_trace *trace;
    bl_error error = {0};
    assert_int_equal(bl_trace_open("trace.json", limit, &trace, &error), BELAY_OK);
    return trace;
}

static void close_trace(bl_trace *trace)
{
    bl_error error = {0};
    assert_int_equal(bl_trace_close(trace, &error), BELAY_OK);
}

/* The file's bytes; the caller frees them. */
static char *read_file(void)
{
    FILE *file = fopen("trace.json", "r");
    assert_non_null(file);
    char *text = calloc(1 << 20, 1);
    assert_non_null(text);
    (void)!fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

static void file_is(const char *expected)
{
    char *text = read_file();
    assert_string_equal(text, expected);
    free(text);
}

/* The events, also of a file whose list does not end. */
static json_t *read_events(bool is_closed)
{
    char *text = read_file();
    json_error_t error;
    if (!is_closed)
        strcat(text, text[0] == '\0' ? "[]" : "]");
    json_t *events = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    free(text);
    assert_non_null(events);
    return events;
}

static bl_report_fault a_fault(void)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_LIFE_SCOPE);
    snprintf(f.what, sizeof f.what, "scope \"x\"");
    snprintf(f.site, sizeof f.site, "train.c:88");
    f.launch = 2;
    return f;
}

#define HOST "[{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"host\"}}\n"

static void a_trace_holds_calls_streams_faults_and_figures(void **state)
{
    (void)state;
    bl_trace *trace = open_trace(0);
    bl_report_fault fault = a_fault();
    bl_trace_name(trace, 1, -1, "sim:0");
    bl_trace_name(trace, 1, 2, "copy");
    bl_trace_span_add(trace, &(bl_trace_span){.name = "embedding",
                                              .start = 1001500,
                                              .end = 1004000,
                                              .launch = 42,
                                              .site = "train.c:88",
                                              .layer = "model.embedding",
                                              .step = 7});
    bl_trace_span_add(
        trace, &(bl_trace_span){
                   .device = 1, .stream = 2, .name = "embedding", .start = 1003000, .end = 3003007, .launch = 42});
    bl_trace_span_add(trace, &(bl_trace_span){.name = "clock went back", .start = 5, .end = 4, .site = ""});
    bl_trace_fault(trace, 1, 2, 3003007, &fault);
    bl_trace_counter(trace, 1, "bytes in use", 1000000, INT64_C(1) << 40);
    close_trace(trace);
    file_is(
        HOST
        ",{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"sim:0\"}}\n"
        ",{\"ph\":\"M\",\"pid\":1,\"tid\":2,\"name\":\"thread_name\",\"args\":{\"name\":\"copy\"}}\n"
        ",{\"ph\":\"X\",\"pid\":0,\"tid\":0,\"name\":\"embedding\",\"ts\":1.500,\"dur\":2.500,\"bind_id\":\"0x2a\","
        "\"flow_out\":true,\"args\":{\"site\":\"train.c:88\",\"layer\":\"model.embedding\",\"launch\":42,\"step\":7}}\n"
        ",{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"name\":\"embedding\",\"ts\":3.000,\"dur\":2000.007,"
        "\"bind_id\":\"0x2a\",\"flow_in\":true,\"args\":{\"launch\":42,\"step\":0}}\n"
        ",{\"ph\":\"X\",\"pid\":0,\"tid\":0,\"name\":\"clock went back\",\"ts\":0.000,\"dur\":0.000,"
        "\"args\":{\"step\":0}}\n"
        ",{\"ph\":\"i\",\"pid\":1,\"tid\":2,\"s\":\"p\",\"name\":\"life.scope\",\"cat\":\"fault\",\"ts\":2003.007,"
        "\"args\":{\"text\":\"belay: scope \\\"x\\\" (life.scope)\\u000a    called at: train.c:88\\u000a    try: Close "
        "scopes in the reverse of the order in which they were opened.\\u000a\",\"site\":\"train.c:88\",\"launch\":2}}"
        "\n"
        ",{\"ph\":\"C\",\"pid\":1,\"name\":\"bytes in use\",\"ts\":0.000,\"args\":{\"value\":1099511627776}}\n"
        "]\n");
    json_t *events = read_events(true);
    assert_int_equal(json_array_size(events), 8);
    json_decref(events);
}

static void names_take_any_bytes(void **state)
{
    (void)state;
    static const char bytes[] = "quote \" backslash \\ newline \n escape \x1b bad \xff\xc3 good \xc3\xa9";
    static const char clean[] =
        "quote \" backslash \\ newline \n escape \x1b bad \xef\xbf\xbd\xef\xbf\xbd good \xc3\xa9";
    bl_trace *trace = open_trace(0);
    bl_trace_name(trace, 0, 0, bytes);
    bl_trace_span_add(trace, &(bl_trace_span){.name = bytes, .site = bytes, .layer = bytes});
    bl_trace_counter(trace, 0, bytes, 0, -1);
    close_trace(trace);
    json_t *events = read_events(true);
    const char *name, *span, *site, *layer, *counter;
    assert_int_equal(json_unpack(events, "[{}, {s:{s:s}}, {s:s, s:{s:s, s:s}}, {s:s}]", "args", "name", &name, "name",
                                 &span, "args", "site", &site, "layer", &layer, "name", &counter),
                     0);
    const char *const found[] = {name, span, site, layer, counter};
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++)
        assert_string_equal(found[i], clean);
    json_decref(events);
}

static void what_passes_the_limit_is_counted_and_faults_still_find_room(void **state)
{
    (void)state;
    enum { LIMIT = 8000, N = 1000 };
    bl_trace *trace = open_trace(LIMIT);
    bl_report_fault fault = a_fault();
    for (int i = 0; i < N; i++)
        bl_trace_span_add(trace, &(bl_trace_span){.name = "add"});
    bl_trace_fault(trace, 0, 0, 1000000, &fault);
    for (int i = 0; i < N; i++)
        bl_trace_fault(trace, 0, 0, 1000000, &fault);
    close_trace(trace);
    json_t *events = read_events(true);
    int64_t n_spans = 0, n_faults = 0, n_left_out = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        n_spans += strcmp(json_string_value(json_object_get(event, "ph")), "X") == 0;
        n_faults += json_is_string(json_object_get(event, "cat"));
        const json_t *count = json_object_get(json_object_get(event, "args"), "count");
        n_left_out = json_is_integer(count) ? json_integer_value(count) : n_left_out;
    }
    json_decref(events);
    assert_in_range(n_spans, 50, N - 1);
    assert_in_range(n_faults, 1, 10);
    assert_int_equal(n_spans + n_faults + n_left_out, 2 * N + 1);
}

/* Whichever write fails, and whether or not it works again later: what is there can be read, and it is told once. */
static void a_write_that_fails_leaves_a_list_that_can_be_read(void **state)
{
    (void)state;
    for (int64_t point = 0;; point++) {
        bl_trace *trace;
        bl_error error = {0};
        bl_file_fail_at(point, BL_FILE_FAIL_ENOSPC);
        belay_code code = bl_trace_open("trace.json", 0, &trace, &error);
        for (int i = 0; i < 5 && code == BELAY_OK; i++) {
            bl_trace_span_add(trace, &(bl_trace_span){.name = "add", .launch = 1});
            bl_trace_flush(trace);
        }
        if (code == BELAY_OK)
            code = bl_trace_close(trace, &error);
        bool reached = bl_file_fail_reached();
        bl_file_fail_at(-1, BL_FILE_FAIL_ENOSPC);
        if (!reached) {
            assert_int_equal(code, BELAY_OK);
            assert_true(point > 8);
            break;
        }
        assert_int_equal(code, BELAY_FILE_WRITE);
        assert_non_null(strstr(error.what, "cannot write 'trace.json': No space left on device"));
        char *text = read_file();
        bool is_closed = strlen(text) > 2 && strcmp(text + strlen(text) - 2, "]\n") == 0;
        free(text);
        json_decref(read_events(is_closed));
    }
}

static void a_killed_program_leaves_what_was_flushed(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        bl_trace *trace = open_trace(0);
        bl_report_fault fault = a_fault();
        bl_trace_span_add(trace, &(bl_trace_span){.name = "add"});
        bl_trace_fault(trace, 0, 0, 1000000, &fault);
        bl_trace_span_add(trace, &(bl_trace_span){.name = "lost"});
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    json_t *events = read_events(false);
    assert_in_range(json_array_size(events), 3, 4); /* with tiny buffers the last one too */
    json_decref(events);
}

static void *add_many(void *trace)
{
    for (int i = 0; i < 500; i++)
        bl_trace_span_add(trace, &(bl_trace_span){.device = 1, .name = "mul", .launch = (uint64_t)i});
    return NULL;
}

static void threads_add_whole_events(void **state)
{
    (void)state;
    pthread_t thread[3];
    bl_trace *trace = open_trace(0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, add_many, trace), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    close_trace(trace);
    json_t *events = read_events(true);
    assert_int_equal(json_array_size(events), 1501);
    json_decref(events);
}

static void no_trace_takes_everything_and_does_nothing(void **state)
{
    (void)state;
    bl_report_fault fault = a_fault();
    bl_trace_name(NULL, 0, 0, "x");
    bl_trace_span_add(NULL, &(bl_trace_span){.name = "x"});
    bl_trace_fault(NULL, 0, 0, 0, &fault);
    bl_trace_counter(NULL, 0, "x", 0, 0);
    bl_trace_flush(NULL);
    close_trace(NULL);
    bl_trace *trace;
    bl_error error = {0};
    assert_int_equal(bl_trace_open("/nowhere/trace.json", 0, &trace, &error), BELAY_FILE_WRITE);
    assert_null(trace);
    assert_string_equal(error.what, "cannot write '/nowhere/trace.json': No such file or directory");
}

static void memory_that_ends_is_told_and_leaks_nothing(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        bl_trace *trace = NULL;
        bl_error error = {0};
        bl_memory_fail_at(n);
        belay_code code = bl_trace_open("trace.json", 0, &trace, &error);
        for (int i = 0; i < 3 && code == BELAY_OK; i++)
            bl_trace_span_add(trace, &(bl_trace_span){.name = "add"});
        if (code == BELAY_OK)
            code = bl_trace_close(trace, &error);
        bl_memory_fail_at(-1);
        assert_int_equal(code, error.code);
        if (code == BELAY_OK)
            break;
        assert_int_equal(code, BELAY_MEM_EXHAUSTED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_holds_calls_streams_faults_and_figures),
        cmocka_unit_test(names_take_any_bytes),
        cmocka_unit_test(what_passes_the_limit_is_counted_and_faults_still_find_room),
        cmocka_unit_test(a_write_that_fails_leaves_a_list_that_can_be_read),
        cmocka_unit_test(a_killed_program_leaves_what_was_flushed),
        cmocka_unit_test(threads_add_whole_events),
        cmocka_unit_test(no_trace_takes_everything_and_does_nothing),
        cmocka_unit_test(memory_that_ends_is_told_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
