/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on elements.  Integers wrap (two's complement), as their hardware does. */
#if defined BL_BODIES

#if BL_IS_FLOAT
BL_FN BL_REAL BL_(add)(BL_REAL a, BL_REAL b) { return a + b; }
BL_FN BL_REAL BL_(sub)(BL_REAL a, BL_REAL b) { return a - b; }
BL_FN BL_REAL BL_(mul)(BL_REAL a, BL_REAL b) { return a * b; }
BL_FN BL_REAL BL_(neg)(BL_REAL x) { return -x; }
BL_FN BL_REAL BL_(div)(BL_REAL a, BL_REAL b) { return a / b; }
BL_FN BL_REAL BL_(affine)(const bl_params *p, int64_t i, BL_REAL x)
{
    (void)i;
    return x * (BL_REAL)p->f[0] + (BL_REAL)p->f[1];
}

BL_FN BL_REAL BL_(pass_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)x, (void)y, g; }
BL_FN BL_REAL BL_(neg_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)x, (void)y, -g; }
BL_FN BL_REAL BL_(mul_grad_a)(BL_REAL g, BL_REAL a, BL_REAL b) { return (void)a, g * b; }
BL_FN BL_REAL BL_(mul_grad_b)(BL_REAL g, BL_REAL a, BL_REAL b) { return (void)b, g * a; }
BL_FN BL_REAL BL_(div_grad_a)(BL_REAL g, BL_REAL a, BL_REAL b) { return (void)a, g / b; }
BL_FN BL_REAL BL_(div_grad_b)(BL_REAL g, BL_REAL a, BL_REAL b) { return -g * (a / b) / b; }
BL_FN BL_REAL BL_(affine_grad)(const bl_params *p, int64_t i, BL_REAL g, BL_REAL x, BL_REAL y)
{
    (void)i, (void)x, (void)y;
    return g * (BL_REAL)p->f[0];
}

BL_FN BL_REAL BL_(exp)(BL_REAL x) { return BL_(bl_exp)(x); }
BL_FN BL_REAL BL_(exp_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)x, g * y; }
BL_FN BL_REAL BL_(log)(BL_REAL x) { return BL_(bl_log)(x); }
BL_FN BL_REAL BL_(log_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)y, g / x; }
BL_FN BL_REAL BL_(sqrt)(BL_REAL x) { return BL_(bl_sqrt)(x); }
BL_FN BL_REAL BL_(sqrt_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)x, g / (2 * y); }

BL_FN BL_REAL BL_(pow)(BL_REAL a, BL_REAL b) { return BL_(bl_pow)(a, b); }
/* An exponent of 0 makes a constant of every base, also of a zero, whose own slope would be 0 / 0. */
BL_FN BL_REAL BL_(pow_slope)(BL_REAL a, BL_REAL b) { return b == 0 ? 0 : b * BL_(bl_pow)(a, b - 1); }
BL_FN BL_REAL BL_(pow_grad_a)(BL_REAL g, BL_REAL a, BL_REAL b) { return g * BL_(pow_slope)(a, b); }
/* And a base of 0 stays 0 for every exponent that is not negative, though its logarithm is -Inf. */
BL_FN BL_REAL BL_(pow_grad_b)(BL_REAL g, BL_REAL a, BL_REAL b)
{
    return a == 0 && b >= 0 ? 0 : g * (BL_(bl_pow)(a, b) * BL_(bl_log)(a));
}
BL_FN BL_REAL BL_(pow_number)(const bl_params *p, int64_t i, BL_REAL x)
{
    (void)i;
    return p->f[0] == 2 ? x * x : BL_(bl_pow)(x, (BL_REAL)p->f[0]);
}
BL_FN BL_REAL BL_(pow_number_grad)(const bl_params *p, int64_t i, BL_REAL g, BL_REAL x, BL_REAL y)
{
    (void)i, (void)y;
    return p->f[0] == 2 ? g * (2 * x) : g * BL_(pow_slope)(x, (BL_REAL)p->f[0]);
}

