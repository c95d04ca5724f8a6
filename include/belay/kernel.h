/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of one's own, written once for every device in the common subset of C11, C++17 and CUDA C++.
 *
 *   typedef struct scale_params { float by; } scale_params;
 *   enum { SCALE_X, SCALE_Y };
 *
 *   BELAY_KERNEL(scale, "N: x[N] -> y[N]", work, i)
 *   {
 *       const scale_params *p = BELAY_PARAMS(scale_params, work);
 *       belay_kernel_view x = belay_view_of(work, SCALE_X), y = belay_view_of(work, SCALE_Y);
 *       BELAY_AT1(float, y, i) = p->by * BELAY_GET1(float, x, i);
 *   }
 *
 * The body runs once for each item of the launch (belay_launch in <belay/launch.h>), in any order, on any number of
 * threads: items write different places, or the result depends on luck.
 *
 * The signature is what is proved before the kernel runs:  "items: operand ... -> operand ..."
 *   operand   name[:dtype][axes][?][!]    axes are one-letter symbols, bound at first sight and compared from then on; a
 *                                         digit among them is that size.  Those behind the arrow are written, those
 *                                         before it are read, and with `!` also written; one with `?` may be nil
 *   dtype     none: f32; f64 bf16 f16 i64 i32 u16 u8 bool: that one; index: any integer; any: any
 *   items     the most items that a launch may have: a product of symbols ("ND") or chunks of it ("N/1024"); `*`: any
 *
 * What a body does wrong never leaves its tensors.  A coordinate outside of its axis reads as zero, and a write there is
 * dropped; so are those through a view of another dtype, rank or access than the tensor's.  Each is counted and told as
 * one fault of the launch, with its lowest item.  Only what goes through belay_view_raw is unchecked. */
#ifndef BELAY_KERNEL_H
#define BELAY_KERNEL_H

#include <belay/types.h>

#ifdef __CUDACC__
#define BELAY_KERNEL_FN   static __host__ __device__ __forceinline__
#define BELAY_KERNEL_COLD static __host__ __device__ __noinline__
#else
#define BELAY_KERNEL_FN   static inline __attribute__((always_inline, unused))
#define BELAY_KERNEL_COLD static __attribute__((noinline, cold, unused))
#endif

#define BELAY_MAX_KERNEL_OPERANDS 8
#define BELAY_MAX_KERNEL_PARAMS   128 /* bytes */
#define BELAY_NO_DTYPE            31  /* of an operand that is not there */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a launch as a kernel sees it: filled in by belay_launch --------------------------------------------------------- */

typedef struct belay_kernel_operand {
    void *data; /* the first element; an address of the device */
    int32_t dtype;
    int32_t rank;
    int64_t size[BELAY_MAX_RANK];
    int64_t stride[BELAY_MAX_RANK]; /* in elements */
    bool is_written;
} belay_kernel_operand;

typedef struct belay_kernel_args {
    int64_t n_items;
    int64_t n_operands;
    int64_t params_bytes;
    double params[BELAY_MAX_KERNEL_PARAMS / 8];
    belay_kernel_operand operand[BELAY_MAX_KERNEL_OPERANDS + 1]; /* the last is always absent */
} belay_kernel_args;

/* What the items of one thread did wrong: the first of the lowest item, and how often. */
typedef struct belay_kernel_thread {
    uint64_t count;
    int64_t item, got, limit;
    const char *message;
    int32_t code; /* belay_code */
    int32_t operand;
    int32_t axis;
    union {
        double f64;
        float f32;
        int64_t i64;
        int32_t i32;
        uint16_t u16;
        uint8_t u8;
        bool b8;
    } scratch; /* the safe place */
} belay_kernel_thread;

typedef struct belay_work {
    const belay_kernel_args *args;
    belay_kernel_thread *thread;
    int64_t item;
} belay_work;

/* A kernel: its name in reports, its signature, and its items [begin, end); where CUDA compiled it, also its entry there,
 * one thread an item, which writes what thread t noted to noted[t]. */
typedef struct belay_kernel {
    const char *name;
    const char *signature;
    void (*items)(const belay_kernel_args *args, belay_kernel_thread *thread, int64_t begin, int64_t end);
    const void *cuda; /* void (belay_kernel_args args, belay_kernel_thread *noted), or NULL */
} belay_kernel;

#ifdef __CUDACC__
#define BELAY_KERNEL_CUDA_OF(name) ((const void *)name##_cuda)
#define BELAY_KERNEL_CUDA(name)                                                                                        \
    static __global__ void name##_cuda(belay_kernel_args args, belay_kernel_thread *noted)                             \
    {                                                                                                                  \
        int64_t number = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;       \
        belay_kernel_thread mine = {};                                                                                 \
        belay_work at = {&args, &mine, number};                                                                        \
        for (; at.item < args.n_items; at.item += step)                                                                \
            name##_item(&at, at.item);                                                                                 \
        noted[number] = mine;                                                                                          \
    }
