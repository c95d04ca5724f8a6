/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products.  The kernel takes [batch, rows, columns]; a factor that is a transposed view goes as it is stored.
 */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "op/op.h"

/* Runs a product of two factors of three axes, which are views of `of` with the same elements, and sees the result in
 * `shape`.  One record covers all of it: from `of` to the result. */
static belay_tensor product(bl_call *call, const belay_tensor of[2], const belay_shape *shape)
{
    belay_context *context = call->context;
    call->op = BL_OP_matmul;
    call->n_in = 2;
    if (!bl_launch_run(call))
        return (belay_tensor){0};
    belay_tensor y = bl_launch_reshape(context, call->out[0], shape);
    if (belay_tensor_is_nil(y) || !bl_grad_is_wanted(context, of, 2))
        return y;
    bl_node *node = bl_grad_record(context, bl_grad_matmul, of, 2, &y, 1);
    if (node == NULL)
        return y;
    node->op = BL_OP_matmul;
    node->params = call->params;
    for (int k = 0; k < 2; k++) {
        node->factor[k] = belay_tensor_shape(call->in[k]);
        if (node->in[1 - k].is_wanted)
            node->in[k].kept = bl_tensor_hold(context, call->in[k]);
    }
    return y;
}

/* The product of the first n sizes of a tensor, which has perhaps no elements for another of them; false after
 * size.overflow. */
static bool count_of(belay_context *context, const belay_shape *shape, int n, int64_t *count)
{
    belay_shape folded;
    if (!bl_op_fold(context, shape, n, n, &folded))
        return false;
    *count = folded.size[0];
    return true;
}

/* What linear is given fits together; `given` is x, weight, bias. */
static bool linear_is_legal(belay_context *context, const belay_shape *x, const belay_shape *table,
                            const bl_given given[3])
{
    if (x->rank < 1 || table->rank != 2) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "linear", given, 3,
                        "linear takes [..., in] and a weight [out, in], not %d and %d axes", x->rank, table->rank);
        return false;
    }
    if (x->size[x->rank - 1] != table->size[1]) {
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "linear", given, 3,
                        "x has %" PRId64 " features where weight takes %" PRId64, x->size[x->rank - 1], table->size[1]);
        return false;
    }
    belay_dtype dtype = belay_tensor_dtype(given[0].tensor);
    const belay_shape out = belay_shape1(table->size[0]);
    return bl_op_takes_floats(context, "linear", given, 3) && bl_op_has_dtype(context, "linear", given, 3, 1, dtype) &&
           (belay_tensor_is_nil(given[2].tensor) ||
            (bl_op_is_here(context, "bias", given[2].tensor) && bl_op_has_shape(context, "linear", given, 3, 2, &out) &&
             bl_op_has_dtype(context, "linear", given, 3, 2, dtype)));
}

belay_tensor belay_linear(belay_tensor x, belay_tensor weight, belay_tensor bias)
{
    const belay_tensor in[] = {x, weight};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, x) == NULL || !bl_op_is_here(context, "weight", weight))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(x), table = belay_tensor_shape(weight);
    static const char *const role[] = {"x", "weight", "bias"};
    belay_tensor at[] = {x, weight, bias};
    if (!bl_op_autocast(context, BL_OP_matmul, at, 3) ||
        !linear_is_legal(context, &shape, &table, (bl_given[]){{"x", at[0]}, {"weight", at[1]}, {"bias", at[2]}}) ||
        !bl_op_meet(context, "linear", role, at, 3))
        return (belay_tensor){0};
    int64_t width = shape.size[shape.rank - 1], n;
    if (!count_of(context, &shape, shape.rank - 1, &n))
        return (belay_tensor){0};
    belay_shape rows = belay_shape3(1, n, width), matrix = belay_shape3(1, table.size[0], table.size[1]);
    bl_call call = {.context = context, .as = "linear", .role = role, .shown = {x, weight}};
    call.in[0] = bl_launch_reshape(context, at[0], &rows);
    call.in[1] = bl_launch_reshape(context, at[1], &matrix);
    call.params.i[1] = true; /* the weight is stored transposed */
    shape.size[shape.rank - 1] = table.size[0];
    belay_tensor y = product(&call, at, &shape);
    return belay_tensor_is_nil(bias) ? y : belay_add(y, at[2]);
}

/* A factor as [batch, rows, columns]: transposed views are passed as they are stored. */
static belay_tensor as_batch(belay_context *context, belay_tensor x, bool *transposed)
{
    const bl_slot *slot = bl_slot_get(context, x);
    belay_shape shape = bl_slot_shape(slot), folded = {3, {1, shape.size[shape.rank - 2], shape.size[shape.rank - 1]}};
    if (!count_of(context, &shape, shape.rank - 2, &folded.size[0]))
        return (belay_tensor){0};
    *transposed = !bl_slot_is_contiguous(slot) && slot->stride[shape.rank - 2] == 1;
    if (!*transposed)
        return bl_op_reshape(context, x, &folded);
    bl_params params = {.i = {shape.rank - 2, shape.rank - 1}};
    belay_tensor stored =
        bl_op_record_view(context, x, bl_view_transpose(context, x, -2, -1), bl_grad_transpose, &params);
    int64_t rows = folded.size[1];
    folded.size[1] = folded.size[2];
    folded.size[2] = rows;
    return bl_op_reshape(context, stored, &folded);
}