BL_FN BL_REAL BL_(abs)(BL_REAL x) { return x < 0 ? -x : x == 0 ? 0 : x; }
BL_FN BL_REAL BL_(abs_grad)(BL_REAL g, BL_REAL x, BL_REAL y)
{
    (void)y;
    return x > 0 ? g : x < 0 ? -g : g * x; /* 0 at 0; a NaN stays one */
}
BL_FN BL_REAL BL_(maximum)(BL_REAL a, BL_REAL b) { return BL_(larger)(a, b); }
BL_FN BL_REAL BL_(minimum)(BL_REAL a, BL_REAL b) { return -BL_(larger)(-a, -b); }
/* Equal operands share the gradient; beside a NaN neither is the smaller one, and both get it whole. */
BL_FN BL_REAL BL_(larger_grad)(BL_REAL g, BL_REAL a, BL_REAL b) { return a == b ? g / 2 : a < b ? 0 : g; }
BL_FN BL_REAL BL_(maximum_grad_a)(BL_REAL g, BL_REAL a, BL_REAL b) { return BL_(larger_grad)(g, a, b); }
BL_FN BL_REAL BL_(maximum_grad_b)(BL_REAL g, BL_REAL a, BL_REAL b) { return BL_(larger_grad)(g, b, a); }
#else
BL_FN int64_t BL_(add)(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
BL_FN int64_t BL_(sub)(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
BL_FN int64_t BL_(mul)(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
BL_FN int64_t BL_(neg)(int64_t x) { return (int64_t)(0 - (uint64_t)x); }
BL_FN int64_t BL_(abs)(int64_t x) { return x < 0 ? BL_(neg)(x) : x; }
BL_FN int64_t BL_(maximum)(int64_t a, int64_t b) { return BL_(larger)(a, b); }
BL_FN int64_t BL_(minimum)(int64_t a, int64_t b) { return a < b ? a : b; }
#endif

#elif defined BL_ROWS

BL_ROW(MAP2, add, NUMBER, .grad = {OP(pass_grad), OP(pass_grad)}, .domain = {-4, 4}, .formula = "a + b",
       .says = "Adds two tensors, broadcasting.")
BL_ROW(MAP2, sub, NUMBER, .grad = {OP(pass_grad), OP(neg_grad)}, .domain = {-4, 4}, .formula = "a - b",
       .says = "Subtracts the second tensor from the first, broadcasting.")
BL_ROW(MAP2, mul, NUMBER, .grad = {OP(mul_grad_a), OP(mul_grad_b)}, .keep = BL_KEEP_A | BL_KEEP_B, .domain = {-4, 4},
       .formula = "a * b", .says = "Multiplies two tensors element by element, broadcasting.")
BL_ROW(MAP2, div, FLOAT, .grad = {OP(div_grad_a), OP(div_grad_b)}, .keep = BL_KEEP_A | BL_KEEP_B, .domain = {0.5, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "a / b",
       .says = "Divides the first tensor by the second, broadcasting; a zero divisor gives Inf or NaN.")
BL_ROW(MAP1, neg, NUMBER, .grad = {OP(neg_grad)}, .domain = {-4, 4}, .formula = "-x", .says = "Changes the sign.")
BL_ROW(MAP1P, affine, FLOAT, .grad = {OP(affine_grad)}, .domain = {-4, 4}, .tolerance = BL_TOLERANCE_ELEMENT,
       .internal = true, .options = "f[0] = scale, f[1] = shift", .formula = "x * scale + shift",
       .says = "Scales and shifts by two numbers.")
BL_ROW(MAP1, exp, FLOAT, .grad = {OP(exp_grad)}, .keep = BL_KEEP_OUT, .amp = BL_AMP_F32, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "e^x", .says = "The exponential function.")
BL_ROW(MAP1, log, FLOAT, .grad = {OP(log_grad)}, .keep = BL_KEEP_X, .amp = BL_AMP_F32, .domain = {0.1, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "ln x", .says = "The natural logarithm; -Inf at zero, NaN below.")
BL_ROW(MAP1, sqrt, FLOAT, .grad = {OP(sqrt_grad)}, .keep = BL_KEEP_OUT, .domain = {0.1, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "x^(1/2)", .says = "The square root; NaN below zero.")
BL_ROW(MAP2, pow, FLOAT, .grad = {OP(pow_grad_a), OP(pow_grad_b)}, .keep = BL_KEEP_A | BL_KEEP_B, .amp = BL_AMP_F32,
       .domain = {0.5, 4}, .tolerance = BL_TOLERANCE_ELEMENT, .formula = "a^b",
       .says =
           "Raises the first tensor to the power of the second, broadcasting; NaN for a negative base and an exponent "
           "that is not whole.")
BL_ROW(MAP1P, pow_number, FLOAT, .grad = {OP(pow_number_grad)}, .keep = BL_KEEP_X, .amp = BL_AMP_F32,
       .domain = {0.1, 4}, .tolerance = BL_TOLERANCE_ELEMENT, .internal = true, .options = "f[0] = exponent",
       .formula = "x^exponent", .says = "Raises to the power of a number.")
BL_ROW(MAP1, abs, NUMBER, .grad = {OP(abs_grad)}, .keep = BL_KEEP_X, .domain = {-4, 4}, .formula = "|x|",
       .says = "Takes the sign off.")
BL_ROW(MAP2, maximum, NUMBER, .grad = {OP(maximum_grad_a), OP(maximum_grad_b)}, .keep = BL_KEEP_A | BL_KEEP_B,
       .domain = {-4, 4}, .formula = "max(a, b)",
       .says = "The larger of two tensors' elements, broadcasting; NaN where either is.")
BL_ROW(MAP2, minimum, NUMBER, .grad = {OP(maximum_grad_b), OP(maximum_grad_a)}, .keep = BL_KEEP_A | BL_KEEP_B,
       .domain = {-4, 4}, .formula = "min(a, b)",
       .says = "The smaller of two tensors' elements, broadcasting; NaN where either is.")
BL_ROW(MAP3, pass_grad, FLOAT, .internal = true, .formula = "g", .says = "Gradient of a term of a sum.")
BL_ROW(MAP3, neg_grad, FLOAT, .internal = true, .formula = "-g", .says = "Gradient of neg and of what sub takes away.")
BL_ROW(MAP3, mul_grad_a, FLOAT, .internal = true, .formula = "g * b", .says = "Gradient of mul for its first factor.")
BL_ROW(MAP3, mul_grad_b, FLOAT, .internal = true, .formula = "g * a", .says = "Gradient of mul for its second factor.")
BL_ROW(MAP3, div_grad_a, FLOAT, .internal = true, .formula = "g / b", .says = "Gradient of div for the dividend.")
BL_ROW(MAP3, div_grad_b, FLOAT, .internal = true, .formula = "-g (a / b) / b",
       .says = "Gradient of div for the divisor.")
BL_ROW(MAP3P, affine_grad, FLOAT, .internal = true, .formula = "g * scale", .says = "Gradient of affine.")
BL_ROW(MAP3, exp_grad, FLOAT, .internal = true, .formula = "g * y", .says = "Gradient of exp.")
BL_ROW(MAP3, log_grad, FLOAT, .internal = true, .formula = "g / x", .says = "Gradient of log.")
BL_ROW(MAP3, pow_grad_a, FLOAT, .internal = true, .formula = "b == 0 ? 0 : g b a^(b - 1)",
       .says = "Gradient of pow for the base.")
BL_ROW(MAP3, pow_grad_b, FLOAT, .internal = true, .formula = "a == 0 and b >= 0 ? 0 : g a^b ln a",
       .says = "Gradient of pow for the exponent.")
BL_ROW(MAP3P, pow_number_grad, FLOAT, .internal = true, .formula = "n == 0 ? 0 : g n x^(n - 1)",
       .says = "Gradient of pow_number.")
BL_ROW(MAP3, abs_grad, FLOAT, .internal = true, .formula = "g sign x", .says = "Gradient of abs; 0 at 0.")
BL_ROW(MAP3, maximum_grad_a, FLOAT, .internal = true, .formula = "a == b ? g / 2 : a < b ? 0 : g",
       .says = "Gradient of maximum for its first operand, of minimum for its second.")
BL_ROW(MAP3, maximum_grad_b, FLOAT, .internal = true, .formula = "a == b ? g / 2 : b < a ? 0 : g",
       .says = "Gradient of maximum for its second operand, of minimum for its first.")
BL_ROW(MAP3, sqrt_grad, FLOAT, .internal = true, .formula = "g / (2 y)", .says = "Gradient of sqrt.")

#endif
