/* SPDX-License-Identifier: Apache-2.0 */
/* A step is applied whole or not at all, and says so. */
#include "optim/optim_support.h"

#include "optim/optim.h"
#include "tensor/window.h"

static void faulted_window_changes_no_bit(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        belay_context *context = open_cpu();
        belay_tensor leaf[LEAVES];
        make_leaves(context, 2000, leaf);
        belay_optimizer *o = optimizer_of(context, kind, leaf, LEAVES);
        for (uint64_t step = 0; step < 2; step++) {
            give_drawn(context, leaf, LEAVES, step);
            belay_optimizer_step(o);
        }
        copies before = copy_all(leaf, LEAVES, o);
        give_drawn(context, leaf, LEAVES, 2);
        plant_fault(context);
        belay_optimizer_step(o);
        copies after = copy_all(leaf, LEAVES, o);
        assert_same(&before, &after, true);
        assert_false(belay_optimizer_is_applied(o));
        assert_int_equal(belay_optimizer_n_applied(o), 2);
        assert_int_equal(belay_optimizer_n_faulted(o), 1);
        assert_int_equal(belay_optimizer_n_overflowed(o), 0);
        for (int i = 0; i < LEAVES; i++)
            assert_true(belay_tensor_is_nil(belay_tensor_grad(leaf[i])));
        copies_free(&before);
        copies_free(&after);
        assert_int_equal(belay_close(context), 3);
    }
}

static void overflowed_window_changes_no_bit(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        belay_context *context = open_cpu();
        belay_tensor leaf[LEAVES];
        make_leaves(context, 2000, leaf);
        belay_optimizer *o = optimizer_of(context, kind, leaf, LEAVES);
        give_drawn(context, leaf, LEAVES, 0);
        belay_optimizer_step(o);
        copies before = copy_all(leaf, LEAVES, o);
        give_drawn(context, leaf, LEAVES, 1);
        const float bad[] = {0, NAN};
        give(leaf[2], belay_tensor_from(context, BELAY_F32, belay_shape1(2), bad, sizeof bad));
        belay_optimizer_step(o);
        copies after = copy_all(leaf, LEAVES, o);
        assert_same(&before, &after, true);
        assert_int_equal(belay_optimizer_n_overflowed(o), 1);
        assert_int_equal(belay_optimizer_n_faulted(o), 0);
        assert_true(isnan(belay_optimizer_norm_get(o)));
        copies_free(&before);
        copies_free(&after);
        assert_int_equal(belay_close(context), 0);
    }
}

static void run_after_a_refused_window_is_the_run_without_it(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        copies end[2];
        for (int faulted = 0; faulted < 2; faulted++) {
            belay_context *context = open_cpu();
            belay_tensor leaf[LEAVES];
            make_leaves(context, 2000, leaf);
            belay_optimizer *o = optimizer_of(context, kind, leaf, LEAVES);
            for (uint64_t step = 0; step < 5; step++) {
                if (step == 2 && faulted) {
                    give_drawn(context, leaf, LEAVES, 77);
                    plant_fault(context);
                    belay_optimizer_step(o);
                }
                give_drawn(context, leaf, LEAVES, step);
                belay_optimizer_step(o);
            }
            end[faulted] = copy_all(leaf, LEAVES, o);
            assert_int_equal(belay_close(context), 0);
        }
        memset(end[1].bytes[end[1].n - 1] + 6 * 8, 0, 8); /* the one difference: a refused step was counted */
        assert_same(&end[0], &end[1], false);
        copies_free(&end[0]);
        copies_free(&end[1]);
    }
}

