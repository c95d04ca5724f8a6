/* SPDX-License-Identifier: Apache-2.0 */
/* The live view: bytes of one program as they came, lines of several behind their rank; never waiting. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "proc/view.h"

static int ends[2];
static char came[1 << 21];

static int open_pipe(void **state)
{
    (void)state;
    bl_clock_set(1000);
    return pipe(ends) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0;
}

static int close_pipe(void **state)
{
    (void)state;
    bl_clock_set(-1);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static bl_view *open_view(int n_ranks)
{
    bl_view *view;
    bl_error error = {0};
    assert_int_equal(bl_view_open(ends[1], ends[1], n_ranks, n_ranks > 1, &view, &error), BELAY_OK);
    return view;
}

/* What is in the pipe now. */
static const char *take(void)
{
    ssize_t n = read(ends[0], came, sizeof came - 1);
    came[n > 0 ? n : 0] = '\0';
    return came;
}

static const char *shown(bl_view *view)
{
    bl_view_flush(view);
    return take();
}

static void add(bl_view *view, int rank, int stream, const char *words)
{
    bl_view_add(view, rank, stream, words, (int64_t)strlen(words));
}

static void view_passes_the_bytes_of_one_program_as_they_are(void **state)
{
    (void)state;
    bl_view *view = open_view(1);
    add(view, 0, 0, "50%\r\x1b[31mred");
    assert_string_equal(shown(view), "50%\r\x1b[31mred");
    bl_view_close(view);
}

static void view_puts_the_rank_before_each_line(void **state)
{
    (void)state;
    bl_view *view = open_view(12);
    add(view, 0, 0, "one\ntw");
    add(view, 11, 1, "other\n\n");
    add(view, 0, 0, "o\n");
    assert_string_equal(shown(view), "[rank0]: one\n[rank11]: other\n[rank11]: \n[rank0]: two\n");
    bl_view_close(view);
}

static void view_resets_colours_at_the_end_of_a_line(void **state)
{
    (void)state;
    bl_view *view = open_view(2);
    add(view, 0, 0, "\x1b[31mred\nplain\n");
    assert_string_equal(shown(view), "[rank0]: \x1b[31mred\x1b[0m\n[rank0]: plain\n");
    bl_view_close(view);
}

