/* SPDX-License-Identifier: Apache-2.0 */
/* What an optimizer is asked for and says is what it does: a step without a backward, a step that was refused for its
 * order, moments that a dtype cannot hold, options whose zero means something. */
#include "support/told.h"

#include <belay/amp.h>
#include <belay/optim.h>

#include <math.h>
#include <string.h>

static const float eight = 8;

static belay_tensor leaf_of(belay_context *context, belay_dtype dtype, double value)
{
    return belay_tensor_requires_grad_set(belay_full(context, dtype, belay_shape1(1), value), true);
}

/* Adds `slope` to the leaf's gradient. */
static void give(belay_tensor leaf, double slope) { belay_backward(belay_sum(belay_affine(leaf, slope, 0), NULL)); }

/* ---- a step without a backward --------------------------------------------------------------------------------------- */

static void a_step_without_a_backward_under_autocast_is_refused_with_both_sites(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:0"};
    for (int d = 0; d < 2; d++) {
        belay_context *context =
            belay_open(&(belay_options){.device = devices[d], .log = told_remember, .no_journal = true});
        belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
        belay_schedule schedule = {.kind = BELAY_SCHEDULE_STEP, .period = 1};
        belay_optimizer *o = belay_sgd_over(context, &leaf, 1, &(belay_sgd_options){.lr = 1, .schedule = schedule});
        told_clear();
        int opened = __LINE__ + 1;
        belay_autocast cast = belay_autocast_open(context, BELAY_F16);
        belay_tensor loss = belay_sum(leaf, NULL);
        belay_autocast_close(cast);
        int stepped = __LINE__ + 1;
        belay_optimizer_step(o);
        told_expect("belay: belay_optimizer_step without any gradient, after ops under autocast (conf.order)\n"
                    "    called at: test_honest.c:%d\n"
                    "    the region was opened at test_honest.c:%d\n" TOLD_START
                    "    try: Call belay_backward on the loss first.\n",
                    stepped, opened);
        assert_false(belay_optimizer_is_applied(o));
        assert_int_equal(belay_optimizer_n_applied(o), 0);
        assert_int_equal(belay_optimizer_n_faulted(o), 1);
        belay_backward(loss); /* the window after it is a clean one */
        belay_optimizer_step(o);
        assert_true(belay_optimizer_is_applied(o) && belay_optimizer_lr_get(o) == 1);
        assert_true(belay_tensor_item(leaf) == 7);
        told_expect("%s", "");
        belay_close(context);
    }
}

/* A region that was opened long before is used in each window anew. */
static void a_region_over_many_steps_is_named_by_the_step_that_forgot_its_backward(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
    belay_optimizer *o = belay_sgd_over(context, &leaf, 1, &(belay_sgd_options){.lr = 1});
    int opened = __LINE__ + 1;
    belay_autocast cast = belay_autocast_open(context, BELAY_BF16);
    give(leaf, 1);
    belay_optimizer_step(o);
    belay_optimizer_step(o); /* no op has run since */
    assert_int_equal(belay_optimizer_n_applied(o), 2);
    belay_sum(leaf, NULL);
    belay_autocast_close(cast);
    int stepped = __LINE__ + 1;
    belay_optimizer_step(o);
    told_expect("belay: belay_optimizer_step without any gradient, after ops under autocast (conf.order)\n"
                "    called at: test_honest.c:%d\n"
                "    the region was opened at test_honest.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 2, rank 0\n"
                "    try: Call belay_backward on the loss first.\n",
                stepped, opened);
    assert_int_equal(belay_optimizer_n_applied(o), 2);
    belay_close(context);
}

static void an_optimizer_whose_parameters_the_loss_of_a_region_left_out_steps_for_nothing(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor leaf[] = {told_leaf(context, belay_shape1(1), &eight), told_leaf(context, belay_shape1(1), &eight)};
    belay_optimizer *o = belay_sgd_over(context, leaf, 1, &(belay_sgd_options){.lr = 1}),
                    *p = belay_sgd_over(context, leaf + 1, 1, &(belay_sgd_options){.lr = 1});
    belay_autocast cast = belay_autocast_open(context, BELAY_F16);
    give(leaf[0], 1);
    belay_autocast_close(cast);
    belay_optimizer_step(p);
    belay_optimizer_step(o);
    belay_optimizer_step(p);
    assert_true(belay_tensor_item(leaf[0]) == 7 && belay_tensor_item(leaf[1]) == 8);
    told_close(context);
}

/* The end of an epoch whose last window was whole, behind a validation; gradients that were thrown away. */
static void a_region_without_anything_to_walk_back_asks_for_no_backward(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
    belay_optimizer *o = belay_sgd_over(context, &leaf, 1, &(belay_sgd_options){.lr = 1});
    belay_autocast cast = belay_autocast_open(context, BELAY_BF16);
    belay_recording_set(context, false);
    belay_sum(leaf, NULL);
    belay_recording_set(context, true);
    belay_optimizer_step(o);
    give(leaf, 1);
    belay_tensor_grad_clear(leaf);
    belay_optimizer_step(o);
    belay_autocast_close(cast);
    assert_int_equal(belay_optimizer_n_applied(o), 2);
    assert_true(belay_tensor_item(leaf) == 8);
    told_close(context);
}

