/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing, faults in order, the gate, sites and labels. */
#include "support/told.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "tensor/context.h"
#include "tensor/window.h"

static uint32_t gate_of(belay_context *context) { return *bl_window_gate(context); }

/* ---- opening --------------------------------------------------------------------------------------------------------- */

static void refused(const belay_options *options, int status, const char *words)
{
    belay_options told_options = *options;
    told_options.log = told_remember;
    told_clear();
    belay_context *context = belay_open(&told_options);
    assert_non_null(context);
    assert_false(belay_is_open(context));
    told_expect("%s", words);
    assert_true(belay_tensor_is_nil(belay_zeros(context, BELAY_F32, belay_shape1(1))));
    belay_scope_close(belay_scope_open(context));
    belay_site_push(context, "label");
    belay_site_pop(context);
    assert_false(belay_recording_set(context, true));
    assert_false(belay_recording_get(context));
    assert_int_equal(belay_memory_get(context).in_use, 0);
    assert_string_equal(belay_device_get(context), "");
    assert_int_equal(belay_n_faults(context), 0);
    belay_fault_raise(context, BELAY_DATA_ROW, "x");
    belay_faults_clear(context);
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), status);
}

static void a_context_that_cannot_open_says_why_and_absorbs(void **state)
{
    (void)state;
    refused(&(belay_options){.device = "tpu:0"}, 2,
            "belay: device is \"tpu:0\", which names no device (conf.value)\n"
            "    devices: cpu, sim:N, cuda:N\n"
            "    did you mean cpu:0?\n"
            "    try: Give a value inside the range that the message names.\n");
    refused(&(belay_options){.device = "cpu:1"}, 4,
            "belay: device cpu:1 does not exist; there is one cpu (place.absent)\n"
            "    try: Run `belay info` to see the devices that are here.\n");
    refused(&(belay_options){.device = "cuda:3"}, 4,
            "belay: device cuda:3 is not in this build (place.absent)\n"
            "    try: Run `belay info` to see the devices that are here.\n");
    refused(&(belay_options){.device = "cpu:x"}, 2,
            "belay: device is \"cpu:x\", which names no device (conf.value)\n"
            "    devices: cpu, sim:N, cuda:N\n"
            "    try: Give a value inside the range that the message names.\n");
    refused(&(belay_options){.threads = -1}, 2,
            "belay: threads is -1, outside [0, 1024] (conf.value)\n"
            "    try: Give a value inside the range that the message names.\n");
    refused(&(belay_options){.index_policy = (belay_index_policy)9}, 2,
            "belay: index_policy is 9, which is no policy (conf.value)\n"
            "    try: Give a value inside the range that the message names.\n");
    refused(&(belay_options){.journal = "/nowhere/journal"}, 4,
            "belay: cannot create /nowhere/journal (file.write)\n"
            "    No such file or directory\n"
            "    try: Check free space and permissions; what stood there before is untouched.\n");
    refused(&(belay_options){.journal = "/dev"}, 4,
            "belay: cannot replace /dev (file.write)\n"
            "    Is a directory\n"
            "    try: Check free space and permissions; what stood there before is untouched.\n");
}

/* belay_tensor_context gives NULL for a handle whose context was closed, and a program goes on with that. */
static void no_context_absorbs(void **state)
{
    (void)state;
    static const float values[] = {1, 2};
    const belay_shape shape = belay_shape1(2);
    told_clear();
    assert_true(belay_tensor_is_nil(belay_tensor_from(NULL, BELAY_F32, shape, values, sizeof values)));
    assert_true(belay_tensor_is_nil(belay_full(NULL, BELAY_F32, shape, 1)));
    assert_true(belay_tensor_is_nil(belay_zeros(NULL, BELAY_F32, shape)));
    assert_true(belay_tensor_is_nil(belay_ones(NULL, BELAY_F32, shape)));
    assert_true(belay_tensor_is_nil(belay_arange(NULL, BELAY_F32, 2, 0, 1)));
    assert_true(belay_tensor_is_nil(belay_uniform(NULL, BELAY_F32, shape, 0, 1)));
    assert_true(belay_tensor_is_nil(belay_normal(NULL, BELAY_F32, shape, 0, 1)));
    assert_string_equal(told(), "");
}

