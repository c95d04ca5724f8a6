/* SPDX-License-Identifier: Apache-2.0 */
/* Small compositions of launches that ops and gradients share.  None records. */
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "launch/launch.h"

belay_tensor bl_launch_cast(belay_context *context, belay_tensor tensor, belay_dtype dtype)
{
    bl_call call = {.context = context, .op = BL_OP_copy, .n_in = 1, .in = {tensor}, .dtype = dtype};
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

belay_tensor bl_launch_copy(belay_context *context, belay_tensor tensor)
{
    return bl_launch_cast(context, tensor, belay_tensor_dtype(tensor));
}

bool bl_launch_move(belay_context *context, belay_tensor to, belay_tensor from)
{
    bl_call call = {.context = context, .op = BL_OP_copy, .n_in = 1, .in = {from}, .into = to};
    call.dtype = belay_tensor_dtype(to);
    return !belay_tensor_is_nil(to) && bl_launch_run(&call);
}

belay_tensor bl_launch_contiguous(belay_context *context, belay_tensor tensor)
{
    const bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return (belay_tensor){0};
    return bl_slot_is_contiguous(slot) ? tensor : bl_launch_copy(context, tensor);
}

static belay_tensor fill(belay_context *context, int at, belay_dtype dtype, const belay_shape *shape, double value)
{
    bl_call call = {.context = context, .op = BL_OP_fill, .dtype = dtype, .shape = *shape, .at = at};
    call.params.f[0] = value;
    call.params.i[0] = (int64_t)value;
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

belay_tensor bl_launch_fill(belay_context *context, belay_dtype dtype, const belay_shape *shape, double value)
{
    return fill(context, 0, dtype, shape, value);
}

belay_tensor bl_launch_fill_like(belay_context *context, belay_tensor like, belay_dtype dtype, const belay_shape *shape,
                                 double value)
{
    const bl_slot *slot = bl_slot_use(context, like);
    return slot != NULL ? fill(context, 1 + slot->storage->place, dtype, shape, value) : (belay_tensor){0};
}

/* All bytes of a contiguous tensor. */
static bool carry(belay_context *context, const bl_slot *from, const bl_slot *to)
{
    int64_t n_bytes = bl_slot_elements(from) * belay_dtype_size((belay_dtype)from->dtype);
    void *host = bl_alloc(bl_max_i64(n_bytes, 1), 1);
    if (host == NULL)
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to move a tensor by way of the host");
    bool done = host != NULL && bl_place_fence(context, from->storage->place, "a tensor was moved") == BELAY_OK &&
                bl_place_read(context, from, 0, host, n_bytes) == BELAY_OK &&
                bl_place_write(context, to, 0, host, n_bytes) == BELAY_OK;
    bl_free(host);
    return done;
}

belay_tensor bl_launch_to(belay_context *context, belay_tensor tensor, int place)
{
    belay_tensor whole = bl_launch_contiguous(context, tensor);
    const bl_slot *from = belay_tensor_is_nil(whole) ? NULL : bl_slot_get(context, whole);
    if (from == NULL)
        return (belay_tensor){0};
    belay_shape shape = bl_slot_shape(from);
    belay_tensor to = bl_tensor_new_on(context, place, (belay_dtype)from->dtype, &shape, NULL);
    bool done = !belay_tensor_is_nil(to) && carry(context, from, bl_slot_get(context, to));
    if (whole.slot != tensor.slot)
        bl_tensor_drop(context, whole);
    if (done)
        return to;
    bl_tensor_drop(context, to);
    return (belay_tensor){0};
}

bool bl_launch_add_to(belay_context *context, belay_tensor to, belay_tensor from)
{
    bl_call call = {.context = context, .op = BL_OP_add, .n_in = 2, .in = {to, from}, .into = to};
    return bl_launch_run(&call);
}

belay_tensor bl_launch_reshape(belay_context *context, belay_tensor tensor, const belay_shape *shape)
{
    belay_tensor whole = bl_launch_contiguous(context, tensor);
    const bl_slot *slot = belay_tensor_is_nil(whole) ? NULL : bl_slot_get(context, whole);
    int64_t stride[BELAY_MAX_RANK] = {0}, n;
    if (slot == NULL)
        return (belay_tensor){0};
    if (shape->rank < 0 || shape->rank > BELAY_MAX_RANK) {
        bl_context_raise(context, BELAY_SHAPE_RANK, "a view of %d axes: the most are %d", shape->rank, BELAY_MAX_RANK);
        return (belay_tensor){0};
    }
    if (!bl_shape_strides(shape, stride, &n) || n != bl_slot_elements(slot)) {
        bl_text words[2] = {{0}, {0}};
        belay_shape from = bl_slot_shape(slot);
        bl_report_shape(&from, &words[0]);
        bl_report_shape(shape, &words[1]);
        bl_context_raise(context, BELAY_SHAPE_CONTRACT,
                         "shape %s cannot be viewed as %s: the numbers of elements differ", bl_text_get(&words[0]),
                         bl_text_get(&words[1]));
        bl_text_fini(&words[0]);
        bl_text_fini(&words[1]);
        return (belay_tensor){0};
    }
    return bl_tensor_view(context, whole, shape, stride, slot->offset);
}

belay_tensor bl_launch_sum(belay_context *context, belay_tensor x, int64_t outer, int64_t reduced, int64_t inner,
                           double divisor)
{
    belay_shape shape = {3, {outer, reduced, inner}};
    bl_call call = {.context = context, .op = BL_OP_sum, .n_in = 1, .in = {bl_launch_reshape(context, x, &shape)}};
    call.params.f[0] = divisor;
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

belay_tensor bl_launch_sum_to(belay_context *context, belay_tensor tensor, const belay_shape *shape)
{
    belay_shape has = belay_tensor_shape(tensor);
    belay_tensor sum = tensor;
    int extra = has.rank - shape->rank;
    for (int i = 0; i < has.rank && !belay_tensor_is_nil(sum); i++) {
        bool was_spread = i < extra || (shape->size[i - extra] == 1 && has.size[i] != 1);
        if (!was_spread)
            continue;
        int64_t outer = 1, reduced = has.size[i], inner = 1;
        for (int j = 0; j < i; j++)
            outer *= has.size[j];
        for (int j = i + 1; j < has.rank; j++)
            inner *= has.size[j];
        sum = bl_launch_sum(context, sum, outer, reduced, inner, 1);
        has.size[i] = 1;
    }
    if (belay_tensor_is_nil(sum))
        return sum;
    has = belay_tensor_shape(sum);
    bool same = bl_shape_equal(&has, shape);
    return same ? sum : bl_launch_reshape(context, sum, shape);
}
