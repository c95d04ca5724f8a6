/* SPDX-License-Identifier: Apache-2.0 */
/* Stamps CUDA kernels from one family: the same bodies as on the CPU.  For every line of kernel/families.h the build writes
 *
 *   #define BL_FAMILY activation
 *   #define BL_FAMILY_FILE "kernel/activation.h"
 *   #include "device/cuda/stamp.cuh"
 *
 * A map is one thread an element; a LANE is one warp a row; so is a TAKE; a REDUCE is one thread an output with its 32 lanes in
 * registers, in the CPU's order; a SORTED has a kernel for its keys.  Launchers and the ordering of keys come with the CUDA
 * device; until then this file proves that every body compiles for CUDA. */
#include "kernel/row.h"

#define BL_(name) BL_JOIN(BL_JOIN(name, _), BL_COLUMN)
#define BL_KERNEL(name) BL_JOIN(BL_JOIN(cuda_, name), BL_JOIN(_, BL_COLUMN))

/* ---- what a thread does around a body ------------------------------------------------------------------------------------------- */

/* Element `at` of the output as an offset into operand k. */
static __device__ int64_t bl_cuda_offset(const bl_launch &l, int k, int64_t at)
{
    int64_t offset = 0;
    for (int axis = l.rank - 1; axis >= 0; axis--) {
        offset += at % l.size[axis] * l.operand[k].stride[axis];
        at /= l.size[axis];
    }
    return offset;
}

/* The lowest free slot of the ring; BL_RING_FAULTS: all are taken. */
static __device__ unsigned long long bl_cuda_claim(bl_fault_ring *ring)
{
    unsigned long long *claimed = (unsigned long long *)&ring->claimed, seen = atomicAdd_system(claimed, 0ull);
    for (;;) {
        unsigned long long free = ~seen & BL_RING_FULL;
        if (free == 0ull)
            return BL_RING_FAULTS;
        unsigned long long before = atomicCAS_system(claimed, seen, seen | (free & (~free + 1)));
        if (before == seen)
            return (unsigned long long)(__ffsll((long long)free) - 1);
        seen = before;
    }
}

/* What the word of a launch says while its record is being claimed, and after the ring had none left: nobody waits. */
#define BL_CUDA_CLAIMING (~0ull)
#define BL_CUDA_DROPPED (~1ull)

/* The launch's one record: claimed by the first bad thread, then the lowest element and the count by atomics; published
 * last.  `slot` is a word of the launch, 0 before it. */
static __device__ void bl_cuda_publish(const bl_launch &l, const bl_bad &bad, unsigned long long *slot)
{
    if (bad.count == 0)
        return;
    bool is_corrected = l.policy != BELAY_INDEX_RAISE && bad.code == BELAY_INDEX_RANGE; /* labels always raise */
    if (l.gates && !is_corrected)
        atomicCAS_system(&l.ring->window[l.window].gate, 0u, (unsigned)bad.code);
    if (atomicCAS(slot, 0ull, BL_CUDA_CLAIMING) == 0ull) {
        unsigned long long claimed = bl_cuda_claim(l.ring);
        if (claimed >= BL_RING_FAULTS) {
            atomicAdd_system((unsigned long long *)&l.ring->dropped, 1ull);
            atomicExch(slot, BL_CUDA_DROPPED);
            return;
        }
        bl_fault_record *r = &l.ring->record[claimed];
        r->launch = l.serial;
        r->element = bad.element;
        r->got = bad.got; /* the host reads it again */
        r->limit = bad.limit;
        r->count = 0;
        r->step = l.step;
        r->site = l.site;
        r->code = bad.code;
        r->op = (uint16_t)l.op;
        r->operand = bad.operand;
        r->policy = is_corrected ? (uint8_t)l.policy : (uint8_t)BELAY_INDEX_RAISE;
        __threadfence_system();
        atomicExch(slot, claimed + 1);
    }
    unsigned long long mine;
    while ((mine = atomicAdd(slot, 0ull)) == BL_CUDA_CLAIMING) {
    }
    if (mine == BL_CUDA_DROPPED)
        return;
    bl_fault_record *r = &l.ring->record[mine - 1];
    atomicMin_system((long long *)&r->element, (long long)bad.element);
    atomicAdd_system((unsigned long long *)&r->count, (unsigned long long)bad.count);
    __threadfence_system();
    atomicExch_system((unsigned long long *)&r->published, mine);
}

