/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/stray.h"

#include <stdio.h>

/* "ids", or its role where it has no name. */
static const char *name_of(const belay_context *context, const bl_given *given)
{
    const bl_slot *slot = bl_slot_get(context, given->tensor);
    const char *name = slot != NULL ? bl_journal_text_get(context->journal, slot->name) : "";
    return name[0] != '\0' ? name : given->role;
}

static const char *device_of(const belay_context *context, const bl_given *given)
{
    const bl_slot *slot = bl_slot_get(context, given->tensor);
    return slot != NULL ? bl_slot_device(context, slot)->name : "";
}

/* A batch is made where the loop stands; the model may lie elsewhere. */
static bool hint_at_batch(const belay_context *context, const bl_given pair[2], bl_report_fault *f)
{
    bool is_batch[2];
    for (int k = 0; k < 2; k++)
        is_batch[k] = bl_slot_get(context, pair[k].tensor)->is_batch;
    if (is_batch[0] == is_batch[1])
        return false;
    const bl_given *batch = &pair[is_batch[0] ? 0 : 1], *other = &pair[is_batch[0] ? 1 : 0];
    bl_report_fault_fact(f, "%.100s is a loader's, which makes batches on the current device", name_of(context, batch));
    snprintf(f->advice, sizeof f->advice,
             "Make %s current by belay_device_set before the loader's next batch, or move the batch by "
             "belay_tensor_to.",
             device_of(context, other));
    return true;
}

/* The trap behind most of these: a tensor that a module uses and does not know of stays behind when the module moves. */
static void hint_at_stray(const belay_context *context, const bl_given pair[2], bl_report_fault *f)
{
    const bl_slot *slot[2] = {bl_slot_get(context, pair[0].tensor), bl_slot_get(context, pair[1].tensor)};
    if (slot[0] == NULL || slot[1] == NULL)
        return;
    int stray = slot[0]->is_registered ? 1 : 0;
    if (slot[0]->is_registered == slot[1]->is_registered || slot[stray]->node != 0)
        return;
    bl_report_fault_fact(f, "%s%.100s belongs to no module, so that it does not move with one",
                         slot[stray]->name != 0 ? "" : "operand ", name_of(context, &pair[stray]));
    snprintf(f->advice, sizeof f->advice,
             "Move it by belay_tensor_to, or, where a module keeps it, register it by belay_module_add_buffer.");
}

void bl_stray_describe(const belay_context *context, const char *op, const bl_given pair[2], bl_report_fault *f)
{
    snprintf(f->what, sizeof f->what, "%s: %.100s lies on %s, %.100s on %s", op, name_of(context, &pair[0]),
             device_of(context, &pair[0]), name_of(context, &pair[1]), device_of(context, &pair[1]));
    if (!hint_at_batch(context, pair, f))
        hint_at_stray(context, pair, f);
}

belay_code bl_stray_refuse(belay_context *context, const char *op, const bl_given pair[2])
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_PLACE_DEVICE);
    bl_prove_describe_given(context, op, pair, 2, &f);
    bl_stray_describe(context, op, pair, &f);
    return bl_context_fault(context, &f);
}

bool bl_stray_is_none(const belay_context *context, const belay_tensor *tensor, int n, int *first, int *other)
{
    *first = -1;
    for (int k = 0; k < n && context->n_places > 1; k++) {
        const bl_slot *slot = belay_tensor_is_nil(tensor[k]) ? NULL : bl_slot_get(context, tensor[k]);
        if (slot == NULL)
            continue;
        *other = k;
        if (*first < 0)
            *first = k;
        else if (slot->storage->place != bl_slot_get(context, tensor[*first])->storage->place)
            return false;
    }
    return true;
}

int bl_stray_home(const belay_context *context, const belay_tensor *tensor, int n)
{
    int home = -1;
    for (int k = 0; k < n; k++) {
        const bl_slot *slot = belay_tensor_is_nil(tensor[k]) ? NULL : bl_slot_get(context, tensor[k]);
        if (slot == NULL)
            continue;
        if (slot->is_registered)
            return slot->storage->place;
        home = home >= 0 ? home : slot->storage->place;
    }
    return home >= 0 ? home : context->here;
}

static bool is_told(belay_context *context, uintptr_t site)
{
    for (int i = 0; i < context->n_moved_at; i++)
        if (context->moved_at[i] == site)
            return true;
    if (context->n_moved_at < BL_MAX_WARNED)
        context->moved_at[context->n_moved_at++] = site;
    return false;
}

void bl_stray_note(belay_context *context, const char *op, bl_given stray, int home)
{
    context->n_moved++;
    if (is_told(context, context->site))
        return;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_PLACE_MOVED);
    bl_prove_describe_given(context, op, &stray, 1, &f);
    snprintf(f.what, sizeof f.what, "%s: %.100s was copied from %s to %s", op, name_of(context, &stray),
             device_of(context, &stray), context->places[home].device->name);
    bl_context_fault(context, &f);
}