static void null_options_are_all_defaults(void **state)
{
    (void)state;
    belay_context *context = belay_open(NULL);
    assert_true(belay_is_open(context));
    assert_string_equal(belay_device_get(context), "cpu");
    assert_true(belay_threads_get(context) >= 1);
    assert_true(belay_recording_get(context));
    assert_int_equal(belay_close(context), 0);
}

static void a_temporary_folder_that_cannot_be_written_costs_the_file_only(void **state)
{
    (void)state;
    const char *folder = getenv("TMPDIR");
    char kept[1024] = "";
    snprintf(kept, sizeof kept, "%s", folder != NULL ? folder : "");
    setenv("TMPDIR", "/nowhere", 1);
    told_clear();
    belay_context *context = belay_open(&(belay_options){.log = told_remember});
    if (kept[0] != '\0')
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    assert_true(belay_is_open(context));
    told_close(context);
}

static void the_default_journal_goes_with_its_context(void **state)
{
    (void)state;
    char path[4200];
    const char *folder = getenv("TMPDIR");
    told_clear();
    belay_context *context = belay_open(&(belay_options){.log = told_remember});
    snprintf(path, sizeof path, "%s/belay-%ld-%u.journal", folder != NULL && folder[0] != '\0' ? folder : "/tmp",
             (long)getpid(), context->number);
    assert_int_equal(access(path, F_OK), 0);
    told_close(context);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- faults ---------------------------------------------------------------------------------------------------------- */

static void close_gives_the_status_of_the_first_fault_since_the_last_step(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_fault_raise(context, BELAY_MEM_EXHAUSTED, "first");
    belay_fault_raise(context, BELAY_INDEX_RANGE, "second");
    assert_int_equal(belay_close(context), 4);
    context = told_open();
    belay_fault_raise(context, BELAY_MEM_EXHAUSTED, "first");
    bl_context_commit(context);
    belay_fault_raise(context, BELAY_INDEX_RANGE, "second");
    assert_int_equal(belay_close(context), 3);
    context = told_open();
    belay_fault_raise(context, BELAY_MEM_EXHAUSTED, "first");
    bl_context_commit(context);
    assert_int_equal(belay_close(context), 0);
    context = told_open();
    belay_fault_raise(context, BELAY_INDEX_CLAMPED, "a warning");
    assert_int_equal(belay_close(context), 0);
}

static void the_first_fault_since_the_last_step_is_in_front(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_fault fault;
    assert_false(belay_fault_first(context, &fault));
    belay_fault_raise(context, BELAY_INDEX_CLAMPED, "a warning");
    assert_false(belay_fault_first(context, &fault));
    belay_fault_raise(context, BELAY_DATA_ROW, "one");
    belay_fault_raise(context, BELAY_DATA_TEXT, "two");
    assert_true(belay_fault_first(context, &fault));
    assert_int_equal(fault.code, BELAY_DATA_ROW);
    bl_context_commit(context);
    assert_false(belay_fault_first(context, &fault));
    belay_fault_raise(context, BELAY_DATA_LABEL, "three");
    assert_true(belay_fault_first(context, &fault));
    assert_int_equal(fault.code, BELAY_DATA_LABEL);
    assert_int_equal(belay_n_faults(context), 4);
    assert_true(belay_fault_get(context, 2, &fault));
    assert_int_equal(fault.code, BELAY_DATA_TEXT);
    assert_true(belay_fault_get(context, 2, NULL));
    assert_true(belay_fault_first(context, NULL));
    assert_false(belay_fault_get(context, 4, &fault));
    assert_false(belay_fault_get(context, -1, &fault));
    belay_faults_clear(context);
    assert_int_equal(belay_n_faults(context), 0);
    assert_int_equal(belay_close(context), 0);
}

static void kept_faults_are_bounded_and_the_one_in_front_is_never_lost(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_fault fault;
    for (int i = 0; i < 1000; i++) {
        told_clear();
        belay_fault_raise(context, BELAY_DATA_ROW, "number %d", i);
        if (i % 10 == 9)
            bl_context_commit(context);
        if (i % 10 == 3) {
            char words[64];
            assert_true(belay_fault_first(context, &fault));
            snprintf(words, sizeof words, "belay: number %d (data.row)\n", i - 3);
            assert_memory_equal(fault.text, words, strlen(words));
        }
    }
    assert_int_equal(belay_n_faults(context), 1000);
    assert_true(belay_fault_get(context, BL_MAX_FAULTS - 1, &fault));
    assert_false(belay_fault_get(context, BL_MAX_FAULTS, &fault));
    assert_int_equal(belay_close(context), 0);
}

static void a_fault_without_memory_for_its_words_keeps_its_code(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_fault fault;
    bl_memory_fail_at(0); /* the words of the paragraph */
    belay_fault_raise(context, BELAY_DATA_ROW, "words");
    bl_memory_fail_at(1); /* the entry */
    belay_fault_raise(context, BELAY_DATA_TEXT, "words");
    bl_memory_fail_at(-1);
    for (int i = 0; i < 2; i++) {
        assert_true(belay_fault_get(context, i, &fault));
        assert_int_equal(fault.code, i == 0 ? BELAY_DATA_ROW : BELAY_DATA_TEXT);
        assert_non_null(fault.text);
        assert_non_null(fault.site);
    }
    assert_int_equal(belay_close(context), 4);
}

static void a_fault_closes_the_gate_only_while_recording(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_fault_raise(context, BELAY_INDEX_CLAMPED, "a warning");
    assert_int_equal(gate_of(context), 0);
    belay_recording_set(context, false);
    belay_fault_raise(context, BELAY_DATA_ROW, "in validation");
    assert_int_equal(gate_of(context), 0);
    assert_false(context->window_faulted);
    belay_recording_set(context, true);
    belay_fault_raise(context, BELAY_DATA_ROW, "in training");
    assert_int_equal(gate_of(context), BELAY_DATA_ROW);
    assert_true(context->window_faulted);
    assert_int_equal(context->window_code, BELAY_DATA_ROW);
    assert_int_equal(belay_close(context), 4);
}

/* ---- sites ----------------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void raise_here(belay_context *context)
{
    belay_fault_raise(context, BELAY_DATA_ROW, "found");
}

static void the_site_is_that_of_the_outermost_public_call(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_I64, belay_shape2(2, 3)),
                 w = belay_zeros(context, BELAY_I64, belay_shape2(4, 3));
    int line = __LINE__ + 1;
    belay_linear(x, w, (belay_tensor){0}); /* refused inside of it */
    told_expect("belay: linear takes floats, not i64 (type.dtype)\n"
                "    op: linear, called at test_context.c:%d\n"
                "    tensors: x [2, 3] i64; weight [4, 3] i64; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_TYPE_DTYPE));
    assert_int_equal(context->site, 0);
    assert_int_equal(belay_close(context), 3);
}

static void a_pushed_label_stands_in_place_of_the_site(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_site_push(context, "train.py:12");
    belay_site_push(context, "model.py:3");
    raise_here(context);
    assert_non_null(strstr(told(), "    called at: model.py:3\n"));
    told_clear();
    belay_site_pop(context);
    raise_here(context);
    assert_non_null(strstr(told(), "    called at: train.py:12\n"));
    told_clear();
    belay_site_pop(context);
    belay_site_pop(context); /* one too many */
    raise_here(context);
    assert_true(words_have(told(), "    called at: test_context.c:"));
    assert_int_equal(belay_close(context), 4);
}

static void labels_beyond_the_limit_are_popped_as_they_were_pushed(void **state)
{
    (void)state;
    belay_context *context = told_open();
    for (int i = 0; i < BL_MAX_LABELS + 5; i++) {
        char label[32];
        snprintf(label, sizeof label, "label %d", i);
        belay_site_push(context, label);
    }
    for (int i = 0; i < 5; i++)
        belay_site_pop(context);
    raise_here(context);
    assert_non_null(strstr(told(), "    called at: label 15\n"));
    for (int i = 0; i < BL_MAX_LABELS; i++)
        belay_site_pop(context);
    told_clear();
    raise_here(context);
    assert_true(words_have(told(), "    called at: test_context.c:"));
    assert_int_equal(belay_close(context), 4);
}

static void a_fault_of_the_callers_own_is_told_with_position_and_rank(void **state)
{
    (void)state;
    told_clear();
    belay_context *context = belay_open(&(belay_options){.log = told_remember, .no_journal = true, .rank = 3});
    belay_position_set(context, 2, 17);
    bl_layer_pop(context, bl_layer_push(context, "gone"));
    size_t length = bl_layer_push(context, "classifier");
    bl_layer_push(context, "lstm");
    int line = __LINE__ + 1;
    belay_fault_raise(context, BELAY_DATA_ROW, "row %d has %s", 3, "no text");
    bl_layer_pop(context, length);
    told_expect("belay: row 3 has no text (data.row)\n"
                "    called at: test_context.c:%d\n"
                "    when: epoch 2, batch 17 (micro-batch 0 of its window), step 0, rank 3\n"
                "%s",
                line, told_try(BELAY_DATA_ROW));
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault));
    assert_string_equal(fault.layer, "classifier.lstm");
    assert_int_equal(fault.element, -1);
    assert_int_equal(belay_close(context), 4);
}

