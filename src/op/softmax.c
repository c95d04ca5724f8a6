/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax along an axis. */
#include "op/op.h"

/* A row op along any axis: the axis goes last, the rest becomes rows, and back. */
static belay_tensor along_axis(int op, belay_tensor x, int axis)
{
    belay_context *context = bl_tensor_context(x);
    belay_tensor seen = x;
    axis = context != NULL ? bl_op_axis(context, bl_kernel_rows[op].name, &seen, axis) : -1;
    belay_tensor last = axis >= 0 ? bl_op_axis_last(context, seen, axis) : (belay_tensor){0};
    if (belay_tensor_is_nil(last))
        return last;
    belay_shape shape = belay_tensor_shape(last), rows;
    if (!bl_op_fold(context, &shape, shape.rank - 1, shape.rank, &rows))
        return (belay_tensor){0};
    rows = belay_shape2(rows.size[0], rows.size[1]);
    bl_call call = {.context = context, .op = op, .n_in = 1, .in = {bl_op_reshape(context, last, &rows)}, .shown = {x}};
    if (belay_tensor_shape(x).rank == 0)
        shape.rank = 0;
    return bl_op_axis_back(context, bl_op_reshape(context, bl_op_run(&call), &shape), axis);
}

belay_tensor belay_softmax(belay_tensor x, int axis)
{
    BL_ENTER(bl_tensor_context(x));
    return along_axis(BL_OP_softmax, x, axis);
}

belay_tensor belay_log_softmax(belay_tensor x, int axis)
{
    BL_ENTER(bl_tensor_context(x));
    return along_axis(BL_OP_log_softmax, x, axis);
}