/* ---- kernels, a macro a skeleton ---------------------------------------------------------------------------------------------------- */

#define BL_HEAD(name)                                                                                                  \
    extern "C" __global__ void BL_KERNEL(name)(bl_launch l, unsigned long long *slot)                                  \
    {                                                                                                                  \
        (void)slot;                                                                                                    \
        int64_t step = (int64_t)gridDim.x * blockDim.x;                                                                \
        for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < l.n_items; i += step) {
#define BL_TAIL                                                                                                        \
    }                                                                                                                  \
    }
#define BL_X(k) BL_(bl_load)((const BL_T *)l.operand[k].data + bl_cuda_offset(l, k, i))
#define BL_BIT(k) (((const uint8_t *)l.operand[k].data)[bl_cuda_offset(l, k, i)] != 0)
#define BL_Y(value) BL_(bl_store)((BL_T *)l.operand[0].data + i, (value))

#define BL_STAMP_MAP0P(name) BL_HEAD(name) BL_Y(BL_(name)(&l.params, i)); BL_TAIL
#define BL_WORD bl_rng_word(&l.params.rng, (uint64_t)(l.params.i[0] + i))
#define BL_STAMP_MAP0R(name) BL_HEAD(name) BL_Y(BL_(name)(&l.params, BL_WORD)); BL_TAIL
#define BL_STAMP_MAP1(name) BL_HEAD(name) BL_Y(BL_(name)(BL_X(1))); BL_TAIL
#define BL_STAMP_MAP1P(name) BL_HEAD(name) BL_Y(BL_(name)(&l.params, i, BL_X(1))); BL_TAIL
#define BL_STAMP_MAP1R(name) BL_HEAD(name) BL_Y(BL_(name)(&l.params, BL_WORD, BL_X(1))); BL_TAIL
#define BL_STAMP_MAP2(name) BL_HEAD(name) BL_Y(BL_(name)(BL_X(1), BL_X(2))); BL_TAIL
#define BL_STAMP_MAP3(name) BL_HEAD(name) BL_Y(BL_(name)(BL_X(1), BL_X(2), BL_X(3))); BL_TAIL
#define BL_STAMP_MAP3P(name) BL_HEAD(name) BL_Y(BL_(name)(&l.params, i, BL_X(1), BL_X(2), BL_X(3))); BL_TAIL
#define BL_STAMP_COMPARE(name) BL_HEAD(name)((uint8_t *)l.operand[0].data)[i] = BL_(name)(BL_X(1), BL_X(2)); BL_TAIL
#define BL_STAMP_SELECT(name) BL_HEAD(name) BL_Y(BL_(name)(BL_BIT(1), BL_X(2), BL_X(3))); BL_TAIL
#define BL_STAMP_MASK(name) BL_HEAD(name) BL_Y(BL_(name)(&l.params, BL_BIT(1), BL_X(2))); BL_TAIL
#define BL_STAMP_LANE(name)                                                                                            \
    extern "C" __global__ void BL_KERNEL(name)(bl_launch l, unsigned long long *slot)                                  \
    {                                                                                                                  \
        int64_t warps = (int64_t)gridDim.x * (blockDim.x / BL_LANES);                                                  \
        bl_bad bad = {};                                                                                               \
        for (int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / BL_LANES; row < l.n_items; row += warps) \
            BL_(name)(&l, row, &bad);                                                                                  \
        if (BL_ROW_LEADER) /* what it met all lanes have, or it alone */                                               \
            bl_cuda_publish(l, bad, slot);                                                                             \
    }
