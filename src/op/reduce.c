/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over axes: the reduced axes are brought together, so that the kernel sees [outer, reduced, inner]. */
#include <string.h>

#include "op/op.h"

/* Which axes are reduced; false after a fault. */
static bool marked_axes(belay_context *context, belay_tensor x, const belay_axes *axes, bool marked[BELAY_MAX_RANK])
{
    int rank = belay_tensor_shape(x).rank;
    for (int i = 0; i < rank; i++)
        marked[i] = axes == NULL || axes->n == 0;
    for (int i = 0; axes != NULL && i < axes->n; i++) {
        int axis = bl_view_axis(context, x, axes->axis[i]);
        if (axis < 0)
            return false;
        marked[axis] = true;
    }
    return true;
}

/* One run of neighbouring reduced axes [first, last): x seen as [outer, reduced, inner] is summed. */
static belay_tensor sum_run(belay_context *context, belay_tensor x, belay_shape *shape, int first, int last,
                            double divisor)
{
    belay_shape folded = {3, {1, 1, 1}};
    for (int i = 0; i < shape->rank; i++)
        folded.size[i < first ? 0 : i < last ? 1 : 2] *= shape->size[i];
    bl_call call = {.context = context, .op = BL_OP_sum, .n_in = 1, .in = {bl_op_reshape(context, x, &folded)}};
    call.params.f[0] = divisor;
    for (int i = first; i < last; i++)
        shape->size[i] = 1;
    return bl_op_reshape(context, bl_op_run(&call), shape);
}

static belay_tensor reduce_sum(belay_tensor x, const belay_axes *axes, bool is_mean)
{
    belay_context *context = bl_tensor_context(x);
    bool marked[BELAY_MAX_RANK] = {false};
    if (context == NULL || bl_slot_use(context, x) == NULL || !marked_axes(context, x, axes, marked))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), result = {0};
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++)
        n *= marked[i] ? shape.size[i] : 1;
    for (int i = 0; i < shape.rank; i++)
        if (!marked[i] || (axes != NULL && axes->keep))
            result.size[result.rank++] = marked[i] ? 1 : shape.size[i];
    double divisor = is_mean ? (double)n : 1;
    belay_tensor y = shape.rank == 0 ? belay_affine(x, 1, 0) : x;
    for (int last = shape.rank; last > 0; last--) {
        if (!marked[last - 1])
            continue;
        int first = last - 1;
        while (first > 0 && marked[first - 1])
            first--;
        y = sum_run(context, y, &shape, first, last, divisor);
        divisor = 1;
        last = first + 1;
    }
    return bl_op_reshape(context, y, &result);
}

belay_tensor belay_sum(belay_tensor x, const belay_axes *axes)
{
    BL_ENTER(bl_tensor_context(x));
    return reduce_sum(x, axes, false);
}

belay_tensor belay_mean(belay_tensor x, const belay_axes *axes)
{
    BL_ENTER(bl_tensor_context(x));
    return reduce_sum(x, axes, true);
}
