/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of a context: the current one, guards around it, what is refused. */
#include "support/told.h"

#include <belay/belay.h>

#include <stdio.h>
#include <string.h>

#include "base/attributes.h"
#include "base/memory.h"

static belay_context *open_on(const char *device)
{
    told_clear();
    belay_context *context = belay_open(&(belay_options){.device = device, .log = told_remember, .no_journal = true});
    assert_true(belay_is_open(context));
    return context;
}

static const char *made_on(belay_context *context)
{
    const float one = 1;
    return belay_tensor_device(told_f32(context, belay_shape0(), &one));
}

#define CLOSE_TRY told_try(BELAY_LIFE_SCOPE)

static void makers_use_the_current_device_and_ops_follow_their_tensors(void **state)
{
    (void)state;
    belay_context *context = open_on("cpu");
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(3));
    assert_int_equal(belay_device_set(context, "sim:1"), BELAY_OK);
    assert_string_equal(belay_device_get(context), "sim:1");
    assert_string_equal(made_on(context), "sim:1");
    assert_string_equal(belay_tensor_device(belay_zeros(context, BELAY_F32, belay_shape1(3))), "sim:1");
    assert_string_equal(belay_tensor_device(belay_arange(context, BELAY_F32, 3, 0, 1)), "sim:1");
    assert_string_equal(belay_tensor_device(belay_normal(context, BELAY_F32, belay_shape1(3), 0, 1)), "sim:1");
    assert_string_equal(belay_tensor_device(belay_exp(x)), "cpu");
    assert_string_equal(belay_tensor_device((belay_tensor){0}), "");
    told_close(context);
}

static void guards_nest_and_go_back_each_to_its_own(void **state)
{
    (void)state;
    belay_context *context = open_on("cpu");
    belay_device_guard outer = belay_device_guard_open(context, "sim:0");
    assert_string_equal(made_on(context), "sim:0");
    belay_device_guard inner = belay_device_guard_open(context, "sim:1");
    assert_string_equal(made_on(context), "sim:1");
    assert_int_equal(belay_device_set(context, "cpu"), BELAY_OK); /* until the guard is closed */
    belay_device_guard_close(inner);
    assert_string_equal(made_on(context), "sim:0");
    belay_device_guard_close(outer);
    assert_string_equal(made_on(context), "cpu");
    told_close(context);
}

static void guards_closed_out_of_order_or_twice_are_refused(void **state)
{
    (void)state;
    belay_context *context = open_on("cpu");
    belay_device_guard outer = belay_device_guard_open(context, "sim:0");
    belay_device_guard inner = belay_device_guard_open(context, "sim:1");
    int line = __LINE__ + 1;
    belay_device_guard_close(outer);
    told_expect("belay: a device guard was closed while 1 inside of it is open (life.scope)\n"
                "    called at: test_places.c:%d\n" TOLD_START "%s",
                line, CLOSE_TRY);
    assert_string_equal(made_on(context), "cpu");
    line = __LINE__ + 1;
    belay_device_guard_close(inner);
    told_expect("belay: a device guard was closed that is not open (0 are) (life.scope)\n"
                "    called at: test_places.c:%d\n" TOLD_START "%s",
                line, CLOSE_TRY);
    belay_device_guard again = belay_device_guard_open(context, "sim:1");
    line = __LINE__ + 1;
    belay_device_guard_close(outer);
    told_expect("belay: a device guard was closed that is not open (1 are) (life.scope)\n"
                "    called at: test_places.c:%d\n" TOLD_START "%s",
                line, CLOSE_TRY);
    belay_device_guard_close((belay_device_guard){0});
    belay_device_guard_close(again);
    assert_string_equal(made_on(context), "cpu");
    assert_string_equal(told(), "");
    belay_close(context);
}

static void a_guard_on_a_device_that_is_not_there_changes_nothing(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0");
    belay_device_guard guard = belay_device_guard_open(context, "sim:99");
    assert_int_equal(guard.context, 0);
    assert_non_null(strstr(told(), " (place.absent)\n"));
    told_clear();
    belay_device_guard_close(guard);
    assert_string_equal(belay_device_get(context), "sim:0");
    assert_int_equal(belay_device_set(context, "abacus"), BELAY_CONF_VALUE);
    assert_int_equal(belay_device_set(context, NULL), BELAY_CONF_MISSING);
    assert_string_equal(belay_device_get(context), "sim:0");
    assert_string_equal(made_on(context), "sim:0");
    belay_close(context);
}