/* The leading axes that both factors are broadcast to; false after a fault. */
static bool leading_shape(belay_context *context, const char *name, belay_tensor a, belay_tensor b, belay_shape *out)
{
    belay_shape sa = belay_tensor_shape(a), sb = belay_tensor_shape(b);
    int ra = sa.rank - 2, rb = sb.rank - 2;
    *out = (belay_shape){.rank = ra > rb ? ra : rb};
    for (int i = 0; i < out->rank; i++) {
        int64_t na = i >= out->rank - ra ? sa.size[i - (out->rank - ra)] : 1;
        int64_t nb = i >= out->rank - rb ? sb.size[i - (out->rank - rb)] : 1;
        if (na != nb && na != 1 && nb != 1) {
            const bl_given given[] = {{"a", a}, {"b", b}};
            bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, name, given, 2,
                            "leading axes of a and b do not broadcast: %" PRId64 " against %" PRId64, na, nb);
            return false;
        }
        out->size[i] = na == 1 ? nb : na;
    }
    return true;
}

/* x with its leading axes expanded; one whole matrix for every batch stays one. */
static belay_tensor spread(belay_context *context, belay_tensor x, const belay_shape *leading)
{
    belay_shape shape = belay_tensor_shape(x), wide = *leading;
    int64_t own, all = -1; /* too many to count: expanding is refused */
    if (!count_of(context, &shape, shape.rank - 2, &own))
        return (belay_tensor){0};
    bool fits = bl_checked_product(leading->size, leading->rank, &all);
    if ((fits && own == all) || own == 1)
        return x;
    wide.size[wide.rank++] = shape.size[shape.rank - 2];
    wide.size[wide.rank++] = shape.size[shape.rank - 1];
    belay_tensor y = bl_op_record_view(context, x, bl_view_expand(context, x, &wide), bl_grad_expand, NULL);
    return belay_tensor_is_nil(y) ? y : bl_op_contiguous(context, y);
}

/* `name` is what was called. */
static belay_tensor multiply(belay_context *context, const char *name, belay_tensor a, belay_tensor b)
{
    if (context == NULL || bl_slot_use(context, a) == NULL || !bl_op_is_here(context, "b", b))
        return (belay_tensor){0};
    belay_shape sa = belay_tensor_shape(a), sb = belay_tensor_shape(b), result;
    if (sa.rank < 1 || sb.rank < 1) {
        const bl_given given[] = {{"a", a}, {"b", b}};
        bl_prove_refuse(context, BELAY_SHAPE_RANK, name, given, 2, "%s takes tensors of at least one axis", name);
        return (belay_tensor){0};
    }
    static const char *const role[] = {"a", "b"};
    belay_tensor at[] = {a, b};
    if (!bl_op_autocast(context, BL_OP_matmul, at, 2) || !bl_op_meet(context, name, role, at, 2))
        return (belay_tensor){0};
    bool a_vector = sa.rank == 1, b_vector = sb.rank == 1, ta, tb;
    belay_shape row = belay_shape2(1, sa.size[0]), column = belay_shape2(sb.size[0], 1);
    belay_tensor left = a_vector ? bl_op_reshape(context, at[0], &row) : at[0];
    belay_tensor right = b_vector ? bl_op_reshape(context, at[1], &column) : at[1];
    if (!leading_shape(context, name, left, right, &result))
        return (belay_tensor){0};
    left = spread(context, left, &result);
    right = spread(context, right, &result);
    if (belay_tensor_is_nil(left) || belay_tensor_is_nil(right))
        return (belay_tensor){0};
    left = as_batch(context, left, &ta);
    right = as_batch(context, right, &tb);
    if (belay_tensor_is_nil(left) || belay_tensor_is_nil(right))
        return (belay_tensor){0};
    if (!a_vector)
        result.size[result.rank++] = sa.size[sa.rank - 2];
    if (!b_vector)
        result.size[result.rank++] = sb.size[sb.rank - 1];
    bl_call call = {.context = context, .as = name, .in = {left, right}, .shown = {a, b}, .params = {.i = {ta, tb}}};
    return product(&call, call.in, &result);
}

belay_tensor belay_matmul(belay_tensor a, belay_tensor b)
{
    const belay_tensor in[] = {a, b};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    return multiply(context, "matmul", a, b);
}

belay_tensor belay_bmm(belay_tensor a, belay_tensor b)
{
    const belay_tensor in[] = {a, b};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, a) == NULL || !bl_op_is_here(context, "b", b))
        return (belay_tensor){0};
    const bl_given given[] = {{"a", a}, {"b", b}};
    belay_shape sa = belay_tensor_shape(a), sb = belay_tensor_shape(b);
    if (sa.rank != 3 || sb.rank != 3)
        bl_prove_refuse(context, BELAY_SHAPE_RANK, "bmm", given, 2,
                        "bmm takes [batch, rows, inner] and [batch, inner, columns], not %d and %d axes", sa.rank,
                        sb.rank);
    else if (sa.size[0] != sb.size[0])
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "bmm", given, 2,
                        "a is a batch of %" PRId64 ", b one of %" PRId64 ": bmm broadcasts nothing", sa.size[0],
                        sb.size[0]);
    else if (sa.size[2] != sb.size[1])
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "bmm", given, 2,
                        "inner sizes differ: a has %" PRId64 " columns, b has %" PRId64 " rows", sa.size[2],
                        sb.size[1]);
    else
        return multiply(context, "bmm", a, b);
    return (belay_tensor){0};
}
