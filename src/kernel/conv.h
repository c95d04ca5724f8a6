/* SPDX-License-Identifier: Apache-2.0 */
/* What a convolution is beside its products: the columns that each output position sees, and the sum back.  A row of
 * columns is one tap of the kernel on one channel; the positions that a launch covers are counted over an image. */
#if defined BL_BODIES

#if BL_IS_FLOAT
/* Option k of the launch, whose zero means 1. */
BL_FN int64_t BL_(conv_step)(const bl_launch *l, int k) { return l->params.i[k] > 1 ? l->params.i[k] : 1; }

/* Positions along axis k (0: rows, 1: columns) of an image that has n there, for a kernel of `taps`. */
BL_FN int64_t BL_(conv_positions)(const bl_launch *l, int k, int64_t n, int64_t taps)
{
    int64_t span = BL_(conv_step)(l, 4 + k) * (taps - 1) + 1, room = n + 2 * l->params.i[2 + k] - span;
    return room < 0 ? 0 : room / BL_(conv_step)(l, k) + 1;
}

/* The position whose tap at 0 lies `at` behind the padded beginning of axis k; -1: none does. */
BL_FN int64_t BL_(conv_position)(const bl_launch *l, int k, int64_t at)
{
    int64_t step = BL_(conv_step)(l, k);
    if (step == 1)
        return at;
    return at < 0 || at % step != 0 ? -1 : at / step;
}

/* x[N, C, H, W] -> columns[N, C, Y, X, P]; a row is an image, a channel and a tap. */
BL_FN void BL_(conv_columns)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    const int64_t h = l->dim[2], w = l->dim[3], n = l->dim[6], step = BL_(conv_step)(l, 1);
    const int64_t tap_y = row / l->dim[5] % l->dim[4], tap_x = row % l->dim[5];
    const int64_t rows = BL_(conv_positions)(l, 0, h, l->dim[4]), wide = BL_(conv_positions)(l, 1, w, l->dim[5]);
    const BL_T *x = BL_PTR(BL_T, 0) + row / l->dim[5] / l->dim[4] * h * w;
    BL_T *to = BL_PTR(BL_T, 1) + row * n;
    for (int64_t done = 0, run = 0; done < n; done += run, to += run) {
        const int64_t at = l->params.i[6] + done, y = wide > 0 ? at / wide : rows;
        run = y < rows && wide - at % wide < n - done ? wide - at % wide : n - done;
        const int64_t line = y * BL_(conv_step)(l, 0) - l->params.i[2] + tap_y * BL_(conv_step)(l, 4);
        const int64_t first = wide > 0 ? at % wide * step - l->params.i[3] + tap_x * BL_(conv_step)(l, 5) : 0;
        if (y >= rows || line < 0 || line >= h) {
            BL_EACH(j, run) BL_STORE(to, j, 0);
            continue;
        }
        const BL_T *from = x + line * w;
        if (step > 1) {
            BL_EACH(j, run)
            {
                int64_t i = first + j * step;
                BL_STORE(to, j, i >= 0 && i < w ? BL_LOAD(from, i) : 0);
            }
            continue;
        }
        int64_t low = first < 0 ? -first : 0, high = w - first < run ? w - first : run;
        low = low < run ? low : run;
        high = high > low ? high : low;
        BL_EACH(j, low) BL_STORE(to, j, 0);
        BL_EACH(j, high - low) to[low + j] = from[first + low + j];
        BL_EACH(j, run - high) BL_STORE(to, high + j, 0);
    }
}

/* conv_columns_grad for one row of g_x, line number `at` of its image, where columns have stride 1: the elements that a tap
 * saw are a run, which is added at once.  An element adds its taps in the same order as below, in its own memory: nothing
 * for types that round there. */
