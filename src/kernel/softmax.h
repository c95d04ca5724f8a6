/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax of rows.  The maximum is taken off first, so that no exponential overflows;
 * a row that has a NaN, or nothing but -Inf, is NaN. */
#if defined BL_BODIES

#if BL_IS_FLOAT
/* x[R, N] -> y[R, N].  Bridle, "Probabilistic interpretation of feedforward classification network outputs" (1990). */
BL_FN void BL_(softmax)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 0) + row * n;
    BL_T *BL_RESTRICT y = BL_PTR(BL_T, 1) + row * n;
    BL_REAL top, sum;
    BL_ROW_MAX(top, j, n, BL_LOAD(x, j));
    BL_ROW_SUM(sum, j, n, BL_(bl_exp)(BL_LOAD(x, j) - top));
    BL_EACH(j, n) BL_STORE(y, j, BL_(bl_exp)(BL_LOAD(x, j) - top) / sum);
}

/* g_y[R, N] y[R, N] -> g_x[R, N] */
BL_FN void BL_(softmax_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *g = BL_PTR(BL_T, 0) + row * n, *y = BL_PTR(BL_T, 1) + row * n;
    BL_T *BL_RESTRICT gx = BL_PTR(BL_T, 2) + row * n;
    BL_REAL dot;
    BL_ROW_SUM(dot, j, n, BL_LOAD(g, j) * BL_LOAD(y, j));
    BL_EACH(j, n) BL_STORE(gx, j, BL_LOAD(y, j) * (BL_LOAD(g, j) - dot));
}

BL_FN void BL_(log_softmax)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 0) + row * n;
    BL_T *BL_RESTRICT y = BL_PTR(BL_T, 1) + row * n;
    BL_REAL top, sum;
    BL_ROW_MAX(top, j, n, BL_LOAD(x, j));
    BL_ROW_SUM(sum, j, n, BL_(bl_exp)(BL_LOAD(x, j) - top));
    BL_REAL rest = BL_(bl_log)(sum);
    BL_EACH(j, n) BL_STORE(y, j, (BL_LOAD(x, j) - top) - rest);
}

BL_FN void BL_(log_softmax_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *g = BL_PTR(BL_T, 0) + row * n, *y = BL_PTR(BL_T, 1) + row * n;
    BL_T *BL_RESTRICT gx = BL_PTR(BL_T, 2) + row * n;
    BL_REAL sum;
    BL_ROW_SUM(sum, j, n, BL_LOAD(g, j));
    BL_EACH(j, n) BL_STORE(gx, j, BL_LOAD(g, j) - BL_(bl_exp)(BL_LOAD(y, j)) * sum);
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, softmax, FLOAT, .signature = "R: x[RN] -> y[RN]", .grad = {OP(softmax_grad)}, .amp = BL_AMP_F32,
       .domain = {-4, 4}, .tolerance = BL_TOLERANCE_SUM, .internal = true,
       .formula = "y = e^(x - max x) / sum of e^(x - max x)", .says = "Turns each row into probabilities.")
BL_ROW(LANE, log_softmax, FLOAT, .signature = "R: x[RN] -> y[RN]", .grad = {OP(log_softmax_grad)}, .amp = BL_AMP_F32,
       .domain = {-4, 4}, .tolerance = BL_TOLERANCE_SUM, .internal = true,
       .formula = "y = x - max x - ln sum of e^(x - max x)", .says = "Logarithms of each row's probabilities.")
BL_ROW(LANE, softmax_grad, FLOAT, .signature = "R: g_y[RN] y[RN] -> g_x[RN]", .internal = true,
       .formula = "y (g - sum of g y)", .says = "Gradient of softmax.")
BL_ROW(LANE, log_softmax_grad, FLOAT, .signature = "R: g_y[RN] y[RN] -> g_x[RN]", .internal = true,
       .formula = "g - e^y sum of g", .says = "Gradient of log_softmax.")

#endif
