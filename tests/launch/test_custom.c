/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of one's own: what they compute, what their launch refuses, what their views catch, each by its whole text. */
#include "support/seeds.h"
#include "support/told.h"

#include <belay/devices.h>
#include <belay/launch.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "launch/kernels.h"
#include "tensor/address.h"

int custom_op_main(int argc, char **argv);
#define main custom_op_main
#include "../../examples/custom_op.c"
#undef main

/* ---- helpers --------------------------------------------------------------------------------------------------------- */

static belay_tensor named(belay_tensor tensor, const char *name) { return belay_tensor_name_set(tensor, name); }

static belay_tensor ramp(belay_context *context, int64_t n, const char *name)
{
    return named(belay_arange(context, BELAY_F32, n, 1, 1), name);
}

static belay_tensor empty(belay_context *context, int64_t n, const char *name)
{
    return named(belay_zeros(context, BELAY_F32, belay_shape1(n)), name);
}

/* Every launch is made here: one site in all reports. */
static int launch_line;
/* One site, whoever calls: what is told once a site counts on it. */
static __attribute__((noinline)) void launch_with(belay_context *context, const belay_kernel *kernel,
                                                  belay_launch_options options)
{
    launch_line = __LINE__ + 1;
    belay_launch(context, kernel, &options);
}

static void launch(belay_context *context, const belay_kernel *kernel, int64_t n_items, belay_tensor x, belay_tensor y,
                   numbers params)
{
    launch_with(context, kernel,
                (belay_launch_options){.n_items = n_items,
                                       .operand = {x, y},
                                       .params = &params,
                                       .params_bytes = sizeof params}); /* whose last bytes may be anything */
}

static const char nothing[] = "";

/* The paragraph of one fault; `tensors` and `bad` are lines or "". */
static void expect(const char *what, const char *op, const char *tensors, const char *bad, const char *advice)
{
    told_expect("belay: %s\n    op: %s, called at test_custom.c:%d\n%s%s" TOLD_START "    try: %s\n", what, op,
                launch_line, tensors, bad, advice);
}

/* Closes a context whose faults were told. */
static void close_faulted(belay_context *context)
{
    assert_string_equal(told(), "");
    assert_int_not_equal(belay_close(context), 0);
}

/* ---- what they compute ----------------------------------------------------------------------------------------------- */

static void a_kernel_runs_once_for_each_item(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 3, "x"), y = empty(context, 3, "y");
    float out[3];
    launch(context, &scale, 3, x, y, (numbers){.factor = 2});
    told_read(y, out, 3);
    assert_memory_equal(out, ((const float[]){2, 4, 6}), sizeof out);
    launch(context, &scale, 2, x, y, (numbers){.factor = 3});
    told_read(y, out, 3);
    assert_memory_equal(out, ((const float[]){3, 6, 6}), sizeof out);
    told_close(context);
}

static void a_launch_of_no_items_runs_nothing(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 3, "x"), y = empty(context, 3, "y"), none = empty(context, 0, "none");
    float out[3];
    launch(context, &scale, 0, x, y, (numbers){.factor = 2});
    launch(context, &scale, 0, none, empty(context, 0, "y"), (numbers){.factor = 2});
    told_read(y, out, 3);
    assert_memory_equal(out, ((const float[]){0, 0, 0}), sizeof out);
    told_close(context);
}

static void views_follow_any_strides(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const float values[] = {1, 2, 3, 4, 5, 6};
    belay_tensor x = told_f32(context, belay_shape2(2, 3), values);
    belay_tensor y = belay_zeros(context, BELAY_F32, belay_shape2(2, 3));
    float out[6];
    launch(context, &transpose, 6, belay_transpose(x, 0, 1), y, (numbers){0}); /* [3, 2] -> [2, 3] */
    told_read(y, out, 6);
    assert_memory_equal(out, values, sizeof out);
    launch(context, &transpose, 6, y, belay_transpose(belay_zeros(context, BELAY_F32, belay_shape2(2, 3)), 0, 1),
           (numbers){0});
    told_close(context);
}

static void items_may_be_chunks(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = named(belay_arange(context, BELAY_F64, 10, 0, 1), "x");
    belay_tensor y = belay_zeros(context, BELAY_F64, belay_shape1(3));
    double out[3];
    launch(context, &sum_chunks, 3, x, y, (numbers){0});
    assert_int_equal(belay_tensor_read(y, out, sizeof out), BELAY_OK);
    assert_memory_equal(out, ((const double[]){6, 22, 17}), sizeof out);
    launch(context, &sum_chunks, 4, x, y, (numbers){0});
    expect("sum_chunks was launched with 4 items, its tensors have 3 chunks of 4 (N is 10) (shape.contract)",
           "sum_chunks", "    tensors: x [10] f64; y [3] f64 (output); on cpu\n", nothing,
           "Launch as many items as the tensors have, the last and smaller batch too.");
    close_faulted(context);
}

static void an_operand_may_be_left_out_where_the_signature_says_so(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor y = ramp(context, 2, "y");
    float out[2];
    launch(context, &add_to, 2, y, (belay_tensor){0}, (numbers){0});
    launch(context, &add_to, 2, y, ramp(context, 2, "bias"), (numbers){0});
    told_read(y, out, 2);
    assert_memory_equal(out, ((const float[]){3, 5}), sizeof out);
    launch(context, &add_to, 2, (belay_tensor){0}, y, (numbers){0}); /* absorbed: nothing runs, nothing is said */
    told_read(y, out, 2);
    assert_memory_equal(out, ((const float[]){3, 5}), sizeof out);
    told_close(context);
}

static void threads_change_neither_bits_nor_reports(void **state)
{
    (void)state;
    enum { N = 1 << 18 };
    char text[2][1024];
    float *out[2];
    for (int t = 0; t < 2; t++) {
        belay_context *context =
            belay_open(&(belay_options){.log = told_remember, .no_journal = true, .threads = t == 0 ? 1 : 4});
        belay_tensor x = ramp(context, N, "x"), y = empty(context, N, "y");
        told_clear();
        numbers params = {.by = N / 2 + 3};
        launch_with(context, &shift,
                    (belay_launch_options){.n_items = N,
                                           .operand = {x, y, empty(context, N, "z")},
                                           .params = &params,
                                           .params_bytes = sizeof params});
        out[t] = malloc(N * sizeof(float));
        assert_non_null(out[t]);
        told_read(y, out[t], N);
        snprintf(text[t], sizeof text[t], "%s", told());
        belay_close(context);
    }
    assert_memory_equal(out[0], out[1], N * sizeof(float));
    assert_string_equal(text[0], text[1]);
    assert_non_null(
        strstr(text[0], "item 131069 of shift takes coordinate 262144 on axis 0 of x, outside [0, 262144)"));
    assert_non_null(strstr(text[0], "bad: 262150 times in a launch of 262144 items"));
    free(out[0]);
    free(out[1]);
    told_clear();
}

