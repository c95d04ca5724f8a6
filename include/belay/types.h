/* SPDX-License-Identifier: Apache-2.0 */
/* The values that every header speaks of: dtypes, the tensor handle, shapes. */
#ifndef BELAY_TYPES_H
#define BELAY_TYPES_H

#include <belay/fault.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_MAX_RANK 8

/* Element types.  Arithmetic on f16 and bf16 is done in f32, on integers in 64 bits; numbers are pinned. */
typedef enum belay_dtype {
    BELAY_F32 = 0, /* the default of every maker */
    BELAY_F64 = 1,
    BELAY_BF16 = 2,
    BELAY_F16 = 3,
    BELAY_I64 = 4,
    BELAY_I32 = 5,
    BELAY_U16 = 6,
    BELAY_U8 = 7,
    BELAY_BOOL = 8,
    BELAY_N_DTYPES = 9
} belay_dtype;

/* "f32"; "?" for a number that is none.  Bytes of one element, 0 for a number that is none. */
BELAY_API const char *belay_dtype_name(belay_dtype dtype);
BELAY_API int64_t belay_dtype_size(belay_dtype dtype);
BELAY_API bool belay_dtype_is_float(belay_dtype dtype);

/* A context owns tensors, modules, the device and the faults.  One thread uses it at a time. */
typedef struct belay_context belay_context;

/* A tensor: a small handle, passed by value.  All zero is the nil handle: an operation given nil returns nil and says
 * nothing more.  Using a handle whose tensor died is the fault life.stale, never undefined behaviour. */
typedef struct belay_tensor {
    uint32_t context;    /* which context, 0 for nil */
    uint32_t slot;       /* which slot of it */
    uint32_t generation; /* which tenant of the slot */
} belay_tensor;

/* Sizes of a tensor, [size[0], ..., size[rank - 1]]; rank 0 is a scalar with one element. */
typedef struct belay_shape {
    int rank;
    int64_t size[BELAY_MAX_RANK];
} belay_shape;

/* What happens to an index that is out of range: of a table, a gather, a label (labels: RAISE or ignore only). */
typedef enum belay_index_policy {
    BELAY_INDEX_DEFAULT = 0, /* the context's policy */
    BELAY_INDEX_RAISE = 1,   /* the step faults and is not applied; the row reads as zeros */
    BELAY_INDEX_CLAMP = 2,   /* moved to the nearest valid index, counted, warned once per site */
    BELAY_INDEX_ZERO = 3     /* a row of zeros, counted, warned once per site */
} belay_index_policy;

#ifdef __cplusplus
}
#endif
#endif
