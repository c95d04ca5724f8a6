/* SPDX-License-Identifier: Apache-2.0 */
/* The words that bodies are written in; all that differs between the C compiler and the CUDA compiler.
 *
 * A family file kernel/<family>.h has two parts.  With BL_BODIES defined it gives functions, and is read once for each
 * dtype column; with BL_ROWS defined it gives rows, all that is said about its ops.  A device reads a family through
 * its own stamp header, which sets the column's words:
 *
 *   BL_T      storage type of the column         BL_REAL  type of its arithmetic
 *   BL_(name) the name with the column's suffix   BL_IS_FLOAT, BL_IS_INT
 *
 * Three storeys: a *formula* maps scalars to a scalar and knows no memory; a *lane body* handles one row with 32 lanes
 * in the words BL_EACH, BL_ROW_SUM and BL_ROW_MAX; a *term* is what a reduction adds up.  Inside a lane body a lane
 * reads back only what it wrote itself; what lanes share goes through a row word.  A bad element is one of the row: all
 * lanes note it alike, or the leader alone does, whose notes are the ones that count.
 *
 * Common subset of C17 and CUDA C++: no restrict keyword (BL_RESTRICT), no _Static_assert, no _Generic, no variable-
 * length arrays, in-order designators only. */
#ifndef BL_KERNEL_DIALECT_H
#define BL_KERNEL_DIALECT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include <belay/types.h>

#include "base/record.h"
#include "base/rng.h"

#ifdef __CUDACC__
#define BL_FN       static __device__ __forceinline__
#define BL_RESTRICT __restrict__
/* A word for the host, behind all that was written before it. */
#define BL_PUBLISH(word, value)                                                                                        \
    do {                                                                                                               \
        __threadfence_system();                                                                                        \
        *(volatile uint32_t *)(word) = (value);                                                                        \
    } while (0)
/* A word that the host may write meanwhile. */
#define BL_OBSERVE(word) (*(const volatile uint32_t *)(word))
#else
#define BL_FN                   static inline __attribute__((always_inline, unused))
#define BL_RESTRICT             restrict
#define BL_PUBLISH(word, value) __atomic_store_n((word), (value), __ATOMIC_RELEASE)
#define BL_OBSERVE(word)        __atomic_load_n((word), __ATOMIC_ACQUIRE)
#endif

#ifdef BELAY_SMALL
#define BL_LANES 2
#else
#define BL_LANES 32
#endif

#define BL_JOIN_(a, b) a##b
#define BL_JOIN(a, b)  BL_JOIN_(a, b)

/* Storage of 16-bit floats: one member, so that arithmetic on them does not compile. */
typedef struct bl_bf16 {
    uint16_t bits;
} bl_bf16;
typedef struct bl_f16 {
    uint16_t bits;
} bl_f16;

/* Scalars of a launch: what the op's options become.  Their meaning stands at each op's row. */
typedef struct bl_params {
    double f[8];
    int64_t i[8];
    bl_rng_key rng;
} bl_params;

/* Bad elements that a thread of a kernel met: the lowest and how many. */
typedef struct bl_bad {
    int64_t element;
    int64_t got;
    int64_t limit;
    uint64_t count;
    uint8_t operand;
    uint8_t axis; /* of a kernel of the user's own, whose elements are items */
    uint16_t code;
} bl_bad;

typedef struct bl_operand {
    void *data;                  /* first element; device address */
    int dtype;                   /* belay_dtype */
    int64_t stride[BL_MAX_RANK]; /* in elements over the launch's shape (map); unused where operands are contiguous */
} bl_operand;

/* One launch as a kernel sees it. */
typedef struct bl_launch {
    int op;
    int dtype; /* the column */
    int n_operands;
    int rank;                  /* map: of the collapsed output shape */
    int64_t size[BL_MAX_RANK]; /* map: the collapsed output shape */
    int64_t dim[8];            /* the signature's symbols, as its operands first name them */
    int64_t n_items;           /* map: elements; row: rows; reduce: outputs; sorted: source and target rows */
    int64_t work;              /* element operations, roughly: how many threads are worth it */
    int policy;                /* belay_index_policy: RAISE, CLAMP or ZERO */
    bool gates;                /* a bad index closes the window's gate */
    uint8_t window;            /* whose words in the ring: of the window that it belongs to */
    bl_operand operand[BL_MAX_OPERANDS];
    bl_params params;
    struct bl_custom *custom; /* a kernel of the user's own, in kernel/custom.h */
    bl_fault_ring *ring;
    uint64_t serial;
    uint32_t step;
    uint32_t site;
} bl_launch;

/* ---- conversions, by bits: the same everywhere ----------------------------------------------------------------------
 */

