/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: parameters, buffers and children by name, the walk over them, the forward through a layer's path.  A
 * module whose part could not be made is broken up to its root and absorbs like the nil one. */
#include "nn/module.h"
#include "launch/launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static belay_module nil_module; /* never written */

belay_module *bl_module_nil(void) { return &nil_module; }

static bool is_whole(const belay_module *module)
{
    return module != NULL && bl_context_here(module->context) != NULL && !module->is_broken;
}

belay_context *bl_module_use(const belay_module *module)
{
    bl_error error;
    if (is_whole(module))
        return module->context;
    if (bl_module_context(module) != NULL && module->is_freed && !module->context->is_closing) {
        bl_error_set(&error, BELAY_LIFE_STALE, "module %.200s was used after it had been freed",
                     belay_module_name(module));
        bl_error_advise(&error, "Free a module when nothing uses it any more.");
        bl_context_raise_error(module->context, &error);
    }
    return NULL;
}

static void set_broken(belay_module *module)
{
    for (; module != NULL; module = module->parent)
        module->is_broken = true;
}

static void raise_memory(belay_module *module, const char *name)
{
    bl_context_raise(module->context, BELAY_MEM_EXHAUSTED, "no memory to register %s in module %s", name,
                     belay_module_name(module));
}

/* ---- making and freeing */

static void entries_fini(belay_context *context, bl_module_entries *entries)
{
    for (int64_t i = 0; i < entries->n; i++) {
        bl_tensor_drop(context, entries->entry[i].tensor);
        bl_free(entries->entry[i].name);
        bl_free(entries->entry[i].path);
    }
    bl_free(entries->entry);
    *entries = (bl_module_entries){0};
}

static void shell_free(void *object)
{
    belay_module *module = object;
    bl_free(module->name);
    bl_free(module);
}

/* Everything but the shell, which tells that the module was freed.  It is dead before its kind's own part is called. */
static void destroy(void *object)
{
    belay_module *module = object;
    module->is_broken = module->is_freed = true;
    for (int64_t i = 0; i < module->n_children; i++)
        destroy(module->child[i]);
    entries_fini(module->context, &module->parameters);
    entries_fini(module->context, &module->buffers);
    if (module->kind->free != NULL)
        module->kind->free(module->self);
    bl_free(module->child);
    bl_free(module->self);
    bl_free(module->path);
    char *name = module->name != NULL ? module->name : bl_strdup(module->kind->name);
    *module = (belay_module){.context = module->context, .name = name, .is_broken = true, .is_freed = true};
    bl_context_bury(module->context, &module->grave, shell_free);
}

static bool check_kind(belay_context *context, const belay_module_kind *kind)
{
    if (kind == NULL || kind->name == NULL || kind->forward == NULL)
        bl_context_raise(context, BELAY_CONF_MISSING, "a module needs a kind with a name and a forward");
    else if (kind->n_bytes < 0)
        bl_context_raise(context, BELAY_CONF_VALUE, "n_bytes of %s is %" PRId64 ": it must be at least 0", kind->name,
                         kind->n_bytes);
    else
        return true;
    return false;
}

belay_module *belay_module_new(belay_context *context, const belay_module_kind *kind)
{
    BL_ENTER(context);
    if (!belay_is_open(context) || !check_kind(context, kind))
        return &nil_module;
    belay_module *module = bl_alloc(1, sizeof *module);
    void *self = bl_alloc(1, kind->n_bytes);
    if (module == NULL || self == NULL || !bl_context_adopt(context, module, destroy)) {
        bl_free(module);
        bl_free(self);
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for a module %s", kind->name);
        return &nil_module;
    }
    *module = (belay_module){.context = context, .kind = kind, .is_training = true, .self = self};
    return module;
}

void bl_module_hold(belay_module *module) { module->n_uses++; }
void bl_module_release(belay_module *module) { module->n_uses--; }

const belay_module *bl_module_held(const belay_module *module)
{
    const belay_module *found = module->n_uses > 0 ? module : NULL;
    for (int64_t i = 0; i < module->n_children && found == NULL; i++)
        found = bl_module_held(module->child[i]);
    return found;
}

void bl_module_belong(belay_module *module, const char *owner) { module->owner = owner; }

