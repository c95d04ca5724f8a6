/* SPDX-License-Identifier: Apache-2.0 */
/* What the tape keeps and the program writes before the walk: told by name, and nothing reaches a weight.  What is
 * written without harm is not told. */
#include "support/told.h"

#include <belay/devices.h>
#include <belay/kernel.h>
#include <belay/launch.h>
#include <belay/nn.h>
#include <belay/optim.h>
#include <string.h>

#include "grad/tape.h"

#define ADVICE                                                                                                         \
    "    try: Walk back before it is written, an optimizer's step included, or give the forward a copy of it.\n"

static belay_tensor named_leaf(belay_context *context, const char *name, float value)
{
    belay_tensor leaf = told_leaf(context, belay_shape1(2), (const float[]){value, value});
    belay_tensor_name_set(leaf, name);
    return leaf;
}

static belay_tensor total(belay_tensor x) { return belay_sum(x, NULL); }

static void expect_values(belay_tensor tensor, float value)
{
    float got[2];
    told_read(tensor, got, 2);
    assert_true(got[0] == value && got[1] == value);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------- */

static void a_step_between_forward_and_backward_is_told_and_reaches_nothing(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = named_leaf(context, "a", 1), w = named_leaf(context, "w", 2);
    belay_optimizer *o = belay_sgd_over(context, &w, 1, &(belay_sgd_options){.lr = 1});
    belay_optimizer *of_a = belay_sgd_over(context, &a, 1, &(belay_sgd_options){.lr = 1});
    int line = __LINE__ + 1;
    belay_tensor y = total(belay_mul(a, w));
    belay_backward(total(belay_mul(w, w)));
    belay_optimizer_step(o);
    expect_values(w, -2);
    assert_string_equal(told(), "");
    belay_backward(y);
    told_expect("belay: backward of mul reads w [2], which was written after the forward had read it (life.tape)\n"
                "    op: mul (backward), called at test_written.c:%d\n"
                "    written at: test_written.c:%d\n"
                "    surfaced at: test_written.c:%d\n"
                "    tensors: w [2] f32; on cpu\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n" ADVICE,
                line, line + 2, line + 5);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(a)));
    belay_optimizer_step(of_a);
    assert_false(belay_optimizer_is_applied(of_a));
    expect_values(a, 1);
    expect_values(w, -2);
    assert_int_equal(belay_close(context), 3);
}

static void a_write_into_a_result_that_backward_reads_is_told(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = named_leaf(context, "x", 0);
    int line = __LINE__ + 1;
    belay_tensor y = belay_exp(x);
    belay_tensor loss = total(y);
    assert_int_equal(belay_tensor_write(y, (const float[]){7, 7}, 8), BELAY_OK);
    belay_backward(loss);
    told_expect("belay: backward of exp reads y [2], which was written after the forward had read it (life.tape)\n"
                "    op: exp (backward), called at test_written.c:%d\n"
                "    written at: test_written.c:%d\n"
                "    surfaced at: test_written.c:%d\n"
                "    tensors: y [2] f32; on cpu\n" TOLD_START ADVICE,
                line, line + 2, line + 3);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(x)));
    assert_int_equal(belay_close(context), 3);
}

static void a_copy_that_was_asked_for_counts_as_a_write(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = named_leaf(context, "x", 0), data = told_f32(context, belay_shape1(2), (const float[]){1, 2});
    belay_host host = belay_host_new(context, 8);
    memset(belay_host_data(host), 0, 8);
    int line = __LINE__ + 1;
    belay_tensor loss = total(belay_mul(x, data));
    assert_int_equal(belay_tensor_write_later(data, host, 0, 8), BELAY_OK);
    belay_backward(loss);
    told_expect("belay: backward of mul reads b [2], which was written after the forward had read it (life.tape)\n"
                "    op: mul (backward), called at test_written.c:%d\n"
                "    written at: test_written.c:%d\n"
                "    surfaced at: test_written.c:%d\n"
                "    tensors: b [2] f32; on cpu\n" TOLD_START ADVICE,
                line, line + 1, line + 2);
    belay_host_free(host);
    assert_int_equal(belay_close(context), 3);
}

BELAY_KERNEL(add_one, "N: y[N]! ->", work, i) { BELAY_AT1(float, belay_view_of(work, 0), i) += 1; }

