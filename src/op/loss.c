/* SPDX-License-Identifier: Apache-2.0 */
/* The losses: of rows against labels, and element by element. */
#include "op/op.h"

static bool is_reduction(belay_context *context, belay_reduction reduction)
{
    bool is_one = reduction == BELAY_MEAN || reduction == BELAY_SUM || reduction == BELAY_NONE;
    if (!is_one)
        bl_context_raise(context, BELAY_CONF_VALUE, "reduction is %d, which is none", (int)reduction);
    return is_one;
}

static belay_tensor reduced(belay_tensor losses, belay_reduction reduction)
{
    return reduction == BELAY_NONE  ? losses
           : reduction == BELAY_SUM ? belay_sum(losses, NULL)
                                    : belay_mean(losses, NULL);
}

/* ---- against labels -------------------------------------------------------------------------------------------------- */

/* What a loss of rows against labels is given; `x` is [classes], [batch, classes] or [batch, classes, ...]. */
typedef struct labelled {
    int op;
    const char *role; /* of x */
    belay_tensor x, labels, weight;
    bool has_ignore;
    int64_t ignore;
    double smoothing;
    belay_reduction reduction;
} labelled;

static int class_axis(belay_tensor x) { return belay_tensor_shape(x).rank > 1; }

static void refuse_labels(belay_context *context, const labelled *a, const bl_given given[3], const belay_shape *wanted)
{
    belay_shape all = belay_tensor_shape(a->x), has = belay_tensor_shape(a->labels);
    bl_text words[3] = {{0}, {0}, {0}};
    bl_report_shape(&has, &words[0]);
    bl_report_shape(&all, &words[1]);
    bl_report_shape(wanted, &words[2]);
    bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, bl_kernel_rows[a->op].name, given, 3,
                    "labels %s for %s %s: %s is needed", bl_text_get(&words[0]), a->role, bl_text_get(&words[1]),
                    bl_text_get(&words[2]));
    for (int i = 0; i < 3; i++)
        bl_text_fini(&words[i]);
}

/* Labels have the shape of x without its classes; false after a fault. */
static bool labels_fit(belay_context *context, const labelled *a)
{
    const char *name = bl_kernel_rows[a->op].name;
    const bl_given given[] = {{a->role, a->x}, {"labels", a->labels}, {"weight", a->weight}};
    belay_shape all = belay_tensor_shape(a->x), has = belay_tensor_shape(a->labels), wanted = {0};
    if (all.rank == 0) {
        bl_prove_refuse(context, BELAY_SHAPE_RANK, name, given, 3,
                        "%s takes [classes], [batch, classes] or [batch, classes, ...], not a tensor without axes",
                        name);
        return false;
    }
    const belay_shape classes = belay_shape1(all.size[class_axis(a->x)]);
    for (int i = 0; i < all.rank; i++)
        if (i != class_axis(a->x))
            wanted.size[wanted.rank++] = all.size[i];
    if (!bl_shape_equal(&has, &wanted)) {
        refuse_labels(context, a, given, &wanted);
        return false;
    }
    return belay_tensor_is_nil(a->weight) ||
           (bl_op_is_here(context, "weight", a->weight) && bl_op_has_shape(context, name, given, 3, 2, &classes) &&
            bl_op_has_dtype(context, name, given, 3, 2, belay_tensor_dtype(a->x)));
}

/* Sum of losses over sum of weights; over the number of rows when every row counts 1. */
static belay_tensor mean_of_counted(belay_context *context, const bl_call *call, const labelled *a)
{
    if (belay_tensor_is_nil(a->weight) && !a->has_ignore)
        return belay_mean(call->out[0], NULL);
    const belay_shape scalar = belay_shape0();
    belay_tensor counted = bl_launch_sum(context, call->out[1], 1, belay_tensor_n_elements(call->out[1]), 1, 1);
    return belay_div(belay_sum(call->out[0], NULL), bl_launch_reshape(context, counted, &scalar));
}

