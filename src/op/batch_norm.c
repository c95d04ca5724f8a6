/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation.  What running statistics become waits for the step that commits it (tensor/advance.h); it is
 * written here only where none will: while nothing is recorded, or no optimizer is there. */
#include "op/batch_norm.h"

#include <inttypes.h>
#include <string.h>

#include <belay/amp.h>

#include "op/op.h"
#include "tensor/advance.h"
#include "tensor/loan.h"

enum { X, RUNNING_MEAN, RUNNING_VAR, WEIGHT, BIAS, N_TRACKED, N_GIVEN };

typedef struct batch_norm {
    belay_context *context;
    bl_given given[N_GIVEN];
    belay_batch_norm_options options;
    belay_shape folded; /* of x: [batch, channels, the rest] */
    belay_tensor x;     /* as the caller knows it */
    int64_t n_faults;   /* of the context, when the call began */
    belay_tensor leaf;  /* with whose optimizer's step the running statistics go on; nil: with the next of any */
} batch_norm;

static belay_tensor tensor_of(const batch_norm *a, int which) { return a->given[which].tensor; }
static bool is_given(const batch_norm *a, int which) { return !belay_tensor_is_nil(tensor_of(a, which)); }

static bool refuse_option(const batch_norm *a, const char *name, double value, const char *range)
{
    bl_prove_refuse(a->context, BELAY_CONF_VALUE, "batch_norm", a->given, N_GIVEN, "%s is %g, outside %s", name,
                    bl_text_real(value), range);
    return false;
}

static bool refuse(const batch_norm *a, belay_code code, const char *what)
{
    bl_prove_refuse(a->context, code, "batch_norm", a->given, N_GIVEN, "%s", what);
    return false;
}

/* Options, and the shape of x. */
static bool x_is_legal(batch_norm *a)
{
    const belay_batch_norm_options *o = &a->options;
    belay_shape shape = belay_tensor_shape(tensor_of(a, X));
    if (!(o->momentum >= 0 && o->momentum <= 1))
        return refuse_option(a, "momentum", o->momentum, "[0, 1]");
    if (o->no_momentum && (o->momentum > 0 || o->cumulative))
        return refuse(a, BELAY_CONF_CONFLICT,
                      o->cumulative ? "no momentum was asked for, and cumulative statistics"
                                    : "no momentum was asked for, and one");
    if (!(o->eps >= 0 && o->eps - o->eps == 0))
        return refuse_option(a, "eps", o->eps, "[0, inf)");
    if (shape.rank < 2) {
        bl_prove_refuse(a->context, BELAY_SHAPE_RANK, "batch_norm", a->given, N_GIVEN,
                        "batch_norm takes [batch, channels] or [batch, channels, ...], not %d axes", shape.rank);
        return false;
    }
    return bl_op_fold(a->context, &shape, 1, 2, &a->folded);
}

/* What is given for each channel: [channels], alive, where x is, in its dtype. */
static bool factors_fit(const batch_norm *a)
{
    const belay_shape wanted = belay_shape1(a->folded.size[1]);
    for (int k = RUNNING_MEAN; k <= BIAS; k++)
        if (is_given(a, k) && (!bl_op_is_here(a->context, a->given[k].role, tensor_of(a, k)) ||
                               !bl_op_has_shape(a->context, "batch_norm", a->given, N_GIVEN, k, &wanted) ||
                               !bl_op_has_dtype(a->context, "batch_norm", a->given, N_GIVEN, k,
                                                belay_tensor_dtype(tensor_of(a, k > RUNNING_VAR ? X : RUNNING_MEAN)))))
            return false;
    if (is_given(a, RUNNING_MEAN) != is_given(a, RUNNING_VAR)) {
        bl_prove_refuse(a->context, BELAY_CONF_MISSING, "batch_norm", a->given, N_GIVEN, "%s was given without %s",
                        a->given[is_given(a, RUNNING_MEAN) ? RUNNING_MEAN : RUNNING_VAR].role,
                        a->given[is_given(a, RUNNING_MEAN) ? RUNNING_VAR : RUNNING_MEAN].role);
        return false;
    }
    if (!is_given(a, N_TRACKED) && a->options.cumulative)
        bl_prove_refuse(a->context, BELAY_CONF_MISSING, "batch_norm", a->given, N_GIVEN,
                        "cumulative statistics need n_tracked, the count of batches");
    if (!is_given(a, N_TRACKED))
        return !a->options.cumulative;
    const belay_shape one = belay_shape0();
    return bl_op_is_here(a->context, "n_tracked", tensor_of(a, N_TRACKED)) &&
           bl_op_has_shape(a->context, "batch_norm", a->given, N_GIVEN, N_TRACKED, &one) &&
           bl_op_has_dtype(a->context, "batch_norm", a->given, N_GIVEN, N_TRACKED, BELAY_I64);
}

