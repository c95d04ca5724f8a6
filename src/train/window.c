/* SPDX-License-Identifier: Apache-2.0 */
/* The step on one screen.  A window is `accumulate` micro-batches, fixed by their place in the epoch.  Each is run once;
 * when one faults, what the window collected is thrown away and its good ones are run again, with the same random
 * numbers, until a pass was clean.  Then the mean of their gradients is applied.  Nothing of a pass that was not clean
 * reaches a weight or a figure.
 *
 * Over several ranks each runs its part of every micro-batch; gradients are reduced while the last one is walked back, and
 * a pass is clean when it was on all ranks (ranks.c). */
#include <inttypes.h>

#include <belay/grad.h>

#include "base/checked.h"
#include "base/clock.h"
#include "train/trainer.h"

/* The mean over ranks of what this gives is the mean over the global batch, when its parts are not of one size. */
static belay_tensor weigh(const bl_trainer *t, const belay_batch *batch, belay_tensor loss)
{
    double weight = (double)(batch->n_samples * t->ranks.size) / (double)batch->n_global;
    if (batch->n_samples * t->ranks.size == batch->n_global || belay_tensor_is_nil(loss))
        return loss;
    return belay_affine(loss, weight, 0);
}

static void walk_back(const bl_trainer *t, const belay_batch *batch, belay_tensor loss)
{
    belay_tensor weighed = weigh(t, batch, loss);
    bl_train_ranks_phase(t, BL_PHASE_BACKWARD);
    if (!t->context->window_faulted)
        belay_backward(t->options.scaler != NULL ? belay_grad_scaler_scale(t->options.scaler, weighed) : weighed);
}

/* Forward, loss, backward; the gradients add up.  False after a fault.  A rank without a part of the batch does nothing. */
static bool run_micro_batch(bl_trainer *t, const belay_batch *batch, bl_train_figures *figures)
{
    const bool *faulted = &t->context->window_faulted;
    if (*faulted || batch->n_samples == 0)
        return !*faulted;
    bl_train_ranks_phase(t, BL_PHASE_FORWARD);
    belay_scope scope = belay_scope_open(t->context);
    belay_autocast cast = belay_autocast_open(t->context, t->options.autocast);
    belay_tensor logits = belay_forward(t->model, batch->tokens); /* [batch, classes] */
    belay_tensor loss = belay_cross_entropy(belay_tensor_name_set(logits, "logits"), batch->labels, &t->loss);
    belay_autocast_close(cast);
    if (!*faulted && belay_tensor_is_nil(loss))
        bl_context_raise(t->context, BELAY_CONF_VALUE, "the model's forward gave no tensor and no fault");
    if (!*faulted)
        walk_back(t, batch, loss);
    if (!*faulted)
        bl_train_measure(t->context, logits, loss, batch->labels, NULL, &t->room, figures, NULL);
    belay_scope_close(scope);
    return !*faulted;
}

/* Micro-batch k of the window: the first pass walks on, the others read again.  False at the end of the epoch. */
static bool take_batch(bl_trainer *t, int64_t k, bool is_first_pass, belay_batch *batch)
{
    t->context->window_faulted = false;
    t->context->micro_batch = (uint32_t)k;
    bl_train_ranks_phase(t, BL_PHASE_DATA);
    if (!is_first_pass)
        return belay_loader_get(t->batches, t->state.position + k, batch);
    bool was = belay_recording_set(t->context, t->fate[k] != BL_FATE_OUT);
    bool is_there = belay_loader_next(t->batches, batch);
    belay_recording_set(t->context, was);
    return is_there;
}

static bool is_left_out(const bl_trainer *t, int64_t position)
{
    for (int64_t i = 0; i < t->options.n_skip; i++)
        if (t->options.skip[i].epoch == t->state.epoch && t->options.skip[i].position == position)
            return true;
    return false;
}

/* ---- a micro-batch that faulted ----------------------------------------------------------------------------------- */

/* Once more, each launch waited for. */
static bool redo(bl_trainer *t, int64_t k)
{
    bool was = t->context->launch_blocking;
    belay_batch batch;
    bl_train_figures unused = {0};
    t->context->launch_blocking = true;
    bool is_clean = take_batch(t, k, false, &batch) && run_micro_batch(t, &batch, &unused);
    t->context->launch_blocking = was;
    return is_clean;
}

