/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on another device. */
#include <belay/devices.h>

#include "base/checked.h"
#include "base/memory.h"
#include "op/op.h"

/* Through the host, which waits for what computes the tensor. */
static belay_tensor copy_to(belay_context *context, belay_tensor tensor, int place)
{
    belay_tensor whole = bl_launch_contiguous(context, tensor);
    const bl_slot *from = belay_tensor_is_nil(whole) ? NULL : bl_slot_get(context, whole);
    if (from == NULL)
        return (belay_tensor){0};
    belay_shape shape = bl_slot_shape(from);
    int64_t n_bytes = bl_slot_elements(from) * belay_dtype_size((belay_dtype)from->dtype);
    belay_tensor to = bl_tensor_new_on(context, place, (belay_dtype)from->dtype, &shape, NULL);
    if (belay_tensor_is_nil(to))
        return to;
    void *host = bl_alloc(bl_max_i64(n_bytes, 1), 1);
    bool done = host != NULL && bl_place_fence(context, from->storage->place, "a tensor was moved") == BELAY_OK &&
                bl_place_read(context, from, 0, host, n_bytes) == BELAY_OK &&
                bl_place_write(context, bl_slot_get(context, to), 0, host, n_bytes) == BELAY_OK;
    if (host == NULL)
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to move a tensor by way of the host");
    bl_free(host);
    if (done)
        return to;
    bl_tensor_drop(context, to);
    return (belay_tensor){0};
}

/* The gradient goes back to where x lies: params.i[0]. */
static void grad_to(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    grad_in[0] = copy_to(context, node->grad[0], (int)node->params.i[0]);
}

belay_tensor bl_op_to(belay_context *context, belay_tensor x, int place)
{
    bl_slot *slot = bl_slot_use(context, x);
    if (slot == NULL || slot->storage->place == place)
        return slot != NULL ? x : (belay_tensor){0};
    bl_params params = {.i = {slot->storage->place}};
    uint32_t name = slot->name;
    belay_tensor y = copy_to(context, x, place);
    if (belay_tensor_is_nil(y))
        return y;
    bl_slot_get(context, y)->name = name;
    return bl_op_record_view(context, x, y, grad_to, &params);
}

belay_tensor belay_tensor_to(belay_tensor tensor, const char *device)
{
    belay_context *context = bl_tensor_context(tensor);
    int place;
    if (context == NULL)
        return (belay_tensor){0};
    BL_ENTER(context);
    if (bl_slot_use(context, tensor) == NULL || bl_place_named(context, device, &place) != BELAY_OK)
        return (belay_tensor){0};
    return bl_op_to(context, tensor, place);
}