static void the_journal_has_the_kernels_own_name(void **state)
{
    (void)state;
    char path[] = "/tmp/belay-custom-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    belay_context *context = belay_open(&(belay_options){.log = told_remember, .journal = path});
    belay_tensor x = ramp(context, 3, "x"), y = empty(context, 3, "y");
    launch(context, &scale, 3, x, y, (numbers){.factor = 2});
    launch(context, &add_to, 3, y, x, (numbers){0});
    launch(context, &scale, 3, x, y, (numbers){.factor = 2});
    belay_close(context);
    bl_journal_reader *reader;
    bl_error error;
    bl_launch_record r[3];
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_OK);
    uint64_t last = bl_journal_reader_head(reader)->n_launches;
    for (int i = 0; i < 3; i++)
        assert_true(bl_journal_reader_launch(reader, last - 2 + (uint64_t)i, &r[i]));
    assert_string_equal(bl_journal_reader_op(reader, r[0].op), "scale");
    assert_string_equal(bl_journal_reader_op(reader, r[1].op), "add_to");
    assert_int_equal(r[2].op, r[0].op);
    assert_int_equal(r[0].n_operands, 2);
    assert_false(r[0].operand[0].is_output);
    assert_true(r[0].operand[1].is_output);
    bl_journal_reader_close(reader);
    unlink(path);
}

static void a_table_of_names_that_is_full_gives_no_number(void **state)
{
    (void)state;
    bl_journal *journal;
    bl_error error;
    char name[32];
    const char *ops[] = {"none", "one"};
    assert_int_equal(bl_journal_open(NULL, ops, 2, &journal, &error), BELAY_OK);
    int n = 0;
    uint16_t number;
    do {
        snprintf(name, sizeof name, "kernel_%06d", n);
        number = bl_journal_kernel(journal, name);
        if (number != 0)
            assert_int_equal(number, 2 + n);
        n++;
    } while (number != 0 && n < 10000);
    assert_int_equal(n - 1, 8192 / 14);
    assert_int_equal(bl_journal_kernel(journal, "kernel_000001"), 3);
    assert_int_equal(bl_journal_kernel(journal, ""), 0);
    bl_journal_close(journal, 0);
}

/* ---- what views catch ------------------------------------------------------------------------------------------------ */

static void a_coordinate_outside_of_its_axis_is_named_and_left_out(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 4, "x"), y = empty(context, 4, "y"), z = empty(context, 4, "z");
    numbers params = {.by = 3};
    belay_launch_options options = {
        .n_items = 4, .operand = {x, y, z}, .params = &params, .params_bytes = sizeof params};
    float out[4];
    launch_with(context, &shift, options);
    told_read(y, out, 4);
    assert_memory_equal(out, ((const float[]){4, 0, 0, 0}), sizeof out);
    told_read(z, out, 4);
    assert_memory_equal(out, ((const float[]){0, 0, 0, 1}), sizeof out);
    const char *tensors = "    tensors: x [4] f32; y [4] f32 (output); z [4] f32 (output); on cpu\n";
    const char *advice = "Compare the kernel's arithmetic of coordinates with the sizes named, or launch fewer items.";
    expect("item 1 of shift takes coordinate 4 on axis 0 of x, outside [0, 4) (index.range)", "shift", tensors,
           "    bad: 6 times in a launch of 4 items\n", advice);
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault));
    assert_string_equal(fault.op, "shift");
    assert_string_equal(fault.operand, "x");
    assert_int_equal(fault.element, 1);
    assert_int_equal(fault.got, 4);
    assert_int_equal(fault.limit, 4);
    assert_int_equal(fault.count, 6);
    params.by = -1;
    launch_with(context, &shift, options);
    expect("item 0 of shift takes coordinate -1 on axis 0 of x, outside [0, 4) (index.range)", "shift", tensors,
           "    bad: 2 times in a launch of 4 items\n", advice);
    params.by = INT64_MIN + 3;
    launch_with(context, &shift, options);
    expect("item 0 of shift takes coordinate -9223372036854775805 on axis 0 of x, outside [0, 4) (index.range)",
           "shift", tensors, "    bad: 8 times in a launch of 4 items\n", advice);
    close_faulted(context);
}

static void an_index_policy_never_moves_a_kernels_coordinate(void **state)
{
    (void)state;
    belay_context *context =
        belay_open(&(belay_options){.log = told_remember, .no_journal = true, .index_policy = BELAY_INDEX_CLAMP});
    belay_tensor x = ramp(context, 2, "x");
    numbers params = {.by = 1};
    launch_with(context, &shift,
                (belay_launch_options){.n_items = 2,
                                       .operand = {x, empty(context, 2, "y"), empty(context, 2, "z")},
                                       .params = &params,
                                       .params_bytes = sizeof params});
    expect("item 1 of shift takes coordinate 2 on axis 0 of x, outside [0, 2) (index.range)", "shift",
           "    tensors: x [2] f32; y [2] f32 (output); z [2] f32 (output); on cpu\n",
           "    bad: 2 times in a launch of 2 items\n",
           "Compare the kernel's arithmetic of coordinates with the sizes named, or launch fewer items.");
    close_faulted(context);
}

static void a_fault_while_recording_closes_the_windows_gate(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = told_f32(context, belay_shape1(2), (const float[]){1, -1});
    launch(context, &positive, 1, x, (belay_tensor){0}, (numbers){0});
    assert_false(context->window_faulted);
    launch(context, &positive, 2, x, (belay_tensor){0}, (numbers){0});
    assert_true(context->window_faulted);
    assert_int_equal(context->ring->window[0].gate, BELAY_KERNEL_ASSERT);
    told_clear();
    close_faulted(context);
}

static void an_assertion_of_a_kernel_tells_its_message_and_item(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = named(told_f32(context, belay_shape1(4), (const float[]){1, 0, 2, -1}), "x");
    launch(context, &positive, 4, x, (belay_tensor){0}, (numbers){0});
    expect("item 1 of positive: x must be above 0 (kernel.assert)", "positive", "    tensors: x [4] f32; on cpu\n",
           "    bad: 2 times in a launch of 4 items\n",
           "Look at the item named and at what the kernel was given for it.");
    close_faulted(context);
}

static void an_assertion_without_words_names_its_item_on_the_tensors_own_device(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 2, "x");
    launch_with(context, &wordless, (belay_launch_options){.n_items = 2, .operand = {x}, .device = ""});
    expect("item 1 of wordless: its assertion does not hold (kernel.assert)", "wordless",
           "    tensors: x [2] f32; on cpu\n", "    bad: 1 time in a launch of 2 items\n",
           belay_code_advice(BELAY_KERNEL_ASSERT));
    close_faulted(context);
}