/* By a kernel of the user's own, and by another view of the storage. */
static void any_writer_and_any_view_of_the_storage_counts(void **state)
{
    (void)state;
    belay_context *context = told_open();
    for (int i = 0; i < 2; i++) {
        belay_tensor x = named_leaf(context, "x", 0);
        int line = __LINE__ + 1;
        belay_tensor y = belay_tanh(x);
        belay_tensor loss = total(y), part = belay_slice(y, 0, 1, 2, 1);
        if (i == 0)
            belay_launch(context, &add_one, &(belay_launch_options){.n_items = 2, .operand = {y}});
        else
            assert_int_equal(belay_tensor_write(part, (const float[]){7}, 4), BELAY_OK);
        belay_backward(loss);
        told_expect("belay: backward of tanh reads y [2], which was written after the forward had read it (life.tape)\n"
                    "    op: tanh (backward), called at test_written.c:%d\n"
                    "    written at: test_written.c:%d\n"
                    "    surfaced at: test_written.c:%d\n"
                    "    tensors: y [2] f32; on cpu\n"
                    "    when: epoch 0, batch %d (micro-batch %d of its window), step 0, rank 0\n" ADVICE,
                    line, line + (i == 0 ? 3 : 5), line + 6, i, i);
        assert_true(belay_tensor_is_nil(belay_tensor_grad(x)));
    }
    assert_int_equal(belay_close(context), 3);
}

static belay_tensor scores(belay_context *context, belay_module *model)
{
    return belay_forward(model, belay_full(context, BELAY_F32, belay_shape2(2, 3), 1));
}

/* Two losses of one model; the step for the first lies between the second's forward and its backward. */
static void a_modules_step_before_the_backward_of_another_loss_is_told_once_with_its_layer(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *model = belay_sequential_module(context);
    belay_module_add_child(model, "0", belay_linear_module(context, &(belay_linear_module_options){.in = 3, .out = 4}));
    belay_module_add_child(model, "1", belay_linear_module(context, &(belay_linear_module_options){.in = 4, .out = 5}));
    belay_module_add_child(model, "2", belay_linear_module(context, &(belay_linear_module_options){.in = 5, .out = 2}));
    belay_optimizer *o = belay_sgd(model, &(belay_sgd_options){.lr = 0.5});
    belay_site_push(context, "model.py:1");
    belay_tensor first = total(scores(context, model)), second = belay_add(total(scores(context, model)), first);
    belay_site_pop(context);
    (void)second;
    belay_backward(total(scores(context, model)));
    int line = __LINE__ + 1;
    belay_optimizer_step(o);
    belay_module_grads_clear(model);
    belay_backward(second);
    told_expect("belay: backward of matmul reads 2.weight [2, 5], which was written after the forward had read it "
                "(life.tape)\n"
                "    op: matmul (backward) in layer sequential.2, called at model.py:1\n"
                "    written at: test_written.c:%d\n"
                "    surfaced at: test_written.c:%d\n"
                "    tensors: 2.weight [2, 5] f32; on cpu\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n" ADVICE,
                line, line + 2);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(belay_module_find(model, "0.weight"))));
    belay_optimizer_step(o);
    assert_false(belay_optimizer_is_applied(o));
    assert_int_equal(belay_close(context), 3);
}

static void a_recurrent_layers_weights_are_seen_too(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *lstm = belay_lstm_module(context, &(belay_lstm_module_options){.in = 3, .hidden = 2, .layers = 1});
    belay_optimizer *o = belay_sgd(lstm, &(belay_sgd_options){.lr = 0.5});
    belay_tensor x = belay_full(context, BELAY_F32, belay_shape3(4, 2, 3), 0.5), none = {0};
    belay_site_push(context, "model.py:1");
    belay_tensor loss = total(belay_lstm_module_run(lstm, x, none, none).output);
    belay_site_pop(context);
    belay_backward(total(belay_lstm_module_run(lstm, x, none, none).output));
    int line = __LINE__ + 1;
    belay_optimizer_step(o);
    belay_backward(loss);
    told_expect("belay: backward of lstm reads weight_ih_l0 [1, 8, 3], which was written after the forward had read it "
                "(life.tape)\n"
                "    op: lstm (backward) in layer lstm, called at model.py:1\n"
                "    written at: test_written.c:%d\n"
                "    surfaced at: test_written.c:%d\n"
                "    tensors: weight_ih_l0 [1, 8, 3] f32; on cpu\n"
                "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n" ADVICE,
                line, line + 1);
    assert_int_equal(belay_close(context), 3);
}

