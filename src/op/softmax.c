/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax along an axis, and the losses. */
#include <inttypes.h>

#include "op/op.h"

/* A row op along any axis: the axis goes last, the rest becomes rows, and back. */
static belay_tensor along_axis(int op, belay_tensor x, int axis)
{
    belay_context *context = bl_tensor_context(x);
    axis = context != NULL ? bl_view_axis(context, bl_kernel_rows[op].name, x, axis) : -1;
    belay_tensor last = axis >= 0 ? bl_op_axis_last(context, x, axis) : (belay_tensor){0};
    if (belay_tensor_is_nil(last))
        return last;
    belay_shape shape = belay_tensor_shape(last), rows;
    if (!bl_op_fold(context, &shape, shape.rank - 1, shape.rank, &rows))
        return (belay_tensor){0};
    rows = belay_shape2(rows.size[0], rows.size[1]);
    bl_call call = {.context = context, .op = op, .n_in = 1, .in = {bl_op_reshape(context, last, &rows)}, .shown = {x}};
    return bl_op_axis_back(context, bl_op_reshape(context, bl_op_run(&call), &shape), axis);
}

belay_tensor belay_softmax(belay_tensor x, int axis)
{
    BL_ENTER(bl_tensor_context(x));
    return along_axis(BL_OP_softmax, x, axis);
}

belay_tensor belay_log_softmax(belay_tensor x, int axis)
{
    BL_ENTER(bl_tensor_context(x));
    return along_axis(BL_OP_log_softmax, x, axis);
}

/* ---- losses ---------------------------------------------------------------------------------------------------------- */

static bool is_reduction(belay_context *context, belay_reduction reduction)
{
    bool is_one = reduction == BELAY_MEAN || reduction == BELAY_SUM || reduction == BELAY_NONE;
    if (!is_one)
        bl_context_raise(context, BELAY_CONF_VALUE, "reduction is %d, which is none", (int)reduction);
    return is_one;
}

static bool loss_options_are_legal(belay_context *context, const belay_cross_entropy_options *o)
{
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "label smoothing is %g, outside [0, 1]",
                         bl_text_real(o->label_smoothing));
        return false;
    }
    return is_reduction(context, o->reduction);
}

/* Labels have the shape of the logits without their classes; false after a fault. */
static bool labels_fit(belay_context *context, belay_tensor x, belay_tensor labels, belay_tensor weight)
{
    const bl_given given[] = {{"logits", x}, {"labels", labels}, {"weight", weight}};
    belay_shape all = belay_tensor_shape(x), has = belay_tensor_shape(labels), wanted = {0};
    if (all.rank == 0) {
        bl_prove_refuse(
            context, BELAY_SHAPE_RANK, "cross_entropy", given, 3,
            "cross_entropy takes [classes], [batch, classes] or [batch, classes, ...], not a tensor without axes");
        return false;
    }
    const belay_shape classes = belay_shape1(all.size[all.rank > 1]);
    for (int i = 0; i < all.rank; i++)
        if (i != (all.rank > 1))
            wanted.size[wanted.rank++] = all.size[i];
    bool fits = has.rank == wanted.rank;
    for (int i = 0; i < wanted.rank && fits; i++)
        fits = has.size[i] == wanted.size[i];
    if (!fits) {
        bl_text words[3] = {{0}, {0}, {0}};
        bl_report_shape(&has, &words[0]);
        bl_report_shape(&all, &words[1]);
        bl_report_shape(&wanted, &words[2]);
        bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, "cross_entropy", given, 3,
                        "labels %s for logits %s: %s is needed", bl_text_get(&words[0]), bl_text_get(&words[1]),
                        bl_text_get(&words[2]));
        for (int i = 0; i < 3; i++)
            bl_text_fini(&words[i]);
        return false;
    }
    return belay_tensor_is_nil(weight) ||
           (bl_op_is_here(context, "weight", weight) &&
            bl_op_has_shape(context, "cross_entropy", given, 3, 2, &classes) &&
            bl_op_has_dtype(context, "cross_entropy", given, 3, 2, belay_tensor_dtype(x)));
}

/* Sum of losses over sum of weights; over the number of rows when every row counts 1. */
static belay_tensor reduce_loss(belay_context *context, const bl_call *call, const belay_cross_entropy_options *o)
{
    belay_tensor losses = call->out[0];
    if (o->reduction == BELAY_SUM)
        return belay_sum(losses, NULL);
    if (belay_tensor_is_nil(o->weight) && !o->has_ignore)
        return belay_mean(losses, NULL);
    const belay_shape scalar = belay_shape0();
    belay_tensor counted = bl_launch_sum(context, call->out[1], 1, belay_tensor_n_elements(call->out[1]), 1, 1);
    return belay_div(belay_sum(losses, NULL), bl_launch_reshape(context, counted, &scalar));
}

belay_tensor belay_cross_entropy(belay_tensor logits, belay_tensor labels, const belay_cross_entropy_options *options)
{
    const belay_tensor in[] = {logits, labels};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    belay_cross_entropy_options o = options != NULL ? *options : (belay_cross_entropy_options){0};
    if (context == NULL || bl_slot_use(context, logits) == NULL || !bl_op_is_here(context, "labels", labels) ||
        !loss_options_are_legal(context, &o) || !labels_fit(context, logits, labels, o.weight))
        return (belay_tensor){0};
    belay_shape shape = belay_tensor_shape(labels), flat = belay_shape1(belay_tensor_n_elements(labels)), rows;
    belay_tensor last = bl_op_axis_last(context, logits, belay_tensor_shape(logits).rank > 1);
    rows = belay_shape2(flat.size[0], belay_tensor_shape(logits).size[belay_tensor_shape(logits).rank > 1]);
    bl_call call = {.context = context,
                    .op = BL_OP_cross_entropy,
                    .n_in = 3,
                    .in = {bl_op_reshape(context, last, &rows), bl_launch_reshape(context, labels, &flat), o.weight},
                    .shown = {logits, labels, o.weight},
                    .policy = BELAY_INDEX_RAISE};
    call.params.f[0] = o.label_smoothing;
    call.params.i[0] = o.ignore;
    call.params.i[1] = o.has_ignore;
    if (!belay_tensor_is_nil(o.weight)) {
        call.in[2] = bl_launch_contiguous(context, o.weight);
        if (belay_tensor_is_nil(call.in[2]))
            return (belay_tensor){0};
    }
    if (belay_tensor_is_nil(bl_op_run(&call)))
        return (belay_tensor){0};
    return o.reduction == BELAY_NONE ? bl_op_reshape(context, call.out[0], &shape) : reduce_loss(context, &call, &o);
}

belay_tensor belay_mse(belay_tensor prediction, belay_tensor target, belay_reduction reduction)
{
    const belay_tensor in[] = {prediction, target};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, prediction) == NULL || !bl_op_is_here(context, "target", target) ||
        !is_reduction(context, reduction))
        return (belay_tensor){0};
    const bl_given given[] = {{"prediction", prediction}, {"target", target}};
    belay_shape wanted = belay_tensor_shape(prediction);
    if (!bl_op_has_shape(context, "mse", given, 2, 1, &wanted) ||
        !bl_op_has_dtype(context, "mse", given, 2, 1, belay_tensor_dtype(prediction)))
        return (belay_tensor){0};
    belay_tensor y = belay_squared_error(prediction, target);
    return reduction == BELAY_NONE ? y : reduction == BELAY_SUM ? belay_sum(y, NULL) : belay_mean(y, NULL);
}
