/* SPDX-License-Identifier: Apache-2.0 */
/* An optimizer or a loss scale that was freed and is used all the same: every question and act says so, touches nothing
 * and absorbs. */
#include "support/told.h"

#include <belay/amp.h>
#include <belay/data.h>
#include <belay/nn.h>
#include <belay/optim.h>
#include <belay/train.h>

#include "optim/optim.h"

#include <string.h>

static const char optimizer_words[] = "an optimizer was used after it had been freed",
                  scaler_words[] = "a loss scale was used after it had been freed";

static void expect_stale(int line, const char *what)
{
    told_expect("belay: %s (life.stale)\n    called at: test_freed.c:%d\n" TOLD_START
                "    try: Free it when nothing uses it any more.\n",
                what, line);
}

/* The call gives that, and says that `what` was used. */
#define STALE(what, call_gives)                                                                                        \
    do {                                                                                                               \
        assert_true(call_gives);                                                                                       \
        expect_stale(__LINE__, what);                                                                                  \
    } while (0)

static void a_freed_optimizer_is_stale_and_absorbs(void **state)
{
    (void)state;
    const float eight = 8;
    belay_context *context = told_open();
    belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight), tensor = leaf;
    belay_optimizer *o = belay_adam_over(context, &leaf, 1, &(belay_adam_options){.lr = 1, .amsgrad = true});
    const char *name = "kept";
    assert_int_equal(belay_optimizer_n_state(o), 5);
    belay_optimizer_free(o);
    told_expect("%s", "");
    STALE(optimizer_words, (belay_optimizer_step(o), true));
    STALE(optimizer_words, (belay_optimizer_discard(o), true));
    STALE(optimizer_words, (belay_optimizer_divisor_set(o, 2), true));
    STALE(optimizer_words, !belay_optimizer_is_applied(o));
    STALE(optimizer_words, belay_optimizer_norm_get(o) == 0);
    STALE(optimizer_words, belay_optimizer_lr_get(o) == 0);
    STALE(optimizer_words, belay_optimizer_n_applied(o) == 0);
    STALE(optimizer_words, belay_optimizer_n_faulted(o) == 0);
    STALE(optimizer_words, belay_optimizer_n_overflowed(o) == 0);
    STALE(optimizer_words, belay_optimizer_n_state(o) == 0);
    STALE(optimizer_words, !belay_optimizer_state_get(o, 0, &name, &tensor));
    assert_string_equal(name, "kept");
    assert_int_equal(tensor.slot, leaf.slot);
    STALE(optimizer_words, (belay_optimizer_free(o), true));
    assert_true(belay_tensor_item(leaf) == 8);
    belay_close(context);
}

static void a_freed_optimizer_takes_no_part_in_a_window_of_a_loss_scale(void **state)
{
    (void)state;
    const float eight = 8;
    belay_context *context = told_open();
    belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
    belay_optimizer *o = belay_sgd_over(context, &leaf, 1, &(belay_sgd_options){.lr = 1});
    belay_grad_scaler *s = belay_grad_scaler_new(context, NULL);
    belay_optimizer_free(o);
    STALE(optimizer_words, (belay_grad_scaler_unscale(s, o), true));
    STALE(optimizer_words, (belay_grad_scaler_step(s, o), true));
    belay_grad_scaler_update(s);
    told_expect("%s", "");
    assert_true(belay_tensor_item(leaf) == 8 && belay_grad_scaler_get(s) == 65536);
    belay_close(context);
}

static void a_freed_loss_scale_is_stale_and_absorbs(void **state)
{
    (void)state;
    const float eight = 8;
    belay_context *context = told_open();
    belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
    belay_optimizer *o = belay_sgd_over(context, &leaf, 1, &(belay_sgd_options){.lr = 1});
    belay_grad_scaler *s = belay_grad_scaler_new(context, NULL);
    assert_true(belay_grad_scaler_get(s) == 65536);
    belay_grad_scaler_free(s);
    told_expect("%s", "");
    STALE(scaler_words, belay_tensor_is_nil(belay_grad_scaler_scale(s, leaf)));
    STALE(scaler_words, (belay_grad_scaler_unscale(s, o), true));
    STALE(scaler_words, (belay_grad_scaler_step(s, o), true));
    STALE(scaler_words, (belay_grad_scaler_update(s), true));
    STALE(scaler_words, belay_grad_scaler_get(s) == 0);
    STALE(scaler_words, belay_grad_scaler_growth_get(s) == 0);
    STALE(scaler_words, !belay_grad_scaler_found_inf(s));
    STALE(scaler_words, belay_grad_scaler_n_backoffs(s) == 0);
    STALE(scaler_words, belay_tensor_is_nil(belay_grad_scaler_state(s)));
    STALE(scaler_words, (belay_grad_scaler_free(s), true));
    assert_true(belay_tensor_item(leaf) == 8);
    belay_close(context);
}