/* False after a fault: a child, what belongs to something else, and a tree with a module at work stay. */
static bool may_be_freed(const belay_module *module)
{
    bl_error error;
    const belay_module *held = bl_module_held(module);
    if (module->parent != NULL) {
        bl_error_set(&error, BELAY_CONF_VALUE, "module %s was freed, but it dies with its parent %s", module->path,
                     belay_module_name(module->parent));
    } else if (module->owner != NULL) {
        bl_error_set(&error, BELAY_CONF_VALUE, "module %.100s was freed, but it belongs to %.240s",
                     belay_module_name(module), module->owner);
        bl_error_advise(&error, "Close that: the module goes with it.");
    } else if (held != NULL) {
        bl_error_set(&error, BELAY_CONF_ORDER, "module %.100s was freed while %.200s%s is at work",
                     belay_module_name(module), held == module ? "it" : held->path, held == module ? "" : " in it");
        bl_error_advise(&error, "Free it after its forward, or the training that uses it, has returned.");
    } else {
        return true;
    }
    bl_context_raise_error(module->context, &error);
    return false;
}

void belay_module_free(belay_module *module)
{
    belay_context *context = bl_module_context(module);
    BL_ENTER(context);
    if (context == NULL || (module->is_freed && bl_module_use(module) == NULL) || !may_be_freed(module))
        return;
    bl_context_forget(context, module);
    destroy(module);
}

belay_module *bl_module_whole(belay_module *module)
{
    if (is_whole(module))
        return module;
    belay_module_free(module);
    return &nil_module;
}

/* ---- registering */

static const bl_module_entry *entry_named(const bl_module_entries *entries, const char *name)
{
    for (int64_t i = 0; i < entries->n; i++)
        if (strcmp(entries->entry[i].name, name) == 0)
            return &entries->entry[i];
    return NULL;
}

static bool is_taken(const belay_module *module, const char *name)
{
    for (int64_t i = 0; i < module->n_children; i++)
        if (strcmp(module->child[i]->name, name) == 0)
            return true;
    return entry_named(&module->parameters, name) != NULL || entry_named(&module->buffers, name) != NULL;
}

/* Names are parts of dotted paths, each once. */
static bool name_is_legal(belay_module *module, const char *name)
{
    const char *why = name == NULL || name[0] == '\0' ? "is empty"
                      : strchr(name, '.') != NULL     ? "has a dot"
                      : strlen(name) > 100            ? "is longer than 100 bytes"
                      : is_taken(module, name)        ? "is taken"
                                                      : NULL;
    if (why == NULL)
        return true;
    bl_context_raise(module->context, BELAY_CONF_VALUE, "name \"%.110s\" in module %s %s", name != NULL ? name : "",
                     belay_module_name(module), why);
    return false;
}

/* "parent.name"; NULL when memory ends. */
static char *join(const char *parent, const char *name)
{
    size_t head = parent != NULL ? strlen(parent) + 1 : 0, tail = strlen(name) + 1;
    char *path = bl_alloc((int64_t)(head + tail), 1);
    if (path == NULL)
        return NULL;
    if (parent != NULL)
        snprintf(path, head + tail, "%s.%s", parent, name);
    else
        memcpy(path, name, tail);
    return path;
}

static bool add_entry(belay_module *module, bl_module_entries *entries, const char *name, belay_tensor tensor)
{
    bl_module_entry entry = {bl_strdup(name), join(module->path, name), tensor};
    if (entry.name == NULL || entry.path == NULL ||
        !bl_grow(&entries->entry, &entries->capacity, entries->n + 1, sizeof entry)) {
        bl_free(entry.name);
        bl_free(entry.path);
        raise_memory(module, name);
        return false;
    }
    entries->entry[entries->n++] = entry;
    belay_tensor_name_set(tensor, entry.path);
    return true;
}

