/* SPDX-License-Identifier: Apache-2.0 */
/* The tape: what is recorded, walked, dropped, and what a second walk finds. */
#include "support/told.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "grad/tape.h"

/* ---- gradients by differences ---------------------------------------------------------------------------------------- */

enum { N_IN = 6, N_W = 12, N_B = 4 };

/* mean(tanh(layer_norm(x w^T + b) * x') + exp(x w^T) / 3), in f64. */
static belay_tensor composed(belay_context *context, const double *x, const double *w, const double *b,
                             belay_tensor leaf[3])
{
    const double *values[] = {x, w, b};
    const belay_shape shapes[] = {belay_shape2(2, 3), belay_shape2(4, 3), belay_shape1(4)};
    const int64_t n[] = {N_IN, N_W, N_B};
    for (int k = 0; k < 3; k++)
        leaf[k] =
            belay_tensor_requires_grad_set(belay_tensor_from(context, BELAY_F64, shapes[k], values[k], n[k] * 8), true);
    belay_tensor h = belay_linear(leaf[0], leaf[1], leaf[2]);
    belay_tensor y = belay_tanh(belay_mul(belay_layer_norm(h, 1, (belay_tensor){0}, leaf[2], 0), h));
    belay_tensor z = belay_affine(belay_exp(belay_matmul(leaf[0], belay_transpose(leaf[1], 0, 1))), 1.0 / 3, 0.5);
    return belay_mean(belay_add(y, belay_view(z, belay_shape2(2, 4))), NULL);
}

static double value_of(belay_context *context, const double *x, const double *w, const double *b)
{
    belay_tensor leaf[3];
    belay_scope scope = belay_scope_open(context);
    double value = belay_tensor_item(composed(context, x, w, b, leaf));
    belay_scope_close(scope);
    return value;
}

static void gradients_of_a_composed_expression_are_its_differences(void **state)
{
    (void)state;
    belay_context *context = told_open();
    double values[3][N_W], *inputs[] = {values[0], values[1], values[2]};
    for (int i = 0; i < N_W; i++)
        for (int k = 0; k < 3; k++)
            values[k][i] = sin(1.7 * i + k) * 0.8;
    const int n[] = {N_IN, N_W, N_B};
    belay_tensor leaf[3];
    belay_backward(composed(context, values[0], values[1], values[2], leaf));
    for (int k = 0; k < 3; k++) {
        double grad[N_W];
        assert_int_equal(belay_tensor_read(belay_tensor_grad(leaf[k]), grad, n[k] * 8), BELAY_OK);
        for (int i = 0; i < n[k]; i++) {
            const double step = 1e-5, kept = inputs[k][i];
            inputs[k][i] = kept + step;
            double above = value_of(context, values[0], values[1], values[2]);
            inputs[k][i] = kept - step;
            double below = value_of(context, values[0], values[1], values[2]);
            inputs[k][i] = kept;
            assert_true(fabs(grad[i] - (above - below) / (2 * step)) < 1e-8);
        }
    }
    told_close(context);
}

/* ---- leaves ---------------------------------------------------------------------------------------------------------- */

static void expect_grad(belay_tensor leaf, int64_t n, const float *expected)
{
    float grad[16];
    told_read(belay_tensor_grad(leaf), grad, n);
    assert_memory_equal(grad, expected, (size_t)n * sizeof *grad);
}

static void both_terms_of_a_sum_get_a_gradient_of_their_own(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_tensor b = told_leaf(context, belay_shape1(2), (const float[]){3, 4});
    belay_backward(belay_sum(belay_add(a, b), NULL));
    belay_backward(belay_sum(a, NULL));
    expect_grad(a, 2, (const float[]){2, 2});
    expect_grad(b, 2, (const float[]){1, 1});
    told_close(context);
}

static void a_leaf_used_twice_collects_both(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_backward(belay_sum(belay_add(belay_add(a, a), belay_mul(a, a)), NULL));
    expect_grad(a, 2, (const float[]){4, 6});
    told_close(context);
}

static void gradients_add_up_over_backwards_until_they_are_cleared(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    for (int i = 1; i <= 3; i++) {
        belay_backward(belay_sum(belay_mul(a, a), NULL));
        expect_grad(a, 2, (const float[]){2.0f * (float)i, 4.0f * (float)i});
    }
    belay_tensor grad = belay_tensor_grad(a);
    belay_tensor_grad_clear(a);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(a)));
    assert_false(belay_tensor_is_alive(grad));
    belay_backward(belay_sum(belay_mul(a, a), NULL));
    expect_grad(a, 2, (const float[]){2, 4});
    told_close(context);
}

