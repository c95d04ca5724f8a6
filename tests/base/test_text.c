/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

static void an_empty_text_reads_as_an_empty_string(void **state)
{
    (void)state;
    bl_text text = {0};
    assert_string_equal(bl_text_get(&text), "");
    bl_text_clear(&text);
    bl_text_fini(&text);
}

static void appends_grow_across_capacities(void **state)
{
    (void)state;
    bl_text text = {0};
    for (int i = 0; i < 1000; i++)
        bl_text_format(&text, "%d,", i % 10);
    assert_int_equal(text.n_bytes, 2000);
    assert_int_equal(strlen(bl_text_get(&text)), 2000);
    assert_memory_equal(bl_text_get(&text), "0,1,2,3,4,5,6,7,8,9,0,", 22);
    bl_text_clear(&text);
    bl_text_add(&text, "again");
    assert_string_equal(bl_text_get(&text), "again");
    bl_text_fini(&text);
}

/* Memory ends at the n-th append: what was there stays, and the chain is seen to have failed. */
static void a_text_without_memory_keeps_what_it_has(void **state)
{
    (void)state;
    bl_text text = {0};
    bl_text_add(&text, "kept");
    bl_memory_fail_at(0);
    bl_text_add(&text, "a text that is longer than the capacity");
    bl_memory_fail_at(-1);
    bl_text_add(&text, "x");
    assert_true(text.failed);
    assert_string_equal(bl_text_get(&text), "kept");
    bl_text_fini(&text);
}

static void escaped(const char *bytes, int64_t n_bytes, int64_t limit, const char *expected)
{
    bl_text text = {0};
    bl_text_add_escaped(&text, bytes, n_bytes, limit);
    assert_string_equal(bl_text_get(&text), expected);
    bl_text_fini(&text);
}

static void control_characters_and_broken_utf8_are_escaped(void **state)
{
    (void)state;
    escaped("a\tb\n\x1b[31m\x7f", 10, 100, "a\\x09b\\x0A\\x1B[31m\\x7F");
    escaped("nul\0", 4, 100, "nul\\x00");
    escaped("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, 100, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    escaped("\xc2\x9b"
            "31m",
            5, 100, "\\xC2\\x9B31m");
    escaped("\xc3(\xff\xfe\xe2\x82", 6, 100, "\\xC3(\\xFF\\xFE\\xE2\\x82");
    escaped("\xed\xa0\x80", 3, 100, "\\xED\\xA0\\x80");
}

static void escaped_text_ends_at_its_limit_between_characters(void **state)
{
    (void)state;
    escaped("abcdef", 6, 6, "abcdef");
    escaped("abcdef", 6, 3, "abc...");
    escaped("ab\xe2\x82\xac", 5, 5, "ab\xe2\x82\xac");
    escaped("ab\xe2\x82\xac", 5, 4, "ab...");
    escaped("ab\xe2\x82\xac", 5, 3, "ab...");
    escaped("abc", 3, 0, "...");
    escaped("", 0, 0, "");
}

static void utf8_lengths_follow_rfc_3629(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        int n_bytes, length;
    } cases[] = {
        {"a", 1, 1},
        {"", 0, 0},
        {"\x80", 1, 0},
        {"\xc1\xbf", 2, 0},
        {"\xc2\x80", 2, 2},
        {"\xc2", 1, 0},
        {"\xdf\xbf", 2, 2},
        {"\xe0\x9f\xbf", 3, 0},
        {"\xe0\xa0\x80", 3, 3},
        {"\xe1\x80", 2, 0},
        {"\xe1\x80\x41", 3, 0},
        {"\xed\x9f\xbf", 3, 3},
        {"\xed\xa0\x80", 3, 0},
        {"\xf0\x8f\xbf\xbf", 4, 0},
        {"\xf0\x90\x80\x80", 4, 4},
        {"\xf4\x8f\xbf\xbf", 4, 4},
        {"\xf4\x90\x80\x80", 4, 0},
        {"\xf5\x80\x80\x80", 4, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(bl_utf8_length(cases[i].bytes, cases[i].n_bytes), cases[i].length);
}

static void a_real_number_reads_as_itself_and_a_nan_has_no_sign(void **state)
{
    (void)state;
    const struct {
        double value;
        const char *words;
    } cases[] = {
        {1.5, "1.5"},
        {-0.0, "-0"},
        {(double)INFINITY, "inf"},
        {-(double)INFINITY, "-inf"},
        {copysign((double)NAN, 1), "nan"},
        {copysign((double)NAN, -1), "nan"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bl_text text = {0};
        bl_text_format(&text, "%g", bl_text_real(cases[i].value));
        assert_string_equal(bl_text_get(&text), cases[i].words);
        bl_text_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_text_reads_as_an_empty_string),
        cmocka_unit_test(appends_grow_across_capacities),
        cmocka_unit_test(a_text_without_memory_keeps_what_it_has),
        cmocka_unit_test(control_characters_and_broken_utf8_are_escaped),
        cmocka_unit_test(escaped_text_ends_at_its_limit_between_characters),
        cmocka_unit_test(a_real_number_reads_as_itself_and_a_nan_has_no_sign),
        cmocka_unit_test(utf8_lengths_follow_rfc_3629),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
