/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors made from nothing, and dropout: everything that draws random numbers.  Element i of a draw is a function of
 * the key in params.rng and of params.i[0] + i alone, so bits do not depend on threads; i[0] is the element's offset in
 * the global batch. */
#if defined BL_BODIES

#if BL_IS_FLOAT
BL_FN BL_REAL BL_(fill)(const bl_params *p, int64_t i) { return (void)i, (BL_REAL)p->f[0]; }
BL_FN BL_REAL BL_(arange)(const bl_params *p, int64_t i) { return (BL_REAL)(p->f[0] + p->f[1] * (double)i); }
BL_FN BL_REAL BL_(uniform)(const bl_params *p, uint32_t word)
{
    return (BL_REAL)p->f[0] + ((BL_REAL)p->f[1] - (BL_REAL)p->f[0]) * bl_rng_uniform(word);
}

/* Box and Muller (1958), in double: one block of random words an element. */
BL_FN BL_REAL BL_(normal)(const bl_params *p, int64_t i)
{
    bl_rng_block b = bl_rng_at(&p->rng, (uint64_t)(p->i[0] + i));
    double u = ((double)b.word[0] + 0.5) * (1.0 / 4294967296.0);
    double v = (double)b.word[1] * (6.283185307179586477 / 4294967296.0);
    return (BL_REAL)(p->f[0] + p->f[1] * sqrt(-2 * log(u)) * cos(v));
}

/* Srivastava et al., "Dropout" (2014), inverted form: f[0] is the chance to drop. */
BL_FN BL_REAL BL_(dropout)(const bl_params *p, uint32_t word, BL_REAL x)
{
    return bl_rng_uniform(word) < (float)p->f[0] ? 0 : x * (BL_REAL)p->f[1];
}
#else
BL_FN int64_t BL_(fill)(const bl_params *p, int64_t i) { return (void)i, p->i[0]; }
BL_FN int64_t BL_(arange)(const bl_params *p, int64_t i)
{
    return (int64_t)((uint64_t)p->i[0] + (uint64_t)p->i[1] * (uint64_t)i);
}
#endif

#elif defined BL_ROWS

BL_ROW(MAP0P, fill, ANY, .internal = true, .options = "f[0] or i[0] = value", .formula = "value",
       .says = "Every element the same.")
BL_ROW(MAP0P, arange, ANY, .internal = true, .options = "f[0] or i[0] = start, f[1] or i[1] = step",
       .formula = "start + step * i", .says = "Evenly spaced values.")
BL_ROW(MAP0R, uniform, FLOAT, .internal = true, .options = "f[0] = low, f[1] = high, i[0] = first element, rng",
       .formula = "low + (high - low) u, u in [0, 1)", .says = "Uniform random values.")
BL_ROW(MAP0P, normal, FLOAT, .internal = true, .options = "f[0] = mean, f[1] = deviation, i[0] = first element, rng",
       .formula = "mean + deviation z", .says = "Normal random values.")
BL_ROW(MAP1R, dropout, FLOAT, .grad = {OP(dropout)}, .domain = {-4, 4}, .internal = true,
       .options = "f[0] = p, f[1] = 1 / (1 - p), i[0] = first element, rng", .formula = "u < p ? 0 : x / (1 - p)",
       .says = "Drops elements at random while training; backward draws the same numbers again.")

#endif
