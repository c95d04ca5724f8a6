/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of CUDA and its libraries are found by number, name and text; the text decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attributes.h"
#include "triage/cuda_errors.h"

static const bl_cuda_error *find_text(const char *text)
{
    return bl_cuda_error_find_text(text, (int64_t)strlen(text), NULL);
}

static const bl_cuda_error *search(const char *line, int64_t *at)
{
    return bl_cuda_error_search(line, (int64_t)strlen(line), at);
}

static void every_row_is_found_by_number_and_names(void **state)
{
    (void)state;
    for (int i = 0; i < BL_N_CUDA_ERRORS; i++) {
        const bl_cuda_error *row = bl_cuda_error_at(i);
        assert_ptr_equal(bl_cuda_error_find(row->domain, row->code), row);
        assert_true(strlen(row->meaning) > 0 && strlen(row->action) > 0);
        if (row->symbol[0] != '\0')
            assert_ptr_equal(bl_cuda_error_find_symbol(row->symbol, (int64_t)strlen(row->symbol)), row);
        if (row->driver_symbol[0] != '\0')
            assert_ptr_equal(bl_cuda_error_find_symbol(row->driver_symbol, (int64_t)strlen(row->driver_symbol)), row);
        const bl_cuda_error *before = bl_cuda_error_at(i - 1);
        assert_true(before == NULL || before->domain < row->domain ||
                    (before->domain == row->domain && before->code < row->code));
    }
    assert_null(bl_cuda_error_at(BL_N_CUDA_ERRORS));
    assert_null(bl_cuda_error_find(BL_CUDA_DOMAIN_CUDA, 12345));
    assert_null(bl_cuda_error_find(BL_CUDA_DOMAIN_CUBLAS, -1));
    assert_null(bl_cuda_error_find_symbol("", 0));
    assert_null(bl_cuda_error_find_symbol("cudaErrorIllegal", 16));
}

static void every_printed_text_is_found(void **state)
{
    (void)state;
    for (int i = 0; i < BL_N_CUDA_ERRORS; i++) {
        const bl_cuda_error *row = bl_cuda_error_at(i);
        if (row->text[0] == '\0')
            continue;
        const bl_cuda_error *found = find_text(row->text);
        assert_non_null(found);
        /* Some numbers share a text. */
        if (found != row)
            assert_true(strcmp(found->text, row->text) == 0);
    }
}

static void the_codes_that_end_a_process_are_told(void **state)
{
    (void)state;
    static const int fatal[] = {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999};
    int n_fatal = 0;
    for (int i = 0; i < BL_N_CUDA_ERRORS; i++)
        n_fatal += bl_cuda_error_at(i)->survives == BL_CUDA_SURVIVES_NO;
    assert_int_equal(n_fatal, BL_COUNT(fatal));
    for (int i = 0; i < BL_COUNT(fatal); i++)
        assert_int_equal(bl_cuda_error_find(BL_CUDA_DOMAIN_CUDA, fatal[i])->survives, BL_CUDA_SURVIVES_NO);
    assert_int_equal(bl_cuda_error_find(BL_CUDA_DOMAIN_CUBLAS, 13)->survives, BL_CUDA_SURVIVES_PROBE);
    assert_int_equal(bl_cuda_error_find(BL_CUDA_DOMAIN_CUDA, 2)->survives, BL_CUDA_SURVIVES_YES);
}

static void a_text_ends_at_a_words_end(void **state)
{
    (void)state;
    int64_t n;
    static const char text[] = " an illegal memory access was encountered (error 700)";
    assert_int_equal(bl_cuda_error_find_text(text, sizeof text - 1, &n)->code, 700);
    assert_int_equal(n, strlen(" an illegal memory access was encountered"));
    assert_int_equal(find_text("device-side assert triggered")->code, 710);
    assert_int_equal(find_text("uncorrectable ECC error encountered\n")->code, 214);
    assert_int_equal(find_text("CUDA_ERROR_LAUNCH_TIMEOUT")->code, 702);
    assert_int_equal(find_text("unhandled cuda error, NCCL version 2.10.3")->code, 1);
    assert_int_equal(find_text("unhandled cuda error (run with NCCL_DEBUG=INFO for details)")->domain,
                     BL_CUDA_DOMAIN_NCCL);
    assert_int_equal(find_text("all CUDA-capable devices are busy or unavailable")->code, 46);
    assert_null(find_text("misaligned addresses"));
    assert_null(find_text("something else"));
    assert_null(find_text(""));
}