static void lost_window_is_told_once_with_its_first_code(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    belay_optimizer *o = optimizer_of(context, 1, leaf, LEAVES);
    give_drawn(context, leaf, LEAVES, 0);
    belay_optimizer_step(o);
    belay_fault_raise(context, BELAY_DATA_WORKER, "the dataset lost a sample");
    plant_fault(context);
    told[0] = '\0';
    belay_optimizer_step(o);
    int line = __LINE__ - 1;
    char text[1024];
    snprintf(text, sizeof text,
             "belay: step 1 was not applied: data.worker in its window (run.window_lost)\n"
             "    called at: test_step.c:%d\n"
             "    when: epoch 0, batch 3 (micro-batch 0 of its window), step 1, rank 0\n"
             "    try: See the fault named before.\n",
             line);
    assert_words_equal(told, text);
    told[0] = '\0';
    give_drawn(context, leaf, LEAVES, 1);
    belay_optimizer_step(o);
    assert_string_equal(told, "");
    assert_true(belay_optimizer_is_applied(o));
    assert_int_equal(belay_close(context), 0);
}

static void expect_overflow(float value, const char *words)
{
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    belay_optimizer *o = optimizer_of(context, 2, leaf, LEAVES);
    const float bad[2][3] = {{-2.5f, value, 3.25f}, {NAN, NAN, NAN}};
    give(leaf[0], drawn(context, 4, 0));
    give(leaf[1], belay_tensor_from(context, BELAY_F32, belay_shape1(3), bad[0], sizeof bad[0]));
    give(leaf[2], belay_tensor_from(context, BELAY_F32, belay_shape1(2), bad[1], 8));
    belay_optimizer_step(o);
    int line = __LINE__ - 1;
    char text[1024];
    snprintf(text, sizeof text,
             "belay: step 0 was not applied: the gradient of b [3] is not finite (run.overflow)\n"
             "    called at: test_step.c:%d\n"
             "    bad: 1 of 3 elements, first at [1]: %s\n"
             "    the others lie in [-2.5, 3.25]\n"
             "    when: epoch 0, batch 3 (micro-batch 3 of its window), step 0, rank 0\n"
             "    try: Ordinary at the start with a loss scale; if it repeats, lower the learning rate.\n",
             line, words);
    assert_words_equal(told, text);
    assert_int_equal(belay_close(context), 0);
}

static void overflow_names_the_first_parameter_and_its_range(void **state)
{
    (void)state;
    expect_overflow(INFINITY, "inf");
    expect_overflow(-INFINITY, "-inf");
    expect_overflow(copysignf(NAN, 1), "nan");
    expect_overflow(copysignf(NAN, -1), "nan");
}

static void large_finite_gradients_are_no_overflow(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    belay_optimizer *o = belay_sgd_over(context, leaf, LEAVES, &(belay_sgd_options){.lr = 1, .clip = 1}), *none = NULL;
    const float large[] = {3e30f, 4e30f};
    give(leaf[2], belay_tensor_from(context, BELAY_F32, belay_shape1(2), large, sizeof large));
    float before[2], after[2];
    assert_int_equal(belay_tensor_read(leaf[2], before, sizeof before), BELAY_OK);
    belay_optimizer_step(o);
    assert_int_equal(belay_tensor_read(leaf[2], after, sizeof after), BELAY_OK);
    assert_true(belay_optimizer_is_applied(o));
    assert_true(fabs(belay_optimizer_norm_get(o) / 5e30 - 1) < 1e-6);
    assert_true(fabsf(before[0] - after[0] - 0.6f) < 1e-6f && fabsf(before[1] - after[1] - 0.8f) < 1e-6f);
    belay_optimizer_step(none);
    assert_int_equal(belay_close(context), 0);
}