BL_FN float bl_float_of_bits(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } x;
    x.u = bits;
    return x.f;
}

BL_FN uint32_t bl_bits_of_float(float value)
{
    union {
        float f;
        uint32_t u;
    } x;
    x.f = value;
    return x.u;
}

BL_FN float bl_from_bf16(bl_bf16 x) { return bl_float_of_bits((uint32_t)x.bits << 16); }

/* Round to nearest even; a NaN stays a NaN. */
BL_FN bl_bf16 bl_to_bf16(float value)
{
    uint32_t u = bl_bits_of_float(value);
    uint32_t rounded = (u + 0x7FFFu + (u >> 16 & 1u)) >> 16;
    bl_bf16 r;
    r.bits = (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? (u >> 16 | 0x40u) : rounded);
    return r;
}

BL_FN float bl_from_f16(bl_f16 x)
{
    uint32_t sign = (uint32_t)(x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7FFFu;
    /* Shift exponent and mantissa into place and scale: exact, subnormals included. */
    uint32_t shifted = magnitude << 13;
    float scaled = bl_float_of_bits(shifted) * bl_float_of_bits(0x77800000u); /* 2^112 */
    uint32_t special = shifted + 0x70000000u; /* infinities and NaNs: exponent all ones */
    return bl_float_of_bits(sign | (magnitude >= 0x7C00u ? special : bl_bits_of_float(scaled)));
}

/* Round to nearest even, overflow to infinity, subnormals kept; a NaN stays a NaN. */
BL_FN bl_f16 bl_to_f16(float value)
{
    uint32_t u = bl_bits_of_float(value), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu, out;
    if (a > 0x7F800000u) {
        out = 0x7E00u;
    } else if (a >= 0x477FF000u) {
        out = 0x7C00u;
    } else if (a < 0x38800000u) {
        /* Adding 2^-1's ulp grid of subnormals lets the float unit round: 0.5f has an ulp of 2^-24. */
        out = bl_bits_of_float(bl_float_of_bits(a) + 0.5f) - 0x3F000000u;
    } else {
        out = (a - 0x38000000u + 0xFFFu + (a >> 13 & 1u)) >> 13;
    }
    bl_f16 r;
    r.bits = (uint16_t)(sign | out);
    return r;
}

BL_FN float bl_load_f32(const float *p) { return *p; }
BL_FN double bl_load_f64(const double *p) { return *p; }
BL_FN float bl_load_bf16(const bl_bf16 *p) { return bl_from_bf16(*p); }
BL_FN float bl_load_f16(const bl_f16 *p) { return bl_from_f16(*p); }
BL_FN int64_t bl_load_i64(const int64_t *p) { return *p; }
BL_FN int64_t bl_load_i32(const int32_t *p) { return *p; }
BL_FN int64_t bl_load_u16(const uint16_t *p) { return *p; }
BL_FN int64_t bl_load_u8(const uint8_t *p) { return *p; }
BL_FN int64_t bl_load_b8(const uint8_t *p) { return *p != 0; }
BL_FN void bl_store_f32(float *p, float v) { *p = v; }
BL_FN void bl_store_f64(double *p, double v) { *p = v; }
BL_FN void bl_store_bf16(bl_bf16 *p, float v) { *p = bl_to_bf16(v); }
BL_FN void bl_store_f16(bl_f16 *p, float v) { *p = bl_to_f16(v); }
BL_FN void bl_store_i64(int64_t *p, int64_t v) { *p = v; }
BL_FN void bl_store_i32(int32_t *p, int64_t v) { *p = (int32_t)(uint32_t)(uint64_t)v; }
BL_FN void bl_store_u16(uint16_t *p, int64_t v) { *p = (uint16_t)(uint64_t)v; }
BL_FN void bl_store_u8(uint8_t *p, int64_t v) { *p = (uint8_t)(uint64_t)v; }
BL_FN void bl_store_b8(uint8_t *p, int64_t v) { *p = v != 0; }

/* An index of any integer dtype. */
BL_FN int64_t bl_load_index(const bl_operand *o, int64_t i)
{
    switch (o->dtype) {
    case BELAY_I64:
        return ((const int64_t *)o->data)[i];
    case BELAY_I32:
        return ((const int32_t *)o->data)[i];
    case BELAY_U16:
        return ((const uint16_t *)o->data)[i];
    default:
        return ((const uint8_t *)o->data)[i];
    }
}

/* The loop `pass` once for each of the common types, so that none asks for it in the middle. */
#define BL_BY_INDEX_TYPE(operand, pass)                                                                                \
    if ((operand).dtype == BELAY_I64)                                                                                  \
    pass else if ((operand).dtype == BELAY_I32) pass else pass

/* ---- checked indices ------------------------------------------------------------------------------------------------- */

/* Notes a bad element: the lowest is kept, all are counted. */
BL_FN void bl_bad_note(bl_bad *bad, int code, int operand, int64_t element, int64_t got, int64_t limit)
{
    if (bad->count == 0 || element < bad->element) {
        bad->element = element;
        bad->got = got;
        bad->limit = limit;
        bad->operand = (uint8_t)operand;
        bad->code = (uint16_t)code;
    }
    bad->count++;
}

/* Tests index `got`, element `element` of operand `operand`, against [0, limit).  Gives an index that may be used as an
 * address (0 <= result < max(limit, 1)) and says whether its value counts: a bad read is zero, a bad write is dropped.
 * With `bad` NULL it only asks, without a branch: nothing is noted or clamped, and no bad index counts. */
BL_FN int64_t bl_index(const bl_launch *l, bl_bad *bad, int operand, int64_t element, int64_t got, int64_t limit,
                       bool *counts)
{
#ifdef BELAY_UNCHECKED_INDEX
    (void)l, (void)bad, (void)operand, (void)element, (void)limit;
    *counts = true;
    return got;
#else
    bool is_in = (uint64_t)got < (uint64_t)limit;
    *counts = is_in;
    if (bad == (bl_bad *)0)
        return got;
    if (__builtin_expect(is_in, 1))
        return got;
    bl_bad_note(bad, BELAY_INDEX_RANGE, operand, element, got, limit);
    *counts = l->policy == BELAY_INDEX_CLAMP && limit > 0;
    return *counts && got > 0 ? limit - 1 : 0;
#endif
}

/* Tests label `element` of operand `operand` against [0, n).  One that equals params.i[0] while params.i[1] is set is
 * left out; any other out of range is noted as index.label and counts for nothing, whatever the policy. */
BL_FN int64_t bl_label(const bl_launch *l, bl_bad *bad, int operand, int64_t element, int64_t n, bool *counts)
{
    int64_t got = bl_load_index(&l->operand[operand], element);
    *counts = l->params.i[1] == 0 || got != l->params.i[0];
#ifdef BELAY_UNCHECKED_INDEX
    (void)bad, (void)n;
#else
    if (__builtin_expect((uint64_t)got >= (uint64_t)n, 0)) {
        if (*counts)
            bl_bad_note(bad, BELAY_INDEX_LABEL, operand, element, got, n);
        *counts = false;
        return 0;
    }
#endif
    return got;
}

/* ---- the row words: 32 lanes whose order of summation is part of the contract ---------------------------------------- */

/* BL_EACH_APART: no j reads or writes what another one writes, a bad element's note included; it always vectorises. */
#if defined __CUDACC__ || defined __clang__ /* clang finds out at run time */
#define BL_INDEPENDENT
#else
#define BL_INDEPENDENT _Pragma("GCC ivdep")
#endif
#ifdef __CUDACC__
#define BL_EACH(j, n)       for (int64_t j = threadIdx.x % BL_LANES; j < (n); j += BL_LANES)
#define BL_EACH_APART(j, n) BL_EACH(j, n)
#define BL_ROW_LEADER       (threadIdx.x % BL_LANES == 0)
/* The statement for each j in [0, n) and its `word`, number first + j of the draw `key`.  No j reads what another one
 * writes. */
#define BL_EACH_WORD(j, word, n, key, first, ...)                                                                      \
    BL_EACH(j, n)                                                                                                      \
    {                                                                                                                  \
        const uint32_t word = bl_rng_word(&(key), (uint64_t)((first) + j));                                            \
        __VA_ARGS__;                                                                                                   \
    }
/* True in the lane to which BL_EACH gives j. */
#define BL_ROW_OWNS(j) (threadIdx.x % BL_LANES == (j) % BL_LANES)
#define BL_ROW_SUM(result, j, n, expression)                                                                           \
    do {                                                                                                               \
        BL_REAL lane_ = 0;                                                                                             \
        BL_EACH(j, n) lane_ += (expression);                                                                           \
        for (int w_ = BL_LANES / 2; w_ > 0; w_ /= 2)                                                                   \
            lane_ += __shfl_down_sync(0xFFFFFFFFu, lane_, w_, BL_LANES);                                               \
        (result) = __shfl_sync(0xFFFFFFFFu, lane_, 0, BL_LANES);                                                       \
    } while (0)
#define BL_ROW_SUM_F64(result, j, n, expression)                                                                       \
    do {                                                                                                               \
        double lane_ = 0;                                                                                              \
        BL_EACH(j, n) lane_ += (expression);                                                                           \
        for (int w_ = BL_LANES / 2; w_ > 0; w_ /= 2)                                                                   \
            lane_ += __shfl_down_sync(0xFFFFFFFFu, lane_, w_, BL_LANES);                                               \
        (result) = __shfl_sync(0xFFFFFFFFu, lane_, 0, BL_LANES);                                                       \
    } while (0)
#define BL_ROW_MAX(result, j, n, expression)                                                                           \
    do {                                                                                                               \
        BL_REAL lane_ = BL_(lowest)();                                                                                 \
        BL_EACH(j, n) lane_ = BL_(larger)(lane_, (expression));                                                        \
        for (int w_ = BL_LANES / 2; w_ > 0; w_ /= 2)                                                                   \
            lane_ = BL_(larger)(lane_, __shfl_down_sync(0xFFFFFFFFu, lane_, w_, BL_LANES));                            \
        (result) = __shfl_sync(0xFFFFFFFFu, lane_, 0, BL_LANES);                                                       \
    } while (0)
#else
#define BL_EACH(j, n)       for (int64_t j = 0; j < (n); j++)
#define BL_EACH_APART(j, n) BL_INDEPENDENT BL_EACH(j, n)
/* Words are drawn for a stretch of elements before they are used, so that both loops vectorise. */
#define BL_STRETCH          256
#define BL_EACH_WORD(j, word, n, key, first, ...)                                                                      \
    for (int64_t done_ = 0; done_ < (n); done_ += BL_STRETCH) {                                                        \
        const int64_t stretch_ = (n)-done_ < BL_STRETCH ? (n)-done_ : BL_STRETCH;                                      \
        uint32_t drawn_[BL_STRETCH + BL_RNG_SPARE];                                                                    \
        const uint32_t *const words_ = bl_rng_words(&(key), (uint64_t)((first) + done_), stretch_, drawn_);            \
        BL_INDEPENDENT for (int64_t i_ = 0; i_ < stretch_; i_++)                                                       \
        {                                                                                                              \
            const int64_t j = done_ + i_;                                                                              \
            const uint32_t word = words_[i_];                                                                          \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    }
#define BL_ROW_LEADER  1
#define BL_ROW_OWNS(j) 1
#define BL_ROW_FOLD_(type, result, start, j, n, fold, tree)                                                            \
    do {                                                                                                               \
        type lane_[BL_LANES];                                                                                          \
        for (int l_ = 0; l_ < BL_LANES; l_++)                                                                          \
            lane_[l_] = (start);                                                                                       \
        int64_t whole_ = (n) - (n) % BL_LANES;                                                                         \
        for (int64_t block_ = 0; block_ < whole_; block_ += BL_LANES)                                                  \
            for (int l_ = 0; l_ < BL_LANES; l_++) {                                                                    \
                int64_t j = block_ + l_;                                                                               \
                fold;                                                                                                  \
            }                                                                                                          \
        for (int l_ = 0; l_ < (int)((n)-whole_); l_++) {                                                               \
            int64_t j = whole_ + l_;                                                                                   \
            fold;                                                                                                      \
        }                                                                                                              \
        for (int w_ = BL_LANES / 2; w_ > 0; w_ /= 2)                                                                   \
            for (int l_ = 0; l_ < w_; l_++)                                                                            \
                tree;                                                                                                  \
        (result) = lane_[0];                                                                                           \
    } while (0)
#define BL_ROW_SUM(result, j, n, expression)                                                                           \
    BL_ROW_FOLD_(BL_REAL, result, (BL_REAL)0, j, n, lane_[l_] += (expression), lane_[l_] += lane_[l_ + w_])
/* In double whatever the column: sums of squares that must not overflow before their root does. */
#define BL_ROW_SUM_F64(result, j, n, expression)                                                                       \
    BL_ROW_FOLD_(double, result, 0.0, j, n, lane_[l_] += (expression), lane_[l_] += lane_[l_ + w_])
#define BL_ROW_MAX(result, j, n, expression)                                                                           \
    BL_ROW_FOLD_(BL_REAL, result, BL_(lowest)(), j, n, lane_[l_] = BL_(larger)(lane_[l_], (expression)),               \
                 lane_[l_] = BL_(larger)(lane_[l_], lane_[l_ + w_]))
#endif

/* Typed pointer to an operand of the launch `l`, and element access with the column's conversion. */
#define BL_PTR(type, k)   ((type *)l->operand[k].data)
#define BL_LOAD(p, i)     BL_(bl_load)((p) + (i))
#define BL_STORE(p, i, v) BL_(bl_store)((p) + (i), (v))

#endif
