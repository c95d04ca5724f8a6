/* SPDX-License-Identifier: Apache-2.0 */
/* Modes from the environment and from options; variables that come late; waits that sync debug tells or refuses. */
#include "support/told.h"

#include <belay/debug.h>
#include <belay/devices.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/site.h"
#include "tensor/context.h"

static int line;
#define HERE (line = __LINE__)

static void no_variables(void)
{
    unsetenv("BELAY_LAUNCH_BLOCKING");
    unsetenv("BELAY_SYNC_DEBUG");
    unsetenv("BELAY_MEMORY");
}

static int set_up(void **state)
{
    (void)state;
    bl_report_site_source_set(false);
    no_variables();
    setenv("BELAY_SIM_SEED", "1", 1);
    told_clear();
    return 0;
}

static belay_context *opened(belay_options options)
{
    options.log = told_remember;
    options.no_journal = true;
    return belay_open(&options);
}

static void expect_modes(belay_context *context, const char *blocking, const char *sync_debug, const char *memory)
{
    const char *expected[] = {blocking, sync_debug, memory};
    char words[96];
    for (int mode = 0; mode < BL_N_MODES; mode++) {
        bl_mode_describe(context, mode, words, sizeof words);
        assert_string_equal(words, expected[mode]);
    }
    told_close(context);
}

static void without_anything_the_modes_are_the_defaults(void **state)
{
    (void)state;
    expect_modes(opened((belay_options){0}), "off (default)", "off (default)", "pool (default)");
    setenv("BELAY_MEMORY", "", 1);
    expect_modes(opened((belay_options){0}), "off (default)", "off (default)", "pool (default)");
}

static void the_environment_sets_modes(void **state)
{
    (void)state;
    setenv("BELAY_LAUNCH_BLOCKING", "1", 1);
    setenv("BELAY_SYNC_DEBUG", "warn", 1);
    setenv("BELAY_MEMORY", "redzone,poison", 1);
    expect_modes(opened((belay_options){0}), "on (BELAY_LAUNCH_BLOCKING)", "warn (BELAY_SYNC_DEBUG)",
                 "redzone with poison (BELAY_MEMORY)");
    setenv("BELAY_LAUNCH_BLOCKING", "0", 1);
    setenv("BELAY_SYNC_DEBUG", "error", 1);
    setenv("BELAY_MEMORY", "exact-left", 1);
    expect_modes(opened((belay_options){0}), "off (BELAY_LAUNCH_BLOCKING)", "error (BELAY_SYNC_DEBUG)",
                 "exact-left (BELAY_MEMORY)");
}

static void options_win_over_the_environment(void **state)
{
    (void)state;
    setenv("BELAY_LAUNCH_BLOCKING", "0", 1);
    setenv("BELAY_SYNC_DEBUG", "error", 1);
    setenv("BELAY_MEMORY", "exact,poison", 1);
    belay_options options = {
        .launch_blocking = true, .sync_debug = BELAY_SYNC_DEBUG_OFF, .memory = BELAY_MEMORY_REDZONE};
    expect_modes(opened(options), "on (belay_options)", "off (belay_options)", "redzone (belay_options)");
    setenv("BELAY_MEMORY", "exact", 1);
    expect_modes(opened((belay_options){.poison = true}), "off (BELAY_LAUNCH_BLOCKING)", "error (BELAY_SYNC_DEBUG)",
                 "exact with poison (BELAY_MEMORY)");
}

static void expect_refused(const char *variable, const char *value, const char *what, const char *choices)
{
    setenv(variable, value, 1);
    belay_context *context = opened((belay_options){0});
    assert_false(belay_is_open(context));
    told_expect("belay: %s is \"%s\", which is no %s (conf.value)\n    try: Set it to %s, or unset it.\n", variable,
                value, what, choices);
    assert_int_equal(belay_close(context), 2);
    unsetenv(variable);
}

