/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation for the module of that name, which knows what stands around it. */
#ifndef BL_OP_BATCH_NORM_H
#define BL_OP_BATCH_NORM_H

#include <belay/op.h>

/* belay_batch_norm, whose running statistics wait for the optimizer that has weight or bias, or, where none has, for the
 * one that has `beside`, a leaf; nil: for the next step of any. */
belay_tensor bl_op_batch_norm(belay_tensor x, belay_tensor running_mean, belay_tensor running_var, belay_tensor weight,
                              belay_tensor bias, const belay_batch_norm_options *options, belay_tensor beside);

/* Whether an optimizer has that leaf. */
bool bl_op_is_stepped(const belay_context *context, belay_tensor tensor);

#endif
