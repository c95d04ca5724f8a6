/* SPDX-License-Identifier: Apache-2.0 */
/* Stamps the CPU's loops from one family.  For every line of kernel/families.h the build writes a source file of two
 * lines:
 *
 *   #define BL_FAMILY activation
 *   #define BL_FAMILY_FILE "kernel/activation.h"
 *   #include "device/cpu/stamp.h"
 *
 * The family is read once for each dtype column, bodies first, then rows; the rows of all columns make the table. */
#include <stddef.h>

#include "device/cpu/kernel.h"

#define BL_(name)       BL_JOIN(BL_JOIN(name, _), BL_COLUMN)
#define BL_KERNEL(name) BL_JOIN(BL_JOIN(cpu_, name), BL_JOIN(_, BL_COLUMN))

#ifdef BELAY_UNCHECKED_INDEX
#define BL_IS_UNCHECKED true
#else
#define BL_IS_UNCHECKED false
#endif

/* ---- loops, a macro a skeleton --------------------------------------------------------------------------------------- */

#define BL_IN(k, i, s)  BL_(bl_load)((const BL_T *)d##k + (i) * (s))
#define BL_BIT(k, i, s) (((const uint8_t *)d##k)[(i) * (s)] != 0)
/* Elements are independent: an output may be exactly one of the inputs.  All that the loop reads of `r` is taken out
 * before, since a store might change it as far as the compiler knows. */
#define BL_RUN_LOOP(expression)                                                                                        \
    BL_INDEPENDENT for (int64_t i = 0; i < n; i++) BL_(bl_store)((BL_T *)d0 + i, (expression));
#define BL_RUN_HEAD(name)                                                                                              \
    static void BL_KERNEL(name)(const bl_cpu_run *r)                                                                   \
    {                                                                                                                  \
        const int64_t n = r->n, first = r->first;                                                                      \
        void *const d0 = r->data[0], *const d1 = r->data[1], *const d2 = r->data[2], *const d3 = r->data[3];           \
        (void)first, (void)d1, (void)d2, (void)d3;

#define BL_STAMP_MAP0P(name)                                                                                           \
    BL_RUN_HEAD(name)                                                                                                  \
    const bl_params p = *r->params;                                                                                    \
    BL_RUN_LOOP(BL_(name)(&p, first + i))                                                                              \
    }
#define BL_RUN_WORDS(expression)                                                                                       \
    BL_EACH_WORD(i, word, n, p.rng, p.i[0] + first, BL_(bl_store)((BL_T *)d0 + i, (expression)))
#define BL_STAMP_MAP0R(name)                                                                                           \
    BL_RUN_HEAD(name)                                                                                                  \
    const bl_params p = *r->params;                                                                                    \
    BL_RUN_WORDS(BL_(name)(&p, word))                                                                                  \
    }
#define BL_STAMP_MAP1R(name)                                                                                           \
    BL_RUN_HEAD(name)                                                                                                  \
    const bl_params p = *r->params;                                                                                    \
    const int64_t s1 = r->stride[1];                                                                                   \
    if (s1 == 1)                                                                                                       \
        BL_RUN_WORDS(BL_(name)(&p, word, BL_IN(1, i, 1)))                                                              \
    else                                                                                                               \
        BL_RUN_WORDS(BL_(name)(&p, word, BL_IN(1, i, s1)))                                                             \
    }
#define BL_STAMP_MAP1(name)                                                                                            \
    BL_RUN_HEAD(name)                                                                                                  \
    const int64_t s1 = r->stride[1];                                                                                   \
    if (s1 == 1)                                                                                                       \
        BL_RUN_LOOP(BL_(name)(BL_IN(1, i, 1)))                                                                         \
    else                                                                                                               \
        BL_RUN_LOOP(BL_(name)(BL_IN(1, i, s1)))                                                                        \
    }
#define BL_STAMP_MAP1P(name)                                                                                           \
    BL_RUN_HEAD(name)                                                                                                  \
    const bl_params p = *r->params;                                                                                    \
    const int64_t s1 = r->stride[1];                                                                                   \
    if (s1 == 1)                                                                                                       \
        BL_RUN_LOOP(BL_(name)(&p, first + i, BL_IN(1, i, 1)))                                                          \
    else                                                                                                               \
        BL_RUN_LOOP(BL_(name)(&p, first + i, BL_IN(1, i, s1)))                                                         \
    }
