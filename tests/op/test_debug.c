/* SPDX-License-Identifier: Apache-2.0 */
/* Modes from code, functions under guard, looks at values. */
#include "support/told.h"

#include <belay/debug.h>
#include <belay/launch.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/blas.h"
#include "report/site.h"
#include "tensor/context.h"

static int line;
#define HERE (line = __LINE__)

static int set_up(void **state)
{
    (void)state;
    bl_report_site_source_set(false);
    unsetenv("BELAY_LAUNCH_BLOCKING");
    unsetenv("BELAY_SYNC_DEBUG");
    unsetenv("BELAY_MEMORY");
    setenv("BELAY_SIM_SEED", "1", 1);
    told_clear();
    return 0;
}

static belay_context *opened(const char *device)
{
    belay_context *context =
        belay_open(&(belay_options){.device = device, .threads = 2, .log = told_remember, .no_journal = true});
    assert_true(belay_is_open(context));
    return context;
}

/* ---- setup */

static char versions[256];

static const char *version_line(void)
{
    const char *begin = strstr(told(), "    versions: belay ");
    const char *end = begin != NULL ? strchr(begin, '\n') : NULL;
    assert_non_null(end);
    snprintf(versions, sizeof versions, "%.*s", (int)(end - begin), begin);
    assert_non_null(strstr(versions, bl_cpu_blas_describe()));
    return versions;
}

static void setup_tells_devices_versions_and_modes(void **state)
{
    (void)state;
    belay_context *context = opened("cpu");
    assert_int_equal(belay_debug_setup(context, NULL), BELAY_OK);
    told_expect("belay: debug setup\n"
                "    device: cpu, 2 threads, synchronous, current\n"
                "%s\n"
                "    launch blocking: off (default)\n"
                "    sync debug: off (default)\n"
                "    memory: pool (default)\n"
                "    non-finite tracing: off\n",
                version_line());
    assert_int_equal(belay_n_faults(context), 0);
    told_close(context);
}

static void setup_sets_modes_and_keeps_the_others(void **state)
{
    (void)state;
    belay_context *context = opened("cpu");
    belay_debug_options options = {.launch_blocking = BELAY_SWITCH_ON,
                                   .sync_debug = BELAY_SYNC_DEBUG_WARN,
                                   .memory = BELAY_MEMORY_REDZONE,
                                   .poison = BELAY_SWITCH_ON,
                                   .trace_nonfinite = BELAY_SWITCH_ON};
    assert_int_equal(belay_debug_setup(context, &options), BELAY_OK);
    told_clear();
    float value = 0;
    belay_tensor fresh = bl_tensor_new(context, BELAY_F32, &(belay_shape){1, {1}}, NULL);
    assert_int_equal(belay_tensor_read(fresh, &value, sizeof value), BELAY_OK);
    assert_true(isnan(value)); /* poison is in force */
    options = (belay_debug_options){.sync_debug = BELAY_SYNC_DEBUG_ERROR};
    assert_int_equal(belay_debug_setup(context, &options), BELAY_OK);
    told_expect("belay: debug setup\n"
                "    device: cpu, 2 threads, synchronous, current\n"
                "%s\n"
                "    launch blocking: on (set by a call)\n"
                "    sync debug: error (set by a call)\n"
                "    memory: redzone with poison (set by a call)\n"
                "    non-finite tracing: on\n",
                version_line());
    assert_int_equal(belay_sync_debug_set(context, BELAY_SYNC_DEBUG_OFF), BELAY_SYNC_DEBUG_ERROR);
    assert_int_equal(belay_sync_debug_get(context), BELAY_SYNC_DEBUG_OFF);
    told_close(context);
}

static void memory_that_is_asked_for_late_is_told(void **state)
{
    (void)state;
    belay_context *context = opened("cpu");
    (void)belay_ones(context, BELAY_F32, belay_shape1(1));
    belay_debug_options options = {.memory = BELAY_MEMORY_EXACT};
    assert_int_equal((HERE, belay_debug_setup(context, &options)), BELAY_OK);
    told_expect("belay: memory mode exact was asked for after memory had been used (conf.late)\n"
                "    called at: test_debug.c:%d\n"
                "    in force: memory pool (default)\n" TOLD_START
                "    try: Call belay_debug_setup before the first tensor is made, or give memory in belay_options.\n"
                "belay: debug setup\n"
                "    device: cpu, 2 threads, synchronous, current\n"
                "%s\n"
                "    launch blocking: off (default)\n"
                "    sync debug: off (default)\n"
                "    memory: pool (default)\n"
                "    non-finite tracing: off\n",
                line, version_line());
    told_close(context);
}

