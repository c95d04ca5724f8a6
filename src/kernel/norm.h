/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation of rows. */
#if defined BL_BODIES

#if BL_IS_FLOAT
/* Ba, Kiros, Hinton, "Layer Normalization" (2016): two passes over a row, biased variance.
 * x[R, N] w[N]? b[N]? -> y[R, N] mean[R] rstd[R] */
BL_FN void BL_(layer_norm)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 0) + row * n, *w = BL_PTR(BL_T, 1), *b = BL_PTR(BL_T, 2);
    BL_T *y = BL_PTR(BL_T, 3) + row * n;
    BL_REAL sum, squares;
    BL_ROW_SUM(sum, j, n, BL_LOAD(x, j));
    BL_REAL mean = sum / (BL_REAL)n;
    BL_ROW_SUM(squares, j, n, (BL_LOAD(x, j) - mean) * (BL_LOAD(x, j) - mean));
    BL_REAL rstd = 1 / BL_(bl_sqrt)(squares / (BL_REAL)n + (BL_REAL)l->params.f[0]);
    if (w != 0 && b != 0)
        BL_EACH(j, n) BL_STORE(y, j, (BL_LOAD(x, j) - mean) * rstd * BL_LOAD(w, j) + BL_LOAD(b, j));
    else if (w != 0)
        BL_EACH(j, n) BL_STORE(y, j, (BL_LOAD(x, j) - mean) * rstd * BL_LOAD(w, j));
    else if (b != 0)
        BL_EACH(j, n) BL_STORE(y, j, (BL_LOAD(x, j) - mean) * rstd + BL_LOAD(b, j));
    else
        BL_EACH(j, n) BL_STORE(y, j, (BL_LOAD(x, j) - mean) * rstd);
    if (BL_ROW_LEADER) {
        BL_STORE(BL_PTR(BL_T, 4), row, mean);
        BL_STORE(BL_PTR(BL_T, 5), row, rstd);
    }
}

/* g_y[R, N] x[R, N] w[N]? mean[R] rstd[R] -> g_x[R, N] */
BL_FN void BL_(layer_norm_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *g = BL_PTR(BL_T, 0) + row * n, *x = BL_PTR(BL_T, 1) + row * n, *w = BL_PTR(BL_T, 2);
    BL_REAL mean = BL_LOAD(BL_PTR(BL_T, 3), row), rstd = BL_LOAD(BL_PTR(BL_T, 4), row);
    BL_T *gx = BL_PTR(BL_T, 5) + row * n;
    BL_REAL sum, dot;
#define BL_UPSTREAM(j) (BL_LOAD(g, j) * (w != 0 ? BL_LOAD(w, j) : 1))
    BL_ROW_SUM(sum, j, n, BL_UPSTREAM(j));
    BL_ROW_SUM(dot, j, n, BL_UPSTREAM(j) * ((BL_LOAD(x, j) - mean) * rstd));
    sum /= (BL_REAL)n;
    dot /= (BL_REAL)n;
    BL_EACH(j, n) BL_STORE(gx, j, rstd * (BL_UPSTREAM(j) - sum - (BL_LOAD(x, j) - mean) * rstd * dot));
#undef BL_UPSTREAM
}

/* g_y[R, N] x[R, N] mean[R] rstd[R] -> g_w[N] */
BL_FN BL_REAL BL_(layer_norm_grad_w)(const bl_launch *l, int64_t o, int64_t k, int64_t i)
{
    (void)o;
    int64_t e = k * l->dim[1] + i;
    BL_REAL normal = (BL_LOAD(BL_PTR(BL_T, 1), e) - BL_LOAD(BL_PTR(BL_T, 2), k)) * BL_LOAD(BL_PTR(BL_T, 3), k);
    return BL_LOAD(BL_PTR(BL_T, 0), e) * normal;
}
BL_FN BL_REAL BL_(layer_norm_grad_b)(const bl_launch *l, int64_t o, int64_t k, int64_t i)
{
    (void)o;
    return BL_LOAD(BL_PTR(BL_T, 0), k * l->dim[1] + i);
}