#define BL_STAMP_MAP2(name)                                                                                            \
    BL_RUN_HEAD(name)                                                                                                  \
    const int64_t s1 = r->stride[1], s2 = r->stride[2];                                                                \
    if (s1 == 1 && s2 == 1)                                                                                            \
        BL_RUN_LOOP(BL_(name)(BL_IN(1, i, 1), BL_IN(2, i, 1)))                                                         \
    else if (s1 == 1 && s2 == 0)                                                                                       \
        BL_RUN_LOOP(BL_(name)(BL_IN(1, i, 1), BL_IN(2, 0, 0)))                                                         \
    else                                                                                                               \
        BL_RUN_LOOP(BL_(name)(BL_IN(1, i, s1), BL_IN(2, i, s2)))                                                       \
    }
#define BL_STAMP_MAP3(name)                                                                                            \
    BL_RUN_HEAD(name)                                                                                                  \
    const int64_t s1 = r->stride[1], s2 = r->stride[2], s3 = r->stride[3];                                             \
    if (s1 == 1 && s2 == 1 && s3 == 1)                                                                                 \
        BL_RUN_LOOP(BL_(name)(BL_IN(1, i, 1), BL_IN(2, i, 1), BL_IN(3, i, 1)))                                         \
    else                                                                                                               \
        BL_RUN_LOOP(BL_(name)(BL_IN(1, i, s1), BL_IN(2, i, s2), BL_IN(3, i, s3)))                                      \
    }
#define BL_STAMP_MAP3P(name)                                                                                           \
    BL_RUN_HEAD(name)                                                                                                  \
    const bl_params p = *r->params;                                                                                    \
    const int64_t s1 = r->stride[1], s2 = r->stride[2], s3 = r->stride[3];                                             \
    BL_RUN_LOOP(BL_(name)(&p, first + i, BL_IN(1, i, s1), BL_IN(2, i, s2), BL_IN(3, i, s3)))                           \
    }
#define BL_STAMP_COMPARE(name)                                                                                         \
    BL_RUN_HEAD(name)                                                                                                  \
    const int64_t s1 = r->stride[1], s2 = r->stride[2];                                                                \
    BL_INDEPENDENT for (int64_t i = 0; i < n; i++)((uint8_t *)d0)[i] = BL_(name)(BL_IN(1, i, s1), BL_IN(2, i, s2));    \
    }
#define BL_STAMP_SELECT(name)                                                                                          \
    BL_RUN_HEAD(name)                                                                                                  \
    const int64_t s1 = r->stride[1], s2 = r->stride[2], s3 = r->stride[3];                                             \
    BL_RUN_LOOP(BL_(name)(BL_BIT(1, i, s1), BL_IN(2, i, s2), BL_IN(3, i, s3)))                                         \
    }
#define BL_STAMP_MASK(name)                                                                                            \
    BL_RUN_HEAD(name)                                                                                                  \
    const bl_params p = *r->params;                                                                                    \
    const int64_t s1 = r->stride[1], s2 = r->stride[2];                                                                \
    BL_RUN_LOOP(BL_(name)(&p, BL_BIT(1, i, s1), BL_IN(2, i, s2)))                                                      \
    }
#define BL_STAMP_LANE(name)                                                                                            \
    static void BL_KERNEL(name)(const bl_launch *l, int64_t begin, int64_t end, bl_bad *bad)                           \
    {                                                                                                                  \
        for (int64_t row = begin; row < end; row++)                                                                    \
            BL_(name)(l, row, bad);                                                                                    \
    }
/* n rows along the innermost axis that is longer than 1.  A first pass only asks, and vectorises; a block with a bad
 * index, a rare thing, is gone through again. */
#define BL_TAKE_ASK(name, a, b)                                                                                        \
    BL_INDEPENDENT BL_UNROLL_4 for (int64_t k = 0; k < n; k++) all |= rows[k] =                                        \
        BL_(name)(l, at[0], at[1] + (a), at[2] + (b), NULL);
