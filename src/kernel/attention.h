/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention: products by blocks, which each device has its own code for.  No bodies. */
#if defined BL_ROWS

BL_ROW(DEVICE, attention, FLOAT, .signature = "B: q[BTD] k[BSD] v[BSE] -> y[BTE] lse:f64[BT]",
       .grad = {OP(attention_grad)}, .amp = BL_AMP_LOWER, .domain = {-2, 2}, .tolerance = BL_TOLERANCE_SUM,
       .internal = true,
       .options = "f[0] = scale, i[0] = causal: row t sees the keys up to number t, f[1] = chance to drop a "
                  "probability, i[1] = number of the first of them in the global batch",
       .formula = "y = dropout(softmax(scale q k^T)) v",
       .says = "Attention; lse is the logarithm of each row's sum of e^score.")
BL_ROW(DEVICE, attention_grad, FLOAT,
       .signature = "B: g_y[BTE] q[BTD] k[BSD] v[BSE] y[BTE] lse:f64[BT] -> g_q[BTD] g_k[BSD] g_v[BSE]",
       .amp = BL_AMP_LOWER, .domain = {-1, 1}, .tolerance = BL_TOLERANCE_SUM, .internal = true,
       .formula = "p = e^(score - lse), d = p (dropout(g v^T) - sum of g y) scale: d k, d^T q, dropout(p)^T g",
       .says = "Gradients of attention, from probabilities that are computed again.")

#endif
