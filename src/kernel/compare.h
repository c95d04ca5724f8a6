/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison, selection and clamping.  Comparing with a NaN is false, but for ne. */
#if defined BL_BODIES

BL_FN bool BL_(eq)(BL_REAL a, BL_REAL b) { return a == b; }
BL_FN bool BL_(ne)(BL_REAL a, BL_REAL b) { return a != b; }
BL_FN bool BL_(lt)(BL_REAL a, BL_REAL b) { return a < b; }
BL_FN bool BL_(le)(BL_REAL a, BL_REAL b) { return a <= b; }
BL_FN bool BL_(gt)(BL_REAL a, BL_REAL b) { return a > b; }
BL_FN bool BL_(ge)(BL_REAL a, BL_REAL b) { return a >= b; }
BL_FN BL_REAL BL_(where)(bool c, BL_REAL a, BL_REAL b) { return c ? a : b; }
BL_FN BL_REAL BL_(mask)(const bl_params *p, bool c, BL_REAL a) { return c == (p->i[0] != 0) ? a : 0; }

#if BL_IS_FLOAT
BL_FN BL_REAL BL_(clamp)(const bl_params *p, int64_t i, BL_REAL x)
{
    (void)i;
    BL_REAL low = (BL_REAL)p->f[0], high = (BL_REAL)p->f[1];
    BL_REAL y = x < low ? low : x;
    return y > high ? high : y;
}
BL_FN BL_REAL BL_(clamp_grad)(const bl_params *p, int64_t i, BL_REAL g, BL_REAL x, BL_REAL y)
{
    (void)i, (void)y;
    return x >= (BL_REAL)p->f[0] && x <= (BL_REAL)p->f[1] ? g : 0;
}
#endif

#elif defined BL_ROWS

BL_ROW(COMPARE, eq, ANY, .domain = {-2, 2}, .formula = "a == b", .says = "True where the two are equal.")
BL_ROW(COMPARE, ne, ANY, .domain = {-2, 2}, .formula = "a != b", .says = "True where the two differ; true for NaN.")
BL_ROW(COMPARE, lt, ANY, .domain = {-2, 2}, .formula = "a < b", .says = "True where the first is smaller.")
BL_ROW(COMPARE, le, ANY, .domain = {-2, 2}, .formula = "a <= b", .says = "True where the first is not larger.")
BL_ROW(COMPARE, gt, ANY, .domain = {-2, 2}, .formula = "a > b", .says = "True where the first is larger.")
BL_ROW(COMPARE, ge, ANY, .domain = {-2, 2}, .formula = "a >= b", .says = "True where the first is not smaller.")
BL_ROW(SELECT, where, ANY, .grad = {0, OP(mask), OP(mask)}, .domain = {-4, 4}, .formula = "condition ? a : b",
       .says = "Takes a where the condition holds, else b; broadcasting.")
BL_ROW(MASK, mask, ANY, .internal = true, .options = "i[0] = the value of the condition that keeps a",
       .formula = "condition == i[0] ? a : 0", .says = "Gradient of where.")
BL_ROW(MAP1P, clamp, FLOAT, .grad = {OP(clamp_grad)}, .keep = BL_KEEP_X, .domain = {-4, 4}, .internal = true,
       .options = "f[0] = low, f[1] = high", .formula = "min(max(x, low), high)",
       .says = "Limits to a range; a NaN stays a NaN.")
BL_ROW(MAP3P, clamp_grad, FLOAT, .internal = true, .formula = "g where low <= x <= high",
       .says = "Gradient of clamp; a value on the border passes its gradient.")

#endif
