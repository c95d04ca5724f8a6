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
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "grad/tape.h"
#include "optim/optim.h"
#include "tensor/window.h"

enum { STATE = 8 };

struct belay_grad_scaler {
    bl_grave grave;         /* once it was freed */
    belay_context *context; /* NULL: the nil scaler */
    bool is_freed;
    int n_uses; /* calls that work with it and have not ended: it is not freed meanwhile */
    bl_params update;
    belay_tensor state;
    uint64_t version; /* of its storage, after what was written last by this file or read by it */
    bool is_legal;    /* what it said then */
    bool was_written; /* by another hand, and the round began by that */
    uint32_t serial;
    uint64_t round;                  /* between two updates; no other of the context has the same */
    uint64_t n_lost;                 /* of the context, when the round began or a loss was scaled last */
    uintptr_t scaled_at, stepped_at; /* in this round; 0: neither */
    bool is_awaited;                 /* a loss was scaled after the last step of this round */
    bool is_refused;                 /* a step of this round was, for its order */
    uintptr_t updated_at;            /* 0: never */
    struct belay_grad_scaler *next;
};

static belay_grad_scaler nil_scaler;

/* At the beginning of a public call: whether the scaler may be used by its caller, who is told when it may not. */
static inline __attribute__((always_inline)) bool ask(const belay_grad_scaler *s, uintptr_t site)
{
    if (s == NULL || !bl_ask_call(s->context, site))
        return false;
    if (BL_UNLIKELY(s->is_freed))
        bl_optim_tell_stale(s->context, "a loss scale", site);
    return !s->is_freed;
}
#define ASK(scaler) ask((scaler), (uintptr_t)__builtin_return_address(0))

/* ---- the state ------------------------------------------------------------------------------------------------------- */

#define SCALES "the positive values of f32, (0, 3.40282e+38]"

static bool is_scale(double scale) { return scale > 0 && (double)(float)scale == scale && isfinite(scale); }

bool bl_scaler_state_check(const void *bytes, int64_t n_bytes, bl_text *why)
{
    (void)n_bytes; /* whose shape was compared */
    static const char *const names[STATE] = {"scale",
                                             "growth count",
                                             "mark of an overflow",
                                             "number of windows",
                                             "number of overflows in a row",
                                             "number of applied windows",
                                             "number of backoffs",
                                             "last mark of an overflow"};
    double state[STATE];
    memcpy(state, bytes, sizeof state);
    for (int i = 0; i < STATE; i++) {
        if (i == BL_SCALER_SCALE ? is_scale(state[i]) : bl_optim_is_count(state[i]))
            continue;
        bl_text_format(why, "a %s of %g, outside %s", names[i], bl_text_real(state[i]),
                       i == BL_SCALER_SCALE ? SCALES : BL_OPTIM_COUNTS);
        return false;
    }
    return true;
}

static void begin_round(belay_grad_scaler *s)
{
    s->round = ++s->context->mixed.scaler_serial;
    s->n_lost = s->context->mixed.scaling.n_lost;
    s->was_written = false;
    s->is_awaited = false;
    s->is_refused = false;
    s->scaled_at = 0;
    s->stepped_at = 0;
}

/* After launches of this file that write it. */
static void note_version(belay_grad_scaler *s)
{
    const bl_slot *slot = bl_slot_get(s->context, s->state);
    s->version = slot != NULL ? slot->storage->version : s->version;
}

/* It was written by another hand: what it says is proved, and what was scaled before was scaled by another scale. */
static bool look_again(belay_grad_scaler *s)
{
    double state[STATE];
    belay_context *context = s->context;
    const bl_slot *slot = bl_slot_get(context, s->state);
    bl_text why = {0};
    if (slot->storage->version != s->version) {
        begin_round(s);
        s->was_written = true;
    }
    note_version(s);
    (void)bl_place_settle(context, "the state of a loss scale that was written is looked at");
    s->is_legal = bl_place_read(context, slot, 0, state, sizeof state) == BELAY_OK &&
                  bl_scaler_state_check(state, sizeof state, &why);
    if (!s->is_legal)
        bl_context_raise(context, BELAY_CONF_VALUE, "the state that was written into a loss scale has %s",
                         why.bytes != NULL ? bl_text_get(&why) : "no values that can be read");
    bl_text_fini(&why);
    return s->is_legal;
}

