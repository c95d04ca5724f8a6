/* SPDX-License-Identifier: Apache-2.0 */
/* Counts that wrapped, tables of many runs, index vectors beside their shapes. */
#include "derive_support.h"

static told_case told;

static int forget(void **state)
{
    (void)state;
    forget_texts(&told);
    return 0;
}

static void a_negative_count_is_matched_with_the_one_it_wrapped_from(void **state)
{
    (void)state;
    tell_text(&told, "flat master buffer: numel=2450720000 bytes=9802880000\n"
                     "lamb: n=-1844247296 blocks=-3602045\n");
    bl_derive_wrapped(&told.c);
    assert_fact(seen(&told, BL_SIGNAL_number_wrapped), "wrapped", "-1844247296");
    assert_fact(seen(&told, BL_SIGNAL_number_wrapped), "count", "2450720000");
    assert_int_equal(seen(&told, BL_SIGNAL_number_wrapped_from)->line, 1);
}

static void a_shape_is_a_count_that_can_wrap(void **state)
{
    (void)state;
    tell_text(&told, "logits (65536, 50304)\ntotal -998244352\n");
    bl_derive_wrapped(&told.c);
    assert_fact(seen(&told, BL_SIGNAL_number_wrapped), "count", "3296722944");
}

static void a_negative_number_that_fits_no_count_says_nothing(void **state)
{
    (void)state;
    tell_text(&told, "numel=2450720000\nscore -1844247297\nrun-20240101 2026-11223344\n");
    bl_derive_wrapped(&told.c);
    assert_null(seen(&told, BL_SIGNAL_number_wrapped));
}

static void runs_that_only_an_order_cures_lack_an_order(void **state)
{
    (void)state;
    tell_text(&told, "summary prefetch=on: 11 of 40 runs differ\n"
                     "summary prefetch=on CUDA_LAUNCH_BLOCKING=1: 0 of 40 runs differ\n");
    bl_derive_tallies(&told.c);
    assert_fact(seen(&told, BL_SIGNAL_tallied_order), "differ", "11");
    assert_int_equal(seen(&told, BL_SIGNAL_tallied_clean)->line, 2);
    assert_null(seen(&told, BL_SIGNAL_tallied_graph));
}

static void runs_that_only_eager_launches_cure_point_to_the_graph(void **state)
{
    (void)state;
    tell_text(&told, "cuda graphs on: failed 7 of 30\ncuda graphs off: failed 0 of 30\n");
    bl_derive_tallies(&told.c);
    assert_non_null(seen(&told, BL_SIGNAL_tallied_graph));
}

static void runs_that_fail_with_either_setting_compare_nothing(void **state)
{
    (void)state;
    tell_text(&told, "prefetch=on: 11 of 40 runs differ\nprefetch=off: 9 of 40 runs differ\n");
    bl_derive_tallies(&told.c);
    assert_null(seen(&told, BL_SIGNAL_tallied_clean));
}

static void the_index_beyond_its_dimension_is_told(void **state)
{
    (void)state;
    tell_text(&told, "InvalidArgumentError: indices[0,7] = [3, 512] does not index into param shape [4,512,64]\n");
    bl_derive_numbers(&told.c);
    assert_fact(seen(&told, BL_SIGNAL_host_index), "index", "512");
    assert_fact(seen(&told, BL_SIGNAL_host_index), "bound", "512");
    assert_fact(seen(&told, BL_SIGNAL_host_index), "dimension", "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_negative_count_is_matched_with_the_one_it_wrapped_from, forget),
        cmocka_unit_test_teardown(a_shape_is_a_count_that_can_wrap, forget),
        cmocka_unit_test_teardown(a_negative_number_that_fits_no_count_says_nothing, forget),
        cmocka_unit_test_teardown(runs_that_only_an_order_cures_lack_an_order, forget),
        cmocka_unit_test_teardown(runs_that_only_eager_launches_cure_point_to_the_graph, forget),
        cmocka_unit_test_teardown(runs_that_fail_with_either_setting_compare_nothing, forget),
        cmocka_unit_test_teardown(the_index_beyond_its_dimension_is_told, forget),
    };
    return cmocka_run_group_tests(tests, open_matcher, close_matcher);
}
