/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima over one axis of [outer, reduced, inner]. */
#if defined BL_BODIES

#if !BL_IS_BOOL
/* x[O, K, I] */
BL_FN BL_REAL BL_(sum)(const bl_launch *l, int64_t o, int64_t k, int64_t i)
{
    return BL_LOAD(BL_PTR(BL_T, 0), (o * l->dim[1] + k) * l->dim[2] + i);
}
#endif

#if BL_IS_FLOAT
/* Squares, for norms. */
BL_FN BL_REAL BL_(sum_squares)(const bl_launch *l, int64_t o, int64_t k, int64_t i)
{
    BL_REAL x = BL_(sum)(l, o, k, i);
    return x * x;
}

/* Where y is the maximum: g shared equally among equal maxima.  A NaN equals none: no share is a number then. */
BL_FN void BL_(amax_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *g = BL_PTR(BL_T, 0), *x = BL_PTR(BL_T, 1) + row * n, *y = BL_PTR(BL_T, 2);
    BL_T *gx = BL_PTR(BL_T, 3) + row * n;
    BL_REAL top = BL_LOAD(y, row), ties;
    BL_ROW_SUM(ties, j, n, BL_LOAD(x, j) == top ? 1 : 0);
    BL_REAL share = BL_LOAD(g, row) / ties;
    BL_EACH(j, n) BL_STORE(gx, j, BL_LOAD(x, j) == top ? share : BL_(is_nan)(top) ? top : 0);
}

/* x[R, N] -> y[R] mean[R].  Two passes in double: what a large mean has in common with the squares never cancels. */
BL_FN void BL_(var)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 0) + row * n;
    double sum, squares;
    BL_ROW_SUM_F64(sum, j, n, (double)BL_LOAD(x, j));
    double mean = sum / (double)n;
    BL_ROW_SUM_F64(squares, j, n, ((double)BL_LOAD(x, j) - mean) * ((double)BL_LOAD(x, j) - mean));
    if (BL_ROW_LEADER) {
        BL_STORE(BL_PTR(BL_T, 1), row, (BL_REAL)(squares / l->params.f[0]));
        BL_PTR(double, 2)[row] = mean;
    }
}

/* g_y[R] x[R, N] mean[R] -> g_x[R, N] */
BL_FN void BL_(var_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 1) + row * n;
    BL_T *gx = BL_PTR(BL_T, 3) + row * n;
    BL_REAL g = BL_LOAD(BL_PTR(BL_T, 0), row) * (2 / (BL_REAL)l->params.f[0]);
    double mean = BL_PTR(double, 2)[row];
    BL_EACH(j, n) BL_STORE(gx, j, g * (BL_REAL)((double)BL_LOAD(x, j) - mean));
}

/* The gradient goes to the one element whose index was returned, in a tensor that the program may have written to
 * since. */
BL_FN void BL_(max_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    int64_t n = l->dim[1];
    bool counts;
    int64_t at = bl_index(l, bad, 1, row, bl_load_index(&l->operand[1], row), n, &counts);
    BL_T *gx = BL_PTR(BL_T, 2) + row * n;
    BL_EACH(j, n) BL_STORE(gx, j, 0);
    if (counts && BL_ROW_OWNS(at))
        BL_STORE(gx, at, BL_LOAD(BL_PTR(BL_T, 0), row));
}
#endif

/* x[R, N] -> y[R] at[R], N above 0.  A NaN is larger than everything. */
BL_FN void BL_(max)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1], at = 0;
    const BL_T *x = BL_PTR(BL_T, 0) + row * n;
    BL_REAL top;
    BL_ROW_MAX(top, j, n, BL_LOAD(x, j));
    if (!BL_ROW_LEADER)
        return;
    while (at < n - 1 && BL_LOAD(x, at) != top && !BL_(is_nan)(BL_LOAD(x, at)))
        at++;
    BL_STORE(BL_PTR(BL_T, 1), row, top);
    BL_PTR(int64_t, 2)[row] = at;
}

/* x[R, N] -> y[R] */
BL_FN void BL_(amax)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 0) + row * n;
    BL_REAL top;
    BL_ROW_MAX(top, j, n, BL_LOAD(x, j));
    if (BL_ROW_LEADER)
        BL_STORE(BL_PTR(BL_T, 1), row, top);
}

#elif defined BL_ROWS

BL_ROW(REDUCE, sum, NUMBER, .signature = "OKI: x[OKI] -> y[OI]", .grad = {OP(sum_grad)}, .amp = BL_AMP_F32,
       .domain = {-4, 4}, .tolerance = BL_TOLERANCE_SUM, .internal = true, .options = "f[0] = divisor, of floats",
       .formula = "y[o, i] = (sum over k of x[o, k, i]) / divisor",
       .says = "Adds up along axes; 32 lanes, folded as a tree.  Integers and bool as i64.")
BL_ROW(REDUCE, sum_squares, FLOAT, .signature = "OKI: x[OKI] -> y[OI]", .amp = BL_AMP_F32, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_SUM, .internal = true, .options = "f[0] = divisor",
       .formula = "y[o, i] = (sum over k of x[o, k, i]^2) / divisor", .says = "Adds up squares, for norms.")
BL_ROW(LANE, var, FLOAT, .signature = "R: x[RN] -> y[R] mean:f64[R]", .grad = {OP(var_grad)}, .amp = BL_AMP_F32,
       .domain = {-2, 2}, .tolerance = BL_TOLERANCE_SUM, .internal = true, .options = "f[0] = divisor",
       .formula = "y[r] = (sum over n of (x[r, n] - mean x[r])^2) / divisor",
       .says = "Variance of each row, in two passes.")
BL_ROW(LANE, var_grad, FLOAT, .signature = "R: g_y[R] x[RN] mean:f64[R] -> g_x[RN]", .internal = true,
       .options = "f[0] = divisor", .formula = "2 g (x - mean) / divisor", .says = "Gradient of var.")
BL_ROW(DEVICE, sum_grad, FLOAT, .signature = "O: g_y[OI] -> g_x[OKI]", .internal = true, .options = "f[0] = divisor",
       .formula = "g_x[o, k, i] = g_y[o, i] / divisor", .says = "Gradient of sum and mean.")
BL_ROW(LANE, max, ANY, .signature = "R: x[RN] -> y[R] at:i64[R]", .grad = {OP(max_grad)}, .domain = {-4, 4},
       .internal = true, .formula = "y[r] = max over n of x[r, n]; at[r] = the first n that has it",
       .says = "The largest value of each row and its index.")
BL_ROW(LANE, amax, ANY, .signature = "R: x[RN] -> y[R]", .grad = {OP(amax_grad)}, .domain = {-4, 4}, .internal = true,
       .formula = "y[r] = max over n of x[r, n]", .says = "The largest value of each row.")
BL_ROW(LANE, max_grad, FLOAT, .signature = "R: g_y[R] at:index[R] -> g_x[RN]", .internal = true,
       .formula = "g_x[r, n] = n == at[r] ? g_y[r] : 0", .says = "Gradient of max over an axis.")
BL_ROW(LANE, amax_grad, FLOAT, .signature = "R: g_y[R] x[RN] y[R] -> g_x[RN]", .internal = true,
       .formula = "g_x[r, n] = x[r, n] == y[r] ? g_y[r] / ties : 0",
       .says = "Gradient of amax: shared equally among equal maxima; NaN where the maximum is.")

#endif
