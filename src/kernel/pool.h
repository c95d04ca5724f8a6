/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: the largest and the mean of windows over the last two axes.  Options of all: i[0..1] = kernel, i[2..3] =
 * stride, i[4..5] = padding, i[6] = padding does not count. */
#if defined BL_BODIES

#if BL_IS_FLOAT
/* Option k of the launch, whose zero means 1. */
BL_FN int64_t BL_(pool_option)(const bl_launch *l, int k) { return l->params.i[k] > 1 ? l->params.i[k] : 1; }

/* The elements of window `at` along axis k, which has n: from `first` on, how many (0 and fewer: none). */
BL_FN int64_t BL_(pool_window)(const bl_launch *l, int k, int64_t at, int64_t n, int64_t *first)
{
    int64_t begin = at * BL_(pool_option)(l, 2 + k) - l->params.i[4 + k], end = begin + BL_(pool_option)(l, k);
    *first = begin > 0 ? begin : 0;
    return (end < n ? end : n) - *first;
}

/* The windows that element `at` of axis k lies in, of m: from `first` on, how many. */
BL_FN int64_t BL_(pool_windows_of)(const bl_launch *l, int k, int64_t at, int64_t m, int64_t *first)
{
    int64_t step = BL_(pool_option)(l, 2 + k), behind = at + l->params.i[4 + k],
            before = behind - BL_(pool_option)(l, k);
    int64_t last = behind / step < m - 1 ? behind / step : m - 1;
    *first = before < 0 ? 0 : before / step + 1;
    return last - *first + 1;
}

/* x[R, H, W] -> y[R, Y, X] at[R, Y, X]; a row is one of outputs.  A NaN is larger than everything. */
BL_FN void BL_(max_pool)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    const int64_t h = l->dim[1], w = l->dim[2], width = l->dim[4];
    const BL_T *x = BL_PTR(BL_T, 0) + row / l->dim[3] * h * w;
    int64_t top, left, tall = BL_(pool_window)(l, 0, row % l->dim[3], h, &top);
    BL_EACH(j, width)
    {
        int64_t wide = BL_(pool_window)(l, 1, j, w, &left), at = top * w + left;
        bool is_empty = tall < 1 || wide < 1;
        BL_REAL best = is_empty ? 0 : BL_LOAD(x, at);
        for (int64_t y = 0; y < tall; y++)
            for (int64_t i = 0; i < wide; i++) {
                int64_t k = (top + y) * w + left + i;
                BL_REAL value = BL_LOAD(x, k);
                bool is_larger = value > best || (BL_(is_nan)(value) && !BL_(is_nan)(best));
                best = is_larger ? value : best;
                at = is_larger ? k : at;
            }
        BL_STORE(BL_PTR(BL_T, 1), row * width + j, best);
        BL_PTR(int64_t, 2)[row * width + j] = is_empty ? 0 : at;
    }
}

/* g_y[R, Y, X] at[R, Y, X] -> g_x[R, H, W]: `at` is a tensor that the program may have written to since. */
BL_FN int64_t BL_(max_pool_grad)(const bl_launch *l, int64_t e, bl_bad *bad)
{
    const int64_t n = l->dim[3] * l->dim[4];
    bool counts;
    int64_t at = bl_index(l, bad, 1, e, bl_load_index(&l->operand[1], e), n, &counts);
    return counts ? e / (l->dim[1] * l->dim[2]) * n + at : -1;
}

/* What a window's sum is divided by. */
BL_FN BL_REAL BL_(pool_divisor)(const bl_launch *l, int64_t tall, int64_t wide)
{
    double whole = (double)BL_(pool_option)(l, 0) * (double)BL_(pool_option)(l, 1);
    return (BL_REAL)(l->params.i[6] == 0 || tall < 1 || wide < 1 ? whole : (double)(tall * wide));
}

/* x[R, H, W] -> y[R, Y, X]; a row is one of outputs. */
BL_FN void BL_(avg_pool)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    const int64_t h = l->dim[1], w = l->dim[2], width = l->dim[4];
    const BL_T *x = BL_PTR(BL_T, 0) + row / l->dim[3] * h * w;
    int64_t top, left, tall = BL_(pool_window)(l, 0, row % l->dim[3], h, &top);
    BL_EACH(j, width)
    {
        int64_t wide = BL_(pool_window)(l, 1, j, w, &left);
        BL_REAL sum = 0;
        for (int64_t y = 0; y < tall; y++)
            for (int64_t i = 0; i < wide; i++)
                sum += BL_LOAD(x, (top + y) * w + left + i);
        BL_STORE(BL_PTR(BL_T, 1), row * width + j, sum / BL_(pool_divisor)(l, tall, wide));
    }
}

/* g_y[R, Y, X] -> g_x[R, H, W]; a row is one of x: each element adds up its share of the windows that it lies in. */
BL_FN void BL_(avg_pool_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    const int64_t rows = l->dim[1], width = l->dim[2], h = l->dim[3], w = l->dim[4];
    const BL_T *g = BL_PTR(BL_T, 0) + row / h * rows * width;
    int64_t top, left, from, n = BL_(pool_windows_of)(l, 0, row % h, rows, &top);
    BL_EACH(j, w)
    {
        int64_t m = BL_(pool_windows_of)(l, 1, j, width, &left);
        BL_REAL sum = 0;
        for (int64_t y = top; y < top + n; y++) {
            int64_t tall = BL_(pool_window)(l, 0, y, h, &from);
            for (int64_t i = left; i < left + m; i++) {
                int64_t wide = BL_(pool_window)(l, 1, i, w, &from);
                sum += BL_LOAD(g, y * width + i) / BL_(pool_divisor)(l, tall, wide);
            }
        }
        BL_STORE(BL_PTR(BL_T, 1), row * w + j, sum);
    }
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, max_pool, FLOAT, .signature = "RY: x[RHW] -> y[RYX] at:i64[RYX]", .grad = {OP(max_pool_grad)},
       .domain = {-4, 4}, .internal = true, .options = "i[0..1] = kernel, i[2..3] = stride, i[4..5] = padding",
       .formula = "y = max over the window of x; at = the first h W + w that has it",
       .says = "The largest value of each window and its index.")
BL_ROW(SORTED, max_pool_grad, FLOAT, .signature = "RYX,RHW: g_y[RYX] at:index[RYX] -> g_x[RHW]", .internal = true,
       .tolerance = BL_TOLERANCE_SUM, .formula = "g_x[r, i] = sum over the windows with at == i of g_y",
       .says = "Gradient of max_pool: each element adds up the windows whose largest it is.")
BL_ROW(LANE, avg_pool, FLOAT, .signature = "RY: x[RHW] -> y[RYX]", .grad = {OP(avg_pool_grad)}, .domain = {-4, 4},
       .tolerance = BL_TOLERANCE_SUM, .internal = true,
       .options = "i[0..1] = kernel, i[2..3] = stride, i[4..5] = padding, i[6] = padding does not count",
       .formula = "y = (sum over the window of x) / its elements", .says = "The mean of each window.")
BL_ROW(LANE, avg_pool_grad, FLOAT, .signature = "RH: g_y[RYX] -> g_x[RHW]", .internal = true,
       .tolerance = BL_TOLERANCE_SUM, .options = "as avg_pool",
       .formula = "g_x[r, h, w] = sum over its windows of g_y / their elements", .says = "Gradient of avg_pool.")

#endif
