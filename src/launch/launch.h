/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to a kernel: proves a call safe, writes the launch record, launches, and reads the faults at the fence.
 * Proof is by skeleton, never by op, in 64-bit arithmetic: shapes, dtypes, context, lifetime, extents, overlap. */
#ifndef BL_LAUNCH_LAUNCH_H
#define BL_LAUNCH_LAUNCH_H

#include "launch/signature.h"
#include "tensor/place.h"

enum { BL_MAX_IN = 8, BL_MAX_OUT = 4 };

/* A call to be proved.  Zero what is not used. */
typedef struct bl_call {
    belay_context *context;
    int op;
    int n_in;
    belay_tensor in[BL_MAX_IN];    /* in the signature's order; nil where one is left out */
    const char *as;                /* what was called, whose part the op is; NULL: the op itself */
    const char *const *role;       /* of its inputs there, NULL: of no interest; NULL: as in the op's signature */
    belay_tensor shown[BL_MAX_IN]; /* how the caller knows them (before a reshape); nil: as `in` */
    bl_params params;
    belay_index_policy policy; /* 0: the context's */
    belay_dtype dtype;         /* of the output, for COPY and MAP0P */
    belay_shape shape;         /* of the output, for MAP0P and to bind the symbols below */
    belay_tensor into;         /* write here instead of into a new tensor: same shape and dtype, contiguous */
    int at;                    /* 1 + the place of the result, where no operand says it; 0: the current one */
    bool has_dims;             /* `dims` gives every symbol of `dims_of`'s signature by letter */
    int dims_of;
    int64_t dims[8];
    struct bl_custom *custom; /* a kernel of the user's own; then `op` is none */
    bool is_backward;
    uintptr_t site; /* backward: the forward call's */
    uint32_t layer; /* backward: the forward call's */

    int n_out;
    belay_tensor out[BL_MAX_OUT]; /* results */
} bl_call;

/* Runs the call; false (all results nil) when an input is nil or a fault was raised.  A bad index does not make it
 * false: the result reads as the policy says. */
bool bl_launch_run(bl_call *call);

/* The value of an element of a float dtype. */
double bl_launch_float(int dtype, const void *element);

/* ---- helpers above which ops and gradients are written; none records ------------------------------------------------- */

/* The tensor itself when it is contiguous, else a copy in row-major order. */
belay_tensor bl_launch_contiguous(belay_context *context, belay_tensor tensor);
belay_tensor bl_launch_cast(belay_context *context, belay_tensor tensor, belay_dtype dtype);
/* A fresh copy. */
belay_tensor bl_launch_copy(belay_context *context, belay_tensor tensor);
/* At the current place, which is for makers, and where `like` lies, which is for all else. */
belay_tensor bl_launch_fill(belay_context *context, belay_dtype dtype, const belay_shape *shape, double value);
belay_tensor bl_launch_fill_like(belay_context *context, belay_tensor like, belay_dtype dtype, const belay_shape *shape,
                                 double value);
/* A copy at another place, in row-major order, by way of the host, which waits for what computes the tensor. */
belay_tensor bl_launch_to(belay_context *context, belay_tensor tensor, int place);
/* Writes `from` over the elements of `to`, which may be any view; same shape. */
bool bl_launch_move(belay_context *context, belay_tensor to, belay_tensor from);
/* to += from, same shape. */
bool bl_launch_add_to(belay_context *context, belay_tensor to, belay_tensor from);
/* The same elements in another shape; copies what is not contiguous. */
belay_tensor bl_launch_reshape(belay_context *context, belay_tensor tensor, const belay_shape *shape);
/* Adds up over the axes along which `shape` was broadcast to the tensor's. */
belay_tensor bl_launch_sum_to(belay_context *context, belay_tensor tensor, const belay_shape *shape);
/* Sum over one axis as [outer, reduced, inner], divided. */
belay_tensor bl_launch_sum(belay_context *context, belay_tensor x, int64_t outer, int64_t reduced, int64_t inner,
                           double divisor);

#endif
