/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/redzone.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tensor/address.h"

static void tell_damage(belay_context *context, const bl_device *device, const bl_redzone_damage *damage)
{
    bl_report_fault f;
    bl_text words = {0}, facts = {0};
    uint64_t begin = (uint64_t)(uintptr_t)damage->block;
    uint64_t at = damage->is_behind ? begin + (uint64_t)damage->n_bytes + (uint64_t)damage->first - 1
                                    : begin - (uint64_t)damage->first;
    bl_report_fault_init(&f, BELAY_MEM_REDZONE);
    bl_address_describe_beside(context, device, damage->block, at, &words, &facts);
    const char *comma = strstr(bl_text_get(&words), ", which") != NULL ? "," : "";
    snprintf(f.what, sizeof f.what, "%s%s was overwritten, %" PRId64 " byte%s in all", bl_text_get(&words), comma,
             damage->n_changed, damage->n_changed == 1 ? "" : "s");
    snprintf(f.facts, sizeof f.facts, "%s", bl_text_get(&facts));
    snprintf(f.device, sizeof f.device, "%s", device->name);
    bl_text_fini(&words);
    bl_text_fini(&facts);
    bl_context_fault(context, &f);
}

void bl_redzone_tell(belay_context *context, int place, bool look)
{
    bl_device *device = context->places[place].device;
    bl_redzone_damage damage;
    if (context->device_options.memory == BL_MEMORY_POOL || context->is_closing)
        return;
    while (bl_pool_damage(device->api->pool(device), look, &damage))
        tell_damage(context, device, &damage);
}

void bl_redzone_look(belay_context *context)
{
    for (int place = 0; place < context->n_places; place++)
        bl_redzone_tell(context, place, true);
}

void bl_redzone_tell_mappings(belay_context *context, int place)
{
    bl_place *p = &context->places[place];
    if (context->device_options.memory < BL_MEMORY_EXACT || p->mappings_are_told ||
        !bl_pool_is_out_of_mappings(p->device->api->pool(p->device)))
        return;
    p->mappings_are_told = true;
    bl_context_raise(context, BELAY_MEM_MAPPINGS, "%s has no mappings left for blocks of their own", p->device->name);
}
