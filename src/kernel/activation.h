/* SPDX-License-Identifier: Apache-2.0 */
/* Activations.  A NaN stays a NaN in each. */
#if defined BL_BODIES

#if BL_IS_FLOAT
BL_FN BL_REAL BL_(relu)(BL_REAL x) { return x < 0 ? 0 : x; }
BL_FN BL_REAL BL_(relu_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)x, y <= 0 ? 0 : g; }
BL_FN BL_REAL BL_(tanh)(BL_REAL x) { return BL_(bl_tanh)(x); }
BL_FN BL_REAL BL_(tanh_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)x, g * (1 - y * y); }
BL_FN BL_REAL BL_(sigmoid)(BL_REAL x) { return BL_(bl_sigmoid)(x); }
BL_FN BL_REAL BL_(sigmoid_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)x, g * y * (1 - y); }

/* x times the logistic function: Elfwing, Uchibe, Doya, "Sigmoid-weighted linear units" (2018). */
BL_FN BL_REAL BL_(silu)(BL_REAL x) { return x * BL_(bl_sigmoid)(x); }
BL_FN BL_REAL BL_(silu_grad)(BL_REAL g, BL_REAL x, BL_REAL y)
{
    (void)y;
    BL_REAL s = BL_(bl_sigmoid)(x);
    return g * s * (1 + x * (1 - s));
}

/* ln(1 + e^x), written so that nothing overflows. */
BL_FN BL_REAL BL_(softplus)(BL_REAL x) { return (x < 0 ? 0 : x) + BL_(bl_log1p)(BL_(bl_exp)(x < 0 ? x : -x)); }
BL_FN BL_REAL BL_(softplus_grad)(BL_REAL g, BL_REAL x, BL_REAL y) { return (void)y, g * BL_(bl_sigmoid)(x); }

/* Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016): x times the normal distribution function. */
BL_FN BL_REAL BL_(gelu)(BL_REAL x) { return (BL_REAL)0.5 * x * (1 + BL_(bl_erf)(x * (BL_REAL)0.70710678118654752440)); }
BL_FN BL_REAL BL_(gelu_grad)(BL_REAL g, BL_REAL x, BL_REAL y)
{
    (void)y;
    BL_REAL below = (BL_REAL)0.5 * (1 + BL_(bl_erf)(x * (BL_REAL)0.70710678118654752440));
    BL_REAL density = (BL_REAL)0.39894228040143267794 * BL_(bl_exp)((BL_REAL)-0.5 * x * x);
    return g * (below + x * density);
}

/* The same paper's approximation by tanh. */
BL_FN BL_REAL BL_(gelu_tanh)(BL_REAL x)
{
    BL_REAL inner = (BL_REAL)0.79788456080286535588 * (x + (BL_REAL)0.044715 * x * x * x);
    return (BL_REAL)0.5 * x * (1 + BL_(bl_tanh)(inner));
}
BL_FN BL_REAL BL_(gelu_tanh_grad)(BL_REAL g, BL_REAL x, BL_REAL y)
{
    (void)y;
    BL_REAL inner = (BL_REAL)0.79788456080286535588 * (x + (BL_REAL)0.044715 * x * x * x);
    BL_REAL slope = (BL_REAL)0.79788456080286535588 * (1 + 3 * (BL_REAL)0.044715 * x * x);
    BL_REAL t = BL_(bl_tanh)(inner);
    return g * (BL_REAL)0.5 * (1 + t + x * (1 - t * t) * slope);
}
#endif

#elif defined BL_ROWS

BL_ROW(MAP1, relu, FLOAT, .grad = {OP(relu_grad)}, .keep = BL_KEEP_OUT, .domain = {-4, 4}, .formula = "max(x, 0)",
       .says = "Keeps the positive part; a NaN stays a NaN.")
BL_ROW(MAP1, tanh, FLOAT, .grad = {OP(tanh_grad)}, .keep = BL_KEEP_OUT, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "tanh x", .says = "The hyperbolic tangent.")
BL_ROW(MAP1, sigmoid, FLOAT, .grad = {OP(sigmoid_grad)}, .keep = BL_KEEP_OUT, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "1 / (1 + e^-x)", .says = "The logistic function.")
BL_ROW(MAP1, silu, FLOAT, .grad = {OP(silu_grad)}, .keep = BL_KEEP_X, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "x / (1 + e^-x)",
       .says = "Sigmoid-weighted linear unit, also called swish.")
BL_ROW(MAP1, softplus, FLOAT, .grad = {OP(softplus_grad)}, .keep = BL_KEEP_X, .amp = BL_AMP_F32, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "ln(1 + e^x)", .says = "A smooth form of relu.")
BL_ROW(MAP1, gelu, FLOAT, .grad = {OP(gelu_grad)}, .keep = BL_KEEP_X, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "x (1 + erf(x / sqrt 2)) / 2",
       .says = "Gaussian error linear unit, exact form.")
BL_ROW(MAP1, gelu_tanh, FLOAT, .grad = {OP(gelu_tanh_grad)}, .keep = BL_KEEP_X, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_ELEMENT, .formula = "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
       .says = "Gaussian error linear unit, approximated by tanh.")
BL_ROW(MAP3, relu_grad, FLOAT, .internal = true, .formula = "g where y > 0", .says = "Gradient of relu.")
BL_ROW(MAP3, tanh_grad, FLOAT, .internal = true, .formula = "g (1 - y^2)", .says = "Gradient of tanh.")
BL_ROW(MAP3, sigmoid_grad, FLOAT, .internal = true, .formula = "g y (1 - y)", .says = "Gradient of sigmoid.")
BL_ROW(MAP3, silu_grad, FLOAT, .internal = true, .formula = "g s (1 + x (1 - s)), s = 1 / (1 + e^-x)",
       .says = "Gradient of silu.")
BL_ROW(MAP3, softplus_grad, FLOAT, .internal = true, .formula = "g / (1 + e^-x)", .says = "Gradient of softplus.")
BL_ROW(MAP3, gelu_grad, FLOAT, .internal = true, .formula = "g (Phi(x) + x phi(x))", .says = "Gradient of gelu.")
BL_ROW(MAP3, gelu_tanh_grad, FLOAT, .internal = true, .formula = "g d/dx gelu_tanh(x)",
       .says = "Gradient of gelu_tanh.")

#endif