static void a_float_that_is_no_whole_number_is_no_index(void **state)
{
    (void)state;
    belay_context *context = told_open();
    static const struct {
        float value;
        const char *words;
    } bad[] = {{NAN, "nan"}, {INFINITY, "inf"}, {-INFINITY, "-inf"}, {1.5F, "1.5"}, {9.3e18F, "9.3000003e+18"}};
    for (int i = 0; i < BL_COUNT(bad); i++) {
        char what[128];
        float value = bad[i].value;
        belay_tensor x = named(told_f32(context, belay_shape1(1), &value), "x");
        belay_tensor ids = belay_ones(context, BELAY_I64, belay_shape1(1));
        int64_t id;
        launch(context, &sampled, 1, x, ids, (numbers){0});
        snprintf(what, sizeof what, "item 0 of sampled makes an index of %s, not a whole number of 64 bits (num.cast)",
                 bad[i].words);
        expect(what, "sampled", "    tensors: x [1] f32; ids [1] i64 (output); on cpu\n",
               "    bad: 1 time in a launch of 1 item\n", belay_code_advice(BELAY_NUM_CAST));
        assert_int_equal(belay_tensor_read(ids, &id, sizeof id), BELAY_OK);
        assert_int_equal(id, 0);
    }
    const float good[] = {-3, 16777216, -9.223372036854775808e18F};
    int64_t ids[3];
    belay_tensor to = belay_zeros(context, BELAY_I64, belay_shape1(3));
    launch(context, &sampled, 3, told_f32(context, belay_shape1(3), good), to, (numbers){0});
    assert_int_equal(belay_tensor_read(to, ids, sizeof ids), BELAY_OK);
    assert_memory_equal(ids, ((const int64_t[]){-3, 16777216, INT64_MIN}), sizeof ids);
    close_faulted(context);
}

static void a_view_used_for_what_it_is_not_reads_zero_and_drops_writes(void **state)
{
    (void)state;
    static const struct {
        const char *what, *advice;
    } cases[] = {
        {"item 0 of misuse takes x for f64, which is f32 (type.dtype)",
         "Name in the view the C type of the tensor's dtype."},
        {"item 0 of misuse gives 2 coordinates to x, which has 1 (shape.rank)",
         "Use the form of the view with as many coordinates as the tensor has axes."},
        {"item 0 of misuse writes to x, which its signature gives it to read (conf.conflict)",
         "Name the operand behind the arrow of the kernel's signature, or with `!`."},
        {"item 0 of misuse uses operand 5, which its signature does not name (conf.missing)", NULL},
        {"item 0 of misuse uses y, which was left out (conf.missing)", NULL},
        {"item 0 of misuse uses operand -1, which its signature does not name (conf.missing)", NULL},
    };
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 2, "x");
    for (int i = 0; i < BL_COUNT(cases); i++) {
        float out[2];
        launch(context, &misuse, 2, x, (belay_tensor){0}, (numbers){.by = i});
        expect(cases[i].what, "misuse", "    tensors: x [2] f32; on cpu\n",
               i == 0 ? "    bad: 4 times in a launch of 2 items\n" : "    bad: 2 times in a launch of 2 items\n",
               cases[i].advice != NULL
                   ? cases[i].advice
                   : "Use operands that the signature names; belay_view_is_absent tells of one that may be left out.");
        told_read(x, out, 2);
        assert_memory_equal(out, ((const float[]){1, 2}), sizeof out);
    }
    close_faulted(context);
}

static void parameters_of_another_size_are_told(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 2, "x"), y = empty(context, 2, "y");
    int32_t small = 1;
    launch_with(
        context, &scale,
        (belay_launch_options){.n_items = 2, .operand = {x, y}, .params = &small, .params_bytes = sizeof small});
    expect("scale takes its parameters as 16 bytes, the launch gave 4 (conf.value)", "scale",
           "    tensors: x [2] f32; y [2] f32 (output); on cpu\n", "    bad: 2 times in a launch of 2 items\n",
           "Give the launch the struct that the kernel takes, and its size.");
    close_faulted(context);
}

/* ---- what a launch refuses ------------------------------------------------------------------------------------------- */

static void tensors_that_break_the_signature_are_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 4, "x"), y = empty(context, 4, "y"), small = empty(context, 3, "small");
    belay_tensor wide = named(belay_zeros(context, BELAY_F32, belay_shape2(4, 1)), "wide");
    belay_tensor ids = named(belay_zeros(context, BELAY_I64, belay_shape1(4)), "ids");
    const char *tensors = "    tensors: x [4] f32; y [4] f32 (output); on cpu\n";
    float out[4];
    launch(context, &scale, 3, x, small, (numbers){.factor = 1});
    expect("axis 0 of y has size 3, axis 0 of x has 4: both are N (shape.contract)", "scale",
           "    tensors: x [4] f32; small [3] f32 (output); on cpu\n", nothing,
           belay_code_advice(BELAY_SHAPE_CONTRACT));
    launch(context, &scale, 4, wide, y, (numbers){.factor = 1});
    expect("x has 2 axes where 1 are needed (shape.rank)", "scale",
           "    tensors: wide [4, 1] f32; y [4] f32 (output); on cpu\n", nothing, belay_code_advice(BELAY_SHAPE_RANK));
    launch(context, &scale, 4, ids, y, (numbers){.factor = 1});
    expect("x is i64 where f32 is needed (type.dtype)", "scale",
           "    tensors: ids [4] i64; y [4] f32 (output); on cpu\n", nothing, belay_code_advice(BELAY_TYPE_DTYPE));
    launch(context, &scale, 64, x, y, (numbers){.factor = 1});
    expect("scale was launched with 64 items, its tensors have 4: N (shape.contract)", "scale", tensors, nothing,
           "Launch as many items as the tensors have, the last and smaller batch too.");
    launch(context, &scale, -1, x, y, (numbers){.factor = 1});
    expect("n_items of scale is -1, below 0 (conf.value)", "scale", tensors, nothing,
           belay_code_advice(BELAY_CONF_VALUE));
    told_read(y, out, 4);
    assert_memory_equal(out, ((const float[]){0, 0, 0, 0}), sizeof out);
    close_faulted(context);
}

static void what_is_written_shares_memory_with_nothing(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 4, "x"), one = empty(context, 1, "one");
    launch(context, &scale, 4, x, x, (numbers){.factor = 1});
    expect("y is written and shares memory with x (shape.contract)", "scale",
           "    tensors: x [4] f32; x [4] f32 (output); on cpu\n", nothing, belay_code_advice(BELAY_SHAPE_CONTRACT));
    launch(context, &scale, 3, belay_slice(x, 0, 0, 3, 1), belay_slice(x, 0, 1, 4, 1), (numbers){.factor = 1});
    expect("y is written and shares memory with x (shape.contract)", "scale",
           "    tensors: x [3] f32; x [3] f32 (output); on cpu\n", nothing, belay_code_advice(BELAY_SHAPE_CONTRACT));
    launch(context, &scale, 2, belay_slice(x, 0, 0, 2, 1), belay_slice(x, 0, 2, 4, 1), (numbers){.factor = 1});
    launch(context, &scale, 4, x, belay_expand(one, belay_shape1(4)), (numbers){.factor = 1});
    expect("y is written, and several of its elements are one place (shape.contract)", "scale",
           "    tensors: x [4] f32; one [4] f32 (output); on cpu\n", nothing, belay_code_advice(BELAY_SHAPE_CONTRACT));
    close_faulted(context);
}

