/* SPDX-License-Identifier: Apache-2.0 */
/* The tape: what was done to tensors that want a gradient, in order.  It holds views of storages, never the user's
 * handles; a node's holdings are released when it has been walked, or when its scope closes. */
#ifndef BL_GRAD_TAPE_H
#define BL_GRAD_TAPE_H

#include <belay/grad.h>

#include "launch/launch.h"

/* Where the gradient of an input goes. */
typedef struct bl_edge {
    bool is_wanted;
    uint64_t node; /* 0: a leaf */
    int output;
    belay_tensor leaf; /* a handle, not a hold: a leaf that died takes no gradient */
    belay_tensor kept; /* held, or nil */
    int place;
    belay_shape shape;
    belay_dtype dtype;
} bl_edge;

typedef struct bl_node bl_node;

/* Computes gradients of inputs (nil: none) from node->grad; runs in a scope of its own, unrecorded. */
typedef void (*bl_grad_rule)(belay_context *context, bl_node *node, belay_tensor *grad_in);

struct bl_node {
    uint64_t serial;
    bl_grad_rule rule;
    int op; /* row, or BL_OP_none */
    bl_params params;
    belay_index_policy policy;
    uintptr_t site;
    uint32_t layer;
    int n_in, n_out;
    bl_edge *in; /* n_in, in `few` or on the heap */
    bl_edge few[4];
    belay_tensor kept_out[BL_MAX_OUT];
    belay_shape out_shape[BL_MAX_OUT];
    belay_dtype out_dtype[BL_MAX_OUT];
    belay_tensor grad[BL_MAX_OUT]; /* held; what has arrived */
    bl_grad_scale scale;           /* and of which loss scale it is */
    int64_t dims[8];               /* symbols of the row's signature */
    belay_shape factor[2];         /* matmul: of its factors as the kernel saw them */
    void *state;                   /* of the rule */
    void (*state_free)(belay_context *context, void *state);
    bool is_walked;
    bl_node *next; /* of those that leave the tape together */
};

/* Where the gradient of a leaf has to lie: a view of its shape and dtype that somebody keeps.  In the leaf's slot. */
typedef struct bl_grad_room {
    belay_tensor view;
    /* Something is about to arrive there.  False: it may not, which was told. */
    bool (*enter)(struct bl_grad_room *room);
    void *owner;
    int64_t number; /* of the leaf, as the owner counts */
} bl_grad_room;

/* Who follows walks back to know when gradients are whole.  A walk inside of a walk is part of the outer one. */
typedef struct bl_grad_watch {
    void (*begin)(void *state, uintptr_t site);
    /* Something may arrive at a leaf that has a room until the walk has passed node `at`; `at` only falls, so that for each
     * leaf the last call counts. */
    void (*reach)(void *state, const bl_grad_room *room, int64_t at);
    void (*start)(void *state);            /* all that is reached was told */
    void (*pass)(void *state, int64_t at); /* the walk is through with node `at` and all above */
    void (*end)(void *state);
    void *state;
    struct bl_grad_watch *next;
} bl_grad_watch;
void bl_grad_watch_add(belay_context *context, bl_grad_watch *watch);
void bl_grad_watch_remove(belay_context *context, bl_grad_watch *watch);

/* True when an op on these inputs must be recorded. */
bool bl_grad_is_wanted(const belay_context *context, const belay_tensor *in, int n_in);

/* Records an op; the outputs want gradients from now on.  NULL after mem.exhausted. */
bl_node *bl_grad_record(belay_context *context, bl_grad_rule rule, const belay_tensor *in, int n_in,
                        const belay_tensor *out, int n_out);

/* Records a call of a row that has run, with what its gradients need.  `in` are the recorded inputs. */
void bl_grad_record_call(const bl_call *call);

/* A gradient that is given lies at `home`, as what it is of does: from here on in place move, else false after
 * place.device. */
bool bl_grad_bring(belay_context *context, const char *op, int home, belay_tensor *grad);

/* Tells that what backward of `op` reads, which the tape holds, was written after the forward; once in full for a walk.
 * The shape is how the op knew it, NULL: as it is held. */
void bl_grad_refuse_written(belay_context *context, const char *op, const char *role, belay_tensor held,
                            const belay_shape *shape);

/* The gradient that a leaf behind input k has collected already, for a rule that adds to it in place (and then leaves
 * grad_in[k] nil); nil where there is none or it is not row-major.  The same for the backward of a function. */
belay_tensor bl_grad_collected(belay_context *context, const bl_node *node, int k);
belay_tensor bl_function_collected(const belay_function_call *call, int k);

/* Rules of structural ops; what params mean stands at each in structural.c. */
void bl_grad_reshape(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_cast(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_transpose(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_permute(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_select(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_slice(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_expand(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_put(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_add_by_index(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_cat(belay_context *context, bl_node *node, belay_tensor *grad_in);
void bl_grad_matmul(belay_context *context, bl_node *node, belay_tensor *grad_in);

/* Views that ops and rules share; none records, each proves its arguments (shape.axis). */
belay_tensor bl_view_transpose(belay_context *context, belay_tensor x, int a, int b);
belay_tensor bl_view_slice(belay_context *context, belay_tensor x, int axis, int64_t start, int64_t stop, int64_t step);
/* Axis i of the result is axis axes[i] of x; each of them once, from 0. */
belay_tensor bl_view_permute(belay_context *context, belay_tensor x, const int64_t *axes);
/* Index along an axis (from 0), which goes away. */
belay_tensor bl_view_select(belay_context *context, belay_tensor x, int axis, int64_t index);
/* The first sizes->size[i] along every axis. */
belay_tensor bl_view_corner(belay_context *context, belay_tensor x, const belay_shape *sizes);
belay_tensor bl_view_expand(belay_context *context, belay_tensor x, const belay_shape *shape);
/* An axis of what `op` was given, counted from the end when negative; -1 after a fault. */
int bl_view_axis(belay_context *context, const char *op, belay_tensor x, int axis);

#endif
