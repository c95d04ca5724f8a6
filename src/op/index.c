/* SPDX-License-Identifier: Apache-2.0 */
/* Ops with data-dependent indices.  A tensor is seen as [outer, selected, inner] around the axis that is selected from;
 * indices are tested in the kernel. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "op/op.h"

static belay_index_policy policy_of(const belay_index_options *options)
{
    return options != NULL ? options->policy : BELAY_INDEX_DEFAULT;
}

/* Float ids made whole, each of them checked: num.cast, which no index policy changes. */
static belay_tensor cast_ids(belay_context *context, belay_tensor ids, belay_tensor flat)
{
    bl_call call = {.context = context, .op = BL_OP_cast_ids, .n_in = 1, .in = {flat}, .shown = {ids}};
    call.policy = BELAY_INDEX_RAISE;
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

static bool padding_is_a_row(belay_context *context, const belay_embedding_options *o, const belay_shape *table)
{
    if (o == NULL || !o->has_padding || table->rank != 2 || (o->padding >= 0 && o->padding < table->size[0]))
        return true;
    bl_prove_refuse(context, BELAY_CONF_VALUE, "embedding", NULL, 0, "padding is %" PRId64 ", outside [0, %" PRId64 ")",
                    o->padding, table->size[0]);
    return false;
}

belay_tensor belay_embedding(belay_tensor weight, belay_tensor ids, const belay_embedding_options *options)
{
    const belay_tensor in[] = {weight, ids};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, weight) == NULL || !bl_op_is_here(context, "ids", ids))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(ids), flat = belay_shape1(belay_tensor_n_elements(ids));
    belay_shape table = belay_tensor_shape(weight);
    if (!padding_is_a_row(context, options, &table))
        return (belay_tensor){0};
    if (shape.rank == BELAY_MAX_RANK) {
        const bl_given given[] = {{"weight", weight}, {"ids", ids}};
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "embedding", given, 2,
                        "ids have %d axes: the result would have one more than the most", shape.rank);
        return (belay_tensor){0};
    }
    belay_tensor list = bl_launch_reshape(context, ids, &flat);
    if (options != NULL && options->cast_ids && belay_dtype_is_float(belay_tensor_dtype(ids)))
        list = cast_ids(context, ids, list);
    bl_call call = {.context = context,
                    .op = BL_OP_embedding,
                    .n_in = 2,
                    .in = {bl_op_contiguous(context, weight), list},
                    .shown = {weight, ids},
                    .policy = options != NULL ? options->policy : BELAY_INDEX_DEFAULT};
    call.params.i[0] = options != NULL && options->has_padding ? options->padding : -1;
    belay_tensor rows = bl_op_run(&call);
    shape.size[shape.rank++] = table.size[1];
    return bl_op_reshape(context, rows, &shape);
}

/* [outer, selected, inner]; of entries without elements one outer one is enough for the ids to be tested. */
static bool fold_around(belay_context *context, const belay_shape *shape, int axis, belay_shape *folded)
{
    if (!bl_op_fold(context, shape, axis, axis + 1, folded))
        return false;
    if (folded->size[2] == 0 && folded->size[0] > 1)
        folded->size[0] = 1;
    return true;
}

/* ---- selecting ------------------------------------------------------------------------------------------------------- */

belay_tensor belay_index_select(belay_tensor x, int axis, belay_tensor ids, const belay_index_options *options)
{
    const belay_tensor in[] = {x, ids};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    if (context == NULL || belay_tensor_is_nil(x) || !bl_op_is_here(context, "ids", ids))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), folded;
    axis = bl_view_axis(context, "index_select", x, axis);
    if (axis < 0 || !fold_around(context, &shape, axis, &folded))
        return (belay_tensor){0};
    bl_call call = {.context = context,
                    .op = BL_OP_index_select,
                    .n_in = 2,
                    .in = {bl_op_reshape(context, x, &folded), bl_launch_contiguous(context, ids)},
                    .shown = {x, ids},
                    .policy = policy_of(options)};
    shape.size[axis] = belay_tensor_n_elements(ids);
    return bl_op_reshape(context, bl_op_run(&call), &shape);
}

/* The first sizes->size[i] of every axis but one of x, recorded. */
static belay_tensor corner(belay_context *context, belay_tensor x, const belay_shape *sizes, int but)
{
    for (int i = 0; i < sizes->rank && !belay_tensor_is_nil(x); i++)
        if (i != but && sizes->size[i] != belay_tensor_shape(x).size[i])
            x = belay_slice(x, i, 0, sizes->size[i], 1);
    return belay_tensor_is_nil(x) ? x : bl_op_contiguous(context, x);
}

