/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale: its state lies on the device and is moved there; the host keeps only the order of the calls.
 *
 *   scale -> backward -> unscale (if wanted) -> step -> update
 *
 * A call out of that order could not be told from a good one by its numbers, only by a model that does not learn: it is
 * refused, and both places are named. */
#include <belay/amp.h>

#include <inttypes.h>
#include <math.h>

#include "base/memory.h"
#include "grad/tape.h"
#include "optim/optim.h"
#include "tensor/window.h"

enum { STATE = 8 };

struct belay_grad_scaler {
    belay_context *context; /* NULL: the nil scaler */
    bl_params update;
    belay_tensor state;
    int64_t serial;
    uint64_t n_updates;
    uintptr_t scaled_at, stepped_at; /* since the last update; 0: neither */
    uintptr_t updated_at;            /* 0: never */
    struct belay_grad_scaler *next;
};

static belay_grad_scaler nil_scaler;

/* ---- making ---------------------------------------------------------------------------------------------------------- */

static bool check(belay_context *context, const char *name, double value, bool fits, const char *range)
{
    if (!fits)
        bl_context_raise(context, BELAY_CONF_VALUE, "%s of a loss scale is %g, outside %s", name, bl_text_real(value),
                         range);
    return fits;
}

static bool options_are_legal(belay_context *context, const belay_grad_scaler_options *o)
{
    float init = (float)o->init_scale;
    return check(context, "init_scale", o->init_scale, init > 0 && isfinite(init), "the positive values of f32") &&
           check(context, "growth_factor", o->growth_factor, o->growth_factor > 1 && isfinite(o->growth_factor),
                 "(1, inf)") &&
           check(context, "backoff_factor", o->backoff_factor, o->backoff_factor > 0 && o->backoff_factor < 1,
                 "(0, 1)") &&
           check(context, "growth_interval", (double)o->growth_interval,
                 o->growth_interval > 0 && o->growth_interval <= INT32_MAX, "[1, 2147483647]");
}

static void scaler_free(void *object)
{
    belay_grad_scaler *s = object;
    bl_mixed *m = &s->context->mixed;
    belay_grad_scaler **at = &m->scalers;
    while (*at != NULL && *at != s)
        at = &(*at)->next;
    if (*at != NULL) {
        *at = s->next;
        m->n_scalers--;
    }
    bl_tensor_drop(s->context, s->state);
    bl_free(s);
}

static belay_grad_scaler *make(belay_context *context, const belay_grad_scaler_options *o)
{
    const double first[STATE] = {(double)(float)o->init_scale};
    belay_shape shape = belay_shape1(STATE);
    belay_grad_scaler *s = bl_alloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->context = context;
    s->update = (bl_params){.f = {o->growth_factor, o->backoff_factor, (double)o->growth_interval}};
    s->update.i[0] = o->is_fixed;
    s->serial = (int64_t)++context->mixed.scaler_serial;
    s->state = bl_tensor_own(context, bl_launch_fill(context, BELAY_F64, &shape, 0));
    const bl_slot *slot = bl_slot_get(context, s->state);
    if (slot == NULL || bl_place_write(context, slot, 0, first, sizeof first) != BELAY_OK ||
        !bl_context_adopt(context, s, scaler_free)) {
        scaler_free(s);
        return NULL;
    }
    s->next = context->mixed.scalers;
    context->mixed.scalers = s;
    context->mixed.n_scalers++;
    return s;
}

belay_grad_scaler *belay_grad_scaler_new(belay_context *context, const belay_grad_scaler_options *options)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return &nil_scaler;
    belay_grad_scaler_options o = options != NULL ? *options : (belay_grad_scaler_options){0};
    o.init_scale = o.init_scale != 0 ? o.init_scale : 65536;
    o.growth_factor = o.growth_factor != 0 ? o.growth_factor : 2;
    o.backoff_factor = o.backoff_factor != 0 ? o.backoff_factor : 0.5;
    o.growth_interval = o.growth_interval != 0 ? o.growth_interval : 2000;
    if (!options_are_legal(context, &o))
        return &nil_scaler;
    int64_t faults = context->n_faults;
    belay_grad_scaler *s = make(context, &o);
    if (s == NULL && context->n_faults == faults)
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for a loss scale");
    return s != NULL ? s : &nil_scaler;
}

void belay_grad_scaler_free(belay_grad_scaler *s)
{
    if (s == NULL || !BL_ASK(s->context))
        return;
    BL_ENTER(s->context);
    bl_context_forget(s->context, s);
    scaler_free(s);
}

