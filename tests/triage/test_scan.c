/* SPDX-License-Identifier: Apache-2.0 */
/* The fast pass finds the same lines as a slow one that looks at each line by itself, with either engine, wherever the
 * borders of its blocks fall. */
#include "file/file_support.h"

#include "base/text.h"
#include "triage/anchors.h"
#include "triage/scan.h"

static bl_error error;

typedef struct told_line {
    bl_scan_line line;
    char *raw;
    int anchors[16];
} told_line;

enum { most_told = 200000 };
static told_line told[most_told];
static int n_told, stop_after;
static const bl_line_style *style_seen;

static belay_code remember(void *state, const bl_line_style *style, const bl_scan_line *line, bl_error *into)
{
    assert_ptr_equal(state, told);
    assert_true(n_told < most_told && line->n_anchors <= 16 && line->n_raw <= bl_scan_line_max);
    style_seen = style;
    told_line *kept = &told[n_told++];
    kept->line = *line;
    kept->raw = malloc((size_t)line->n_raw + 1);
    memcpy(kept->raw, line->raw, (size_t)line->n_raw);
    kept->raw[line->n_raw] = '\0';
    for (int i = 0; i < line->n_anchors; i++)
        kept->anchors[i] = line->anchors[i];
    return n_told == stop_after ? bl_error_set(into, BELAY_FILE_LIMIT, "enough") : BELAY_OK;
}

static void forget(void)
{
    while (n_told > 0)
        free(told[--n_told].raw);
}

static belay_code scan_file(bl_scan *scan, const char *path, int64_t whole, bl_scan_total *total)
{
    bl_input *input;
    bl_scan_sink sink = {.state = told, .whole = whole, .line = remember};
    forget();
    memset(&error, 0, sizeof error);
    check_ok(bl_input_open(path, &input, &error), &error);
    belay_code code = bl_scan_run(scan, input, &sink, total, &error);
    bl_input_close(input);
    return code;
}

/* ---- the slow pass ------------------------------------------------------------------------------------------- */

static bool has(const char *bytes, int64_t n_bytes, const char *anchor)
{
    int64_t n = (int64_t)strlen(anchor);
    const char *end = bytes + n_bytes - n + 1;
    for (const char *at = bytes; at < end; at++) {
        at = memchr(at, anchor[0], (size_t)(end - at));
        if (at == NULL)
            return false;
        if (memcmp(at, anchor, (size_t)n) == 0)
            return true;
    }
    return false;
}

static void check_raw(const told_line *got, const char *line, int64_t n)
{
    assert_int_equal(got->line.n_whole, n);
    if (n <= bl_scan_line_max) {
        assert_int_equal(got->line.n_raw, n);
        assert_memory_equal(got->raw, line, (size_t)n);
        return;
    }
    assert_true(got->line.n_raw < n);
    assert_memory_equal(got->raw, line, bl_scan_line_max / 4);
    assert_memory_equal(got->raw + got->line.n_raw - bl_scan_line_max / 4, line + n - bl_scan_line_max / 4,
                        bl_scan_line_max / 4);
}

/* Goes through the text line by line, and through what was told beside it. */
static void check_told(const char *text, int64_t n_text, const char *const *anchors, int n_anchors, int64_t whole,
                       const bl_scan_total *total)
{
    int64_t number = 1, at = 0, n_hit_lines = 0;
    int next = 0;
    for (; at < n_text; number++) {
        const char *feed = memchr(text + at, '\n', (size_t)(n_text - at));
        int64_t n = feed != NULL ? feed - (text + at) : n_text - at;
        const told_line *got = next < n_told && told[next].line.number == number ? &told[next] : NULL;
        int n_hits = 0;
        for (int i = 0; i < n_anchors; i++)
            if (has(text + at, n, anchors[i])) {
                assert_non_null(got);
                assert_true(n_hits < got->line.n_anchors);
                assert_int_equal(got->anchors[n_hits++], i);
                assert_true(has(got->raw, got->line.n_raw, anchors[i]));
            }
        n_hit_lines += n_hits > 0;
        assert_true(got != NULL || (number > bl_scan_n_ends && at >= whole));
        if (got != NULL) {
            next++;
            assert_int_equal(got->line.offset, at);
            assert_int_equal(got->line.n_anchors, n_hits);
            assert_int_equal(got->line.is_hit, n_hits > 0);
            assert_int_equal(got->line.is_head, number <= bl_scan_n_ends);
            check_raw(got, text + at, n);
            bool has_a_place = got->line.is_hit || got->line.is_head || at < whole || n > bl_scan_line_max;
            assert_true(has_a_place || got->line.is_tail);
            assert_true(!got->line.is_tail || number > total->n_lines - bl_scan_n_ends);
        }
        at += n + 1;
    }
    assert_int_equal(next, n_told);
    assert_int_equal(total->n_lines, number - 1);
    assert_int_equal(total->n_bytes, n_text);
    assert_int_equal(total->n_hit_lines, n_hit_lines);
    assert_int_equal(total->has_last_feed, n_text > 0 && text[n_text - 1] == '\n');
}