/* ---- a function of the user's own ------------------------------------------------------------------------------------ */

/* y = x^2; keeps a buffer that it fills after it has saved it. */
static void square_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                           int n_out)
{
    belay_tensor *kept = state;
    (void)n_in, (void)n_out;
    float x[2];
    *kept = belay_keep(belay_zeros(belay_function_context(call), BELAY_F32, belay_shape1(2)));
    belay_function_save(call, *kept);
    told_read(in[0], x, 2);
    assert_int_equal(belay_tensor_write(*kept, x, sizeof x), BELAY_OK);
    out[0] = belay_mul(*kept, *kept);
}

/* Its own writes while it walks are its own. */
static void square_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                            belay_tensor *grad_in, int n_in)
{
    (void)state, (void)n_out, (void)n_in;
    belay_tensor x = belay_function_saved(call, 0);
    float twice[2];
    told_read(x, twice, 2);
    twice[0] *= 2;
    twice[1] *= 2;
    assert_int_equal(belay_tensor_write(x, twice, sizeof twice), BELAY_OK);
    grad_in[0] = belay_mul(grad_out[0], belay_function_saved(call, 0));
}

static const belay_function square = {.name = "square", .forward = square_forward, .backward = square_backward};

static belay_tensor squared(belay_context *context, belay_tensor x, belay_tensor *kept)
{
    belay_tensor y;
    belay_site_push(context, "model.py:1");
    belay_function_apply(context, &square, kept, &x, 1, 0, &y, 1);
    belay_site_pop(context);
    return y;
}

static void what_a_function_saved_is_its_own_until_its_forward_ends(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = named_leaf(context, "x", 3), kept;
    belay_backward(total(squared(context, x, &kept)));
    expect_values(belay_tensor_grad(x), 6);
    belay_tensor y = total(squared(context, x, &kept));
    int line = __LINE__ + 1;
    assert_int_equal(belay_tensor_write(kept, (const float[]){5, 5}, 8), BELAY_OK);
    belay_backward(y);
    told_expect("belay: backward of square reads saved 0 [2], which was written after the forward had read it "
                "(life.tape)\n"
                "    op: square (backward), called at model.py:1\n"
                "    written at: test_written.c:%d\n"
                "    surfaced at: test_written.c:%d\n"
                "    tensors: saved 0 [2] f32; on cpu\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n" ADVICE,
                line, line + 1);
    expect_values(belay_tensor_grad(x), 6);
    assert_int_equal(belay_close(context), 3);
}

/* ---- what is right --------------------------------------------------------------------------------------------------- */

/* Of a product with data only the data is read. */
static void a_write_into_what_no_gradient_reads_is_not_told(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor w = named_leaf(context, "w", 2), data = told_f32(context, belay_shape1(2), (const float[]){3, 3});
    belay_tensor row = told_f32(context, belay_shape2(1, 2), (const float[]){1, 1});
    belay_tensor matrix = belay_tensor_requires_grad_set(belay_full(context, BELAY_F32, belay_shape2(2, 2), 1), true);
    belay_tensor parameters[] = {w, matrix}, ratio = total(belay_div(w, data));
    belay_optimizer *o = belay_sgd_over(context, parameters, 2, &(belay_sgd_options){.lr = 1});
    belay_tensor product = total(belay_mul(w, data)), linear = total(belay_linear(row, matrix, (belay_tensor){0}));
    belay_tensor moved = total(belay_affine(belay_add(w, data), 2, 1)),
                 normed = total(belay_layer_norm(data, 1, w, w, 0));
    belay_backward(belay_add(total(w), total(matrix)));
    belay_optimizer_step(o);
    expect_values(w, 1);
    belay_tensor_grad_clear(w);
    belay_backward(product);
    expect_values(belay_tensor_grad(w), 3);
    belay_backward(moved);
    expect_values(belay_tensor_grad(w), 5);
    belay_backward(ratio);
    belay_backward(linear);
    belay_backward(normed);
    told_close(context);
}