static void dead_and_foreign_tensors_are_refused(void **state)
{
    (void)state;
    belay_context *other = told_open(), *context = told_open();
    belay_tensor x = ramp(context, 4, "x"), y = empty(context, 4, "y"), theirs = ramp(other, 4, "theirs");
    launch(context, &scale, 4, theirs, y, (numbers){.factor = 1});
    expect("operand 0 belongs to another context (life.foreign)", "scale", "    tensors: y [4] f32 (output); on cpu\n",
           nothing, belay_code_advice(BELAY_LIFE_FOREIGN));
    int died = __LINE__ + 1;
    belay_tensor_free(x);
    launch(context, &scale, 4, x, y, (numbers){.factor = 1});
    told_expect("belay: tensor x [4] f32 was used after it had died (life.stale)\n"
                "    called at: test_custom.c:%d\n    died at: test_custom.c:%d, in step 0\n" TOLD_START "%s",
                launch_line, died, told_try(BELAY_LIFE_STALE));
    close_faulted(context);
    belay_close(other);
}

static void options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, 4, "x"), y = empty(context, 4, "y");
    const char *tensors = "    tensors: x [4] f32; y [4] f32 (output); on cpu\n";
    char many[BELAY_MAX_KERNEL_PARAMS + 8] = {0};
    launch_with(context, &scale, (belay_launch_options){.n_items = 4, .operand = {x, y, x}});
    expect("scale was given operand 2, its signature names 2 (conf.value)", "scale", tensors, nothing,
           belay_code_advice(BELAY_CONF_VALUE));
    launch_with(context, &scale,
                (belay_launch_options){.n_items = 4, .operand = {x, y}, .params = many, .params_bytes = sizeof many});
    expect("params_bytes of scale is 136, outside [0, 128] (conf.value)", "scale", tensors, nothing,
           belay_code_advice(BELAY_CONF_VALUE));
    launch_with(context, &scale, (belay_launch_options){.n_items = 4, .operand = {x, y}, .params_bytes = 16});
    expect("scale was promised 16 bytes of parameters at a NULL pointer (conf.missing)", "scale", tensors, nothing,
           belay_code_advice(BELAY_CONF_MISSING));
    launch_with(context, &scale, (belay_launch_options){.n_items = 4, .operand = {x, y}, .device = "sim:0"});
    expect("scale was launched on sim:0, its operands lie on cpu (place.device)", "scale", tensors, nothing,
           "Launch it where its operands lie, or move them by belay_tensor_to.");
    launch_with(context, NULL, (belay_launch_options){.n_items = 4});
    told_expect("belay: a launch needs a kernel of BELAY_KERNEL and its options (conf.missing)\n"
                "    called at: test_custom.c:%d\n" TOLD_START "%s",
                launch_line, told_try(BELAY_CONF_MISSING));
    close_faulted(context);
}

static void a_signature_that_is_none_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    static const char *const bad[] = {"",
                                      "x[N]",
                                      ": x[N]",
                                      "N: x[N",
                                      "N: x[N]]",
                                      "N: x:f99[N]",
                                      "N: [N]",
                                      "N: x[0]",
                                      "N: x[-]",
                                      "N/0: x[N]",
                                      "N/-3: x[N]",
                                      "N/: x[N]",
                                      "N,M: x[NM]",
                                      "NNNNNNNNN: x[N]",
                                      "N: x[N]*",
                                      "N: a_name_that_is_much_too_long[N]",
                                      "N: x[ABCDEFGHI]",
                                      "N: a[N] b[N] c[N] d[N] e[N] f[N] g[N] h[N] i[N]"};
    for (int i = 0; i < BL_COUNT(bad); i++) {
        belay_kernel kernel = scale;
        kernel.signature = bad[i];
        launch_with(context, &kernel, (belay_launch_options){.n_items = 0});
        told_expect("belay: the signature of kernel scale is \"%s\", which is none (conf.value)\n"
                    "    called at: test_custom.c:%d\n"
                    "    a signature: \"N: x[N] ids:index[N] -> y[N]\", with at most 8 operands\n" TOLD_START
                    "    try: Write it as the head of <belay/kernel.h> says.\n",
                    bad[i], launch_line);
    }
    belay_kernel kernel = scale;
    kernel.signature = "AC: x[AB] y[CB] ->";
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape2(INT64_C(1) << 40, 0));
    launch(context, &kernel, 0, x, belay_zeros(context, BELAY_F32, belay_shape2(INT64_C(1) << 40, 0)), (numbers){0});
    expect("AC, the items of scale, are more than 2^63 - 1 (size.overflow)", "scale",
           "    tensors: x [1099511627776, 0] f32; y [1099511627776, 0] f32; on cpu\n", nothing,
           belay_code_advice(BELAY_SIZE_OVERFLOW));
    close_faulted(context);
}

/* ---- raw accesses ---------------------------------------------------------------------------------------------------- */

static belay_context *open_exact(const char *device, belay_memory_mode mode)
{
    told_clear();
    belay_context *context =
        belay_open(&(belay_options){.device = device, .log = told_remember, .no_journal = true, .memory = mode});
    assert_true(belay_is_open(context));
    return context;
}

/* age: launches from where it was made to the one that met it; it was freed right before that. */
static void expect_access(const char *what, int made, int age, int freed)
{
    char facts[256];
    int length =
        snprintf(facts, sizeof facts, "    made at: test_custom.c:%d, in step 0, %d launches earlier\n", made, age);
    if (freed > 0)
        snprintf(facts + length, sizeof facts - (size_t)length,
                 "    freed at: test_custom.c:%d, in step 0, 1 launch earlier\n", freed);
    expect(what, "stray", "    tensors: x [12] f32 (output); on cpu\n", facts, belay_code_advice(BELAY_MEM_ACCESS));
}

static void a_raw_overrun_in_exact_mode_is_named_by_its_address(void **state)
{
    (void)state;
    belay_context *context = open_exact("cpu", BELAY_MEMORY_EXACT);
    int made = __LINE__ + 1;
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(12));
    named(x, "x");
    launch(context, &stray, 1, x, (belay_tensor){0}, (numbers){.by = 47});
    assert_string_equal(told(), "");
    launch(context, &stray, 1, x, (belay_tensor){0}, (numbers){.by = 48});
    expect_access("kernel stray wrote 1 byte past the end of x (48 bytes) (mem.access)", made, 3, 0);
    launch(context, &stray, 1, x, (belay_tensor){0}, (numbers){.by = 48 + 98});
    expect_access("kernel stray wrote 99 bytes past the end of x (48 bytes) (mem.access)", made, 4, 0);
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault));
    assert_string_equal(fault.operand, "x");
    assert_string_equal(fault.op, "stray");
    close_faulted(context);
    context = open_exact("cpu", BELAY_MEMORY_EXACT_LEFT);
    made = __LINE__ + 1;
    x = belay_zeros(context, BELAY_F32, belay_shape1(12));
    named(x, "x");
    launch(context, &stray, 1, x, (belay_tensor){0}, (numbers){.by = -8});
    expect_access("kernel stray wrote 8 bytes before the begin of x (48 bytes) (mem.access)", made, 2, 0);
    close_faulted(context);
}