static void expect_bad(belay_context *context, const belay_debug_options *options, const char *words)
{
    assert_int_equal((HERE, belay_debug_setup(context, options)), BELAY_CONF_VALUE);
    told_expect("belay: %s (conf.value)\n    called at: test_debug.c:%d\n" TOLD_START "%s", words, line,
                told_try(BELAY_CONF_VALUE));
}

static void what_is_no_mode_is_refused(void **state)
{
    (void)state;
    belay_context *context = opened("cpu");
    expect_bad(context, &(belay_debug_options){.poison = (belay_switch)3},
               "a switch of belay_debug_options is neither kept, on nor off");
    expect_bad(context, &(belay_debug_options){.sync_debug = (belay_sync_debug)-1},
               "sync_debug is -1, which is no mode of it");
    expect_bad(context, &(belay_debug_options){.memory = (belay_memory_mode)9}, "memory is 9, which is no memory mode");
    assert_int_equal(belay_sync_debug_get(context), BELAY_SYNC_DEBUG_OFF);
    assert_int_equal(belay_close(context), 2);
}

/* ---- guards */

static belay_tensor table, ids;
static int inner, outer, made[2];

static __attribute__((noinline)) void look_up(void)
{
    inner = __LINE__ + 1;
    belay_tensor rows = belay_embedding(table, ids, NULL);
    (void)belay_sum(rows, NULL);
}

static void work(belay_context *context, void *arg)
{
    int *n_done = arg;
    assert_true(context->launch_blocking);
    outer = __LINE__ + 1;
    look_up();
    ++*n_done;
}

static void make_tensors(belay_context *context)
{
    static const float rows[] = {1, 2, 3, 4, 5, 6};
    static const int64_t numbers[] = {0, 3, 1};
    made[0] = __LINE__ + 1;
    table = belay_tensor_from(context, BELAY_F32, belay_shape2(3, 2), rows, sizeof rows);
    belay_tensor_name_set(table, "table");
    made[1] = __LINE__ + 1;
    ids = belay_tensor_from(context, BELAY_I64, belay_shape1(3), numbers, sizeof numbers);
}

static int guarded_at, n_done;
static belay_code guarded;

static void run_guarded(belay_context *context)
{
    n_done = 0;
    guarded_at = __LINE__ + 1;
    guarded = belay_guarded(context, work, &n_done);
    assert_int_equal(n_done, 1);
    assert_false(context->launch_blocking);
}

/* The guard's paragraph; that of the fault itself stands before it. */
static void expect_guarded(belay_context *context, const char *device)
{
    char words[4096], expected[4096];
    const char *own = strstr(told(), "belay: a guarded function");
    belay_memory m = belay_memory_get(context);
    assert_non_null(own);
    assert_non_null(strstr(told(), "ids[1] is 3, outside [0, 3) of table (index.range)"));
    snprintf(words, sizeof words, "%s", own);
    const char *at_rows = strstr(words, "    tensor without a name: 24 bytes");
    assert_non_null(at_rows);
    snprintf(expected, sizeof expected,
             "belay: a guarded function met 1 fault, first index.range\n"
             "    called at: test_debug.c:%d\n"
             "    at: test_debug.c:%d\n"
             "    from: test_debug.c:%d\n"
             "    from: test_debug.c:%d\n"
             "    device %s: %" PRId64 " bytes in use, %" PRId64 " held, %" PRId64 " at most\n"
             "    tensor table: 24 bytes on %s, made at test_debug.c:%d\n"
             "    tensor without a name: 24 bytes on %s, made at test_debug.c:%d\n"
             "    tensor without a name: 24 bytes on %s, made at test_debug.c:%d\n"
             "    tensor without a name: 4 bytes on %s, made at test_debug.c:%d\n",
             guarded_at, inner, outer, guarded_at, device, m.in_use, m.held, m.peak, device, made[0], device, made[1],
             device, inner, device, inner + 1);
    assert_words_equal(words, expected);
    told_clear();
}

