/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one column that libm does not vectorise, or that must keep NaN.  Read once for each float column; no
 * rows. f32 forms are plain arithmetic, so that the loops around them vectorise, with fused products where the formula
 * has them: the same bits on every device; f64 forms are libm's. */

#if BL_IS_FLOAT
BL_FN bool BL_(is_nan)(BL_REAL x) { return x != x; }
BL_FN BL_REAL BL_(lowest)(void) { return -(BL_REAL)INFINITY; }

/* The larger of two; NaN when either is. */
BL_FN BL_REAL BL_(larger)(BL_REAL a, BL_REAL b)
{
    BL_REAL c = a > b ? a : b; /* b when b is a NaN */
    return a != a ? a : c;
}

#if BL_REAL_IS_F64
BL_FN double BL_(bl_exp)(double x) { return exp(x); }
BL_FN double BL_(bl_log)(double x) { return log(x); }
BL_FN double BL_(bl_log1p)(double x) { return log1p(x); }
BL_FN double BL_(bl_tanh)(double x) { return tanh(x); }
BL_FN double BL_(bl_sqrt)(double x) { return sqrt(x); }
BL_FN double BL_(bl_erf)(double x) { return erf(x); }
BL_FN double BL_(bl_pow)(double x, double y) { return pow(x, y); }
#else

/* e^x = y 2^n for |x| <= 104: gives y, and n in the low bits of `n_bits`, above which nine bits are zero.
 * x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts (Cody and Waite, 1980), degree-6 polynomial on r.  A NaN stays one:
 * it goes through r, whatever n is. */
BL_FN float BL_(bl_exp_parts)(float x, uint32_t *n_bits)
{
    float shifted = fmaf(x, 1.44269504f, 12582912.0f); /* 1.5 * 2^23: the low bits hold n */
    float whole = shifted - 12582912.0f;
    float r = fmaf(whole, -0.693359375f, x);
    r = fmaf(whole, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    *n_bits = bl_bits_of_float(shifted);
    return fmaf(p, r * r, r) + 1.0f;
}

/* 2^n for n in the low bits, -126 <= n <= 127: its exponent's bits. */
BL_FN float BL_(bl_power_of_two)(uint32_t n_bits) { return bl_float_of_bits((n_bits + 127u) << 23); }

/* e^x.  2^n in two halves, so that subnormal results round once.  Error below 1 ulp; 0, infinity and NaN as e^x.
 * Bounds are written so that a NaN passes them. */
BL_FN float BL_(bl_exp)(float x)
{
    float below = 104.0f < x ? 104.0f : x;
    uint32_t n;
    float y = BL_(bl_exp_parts)(-104.0f > below ? -104.0f : below, &n);
    uint32_t half = n >> 1;
    return y * BL_(bl_power_of_two)(half) * BL_(bl_power_of_two)(n - half);
}

BL_FN float BL_(bl_log)(float x) { return logf(x); }
BL_FN float BL_(bl_log1p)(float x) { return log1pf(x); }
BL_FN float BL_(bl_sqrt)(float x) { return sqrtf(x); }
BL_FN float BL_(bl_erf)(float x) { return erff(x); }
BL_FN float BL_(bl_pow)(float x, float y) { return powf(x, y); }

/* tanh.  Near zero the odd polynomial of Cephes (Moshier, 1989), which keeps relative accuracy; elsewhere
 * 1 - 2 / (e^2|x| + 1); the sign, also of a zero, is put back by its bit.  Error below 1.5 ulp. */
BL_FN float BL_(bl_tanh)(float x)
{
    float a = bl_float_of_bits(bl_bits_of_float(x) & 0x7FFFFFFFu);
    float s = a * a;
    float p = -5.70498872745e-3f;
    p = fmaf(p, s, 2.06390887954e-2f);
    p = fmaf(p, s, -5.37397155531e-2f);
    p = fmaf(p, s, 1.33314422036e-1f);
    p = fmaf(p, s, -3.33332819422e-1f);
    float near = fmaf(p * s, a, a);
    uint32_t n;
    float e = BL_(bl_exp_parts)(20.0f < a ? 40.0f : 2.0f * a, &n); /* 1 - 2 / (e^40 + 1) is 1 */
    float far = 1.0f - 2.0f / (e * BL_(bl_power_of_two)(n) + 1.0f);
    float y = a < 0.625f ? near : far;
    return bl_float_of_bits(bl_bits_of_float(y) | (bl_bits_of_float(x) & 0x80000000u));
}
#endif

/* e^-|x| */
#if BL_REAL_IS_F64
BL_FN double BL_(bl_exp_below)(double x) { return exp(x < 0 ? x : -x); }
#else
BL_FN float BL_(bl_exp_below)(float x)
{
    float below = bl_float_of_bits(bl_bits_of_float(x) | 0x80000000u);
    uint32_t n;
    float y = BL_(bl_exp_parts)(-104.0f > below ? -104.0f : below, &n);
    return y * BL_(bl_power_of_two)(n + 64u) * 5.42101086e-20f; /* 2^-64: n may be below what a normal number holds */
}
#endif

/* 1 / (1 + e^-x), written so that neither end overflows.  Error in f32 below 2.5 ulp. */
BL_FN BL_REAL BL_(bl_sigmoid)(BL_REAL x)
{
    BL_REAL e = BL_(bl_exp_below)(x);
    return (x < 0 ? e : 1) / (1 + e);
}

#else
BL_FN bool BL_(is_nan)(BL_REAL x) { return (void)x, false; }
BL_FN BL_REAL BL_(lowest)(void) { return INT64_MIN; }
BL_FN BL_REAL BL_(larger)(BL_REAL a, BL_REAL b) { return a > b ? a : b; }
#endif
