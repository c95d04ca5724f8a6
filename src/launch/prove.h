/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs: from a call to a launch that cannot leave its tensors. */
#ifndef BL_LAUNCH_PROVE_H
#define BL_LAUNCH_PROVE_H

#include "launch/launch.h"

/* What the proof found: the launch, and its tensors by operand. */
typedef struct bl_proof {
    bl_launch launch;
    belay_tensor tensor[BL_MAX_OPERANDS]; /* nil where one is left out */
    int n_in;
    unsigned written; /* bit k: operand k is written */
} bl_proof;

/* Fills in the proof and makes the outputs (call->out).  False after a fault, or when an input is nil. */
bool bl_prove_map(bl_call *call, bl_proof *proof);
bool bl_prove_copy(bl_call *call, bl_proof *proof);
bool bl_prove_matmul(bl_call *call, bl_proof *proof);
bool bl_prove_signature(bl_call *call, bl_proof *proof);

/* Raises a fault about the call's tensors: all inputs are listed with shape and dtype. */
void bl_prove_fail(const bl_call *call, belay_code code, const char *format, ...) BL_PRINTF(3, 4);
/* The same before there is a call: what the op was given, as its caller knows it.  Nil ones are left out. */
typedef struct bl_given {
    const char *role;
    belay_tensor tensor;
} bl_given;
belay_code bl_prove_refuse(belay_context *context, belay_code code, const char *op, const bl_given *given, int n,
                           const char *format, ...) BL_PRINTF(6, 7);
/* Fills in op, layer, site and tensors. */
void bl_prove_describe(const bl_call *call, bl_report_fault *fault);

#endif