/* The first byte past x, of n elements of a dtype. */
static void overrun(belay_context *context, const belay_kernel *kernel, belay_dtype dtype, int64_t n)
{
    belay_tensor x = named(belay_zeros(context, dtype, belay_shape1(n)), "x");
    launch(context, kernel, 1, x, (belay_tensor){0}, (numbers){.by = n * belay_dtype_size(dtype) - 1});
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_string_equal(told(), "");
    launch(context, kernel, 1, x, (belay_tensor){0}, (numbers){.by = n * belay_dtype_size(dtype)});
}

static void a_tensor_of_any_size_ends_at_its_page(void **state)
{
    (void)state;
    belay_kernel any = stray;
    any.signature = "*: x:any[N]! ->";
    const belay_dtype dtypes[] = {BELAY_U8, BELAY_BOOL, BELAY_BF16, BELAY_F32, BELAY_I64};
    for (int device = 0; device < 2; device++)
        for (int d = 0; d < BL_COUNT(dtypes); d++)
            for (int64_t n = 1; n <= 9; n += 2) {
                belay_context *context = open_exact(device == 0 ? "cpu" : "sim:0", BELAY_MEMORY_EXACT);
                int64_t n_bytes = n * belay_dtype_size(dtypes[d]);
                char words[128];
                overrun(context, &any, dtypes[d], n);
                assert_int_equal(belay_synchronise(context), device == 0 ? BELAY_OK : BELAY_PLACE_LOST);
                snprintf(words, sizeof words,
                         "belay: kernel stray wrote 1 byte past the end of x (%" PRId64 " byte%s) (mem.access)\n",
                         n_bytes, n_bytes == 1 ? "" : "s");
                assert_true(words_have(told(), words));
                told_clear();
                close_faulted(context);
            }
}

static void a_touch_of_freed_memory_says_when_it_was_freed(void **state)
{
    (void)state;
    belay_context *context = open_exact("cpu", BELAY_MEMORY_EXACT);
    belay_tensor x = empty(context, 12, "x");
    int made = __LINE__ + 1;
    belay_tensor gone = belay_zeros(context, BELAY_F32, belay_shape1(1 << 16));
    named(gone, "gone");
    int64_t distance = (char *)bl_slot_data(bl_slot_get(context, gone)) - (char *)bl_slot_data(bl_slot_get(context, x));
    int freed = __LINE__ + 1;
    belay_tensor_free(gone);
    launch(context, &stray, 1, x, (belay_tensor){0}, (numbers){.by = distance + (1 << 17) + 5});
    expect_access("kernel stray wrote byte 131077 of gone (262144 bytes), which was freed (mem.access)", made, 2,
                  freed);
    close_faulted(context);
}

static void a_null_pointer_in_a_kernel_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = empty(context, 1, "x");
    address params = {.at = 8};
    launch_with(context, &peek,
                (belay_launch_options){.n_items = 1, .operand = {x}, .params = &params, .params_bytes = sizeof params});
    expect("kernel peek read address 0x8, a null pointer (mem.access)", "peek",
           "    tensors: x [1] f32 (output); on cpu\n", nothing, belay_code_advice(BELAY_MEM_ACCESS));
    float out;
    launch(context, &scale, 1, ramp(context, 1, "y"), x, (numbers){.factor = 4}); /* the device goes on */
    told_read(x, &out, 1);
    assert_true(out >= 4 && out <= 4);
    close_faulted(context);
}

static void an_address_of_too_many_bits_is_no_null_pointer(void **state)
{
    (void)state;
    const char *what = "kernel peek touched an address that the machine does not tell: it is none, or 0 (mem.access)";
    belay_context *context = told_open();
    belay_tensor x = empty(context, 1, "x");
    address params = {.at = INT64_C(0x7000000000000008)};
    launch_with(context, &peek,
                (belay_launch_options){.n_items = 1, .operand = {x}, .params = &params, .params_bytes = sizeof params});
#ifdef __x86_64__
    expect(what, "peek", "    tensors: x [1] f32 (output); on cpu\n", nothing, belay_code_advice(BELAY_MEM_ACCESS));
#else
    (void)what;
    told_clear();
#endif
    close_faulted(context);
}

static void an_illegal_access_on_a_thread_ends_no_process(void **state)
{
    (void)state;
    enum { N = 1 << 18 };
    belay_context *context = belay_open(&(belay_options){.log = told_remember, .no_journal = true, .threads = 4});
    belay_tensor x = empty(context, N, "x");
    address params = {.at = 16};
    launch_with(context, &peek,
                (belay_launch_options){.n_items = N, .operand = {x}, .params = &params, .params_bytes = sizeof params});
    expect("kernel peek read address 0x10, a null pointer (mem.access)", "peek",
           "    tensors: x [262144] f32 (output); on cpu\n", nothing, belay_code_advice(BELAY_MEM_ACCESS));
    close_faulted(context);
}

static void an_address_is_told_by_the_nearest_tensor(void **state)
{
    (void)state;
    belay_context *context = told_open();
    bl_text words = {0}, facts = {0};
    belay_tensor x = empty(context, 3, "x");
    uint64_t begin = (uint64_t)(uintptr_t)bl_slot_data(bl_slot_get(context, x));
    const bl_storage *storage = bl_slot_get(context, x)->storage;
    assert_ptr_equal(bl_address_describe(context, NULL, begin + 4, 0, &words, &facts), storage);
    assert_string_equal(bl_text_get(&words), "byte 4 of x (12 bytes)");
    bl_text_clear(&words);
    assert_ptr_equal(bl_address_describe(context, context->device, begin + 12, 0, &words, &facts), storage);
    assert_string_equal(bl_text_get(&words), "1 byte past the end of x (12 bytes)");
    bl_text_clear(&words);
    belay_tensor_free(x);
    assert_null(bl_address_describe(context, context->device, begin - 2, 0, &words, &facts));
    assert_string_equal(bl_text_get(&words), "2 bytes before the begin of x (12 bytes), which was freed");
    bl_text_clear(&words);
    assert_null(bl_address_describe(context, context->device, UINT64_MAX, 0, &words, &facts));
    assert_string_equal(bl_text_get(&words), "address 0xffffffffffffffff, near which no tensor lies or lay");
    bl_text_fini(&words);
    bl_text_fini(&facts);
    told_close(context);
}