static void parameter_without_gradient_does_not_age(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        belay_context *context = open_cpu();
        belay_tensor leaf[LEAVES];
        make_leaves(context, 2000, leaf);
        belay_optimizer *o = optimizer_of(context, kind, leaf, LEAVES);
        give_drawn(context, leaf, LEAVES, 0);
        belay_optimizer_step(o);
        copies before = copy_all(leaf, LEAVES, o);
        give_drawn(context, leaf, 2, 1); /* not "c" */
        belay_optimizer_step(o);
        copies after = copy_all(leaf, LEAVES, o);
        for (int i = 0; i < before.n; i++) {
            const char *name = before.name[i];
            bool is_c = name[0] == 'c' || strstr(name, ".c") != NULL;
            bool is_same = memcmp(before.bytes[i], after.bytes[i], (size_t)before.n_bytes[i]) == 0;
            if (strcmp(name, "t") == 0) {
                double t[LEAVES];
                memcpy(t, after.bytes[i], sizeof t);
                assert_true(t[0] == 2 && t[1] == 2 && t[2] == 1);
            } else if (strcmp(name, "state") != 0) {
                assert_int_equal(is_same, is_c);
            }
        }
        copies_free(&before);
        copies_free(&after);
        assert_int_equal(belay_close(context), 0);
    }
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        copies end[2];
        for (int run = 0; run < 2; run++) {
            belay_context *context = open_threads(run + 1);
            belay_tensor leaf[LEAVES];
            make_leaves(context, 200001, leaf);
            belay_optimizer *o = optimizer_of(context, kind, leaf, LEAVES);
            for (uint64_t step = 0; step < 3; step++) {
                give_drawn(context, leaf, LEAVES, step);
                belay_optimizer_step(o);
            }
            end[run] = copy_all(leaf, LEAVES, o);
            assert_int_equal(belay_threads_get(context), run + 1);
            assert_int_equal(belay_close(context), 0);
        }
        assert_same(&end[0], &end[1], false);
        copies_free(&end[0]);
        copies_free(&end[1]);
    }
}

static void divisor_gives_the_mean_over_micro_batches(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor p = belay_tensor_requires_grad_set(belay_zeros(context, BELAY_F32, belay_shape1(1)), true);
    belay_optimizer *o = belay_sgd_over(context, &p, 1, &(belay_sgd_options){.lr = 1});
    belay_optimizer_divisor_set(o, 4);
    for (int i = 0; i < 4; i++)
        give(p, belay_full(context, BELAY_F32, belay_shape1(1), i));
    belay_optimizer_step(o);
    assert_true(belay_optimizer_norm_get(o) == 1.5);
    assert_true(belay_tensor_item(p) == -1.5);
    belay_optimizer_divisor_set(o, 0);
    assert_non_null(strstr(told, "belay: divisor is 0, outside (0, inf) (conf.value)\n"));
    assert_int_equal(belay_close(context), 2);
}

static void factor_beyond_f32_is_an_overflow_and_changes_no_bit(void **state)
{
    (void)state;
    static const struct {
        double lr, divisor;
    } beyond[] = {{1, 1e-40}, {1e300, 1}};
    for (int i = 0; i < 2; i++) {
        belay_context *context = open_cpu();
        belay_tensor p = belay_tensor_requires_grad_set(belay_ones(context, BELAY_F32, belay_shape1(1)), true);
        belay_optimizer *o = belay_sgd_over(context, &p, 1, &(belay_sgd_options){.lr = beyond[i].lr});
        belay_optimizer_divisor_set(o, beyond[i].divisor);
        give(p, belay_full(context, BELAY_F32, belay_shape1(1), 0.5));
        belay_optimizer_step(o);
        assert_false(belay_optimizer_is_applied(o));
        assert_int_equal(belay_optimizer_n_overflowed(o), 1);
        assert_true(isinf(belay_optimizer_norm_get(o)));
        assert_true(belay_tensor_item(p) == 1);
        assert_non_null(strstr(told, "step 0 was not applied: the norm of the gradients is not finite"));
        told[0] = '\0';
        assert_int_equal(belay_close(context), 0);
    }
}