static void check_scan(bl_scan *scan, const char *text, int64_t n_text, const char *const *anchors, int n_anchors,
                       int64_t whole)
{
    bl_scan_total total;
    put_bytes("log", text, (size_t)n_text);
    check_ok(scan_file(scan, "log", whole, &total), &error);
    check_told(text, n_text, anchors, n_anchors, whole, &total);
}

static void with_both(void (*check)(bl_scan *scan), const char *const *anchors, int n_anchors)
{
    bl_scan *scan;
    check_ok(bl_scan_new(anchors, n_anchors, &scan, &error), &error);
    check(scan);
    bl_scan_free(scan);
    check_ok(bl_scan_new_plain(anchors, n_anchors, &scan, &error), &error);
    assert_string_equal(bl_scan_describe(scan), "a plain loop, without libhs");
    check(scan);
    bl_scan_free(scan);
    forget();
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

static const char *const few[] = {"CUDA error", "NVRM: Xid", "error", "Err", "abcabcabd", "ror NV", "error: out"};
enum { n_few = sizeof few / sizeof few[0] };

static void check_small(bl_scan *scan)
{
    static const char *const texts[] = {
        "",
        "\n",
        "a",
        "a\n",
        "\n\n\n",
        "error",
        "error\n",
        "one\nCUDA error: out of memory\nthree",
        "CUDA error NVRM: Xid error error\n\nNVRM: Xid\n",
        "erro\nr\nCUDA \nerror",
        "abcabcabcabd\nabcabcab\nabcabcabd",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_scan(scan, texts[i], (int64_t)strlen(texts[i]), few, n_few, 0);
    static const char nul[] = "a\0error\0\n\xff\xfe NVRM: Xid\0";
    check_scan(scan, nul, sizeof nul - 1, few, n_few, 0);
}

static void small_texts_are_searched(void **state)
{
    (void)state;
    with_both(check_small, few, n_few);
}

static uint64_t seed;

static int64_t draw(int64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((seed >> 33) % (uint64_t)below);
}

/* Lines of random length over a small alphabet with anchors strewn in, some lines longer than any block. */
static int64_t random_text(char *text, int64_t n_text, int64_t longest)
{
    int64_t n = 0, left = 0, hits_left = 5;
    while (n < n_text) {
        if (left <= 0) {
            left = draw(40) == 0 ? draw(longest) : draw(120);
            hits_left = 5;
            if (n > 0)
                text[n++] = '\n';
        } else if (draw(60) == 0 && hits_left-- > 0 && n + 12 < n_text) {
            const char *anchor = few[draw(n_few)];
            memcpy(text + n, anchor, strlen(anchor));
            n += (int64_t)strlen(anchor);
            left -= (int64_t)strlen(anchor);
        } else {
            text[n++] = "abcdeor EC: "[draw(12)];
            left--;
        }
    }
    return n < n_text ? n : n_text;
}

static void check_random(bl_scan *scan)
{
    static char text[5 << 18];
    for (seed = 1; seed <= 9; seed++) {
        uint64_t started = seed;
        int64_t longest = seed % 3 == 0 ? 900000 : seed % 3 == 1 ? 200 : 100000;
        int64_t n = random_text(text, (int64_t)sizeof text / (seed % 2 == 0 ? 1 : 7), longest);
        int64_t whole = draw(3) == 0 ? draw(n) : 0;
        print_message("seed %d\n", (int)started);
        check_scan(scan, text, n, few, n_few, whole);
        seed = started;
    }
}

static void random_texts_are_searched(void **state)
{
    (void)state;
    with_both(check_random, few, n_few);
}

/* An anchor at every place around the borders of blocks, in a line that has no end there and in one that has. */
static void check_borders(bl_scan *scan)
{
    enum { n_text = 300000 };
    char *text = malloc(n_text);
    for (int round = 0; round < 24; round++) {
        memset(text, 'x', n_text);
        for (int64_t at = 200; round % 2 == 1 && at < n_text; at += 200)
            text[at] = '\n';
        for (int64_t border = 5000; border < n_text; border += border < 30000 ? 5000 : 131072 - border % 131072)
            memcpy(text + border - 11 + round / 2, "NVRM: Xid", 9);
        check_scan(scan, text, n_text, few, n_few, 0);
    }
    free(text);
}

static void anchors_across_the_borders_of_blocks_are_found(void **state)
{
    (void)state;
    with_both(check_borders, few, n_few);
}

static void check_ends(bl_scan *scan)
{
    bl_text text = {0};
    bl_scan_total total;
    for (int i = 1; i <= 20000; i++)
        bl_text_format(&text, "2024-06-09 11:%02d:%02d line %d%s\n", i / 60 % 60, i % 60, i,
                       i % 1000 == 0 ? " error" : "");
    put_text("log", bl_text_get(&text));
    check_ok(scan_file(scan, "log", 0, &total), &error);
    assert_int_equal(total.n_lines, 20000);
    assert_int_equal(n_told, 64 + 20 + 63);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(told[i].line.number, i + 1);
        assert_true(told[i].line.is_head && !told[i].line.is_hit && !told[i].line.is_tail);
    }
    assert_string_equal(told[64].raw, "2024-06-09 11:16:40 line 1000 error");
    for (int i = 0; i < 63; i++)
        assert_true(told[64 + 19 + i].line.number == 20000 - 63 + i && told[64 + 19 + i].line.is_tail);
    assert_true(told[n_told - 1].line.is_hit && told[n_told - 1].line.is_tail);
    assert_int_equal(total.first_time_kind, BL_TIME_WALL);
    assert_int_equal(total.first_time, INT64_C(1717930801000000));
    bl_text_fini(&text);
}

static void both_ends_of_a_file_are_handed_over(void **state)
{
    (void)state;
    with_both(check_ends, few, n_few);
}

static void times_of_both_ends_are_told(void **state)
{
    (void)state;
    bl_scan *scan;
    bl_scan_total total;
    check_ok(bl_scan_new(few, n_few, &scan, &error), &error);
    put_text("log", "start\n[23:13:57] it\n2024-06-09T11:20:41Z it\n2024-06-09T11:20:42Z it\n[23:14:00] end\nend\n");
    check_ok(scan_file(scan, "log", 0, &total), &error);
    assert_int_equal(total.first_time_kind, BL_TIME_WALL);
    assert_int_equal(total.first_time, INT64_C(1717932041000000));
    assert_int_equal(total.last_time_kind, BL_TIME_WALL);
    assert_int_equal(total.last_time, INT64_C(1717932042000000));
    put_text("log", "[ 8123.400112] a\n[ 8124.400112] b\n");
    check_ok(scan_file(scan, "log", 0, &total), &error);
    assert_int_equal(total.first_time_kind, BL_TIME_BOOT);
    assert_int_equal(total.first_time, INT64_C(8123400112));
    assert_int_equal(total.last_time, INT64_C(8124400112));
    put_text("log", "a\n");
    check_ok(scan_file(scan, "log", 0, &total), &error);
    assert_int_equal(total.first_time_kind, BL_TIME_NONE);
    bl_scan_free(scan);
}

static void the_style_is_learned_before_the_first_line_is_told(void **state)
{
    (void)state;
    bl_scan *scan;
    bl_scan_total total;
    check_ok(bl_scan_new(few, n_few, &scan, &error), &error);
    put_text("rank5.log", "1: a\n0: b error\n1: c\n");
    check_ok(scan_file(scan, "rank5.log", 0, &total), &error);
    assert_ptr_equal(style_seen, &total.style);
    assert_true(total.style.is_numbered_colon);
    assert_int_equal(total.style.rank, -1);
    put_text("rank5.log", "error\n");
    check_ok(scan_file(scan, "rank5.log", 0, &total), &error);
    assert_false(total.style.is_numbered_colon);
    assert_int_equal(total.style.rank, 5);
    bl_scan_free(scan);
}

static void the_receiver_can_end_the_pass(void **state)
{
    (void)state;
    bl_scan *scan;
    bl_scan_total total;
    check_ok(bl_scan_new(few, n_few, &scan, &error), &error);
    put_text("log", "a\nerror\nb\nerror\nc\n");
    for (stop_after = 1; stop_after <= 5; stop_after++) {
        check_error(scan_file(scan, "log", 0, &total), &error,
                    "belay: enough (file.limit)\n"
                    "    try: Split the data, or raise the limit that the message names.\n");
        assert_int_equal(n_told, stop_after);
    }
    stop_after = 0;
    check_ok(scan_file(scan, "log", 0, &total), &error);
    assert_int_equal(n_told, 5);
    char *text = malloc(5 << 20);
    memset(text, '\n', 5 << 20);
    put_bytes("log", text, 5 << 20);
    free(text);
    stop_after = 3;
    assert_int_equal(scan_file(scan, "log", 0, &total), BELAY_FILE_LIMIT);
    stop_after = 0;
    check_ok(scan_file(scan, "log", 0, &total), &error);
    assert_int_equal(total.n_lines, 5 << 20);
    assert_int_equal(n_told, 128);
    bl_scan_free(scan);
}

#define VALUE_ADVICE "    try: Give a value inside the range that the message names.\n"

static void anchors_outside_of_their_limits_are_refused(void **state)
{
    (void)state;
    bl_scan *scan;
    char text[256], expected[512], longest[130];
    memset(longest, 'a', 129);
    longest[129] = '\0';
    const char *const bad[] = {"a", "", "a\nb", longest};
    for (int i = 0; i < 4; i++) {
        memset(&error, 0, sizeof error);
        belay_code code = bl_scan_new(&bad[i], 1, &scan, &error);
        snprintf(
            expected, sizeof expected,
            "belay: the anchor '%s' has %zu bytes, which may be 2 to 128 and no line feed (conf.value)\n" VALUE_ADVICE,
            bad[i], strlen(bad[i]));
        check_error(code, &error, expected);
        assert_null(scan);
    }
    snprintf(text, sizeof text, "belay: 4097 anchors, which may be 0 to 4096 (conf.value)\n" VALUE_ADVICE);
    check_error(bl_scan_new(NULL, 4097, &scan, &error), &error, text);
}

static void without_anchors_the_ends_are_told(void **state)
{
    (void)state;
    bl_scan *scan;
    bl_scan_total total;
    check_ok(bl_scan_new(NULL, 0, &scan, &error), &error);
    put_text("log", "a\nb\n");
    check_ok(scan_file(scan, "log", 0, &total), &error);
    assert_int_equal(n_told, 2);
    assert_int_equal(total.n_hit_lines, 0);
    bl_scan_free(scan);
}

static void making_a_scan_without_memory_is_a_fault(void **state)
{
    (void)state;
    bool failed = true;
    for (int n = 0; failed; n++) {
        bl_scan *scan;
        bl_memory_fail_at(n);
        belay_code code = bl_scan_new(few, n_few, &scan, &error);
        failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (code != BELAY_OK)
            check_error(code, &error,
                        "belay: no memory to search logs (mem.exhausted)\n"
                        "    try: Use a smaller batch, sequence or model, or a machine with more memory.\n");
        bl_scan_free(scan);
    }
    failed = true;
    for (int n = 0; failed; n++) {
        bl_scan *scan;
        bl_memory_fail_at(n);
        belay_code code = bl_scan_new_plain(few, n_few, &scan, &error);
        failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_int_equal(code != BELAY_OK, failed);
        bl_scan_free(scan);
    }
}

static void feeds_are_counted(void **state)
{
    (void)state;
    char *bytes = malloc(40000);
    for (int n = 0; n < 40000; n += n < 200 ? 1 : 997) {
        int64_t expected = 0;
        seed = (uint64_t)n;
        for (int i = 0; i < n; i++) {
            bytes[i] = n % 2 == 0 || draw(7) == 0 ? '\n' : (char)draw(256);
            expected += bytes[i] == '\n';
        }
        assert_int_equal(bl_scan_count_feeds(bytes, n), expected);
    }
    free(bytes);
}

static void the_anchors_of_the_signals_make_a_scan(void **state)
{
    (void)state;
    bl_anchors anchors;
    bl_scan *scan;
    assert_true(bl_anchors_init(&anchors, false));
    assert_true(anchors.n > 50);
    check_ok(bl_scan_new(anchors.list, anchors.n, &scan, &error), &error);
    if (strncmp(bl_scan_describe(scan), "libhs", 5) == 0)
        assert_true(has(bl_scan_describe(scan), (int64_t)strlen(bl_scan_describe(scan)), "from the build"));
    bl_scan_free(scan);
    bl_anchors_fini(&anchors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_texts_are_searched, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(random_texts_are_searched, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(anchors_across_the_borders_of_blocks_are_found, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(both_ends_of_a_file_are_handed_over, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(times_of_both_ends_are_told, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(the_style_is_learned_before_the_first_line_is_told, enter_scratch,
                                        leave_scratch),
        cmocka_unit_test_setup_teardown(the_receiver_can_end_the_pass, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(without_anchors_the_ends_are_told, enter_scratch, leave_scratch),
        cmocka_unit_test(anchors_outside_of_their_limits_are_refused),
        cmocka_unit_test(making_a_scan_without_memory_is_a_fault),
        cmocka_unit_test(feeds_are_counted),
        cmocka_unit_test(the_anchors_of_the_signals_make_a_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