/* ---- refusals -------------------------------------------------------------------------------------------------------- */

/* conf.order: what is wrong, and the earlier call with its place. */
static void refuse(belay_context *context, const char *what, const char *earlier, uintptr_t site, const char *advice)
{
    bl_error error;
    char words[96];
    bl_error_set(&error, BELAY_CONF_ORDER, "%s", what);
    if (site != 0) {
        bl_context_site(context, site, words, sizeof words);
        bl_error_fact(&error, "%s at %s", earlier, words);
    }
    bl_error_advise(&error, "%s", advice);
    bl_context_raise_error(context, &error);
}

static bool is_of(const belay_grad_scaler *s, const belay_optimizer *o)
{
    if (o->context == s->context)
        return true;
    bl_context_raise(s->context, BELAY_LIFE_FOREIGN, "an optimizer belongs to another context than its loss scale");
    return false;
}

/* What the optimizer's gradients are made of: BL_GRAD_* of all of them, 0 where there is none. */
static unsigned marks_of(const belay_optimizer *o)
{
    unsigned marks = 0;
    for (int64_t i = 0; i < o->n; i++) {
        const bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
        if (leaf != NULL && !belay_tensor_is_nil(leaf->grad))
            marks |= leaf->grad_marks;
    }
    return marks;
}

bool bl_scaler_permits(belay_optimizer *o)
{
    belay_context *context = o->context;
    if (context->mixed.n_scalers == 0 || (marks_of(o) & (BL_GRAD_SCALED | BL_GRAD_UNSCALED)) == 0)
        return true;
    refuse(context, "belay_optimizer_step on gradients that a loss scale has multiplied", "the loss was scaled",
           context->mixed.scaling.scaled_at, "Call belay_grad_scaler_step and belay_grad_scaler_update in its place.");
    return false;
}

static bool was_stepped(const belay_grad_scaler *s, const belay_optimizer *o)
{
    return o->stepped_update == s->n_updates + 1 && s->stepped_at != 0;
}

static bool was_unscaled(const belay_optimizer *o) { return o->unscaled_window == o->context->window + 1; }

/* Gradients are there, all of them times the scale; `call` says who asks. */
static bool are_scaled(const belay_grad_scaler *s, const belay_optimizer *o, const char *call)
{
    belay_context *context = s->context;
    unsigned marks = marks_of(o);
    bl_text what = {0};
    bool fits = (marks & (BL_GRAD_SCALED | BL_GRAD_UNSCALED)) != 0 && (marks & BL_GRAD_PLAIN) == 0;
    if (fits)
        return true;
    if ((marks & BL_GRAD_PLAIN) != 0) {
        bl_text_format(&what, "%s on gradients of a loss that was not scaled", call);
        refuse(context, bl_text_get(&what), "that loss was walked back", context->mixed.scaling.plain_at,
               "Walk back what belay_grad_scaler_scale gives.");
    } else if (s->scaled_at != 0) {
        bl_text_format(&what, "%s without a backward", call);
        refuse(context, bl_text_get(&what), "the loss was scaled", s->scaled_at,
               "Call belay_backward on the scaled loss first.");
    } else {
        bl_text_format(&what, "%s before a loss was scaled", call);
        refuse(context, bl_text_get(&what), "the scale was updated last", s->updated_at,
               "Scale the loss by belay_grad_scaler_scale and walk it back first.");
    }
    bl_text_fini(&what);
    return false;
}

/* ---- scale ----------------------------------------------------------------------------------------------------------- */

static belay_grad_scaler *find(const belay_context *context, int64_t serial)
{
    belay_grad_scaler *s = context->mixed.scalers;
    while (s != NULL && s->serial != serial)
        s = s->next;
    return s;
}

