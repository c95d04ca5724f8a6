/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/advance.h"

#include "base/memory.h"

struct bl_advances {
    belay_context *context;
    bl_advance *entry;
    int64_t n, capacity;
    bool is_told;
};

static void advances_free(void *object)
{
    struct bl_advances *a = object;
    bl_advance_forget(a->context, true);
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

/* Two views of the same elements. */
static bool is_same_view(const bl_slot *a, const bl_slot *b)
{
    bool is_same = a != NULL && b != NULL && a->storage == b->storage && a->offset == b->offset && a->rank == b->rank;
    for (int i = 0; is_same && i < a->rank; i++)
        is_same = a->size[i] == b->size[i] && a->stride[i] == b->stride[i];
    return is_same;
}

static bl_advance *find(const belay_context *context, belay_tensor buffer)
{
    const bl_slot *slot = bl_slot_get(context, buffer);
    for (int64_t i = 0; i < bl_advance_n(context); i++) {
        bl_advance *e = bl_advance_at(context, i);
        if (bl_tensor_same(e->buffer, buffer) || is_same_view(bl_slot_get(context, e->view), slot))
            return e;
    }
    return NULL;
}

static void drop(belay_context *context, const bl_advance *e)
{
    bl_tensor_drop(context, e->next);
    bl_tensor_drop(context, e->view);
}

static bool is_written_whole(const bl_slot *slot)
{
    return bl_slot_elements(slot) * belay_dtype_size((belay_dtype)slot->dtype) == slot->storage->n_bytes;
}

/* The buffer has been written since, by somebody else. */
static bool is_newer(const bl_slot *seen, const bl_advance *e)
{
    return seen->storage->serial == e->storage && seen->storage->version != e->version && is_written_whole(seen);
}

belay_tensor bl_advance_target(belay_context *context, const bl_advance *e)
{
    const bl_slot *buffer = bl_slot_get(context, e->buffer), *view = bl_slot_get(context, e->view);
    const bl_slot *seen = buffer != NULL ? buffer : view != NULL && view->storage->holders > 1 ? view : NULL;
    if (seen == NULL || is_newer(seen, e))
        return (belay_tensor){0};
    return seen == buffer ? e->buffer : e->view;
}

/* What nobody can see any more waits for nothing: a loop that never steps keeps no more and no more of it. */
static void forget_unseen(belay_context *context)
{
    for (int64_t i = 0; i < bl_advance_n(context); i++) {
        bl_advance *e = bl_advance_at(context, i);
        e->is_due = belay_tensor_is_nil(bl_advance_target(context, e));
    }
    bl_advance_forget(context, false);
}

static bl_advance *entry_of(belay_context *context, struct bl_advances *a, belay_tensor buffer)
{
    bl_advance *e = find(context, buffer);
    if (e != NULL)
        return e;
    if (a->n == a->capacity)
        forget_unseen(context);
    if (!bl_grow(&a->entry, &a->capacity, a->n + 1, sizeof *a->entry))
        return NULL;
    belay_tensor view = bl_tensor_hold(context, buffer);
    if (belay_tensor_is_nil(view))
        return NULL;
    e = &a->entry[a->n++];
    *e = (bl_advance){.buffer = buffer, .view = view};
    return e;
}

bool bl_advance_set(belay_context *context, belay_tensor buffer, belay_tensor next, belay_tensor leaf)
{
    struct bl_advances *a = list_of(context);
    int64_t faults = context->n_faults;
    bl_advance *e = a != NULL ? entry_of(context, a, buffer) : NULL;
    if (e == NULL) {
        if (context->n_faults == faults)
            bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for what becomes of a buffer");
        return false;
    }
    const bl_slot *slot = bl_slot_get(context, buffer);
    bl_tensor_drop(context, e->next);
    e->next = bl_tensor_own(context, next);
    e->leaf = leaf;
    e->is_fresh = true;
    e->storage = slot->storage->serial;
    e->version = slot->storage->version;
    return true;
}

belay_tensor bl_advance_get(const belay_context *context, belay_tensor buffer)
{
    const bl_advance *e = find(context, buffer);
    const bl_slot *slot = bl_slot_get(context, buffer);
    return e != NULL && slot != NULL && !is_newer(slot, e) ? e->next : buffer;
}

int64_t bl_advance_n(const belay_context *context) { return context->advances != NULL ? context->advances->n : 0; }

bl_advance *bl_advance_at(const belay_context *context, int64_t number) { return &context->advances->entry[number]; }

bool bl_advance_tells(belay_context *context)
{
    bool tells = !context->advances->is_told;
    context->advances->is_told = true;
    return tells;
}

void bl_advance_forget(belay_context *context, bool all)
{
    int64_t n = 0;
    for (int64_t i = 0; i < bl_advance_n(context); i++) {
        bl_advance *e = bl_advance_at(context, i);
        if (all || e->is_due)
            drop(context, e);
        else
            context->advances->entry[n++] = *e;
    }
    if (context->advances != NULL)
        context->advances->n = n;
}
