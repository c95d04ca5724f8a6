/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over axes.  Sums see runs of neighbouring axes as [outer, reduced, inner]; maxima see rows. */
#include <inttypes.h>
#include <string.h>

#include "op/op.h"

/* Which axes are reduced; false after a fault. */
static bool marked_axes(belay_context *context, const char *op, belay_tensor x, const belay_axes *axes,
                        bool marked[BELAY_MAX_RANK])
{
    int rank = belay_tensor_shape(x).rank;
    if (axes != NULL && (axes->n < 0 || axes->n > BELAY_MAX_RANK)) {
        bl_prove_refuse(context, BELAY_CONF_VALUE, op, &(bl_given){"x", x}, 1,
                        "%d axes to reduce: from 0 to %d are taken", axes->n, BELAY_MAX_RANK);
        return false;
    }
    for (int i = 0; i < rank; i++)
        marked[i] = axes == NULL || axes->n == 0;
    for (int i = 0; axes != NULL && i < axes->n; i++) {
        bool is_scalar = rank == 0 && (axes->axis[i] == 0 || axes->axis[i] == -1);
        int axis = is_scalar ? 0 : bl_view_axis(context, op, x, axes->axis[i]);
        if (axis < 0)
            return false;
        if (marked[axis]) {
            bl_prove_refuse(context, BELAY_SHAPE_AXIS, op, &(bl_given){"x", x}, 1, "%s names axis %d twice", op, axis);
            return false;
        }
        marked[axis] = true;
    }
    return true;
}

/* The shape that is left when marked axes go, or become 1. */
static belay_shape left_over(const belay_shape *shape, const bool *marked, bool keep)
{
    belay_shape result = {0};
    for (int i = 0; i < shape->rank; i++)
        if (!marked[i] || keep)
            result.size[result.rank++] = marked[i] ? 1 : shape->size[i];
    return result;
}

/* One run of neighbouring reduced axes [first, last): x, what is left of the whole, seen as [outer, reduced, inner] is
 * summed. */
static belay_tensor sum_run(belay_context *context, const char *name, belay_tensor whole, belay_tensor x,
                            belay_shape *shape, int first, int last, double divisor)
{
    belay_shape folded;
    if (belay_tensor_is_nil(x) || !bl_op_fold(context, shape, first, last, &folded))
        return (belay_tensor){0};
    bl_call call = {.context = context,
                    .op = BL_OP_sum,
                    .as = name,
                    .n_in = 1,
                    .in = {bl_op_reshape(context, x, &folded)},
                    .shown = {whole}};
    call.params.f[0] = divisor;
    for (int i = first; i < last; i++)
        shape->size[i] = 1;
    return bl_op_reshape(context, bl_op_run(&call), shape);
}

static belay_tensor reduce_sum(belay_tensor x, const belay_axes *axes, bool is_mean)
{
    belay_context *context = bl_tensor_context(x);
    bool marked[BELAY_MAX_RANK] = {false};
    const char *op = is_mean ? "mean" : "sum";
    if (context == NULL || bl_slot_use(context, x) == NULL || !marked_axes(context, op, x, axes, marked) ||
        (is_mean && !bl_op_takes_floats(context, op, &(bl_given){"x", x}, 1)))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), result = left_over(&shape, marked, axes != NULL && axes->keep);
    double divisor = 1;
    for (int i = 0; is_mean && i < shape.rank; i++)
        divisor *= marked[i] ? (double)shape.size[i] : 1;
    belay_tensor y = bl_op_whole(context, x);
    if (shape.rank == 0) {
        shape = belay_shape1(1);
        marked[0] = true;
    }
    for (int last = shape.rank; last > 0; last--) {
        if (!marked[last - 1])
            continue;
        int first = last - 1;
        while (first > 0 && marked[first - 1])
            first--;
        y = sum_run(context, op, x, y, &shape, first, last, divisor);
        if (divisor != 0) /* the mean of nothing: a later run must not begin with sums of nothing, which are 0 */
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

/* ---- maxima ---------------------------------------------------------------------------------------------------------- */

/* x as rows [kept, reduced], the marked axes behind the others; nil after a fault. */
static belay_tensor as_rows(belay_context *context, belay_tensor x, const bool *marked)
{
    belay_shape shape = belay_tensor_shape(x), rows;
    int64_t axes[BELAY_MAX_RANK] = {0};
    int n = 0, kept;
    for (int i = 0; i < shape.rank; i++)
        if (!marked[i])
            axes[n++] = i;
    kept = n;
    for (int i = 0; i < shape.rank; i++)
        if (marked[i])
            axes[n++] = i;
    belay_tensor y = bl_op_permute(context, x, axes);
    shape = belay_tensor_shape(y);
    if (belay_tensor_is_nil(y) || !bl_op_fold(context, &shape, kept, shape.rank, &rows))
        return (belay_tensor){0};
    rows.rank = 2;
    return bl_op_reshape(context, y, &rows);
}

/* The same for a maximum, which is of at least one element. */
static belay_tensor as_rows_of_some(belay_context *context, const char *name, belay_tensor x, const bool *marked)
{
    belay_tensor y = as_rows(context, x, marked);
    if (belay_tensor_is_nil(y) || belay_tensor_shape(y).size[1] > 0)
        return y;
    bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, name, &(bl_given){"x", x}, 1,
                    "%s over no elements: there is no largest one", name);
    return (belay_tensor){0};
}

