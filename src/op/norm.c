/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "op/op.h"

/* A norm over the last axes: of x, by weight and for some a bias. */
typedef struct norm {
    int op;
    int n_given;
    bl_given given[3]; /* as they are used: cast under autocast */
    int n_axes;
    belay_shape shape, wanted; /* of x, and of weight and bias */
} norm;

/* Weight or bias: left out, or alive with the shape of the last axes; *out gets it flat. */
static bool take_factor(belay_context *context, const norm *a, int which, const belay_shape *flat, belay_tensor *out)
{
    const char *name = bl_kernel_rows[a->op].name;
    *out = a->given[which].tensor;
    if (belay_tensor_is_nil(*out))
        return true;
    if (!bl_op_is_here(context, a->given[which].role, *out) ||
        !bl_op_has_shape(context, name, a->given, a->n_given, which, &a->wanted) ||
        !bl_op_has_dtype(context, name, a->given, a->n_given, which, belay_tensor_dtype(a->given[0].tensor)))
        return false;
    *out = bl_op_reshape(context, *out, flat);
    return !belay_tensor_is_nil(*out);
}

static bool cast_given(belay_context *context, norm *a)
{
    belay_tensor at[3] = {a->given[0].tensor, a->given[1].tensor, a->given[2].tensor};
    bool done = bl_op_autocast(context, a->op, at, a->n_given);
    for (int k = 0; k < a->n_given; k++)
        a->given[k].tensor = at[k];
    return done;
}

/* `shown` are the tensors as the caller knows them. */
static belay_tensor normalised(belay_context *context, norm *a, const belay_tensor *shown, double eps)
{
    const char *name = bl_kernel_rows[a->op].name;
    belay_shape rows;
    if (!cast_given(context, a))
        return (belay_tensor){0};
    a->shape = belay_tensor_shape(a->given[0].tensor);
    if (!bl_op_is_number(context, name, a->given, a->n_given, "eps", eps, 0,
                         bl_op_largest(belay_tensor_dtype(a->given[0].tensor))))
        return (belay_tensor){0};
    if (a->n_axes < 1 || a->n_axes > a->shape.rank) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, name, a->given, a->n_given,
                        "%s over the last %d axes of a tensor with %d", name, a->n_axes, a->shape.rank);
        return (belay_tensor){0};
    }
    int first = a->shape.rank - a->n_axes;
    a->wanted.rank = a->n_axes;
    memcpy(a->wanted.size, a->shape.size + first, (size_t)a->n_axes * sizeof a->wanted.size[0]);
    if (!bl_op_fold(context, &a->shape, first, a->shape.rank, &rows))
        return (belay_tensor){0};
    rows.rank = 2;
    if (rows.size[1] == 0)
        rows.size[0] = 0; /* rows of nothing: none has statistics to keep */
    belay_shape flat = belay_shape1(rows.size[1]);
    bl_call call = {.context = context, .op = a->op, .n_in = a->n_given};
    for (int k = 0; k < a->n_given; k++) {
        call.shown[k] = shown[k];
        if (k > 0 && !take_factor(context, a, k, &flat, &call.in[k]))
            return (belay_tensor){0};
    }
    call.in[0] = bl_op_reshape(context, a->given[0].tensor, &rows);
    call.params.f[0] = eps;
    return bl_op_reshape(context, bl_op_run(&call), &a->shape);
}

belay_tensor belay_layer_norm(belay_tensor x, int n_axes, belay_tensor weight, belay_tensor bias, double eps)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    const belay_tensor shown[] = {x, weight, bias};
    norm a = {BL_OP_layer_norm, 3, {{"x", x}, {"weight", weight}, {"bias", bias}}, n_axes, {0}, {0}};
    return normalised(context, &a, shown, eps != 0 ? eps : 1e-5);
}

belay_tensor belay_rms_norm(belay_tensor x, int n_axes, belay_tensor weight, double eps)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    const belay_tensor shown[] = {x, weight};
    norm a = {BL_OP_rms_norm, 2, {{"x", x}, {"weight", weight}}, n_axes, {0}, {0}};
    return normalised(context, &a, shown, eps != 0 ? eps : belay_tensor_dtype(x) == BELAY_F64 ? 0x1p-52 : 0x1p-23);
}
