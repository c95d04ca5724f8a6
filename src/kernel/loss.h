/* SPDX-License-Identifier: Apache-2.0 */
/* Losses: of rows against labels, which pass bl_label, and element by element. */
#if defined BL_BODIES

#if BL_IS_FLOAT
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

/* g_y[R] x[R, N] labels[R] w[N]? top[R] rest[R] -> g_x[R, N].  Labels are the program's: it may have written there since the forward. */
BL_FN void BL_(cross_entropy_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 1) + row * n, *w = BL_PTR(BL_T, 3);
    BL_T *BL_RESTRICT gx = BL_PTR(BL_T, 6) + row * n;
    bool counts;
    int64_t label = bl_label(l, bad, 2, row, n, &counts);
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

/* x[R, N] labels[R] w[N]? -> y[R] counted[R] */
BL_FN void BL_(nll_loss)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    int64_t n = l->dim[1];
    const BL_T *w = BL_PTR(BL_T, 2);
    bool counts;
    int64_t label = bl_label(l, bad, 1, row, n, &counts);
    BL_REAL weight = !counts ? 0 : w != 0 ? BL_LOAD(w, label) : 1;
    BL_REAL loss = counts ? -weight * BL_LOAD(BL_PTR(BL_T, 0), row * n + label) : 0;
    if (BL_ROW_LEADER) {
        BL_STORE(BL_PTR(BL_T, 3), row, loss);
        BL_STORE(BL_PTR(BL_T, 4), row, weight);
    }
}

/* g_y[R] labels[R] w[N]? -> g_x[R, N].  Labels are the program's: it may have written there since the forward. */
BL_FN void BL_(nll_loss_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    const BL_T *w = BL_PTR(BL_T, 2);
    int64_t n = l->dim[1];
    BL_T *gx = BL_PTR(BL_T, 3) + row * n;
    bool counts;
    int64_t label = bl_label(l, bad, 1, row, n, &counts);
    BL_EACH(j, n) BL_STORE(gx, j, 0);
    if (counts && BL_ROW_OWNS(label))
        BL_STORE(gx, label, -BL_LOAD(BL_PTR(BL_T, 0), row) * (w != 0 ? BL_LOAD(w, label) : 1));
}

/* -(t ln s(x) + (1 - t) ln(1 - s(x))) for the logistic function s: no logarithm of a rounded probability is taken, and no
 * term cancels another. */
BL_FN BL_REAL BL_(binary_error)(BL_REAL x, BL_REAL t)
{
    BL_REAL above = x < 0 ? 0 : x, below = x < 0 ? -x : 0;
    return (1 - t) * above + t * below + BL_(bl_log1p)(BL_(bl_exp)(-(above + below)));
}
BL_FN BL_REAL BL_(binary_error_grad_a)(BL_REAL g, BL_REAL x, BL_REAL t) { return g * (BL_(bl_sigmoid)(x) - t); }
BL_FN BL_REAL BL_(binary_error_grad_b)(BL_REAL g, BL_REAL x, BL_REAL t) { return (void)t, -g * x; }

BL_FN BL_REAL BL_(squared_error)(BL_REAL a, BL_REAL b) { return (a - b) * (a - b); }
BL_FN BL_REAL BL_(squared_error_grad_a)(BL_REAL g, BL_REAL a, BL_REAL b) { return g * (2 * (a - b)); }
BL_FN BL_REAL BL_(squared_error_grad_b)(BL_REAL g, BL_REAL a, BL_REAL b) { return g * (2 * (b - a)); }
#endif

#elif defined BL_ROWS

BL_ROW(LANE, cross_entropy, FLOAT,
       .signature = "R: x[RN] labels:index[R] w[N]? -> y[R] counted[R] top:f64[R] rest:f64[R]",
       .grad = {OP(cross_entropy_grad)}, .amp = BL_AMP_F32, .domain = {-4, 4}, .tolerance = BL_TOLERANCE_SUM,
       .internal = true, .options = "f[0] = label smoothing, i[0] = ignored label, i[1] = whether there is one",
       .formula = "y = (1 - s) w[label] nll(label) + s / N sum over c of w[c] nll(c)",
       .says = "Loss of each row against its class; a label out of range is the fault index.label.")
BL_ROW(LANE, cross_entropy_grad, FLOAT,
       .signature = "R: g_y[R] x[RN] labels:index[R] w[N]? top:f64[R] rest:f64[R] -> g_x[RN]", .internal = true,
       .formula = "g (p ((1 - s) w[label] + s mean(w)) - s w / N - (1 - s) w[label] at the label)",
       .says = "Gradient of cross_entropy.")
BL_ROW(LANE, nll_loss, FLOAT, .signature = "R: x[RN] labels:index[R] w[N]? -> y[R] counted[R]",
       .grad = {OP(nll_loss_grad)}, .amp = BL_AMP_F32, .domain = {-4, 4}, .tolerance = BL_TOLERANCE_ELEMENT,
       .internal = true, .options = "i[0] = ignored label, i[1] = whether there is one",
       .formula = "y = -w[label] x[label]",
       .says = "Negative log-likelihood of each row's class; a label out of range is the fault index.label.")
BL_ROW(LANE, nll_loss_grad, FLOAT, .signature = "R: g_y[R] labels:index[R] w[N]? -> g_x[RN]", .internal = true,
       .formula = "-g w[label] at the label, else 0", .says = "Gradient of nll_loss.")
BL_ROW(MAP2, binary_error, FLOAT, .grad = {OP(binary_error_grad_a), OP(binary_error_grad_b)},
       .keep = BL_KEEP_A | BL_KEEP_B, .amp = BL_AMP_F32, .domain = {0.1, 1}, .tolerance = BL_TOLERANCE_ELEMENT,
       .formula = "(1 - b) ln(1 + e^a) + b ln(1 + e^-a)",
       .says = "Binary cross-entropy of logits against probabilities, element by element, broadcasting.")
BL_ROW(MAP3, binary_error_grad_a, FLOAT, .internal = true, .formula = "g (1 / (1 + e^-a) - b)",
       .says = "Gradient of binary_error for the logits.")
BL_ROW(MAP3, binary_error_grad_b, FLOAT, .internal = true, .formula = "-g a",
       .says = "Gradient of binary_error for the probabilities.")
BL_ROW(MAP2, squared_error, FLOAT, .grad = {OP(squared_error_grad_a), OP(squared_error_grad_b)},
       .keep = BL_KEEP_A | BL_KEEP_B, .amp = BL_AMP_F32, .domain = {-4, 4}, .tolerance = BL_TOLERANCE_ELEMENT,
       .formula = "(a - b)^2", .says = "Squares of differences, broadcasting.")
BL_ROW(MAP3, squared_error_grad_a, FLOAT, .internal = true, .formula = "2 g (a - b)",
       .says = "Gradient of squared_error for its first operand.")
BL_ROW(MAP3, squared_error_grad_b, FLOAT, .internal = true, .formula = "2 g (b - a)",
       .says = "Gradient of squared_error for its second operand.")

#endif
