/* SPDX-License-Identifier: Apache-2.0 */
#include "op/op.h"

#include <float.h>
#include <math.h>

#include "base/checked.h"

belay_tensor bl_op_run(bl_call *call)
{
    if (call->context != NULL && BL_UNLIKELY(call->context->mixed.autocast != 0) && !bl_op_autocast_call(call))
        return (belay_tensor){0};
    bool may_move = call->context != NULL && BL_UNLIKELY(call->context->place == BELAY_PLACE_MOVE);
    if ((may_move && !bl_op_meet_call(call)) || !bl_launch_run(call))
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

belay_tensor bl_op_permute(belay_context *context, belay_tensor x, const int64_t *axes)
{
    bl_params params = {0};
    for (int i = 0; i < BELAY_MAX_RANK; i++)
        params.i[i] = axes[i];
    return bl_op_record_view(context, x, bl_view_permute(context, x, axes), bl_grad_permute, &params);
}

belay_tensor bl_op_axis_last(belay_context *context, belay_tensor x, int axis)
{
    int rank = belay_tensor_shape(x).rank;
    int64_t axes[BELAY_MAX_RANK] = {0};
    if (axis >= rank - 1)
        return x;
    for (int i = 0; i < rank; i++)
        axes[i] = i < axis ? i : i < rank - 1 ? i + 1 : axis;
    return bl_op_permute(context, x, axes);
}

belay_tensor bl_op_axis_back(belay_context *context, belay_tensor x, int axis)
{
    int rank = belay_tensor_shape(x).rank;
    int64_t axes[BELAY_MAX_RANK] = {0};
    if (belay_tensor_is_nil(x) || axis >= rank - 1)
        return x;
    for (int i = 0; i < rank; i++)
        axes[i] = i < axis ? i : i == axis ? rank - 1 : i - 1;
    return bl_op_permute(context, x, axes);
}

belay_tensor bl_op_put(belay_context *context, belay_tensor x, belay_tensor part)
{
    if (belay_tensor_is_nil(x) || belay_tensor_is_nil(part))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(part);
    belay_tensor y = bl_launch_copy(context, x);
    if (belay_tensor_is_nil(y) || !bl_launch_move(context, bl_view_corner(context, y, &shape), part))
        return (belay_tensor){0};
    const belay_tensor in[] = {x, part};
    if (bl_grad_is_wanted(context, in, 2))
        bl_grad_record(context, bl_grad_put, in, 2, &y, 1);
    return y;
}

int bl_op_axis(belay_context *context, const char *op, belay_tensor *x, int axis)
{
    const bl_slot *slot = axis == 0 || axis == -1 ? bl_slot_get(context, *x) : NULL;
    const belay_shape one = belay_shape1(1);
    if (BL_LIKELY(slot == NULL || slot->rank > 0))
        return bl_view_axis(context, op, *x, axis);
    *x = bl_op_reshape(context, *x, &one);
    return belay_tensor_is_nil(*x) ? -1 : 0;
}

belay_tensor bl_op_whole(belay_context *context, belay_tensor x)
{
    belay_dtype dtype = belay_tensor_dtype(x);
    return belay_dtype_is_float(dtype) || dtype == BELAY_I64 ? x : bl_launch_cast(context, x, BELAY_I64);
}

bool bl_op_fold(belay_context *context, const belay_shape *shape, int first, int last, belay_shape *out)
{
    *out = (belay_shape){.rank = 3};
    bool fits = bl_checked_product(shape->size, first, &out->size[0]) &&
                bl_checked_product(shape->size + first, last - first, &out->size[1]) &&
                bl_checked_product(shape->size + last, shape->rank - last, &out->size[2]);
    if (fits)
        return true;
    bl_text words = {0};
    bl_report_shape(shape, &words);
    bl_context_raise(context, BELAY_SIZE_OVERFLOW, "a product of sizes in %s passes 2^63 - 1", bl_text_get(&words));
    bl_text_fini(&words);
    return false;
}

bool bl_op_has_shape(belay_context *context, const char *op, const bl_given *given, int n, int which,
                     const belay_shape *wanted)
{
    belay_shape has = belay_tensor_shape(given[which].tensor);
    if (bl_shape_equal(&has, wanted))
        return true;
    bl_text words[2] = {{0}, {0}};
    bl_report_shape(&has, &words[0]);
    bl_report_shape(wanted, &words[1]);
    bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, op, given, n, "%s is %s where %s is needed", given[which].role,
                    bl_text_get(&words[0]), bl_text_get(&words[1]));
    bl_text_fini(&words[0]);
    bl_text_fini(&words[1]);
    return false;
}

bool bl_op_has_dtype(belay_context *context, const char *op, const bl_given *given, int n, int which,
                     belay_dtype wanted)
{
    belay_dtype has = belay_tensor_dtype(given[which].tensor);
    if (has != wanted)
        bl_prove_refuse(context, BELAY_TYPE_DTYPE, op, given, n, "%s is %s where %s is needed", given[which].role,
                        belay_dtype_name(has), belay_dtype_name(wanted));
    return has == wanted;
}

bool bl_op_takes_floats(belay_context *context, const char *op, const bl_given *given, int n)
{
    belay_dtype dtype = belay_tensor_dtype(given[0].tensor);
    if (!belay_dtype_is_float(dtype))
        bl_prove_refuse(context, BELAY_TYPE_DTYPE, op, given, n, "%s takes floats, not %s", op,
                        belay_dtype_name(dtype));
    return belay_dtype_is_float(dtype);
}

bool bl_op_is_number(belay_context *context, const char *op, const bl_given *given, int n, const char *option,
                     double value, double low, double high)
{
    if (BL_LIKELY(value >= low && value <= high))
        return true;
    bl_prove_refuse(context, BELAY_CONF_VALUE, op, given, n, "%s of %s is %g, outside [%g, %g]", option, op,
                    bl_text_real(value), low, high);
    return false;
}

double bl_op_largest(belay_dtype dtype) { return dtype == BELAY_F64 ? DBL_MAX : (double)FLT_MAX; }

bool bl_op_is_real(belay_context *context, const char *op, const bl_given *given, int n, const char *option,
                   double value)
{
    if (BL_LIKELY(fabs(value) <= (double)FLT_MAX) || isinf(value))
        return true;
    const double most = bl_op_largest(belay_tensor_dtype(given[0].tensor));
    return bl_op_is_number(context, op, given, n, option, value, -most, most);
}

bool bl_op_is_here(belay_context *context, const char *name, belay_tensor tensor)
{
    if (belay_tensor_is_nil(tensor))
        return false;
    if (tensor.context != context->number) {
        bl_context_raise_foreign(context, name, tensor);
        return false;
    }
    return bl_slot_use(context, tensor) != NULL;
}

belay_context *bl_op_context(const belay_tensor *tensors, int n)
{
    for (int i = 0; i < n && tensors != NULL; i++) {
        belay_context *context = belay_tensor_is_nil(tensors[i]) ? NULL : bl_tensor_context(tensors[i]);
        if (context != NULL)
            return context;
    }
    return NULL;
}
