/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops without options.  Generated from the rows by `make docs`; change the rows. */
#ifndef BELAY_OP_ROWS_H
#define BELAY_OP_ROWS_H

#include <belay/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* max(x, 0): Keeps the positive part; a NaN stays a NaN. */
BELAY_API belay_tensor belay_relu(belay_tensor x);

/* tanh x: The hyperbolic tangent. */
BELAY_API belay_tensor belay_tanh(belay_tensor x);

/* 1 / (1 + e^-x): The logistic function. */
BELAY_API belay_tensor belay_sigmoid(belay_tensor x);

/* x / (1 + e^-x): Sigmoid-weighted linear unit, also called swish. */
BELAY_API belay_tensor belay_silu(belay_tensor x);

/* ln(1 + e^x): A smooth form of relu. */
BELAY_API belay_tensor belay_softplus(belay_tensor x);

/* x (1 + erf(x / sqrt 2)) / 2: Gaussian error linear unit, exact form. */
BELAY_API belay_tensor belay_gelu(belay_tensor x);

/* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2: Gaussian error linear unit, approximated by tanh. */
BELAY_API belay_tensor belay_gelu_tanh(belay_tensor x);

/* a + b: Adds two tensors, broadcasting. */
BELAY_API belay_tensor belay_add(belay_tensor a, belay_tensor b);

/* a - b: Subtracts the second tensor from the first, broadcasting. */
BELAY_API belay_tensor belay_sub(belay_tensor a, belay_tensor b);

/* a * b: Multiplies two tensors element by element, broadcasting. */
BELAY_API belay_tensor belay_mul(belay_tensor a, belay_tensor b);

/* a / b: Divides the first tensor by the second, broadcasting; a zero divisor gives Inf or NaN. */
BELAY_API belay_tensor belay_div(belay_tensor a, belay_tensor b);

/* -x: Changes the sign. */
BELAY_API belay_tensor belay_neg(belay_tensor x);

/* e^x: The exponential function. */
BELAY_API belay_tensor belay_exp(belay_tensor x);

/* ln x: The natural logarithm; -Inf at zero, NaN below. */
BELAY_API belay_tensor belay_log(belay_tensor x);

/* x^(1/2): The square root; NaN below zero. */
BELAY_API belay_tensor belay_sqrt(belay_tensor x);

/* a^b: Raises the first tensor to the power of the second, broadcasting; NaN for a negative base and an exponent that is not whole. */
BELAY_API belay_tensor belay_pow(belay_tensor a, belay_tensor b);

/* |x|: Takes the sign off. */
BELAY_API belay_tensor belay_abs(belay_tensor x);

/* max(a, b): The larger of two tensors' elements, broadcasting; NaN where either is. */
BELAY_API belay_tensor belay_maximum(belay_tensor a, belay_tensor b);

/* min(a, b): The smaller of two tensors' elements, broadcasting; NaN where either is. */
BELAY_API belay_tensor belay_minimum(belay_tensor a, belay_tensor b);

/* a == b: True where the two are equal. */
BELAY_API belay_tensor belay_eq(belay_tensor a, belay_tensor b);

/* a != b: True where the two differ; true for NaN. */
BELAY_API belay_tensor belay_ne(belay_tensor a, belay_tensor b);

/* a < b: True where the first is smaller. */
BELAY_API belay_tensor belay_lt(belay_tensor a, belay_tensor b);

/* a <= b: True where the first is not larger. */
BELAY_API belay_tensor belay_le(belay_tensor a, belay_tensor b);

/* a > b: True where the first is larger. */
BELAY_API belay_tensor belay_gt(belay_tensor a, belay_tensor b);

/* a >= b: True where the first is not smaller. */
BELAY_API belay_tensor belay_ge(belay_tensor a, belay_tensor b);

/* condition ? a : b: Takes a where the condition holds, else b; broadcasting. */
BELAY_API belay_tensor belay_where(belay_tensor condition, belay_tensor a, belay_tensor b);

/* (1 - b) ln(1 + e^a) + b ln(1 + e^-a): Binary cross-entropy of logits against probabilities, element by element, broadcasting. */
BELAY_API belay_tensor belay_binary_error(belay_tensor a, belay_tensor b);

/* (a - b)^2: Squares of differences, broadcasting. */
BELAY_API belay_tensor belay_squared_error(belay_tensor a, belay_tensor b);

#ifdef __cplusplus
}
#endif
#endif
