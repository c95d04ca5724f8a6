/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation of x[N, C, L] over N and L.  Ioffe and Szegedy, "Batch Normalization" (2015).
 *
 * An item is a channel.  Its sums run over L with 32 lanes for each n in turn, over n where L is 1. */
#if defined BL_BODIES

#if BL_IS_FLOAT
#define BL_CHANNEL_SUM(WORD, type, result, TERM)                                                                       \
    do {                                                                                                               \
        const int64_t outer_ = l->dim[0], step_ = l->dim[1], inner_ = l->dim[2];                                       \
        type part_;                                                                                                    \
        (result) = 0;                                                                                                  \
        if (inner_ == 1)                                                                                               \
            WORD(result, j, outer_, TERM(j *step_ + row));                                                             \
        else                                                                                                           \
            for (int64_t n_ = 0; n_ < outer_; n_++) {                                                                  \
                WORD(part_, j, inner_, TERM((n_ * step_ + row) * inner_ + j));                                         \
                (result) += part_;                                                                                     \
            }                                                                                                          \
    } while (0)
#define BL_CHANNEL_EACH(WRITE)                                                                                         \
    do {                                                                                                               \
        const int64_t outer_ = l->dim[0], step_ = l->dim[1], inner_ = l->dim[2];                                       \
        if (inner_ == 1)                                                                                               \
            BL_EACH(j, outer_) WRITE(j *step_ + row);                                                                  \
        else                                                                                                           \
            for (int64_t n_ = 0; n_ < outer_; n_++)                                                                    \
                BL_EACH(j, inner_) WRITE((n_ * step_ + row) * inner_ + j);                                             \
    } while (0)

/* x[N, C, L] -> mean[C] var[C]; the variance is the biased one, in two passes, both in double */
BL_FN void BL_(batch_stats)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    const BL_T *x = BL_PTR(BL_T, 0);
    double n = (double)(l->dim[0] * l->dim[2]), sum, squares;
#define BL_TERM(e) (double)BL_LOAD(x, e)
    BL_CHANNEL_SUM(BL_ROW_SUM_F64, double, sum, BL_TERM);
#undef BL_TERM
    double mean = sum / n;
#define BL_TERM(e) ((double)BL_LOAD(x, e) - mean) * ((double)BL_LOAD(x, e) - mean)
    BL_CHANNEL_SUM(BL_ROW_SUM_F64, double, squares, BL_TERM);
#undef BL_TERM
    if (BL_ROW_LEADER) {
        BL_PTR(double, 1)[row] = mean;
        BL_PTR(double, 2)[row] = squares / n;
    }
}

BL_FN BL_REAL BL_(batch_rstd)(const bl_launch *l, double var)
{
    return 1 / BL_(bl_sqrt)((BL_REAL)var + (BL_REAL)l->params.f[0]);
}

/* x[N, C, L] mean[C] var[C] w[C]? b[C]? -> y[N, C, L] */
BL_FN void BL_(batch_norm)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    const BL_T *x = BL_PTR(BL_T, 0), *w = BL_PTR(BL_T, 3), *b = BL_PTR(BL_T, 4);
    BL_T *y = BL_PTR(BL_T, 5);
    BL_REAL mean = (BL_REAL)BL_PTR(double, 1)[row], rstd = BL_(batch_rstd)(l, BL_PTR(double, 2)[row]);
    BL_REAL scale = w != 0 ? BL_LOAD(w, row) : 1, shift = b != 0 ? BL_LOAD(b, row) : 0;
#define BL_WRITE(e) BL_STORE(y, e, (BL_LOAD(x, e) - mean) * rstd * scale + shift)
    BL_CHANNEL_EACH(BL_WRITE);
#undef BL_WRITE
}

/* g_y[N, C, L] x[N, C, L] mean[C] var[C] w[C]? -> g_x[N, C, L] g_w[C] g_b[C]; i[1]: mean and variance are those of x, so
 * that x passes gradients to them as well */
BL_FN void BL_(batch_norm_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    const BL_T *g = BL_PTR(BL_T, 0), *x = BL_PTR(BL_T, 1), *w = BL_PTR(BL_T, 4);
    BL_T *gx = BL_PTR(BL_T, 5);
    BL_REAL mean = (BL_REAL)BL_PTR(double, 2)[row], rstd = BL_(batch_rstd)(l, BL_PTR(double, 3)[row]);
    BL_REAL n = (BL_REAL)(l->dim[0] * l->dim[2]), sum, dot;
#define BL_TERM(e) BL_LOAD(g, e)
    BL_CHANNEL_SUM(BL_ROW_SUM, BL_REAL, sum, BL_TERM);
#undef BL_TERM
#define BL_TERM(e) BL_LOAD(g, e) * ((BL_LOAD(x, e) - mean) * rstd)
    BL_CHANNEL_SUM(BL_ROW_SUM, BL_REAL, dot, BL_TERM);
#undef BL_TERM
    BL_REAL scale = rstd * (w != 0 ? BL_LOAD(w, row) : 1);
    BL_REAL even = l->params.i[1] != 0 ? sum / n : 0, tilt = l->params.i[1] != 0 ? dot / n : 0;
#define BL_WRITE(e) BL_STORE(gx, e, scale *(BL_LOAD(g, e) - even - (BL_LOAD(x, e) - mean) * rstd * tilt))
    BL_CHANNEL_EACH(BL_WRITE);
#undef BL_WRITE
    if (BL_ROW_LEADER) {
        BL_STORE(BL_PTR(BL_T, 6), row, dot);
        BL_STORE(BL_PTR(BL_T, 7), row, sum);
    }
}

