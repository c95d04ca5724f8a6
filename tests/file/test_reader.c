/* SPDX-License-Identifier: Apache-2.0 */
/* Readers take regular files only, at most what they were told to take, and say what went wrong with which file. */
#include "file_support.h"

#include "base/checked.h"
#include "file/reader.h"

static bl_error error;

static belay_code read_whole(const char *path, int64_t limit, char **bytes, int64_t *n_bytes)
{
    memset(&error, 0, sizeof error);
    return bl_file_read_whole(path, limit, bytes, n_bytes, &error);
}

static void a_file_up_to_the_limit_is_read_whole(void **state)
{
    (void)state;
    char *bytes;
    int64_t n;
    put_bytes("a",
              "12\0"
              "45",
              5);
    check_ok(read_whole("a", 5, &bytes, &n), &error);
    assert_int_equal(n, 5);
    assert_memory_equal(bytes, "12\00045", 6);
    bl_free(bytes);
    check_ok(read_whole("a", INT64_MAX - 1, &bytes, &n), &error);
    bl_free(bytes);
    put_text("empty", "");
    check_ok(read_whole("empty", 0, &bytes, &n), &error);
    assert_int_equal(n, 0);
    assert_string_equal(bytes, "");
    bl_free(bytes);
}

static void a_file_past_the_limit_is_refused(void **state)
{
    (void)state;
    char *bytes;
    int64_t n;
    put_text("a", "12345");
    check_error(read_whole("a", 4, &bytes, &n), &error,
                "belay: 'a' is longer than 4 bytes (file.limit)\n"
                "    try: Split the data, or raise the limit that the message names.\n");
    assert_null(bytes);
}

static void a_file_that_tells_no_size_is_read_within_the_limit(void **state)
{
    (void)state;
    char *bytes;
    int64_t n;
    check_ok(read_whole("/proc/self/status", 1 << 20, &bytes, &n), &error);
    assert_true(n > 100);
    assert_int_equal(strncmp(bytes, "Name:", 5), 0);
    bl_free(bytes);
    check_error(read_whole("/proc/self/status", 100, &bytes, &n), &error,
                "belay: '/proc/self/status' is longer than 100 bytes (file.limit)\n"
                "    try: Split the data, or raise the limit that the message names.\n");
}

#define OPEN_ADVICE "    try: Check that the path exists and may be read.\n"

static void what_is_no_regular_file_is_named(void **state)
{
    (void)state;
    char *bytes;
    int64_t n;
    mkdir("folder", 0777);
    mkfifo("pipe", 0666);
    check_error(read_whole("folder", 9, &bytes, &n), &error,
                "belay: cannot open 'folder': it is a directory (file.open)\n" OPEN_ADVICE);
    check_error(read_whole("pipe", 9, &bytes, &n), &error,
                "belay: cannot open 'pipe': it is a named pipe (file.open)\n" OPEN_ADVICE);
    check_error(read_whole("/dev/zero", 9, &bytes, &n), &error,
                "belay: cannot open '/dev/zero': it is a character device (file.open)\n" OPEN_ADVICE);
    check_error(read_whole("missing", 9, &bytes, &n), &error,
                "belay: cannot open 'missing': No such file or directory (file.open)\n" OPEN_ADVICE);
    check_error(read_whole("", 9, &bytes, &n), &error,
                "belay: cannot open '': No such file or directory (file.open)\n" OPEN_ADVICE);
}

static void a_file_that_shrank_is_named(void **state)
{
    (void)state;
    int fd;
    int64_t size;
    char buffer[16];
    put_text("a", "12345");
    check_ok(bl_file_open_regular("a", &fd, &size, &error), &error);
    assert_int_equal(size, 5);
    check_ok(bl_file_read_at(fd, "a", 3, buffer, 2, &error), &error);
    assert_memory_equal(buffer, "45", 2);
    check_error(bl_file_read_at(fd, "a", 3, buffer, 8, &error), &error,
                "belay: 'a' became shorter while it was read (file.read)\n"
                "    wanted 8 bytes at offset 3, got 2\n"
                "    try: Something else writes or cuts the file; read it when that is done.\n");
    close(fd);
}