/* Whether two views of a storage, [n] each, have an element in common. */
static bool meet(const bl_slot *a, const bl_slot *b)
{
    int64_t i = 0, j = 0, n = a->size[0];
    while (a->storage == b->storage && i < n && j < n) {
        int64_t at = a->offset + i * a->stride[0], other = b->offset + j * b->stride[0];
        if (at == other)
            return true;
        i += at < other;
        j += other < at;
    }
    return false;
}

/* What a step will write holds a number of its own for each channel, and may be written. */
static bool can_be_written(const batch_norm *a)
{
    const bl_slot *mean = bl_slot_get(a->context, tensor_of(a, RUNNING_MEAN));
    const bl_slot *var = bl_slot_get(a->context, tensor_of(a, RUNNING_VAR));
    if (mean->size[0] > 1 && (mean->stride[0] == 0 || var->stride[0] == 0))
        return refuse(a, BELAY_SHAPE_CONTRACT,
                      mean->stride[0] == 0
                          ? "running_mean is one number for all channels: it cannot hold those of each"
                          : "running_var is one number for all channels: it cannot hold those of each");
    if (meet(mean, var))
        return refuse(a, BELAY_CONF_VALUE, "running_mean and running_var share elements: each needs its own");
    for (int k = RUNNING_MEAN; k < N_GIVEN; k++) {
        const bl_slot *slot = k <= RUNNING_VAR || k == N_TRACKED ? bl_slot_get(a->context, tensor_of(a, k)) : NULL;
        if (slot == NULL || !bl_loan_is_read_only(slot->storage->loan))
            continue;
        bl_text words = {0};
        bl_loan_describe_write(a->context, slot, &words);
        refuse(a, BELAY_LIFE_READ_ONLY, bl_text_get(&words));
        bl_text_fini(&words);
        return false;
    }
    return true;
}

/* Numbers of each channel in this batch, which make its statistics. */
static int64_t n_numbers(const batch_norm *a) { return a->folded.size[0] * a->folded.size[2]; }

static bool has_variance(const batch_norm *a)
{
    if (n_numbers(a) > 1)
        return true;
    bl_prove_refuse(a->context, BELAY_SHAPE_CONTRACT, "batch_norm", a->given, N_GIVEN,
                    "%" PRId64 " value%s for each channel in training: a variance needs two", n_numbers(a),
                    n_numbers(a) == 1 ? "" : "s");
    return false;
}

/* ---- statistics ------------------------------------------------------------------------------------------------------ */

