/* SPDX-License-Identifier: Apache-2.0 */
/* Views: new sizes and strides over the same storage. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "grad/tape.h"
#include "launch/prove.h"

int bl_view_axis(belay_context *context, const char *op, belay_tensor x, int axis)
{
    const bl_slot *slot = bl_slot_use(context, x);
    if (slot == NULL)
        return -1;
    if (axis < -slot->rank || axis >= slot->rank) {
        bl_prove_refuse(context, BELAY_SHAPE_AXIS, op, &(bl_given){"x", x}, 1, "axis %d of a tensor with %d axes", axis,
                        slot->rank);
        return -1;
    }
    return axis < 0 ? axis + slot->rank : axis;
}

belay_tensor bl_view_transpose(belay_context *context, belay_tensor x, int a, int b)
{
    a = bl_view_axis(context, "transpose", x, a);
    b = a >= 0 ? bl_view_axis(context, "transpose", x, b) : -1;
    const bl_slot *slot = b >= 0 ? bl_slot_get(context, x) : NULL;
    if (slot == NULL)
        return (belay_tensor){0};
    belay_shape shape = bl_slot_shape(slot);
    int64_t stride[BELAY_MAX_RANK];
    memcpy(stride, slot->stride, sizeof stride);
    shape.size[a] = slot->size[b];
    shape.size[b] = slot->size[a];
    stride[a] = slot->stride[b];
    stride[b] = slot->stride[a];
    return bl_tensor_view(context, x, &shape, stride, slot->offset);
}

belay_tensor bl_view_slice(belay_context *context, belay_tensor x, int axis, int64_t start, int64_t stop, int64_t step)
{
    axis = bl_view_axis(context, "slice", x, axis);
    const bl_slot *slot = axis >= 0 ? bl_slot_get(context, x) : NULL;
    if (slot == NULL)
        return (belay_tensor){0};
    int64_t n = slot->size[axis];
    if (start < 0 || stop < start || stop > n || step < 1) {
        bl_prove_refuse(context, BELAY_SHAPE_AXIS, "slice", &(bl_given){"x", x}, 1,
                        "slice [%" PRId64 ", %" PRId64 ") by %" PRId64 " of axis %d, which has size %" PRId64, start,
                        stop, step, axis, n);
        return (belay_tensor){0};
    }
    belay_shape shape = bl_slot_shape(slot);
    int64_t stride[BELAY_MAX_RANK], offset = slot->offset;
    memcpy(stride, slot->stride, sizeof stride);
    shape.size[axis] = stop > start ? (stop - start - 1) / step + 1 : 0;
    if (shape.size[axis] > 0)
        offset += start * slot->stride[axis];
    if (!bl_checked_mul(stride[axis], step, &stride[axis]))
        stride[axis] = slot->stride[axis]; /* one element at most: the stride is not used */
    return bl_tensor_view(context, x, &shape, stride, offset);
}

belay_tensor bl_view_expand(belay_context *context, belay_tensor x, const belay_shape *shape)
{
    const bl_slot *slot = bl_slot_use(context, x);
    if (slot == NULL)
        return (belay_tensor){0};
    const bl_given given = {"x", x};
    if (shape->rank > BELAY_MAX_RANK) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "expand", &given, 1, "a view of %d axes: the most are %d",
                        shape->rank, BELAY_MAX_RANK);
        return (belay_tensor){0};
    }
    int64_t stride[BELAY_MAX_RANK] = {0};
    int extra = shape->rank - slot->rank;
    bool fits = extra >= 0;
    for (int i = 0; i < slot->rank && fits; i++) {
        fits = slot->size[i] == shape->size[i + extra] || slot->size[i] == 1;
        stride[i + extra] = slot->size[i] == shape->size[i + extra] ? slot->stride[i] : 0;
    }
    if (!fits) {
        bl_text words[2] = {{0}, {0}};
        belay_shape from = bl_slot_shape(slot);
        bl_report_shape(&from, &words[0]);
        bl_report_shape(shape, &words[1]);
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "expand", &given, 1, "shape %s cannot be expanded to %s",
                        bl_text_get(&words[0]), bl_text_get(&words[1]));
        bl_text_fini(&words[0]);
        bl_text_fini(&words[1]);
        return (belay_tensor){0};
    }
    return bl_tensor_view(context, x, shape, stride, slot->offset);
}

belay_tensor bl_view_permute(belay_context *context, belay_tensor x, const int64_t *axes)
{
    const bl_slot *slot = bl_slot_use(context, x);
    if (slot == NULL)
        return (belay_tensor){0};
    belay_shape shape = {.rank = slot->rank};
    int64_t stride[BELAY_MAX_RANK] = {0};
    for (int i = 0; i < slot->rank; i++) {
        shape.size[i] = slot->size[axes[i]];
        stride[i] = slot->stride[axes[i]];
    }
    return bl_tensor_view(context, x, &shape, stride, slot->offset);
}

belay_tensor bl_view_select(belay_context *context, belay_tensor x, int axis, int64_t index)
{
    belay_tensor one = bl_view_slice(context, x, axis, index, index + 1, 1);
    const bl_slot *slot = belay_tensor_is_nil(one) ? NULL : bl_slot_get(context, one);
    if (slot == NULL)
        return (belay_tensor){0};
    belay_shape shape = {0};
    int64_t stride[BELAY_MAX_RANK] = {0};
    for (int i = 0; i < slot->rank; i++)
        if (i != axis) {
            stride[shape.rank] = slot->stride[i];
            shape.size[shape.rank++] = slot->size[i];
        }
    return bl_tensor_view(context, one, &shape, stride, slot->offset);
}

belay_tensor bl_view_corner(belay_context *context, belay_tensor x, const belay_shape *sizes)
{
    for (int i = 0; i < sizes->rank && !belay_tensor_is_nil(x); i++)
        x = bl_view_slice(context, x, i, 0, sizes->size[i], 1);
    return x;
}
