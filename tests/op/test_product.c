/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products against three plain loops, and casts between every two dtypes against their rule. */
#include "op/numbers.h"

/* ---- products -------------------------------------------------------------------------------------------------------- */

static void multiply(const double *a, const double *b, double *y, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            y[i * n + j] = 0;
            for (int64_t l = 0; l < k; l++)
                y[i * n + j] += a[i * k + l] * b[l * n + j];
        }
}

/* Multiples of 1/8 whose products and sums every float dtype but for the last rounding holds. */
static void draw_eighths(double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = nearbyint(draw(-2, 2) * 8) / 8;
}

static void products_are_three_loops_in_every_layout_and_dtype(void **state)
{
    (void)state;
    static double a[130 * 40], b[40 * 70], want[130 * 70];
    const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 2}, {130, 40, 70}, {2, 0, 3}, {0, 4, 3}, {4, 3, 0}, {1, 33, 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (belay_dtype dtype = BELAY_F32; dtype <= BELAY_F16; dtype++)
            for (int layout = 0; layout < 4; layout++) {
                const int64_t m = sizes[s][0], k = sizes[s][1], n = sizes[s][2];
                draw_eighths(a, m * k);
                draw_eighths(b, k * n);
                multiply(a, b, want, m, k, n);
                belay_context *context = open_with(1);
                belay_tensor x = tensor_of(context, dtype, belay_shape2(m, k), a);
                belay_tensor w = tensor_of(context, dtype, belay_shape2(k, n), b);
                if (layout & 1)
                    x = belay_transpose(belay_contiguous(belay_transpose(x, 0, 1)), 0, 1);
                if (layout & 2)
                    w = belay_transpose(belay_contiguous(belay_transpose(w, 0, 1)), 0, 1);
                belay_tensor y = belay_matmul(x, w);
                double relative = dtype == BELAY_BF16 ? 0x1p-8 : dtype == BELAY_F16 ? 0x1p-11 : 0;
                assert_shape(y, belay_shape2(m, n));
                assert_int_equal(belay_tensor_dtype(y), dtype);
                assert_numbers("matmul", y, want, relative, relative / 64);
                y = belay_linear(x, belay_contiguous(belay_transpose(w, 0, 1)), (belay_tensor){0});
                assert_numbers("linear", y, want, relative, relative / 64);
                close_clean(context);
            }
}

static belay_tensor product_of(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c;
    const int *flags = s;
    belay_tensor a = (*flags & 1) ? belay_transpose(in[0], -1, -2) : in[0];
    return belay_matmul(a, (*flags & 2) ? belay_transpose(in[1], -1, -2) : in[1]);
}
static belay_tensor linear_of(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c, (void)s;
    return belay_linear(in[0], in[1], in[2]);
}

static void gradients_of_products_are_their_slopes(void **state)
{
    (void)state;
    double a[64], b[64], bias[4], *values[] = {a, b, bias};
    const belay_shape pairs[][2] = {
        {belay_shape2(3, 4), belay_shape2(4, 2)},       {belay_shape3(2, 3, 4), belay_shape3(2, 4, 2)},
        {belay_shape3(2, 3, 4), belay_shape2(4, 2)},    {belay_shape2(3, 4), belay_shape3(2, 4, 2)},
        {belay_shape3(1, 3, 4), belay_shape3(2, 4, 2)}, {belay_shape4(2, 1, 3, 2), belay_shape3(3, 2, 2)},
    };
    belay_context *context = open_with(1);
    draw_many(a, 64, -1, 1);
    draw_many(b, 64, -1, 1);
    draw_many(bias, 4, -1, 1);
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
        for (int flags = 0; flags < 4; flags++) {
            belay_shape shapes[2] = {pairs[p][0], pairs[p][1]};
            for (int k = 0; k < 2; k++)
                if (flags >> k & 1) {
                    int64_t *last = &shapes[k].size[shapes[k].rank - 1], rows = last[-1];
                    last[-1] = last[0];
                    last[0] = rows;
                }
            assert_gradients("matmul", context, product_of, &flags, 2, shapes, values);
        }
    int flags = 0;
    const belay_shape vectors[][2] = {{belay_shape1(4), belay_shape1(4)},
                                      {belay_shape1(4), belay_shape2(4, 3)},
                                      {belay_shape3(2, 3, 4), belay_shape1(4)}};
    for (size_t p = 0; p < 3; p++)
        assert_gradients("matmul", context, product_of, &flags, 2, vectors[p], values);
    const belay_shape three[] = {belay_shape3(2, 3, 5), belay_shape2(4, 5), belay_shape1(4)};
    assert_gradients("linear", context, linear_of, NULL, 3, three, values);
    close_clean(context);
}