static void a_fault_under_guard_comes_with_its_lines_and_the_devices_state(void **state)
{
    (void)state;
    belay_context *context = opened("cpu");
    make_tensors(context);
    run_guarded(context);
    assert_int_equal(guarded, BELAY_INDEX_RANGE);
    expect_guarded(context, "cpu");
    assert_int_equal(belay_close(context), 3);
}

static void on_an_asynchronous_device_the_call_itself_is_on_the_stack(void **state)
{
    (void)state;
    belay_context *context = opened("sim:0");
    make_tensors(context);
    run_guarded(context);
    assert_int_equal(guarded, BELAY_INDEX_RANGE);
    expect_guarded(context, "sim:0");
    assert_int_equal(belay_close(context), 3);
}

static void do_nothing(belay_context *context, void *arg)
{
    (void)arg;
    assert_true(context->launch_blocking);
}

static int nested_at;

static void guard_again(belay_context *context, void *arg)
{
    nested_at = __LINE__ + 1;
    assert_int_equal(belay_guarded(context, work, arg), BELAY_INDEX_RANGE);
    assert_true(context->launch_blocking);
}

static void a_guard_inside_of_a_guard_is_no_line_of_the_program(void **state)
{
    (void)state;
    char begin[512];
    belay_context *context = opened("cpu");
    make_tensors(context);
    n_done = 0;
    guarded = (HERE, belay_guarded(context, guard_again, &n_done));
    assert_int_equal(guarded, BELAY_INDEX_RANGE);
    assert_false(context->launch_blocking);
    const char *last = strstr(strstr(told(), "belay: a guarded function") + 1, "belay: a guarded function");
    assert_non_null(last);
    snprintf(begin, sizeof begin, "%.*s", (int)(strstr(last, "    device") - last), last);
    snprintf(versions, sizeof versions,
             "belay: a guarded function met 1 fault, first index.range\n"
             "    called at: test_debug.c:%d\n"
             "    at: test_debug.c:%d\n"
             "    from: test_debug.c:%d\n"
             "    from: test_debug.c:%d\n"
             "    from: test_debug.c:%d\n",
             line, inner, outer, nested_at, line);
    assert_words_equal(begin, versions);
    assert_int_equal(belay_close(context), 3);
}

static void close_it(belay_context *context, void *arg)
{
    (void)arg;
    nested_at = __LINE__ + 1;
    assert_int_equal(belay_close(context), 3);
    assert_int_equal(belay_guarded(context, do_nothing, NULL), BELAY_OK);
    assert_int_equal(belay_close(context), 3);
}

static void a_context_closed_under_guard_stays_open(void **state)
{
    (void)state;
    belay_context *context = opened("cpu");
    assert_int_equal(belay_guarded(context, close_it, NULL), BELAY_CONF_ORDER);
    assert_true(belay_is_open(context));
    char words[256];
    snprintf(words, sizeof words,
             "belay: a context was closed inside of a call that uses it (conf.order)\n"
             "    called at: test_debug.c:%d\n" TOLD_START "    try: Close it after the outermost call has returned.\n",
             nested_at);
    assert_memory_equal(told(), words, strlen(words));
    assert_int_equal(belay_close(context), 3);
}

static void look_up_unblocked(belay_context *context, void *arg)
{
    (void)arg;
    assert_int_equal(belay_debug_setup(context, &(belay_debug_options){.launch_blocking = BELAY_SWITCH_OFF}), BELAY_OK);
    told_clear();
    look_up();
}

