/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: memory that something beside the launches is at work with, as a bucket of gradients while it is reduced.
 *
 * A storage that is let is refused to every launch, read, write and clearing (life.bucket), with the place where the
 * lease began.  Many storages may name one lease.  While no lease of a context is on, nobody looks. */
#ifndef BL_TENSOR_LEASE_H
#define BL_TENSOR_LEASE_H

#include "tensor/context.h"

typedef struct bl_lease {
    bool is_on;
    bool may_read;  /* only writing is refused */
    uintptr_t site; /* where it began */
    char what[96];  /* who has it: "bucket 2 of 3, under reduction" */
    /* Waits until it ends; what came of that was told.  For questions whose answer is the memory itself. */
    void (*wait)(void *state);
    void *state;
} bl_lease;

void bl_lease_begin(belay_context *context, bl_lease *lease, uintptr_t site);
void bl_lease_end(belay_context *context, bl_lease *lease);

/* A storage goes with that lease; NULL: with none. */
void bl_lease_bind(belay_context *context, belay_tensor tensor, bl_lease *lease);

/* Whether what `verb` says ("sum", "a write by the host") may be done; told when not. */
bool bl_lease_permits(belay_context *context, const bl_slot *slot, bool writes, const char *verb);

static inline bool bl_lease_is_on(const bl_slot *slot, bool writes)
{
    const bl_lease *lease = slot->storage->lease;
    return lease != NULL && lease->is_on && (writes || !lease->may_read);
}

/* The gradient of a leaf is looked at: whatever is at work with it ends first. */
static inline void bl_lease_settle_grad(belay_context *context, const bl_slot *leaf)
{
    const bl_slot *grad = BL_UNLIKELY(context->n_leases > 0) ? bl_slot_get(context, leaf->grad) : NULL;
    if (grad != NULL && bl_lease_is_on(grad, true))
        grad->storage->lease->wait(grad->storage->lease->state);
}

#endif
