/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "op/op.h"

/* Weight or bias: left out, or alive with the shape of the last n axes; *out gets it flat. */
static bool take_factor(belay_context *context, const char *name, belay_tensor factor, const belay_shape *shape, int n,
                        const belay_shape *flat, belay_tensor *out)
{
    *out = factor;
    if (belay_tensor_is_nil(factor))
        return true;
    if (!bl_op_is_here(context, name, factor))
        return false;
    belay_shape has = belay_tensor_shape(factor), wanted = {.rank = n};
    memcpy(wanted.size, shape->size + shape->rank - n, (size_t)n * sizeof wanted.size[0]);
    if (has.rank == n && memcmp(has.size, wanted.size, (size_t)n * sizeof wanted.size[0]) == 0) {
        *out = bl_op_reshape(context, factor, flat);
        return !belay_tensor_is_nil(*out);
    }
    bl_text words[2] = {{0}, {0}};
    bl_report_shape(&has, &words[0]);
    bl_report_shape(&wanted, &words[1]);
    bl_context_raise(context, BELAY_SHAPE_CONTRACT, "%s is %s where %s is needed", name, bl_text_get(&words[0]),
                     bl_text_get(&words[1]));
    bl_text_fini(&words[0]);
    bl_text_fini(&words[1]);
    return false;
}

belay_tensor belay_layer_norm(belay_tensor x, int n_axes, belay_tensor weight, belay_tensor bias, double eps)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), rows;
    if (n_axes < 1 || n_axes > shape.rank) {
        bl_context_raise(context, BELAY_SHAPE_RANK, "layer_norm over the last %d axes of a tensor with %d", n_axes,
                         shape.rank);
        return (belay_tensor){0};
    }
    if (!bl_op_fold(context, &shape, shape.rank - n_axes, shape.rank, &rows))
        return (belay_tensor){0};
    rows.rank = 2;
    belay_shape flat = belay_shape1(rows.size[1]);
    bl_call call = {.context = context, .op = BL_OP_layer_norm, .n_in = 3, .shown = {x, weight, bias}};
    if (!take_factor(context, "weight", weight, &shape, n_axes, &flat, &call.in[1]) ||
        !take_factor(context, "bias", bias, &shape, n_axes, &flat, &call.in[2]))
        return (belay_tensor){0};
    call.in[0] = bl_op_reshape(context, x, &rows);
    call.params.f[0] = eps > 0 ? eps : 1e-5;
    return bl_op_reshape(context, bl_op_run(&call), &shape);
}
