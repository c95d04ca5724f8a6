/* SPDX-License-Identifier: Apache-2.0 */
/* Ops with data-dependent indices. */
#include <inttypes.h>

#include "op/op.h"

belay_tensor belay_embedding(belay_tensor weight, belay_tensor ids, const belay_embedding_options *options)
{
    const belay_tensor in[] = {weight, ids};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, weight) == NULL || bl_slot_use(context, ids) == NULL)
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(ids), flat = belay_shape1(belay_tensor_n_elements(ids));
    belay_shape table = belay_tensor_shape(weight);
    if (options != NULL && options->has_padding && (options->padding < 0 || options->padding >= table.size[0])) {
        bl_context_raise(context, BELAY_CONF_VALUE, "padding is %" PRId64 ", outside [0, %" PRId64 ")",
                         options->padding, table.size[0]);
        return (belay_tensor){0};
    }
    bl_call call = {.context = context,
                    .op = BL_OP_embedding,
                    .n_in = 2,
                    .in = {bl_op_contiguous(context, weight), bl_launch_reshape(context, ids, &flat)},
                    .shown = {weight, ids},
                    .policy = options != NULL ? options->policy : BELAY_INDEX_DEFAULT};
    call.params.i[0] = options != NULL && options->has_padding ? options->padding : -1;
    if (shape.rank == BELAY_MAX_RANK) {
        bl_context_raise(context, BELAY_SHAPE_RANK, "ids have %d axes: the result would have one more than the most",
                         shape.rank);
        return (belay_tensor){0};
    }
    belay_tensor rows = bl_op_run(&call);
    shape.size[shape.rank++] = table.size[1];
    return bl_op_reshape(context, rows, &shape);
}
