/* SPDX-License-Identifier: Apache-2.0 */
/* One dtype column of one family: its functions, its bodies, its loops, its entries.  Read by stamp.h only. */
#include "kernel/column_begin.h"

#if !BL_IS_BOOL
/* Adds up source rows into target row `target`, in the order given, in the arithmetic's type; integers wrap. */
static inline __attribute__((unused)) void BL_(sorted_gather)(const bl_launch *l, int64_t target,
                                                              const int64_t *sources, int64_t n, int64_t width)
{
    enum { BLOCK = 64 };
    const BL_T *from = (const BL_T *)l->operand[0].data;
    BL_T *to = (BL_T *)l->operand[l->n_operands - 1].data + target * width;
    for (int64_t first = 0; first < width; first += BLOCK) {
        BL_SUM sum[BLOCK];
        int64_t columns = width - first < BLOCK ? width - first : BLOCK;
        for (int64_t j = 0; j < columns; j++)
            sum[j] = (BL_SUM)BL_LOAD(to, first + j);
        for (int64_t s = 0; s < n; s++) {
            const BL_T *source = from + sources[s] * width + first;
            for (int64_t j = 0; j < columns; j++)
                sum[j] += (BL_SUM)BL_LOAD(source, j);
        }
        for (int64_t j = 0; j < columns; j++)
            BL_STORE(to, first + j, (BL_REAL)sum[j]);
    }
}
#endif

#define BL_ROWS
#define BL_ROW(skeleton, name, dtypes, ...) BL_HAS_##dtypes(BL_STAMP_##skeleton(name))
#include BL_FAMILY_FILE
#undef BL_ROW
static const bl_cpu_entry BL_JOIN(entries_, BL_COLUMN)[] = {
#define BL_ROW(skeleton, name, dtypes, ...) BL_HAS_##dtypes(BL_ENTRY_##skeleton(name))
#include BL_FAMILY_FILE
#undef BL_ROW
    {.op = BL_OP_none}};
#undef BL_ROWS

#include "kernel/column_end.h"
