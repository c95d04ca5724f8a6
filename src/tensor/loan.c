/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/loan.h"

#include <stdio.h>

#include "base/memory.h"
#include "tensor/redzone.h"

bl_loan *bl_loan_new(bool is_read_only)
{
    bl_loan *loan = bl_alloc(1, sizeof *loan);
    if (loan != NULL)
        *loan = (bl_loan){.holders = 1, .is_guest = true, .is_read_only = is_read_only};
    return loan;
}

/* All that have an owner, of all contexts; guarded as the table of contexts is. */
static bl_loan *owned;

void bl_loan_take_over(bl_loan *loan, void (*end)(void *owner), void *owner)
{
    loan->end = end;
    loan->owner = owner;
    bl_context_table_hold(true);
    loan->next = owned;
    if (owned != NULL)
        owned->previous = loan;
    owned = loan;
    bl_context_table_hold(false);
}

/* Before the owner is told: it may lend the same again. */
static void leave_owner(const bl_loan *loan)
{
    bl_context_table_hold(true);
    if (loan->previous != NULL)
        loan->previous->next = loan->next;
    else
        owned = loan->next;
    if (loan->next != NULL)
        loan->next->previous = loan->previous;
    bl_context_table_hold(false);
}

bool bl_loan_is_of(const void *owner)
{
    bl_context_table_hold(true);
    const bl_loan *loan = owned;
    while (loan != NULL && loan->owner != owner)
        loan = loan->next;
    bl_context_table_hold(false);
    return loan != NULL;
}

bl_loan *bl_loan_hold(bl_storage *storage)
{
    if (storage->loan == NULL) {
        storage->loan = bl_alloc(1, sizeof *storage->loan);
        if (storage->loan == NULL)
            return NULL;
        storage->loan->holders = 1;
    }
    (void)__atomic_add_fetch(&storage->loan->holders, 1, __ATOMIC_RELAXED);
    return storage->loan;
}

void bl_loan_release(bl_loan *loan)
{
    if (__atomic_sub_fetch(&loan->holders, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (loan->end != NULL) {
        leave_owner(loan);
        loan->end(loan->owner);
    } else if (!loan->is_guest) {
        bl_left_give(&loan->left);
    }
    bl_free(loan);
}

/* Exports only become fewer while this thread is here: a storage that has none left is as any other. */
bool bl_loan_keep(belay_context *context, bl_storage *storage)
{
    bl_loan *loan = storage->loan;
    storage->loan = NULL;
    if (!loan->is_guest && __atomic_load_n(&loan->holders, __ATOMIC_ACQUIRE) == 1) {
        bl_free(loan);
        return false;
    }
    if (!loan->is_guest) {
        bl_device *device = context->places[storage->place].device;
        bl_pool_leave(device->api->pool(device), storage->data, storage->n_bytes, &loan->left);
        bl_redzone_tell(context, storage->place, false);
    }
    bl_loan_release(loan);
    return true;
}

void bl_loan_describe_write(const belay_context *context, const bl_slot *slot, bl_text *out)
{
    const char *name = bl_journal_text_get(context->journal, slot->name);
    belay_shape shape = bl_slot_shape(slot);
    bl_text_format(out, "%s%.200s ", name[0] != '\0' ? "tensor " : "a tensor", name);
    bl_report_shape(&shape, out);
    bl_text_format(out, " %s was to be written, in memory that was lent to be read only",
                   belay_dtype_name(slot->dtype));
}

belay_code bl_loan_refuse_write(belay_context *context, const bl_slot *slot)
{
    bl_text words = {0};
    bl_loan_describe_write(context, slot, &words);
    belay_code code = bl_context_raise(context, BELAY_LIFE_READ_ONLY, "%s", bl_text_get(&words));
    bl_text_fini(&words);
    return code;
}
