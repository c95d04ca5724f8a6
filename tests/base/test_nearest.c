/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/nearest.h"

static const char *nearest(const char *typed)
{
    static const char *const known[] = {"epochs", "embed", "lr", "batch", "weight-decay", "label-smoothing"};
    bl_nearest best = {0};
    for (int i = 0; i < 6; i++)
        bl_nearest_offer(&best, typed, known[i]);
    return best.name != NULL ? best.name : "none";
}

static void nearest_finds_letters_left_out_added_changed_and_swapped(void **state)
{
    (void)state;
    assert_string_equal(nearest("epoch"), "epochs");
    assert_string_equal(nearest("eppochs"), "epochs");
    assert_string_equal(nearest("enbed"), "embed");
    assert_string_equal(nearest("bacth"), "batch");
    assert_string_equal(nearest("weight_decay"), "weight-decay");
}

static void nearest_takes_a_beginning(void **state)
{
    (void)state;
    assert_string_equal(nearest("label"), "label-smoothing");
    assert_string_equal(nearest("we"), "weight-decay");
    assert_string_equal(nearest("w"), "none");
}

static void nearest_keeps_quiet_when_nothing_is_near(void **state)
{
    (void)state;
    assert_string_equal(nearest("xyzzy"), "none");
    assert_string_equal(nearest(""), "none");
    assert_string_equal(nearest("a-name-that-is-longer-than-any-option-will-ever-be-in-this-program"), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_finds_letters_left_out_added_changed_and_swapped),
        cmocka_unit_test(nearest_takes_a_beginning),
        cmocka_unit_test(nearest_keeps_quiet_when_nothing_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