static belay_tensor loss_of_rows(belay_context *context, labelled *a)
{
    belay_tensor at[] = {a->x, a->labels, a->weight};
    if (!is_reduction(context, a->reduction) || !bl_op_autocast(context, a->op, at, 3))
        return (belay_tensor){0};
    const belay_tensor x = a->x, weight = a->weight;
    a->x = at[0];
    a->weight = at[2];
    if (!labels_fit(context, a))
        return (belay_tensor){0};
    int axis = class_axis(a->x);
    belay_shape shape = belay_tensor_shape(a->labels), flat = belay_shape1(belay_tensor_n_elements(a->labels));
    belay_shape rows = belay_shape2(flat.size[0], belay_tensor_shape(a->x).size[axis]);
    belay_tensor last = bl_op_axis_last(context, a->x, axis);
    bl_call call = {
        .context = context,
        .op = a->op,
        .n_in = 3,
        .in = {bl_op_reshape(context, last, &rows), bl_launch_reshape(context, a->labels, &flat), a->weight},
        .shown = {x, a->labels, weight},
        .policy = BELAY_INDEX_RAISE};
    call.params.f[0] = a->smoothing;
    call.params.i[0] = a->ignore;
    call.params.i[1] = a->has_ignore;
    if (!belay_tensor_is_nil(a->weight)) {
        call.in[2] = bl_launch_contiguous(context, a->weight);
        if (belay_tensor_is_nil(call.in[2]))
            return (belay_tensor){0};
    }
    belay_tensor losses = bl_op_run(&call);
    if (belay_tensor_is_nil(losses))
        return losses;
    return a->reduction == BELAY_NONE  ? bl_op_reshape(context, losses, &shape)
           : a->reduction == BELAY_SUM ? belay_sum(losses, NULL)
                                       : mean_of_counted(context, &call, a);
}

belay_tensor belay_cross_entropy(belay_tensor logits, belay_tensor labels, const belay_cross_entropy_options *options)
{
    const belay_tensor in[] = {logits, labels};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    belay_cross_entropy_options o = options != NULL ? *options : (belay_cross_entropy_options){0};
    if (context == NULL || bl_slot_use(context, logits) == NULL || !bl_op_is_here(context, "labels", labels))
        return (belay_tensor){0};
    if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "label smoothing is %g, outside [0, 1]",
                         bl_text_real(o.label_smoothing));
        return (belay_tensor){0};
    }
    return loss_of_rows(context, &(labelled){BL_OP_cross_entropy, "logits", logits, labels, o.weight, o.has_ignore,
                                             o.ignore, o.label_smoothing, o.reduction});
}

belay_tensor belay_nll_loss(belay_tensor log_probabilities, belay_tensor labels, const belay_nll_loss_options *options)
{
    const belay_tensor in[] = {log_probabilities, labels};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    belay_nll_loss_options o = options != NULL ? *options : (belay_nll_loss_options){0};
    if (context == NULL || bl_slot_use(context, log_probabilities) == NULL || !bl_op_is_here(context, "labels", labels))
        return (belay_tensor){0};
    return loss_of_rows(context, &(labelled){BL_OP_nll_loss, "log_probabilities", log_probabilities, labels, o.weight,
                                             o.has_ignore, o.ignore, 0, o.reduction});
}

/* ---- element by element ---------------------------------------------------------------------------------------------- */

/* What was given is prediction and target of one shape and dtype; false after a fault. */
static bool targets_fit(belay_context *context, const char *op, const bl_given *given, int n)
{
    belay_shape wanted = belay_tensor_shape(given[0].tensor);
    return bl_op_takes_floats(context, op, given, n) && bl_op_has_shape(context, op, given, n, 1, &wanted) &&
           bl_op_has_dtype(context, op, given, n, 1, belay_tensor_dtype(given[0].tensor));
}