/* The index, given[1], has the axes of given[which] and, but along `axis` (-1: there too), no larger sizes. */
static bool index_fits(belay_context *context, const char *op, const bl_given *given, int n, int which, int axis)
{
    belay_shape has = belay_tensor_shape(given[which].tensor), wants = belay_tensor_shape(given[1].tensor);
    bool fits = has.rank == wants.rank;
    for (int i = 0; i < has.rank && fits; i++)
        fits = i == axis || wants.size[i] <= has.size[i];
    if (fits)
        return true;
    bl_text words[2] = {{0}, {0}};
    bl_report_shape(&wants, &words[0]);
    bl_report_shape(&has, &words[1]);
    bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, op, given, n, "index %s reaches past %s %s", bl_text_get(&words[0]),
                    given[which].role, bl_text_get(&words[1]));
    bl_text_fini(&words[0]);
    bl_text_fini(&words[1]);
    return false;
}

belay_tensor belay_gather(belay_tensor x, int axis, belay_tensor index, const belay_index_options *options)
{
    const belay_tensor in[] = {x, index};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    if (context == NULL || belay_tensor_is_nil(x) || !bl_op_is_here(context, "index", index))
        return (belay_tensor){0};
    axis = bl_view_axis(context, "gather", x, axis);
    const bl_given given[] = {{"x", x}, {"index", index}};
    if (axis < 0 || !index_fits(context, "gather", given, 2, 0, axis))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(index), folded[2];
    belay_tensor from = corner(context, x, &shape, axis);
    belay_shape cut = belay_tensor_shape(from);
    if (belay_tensor_is_nil(from) || !bl_op_fold(context, &cut, axis, axis + 1, &folded[0]) ||
        !bl_op_fold(context, &shape, axis, axis + 1, &folded[1]))
        return (belay_tensor){0};
    bl_call call = {.context = context,
                    .op = BL_OP_gather,
                    .n_in = 2,
                    .in = {bl_op_reshape(context, from, &folded[0]), bl_launch_reshape(context, index, &folded[1])},
                    .shown = {x, index},
                    .policy = policy_of(options)};
    return bl_op_reshape(context, bl_op_run(&call), &shape);
}

/* The shape that n indices are broadcast to together; false after a fault. */
static bool common_shape(belay_context *context, belay_tensor x, const belay_tensor *indices, int n, belay_shape *out)
{
    *out = (belay_shape){0};
    for (int k = 0; k < n; k++) {
        belay_shape s = belay_tensor_shape(indices[k]), merged = {.rank = s.rank > out->rank ? s.rank : out->rank};
        for (int i = 0; i < merged.rank; i++) {
            int a = i - (merged.rank - out->rank), b = i - (merged.rank - s.rank);
            int64_t na = a >= 0 ? out->size[a] : 1, nb = b >= 0 ? s.size[b] : 1;
            if (na != nb && na != 1 && nb != 1) {
                char role[24];
                snprintf(role, sizeof role, "index %d", k);
                const bl_given given[] = {{"x", x}, {"index 0", indices[0]}, {role, indices[k]}};
                bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "index", given, 3,
                                "index %d does not broadcast with those before it: %" PRId64 " against %" PRId64, k, nb,
                                na);
                return false;
            }
            merged.size[i] = na == 1 ? nb : na;
        }
        *out = merged;
    }
    return true;
}

static bool indices_are_here(belay_context *context, belay_tensor x, const belay_tensor *indices, int n)
{
    int rank = belay_tensor_shape(x).rank;
    if (n < 1 || n > BELAY_MAX_INDICES || n > rank) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "index", &(bl_given){"x", x}, 1,
                        "%d indices into a tensor with %d axes: from 1 to %d are taken", n, rank,
                        rank < BELAY_MAX_INDICES ? rank : BELAY_MAX_INDICES);
        return false;
    }
    for (int k = 0; k < n; k++)
        if (!bl_op_is_here(context, "an index", indices[k]))
            return false;
    return true;
}

