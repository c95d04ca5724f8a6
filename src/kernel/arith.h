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
#else
BL_FN int64_t BL_(add)(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
BL_FN int64_t BL_(sub)(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
BL_FN int64_t BL_(mul)(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
BL_FN int64_t BL_(neg)(int64_t x) { return (int64_t)(0 - (uint64_t)x); }
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
BL_ROW(MAP3, sqrt_grad, FLOAT, .internal = true, .formula = "g / (2 y)", .says = "Gradient of sqrt.")

#endif