belay_tensor belay_mse(belay_tensor prediction, belay_tensor target, belay_reduction reduction)
{
    const belay_tensor in[] = {prediction, target};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, prediction) == NULL || !bl_op_is_here(context, "target", target) ||
        !is_reduction(context, reduction))
        return (belay_tensor){0};
    belay_tensor at[] = {prediction, target};
    if (!bl_op_autocast(context, BL_OP_squared_error, at, 2))
        return (belay_tensor){0};
    const bl_given given[] = {{"prediction", at[0]}, {"target", at[1]}};
    if (!targets_fit(context, "mse", given, 2))
        return (belay_tensor){0};
    return reduced(belay_squared_error(at[0], at[1]), reduction);
}

/* given[which] may be left out; else it broadcasts to given[0] without making it larger. */
static bool spreads_to(belay_context *context, const char *op, const bl_given *given, int n, int which)
{
    if (belay_tensor_is_nil(given[which].tensor))
        return true;
    if (!bl_op_is_here(context, given[which].role, given[which].tensor) ||
        !bl_op_has_dtype(context, op, given, n, which, belay_tensor_dtype(given[0].tensor)))
        return false;
    belay_shape to = belay_tensor_shape(given[0].tensor), has = belay_tensor_shape(given[which].tensor);
    bool fits = has.rank <= to.rank;
    for (int i = 0; i < has.rank && fits; i++)
        fits = has.size[i] == 1 || has.size[i] == to.size[to.rank - has.rank + i];
    if (fits)
        return true;
    bl_text words[2] = {{0}, {0}};
    bl_report_shape(&has, &words[0]);
    bl_report_shape(&to, &words[1]);
    bl_prove_refuse(context, BELAY_SHAPE_CONTRACT, op, given, n, "%s %s does not broadcast to %s %s", given[which].role,
                    bl_text_get(&words[0]), given[0].role, bl_text_get(&words[1]));
    bl_text_fini(&words[0]);
    bl_text_fini(&words[1]);
    return false;
}

/* p t softplus(-x) + (1 - t) softplus(x): two terms of one sign, none of which cancels. */
static belay_tensor weighted_by_target(belay_tensor x, belay_tensor t, belay_tensor p)
{
    belay_tensor positive = belay_mul(belay_mul(t, p), belay_softplus(belay_neg(x)));
    return belay_add(positive, belay_mul(belay_affine(t, -1, 1), belay_softplus(x)));
}

belay_tensor belay_bce_with_logits(belay_tensor logits, belay_tensor target,
                                   const belay_bce_with_logits_options *options)
{
    const belay_tensor in[] = {logits, target};
    belay_context *context = bl_op_context(in, 2);
    BL_ENTER(context);
    belay_bce_with_logits_options o = options != NULL ? *options : (belay_bce_with_logits_options){0};
    if (context == NULL || bl_slot_use(context, logits) == NULL || !bl_op_is_here(context, "target", target) ||
        !is_reduction(context, o.reduction))
        return (belay_tensor){0};
    belay_tensor at[] = {logits, target, o.weight, o.pos_weight};
    if (!bl_op_autocast(context, BL_OP_binary_error, at, 2) || !bl_op_autocast(context, BL_OP_binary_error, at + 2, 2))
        return (belay_tensor){0};
    const bl_given given[] = {{"logits", at[0]}, {"target", at[1]}, {"weight", at[2]}, {"pos_weight", at[3]}};
    if (!targets_fit(context, "bce_with_logits", given, 4) || !spreads_to(context, "bce_with_logits", given, 4, 2) ||
        !spreads_to(context, "bce_with_logits", given, 4, 3))
        return (belay_tensor){0};
    belay_tensor losses =
        belay_tensor_is_nil(at[3]) ? belay_binary_error(at[0], at[1]) : weighted_by_target(at[0], at[1], at[3]);
    return reduced(belay_tensor_is_nil(at[2]) ? losses : belay_mul(losses, at[2]), o.reduction);
}