static void an_upstream_gradient_stays_the_callers(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_tensor upstream = told_f32(context, belay_shape1(2), (const float[]){10, 20});
    belay_backward_from(belay_neg(belay_neg(a)), upstream);
    belay_backward_from(belay_affine(a, 1, 0), upstream);
    expect_grad(a, 2, (const float[]){20, 40});
    float out[2];
    told_read(upstream, out, 2);
    assert_memory_equal(out, ((const float[]){10, 20}), sizeof out);
    told_close(context);
}

static void the_gradient_of_a_named_leaf_has_a_name(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(1), (const float[]){1});
    belay_tensor_name_set(a, "fc.weight");
    belay_backward(belay_sum(a, NULL));
    assert_string_equal(belay_tensor_name(belay_tensor_grad(a)), "fc.weight.grad");
    told_close(context);
}

static void a_leaf_that_died_takes_no_gradient(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_tensor b = told_leaf(context, belay_shape1(2), (const float[]){3, 4});
    belay_tensor y = belay_sum(belay_mul(a, b), NULL);
    belay_tensor_free(a);
    belay_backward(y);
    expect_grad(b, 2, (const float[]){1, 2}); /* the tape held what a was */
    told_close(context);
}

/* ---- walks that find nothing ----------------------------------------------------------------------------------------- */

static void backward_twice_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_tensor y = belay_sum(a, NULL);
    belay_backward(y);
    assert_string_equal(told(), "");
    int line = __LINE__ + 1;
    belay_backward(y);
    told_expect("belay: backward was called on a tensor whose record is gone: a backward before has walked it, or its "
                "scope has closed (life.tape)\n"
                "    called at: test_tape.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n"
                "%s",
                line, told_try(BELAY_LIFE_TAPE));
    expect_grad(a, 2, (const float[]){1, 1});
    assert_int_equal(belay_close(context), 3);
}

static void backward_through_a_walked_part_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_tensor shared = belay_mul(a, a);
    belay_backward(belay_sum(shared, NULL));
    int line = __LINE__ + 1;
    belay_tensor y = belay_sum(belay_neg(shared), NULL);
    belay_backward(y);
    told_expect("belay: backward reached an op whose record is gone: a backward before has walked it, or its scope has "
                "closed (life.tape)\n"
                "    called at: test_tape.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n"
                "%s",
                line, told_try(BELAY_LIFE_TAPE));
    assert_int_equal(belay_close(context), 3);
}

static void backward_through_a_closed_scope_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_scope scope = belay_scope_open(context);
    belay_tensor y = belay_keep(belay_sum(belay_mul(a, a), NULL));
    belay_scope_close(scope);
    belay_backward(y);
    assert_non_null(strstr(told(), "belay: backward was called on a tensor whose record is gone: a backward before has "
                                   "walked it, or its scope has closed (life.tape)\n"));
    assert_true(belay_tensor_is_nil(belay_tensor_grad(a)));
    assert_int_equal(belay_close(context), 3);
}

