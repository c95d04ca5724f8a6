/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that move or rename elements. */
#include "op/op.h"

belay_tensor belay_view(belay_tensor x, belay_shape shape)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < shape.rank && i < BELAY_MAX_RANK; i++) {
        if (shape.size[i] == -1 && open < 0)
            open = i;
        else if (__builtin_mul_overflow(known, shape.size[i], &known))
            known = 0;
    }
    if (open >= 0 && known > 0)
        shape.size[open] = belay_tensor_n_elements(x) / known;
    return bl_op_reshape(context, x, &shape);
}

belay_tensor belay_transpose(belay_tensor x, int a, int b)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL)
        return (belay_tensor){0};
    bl_params params = {.i = {bl_view_axis(context, x, a), 0}};
    if (params.i[0] < 0)
        return (belay_tensor){0};
    params.i[1] = bl_view_axis(context, x, b);
    return bl_op_record_view(context, x, bl_view_transpose(context, x, a, b), bl_grad_transpose, &params);
}

belay_tensor belay_contiguous(belay_tensor x)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    return context != NULL && bl_slot_use(context, x) != NULL ? bl_op_contiguous(context, x) : (belay_tensor){0};
}
