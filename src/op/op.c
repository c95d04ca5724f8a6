/* SPDX-License-Identifier: Apache-2.0 */
#include "op/op.h"

belay_tensor bl_op_run(bl_call *call)
{
    if (!bl_launch_run(call))
        return (belay_tensor){0};
    bl_grad_record_call(call);
    return call->out[0];
}

belay_tensor bl_op_record_view(belay_context *context, belay_tensor x, belay_tensor y, bl_grad_rule rule,
                               const bl_params *params)
{
    if (belay_tensor_is_nil(y) || !bl_grad_is_wanted(context, &x, 1))
        return y;
    bl_node *node = bl_grad_record(context, rule, &x, 1, &y, 1);
    if (node != NULL && params != NULL)
        node->params = *params;
    return y;
}

belay_tensor bl_op_reshape(belay_context *context, belay_tensor x, const belay_shape *shape)
{
    return bl_op_record_view(context, x, bl_launch_reshape(context, x, shape), bl_grad_reshape, NULL);
}

belay_tensor bl_op_contiguous(belay_context *context, belay_tensor x)
{
    belay_tensor y = bl_launch_contiguous(context, x);
    if (y.slot == x.slot && y.generation == x.generation)
        return x;
    return bl_op_record_view(context, x, y, bl_grad_reshape, NULL);
}

belay_context *bl_op_context(const belay_tensor *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (!belay_tensor_is_nil(tensors[i]))
            return bl_tensor_context(tensors[i]);
    return NULL;
}