/* Whether the state is one that a scale can have; else that was told. */
static bool look(belay_grad_scaler *s)
{
    const bl_slot *slot = bl_slot_use(s->context, s->state);
    return slot != NULL && (BL_LIKELY(slot->storage->version == s->version && s->is_legal) || look_again(s));
}

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
    return check(context, "init_scale", o->init_scale, is_scale((double)(float)o->init_scale), SCALES) &&
           check(context, "growth_factor", o->growth_factor, o->growth_factor > 1 && isfinite(o->growth_factor),
                 "(1, inf)") &&
           check(context, "backoff_factor", o->backoff_factor, o->backoff_factor > 0 && o->backoff_factor < 1,
                 "(0, 1)") &&
           check(context, "growth_interval", (double)o->growth_interval,
                 o->growth_interval > 0 && o->growth_interval <= INT32_MAX, "[1, 2147483647]");
}

/* Everything but the shell, which tells that the scaler was freed. */
static void scaler_fini(belay_grad_scaler *s)
{
    bl_mixed *m = &s->context->mixed;
    belay_grad_scaler **at = &m->scalers;
    while (*at != NULL && *at != s)
        at = &(*at)->next;
    if (*at != NULL) {
        *at = s->next;
        m->n_scalers--;
    }
    bl_tensor_drop(s->context, s->state);
}

static void shell_free(void *scaler) { bl_free(scaler); }

static void destroy(void *object)
{
    belay_grad_scaler *s = object;
    scaler_fini(s);
    s->is_freed = true;
    bl_context_bury(s->context, &s->grave, shell_free);
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
    s->serial = (uint32_t)++context->mixed.scaler_serial;
    s->is_legal = true;
    begin_round(s);
    s->state = bl_tensor_own(context, bl_launch_fill(context, BELAY_F64, &shape, 0));
    const bl_slot *slot = bl_slot_get(context, s->state);
    if (slot == NULL || bl_place_write(context, slot, 0, first, sizeof first) != BELAY_OK ||
        !bl_context_adopt(context, s, destroy)) {
        scaler_fini(s);
        bl_free(s);
        return NULL;
    }
    note_version(s);
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
    if (!ASK(s))
        return;
    BL_ENTER(s->context);
    if (s->n_uses > 0) {
        bl_context_raise(s->context, BELAY_CONF_ORDER, "a loss scale was freed inside of a step by it");
        return;
    }
    bl_context_forget(s->context, s);
    destroy(s);
}

uint32_t bl_scaler_join(uint32_t bits, double scale)
{
    float value = (float)scale;
    uint32_t own;
    memcpy(&own, &value, sizeof own);
    return (bits << 1 | bits >> 31) ^ own;
}

uint32_t bl_scaler_bits(const belay_context *context)
{
    uint32_t bits = 0;
    for (const belay_grad_scaler *s = context->mixed.scalers; s != NULL; s = s->next) {
        double scale = 0;
        const bl_slot *slot = bl_slot_get((belay_context *)context, s->state);
        if (slot != NULL && bl_place_read(s->context, slot, 0, &scale, sizeof scale) == BELAY_OK)
            bits = bl_scaler_join(bits, scale);
    }
    return bits;
}

int bl_scaler_states(const belay_context *context, belay_tensor *state, int most)
{
    int n = 0;
    for (const belay_grad_scaler *s = context->mixed.scalers; s != NULL && n < most; s = s->next)
        state[n++] = s->state;
    return n;
}

bl_grad_scale bl_scaler_mark(const belay_context *context, bool is_scaled)
{
    const belay_grad_scaler *s = context->mixed.scalers;
    if (!is_scaled || s == NULL)
        return (bl_grad_scale){.marks = BL_GRAD_PLAIN};
    return (bl_grad_scale){.marks = BL_GRAD_SCALED, .round = s->round, .scaler = s->serial, .site = context->site};
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
    if (o->context == s->context && !o->is_freed)
        return true;
    if (o->context == s->context)
        bl_optim_tell_stale(s->context, "an optimizer", s->context->site);
    else
        bl_context_raise(s->context, BELAY_LIFE_FOREIGN, "an optimizer belongs to another context than its loss scale");
    return false;
}

/* ---- what an optimizer's gradients are ------------------------------------------------------------------------------- */

