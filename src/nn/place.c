/* SPDX-License-Identifier: Apache-2.0 */
/* A module on another device: every copy is made before the first tensor is changed. */
#include "base/memory.h"
#include "launch/launch.h"
#include "nn/module.h"

typedef struct move {
    belay_tensor tensor, copy;
} move;

typedef struct moves {
    belay_context *context;
    int place;
    move *list;
    int64_t n, capacity;
} moves;

static bool copy_one(moves *m, belay_tensor tensor)
{
    const bl_slot *slot = belay_tensor_is_nil(tensor) ? NULL : bl_slot_get(m->context, tensor);
    if (slot == NULL || slot->storage->place == m->place)
        return true;
    if (!bl_grow(&m->list, &m->capacity, m->n + 1, sizeof *m->list)) {
        bl_context_raise(m->context, BELAY_MEM_EXHAUSTED, "no memory for the list of a module's tensors");
        return false;
    }
    belay_tensor copy = bl_launch_to(m->context, tensor, m->place);
    if (belay_tensor_is_nil(copy))
        return false;
    m->list[m->n++] = (move){tensor, copy};
    return true;
}

static bool copy_entries(moves *m, const bl_module_entries *entries)
{
    for (int64_t i = 0; i < entries->n; i++) {
        belay_tensor tensor = entries->entry[i].tensor;
        if (!copy_one(m, tensor) || !copy_one(m, belay_tensor_grad(tensor)))
            return false;
    }
    return true;
}

static bool copy_all(moves *m, const belay_module *module)
{
    bool done = copy_entries(m, &module->parameters) && copy_entries(m, &module->buffers);
    for (int64_t i = 0; i < module->n_children && done; i++)
        done = copy_all(m, module->child[i]);
    return done;
}

static belay_code move_all(belay_module *module, int place)
{
    belay_context *context = module->context;
    moves m = {.context = context, .place = place};
    int64_t before = context->n_faults;
    belay_fault fault;
    bool done = copy_all(&m, module);
    for (int64_t i = 0; i < m.n; i++)
        if (done)
            bl_tensor_settle(context, m.list[i].tensor, m.list[i].copy);
        else
            bl_tensor_drop(context, m.list[i].copy);
    bl_free(m.list);
    if (done)
        return BELAY_OK;
    return belay_fault_get(context, before, &fault) ? fault.code : BELAY_MEM_EXHAUSTED;
}

belay_code belay_module_to(belay_module *module, const char *device)
{
    BL_ENTER(bl_module_context(module));
    belay_context *context = bl_module_use(module);
    if (context == NULL)
        return bl_caller_code(BELAY_CONF_ORDER);
    const belay_module *root = module;
    while (root->parent != NULL)
        root = root->parent;
    const belay_module *held = bl_module_held(root);
    int place;
    if (held != NULL) {
        bl_error error;
        bl_error_set(&error, BELAY_CONF_ORDER, "module %.100s was moved while %.200s is at work",
                     belay_module_name(module), held == module ? "it" : belay_module_name(held));
        bl_error_advise(&error, "Move it before its forward, or after the training that uses it has returned.");
        return bl_context_raise_error(context, &error);
    }
    TRY(bl_place_named(context, device, &place));
    return move_all(module, place);
}

/* The first tensor of the subtree, nil when there is none. */
static belay_tensor first_of(const belay_module *module)
{
    belay_tensor first = {0};
    if (module->parameters.n > 0)
        return module->parameters.entry[0].tensor;
    if (module->buffers.n > 0)
        return module->buffers.entry[0].tensor;
    for (int64_t i = 0; i < module->n_children && belay_tensor_is_nil(first); i++)
        first = first_of(module->child[i]);
    return first;
}

int bl_module_place(const belay_module *module)
{
    belay_tensor first = first_of(module);
    const bl_slot *slot = belay_tensor_is_nil(first) ? NULL : bl_slot_get(module->context, first);
    return slot != NULL ? slot->storage->place : module->context->here;
}
