/* SPDX-License-Identifier: Apache-2.0 */
#include "op/op.h"

belay_tensor belay_layer_norm(belay_tensor x, int n_axes, belay_tensor weight, belay_tensor bias, double eps)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), rows = {2, {1, 1}};
    if (n_axes < 1 || n_axes > shape.rank) {
        bl_context_raise(context, BELAY_SHAPE_RANK, "layer_norm over the last %d axes of a tensor with %d", n_axes,
                         shape.rank);
        return (belay_tensor){0};
    }
    for (int i = 0; i < shape.rank; i++)
        rows.size[i >= shape.rank - n_axes] *= shape.size[i];
    belay_shape flat = belay_shape1(rows.size[1]);
    bl_call call = {.context = context,
                    .op = BL_OP_layer_norm,
                    .n_in = 3,
                    .in = {bl_op_reshape(context, x, &rows),
                           belay_tensor_is_nil(weight) ? weight : bl_op_reshape(context, weight, &flat),
                           belay_tensor_is_nil(bias) ? bias : bl_op_reshape(context, bias, &flat)},
                    .shown = {x, weight, bias}};
    call.params.f[0] = eps > 0 ? eps : 1e-5;
    return bl_op_reshape(context, bl_op_run(&call), &shape);
}