#define BL_STAMP_TAKE(name)                                                                                            \
    static bool BL_KERNEL(name)(const bl_launch *l, const int64_t at[3], int64_t n, int64_t *BL_RESTRICT rows,         \
                                bl_bad *bad)                                                                           \
    {                                                                                                                  \
        const bool is_inner = l->size[2] > 1;                                                                          \
        int64_t all = 0;                                                                                               \
        if (is_inner) {                                                                                                \
            BL_BY_INDEX_TYPE(l->operand[1], BL_TAKE_ASK(name, 0, k))                                                   \
        } else {                                                                                                       \
            BL_BY_INDEX_TYPE(l->operand[1], BL_TAKE_ASK(name, k, 0))                                                   \
        }                                                                                                              \
        if (BL_IS_UNCHECKED || all >= 0)                                                                               \
            return true;                                                                                               \
        for (int64_t k = 0; k < n; k++)                                                                                \
            rows[k] = BL_(name)(l, at[0], at[1] + (is_inner ? 0 : k), at[2] + (is_inner ? k : 0), bad);                \
        return false;                                                                                                  \
    }
/* Sums over k.  One column: 32 lanes along k.  Several: a block of columns at a time, each with its own 32 lanes, so
 * that the order of every sum is the same in both. */
#define BL_REDUCE_BLOCK 64
#define BL_STAMP_REDUCE(name)                                                                                          \
    static void BL_JOIN(BL_KERNEL(name), _block)(const bl_launch *l, int64_t o, int64_t i0, int64_t width)             \
    {                                                                                                                  \
        BL_SUM lane[BL_LANES][BL_REDUCE_BLOCK];                                                                        \
        int64_t n = l->size[1];                                                                                        \
        for (int a = 0; a < BL_LANES; a++)                                                                             \
            for (int64_t i = 0; i < width; i++)                                                                        \
                lane[a][i] = 0;                                                                                        \
        for (int64_t k = 0; k < n; k++)                                                                                \
            for (int64_t i = 0; i < width; i++)                                                                        \
                lane[k % BL_LANES][i] += (BL_SUM)BL_(name)(l, o, k, i0 + i);                                           \
        for (int w = BL_LANES / 2; w > 0; w /= 2)                                                                      \
            for (int a = 0; a < w; a++)                                                                                \
                for (int64_t i = 0; i < width; i++)                                                                    \
                    lane[a][i] += lane[a + w][i];                                                                      \
        BL_T *y = (BL_T *)l->operand[l->n_operands - 1].data + o * l->size[2] + i0;                                    \
        for (int64_t i = 0; i < width; i++)                                                                            \
            BL_STORE(y, i, BL_(divided)(lane[0][i], l->params.f[0]));                                                  \
    }                                                                                                                  \
    static void BL_KERNEL(name)(const bl_launch *l, int64_t begin, int64_t end, bl_bad *bad)                           \
    {                                                                                                                  \
        (void)bad;                                                                                                     \
        int64_t inner = l->size[2];                                                                                    \
        for (int64_t at = begin; at < end;) {                                                                          \
            int64_t o = at / inner, i = at % inner;                                                                    \
            int64_t width = inner - i < end - at ? inner - i : end - at;                                               \
            width = width < BL_REDUCE_BLOCK ? width : BL_REDUCE_BLOCK;                                                 \
            if (inner > 1) {                                                                                           \
                BL_JOIN(BL_KERNEL(name), _block)(l, o, i, width);                                                      \
            } else {                                                                                                   \
                BL_SUM total;                                                                                          \
                BL_ROW_FOLD_(BL_SUM, total, (BL_SUM)0, k, l->size[1], lane_[l_] += (BL_SUM)BL_(name)(l, o, k, 0),      \
                             lane_[l_] += lane_[l_ + w_]);                                                             \
                BL_STORE((BL_T *)l->operand[l->n_operands - 1].data, o, BL_(divided)(total, l->params.f[0]));          \
            }                                                                                                          \
            at += width;                                                                                               \
        }                                                                                                              \
    }
#define BL_STAMP_SORTED(name)                                                                                          \
    static void BL_KERNEL(name)(const bl_launch *l, int64_t begin, int64_t end, int64_t *keys, bl_bad *bad)            \
    {                                                                                                                  \
        for (int64_t e = begin; e < end; e++)                                                                          \
            keys[e] = BL_(name)(l, e, bad);                                                                            \
    }
#define BL_STAMP_DEVICE(name)
#define BL_STAMP_COPY(name)
#define BL_STAMP_MATMUL(name)

/* ---- table entries --------------------------------------------------------------------------------------------------- */