/* x[R, N] w[N]? -> y[R, N] rstd[R] */
BL_FN void BL_(rms_norm)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 0) + row * n, *w = BL_PTR(BL_T, 1);
    BL_T *y = BL_PTR(BL_T, 2) + row * n;
    BL_REAL squares;
    BL_ROW_SUM(squares, j, n, BL_LOAD(x, j) * BL_LOAD(x, j));
    BL_REAL rstd = 1 / BL_(bl_sqrt)(squares / (BL_REAL)n + (BL_REAL)l->params.f[0]);
    if (w != 0)
        BL_EACH(j, n) BL_STORE(y, j, BL_LOAD(x, j) * rstd * BL_LOAD(w, j));
    else
        BL_EACH(j, n) BL_STORE(y, j, BL_LOAD(x, j) * rstd);
    if (BL_ROW_LEADER)
        BL_PTR(double, 3)[row] = (double)rstd;
}

/* g_y[R, N] x[R, N] w[N]? rstd[R] -> g_x[R, N] */
BL_FN void BL_(rms_norm_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *g = BL_PTR(BL_T, 0) + row * n, *x = BL_PTR(BL_T, 1) + row * n, *w = BL_PTR(BL_T, 2);
    BL_T *gx = BL_PTR(BL_T, 4) + row * n;
    BL_REAL rstd = (BL_REAL)BL_PTR(double, 3)[row], dot;
#define BL_UPSTREAM(j) (BL_LOAD(g, j) * (w != 0 ? BL_LOAD(w, j) : 1))
    BL_ROW_SUM(dot, j, n, BL_UPSTREAM(j) * (BL_LOAD(x, j) * rstd));
    dot /= (BL_REAL)n;
    BL_EACH(j, n) BL_STORE(gx, j, rstd * (BL_UPSTREAM(j) - BL_LOAD(x, j) * rstd * dot));
#undef BL_UPSTREAM
}

/* g_y[R, N] x[R, N] rstd[R] -> g_w[N] */
BL_FN BL_REAL BL_(rms_norm_grad_w)(const bl_launch *l, int64_t o, int64_t k, int64_t i)
{
    (void)o;
    int64_t e = k * l->dim[1] + i;
    return BL_LOAD(BL_PTR(BL_T, 0), e) * (BL_LOAD(BL_PTR(BL_T, 1), e) * (BL_REAL)BL_PTR(double, 2)[k]);
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, layer_norm, FLOAT, .signature = "R: x[RN] w[N]? b[N]? -> y[RN] mean[R] rstd[R]",
       .grad = {OP(layer_norm_grad), OP(layer_norm_grad_w), OP(layer_norm_grad_b)}, .amp = BL_AMP_F32,
       .domain = {-2, 2}, .tolerance = BL_TOLERANCE_SUM, .internal = true, .options = "f[0] = eps",
       .formula = "y = (x - mean) / sqrt(variance + eps) * w + b", .says = "Normalises each row to mean 0, variance 1.")
BL_ROW(LANE, layer_norm_grad, FLOAT, .signature = "R: g_y[RN] x[RN] w[N]? mean[R] rstd[R] -> g_x[RN]", .internal = true,
       .formula = "rstd (g w - mean(g w) - xhat mean(g w xhat))", .says = "Gradient of layer_norm for its input.")
BL_ROW(REDUCE, layer_norm_grad_w, FLOAT, .signature = "1RN: g_y[RN] x[RN] mean[R] rstd[R] -> g_w[N]", .internal = true,
       .formula = "sum over rows of g xhat", .says = "Gradient of layer_norm for its weight.")
BL_ROW(REDUCE, layer_norm_grad_b, FLOAT, .signature = "1RN: g_y[RN] -> g_b[N]", .internal = true,
       .formula = "sum over rows of g", .says = "Gradient of layer_norm for its bias.")
BL_ROW(LANE, rms_norm, FLOAT, .signature = "R: x[RN] w[N]? -> y[RN] rstd:f64[R]",
       .grad = {OP(rms_norm_grad), OP(rms_norm_grad_w)}, .amp = BL_AMP_F32, .domain = {-2, 2},
       .tolerance = BL_TOLERANCE_SUM, .internal = true, .options = "f[0] = eps",
       .formula = "y = x / sqrt(mean(x^2) + eps) * w", .says = "Scales each row to a mean square of 1.")
BL_ROW(LANE, rms_norm_grad, FLOAT, .signature = "R: g_y[RN] x[RN] w[N]? rstd:f64[R] -> g_x[RN]", .internal = true,
       .formula = "rstd (g w - xhat mean(g w xhat))", .says = "Gradient of rms_norm for its input.")
BL_ROW(REDUCE, rms_norm_grad_w, FLOAT, .signature = "1RN: g_y[RN] x[RN] rstd:f64[R] -> g_w[N]", .internal = true,
       .formula = "sum over rows of g xhat", .says = "Gradient of rms_norm for its weight.")

#endif