/* mean[C] var[C] running_mean[C] running_var[C] n_tracked[1]? -> next_mean[C] next_var[C]; f[0] = momentum, f[1] makes the
 * variance unbiased; n_tracked: the batches before this one; i[0] = it is their mean that runs.  A channel whose
 * statistics would not be finite keeps what it has, and is noted with the bits of what it would have had, and as limit 1
 * where x was not finite, 2 where what it has is not, else 0; with i[1] not where x was not finite, for that is an
 * overflow, which the gradients tell. */
BL_FN void BL_(batch_track)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    if (!BL_ROW_LEADER)
        return;
    const int64_t *tracked = BL_PTR(int64_t, 4);
    bool is_count = tracked == 0 || (tracked[0] >= 0 && tracked[0] < INT64_MAX);
    double fresh = tracked != 0 && is_count && l->params.i[0] != 0 ? 1 / (double)(tracked[0] + 1) : l->params.f[0];
    BL_REAL new_ = (BL_REAL)fresh, old = (BL_REAL)(1 - fresh);
    BL_REAL mean = (BL_REAL)BL_PTR(double, 0)[row], var = (BL_REAL)(BL_PTR(double, 1)[row] * l->params.f[1]);
    BL_T *next_mean = BL_PTR(BL_T, 5), *next_var = BL_PTR(BL_T, 6);
    BL_STORE(next_mean, row, old * BL_LOAD(BL_PTR(BL_T, 2), row) + new_ * mean);
    BL_STORE(next_var, row, old * BL_LOAD(BL_PTR(BL_T, 3), row) + new_ * var);
    BL_REAL made[2] = {BL_LOAD(next_mean, row), BL_LOAD(next_var, row)};
    bool is_finite[2] = {made[0] - made[0] == 0, made[1] - made[1] == 0};
    BL_REAL had[2] = {BL_LOAD(BL_PTR(BL_T, 2), row), BL_LOAD(BL_PTR(BL_T, 3), row)};
    bool is_of_x = !(BL_PTR(double, 0)[row] - BL_PTR(double, 0)[row] == 0);
    bool is_overflow = l->params.i[1] != 0 && is_of_x;
    int why = is_of_x ? 1 : had[0] - had[0] == 0 && had[1] - had[1] == 0 ? 0 : 2;
    if (!is_count && row == 0)
        bl_bad_note(bad, BELAY_CONF_VALUE, 4, 0, tracked[0], 0);
    else if (!is_overflow && (!is_finite[0] || !is_finite[1]))
        bl_bad_note(bad, BELAY_NUM_NONFINITE, is_finite[0] ? 3 : 2, row,
                    bl_bits_of_float((float)made[is_finite[0] ? 1 : 0]), why);
    if (is_count && is_finite[0] && is_finite[1])
        return;
    next_mean[row] = BL_PTR(BL_T, 2)[row];
    next_var[row] = BL_PTR(BL_T, 3)[row];
}
#undef BL_CHANNEL_SUM
#undef BL_CHANNEL_EACH
#endif

#elif defined BL_ROWS

BL_ROW(LANE, batch_stats, FLOAT, .signature = "C: x[NCL] -> mean:f64[C] var:f64[C]", .amp = BL_AMP_F32,
       .domain = {-2, 2}, .tolerance = BL_TOLERANCE_SUM, .internal = true,
       .formula = "mean and biased variance over n and l of x[n, c, l]",
       .says = "Statistics of each channel of a batch.")
BL_ROW(LANE, batch_norm, FLOAT, .signature = "C: x[NCL] mean:f64[C] var:f64[C] w[C]? b[C]? -> y[NCL]",
       .grad = {OP(batch_norm_grad)}, .amp = BL_AMP_F32, .domain = {-2, 2}, .tolerance = BL_TOLERANCE_SUM,
       .internal = true, .options = "f[0] = eps, i[1] = mean and variance are those of x",
       .formula = "y = (x - mean) / sqrt(var + eps) * w + b", .says = "Normalises each channel.")
BL_ROW(LANE, batch_norm_grad, FLOAT,
       .signature = "C: g_y[NCL] x[NCL] mean:f64[C] var:f64[C] w[C]? -> g_x[NCL] g_w[C] g_b[C]", .internal = true,
       .formula = "g_x = w rstd (g - mean(g) - xhat mean(g xhat)); g_w = sum of g xhat; g_b = sum of g",
       .says = "Gradients of batch_norm.")
BL_ROW(LANE, batch_track, FLOAT,
       .signature =
           "C: mean:f64[C] var:f64[C] running_mean[C] running_var[C] n_tracked:i64[1]? -> next_mean[C] next_var[C]",
       .domain = {0.25, 2}, .tolerance = BL_TOLERANCE_SUM, .internal = true,
       .options = "f[0] = momentum, f[1] = n / (n - 1), i[0] = the mean over all batches, i[1] = under autocast",
       .formula = "(1 - f) running + f batch", .says = "What running statistics become by one more batch.")

#endif