/* The first values of a parameter, drawn by the seed and its number in the context. */
static belay_tensor draw(belay_context *context, belay_dtype dtype, const belay_shape *shape, const belay_init *init)
{
    static const int ops[] = {BL_OP_fill, BL_OP_fill, BL_OP_uniform, BL_OP_normal};
    bl_call call = {.context = context, .op = ops[init->kind], .dtype = dtype, .shape = *shape};
    call.params.f[0] = init->kind == BELAY_INIT_ZEROS ? 0 : init->a;
    call.params.f[1] = init->b;
    call.params.rng = (bl_rng_key){context->seed, UINT32_MAX, (uint32_t)context->n_parameters++, 0};
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

belay_tensor belay_module_add_parameter(belay_module *module, const char *name, belay_dtype dtype, belay_shape shape,
                                        belay_init init)
{
    BL_ENTER(bl_module_context(module));
    belay_context *context = bl_module_use(module);
    if (context == NULL)
        return (belay_tensor){0};
    bool is_legal = name_is_legal(module, name);
    if (is_legal && !belay_dtype_is_float(dtype)) {
        bl_context_raise(context, BELAY_TYPE_DTYPE, "parameter %s of module %s cannot be %s: it has a gradient", name,
                         belay_module_name(module), belay_dtype_name(dtype));
        is_legal = false;
    } else if (is_legal && (init.kind < BELAY_INIT_ZEROS || init.kind > BELAY_INIT_NORMAL)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "init of parameter %s is %d, which is no kind", name,
                         (int)init.kind);
        is_legal = false;
    }
    belay_tensor tensor = is_legal ? draw(context, dtype, &shape, &init) : (belay_tensor){0};
    if (belay_tensor_is_nil(tensor) || !add_entry(module, &module->parameters, name, tensor)) {
        bl_tensor_drop(context, tensor);
        set_broken(module);
        return (belay_tensor){0};
    }
    bl_slot_get(context, tensor)->is_registered = true;
    return belay_tensor_requires_grad_set(bl_tensor_own(context, tensor), true);
}

belay_tensor belay_module_add_buffer(belay_module *module, const char *name, belay_tensor tensor)
{
    BL_ENTER(bl_module_context(module));
    belay_context *context = bl_module_use(module);
    if (context == NULL)
        return (belay_tensor){0};
    bl_slot *slot = bl_slot_use(context, tensor);
    bool is_legal = slot != NULL && name_is_legal(module, name);
    if (is_legal && (slot->requires_grad || slot->owner == BL_OWNER_OBJECT)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "buffer %s of module %s %s", name, belay_module_name(module),
                         slot->requires_grad ? "has a gradient" : "belongs to another object");
        is_legal = false;
    }
    if (!is_legal || !add_entry(module, &module->buffers, name, tensor)) {
        set_broken(module);
        return (belay_tensor){0};
    }
    slot->is_registered = true;
    return bl_tensor_own(context, tensor);
}

static bool rename_entries(belay_module *module, bl_module_entries *entries)
{
    for (int64_t i = 0; i < entries->n; i++) {
        char *path = join(module->path, entries->entry[i].name);
        if (path == NULL)
            return false;
        bl_free(entries->entry[i].path);
        entries->entry[i].path = path;
        belay_tensor_name_set(entries->entry[i].tensor, path);
    }
    return true;
}

/* Paths of a subtree, after its root was registered. */
static bool rename_below(belay_module *module)
{
    char *path = join(module->parent->path, module->name);
    if (path == NULL)
        return false;
    bl_free(module->path);
    module->path = path;
    bool renamed = rename_entries(module, &module->parameters) && rename_entries(module, &module->buffers);
    for (int64_t i = 0; i < module->n_children && renamed; i++)
        renamed = rename_below(module->child[i]);
    return renamed;
}

/* Modules that stand below each other, this one counted. */
static int height_of(const belay_module *module)
{
    int height = 0;
    for (int64_t i = 0; i < module->n_children; i++) {
        int below = height_of(module->child[i]);
        height = below > height ? below : height;
    }
    return height + 1;
}

static bool child_is_legal(belay_module *module, const char *name, const belay_module *child)
{
    const belay_module *root = module;
    int depth = height_of(child) + 1;
    for (; root->parent != NULL; root = root->parent)
        depth++;
    if (!name_is_legal(module, name))
        return false;
    if (child->context != module->context) {
        bl_context_raise(module->context, BELAY_LIFE_FOREIGN, "module %s belongs to another context",
                         belay_module_name(child));
        return false;
    }
    char why[256] = "";
    if (child == root)
        snprintf(why, sizeof why, "it is above it");
    else if (child->parent != NULL)
        snprintf(why, sizeof why, "it has a parent");
    else if (child->owner != NULL)
        snprintf(why, sizeof why, "it belongs to %.200s", child->owner);
    else if (depth > BELAY_MAX_NESTING)
        snprintf(why, sizeof why, "%d modules would stand below each other, the most is %d", depth, BELAY_MAX_NESTING);
    if (why[0] == '\0')
        return true;
    bl_context_raise(module->context, BELAY_CONF_VALUE, "module %s cannot become %s of module %s: %s",
                     belay_module_name(child), name, belay_module_name(module), why);
    return false;
}