static void a_step_without_any_gradient_moves_the_schedule_and_nothing_else(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
    belay_adam_options options = {.lr = 0.5, .weight_decay = 1, .schedule = {.kind = BELAY_SCHEDULE_STEP, .period = 1}};
    belay_optimizer *o = belay_adamw_over(context, &leaf, 1, &options);
    belay_optimizer_step(o);
    assert_true(belay_optimizer_is_applied(o) && belay_optimizer_lr_get(o) == 0.5);
    assert_true(belay_tensor_item(leaf) == 8);
    belay_optimizer_step(o);
    assert_int_equal(belay_optimizer_n_applied(o), 2);
    assert_true(fabs(belay_optimizer_lr_get(o) - 0.05) < 1e-12 && belay_tensor_item(leaf) == 8);
    told_close(context);
}

/* ---- what the last step did ------------------------------------------------------------------------------------------ */

/* After a step by the scale that was applied; the next one is refused. */
static void expect_refused(const belay_optimizer *o, int64_t n_faulted)
{
    assert_non_null(strstr(told(), "(conf.order)"));
    told_clear();
    assert_false(belay_optimizer_is_applied(o));
    assert_true(belay_optimizer_norm_get(o) == 0);
    assert_true(belay_optimizer_lr_get(o) == 0.5);
    assert_int_equal(belay_optimizer_n_applied(o), 1);
    assert_int_equal(belay_optimizer_n_faulted(o), n_faulted);
    assert_int_equal(belay_optimizer_n_overflowed(o), 0);
}

static void a_step_that_is_refused_for_its_order_is_not_said_to_be_applied(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:0"};
    for (int d = 0; d < 2; d++) {
        belay_context *context =
            belay_open(&(belay_options){.device = devices[d], .log = told_remember, .no_journal = true});
        belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
        belay_optimizer *o = belay_sgd_over(context, &leaf, 1, &(belay_sgd_options){.lr = 0.5});
        belay_grad_scaler *s = belay_grad_scaler_new(context, &(belay_grad_scaler_options){.init_scale = 4});
        belay_backward(belay_grad_scaler_scale(s, belay_sum(leaf, NULL)));
        belay_grad_scaler_step(s, o);
        assert_true(belay_optimizer_is_applied(o) && belay_optimizer_norm_get(o) == 1);
        told_clear();
        belay_backward(belay_grad_scaler_scale(s, belay_sum(leaf, NULL)));
        belay_grad_scaler_step(s, o); /* twice */
        expect_refused(o, 1);
        belay_grad_scaler_update(s);
        give(leaf, 1);
        belay_grad_scaler_step(s, o); /* plain gradients */
        expect_refused(o, 2);
        belay_grad_scaler_update(s);
        belay_grad_scaler_step(s, o); /* none */
        expect_refused(o, 3);
        belay_backward(belay_grad_scaler_scale(s, belay_sum(leaf, NULL)));
        belay_optimizer_step(o); /* scaled gradients */
        expect_refused(o, 4);
        assert_true(belay_tensor_item(leaf) == 7.5);
        belay_close(context);
    }
}

/* ---- moments in 16 bits ---------------------------------------------------------------------------------------------- */

static void adam_refuses_parameters_in_f16_by_name(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor leaf = leaf_of(context, BELAY_F16, 1),
                 named = belay_tensor_name_set(leaf_of(context, BELAY_F16, 1), "w");
    for (int decoupled = 0; decoupled < 2; decoupled++)
        for (int n = 0; n < 2; n++) {
            belay_adam_options options = {.lr = 1e-3};
            const belay_tensor list[] = {leaf_of(context, BELAY_F32, 1), n == 0 ? leaf : named};
            int line = __LINE__ + 1;
            belay_optimizer *o = (decoupled ? belay_adamw_over : belay_adam_over)(context, list, 2, &options);
            told_expect("belay: parameter 1 of an Adam optimizer%s is f16 (type.dtype)\n"
                        "    called at: test_honest.c:%d\n"
                        "    the squares of its gradients, which Adam divides by, would vanish in f16: the least is "
                        "6e-8\n" TOLD_START "    try: Keep parameters f32 and run the forward in f16 by "
                        "belay_autocast_open, or make them bf16.\n",
                        n == 0 ? "" : ", w,", line);
            assert_int_equal(belay_optimizer_n_state(o), 0);
        }
    belay_close(context);
}