belay_tensor belay_index(belay_tensor x, const belay_tensor *indices, int n, const belay_index_options *options)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), result, folded;
    n = indices != NULL ? n : 0;
    if (!indices_are_here(context, x, indices, n) || !common_shape(context, x, indices, n, &result) ||
        !bl_op_fold(context, &shape, n, shape.rank, &folded))
        return (belay_tensor){0};
    if (result.rank + shape.rank - n > BELAY_MAX_RANK) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "index", &(bl_given){"x", x}, 1,
                        "the result would have %d axes: the most are %d", result.rank + shape.rank - n, BELAY_MAX_RANK);
        return (belay_tensor){0};
    }
    folded.rank = 2;
    bl_call call = {.context = context, .op = BL_OP_index, .n_in = 1 + BELAY_MAX_INDICES, .policy = policy_of(options)};
    call.in[0] = bl_op_reshape(context, x, &folded);
    call.shown[0] = x;
    call.params.i[6] = n;
    for (int k = 0; k < n; k++) {
        call.shown[1 + k] = bl_view_expand(context, indices[k], &result);
        belay_shape flat = belay_shape1(belay_tensor_n_elements(call.shown[1 + k]));
        call.in[1 + k] = bl_launch_reshape(context, call.shown[1 + k], &flat);
        call.params.i[k] = shape.size[k];
        if (belay_tensor_is_nil(call.in[1 + k]))
            return (belay_tensor){0};
    }
    for (int i = n; i < shape.rank; i++)
        result.size[result.rank++] = shape.size[i];
    return bl_op_reshape(context, bl_op_run(&call), &result);
}

/* ---- adding by index ------------------------------------------------------------------------------------------------- */

/* A copy of x with sources added where the index says. */
static belay_tensor add_by_index(belay_context *context, int op, belay_tensor x, int axis, belay_tensor index,
                                 belay_tensor src, const belay_tensor shown[3], belay_index_policy policy)
{
    belay_shape shape = belay_tensor_shape(x), wide, given = belay_tensor_shape(src), narrow;
    belay_shape flat = belay_shape1(belay_tensor_n_elements(index));
    if (!fold_around(context, &shape, axis, &wide) || !fold_around(context, &given, axis, &narrow))
        return (belay_tensor){0};
    if (op == BL_OP_scatter_add)
        flat = narrow;
    belay_tensor whole = bl_launch_copy(context, x), part = bl_op_reshape(context, src, &narrow);
    bl_call call = {.context = context,
                    .op = op,
                    .n_in = 2,
                    .in = {part, bl_launch_reshape(context, index, &flat)},
                    .shown = {shown[0], shown[1], shown[2]},
                    .into = bl_launch_reshape(context, whole, &wide),
                    .has_dims = true,
                    .dims_of = op,
                    .dims = {wide.size[0], narrow.size[1], wide.size[2], wide.size[1]},
                    .policy = policy};
    call.params.i[7] = 1;
    if (belay_tensor_is_nil(call.into) || !bl_launch_run(&call))
        return (belay_tensor){0};
    const belay_tensor in[] = {x, part, call.in[1]};
    if (!bl_grad_is_wanted(context, in, 2))
        return whole;
    bl_node *node = bl_grad_record(context, bl_grad_add_by_index, in, 3, &whole, 1);
    if (node == NULL)
        return whole;
    node->op = op == BL_OP_scatter_add ? BL_OP_gather : BL_OP_index_select;
    node->policy = policy;
    for (int i = 0; i < 3; i++)
        node->params.i[i] = wide.size[i];
    if (node->in[1].is_wanted) /* else no gradient reads it */
        node->in[2].kept = bl_tensor_hold(context, call.in[1]);
    return whole;
}

belay_tensor belay_scatter_add(belay_tensor x, int axis, belay_tensor index, belay_tensor src,
                               const belay_index_options *options)
{
    const belay_tensor in[] = {x, index, src}, shown[] = {src, index, x};
    belay_context *context = bl_op_context(in, 3);
    BL_ENTER(context);
    if (context == NULL || belay_tensor_is_nil(x) || !bl_op_is_here(context, "index", index) ||
        !bl_op_is_here(context, "src", src))
        return (belay_tensor){0};
    axis = bl_view_axis(context, "scatter_add", x, axis);
    const bl_given given[] = {{"x", x}, {"index", index}, {"src", src}};
    if (axis < 0 || !index_fits(context, "scatter_add", given, 3, 0, axis) ||
        !index_fits(context, "scatter_add", given, 3, 2, -1))
        return (belay_tensor){0};
    belay_shape sizes = belay_tensor_shape(index);
    belay_tensor at[] = {x, index, src};
    if (!bl_op_autocast(context, BL_OP_add, at, 3) ||
        !bl_op_meet(context, "scatter_add", (const char *const[]){"x", "index", "src"}, at, 3))
        return (belay_tensor){0};
    belay_tensor from = corner(context, at[2], &sizes, -1), to = corner(context, at[0], &sizes, axis);
    if (belay_tensor_is_nil(from) || belay_tensor_is_nil(to))
        return (belay_tensor){0};
    belay_tensor y = add_by_index(context, BL_OP_scatter_add, to, axis, at[1], from, shown, policy_of(options));
    return belay_tensor_n_elements(y) == belay_tensor_n_elements(x) ? y : bl_op_put(context, at[0], y);
}

