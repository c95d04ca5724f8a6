/* SPDX-License-Identifier: Apache-2.0 */
/* Ops with data-dependent indices.  Every index passes bl_index: a bad read is a zero, a bad write is dropped, the
 * lowest bad element is recorded.  Accumulation is owned by the target row: SORTED gives each row its sources in order.
 */
#if defined BL_BODIES

/* weight[V, D] ids[N] -> y[N, D] */
BL_FN void BL_(embedding)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    int64_t width = l->dim[1];
    bool counts;
    int64_t id = bl_index(l, bad, 1, row, bl_load_index(&l->operand[1], row), l->dim[0], &counts);
    const BL_T *from = BL_PTR(BL_T, 0) + id * width;
    BL_T *to = BL_PTR(BL_T, 2) + row * width;
    BL_T zero;
    BL_STORE(&zero, 0, 0);
    if (counts)
        BL_EACH(j, width) to[j] = from[j];
    else
        BL_EACH(j, width) to[j] = zero;
}

#if BL_IS_FLOAT
/* g_y[N, D] ids[N] -> g_weight[V, D]; i[0] = padding row, whose gradient is left out (-1: none) */
BL_FN int64_t BL_(embedding_grad)(const bl_launch *l, int64_t e, bl_bad *bad)
{
    bool counts;
    int64_t id = bl_index(l, bad, 1, e, bl_load_index(&l->operand[1], e), l->dim[2], &counts);
    return counts && id != l->params.i[0] ? id : -1;
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, embedding, ANY, .signature = "N: weight[VD] ids:index[N] -> y[ND]", .grad = {OP(embedding_grad)},
       .table = 1, .domain = {-4, 4}, .internal = true, .options = "i[0] = padding row or -1",
       .formula = "y[n] = weight[ids[n]]", .says = "Looks up a row of the table for each id.")
BL_ROW(SORTED, embedding_grad, FLOAT, .signature = "N,V: g_y[ND] ids:index[N] -> g_weight[VD]", .internal = true,
       .tolerance = BL_TOLERANCE_SUM, .formula = "g_weight[v] = sum over n with ids[n] == v of g_y[n]",
       .says = "Gradient of embedding: each table row adds up its own, in the order of the ids.")

#endif