static void a_value_that_is_none_is_refused(void **state)
{
    (void)state;
    expect_refused("BELAY_LAUNCH_BLOCKING", "yes", "switch", "0 or 1");
    expect_refused("BELAY_SYNC_DEBUG", "WARN", "mode of sync debug", "off, warn or error");
    const char *choices = "pool, redzone, exact or exact-left, with \",poison\" behind it if wanted";
    expect_refused("BELAY_MEMORY", "exakt", "memory mode", choices);
    expect_refused("BELAY_MEMORY", "exact,", "memory mode", choices);
    expect_refused("BELAY_MEMORY", "poison", "memory mode", choices);
}

static void expect_bad_option(belay_options options, const char *words)
{
    belay_context *context = opened(options);
    told_expect("belay: %s (conf.value)\n%s", words, told_try(BELAY_CONF_VALUE));
    assert_int_equal(belay_close(context), 2);
}

static void an_option_that_is_none_is_refused(void **state)
{
    (void)state;
    expect_bad_option((belay_options){.sync_debug = (belay_sync_debug)4}, "sync_debug is 4, which is no mode of it");
    expect_bad_option((belay_options){.memory = (belay_memory_mode)-1}, "memory is -1, which is no memory mode");
}

static void a_variable_that_comes_late_is_told_once(void **state)
{
    (void)state;
    setenv("BELAY_SYNC_DEBUG", "warn", 1);
    belay_context *context = opened((belay_options){0});
    setenv("BELAY_MEMORY", "exact", 1);
    unsetenv("BELAY_SYNC_DEBUG");
    bl_modes_look(context);
    told_expect("belay: BELAY_SYNC_DEBUG was unset after the context had been opened (conf.late)\n"
                "    in force: sync debug warn (BELAY_SYNC_DEBUG)\n" TOLD_START
                "    try: Set it before the context is opened, or call belay_debug_setup.\n"
                "belay: BELAY_MEMORY was set to \"exact\" after the context had been opened (conf.late)\n"
                "    in force: memory pool (default)\n" TOLD_START
                "    try: Set it before the context is opened, or give memory in belay_options.\n");
    told_close(context);
}

static void closing_tells_what_came_late(void **state)
{
    (void)state;
    belay_context *context = opened((belay_options){0});
    setenv("BELAY_LAUNCH_BLOCKING", "1", 1);
    assert_int_equal((HERE, belay_close(context)), 0);
    told_expect("belay: BELAY_LAUNCH_BLOCKING was set to \"1\" after the context had been opened (conf.late)\n"
                "    called at: test_modes.c:%d\n"
                "    in force: launch blocking off (default)\n" TOLD_START
                "    try: Set it before the context is opened, or call belay_debug_setup.\n",
                line);
}

static void a_loop_hears_of_what_came_late_at_its_first_round(void **state)
{
    (void)state;
    belay_context *context = opened((belay_options){0});
    const float one = 1;
    belay_tensor leaf = told_leaf(context, belay_shape0(), &one);
    setenv("BELAY_LAUNCH_BLOCKING", "1", 1);
    setenv("BELAY_SYNC_DEBUG", "warn", 1);
    belay_tensor loss = belay_mul(leaf, leaf);
    (HERE, belay_backward(loss));
    told_expect("belay: BELAY_LAUNCH_BLOCKING was set to \"1\" after the context had been opened (conf.late)\n"
                "    called at: test_modes.c:%d\n"
                "    in force: launch blocking off (default)\n" TOLD_START
                "    try: Set it before the context is opened, or call belay_debug_setup.\n"
                "belay: BELAY_SYNC_DEBUG was set to \"warn\" after the context had been opened (conf.late)\n"
                "    called at: test_modes.c:%d\n"
                "    in force: sync debug off (default)\n" TOLD_START
                "    try: Set it before the context is opened, or call belay_debug_setup.\n",
                line, line);
    belay_backward(belay_mul(leaf, leaf));
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_string_equal(told(), "");
    setenv("BELAY_MEMORY", "exact", 1);
    assert_int_equal((HERE, belay_synchronise(context)), BELAY_OK);
    assert_true(words_have(told(), "belay: BELAY_MEMORY was set to \"exact\" after the context had been opened"));
    told_clear();
    told_close(context);
}

/* ---- waits */

static belay_context *opened_sim(belay_sync_debug mode)
{
    return opened((belay_options){.device = "sim:0", .sync_debug = mode});
}

