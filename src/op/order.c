/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums, sorting and one-hot rows: each is a row op along an axis, which goes last and back. */
#include <inttypes.h>

#include "op/op.h"

/* x with the axis last, and as rows; false after a fault. */
typedef struct along {
    belay_context *context;
    int axis;
    bool is_scalar;    /* seen as one element of an axis */
    belay_shape shape; /* with the axis last */
    belay_tensor rows;
} along;

static bool go_along(along *a, const char *op, belay_tensor x, int axis)
{
    belay_shape folded;
    a->context = bl_tensor_context(x);
    a->is_scalar = belay_tensor_shape(x).rank == 0;
    a->axis = a->context != NULL ? bl_op_axis(a->context, op, &x, axis) : -1;
    belay_tensor last = a->axis >= 0 ? bl_op_axis_last(a->context, x, a->axis) : (belay_tensor){0};
    if (belay_tensor_is_nil(last))
        return false;
    a->shape = belay_tensor_shape(last);
    if (!bl_op_fold(a->context, &a->shape, a->shape.rank - 1, a->shape.rank, &folded))
        return false;
    folded = belay_shape2(folded.size[0], folded.size[1]);
    a->rows = bl_op_reshape(a->context, last, &folded);
    return !belay_tensor_is_nil(a->rows);
}

/* Rows of `width` where they came from. */
static belay_tensor come_back(const along *a, belay_tensor rows, int64_t width)
{
    belay_shape shape = a->shape;
    shape.size[shape.rank - 1] = width;
    if (a->is_scalar)
        shape.rank = 0;
    return bl_op_axis_back(a->context, bl_op_reshape(a->context, rows, &shape), a->axis);
}

belay_tensor belay_cumsum(belay_tensor x, int axis)
{
    along a;
    BL_ENTER(bl_tensor_context(x));
    if (!go_along(&a, "cumsum", x, axis))
        return (belay_tensor){0};
    a.rows = bl_op_whole(a.context, a.rows);
    bl_call call = {.context = a.context, .op = BL_OP_cumsum, .n_in = 1, .in = {a.rows}, .shown = {x}};
    return come_back(&a, bl_op_run(&call), a.shape.size[a.shape.rank - 1]);
}

/* The first *most in order; NULL: all. */
static belay_tensor sorted(const char *op, belay_tensor x, const int64_t *most, int axis, bool descending,
                           belay_tensor *indices)
{
    along a;
    if (indices != NULL)
        *indices = (belay_tensor){0};
    if (!go_along(&a, op, x, axis))
        return (belay_tensor){0};
    int64_t n = a.shape.size[a.shape.rank - 1], k = most != NULL ? *most : n;
    if (k < a.is_scalar || k > n) {
        bl_prove_refuse(a.context, BELAY_CONF_VALUE, op, &(bl_given){"x", x}, 1,
                        "k is %" PRId64 ", outside [%d, %" PRId64 "], the size of axis %d", k, a.is_scalar, n, a.axis);
        return (belay_tensor){0};
    }
    bl_call call = {.context = a.context, .op = BL_OP_sort, .n_in = 1, .in = {a.rows}, .shown = {x}};
    call.has_dims = true;
    call.dims_of = BL_OP_sort;
    call.dims[0] = belay_tensor_shape(a.rows).size[0];
    call.dims[1] = n;
    call.dims[2] = k;
    call.params.i[0] = descending;
    belay_tensor y = come_back(&a, bl_op_run(&call), k);
    if (indices != NULL && !belay_tensor_is_nil(y))
        *indices = come_back(&a, call.out[1], k);
    return y;
}

belay_tensor belay_sort(belay_tensor x, int axis, bool descending, belay_tensor *indices)
{
    BL_ENTER(bl_tensor_context(x));
    return sorted("sort", x, NULL, axis, descending, indices);
}

belay_tensor belay_argsort(belay_tensor x, int axis, bool descending)
{
    BL_ENTER(bl_tensor_context(x));
    belay_tensor indices;
    sorted("argsort", x, NULL, axis, descending, &indices);
    return indices;
}

belay_tensor belay_topk(belay_tensor x, int64_t k, int axis, bool smallest, belay_tensor *indices)
{
    BL_ENTER(bl_tensor_context(x));
    return sorted("topk", x, &k, axis, !smallest, indices);
}

belay_tensor belay_one_hot(belay_tensor ids, int64_t classes, const belay_index_options *options)
{
    belay_context *context = bl_tensor_context(ids);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, ids) == NULL)
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(ids), flat = belay_shape1(belay_tensor_n_elements(ids));
    if (classes < 1 || shape.rank == BELAY_MAX_RANK) {
        if (classes < 1)
            bl_prove_refuse(context, BELAY_CONF_VALUE, "one_hot", &(bl_given){"ids", ids}, 1,
                            "classes is %" PRId64 ", outside [1, inf)", classes);
        else
            bl_prove_refuse(context, BELAY_SHAPE_RANK, "one_hot", &(bl_given){"ids", ids}, 1,
                            "ids have %d axes: the result would have one more than the most", shape.rank);
        return (belay_tensor){0};
    }
    bl_call call = {.context = context,
                    .op = BL_OP_one_hot,
                    .n_in = 1,
                    .in = {bl_launch_reshape(context, ids, &flat)},
                    .shown = {ids},
                    .policy = options != NULL ? options->policy : BELAY_INDEX_DEFAULT};
    call.has_dims = true;
    call.dims_of = BL_OP_one_hot;
    call.dims[0] = flat.size[0];
    call.dims[1] = classes;
    shape.size[shape.rank++] = classes;
    return bl_op_reshape(context, bl_op_run(&call), &shape);
}