/* src times alpha, which fits x; whole numbers wrap.  What cannot be added to x the addition refuses. */
static belay_tensor scaled(belay_context *context, belay_tensor x, belay_tensor src, double alpha)
{
    belay_dtype dtype = belay_tensor_dtype(src);
    if (alpha == 1 || dtype != belay_tensor_dtype(x) || dtype == BELAY_BOOL)
        return src;
    if (belay_dtype_is_float(dtype))
        return belay_affine(src, alpha, 0);
    const belay_shape scalar = belay_shape0();
    bl_call call = {.context = context,
                    .op = BL_OP_mul,
                    .as = "index_add",
                    .n_in = 2,
                    .in = {src, bl_launch_fill_like(context, src, dtype, &scalar, alpha)}};
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

/* Whether alpha has a value in the arithmetic of x; says what is wrong. */
static bool alpha_fits(belay_context *context, const bl_given *given, double alpha)
{
    const double most = 0x1p53;
    if (belay_dtype_is_float(belay_tensor_dtype(given[0].tensor)))
        return bl_op_is_real(context, "index_add", given, 3, "alpha", alpha);
    if (!bl_op_is_number(context, "index_add", given, 3, "alpha", alpha, -most, most))
        return false;
    if (floor(alpha) != alpha)
        bl_prove_refuse(context, BELAY_CONF_VALUE, "index_add", given, 3, "alpha of index_add is %g: of %s it is whole",
                        alpha, belay_dtype_name(belay_tensor_dtype(given[0].tensor)));
    return floor(alpha) == alpha;
}

belay_tensor belay_index_add(belay_tensor x, int axis, belay_tensor ids, belay_tensor src, double alpha,
                             const belay_index_options *options)
{
    const belay_tensor in[] = {x, ids, src}, shown[] = {src, ids, x};
    belay_context *context = bl_op_context(in, 3);
    BL_ENTER(context);
    if (context == NULL || belay_tensor_is_nil(x) || !bl_op_is_here(context, "ids", ids) ||
        !bl_op_is_here(context, "src", src))
        return (belay_tensor){0};
    axis = bl_view_axis(context, "index_add", x, axis);
    if (axis < 0)
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), has = belay_tensor_shape(src);
    bool fits = has.rank == shape.rank && has.size[axis] == belay_tensor_n_elements(ids);
    for (int i = 0; i < shape.rank && fits; i++)
        fits = i == axis || has.size[i] == shape.size[i];
    if (!fits) {
        bl_text words[2] = {{0}, {0}};
        bl_report_shape(&has, &words[0]);
        bl_report_shape(&shape, &words[1]);
        const bl_given given[] = {{"x", x}, {"ids", ids}, {"src", src}};
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "index_add", given, 3,
                        "src %s added to x %s by %" PRId64 " ids along axis %d: the sizes differ",
                        bl_text_get(&words[0]), bl_text_get(&words[1]), belay_tensor_n_elements(ids), axis);
        bl_text_fini(&words[0]);
        bl_text_fini(&words[1]);
        return (belay_tensor){0};
    }
    belay_tensor at[] = {x, ids, src};
    if (!alpha_fits(context, (bl_given[]){{"x", x}, {"ids", ids}, {"src", src}}, alpha) ||
        !bl_op_autocast(context, BL_OP_add, at, 3) ||
        !bl_op_meet(context, "index_add", (const char *const[]){"x", "ids", "src"}, at, 3))
        return (belay_tensor){0};
    belay_tensor from = scaled(context, at[0], at[2], alpha);
    return belay_tensor_is_nil(from)
               ? from
               : add_by_index(context, BL_OP_index_add, at[0], axis, at[1], from, shown, policy_of(options));
}
