/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of Xid and SXid codes are whole and in order, and each word has a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/attributes.h"
#include "triage/xid.h"

static void every_code_is_found_in_its_row(void **state)
{
    (void)state;
    for (int i = 0; i < BL_N_XIDS; i++) {
        const bl_xid_row *row = bl_xid_at(i);
        assert_ptr_equal(bl_xid_find(row->code), row);
        assert_false(row->is_switch);
        assert_int_equal(row->code, i + 1);
    }
    for (int i = 0; i < BL_N_SXIDS; i++) {
        const bl_xid_row *row = bl_xid_switch_at(i);
        assert_ptr_equal(bl_xid_find_switch(row->code), row);
        assert_true(row->is_switch);
        assert_true(i == 0 || row->code > bl_xid_switch_at(i - 1)->code);
    }
    assert_null(bl_xid_at(-1));
    assert_null(bl_xid_at(BL_N_XIDS));
    assert_null(bl_xid_switch_at(BL_N_SXIDS));
}

static void a_number_in_no_table_is_not_found(void **state)
{
    (void)state;
    static const int64_t codes[] = {-1, 0, 177, 20034, INT64_MAX, INT64_MIN};
    for (int i = 0; i < BL_COUNT(codes); i++)
        assert_null(bl_xid_find(codes[i]));
    assert_null(bl_xid_find_switch(79));
}

static void every_row_says_something(void **state)
{
    (void)state;
    for (int i = 0; i < BL_N_XIDS + BL_N_SXIDS; i++) {
        const bl_xid_row *row = i < BL_N_XIDS ? bl_xid_at(i) : bl_xid_switch_at(i - BL_N_XIDS);
        assert_true(strlen(row->mnemonic) > 0 && strlen(row->meaning) > 0 && strlen(row->action) > 0);
        assert_true(strlen(bl_xid_side_describe(row->side)) > 0);
        assert_true(strlen(bl_xid_severity_describe(row->severity)) > 0);
        assert_true(strlen(bl_xid_repeat_describe(row->repeat)) > 0);
    }
}

static void known_codes_are_on_their_side(void **state)
{
    (void)state;
    static const struct {
        int code;
        bl_xid_side side;
        bl_xid_severity severity;
    } known[] = {
        {13, BL_XID_SIDE_APPLICATION, BL_XID_SEVERITY_PROCESS}, {31, BL_XID_SIDE_APPLICATION, BL_XID_SEVERITY_PROCESS},
        {43, BL_XID_SIDE_SECONDARY, BL_XID_SEVERITY_PROCESS},   {45, BL_XID_SIDE_SECONDARY, BL_XID_SEVERITY_INFO},
        {48, BL_XID_SIDE_HARDWARE, BL_XID_SEVERITY_GPU},        {63, BL_XID_SIDE_HARDWARE, BL_XID_SEVERITY_WARNING},
        {74, BL_XID_SIDE_LINK, BL_XID_SEVERITY_NODE},           {79, BL_XID_SIDE_HARDWARE, BL_XID_SEVERITY_NODE},
        {94, BL_XID_SIDE_HARDWARE, BL_XID_SEVERITY_PROCESS},    {95, BL_XID_SIDE_HARDWARE, BL_XID_SEVERITY_GPU},
        {119, BL_XID_SIDE_DRIVER, BL_XID_SEVERITY_GPU},         {154, BL_XID_SIDE_SECONDARY, BL_XID_SEVERITY_INFO},
    };
    for (int i = 0; i < BL_COUNT(known); i++) {
        assert_int_equal(bl_xid_find(known[i].code)->side, known[i].side);
        assert_int_equal(bl_xid_find(known[i].code)->severity, known[i].severity);
    }
    assert_true(bl_xid_is_unused(bl_xid_find(1)));
    assert_false(bl_xid_is_unused(bl_xid_find(13)));
    assert_string_equal(bl_xid_repeat_describe(bl_xid_find(13)->repeat),
                        "2 or more in 24 h on the same GPC and TPC -> hardware suspect, run DCGM extended then field "
                        "diagnostics; single or spread -> application");
    assert_string_equal(bl_xid_find_switch(20034)->meaning, "NVSwitch: LTSSM Fault Up (potentially fatal)");
}

static void sub_codes_of_link_events_say_where_to_look(void **state)
{
    (void)state;
    static const char unit[] = "NETIR_LINK_EVT";
    static const struct {
        int sub_code;
        bl_xid_look look;
    } looks[] = {
        {1, BL_XID_LOOK_IF_OFTEN},
        {2, BL_XID_LOOK_SIGNAL},
        {4, BL_XID_LOOK_SIGNAL},
        {10, BL_XID_LOOK_SIGNAL},
        {15, BL_XID_LOOK_SOFTWARE},
        {16, BL_XID_LOOK_SOFTWARE_THEN_LINK},
        {17, BL_XID_LOOK_SOFTWARE},
        {18, BL_XID_LOOK_SOFTWARE_THEN_LINK},
        {21, BL_XID_LOOK_PEER},
        {22, BL_XID_LOOK_SOFTWARE},
        {31, BL_XID_LOOK_UNKNOWN},
        {32, BL_XID_LOOK_PEER},
        {37, BL_XID_LOOK_PEER},
        {38, BL_XID_LOOK_SOFTWARE_NO_RESET},
        {40, BL_XID_LOOK_HOST},
        {42, BL_XID_LOOK_SIGNAL_AND_CABLE},
        {43, BL_XID_LOOK_SIGNAL_AND_CABLE},
    };
    for (int i = 0; i < BL_COUNT(looks); i++) {
        assert_int_equal(bl_xid_nvlink_look(149, unit, sizeof unit - 1, looks[i].sub_code), looks[i].look);
        assert_true(strlen(bl_xid_look_describe(looks[i].look)) > 0);
    }
    assert_int_equal(bl_xid_nvlink_look(145, unit, sizeof unit - 1, 21), BL_XID_LOOK_UNKNOWN);
    assert_int_equal(bl_xid_nvlink_look(149, "NETIR", 5, 21), BL_XID_LOOK_UNKNOWN);
    assert_int_equal(bl_xid_nvlink_look(149, NULL, 0, 21), BL_XID_LOOK_UNKNOWN);
    assert_int_equal(bl_xid_nvlink_sub_code(0x025001c6), 37);
    assert_int_equal(bl_xid_nvlink_sub_code(UINT64_MAX), 63);
}

static void recovery_actions_have_names_words_and_weight(void **state)
{
    (void)state;
    for (int action = 0; action < BL_N_RECOVERIES; action++) {
        assert_true(strlen(bl_recovery_name((bl_recovery)action)) > 0);
        assert_true(strlen(bl_recovery_describe((bl_recovery)action)) > 0);
    }
    assert_string_equal(bl_recovery_name(BL_RECOVERY_DRAIN_AND_RESET), "Drain and Reset");
    assert_int_equal(bl_recovery_severity(BL_RECOVERY_NODE_REBOOT), BL_XID_SEVERITY_NODE);
    assert_string_equal(bl_recovery_name(BL_N_RECOVERIES), "");
    assert_int_equal(bl_recovery_severity(BL_N_RECOVERIES), BL_XID_SEVERITY_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_is_found_in_its_row),
        cmocka_unit_test(a_number_in_no_table_is_not_found),
        cmocka_unit_test(every_row_says_something),
        cmocka_unit_test(known_codes_are_on_their_side),
        cmocka_unit_test(sub_codes_of_link_events_say_where_to_look),
        cmocka_unit_test(recovery_actions_have_names_words_and_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