belay_module *belay_module_add_child(belay_module *module, const char *name, belay_module *child)
{
    BL_ENTER(bl_module_context(module));
    char *own = NULL;
    if (bl_module_use(module) == NULL)
        return &nil_module;
    if (bl_module_use(child) != NULL && child_is_legal(module, name, child)) {
        own = bl_strdup(name);
        if (own == NULL ||
            !bl_grow(&module->child, &module->children_capacity, module->n_children + 1, sizeof(belay_module *))) {
            raise_memory(module, name);
            bl_free(own);
            own = NULL;
        }
    }
    if (own == NULL) {
        set_broken(module);
        return &nil_module;
    }
    bl_context_forget(module->context, child);
    child->parent = module;
    child->name = own;
    module->child[module->n_children++] = child;
    if (rename_below(child))
        return child;
    raise_memory(module, name);
    set_broken(child);
    return &nil_module;
}

/* ---- using */

static bool raise_depth(const belay_module *module)
{
    bl_error error;
    bl_error_set(&error, BELAY_SIZE_OVERFLOW,
                 "the forward of module %.200s would be one of %d inside of each other, the most is %d",
                 belay_module_name(module), BELAY_MAX_NESTING + 1, BELAY_MAX_NESTING);
    bl_error_fact(&error, "layer: %s", module->context->layer);
    bl_error_advise(&error, "Look for a module whose forward comes to call itself.");
    bl_context_raise_error(module->context, &error);
    return false;
}

bool bl_module_begin(belay_module *module, size_t *length)
{
    if (module->context->n_forwards >= BELAY_MAX_NESTING)
        return raise_depth(module);
    *length = bl_layer_push(module->context, belay_module_name(module));
    if (module->context->n_forwards == 0)
        module->context->forward_faults = module->context->n_faults;
    module->context->n_forwards++;
    bl_module_hold(module);
    return true;
}

void bl_module_end(belay_module *module, size_t length)
{
    bl_module_release(module);
    module->context->n_forwards--;
    bl_layer_pop(module->context, length);
}

belay_tensor belay_forward(belay_module *module, belay_tensor x)
{
    size_t length = 0;
    BL_ENTER(bl_module_context(module));
    if (bl_module_use(module) == NULL || belay_tensor_is_nil(x) || !bl_module_begin(module, &length))
        return (belay_tensor){0};
    belay_tensor y = module->kind->forward(module, x);
    bl_module_end(module, length);
    return y;
}

void belay_module_training_set(belay_module *module, bool training)
{
    BL_ENTER(bl_module_context(module));
    if (bl_module_context(module) == NULL || (module->is_freed && bl_module_use(module) == NULL))
        return;
    module->is_training = training;
    for (int64_t i = 0; i < module->n_children; i++)
        belay_module_training_set(module->child[i], training);
}

/* For questions: where they may not be asked, that is told. */
#define MAY_ASK(module) BL_ASK(bl_module_context(module))

bool belay_module_training_get(const belay_module *module)
{
    return MAY_ASK(module) && is_whole(module) && module->is_training;
}

bool belay_module_is_nil(const belay_module *module) { return !MAY_ASK(module) || !is_whole(module); }
void *belay_module_self(const belay_module *module) { return MAY_ASK(module) ? module->self : NULL; }

belay_context *belay_module_context(const belay_module *module)
{
    return MAY_ASK(module) && is_whole(module) ? module->context : NULL;
}

const char *belay_module_name(const belay_module *module)
{
    if (!MAY_ASK(module))
        return "";
    return module->name != NULL ? module->name : module->kind != NULL ? module->kind->name : "";
}

/* ---- walking */

static const bl_module_entries *entries_of(const belay_module *module, bool is_buffer)
{
    return is_buffer ? &module->buffers : &module->parameters;
}

static int64_t count(const belay_module *module, bool is_buffer)
{
    int64_t n = entries_of(module, is_buffer)->n;
    for (int64_t i = 0; i < module->n_children; i++)
        n += count(module->child[i], is_buffer);
    return n;
}

