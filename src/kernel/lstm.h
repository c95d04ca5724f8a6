/* SPDX-License-Identifier: Apache-2.0 */
/* The cell of an LSTM, fused: everything of one step of one layer but its matrix products.  Buffers are time-major,
 * gates stand in PyTorch's order i, f, g, o. */
#if defined BL_BODIES

#if BL_IS_FLOAT
/* gates[B, 4, H]! bias[4, H] before[B, H] c[B, H]! h[B, H]!: gates come in as W_ih x + W_hh h and go out activated.
 * Hochreiter and Schmidhuber, "Long short-term memory" (1997); forget gate: Gers, Schmidhuber and Cummins (2000). */
BL_FN void BL_(lstm_cell)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[2];
    BL_T *BL_RESTRICT i = BL_PTR(BL_T, 0) + row * 4 * n;
    BL_T *BL_RESTRICT f = i + n;
    BL_T *BL_RESTRICT g = f + n;
    BL_T *BL_RESTRICT o = g + n;
    const BL_T *BL_RESTRICT bias = BL_PTR(BL_T, 1);
    const BL_T *BL_RESTRICT before = BL_PTR(BL_T, 2) + row * n;
    BL_T *BL_RESTRICT c = BL_PTR(BL_T, 3) + row * n;
    BL_T *BL_RESTRICT h = BL_PTR(BL_T, 4) + row * n;
    BL_EACH_APART(j, n)
    {
        BL_REAL in = BL_(bl_sigmoid)(BL_LOAD(i, j) + BL_LOAD(bias, j));
        BL_REAL candidate = BL_(bl_tanh)(BL_LOAD(g, j) + BL_LOAD(bias, 2 * n + j));
        BL_REAL forget = BL_(bl_sigmoid)(BL_LOAD(f, j) + BL_LOAD(bias, n + j));
        BL_STORE(i, j, in);
        BL_STORE(f, j, forget);
        BL_STORE(g, j, candidate);
        BL_STORE(c, j, forget * BL_LOAD(before, j) + in * candidate);
    }
    BL_EACH_APART(j, n)
    {
        BL_REAL out = BL_(bl_sigmoid)(BL_LOAD(o, j) + BL_LOAD(bias, 3 * n + j));
        BL_STORE(o, j, out);
        BL_STORE(h, j, out * BL_(bl_tanh)(BL_LOAD(c, j)));
    }
}

/* gates[B, 4, H]! c[B, H] before[B, H] g_h[B, H] g_c[B, H]!: activated gates come in, the gradients of their sums go
 * out; g_c comes in from the step after and goes out to the step before. */
BL_FN void BL_(lstm_cell_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[2];
    BL_T *BL_RESTRICT i = BL_PTR(BL_T, 0) + row * 4 * n;
    BL_T *BL_RESTRICT f = i + n;
    BL_T *BL_RESTRICT g = f + n;
    BL_T *BL_RESTRICT o = g + n;
    const BL_T *BL_RESTRICT c = BL_PTR(BL_T, 1) + row * n;
    const BL_T *BL_RESTRICT before = BL_PTR(BL_T, 2) + row * n;
    const BL_T *BL_RESTRICT g_h = BL_PTR(BL_T, 3) + row * n;
    BL_T *BL_RESTRICT g_c = BL_PTR(BL_T, 4) + row * n;
    BL_EACH_APART(j, n)
    {
        BL_REAL in = BL_LOAD(i, j), forget = BL_LOAD(f, j), candidate = BL_LOAD(g, j), out = BL_LOAD(o, j);
        BL_REAL arrived = BL_LOAD(g_h, j), squashed = BL_(bl_tanh)(BL_LOAD(c, j));
        BL_REAL cell = BL_LOAD(g_c, j) + arrived * out * (1 - squashed * squashed);
        BL_STORE(i, j, cell * candidate * in * (1 - in));
        BL_STORE(f, j, cell * BL_LOAD(before, j) * forget * (1 - forget));
        BL_STORE(g, j, cell * in * (1 - candidate * candidate));
        BL_STORE(o, j, arrived * squashed * out * (1 - out));
        BL_STORE(g_c, j, cell * forget);
    }
}

/* x[T, B, H] -> y[T, B, H]; f and rng as dropout's; i[0] = first element.  Elements are counted as in [B, T, H], so that
 * a batch that is split over ranks draws what the whole one draws. */
BL_FN void BL_(lstm_dropout)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[2], step = row / l->dim[1], sample = row % l->dim[1];
    int64_t first = l->params.i[0] + (sample * l->dim[0] + step) * n;
    const BL_T *BL_RESTRICT x = BL_PTR(BL_T, 0) + row * n;
    BL_T *BL_RESTRICT y = BL_PTR(BL_T, 1) + row * n;
    bl_rng_key key = l->params.rng;
    float p = (float)l->params.f[0];
    BL_REAL scale = (BL_REAL)l->params.f[1];
    BL_EACH_WORD(j, word, n, key, first, BL_STORE(y, j, bl_rng_uniform(word) < p ? 0 : BL_LOAD(x, j) * scale))
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, lstm_cell, FLOAT, .signature = "B: gates[B4H]! bias[4H] before[BH] c[BH]! h[BH]! ->", .amp = BL_AMP_F32,
       .internal = true, .formula = "c = f before + i g; h = o tanh c",
       .says = "One step of an LSTM after its products.")
BL_ROW(LANE, lstm_cell_grad, FLOAT, .signature = "B: gates[B4H]! c[BH] before[BH] g_h[BH] g_c[BH]! ->",
       .amp = BL_AMP_F32, .internal = true, .formula = "gradients of the gates' sums and of c before the step",
       .says = "Gradient of one step of an LSTM.")
BL_ROW(LANE, lstm_dropout, FLOAT, .signature = "TB: x[TBH] -> y[TBH]", .internal = true,
       .options = "f[0] = p, f[1] = 1 / (1 - p), i[0] = first element, rng", .formula = "u < p ? 0 : x / (1 - p)",
       .says = "Dropout between the layers of an LSTM or GRU, and its own gradient.")

#endif