#define BL_STAMP_TAKE(name)                                                                                            \
    extern "C" __global__ void BL_KERNEL(name)(bl_launch l, unsigned long long *slot)                                  \
    {                                                                                                                  \
        int64_t warps = (int64_t)gridDim.x * (blockDim.x / BL_LANES), width = l.size[3];                               \
        const BL_T *x = (const BL_T *)l.operand[0].data;                                                               \
        bl_bad bad = {};                                                                                               \
        BL_T zero;                                                                                                     \
        BL_STORE(&zero, 0, 0);                                                                                         \
        for (int64_t e = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / BL_LANES; e < l.n_items; e += warps) {     \
            int64_t on = e / l.size[2];                                                                                \
            int64_t from = BL_(name)(&l, on / l.size[1], on % l.size[1], e % l.size[2], &bad);                         \
            BL_T *y = (BL_T *)l.operand[l.n_operands - 1].data + e * width;                                            \
            BL_EACH(j, width) y[j] = from >= 0 ? x[from * width + j] : zero;                                           \
        }                                                                                                              \
        if (!BL_ROW_LEADER) /* its lanes met the same */                                                               \
            return;                                                                                                    \
        bl_cuda_publish(l, bad, slot);                                                                                 \
    }
#define BL_STAMP_REDUCE(name)                                                                                          \
    BL_HEAD(name)                                                                                                      \
    BL_SUM lane[BL_LANES] = {};                                                                                        \
    for (int64_t k = 0; k < l.size[1]; k++)                                                                            \
        lane[k % BL_LANES] += (BL_SUM)BL_(name)(&l, i / l.size[2], k, i % l.size[2]);                                  \
    for (int w = BL_LANES / 2; w > 0; w /= 2)                                                                          \
        for (int a = 0; a < w; a++)                                                                                    \
            lane[a] += lane[a + w];                                                                                    \
    BL_(bl_store)((BL_T *)l.operand[l.n_operands - 1].data + i, BL_(divided)(lane[0], l.params.f[0]));                  \
    BL_TAIL
#define BL_STAMP_SORTED(name)                                                                                          \
    extern "C" __global__ void BL_KERNEL(name)(bl_launch l, int64_t *keys, unsigned long long *slot)                   \
    {                                                                                                                  \
        int64_t step = (int64_t)gridDim.x * blockDim.x;                                                                \
        bl_bad bad = {};                                                                                               \
        for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < l.size[0]; e += step)                     \
            keys[e] = BL_(name)(&l, e, &bad);                                                                          \
        bl_cuda_publish(l, bad, slot);                                                                                 \
    }
#define BL_STAMP_DEVICE(name)
#define BL_STAMP_COPY(name)
#define BL_STAMP_MATMUL(name)

/* ---- the columns ---------------------------------------------------------------------------------------------------------------------- */

#define BL_COLUMN f32
#define BL_T float
#define BL_REAL float
#define BL_IS_FLOAT 1
#include "device/cuda/column.cuh"

#define BL_COLUMN f64
#define BL_T double
#define BL_REAL double
#define BL_IS_FLOAT 1
#define BL_REAL_IS_F64 1
#include "device/cuda/column.cuh"

#define BL_COLUMN bf16
#define BL_T bl_bf16
#define BL_REAL float
#define BL_IS_FLOAT 1
#include "device/cuda/column.cuh"

#define BL_COLUMN i64
#define BL_T int64_t
#define BL_REAL int64_t
#include "device/cuda/column.cuh"

#define BL_COLUMN b8
#define BL_T uint8_t
#define BL_REAL int64_t
#define BL_IS_BOOL 1
#include "device/cuda/column.cuh"