/* Of parameter i; NULL where it has none. */
static bl_grad_scale *gradient_at(const belay_optimizer *o, int64_t i)
{
    bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
    return leaf != NULL && !belay_tensor_is_nil(leaf->grad) ? &leaf->grad_scale : NULL;
}

/* The first whose marks are among these; NULL where none is. */
static const bl_grad_scale *find_marked(const belay_optimizer *o, unsigned marks)
{
    for (int64_t i = 0; i < o->n; i++) {
        const bl_grad_scale *g = gradient_at(o, i);
        if (g != NULL && (g->marks & marks) != 0)
            return g;
    }
    return NULL;
}

static bool has_gradients(const belay_optimizer *o) { return find_marked(o, BL_GRAD_HELD | BL_GRAD_PLAIN) != NULL; }

/* The first that is not of this round of the scale, or not whole. */
static const bl_grad_scale *find_strange(const belay_grad_scaler *s, const belay_optimizer *o)
{
    for (int64_t i = 0; i < o->n; i++) {
        const bl_grad_scale *g = gradient_at(o, i);
        if (g != NULL && ((g->marks & (BL_GRAD_OTHER | BL_GRAD_PLAIN)) != 0 || g->round != s->round))
            return g;
    }
    return NULL;
}

/* Ops ran under autocast in this window and nothing has a gradient; one that was lost with a fault is told by the step. */
static bool forgot_backward(const belay_optimizer *o)
{
    belay_context *context = o->context;
    const bl_mixed *m = &context->mixed;
    if (BL_LIKELY(m->cast_window != context->window + 1) || context->window_faulted || has_gradients(o) ||
        bl_optim_have_gradients(context) || bl_optim_was_lost(o))
        return false;
    refuse(context, "belay_optimizer_step without any gradient, after ops under autocast", "the region was opened",
           m->cast_at, "Call belay_backward on the loss first.");
    return true;
}

bool bl_scaler_permits(belay_optimizer *o)
{
    const bl_grad_scale *g = find_marked(o, BL_GRAD_HELD);
    if (g == NULL)
        return !forgot_backward(o);
    refuse(o->context, "belay_optimizer_step on gradients that a loss scale has multiplied",
           (g->marks & BL_GRAD_UNSCALED) != 0 ? "the gradients were unscaled" : "the loss was scaled", g->site,
           "Call belay_grad_scaler_step and belay_grad_scaler_update in its place.");
    return false;
}

static bool was_stepped(const belay_grad_scaler *s, const belay_optimizer *o) { return o->stepped_round == s->round; }

/* By a call for this optimizer.  Parameters that it shares with another may be without. */
static bool was_unscaled(const belay_optimizer *o)
{
    return o->unscaled_at != 0 && o->unscaled_lost == o->context->mixed.scaling.n_lost &&
           find_marked(o, BL_GRAD_UNSCALED) != NULL;
}

/* Whether a fault took the gradients of this round, or came before there were any: the step is refused for that, and none
 * of its calls is out of order. */
static bool was_lost(const belay_grad_scaler *s, const belay_optimizer *o)
{
    return bl_optim_was_lost(o) || (s->n_lost != s->context->mixed.scaling.n_lost && !has_gradients(o));
}

/* `call` came for gradients that `why`. */
static void refuse_call(const belay_grad_scaler *s, const char *call, const char *why, const char *earlier,
                        uintptr_t site, const char *advice)
{
    char what[192];
    snprintf(what, sizeof what, "%s %s", call, why);
    refuse(s->context, what, earlier, site, advice);
}

static void refuse_strange(const belay_grad_scaler *s, const bl_grad_scale *g, const char *call)
{
    const char *scaled = (g->marks & BL_GRAD_UNSCALED) != 0 ? "the gradients were unscaled" : "the loss was scaled";
    if ((g->marks & BL_GRAD_PLAIN) != 0)
        refuse_call(s, call, "on gradients of a loss that was not scaled", "that loss was walked back",
                    s->context->mixed.scaling.plain_at, "Walk back what belay_grad_scaler_scale gives.");
    else if ((g->marks & BL_GRAD_OTHER) != 0)
        refuse_call(s, call, "on gradients to which losses of different scales were added", scaled, g->site,
                    "Scale all losses of a window by one loss scale, and update it after the steps.");
    else if (g->scaler != s->serial)
        refuse_call(s, call, "on gradients that another loss scale has multiplied", scaled, g->site,
                    "Step by the loss scale that the loss was scaled by.");
    else if (s->was_written)
        refuse_call(s, call, "on gradients that were scaled before the scale's state was written", scaled, g->site,
                    "Write the state of a loss scale between windows.");
    else
        refuse_call(s, call, "on gradients that were scaled before the last update", "the scale was updated",
                    s->updated_at, "Step every optimizer of a window before belay_grad_scaler_update.");
}

