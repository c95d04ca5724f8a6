/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: proves the windows, folds the leading axes into rows. */
#include <inttypes.h>
#include <string.h>

#include "op/slide.h"

/* A call as it was made: windows slide over the last n axes. */
typedef struct request {
    const char *name;
    int op, n_axes;
    belay_tensor x;
} request;

/* Padding above half of the kernel would leave windows without an element. */
static bool padding_is_legal(const bl_slides *all, int axis, const bl_slide *w)
{
    if (w->padding <= w->kernel / 2)
        return true;
    bl_prove_refuse(all->context, BELAY_CONF_VALUE, all->op, all->given, all->n_given,
                    "padding of %s along axis %d is %" PRId64 ", above half of its kernel of %" PRId64, all->op, axis,
                    w->padding, w->kernel);
    return false;
}

/* The windows of both axes, of which a pool over one has only the second, as the kernel's options; and the sizes that
 * the call's symbols R, H, W, Y, X have. */
static bool read_windows(belay_context *context, const request *r, const belay_pool_options *o, bl_call *call)
{
    const bl_given given = {"x", r->x};
    const bl_slides all = {context, r->name, &given, 1};
    belay_shape shape = belay_tensor_shape(r->x);
    int64_t positions[2] = {1, 1}, size[2] = {1, 1};
    for (int k = 0; k < r->n_axes; k++) {
        int axis = shape.rank - r->n_axes + k, to = 2 - r->n_axes + k;
        bl_slide w = {.kernel = o->kernel[k],
                      .stride = o->stride[k] != 0 ? o->stride[k] : o->kernel[k],
                      .padding = o->padding[k],
                      .dilation = 1};
        size[to] = shape.size[axis];
        if (!bl_slide_positions(&all, axis, size[to], &w, &positions[to]) || !padding_is_legal(&all, axis, &w))
            return false;
        call->params.i[to] = w.kernel;
        call->params.i[2 + to] = w.stride;
        call->params.i[4 + to] = w.padding;
    }
    call->params.i[6] = o->exclude_pad;
    belay_shape folded;
    if (!bl_op_fold(context, &shape, shape.rank - r->n_axes, shape.rank, &folded))
        return false;
    const int64_t dims[] = {folded.size[0], size[0], size[1], positions[0], positions[1]};
    memcpy(call->dims, dims, sizeof dims);
    return true;
}

/* Windows over padding alone: there are images, which have no elements. */
static bool is_window_empty(const belay_shape *shape, int n_axes)
{
    for (int i = 0; i < shape->rank - n_axes; i++)
        if (shape->size[i] == 0)
            return false;
    return true;
}

static belay_tensor run(const request *r, const belay_pool_options *options, belay_tensor *indices)
{
    static const belay_pool_options none = {{0}, {0}, {0}, false};
    belay_context *context = bl_tensor_context(r->x);
    bl_call call = {
        .context = context, .op = r->op, .as = r->name, .n_in = 1, .shown = {r->x}, .has_dims = true, .dims_of = r->op};
    if (indices != NULL)
        *indices = (belay_tensor){0};
    if (context == NULL || bl_slot_use(context, r->x) == NULL)
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(r->x);
    if (shape.rank < r->n_axes) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, r->name, &(bl_given){"x", r->x}, 1,
                        "%s takes x with at least %d axes, not %d", r->name, r->n_axes, shape.rank);
        return (belay_tensor){0};
    }
    if (r->op == BL_OP_max_pool && belay_tensor_n_elements(r->x) == 0 && is_window_empty(&shape, r->n_axes)) {
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, r->name, &(bl_given){"x", r->x}, 1,
                        "%s over no elements: there is no largest one", r->name);
        return (belay_tensor){0};
    }
    if (!read_windows(context, r, options != NULL ? options : &none, &call))
        return (belay_tensor){0};
    belay_shape rows = belay_shape3(call.dims[0], call.dims[1], call.dims[2]);
    for (int k = 0; k < r->n_axes; k++)
        shape.size[shape.rank - r->n_axes + k] = call.dims[5 - r->n_axes + k];
    call.in[0] = bl_op_reshape(context, r->x, &rows);
    belay_tensor y = bl_op_reshape(context, bl_op_run(&call), &shape);
    if (indices != NULL && !belay_tensor_is_nil(y))
        *indices = bl_launch_reshape(context, call.out[1], &shape);
    return y;
}

belay_tensor belay_max_pool1d(belay_tensor x, const belay_pool_options *options, belay_tensor *indices)
{
    BL_ENTER(bl_tensor_context(x));
    return run(&(request){"max_pool1d", BL_OP_max_pool, 1, x}, options, indices);
}

belay_tensor belay_max_pool2d(belay_tensor x, const belay_pool_options *options, belay_tensor *indices)
{
    BL_ENTER(bl_tensor_context(x));
    return run(&(request){"max_pool2d", BL_OP_max_pool, 2, x}, options, indices);
}

belay_tensor belay_avg_pool1d(belay_tensor x, const belay_pool_options *options)
{
    BL_ENTER(bl_tensor_context(x));
    return run(&(request){"avg_pool1d", BL_OP_avg_pool, 1, x}, options, NULL);
}

belay_tensor belay_avg_pool2d(belay_tensor x, const belay_pool_options *options)
{
    BL_ENTER(bl_tensor_context(x));
    return run(&(request){"avg_pool2d", BL_OP_avg_pool, 2, x}, options, NULL);
}
