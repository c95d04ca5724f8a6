/* SPDX-License-Identifier: Apache-2.0 */
/* The likely reason of a bad index by its value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "report/reason.h"

static bl_report_fault bad(belay_code code, int64_t value, int64_t bound, belay_dtype dtype)
{
    bl_report_fault f;
    bl_report_fault_init(&f, code);
    f.n_tensors = 1;
    f.tensor[0] = (bl_report_tensor){.role = "ids", .dtype = dtype, .shape = {1, {8}}};
    f.operand = 0;
    f.element = 3;
    f.got = value;
    f.limit = bound;
    f.count = 1;
    return f;
}

static const char *name_for(belay_code code, int64_t value, int64_t bound, belay_dtype dtype)
{
    bl_report_fault f = bad(code, value, bound, dtype);
    const bl_report_reason *reason = bl_report_reason_find(&f);
    assert_non_null(reason);
    return reason->name;
}

static const char *id(int64_t value, int64_t bound) { return name_for(BELAY_INDEX_RANGE, value, bound, BELAY_I64); }
static const char *label(int64_t value, int64_t bound) { return name_for(BELAY_INDEX_LABEL, value, bound, BELAY_I64); }

static void the_example_of_each_row_is_told_by_that_row(void **state)
{
    (void)state;
    const bl_report_reason *row;
    for (int i = 0; (row = bl_report_reason_row(i)) != NULL; i++) {
        assert_true(row->is_for_ids || row->is_for_labels);
        if (row->is_for_ids)
            assert_string_equal(name_for(BELAY_INDEX_RANGE, row->value, row->bound, row->dtype), row->name);
        if (row->is_for_labels)
            assert_string_equal(name_for(BELAY_INDEX_LABEL, row->value, row->bound, row->dtype), row->name);
    }
    assert_null(bl_report_reason_row(-1));
}

static void each_row_has_a_name_of_its_own_and_words_that_fit_a_paragraph(void **state)
{
    (void)state;
    const bl_report_reason *row, *other;
    for (int i = 0; (row = bl_report_reason_row(i)) != NULL; i++) {
        size_t n = strlen(row->likely), m = strlen(row->advice);
        assert_true(!isupper((unsigned char)row->likely[0]) && row->likely[n - 1] != '.');
        assert_true(isupper((unsigned char)row->advice[0]) && row->advice[m - 1] == '.');
        assert_true(m < sizeof(bl_report_fault){.code = BELAY_OK}.advice);
        for (int k = 0; k < i && (other = bl_report_reason_row(k)) != NULL; k++)
            assert_string_not_equal(row->name, other->name);
    }
}

/* Whatever the value, some row says something, and a bound of any size overflows nothing. */
static void every_bad_value_has_a_reason(void **state)
{
    (void)state;
    static const int64_t bounds[] = {0, 1, 2, 5, 255, 256, 10000, INT32_MAX, UINT32_MAX, INT64_C(1) << 40, INT64_MAX};
    for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++)
        for (int shift = 0; shift < 64; shift++)
            for (int64_t by = -2; by <= 2; by++) {
                int64_t value = (int64_t)((UINT64_C(1) << shift) + (uint64_t)by);
                for (int negative = 0; negative < 2; negative++) {
                    int64_t v = negative ? (int64_t)(-(uint64_t)value) : value;
                    if (v < 0 || v >= bounds[b])
                        (void)id(v, bounds[b]), (void)label(v, bounds[b]);
                }
            }
}

static void values_beside_the_examples_go_to_the_rows_that_fit_them(void **state)
{
    (void)state;
    const int64_t one_f64 = INT64_C(0x3ff0000000000000), two_f32 = INT64_C(0x400000003f800000);
    const struct {
        int64_t value, bound;
        const char *id, *label;
    } cases[] = {
        {10000, 10000, "bound", "from_one"},
        {1, 1, "bound", "one_output"},
        {2, 1, "above", "more_classes"},
        {-100, 10000, "ignored_id", "ignored"},
        {-1, 10000, "missing", "unlabelled"},
        {-2, 10000, "from_end", "negative"},
        {-10000, 10000, "from_end", "negative"},
        {-10001, 10000, "negative", "negative"},
        {255, 21, "other_table", "ignored_byte"},
        {254, 21, "other_table", "other_task"},
        {INT64_MAX, 10000, "largest", "largest"},
        {INT64_C(1) << 31, 10000, "wrap_32", "wrap_32"},
        {(INT64_C(1) << 31) + 1024, 10000, "wrap_32", "wrap_32"},
        {(INT64_C(1) << 31) + 1025, 10000, "huge", "huge"},
        {INT32_MIN + INT64_C(7), 10000, "wrap_32", "wrap_32"},
        {UINT32_MAX - INT64_C(99), 10000, "unsigned_32", "unsigned_32"},
        {(INT64_C(1) << 32) + 9999, 10000, "halves", "halves"},
        {(INT64_C(1) << 32) + 10000, 10000, "huge", "huge"},
        {one_f64, 10000, "float_bits", "float_bits"},
        {two_f32, 10000, "float_bits", "float_bits"},
        {-1082130432, 10000, "float_bits", "float_bits"}, /* -1.0f */
        {-(INT64_C(1) << 41), 10000, "huge", "huge"},
        {(INT64_C(1) << 40) + 1, INT64_C(1) << 39, "huge", "huge"},
        {10001, 10000, "above", "more_classes"},
        {11266, 10000, "above", "more_classes"},
        {11267, 10000, "other_table", "more_classes"},
        {20016, 10000, "other_table", "more_classes"},
        {20017, 10000, "other_table", "other_task"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(id(cases[i].value, cases[i].bound), cases[i].id);
        assert_string_equal(label(cases[i].value, cases[i].bound), cases[i].label);
    }
    assert_string_equal(name_for(BELAY_INDEX_RANGE, 255, 128, BELAY_U8), "unsigned_small");
    assert_string_equal(name_for(BELAY_INDEX_RANGE, 255, 128, BELAY_I64), "other_table");
}

static void other_faults_have_no_reason(void **state)
{
    (void)state;
    bl_report_fault f = bad(BELAY_INDEX_RANGE, 8, 8, BELAY_I64);
    f.element = -1;
    assert_null(bl_report_reason_find(&f));
    f.element = 0;
    f.operand = -1;
    assert_null(bl_report_reason_find(&f));
    f = bad(BELAY_NUM_CAST, 8, 8, BELAY_F32);
    assert_null(bl_report_reason_find(&f));
    bl_report_fault_init(&f, BELAY_LIFE_STALE);
    assert_null(bl_report_reason_find(&f));
    f = bad(BELAY_INDEX_ZEROED, 8, 8, BELAY_I64);
    assert_string_equal(bl_report_reason_find(&f)->name, "bound");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_each_row_is_told_by_that_row),
        cmocka_unit_test(each_row_has_a_name_of_its_own_and_words_that_fit_a_paragraph),
        cmocka_unit_test(every_bad_value_has_a_reason),
        cmocka_unit_test(values_beside_the_examples_go_to_the_rows_that_fit_them),
        cmocka_unit_test(other_faults_have_no_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
