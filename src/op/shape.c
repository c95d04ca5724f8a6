/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that move or rename elements. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "launch/stray.h"
#include "op/op.h"

belay_tensor belay_view(belay_tensor x, belay_shape shape)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    const bl_given given = {"x", x};
    if (shape.rank < 0 || shape.rank > BELAY_MAX_RANK) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "view", &given, 1, "a view of %d axes: the most are %d", shape.rank,
                        BELAY_MAX_RANK);
        return (belay_tensor){0};
    }
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < shape.rank; i++)
        if (shape.size[i] == -1 && open < 0)
            open = i;
        else if (!bl_checked_mul(known, shape.size[i], &known))
            known = 0;
    if (open >= 0 && known > 0)
        shape.size[open] = belay_tensor_n_elements(x) / known;
    if (!bl_checked_product(shape.size, shape.rank, &known) || known != belay_tensor_n_elements(x)) {
        bl_text words[2] = {{0}, {0}};
        belay_shape from = belay_tensor_shape(x);
        bl_report_shape(&from, &words[0]);
        bl_report_shape(&shape, &words[1]);
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "view", &given, 1,
                        "shape %s cannot be viewed as %s: the numbers of elements differ", bl_text_get(&words[0]),
                        bl_text_get(&words[1]));
        bl_text_fini(&words[0]);
        bl_text_fini(&words[1]);
        return (belay_tensor){0};
    }
    return bl_op_reshape(context, x, &shape);
}

belay_tensor belay_transpose(belay_tensor x, int a, int b)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL)
        return (belay_tensor){0};
    bl_params params = {.i = {bl_view_axis(context, "transpose", x, a), 0}};
    if (params.i[0] < 0)
        return (belay_tensor){0};
    params.i[1] = bl_view_axis(context, "transpose", x, b);
    if (params.i[1] < 0)
        return (belay_tensor){0};
    return bl_op_record_view(context, x, bl_view_transpose(context, x, a, b), bl_grad_transpose, &params);
}

belay_tensor belay_contiguous(belay_tensor x)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    return context != NULL && bl_slot_use(context, x) != NULL ? bl_op_contiguous(context, x) : (belay_tensor){0};
}

belay_tensor belay_permute(belay_tensor x, const int *axes, int n)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    const bl_slot *slot = context != NULL ? bl_slot_use(context, x) : NULL;
    if (slot == NULL)
        return (belay_tensor){0};
    const bl_given given = {"x", x};
    n = axes != NULL ? n : 0;
    if (n != slot->rank) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "permute", &given, 1, "permute names %d axes of a tensor with %d", n,
                        slot->rank);
        return (belay_tensor){0};
    }
    bl_params params = {0};
    unsigned seen = 0;
    for (int i = 0; i < n; i++) {
        int axis = bl_view_axis(context, "permute", x, axes[i]);
        if (axis < 0)
            return (belay_tensor){0};
        if (seen >> axis & 1) {
            bl_prove_refuse(context, BELAY_SHAPE_AXIS, "permute", &given, 1, "permute names axis %d twice", axis);
            return (belay_tensor){0};
        }
        seen |= 1u << axis;
        params.i[i] = axis;
    }
    return bl_op_record_view(context, x, bl_view_permute(context, x, params.i), bl_grad_permute, &params);
}

belay_tensor belay_expand(belay_tensor x, belay_shape shape)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL)
        return (belay_tensor){0};
    belay_shape has = belay_tensor_shape(x);
    for (int i = 0; i < has.rank && shape.rank >= has.rank && shape.rank <= BELAY_MAX_RANK; i++) {
        int64_t *size = &shape.size[i + shape.rank - has.rank];
        *size = *size == -1 ? has.size[i] : *size;
    }
    return bl_op_record_view(context, x, bl_view_expand(context, x, &shape), bl_grad_expand, NULL);
}

belay_tensor belay_slice(belay_tensor x, int axis, int64_t start, int64_t stop, int64_t step)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    axis = context != NULL ? bl_view_axis(context, "slice", x, axis) : -1;
    if (axis < 0)
        return (belay_tensor){0};
    int64_t n = belay_tensor_shape(x).size[axis];
    start += start < 0 ? n : 0;
    stop = stop == BELAY_END ? n : stop < 0 ? stop + n : stop;
    bl_params params = {.i = {axis, start, stop, step}};
    return bl_op_record_view(context, x, bl_view_slice(context, x, axis, start, stop, step), bl_grad_slice, &params);
}

belay_tensor belay_select(belay_tensor x, int axis, int64_t index)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    axis = context != NULL ? bl_view_axis(context, "select", x, axis) : -1;
    if (axis < 0)
        return (belay_tensor){0};
    int64_t n = belay_tensor_shape(x).size[axis];
    if (index < -n || index >= n) {
        bl_prove_refuse(context, BELAY_SHAPE_AXIS, "select", &(bl_given){"x", x}, 1,
                        "index %" PRId64 " of axis %d, which has size %" PRId64, index, axis, n);
        return (belay_tensor){0};
    }
    bl_params params = {.i = {axis, index < 0 ? index + n : index}};
    return bl_op_record_view(context, x, bl_view_select(context, x, axis, params.i[1]), bl_grad_select, &params);
}

