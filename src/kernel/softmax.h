/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax of rows, and the loss that is made of it.  The maximum is taken off first, so that no exponential overflows;
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

/* x[R, N] labels[R] w[N]? -> y[R] counted[R] top[R] rest[R].  A row whose label is left out counts 0 and loses 0.
 * Smoothing: Szegedy et al., "Rethinking the Inception Architecture" (2016), weighted as PyTorch does. */
BL_FN void BL_(cross_entropy)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 0) + row * n, *w = BL_PTR(BL_T, 2);
    bool counts;
    int64_t label = bl_label(l, bad, 1, row, n, &counts);
    BL_REAL top = 0, sum = 1, loss = 0, weight = 0, rest = 0, even = (BL_REAL)l->params.f[0];
    if (counts) {
        BL_ROW_MAX(top, j, n, BL_LOAD(x, j));
        BL_ROW_SUM(sum, j, n, BL_(bl_exp)(BL_LOAD(x, j) - top));
        rest = BL_(bl_log)(sum);
        weight = w != 0 ? BL_LOAD(w, label) : 1;
        loss = weight * (rest - (BL_LOAD(x, label) - top));
    }
    if (counts && even != 0) {
        BL_REAL all;
        if (w != 0)
            BL_ROW_SUM(all, j, n, BL_LOAD(w, j) * (rest - (BL_LOAD(x, j) - top)));
        else
            BL_ROW_SUM(all, j, n, rest - (BL_LOAD(x, j) - top));
        loss = (1 - even) * loss + even / (BL_REAL)n * all;
    }
    if (BL_ROW_LEADER) {
        BL_STORE(BL_PTR(BL_T, 3), row, loss);
        BL_STORE(BL_PTR(BL_T, 4), row, weight);
        BL_PTR(double, 5)[row] = (double)top;
        BL_PTR(double, 6)[row] = (double)rest;
    }
}

/* g_y[R] x[R, N] labels[R] w[N]? top[R] rest[R] -> g_x[R, N].  The forward has told of bad labels. */
BL_FN void BL_(cross_entropy_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 1) + row * n, *w = BL_PTR(BL_T, 3);
    BL_T *BL_RESTRICT gx = BL_PTR(BL_T, 6) + row * n;
    bl_bad told = {0};
    bool counts;
    int64_t label = bl_label(l, &told, 2, row, n, &counts);
    if (!counts) {
        BL_EACH(j, n) BL_STORE(gx, j, 0);
        return;
    }
    BL_REAL g = BL_LOAD(BL_PTR(BL_T, 0), row), even = (BL_REAL)l->params.f[0], share = even / (BL_REAL)n;
    BL_REAL top = (BL_REAL)BL_PTR(double, 4)[row], rest = (BL_REAL)BL_PTR(double, 5)[row];
    BL_REAL own = (1 - even) * (w != 0 ? BL_LOAD(w, label) : 1), all = (BL_REAL)n;
    if (w != 0 && even != 0)
        BL_ROW_SUM(all, j, n, BL_LOAD(w, j));
    BL_REAL total = own + share * all;
    if (w != 0)
        BL_EACH(j, n) BL_STORE(gx, j, g * (total * BL_(bl_exp)((BL_LOAD(x, j) - top) - rest) - share * BL_LOAD(w, j)));
    else
        BL_EACH(j, n) BL_STORE(gx, j, g * (total * BL_(bl_exp)((BL_LOAD(x, j) - top) - rest) - share));
    if (BL_ROW_OWNS(label)) {
        BL_REAL p = BL_(bl_exp)((BL_LOAD(x, label) - top) - rest);
        BL_STORE(gx, label, g * (total * p - share * (w != 0 ? BL_LOAD(w, label) : 1) - own));
    }
}

BL_FN BL_REAL BL_(squared_error)(BL_REAL a, BL_REAL b) { return (a - b) * (a - b); }
BL_FN BL_REAL BL_(squared_error_grad_a)(BL_REAL g, BL_REAL a, BL_REAL b) { return g * (2 * (a - b)); }
BL_FN BL_REAL BL_(squared_error_grad_b)(BL_REAL g, BL_REAL a, BL_REAL b) { return g * (2 * (b - a)); }
#endif

#elif defined BL_ROWS

BL_ROW(LANE, softmax, FLOAT, .signature = "R: x[RN] -> y[RN]", .grad = {OP(softmax_grad)}, .amp = BL_AMP_F32,
       .domain = {-4, 4}, .tolerance = BL_TOLERANCE_SUM, .internal = true,
       .formula = "y = e^(x - max x) / sum of e^(x - max x)", .says = "Turns each row into probabilities.")
BL_ROW(LANE, log_softmax, FLOAT, .signature = "R: x[RN] -> y[RN]", .grad = {OP(log_softmax_grad)}, .amp = BL_AMP_F32,
       .domain = {-4, 4}, .tolerance = BL_TOLERANCE_SUM, .internal = true,
       .formula = "y = x - max x - ln sum of e^(x - max x)", .says = "Logarithms of each row's probabilities.")
BL_ROW(LANE, cross_entropy, FLOAT,
       .signature = "R: x[RN] labels:index[R] w[N]? -> y[R] counted[R] top:f64[R] rest:f64[R]",
       .grad = {OP(cross_entropy_grad)}, .amp = BL_AMP_F32, .domain = {-4, 4}, .tolerance = BL_TOLERANCE_SUM,
       .internal = true, .options = "f[0] = label smoothing, i[0] = ignored label, i[1] = whether there is one",
       .formula = "y = (1 - s) w[label] nll(label) + s / N sum over c of w[c] nll(c)",
       .says = "Loss of each row against its class; a label out of range is the fault index.label.")
BL_ROW(LANE, softmax_grad, FLOAT, .signature = "R: g_y[RN] y[RN] -> g_x[RN]", .internal = true,
       .formula = "y (g - sum of g y)", .says = "Gradient of softmax.")
BL_ROW(LANE, log_softmax_grad, FLOAT, .signature = "R: g_y[RN] y[RN] -> g_x[RN]", .internal = true,
       .formula = "g - e^y sum of g", .says = "Gradient of log_softmax.")
BL_ROW(LANE, cross_entropy_grad, FLOAT,
       .signature = "R: g_y[R] x[RN] labels:index[R] w[N]? top:f64[R] rest:f64[R] -> g_x[RN]", .internal = true,
       .formula = "g (p ((1 - s) w[label] + s mean(w)) - s w / N - (1 - s) w[label] at the label)",
       .says = "Gradient of cross_entropy.")
BL_ROW(MAP2, squared_error, FLOAT, .grad = {OP(squared_error_grad_a), OP(squared_error_grad_b)},
       .keep = BL_KEEP_A | BL_KEEP_B, .amp = BL_AMP_F32, .domain = {-4, 4}, .tolerance = BL_TOLERANCE_ELEMENT,
       .formula = "(a - b)^2", .says = "Squares of differences, broadcasting.")
BL_ROW(MAP3, squared_error_grad_a, FLOAT, .internal = true, .formula = "2 g (a - b)",
       .says = "Gradient of squared_error for its first operand.")
BL_ROW(MAP3, squared_error_grad_b, FLOAT, .internal = true, .formula = "2 g (b - a)",
       .says = "Gradient of squared_error for its second operand.")

#endif
