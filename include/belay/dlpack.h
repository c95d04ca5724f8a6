/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors exchanged with PyTorch, NumPy, JAX and others by DLPack: no byte is copied, and each side sees what the other
 * writes.  The structs are those of any <dlpack/dlpack.h>, included before or after this file; a program that has none
 * includes <belay/dlpack_abi.h>.
 *
 * Exchanged is memory of the host: tensors on `cpu`.  What the other side does with the memory no report names and no
 * gradient knows: do not write to a tensor that a backward has yet to read. */
#ifndef BELAY_DLPACK_H
#define BELAY_DLPACK_H

#include <belay/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* The tensor for another library; NULL after a fault and for nil.  Its memory lives until the deleter has run, whatever
 * becomes of the tensor, its scope and its context; the deleter may be called on any thread, also after belay_close.
 * Strides are given, a tensor without elements has no data, dtypes are DLPack's of the same width (bool: kDLBool).
 * Faults: place.host (it lies on a device whose addresses the host cannot read: export belay_tensor_to(x, "cpu")),
 * life.read_only (lent to Belay to be read only: the versioned struct can say so, the other one cannot), life.stale,
 * mem.exhausted. */
BELAY_API struct DLManagedTensor *belay_tensor_to_dlpack(belay_tensor tensor);
BELAY_API struct DLManagedTensorVersioned *belay_tensor_to_dlpack_versioned(belay_tensor tensor);

/* A tensor, in the innermost scope, over another library's memory.  It is taken over: the deleter is called once, when no
 * tensor holds the memory any more (belay_close at the latest), on the thread that uses the context, and must not use that
 * context.  After a fault the result is nil, nothing was taken over and the deleter is the caller's to call.
 *
 * Every field is checked, but what it says of memory is believed: `data` must hold what shape and strides span.  Taken are
 * memory of the host (kDLCPU, kDLCUDAHost, kDLROCMHost), at most 8 axes, strides of 0 and more (NULL: row-major), Belay's
 * dtypes in one lane, data aligned to their size.  A tensor that is flagged read only can be read by every operation and
 * written by none (life.read_only).
 * A struct is imported once: as long as its memory is held, a second import is conf.order.  (After that it is the
 * producer's, who may have freed it.)  As everywhere in Belay, the sizes of a tensor that has no element have a product
 * within 2^63 - 1, too, its empty axes left out or not.
 * Faults: conf.missing, conf.value, conf.order, place.host, type.dtype, shape.rank, shape.contract, size.overflow, mem.exhausted. */
BELAY_API belay_tensor belay_tensor_from_dlpack(belay_context *context, struct DLManagedTensor *managed);
BELAY_API belay_tensor belay_tensor_from_dlpack_versioned(belay_context *context,
                                                          struct DLManagedTensorVersioned *managed);

#ifdef __cplusplus
}
#endif
#endif
