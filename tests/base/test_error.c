/* SPDX-License-Identifier: Apache-2.0 */
/* The list of faults, and the error that rooms without a context hand up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <belay/types.h>

#include "base/clock.h"
#include "base/error.h"

static const struct {
    belay_code code;
    const char *name, *why, *advice;
    belay_severity severity;
    int status;
} rows[] = {
#define BELAY_FAULT(enumerator, number, name, severity, status, why, advice)                                           \
    {BELAY_##enumerator, name, why, advice, BELAY_SEVERITY_##severity, status},
#include <belay/fault.def>
#undef BELAY_FAULT
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static void every_fault_has_a_number_and_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        assert_in_range(rows[i].code, 100, UINT16_MAX); /* a fault record has 16 bits for it */
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(rows[i].code, rows[j].code);
            assert_string_not_equal(rows[i].name, rows[j].name);
        }
    }
}

static void every_name_is_a_group_and_a_word(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        const char *dot = strchr(rows[i].name, '.');
        assert_non_null(dot);
        assert_true(dot > rows[i].name && dot[1] != '\0');
        for (const char *c = rows[i].name; *c != '\0'; c++)
            assert_true(islower((unsigned char)*c) || *c == '_' || c == dot);
    }
}

static void every_text_is_a_sentence(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        const char *texts[] = {rows[i].why, rows[i].advice};
        for (int t = 0; t < 2; t++) {
            size_t length = strlen(texts[t]);
            assert_true(length > 10 && length < 200);
            assert_true(isupper((unsigned char)texts[t][0]));
            assert_int_equal(texts[t][length - 1], '.');
        }
    }
}

/* A warning ends no run; everything else has a status of its own kind. */
static void severity_and_status_agree(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        int status = rows[i].status;
        assert_true((rows[i].severity == BELAY_SEVERITY_WARNING) == (status == 0));
        assert_true((rows[i].severity == BELAY_SEVERITY_BUG) == (status == 70));
        assert_true(status == 0 || (status >= 2 && status <= 7) || status == 70);
    }
}

static void questions_about_a_code_answer_with_its_row(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        assert_string_equal(belay_code_name(rows[i].code), rows[i].name);
        assert_string_equal(belay_code_why(rows[i].code), rows[i].why);
        assert_string_equal(belay_code_advice(rows[i].code), rows[i].advice);
        assert_int_equal(belay_code_severity(rows[i].code), rows[i].severity);
        assert_int_equal(belay_code_status(rows[i].code), rows[i].status);
    }
    assert_string_equal(belay_code_name(BELAY_OK), "ok");
    assert_int_equal(belay_code_status(BELAY_OK), 0);
    assert_string_equal(belay_code_name(12345), "unknown");
    assert_int_equal(belay_code_status(12345), 70);
}

static void an_error_has_headline_facts_and_advice(void **state)
{
    (void)state;
    bl_error error;
    assert_int_equal(bl_error_set(&error, BELAY_FILE_OPEN, "cannot open %s", "x.tsv"), BELAY_FILE_OPEN);
    assert_string_equal(error.what, "cannot open x.tsv");
    assert_string_equal(error.facts, "");
    assert_string_equal(bl_error_advice(&error), belay_code_advice(BELAY_FILE_OPEN));
    bl_error_fact(&error, "first %d", 1);
    bl_error_fact(&error, "second");
    bl_error_advise(&error, "Look for %s.", "y.tsv");
    assert_string_equal(error.facts, "first 1\nsecond\n");
    assert_string_equal(bl_error_advice(&error), "Look for y.tsv.");
    assert_int_equal(bl_error_set(NULL, BELAY_FILE_READ, "x"), BELAY_FILE_READ);
    bl_error_fact(NULL, "x");
    bl_error_advise(NULL, "x");
}

/* "é" a hundred times and more: a cut never leaves half of one. */
static void long_texts_are_cut_between_characters(void **state)
{
    (void)state;
    char accents[801];
    for (int i = 0; i < 400; i++)
        memcpy(accents + 2 * i, "\xc3\xa9", 3);
    for (int shift = 0; shift < 2; shift++) {
        bl_error error;
        bl_error_set(&error, BELAY_FILE_OPEN, "%s%s", shift ? "x" : "", accents);
        size_t length = strlen(error.what);
        assert_in_range(length, sizeof error.what - 6, sizeof error.what - 1);
        assert_string_equal(error.what + length - 3, "...");
        assert_int_equal((length - 3 - (size_t)shift) % 2, 0);
        for (int i = 0; i < 40; i++)
            bl_error_fact(&error, "%d %s", i, accents);
        length = strlen(error.facts);
        assert_true(length < sizeof error.facts);
        assert_string_equal(error.facts + length - 4, "...\n");
    }
}

static void errno_values_become_sentences(void **state)
{
    (void)state;
    char buffer[128];
    assert_string_equal(bl_error_errno(ENOENT, buffer), "No such file or directory");
}

static void the_clock_stands_where_a_test_sets_it(void **state)
{
    (void)state;
    bl_clock_set(5000);
    assert_int_equal(bl_clock_now(), 5000);
    assert_int_equal(bl_clock_now(), 5000);
    bl_clock_set(-1);
    int64_t a = bl_clock_now(), b = bl_clock_now();
    assert_true(b >= a && a > 0);
    assert_true(bl_clock_wall() > 1700000000);
}

static void every_dtype_has_name_and_size(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int size;
        bool is_float;
    } known[] = {{"f32", 4, true},  {"f64", 8, true},  {"bf16", 2, true}, {"f16", 2, true},  {"i64", 8, false},
                 {"i32", 4, false}, {"u16", 2, false}, {"u8", 1, false},  {"bool", 1, false}};
    for (int d = 0; d < BELAY_N_DTYPES; d++) {
        assert_string_equal(belay_dtype_name(d), known[d].name);
        assert_int_equal(belay_dtype_size(d), known[d].size);
        assert_int_equal(belay_dtype_is_float(d), known[d].is_float);
    }
    assert_string_equal(belay_dtype_name(BELAY_N_DTYPES), "?");
    assert_int_equal(belay_dtype_size((belay_dtype)-1), 0);
    assert_false(belay_dtype_is_float(BELAY_N_DTYPES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_has_a_number_and_a_name_of_its_own),
        cmocka_unit_test(every_name_is_a_group_and_a_word),
        cmocka_unit_test(every_text_is_a_sentence),
        cmocka_unit_test(severity_and_status_agree),
        cmocka_unit_test(questions_about_a_code_answer_with_its_row),
        cmocka_unit_test(an_error_has_headline_facts_and_advice),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(errno_values_become_sentences),
        cmocka_unit_test(the_clock_stands_where_a_test_sets_it),
        cmocka_unit_test(every_dtype_has_name_and_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