/* ---- on a device that runs behind the host's back -------------------------------------------------------------------- */

static belay_context *open_sim(void) { return open_exact("sim:0", BELAY_MEMORY_POOL); }

static void a_fault_on_sim_is_blamed_on_its_launch_after_its_tensors_died(void **state)
{
    (void)state;
    belay_context *context = open_sim();
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = named(told_f32(context, belay_shape1(2), (const float[]){1, -1}), "x");
    uint64_t serial = context->n_launches + 1;
    launch(context, &positive, 2, x, (belay_tensor){0}, (numbers){0});
    belay_scope_close(scope);
    belay_tensor y = ramp(context, 2, "y"), z = empty(context, 2, "z");
    launch(context, &scale, 2, y, z, (numbers){.factor = 3});
    float out[2];
    int line = __LINE__ + 1;
    assert_int_equal(belay_tensor_read(z, out, sizeof out), BELAY_OK);
    assert_memory_equal(out, ((const float[]){3, 6}), sizeof out);
    told_expect("belay: item 1 of positive: x must be above 0 (kernel.assert)\n"
                "    op: positive, called at test_custom.c:%d, launch %" PRIu64 "\n"
                "    surfaced at: test_custom.c:%d\n    tensors: x [2] f32; on sim:0\n"
                "    bad: 1 time in a launch of 2 items\n" TOLD_START "%s",
                launch_line, serial, line, told_try(BELAY_KERNEL_ASSERT));
    close_faulted(context);
}

static void a_launch_beside_its_tensors_is_refused(void **state)
{
    (void)state;
    belay_context *context = open_sim();
    belay_tensor x = ramp(context, 2, "x"), y = empty(context, 2, "y");
    launch_with(context, &scale, (belay_launch_options){.n_items = 2, .operand = {x, y}, .device = "cpu"});
    expect("scale was launched on cpu, its operands lie on sim:0 (place.device)", "scale",
           "    tensors: x [2] f32; y [2] f32 (output); on sim:0\n", nothing,
           "Launch it where its operands lie, or move them by belay_tensor_to.");
    close_faulted(context);
}

static void a_kernel_that_follows_a_pointer_of_the_host_loses_the_device(void **state)
{
    (void)state;
    static const char message[] = "on the host";
    char what[160];
    belay_context *context = open_sim();
    belay_tensor x = ramp(context, 2, "x");
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    address params = {.at = (uint64_t)(uintptr_t)message};
    launch_with(context, &peek,
                (belay_launch_options){.n_items = 1, .operand = {x}, .params = &params, .params_bytes = sizeof params});
    assert_int_equal(belay_synchronise(context), BELAY_PLACE_LOST);
    snprintf(what, sizeof what,
             "belay: kernel peek read address 0x%" PRIxPTR ", which is the host's own memory (mem.access)\n",
             (uintptr_t)message);
    assert_true(words_have(told(), what));
    told_clear();
    assert_int_equal(belay_close(context), 6);
}

/* The kernel runs inside of run_short, where the probe lacks something: it reads what the host holds, as on no GPU, and
 * the device goes on. */
static void peek_at_the_host(void (*run_short)(belay_context *context))
{
    static const char message[] = "on the host";
    enum { SEED = 2 }; /* one by which the kernel waits for the host to wait */
    belay_context *context = seeds_open_once(SEED, &(belay_options){.device = "sim:0", .memory = BELAY_MEMORY_POOL});
    belay_tensor x = ramp(context, 2, "x");
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    address params = {.at = (uint64_t)(uintptr_t)message};
    launch_with(context, &peek,
                (belay_launch_options){.n_items = 1, .operand = {x}, .params = &params, .params_bytes = sizeof params});
    run_short(context);
    float out[2];
    told_read(x, out, 2);
    assert_memory_equal(out, ((const float[]){'o', 2}), sizeof out);
    told_close(context);
}

static void run_without_memory(belay_context *context)
{
    bl_memory_fail_at(0);
    belay_code code = belay_synchronise(context);
    bool has_failed = bl_memory_failed();
    bl_memory_fail_at(-1);
    assert_int_equal(code, BELAY_OK);
    assert_true(has_failed);
}

static void without_memory_to_keep_what_it_writes_a_kernel_runs_unprobed(void **state)
{
    (void)state;
    peek_at_the_host(run_without_memory);
}

/* More than the process has now, and less than the probe asks for at once. */
static rlim_t few_addresses(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)1 << 29);
}

static void run_without_addresses(belay_context *context)
{
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    few = (struct rlimit){.rlim_cur = few_addresses(), .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    belay_code code = belay_synchronise(context);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(code, BELAY_OK);
}

static void without_addresses_for_a_region_a_kernel_runs_unprobed(void **state)
{
    (void)state;
    peek_at_the_host(run_without_addresses);
}

/* A number, or what the stack held before between the fields of a struct. */
static void a_word_that_only_looks_like_a_pointer_is_none(void **state)
{
    (void)state;
    belay_context *context = open_sim();
    belay_tensor x = ramp(context, 2, "x"), y = empty(context, 2, "y");
    union {
        uint64_t word[2];
        numbers fields;
    } params = {.word = {(uint64_t)(uintptr_t)nothing, (uint64_t)(uintptr_t)nothing}};
    belay_launch_options options = {.n_items = 2, .operand = {x, y}, .params = &params, .params_bytes = sizeof params};
    params.fields.by = 0;
    params.fields.factor = 3;
    launch_with(context, &scale, options);
    float out[2];
    told_read(y, out, 2);
    assert_memory_equal(out, ((const float[]){3, 6}), sizeof out);
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), 0);
}

/* One that counts how often it ran. */
BELAY_KERNEL(add_if, "N: x[N]! ->", work, i)
{
    const address *p = BELAY_PARAMS(address, work);
    BELAY_AT1(float, belay_view_of(work, 0), i) += p->at == (uint64_t)(uintptr_t)nothing ? 1 : 100;
}

static void a_kernel_that_compares_an_address_runs_as_if_once(void **state)
{
    (void)state;
    belay_context *context = open_sim();
    belay_tensor x = ramp(context, 2, "x");
    address params = {.at = (uint64_t)(uintptr_t)nothing};
    launch_with(context, &add_if,
                (belay_launch_options){.n_items = 2, .operand = {x}, .params = &params, .params_bytes = sizeof params});
    float out[2];
    told_read(x, out, 2);
    assert_memory_equal(out, ((const float[]){2, 3}), sizeof out);
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), 0);
}

/* ---- on several devices ---------------------------------------------------------------------------------------------- */

static belay_context *open_moving(void)
{
    told_clear();
    belay_context *context = belay_open(
        &(belay_options){.device = "sim:0", .place = BELAY_PLACE_MOVE, .log = told_remember, .no_journal = true});
    assert_true(belay_is_open(context));
    return context;
}

static belay_tensor elsewhere(belay_tensor tensor, const char *name)
{
    return named(belay_tensor_to(tensor, "sim:1"), name);
}

