/* SPDX-License-Identifier: Apache-2.0 */
/* What the ops' files share: run a call, record it, return its first result. */
#ifndef BL_OP_OP_H
#define BL_OP_OP_H

#include <belay/op.h>

#include "grad/tape.h"
#include "launch/prove.h"

/* Runs and records; nil after a fault. */
belay_tensor bl_op_run(bl_call *call);

/* A view with its rule recorded: `y` is x seen otherwise. */
belay_tensor bl_op_record_view(belay_context *context, belay_tensor x, belay_tensor y, bl_grad_rule rule,
                               const bl_params *params);

/* Reshape and contiguous, recorded. */
belay_tensor bl_op_reshape(belay_context *context, belay_tensor x, const belay_shape *shape);
belay_tensor bl_op_contiguous(belay_context *context, belay_tensor x);

/* Axis i of the result is axis axes[i] (from 0) of x; recorded. */
belay_tensor bl_op_permute(belay_context *context, belay_tensor x, const int64_t *axes);
/* The axis (from 0) moved behind the others, and back from there; recorded. */
belay_tensor bl_op_axis_last(belay_context *context, belay_tensor x, int axis);
belay_tensor bl_op_axis_back(belay_context *context, belay_tensor x, int axis);

/* The axis of x (from 0) that an op goes along; -1 after a fault.  A scalar is one element of an axis 0: *x is that view
 * then, recorded. */
int bl_op_axis(belay_context *context, const char *op, belay_tensor *x, int axis);
/* x as its sums are: integers and bool as i64. */
belay_tensor bl_op_whole(belay_context *context, belay_tensor x);

/* The tensors of an operation lie at one place from here on: where they do not, strays are copied there (recorded) if
 * the context's place is move, else it is false after place.device.  `role` names them, NULL: by number. */
bool bl_op_meet(belay_context *context, const char *op, const char *const *role, belay_tensor *tensor, int n);
/* The same for a call's operands, which the proof refuses when they are not moved. */
bool bl_op_meet_call(bl_call *call);

/* Under autocast, what op is given is cast as its row says from here on; recorded.  False after a fault.  bl_op_run does
 * it by itself: this is for calls that compare dtypes before. */
bool bl_op_autocast(belay_context *context, int op, belay_tensor *tensor, int n);
bool bl_op_autocast_call(bl_call *call);

/* x at another place; recorded. */
belay_tensor bl_op_to(belay_context *context, belay_tensor x, int place);

/* A copy of x whose first corner is `part`; recorded. */
belay_tensor bl_op_put(belay_context *context, belay_tensor x, belay_tensor part);

/* Sizes [before first, first to last - 1, from last on] of a shape; false after size.overflow. */
bool bl_op_fold(belay_context *context, const belay_shape *shape, int first, int last, belay_shape *out);

/* Whether `tensor`, one of what `op` was given, has that shape (or dtype); says what is wrong. */
bool bl_op_has_shape(belay_context *context, const char *op, const bl_given *given, int n, int which,
                     const belay_shape *wanted);
bool bl_op_has_dtype(belay_context *context, const char *op, const bl_given *given, int n, int which,
                     belay_dtype wanted);

/* Whether given[0] is of floats; says what is wrong. */
bool bl_op_takes_floats(belay_context *context, const char *op, const bl_given *given, int n);

/* Whether an option is a number in [low, high]; says what is wrong.  A NaN is in no range. */
bool bl_op_is_number(belay_context *context, const char *op, const bl_given *given, int n, const char *option,
                     double value, double low, double high);
/* The largest number in the arithmetic of a dtype's columns, f32 or f64. */
double bl_op_largest(belay_dtype dtype);
/* Whether an option has a value in the arithmetic of given[0]: an infinity has, a NaN and a finite number that would
 * become one have not. */
bool bl_op_is_real(belay_context *context, const char *op, const bl_given *given, int n, const char *option,
                   double value);

/* Whether a handle lives in this context; says what is wrong unless it is nil. */
bool bl_op_is_here(belay_context *context, const char *name, belay_tensor tensor);

/* First of some handles that has an open context: that; else NULL. */
belay_context *bl_op_context(const belay_tensor *tensors, int n);

#endif
