/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/lease.h"

#include <stdio.h>

void bl_lease_begin(belay_context *context, bl_lease *lease, uintptr_t site)
{
    if (lease->is_on)
        return;
    lease->is_on = true;
    lease->site = site;
    context->n_leases++;
}

void bl_lease_end(belay_context *context, bl_lease *lease)
{
    if (!lease->is_on)
        return;
    lease->is_on = false;
    context->n_leases--;
}

void bl_lease_bind(belay_context *context, belay_tensor tensor, bl_lease *lease)
{
    const bl_slot *slot = bl_slot_get(context, tensor);
    if (slot != NULL)
        slot->storage->lease = lease;
}

static void refuse(belay_context *context, const bl_slot *slot, bool writes, const char *verb)
{
    const bl_lease *lease = slot->storage->lease;
    bl_report_fault f;
    bl_text shape = {0};
    belay_shape sizes = bl_slot_shape(slot);
    const char *name = bl_journal_text_get(context->journal, slot->name);
    bl_report_fault_init(&f, BELAY_LIFE_BUCKET);
    bl_report_shape(&sizes, &shape);
    snprintf(f.what, sizeof f.what, "%.60s would %s %.100s %s, which belongs to %s until its reduction has ended", verb,
             writes ? "write" : "read", name[0] != '\0' ? name : "a tensor", bl_text_get(&shape), lease->what);
    bl_text_fini(&shape);
    snprintf(f.other_words, sizeof f.other_words, "reduction began");
    if (lease->site != 0)
        bl_context_site(context, lease->site, f.other_site, sizeof f.other_site);
    bl_context_fault(context, &f);
}

bool bl_lease_permits(belay_context *context, const bl_slot *slot, bool writes, const char *verb)
{
    if (BL_LIKELY(context->n_leases == 0) || !bl_lease_is_on(slot, writes))
        return true;
    refuse(context, slot, writes, verb);
    return false;
}