static void faults_of_the_function_are_told_before_the_guard_ends(void **state)
{
    (void)state;
    belay_context *context = opened("sim:0");
    make_tensors(context);
    guarded = (HERE, belay_guarded(context, look_up_unblocked, NULL));
    assert_int_equal(guarded, BELAY_INDEX_RANGE);
    char words[1024];
    snprintf(words, sizeof words,
             "belay: ids[1] is 3, outside [0, 3) of table (index.range)\n"
             "    op: embedding, called at test_debug.c:%d, launch 1\n"
             "    surfaced at: test_debug.c:%d\n"
             "    tensors: table [3, 2] f32; ids [3] i64; on sim:0\n"
             "    bad: 1 of 3 elements; values 3\n" TOLD_START
             "    likely: the value equals the bound: off by one, or a padding or special id that the table was not "
             "grown for\n"
             "    try: Count ids from 0; a padding or special token needs a row of its own: make the table one row "
             "larger.\n"
             "belay: a guarded function met 1 fault, first index.range\n"
             "    called at: test_debug.c:%d\n"
             "    at: test_debug.c:%d\n"
             "    device ",
             inner, line, line, line);
    char begin[1024];
    snprintf(begin, sizeof begin, "%.*s", (int)strlen(words), told());
    assert_words_equal(begin, words);
    assert_int_equal(belay_close(context), 3);
}

static void faults_in_flight_before_the_guard_are_not_the_functions(void **state)
{
    (void)state;
    belay_context *context = opened("sim:0");
    make_tensors(context);
    look_up();
    guarded = (HERE, belay_guarded(context, do_nothing, NULL));
    assert_int_equal(guarded, BELAY_OK);
    assert_null(strstr(told(), "belay: a guarded function"));
    assert_non_null(strstr(told(), "belay: ids[1] is 3, outside [0, 3) of table (index.range)"));
    assert_int_equal(belay_close(context), 3);
}

BELAY_KERNEL(stray, "*: -> y[NM]", work_of_kernel, item)
{
    (void)item;
    ((volatile float *)belay_view_raw(belay_view_of(work_of_kernel, 0)))[INT64_C(1) << 60] = 1;
}

static void lose_it(belay_context *context, void *arg)
{
    (void)arg;
    nested_at = __LINE__ + 1;
    belay_launch(context, &stray, &(belay_launch_options){.n_items = 1, .operand = {table}});
}

static void a_device_that_was_lost_under_guard_is_told_as_lost(void **state)
{
    (void)state;
    belay_context *context = opened("sim:0");
    make_tensors(context);
    guarded = (HERE, belay_guarded(context, lose_it, NULL));
    assert_int_equal(guarded, BELAY_MEM_ACCESS);
    const char *own = strstr(told(), "belay: a guarded function");
    belay_memory m = belay_memory_get(context);
    assert_non_null(own);
    char words[2048], expected[2048];
    snprintf(words, sizeof words, "%s", own);
    snprintf(expected, sizeof expected,
             "belay: a guarded function met 2 faults, first mem.access\n"
             "    called at: test_debug.c:%d\n"
             "    at: test_debug.c:%d\n"
             "    from: test_debug.c:%d\n"
             "    device sim:0: %" PRId64 " bytes in use, %" PRId64 " held, %" PRId64 " at most; it is lost\n"
             "    tensor table: 24 bytes on sim:0, made at test_debug.c:%d\n"
             "    tensor without a name: 24 bytes on sim:0, made at test_debug.c:%d\n",
             line, nested_at, line, m.in_use, m.held, m.peak, made[0], made[1]);
    assert_words_equal(words, expected);
    told_clear();
    assert_int_equal(belay_debug_setup(context, NULL), BELAY_OK);
    snprintf(expected, sizeof expected,
             "belay: debug setup\n"
             "    device: sim:0, 1 thread, asynchronous, current, lost\n"
             "%s\n"
             "    launch blocking: off (default)\n"
             "    sync debug: off (default)\n"
             "    memory: pool (default)\n"
             "    non-finite tracing: off\n",
             version_line());
    assert_words_equal(told(), expected);
    told_clear();
    assert_int_equal(belay_close(context), 6);
}

