/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of structural ops: views, moves, products. */
#include <string.h>

#include "grad/tape.h"

/* reshape, contiguous: the same elements in the input's shape. */
void bl_grad_reshape(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    grad_in[0] = bl_launch_reshape(context, node->grad[0], &node->in[0].shape);
}

void bl_grad_cast(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    grad_in[0] = bl_launch_cast(context, node->grad[0], node->in[0].dtype);
}

/* params.i[0], i[1] = the axes. */
void bl_grad_transpose(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    grad_in[0] = bl_view_transpose(context, node->grad[0], (int)node->params.i[0], (int)node->params.i[1]);
}

/* params.i = the axes: put back where they came from. */
void bl_grad_permute(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    int64_t back[BELAY_MAX_RANK] = {0};
    for (int i = 0; i < node->in[0].shape.rank; i++)
        back[node->params.i[i]] = i;
    grad_in[0] = bl_view_permute(context, node->grad[0], back);
}

/* expand: adds up what was repeated. */
void bl_grad_expand(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    grad_in[0] = bl_launch_sum_to(context, node->grad[0], &node->in[0].shape);
}

/* Zeros in the input's shape with `part` written over a slice of axis i[0]: i[1] = start, i[2] = stop, i[3] = step. */
void bl_grad_slice(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    const int64_t *i = node->params.i;
    belay_tensor whole = bl_launch_fill_like(context, node->grad[0], node->in[0].dtype, &node->in[0].shape, 0);
    belay_tensor place = bl_view_slice(context, whole, (int)i[0], i[1], i[2], i[3]);
    if (bl_launch_move(context, place, node->grad[0]))
        grad_in[0] = whole;
}

/* The same for one index along axis i[0]: i[1]. */
void bl_grad_select(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    belay_tensor whole = bl_launch_fill_like(context, node->grad[0], node->in[0].dtype, &node->in[0].shape, 0);
    belay_tensor place = bl_view_select(context, whole, (int)node->params.i[0], node->params.i[1]);
    if (bl_launch_move(context, place, node->grad[0]))
        grad_in[0] = whole;
}

/* A corner of in[0] was replaced by in[1]. */
void bl_grad_put(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    belay_tensor g = node->grad[0];
    if (node->in[1].is_wanted)
        grad_in[1] = bl_view_corner(context, g, &node->in[1].shape);
    if (!node->in[0].is_wanted)
        return;
    belay_tensor rest = bl_launch_copy(context, g);
    belay_tensor none = bl_launch_fill_like(context, g, node->in[1].dtype, &node->in[1].shape, 0);
    if (!belay_tensor_is_nil(rest) && bl_launch_move(context, bl_view_corner(context, rest, &node->in[1].shape), none))
        grad_in[0] = rest;
}

/* Sources in[1] were added to in[0], seen as [i[0], i[1], i[2]], where in[2] points; node->op selects by the same
 * index. */
void bl_grad_add_by_index(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    belay_shape wide = belay_shape3(node->params.i[0], node->params.i[1], node->params.i[2]);
    grad_in[0] = node->grad[0];
    if (!node->in[1].is_wanted)
        return;
    bl_call call = {.context = context, .op = node->op, .n_in = 2, .policy = node->policy, .is_backward = true};
    call.in[0] = bl_launch_reshape(context, node->grad[0], &wide);
    call.in[1] = node->in[2].kept;
    call.site = node->site;
    call.layer = node->layer;
    if (bl_launch_run(&call))
        grad_in[1] = call.out[0];
}

/* params.i[0] = the axis: each input gets its slice. */
void bl_grad_cat(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    int axis = (int)node->params.i[0];
    int64_t start = 0;
    for (int k = 0; k < node->n_in; k++) {
        int64_t n = node->in[k].shape.size[axis];
        if (node->in[k].is_wanted)
            grad_in[k] = bl_view_slice(context, node->grad[0], axis, start, start + n, 1);
        start += n;
    }
}

/* One factor's gradient: a product of g and the other factor; what was broadcast over the batch is added up.
 * y = a b: g_a = g b^T, g_b = a^T g; for factors stored transposed the result is built transposed. */
static belay_tensor factor_gradient(belay_context *context, bl_node *node, int k)
{
    bool ta = node->params.i[0] != 0, tb = node->params.i[1] != 0;
    const belay_shape *sa = &node->factor[0], *sb = &node->factor[1];
    belay_shape result = {3, {sa->size[0] == 1 ? sb->size[0] : sa->size[0], sa->size[1 + ta], sb->size[2 - tb]}};
    belay_tensor g = bl_launch_reshape(context, node->grad[0], &result), a = node->in[0].kept, b = node->in[1].kept;
    bl_call call = {.context = context, .op = BL_OP_matmul, .n_in = 2, .is_backward = true};
    call.site = node->site;
    call.layer = node->layer;
    bool is_a = k == 0, is_transposed = is_a ? ta : tb;
    if (is_a) {
        call.in[0] = is_transposed ? b : g;
        call.in[1] = is_transposed ? g : b;
        call.params.i[0] = is_transposed && tb;
        call.params.i[1] = is_transposed || !tb;
    } else {
        call.in[0] = is_transposed ? g : a;
        call.in[1] = is_transposed ? a : g;
        call.params.i[0] = is_transposed || !ta;
        call.params.i[1] = is_transposed && ta;
    }
    if (!bl_launch_run(&call))
        return (belay_tensor){0};
    belay_tensor sum = bl_launch_sum_to(context, call.out[0], &node->factor[k]);
    belay_tensor seen = bl_launch_reshape(context, sum, &node->in[k].shape);
    bl_tensor_drop(context, call.out[0]); /* so that a leaf may take over the storage, which only `seen` holds then */
    bl_tensor_drop(context, sum);
    return seen;
}

void bl_grad_matmul(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    for (int k = 0; k < 2; k++)
        if (node->in[k].is_wanted)
            grad_in[k] = factor_gradient(context, node, k);
}