static void what_is_no_fault_s_code_is_not_raised_as_one(void **state)
{
    (void)state;
    static const int codes[] = {BELAY_OK, 12345, -1, 100};
    belay_context *context = told_open();
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        int line = __LINE__ + 1;
        belay_fault_raise(context, (belay_code)codes[i], "row %d", 3);
        told_expect("belay: a fault was raised with the code %d, which is none (conf.value)\n"
                    "    called at: test_context.c:%d\n"
                    "    its text: row 3\n" TOLD_START "    try: Give a code of docs/faults.md other than BELAY_OK.\n",
                    codes[i], line);
    }
    belay_fault_raise(context, BELAY_DATA_ROW, NULL);
    assert_true(words_have(told(), "belay: A row does not have the shape of the others. (data.row)\n"));
    assert_int_equal(belay_close(context), 2);
}

static belay_context *closed_by_log;
static void close_it(void *state, belay_code code, const char *text)
{
    told_remember(state, code, text);
    if (code == BELAY_DATA_ROW)
        assert_int_equal(belay_close(closed_by_log), 3);
}

static void a_log_cannot_close_the_context_that_tells_it(void **state)
{
    (void)state;
    told_clear();
    belay_context *context = closed_by_log = belay_open(&(belay_options){.log = close_it, .no_journal = true});
    int line = __LINE__ + 1;
    belay_fault_raise(context, BELAY_DATA_ROW, "x");
    told_expect("belay: x (data.row)\n"
                "    called at: test_context.c:%d\n" TOLD_START "%s"
                "belay: a context was closed inside of a call that uses it (conf.order)\n"
                "    called at: test_context.c:%d\n" TOLD_START
                "    try: Close it after the outermost call has returned.\n",
                line, told_try(BELAY_DATA_ROW), line);
    assert_int_equal(belay_close(context), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_that_cannot_open_says_why_and_absorbs),
        cmocka_unit_test(no_context_absorbs),
        cmocka_unit_test(null_options_are_all_defaults),
        cmocka_unit_test(a_temporary_folder_that_cannot_be_written_costs_the_file_only),
        cmocka_unit_test(the_default_journal_goes_with_its_context),
        cmocka_unit_test(close_gives_the_status_of_the_first_fault_since_the_last_step),
        cmocka_unit_test(the_first_fault_since_the_last_step_is_in_front),
        cmocka_unit_test(kept_faults_are_bounded_and_the_one_in_front_is_never_lost),
        cmocka_unit_test(a_fault_without_memory_for_its_words_keeps_its_code),
        cmocka_unit_test(a_fault_closes_the_gate_only_while_recording),
        cmocka_unit_test(the_site_is_that_of_the_outermost_public_call),
        cmocka_unit_test(a_pushed_label_stands_in_place_of_the_site),
        cmocka_unit_test(labels_beyond_the_limit_are_popped_as_they_were_pushed),
        cmocka_unit_test(a_fault_of_the_callers_own_is_told_with_position_and_rank),
        cmocka_unit_test(what_is_no_fault_s_code_is_not_raised_as_one),
        cmocka_unit_test(a_log_cannot_close_the_context_that_tells_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
