/* SPDX-License-Identifier: Apache-2.0 */
/* A look at values that stops nothing: smallest, largest, how many lie outside of a range, the first of those.  Each
 * chunk of BL_BOUNDS_CHUNK elements has a row of its own in the result; who reads it puts the rows together. */
#ifndef BL_BOUNDS_CHUNK
#define BL_BOUNDS_CHUNK 1024 /* the row's items */
#define BL_BOUNDS_FIRST 4
#endif
#if defined BL_BODIES

/* x[N] -> edges f64[C, 2]: smallest and largest, 1 and 0 where every value is NaN; found i64[C, 5]: how many are outside,
 * then the first ones' elements.  Floats lie in [f[0], f[1]), whole numbers in [i[0], i[1]]; a NaN lies nowhere. */
BL_FN void BL_(bounds)(const bl_launch *l, int64_t chunk, bl_bad *bad)
{
    (void)bad;
    if (!BL_ROW_LEADER)
        return;
    const BL_T *x = BL_PTR(BL_T, 0);
    double *edges = BL_PTR(double, 1) + chunk * 2;
    int64_t *found = BL_PTR(int64_t, 2) + chunk * (1 + BL_BOUNDS_FIRST);
    int64_t begin = chunk * BL_BOUNDS_CHUNK, n = l->dim[0], n_outside = 0;
    int64_t end = begin + BL_BOUNDS_CHUNK < n ? begin + BL_BOUNDS_CHUNK : n;
    bool is_empty = true;
    edges[0] = 1;
    edges[1] = 0;
    for (int64_t i = begin; i < end; i++) {
        BL_REAL value = BL_LOAD(x, i);
#if BL_IS_FLOAT
        bool is_inside = (double)value >= l->params.f[0] && (double)value < l->params.f[1];
#else
        bool is_inside = value >= l->params.i[0] && value <= l->params.i[1];
#endif
        if (!is_inside && n_outside < BL_BOUNDS_FIRST)
            found[1 + n_outside] = i;
        n_outside += !is_inside;
        if (!BL_(is_nan)(value)) {
            edges[0] = is_empty || (double)value < edges[0] ? (double)value : edges[0];
            edges[1] = is_empty || (double)value > edges[1] ? (double)value : edges[1];
            is_empty = false;
        }
    }
    found[0] = n_outside;
}

#elif defined BL_ROWS

BL_ROW(LANE, bounds, ANY, .signature = "N/1024: x[N] edges:f64[C2]! found:i64[C5]! ->", .internal = true,
       .options = "f[0] and i[0] = low, f[1] = high, i[1] = the last whole number below it",
       .says = "Smallest and largest values of chunks, and those outside of a range.")

#endif