static void expect_line(bl_file_stream *stream, const char *expected)
{
    const char *line;
    int64_t n;
    check_ok(bl_file_stream_line(stream, 1, &line, &n, &error), &error);
    if (expected == NULL) {
        assert_null(line);
        return;
    }
    assert_non_null(line);
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(line, expected, (size_t)n);
}

static void lines_come_without_their_ends(void **state)
{
    (void)state;
    put_text("a", "one\ntwo\r\n\n\r\nlast");
    bl_file_stream *stream;
    check_ok(bl_file_stream_open("a", 64, &stream, &error), &error);
    expect_line(stream, "one");
    expect_line(stream, "two");
    assert_int_equal(bl_file_stream_offset(stream), 9);
    expect_line(stream, "");
    expect_line(stream, "");
    expect_line(stream, "last");
    expect_line(stream, NULL);
    expect_line(stream, NULL);
    bl_file_stream_seek(stream, 4);
    expect_line(stream, "two");
    bl_file_stream_seek(stream, 1000);
    expect_line(stream, NULL);
    bl_file_stream_close(stream);
    bl_file_stream_close(NULL);
}

static void a_line_longer_than_the_window_is_named(void **state)
{
    (void)state;
    const char *line;
    int64_t n;
    put_text("a", "1234567\n12345678\n");
    bl_file_stream *stream;
    check_ok(bl_file_stream_open("a", 8, &stream, &error), &error);
    expect_line(stream, "1234567");
    check_error(bl_file_stream_line(stream, 2, &line, &n, &error), &error,
                "belay: a:2: the line is longer than 7 bytes (file.limit)\n"
                "    try: Split the data, or raise the limit that the message names.\n");
    bl_file_stream_close(stream);
}

/* Lines of every length around the sizes of the reads, each line its number and as many letters. */
static void long_files_come_out_as_they_went_in(void **state)
{
    (void)state;
    enum { n_lines = 1500 };
    FILE *file = fopen("a", "w");
    for (int i = 0; i < n_lines; i++)
        fprintf(file, "%d:%*s\n", i, i, "");
    fclose(file);
    bl_file_stream *stream;
    check_ok(bl_file_stream_open("a", 2000, &stream, &error), &error);
    for (int i = 0; i < n_lines; i++) {
        char expected[2000];
        snprintf(expected, sizeof expected, "%d:%*s", i, i, "");
        expect_line(stream, expected);
    }
    expect_line(stream, NULL);
    bl_file_stream_close(stream);
}

static belay_code read_both(bl_error *reason)
{
    char *bytes;
    const char *line;
    int64_t n;
    bl_file_stream *stream;
    TRY(bl_file_read_whole("a", 1000, &bytes, &n, reason));
    bl_free(bytes);
    TRY(bl_file_stream_open("a", 1000, &stream, reason));
    belay_code code = bl_file_stream_line(stream, 1, &line, &n, reason);
    bl_file_stream_close(stream);
    return code;
}

static void each_failing_allocation_is_named_and_leaks_nothing(void **state)
{
    (void)state;
    put_text("a", "some words in one line that is a little longer\n");
    for (int64_t n = 0;; n++) {
        bl_memory_fail_at(n);
        belay_code code = read_both(&error);
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed) {
            check_ok(code, &error);
            assert_true(n >= 4);
            break;
        }
        check_error(code, &error,
                    "belay: no memory to read 'a' (mem.exhausted)\n"
                    "    try: Use a smaller batch, sequence or model, or a machine with more memory.\n");
    }
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, enter_scratch, leave_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_file_up_to_the_limit_is_read_whole),
        IN_SCRATCH(a_file_past_the_limit_is_refused),
        IN_SCRATCH(a_file_that_tells_no_size_is_read_within_the_limit),
        IN_SCRATCH(what_is_no_regular_file_is_named),
        IN_SCRATCH(a_file_that_shrank_is_named),
        IN_SCRATCH(lines_come_without_their_ends),
        IN_SCRATCH(a_line_longer_than_the_window_is_named),
        IN_SCRATCH(long_files_come_out_as_they_went_in),
        IN_SCRATCH(each_failing_allocation_is_named_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
