/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that Belay shares with another library, in either direction.
 *
 * The memory of a storage that was exported lives until the storage is dead and every export has been let go of.  That of
 * a guest, a storage over another library's memory, goes back to its owner then, once.  Exports may be let go of on any
 * thread, and after the context has closed: they hold the loan and nothing else. */
#ifndef BL_TENSOR_LOAN_H
#define BL_TENSOR_LOAN_H

#include "tensor/context.h"

typedef struct bl_loan {
    int64_t holders; /* atomic: the storage, while it lives, and the exports */
    bool is_guest, is_read_only;
    void (*end)(void *owner); /* of a guest, NULL: nobody wants to hear of it */
    void *owner;
    struct bl_loan *next, *previous; /* of those that have an owner */
    bl_left left;                    /* of ours, once its exports have outlived it */
} bl_loan;

/* The loan of guest memory, held once, of no owner yet; NULL when memory ends. */
BL_MUST_USE bl_loan *bl_loan_new(bool is_read_only);
/* The memory is ours to give back from now on: `owner` is told by `end`, once. */
void bl_loan_take_over(bl_loan *loan, void (*end)(void *owner), void *owner);
/* Whether memory of that owner is on loan, in any context or by an export of it. */
bool bl_loan_is_of(const void *owner);
/* Another hold, on the loan that a storage has or gets now; NULL when memory ends. */
BL_MUST_USE bl_loan *bl_loan_hold(bl_storage *storage);
/* Lets go of one hold, on any thread; with the last the memory goes. */
void bl_loan_release(bl_loan *loan);

/* A storage dies: true when its memory is no matter of the device's any more. */
bool bl_loan_keep(belay_context *context, bl_storage *storage);

static inline bool bl_loan_is_read_only(const bl_loan *loan) { return BL_UNLIKELY(loan != NULL) && loan->is_read_only; }
/* Whether another library may write the memory unseen. */
static inline bool bl_loan_is_shared(const bl_loan *loan)
{
    return BL_UNLIKELY(loan != NULL) && (loan->is_guest || __atomic_load_n(&loan->holders, __ATOMIC_ACQUIRE) > 1);
}
/* life.read_only: a tensor over such a loan was to be written. */
belay_code bl_loan_refuse_write(belay_context *context, const bl_slot *slot);
/* Its headline: "scores [4] f32 was to be written, ...". */
void bl_loan_describe_write(const belay_context *context, const bl_slot *slot, bl_text *out);

#endif
