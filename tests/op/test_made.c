/* SPDX-License-Identifier: Apache-2.0 */
/* What is made from nothing, dropout and sums of squares, whose values no formula of test_rows.c holds: evenly spaced and
 * equal values in every dtype, draws that lie as they should. */
#include "op/rows.h"

#include "base/rng.h"

enum { N = 4096 };

static belay_tensor made(belay_context *context, belay_tensor (*make)(belay_context *context, belay_dtype dtype),
                         belay_dtype dtype)
{
    MADE_THERE(context, make(context, dtype));
}

static belay_tensor threes(belay_context *context, belay_dtype dtype)
{
    return belay_full(context, dtype, belay_shape2(3, 5), 3);
}
static belay_tensor ones(belay_context *context, belay_dtype dtype)
{
    return belay_ones(context, dtype, belay_shape1(7));
}
static belay_tensor sevens(belay_context *context, belay_dtype dtype) { return belay_arange(context, dtype, 13, 2, 7); }
static belay_tensor halves(belay_context *context, belay_dtype dtype)
{
    return belay_arange(context, dtype, 13, 1.5, -0.5);
}
static belay_tensor uniform(belay_context *context, belay_dtype dtype)
{
    return belay_uniform(context, dtype, belay_shape1(N), -1, 3);
}
static belay_tensor normal(belay_context *context, belay_dtype dtype)
{
    return belay_normal(context, dtype, belay_shape1(N), 0.5, 2);
}

static void equal_and_evenly_spaced_values_are_written_out_in_every_dtype(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    for (belay_dtype dtype = BELAY_F32; dtype < BELAY_N_DTYPES; dtype++) {
        double want[15];
        for (int i = 0; i < 15; i++)
            want[i] = 3;
        if (dtype != BELAY_BOOL) /* which holds none */
            assert_numbers("full", made(context, threes, dtype), want, 0, 0);
        for (int i = 0; i < 7; i++)
            want[i] = 1;
        assert_numbers("ones", made(context, ones, dtype), want, 0, 0);
        for (int i = 0; i < 13; i++)
            want[i] = 2 + 7 * i;
        if (dtype != BELAY_BOOL)
            assert_numbers("arange", made(context, sevens, dtype), want, 0, 0);
        for (int i = 0; i < 13; i++)
            want[i] = 1.5 - 0.5 * i;
        if (belay_dtype_is_float(dtype))
            assert_numbers("arange", made(context, halves, dtype), want, 0, 0);
    }
    close_clean(context);
}

/* Mean and deviation of n draws, against theirs; five deviations of both are never passed by chance. */
static void assert_moments(const char *what, const double *v, double mean, double deviation, double kurtosis)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++)
        sum += v[i];
    for (int i = 0; i < N; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    double var = squares / N, spread = sqrt((kurtosis - 1) / N) * deviation * deviation;
    if (fabs(sum / N - mean) > 5 * deviation / sqrt(N) || fabs(var - deviation * deviation) > 5 * spread)
        fail_msg("%s: mean %g, variance %g", what, sum / N, var);
}

/* Element i is a function of the key and of i: the draw of the published generator. */
static void draws_are_those_of_the_generator(void **state)
{
    (void)state;
    static double u[N], z[N];
    belay_context *context = open_with(1);
    for (belay_dtype dtype = BELAY_F32; dtype <= BELAY_F16; dtype++) {
        const double near = dtype == BELAY_BF16 ? 0x1p-8 : dtype == BELAY_F16 ? 0x1p-11 : 0x1p-22;
        belay_position_set(context, 3, 5);
        read_numbers(made(context, uniform, dtype), u, N);
        read_numbers(made(context, normal, dtype), z, N);
        for (int i = 0; i < N; i++)
            assert_true(u[i] >= -1 && u[i] <= 3);
        assert_moments("uniform", u, 1, 4 / sqrt(12), 1.8);
        assert_moments("normal", z, 0.5, 2, 3);
        bl_rng_key key = {.seed = 7, .epoch = 3, .position = 5};
        for (int i = 0; i < N; i++) {
            key.ordinal = 0;
            assert_true(is_near(u[i], -1 + 4 * (double)bl_rng_uniform(bl_rng_word(&key, (uint64_t)i)), near, near));
            key.ordinal = 1;
            bl_rng_block b = bl_rng_at(&key, (uint64_t)i);
            double radius = sqrt(-2 * log(((double)b.word[0] + 0.5) * 0x1p-32));
            assert_true(is_near(z[i], 0.5 + 2 * radius * cos(2 * M_PI * (double)b.word[1] * 0x1p-32), near, near));
        }
    }
    close_clean(context);
}

