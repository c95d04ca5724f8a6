/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of ops share: contexts that keep what was told, tensors from doubles and back, drawn numbers, and
 * gradients held against finite differences in f64.
 *
 * With BELAY_TEST_PLACE=DEVICE tensors lie on that device while sim:0 is the current one. */
#ifndef TESTS_OP_NUMBERS_H
#define TESTS_OP_NUMBERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <belay/devices.h>
#include <belay/grad.h>
#include <belay/op.h>

#include "support/words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBERS = 16384 };

static char told[16384];

static inline void remember(void *state, belay_code code, const char *text)
{
    (void)state, (void)code;
    strncat(told, text, sizeof told - strlen(told) - 1);
}

/* Where tensors are made: NULL: at the current place, which is the cpu. */
static const char *made_at;

static inline belay_context *open_with(int threads)
{
    told[0] = '\0';
    made_at = getenv("BELAY_TEST_PLACE");
    return belay_open(&(belay_options){.device = made_at != NULL ? "sim:0" : "cpu",
                                       .log = remember,
                                       .no_journal = true,
                                       .threads = threads,
                                       .seed = 7});
}

/* Nothing was told. */
static inline void close_clean(belay_context *context)
{
    assert_string_equal(told, "");
    assert_int_equal(belay_close(context), 0);
}

static inline int64_t count_of(belay_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++)
        n *= shape.size[i];
    return n;
}

/* Runs a maker at the place that was asked for. */
#define MADE_THERE(context, made)                                                                                      \
    belay_device_guard guard =                                                                                         \
        made_at != NULL ? belay_device_guard_open((context), made_at) : (belay_device_guard){0};                       \
    belay_tensor tensor = (made);                                                                                      \
    belay_device_guard_close(guard);                                                                                   \
    return tensor

static inline belay_tensor from_bytes(belay_context *context, belay_dtype dtype, belay_shape shape, const void *bytes,
                                      int64_t n_bytes)
{
    MADE_THERE(context, belay_tensor_from(context, dtype, shape, bytes, n_bytes));
}
static inline belay_tensor full_of(belay_context *context, belay_dtype dtype, belay_shape shape, double value)
{
    MADE_THERE(context, belay_full(context, dtype, shape, value));
}
static inline belay_tensor zeros_of(belay_context *context, belay_dtype dtype, belay_shape shape)
{
    MADE_THERE(context, belay_zeros(context, dtype, shape));
}

/* A small generator of its own, so that a test's numbers never change. */
static uint64_t drawn = 1;
static inline double draw(double low, double high)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * ((double)(drawn >> 11) * 0x1p-53);
}
static inline void draw_many(double *out, int64_t n, double low, double high)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = draw(low, high);
}

static inline belay_tensor tensor_of(belay_context *context, belay_dtype dtype, belay_shape shape, const double *v)
{
    belay_tensor wide = from_bytes(context, BELAY_F64, shape, v, count_of(shape) * 8);
    return belay_cast(wide, dtype);
}

/* The elements as doubles; their number. */
static inline int64_t read_numbers(belay_tensor tensor, double *out, int64_t most)
{
    int64_t n = belay_tensor_n_elements(tensor);
    assert_true(belay_tensor_is_alive(tensor));
    assert_true(n <= most);
    bool was = belay_recording_set(belay_tensor_context(tensor), false);
    assert_int_equal(belay_tensor_read(belay_cast(tensor, BELAY_F64), out, n * 8), BELAY_OK);
    belay_recording_set(belay_tensor_context(tensor), was);
    return n;
}

static inline void assert_shape(belay_tensor tensor, belay_shape shape)
{
    belay_shape has = belay_tensor_shape(tensor);
    assert_int_equal(has.rank, shape.rank);
    for (int i = 0; i < shape.rank; i++)
        assert_int_equal(has.size[i], shape.size[i]);
}

/* NaN matches NaN, infinity itself. */
static inline bool is_near(double got, double want, double relative, double absolute)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    return got == want || fabs(got - want) <= absolute + relative * fabs(want);
}

static inline void assert_numbers(const char *what, belay_tensor tensor, const double *want, double relative,
                                  double absolute)
{
    static double got[MAX_NUMBERS];
    int64_t n = read_numbers(tensor, got, MAX_NUMBERS);
    for (int64_t i = 0; i < n; i++)
        if (!is_near(got[i], want[i], relative, absolute))
            fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, got[i], want[i]);
}

/* ---- gradients by finite differences --------------------------------------------------------------------------------- */

/* An expression of `n` tensors; what else it needs comes in `state`. */
typedef belay_tensor (*expression)(belay_context *context, const belay_tensor *in, void *state);

/* The sum of the expression's elements, each weighted with a number of its own. */
static inline belay_tensor weighted(belay_context *context, expression f, const belay_tensor *in, void *state)
{
    belay_tensor y = f(context, in, state);
    int64_t n = belay_tensor_n_elements(y);
    belay_shape shape = belay_tensor_shape(y);
    double *weights = malloc((size_t)(n + 1) * sizeof *weights);
    for (int64_t i = 0; i < n; i++)
        weights[i] = 0.5 + (double)(i * 7 % 11) / 8;
    belay_tensor w = from_bytes(context, BELAY_F64, shape, weights, n * 8);
    free(weights);
    return belay_sum(belay_mul(y, w), NULL);
}

/* Every element of every input (all f64) against (f(x + h) - f(x - h)) / 2h. */
static inline void assert_gradients(const char *what, belay_context *context, expression f, void *state, int n_in,
                                    const belay_shape *shapes, double *const *values)
{
    belay_tensor in[4];
    double grad[MAX_NUMBERS];
    for (int k = 0; k < n_in; k++)
        in[k] = belay_tensor_requires_grad_set(
            from_bytes(context, BELAY_F64, shapes[k], values[k], count_of(shapes[k]) * 8), true);
    belay_scope scope = belay_scope_open(context);
    belay_backward(weighted(context, f, in, state));
    belay_scope_close(scope);
    bool was = belay_recording_set(context, false);
    for (int k = 0; k < n_in; k++) {
        int64_t n = count_of(shapes[k]);
        if (n == 0)
            continue;
        assert_shape(belay_tensor_grad(in[k]), shapes[k]);
        read_numbers(belay_tensor_grad(in[k]), grad, MAX_NUMBERS);
        for (int64_t i = 0; i < n; i++) {
            double x = values[k][i], h = 1e-5 * (1 + fabs(x)), f_of[2];
            for (int side = 0; side < 2; side++) {
                scope = belay_scope_open(context);
                values[k][i] = side == 0 ? x - h : x + h;
                assert_int_equal(belay_tensor_write(in[k], values[k], n * 8), BELAY_OK);
                f_of[side] = belay_tensor_item(weighted(context, f, in, state));
                belay_scope_close(scope);
            }
            values[k][i] = x;
            double slope = (f_of[1] - f_of[0]) / (2 * h);
            if (!is_near(grad[i], slope, 1e-6, 1e-7))
                fail_msg("%s: gradient %lld of input %d is %.17g, the slope is %.17g", what, (long long)i, k, grad[i],
                         slope);
        }
        assert_int_equal(belay_tensor_write(in[k], values[k], n * 8), BELAY_OK);
    }
    belay_recording_set(context, was);
    for (int k = 0; k < n_in; k++)
        belay_tensor_free(in[k]);
}

#endif