static void view_marks_lines_for_a_launcher_that_takes_them_apart(void **state)
{
    (void)state;
    bl_view *view, *above = open_view(8);
    int64_t at = 0;
    assert_int_equal(bl_view_open(ends[1], ends[1], 1, true, &view, NULL), BELAY_OK);
    bl_view_mark(view, 7);
    add(view, 0, 0, "\x1b[31mred\nhalf");
    bl_view_end_line(view, 0, 0);
    assert_string_equal(shown(view), "\x1e"
                                     "7\x1f\x1b[31mred\n\x1e"
                                     "7\x1fhalf\n");
    bl_view_close(view);
    assert_int_equal(bl_view_marked(above,
                                    "\x1e"
                                    "7\x1fhalf",
                                    7, &at),
                     7);
    assert_int_equal(at, 3);
    static const char *const others[] = {"",
                                         "\x1e",
                                         "\x1e\x1f",
                                         "\x1e"
                                         "7",
                                         "\x1e"
                                         "8\x1f",
                                         "7\x1fx",
                                         "\x1e"
                                         "99999999\x1fx",
                                         "[rank7]: x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(bl_view_marked(above, others[i], (int64_t)strlen(others[i]), &at), -1);
    bl_view_plain(above, 7);
    add(above, 7, 0, "as it is\n");
    add(above, 1, 0, "named\n");
    assert_string_equal(shown(above), "as it is\n[rank1]: named\n");
    bl_view_close(above);
}

static void view_shows_the_last_state_of_a_progress_bar(void **state)
{
    (void)state;
    bl_view *view = open_view(2);
    add(view, 0, 1, "\r 10%");
    add(view, 0, 1, "\r 50%");
    add(view, 0, 1, "\r100%\nwindows\r\n");
    assert_string_equal(shown(view), "[rank0]: 100%\n[rank0]: windows\n");
    bl_view_close(view);
}

static void view_ends_a_line_that_waits_for_too_long(void **state)
{
    (void)state;
    bl_view *view = open_view(2);
    add(view, 1, 0, "name: ");
    assert_int_equal(bl_view_oldest(view), 1000);
    bl_view_end_lines(view, 500);
    assert_string_equal(shown(view), "");
    bl_clock_set(1500);
    bl_view_end_lines(view, 500);
    assert_string_equal(shown(view), "[rank1]: name: \n");
    assert_int_equal(bl_view_oldest(view), 0);
    bl_view_close(view);
}

static void view_shows_a_long_line_in_pieces(void **state)
{
    (void)state;
    static char line[5001];
    memset(line, 'x', 5000);
    bl_view *view = open_view(2);
    add(view, 0, 0, line);
    add(view, 0, 0, "\n");
    const char *words = shown(view);
    assert_int_equal(strlen(words), 5000 + 2 * strlen("[rank0]: \n"));
    assert_memory_equal(words + 9 + 4096, "\n[rank0]: x", 11);
    bl_view_close(view);
}

static void view_takes_no_more_than_its_reader_and_loses_nothing(void **state)
{
    (void)state;
    static char block[BL_VIEW_READ];
    memset(block, '\n', sizeof block);
    bl_view *view = open_view(1);
    int64_t added = 0, read_back = 0;
    struct pollfd entries[2];
    while (bl_view_has_room(view, 0)) {
        bl_view_add(view, 0, 0, block, sizeof block);
        bl_view_flush(view);
        added += (int64_t)sizeof block;
        assert_true(added < 64 * (int64_t)sizeof block);
    }
    assert_int_equal(bl_view_poll(view, entries), 1);
    assert_int_equal(entries[0].fd, ends[1]);
    while (bl_view_poll(view, entries) > 0) {
        read_back += (int64_t)strlen(take());
        bl_view_flush(view);
    }
    read_back += (int64_t)strlen(take());
    assert_int_equal(read_back, added);
    assert_true(bl_view_has_room(view, 0));
    bl_view_close(view);
}

static void view_has_room_for_the_worst_block_whenever_it_says_so(void **state)
{
    (void)state;
    static char block[BL_VIEW_READ];
    memset(block, '\n', sizeof block);
    bl_view *view = open_view(1024);
    int64_t lines = 0, n = 0;
    while (bl_view_has_room(view, 1)) {
        bl_view_add(view, 1023, 1, block, sizeof block);
        lines += (int64_t)sizeof block;
    }
    struct pollfd entries[2];
    while (bl_view_poll(view, entries) > 0) {
        bl_view_flush(view);
        n += (int64_t)strlen(take());
    }
    assert_int_equal(n, lines * (int64_t)strlen("[rank1023]: \n"));
    bl_view_close(view);
}

static void view_swallows_all_when_its_reader_is_gone(void **state)
{
    (void)state;
    void (*old)(int) = signal(SIGPIPE, SIG_IGN);
    bl_view *view = open_view(1);
    close(ends[0]);
    add(view, 0, 0, "lost");
    bl_view_flush(view);
    assert_int_equal(bl_view_failure(view, 0), EPIPE);
    assert_true(bl_view_has_room(view, 0));
    add(view, 0, 0, "lost");
    struct pollfd entries[2];
    assert_int_equal(bl_view_poll(view, entries), 0);
    bl_view_close(view);
    signal(SIGPIPE, old);
    ends[0] = -1;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pipe, close_pipe)
    const struct CMUnitTest tests[] = {
        TEST(view_passes_the_bytes_of_one_program_as_they_are),
        TEST(view_puts_the_rank_before_each_line),
        TEST(view_resets_colours_at_the_end_of_a_line),
        TEST(view_marks_lines_for_a_launcher_that_takes_them_apart),
        TEST(view_shows_the_last_state_of_a_progress_bar),
        TEST(view_ends_a_line_that_waits_for_too_long),
        TEST(view_shows_a_long_line_in_pieces),
        TEST(view_takes_no_more_than_its_reader_and_loses_nothing),
        TEST(view_has_room_for_the_worst_block_whenever_it_says_so),
        TEST(view_swallows_all_when_its_reader_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