#else
#define BELAY_KERNEL_CUDA_OF(name) 0
#define BELAY_KERNEL_CUDA(name)
#endif

/* Begins the kernel `name` (a static const belay_kernel); its body follows in braces.  `work` and `item` are how the
 * body calls its launch and the number of its item. */
#define BELAY_KERNEL(name, signature, work_name, item_name)                                                            \
    BELAY_KERNEL_FN void name##_item(const belay_work *work_name, int64_t item_name);                                  \
    static void name##_items(const belay_kernel_args *args, belay_kernel_thread *thread, int64_t begin, int64_t end)   \
    {                                                                                                                  \
        belay_work at = {args, thread, begin};                                                                         \
        for (; at.item < end; at.item++)                                                                               \
            name##_item(&at, at.item);                                                                                 \
    }                                                                                                                  \
    BELAY_KERNEL_CUDA(name)                                                                                            \
    static const belay_kernel name = {#name, signature, name##_items, BELAY_KERNEL_CUDA_OF(name)};                     \
    BELAY_KERNEL_FN void name##_item(const belay_work *work_name, int64_t item_name)

/* ---- faults ---------------------------------------------------------------------------------------------------------- */

BELAY_KERNEL_COLD void belay_thread_note(belay_kernel_thread *thread, int64_t item, int code, int operand, int axis,
                                         int64_t got, int64_t limit, const char *message)
{
    if (thread->count++ > 0 && item >= thread->item)
        return;
    thread->item = item;
    thread->code = code;
    thread->operand = operand;
    thread->axis = axis;
    thread->got = got;
    thread->limit = limit;
    thread->message = message;
}

/* The fault kernel.assert with that text (a literal) and the item, when the condition does not hold.  The body goes on:
 * it returns by itself where it cannot. */
#define BELAY_ASSERT_KERNEL(work, condition, message)                                                                  \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0))                                                                         \
            belay_thread_note((work)->thread, (work)->item, BELAY_KERNEL_ASSERT, -1, 0, 0, 0, (message));              \
    } while (0)

/* A float as an index: the fault num.cast, and 0, for a NaN, an infinity, a fraction or more than 64 bits. */
BELAY_KERNEL_FN int64_t belay_index_of(const belay_work *work, double value)
{
    bool fits = value >= -9223372036854775808.0 && value < 9223372036854775808.0;
    int64_t whole = fits ? (int64_t)value : 0;
    if (__builtin_expect(fits && (double)whole == value, 1))
        return whole;
    union {
        double value;
        int64_t bits;
    } as;
    as.value = value;
    belay_thread_note(work->thread, work->item, BELAY_NUM_CAST, -1, 0, as.bits, 0, 0);
    return 0;
}

/* ---- parameters ------------------------------------------------------------------------------------------------------ */

/* The launch's parameters as a `type`: a copy, the same for every item, aligned to 8 bytes.  One of another size than
 * the launch gave is the fault conf.value; then what there is not reads as zeros.  They are numbers: a pointer to the
 * host's memory means nothing on another device, and to follow it is an illegal access there (see belay_launch). */
#define BELAY_PARAMS(type, work) ((const type *)belay_params_of((work), (int64_t)sizeof(type)))
BELAY_KERNEL_FN const void *belay_params_of(const belay_work *work, int64_t n_bytes)
{
    if (__builtin_expect(n_bytes != work->args->params_bytes, 0))
        belay_thread_note(work->thread, work->item, BELAY_CONF_VALUE, -1, 0, n_bytes, work->args->params_bytes, 0);
    return work->args->params;
}

/* ---- views ----------------------------------------------------------------------------------------------------------- */

/* Operand `number` of the launch, counted in the signature's order.  Valid while the item runs. */
typedef struct belay_kernel_view {
    const belay_work *work;
    const belay_kernel_operand *operand;
    int number;
} belay_kernel_view;

BELAY_KERNEL_FN belay_kernel_view belay_view_of(const belay_work *work, int number)
{
    belay_kernel_view view;
    bool exists = number >= 0 && number < BELAY_MAX_KERNEL_OPERANDS;
    view.work = work;
    view.operand = &work->args->operand[exists ? number : BELAY_MAX_KERNEL_OPERANDS];
    view.number = number;
    return view;
}

/* True for an operand that was left out. */
BELAY_KERNEL_FN bool belay_view_is_absent(belay_kernel_view view) { return view.operand->dtype == BELAY_NO_DTYPE; }
BELAY_KERNEL_FN int belay_view_rank(belay_kernel_view view) { return view.operand->rank; }
/* The size of an axis; 0 for one that is not there. */
BELAY_KERNEL_FN int64_t belay_view_size(belay_kernel_view view, int axis)
{
    return axis >= 0 && axis < view.operand->rank ? view.operand->size[axis] : 0;
}
/* The first element, and from there on nothing is checked: a stray access is undefined.  In memory mode `exact` and on
 * software devices one that leaves its block is the fault mem.access. */
BELAY_KERNEL_FN void *belay_view_raw(belay_kernel_view view) { return view.operand->data; }