static void backward_needs_one_element_and_a_record(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    int line = __LINE__ + 1;
    belay_backward(belay_neg(a));
    told_expect("belay: backward needs a loss with one element; this tensor has shape [2] (shape.contract)\n"
                "    called at: test_tape.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    belay_backward(belay_zeros(context, BELAY_F32, belay_shape0()));
    assert_non_null(strstr(told(), "belay: backward was called on a tensor that no recorded op made (life.tape)\n"));
    told_clear();
    belay_backward_from(belay_neg(a), belay_zeros(context, BELAY_F32, belay_shape1(3)));
    assert_non_null(strstr(told(), "belay: the gradient given does not have the tensor's shape and dtype "
                                   "(shape.contract)\n"));
    told_clear();
    belay_backward_from(belay_neg(a), belay_zeros(context, BELAY_F64, belay_shape1(2)));
    assert_non_null(strstr(told(), "belay: the gradient given does not have the tensor's shape and dtype "
                                   "(shape.contract)\n"));
    assert_int_equal(belay_close(context), 3);
}

/* ---- what is kept ---------------------------------------------------------------------------------------------------- */

static void recording_off_keeps_nothing(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    assert_true(belay_recording_set(context, false));
    belay_tensor y = belay_sum(belay_exp(a), NULL);
    assert_false(belay_recording_set(context, true));
    assert_false(belay_tensor_requires_grad(y));
    assert_true(context->tape_mark == NULL || context->tape_mark(context) == 0);
    belay_tensor_free(y);
    belay_backward(belay_sum(a, NULL));
    expect_grad(a, 2, (const float[]){1, 1});
    told_close(context);
}

static void an_op_on_tensors_without_gradient_is_not_recorded(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_f32(context, belay_shape1(2), (const float[]){1, 2});
    assert_false(belay_tensor_requires_grad(belay_exp(a)));
    assert_null(context->tape);
    told_close(context);
}

static void a_branch_that_is_not_used_costs_nothing_after_its_scope(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    int64_t storages = 0, asked = 0;
    for (int i = 0; i < 1000; i++) {
        belay_scope scope = belay_scope_open(context);
        belay_tensor unused = belay_exp(a);
        belay_backward(belay_sum(belay_mul(a, a), NULL));
        assert_true(belay_tensor_requires_grad(unused));
        belay_scope_close(scope);
        if (i == 2) {
            storages = context->n_storages_alive;
            bl_memory_fail_at(INT64_MAX); /* counts */
        }
    }
    asked = bl_memory_asked();
    bl_memory_fail_at(-1);
    assert_int_equal(asked, 0);
    assert_int_equal(context->n_storages_alive, storages);
    told_close(context);
}

/* Wherever it ends: what is left of it is no gradient. */
static void a_backward_without_memory_loses_the_window(void **state)
{
    (void)state;
    bool is_over = false;
    for (int64_t n = 0; !is_over; n++) {
        belay_context *context = told_open();
        belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
        belay_tensor loss = belay_sum(belay_mul(a, a), NULL);
        bl_memory_fail_at(n);
        belay_backward(loss);
        is_over = bl_memory_asked() <= n;
        bl_memory_fail_at(-1);
        assert_int_equal(context->window_faulted, belay_n_faults(context) > 0);
        told_clear();
        belay_close(context);
    }
}

/* Without scopes of its own a loop keeps its temporaries; its records go all the same. */
static void walked_records_go_from_beneath_unused_ones(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_tensor kept = belay_sum(belay_exp(a), NULL);
    for (int i = 0; i < 100; i++) {
        belay_tensor y = belay_sum(belay_mul(a, a), NULL), unused = belay_neg(a);
        belay_backward(y);
        belay_tensor_free(unused);
    }
    belay_tensor_grad_clear(a);
    belay_backward(kept); /* two losses of one scope: each is walked once */
    expect_grad(a, 2, (const float[]){expf(1), expf(2)});
    assert_string_equal(told(), "");
    belay_close(context);
}

static void a_hand_written_loop_counts_its_backwards(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = told_leaf(context, belay_shape1(1), (const float[]){1});
    belay_backward(belay_sum(a, NULL));
    belay_backward(belay_sum(a, NULL));
    assert_int_equal(context->position, 2);
    assert_int_equal(context->micro_batch, 2);
    belay_position_set(context, 3, 9);
    belay_backward(belay_sum(a, NULL));
    assert_int_equal(context->position, 9);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_a_composed_expression_are_its_differences),
        cmocka_unit_test(both_terms_of_a_sum_get_a_gradient_of_their_own),
        cmocka_unit_test(a_leaf_used_twice_collects_both),
        cmocka_unit_test(gradients_add_up_over_backwards_until_they_are_cleared),
        cmocka_unit_test(an_upstream_gradient_stays_the_callers),
        cmocka_unit_test(the_gradient_of_a_named_leaf_has_a_name),
        cmocka_unit_test(a_leaf_that_died_takes_no_gradient),
        cmocka_unit_test(backward_twice_is_a_fault),
        cmocka_unit_test(backward_through_a_walked_part_is_a_fault),
        cmocka_unit_test(backward_through_a_closed_scope_is_a_fault),
        cmocka_unit_test(backward_needs_one_element_and_a_record),
        cmocka_unit_test(recording_off_keeps_nothing),
        cmocka_unit_test(an_op_on_tensors_without_gradient_is_not_recorded),
        cmocka_unit_test(a_backward_without_memory_loses_the_window),
        cmocka_unit_test(a_branch_that_is_not_used_costs_nothing_after_its_scope),
        cmocka_unit_test(walked_records_go_from_beneath_unused_ones),
        cmocka_unit_test(a_hand_written_loop_counts_its_backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