static void discard_drops_the_window_and_opens_the_next(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    belay_optimizer *o = optimizer_of(context, 2, leaf, LEAVES);
    give_drawn(context, leaf, LEAVES, 0);
    plant_fault(context);
    copies before = copy_all(leaf, LEAVES, o);
    told[0] = '\0';
    belay_optimizer_discard(o);
    copies after = copy_all(leaf, LEAVES, o);
    assert_same(&before, &after, false);
    for (int i = 0; i < LEAVES; i++)
        assert_true(belay_tensor_is_nil(belay_tensor_grad(leaf[i])));
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault)); /* nothing was applied: the fault still stands in front */
    give_drawn(context, leaf, LEAVES, 0);
    belay_optimizer_step(o);
    assert_true(belay_optimizer_is_applied(o));
    assert_false(belay_fault_first(context, &fault));
    assert_string_equal(told, "");
    copies_free(&before);
    copies_free(&after);
    assert_int_equal(belay_close(context), 0);
}

static void fault_outside_of_recording_refuses_no_step(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    belay_optimizer *o = optimizer_of(context, 2, leaf, LEAVES);
    give_drawn(context, leaf, LEAVES, 0);
    bool was = belay_recording_set(context, false);
    plant_fault(context);
    belay_recording_set(context, was);
    belay_optimizer_step(o);
    assert_true(belay_optimizer_is_applied(o));
    assert_int_equal(belay_close(context), 0);
}

static void faulted_window_is_lost_for_every_optimizer(void **state)
{
    (void)state;
    for (int discards = 0; discards < 2; discards++) {
        belay_context *context = open_cpu();
        belay_tensor leaf[LEAVES];
        make_leaves(context, 4, leaf);
        belay_optimizer *first = optimizer_of(context, 1, leaf, 1), *second = optimizer_of(context, 1, leaf + 1, 2);
        give_drawn(context, leaf, LEAVES, 0);
        plant_fault(context);
        copies before = copy_all(leaf, LEAVES, NULL);
        if (discards == 1)
            belay_optimizer_discard(first);
        else
            belay_optimizer_step(first);
        belay_optimizer_step(second);
        copies after = copy_all(leaf, LEAVES, NULL);
        assert_same(&before, &after, false);
        copies_free(&before);
        copies_free(&after);
        belay_close(context);
    }
}

/* ---- hooks ---- */

static char order[8];

static void note_hook(void *hook_state, belay_optimizer *o)
{
    (void)o;
    strcat(order, hook_state);
}

static void double_hook(void *hook_state, belay_optimizer *o)
{
    (void)hook_state;
    for (int64_t i = 0; i < o->n; i++) {
        belay_tensor grad = belay_tensor_grad(o->parameter[i].leaf);
        bl_launch_add_to(o->context, grad, grad);
    }
}

static void close_hook(void *hook_state, belay_optimizer *o)
{
    (void)hook_state;
    *bl_window_gate(o->context) = 1;
}

static void hooks_run_in_order_before_the_update(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor p = belay_tensor_requires_grad_set(belay_zeros(context, BELAY_F32, belay_shape1(1)), true);
    belay_optimizer *o = belay_sgd_over(context, &p, 1, &(belay_sgd_options){.lr = 1});
    bl_commit_hook first = {.at = {[BL_COMMIT_RUN] = note_hook}, .state = "1"},
                   second = {.at = {[BL_COMMIT_RUN] = double_hook}},
                   third = {.at = {[BL_COMMIT_RUN] = note_hook}, .state = "3"},
                   closes = {.at = {[BL_COMMIT_RUN] = close_hook}};
    bl_optim_hook_add(context, &first);
    bl_optim_hook_add(context, &second);
    bl_optim_hook_add(context, &third);
    order[0] = '\0';
    give(p, belay_ones(context, BELAY_F32, belay_shape1(1)));
    belay_optimizer_step(o);
    assert_string_equal(order, "13");
    assert_true(belay_tensor_item(p) == -2);
    bl_optim_hook_remove(context, &second);
    bl_optim_hook_add(context, &closes);
    give(p, belay_ones(context, BELAY_F32, belay_shape1(1)));
    belay_optimizer_step(o);
    assert_string_equal(order, "1313");
    assert_true(belay_tensor_item(p) == -2);
    assert_non_null(strstr(told, "belay: step 1 was not applied: its gate was closed (run.window_lost)\n"));
    assert_int_equal(belay_close(context), 0);
}

