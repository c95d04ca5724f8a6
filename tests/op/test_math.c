/* SPDX-License-Identifier: Apache-2.0 */
/* How far the f32 functions of kernel/math.h lie from the true values, in units of the last place, over dense sweeps of
 * their whole range.  The bounds stand there. */
#include "op/numbers.h"

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Distance of two neighbours at the true value. */
static double ulp_at(double want)
{
    double a = fabs(want);
    return a < 0x1p-126 ? 0x1p-149 : exp2(floor(log2(a)) - 23);
}

typedef belay_tensor (*function)(belay_tensor x);
typedef double (*reference)(double x);

enum { CHUNK = 1 << 16 };

/* The largest error over all floats of both signs below `end`, `step` bit patterns apart. */
static double worst_ulp(function f, reference true_value, double end, uint32_t step)
{
    static float x[CHUNK], y[CHUNK];
    belay_context *context = open_with(1);
    double worst = 0;
    float top = (float)end;
    uint32_t last, bits = 0;
    memcpy(&last, &top, sizeof last);
    while (bits <= last) {
        int n = 0;
        for (; n < CHUNK && bits <= last; bits += step) {
            x[n++] = float_of(bits);
            x[n++] = float_of(bits | 0x80000000u);
        }
        belay_scope scope = belay_scope_open(context);
        belay_tensor out = f(from_bytes(context, BELAY_F32, belay_shape1(n), x, n * 4));
        assert_int_equal(belay_tensor_read(out, y, n * 4), BELAY_OK);
        belay_scope_close(scope);
        for (int i = 0; i < n; i++) {
            double want = true_value((double)x[i]), error = fabs((double)y[i] - want) / ulp_at(want);
            if (fabs(want) > 3.4028235677973366e38) /* rounds to infinity */
                error = isinf(y[i]) ? 0 : INFINITY;
            if (error > worst)
                worst = error;
        }
    }
    close_clean(context);
    return worst;
}

static double true_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double true_gelu(double x) { return 0.5 * x * erfc(-x * M_SQRT1_2); }

static void exp_is_within_its_bound(void **state)
{
    (void)state;
    double worst = worst_ulp(belay_exp, exp, 110, 997);
    print_message("exp: %.3f ulp\n", worst);
    assert_true(worst < 1);
}

static void tanh_is_within_its_bound(void **state)
{
    (void)state;
    double worst = worst_ulp(belay_tanh, tanh, 30, 997);
    print_message("tanh: %.3f ulp\n", worst);
    assert_true(worst < 1.5);
}

static void sigmoid_is_within_its_bound(void **state)
{
    (void)state;
    double worst = worst_ulp(belay_sigmoid, true_sigmoid, 87, 997);
    print_message("sigmoid: %.3f ulp\n", worst);
    assert_true(worst < 2.5);
}

/* gelu loses digits where it goes to zero on the left, as PyTorch's does; elsewhere it does not. */
static void gelu_is_within_its_bound(void **state)
{
    (void)state;
    float x[4096], y[4096];
    belay_context *context = open_with(1);
    for (int i = 0; i < 4096; i++)
        x[i] = (float)(i - 2048) / 128;
    belay_tensor out = belay_gelu(from_bytes(context, BELAY_F32, belay_shape1(4096), x, sizeof x));
    assert_int_equal(belay_tensor_read(out, y, sizeof y), BELAY_OK);
    for (int i = 0; i < 4096; i++)
        assert_true(is_near((double)y[i], true_gelu((double)x[i]), 4e-7, 5e-7));
    close_clean(context);
}

static void functions_meet_their_ends(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double x[] = {INFINITY, -INFINITY, 0, -0.0, 88.7, 88.8, -103, -104, 1e30, -1e30};
    const double e[] = {INFINITY, 0, 1, 1, exp(88.7), INFINITY, exp(-103), 0, INFINITY, 0};
    const double t[] = {1, -1, 0, -0.0, 1, 1, -1, -1, 1, -1}, s[] = {1, 0, 0.5, 0.5, 1, 1, 0, 0, 1, 0};
    belay_tensor in = tensor_of(context, BELAY_F32, belay_shape1(10), x);
    double got[10];
    assert_numbers("exp", belay_exp(in), e, 4e-6, 2e-45);
    assert_numbers("tanh", belay_tanh(in), t, 0, 0);
    assert_numbers("sigmoid", belay_sigmoid(in), s, 0, 2e-45);
    read_numbers(belay_tanh(in), got, 10);
    assert_true(signbit(got[3]) != 0);
    close_clean(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_its_bound),     cmocka_unit_test(tanh_is_within_its_bound),
        cmocka_unit_test(sigmoid_is_within_its_bound), cmocka_unit_test(gelu_is_within_its_bound),
        cmocka_unit_test(functions_meet_their_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
