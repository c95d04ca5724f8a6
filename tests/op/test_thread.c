/* SPDX-License-Identifier: Apache-2.0 */
/* The thin thread through every border: row -> cpu -> tape -> fault -> journal, with three ops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <belay/grad.h>
#include <belay/op.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/words.h"

static char told[8192];

static void remember(void *state, belay_code code, const char *text)
{
    (void)state, (void)code;
    strncat(told, text, sizeof told - strlen(told) - 1);
}

static belay_context *open_cpu(void)
{
    told[0] = '\0';
    return belay_open(&(belay_options){.log = remember, .no_journal = true});
}

static belay_tensor from_f32(belay_context *context, belay_shape shape, const float *values)
{
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++)
        n *= shape.size[i];
    return belay_tensor_from(context, BELAY_F32, shape, values, n * 4);
}

static void embedding_linear_and_layer_norm_have_the_gradients_of_their_formulas(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    const float table[] = {1, 2, 3, 4, 5, 6}, weights[] = {1, 0, 2, 1};
    const int64_t ids[] = {2, 0, 2};
    belay_tensor w = belay_tensor_requires_grad_set(from_f32(context, belay_shape2(3, 2), table), true);
    belay_tensor m = belay_tensor_requires_grad_set(from_f32(context, belay_shape2(2, 2), weights), true);
    belay_tensor i = belay_tensor_from(context, BELAY_I64, belay_shape1(3), ids, sizeof ids);
    belay_scope scope = belay_scope_open(context);
    belay_tensor y = belay_linear(belay_embedding(w, i, NULL), m, (belay_tensor){0});
    float out[6], grad[6];
    assert_int_equal(belay_tensor_read(y, out, sizeof out), BELAY_OK);
    const float expected[] = {5, 16, 1, 4, 5, 16};
    assert_memory_equal(out, expected, sizeof out);
    belay_backward(belay_sum(y, NULL));
    belay_scope_close(scope);
    assert_int_equal(belay_tensor_read(belay_tensor_grad(w), grad, sizeof grad), BELAY_OK);
    const float by_row[] = {3, 1, 0, 0, 6, 2};
    assert_memory_equal(grad, by_row, sizeof grad);
    assert_int_equal(belay_tensor_read(belay_tensor_grad(m), grad, 16), BELAY_OK);
    const float by_column[] = {11, 14, 11, 14};
    assert_memory_equal(grad, by_column, 16);
    assert_string_equal(told, "");
    assert_int_equal(belay_close(context), 0);
}

static void bad_id_is_named_with_the_lowest_element(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    const int32_t ids[] = {0, 1, 3, -1, 0, 3};
    belay_tensor w = belay_tensor_name_set(belay_zeros(context, BELAY_F32, belay_shape2(3, 2)), "embedding.weight");
    belay_tensor i = belay_tensor_from(context, BELAY_I32, belay_shape2(2, 3), ids, sizeof ids);
    belay_tensor_name_set(i, "tokens");
    int line = __LINE__ + 1;
    belay_embedding(w, i, NULL);
    char text[1024];
    snprintf(text, sizeof text,
             "belay: tokens[0, 2] is 3, outside [0, 3) of embedding.weight (index.range)\n"
             "    op: embedding, called at test_thread.c:%d\n"
             "    tensors: embedding.weight [3, 2] f32; tokens [2, 3] i32; on cpu\n"
             "    bad: 3 of 6 elements; values 3, -1\n"
             "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
             "    likely: the value equals the bound: off by one, or a padding or special id that the table was not "
             "grown for\n"
             "    try: Count ids from 0; a padding or special token needs a row of its own: make the table one row "
             "larger.\n",
             line);
    assert_words_equal(told, text);
    assert_int_equal(belay_close(context), 3);
}

static void layer_norm_normalises_rows(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    const float x[] = {1, 2, 3, 4, -2, 0, 2, 8};
    belay_tensor in = belay_tensor_requires_grad_set(from_f32(context, belay_shape2(2, 4), x), true);
    belay_tensor y = belay_layer_norm(in, 1, (belay_tensor){0}, (belay_tensor){0}, 0);
    float out[8];
    assert_int_equal(belay_tensor_read(y, out, sizeof out), BELAY_OK);
    for (int r = 0; r < 2; r++) {
        double sum = 0, squares = 0;
        for (int j = 0; j < 4; j++) {
            sum += (double)out[4 * r + j];
            squares += (double)(out[4 * r + j] * out[4 * r + j]);
        }
        assert_true(fabs(sum) < 1e-5);
        assert_true(fabs(squares / 4 - 1) < 1e-3);
    }
    belay_backward(belay_sum(belay_mul(y, y), NULL));
    assert_int_equal(belay_tensor_read(belay_tensor_grad(in), out, sizeof out), BELAY_OK);
    for (int j = 0; j < 8; j++)
        assert_true(fabsf(out[j]) < 1e-3f);
    assert_string_equal(told, "");
    assert_int_equal(belay_close(context), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_linear_and_layer_norm_have_the_gradients_of_their_formulas),
        cmocka_unit_test(bad_id_is_named_with_the_lowest_element),
        cmocka_unit_test(layer_norm_normalises_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