static void without_a_fault_nothing_is_said(void **state)
{
    (void)state;
    belay_context *context = opened("cpu");
    assert_int_equal(belay_guarded(context, do_nothing, NULL), BELAY_OK);
    assert_string_equal(told(), "");
    assert_int_equal((HERE, belay_guarded(context, NULL, NULL)), BELAY_CONF_MISSING);
    told_expect("belay: belay_guarded was given no function (conf.missing)\n"
                "    called at: test_debug.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_MISSING));
    assert_int_equal(belay_guarded(NULL, do_nothing, NULL), BELAY_CONF_ORDER);
    assert_int_equal(belay_close(context), 2);
}

/* ---- bounds */

static void expect_answer(belay_tensor x, double low, double high, double min, double max, int64_t n_outside)
{
    belay_bounds_answer a;
    assert_int_equal(belay_bounds_get(belay_check_bounds(x, low, high), &a), BELAY_OK);
    assert_int_equal(a.n, belay_tensor_n_elements(x));
    assert_int_equal(a.n_outside, n_outside);
    assert_true(a.min == min || (isnan(a.min) && isnan(min)));
    assert_true(a.max == max || (isnan(a.max) && isnan(max)));
}

static void values_outside_are_counted_and_the_first_are_placed(void **state)
{
    (void)state;
    static int64_t values[40 * 100];
    belay_bounds_answer a;
    for (int i = 0; i < 4000; i++)
        values[i] = i % 100;
    values[5] = 100;
    values[1024] = -1;
    values[3000] = INT64_MIN;
    values[3001] = INT64_MAX;
    values[3999] = 100;
    belay_context *context = opened("cpu");
    belay_tensor x = belay_tensor_from(context, BELAY_I64, belay_shape2(40, 100), values, sizeof values);
    assert_int_equal(belay_bounds_get(belay_check_bounds(x, 0, 100), &a), BELAY_OK);
    assert_true(a.n == 4000 && a.n_outside == 5 && a.n_first == 4);
    assert_true(a.min == -0x1p63 && a.max == 0x1p63);
    const int64_t at[4][2] = {{0, 5}, {10, 24}, {30, 0}, {30, 1}};
    for (int k = 0; k < 4; k++) {
        assert_true(a.at[k][0] == at[k][0] && a.at[k][1] == at[k][1]);
        assert_int_equal(a.element[k], at[k][0] * 100 + at[k][1]);
    }
    belay_bounds_answer turned; /* coordinates are those of the view */
    belay_tensor t = belay_transpose(x, 0, 1);
    assert_int_equal(belay_bounds_get(belay_check_bounds(t, 0, 100), &turned), BELAY_OK);
    assert_true(turned.n_outside == 5 && turned.at[0][0] == 0 && turned.at[0][1] == 30);
    told_close(context);
}

static void bounds_hold_for_every_dtype_and_at_their_edges(void **state)
{
    (void)state;
    static const float floats[] = {-1, 0, 0.5f, 1, NAN, INFINITY};
    static const uint8_t bytes[] = {0, 1, 255};
    static const int64_t edges[] = {INT64_MIN, 0, INT64_MAX};
    belay_context *context = opened("cpu");
    belay_tensor f = belay_tensor_from(context, BELAY_F32, belay_shape1(6), floats, sizeof floats);
    expect_answer(f, 0, 1, -1, INFINITY, 4);
    expect_answer(belay_cast(f, BELAY_BF16), 0, 1, -1, INFINITY, 4);
    expect_answer(belay_cast(f, BELAY_F16), -2, INFINITY, -1, INFINITY, 2);
    expect_answer(belay_cast(f, BELAY_F64), -DBL_MAX, DBL_MAX, -1, INFINITY, 2);
    belay_tensor u = belay_tensor_from(context, BELAY_U8, belay_shape1(3), bytes, sizeof bytes);
    expect_answer(u, 0.5, 255, 0, 255, 2);
    expect_answer(u, 0, 255.5, 0, 255, 0);
    belay_tensor i = belay_tensor_from(context, BELAY_I64, belay_shape1(3), edges, sizeof edges);
    expect_answer(i, -INFINITY, INFINITY, -0x1p63, 0x1p63, 0);
    expect_answer(i, -0x1p63, 0x1p63, -0x1p63, 0x1p63, 0);
    expect_answer(i, INFINITY, INFINITY, -0x1p63, 0x1p63, 3);
    expect_answer(i, -INFINITY, -INFINITY, -0x1p63, 0x1p63, 3);
    expect_answer(belay_full(context, BELAY_F32, belay_shape1(2), (double)NAN), 0, 1, (double)NAN, (double)NAN, 2);
    expect_answer(belay_zeros(context, BELAY_F32, belay_shape2(0, 3)), 0, 1, (double)NAN, (double)NAN, 0);
    expect_answer(belay_zeros(context, BELAY_F32, belay_shape0()), 0, 1, 0, 0, 0);
    told_close(context);
}

static void a_look_waits_for_nothing_until_it_is_read(void **state)
{
    (void)state;
    belay_context *context = opened("sim:0");
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(3000));
    belay_bounds_answer a;
    belay_sync_debug_set(context, BELAY_SYNC_DEBUG_ERROR);
    belay_bounds bounds = belay_check_bounds(x, 0, 1);
    assert_string_equal(told(), "");
    belay_sync_debug_set(context, BELAY_SYNC_DEBUG_OFF);
    assert_int_equal(belay_bounds_get(bounds, &a), BELAY_OK);
    assert_true(a.n_outside == 3000 && a.min == 1 && a.max == 1 && a.element[3] == 3);
    told_close(context);
}

