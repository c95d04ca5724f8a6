/* SPDX-License-Identifier: Apache-2.0 */
/* Autocast: which op runs in what, that gradients come back in the leaf's dtype, what is cast once, and that regions
 * nest and faults read as without it. */
#include "support/told.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <belay/amp.h>
#include <belay/devices.h>
#include <belay/dlpack.h>
#include <belay/dlpack_abi.h>
#include <belay/nn.h>

#include "tensor/context.h"

enum { IN = 3, OUT = 2 };

static belay_tensor ramp(belay_context *context, belay_shape shape, bool is_leaf)
{
    float values[64];
    for (int i = 0; i < 64; i++)
        values[i] = 0.25f * (float)(i % 7) - 0.5f;
    return is_leaf ? told_leaf(context, shape, values) : told_f32(context, shape, values);
}

static void assert_dtype(belay_tensor tensor, belay_dtype dtype)
{
    assert_int_equal(belay_tensor_dtype(tensor), dtype);
}

static void products_run_lower_and_sums_in_f32_and_gradients_come_back_as_the_leaf(void **state)
{
    (void)state;
    static const belay_dtype dtypes[] = {BELAY_BF16, BELAY_F16};
    for (int d = 0; d < 2; d++) {
        belay_context *context = told_open();
        belay_tensor x = ramp(context, belay_shape2(4, IN), true), w = ramp(context, belay_shape2(OUT, IN), true);
        belay_tensor b = ramp(context, belay_shape1(OUT), true);
        belay_autocast cast = belay_autocast_open(context, dtypes[d]);
        belay_tensor y = belay_linear(x, w, b), p = belay_softmax(y, -1), r = belay_relu(y);
        belay_tensor loss = belay_sum(belay_mul(r, r), NULL);
        belay_autocast_close(cast);
        assert_dtype(y, dtypes[d]);
        assert_dtype(r, dtypes[d]);
        assert_dtype(p, BELAY_F32);
        assert_dtype(loss, BELAY_F32);
        belay_backward(loss);
        assert_dtype(belay_tensor_grad(x), BELAY_F32);
        assert_dtype(belay_tensor_grad(w), BELAY_F32);
        assert_dtype(belay_tensor_grad(b), BELAY_F32);
        told_close(context);
    }
}

static void regions_nest_and_give_back_what_was(void **state)
{
    (void)state;
    belay_context *context = told_open();
    assert_int_equal(belay_autocast_get(context), BELAY_F32);
    belay_autocast outer = belay_autocast_open(context, BELAY_BF16);
    belay_autocast off = belay_autocast_open(context, BELAY_F32);
    assert_int_equal(belay_autocast_get(context), BELAY_F32);
    belay_tensor x = ramp(context, belay_shape2(2, 2), false);
    assert_dtype(belay_matmul(x, x), BELAY_F32);
    belay_autocast inner = belay_autocast_open(context, BELAY_F16);
    assert_dtype(belay_matmul(x, x), BELAY_F16);
    belay_autocast_close(inner);
    assert_int_equal(belay_autocast_get(context), BELAY_F32);
    belay_autocast_close(off);
    assert_dtype(belay_matmul(x, x), BELAY_BF16);
    belay_autocast_close(outer);
    assert_dtype(belay_matmul(x, x), BELAY_F32);
    told_close(context);
}

