/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded logs: what is kept, what is dropped, and a disk that takes no more. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proc/capture.h"

static char folder[64], stem[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/belay-capture-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(stem, sizeof stem, "%s/rank0.stdout", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[160];
    for (int i = 0; i < 400; i++) {
        snprintf(path, sizeof path, i == 0 ? "%s.log" : "%s.%06d.log", stem, i);
        (void)unlink(path);
    }
    return rmdir(folder);
}

/* The bytes of a part, "" when it is not there. */
static const char *part(int number)
{
    static char bytes[8192];
    char path[160];
    snprintf(path, sizeof path, number == 0 ? "%s.log" : "%s.%06d.log", stem, number);
    FILE *file = fopen(path, "r");
    size_t n = file != NULL ? fread(bytes, 1, sizeof bytes - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    bytes[n] = '\0';
    return bytes;
}

static bl_capture *open_capture(int64_t limit)
{
    bl_capture *capture;
    bl_error error = {0};
    assert_int_equal(bl_capture_open(stem, limit, &capture, &error), BELAY_OK);
    return capture;
}

static void capture_keeps_all_that_stays_below_the_limit(void **state)
{
    (void)state;
    bl_capture *capture = open_capture(1 << 20);
    int64_t n;
    bl_capture_add(capture, "one\n", 4);
    bl_capture_add(capture, "\x1b[31mtwo", 8);
    assert_string_equal(part(0), "one\n\x1b[31mtwo");
    const char *tail = bl_capture_tail(capture, &n);
    assert_int_equal(n, 12);
    assert_memory_equal(tail, "one\n\x1b[31mtwo", 12);
    bl_capture_facts facts = bl_capture_facts_get(capture);
    assert_int_equal(facts.n_bytes, 12);
    assert_int_equal(facts.n_dropped, 0);
    assert_int_equal(facts.n_parts, 0);
    bl_capture_close(capture);
}

/* 4096 bytes: 2048 for the beginning, 1024 a later part, of which two stay. */
static void capture_keeps_the_beginning_and_the_end_of_what_is_too_long(void **state)
{
    (void)state;
    bl_capture *capture = open_capture(4096);
    char line[16];
    for (int i = 0; i < 1000; i++)
        bl_capture_add(capture, line, snprintf(line, sizeof line, "line %04d\n", i));
    bl_capture_facts facts = bl_capture_facts_get(capture);
    bl_capture_close(capture);
    assert_int_equal(strlen(part(0)), 2040);
    assert_memory_equal(part(0) + 2030, "line 0203\n", 10);
    assert_int_equal(facts.n_parts, 8); /* 204 lines, then 102 a part */
    assert_string_equal(part(6), "");
    assert_memory_equal(part(7), "line 0816\n", 10);
    assert_memory_equal(part(8), "line 0918\n", 10);
    assert_string_equal(part(8) + strlen(part(8)) - 10, "line 0999\n");
    assert_int_equal(facts.n_bytes, 10000);
    assert_int_equal(facts.n_dropped, (816 - 204) * 10);
}

static void capture_cuts_a_line_that_is_longer_than_a_part(void **state)
{
    (void)state;
    bl_capture *capture = open_capture(4096);
    static char line[5000];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    bl_capture_add(capture, line, sizeof line);
    bl_capture_facts facts = bl_capture_facts_get(capture);
    bl_capture_close(capture);
    assert_int_equal(strlen(part(0)), 2048);
    assert_int_equal(facts.n_parts, 3);
    assert_int_equal(facts.n_dropped, 1024);
    assert_int_equal(strlen(part(2)) + strlen(part(3)), 5000 - 2048 - 1024);
}

static void capture_remembers_the_last_bytes_of_any_length(void **state)
{
    (void)state;
    bl_capture *capture = open_capture(4096);
    static char block[100000];
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)('a' + i % 26);
    int64_t n, total = 0;
    for (int64_t size = 1; size <= (int64_t)sizeof block; size = size * 3 + 1) {
        bl_capture_add(capture, block, size);
        total += size;
        const char *tail = bl_capture_tail(capture, &n);
        assert_int_equal(n, total < BL_CAPTURE_TAIL ? total : BL_CAPTURE_TAIL);
        int64_t same = size < n ? size : n;
        assert_memory_equal(tail + n - same, block + size - same, (size_t)same);
    }
    bl_capture_close(capture);
}

static void capture_goes_on_in_memory_when_the_disk_takes_no_more(void **state)
{
    (void)state;
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 6;
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    bl_capture *capture = open_capture(4096);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bl_capture_add(capture, "first\n", 6);
    bl_capture_add(capture, "second\n", 7);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    bl_capture_add(capture, "third\n", 6);
    signal(SIGXFSZ, old);
    bl_capture_facts facts = bl_capture_facts_get(capture);
    int64_t n;
    const char *tail = bl_capture_tail(capture, &n);
    assert_int_equal(n, 19);
    assert_memory_equal(tail, "first\nsecond\nthird\n", 19);
    assert_string_equal(part(0), "first\n");
    assert_int_equal(facts.failure, EFBIG);
    assert_int_equal(facts.n_bytes, 19);
    assert_int_equal(facts.n_dropped, 13);
    bl_capture_close(capture);
}

static void capture_names_the_file_that_it_cannot_make(void **state)
{
    (void)state;
    bl_capture *capture;
    bl_error error = {0};
    assert_int_equal(bl_capture_open("/nowhere/rank0.stdout", 4096, &capture, &error), BELAY_FILE_WRITE);
    assert_string_equal(error.what, "cannot write '/nowhere/rank0.stdout.log': No such file or directory");
    assert_null(capture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(capture_keeps_all_that_stays_below_the_limit, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(capture_keeps_the_beginning_and_the_end_of_what_is_too_long, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(capture_cuts_a_line_that_is_longer_than_a_part, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(capture_remembers_the_last_bytes_of_any_length, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(capture_goes_on_in_memory_when_the_disk_takes_no_more, make_folder,
                                        remove_folder),
        cmocka_unit_test(capture_names_the_file_that_it_cannot_make),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