static belay_tensor times(belay_context *context, belay_tensor x, belay_tensor scale, bool is_backward)
{
    bl_call call = {
        .context = context, .op = BL_OP_mul, .n_in = 2, .in = {x, scale}, .shown = {x}, .is_backward = is_backward};
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

/* params.i[0] = which scale, i[1] = after how many updates of it. */
static void rule_scale(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    const belay_grad_scaler *s = find(context, node->params.i[0]);
    if (s != NULL && (int64_t)s->n_updates != node->params.i[1]) {
        refuse(context, "a loss was walked back after the update of the scale that it was multiplied by",
               "the scale was updated", s->updated_at,
               "Call belay_grad_scaler_update after the window's last backward.");
        return;
    }
    context->mixed.scaling.is_scaled = true;
    grad_in[0] = times(context, node->grad[0], node->in[0].kept, true);
}

/* The scale of this moment as a scalar of that dtype. */
static belay_tensor scale_now(const belay_grad_scaler *s, belay_dtype dtype)
{
    const belay_shape one = belay_shape0();
    const int64_t stride[BELAY_MAX_RANK] = {0};
    belay_tensor view = bl_tensor_view(s->context, s->state, &one, stride, BL_SCALER_SCALE);
    return dtype == BELAY_F64 ? bl_launch_copy(s->context, view) : bl_launch_cast(s->context, view, dtype);
}

static belay_tensor scaled(belay_grad_scaler *s, belay_tensor loss)
{
    belay_context *context = s->context;
    belay_dtype dtype = belay_tensor_dtype(loss) == BELAY_F64 ? BELAY_F64 : BELAY_F32;
    belay_tensor x = loss;
    if (belay_tensor_dtype(loss) != dtype) {
        x = bl_launch_cast(context, loss, dtype);
        if (!belay_tensor_is_nil(x) && bl_grad_is_wanted(context, &loss, 1))
            bl_grad_record(context, bl_grad_cast, &loss, 1, &x, 1);
    }
    belay_tensor scale = scale_now(s, dtype), y = times(context, x, scale, false);
    if (belay_tensor_is_nil(y) || !bl_grad_is_wanted(context, &x, 1))
        return y;
    bl_node *node = bl_grad_record(context, rule_scale, &x, 1, &y, 1);
    if (node == NULL)
        return (belay_tensor){0};
    node->op = BL_OP_mul;
    node->params.i[0] = s->serial;
    node->params.i[1] = (int64_t)s->n_updates;
    node->in[0].kept = bl_tensor_hold(context, scale);
    s->scaled_at = context->site;
    context->mixed.scaling.scaled_at = context->site;
    return y;
}

belay_tensor belay_grad_scaler_scale(belay_grad_scaler *s, belay_tensor loss)
{
    if (s == NULL || !BL_ASK(s->context))
        return (belay_tensor){0};
    BL_ENTER(s->context);
    belay_context *context = s->context;
    if (belay_tensor_is_nil(loss))
        return loss;
    if (loss.context != context->number) {
        bl_context_raise_foreign(context, "the loss", loss);
        return (belay_tensor){0};
    }
    if (bl_slot_use(context, loss) == NULL)
        return (belay_tensor){0};
    if (!belay_dtype_is_float(belay_tensor_dtype(loss))) {
        bl_context_raise(context, BELAY_TYPE_DTYPE, "a loss of %s cannot be scaled: it must be a float",
                         belay_dtype_name(belay_tensor_dtype(loss)));
        return (belay_tensor){0};
    }
    if (s->stepped_at != 0) {
        refuse(context, "belay_grad_scaler_scale after a step whose update has not come", "the step was made",
               s->stepped_at, "Call belay_grad_scaler_update once after the steps of a window.");
        return (belay_tensor){0};
    }
    return scaled(s, loss);
}

/* ---- unscale, step, update ------------------------------------------------------------------------------------------- */

static bool may_unscale(const belay_grad_scaler *s, const belay_optimizer *o)
{
    if (was_stepped(s, o))
        refuse(s->context, "belay_grad_scaler_unscale after the step", "the step was made", o->stepped_at,
               "Unscale before belay_grad_scaler_step.");
    else if (was_unscaled(o))
        refuse(s->context, "belay_grad_scaler_unscale twice in a window", "the gradients were unscaled", o->unscaled_at,
               "Unscale the gradients of an optimizer once.");
    else
        return are_scaled(s, o, "belay_grad_scaler_unscale");
    return false;
}

static void unscale(belay_grad_scaler *s, belay_optimizer *o)
{
    belay_context *context = s->context;
    belay_scope scope = belay_scope_open(context);
    for (int64_t i = 0; i < o->n; i++) {
        bl_slot *leaf = bl_slot_use(context, o->parameter[i].leaf);
        if (leaf == NULL || belay_tensor_is_nil(leaf->grad))
            continue;
        belay_shape flat = belay_shape1(bl_slot_elements(leaf));
        bl_call call = {.context = context, .op = BL_OP_scaler_unscale, .n_in = 2};
        call.in[0] = bl_launch_reshape(context, leaf->grad, &flat);
        call.in[1] = s->state;
        if (!bl_launch_run(&call))
            *bl_window_gate(context) = 1; /* half of them are unscaled */
        leaf->grad_marks = BL_GRAD_UNSCALED;
    }
    belay_scope_close(scope);
    o->unscaled_window = context->window + 1;
    o->unscaled_at = context->site;
}

void belay_grad_scaler_unscale(belay_grad_scaler *s, belay_optimizer *o)
{
    if (s == NULL || o == NULL || o->context == NULL || !BL_ASK(s->context))
        return;
    BL_ENTER(s->context);
    if (is_of(s, o) && !s->context->window_faulted && may_unscale(s, o))
        unscale(s, o);
}

static bool may_step(const belay_grad_scaler *s, const belay_optimizer *o)
{
    if (was_stepped(s, o)) {
        refuse(s->context, "belay_grad_scaler_step twice without an update", "the step before was made", o->stepped_at,
               "Call belay_grad_scaler_update once after the steps of a window.");
        return false;
    }
    if (s->context->window_faulted) /* the step says what was lost; nothing need have come to a backward */
        return true;
    if (!are_scaled(s, o, "belay_grad_scaler_step"))
        return false;
    if ((marks_of(o) & BL_GRAD_LATE) == 0)
        return true;
    refuse(s->context, "a loss was walked back into gradients that were unscaled already",
           "the gradients were unscaled", o->unscaled_at, "Unscale after the window's last backward.");
    return false;
}

void belay_grad_scaler_step(belay_grad_scaler *s, belay_optimizer *o)
{
    if (s == NULL || o == NULL || o->context == NULL || !BL_ASK(s->context))
        return;
    BL_ENTER(s->context);
    if (!is_of(s, o))
        return;
    if (!may_step(s, o)) {
        belay_optimizer_discard(o);
        return;
    }
    bl_optim_step(o, s->state, was_unscaled(o));
    s->stepped_at = s->context->site;
    o->stepped_at = s->context->site;
    o->stepped_update = s->n_updates + 1;
}

/* Gradients of the window that has begun have no part in it: its gate stays open. */
static void refuse_update(belay_grad_scaler *s)
{
    belay_context *context = s->context;
    bool was = context->recording;
    context->recording = false;
    refuse(context, "belay_grad_scaler_update without a step",
           s->scaled_at != 0 ? "the loss was scaled" : "the scale was updated last",
           s->scaled_at != 0 ? s->scaled_at : s->updated_at, "Call belay_grad_scaler_step first.");
    context->recording = was;
}

void belay_grad_scaler_update(belay_grad_scaler *s)
{
    if (s == NULL || !BL_ASK(s->context))
        return;
    BL_ENTER(s->context);
    if (s->stepped_at == 0) {
        refuse_update(s);
        return;
    }
    bl_call call = {.context = s->context, .op = BL_OP_scaler_update, .n_in = 1, .in = {s->state}, .params = s->update};
    (void)bl_launch_run(&call);
    s->n_updates++;
    s->updated_at = s->context->site;
    s->scaled_at = 0;
    s->stepped_at = 0;
}

void bl_scaler_forget(belay_context *context)
{
    for (belay_grad_scaler *s = context->mixed.scalers; s != NULL; s = s->next)
        s->scaled_at = 0;
}

/* ---- questions ------------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) double state_at(const belay_grad_scaler *s, int place)
{
    double state[STATE] = {0};
    if (s == NULL || !BL_ASK(s->context))
        return 0;
    BL_ENTER(s->context); /* faults surface at it */
    (void)bl_place_settle(s->context, NULL);
    const bl_slot *slot = bl_slot_get(s->context, s->state);
    (void)!bl_place_read(s->context, slot, 0, state, sizeof state);
    return state[place];
}

double belay_grad_scaler_get(const belay_grad_scaler *s) { return state_at(s, BL_SCALER_SCALE); }
int64_t belay_grad_scaler_growth_get(const belay_grad_scaler *s) { return (int64_t)state_at(s, BL_SCALER_GROWTH); }
bool belay_grad_scaler_found_inf(const belay_grad_scaler *s) { return state_at(s, BL_SCALER_LAST_FOUND) != 0; }
int64_t belay_grad_scaler_n_backoffs(const belay_grad_scaler *s) { return (int64_t)state_at(s, BL_SCALER_BACKOFFS); }

belay_tensor belay_grad_scaler_state(const belay_grad_scaler *s)
{
    return s != NULL && BL_ASK(s->context) ? s->state : (belay_tensor){0};
}