static void free_scaler(void *state, belay_optimizer *o)
{
    (void)o;
    belay_grad_scaler_free(state);
}

static void a_loss_scale_that_a_hook_frees_inside_of_a_step_by_it_stays(void **state)
{
    (void)state;
    static const char when[] = "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n";
    const float eight = 8;
    belay_context *context = told_open();
    belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
    belay_optimizer *o = belay_sgd_over(context, &leaf, 1, &(belay_sgd_options){.lr = 1});
    belay_grad_scaler *s = belay_grad_scaler_new(context, NULL);
    bl_commit_hook hook = {.at = {[BL_COMMIT_RUN] = free_scaler}, .state = s};
    bl_optim_hook_add(context, &hook);
    belay_backward(belay_grad_scaler_scale(s, belay_sum(leaf, NULL)));
    int line = __LINE__ + 1;
    belay_grad_scaler_step(s, o);
    told_expect("belay: a loss scale was freed inside of a step by it (conf.order)\n"
                "    called at: test_freed.c:%d\n%s    try: %s\n"
                "belay: step 0 was not applied: conf.order in its window (run.window_lost)\n"
                "    called at: test_freed.c:%d\n%s    try: %s\n",
                line, when, belay_code_advice(BELAY_CONF_ORDER), line, when, belay_code_advice(BELAY_RUN_WINDOW_LOST));
    bl_optim_hook_remove(context, &hook);
    belay_grad_scaler_update(s);
    belay_backward(belay_grad_scaler_scale(s, belay_sum(leaf, NULL)));
    belay_grad_scaler_step(s, o);
    belay_grad_scaler_update(s);
    assert_true(belay_tensor_item(leaf) == 7 && belay_grad_scaler_growth_get(s) == 1);
    told_expect("%s", "");
    belay_close(context);
}

static void a_training_over_a_freed_optimizer_or_loss_scale_does_not_begin(void **state)
{
    (void)state;
    static const char *const texts[] = {"a b", "b c"}, *const names[] = {"x", "y"};
    belay_context *context = told_open();
    belay_module *model = belay_linear_module(context, &(belay_linear_module_options){.in = 3, .out = 2});
    belay_dataset *data = belay_dataset_texts(context, texts, names, 2, NULL);
    belay_optimizer *o = belay_sgd(model, &(belay_sgd_options){.lr = 1}),
                    *gone = belay_sgd(model, &(belay_sgd_options){.lr = 1});
    belay_grad_scaler *s = belay_grad_scaler_new(context, NULL);
    belay_optimizer_free(gone);
    belay_grad_scaler_free(s);
    told_expect("%s", "");
    STALE(optimizer_words, belay_train(model, gone, data, NULL, NULL) == BELAY_CONF_ORDER);
    assert_true(belay_train(model, o, data, &(belay_train_options){.scaler = s}, NULL) != BELAY_OK);
    assert_non_null(strstr(told(), "belay: a loss scale was used after it had been freed (life.stale)\n"));
    assert_int_equal(belay_optimizer_n_applied(o), 0);
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_freed_optimizer_is_stale_and_absorbs),
        cmocka_unit_test(a_freed_optimizer_takes_no_part_in_a_window_of_a_loss_scale),
        cmocka_unit_test(a_freed_loss_scale_is_stale_and_absorbs),
        cmocka_unit_test(a_loss_scale_that_a_hook_frees_inside_of_a_step_by_it_stays),
        cmocka_unit_test(a_training_over_a_freed_optimizer_or_loss_scale_does_not_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
