/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's public call: proves that q, k and v fit together, folds their leading axes into heads. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "op/op.h"

static bool ranks_fit(belay_context *context, const bl_given given[3], const belay_shape shape[3])
{
    int rank = shape[0].rank;
    if (rank >= 2 && shape[1].rank == rank && shape[2].rank == rank)
        return true;
    bl_prove_refuse(context, BELAY_SHAPE_RANK, "attention", given, 3,
                    "attention takes q, k and v of [..., time, width], not of %d, %d and %d axes", rank, shape[1].rank,
                    shape[2].rank);
    return false;
}

/* Leading axes are the same; k has q's width, v as many rows as k. */
static bool shapes_fit(belay_context *context, const bl_given given[3], const belay_shape shape[3])
{
    int rank = shape[0].rank;
    belay_shape k = shape[0], v = shape[2];
    k.size[rank - 2] = shape[1].size[rank - 2];
    memcpy(v.size, k.size, (size_t)(rank - 1) * sizeof v.size[0]);
    return bl_op_has_shape(context, "attention", given, 3, 1, &k) &&
           bl_op_has_shape(context, "attention", given, 3, 2, &v);
}

static bool is_legal(belay_context *context, const bl_given given[3], const belay_shape shape[3], double scale,
                     double dropout)
{
    belay_dtype dtype = belay_tensor_dtype(given[0].tensor);
    const double most = bl_op_largest(dtype);
    if (!(dropout >= 0 && dropout < 1)) {
        bl_prove_refuse(context, BELAY_CONF_VALUE, "attention", given, 3, "dropout of attention is %g, outside [0, 1)",
                        bl_text_real(dropout));
        return false;
    }
    return bl_op_is_number(context, "attention", given, 3, "scale", scale, -most, most) &&
           ranks_fit(context, given, shape) && shapes_fit(context, given, shape) &&
           bl_op_has_dtype(context, "attention", given, 3, 1, dtype) &&
           bl_op_has_dtype(context, "attention", given, 3, 2, dtype);
}

/* [..., time, width] as [heads, time, width]; without heads where all is empty anyway. */
static belay_tensor fold(belay_context *context, belay_tensor x, const belay_shape *shape, bool is_empty)
{
    belay_shape folded;
    if (!bl_op_fold(context, shape, shape->rank - 2, shape->rank - 1, &folded))
        return (belay_tensor){0};
    if (is_empty)
        folded.size[0] = 0;
    return bl_op_reshape(context, x, &folded);
}

/* Those that dropout draws for: [heads, rows, keys], none where a matrix is larger than memory (it is refused then). */
static int64_t n_probabilities(const belay_shape shape[3])
{
    int rank = shape[0].rank;
    int64_t n = shape[1].size[rank - 2];
    for (int axis = 0; axis < rank - 1; axis++)
        if (!bl_checked_mul(n, shape[0].size[axis], &n))
            return 0;
    return n;
}

belay_tensor belay_attention(belay_tensor q, belay_tensor k, belay_tensor v, const belay_attention_options *options)
{
    belay_tensor in[] = {q, k, v};
    belay_context *context = bl_op_context(in, 3);
    BL_ENTER(context);
    if (context == NULL || !bl_op_is_here(context, "q", q) || !bl_op_is_here(context, "k", k) ||
        !bl_op_is_here(context, "v", v) || !bl_op_autocast(context, BL_OP_attention, in, 3))
        return (belay_tensor){0};
    const bl_given given[] = {{"q", in[0]}, {"k", in[1]}, {"v", in[2]}};
    const belay_shape shape[] = {belay_tensor_shape(q), belay_tensor_shape(k), belay_tensor_shape(v)};
    double scale = options != NULL ? options->scale : 0;
    double dropout = options != NULL ? options->dropout : 0;
    if (!is_legal(context, given, shape, scale, dropout))
        return (belay_tensor){0};
    int rank = shape[0].rank;
    bl_call call = {.context = context, .op = BL_OP_attention, .n_in = 3, .shown = {q, k, v}};
    bool is_empty = shape[0].size[rank - 2] == 0 || shape[2].size[rank - 1] == 0; /* the result is */
    for (int i = 0; i < 3; i++)
        is_empty = is_empty && belay_tensor_n_elements(in[i]) == 0;
    for (int i = 0; i < 3; i++)
        call.in[i] = fold(context, in[i], &shape[i], is_empty);
    call.params.f[0] = scale != 0 ? scale : 1 / sqrt((double)bl_max_i64(shape[0].size[rank - 1], 1));
    if (dropout > 0) {
        call.params.f[1] = dropout;
        call.params.rng = bl_context_key(context);
        call.params.i[1] = bl_context_first_element(context, shape[0].size[0], n_probabilities(shape));
    }
    call.params.i[0] = options != NULL && options->causal;
    belay_shape result = shape[0];
    result.size[rank - 1] = shape[2].size[rank - 1];
    return bl_op_reshape(context, bl_op_run(&call), &result);
}