/* The element at 0 to 4 coordinates: AT is a place to read and write, GET a value.  Types: float, double, int64_t,
 * int32_t, uint16_t (and the bits of 16-bit floats), uint8_t (and bool), bool. */
#define BELAY_AT0(type, view)              (*(type *)BELAY_PLACE_OF(type, view, 1, 0, 0, 0, 0, 0))
#define BELAY_AT1(type, view, i)           (*(type *)BELAY_PLACE_OF(type, view, 1, 1, i, 0, 0, 0))
#define BELAY_AT2(type, view, i, j)        (*(type *)BELAY_PLACE_OF(type, view, 1, 2, i, j, 0, 0))
#define BELAY_AT3(type, view, i, j, k)     (*(type *)BELAY_PLACE_OF(type, view, 1, 3, i, j, k, 0))
#define BELAY_AT4(type, view, i, j, k, l)  (*(type *)BELAY_PLACE_OF(type, view, 1, 4, i, j, k, l))
#define BELAY_GET0(type, view)             (*(const type *)BELAY_PLACE_OF(type, view, 0, 0, 0, 0, 0, 0))
#define BELAY_GET1(type, view, i)          (*(const type *)BELAY_PLACE_OF(type, view, 0, 1, i, 0, 0, 0))
#define BELAY_GET2(type, view, i, j)       (*(const type *)BELAY_PLACE_OF(type, view, 0, 2, i, j, 0, 0))
#define BELAY_GET3(type, view, i, j, k)    (*(const type *)BELAY_PLACE_OF(type, view, 0, 3, i, j, k, 0))
#define BELAY_GET4(type, view, i, j, k, l) (*(const type *)BELAY_PLACE_OF(type, view, 0, 4, i, j, k, l))

#define BELAY_PLACE_OF(type, view, writes, rank, i, j, k, l)                                                           \
    belay_view_place((view), BELAY_AS_##type, (int)sizeof(type), writes, rank, i, j, k, l)

/* The dtypes that a C type reads, a bit each. */
#define BELAY_AS_float    (1u << BELAY_F32)
#define BELAY_AS_double   (1u << BELAY_F64)
#define BELAY_AS_int64_t  (1u << BELAY_I64)
#define BELAY_AS_int32_t  (1u << BELAY_I32)
#define BELAY_AS_uint16_t (1u << BELAY_U16 | 1u << BELAY_BF16 | 1u << BELAY_F16)
#define BELAY_AS_uint8_t  (1u << BELAY_U8 | 1u << BELAY_BOOL)
#define BELAY_AS_bool     (1u << BELAY_BOOL)

/* Notes what is wrong with a place, the view before its coordinates; gives the thread's safe place, zeroed. */
BELAY_KERNEL_COLD void *belay_view_misplaced(belay_kernel_thread *thread, const belay_kernel_operand *o, int number,
                                             int64_t item, unsigned kinds, int writes, int rank, int64_t i, int64_t j,
                                             int64_t k, int64_t l)
{
    const int64_t at[4] = {i, j, k, l};
    int axis = 0;
    while (axis < rank && axis < o->rank && (uint64_t)at[axis] < (uint64_t)o->size[axis])
        axis++;
    if (o->dtype == BELAY_NO_DTYPE)
        belay_thread_note(thread, item, BELAY_CONF_MISSING, -1, 0, number, 0, 0);
    else if ((kinds >> o->dtype & 1u) == 0)
        belay_thread_note(thread, item, BELAY_TYPE_DTYPE, number, 0, kinds, o->dtype, 0);
    else if (o->rank != rank)
        belay_thread_note(thread, item, BELAY_SHAPE_RANK, number, 0, rank, o->rank, 0);
    else if (writes && !o->is_written)
        belay_thread_note(thread, item, BELAY_CONF_CONFLICT, number, 0, 0, 0, 0);
    else
        belay_thread_note(thread, item, BELAY_INDEX_RANGE, number, axis, at[axis & 3], o->size[axis & 3], 0);
    thread->scratch.f64 = 0;
    return &thread->scratch;
}

BELAY_KERNEL_FN void *belay_view_place(belay_kernel_view view, unsigned kinds, int n_bytes, int writes, int rank,
                                       int64_t i, int64_t j, int64_t k, int64_t l)
{
    const belay_kernel_operand *o = view.operand;
    const int64_t at[4] = {i, j, k, l};
    bool fits = (kinds >> o->dtype & 1u) != 0 && o->rank == rank && (o->is_written || !writes);
    uint64_t offset = 0;
    for (int axis = 0; axis < rank; axis++) {
        fits = fits && (uint64_t)at[axis] < (uint64_t)o->size[axis];
        offset += (uint64_t)at[axis] * (uint64_t)o->stride[axis];
    }
    if (__builtin_expect(fits, 1))
        return (char *)o->data + offset * (uint64_t)n_bytes;
    return belay_view_misplaced(view.work->thread, o, view.number, view.work->item, kinds, writes, rank, i, j, k, l);
}

#ifdef __cplusplus
}
#endif
#endif
