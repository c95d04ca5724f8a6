/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of <belay/devices.h>: the current one, guards, waits. */
#include <belay/devices.h>

#include <string.h>

#include "tensor/place.h"
#include "tensor/redzone.h"

belay_code bl_place_named(belay_context *context, const char *name, int *out)
{
    bl_error error = {0};
    if (name == NULL)
        return bl_context_raise(context, BELAY_CONF_MISSING, "a device was asked for by no name");
    belay_code code = bl_place_open(context, name, out, &error);
    return code == BELAY_OK ? code : bl_context_raise_error(context, &error);
}

int bl_place_go(belay_context *context, int place)
{
    int before = context->here;
    context->here = place;
    context->device = context->places[place].device;
    return before;
}

/* Why a context that is not open to its caller is not. */
static belay_code refused(const belay_context *context)
{
    return bl_caller_code(context != NULL && context->open_code != BELAY_OK ? context->open_code : BELAY_CONF_VALUE);
}

belay_code belay_device_set(belay_context *context, const char *device)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return refused(context);
    int place = 0;
    TRY(bl_place_named(context, device, &place));
    bl_place_go(context, place);
    return BELAY_OK;
}

/* ---- guards ---------------------------------------------------------------------------------------------------------- */

belay_device_guard belay_device_guard_open(belay_context *context, const char *device)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return (belay_device_guard){0};
    if (context->n_guards == BL_MAX_GUARDS) {
        bl_context_raise(context, BELAY_LIFE_SCOPE, "%d device guards are open, the most that there can be",
                         BL_MAX_GUARDS);
        return (belay_device_guard){0};
    }
    int place = 0;
    if (bl_place_named(context, device, &place) != BELAY_OK)
        return (belay_device_guard){0};
    bl_guard *guard = &context->guards[context->n_guards++];
    *guard = (bl_guard){.place = context->here, .serial = ++context->guard_serial};
    bl_place_go(context, place);
    return (belay_device_guard){context->number, (uint32_t)context->n_guards, guard->serial};
}

void belay_device_guard_close(belay_device_guard guard)
{
    belay_context *context = bl_context_find(guard.context);
    BL_ENTER(context);
    if (context == NULL)
        return;
    bool is_open = guard.depth >= 1 && guard.depth <= (uint32_t)context->n_guards &&
                   context->guards[guard.depth - 1].serial == guard.serial;
    if (!is_open) {
        bl_context_raise(context, BELAY_LIFE_SCOPE, "a device guard was closed that is not open (%d are)",
                         context->n_guards);
        return;
    }
    int n_inside = context->n_guards - (int)guard.depth;
    if (n_inside > 0)
        bl_context_raise(context, BELAY_LIFE_SCOPE, "a device guard was closed while %d inside of it %s open", n_inside,
                         n_inside == 1 ? "is" : "are");
    context->n_guards = (int)guard.depth - 1;
    bl_place_go(context, context->guards[guard.depth - 1].place);
}

/* ---- questions and waits --------------------------------------------------------------------------------------------- */

const char *belay_tensor_device(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    const bl_slot *slot = BL_ASK(context) ? bl_slot_get(context, tensor) : NULL;
    return slot != NULL ? bl_slot_device(context, slot)->name : "";
}

int belay_n_devices(const char *kind)
{
    const bl_device_api *api;
    for (int i = 0; kind != NULL && (api = bl_device_kind(i)) != NULL; i++)
        if (strcmp(api->kind, kind) == 0)
            return api->count();
    return 0;
}

uint64_t belay_n_moved(const belay_context *context) { return BL_ASK(context) ? context->n_moved : 0; }

belay_code belay_synchronise(belay_context *context)
{
    BL_ENTER(context);
    belay_code first = BELAY_OK;
    if (!belay_is_open(context))
        return refused(context);
    bl_modes_look(context);
    for (int place = 0; place < context->n_places; place++) {
        belay_code code = bl_place_fence(context, place, "all devices were waited for");
        first = first != BELAY_OK ? first : code;
    }
    bl_redzone_look(context);
    return first;
}

belay_code belay_device_synchronise(belay_context *context, const char *device)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return refused(context);
    int place = 0;
    TRY(bl_place_named(context, device, &place));
    return bl_place_fence(context, place, "a device was waited for");
}

bool belay_device_is_lost(const belay_context *context, const char *device)
{
    bool may_ask = BL_ASK(context);
    for (int place = 0; may_ask && device != NULL && place < context->n_places; place++) {
        bl_device *d = context->places[place].device;
        if (bl_place_is_named(d, device))
            return d->api->loss(d) != NULL;
    }
    return false;
}

belay_code belay_device_empty_cache(belay_context *context, int64_t *n_bytes)
{
    BL_ENTER(context);
    if (n_bytes != NULL)
        *n_bytes = 0;
    if (!belay_is_open(context))
        return refused(context);
    bl_device *device = context->device;
    if (device->api->loss(device) != NULL)
        return bl_place_raise_lost(context, context->here);
    bl_place_sweep(context, context->here);
    int64_t freed = bl_pool_trim(device->api->pool(device));
    if (n_bytes != NULL)
        *n_bytes = freed;
    return BELAY_OK;
}
