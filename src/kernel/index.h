/* SPDX-License-Identifier: Apache-2.0 */
/* Ops with data-dependent indices.  Every index passes bl_index: a bad read is a zero, a bad write is dropped, the
 * lowest bad element is recorded.  Accumulation is owned by the target row: SORTED gives each row its sources in order.
 */
#if defined BL_BODIES

/* weight[V, D] ids[N] -> y[N, D] */
BL_FN int64_t BL_(embedding)(const bl_launch *l, int64_t o, int64_t n, int64_t i, bl_bad *bad)
{
    (void)o, (void)i;
    bool counts;
    int64_t id = bl_index(l, bad, 1, n, bl_load_index(&l->operand[1], n), l->dim[0], &counts);
    return id | -(int64_t)!counts;
}

/* x[O, V, I] ids[N] -> y[O, N, I]; a bad id is noted once, not for every o */
BL_FN int64_t BL_(index_select)(const bl_launch *l, int64_t o, int64_t n, int64_t i, bl_bad *bad)
{
    (void)i;
    bl_bad told = {0};
    bool counts;
    int64_t id = bl_load_index(&l->operand[1], n);
    id = bl_index(l, o > 0 && bad != (bl_bad *)0 ? &told : bad, 1, n, id, l->dim[1], &counts);
    return (o * l->dim[1] + id) | -(int64_t)!counts;
}

/* x[O, V, I] index[O, N, I] -> y[O, N, I] */
BL_FN int64_t BL_(gather)(const bl_launch *l, int64_t o, int64_t n, int64_t i, bl_bad *bad)
{
    const int64_t width = l->size[2], on = o * l->dim[3] + n;
    const bool is_wide = width > 1; /* a loop that knows it has no product */
    int64_t e = is_wide ? on * width + i : on;
    bool counts;
    int64_t id = bl_index(l, bad, 1, e, bl_load_index(&l->operand[1], e), l->dim[1], &counts);
    int64_t row = o * l->dim[1] + id;
    return (is_wide ? row * width + i : row) | -(int64_t)!counts;
}

/* The row that a tuple of indices names: params.i[k] = size of the axis that index k selects from, i[6] = how many */
BL_FN int64_t BL_(index_row)(const bl_launch *l, int64_t e, bl_bad *bad)
{
    int64_t at = 0;
    bool all = true;
    for (int k = 0; k < (int)l->params.i[6]; k++) {
        bool counts;
        int64_t id = bl_load_index(&l->operand[1 + k], e);
        at = at * l->params.i[k] + bl_index(l, bad, 1 + k, e, id, l->params.i[k], &counts);
        all = all && counts;
    }
    return all ? at : -1;
}
/* x[V, D] i0[N] ... i5[N] -> y[N, D] */
BL_FN int64_t BL_(index)(const bl_launch *l, int64_t o, int64_t n, int64_t i, bl_bad *bad)
{
    (void)o, (void)i;
    return BL_(index_row)(l, n, bad);
}

#if !BL_IS_BOOL
/* src[O, N, I] ids[N] -> x[O, V, I] */
BL_FN int64_t BL_(index_add)(const bl_launch *l, int64_t e, bl_bad *bad)
{
    int64_t n = l->dim[1], o = e / n;
    bl_bad told = {0};
    bool counts;
    int64_t id = bl_load_index(&l->operand[1], e % n);
    id = bl_index(l, o == 0 ? bad : &told, 1, e % n, id, l->dim[3], &counts);
    return counts ? o * l->dim[3] + id : -1;
}

/* src[O, N, I] index[O, N, I] -> x[O, V, I] */
BL_FN int64_t BL_(scatter_add)(const bl_launch *l, int64_t e, bl_bad *bad)
{
    int64_t width = l->dim[2], o = e / (width * l->dim[1]);
    bool counts;
    int64_t id = bl_index(l, bad, 1, e, bl_load_index(&l->operand[1], e), l->dim[3], &counts);
    return counts ? (o * l->dim[3] + id) * width + e % width : -1;
}
#endif

#if BL_IS_FLOAT
/* g_y[N, D] ids[N] -> g_weight[V, D]; i[0] = padding row, whose gradient is left out (-1: none) */
BL_FN int64_t BL_(embedding_grad)(const bl_launch *l, int64_t e, bl_bad *bad)
{
    bool counts;
    int64_t id = bl_index(l, bad, 1, e, bl_load_index(&l->operand[1], e), l->dim[2], &counts);
    return counts && id != l->params.i[0] ? id : -1;
}
BL_FN int64_t BL_(index_select_grad)(const bl_launch *l, int64_t e, bl_bad *bad) { return BL_(index_add)(l, e, bad); }
BL_FN int64_t BL_(gather_grad)(const bl_launch *l, int64_t e, bl_bad *bad) { return BL_(scatter_add)(l, e, bad); }
BL_FN int64_t BL_(index_grad)(const bl_launch *l, int64_t e, bl_bad *bad) { return BL_(index_row)(l, e, bad); }