void belay_split(belay_tensor x, int axis, const int64_t *sizes, int n, belay_tensor *out)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    for (int k = 0; k < n && out != NULL; k++)
        out[k] = (belay_tensor){0};
    n = sizes != NULL && out != NULL ? n : 0;
    axis = context != NULL ? bl_view_axis(context, "split", x, axis) : -1;
    if (axis < 0)
        return;
    int64_t total = 0, start = 0, has = belay_tensor_shape(x).size[axis];
    bool fits = true;
    for (int k = 0; k < n && fits; k++)
        fits = sizes[k] >= 0 && bl_checked_add(total, sizes[k], &total);
    if (!fits || total != has) {
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "split", &(bl_given){"x", x}, 1,
                        "split into %d parts of %" PRId64 " in all along axis %d, which has size %" PRId64, n, total,
                        axis, has);
        return;
    }
    for (int k = 0; k < n; start += sizes[k++])
        out[k] = belay_slice(x, axis, start, start + sizes[k], 1);
}

/* Shapes and dtypes of what cat joins; false after a fault or for a nil among them. */
static bool joined_shape(belay_context *context, const belay_tensor *in, int n, int axis, belay_shape *out)
{
    const bl_slot *first = bl_slot_get(context, in[0]);
    *out = bl_slot_shape(first);
    out->size[axis] = 0;
    for (int k = 0; k < n; k++) {
        if (belay_tensor_is_nil(in[k]))
            return false;
        if (in[k].context != context->number) {
            char who[32];
            snprintf(who, sizeof who, "operand %d of cat", k);
            bl_context_raise_foreign(context, who, in[k]);
            return false;
        }
        const bl_slot *slot = bl_slot_use(context, in[k]);
        if (slot == NULL)
            return false;
        bool fits = slot->rank == first->rank;
        for (int i = 0; i < first->rank && fits; i++)
            fits = i == axis || slot->size[i] == first->size[i];
        if (!fits || slot->dtype != first->dtype) {
            bl_text words[2] = {{0}, {0}};
            belay_shape shapes[2] = {bl_slot_shape(first), bl_slot_shape(slot)};
            bl_report_shape(&shapes[0], &words[0]);
            bl_report_shape(&shapes[1], &words[1]);
            char role[24];
            snprintf(role, sizeof role, "operand %d", k);
            const bl_given given[] = {{"operand 0", in[0]}, {role, in[k]}};
            bl_prove_refuse(context, fits ? BELAY_TYPE_DTYPE : BELAY_SHAPE_CONTRACT, "cat", given, 2,
                            "cat along axis %d of operand 0 %s %s and operand %d %s %s", axis, bl_text_get(&words[0]),
                            belay_dtype_name(first->dtype), k, bl_text_get(&words[1]), belay_dtype_name(slot->dtype));
            bl_text_fini(&words[0]);
            bl_text_fini(&words[1]);
            return false;
        }
        if (!bl_checked_add(out->size[axis], slot->size[axis], &out->size[axis])) {
            bl_context_raise(context, BELAY_SIZE_OVERFLOW, "cat along axis %d has a size above 2^63 - 1", axis);
            return false;
        }
    }
    return true;
}

/* Tensors of one place, side by side. */
static belay_tensor join(belay_context *context, const belay_tensor *in, int n, int axis, const belay_shape *shape)
{
    int at = bl_slot_get(context, in[0])->storage->place;
    belay_tensor y = bl_tensor_new_on(context, at, belay_tensor_dtype(in[0]), shape, NULL);
    int64_t start = 0;
    for (int k = 0; k < n && !belay_tensor_is_nil(y); k++) {
        int64_t size = belay_tensor_shape(in[k]).size[axis];
        belay_tensor place = bl_view_slice(context, y, axis, start, start + size, 1);
        if (!bl_launch_move(context, place, in[k]))
            return (belay_tensor){0};
        bl_tensor_drop(context, place);
        start += size;
    }
    if (belay_tensor_is_nil(y) || !bl_grad_is_wanted(context, in, n))
        return y;
    bl_node *node = bl_grad_record(context, bl_grad_cat, in, n, &y, 1);
    if (node != NULL)
        node->params.i[0] = axis;
    return y;
}

static belay_tensor cat(belay_context *context, const belay_tensor *in, int n, int axis)
{
    axis = bl_view_axis(context, "cat", in[0], axis);
    belay_shape shape;
    int first, other;
    if (axis < 0 || !joined_shape(context, in, n, axis, &shape))
        return (belay_tensor){0};
    if (bl_stray_is_none(context, in, n, &first, &other))
        return join(context, in, n, axis, &shape);
    belay_tensor *near = bl_alloc(n, sizeof *near), y = {0};
    if (near == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to bring %d tensors together for cat", n);
        return y;
    }
    memcpy(near, in, (size_t)n * sizeof *near);
    if (bl_op_meet(context, "cat", NULL, near, n))
        y = join(context, near, n, axis, &shape);
    bl_free(near);
    return y;
}

/* Under autocast they are brought to one dtype. */
static belay_tensor cat_cast(belay_context *context, const belay_tensor *in, int n, int axis)
{
    belay_tensor *cast = bl_alloc(n, sizeof *cast), y = {0};
    if (cast == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to cast %d tensors for cat", n);
        return y;
    }
    memcpy(cast, in, (size_t)n * sizeof *cast);
    if (bl_op_autocast(context, BL_OP_add, cast, n))
        y = cat(context, cast, n, axis);
    bl_free(cast);
    return y;
}

belay_tensor belay_cat(const belay_tensor *in, int n, int axis)
{
    belay_context *context = bl_op_context(in, n);
    BL_ENTER(context);
    if (context == NULL || belay_tensor_is_nil(in[0]))
        return (belay_tensor){0};
    return context->mixed.autocast != 0 ? cat_cast(context, in, n, axis) : cat(context, in, n, axis);
}
