/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on another device. */
#include <belay/devices.h>

#include <stdio.h>

#include "launch/stray.h"
#include "op/op.h"

/* The gradient goes back to where x lies: params.i[0]. */
static void grad_to(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    grad_in[0] = bl_launch_to(context, node->grad[0], (int)node->params.i[0]);
}

belay_tensor bl_op_to(belay_context *context, belay_tensor x, int place)
{
    bl_slot *slot = bl_slot_use(context, x);
    if (slot == NULL || slot->storage->place == place)
        return slot != NULL ? x : (belay_tensor){0};
    bl_params params = {.i = {slot->storage->place}};
    uint32_t name = slot->name;
    belay_tensor y = bl_launch_to(context, x, place);
    if (belay_tensor_is_nil(y))
        return y;
    bl_slot_get(context, y)->name = name;
    return bl_op_record_view(context, x, y, grad_to, &params);
}

/* ---- strays ---------------------------------------------------------------------------------------------------------- */

static bool bring(belay_context *context, const char *op, const char *role, belay_tensor shown, belay_tensor *tensor,
                  int home)
{
    const bl_slot *slot = belay_tensor_is_nil(*tensor) ? NULL : bl_slot_get(context, *tensor);
    if (slot == NULL || slot->storage->place == home)
        return true;
    bl_stray_note(context, op, (bl_given){role, shown}, home);
    *tensor = bl_op_to(context, *tensor, home);
    return !belay_tensor_is_nil(*tensor);
}

bool bl_op_meet(belay_context *context, const char *op, const char *const *role, belay_tensor *tensor, int n)
{
    int first, other;
    char number[2][24];
    if (bl_stray_is_none(context, tensor, n, &first, &other))
        return true;
    if (context->place != BELAY_PLACE_MOVE) {
        const int at[] = {first, other};
        bl_given pair[2];
        for (int k = 0; k < 2; k++) {
            snprintf(number[k], sizeof number[k], "operand %d", at[k]);
            pair[k] = (bl_given){role != NULL ? role[at[k]] : number[k], tensor[at[k]]};
        }
        bl_stray_refuse(context, op, pair);
        return false;
    }
    int home = bl_stray_home(context, tensor, n);
    bool all = true;
    for (int k = 0; k < n && all; k++) {
        snprintf(number[0], sizeof number[0], "operand %d", k);
        all = bring(context, op, role != NULL ? role[k] : number[0], tensor[k], &tensor[k], home);
    }
    return all;
}

bool bl_op_meet_call(bl_call *call)
{
    belay_context *context = call->context;
    int first, other;
    if (context == NULL || context->place != BELAY_PLACE_MOVE ||
        bl_stray_is_none(context, call->in, call->n_in, &first, &other))
        return true;
    int home = bl_stray_home(context, call->in, call->n_in);
    const bl_signature *signature = bl_signature_of(call->op);
    bool all = true;
    for (int k = 0; k < call->n_in && all; k++) {
        belay_tensor shown = belay_tensor_is_nil(call->shown[k]) ? call->in[k] : call->shown[k];
        all = bring(context, bl_kernel_rows[call->op].name, signature->operand[k].name, shown, &call->in[k], home);
    }
    return all;
}

belay_tensor belay_tensor_to(belay_tensor tensor, const char *device)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    int place;
    if (context == NULL || bl_slot_use(context, tensor) == NULL || bl_place_named(context, device, &place) != BELAY_OK)
        return (belay_tensor){0};
    return bl_op_to(context, tensor, place);
}
