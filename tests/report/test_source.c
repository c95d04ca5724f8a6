/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of source to be quoted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "report/site.h"
#include "report/source.h"

static char folder[64], path[96];
static const time_t later = (time_t)1 << 40;

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/belay_source_XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/x.c", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_bytes(const char *bytes, size_t n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void line_is(int number, const char *expected)
{
    char line[BL_SOURCE_LINE + 1];
    memset(line, 'x', sizeof line);
    assert_int_equal(bl_report_source_line(path, number, later, line, sizeof line), expected[0] != '\0');
    assert_string_equal(line, expected);
}

static void a_line_is_told_without_the_blanks_around_it(void **state)
{
    (void)state;
    static const char text[] = "first\n\t  second\tone \t\r\n\n   \nlast";
    write_bytes(text, sizeof text - 1);
    line_is(1, "first");
    line_is(2, "second one");
    line_is(3, "");
    line_is(4, "");
    line_is(5, "last");
    line_is(6, "");
    line_is(0, "");
    line_is(-1, "");
}

static void a_long_line_is_cut_between_characters(void **state)
{
    (void)state;
    char text[400], expected[BL_SOURCE_LINE + 1];
    memset(text, 'a', sizeof text);
    write_bytes(text, BL_SOURCE_LINE);
    snprintf(expected, sizeof expected, "%.*s", BL_SOURCE_LINE, text);
    line_is(1, expected);
    write_bytes(text, BL_SOURCE_LINE + 1);
    snprintf(expected, sizeof expected, "%.*s...", BL_SOURCE_LINE - 3, text);
    line_is(1, expected);
    memcpy(text + BL_SOURCE_LINE - 4, "\xc3\xa9", 2); /* the cut would fall within it */
    write_bytes(text, sizeof text);
    snprintf(expected, sizeof expected, "%.*s...", BL_SOURCE_LINE - 4, text);
    line_is(1, expected);
}

static void a_line_behind_the_first_block_is_found(void **state)
{
    (void)state;
    char *text = malloc(50000);
    assert_non_null(text);
    memset(text, 'b', 50000);
    for (size_t i = 99; i < 50000; i += 100)
        text[i] = '\n';
    memcpy(text + 40900, "here", 5);
    text[40904] = '\n';
    write_bytes(text, 50000);
    free(text);
    line_is(410, "here");
}

static void nothing_but_a_regular_file_of_a_bounded_size_is_read(void **state)
{
    (void)state;
    char line[BL_SOURCE_LINE + 1] = "x";
    const char *const others[] = {"/dev/zero", "/dev/stdin", folder, "/nowhere/x.c", ""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(bl_report_source_line(others[i], 1, later, line, sizeof line));
        assert_string_equal(line, "");
    }
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    line_is(1, "");
    assert_int_equal(unlink(path), 0);
    write_bytes("x\n", 2);
    assert_int_equal(truncate(path, BL_SOURCE_FILE), 0);
    line_is(1, "x");
    assert_int_equal(truncate(path, BL_SOURCE_FILE + 1), 0);
    line_is(1, "");
}

static void a_file_that_is_newer_than_the_program_is_not_quoted(void **state)
{
    (void)state;
    struct stat status;
    char line[BL_SOURCE_LINE + 1];
    write_bytes("x\n", 2);
    assert_int_equal(stat(path, &status), 0);
    assert_true(bl_report_source_line(path, 1, status.st_mtime, line, sizeof line));
    assert_false(bl_report_source_line(path, 1, status.st_mtime - 1, line, sizeof line));
}

static uintptr_t noted;
__attribute__((noinline, unused)) static void note(const char *words)
{
    (void)words;
    noted = (uintptr_t)__builtin_return_address(0);
}

static void the_line_of_a_call_is_found_by_its_address(void **state)
{
    (void)state;
#ifdef BL_HAVE_LIBDW
    char line[BL_SOURCE_LINE + 4];
    note("a line to be found"); /* as it stands here */
    bl_report_site_source_set(true);
    bl_report_site_source(noted, line, sizeof line);
    assert_string_equal(line, "note(\"a line to be found\"); /* as it stands here */");
    bl_report_site_source(noted, line, 5);
    assert_string_equal(line, "note");
    bl_report_site_source(0, line, sizeof line);
    assert_string_equal(line, "");
    bl_report_site_source(0x10, line, sizeof line);
    assert_string_equal(line, "");
    bl_report_site_source_set(false);
    bl_report_site_source(noted, line, sizeof line);
    assert_string_equal(line, "");
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_told_without_the_blanks_around_it),
        cmocka_unit_test(a_long_line_is_cut_between_characters),
        cmocka_unit_test(a_line_behind_the_first_block_is_found),
        cmocka_unit_test(nothing_but_a_regular_file_of_a_bounded_size_is_read),
        cmocka_unit_test(a_file_that_is_newer_than_the_program_is_not_quoted),
        cmocka_unit_test(the_line_of_a_call_is_found_by_its_address),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