static void the_longest_form_wins(void **state)
{
    (void)state;
    assert_int_equal(find_text("unspecified launch failure in prior launch")->code, 53);
    assert_int_equal(find_text("unspecified launch failure")->code, 719);
    assert_int_equal(find_text("cudaErrorInvalidDeviceFunction")->code, 98);
    assert_int_equal(find_text("cudaErrorInvalidDevice")->code, 101);
    assert_int_equal(find_text("CUDNN_STATUS_NOT_SUPPORTED_SHAPE")->code, 3002);
}

static void a_line_is_searched_for_names_and_telling_texts(void **state)
{
    (void)state;
    int64_t at;
    assert_int_equal(search("RuntimeError: CUDA error: misaligned address", &at)->code, 716);
    assert_int_equal(at, 26);
    assert_int_equal(search("Search for `cudaErrorIllegalAddress' in https://docs", &at)->code, 700);
    assert_int_equal(search("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", NULL)->domain,
                     BL_CUDA_DOMAIN_CUDNN);
    assert_null(search("ValueError: invalid argument", NULL));
    assert_null(search("unknown error, no error, out of memory", NULL));
    assert_null(search("mycudaErrorAssertion", NULL));
    assert_null(search("", NULL));
}

static void old_numbers_have_todays(void **state)
{
    (void)state;
    assert_int_equal(bl_cuda_error_modern(77), 700);
    assert_int_equal(bl_cuda_error_modern(59), 710);
    assert_int_equal(bl_cuda_error_modern(4), 719);
    assert_int_equal(bl_cuda_error_modern(82), 720);
    assert_int_equal(bl_cuda_error_modern(2), -1);
    assert_int_equal(bl_cuda_error_modern(700), -1);
    assert_int_equal(bl_cuda_error_modern(-1), -1);
}

static bl_cuda_reading read_error(int64_t code, const char *text)
{
    return bl_cuda_error_read(code, text, (int64_t)strlen(text));
}

static void the_text_decides_and_a_bare_old_number_is_ambiguous(void **state)
{
    (void)state;
    bl_cuda_reading r = read_error(77, "an illegal memory access was encountered");
    assert_int_equal(r.row->code, 700);
    assert_true(r.is_old_number);
    r = read_error(30, "unknown error");
    assert_int_equal(r.row->code, 999);
    assert_true(r.is_old_number);
    r = read_error(4, "");
    assert_int_equal(r.row->code, 4);
    assert_int_equal(r.other->code, 719);
    r = read_error(77, "");
    assert_int_equal(r.row->code, 700);
    assert_true(r.is_old_number);
    assert_null(r.other);
    r = read_error(700, "quite new words");
    assert_int_equal(r.row->code, 700);
    assert_false(r.is_old_number);
    r = read_error(-1, "misaligned address");
    assert_int_equal(r.row->code, 716);
    r = read_error(-1, "");
    assert_null(r.row);
    assert_null(read_error(12345, "").row);
}

static void nothing_is_read_behind_a_text(void **state)
{
    (void)state;
    static const char text[] = "an illegal memory access was encountered";
    for (size_t n = 0; n < sizeof text; n++) {
        char *copy = malloc(n > 0 ? n : 1);
        memcpy(copy, text, n);
        const bl_cuda_error *row = bl_cuda_error_find_text(copy, (int64_t)n, NULL);
        assert_true((row != NULL) == (n == sizeof text - 1));
        (void)bl_cuda_error_search(copy, (int64_t)n, NULL);
        (void)bl_cuda_error_find_symbol(copy, (int64_t)n);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_found_by_number_and_names),
        cmocka_unit_test(every_printed_text_is_found),
        cmocka_unit_test(the_codes_that_end_a_process_are_told),
        cmocka_unit_test(a_text_ends_at_a_words_end),
        cmocka_unit_test(the_longest_form_wins),
        cmocka_unit_test(a_line_is_searched_for_names_and_telling_texts),
        cmocka_unit_test(old_numbers_have_todays),
        cmocka_unit_test(the_text_decides_and_a_bare_old_number_is_ambiguous),
        cmocka_unit_test(nothing_is_read_behind_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
