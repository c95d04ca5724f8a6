/* SPDX-License-Identifier: Apache-2.0 */
#include "data/object.h"

#include "base/memory.h"
#include "data/words.h"
#include "tensor/context.h"

static bool is_nil(const bl_data_object *object) { return object == NULL || object->ctx == NULL; }

static void shell_free(void *object) { bl_free(object); }

void bl_data_object_drop(void *pointer)
{
    bl_data_object *object = pointer;
    if (is_nil(object) || --object->n_holds > 0)
        return;
    object->class->fini(object);
    bl_context_bury(object->ctx, &object->grave, shell_free);
}

void *bl_data_object_hold(void *pointer)
{
    bl_data_object *object = pointer;
    if (!is_nil(object))
        object->n_holds++;
    return object;
}

void *bl_data_object_new(belay_context *ctx, const bl_data_class *class, bl_error *error)
{
    bl_data_object *object = bl_alloc(1, class->n_bytes);
    if (object != NULL && bl_context_adopt(ctx, object, bl_data_object_drop)) {
        *object = (bl_data_object){.ctx = ctx, .n_holds = 1, .is_listed = true, .class = class};
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

void bl_data_tell_stale(const bl_data_object *object, uintptr_t site)
{
    belay_context *ctx = bl_context_here(object->ctx);
    if (ctx == NULL || ctx->is_closing)
        return;
    __attribute__((cleanup(bl_enter_end), unused)) bl_enter call = bl_enter_call(ctx, site);
    bl_error error;
    bl_error_set(&error, BELAY_LIFE_STALE, "%s was used after it had been %s", object->class->what,
                 object->class->ended);
    bl_error_advise(&error, "%s when nothing uses it any more.",
                    object->class->ended[0] == 'c' ? "Close it" : "Free it");
    bl_context_raise_error(ctx, &error);
}

uint64_t bl_data_seed(const belay_context *ctx) { return ctx->seed; }

belay_code bl_data_raise(belay_context *ctx, const bl_error *error) { return bl_context_raise_error(ctx, error); }

bool bl_data_has_context(const belay_context *ctx) { return belay_is_open(ctx); }