#define BL_ENTRY_MAP(name)     {.op = BL_OP_##name, .dtype = BL_DTYPE, .map = BL_KERNEL(name)},
#define BL_ENTRY_MAP0P(name)   BL_ENTRY_MAP(name)
#define BL_ENTRY_MAP0R(name)   BL_ENTRY_MAP(name)
#define BL_ENTRY_MAP1R(name)   BL_ENTRY_MAP(name)
#define BL_ENTRY_MAP1(name)    BL_ENTRY_MAP(name)
#define BL_ENTRY_MAP1P(name)   BL_ENTRY_MAP(name)
#define BL_ENTRY_MAP2(name)    BL_ENTRY_MAP(name)
#define BL_ENTRY_MAP3(name)    BL_ENTRY_MAP(name)
#define BL_ENTRY_MAP3P(name)   BL_ENTRY_MAP(name)
#define BL_ENTRY_COMPARE(name) BL_ENTRY_MAP(name)
#define BL_ENTRY_SELECT(name)  BL_ENTRY_MAP(name)
#define BL_ENTRY_MASK(name)    BL_ENTRY_MAP(name)
#define BL_ENTRY_LANE(name)    {.op = BL_OP_##name, .dtype = BL_DTYPE, .items = BL_KERNEL(name)},
#define BL_ENTRY_TAKE(name)    {.op = BL_OP_##name, .dtype = BL_DTYPE, .rows = BL_KERNEL(name)},
#define BL_ENTRY_REDUCE(name)  BL_ENTRY_LANE(name)
#define BL_ENTRY_SORTED(name)                                                                                          \
    {.op = BL_OP_##name, .dtype = BL_DTYPE, .keys = BL_KERNEL(name), .gather = BL_(sorted_gather)},
#define BL_ENTRY_DEVICE(name)
#define BL_ENTRY_COPY(name)
#define BL_ENTRY_MATMUL(name)

/* ---- the columns ----------------------------------------------------------------------------------------------------- */

#define BL_EACH_COLUMN "device/cpu/column.h"

#define BL_COLUMN   f32
#define BL_T        float
#define BL_REAL     float
#define BL_DTYPE    BELAY_F32
#define BL_IS_FLOAT 1
#include BL_EACH_COLUMN

#define BL_COLUMN      f64
#define BL_T           double
#define BL_REAL        double
#define BL_DTYPE       BELAY_F64
#define BL_IS_FLOAT    1
#define BL_REAL_IS_F64 1
#include BL_EACH_COLUMN

#define BL_COLUMN   bf16
#define BL_T        bl_bf16
#define BL_REAL     float
#define BL_DTYPE    BELAY_BF16
#define BL_IS_FLOAT 1
#include BL_EACH_COLUMN

#define BL_COLUMN   f16
#define BL_T        bl_f16
#define BL_REAL     float
#define BL_DTYPE    BELAY_F16
#define BL_IS_FLOAT 1
#include BL_EACH_COLUMN

#define BL_COLUMN i64
#define BL_T      int64_t
#define BL_REAL   int64_t
#define BL_DTYPE  BELAY_I64
#include BL_EACH_COLUMN

#define BL_COLUMN i32
#define BL_T      int32_t
#define BL_REAL   int64_t
#define BL_DTYPE  BELAY_I32
#include BL_EACH_COLUMN

#define BL_COLUMN u16
#define BL_T      uint16_t
#define BL_REAL   int64_t
#define BL_DTYPE  BELAY_U16
#include BL_EACH_COLUMN

#define BL_COLUMN u8
#define BL_T      uint8_t
#define BL_REAL   int64_t
#define BL_DTYPE  BELAY_U8
#include BL_EACH_COLUMN

#define BL_COLUMN  b8
#define BL_T       uint8_t
#define BL_REAL    int64_t
#define BL_DTYPE   BELAY_BOOL
#define BL_IS_BOOL 1
#include BL_EACH_COLUMN

/* ---- the family's table ---------------------------------------------------------------------------------------------- */

#define BL_TABLE(column)                                                                                               \
    {                                                                                                                  \
        BL_JOIN(entries_, column), BL_COUNT(BL_JOIN(entries_, column)) - 1                                             \
    }
extern const bl_cpu_family BL_JOIN(bl_cpu_family_, BL_FAMILY)[];
const bl_cpu_family BL_JOIN(bl_cpu_family_, BL_FAMILY)[] = {BL_TABLE(f32), BL_TABLE(f64), BL_TABLE(bf16), BL_TABLE(f16),
                                                            BL_TABLE(i64), BL_TABLE(i32), BL_TABLE(u16),  BL_TABLE(u8),
                                                            BL_TABLE(b8),  {NULL, 0}};