static void free_module_hook(void *hook_state, belay_optimizer *o)
{
    (void)o;
    belay_module_free(hook_state);
}
static void free_optimizer_hook(void *hook_state, belay_optimizer *o)
{
    (void)hook_state;
    belay_optimizer_free(o);
}

static void what_a_hook_frees_loses_the_window_or_stays(void **state)
{
    (void)state;
    char expected[4096];
    static const char when[] = "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n";
    belay_context *context = open_cpu();
    belay_module *model = belay_layer_norm_module(context, &(belay_layer_norm_module_options){.width = 3});
    belay_optimizer *o = belay_sgd(model, &(belay_sgd_options){.lr = 1});
    belay_tensor weight = belay_module_find(model, "weight");
    bl_commit_hook hook = {.at = {[BL_COMMIT_RUN] = free_optimizer_hook}};
    bl_optim_hook_add(context, &hook);
    give(weight, drawn(context, 3, 1));
    int line = __LINE__ + 1;
    belay_optimizer_step(o);
    snprintf(expected, sizeof expected,
             "belay: an optimizer was freed inside of its own step, or of the training that uses it (conf.order)\n"
             "    called at: test_step.c:%d\n%s    try: %s\n"
             "belay: step 0 was not applied: conf.order in its window (run.window_lost)\n"
             "    called at: test_step.c:%d\n%s    try: %s\n",
             line, when, belay_code_advice(BELAY_CONF_ORDER), line, when, belay_code_advice(BELAY_RUN_WINDOW_LOST));
    assert_words_equal(told, expected);
    told[0] = '\0';
    hook = (bl_commit_hook){.at = {[BL_COMMIT_RUN] = free_module_hook}, .state = model};
    int64_t n_applied = belay_optimizer_n_applied(o);
    give(weight, drawn(context, 3, 2));
    belay_optimizer_step(o);
    assert_false(belay_tensor_is_alive(weight));
    assert_true(words_have(told, "belay: tensor weight [3] f32 was used after it had died (life.stale)\n"));
    assert_true(words_have(told, "(run.window_lost)\n"));
    assert_int_equal(belay_optimizer_n_applied(o), n_applied);
    hook = (bl_commit_hook){.at = {[BL_COMMIT_RUN] = note_hook}, .state = ""};
    belay_optimizer_step(o); /* and every step after it */
    assert_int_equal(belay_optimizer_n_applied(o), n_applied);
    belay_optimizer_free(o);
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faulted_window_changes_no_bit),
        cmocka_unit_test(overflowed_window_changes_no_bit),
        cmocka_unit_test(run_after_a_refused_window_is_the_run_without_it),
        cmocka_unit_test(lost_window_is_told_once_with_its_first_code),
        cmocka_unit_test(overflow_names_the_first_parameter_and_its_range),
        cmocka_unit_test(large_finite_gradients_are_no_overflow),
        cmocka_unit_test(parameter_without_gradient_does_not_age),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(divisor_gives_the_mean_over_micro_batches),
        cmocka_unit_test(factor_beyond_f32_is_an_overflow_and_changes_no_bit),
        cmocka_unit_test(discard_drops_the_window_and_opens_the_next),
        cmocka_unit_test(fault_outside_of_recording_refuses_no_step),
        cmocka_unit_test(faulted_window_is_lost_for_every_optimizer),
        cmocka_unit_test(hooks_run_in_order_before_the_update),
        cmocka_unit_test(what_a_hook_frees_loses_the_window_or_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