static void refuse_none(const belay_grad_scaler *s, const char *call)
{
    if (s->stepped_at != 0 && !s->is_awaited)
        refuse_call(s, call, "on parameters without a gradient", "a step before, which uses gradients up, was made",
                    s->stepped_at, "Walk back a loss of theirs; what two optimizers share goes with the first step.");
    else if (s->scaled_at != 0)
        refuse_call(s, call, "without a backward", "the loss was scaled", s->scaled_at,
                    "Call belay_backward on the scaled loss first.");
    else
        refuse_call(s, call, "before a loss was scaled", "the scale was updated last", s->updated_at,
                    "Scale the loss by belay_grad_scaler_scale and walk it back first.");
}

/* Gradients are there, all of them times the scale as it is; `call` says who asks. */
static bool are_scaled(const belay_grad_scaler *s, const belay_optimizer *o, const char *call)
{
    const bl_grad_scale *strange = find_strange(s, o);
    if (strange != NULL)
        refuse_strange(s, strange, call);
    else if (!has_gradients(o))
        refuse_none(s, call);
    else
        return true;
    return false;
}

/* ---- scale ----------------------------------------------------------------------------------------------------------- */

static belay_grad_scaler *find(const belay_context *context, uint32_t serial)
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

/* What was scaled may be walked back: through no other scale, and while its own is what it was.  One that was freed is
 * asked for by the step. */
static bool may_walk(belay_context *context, const bl_node *node, belay_grad_scaler *s)
{
    const bl_scaling *scaling = &context->mixed.scaling;
    if ((scaling->now.marks & BL_GRAD_HELD) != 0)
        refuse(context,
               "a loss was walked back that was scaled twice, or to which another was added that was scaled again",
               "it was scaled again", scaling->now.site, "Scale the sum of a window's losses once, as the last step.");
    else if (s == NULL || (look(s) && s->round == (uint64_t)node->params.i[1]))
        return true;
    else if (s->was_written)
        refuse(context,
               "a loss was walked back after the state of the scale that it was multiplied by had been written",
               "it was walked back", scaling->walked_at, "Write the state of a loss scale between windows.");
    else
        refuse(context, "a loss was walked back after the update of the scale that it was multiplied by",
               "the scale was updated", s->updated_at,
               "Call belay_grad_scaler_update after the window's last backward.");
    return false;
}

/* params.i[0] = which scale, i[1] = in which round of it. */
static void rule_scale(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    uint32_t serial = (uint32_t)node->params.i[0];
    if (!may_walk(context, node, find(context, serial)))
        return;
    context->mixed.scaling.now = (bl_grad_scale){
        .site = node->site, .round = (uint64_t)node->params.i[1], .scaler = serial, .marks = BL_GRAD_SCALED};
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
    node->params.i[1] = (int64_t)s->round;
    node->in[0].kept = bl_tensor_hold(context, scale);
    s->scaled_at = context->site;
    s->n_lost = context->mixed.scaling.n_lost;
    s->is_awaited = true;
    s->is_refused = false;
    return y;
}

belay_tensor belay_grad_scaler_scale(belay_grad_scaler *s, belay_tensor loss)
{
    if (!ASK(s))
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
    return look(s) ? scaled(s, loss) : (belay_tensor){0};
}

/* ---- unscale, step, update ------------------------------------------------------------------------------------------- */

static bool may_unscale(belay_grad_scaler *s, const belay_optimizer *o)
{
    if (!look(s))
        return false;
    if (was_stepped(s, o))
        refuse(s->context, "belay_grad_scaler_unscale after the step", "the step was made", o->stepped_at,
               "Unscale before belay_grad_scaler_step.");
    else if (was_unscaled(o))
        refuse(s->context, "belay_grad_scaler_unscale twice in a window", "the gradients were unscaled", o->unscaled_at,
               "Unscale the gradients of an optimizer once.");
    else
        return !was_lost(s, o) && are_scaled(s, o, "belay_grad_scaler_unscale");
    return false;
}

