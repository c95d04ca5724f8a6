/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/advance.h"

#include "base/memory.h"

struct bl_advances {
    belay_context *context;
    bl_advance *entry;
    int64_t n, capacity;
};

static void advances_free(void *object)
{
    struct bl_advances *a = object;
    bl_advance_forget(a->context);
    a->context->advances = NULL;
    bl_free(a->entry);
    bl_free(a);
}

static struct bl_advances *list_of(belay_context *context)
{
    if (context->advances != NULL)
        return context->advances;
    struct bl_advances *a = bl_alloc(1, sizeof *a);
    if (a == NULL || !bl_context_adopt(context, a, advances_free)) {
        bl_free(a);
        return NULL;
    }
    a->context = context;
    return context->advances = a;
}

static bl_advance *find(const belay_context *context, belay_tensor buffer)
{
    for (int64_t i = 0; i < bl_advance_n(context); i++) {
        bl_advance *e = bl_advance_at(context, i);
        if (e->buffer.slot == buffer.slot && e->buffer.generation == buffer.generation)
            return e;
    }
    return NULL;
}

bool bl_advance_set(belay_context *context, belay_tensor buffer, belay_tensor next)
{
    struct bl_advances *a = list_of(context);
    bl_advance *e = a != NULL ? find(context, buffer) : NULL;
    if (a != NULL && e == NULL && bl_grow(&a->entry, &a->capacity, a->n + 1, sizeof *a->entry)) {
        e = &a->entry[a->n++];
        *e = (bl_advance){.buffer = buffer};
    }
    if (e == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for what becomes of a buffer");
        return false;
    }
    bl_tensor_drop(context, e->next);
    e->next = bl_tensor_own(context, next);
    return true;
}

belay_tensor bl_advance_get(const belay_context *context, belay_tensor buffer)
{
    const bl_advance *e = find(context, buffer);
    return e != NULL ? e->next : buffer;
}

int64_t bl_advance_n(const belay_context *context) { return context->advances != NULL ? context->advances->n : 0; }

bl_advance *bl_advance_at(const belay_context *context, int64_t number) { return &context->advances->entry[number]; }

void bl_advance_forget(belay_context *context)
{
    for (int64_t i = 0; i < bl_advance_n(context); i++)
        bl_tensor_drop(context, bl_advance_at(context, i)->next);
    if (context->advances != NULL)
        context->advances->n = 0;
}
