/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "op/op.h"

/* Weight (1) or bias (2) of what was given: left out, or alive with the shape of the last n axes; *out gets it flat. */
static bool take_factor(belay_context *context, const bl_given given[3], int which, const belay_shape *shape, int n,
                        const belay_shape *flat, belay_tensor *out)
{
    belay_shape wanted = {.rank = n};
    *out = given[which].tensor;
    if (belay_tensor_is_nil(*out))
        return true;
    memcpy(wanted.size, shape->size + shape->rank - n, (size_t)n * sizeof wanted.size[0]);
    if (!bl_op_is_here(context, given[which].role, *out) ||
        !bl_op_has_shape(context, "layer_norm", given, 3, which, &wanted) ||
        !bl_op_has_dtype(context, "layer_norm", given, 3, which, belay_tensor_dtype(given[0].tensor)))
        return false;
    *out = bl_op_reshape(context, *out, flat);
    return !belay_tensor_is_nil(*out);
}

belay_tensor belay_layer_norm(belay_tensor x, int n_axes, belay_tensor weight, belay_tensor bias, double eps)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    const bl_given given[] = {{"x", x}, {"weight", weight}, {"bias", bias}};
    belay_shape shape = belay_tensor_shape(x), rows;
    if (n_axes < 1 || n_axes > shape.rank) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "layer_norm", given, 3,
                        "layer_norm over the last %d axes of a tensor with %d", n_axes, shape.rank);
        return (belay_tensor){0};
    }
    if (!bl_op_fold(context, &shape, shape.rank - n_axes, shape.rank, &rows))
        return (belay_tensor){0};
    rows.rank = 2;
    belay_shape flat = belay_shape1(rows.size[1]);
    bl_call call = {.context = context, .op = BL_OP_layer_norm, .n_in = 3, .shown = {x, weight, bias}};
    if (!take_factor(context, given, 1, &shape, n_axes, &flat, &call.in[1]) ||
        !take_factor(context, given, 2, &shape, n_axes, &flat, &call.in[2]))
        return (belay_tensor){0};
    call.in[0] = bl_op_reshape(context, x, &rows);
    call.params.f[0] = eps > 0 ? eps : 1e-5;
    return bl_op_reshape(context, bl_op_run(&call), &shape);
}
