/* SPDX-License-Identifier: Apache-2.0 */
/* A file is replaced whole or not at all, whatever fails and whenever the process dies. */
#include "file_support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "file/atomic.h"

#define WRITE_ADVICE "    try: Check free space and permissions; what stood there before is untouched.\n"

static bl_error error;

static void replacing_gives_the_new_bytes_and_leaves_no_temporary(void **state)
{
    (void)state;
    check_ok(bl_file_replace("a", "old", 3, &error), &error);
    assert_file_is("a", "old");
    check_ok(bl_file_replace("a", "newer", 5, &error), &error);
    assert_file_is("a", "newer");
    assert_int_equal(n_files_here(), 1);
    check_ok(bl_file_replace("empty", NULL, 0, &error), &error);
    assert_file_is("empty", "");
}

static void writes_of_any_size_arrive_in_order(void **state)
{
    (void)state;
    enum { size = 1000000 };
    char *bytes = malloc(size);
    for (int i = 0; i < size; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    bl_file_atomic *file;
    check_ok(bl_file_atomic_open("big", &file, &error), &error);
    int at = 0;
    for (int n = 1; at < size; n = n * 3 % 400009) {
        int take = n < size - at ? n : size - at;
        check_ok(bl_file_atomic_write(file, bytes + at, take, &error), &error);
        at += take;
    }
    check_ok(bl_file_atomic_commit(file, &error), &error);
    bl_file_atomic_close(file);
    size_t n;
    char *read = get_bytes("big", &n);
    assert_int_equal(n, size);
    assert_memory_equal(read, bytes, size);
    free(read);
    free(bytes);
}

static void closing_without_commit_changes_nothing(void **state)
{
    (void)state;
    put_text("a", "old");
    bl_file_atomic *file;
    check_ok(bl_file_atomic_open("a", &file, &error), &error);
    check_ok(bl_file_atomic_write(file, "new", 3, &error), &error);
    assert_file_is("a", "old");
    bl_file_atomic_close(file);
    assert_file_is("a", "old");
    assert_int_equal(n_files_here(), 1);
    bl_file_atomic_close(NULL);
}

static void the_mode_of_the_old_file_is_kept(void **state)
{
    (void)state;
    struct stat status;
    put_text("a", "old");
    chmod("a", 0600);
    check_ok(bl_file_replace("a", "new", 3, &error), &error);
    assert_int_equal(stat("a", &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

static void a_missing_folder_is_named(void **state)
{
    (void)state;
    belay_code code = bl_file_replace("no/such/file", "x", 1, &error);
    check_error(code, &error,
                "belay: cannot write 'no/such/file': No such file or directory (file.write)\n"
                "    while opening 'no/such/.file.tmp'\n" WRITE_ADVICE);
}

static void what_is_no_regular_file_is_refused_and_not_replaced(void **state)
{
    (void)state;
    mkdir("folder", 0777);
    mkfifo("pipe", 0666);
    check_error(bl_file_replace("folder", "x", 1, &error), &error,
                "belay: cannot write 'folder': it is a directory (file.write)\n" WRITE_ADVICE);
    check_error(bl_file_replace("pipe", "x", 1, &error), &error,
                "belay: cannot write 'pipe': it is a named pipe (file.write)\n" WRITE_ADVICE);
    check_error(bl_file_replace("/dev/null", "x", 1, &error), &error,
                "belay: cannot write '/dev/null': it is a character device (file.write)\n" WRITE_ADVICE);
    check_error(bl_file_replace("no/", "x", 1, &error), &error,
                "belay: cannot write 'no/': it names no file (file.write)\n" WRITE_ADVICE);
    check_error(bl_file_replace("", "x", 1, &error), &error,
                "belay: cannot write '': it names no file (file.write)\n" WRITE_ADVICE);
    assert_int_equal(bl_file_kind_get("pipe"), BL_FILE_OTHER);
    assert_int_equal(bl_file_kind_get("/dev/null"), BL_FILE_OTHER);
}

static void the_second_writer_of_one_file_is_refused(void **state)
{
    (void)state;
    bl_file_atomic *first, *second;
    check_ok(bl_file_atomic_open("a", &first, &error), &error);
    check_error(bl_file_atomic_open("a", &second, &error), &error,
                "belay: cannot write 'a': another process is writing it (file.write)\n"
                "    its temporary is '.a.tmp'\n"
                "    try: Wait for that process, or give each its own folder.\n");
    assert_null(second);
    check_ok(bl_file_atomic_write(first, "one", 3, &error), &error);
    check_ok(bl_file_atomic_commit(first, &error), &error);
    bl_file_atomic_close(first);
    assert_file_is("a", "one");
    check_ok(bl_file_replace("a", "two", 3, &error), &error);
    assert_file_is("a", "two");
}

static void the_leftover_of_a_dead_writer_is_taken_over(void **state)
{
    (void)state;
    put_text(".a.tmp", "a long leftover of some process that died before it was done");
    check_ok(bl_file_replace("a", "new", 3, &error), &error);
    assert_file_is("a", "new");
    assert_int_equal(n_files_here(), 1);
}

static void a_leftover_that_is_a_link_is_not_followed(void **state)
{
    (void)state;
    put_text("precious", "keep");
    assert_int_equal(symlink("precious", ".a.tmp"), 0);
    check_error(bl_file_replace("a", "new", 3, &error), &error,
                "belay: cannot write 'a': Too many levels of symbolic links (file.write)\n"
                "    while opening '.a.tmp'\n" WRITE_ADVICE);
    assert_file_is("precious", "keep");
}

static void after_a_failure_the_writer_repeats_it(void **state)
{
    (void)state;
    put_text("a", "old");
    bl_file_atomic *file;
    check_ok(bl_file_atomic_open("a", &file, &error), &error);
    char *bytes = calloc(1, 1 << 20);
    bl_file_fail_at(0, BL_FILE_FAIL_ENOSPC);
    const char *expected = "belay: cannot write 'a': No space left on device (file.write)\n"
                           "    while writing 1048576 bytes at offset 0 of '.a.tmp'\n" WRITE_ADVICE;
    check_error(bl_file_atomic_write(file, bytes, 1 << 20, &error), &error, expected);
    bl_file_fail_at(-1, BL_FILE_FAIL_EIO);
    memset(&error, 0, sizeof error);
    check_error(bl_file_atomic_write(file, "x", 1, &error), &error, expected);
    memset(&error, 0, sizeof error);
    check_error(bl_file_atomic_commit(file, &error), &error, expected);
    bl_file_atomic_close(file);
    free(bytes);
    assert_file_is("a", "old");
    assert_int_equal(n_files_here(), 1);
}

/* ---- fail points ------------------------------------------------------------------------------------------------ */

static void each_fail_point_leaves_the_old_file_or_the_new_one(void **state)
{
    (void)state;
    for (int mode = BL_FILE_FAIL_EIO; mode <= BL_FILE_FAIL_ENOSPC; mode++)
        for (int64_t n = 0;; n++) {
            put_text("a", "old");
            bl_file_fail_at(n, (bl_file_fail_mode)mode);
            belay_code code = bl_file_replace("a", "the new one", 11, &error);
            bool reached = bl_file_fail_reached();
            int64_t asked = bl_file_fail_asked();
            bl_file_fail_at(-1, BL_FILE_FAIL_EIO);
            assert_int_equal(n_files_here(), 1);
            if (!reached) {
                check_ok(code, &error);
                /* two each: cut, write, sync, rename, sync of the folder (the small build writes once too) */
                assert_int_equal(asked, 10);
                assert_int_equal(n, 10);
                break;
            }
            assert_int_equal(code, BELAY_FILE_WRITE);
            assert_non_null(strstr(error.what, mode == BL_FILE_FAIL_EIO ? "Input/output error" : "No space left"));
            assert_file_is("a", n < 7 ? "old" : "the new one");
            assert_true((strstr(error.facts, "the new file is in place") != NULL) == (n >= 7));
        }
}

/* The status of a child that replaces "a" with fail point n armed to kill. */
static int status_of_child(int64_t n)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bl_file_fail_at(n, BL_FILE_FAIL_KILL);
        _exit(bl_file_replace("a", "the new one", 11, NULL) == BELAY_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_kill_at_each_fail_point_leaves_the_old_file_or_the_new_one(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        put_text("a", "old");
        int status = status_of_child(n);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            assert_int_equal(n, 10);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
        assert_file_is("a", n < 7 ? "old" : "the new one");
        check_ok(bl_file_replace("a", "after the kill", 14, &error), &error);
        assert_file_is("a", "after the kill");
        assert_int_equal(n_files_here(), 1);
    }
}

static void the_environment_arms_a_fail_point(void **state)
{
    (void)state;
    unsetenv("BELAY_FAIL_POINT");
    check_ok(bl_file_fail_init(&error), &error);
    assert_int_equal(bl_file_fail_point(), 0);
    setenv("BELAY_FAIL_POINT", "1:error", 1);
    check_ok(bl_file_fail_init(&error), &error);
    assert_int_equal(bl_file_fail_point(), 0);
    assert_int_equal(bl_file_fail_point(), EIO);
    assert_int_equal(bl_file_fail_point(), 0);
    assert_int_equal(bl_file_fail_asked(), 3);
    setenv("BELAY_FAIL_POINT", "0:nospace", 1);
    check_ok(bl_file_fail_init(&error), &error);
    assert_int_equal(bl_file_fail_point(), ENOSPC);
    bl_file_fail_at(-1, BL_FILE_FAIL_EIO);
    const char *wrong[] = {"", "1", "1:", ":kill", "-1:kill", "1:kil", "1:kill ", "99999999999999999999:kill"};
    for (int i = 0; i < BL_COUNT(wrong); i++) {
        char expected[512];
        setenv("BELAY_FAIL_POINT", wrong[i], 1);
        snprintf(expected, sizeof expected,
                 "belay: BELAY_FAIL_POINT is '%s', but must be a number from 0 and :error, :nospace or :kill "
                 "(conf.value)\n    try: Give a value inside the range that the message names.\n",
                 wrong[i]);
        check_error(bl_file_fail_init(&error), &error, expected);
    }
    unsetenv("BELAY_FAIL_POINT");
}

/* ---- the world fails for real ----------------------------------------------------------------------------------- */

static void a_limit_on_file_size_is_reported_and_the_old_file_stays(void **state)
{
    (void)state;
    put_text("a", "old");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *bytes = calloc(1, 100000), text[4096];
        struct rlimit limit = {.rlim_cur = 5000, .rlim_max = 5000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        bl_file_atomic *file = NULL;
        if (bl_file_atomic_open("a", &file, &error) != BELAY_OK)
            _exit(1);
        belay_code code = BELAY_OK; /* pieces of one byte, so that the whole text does not depend on the buffer */
        for (int i = 0; i < 100000 && code == BELAY_OK; i++)
            code = bl_file_atomic_write(file, bytes, 1, &error);
        if (code == BELAY_OK)
            code = bl_file_atomic_commit(file, &error);
        bl_file_atomic_close(file);
        free(bytes);
        render_error(&error, text, sizeof text);
        bool right = code == BELAY_FILE_WRITE &&
                     strstr(text, "belay: cannot write 'a': File too large (file.write)\n") &&
                     strstr(text, " at offset 5000 of '.a.tmp'\n");
        _exit(right ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_file_is("a", "old");
    assert_int_equal(n_files_here(), 1);
}

static void a_full_disk_is_reported_and_the_old_file_stays(void **state)
{
    (void)state;
    mkdir("disk", 0777);
    if (mount("belay-test", "disk", "tmpfs", 0, "size=64k") != 0) {
        print_message("skipped: a tmpfs cannot be mounted here (%s)\n", strerror(errno));
        skip();
    }
    char *bytes = calloc(1, 200000);
    bool right_error = false, old_stays = false;
    int n_left = 0;
    if (bl_file_replace("disk/a", "old", 3, &error) == BELAY_OK) {
        belay_code code = bl_file_replace("disk/a", bytes, 200000, &error);
        right_error = code == BELAY_FILE_WRITE &&
                      strcmp(error.what, "cannot write 'disk/a': No space left on device") == 0 &&
                      strstr(error.facts, "of 'disk/.a.tmp'") != NULL;
        char *old = get_bytes("disk/a", NULL);
        old_stays = old != NULL && strcmp(old, "old") == 0;
        free(old);
        assert_int_equal(chdir("disk"), 0);
        n_left = n_files_here();
        assert_int_equal(chdir(".."), 0);
    }
    free(bytes);
    assert_int_equal(umount("disk"), 0);
    assert_true(right_error);
    assert_true(old_stays);
    assert_int_equal(n_left, 1);
}

static void each_failing_allocation_is_named_and_leaks_nothing(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        put_text("a", "old");
        bl_memory_fail_at(n);
        belay_code code = bl_file_replace("a", "new", 3, &error);
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_int_equal(n_files_here(), 1);
        if (!failed) {
            check_ok(code, &error);
            assert_true(n >= 3);
            break;
        }
        check_error(code, &error,
                    "belay: no memory to write 'a' (mem.exhausted)\n"
                    "    try: Use a smaller batch, sequence or model, or a machine with more memory.\n");
        assert_file_is("a", "old");
    }
}

/* ---- folders and paths ------------------------------------------------------------------------------------------ */

static void folders_are_made_with_those_above(void **state)
{
    (void)state;
    check_ok(bl_file_mkdir("x/y//z/", &error), &error);
    assert_int_equal(bl_file_kind_get("x/y/z"), BL_FILE_FOLDER);
    check_ok(bl_file_mkdir("x/y", &error), &error);
    check_ok(bl_file_mkdir("/", &error), &error);
    check_ok(bl_file_mkdir(".", &error), &error);
    put_text("x/file", "");
    check_error(bl_file_mkdir("x/file/more", &error), &error,
                "belay: cannot make the folder 'x/file/more': 'x/file' is a regular file (file.write)\n" WRITE_ADVICE);
    check_error(bl_file_mkdir("", &error), &error,
                "belay: cannot make the folder '': No such file or directory (file.write)\n" WRITE_ADVICE);
    bl_memory_fail_at(0);
    belay_code code = bl_file_mkdir("x", &error);
    bl_memory_fail_at(-1);
    check_error(code, &error,
                "belay: no memory to make the folder 'x' (mem.exhausted)\n"
                "    try: Use a smaller batch, sequence or model, or a machine with more memory.\n");
}

static void assert_path(char *path, const char *expected)
{
    assert_non_null(path);
    assert_string_equal(path, expected);
    bl_free(path);
}

static void paths_are_joined_and_taken_apart(void **state)
{
    (void)state;
    assert_path(bl_file_join("a", "b"), "a/b");
    assert_path(bl_file_join("a/", "b"), "a/b");
    assert_path(bl_file_join("", "b"), "b");
    assert_path(bl_file_join("/", "b"), "/b");
    assert_path(bl_file_folder("a/b/c"), "a/b");
    assert_path(bl_file_folder("c"), ".");
    assert_path(bl_file_folder("/c"), "/");
    assert_string_equal(bl_file_extension("a.d/b"), "");
    assert_string_equal(bl_file_extension("a/b.TSV"), ".TSV");
    assert_string_equal(bl_file_extension("a/.hidden"), "");
    assert_string_equal(bl_file_extension("a/b."), ".");
}

static void quoting_escapes_what_a_terminal_must_not_see(void **state)
{
    (void)state;
    char buffer[BL_FILE_QUOTE];
    assert_string_equal(bl_file_quote("plain", 5, buffer), "plain");
    assert_string_equal(bl_file_quote("a\n\x1b[31m\x7f", 8, buffer), "a\\x0A\\x1B[31m\\x7F");
    assert_string_equal(bl_file_quote("\xc3\xa4\xff\xc2\x9b", 5, buffer), "\xc3\xa4\\xFF\\xC2\\x9B");
    assert_string_equal(bl_file_quote("", 0, buffer), "");
    char longest[BL_FILE_QUOTE];
    memset(longest, 'x', sizeof longest);
    bl_file_quote(longest, BL_FILE_QUOTE - 1, buffer);
    assert_int_equal(strlen(buffer), BL_FILE_QUOTE - 1);
    assert_null(strchr(buffer, '.'));
    bl_file_quote(longest, BL_FILE_QUOTE, buffer);
    assert_int_equal(strlen(buffer), BL_FILE_QUOTE - 1);
    assert_string_equal(buffer + BL_FILE_QUOTE - 4, "...");
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, enter_scratch, leave_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(replacing_gives_the_new_bytes_and_leaves_no_temporary),
        IN_SCRATCH(writes_of_any_size_arrive_in_order),
        IN_SCRATCH(closing_without_commit_changes_nothing),
        IN_SCRATCH(the_mode_of_the_old_file_is_kept),
        IN_SCRATCH(a_missing_folder_is_named),
        IN_SCRATCH(what_is_no_regular_file_is_refused_and_not_replaced),
        IN_SCRATCH(the_second_writer_of_one_file_is_refused),
        IN_SCRATCH(the_leftover_of_a_dead_writer_is_taken_over),
        IN_SCRATCH(a_leftover_that_is_a_link_is_not_followed),
        IN_SCRATCH(after_a_failure_the_writer_repeats_it),
        IN_SCRATCH(each_fail_point_leaves_the_old_file_or_the_new_one),
        IN_SCRATCH(a_kill_at_each_fail_point_leaves_the_old_file_or_the_new_one),
        IN_SCRATCH(the_environment_arms_a_fail_point),
        IN_SCRATCH(a_limit_on_file_size_is_reported_and_the_old_file_stays),
        IN_SCRATCH(a_full_disk_is_reported_and_the_old_file_stays),
        IN_SCRATCH(each_failing_allocation_is_named_and_leaks_nothing),
        IN_SCRATCH(folders_are_made_with_those_above),
        IN_SCRATCH(paths_are_joined_and_taken_apart),
        IN_SCRATCH(quoting_escapes_what_a_terminal_must_not_see),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