static belay_tensor max_along(belay_context *context, const char *op, belay_tensor x, int axis, bool keep,
                              belay_tensor *indices)
{
    bool marked[BELAY_MAX_RANK] = {false};
    if (indices != NULL)
        *indices = (belay_tensor){0};
    belay_tensor seen = x;
    axis = context != NULL ? bl_op_axis(context, op, &seen, axis) : -1;
    if (axis < 0)
        return (belay_tensor){0};
    marked[axis] = true;
    belay_shape shape = belay_tensor_shape(x), result = left_over(&shape, marked, keep);
    bl_call call = {.context = context,
                    .op = BL_OP_max,
                    .n_in = 1,
                    .in = {as_rows_of_some(context, op, seen, marked)},
                    .shown = {x}};
    belay_tensor y = bl_op_reshape(context, bl_op_run(&call), &result);
    if (indices != NULL && !belay_tensor_is_nil(y))
        *indices = bl_launch_reshape(context, call.out[1], &result);
    return y;
}

belay_tensor belay_max(belay_tensor x, int axis, bool keep, belay_tensor *indices)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    return max_along(context, "max", x, axis, keep, indices);
}

belay_tensor belay_argmax(belay_tensor x, int axis, bool keep)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    belay_tensor indices;
    max_along(context, "argmax", x, axis, keep, &indices);
    return indices;
}

belay_tensor belay_amax(belay_tensor x, const belay_axes *axes)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    bool marked[BELAY_MAX_RANK] = {false};
    if (context == NULL || bl_slot_use(context, x) == NULL || !marked_axes(context, "amax", x, axes, marked))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), result = left_over(&shape, marked, axes != NULL && axes->keep);
    bl_call call = {.context = context,
                    .op = BL_OP_amax,
                    .n_in = 1,
                    .in = {as_rows_of_some(context, "amax", x, marked)},
                    .shown = {x}};
    return bl_op_reshape(context, bl_op_run(&call), &result);
}

/* ---- variance -------------------------------------------------------------------------------------------------------- */

belay_tensor belay_var(belay_tensor x, const belay_axes *axes, int64_t correction)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    bool marked[BELAY_MAX_RANK] = {false};
    if (context == NULL || bl_slot_use(context, x) == NULL || !marked_axes(context, "var", x, axes, marked))
        return (belay_tensor){0};
    if (correction < 0) {
        bl_prove_refuse(context, BELAY_CONF_VALUE, "var", &(bl_given){"x", x}, 1, "correction is %" PRId64 ", below 0",
                        correction);
        return (belay_tensor){0};
    }
    belay_shape shape = belay_tensor_shape(x), result = left_over(&shape, marked, axes != NULL && axes->keep);
    belay_tensor rows = as_rows(context, x, marked);
    bl_call call = {.context = context, .op = BL_OP_var, .n_in = 1, .in = {rows}, .shown = {x}};
    int64_t n = belay_tensor_is_nil(rows) ? 0 : belay_tensor_shape(rows).size[1];
    call.params.f[0] = n > correction ? (double)(n - correction) : 0;
    return bl_op_reshape(context, bl_op_run(&call), &result);
}
