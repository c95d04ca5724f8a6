/* SPDX-License-Identifier: Apache-2.0 */
/* What a module is inside: a node of a tree that owns tensors.  Paths are dotted from the root and kept in each entry,
 * so that a name from any module of the tree is the tail of one text. */
#ifndef BL_NN_MODULE_H
#define BL_NN_MODULE_H

#include <belay/nn.h>

#include "tensor/context.h"

typedef struct bl_module_entry {
    char *name; /* in its module */
    char *path; /* from the root */
    belay_tensor tensor;
} bl_module_entry;

typedef struct bl_module_entries {
    bl_module_entry *entry;
    int64_t n, capacity;
} bl_module_entries;

struct belay_module {
    bl_grave grave;         /* once it was freed */
    belay_context *context; /* NULL: the nil module */
    const belay_module_kind *kind;
    belay_module *parent;
    char *name; /* as the parent registered it; NULL: a root */
    char *path; /* from the root; NULL: a root */
    bool is_training;
    bool is_broken;    /* a part of it or below it is missing */
    bool is_freed;     /* nothing but its name is left */
    int n_uses;        /* calls that work with it and have not ended */
    const char *owner; /* what else it belongs to, "the run '...'"; NULL: nothing */
    bl_module_entries parameters, buffers;
    belay_module **child;
    int64_t n_children, children_capacity;
    void *self;
};

/* Makes and adds a child of a module that is whole; else a part is missing already, and nothing is made.  A child with a
 * part missing goes at once. */
#define BL_MODULE_ADD(module, name, make)                                                                              \
    (belay_module_is_nil(module) ? bl_module_nil() : belay_module_add_child((module), (name), bl_module_whole(make)))

/* The module that every maker returns after a fault. */
belay_module *bl_module_nil(void);

/* False after conf.value: `maker` needs `field` to be at least 1. */
bool bl_module_needs(belay_context *context, const char *maker, const char *field, int64_t value);
/* False after conf.value: how many parts `field` counts, at least 1. */
bool bl_module_counts(belay_context *context, const char *maker, const char *field, int64_t value, int64_t most);
/* False after conf.value: a chance to drop lies in [0, 1). */
bool bl_module_chance(belay_context *context, const char *maker, double p);

static inline belay_context *bl_module_context(const belay_module *module)
{
    return module != NULL ? bl_context_here(module->context) : NULL;
}
/* The context of a module that may be used; NULL for a nil one, and after life.stale for one that was freed. */
belay_context *bl_module_use(const belay_module *module);

/* While a call works with a module, the tree that it is in is not freed (conf.order). */
void bl_module_hold(belay_module *module);
void bl_module_release(belay_module *module);
/* The first module of the subtree that a call works with, or NULL. */
const belay_module *bl_module_held(const belay_module *module);

/* Where the module's first parameter or buffer lies; the current place when it has none. */
int bl_module_place(const belay_module *module);

/* Around a forward: the layer path, the depth, the hold.  False after size.overflow. */
bool bl_module_begin(belay_module *module, size_t *length);
void bl_module_end(belay_module *module, size_t length);

/* From now on the module goes with `owner`, whose words live as long, and with nothing else; NULL ends it. */
void bl_module_belong(belay_module *module, const char *owner);

/* The module, or, when a part of it is missing, the nil one in its place. */
belay_module *bl_module_whole(belay_module *module);

#endif
