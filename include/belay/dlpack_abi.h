/* SPDX-License-Identifier: Apache-2.0 */
/* The structs of DLPack, for a program that has no header of DLPack's own.  Where both are included, whichever comes
 * first defines them and the other is empty: the names, the layout and the include guard are DLPack's.
 *
 * Layout: https://dmlc.github.io/dlpack/latest/c_api.html, version 1.1 (DLPack, Apache-2.0). */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#include <stddef.h>
#include <stdint.h>

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 1

/* Bits of DLManagedTensorVersioned.flags. */
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t major; /* of the layout of DLManagedTensorVersioned */
    uint32_t minor;
} DLPackVersion;

/* Kinds of memory. */
#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3, /* of the host, pinned */
    kDLOpenCL = 4,
    kDLVulkan = 7,
    kDLMetal = 8,
    kDLVPI = 9,
    kDLROCM = 10,
    kDLROCMHost = 11, /* of the host, pinned */
    kDLExtDev = 12,
    kDLCUDAManaged = 13,
    kDLOneAPI = 14,
    kDLWebGPU = 15,
    kDLHexagon = 16,
    kDLMAIA = 17
} DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id; /* 0 for memory of the host */
} DLDevice;

typedef enum {
    kDLInt = 0U,
    kDLUInt = 1U,
    kDLFloat = 2U,
    kDLOpaqueHandle = 3U,
    kDLBfloat = 4U,
    kDLComplex = 5U,
    kDLBool = 6U
} DLDataTypeCode;

typedef struct {
    uint8_t code; /* of DLDataTypeCode */
    uint8_t bits; /* of one lane */
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data; /* NULL is usual for no elements */
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;       /* [ndim] */
    int64_t *strides;     /* [ndim], in elements; NULL, in older versions: row-major without gaps */
    uint64_t byte_offset; /* from `data` to the first element */
} DLTensor;

/* A tensor and who is told when it is not needed any more. */
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;                             /* the owner's */
    void (*deleter)(struct DLManagedTensor *self); /* NULL: nobody */
} DLManagedTensor;

/* The same since version 1.  What comes before `dl_tensor` keeps its place in every version. */
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#ifdef __cplusplus
}
#endif
#endif
