/* SPDX-License-Identifier: Apache-2.0 */
/* A file of lines holds whole lines only, whatever fails and whenever the process dies. */
#include "file_support.h"

#include <signal.h>
#include <sys/wait.h>

#include "file/atomic.h"

#define LINES_ADVICE "    try: Check free space and permissions; the lines before stand.\n"

static bl_error error;

static bl_file_append *open_lines(const char *path, int64_t keep)
{
    bl_file_append *file;
    check_ok(bl_file_append_open(path, keep, &file, &error), &error);
    return file;
}

static void add(bl_file_append *file, const char *line)
{
    check_ok(bl_file_append_line(file, line, (int64_t)strlen(line), &error), &error);
}

static void lines_arrive_at_flush_and_at_close(void **state)
{
    (void)state;
    bl_file_append *file = open_lines("m", BL_FILE_KEEP_LINES);
    add(file, "one");
    add(file, "");
    assert_int_equal(bl_file_append_size(file), 5);
    check_ok(bl_file_append_flush(file, &error), &error);
    assert_file_is("m", "one\n\n");
    add(file, "two");
    check_ok(bl_file_append_sync(file, &error), &error);
    assert_file_is("m", "one\n\ntwo\n");
    add(file, "three");
    check_ok(bl_file_append_close(file, &error), &error);
    assert_file_is("m", "one\n\ntwo\nthree\n");
    check_ok(bl_file_append_close(NULL, &error), &error);
}

static void opening_keeps_what_was_asked(void **state)
{
    (void)state;
    put_text("m", "one\ntwo\ntorn");
    check_ok(bl_file_append_close(open_lines("m", BL_FILE_KEEP_LINES), &error), &error);
    assert_file_is("m", "one\ntwo\n");
    bl_file_append *file = open_lines("m", 4);
    add(file, "2");
    check_ok(bl_file_append_close(file, &error), &error);
    assert_file_is("m", "one\n2\n");
    check_ok(bl_file_append_close(open_lines("m", BL_FILE_KEEP_NONE), &error), &error);
    assert_file_is("m", "");
    put_text("m", "no end of line at all");
    check_ok(bl_file_append_close(open_lines("m", BL_FILE_KEEP_LINES), &error), &error);
    assert_file_is("m", "");
}

static void a_torn_line_longer_than_a_block_is_cut(void **state)
{
    (void)state;
    char text[3000];
    for (int n = 500; n < 2800; n += 37) {
        memset(text, 'x', sizeof text);
        memcpy(text, "one\n", 4);
        put_bytes("m", text, (size_t)n);
        check_ok(bl_file_append_close(open_lines("m", BL_FILE_KEEP_LINES), &error), &error);
        assert_file_is("m", "one\n");
    }
}

static void a_file_that_is_not_the_one_left_is_refused_and_stays(void **state)
{
    (void)state;
    bl_file_append *file;
    put_text("m", "one\ntwo\n");
    check_error(bl_file_append_open("m", 12, &file, &error), &error,
                "belay: 'm' has 8 bytes, but had 12 when it was left (file.mismatch)\n"
                "    try: Restore the file, or start a new run.\n");
    check_error(bl_file_append_open("m", 5, &file, &error), &error,
                "belay: 'm' was left with 5 bytes, but no line ends there (file.mismatch)\n"
                "    try: Restore the file, or start a new run.\n");
    assert_file_is("m", "one\ntwo\n");
    mkdir("folder", 0777);
    check_error(bl_file_append_open("folder", 0, &file, &error), &error,
                "belay: cannot write 'folder': Is a directory (file.write)\n"
                "    wanted 0 bytes at offset 0\n" LINES_ADVICE);
    check_error(bl_file_append_open("/dev/null", 0, &file, &error), &error,
                "belay: cannot write '/dev/null': it is a character device (file.write)\n"
                "    try: Check free space and permissions; what stood there before is untouched.\n");
}

static void a_line_with_an_end_of_line_is_a_bug(void **state)
{
    (void)state;
    bl_file_append *file = open_lines("m", 0);
    check_error(bl_file_append_line(file, "a\nb", 3, &error), &error,
                "belay: a line for 'm' holds an end of line (bug.invariant)\n"
                "    try: Please report it with the text of this message.\n");
    check_ok(bl_file_append_close(file, &error), &error);
    assert_file_is("m", "");
}

