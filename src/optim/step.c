/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a window: norms, the decision on the device, updates, ages.  Then the host looks at what was decided, and
 * waits for nothing: on an asynchronous device it may hear of it some steps later, or at the next fence.
 *
 * Whether the step is applied is decided by one kernel (optim_prepare) and read by the others from device memory: this
 * file launches the same kernels either way and never decides itself. */
#include <math.h>

#include "base/checked.h"
#include "optim/optim.h"
#include "tensor/advance.h"
#include "tensor/window.h"

/* ---- hooks ----------------------------------------------------------------------------------------------------------- */

void bl_optim_hook_add(belay_context *context, bl_commit_hook *hook)
{
    bl_commit_hook **last = &context->commit_hooks;
    while (*last != NULL)
        last = &(*last)->next;
    hook->next = NULL;
    *last = hook;
}

void bl_optim_hook_remove(belay_context *context, bl_commit_hook *hook)
{
    bl_commit_hook **at = &context->commit_hooks;
    while (*at != NULL && *at != hook)
        at = &(*at)->next;
    if (*at != NULL)
        *at = hook->next;
}

/* A hook may remove itself. */
static void run_hooks(belay_optimizer *o, bl_commit_moment moment)
{
    for (bl_commit_hook *hook = o->context->commit_hooks; hook != NULL;) {
        bl_commit_hook *next = hook->next;
        if (hook->at[moment] != NULL)
            hook->at[moment](hook->state, o);
        hook = next;
    }
}

void bl_optim_settle(belay_optimizer *o) { run_hooks(o, BL_COMMIT_SETTLE); }

/* ---- launches -------------------------------------------------------------------------------------------------------- */

static void refuse_moved(const belay_optimizer *o, const bl_slot *leaf, const bl_slot *flat)
{
    bl_error error;
    const char *name = bl_journal_text_get(o->context->journal, leaf->name);
    bl_error_set(&error, BELAY_PLACE_DEVICE, "%.100s lies on %s, what its optimizer keeps of it on %s",
                 name[0] != '\0' ? name : "a parameter", bl_slot_device(o->context, leaf)->name,
                 bl_slot_device(o->context, flat)->name);
    bl_error_fact(&error, "it was moved after the optimizer had been made");
    bl_error_advise(&error, "Make the optimizer after belay_module_to.");
    bl_context_raise_error(o->context, &error);
}

/* Whether the parameter lies where its moments do: it may have been moved.  When it has come back, its view is renewed. */
static bool is_at_home(belay_optimizer *o, bl_optim_parameter *p, bool tells)
{
    const bl_slot *leaf = bl_slot_get(o->context, p->leaf), *flat = bl_slot_get(o->context, p->flat);
    if (BL_LIKELY(leaf->storage == flat->storage))
        return true;
    if (leaf->storage->place != flat->storage->place) {
        if (tells)
            refuse_moved(o, leaf, flat);
        return false;
    }
    belay_tensor fresh = bl_optim_flat(o->context, p->leaf);
    if (belay_tensor_is_nil(fresh))
        return false;
    bl_tensor_drop(o->context, p->flat);
    p->flat = fresh;
    return true;
}

/* Views of the gradients that are there: the step's only memory, so it can fail before anything was launched. */
static bool collect(belay_optimizer *o)
{
    bool whole = true;
    for (int64_t i = 0; i < o->n; i++) {
        bl_optim_parameter *p = &o->parameter[i];
        const bl_slot *leaf = bl_slot_use(o->context, p->leaf);
        belay_tensor grad = leaf != NULL ? leaf->grad : (belay_tensor){0};
        belay_shape flat = belay_shape1(leaf != NULL ? bl_slot_elements(leaf) : 0);
        bool is_home = leaf != NULL && is_at_home(o, p, whole), is_there = is_home && !belay_tensor_is_nil(grad);
        p->grad_flat = is_there ? bl_launch_reshape(o->context, grad, &flat) : (belay_tensor){0};
        o->is_used[i] = is_there;
        whole = whole && is_home && is_there == !belay_tensor_is_nil(p->grad_flat);
    }
    return whole;
}