/* ids[N] -> whole[N]: whole numbers of 64 bits; every other is noted as num.cast and reads as 0 */
BL_FN void BL_(cast_ids)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    double x = (double)BL_LOAD(BL_PTR(BL_T, 0), row);
    bool is_whole = x >= -9223372036854775808.0 && x < 9223372036854775808.0 && floor(x) == x;
    if (!is_whole)
        bl_bad_note(bad, BELAY_NUM_CAST, 0, row, 0, 0);
    if (BL_ROW_LEADER)
        BL_PTR(int64_t, 1)[row] = is_whole ? (int64_t)x : 0;
}
#endif

#elif defined BL_ROWS

BL_ROW(TAKE, embedding, ANY, .signature = "1,N,1: weight[VD] ids:index[N] -> y[ND]", .grad = {OP(embedding_grad)},
       .table = 1, .domain = {-4, 4}, .internal = true, .options = "i[0] = padding row or -1",
       .formula = "y[n] = weight[ids[n]]", .says = "Looks up a row of the table for each id.")
BL_ROW(SORTED, embedding_grad, FLOAT, .signature = "N,V: g_y[ND] ids:index[N] -> g_weight[VD]", .internal = true,
       .tolerance = BL_TOLERANCE_SUM, .formula = "g_weight[v] = sum over n with ids[n] == v of g_y[n]",
       .says = "Gradient of embedding: each table row adds up its own, in the order of the ids.")
BL_ROW(TAKE, index_select, ANY, .signature = "O,N,1: x[OVI] ids:index[N] -> y[ONI]", .grad = {OP(index_select_grad)},
       .table = 1, .domain = {-4, 4}, .internal = true, .formula = "y[o, n, i] = x[o, ids[n], i]",
       .says = "Selects along an axis by a list of ids.")
BL_ROW(TAKE, gather, ANY, .signature = "O,N,I: x[OVI] index:index[ONI] -> y[ONI]", .grad = {OP(gather_grad)},
       .table = 1, .domain = {-4, 4}, .internal = true, .formula = "y[o, n, i] = x[o, index[o, n, i], i]",
       .says = "Selects along an axis by an index for each element.")
BL_ROW(
    TAKE, index, ANY,
    .signature = "1,N,1: x[VD] i0:index[N] i1:index[N]? i2:index[N]? i3:index[N]? i4:index[N]? i5:index[N]? -> y[ND]",
    .grad = {OP(index_grad)}, .table = 1, .domain = {-4, 4}, .internal = true,
    .options = "i[0..5] = sizes of the axes, i[6] = how many", .formula = "y[n] = x[i0[n], i1[n], ...]",
    .says = "Selects by a tuple of indices over the leading axes.")
BL_ROW(SORTED, index_add, NUMBER, .signature = "ON,OV: src[ONI] ids:index[N] -> x[OVI]", .table = 3, .domain = {-4, 4},
       .internal = true, .tolerance = BL_TOLERANCE_SUM, .options = "i[7] = add to x",
       .formula = "x[o, v, i] += sum over n with ids[n] == v of src[o, n, i]",
       .says = "Adds slices to the rows that a list of ids names, in the order of the list.")
BL_ROW(SORTED, scatter_add, NUMBER, .signature = "ONI,OVI: src[ONI] index:index[ONI] -> x[OVI]", .table = 3,
       .domain = {-4, 4}, .internal = true, .tolerance = BL_TOLERANCE_SUM, .options = "i[7] = add to x",
       .formula = "x[o, v, i] += sum over n with index[o, n, i] == v of src[o, n, i]",
       .says = "Adds elements where an index for each of them points, in the order of n.")
BL_ROW(SORTED, index_select_grad, FLOAT, .signature = "ON,OV: g_y[ONI] ids:index[N] -> g_x[OVI]", .internal = true,
       .tolerance = BL_TOLERANCE_SUM, .formula = "g_x[o, v, i] = sum over n with ids[n] == v of g_y[o, n, i]",
       .says = "Gradient of index_select.")
BL_ROW(SORTED, gather_grad, FLOAT, .signature = "ONI,OVI: g_y[ONI] index:index[ONI] -> g_x[OVI]", .internal = true,
       .tolerance = BL_TOLERANCE_SUM, .formula = "g_x[o, v, i] = sum over n with index[o, n, i] == v of g_y[o, n, i]",
       .says = "Gradient of gather.")
BL_ROW(
    SORTED, index_grad, FLOAT,
    .signature = "N,V: g_y[ND] i0:index[N] i1:index[N]? i2:index[N]? i3:index[N]? i4:index[N]? i5:index[N]? -> g_x[VD]",
    .internal = true, .tolerance = BL_TOLERANCE_SUM, .formula = "g_x[v] = sum over n that selects v of g_y[n]",
    .says = "Gradient of index.")
BL_ROW(LANE, cast_ids, FLOAT, .signature = "N: ids[N] -> whole:i64[N]", .internal = true,
       .formula = "whole[n] = ids[n]", .says = "Floats that become ids; others are the fault num.cast.")

#endif
