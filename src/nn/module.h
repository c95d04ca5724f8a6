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
    belay_context *context; /* NULL: the nil module */
    const belay_module_kind *kind;
    belay_module *parent;
    char *name; /* as the parent registered it; NULL: a root */
    char *path; /* from the root; NULL: a root */
    bool is_training;
    bool is_broken; /* a part of it or below it is missing */
    bl_module_entries parameters, buffers;
    belay_module **child;
    int64_t n_children, children_capacity;
    void *self;
};

/* The module that every maker returns after a fault. */
belay_module *bl_module_nil(void);

/* False after conf.value: `maker` needs `field` to be at least 1. */
bool bl_module_needs(belay_context *context, const char *maker, const char *field, int64_t value);
/* False after conf.value: a chance to drop lies in [0, 1). */
bool bl_module_chance(belay_context *context, const char *maker, double p);

/* The module, or, when a part of it is missing, the nil one in its place. */
belay_module *bl_module_whole(belay_module *module);

#endif