/* One call in the program, however a loop around it is compiled. */
static __attribute__((noinline)) double item_of(belay_tensor tensor) { return (HERE, belay_tensor_item(tensor)); }

static void a_wait_is_told_once_for_each_line_and_counted(void **state)
{
    (void)state;
    belay_context *context = opened_sim(BELAY_SYNC_DEBUG_WARN);
    belay_tensor one = belay_ones(context, BELAY_F32, belay_shape1(1));
    float value = 0;
    for (int i = 0; i < 3; i++)
        assert_float_equal(item_of(one), 1, 0);
    int looped = line;
    assert_int_equal((HERE, belay_tensor_read(one, &value, sizeof value)), BELAY_OK);
    told_expect("belay: the host waited for sim:0: a value was read (run.sync)\n"
                "    called at: test_modes.c:%d\n" TOLD_START "%s"
                "belay: the host waited for sim:0: a tensor was read (run.sync)\n"
                "    called at: test_modes.c:%d\n" TOLD_START "%s",
                looped, told_try(BELAY_RUN_SYNC), line, told_try(BELAY_RUN_SYNC));
    int read = line;
    assert_int_equal((HERE, belay_close(context)), 0);
    told_expect("belay: the host waited for devices 4 times (run.sync)\n"
                "    called at: test_modes.c:%d\n"
                "    at test_modes.c:%d, a value was read: 3\n"
                "    at test_modes.c:%d, a tensor was read: 1\n" TOLD_START "%s",
                line, looped, read, told_try(BELAY_RUN_SYNC));
}

static void where_lines_say_nothing_waits_are_told_by_their_reasons(void **state)
{
    (void)state;
    belay_context *context = opened_sim(BELAY_SYNC_DEBUG_WARN);
    belay_tensor one = belay_ones(context, BELAY_F32, belay_shape1(1));
    float value = 0;
    belay_site_push(context, "");
    for (int i = 0; i < 3; i++) {
        assert_float_equal(belay_tensor_item(one), 1, 0);
        assert_int_equal(belay_tensor_read(one, &value, sizeof value), BELAY_OK);
    }
    told_expect("belay: the host waited for sim:0: a value was read (run.sync)\n" TOLD_START "%s"
                "belay: the host waited for sim:0: a tensor was read (run.sync)\n" TOLD_START "%s",
                told_try(BELAY_RUN_SYNC), told_try(BELAY_RUN_SYNC));
    assert_int_equal(belay_close(context), 0);
    told_expect("belay: the host waited for devices 6 times (run.sync)\n"
                "    a value was read: 3\n"
                "    a tensor was read: 3\n" TOLD_START "%s",
                told_try(BELAY_RUN_SYNC));
}

static void a_wait_that_is_refused_does_not_happen(void **state)
{
    (void)state;
    belay_context *context = opened_sim(BELAY_SYNC_DEBUG_ERROR);
    belay_tensor one = belay_ones(context, BELAY_F32, belay_shape1(1));
    float value = 5;
    assert_true(isnan((HERE, belay_tensor_item(one))));
    int item = line;
    assert_int_equal((HERE, belay_tensor_read(one, &value, sizeof value)), BELAY_RUN_SYNC_REFUSED);
    assert_float_equal(value, 5, 0);
    told_expect("belay: the host would have waited for sim:0: a value was read (run.sync_refused)\n"
                "    called at: test_modes.c:%d\n" TOLD_START "%s"
                "belay: the host would have waited for sim:0: a tensor was read (run.sync_refused)\n"
                "    called at: test_modes.c:%d\n" TOLD_START "%s",
                item, told_try(BELAY_RUN_SYNC_REFUSED), line, told_try(BELAY_RUN_SYNC_REFUSED));
    assert_int_equal(belay_close(context), 3);
}