static void what_a_kernel_reads_is_brought_to_what_it_writes(void **state)
{
    (void)state;
    belay_context *context = open_moving();
    belay_tensor x = elsewhere(ramp(context, 2, NULL), "x"), y = empty(context, 2, "y");
    int64_t n_storages = context->n_storages_alive;
    float out[2];
    for (int k = 1; k <= 3; k++) {
        launch(context, &scale, 2, x, y, (numbers){.factor = (float)k});
        if (k == 1)
            told_expect("belay: scale: x was copied from sim:1 to sim:0 (place.moved)\n"
                        "    op: scale, called at test_custom.c:%d\n"
                        "    tensors: x [2] f32; on sim:1\n" TOLD_START "%s",
                        launch_line, told_try(BELAY_PLACE_MOVED));
        told_read(y, out, 2);
        assert_memory_equal(out, ((const float[]){(float)k, (float)(2 * k)}), sizeof out);
        assert_int_equal(belay_n_moved(context), k);
    }
    assert_int_equal(context->n_storages_alive, n_storages);
    assert_string_equal(belay_tensor_device(x), "sim:1");
    launch(context, &positive, 2, ramp(context, 2, "z"), (belay_tensor){0}, (numbers){0}); /* which nothing moves */
    assert_int_equal(belay_n_moved(context), 3);
    told_close(context);
}

static void what_a_kernel_writes_is_never_brought(void **state)
{
    (void)state;
    belay_context *context = open_moving();
    belay_tensor x = ramp(context, 2, "x"), y = empty(context, 2, "y"), z = elsewhere(empty(context, 2, NULL), "z");
    numbers params = {0};
    belay_launch_options options = {
        .n_items = 2, .operand = {x, y, z}, .params = &params, .params_bytes = sizeof params};
    launch_with(context, &shift, options);
    expect("shift: y lies on sim:0, z on sim:1 (place.device)", "shift",
           "    tensors: x [2] f32 on sim:0; y [2] f32 on sim:0 (output); z [2] f32 on sim:1 (output)\n", nothing,
           belay_code_advice(BELAY_PLACE_DEVICE));
    assert_int_equal(belay_n_moved(context), 0);
    close_faulted(context);
}

static void a_fault_of_a_launch_whose_operand_was_brought_names_it(void **state)
{
    (void)state;
    belay_context *context = open_moving();
    belay_tensor x = elsewhere(ramp(context, 2, NULL), "x"), y = empty(context, 2, "y"), z = empty(context, 2, "z");
    numbers params = {.by = 1};
    belay_launch_options options = {
        .n_items = 2, .operand = {x, y, z}, .params = &params, .params_bytes = sizeof params};
    launch_with(context, &shift, options);
    told_clear();
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_true(words_have(told(), "belay: item 1 of shift takes coordinate 2 on axis 0 of x, outside [0, 2)"));
    assert_true(words_have(told(), "    tensors: x [2] f32; y [2] f32 (output); z [2] f32 (output); on sim:0\n"));
    told_clear();
    close_faulted(context);
}

#define LOST_BY_PEEK                                                                                                   \
    "    lost by: kernel peek read address 0x8, a null pointer (mem.access), called at test_custom.c:%d\n"

static void an_illegal_access_on_sim_loses_the_device_and_names_the_launch(void **state)
{
    (void)state;
    belay_context *context = open_sim();
    belay_tensor x = empty(context, 1, "x");
    address params = {.at = 8};
    uint64_t serial = context->n_launches + 1;
    launch_with(context, &peek,
                (belay_launch_options){.n_items = 1, .operand = {x}, .params = &params, .params_bytes = sizeof params});
    float out;
    int line = __LINE__ + 1;
    assert_int_equal(belay_tensor_read(x, &out, sizeof out), BELAY_PLACE_LOST);
    told_expect(
        "belay: kernel peek read address 0x8, a null pointer (mem.access)\n"
        "    op: peek, called at test_custom.c:%d, launch %" PRIu64 "\n    surfaced at: test_custom.c:%d\n"
        "    tensors: x [1] f32 (output); on sim:0\n" TOLD_START "%s"
        "belay: device sim:0 is lost: nothing runs on it any more (place.lost)\n"
        "    called at: test_custom.c:%d\n" LOST_BY_PEEK "    calls refused so far: 1\n" TOLD_START "    try: %s\n",
        launch_line, serial, line, told_try(BELAY_MEM_ACCESS), line, launch_line, belay_code_advice(BELAY_PLACE_LOST));
    close_faulted(context);
}

static int loop_line;

/* One line, however often it is called. */
static __attribute__((noinline)) belay_code read_lost(belay_tensor x)
{
    float out;
    loop_line = __LINE__ + 1;
    belay_code code = belay_tensor_read(x, &out, sizeof out);
    return code;
}

/* A context whose sim:0 is lost, and has said so: the cause, and the first call that was refused. */
static belay_context *open_lost(belay_tensor *x)
{
    belay_context *context = open_sim();
    *x = empty(context, 1, "x");
    address params = {.at = 8};
    launch_with(
        context, &peek,
        (belay_launch_options){.n_items = 1, .operand = {*x}, .params = &params, .params_bytes = sizeof params});
    assert_int_equal(read_lost(*x), BELAY_PLACE_LOST);
    assert_int_equal(belay_n_faults(context), 2);
    told_clear();
    return context;
}

static void calls_on_a_lost_device_are_echoes_that_are_kept_and_told_together(void **state)
{
    (void)state;
    belay_tensor x;
    belay_context *context = open_lost(&x);
    char words[512];
    belay_fault fault;
    for (int i = 2; i <= 100; i++) {
        assert_int_equal(read_lost(x), BELAY_PLACE_LOST);
        assert_int_equal(belay_n_faults(context), i + 1);
        assert_true(belay_fault_get(context, i, &fault));
        assert_int_equal(fault.code, BELAY_PLACE_LOST);
        snprintf(words, sizeof words,
                 "belay: device sim:0 is lost: nothing runs on it any more (place.lost)\n"
                 "    called at: test_custom.c:%d\n"
                 "    echo of: kernel peek read address 0x8, a null pointer (mem.access), called at test_custom.c:%d\n"
                 "    calls refused so far: %d\n" TOLD_START "%s",
                 loop_line, launch_line, i, told_try(BELAY_PLACE_LOST));
        assert_string_equal(fault.text, words);
        assert_true(words_have(fault.json, "\"echo\":true"));
    }
    assert_string_equal(told(), "");
    int line = __LINE__ + 1;
    belay_fault_raise(context, BELAY_CONF_VALUE, "something else");
    told_expect("belay: device sim:0 is lost: 99 more calls were refused (place.lost)\n"
                "    the last at: test_custom.c:%d\n" LOST_BY_PEEK "    calls refused so far: 100\n" TOLD_START
                "    try: %s\n"
                "belay: something else (conf.value)\n"
                "    called at: test_custom.c:%d\n" TOLD_START "%s",
                loop_line, launch_line, belay_code_advice(BELAY_PLACE_LOST), line, told_try(BELAY_CONF_VALUE));
    read_lost(x);
    assert_string_equal(told(), "");
    assert_true(belay_fault_first(context, &fault));
    assert_int_equal(fault.code, BELAY_MEM_ACCESS);
    assert_int_equal(belay_close(context), 6);
    told_expect("belay: device sim:0 is lost: 1 more call was refused (place.lost)\n"
                "    called at: test_custom.c:%d\n" LOST_BY_PEEK "    calls refused so far: 101\n" TOLD_START "%s",
                loop_line, launch_line, told_try(BELAY_PLACE_LOST));
}

