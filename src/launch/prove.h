/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs: from a call to a launch that cannot leave its tensors. */
#ifndef BL_LAUNCH_PROVE_H
#define BL_LAUNCH_PROVE_H

#include "launch/launch.h"

/* What the proof found: the launch, and its tensors by operand. */
typedef struct bl_proof {
    bl_launch launch;
    int place;                            /* of all its tensors */
    belay_tensor tensor[BL_MAX_OPERANDS]; /* nil where one is left out */
    int n_in;
    unsigned written; /* bit k: operand k is written */
} bl_proof;

/* Fills in the proof and makes the outputs (call->out).  False after a fault, or when an input is nil. */
bool bl_prove_map(bl_call *call, bl_proof *proof);
bool bl_prove_copy(bl_call *call, bl_proof *proof);
bool bl_prove_matmul(bl_call *call, bl_proof *proof);
bool bl_prove_signature(bl_call *call, bl_proof *proof);

/* Writes the record of a proved call, launches it and, where it is known already, tells what it met: the last part of
 * bl_launch_run, for proofs made elsewhere. */
bool bl_launch_submit(bl_call *call, bl_proof *proof);

/* Parts that a proof elsewhere is made of: every input is nil or lives, in this context; two views have bytes in common
 * (NULL has none). */
bool bl_prove_inputs(const bl_call *call, bl_proof *proof);
bool bl_prove_share_bytes(const bl_slot *a, const bl_slot *b);

/* Raises a fault about the call's tensors: all inputs are listed with shape and dtype. */
void bl_prove_fail(const bl_call *call, belay_code code, const char *format, ...) BL_PRINTF(3, 4);
/* Raises place.device: two of the call's operands, by number, lie apart. */
void bl_prove_fail_places(const bl_call *call, int a, int b);
/* The same as bl_prove_fail before there is a call: what the op was given, as its caller knows it.  Nil ones are left out. */
typedef struct bl_given {
    const char *role;
    belay_tensor tensor;
} bl_given;
belay_code bl_prove_refuse(belay_context *context, belay_code code, const char *op, const bl_given *given, int n,
                           const char *format, ...) BL_PRINTF(6, 7);
/* Fills in op and tensors. */
void bl_prove_describe_given(const belay_context *context, const char *op, const bl_given *given, int n,
                             bl_report_fault *fault);
/* Then what was called instead, and the roles of its n inputs there (bl_call). */
void bl_prove_describe_as(const char *as, const char *const *role, int n, bl_report_fault *fault);
/* The name that the caller of a call knows it by. */
const char *bl_prove_op(const bl_call *call);
/* Fills in op, layer, site and tensors. */
void bl_prove_describe(const bl_call *call, bl_report_fault *fault);

/* A tensor as a report shows it. */
typedef struct bl_shown {
    bool is_absent;
    uint8_t dtype;
    int place;
    uint32_t name; /* in the journal's texts */
    belay_shape shape;
} bl_shown;

/* The tensors of a call as its caller knows them: how many. */
int bl_prove_show(const bl_call *call, bl_shown shown[BL_MAX_IN + 1]);
/* Fills in op and tensors; `n_in` of the shown ones are the op's inputs. */
void bl_prove_describe_shown(const belay_context *context, int op, const bl_shown *shown, int n,
                             bl_report_fault *fault);

#endif