/* Counts are the ranks' to make, where there are several. */
static const char *decide(bl_trainer *t, int64_t k)
{
    bool may_redo = t->options.on_fault == BELAY_ON_FAULT_REDO && t->fate[k] == BL_FATE_GOOD;
    if (may_redo && t->ranks.group != NULL) { /* once the others know, and nothing is on its way to them */
        t->ranks.again[k] = true;
        return "done again";
    }
    if (may_redo && redo(t, k)) {
        t->fate[k] = BL_FATE_REDONE;
        t->window.transient++;
        return "transient";
    }
    t->window.transient -= t->ranks.group == NULL && t->fate[k] == BL_FATE_REDONE;
    t->fate[k] = BL_FATE_OUT;
    t->window.skipped += t->ranks.group == NULL;
    return "skipped";
}

static belay_code stop(bl_trainer *t, const belay_batch *batch)
{
    bl_error_set(&t->error, BELAY_RUN_STOPPED, "the run stopped at epoch %" PRId64 ", batch %" PRId64, batch->epoch,
                 batch->position);
    bl_error_fact(&t->error, "nothing of its step was applied");
    return BELAY_RUN_STOPPED;
}

belay_code bl_train_check_faults(bl_trainer *t)
{
    int64_t n = t->state.faults + t->window.faults;
    if (n <= t->options.max_faults)
        return BELAY_OK;
    bl_error_set(&t->error, BELAY_RUN_MAX_FAULTS, "%" PRId64 " micro-batches faulted, the most allowed is %" PRId64, n,
                 t->options.max_faults);
    return BELAY_RUN_MAX_FAULTS;
}

static belay_code handle_fault(bl_trainer *t, int64_t k, const belay_batch *batch)
{
    const char *policy = "stopped";
    bl_train_look(t, t->batches, batch);
    bool goes_on = t->watch.fatal == BELAY_OK && t->options.on_fault != BELAY_ON_FAULT_STOP;
    t->window.faults += t->fate[k] == BL_FATE_GOOD && (t->ranks.group == NULL || !goes_on);
    if (t->ranks.group != NULL)
        t->ranks.mine[k] = t->told->n > 0 ? t->told->fault[0].code : BELAY_COMM_PEER;
    if (goes_on)
        policy = decide(t, k);
    if (t->watch.fatal != BELAY_OK)
        policy = "stopped";
    TRY(bl_train_record(t, policy));
    if (t->watch.fatal != BELAY_OK)
        return t->watch.fatal;
    if (t->options.on_fault == BELAY_ON_FAULT_STOP)
        return stop(t, batch);
    return t->ranks.group != NULL ? BELAY_OK : bl_train_check_faults(t);
}

/* After a pass that was not clean: what waited for the others to know of it. */
static belay_code redo_faulted(bl_trainer *t)
{
    for (int64_t k = 0; k < t->n_window && t->ranks.group != NULL; k++) {
        if (!t->ranks.again[k])
            continue;
        t->ranks.again[k] = false;
        t->fate[k] = redo(t, k) ? BL_FATE_REDONE : BL_FATE_OUT;
        TRY(bl_train_record(t, t->fate[k] == BL_FATE_OUT ? "skipped" : "noted"));
        if (t->watch.fatal != BELAY_OK)
            return t->watch.fatal;
    }
    return BELAY_OK;
}

/* ---- the window --------------------------------------------------------------------------------------------------- */

/* As many micro-batches as the window is to have, with the fates that they begin with. */
static int64_t begin_window(bl_trainer *t)
{
    int64_t n = bl_min_i64(t->options.accumulate, t->n_batches - t->state.position);
    for (int64_t k = 0; k < n; k++) {
        t->fate[k] = is_left_out(t, t->state.position + k) ? BL_FATE_OUT : BL_FATE_GOOD;
        if (t->ranks.group == NULL)
            continue;
        t->ranks.agreed[k] = t->fate[k];
        t->ranks.again[k] = false;
        t->ranks.mine[k] = BELAY_OK;
    }
    return n;
}

/* The last that will be computed, -1: none. */
static int64_t find_last(const bl_trainer *t, int64_t n)
{
    while (n > 0 && t->fate[n - 1] == BL_FATE_OUT)
        n--;
    return n - 1;
}

/* Gradients add up on each rank, and are reduced with those of the last micro-batch. */
static void set_sync(const bl_trainer *t, bool syncs)
{
    if (t->ranks.group != NULL)
        belay_ddp_sync_set(t->options.reducer, syncs);
}

