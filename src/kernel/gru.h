/* SPDX-License-Identifier: Apache-2.0 */
/* The cell of a GRU, fused: everything of one step of one layer but its matrix products.  Buffers are time-major, gates
 * stand in PyTorch's order r, z, n. */
#if defined BL_BODIES

#if BL_IS_FLOAT
/* gates[B, 3, H]! inner[B, 3, H]! bias_ih[3, H] bias_hh[3, H] before[B, H] h[B, H]!: gates come in as W_ih x and go out
 * activated; inner comes in as W_hh h, and its last third goes out with its bias.
 * Cho et al., "Learning phrase representations using RNN encoder-decoder" (2014), with r behind the product of h. */
BL_FN void BL_(gru_cell)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[2];
    BL_T *BL_RESTRICT r = BL_PTR(BL_T, 0) + row * 3 * n;
    BL_T *BL_RESTRICT z = r + n;
    BL_T *BL_RESTRICT c = z + n;
    const BL_T *BL_RESTRICT r_of_h = BL_PTR(BL_T, 1) + row * 3 * n;
    const BL_T *BL_RESTRICT z_of_h = r_of_h + n;
    BL_T *BL_RESTRICT c_of_h = BL_PTR(BL_T, 1) + row * 3 * n + 2 * n;
    const BL_T *BL_RESTRICT b = BL_PTR(BL_T, 2);
    const BL_T *BL_RESTRICT b_of_h = BL_PTR(BL_T, 3);
    const BL_T *BL_RESTRICT before = BL_PTR(BL_T, 4) + row * n;
    BL_T *BL_RESTRICT h = BL_PTR(BL_T, 5) + row * n;
    BL_EACH_APART(j, n)
    {
        BL_REAL reset = BL_LOAD(r, j) + BL_LOAD(b, j) + (BL_LOAD(r_of_h, j) + BL_LOAD(b_of_h, j));
        BL_REAL update = BL_LOAD(z, j) + BL_LOAD(b, n + j) + (BL_LOAD(z_of_h, j) + BL_LOAD(b_of_h, n + j));
        BL_STORE(r, j, BL_(bl_sigmoid)(reset));
        BL_STORE(z, j, BL_(bl_sigmoid)(update));
    }
    BL_EACH_APART(j, n)
    {
        BL_REAL inner = BL_LOAD(c_of_h, j) + BL_LOAD(b_of_h, 2 * n + j);
        BL_REAL sum = BL_LOAD(c, j) + BL_LOAD(b, 2 * n + j) + BL_LOAD(r, j) * inner;
        BL_REAL candidate = BL_(bl_tanh)(sum);
        BL_STORE(c_of_h, j, inner);
        BL_STORE(c, j, candidate);
        BL_STORE(h, j, candidate + BL_LOAD(z, j) * (BL_LOAD(before, j) - candidate));
    }
}

/* gates[B, 3, H]! inner[B, 3, H]! before[B, H] above[B, H]? g_h[B, H]!: as gru_cell left them, out go the gradients of
 * both sums; g_h comes in from the step after, without what arrives from above, and leaves what goes to the step before
 * past the gates. */
BL_FN void BL_(gru_cell_grad)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    int64_t n = l->dim[2];
    BL_T *BL_RESTRICT r = BL_PTR(BL_T, 0) + row * 3 * n;
    BL_T *BL_RESTRICT z = r + n;
    BL_T *BL_RESTRICT c = z + n;
    BL_T *BL_RESTRICT r_of_h = BL_PTR(BL_T, 1) + row * 3 * n;
    BL_T *BL_RESTRICT z_of_h = r_of_h + n;
    BL_T *BL_RESTRICT c_of_h = z_of_h + n;
    const BL_T *BL_RESTRICT before = BL_PTR(BL_T, 2) + row * n;
    const BL_T *BL_RESTRICT above = BL_PTR(BL_T, 3);
    BL_T *BL_RESTRICT g_h = BL_PTR(BL_T, 4) + row * n;
    if (above != 0)
        BL_EACH_APART(j, n) BL_STORE(g_h, j, BL_LOAD(g_h, j) + BL_LOAD(above, row * n + j));
    BL_EACH_APART(j, n)
    {
        BL_REAL reset = BL_LOAD(r, j), update = BL_LOAD(z, j), candidate = BL_LOAD(c, j), inner = BL_LOAD(c_of_h, j);
        BL_REAL arrived = BL_LOAD(g_h, j);
        BL_REAL g_c = arrived * (1 - update) * (1 - candidate * candidate);
        BL_REAL g_z = arrived * (BL_LOAD(before, j) - candidate) * update * (1 - update);
        BL_REAL g_r = g_c * inner * reset * (1 - reset);
        BL_STORE(r, j, g_r);
        BL_STORE(z, j, g_z);
        BL_STORE(c, j, g_c);
        BL_STORE(r_of_h, j, g_r);
        BL_STORE(z_of_h, j, g_z);
        BL_STORE(c_of_h, j, g_c * reset);
        BL_STORE(g_h, j, arrived * update);
    }
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, gru_cell, FLOAT, .signature = "B: gates[B3H]! inner[B3H]! bias_ih[3H] bias_hh[3H] before[BH] h[BH]! ->",
       .amp = BL_AMP_F32, .internal = true, .formula = "h = (1 - z) n + z before",
       .says = "One step of a GRU after its products.")
BL_ROW(LANE, gru_cell_grad, FLOAT, .signature = "B: gates[B3H]! inner[B3H]! before[BH] above[BH]? g_h[BH]! ->",
       .amp = BL_AMP_F32, .internal = true,
       .formula = "gradients of both sums, and of h before the step past the gates",
       .says = "Gradient of one step of a GRU.")

#endif
