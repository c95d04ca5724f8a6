/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in order: running sums, sorting, and what a class id names.  One lane walks a row, so that every sum and every
 * choice among equals is the same everywhere. */
#if defined BL_BODIES

#if !BL_IS_BOOL
/* x[R, N] -> y[R, N], from the first to the last */
BL_FN void BL_(cumsum)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *x = BL_PTR(BL_T, 0) + row * n;
    BL_T *y = BL_PTR(BL_T, 1) + row * n;
    BL_SUM sum = 0;
    for (int64_t j = 0; BL_ROW_LEADER && j < n; j++) {
        sum += (BL_SUM)BL_LOAD(x, j);
        BL_STORE(y, j, (BL_REAL)sum);
    }
}
#endif

/* Whether x[a] stands in front of x[b]: a NaN is larger than everything, equal ones stand as they stood. */
BL_FN bool BL_(in_front)(const BL_T *x, int64_t a, int64_t b, bool descending)
{
    BL_REAL va = BL_LOAD(x, a), vb = BL_LOAD(x, b);
    bool is_less = va < vb || (BL_(is_nan)(vb) && !BL_(is_nan)(va));
    bool is_more = vb < va || (BL_(is_nan)(va) && !BL_(is_nan)(vb));
    return descending ? is_more || (!is_less && a < b) : is_less || (!is_more && a < b);
}

/* Element `root` of a heap whose first is the one that stands behind all others sinks to its place. */
BL_FN void BL_(sink)(const BL_T *x, int64_t *heap, int64_t root, int64_t n, bool descending)
{
    int64_t moved = heap[root];
    for (int64_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
        if (child + 1 < n && BL_(in_front)(x, heap[child], heap[child + 1], descending))
            child++;
        if (!BL_(in_front)(x, moved, heap[child], descending))
            break;
        heap[root] = heap[child];
        root = child;
    }
    heap[root] = moved;
}

/* x[R, N] -> y[R, K] at[R, K]: the first K in order.  Williams, "Heapsort" (1964), over the K best so far. */
BL_FN void BL_(sort)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1], k = l->dim[2] < n ? l->dim[2] : n;
    const BL_T *x = BL_PTR(BL_T, 0) + row * n;
    int64_t *at = BL_PTR(int64_t, 2) + row * l->dim[2];
    bool descending = l->params.i[0] != 0;
    if (!BL_ROW_LEADER)
        return;
    for (int64_t j = 0; j < k; j++)
        at[j] = j;
    for (int64_t j = k / 2 - 1; j >= 0; j--)
        BL_(sink)(x, at, j, k, descending);
    for (int64_t j = k; j < n && k > 0; j++)
        if (BL_(in_front)(x, j, at[0], descending)) {
            at[0] = j;
            BL_(sink)(x, at, 0, k, descending);
        }
    for (int64_t j = k - 1; j > 0; j--) {
        int64_t last = at[0];
        at[0] = at[j];
        at[j] = last;
        BL_(sink)(x, at, 0, j, descending);
    }
    for (int64_t j = 0; j < l->dim[2]; j++) {
        if (j >= k)
            at[j] = 0;
        BL_STORE(BL_PTR(BL_T, 1) + row * l->dim[2], j, j < k ? BL_LOAD(x, at[j]) : 0);
    }
}

#if BL_IS_FLOAT
/* g_y[R, N] -> g_x[R, N], from the last to the first */
BL_FN void BL_(cumsum_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[1];
    const BL_T *g = BL_PTR(BL_T, 0) + row * n;
    BL_T *gx = BL_PTR(BL_T, 1) + row * n;
    BL_REAL sum = 0;
    for (int64_t j = n - 1; BL_ROW_LEADER && j >= 0; j--) {
        sum += BL_LOAD(g, j);
        BL_STORE(gx, j, sum);
    }
}

/* g_y[R, K] at[R, K] -> g_x[R, N]; a tensor that the program may have written to since, so each index is tested, and of
 * equal ones the last counts */
BL_FN void BL_(sort_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    int64_t k = l->dim[1], n = l->dim[2];
    BL_T *gx = BL_PTR(BL_T, 2) + row * n;
    if (!BL_ROW_LEADER)
        return;
    for (int64_t j = 0; j < n; j++)
        BL_STORE(gx, j, 0);
    for (int64_t j = 0; j < k; j++) {
        bool counts;
        int64_t e = row * k + j;
        int64_t to = bl_index(l, bad, 1, e, bl_load_index(&l->operand[1], e), n, &counts);
        if (counts)
            BL_STORE(gx, to, BL_LOAD(BL_PTR(BL_T, 0), e));
    }
}

/* ids[R] -> y[R, N] */
BL_FN void BL_(one_hot)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    int64_t n = l->dim[1];
    bool counts;
    int64_t id = bl_index(l, bad, 0, row, bl_load_index(&l->operand[0], row), n, &counts);
    int64_t *y = BL_PTR(int64_t, 1) + row * n;
    BL_EACH(j, n) y[j] = counts && j == id;
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, cumsum, NUMBER, .signature = "R: x[RN] -> y[RN]", .grad = {OP(cumsum_grad)}, .amp = BL_AMP_F32,
       .domain = {-4, 4}, .tolerance = BL_TOLERANCE_SUM, .internal = true, .formula = "y[n] = x[0] + ... + x[n]",
       .says = "Running sums of each row, from the first to the last.  Integers and bool as i64.")
BL_ROW(LANE, sort, ANY, .signature = "R: x[RN] -> y[RK] at:i64[RK]", .grad = {OP(sort_grad)}, .domain = {-4, 4},
       .internal = true, .options = "i[0] = descending", .formula = "y[k] = x[at[k]], the first K in order",
       .says = "The first of each row in order and their indices; equal ones stay as they stand, a NaN is the largest.")
BL_ROW(LANE, cumsum_grad, FLOAT, .signature = "R: g_y[RN] -> g_x[RN]", .internal = true,
       .formula = "g_x[n] = g[n] + ... + g[N - 1]", .says = "Gradient of cumsum.")
BL_ROW(LANE, sort_grad, FLOAT, .signature = "R: g_y[RK] at:index[RK] -> g_x[RN]", .internal = true,
       .formula = "g_x[at[k]] = g_y[k], else 0", .says = "Gradient of sort.")
BL_ROW(LANE, one_hot, FLOAT, .signature = "R: ids:index[R] -> y:i64[RN]", .internal = true,
       .formula = "y[r, n] = n == ids[r]", .says = "A row of zeros with a one where the id says.")

#endif