static void regions_out_of_order_are_told(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_autocast outer = belay_autocast_open(context, BELAY_BF16), inner = belay_autocast_open(context, BELAY_F16);
    int line = __LINE__ + 1;
    belay_autocast_close(outer);
    told_expect("belay: an autocast region was closed while 1 inside of it is open (life.scope)\n"
                "    called at: test_autocast.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_SCOPE));
    assert_int_equal(belay_autocast_get(context), BELAY_F32);
    line = __LINE__ + 1;
    belay_autocast_close(inner);
    told_expect("belay: an autocast region was closed that is not open (0 are) (life.scope)\n"
                "    called at: test_autocast.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_SCOPE));
    line = __LINE__ + 1;
    belay_autocast none = belay_autocast_open(context, BELAY_F64);
    told_expect("belay: autocast to f64: bf16 and f16 are taken, and f32 for none (conf.value)\n"
                "    called at: test_autocast.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_VALUE));
    belay_autocast_close(none);
    for (int i = 0; i < BL_MAX_AUTOCASTS; i++)
        belay_autocast_open(context, BELAY_BF16);
    line = __LINE__ + 1;
    belay_autocast_open(context, BELAY_BF16);
    told_expect("belay: 32 autocast regions are open, the most that there can be (life.scope)\n"
                "    called at: test_autocast.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_SCOPE));
    belay_close(context);
}

static void operands_that_differ_become_the_widest_and_f64_is_let_alone(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor wide = ramp(context, belay_shape1(4), false), low = belay_cast(wide, BELAY_BF16);
    belay_tensor other = belay_cast(wide, BELAY_F16), twice = belay_cast(wide, BELAY_F64);
    const belay_tensor both[] = {low, wide};
    belay_autocast cast = belay_autocast_open(context, BELAY_BF16);
    assert_dtype(belay_add(low, wide), BELAY_F32);
    assert_dtype(belay_add(low, other), BELAY_F32);
    assert_dtype(belay_add(low, low), BELAY_BF16);
    assert_dtype(belay_cat(both, 2, 0), BELAY_F32);
    assert_dtype(belay_exp(low), BELAY_F32);
    assert_dtype(belay_exp(twice), BELAY_F64);
    assert_dtype(belay_matmul(twice, twice), BELAY_F64);
    belay_autocast_close(cast);
    told_expect("%s", "");
    assert_true(belay_tensor_is_nil(belay_add(low, wide)));
    assert_true(words_have(told(), "(type.dtype)"));
    belay_close(context);
}

/* Launches of one use of a linear layer. */
static int64_t launches(belay_context *context, belay_tensor x, belay_tensor w, belay_tensor b)
{
    uint64_t before = context->n_launches;
    belay_scope scope = belay_scope_open(context);
    belay_linear(x, w, b);
    belay_scope_close(scope);
    return (int64_t)(context->n_launches - before);
}

static void a_weight_is_cast_once_in_a_region_until_it_changes(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = ramp(context, belay_shape2(4, IN), false);
    belay_tensor leaf[2] = {ramp(context, belay_shape2(OUT, IN), true), ramp(context, belay_shape1(OUT), true)};
    belay_optimizer *sgd = belay_sgd_over(context, leaf, 2, &(belay_sgd_options){.lr = 0.1});
    belay_autocast cast = belay_autocast_open(context, BELAY_BF16);
    assert_int_equal(launches(context, x, leaf[0], leaf[1]), 5); /* x, weight, bias, product, sum */
    assert_int_equal(launches(context, x, leaf[0], leaf[1]), 3);
    belay_autocast inner = belay_autocast_open(context, BELAY_BF16);
    assert_int_equal(launches(context, x, leaf[0], leaf[1]), 3);
    belay_autocast_close(inner);
    assert_int_equal(launches(context, x, leaf[0], leaf[1]), 3);
    belay_backward(belay_sum(belay_linear(x, leaf[0], leaf[1]), NULL));
    belay_optimizer_step(sgd);
    assert_int_equal(launches(context, x, leaf[0], leaf[1]), 5);
    const float bias[OUT] = {1, 2};
    assert_int_equal(belay_tensor_write(leaf[1], bias, sizeof bias), BELAY_OK);
    assert_int_equal(launches(context, x, leaf[0], leaf[1]), 4);
    float y[4 * OUT];
    told_read(belay_cast(belay_linear(belay_affine(x, 0, 0), leaf[0], leaf[1]), BELAY_F32), y, 4 * OUT);
    assert_true(y[0] == 1 && y[1] == 2);
    const float later[OUT] = {3, 4};
    belay_host host = belay_host_new(context, sizeof later);
    memcpy(belay_host_data(host), later, sizeof later);
    assert_int_equal(belay_tensor_write_later(leaf[1], host, 0, sizeof later), BELAY_OK);
    told_read(belay_cast(belay_linear(belay_affine(x, 0, 0), leaf[0], leaf[1]), BELAY_F32), y, 4 * OUT);
    assert_true(y[0] == 3 && y[1] == 4);
    belay_host_free(host);
    belay_autocast_close(cast);
    cast = belay_autocast_open(context, BELAY_BF16);
    assert_int_equal(launches(context, x, leaf[0], leaf[1]), 5);
    belay_autocast_close(cast);
    told_close(context);
}

/* Two backwards in one region, each in a scope that closes. */
static void a_region_may_hold_many_backwards(void **state)
{
    (void)state;
    belay_context *context = told_open();
    float once[IN * OUT], twice[IN * OUT];
    belay_tensor x = ramp(context, belay_shape2(4, IN), false), w = ramp(context, belay_shape2(OUT, IN), true);
    belay_tensor none = {0};
    belay_autocast cast = belay_autocast_open(context, BELAY_F16);
    for (int i = 0; i < 2; i++) {
        belay_scope scope = belay_scope_open(context);
        belay_backward(belay_sum(belay_linear(x, w, none), NULL));
        belay_scope_close(scope);
        told_read(belay_tensor_grad(w), i == 0 ? once : twice, IN * OUT);
    }
    belay_autocast_close(cast);
    for (int i = 0; i < IN * OUT; i++)
        assert_true(twice[i] == 2 * once[i]);
    told_close(context);
}

/* Its owner writes it with nobody told. */
static void a_weight_that_another_library_shares_is_cast_anew(void **state)
{
    (void)state;
    belay_context *context = told_open();
    float got[4];
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape2(4, 1)), none = {0};
    belay_tensor w = belay_tensor_requires_grad_set(belay_ones(context, BELAY_F32, belay_shape2(1, 1)), true);
    DLManagedTensor *shared = belay_tensor_to_dlpack(w);
    float *value = shared->dl_tensor.data;
    belay_autocast cast = belay_autocast_open(context, BELAY_BF16);
    for (int i = 1; i <= 3; i++) {
        *value = (float)i;
        told_read(belay_cast(belay_linear(x, w, none), BELAY_F32), got, 4);
        assert_true(got[0] == (float)i && got[3] == (float)i);
    }
    belay_autocast_close(cast);
    shared->deleter(shared);
    told_close(context);
}

static void sixteen_bit_products_add_up_in_f32(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor row = belay_ones(context, BELAY_BF16, belay_shape2(1, 4096));
    belay_tensor column = belay_ones(context, BELAY_BF16, belay_shape2(4096, 1));
    float sum; /* adding ones in bf16 would stop at 256 */
    told_read(belay_cast(belay_matmul(row, column), BELAY_F32), &sum, 1);
    assert_true(sum == 4096);
    told_close(context);
}

/* The same words but for the dtypes that the op was run in. */
static void a_fault_reads_as_without_autocast(void **state)
{
    (void)state;
    char plain[4096];
    belay_context *context = told_open();
    belay_tensor a = ramp(context, belay_shape2(2, 3), true), b = ramp(context, belay_shape2(2, 2), true);
    belay_tensor_name_set(a, "a_name");
    for (int round = 0; round < 2; round++) {
        belay_autocast cast = belay_autocast_open(context, round == 0 ? BELAY_F32 : BELAY_BF16);
        belay_matmul(a, b);
        belay_autocast_close(cast);
        if (round == 0)
            snprintf(plain, sizeof plain, "%s", told());
        else
            assert_words_equal(told(), plain);
        told_clear();
    }
    assert_true(strstr(plain, "matmul") != NULL && strstr(plain, "a_name") != NULL);
    belay_close(context);
}

/* ---- functions of the user's own ---- */

static void product_forward(belay_function_call *call, void *self, const belay_tensor *in, int n_in, belay_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = belay_matmul(in[0], in[1]);
    belay_function_save(call, in[0]);
    belay_function_save(call, in[1]);
}

static void product_backward(belay_function_call *call, void *self, const belay_tensor *grad_out, int n_out,
                             belay_tensor *grad_in, int n_in)
{
    (void)self, (void)n_out, (void)n_in;
    grad_in[0] = belay_matmul(grad_out[0], belay_transpose(belay_function_saved(call, 1), 0, 1));
    grad_in[1] = belay_matmul(belay_transpose(belay_function_saved(call, 0), 0, 1), grad_out[0]);
}

static const belay_function product = {.name = "product", .forward = product_forward, .backward = product_backward};

static void a_function_walks_back_under_what_its_forward_ran_under(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor in[2] = {ramp(context, belay_shape2(3, 3), true), ramp(context, belay_shape2(3, 3), true)}, out;
    belay_autocast cast = belay_autocast_open(context, BELAY_BF16);
    belay_function_apply(context, &product, NULL, in, 2, 0, &out, 1);
    belay_tensor loss = belay_sum(out, NULL);
    belay_autocast_close(cast);
    assert_dtype(out, BELAY_BF16);
    belay_backward(loss);
    assert_dtype(belay_tensor_grad(in[0]), BELAY_F32);
    assert_dtype(belay_tensor_grad(in[1]), BELAY_F32);
    told_close(context);
}

/* ---- lstm ---- */

static double lstm_loss(belay_context *context, belay_module *lstm, belay_dtype dtype, float *gradient, int64_t n)
{
    belay_autocast cast = belay_autocast_open(context, dtype);
    belay_tensor y = belay_forward(lstm, ramp(context, belay_shape3(2, 5, IN), false));
    assert_dtype(y, dtype);
    belay_tensor loss = belay_sum(belay_mul(y, y), NULL);
    belay_autocast_close(cast);
    belay_backward(loss);
    belay_tensor weight = belay_module_parameter(lstm, 0);
    assert_dtype(weight, BELAY_F32);
    assert_dtype(belay_tensor_grad(weight), BELAY_F32);
    told_read(belay_tensor_grad(weight), gradient, n);
    for (int64_t i = 0; i < belay_module_n_parameters(lstm); i++)
        belay_tensor_grad_clear(belay_module_parameter(lstm, i));
    return belay_tensor_item(loss);
}

static void an_lstm_runs_lower_whole_and_is_close(void **state)
{
    (void)state;
    enum { HIDDEN = 4, N = 4 * HIDDEN * IN };
    belay_context *context = told_open();
    belay_module *lstm =
        belay_lstm_module(context, &(belay_lstm_module_options){.in = IN, .hidden = HIDDEN, .layers = 2});
    float exact[N], low[N];
    double loss = lstm_loss(context, lstm, BELAY_F32, exact, N);
    const belay_dtype dtypes[] = {BELAY_BF16, BELAY_F16};
    const double steps[] = {0x1p-8, 0x1p-11};
    for (int d = 0; d < 2; d++) {
        assert_true(fabs(lstm_loss(context, lstm, dtypes[d], low, N) - loss) <= 20 * steps[d] * fabs(loss));
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)low[i] - (double)exact[i]) <= 20 * steps[d] * (0.05 + fabs((double)exact[i])));
    }
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_run_lower_and_sums_in_f32_and_gradients_come_back_as_the_leaf),
        cmocka_unit_test(regions_nest_and_give_back_what_was),
        cmocka_unit_test(regions_out_of_order_are_told),
        cmocka_unit_test(operands_that_differ_become_the_widest_and_f64_is_let_alone),
        cmocka_unit_test(a_weight_is_cast_once_in_a_region_until_it_changes),
        cmocka_unit_test(a_region_may_hold_many_backwards),
        cmocka_unit_test(a_weight_that_another_library_shares_is_cast_anew),
        cmocka_unit_test(sixteen_bit_products_add_up_in_f32),
        cmocka_unit_test(a_fault_reads_as_without_autocast),
        cmocka_unit_test(a_function_walks_back_under_what_its_forward_ran_under),
        cmocka_unit_test(an_lstm_runs_lower_whole_and_is_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