static bool run_fill(belay_optimizer *o, belay_tensor into)
{
    bl_call call = {.context = o->context, .op = BL_OP_fill, .dtype = BELAY_F64, .into = into};
    call.shape = belay_tensor_shape(into);
    return bl_launch_run(&call);
}

/* Sums of squares of every chunk of every gradient; zeros where there is none. */
static bool run_squares(belay_optimizer *o)
{
    bool ran = run_fill(o, o->partial);
    for (int64_t i = 0; i < o->n && ran; i++) {
        bl_optim_parameter *p = &o->parameter[i];
        bl_call call = {.context = o->context, .op = BL_OP_optim_squares, .n_in = 2, .in = {p->grad_flat, p->partial}};
        ran = o->is_used[i] == 0 || bl_launch_run(&call);
    }
    return ran;
}

static bool run_prepare(belay_optimizer *o, const bl_optim_scaling *scaling)
{
    bl_call call = {.context = o->context,
                    .op = BL_OP_optim_prepare,
                    .n_in = 3,
                    .in = {o->partial, o->state, scaling != NULL ? scaling->state : (belay_tensor){0}},
                    .params = o->prepare};
    call.params.f[6] = 1 / o->divisor;
    call.params.i[1] = scaling != NULL && scaling->is_unscaled;
    call.params.i[2] = scaling != NULL && scaling->is_fixed;
    return bl_launch_run(&call);
}

static bool run_update(belay_optimizer *o, int64_t i)
{
    bl_optim_parameter *p = &o->parameter[i];
    bl_call call = {.context = o->context, .op = o->rule.op, .in = {p->flat, p->grad_flat}, .params = o->rule.params};
    int n_moments = o->rule.op == BL_OP_optim_adam ? 3 : 1;
    call.n_in = 2;
    for (int m = 0; m < n_moments; m++)
        call.in[call.n_in++] = p->flat_moment[m];
    call.in[call.n_in++] = o->t;
    call.in[call.n_in++] = o->state;
    call.params.i[0] = i;
    return bl_launch_run(&call);
}

static bool run_age(belay_optimizer *o)
{
    const bl_slot *used = bl_slot_get(o->context, o->used);
    if (bl_place_write(o->context, used, 0, o->is_used, o->n) != BELAY_OK)
        return false;
    bl_call call = {.context = o->context, .op = BL_OP_optim_age, .n_in = 3, .in = {o->used, o->state, o->t}};
    return bl_launch_run(&call);
}

/* The gate is a word of all streams: what they were given before is done when it is read. */
static void gather(const belay_optimizer *o)
{
    const bl_slot *state = bl_slot_get(o->context, o->state);
    if (state != NULL)
        bl_place_gather(o->context, state->storage->place);
}

/* False when a part could not be launched; no update was when the decision, which is_decided tells, was not.  *is_ready:
 * nothing was missing before it. */
static bool launch(belay_optimizer *o, const bl_optim_scaling *scaling, bool *is_ready, bool *is_decided)
{
    bool is_collected = collect(o);
    bl_optim_advance_find(o);
    *is_ready = bl_optim_advance_prepare(o) && is_collected && run_squares(o);
    if (!*is_ready)
        bl_gate_close(bl_window_gate(o->context), BL_GATE_CLOSED);
    gather(o);
    *is_decided = run_prepare(o, scaling);
    if (!*is_decided)
        return false;
    bool ran = true;
    for (int64_t i = 0; i < o->n; i++)
        if (o->is_used[i] != 0 && !belay_tensor_is_nil(o->parameter[i].grad_flat))
            ran = run_update(o, i) && ran;
    ran = bl_optim_advance_run(o) && ran;
    return run_age(o) && ran;
}

/* ---- the window's end ------------------------------------------------------------------------------------------------ */

/* What the host has waited for. */
static bool read_state(const belay_optimizer *o, double state[BL_OPTIM_STATE])
{
    const bl_slot *slot = bl_slot_get(o->context, o->state);
    return bl_place_read(o->context, slot, 0, state, BL_OPTIM_STATE * (int64_t)sizeof *state) == BELAY_OK;
}