/* Entry number *number of the subtree, or NULL with *number lowered by what the subtree has. */
static const bl_module_entry *entry_at(const belay_module *module, bool is_buffer, int64_t *number)
{
    const bl_module_entries *own = entries_of(module, is_buffer);
    if (*number < own->n)
        return *number >= 0 ? &own->entry[*number] : NULL;
    *number -= own->n;
    for (int64_t i = 0; i < module->n_children; i++) {
        const bl_module_entry *found = entry_at(module->child[i], is_buffer, number);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static const bl_module_entry *walked(const belay_module *module, bool is_buffer, int64_t number)
{
    return is_whole(module) && number >= 0 ? entry_at(module, is_buffer, &number) : NULL;
}

static const char *name_from(const belay_module *module, const bl_module_entry *entry)
{
    if (entry == NULL)
        return "";
    return module->path != NULL ? entry->path + strlen(module->path) + 1 : entry->path;
}

int64_t belay_module_n_parameters(const belay_module *module)
{
    return MAY_ASK(module) && is_whole(module) ? count(module, false) : 0;
}

int64_t belay_module_n_buffers(const belay_module *module)
{
    return MAY_ASK(module) && is_whole(module) ? count(module, true) : 0;
}

belay_tensor belay_module_parameter(const belay_module *module, int64_t number)
{
    const bl_module_entry *entry = MAY_ASK(module) ? walked(module, false, number) : NULL;
    return entry != NULL ? entry->tensor : (belay_tensor){0};
}

belay_tensor belay_module_buffer(const belay_module *module, int64_t number)
{
    const bl_module_entry *entry = MAY_ASK(module) ? walked(module, true, number) : NULL;
    return entry != NULL ? entry->tensor : (belay_tensor){0};
}

const char *belay_module_parameter_name(const belay_module *module, int64_t number)
{
    return MAY_ASK(module) ? name_from(module, walked(module, false, number)) : "";
}

const char *belay_module_buffer_name(const belay_module *module, int64_t number)
{
    return MAY_ASK(module) ? name_from(module, walked(module, true, number)) : "";
}

belay_tensor belay_module_find(const belay_module *module, const char *name)
{
    if (!MAY_ASK(module) || !is_whole(module))
        return (belay_tensor){0};
    const char *dot = strchr(name, '.');
    if (dot == NULL) {
        const bl_module_entry *entry = entry_named(&module->parameters, name);
        if (entry == NULL)
            entry = entry_named(&module->buffers, name);
        return entry != NULL ? entry->tensor : (belay_tensor){0};
    }
    size_t length = (size_t)(dot - name);
    for (int64_t i = 0; i < module->n_children; i++)
        if (strlen(module->child[i]->name) == length && memcmp(module->child[i]->name, name, length) == 0)
            return belay_module_find(module->child[i], dot + 1);
    return (belay_tensor){0};
}

int64_t belay_module_n_children(const belay_module *module)
{
    return MAY_ASK(module) && is_whole(module) ? module->n_children : 0;
}

belay_module *belay_module_child(const belay_module *module, int64_t number)
{
    bool is_there = MAY_ASK(module) && is_whole(module) && number >= 0 && number < module->n_children;
    return is_there ? module->child[number] : NULL;
}

int64_t belay_module_n_elements(const belay_module *module)
{
    int64_t n = 0;
    BL_ENTER(bl_module_context(module));
    for (int64_t i = 0; i < belay_module_n_parameters(module); i++)
        n += belay_tensor_n_elements(belay_module_parameter(module, i));
    return n;
}

void belay_module_grads_clear(belay_module *module)
{
    BL_ENTER(bl_module_context(module));
    for (int64_t i = 0; i < belay_module_n_parameters(module); i++)
        belay_tensor_grad_clear(belay_module_parameter(module, i));
}

/* ---- what makers share */

bool bl_module_needs(belay_context *context, const char *maker, const char *field, int64_t value)
{
    if (value >= 1)
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE, "%s of %s is %" PRId64 ": it must be at least 1", field, maker, value);
    return false;
}

bool bl_module_counts(belay_context *context, const char *maker, const char *field, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE, "%s of %s is %" PRId64 ", outside [1, %" PRId64 "]", field, maker,
                     value, most);
    return false;
}

bool bl_module_chance(belay_context *context, const char *maker, double p)
{
    if (p >= 0 && p < 1)
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE, "dropout of %s is %g, outside [0, 1)", maker, bl_text_real(p));
    return false;
}
