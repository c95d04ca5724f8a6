/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/context.h"

#include <inttypes.h>
#include <stdio.h>

#include "device/trap.h"
#include "tensor/address.h"

static void tell(belay_context *context, const bl_device *device, const bl_trap_touch *touch)
{
    bl_report_fault f;
    bl_text words = {0}, facts = {0};
    bl_report_fault_init(&f, BELAY_PLACE_HOST);
    (void)bl_address_describe(context, device, touch->address, 0, &words, &facts);
    snprintf(f.what, sizeof f.what, "the host %s %s, in memory of %s",
             !touch->is_write_known ? "touched"
             : touch->is_write      ? "wrote"
                                    : "read",
             bl_text_get(&words), device->name);
    snprintf(f.facts, sizeof f.facts, "%s", bl_text_get(&facts));
    if (touch->count > 1)
        bl_report_fault_fact(&f, "pages touched: %" PRIu64, touch->count);
    snprintf(f.device, sizeof f.device, "%s", device->name);
    bl_text_fini(&words);
    bl_text_fini(&facts);
    bl_context_fault(context, &f);
}

void bl_touch_look(belay_context *context)
{
    for (int place = 0; place < context->n_places; place++) {
        const bl_device *device = context->places[place].device;
        bl_trap_touch touch;
        if (device->range != NULL && bl_trap_take(device->range, &touch))
            tell(context, device, &touch);
    }
}