/* Whether the decision has been made when its launch returns; else the host hears of it later. */
static bool is_decided_at_once(const belay_optimizer *o)
{
    const bl_slot *state = bl_slot_get(o->context, o->state);
    return o->context->launch_blocking || state == NULL || !bl_place_is_asynchronous(o->context, state->storage->place);
}

bool bl_optim_have_gradients(const belay_context *context)
{
    for (int64_t s = 1; s < context->n_slots; s++) {
        const bl_slot *slot = bl_slot_at(context, (uint32_t)s);
        if (slot->is_alive && !belay_tensor_is_nil(slot->grad))
            return true;
    }
    return false;
}

static void drop_all_gradients(belay_context *context)
{
    for (int64_t s = 1; s < context->n_slots; s++) {
        bl_slot *slot = bl_slot_at(context, (uint32_t)s);
        belay_tensor grad = slot->grad;
        if (!slot->is_alive || belay_tensor_is_nil(grad))
            continue;
        slot->grad = (belay_tensor){0};
        slot->grad_scale = (bl_grad_scale){.marks = BL_GRAD_LOST};
        bl_tensor_drop(context, grad);
    }
}

bool bl_optim_was_lost(const belay_optimizer *o)
{
    bool is_lost = false;
    for (int64_t i = 0; i < o->n; i++) {
        const bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
        if (leaf != NULL && !belay_tensor_is_nil(leaf->grad))
            return false;
        is_lost = is_lost || (leaf != NULL && (leaf->grad_scale.marks & BL_GRAD_LOST) != 0);
    }
    return is_lost;
}

/* The step of such an optimizer is refused for the fault that its gradients were lost for. */
static void close_lost(belay_context *context)
{
    int code = context->mixed.scaling.lost_code;
    if (code != BELAY_OK)
        bl_window_fault(context, context->window, (belay_code)code);
    else
        bl_gate_close(bl_window_gate(context), BL_GATE_CLOSED);
}

/* All gradients of the context go with a window that faulted; `code` is why. */
static void lose(belay_context *context, belay_code code)
{
    drop_all_gradients(context);
    bl_advance_forget(context, true);
    context->mixed.scaling.n_lost++;
    context->mixed.scaling.lost_code = code;
}

/* A window that faulted is lost whole: gradients of leaves that another optimizer would step are of it, too.  Only for
 * their sake the host has to know.  `code` is that of a window which was dropped; one whose gradients `was_lost` with
 * another takes nobody else's along. */
static void clear_gradients(belay_optimizer *o, uint64_t window, bool is_known, belay_code code, bool was_lost)
{
    belay_context *context = o->context;
    const bl_window *ended = &context->windows[bl_window_place(window)];
    o->unscaled_at = 0;
    for (int64_t i = 0; i < o->n; i++) {
        if (bl_slot_get(context, o->parameter[i].leaf) != NULL)
            belay_tensor_grad_clear(o->parameter[i].leaf);
        o->parameter[i].grad_flat = (belay_tensor){0};
    }
    if (!is_known && bl_optim_have_gradients(context))
        bl_window_settle(context, "a window ended while leaves of no optimizer, or of another, had gradients");
    else if (!is_known && bl_advance_n(context) > 0)
        bl_window_settle(context, "a window ended while running statistics waited for another optimizer's step");
    if (!was_lost && bl_gate_get(&context->ring->window[bl_window_place(window)].gate) != 0)
        lose(context, ended->optimizer != NULL && ended->number == window ? ended->code : code);
}

/* The last step was refused without a word of the device, which has done all that it was given. */
static void mark_refused(belay_optimizer *o)
{
    double state[BL_OPTIM_STATE];
    const bl_slot *slot = bl_slot_get(o->context, o->state);
    if (slot == NULL || !read_state(o, state))
        return;
    state[BL_OPTIM_APPLY] = 0;
    state[BL_OPTIM_NORM] = 0;
    state[BL_OPTIM_FAULTED]++;
    (void)!bl_place_write(o->context, slot, 0, state, sizeof state);
}