static void a_raw_overrun_on_sim_is_named_by_its_tensor(void **state)
{
    (void)state;
    belay_context *context = open_exact("sim:0", BELAY_MEMORY_EXACT);
    belay_tensor x = empty(context, 12, "x");
    launch(context, &stray, 1, x, (belay_tensor){0}, (numbers){.by = 48 + 98});
    float out[12];
    assert_int_equal(belay_tensor_read(x, out, sizeof out), BELAY_PLACE_LOST);
    assert_true(words_have(told(), "belay: kernel stray wrote 99 bytes past the end of x (48 bytes) (mem.access)\n"
                                   "    op: stray, called at test_custom.c:"));
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault));
    assert_int_equal(fault.code, BELAY_MEM_ACCESS);
    assert_string_equal(fault.operand, "x");
    told_clear();
    close_faulted(context);
}

/* ---- an op of them --------------------------------------------------------------------------------------------------- */

/* sum(g swish(x, beta)) by the op itself, in the kernel's f32. */
static double objective(belay_context *context, const float *x, float beta)
{
    const float weights[] = {1, -2, 3, 0.5F};
    belay_scope scope = belay_scope_open(context);
    belay_tensor y = swish(context, told_f32(context, belay_shape2(2, 2), x), told_f32(context, belay_shape0(), &beta));
    double value = belay_tensor_item(belay_sum(belay_mul(y, told_f32(context, belay_shape2(2, 2), weights)), NULL));
    belay_scope_close(scope);
    return value;
}

static void an_op_of_two_kernels_has_the_gradient_of_its_formula(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const float values[] = {-1.5F, 0.25F, 0, 2}, beta = 1.25F, weights[] = {1, -2, 3, 0.5F}, h = 1.0F / 128;
    belay_tensor x = told_leaf(context, belay_shape2(2, 2), values), b = told_leaf(context, belay_shape0(), &beta);
    float grad[4], grad_beta;
    belay_tensor y = swish(context, x, b);
    belay_backward(belay_sum(belay_mul(y, told_f32(context, belay_shape2(2, 2), weights)), NULL));
    told_read(belay_tensor_grad(x), grad, 4);
    told_read(belay_tensor_grad(b), &grad_beta, 1);
    for (int i = 0; i < 4; i++) {
        float up[4], down[4];
        memcpy(up, values, sizeof up);
        memcpy(down, values, sizeof down);
        up[i] += h;
        down[i] -= h;
        double slope = (objective(context, up, beta) - objective(context, down, beta)) / (2 * (double)h);
        assert_true(fabs(slope - (double)grad[i]) < 1e-3);
    }
    double slope = (objective(context, values, beta + h) - objective(context, values, beta - h)) / (2 * (double)h);
    assert_true(fabs(slope - (double)grad_beta) < 1e-3);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_runs_once_for_each_item),
        cmocka_unit_test(a_launch_of_no_items_runs_nothing),
        cmocka_unit_test(views_follow_any_strides),
        cmocka_unit_test(items_may_be_chunks),
        cmocka_unit_test(an_operand_may_be_left_out_where_the_signature_says_so),
        cmocka_unit_test(threads_change_neither_bits_nor_reports),
        cmocka_unit_test(the_journal_has_the_kernels_own_name),
        cmocka_unit_test(a_table_of_names_that_is_full_gives_no_number),
        cmocka_unit_test(a_coordinate_outside_of_its_axis_is_named_and_left_out),
        cmocka_unit_test(an_index_policy_never_moves_a_kernels_coordinate),
        cmocka_unit_test(a_fault_while_recording_closes_the_windows_gate),
        cmocka_unit_test(an_assertion_of_a_kernel_tells_its_message_and_item),
        cmocka_unit_test(an_assertion_without_words_names_its_item_on_the_tensors_own_device),
        cmocka_unit_test(a_float_that_is_no_whole_number_is_no_index),
        cmocka_unit_test(a_view_used_for_what_it_is_not_reads_zero_and_drops_writes),
        cmocka_unit_test(parameters_of_another_size_are_told),
        cmocka_unit_test(tensors_that_break_the_signature_are_refused),
        cmocka_unit_test(what_is_written_shares_memory_with_nothing),
        cmocka_unit_test(dead_and_foreign_tensors_are_refused),
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(a_signature_that_is_none_is_refused),
        cmocka_unit_test(a_raw_overrun_in_exact_mode_is_named_by_its_address),
        cmocka_unit_test(a_tensor_of_any_size_ends_at_its_page),
        cmocka_unit_test(a_touch_of_freed_memory_says_when_it_was_freed),
        cmocka_unit_test(a_null_pointer_in_a_kernel_is_a_fault),
        cmocka_unit_test(an_address_of_too_many_bits_is_no_null_pointer),
        cmocka_unit_test(an_illegal_access_on_a_thread_ends_no_process),
        cmocka_unit_test(an_address_is_told_by_the_nearest_tensor),
        cmocka_unit_test(a_fault_on_sim_is_blamed_on_its_launch_after_its_tensors_died),
        cmocka_unit_test(a_launch_beside_its_tensors_is_refused),
        cmocka_unit_test(a_kernel_that_follows_a_pointer_of_the_host_loses_the_device),
        cmocka_unit_test(without_memory_to_keep_what_it_writes_a_kernel_runs_unprobed),
        cmocka_unit_test(without_addresses_for_a_region_a_kernel_runs_unprobed),
        cmocka_unit_test(a_word_that_only_looks_like_a_pointer_is_none),
        cmocka_unit_test(a_kernel_that_compares_an_address_runs_as_if_once),
        cmocka_unit_test(what_a_kernel_reads_is_brought_to_what_it_writes),
        cmocka_unit_test(what_a_kernel_writes_is_never_brought),
        cmocka_unit_test(a_fault_of_a_launch_whose_operand_was_brought_names_it),
        cmocka_unit_test(an_illegal_access_on_sim_loses_the_device_and_names_the_launch),
        cmocka_unit_test(calls_on_a_lost_device_are_echoes_that_are_kept_and_told_together),
        cmocka_unit_test(a_raw_overrun_on_sim_is_named_by_its_tensor),
        cmocka_unit_test(an_op_of_two_kernels_has_the_gradient_of_its_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