/* One more than the count of batches; nil after a fault. */
static belay_tensor count_on(const batch_norm *a, belay_tensor count)
{
    const belay_shape none = belay_shape0();
    bl_call call = {.context = a->context, .op = BL_OP_add, .n_in = 2};
    call.in[0] = count;
    call.in[1] = bl_launch_fill_like(a->context, count, BELAY_I64, &none, 1);
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

/* Running mean, running variance, and the count of batches or nil. */
typedef struct running {
    belay_tensor value[3];
} running;

static const int running_at[3] = {RUNNING_MEAN, RUNNING_VAR, N_TRACKED};

static running running_of(const batch_norm *a, bool waits)
{
    running r;
    for (int k = 0; k < 3; k++) {
        belay_tensor buffer = tensor_of(a, running_at[k]);
        r.value[k] = waits ? bl_advance_get(a->context, buffer) : buffer;
    }
    return r;
}

/* Whether a step decides about what this batch does; nothing else that runs unrecorded belongs to one. */
static bool is_of_step(const belay_context *context)
{
    return context->n_optimizers > 0 && (context->recording || context->is_gating);
}

/* What the running statistics become by this batch. */
static bool go_on(const batch_norm *a, const belay_tensor stats[2], const running *now, running *next)
{
    static const char *const role[] = {"x", NULL, "running_mean", "running_var", "n_tracked"};
    bl_call call = {
        .context = a->context, .op = BL_OP_batch_track, .as = "batch_norm", .role = role, .n_in = 5, .shown = {a->x}};
    double n = (double)n_numbers(a);
    for (int k = 0; k < 2; k++) {
        call.in[k] = stats[k];
        call.in[2 + k] = bl_launch_contiguous(a->context, now->value[k]);
        call.shown[2 + k] = tensor_of(a, RUNNING_MEAN + k);
        if (belay_tensor_is_nil(call.in[2 + k]))
            return false;
    }
    belay_tensor count = {0};
    if (is_given(a, N_TRACKED)) {
        const belay_shape flat = belay_shape1(1);
        count = count_on(a, now->value[2]);
        call.in[4] = bl_launch_reshape(a->context, now->value[2], &flat);
        if (belay_tensor_is_nil(count) || belay_tensor_is_nil(call.in[4]))
            return false;
    }
    call.shown[4] = tensor_of(a, N_TRACKED);
    call.params.i[0] = a->options.cumulative;
    call.params.i[1] = belay_autocast_get(a->context) != BELAY_F32 && is_of_step(a->context);
    call.params.f[0] = a->options.momentum > 0 || a->options.no_momentum ? a->options.momentum : 0.1;
    call.params.f[1] = n / (n - 1);
    if (!bl_launch_run(&call))
        return false;
    *next = (running){{call.out[0], call.out[1], count}};
    return true;
}

static bool wait_for_step(const batch_norm *a, const running *next)
{
    bool done = true;
    for (int k = 0; k < 3; k++)
        if (is_given(a, running_at[k]))
            done = done && bl_advance_set(a->context, tensor_of(a, running_at[k]), next->value[k], a->leaf);
    return done;
}

static bool write(const batch_norm *a, const running *next)
{
    bool done = true;
    for (int k = 0; k < 3; k++)
        if (is_given(a, running_at[k]))
            done = done && bl_launch_move(a->context, tensor_of(a, running_at[k]), next->value[k]);
    return done;
}

/* Whether something was wrong with this batch: a fault of this call, no warning.  On the way the host may have heard of
 * others, which stand elsewhere.  What is not kept any more was one. */
static bool has_faulted(const batch_norm *a)
{
    char here[sizeof((bl_report_fault *)0)->site] = "";
    if (a->context->n_faults > a->n_faults && a->context->site != 0)
        bl_context_site(a->context, a->context->site, here, sizeof here);
    for (int64_t i = a->n_faults; i < a->context->n_faults; i++) {
        const bl_fault_entry *entry = &a->context->faults[i < BL_MAX_FAULTS ? i : BL_MAX_FAULTS];
        const belay_fault *fault = &entry->fault;
        bool is_known = i < BL_MAX_FAULTS && entry->words != NULL;
        if (!is_known || (belay_code_severity(fault->code) != BELAY_SEVERITY_WARNING && strcmp(fault->site, here) == 0))
            return true;
    }
    return false;
}

/* No step will come for this batch: unless something was wrong with it, which the host waits for, what it makes of them is
 * written.  Those that wait for a step go on likewise: whether that is applied says nothing about this batch. */
static bool track_now(const batch_norm *a, const belay_tensor stats[2])
{
    belay_context *context = a->context;
    running now = running_of(a, false), waiting = running_of(a, true), next, later;
    bool waits = false;
    for (int k = 0; k < 3; k++)
        waits = waits || !bl_tensor_same(now.value[k], waiting.value[k]);
    if (!go_on(a, stats, &now, &next) || (waits && !go_on(a, stats, &waiting, &later)))
        return false;
    if (bl_place_is_asynchronous(context, bl_slot_get(context, stats[0])->storage->place))
        (void)bl_place_settle(context, "running statistics went on without a step");
    if (has_faulted(a))
        return true;
    return write(a, &next) && (!waits || wait_for_step(a, &later));
}

/* What the running statistics become by this batch, after those before it in the window. */
static bool track(const batch_norm *a, const belay_tensor stats[2])
{
    running now = running_of(a, true), next;
    if (!is_of_step(a->context))
        return track_now(a, stats);
    return go_on(a, stats, &now, &next) && wait_for_step(a, &next);
}

static bool is_tracked(const batch_norm *a) { return a->options.training && is_given(a, RUNNING_MEAN); }

/* Mean and variance in f64: of the batch, or the running ones. */
static bool statistics(const batch_norm *a, belay_tensor x, bool is_batch, belay_tensor stats[2])
{
    if (!is_batch) {
        for (int k = 0; k < 2; k++)
            stats[k] = bl_launch_cast(a->context, tensor_of(a, RUNNING_MEAN + k), BELAY_F64);
        return !belay_tensor_is_nil(stats[0]) && !belay_tensor_is_nil(stats[1]);
    }
    bl_call call = {.context = a->context, .op = BL_OP_batch_stats, .n_in = 1, .in = {x}, .shown = {tensor_of(a, X)}};
    if (!bl_launch_run(&call))
        return false;
    stats[0] = call.out[0];
    stats[1] = call.out[1];
    return !is_tracked(a) || track(a, stats);
}

/* Everything lies where x does, as under place move; weights and x in the dtype that autocast asks for. */
static bool bring(batch_norm *a)
{
    belay_tensor at[] = {tensor_of(a, X), tensor_of(a, WEIGHT), tensor_of(a, BIAS)};
    static const char *const role[] = {"x", "weight", "bias"};
    if (!bl_op_autocast(a->context, BL_OP_batch_norm, at, 3) || !bl_op_meet(a->context, "batch_norm", role, at, 3))
        return false;
    a->given[X].tensor = at[0];
    a->given[WEIGHT].tensor = at[1];
    a->given[BIAS].tensor = at[2];
    return true;
}

bool bl_op_is_stepped(const belay_context *context, belay_tensor tensor)
{
    const bl_slot *slot = bl_slot_get(context, tensor);
    return slot != NULL && slot->n_optimizers > 0 && slot->requires_grad;
}

/* Its own parameters come first. */
static belay_tensor leaf_of(const belay_context *context, belay_tensor weight, belay_tensor bias, belay_tensor beside)
{
    return bl_op_is_stepped(context, weight) ? weight : bl_op_is_stepped(context, bias) ? bias : beside;
}

belay_tensor bl_op_batch_norm(belay_tensor x, belay_tensor running_mean, belay_tensor running_var, belay_tensor weight,
                              belay_tensor bias, const belay_batch_norm_options *options, belay_tensor beside)
{
    static const belay_batch_norm_options none = {0};
    belay_context *context = bl_tensor_context(x);
    if (context == NULL || bl_slot_use(context, x) == NULL)
        return (belay_tensor){0};
    const belay_batch_norm_options *o = options != NULL ? options : &none;
    batch_norm a = {.context = context,
                    .given = {{"x", x},
                              {"running_mean", running_mean},
                              {"running_var", running_var},
                              {"weight", weight},
                              {"bias", bias},
                              {"n_tracked", o->n_tracked}},
                    .options = *o,
                    .x = x,
                    .n_faults = context->n_forwards > 0 ? context->forward_faults : context->n_faults,
                    .leaf = leaf_of(context, weight, bias, beside)};
    bool is_batch = o->training || belay_tensor_is_nil(running_mean);
    belay_tensor stats[2];
    belay_shape shape = belay_tensor_shape(x);
    if (!x_is_legal(&a) || !bring(&a) || !factors_fit(&a) || (is_batch && !has_variance(&a)) ||
        (is_tracked(&a) && !can_be_written(&a)))
        return (belay_tensor){0};
    bl_call call = {.context = context, .op = BL_OP_batch_norm, .n_in = 5};
    call.in[0] = bl_op_reshape(context, tensor_of(&a, X), &a.folded);
    if (belay_tensor_is_nil(call.in[0]) || !statistics(&a, call.in[0], is_batch, stats))
        return (belay_tensor){0};
    call.in[1] = stats[0];
    call.in[2] = stats[1];
    for (int k = 0; k < 2; k++)
        if (is_given(&a, WEIGHT + k)) {
            call.in[3 + k] = bl_op_contiguous(context, tensor_of(&a, WEIGHT + k));
            if (belay_tensor_is_nil(call.in[3 + k]))
                return (belay_tensor){0};
        }
    call.shown[0] = x;
    call.params.f[0] = o->eps > 0 ? o->eps : 1e-5;
    call.params.i[1] = is_batch;
    return bl_op_reshape(context, bl_op_run(&call), &shape);
}

belay_tensor belay_batch_norm(belay_tensor x, belay_tensor running_mean, belay_tensor running_var, belay_tensor weight,
                              belay_tensor bias, const belay_batch_norm_options *options)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    return bl_op_batch_norm(x, running_mean, running_var, weight, bias, options, (belay_tensor){0});
}