static belay_code walk_window(bl_trainer *t, bool is_first_pass, bl_train_figures *figures, bool *is_clean)
{
    belay_batch batch;
    int64_t n = is_first_pass ? begin_window(t) : t->n_window, last = find_last(t, n);
    *figures = (bl_train_figures){0};
    *is_clean = true;
    for (int64_t k = 0; k < n; k++) {
        if (!is_first_pass && t->fate[k] == BL_FATE_OUT)
            continue;
        set_sync(t, k == last);
        if (!take_batch(t, k, is_first_pass, &batch))
            break;
        t->n_window = is_first_pass ? k + 1 : t->n_window;
        t->n_epoch_seen += is_first_pass ? batch.n_global : 0;
        bool is_out = t->fate[k] == BL_FATE_OUT;
        if (!is_out && !run_micro_batch(t, &batch, figures)) {
            *is_clean = false;
            TRY(handle_fault(t, k, &batch));
            continue;
        }
        bl_train_look(t, t->batches, &batch);
        TRY(bl_train_record(t, is_out ? "left out" : "noted"));
    }
    return BELAY_OK;
}

/* On all ranks, and clean when it was on all. */
static belay_code run_pass(bl_trainer *t, bool is_first_pass, bl_train_figures *figures, bool *is_clean)
{
    belay_code code = walk_window(t, is_first_pass, figures, is_clean);
    set_sync(t, false);
    TRY(code);
    TRY(bl_train_ranks_agree(t, figures, is_clean));
    if (*is_clean)
        return BELAY_OK;
    TRY(redo_faulted(t));
    return bl_train_ranks_fates(t);
}

static int64_t count_good(const bl_trainer *t)
{
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_window; k++)
        n += t->fate[k] != BL_FATE_OUT;
    return n;
}

static void step(bl_trainer *t)
{
    if (t->options.scaler == NULL) {
        belay_optimizer_step(t->optimizer);
        return;
    }
    belay_grad_scaler_step(t->options.scaler, t->optimizer);
    belay_grad_scaler_update(t->options.scaler);
}

/* One update by the mean gradient of the good micro-batches. */
static belay_code apply(bl_trainer *t, const bl_train_figures *figures)
{
    int64_t n_good = count_good(t);
    if (n_good == 0) {
        belay_optimizer_discard(t->optimizer);
        return BELAY_OK;
    }
    bl_train_ranks_phase(t, BL_PHASE_UPDATE);
    belay_optimizer_divisor_set(t->optimizer, (double)n_good);
    step(t);
    bool is_applied = belay_optimizer_is_applied(t->optimizer); /* waits: what it was refused for is told then */
    TRY(bl_train_record(t, "step dropped"));
    if (t->watch.fatal != BELAY_OK)
        return t->watch.fatal;
    if (!is_applied) {
        t->state.overflowed++;
        return BELAY_OK;
    }
    t->state.steps++;
    t->state.epoch_loss += figures->loss;
    t->state.epoch_samples += figures->n_samples;
    t->state.epoch_right += figures->n_right;
    return BELAY_OK;
}

/* The window's counts join the run's; its faults were dealt with. */
static void end_window(bl_trainer *t)
{
    t->state.position += t->n_window;
    t->state.faults += t->window.faults;
    t->state.skipped += t->window.skipped;
    t->state.transient += t->window.transient;
    t->window.faults = t->window.skipped = t->window.transient = 0;
    t->state.faults_bytes = t->folder.faults != NULL ? bl_file_append_size(t->folder.faults) : 0;
    bl_context_commit(t->context);
}

static belay_code run_window(bl_trainer *t)
{
    bl_train_figures figures;
    bool is_clean;
    t->n_window = 0;
    TRY(run_pass(t, true, &figures, &is_clean));
    while (!is_clean) {
        belay_optimizer_discard(t->optimizer);
        TRY(run_pass(t, false, &figures, &is_clean));
    }
    return apply(t, &figures);
}

belay_code bl_train_window(bl_trainer *t)
{
    int64_t began = bl_clock_now();
    belay_code code = run_window(t);
    t->epoch_time += bl_clock_now() - began;
    if (code == BELAY_OK) {
        end_window(t);
    } else {
        bl_train_ranks_give_up(t, code); /* first: nobody is to agree with this rank any more */
        belay_optimizer_discard(t->optimizer);
    }
    bl_train_ranks_phase(t, BL_PHASE_OUTSIDE);
    return code == BELAY_OK ? bl_train_ranks_stop(t) : code;
}
