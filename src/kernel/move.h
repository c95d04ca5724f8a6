/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that each device has its own code for: moves and matrix products.  No bodies. */
#if defined BL_ROWS

BL_ROW(COPY, copy, ANY, .internal = true, .formula = "y = x", .domain = {-4, 4},
       .says =
           "Copies between layouts and dtypes; floats to integers cut towards zero, out of range to the nearest end, "
           "NaN to 0.")
BL_ROW(MATMUL, matmul, FLOAT, .internal = true, .amp = BL_AMP_LOWER, .domain = {-1, 1}, .tolerance = BL_TOLERANCE_SUM,
       .options = "i[0], i[1] = a, b stored transposed; i[2] = add to y", .formula = "y[b] = a[b] b[b] (+ y[b])",
       .says = "Matrix products over a batch, cut into fixed output panels.")

#endif