/* A gradient whose square is far below what f16 holds: Adam's first steps are the rate, whatever the gradient is. */
static void adam_in_bf16_and_momentum_in_f16_take_small_gradients(void **state)
{
    (void)state;
    belay_context *context = told_open();
    for (double slope = 1e-3; slope > 1e-7; slope /= 10) {
        belay_tensor leaf = leaf_of(context, BELAY_BF16, 0), half = leaf_of(context, BELAY_F16, 0);
        belay_optimizer *adam = belay_adam_over(context, &leaf, 1, &(belay_adam_options){.lr = 1e-3}),
                        *sgd = belay_sgd_over(context, &half, 1, &(belay_sgd_options){.lr = 1, .momentum = 0.9});
        for (int i = 1; i <= 3; i++) {
            give(leaf, slope);
            belay_optimizer_step(adam);
            assert_true(fabs(belay_tensor_item(leaf) + i * 1e-3) < i * 1e-4);
            give(half, slope);
            belay_optimizer_step(sgd);
        }
        double expected = -slope * (1 + 1.9 + 2.71);
        assert_true(fabs(belay_tensor_item(half) - expected) < 3e-7 - expected / 100);
    }
    told_close(context);
}

static void the_squares_of_adam_in_bf16_do_not_fall(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor leaf = leaf_of(context, BELAY_BF16, 0), square;
    belay_optimizer *o = belay_adam_over(context, &leaf, 1, &(belay_adam_options){.lr = 1e-3});
    assert_true(belay_optimizer_state_get(o, 1, NULL, &square));
    give(leaf, 1);
    belay_optimizer_step(o);
    double first = belay_tensor_item(square);
    for (int i = 0; i < 20; i++) {
        give(leaf, 0);
        belay_optimizer_step(o);
    }
    assert_true(first > 0.9e-3 && belay_tensor_item(square) == first);
    told_close(context);
}

/* ---- options whose zero means something ------------------------------------------------------------------------------ */

/* Without beta1 a step is rate g / sqrt(mean of g^2), without beta2 as well it is the sign of the gradient. */
static void adam_without_its_betas_carries_nothing_on(void **state)
{
    (void)state;
    const double slopes[] = {3, -4, 0.5};
    belay_context *context = told_open();
    belay_tensor leaf[] = {leaf_of(context, BELAY_F64, 0), leaf_of(context, BELAY_F64, 0)};
    belay_adam_options options = {.lr = 1, .no_beta1 = true, .beta2 = 0.5, .eps = 1e-30},
                       none = {.lr = 1, .no_beta1 = true, .no_beta2 = true, .eps = 1e-30};
    belay_optimizer *o = belay_adam_over(context, leaf, 1, &options), *p = belay_adam_over(context, leaf + 1, 1, &none);
    double at = 0, square = 0, sign = 0;
    for (int i = 0; i < 3; i++) {
        give(leaf[0], slopes[i]);
        belay_optimizer_step(o);
        square = 0.5 * square + 0.5 * slopes[i] * slopes[i];
        at -= slopes[i] / sqrt(square / (1 - pow(0.5, i + 1)));
        assert_true(fabs(belay_tensor_item(leaf[0]) - at) < 1e-12);
        give(leaf[1], slopes[i]);
        belay_optimizer_step(p);
        sign -= slopes[i] > 0 ? 1 : -1;
        assert_true(fabs(belay_tensor_item(leaf[1]) - sign) < 1e-12);
    }
    give(leaf[1], 0);
    belay_optimizer_step(p);
    assert_true(fabs(belay_tensor_item(leaf[1]) - sign) < 1e-12);
    told_close(context);
}

static void a_beta_that_is_given_and_none_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor leaf = told_leaf(context, belay_shape1(1), &eight);
    int line = __LINE__ + 1;
    belay_adam_over(context, &leaf, 1, &(belay_adam_options){.lr = 1, .no_beta1 = true, .beta1 = 0.5});
    told_expect("belay: no_beta1 says that beta1 is 0, and beta1 is 0.5 (conf.conflict)\n"
                "    called at: test_honest.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_CONFLICT));
    line = __LINE__ + 1;
    belay_adamw_over(context, &leaf, 1, &(belay_adam_options){.lr = 1, .no_beta2 = true, .beta2 = 0.99});
    told_expect("belay: no_beta2 says that beta2 is 0, and beta2 is 0.99 (conf.conflict)\n"
                "    called at: test_honest.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_CONFLICT));
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_without_a_backward_under_autocast_is_refused_with_both_sites),
        cmocka_unit_test(a_region_over_many_steps_is_named_by_the_step_that_forgot_its_backward),
        cmocka_unit_test(an_optimizer_whose_parameters_the_loss_of_a_region_left_out_steps_for_nothing),
        cmocka_unit_test(a_region_without_anything_to_walk_back_asks_for_no_backward),
        cmocka_unit_test(a_step_without_any_gradient_moves_the_schedule_and_nothing_else),
        cmocka_unit_test(a_step_that_is_refused_for_its_order_is_not_said_to_be_applied),
        cmocka_unit_test(adam_refuses_parameters_in_f16_by_name),
        cmocka_unit_test(adam_in_bf16_and_momentum_in_f16_take_small_gradients),
        cmocka_unit_test(the_squares_of_adam_in_bf16_do_not_fall),
        cmocka_unit_test(adam_without_its_betas_carries_nothing_on),
        cmocka_unit_test(a_beta_that_is_given_and_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
