/* SPDX-License-Identifier: Apache-2.0 */
/* What a pool finds beside its blocks is told whole: when a block dies, when all devices are waited for, at the end. */
#include "support/seeds.h"
#include "support/told.h"

#include <belay/devices.h>
#include <belay/launch.h>

#include <string.h>

#include "launch/kernels.h"
#include "report/site.h"

static belay_context *open_mode(const char *device, belay_memory_mode mode)
{
    told_clear();
    bl_report_site_source_set(false);
    return belay_open(&(belay_options){.device = device, .log = told_remember, .no_journal = true, .memory = mode});
}

static int made_line;
static belay_tensor block(belay_context *context)
{
    made_line = __LINE__ + 1;
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(12));
    return belay_tensor_name_set(x, "x");
}

static void touch(belay_context *context, belay_tensor x, int64_t at)
{
    numbers params = {.by = at};
    belay_launch(
        context, &stray,
        &(belay_launch_options){.n_items = 1, .operand = {x}, .params = &params, .params_bytes = sizeof params});
}

static void expect_damage(const char *what, int line, int age)
{
    told_expect(
        "belay: %s was overwritten, 1 byte in all (mem.redzone)\n"
        "    called at: test_redzone.c:%d\n    made at: test_redzone.c:%d, in step 0, %d launches earlier\n" TOLD_START
        "%s",
        what, line, made_line, age, told_try(BELAY_MEM_REDZONE));
}

static void a_wait_for_all_devices_tells_of_blocks_in_use(void **state)
{
    static const char *const devices[] = {"cpu", "sim:0"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        belay_context *context = open_mode(devices[i], BELAY_MEMORY_REDZONE);
        belay_tensor x = block(context);
        touch(context, x, 47); /* its own last byte */
        assert_int_equal(belay_synchronise(context), BELAY_OK);
        assert_string_equal(told(), "");
        touch(context, x, 48);
        int line = __LINE__ + 1;
        assert_int_equal(belay_synchronise(context), BELAY_OK);
        expect_damage("1 byte past the end of x (48 bytes)", line, 3);
        assert_int_equal(belay_synchronise(context), BELAY_OK); /* told once */
        assert_string_equal(told(), "");
        assert_int_equal(belay_close(context), 3);
    }
}

static void a_block_that_dies_tells_of_what_lies_beside_it(void **state)
{
    (void)state;
    belay_context *context = open_mode("cpu", BELAY_MEMORY_REDZONE);
    belay_tensor before = block(context), x = block(context), behind = block(context);
    touch(context, x, -8);
    assert_string_equal(told(), "");
    int line = __LINE__ + 1;
    belay_tensor_free(x);
    expect_damage("8 bytes before the begin of x (48 bytes)", line, 3);
    belay_tensor_free(before);
    belay_tensor_free(behind);
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), 3);
}

static void a_block_that_is_freed_while_its_kernel_runs_is_looked_at_behind_it(void **state)
{
    (void)state;
    enum { SEED = 2 }; /* one by which the kernel still waits when its tensor dies */
    belay_context *context = seeds_open_once(SEED, &(belay_options){.device = "sim:0", .memory = BELAY_MEMORY_REDZONE});
    belay_tensor x = block(context);
    touch(context, x, 50);
    belay_tensor_free(x);
    for (int i = 0; i < 64; i++)
        (void)block(context);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_true(words_have(told(),
                           "belay: 3 bytes past the end of x (48 bytes), which was freed, was overwritten, 1 byte "
                           "in all (mem.redzone)\n"));
    told_clear();
    assert_int_equal(belay_close(context), 3);
}

static void the_end_tells_of_what_nobody_looked_at(void **state)
{
    (void)state;
    belay_context *context = open_mode("cpu", BELAY_MEMORY_REDZONE);
    touch(context, block(context), 48);
    assert_string_equal(told(), "");
    int line = __LINE__ + 1;
    int status = belay_close(context);
    assert_int_equal(status, 3);
    expect_damage("1 byte past the end of x (48 bytes)", line, 2);
}

static void a_process_without_mappings_is_told_once(void **state)
{
    enum { MOST = 1 << 16 };
    (void)state;
    belay_context *context = open_mode("cpu", BELAY_MEMORY_EXACT);
    int n = 0, line = __LINE__ + 2;
    for (; n < MOST && told()[0] == '\0'; n++)
        (void)belay_zeros(context, BELAY_F32, belay_shape1(2));
    if (n < MOST)
        told_expect("belay: cpu has no mappings left for blocks of their own (mem.mappings)\n"
                    "    called at: test_redzone.c:%d\n" TOLD_START "%s",
                    line, told_try(BELAY_MEM_MAPPINGS));
    for (int i = 0; i < 8; i++)
        (void)belay_zeros(context, BELAY_F32, belay_shape1(2));
    told_close(context); /* with status 0: it is a warning */
    if (n == MOST)
        skip(); /* the process may have more than this test makes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_for_all_devices_tells_of_blocks_in_use),
        cmocka_unit_test(a_block_that_dies_tells_of_what_lies_beside_it),
        cmocka_unit_test(a_block_that_is_freed_while_its_kernel_runs_is_looked_at_behind_it),
        cmocka_unit_test(the_end_tells_of_what_nobody_looked_at),
        cmocka_unit_test(a_process_without_mappings_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