static void a_failed_flush_keeps_the_lines_for_the_next(void **state)
{
    (void)state;
    bl_file_append *file = open_lines("m", 0);
    add(file, "one");
    check_ok(bl_file_append_flush(file, &error), &error);
    add(file, "two");
    for (int64_t n = 0; n < 2; n++) { /* before the write, and after it */
        bl_file_fail_at(n, BL_FILE_FAIL_ENOSPC);
        belay_code code = bl_file_append_flush(file, &error);
        bl_file_fail_at(-1, BL_FILE_FAIL_EIO);
        check_error(code, &error,
                    "belay: cannot write 'm': No space left on device (file.write)\n"
                    "    wanted 4 bytes at offset 4\n" LINES_ADVICE);
        assert_file_is("m", "one\n");
    }
    check_ok(bl_file_append_close(file, &error), &error);
    assert_file_is("m", "one\ntwo\n");
}

/* Opens, adds two lines, syncs after each; the lines must be those of `expected`, whole ones only. */
static belay_code two_lines(bl_error *reason)
{
    bl_file_append *file;
    TRY(bl_file_append_open("m", BL_FILE_KEEP_LINES, &file, reason));
    belay_code code = bl_file_append_line(file, "two", 3, reason);
    if (code == BELAY_OK)
        code = bl_file_append_sync(file, reason);
    if (code == BELAY_OK)
        code = bl_file_append_line(file, "three", 5, reason);
    belay_code closed = bl_file_append_close(file, code == BELAY_OK ? reason : NULL);
    return code != BELAY_OK ? code : closed;
}

static void each_fail_point_leaves_whole_lines(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        put_text("m", "one\ntorn");
        bl_file_fail_at(n, BL_FILE_FAIL_EIO);
        belay_code code = two_lines(&error);
        bool reached = bl_file_fail_reached();
        bl_file_fail_at(-1, BL_FILE_FAIL_EIO);
        if (!reached) {
            check_ok(code, &error);
            assert_file_is("m", "one\ntwo\nthree\n");
            assert_int_equal(n, 8); /* cut, write, sync, write: two each */
            break;
        }
        assert_int_equal(code, BELAY_FILE_WRITE);
        check_ok(bl_file_append_close(open_lines("m", BL_FILE_KEEP_LINES), &error), &error);
        char *text = get_bytes("m", NULL);
        assert_int_equal(strncmp("one\ntwo\nthree\n", text, strlen(text)), 0);
        assert_int_equal(text[strlen(text) - 1], '\n');
        free(text);
    }
}

static void a_kill_at_each_fail_point_leaves_whole_lines(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        put_text("m", "one\ntorn");
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            bl_file_fail_at(n, BL_FILE_FAIL_KILL);
            _exit(two_lines(NULL) == BELAY_OK ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            assert_int_equal(n, 8);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
        check_ok(bl_file_append_close(open_lines("m", BL_FILE_KEEP_LINES), &error), &error);
        char *text = get_bytes("m", NULL);
        assert_int_equal(strncmp("one\ntwo\nthree\n", text, strlen(text)), 0);
        assert_int_equal(text[strlen(text) - 1], '\n');
        free(text);
    }
}

static void each_failing_allocation_is_named_and_leaks_nothing(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        put_text("m", "one\n");
        bl_memory_fail_at(n);
        belay_code code = two_lines(&error);
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed) {
            check_ok(code, &error);
            assert_true(n >= 3);
            break;
        }
        assert_int_equal(code, BELAY_MEM_EXHAUSTED);
        assert_true(strcmp(error.what, "no memory to write 'm'") == 0 ||
                    strcmp(error.what, "no memory to write a line to 'm'") == 0);
    }
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, enter_scratch, leave_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(lines_arrive_at_flush_and_at_close),
        IN_SCRATCH(opening_keeps_what_was_asked),
        IN_SCRATCH(a_torn_line_longer_than_a_block_is_cut),
        IN_SCRATCH(a_file_that_is_not_the_one_left_is_refused_and_stays),
        IN_SCRATCH(a_line_with_an_end_of_line_is_a_bug),
        IN_SCRATCH(a_failed_flush_keeps_the_lines_for_the_next),
        IN_SCRATCH(each_fail_point_leaves_whole_lines),
        IN_SCRATCH(a_kill_at_each_fail_point_leaves_whole_lines),
        IN_SCRATCH(each_failing_allocation_is_named_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