BL_FN void BL_(conv_add_rows)(const bl_launch *l, int64_t at, const BL_T *BL_RESTRICT g, int64_t rows, int64_t wide,
                              BL_T *BL_RESTRICT gx)
{
    const int64_t taps_y = l->dim[2], taps_x = l->dim[3], n = l->dim[4], w = l->dim[6];
    if (l->params.i[7] == 0)
        BL_EACH(j, w) BL_STORE(gx, j, 0);
    for (int64_t tap_y = 0; tap_y < taps_y; tap_y++) {
        int64_t y = BL_(conv_position)(l, 0, at + l->params.i[2] - tap_y * BL_(conv_step)(l, 4));
        int64_t line = y * wide - l->params.i[6]; /* of its first position in the launch */
        if (y < 0 || y >= rows || line + wide <= 0 || line >= n)
            continue;
        int64_t first = line < 0 ? -line : 0, end = wide < n - line ? wide : n - line;
        for (int64_t tap_x = 0; tap_x < taps_x; tap_x++) {
            int64_t shift = l->params.i[3] - tap_x * BL_(conv_step)(l, 5);
            int64_t low = first - shift, high = end - shift, from = (tap_y * taps_x + tap_x) * n + line + shift;
            BL_EACH_APART(j, w)
            {
                if (j >= low && j < high)
                    BL_STORE(gx, j, BL_LOAD(gx, j) + BL_LOAD(g, from + j));
            }
        }
    }
}

/* g_columns[N, C, Y, X, P] -> g_x[N, C, H, W]: each element adds up the taps that saw it, in their order; i[7]: to what
 * it holds already. */
BL_FN void BL_(conv_columns_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    const int64_t taps_y = l->dim[2], taps_x = l->dim[3], n = l->dim[4], h = l->dim[5], w = l->dim[6];
    const int64_t rows = BL_(conv_positions)(l, 0, h, taps_y), wide = BL_(conv_positions)(l, 1, w, taps_x);
    const BL_T *g = BL_PTR(BL_T, 0) + row / h * taps_y * taps_x * n;
    BL_T *gx = BL_PTR(BL_T, 1) + row * w;
    if (sizeof(BL_T) == sizeof(BL_REAL) && BL_(conv_step)(l, 1) == 1) {
        BL_(conv_add_rows)(l, row % h, g, rows, wide, gx);
        return;
    }
    BL_EACH(j, w)
    {
        BL_REAL sum = l->params.i[7] != 0 ? BL_LOAD(gx, j) : 0;
        for (int64_t tap_y = 0; tap_y < taps_y; tap_y++) {
            int64_t y = BL_(conv_position)(l, 0, row % h + l->params.i[2] - tap_y * BL_(conv_step)(l, 4));
            int64_t line = y * wide - l->params.i[6]; /* of its first position in the launch */
            if (y < 0 || y >= rows || line + wide <= 0 || line >= n)
                continue;
            for (int64_t tap_x = 0; tap_x < taps_x; tap_x++) {
                int64_t x = BL_(conv_position)(l, 1, j + l->params.i[3] - tap_x * BL_(conv_step)(l, 5));
                if (x >= 0 && x < wide && line + x >= 0 && line + x < n)
                    sum += BL_LOAD(g, (tap_y * taps_x + tap_x) * n + line + x);
            }
        }
        BL_STORE(gx, j, sum);
    }
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, conv_columns, FLOAT, .signature = "NCYX: x[NCHW] -> columns[NCYXP]", .grad = {OP(conv_columns_grad)},
       .domain = {-4, 4}, .internal = true,
       .options = "i[0..1] = stride, i[2..3] = padding, i[4..5] = dilation, i[6] = first position",
       .formula = "columns[n, c, y, x, p] = x[n, c, row of p + y, column of p + x], 0 outside",
       .says = "What the taps of a convolution see at a run of positions.")
BL_ROW(LANE, conv_columns_grad, FLOAT, .signature = "NCH: g_columns[NCYXP] -> g_x[NCHW]", .internal = true,
       .tolerance = BL_TOLERANCE_SUM, .options = "as conv_columns, i[7] = add to g_x",
       .formula = "g_x[n, c, h, w] = sum over the taps that saw it",
       .says = "Gradient of conv_columns: each element adds up its own.")

#endif
