/* SPDX-License-Identifier: Apache-2.0 */
/* The life of what this room hands out: each object belongs to its context, and is held on to by those that use it, so
 * that it may be closed in any order.  It ends when nobody holds it any more; its shell stays for as long as it is
 * remembered, so that a pointer to it is told to be one to a dead object.  One thread, as all that has a context. */
#ifndef BL_DATA_OBJECT_H
#define BL_DATA_OBJECT_H

#include <belay/types.h>

#include "base/error.h"
#include "tensor/context.h"

/* The first member of every object. */
typedef struct bl_data_object {
    bl_grave grave;     /* once it has ended */
    belay_context *ctx; /* NULL: a nil object */
    int64_t n_holds;    /* 0: it has ended */
    bool is_listed;     /* one of the holds is the context's */
    const struct bl_data_class *class;
} bl_data_object;

typedef struct bl_data_class {
    const char *what, *ended;   /* "a dataset", "closed" */
    int64_t n_bytes;            /* of an object */
    void (*fini)(void *object); /* ends all but the memory of the object itself */
} bl_data_class;

/* A zeroed object, held once by its context; NULL without memory. */
void *bl_data_object_new(belay_context *ctx, const bl_data_class *class, bl_error *error);

/* The context lets go of it, as a close asks; NULL, nil objects and those it does not hold any more are left alone. */
void bl_data_object_close(void *pointer);

void *bl_data_object_hold(void *pointer);
void bl_data_object_drop(void *pointer);

/* life.stale, at that site where no other is known. */
void bl_data_tell_stale(const bl_data_object *object, uintptr_t site);

/* Whether it was closed or freed and nobody holds on to it; false for NULL and nil objects. */
static inline bool bl_data_has_ended(const void *pointer)
{
    const bl_data_object *object = pointer;
    return object != NULL && object->ctx != NULL && object->n_holds == 0;
}

/* The context of an object that may be used by its caller, else NULL. */
static inline belay_context *bl_data_context(const void *pointer)
{
    const bl_data_object *object = pointer;
    return object != NULL && !bl_data_has_ended(object) ? bl_context_here(object->ctx) : NULL;
}

/* The same at the beginning of a public call: NULL after life.stale for one that has ended. */
static inline belay_context *bl_data_use(const void *pointer, uintptr_t site)
{
    if (BL_UNLIKELY(bl_data_has_ended(pointer)))
        bl_data_tell_stale(pointer, site);
    return bl_data_context(pointer);
}
#define BL_DATA_USE(pointer) bl_data_use((pointer), (uintptr_t)__builtin_return_address(0))

/* False for NULL and a context that could not be opened: makers then give nil objects. */
bool bl_data_has_context(const belay_context *ctx);
uint64_t bl_data_seed(const belay_context *ctx);

/* Hands an error to the context as its fault; returns the code. */
belay_code bl_data_raise(belay_context *ctx, const bl_error *error);

#endif