/* Ids of a buffer that is filled again: what x gets does not depend on them. */
static void ids_of_an_addition_are_read_for_the_gradient_of_what_was_added_alone(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t first[] = {0, 1}, next[] = {1, 1};
    belay_tensor w = named_leaf(context, "w", 2), rows = told_f32(context, belay_shape1(2), (const float[]){3, 3});
    belay_tensor ids = belay_tensor_from(context, BELAY_I64, belay_shape1(2), first, sizeof first);
    belay_tensor sum = total(belay_index_add(w, 0, ids, rows, 1, NULL));
    assert_int_equal(belay_tensor_write(ids, next, sizeof next), BELAY_OK);
    belay_backward(sum);
    expect_values(belay_tensor_grad(w), 1);
    told_expect("%s", "");
    belay_tensor_requires_grad_set(rows, true);
    sum = total(belay_index_add(w, 0, ids, rows, 1, NULL));
    assert_int_equal(belay_tensor_write(ids, first, sizeof first), BELAY_OK);
    belay_backward(sum);
    assert_non_null(strstr(told(),
                           "belay: backward of index_add reads ids [2], which was written after the forward had "
                           "read it (life.tape)\n"));
    belay_close(context);
}

/* The same values, of which nothing walks back. */
static belay_tensor apart(belay_context *context, belay_tensor x)
{
    bool was = belay_recording_set(context, false);
    belay_tensor view = belay_view(x, belay_tensor_shape(x));
    belay_recording_set(context, was);
    return view;
}

/* Generator and discriminator step in turn, as they should: each behind the last backward through its weights. */
static void a_gan_that_steps_in_turn_is_not_told(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor g = named_leaf(context, "g", 1), d = named_leaf(context, "d", 1);
    belay_tensor z = told_f32(context, belay_shape1(2), (const float[]){1, 2});
    belay_optimizer *of_g = belay_sgd_over(context, &g, 1, &(belay_sgd_options){.lr = 0.1});
    belay_optimizer *of_d = belay_sgd_over(context, &d, 1, &(belay_sgd_options){.lr = 0.1});
    for (int i = 0; i < 3; i++) {
        belay_tensor_grad_clear(g);
        belay_tensor_grad_clear(d);
        belay_tensor fake = belay_tanh(belay_mul(g, z));
        belay_backward(total(belay_sigmoid(belay_mul(d, apart(context, fake)))));
        belay_optimizer_step(of_d);
        belay_tensor_grad_clear(d);
        belay_backward(total(belay_neg(belay_sigmoid(belay_mul(d, fake)))));
        belay_optimizer_step(of_g);
        assert_true(belay_optimizer_is_applied(of_d) && belay_optimizer_is_applied(of_g));
    }
    told_close(context);
}

static void a_window_of_several_backwards_is_not_told(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor w = named_leaf(context, "w", 2), x = belay_zeros(context, BELAY_F32, belay_shape1(2));
    belay_optimizer *o = belay_sgd_over(context, &w, 1, &(belay_sgd_options){.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < 6; i++) { /* the batch comes into one buffer */
        assert_int_equal(belay_tensor_write(x, (const float[]){(float)i, 1}, 8), BELAY_OK);
        belay_backward(total(belay_exp(belay_mul(w, x))));
        if (i % 3 == 2) {
            belay_optimizer_step(o);
            belay_tensor_grad_clear(w);
        }
    }
    told_close(context);
}

static void running_statistics_go_on_between_forward_and_backward(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *norm = belay_batch_norm_module(context, &(belay_batch_norm_module_options){.channels = 2});
    belay_tensor x = belay_tensor_requires_grad_set(belay_full(context, BELAY_F32, belay_shape2(3, 2), 0.5), true);
    belay_tensor first = total(belay_forward(norm, x)), second = total(belay_forward(norm, x));
    belay_backward(second);
    belay_backward(first);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_between_forward_and_backward_is_told_and_reaches_nothing),
        cmocka_unit_test(a_write_into_a_result_that_backward_reads_is_told),
        cmocka_unit_test(a_copy_that_was_asked_for_counts_as_a_write),
        cmocka_unit_test(any_writer_and_any_view_of_the_storage_counts),
        cmocka_unit_test(a_modules_step_before_the_backward_of_another_loss_is_told_once_with_its_layer),
        cmocka_unit_test(a_recurrent_layers_weights_are_seen_too),
        cmocka_unit_test(what_a_function_saved_is_its_own_until_its_forward_ends),
        cmocka_unit_test(a_write_into_what_no_gradient_reads_is_not_told),
        cmocka_unit_test(ids_of_an_addition_are_read_for_the_gradient_of_what_was_added_alone),
        cmocka_unit_test(a_gan_that_steps_in_turn_is_not_told),
        cmocka_unit_test(a_window_of_several_backwards_is_not_told),
        cmocka_unit_test(running_statistics_go_on_between_forward_and_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