static void dropout_drops_its_share_scales_the_rest_and_takes_the_same_back(void **state)
{
    (void)state;
    static double x[N], y[N], g[N];
    belay_context *context = open_with(1);
    for (belay_dtype dtype = BELAY_F32; dtype <= BELAY_F16; dtype++) {
        int n_dropped = 0;
        for (int i = 0; i < N; i++)
            x[i] = 1 + i % 7;
        belay_tensor leaf = belay_tensor_requires_grad_set(tensor_of(context, dtype, belay_shape1(N), x), true);
        belay_tensor dropped = belay_dropout(leaf, 0.75, true);
        read_numbers(dropped, y, N);
        belay_backward(belay_sum(dropped, NULL));
        read_numbers(belay_tensor_grad(leaf), g, N);
        for (int i = 0; i < N; i++) {
            n_dropped += y[i] == 0;
            assert_true(y[i] == 0 || y[i] == 4 * x[i]);
            assert_true(g[i] == (y[i] == 0 ? 0 : 4));
        }
        assert_true(fabs(n_dropped - 0.75 * N) < 5 * sqrt(N * 0.75 * 0.25));
    }
    close_clean(context);
}

static void dropout_of_all_is_zeros_and_only_in_training(void **state)
{
    (void)state;
    const double x[] = {1, -2, 3e38, INFINITY, NAN}, none[5] = {0};
    belay_context *context = open_with(1);
    for (belay_dtype dtype = BELAY_F32; dtype <= BELAY_F16; dtype++) {
        belay_tensor leaf = belay_tensor_requires_grad_set(tensor_of(context, dtype, belay_shape1(5), x), true);
        belay_tensor y = belay_dropout(leaf, 1, true), same = belay_dropout(leaf, 1, false);
        assert_numbers("training", y, none, 0, 0);
        belay_backward(belay_sum(y, NULL));
        assert_numbers("gradient", belay_tensor_grad(leaf), none, 0, 0);
        assert_true(same.slot == leaf.slot && same.generation == leaf.generation);
    }
    assert_string_equal(told, "");
    assert_true(belay_tensor_is_nil(belay_dropout(zeros_of(context, BELAY_F32, belay_shape1(5)), 1.5, true)));
    assert_int_equal(strncmp(told, "belay: dropout's p is 1.5, outside [0, 1] (conf.value)\n", 55), 0);
    belay_close(context);
}

static void sums_of_squares_are_two_plain_loops(void **state)
{
    (void)state;
    const int64_t size[8] = {3, 37, 5};
    double want[15];
    row_inputs r;
    row_draw(&r, BL_OP_sum_squares, size);
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < 5; i++) {
            want[o * 5 + i] = 0;
            for (int k = 0; k < 37; k++)
                want[o * 5 + i] += pow(r.v[0][(o * 37 + k) * 5 + i], 2) / r.params.f[0];
        }
    belay_context *context = open_with(1);
    bl_call call = row_call(context, &r, BELAY_F64, NULL);
    assert_true(row_run(&call));
    assert_numbers("sum_squares", call.out[0], want, 1e-14, 0);
    close_clean(context);
    row_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_and_evenly_spaced_values_are_written_out_in_every_dtype),
        cmocka_unit_test(draws_are_those_of_the_generator),
        cmocka_unit_test(dropout_drops_its_share_scales_the_rest_and_takes_the_same_back),
        cmocka_unit_test(dropout_of_all_is_zeros_and_only_in_training),
        cmocka_unit_test(sums_of_squares_are_two_plain_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
