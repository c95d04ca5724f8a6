/* SPDX-License-Identifier: Apache-2.0 */
#include "data/object.h"

#include "base/memory.h"
#include "data/words.h"
#include "tensor/context.h"

static bool is_nil(const bl_data_object *object) { return object == NULL || object->ctx == NULL; }

void bl_data_object_drop(void *pointer)
{
    bl_data_object *object = pointer;
    if (is_nil(object) || --object->n_holds > 0)
        return;
    object->fini(object);
    bl_free(object);
}

void *bl_data_object_hold(void *pointer)
{
    bl_data_object *object = pointer;
    if (!is_nil(object))
        object->n_holds++;
    return object;
}

void *bl_data_object_new(belay_context *ctx, int64_t size, void (*fini)(void *object), bl_error *error)
{
    bl_data_object *object = bl_alloc(1, size);
    if (object != NULL && bl_context_adopt(ctx, object, bl_data_object_drop)) {
        *object = (bl_data_object){.ctx = ctx, .n_holds = 1, .is_listed = true, .fini = fini};
        return object;
    }
    bl_free(object);
    bl_data_no_memory(error, "an object of data", 0);
    return NULL;
}

void bl_data_object_close(void *pointer)
{
    bl_data_object *object = pointer;
    if (is_nil(object) || !object->is_listed)
        return;
    object->is_listed = false;
    bl_context_forget(object->ctx, object);
    bl_data_object_drop(object);
}

uint64_t bl_data_seed(const belay_context *ctx) { return ctx->seed; }

belay_code bl_data_raise(belay_context *ctx, const bl_error *error) { return bl_context_raise_error(ctx, error); }

bool bl_data_has_context(const belay_context *ctx) { return belay_is_open(ctx); }