/* Each gradient once, whichever optimizers have it. */
static void unscale(const belay_grad_scaler *s, belay_optimizer *o)
{
    belay_context *context = s->context;
    belay_scope scope = belay_scope_open(context);
    for (int64_t i = 0; i < o->n; i++) {
        bl_slot *leaf = bl_slot_use(context, o->parameter[i].leaf);
        if (leaf == NULL || belay_tensor_is_nil(leaf->grad) || (leaf->grad_scale.marks & BL_GRAD_UNSCALED) != 0)
            continue;
        belay_shape flat = belay_shape1(bl_slot_elements(leaf));
        bl_call call = {.context = context, .op = BL_OP_scaler_unscale, .n_in = 2};
        call.in[0] = bl_launch_reshape(context, leaf->grad, &flat);
        call.in[1] = s->state;
        if (!bl_launch_run(&call))
            bl_gate_close(bl_window_gate(context), BL_GATE_CLOSED); /* half of them are unscaled */
        leaf->grad_scale.marks = BL_GRAD_UNSCALED;
        leaf->grad_scale.site = context->site;
    }
    belay_scope_close(scope);
}

void belay_grad_scaler_unscale(belay_grad_scaler *s, belay_optimizer *o)
{
    if (!ASK(s) || o == NULL || o->context == NULL)
        return;
    BL_ENTER(s->context);
    if (!is_of(s, o) || s->context->window_faulted || !may_unscale(s, o))
        return;
    bl_optim_settle(o);
    unscale(s, o);
    o->unscaled_at = s->context->site;
    o->unscaled_lost = s->context->mixed.scaling.n_lost;
}

static bool may_step(belay_grad_scaler *s, const belay_optimizer *o)
{
    if (was_stepped(s, o)) {
        refuse(s->context, "belay_grad_scaler_step twice without an update", "the step before was made", o->stepped_at,
               "Call belay_grad_scaler_update once after the steps of a window.");
        return false;
    }
    if (s->context->window_faulted || was_lost(s, o)) /* the step says what was lost; no backward need have come */
        return true;
    if (!look(s) || !are_scaled(s, o, "belay_grad_scaler_step"))
        return false;
    const bl_grad_scale *late = find_marked(o, BL_GRAD_LATE);
    if (late == NULL)
        return true;
    refuse(s->context, "a loss was walked back into gradients that were unscaled already",
           "the gradients were unscaled", late->site, "Unscale after the window's last backward.");
    return false;
}

static void step(belay_grad_scaler *s, belay_optimizer *o)
{
    if (!may_step(s, o)) {
        bl_optim_refuse(o);
        s->is_refused = true;
        return;
    }
    bool is_unscaled = find_marked(o, BL_GRAD_UNSCALED) != NULL;
    if (is_unscaled)
        unscale(s, o); /* those that are not yet */
    s->n_uses++;
    bl_optim_step(o, &(bl_optim_scaling){s->state, is_unscaled, s->update.i[0] != 0, was_lost(s, o)});
    s->n_uses--;
    note_version(s);
    o->stepped_at = s->context->site;
    o->stepped_round = s->round;
    s->stepped_at = s->context->site;
    s->is_awaited = false;
}

void belay_grad_scaler_step(belay_grad_scaler *s, belay_optimizer *o)
{
    if (!ASK(s))
        return;
    BL_ENTER(s->context);
    if (o == NULL || o->context == NULL)
        s->is_refused = true; /* the nil optimizer was told of when it was made */
    else if (is_of(s, o))
        step(s, o);
    else
        s->is_refused = true;
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
    if (!ASK(s))
        return;
    BL_ENTER(s->context);
    if (s->stepped_at == 0 && !s->is_refused) {
        refuse_update(s);
        return;
    }
    if (s->stepped_at != 0 && look(s)) {
        bl_call call = {
            .context = s->context, .op = BL_OP_scaler_update, .n_in = 1, .in = {s->state}, .params = s->update};
        (void)bl_launch_run(&call);
        note_version(s);
    }
    begin_round(s);
    s->updated_at = s->context->site;
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
    if (!ASK(s))
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

belay_tensor belay_grad_scaler_state(const belay_grad_scaler *s) { return ASK(s) ? s->state : (belay_tensor){0}; }