static void more_guards_than_there_can_be_are_refused(void **state)
{
    (void)state;
    enum { MOST = 32 };
    belay_context *context = open_on("cpu");
    belay_device_guard guard[MOST + 1];
    for (int i = 0; i < MOST; i++)
        guard[i] = belay_device_guard_open(context, i % 2 == 0 ? "sim:0" : "sim:1");
    int line = __LINE__ + 1;
    guard[MOST] = belay_device_guard_open(context, "cpu");
    told_expect("belay: 32 device guards are open, the most that there can be (life.scope)\n"
                "    called at: test_places.c:%d\n" TOLD_START "%s",
                line, CLOSE_TRY);
    for (int i = MOST; i >= 0; i--)
        belay_device_guard_close(guard[i]);
    assert_string_equal(belay_device_get(context), "cpu");
    assert_string_equal(told(), "");
    belay_close(context);
}

static void a_tensor_goes_to_a_device_and_back_with_its_gradient(void **state)
{
    (void)state;
    belay_context *context = open_on("cpu");
    const float values[] = {1, 2, 3, 4, 5, 6};
    float out[6], grad[6];
    belay_tensor x = told_leaf(context, belay_shape2(2, 3), values);
    belay_tensor there = belay_tensor_to(belay_transpose(x, 0, 1), "sim:1"), back = belay_tensor_to(there, "cpu");
    assert_string_equal(belay_tensor_device(there), "sim:1");
    assert_true(belay_tensor_is_contiguous(there));
    told_read(back, out, 6);
    const float turned[] = {1, 4, 2, 5, 3, 6};
    assert_memory_equal(out, turned, sizeof out);
    assert_int_equal(belay_tensor_to(back, "cpu").slot, back.slot);
    belay_backward(belay_sum(belay_mul(there, there), NULL));
    assert_string_equal(belay_tensor_device(belay_tensor_grad(x)), "cpu");
    told_read(belay_tensor_grad(x), grad, 6);
    for (int i = 0; i < 6; i++)
        assert_true(grad[i] == 2 * values[i]);
    told_close(context);
}

static void memory_that_ended_is_told_of_the_device_that_was_asked(void **state)
{
    (void)state;
    told_clear();
    belay_context *context =
        belay_open(&(belay_options){.log = told_remember, .no_journal = true, .memory = BELAY_MEMORY_POOL});
    belay_tensor held = belay_ones(context, BELAY_F32, belay_shape1(1000));
    belay_tensor there = belay_tensor_to(belay_ones(context, BELAY_F32, belay_shape2(1, 1)), "sim:1");
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    int line = __LINE__ + 1;
    belay_tensor all = belay_contiguous(belay_expand(there, belay_shape2(INT64_C(1) << 30, INT64_C(1) << 28)));
    assert_true(belay_tensor_is_nil(all) && belay_tensor_is_alive(held));
    char expected[512];
    snprintf(expected, sizeof expected,
             "belay: no memory for a tensor of %lld bytes (mem.exhausted)\n"
             "    called at: test_places.c:%d\n"
             "    in use: 64 bytes, held: ",
             1LL << 60, line);
    assert_int_equal(strncmp(told(), expected, strlen(expected)), 0);
    belay_close(context);
}

/* A device, and all devices together, have a number of streams; without memory for one there is no limit to blame. */
static void a_stream_too_many_is_refused_by_its_reason(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0");
    bl_memory_fail_at(0);
    int line = __LINE__ + 1;
    assert_true(belay_stream_is_nil(belay_stream_open(context, "x")));
    bl_memory_fail_at(-1);
    told_expect("belay: no memory, or no thread, for a stream of device sim:0 (mem.exhausted)\n"
                "    called at: test_places.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_MEM_EXHAUSTED));
    for (int i = 1; i < 8; i++) /* one is the device's own */
        assert_false(belay_stream_is_nil(belay_stream_open(context, "x")));
    assert_string_equal(told(), "");
    line = __LINE__ + 1;
    assert_true(belay_stream_is_nil(belay_stream_open(context, "x")));
    told_expect("belay: device sim:0 has 8 streams, the most that it can (size.overflow)\n"
                "    called at: test_places.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_SIZE_OVERFLOW));
    assert_int_equal(belay_device_set(context, "sim:1"), BELAY_OK);
    for (int i = 1; i < 8; i++)
        assert_false(belay_stream_is_nil(belay_stream_open(context, "x")));
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), belay_code_status(BELAY_MEM_EXHAUSTED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makers_use_the_current_device_and_ops_follow_their_tensors),
        cmocka_unit_test(guards_nest_and_go_back_each_to_its_own),
        cmocka_unit_test(guards_closed_out_of_order_or_twice_are_refused),
        cmocka_unit_test(a_guard_on_a_device_that_is_not_there_changes_nothing),
        cmocka_unit_test(more_guards_than_there_can_be_are_refused),
        cmocka_unit_test(a_tensor_goes_to_a_device_and_back_with_its_gradient),
        cmocka_unit_test(memory_that_ended_is_told_of_the_device_that_was_asked),
        cmocka_unit_test(a_stream_too_many_is_refused_by_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