static void a_batch_of_products_is_proved_and_broadcasts_nothing(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double v[24], want[12];
    draw_many(v, 24, -2, 2);
    belay_tensor a = tensor_of(context, BELAY_F64, belay_shape3(2, 3, 4), v);
    belay_tensor b = tensor_of(context, BELAY_F64, belay_shape3(2, 4, 2), v);
    read_numbers(belay_matmul(a, b), want, 12);
    assert_shape(belay_bmm(a, b), belay_shape3(2, 3, 2));
    assert_numbers("bmm", belay_bmm(a, b), want, 0, 0);
    const struct {
        belay_tensor b;
        belay_code code;
        const char *what, *shape;
    } bad[] = {
        {zeros_of(context, BELAY_F64, belay_shape2(4, 2)), BELAY_SHAPE_RANK,
         "bmm takes [batch, rows, inner] and [batch, inner, columns], not 3 and 2 axes", "[4, 2]"},
        {zeros_of(context, BELAY_F64, belay_shape3(1, 4, 2)), BELAY_SHAPE_CONTRACT,
         "a is a batch of 2, b one of 1: bmm broadcasts nothing", "[1, 4, 2]"},
        {zeros_of(context, BELAY_F64, belay_shape3(2, 3, 2)), BELAY_SHAPE_CONTRACT,
         "inner sizes differ: a has 4 columns, b has 3 rows", "[2, 3, 2]"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[1024];
        told[0] = '\0';
        assert_true(belay_tensor_is_nil(belay_bmm(a, bad[i].b)));
        snprintf(text, sizeof text,
                 "belay: %s (%s)\n    op: bmm, called at test_product.c:%d\n"
                 "    tensors: a [2, 3, 4] f64; b %s f64; on %s\n"
                 "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n    try: %s\n",
                 bad[i].what, belay_code_name(bad[i].code), __LINE__ - 5, bad[i].shape,
                 made_at != NULL ? made_at : "cpu", belay_code_advice(bad[i].code));
        assert_words_equal(told, text);
    }
    told[0] = '\0';
    assert_true(belay_tensor_is_nil(belay_bmm(a, (belay_tensor){0})));
    assert_string_equal(told, "");
    belay_close(context);
}

/* ---- casts ----------------------------------------------------------------------------------------------------------- */

/* Floats to integers: cut, to the nearest end, NaN to 0; integers wrap; anything but 0 is true. */
static double cast_of(belay_dtype from, belay_dtype to, double v)
{
    const double low[] = {[BELAY_I64] = -0x1p63, [BELAY_I32] = INT32_MIN, [BELAY_U16] = 0, [BELAY_U8] = 0};
    const double high[] = {[BELAY_I64] = 0x1p63, [BELAY_I32] = INT32_MAX, [BELAY_U16] = UINT16_MAX, [BELAY_U8] = 255};
    if (to == BELAY_BOOL)
        return v != 0;
    if (belay_dtype_is_float(to))
        return v;
    if (belay_dtype_is_float(from))
        return isnan(v) ? 0 : fmin(fmax(trunc(v), low[to]), high[to]);
    int64_t whole = (int64_t)v;
    return to == BELAY_I64   ? (double)whole
           : to == BELAY_I32 ? (double)(int32_t)(uint32_t)(uint64_t)whole
           : to == BELAY_U16 ? (double)(uint16_t)(uint64_t)whole
                             : (double)(uint8_t)(uint64_t)whole;
}

static void casts_follow_their_rule_between_every_two_dtypes(void **state)
{
    (void)state;
    enum { N = 600 };
    double v[N], held[N], want[N];
    belay_context *context = open_with(1);
    for (belay_dtype from = BELAY_F32; from < BELAY_N_DTYPES; from++)
        for (belay_dtype to = BELAY_F32; to < BELAY_N_DTYPES; to++) {
            for (int i = 0; i < N; i++)
                v[i] = i % 7 == 0 ? -1.75 * i : i % 7 == 1 ? 300.5 + i : (double)(i % 200);
            if (belay_dtype_is_float(from)) {
                v[3] = NAN;
                v[4] = INFINITY;
                v[5] = -INFINITY;
                v[6] = from == BELAY_F16 ? 60000 : 3e9;
            }
            belay_tensor x = tensor_of(context, from, belay_shape2(N / 2, 2), v);
            assert_int_equal(read_numbers(x, held, N), N);
            double relative = to == BELAY_BF16 ? 0x1p-8 : to == BELAY_F16 ? 0x1p-11 : to == BELAY_F32 ? 0x1p-24 : 0;
            for (int i = 0; i < N; i++) {
                want[i] = cast_of(from, to, held[i]);
                if (to == BELAY_F16 && fabs(want[i]) > 65504)
                    want[i] = copysign(INFINITY, want[i]);
            }
            assert_numbers("cast", belay_cast(x, to), want, relative, 0);
            for (int i = 0; i < N / 2; i++) { /* the second column, then the first, as rows */
                held[i] = want[2 * i];
                held[N / 2 + i] = want[2 * i + 1];
            }
            assert_numbers("strided cast", belay_cast(belay_transpose(x, 0, 1), to), held, relative, 0);
        }
    close_clean(context);
}

static void gradient_of_a_cast_comes_back_in_the_first_dtype(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double v[] = {1, 2, 3}, want[] = {2, 4, 6};
    belay_tensor x = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape1(3), v), true);
    belay_tensor y = belay_cast(x, BELAY_F64);
    belay_backward(belay_sum(belay_mul(y, y), NULL));
    assert_int_equal(belay_tensor_dtype(belay_tensor_grad(x)), BELAY_F32);
    assert_numbers("gradient", belay_tensor_grad(x), want, 0, 0);
    close_clean(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_three_loops_in_every_layout_and_dtype),
        cmocka_unit_test(gradients_of_products_are_their_slopes),
        cmocka_unit_test(a_batch_of_products_is_proved_and_broadcasts_nothing),
        cmocka_unit_test(casts_follow_their_rule_between_every_two_dtypes),
        cmocka_unit_test(gradient_of_a_cast_comes_back_in_the_first_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