static void every_call_that_waits_is_told(void **state)
{
    (void)state;
    enum { LARGE = 16385 }; /* more than 64 KiB of f32 */
    static float values[LARGE];
    belay_context *context = opened_sim(BELAY_SYNC_DEBUG_WARN);
    int at[6];
    belay_tensor small = belay_tensor_from(context, BELAY_F32, belay_shape1(LARGE - 1), values, sizeof values - 4);
    belay_tensor large = (HERE, belay_tensor_from(context, BELAY_F32, belay_shape1(LARGE), values, sizeof values));
    at[0] = line;
    assert_int_equal((HERE, belay_tensor_write(large, values, sizeof values)), BELAY_OK);
    at[1] = line;
    belay_stream side = belay_stream_open(context, "side");
    belay_stream before = belay_stream_use(side);
    belay_event event = belay_event_record(before);
    assert_int_equal(belay_stream_wait(side, event), BELAY_OK);
    (void)belay_add(small, small);
    (HERE, belay_stream_close(side));
    at[2] = line;
    (void)belay_add(small, small);
    event = belay_event_record(before);
    assert_int_equal(belay_device_set(context, "cpu"), BELAY_OK);
    assert_int_equal((HERE, belay_stream_wait(belay_stream_current(context), event)), BELAY_OK);
    at[3] = line;
    (void)belay_add(small, small);
    (HERE, belay_tensor_to(small, "sim:1"));
    at[4] = line;
    assert_int_equal((HERE, belay_synchronise(context)), BELAY_OK);
    at[5] = line;
    const char *why[] = {"sim:0: a large tensor was written", "sim:0: a large tensor was written",
                         "sim:0: a stream was closed",        "sim:0: another device was to wait for it",
                         "sim:0: a tensor was moved",         "sim:0: all devices were waited for"};
    char words[4096];
    size_t n = 0;
    for (int i = 0; i < 6; i++)
        n += (size_t)snprintf(words + n, sizeof words - n,
                              "belay: the host waited for %s (run.sync)\n    called at: test_modes.c:%d\n" TOLD_START
                              "%s",
                              why[i], at[i], told_try(BELAY_RUN_SYNC));
    told_expect("%s", words);
    belay_sync_debug_set(context, BELAY_SYNC_DEBUG_OFF);
    told_clear();
    (void)belay_close(context);
}

static void a_large_write_that_is_refused_does_not_happen(void **state)
{
    (void)state;
    static float values[16385];
    belay_context *context = opened_sim(BELAY_SYNC_DEBUG_ERROR);
    belay_tensor large = (HERE, belay_tensor_from(context, BELAY_F32, belay_shape1(16385), values, sizeof values));
    assert_true(belay_tensor_is_nil(large));
    told_expect("belay: the host would have waited for sim:0: a large tensor was written (run.sync_refused)\n"
                "    called at: test_modes.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_RUN_SYNC_REFUSED));
    assert_int_equal(belay_close(context), 3);
}

static void on_cpu_nothing_waits(void **state)
{
    (void)state;
    belay_context *context = opened((belay_options){.sync_debug = BELAY_SYNC_DEBUG_ERROR});
    assert_float_equal(belay_tensor_item(belay_ones(context, BELAY_F32, belay_shape1(1))), 1, 0);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_anything_the_modes_are_the_defaults, set_up),
        cmocka_unit_test_setup(the_environment_sets_modes, set_up),
        cmocka_unit_test_setup(options_win_over_the_environment, set_up),
        cmocka_unit_test_setup(a_value_that_is_none_is_refused, set_up),
        cmocka_unit_test_setup(an_option_that_is_none_is_refused, set_up),
        cmocka_unit_test_setup(a_variable_that_comes_late_is_told_once, set_up),
        cmocka_unit_test_setup(a_loop_hears_of_what_came_late_at_its_first_round, set_up),
        cmocka_unit_test_setup(closing_tells_what_came_late, set_up),
        cmocka_unit_test_setup(a_wait_is_told_once_for_each_line_and_counted, set_up),
        cmocka_unit_test_setup(where_lines_say_nothing_waits_are_told_by_their_reasons, set_up),
        cmocka_unit_test_setup(a_wait_that_is_refused_does_not_happen, set_up),
        cmocka_unit_test_setup(every_call_that_waits_is_told, set_up),
        cmocka_unit_test_setup(a_large_write_that_is_refused_does_not_happen, set_up),
        cmocka_unit_test_setup(on_cpu_nothing_waits, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
