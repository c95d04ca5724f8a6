/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that go on with a committed step.  The optimizer's state (kernel/optim.h) says whether it was. */
#ifndef BL_ADVANCE_CHUNK
#define BL_ADVANCE_CHUNK 1024 /* the row's items */
#endif
#if defined BL_BODIES

/* next[N] buffer[N]! state[S] */
BL_FN void BL_(advance)(const bl_launch *l, int64_t chunk, bl_bad *bad)
{
    (void)bad;
    if (BL_PTR(double, 2)[0] == 0)
        return;
    int64_t begin = chunk * BL_ADVANCE_CHUNK, n = l->dim[0] - begin;
    const BL_T *next = BL_PTR(BL_T, 0) + begin;
    BL_T *buffer = BL_PTR(BL_T, 1) + begin;
    n = n < BL_ADVANCE_CHUNK ? n : BL_ADVANCE_CHUNK;
    BL_EACH(j, n) buffer[j] = next[j];
}

#elif defined BL_ROWS

BL_ROW(LANE, advance, ANY, .signature = "N/1024: next[N] buffer[N]! state:f64[S] ->", .internal = true,
       .formula = "buffer = applied ? next : buffer", .says = "Writes a buffer's next values, if the step was applied.")

#endif