static void a_look_that_cannot_be_is_nil(void **state)
{
    (void)state;
    belay_context *context = opened("cpu");
    belay_bounds_answer a = {.n = 5, .n_first = 5};
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(1));
    belay_bounds bounds = (HERE, belay_check_bounds(x, (double)NAN, 1));
    told_expect("belay: a bound of belay_check_bounds is NaN (conf.value)\n"
                "    called at: test_debug.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_VALUE));
    assert_int_equal(belay_bounds_get(bounds, &a), BELAY_LIFE_STALE);
    assert_int_equal(a.n, 0); /* nothing of before */
    assert_int_equal(a.n_first, 0);
    assert_true(isnan(a.min) && isnan(a.max));
    belay_scope scope = belay_scope_open(context);
    bounds = belay_check_bounds(x, 0, 1);
    int died = (HERE, belay_scope_close(scope), line);
    a.n = 5;
    assert_int_equal((HERE, belay_bounds_get(bounds, &a)), BELAY_LIFE_STALE);
    assert_int_equal(a.n, 0);
    told_expect("belay: tensor edges [1, 2] f64 was used after it had died (life.stale)\n"
                "    called at: test_debug.c:%d\n"
                "    died at: test_debug.c:%d, in step 0\n" TOLD_START "%s",
                line, died, told_try(BELAY_LIFE_STALE));
    assert_int_equal(belay_bounds_get(belay_check_bounds(x, 0, 1), NULL), BELAY_CONF_MISSING);
    assert_int_equal(belay_close(context), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(setup_tells_devices_versions_and_modes, set_up),
        cmocka_unit_test_setup(setup_sets_modes_and_keeps_the_others, set_up),
        cmocka_unit_test_setup(memory_that_is_asked_for_late_is_told, set_up),
        cmocka_unit_test_setup(what_is_no_mode_is_refused, set_up),
        cmocka_unit_test_setup(a_fault_under_guard_comes_with_its_lines_and_the_devices_state, set_up),
        cmocka_unit_test_setup(on_an_asynchronous_device_the_call_itself_is_on_the_stack, set_up),
        cmocka_unit_test_setup(a_guard_inside_of_a_guard_is_no_line_of_the_program, set_up),
        cmocka_unit_test_setup(a_context_closed_under_guard_stays_open, set_up),
        cmocka_unit_test_setup(faults_of_the_function_are_told_before_the_guard_ends, set_up),
        cmocka_unit_test_setup(faults_in_flight_before_the_guard_are_not_the_functions, set_up),
        cmocka_unit_test_setup(a_device_that_was_lost_under_guard_is_told_as_lost, set_up),
        cmocka_unit_test_setup(without_a_fault_nothing_is_said, set_up),
        cmocka_unit_test_setup(values_outside_are_counted_and_the_first_are_placed, set_up),
        cmocka_unit_test_setup(bounds_hold_for_every_dtype_and_at_their_edges, set_up),
        cmocka_unit_test_setup(a_look_waits_for_nothing_until_it_is_read, set_up),
        cmocka_unit_test_setup(a_look_that_cannot_be_is_nil, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