void bl_optim_step(belay_optimizer *o, const bl_optim_scaling *scaling)
{
    belay_context *context = o->context;
    bool was_lost = !context->window_faulted && (bl_optim_was_lost(o) || (scaling != NULL && scaling->is_lost));
    bl_optim_hold(o);
    if (was_lost)
        close_lost(context);
    run_hooks(o, BL_COMMIT_RUN);
    belay_scope scope = belay_scope_open(context);
    uint64_t window = context->window;
    belay_code code = context->window_code;
    if (context->device_options.memory != BL_MEMORY_POOL) /* whose damage is of this window */
        (void)bl_place_settle(context, "red zones were looked at, at a window's end");
    bool is_ready, is_decided, is_put = launch(o, scaling, &is_ready, &is_decided);
    bool is_known = !is_put || is_decided_at_once(o);
    if (!is_ready || !is_put)
        run_hooks(o, BL_COMMIT_SPOIL);
    bl_advance_forget(context, false);
    bl_place_look(context); /* at the windows before: this one is told at a later call, however fast the device */
    if (is_put)
        bl_window_end(context, o);
    else
        bl_window_drop(context);
    if (!is_decided)
        mark_refused(o);
    o->has_gradients = is_known;
    if (is_known)
        bl_window_look(context);
    o->has_gradients = false;
    belay_scope_close(scope);
    clear_gradients(o, window, is_known, code, was_lost);
    context->step++;
    bl_optim_release(o);
}

static void discard(belay_optimizer *o)
{
    run_hooks(o, BL_COMMIT_DROP);
    uint64_t window = o->context->window;
    belay_code code = o->context->window_code;
    if (code == BELAY_OK) /* else that is why, and was told */
        bl_optim_tell_discarded(o->context);
    bl_optim_advance_find(o);
    bl_advance_forget(o->context, false);
    bl_window_drop(o->context);
    clear_gradients(o, window, true, code, false);
    bl_scaler_forget(o->context);
}

void bl_optim_refuse(belay_optimizer *o)
{
    discard(o);
    mark_refused(o);
}

void belay_optimizer_step(belay_optimizer *o)
{
    if (!BL_OPTIM_ASK(o))
        return;
    BL_ENTER(o->context);
    if (bl_scaler_permits(o))
        bl_optim_step(o, NULL);
    else
        bl_optim_refuse(o);
}

void belay_optimizer_discard(belay_optimizer *o)
{
    if (!BL_OPTIM_ASK(o))
        return;
    BL_ENTER(o->context);
    discard(o);
}

void belay_optimizer_divisor_set(belay_optimizer *o, double divisor)
{
    if (!BL_OPTIM_ASK(o))
        return;
    BL_ENTER(o->context);
    if (divisor > 0 && isfinite(divisor))
        o->divisor = divisor;
    else
        bl_context_raise(o->context, BELAY_CONF_VALUE, "divisor is %g, outside (0, inf)", bl_text_real(divisor));
}

/* ---- questions ------------------------------------------------------------------------------------------------------- */

/* A question's own, so that it is known who asks. */
static inline __attribute__((always_inline)) double state_at(const belay_optimizer *o, int place)
{
    double state[BL_OPTIM_STATE] = {0};
    if (!BL_OPTIM_ASK(o))
        return 0;
    BL_ENTER(o->context); /* faults surface at it */
    (void)bl_place_settle(o->context, NULL);
    (void)read_state(o, state);
    return state[place];
}

bool belay_optimizer_is_applied(const belay_optimizer *o) { return state_at(o, BL_OPTIM_APPLY) != 0; }
double belay_optimizer_norm_get(const belay_optimizer *o) { return state_at(o, BL_OPTIM_NORM); }
double belay_optimizer_lr_get(const belay_optimizer *o) { return state_at(o, BL_OPTIM_RATE); }
int64_t belay_optimizer_n_applied(const belay_optimizer *o) { return (int64_t)state_at(o, BL_OPTIM_APPLIED); }
int64_t belay_optimizer_n_faulted(const belay_optimizer *o) { return (int64_t)state_at(o, BL_OPTIM_FAULTED); }
int64_t belay_optimizer_n_overflowed(const belay_optimizer *o) { return (int64_t)state_at(o, BL_OPTIM_OVERFLOWED); }
