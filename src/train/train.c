/* SPDX-License-Identifier: Apache-2.0 */
/* belay_train: options, epochs, validation, and how a run ends. */
#include <inttypes.h>
#include <math.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "data/object.h"
#include "nn/module.h"
#include "optim/optim.h"
#include "train/trainer.h"

/* ---- options ------------------------------------------------------------------------------------------------------ */

static belay_code check_range(bl_trainer *t, const char *name, int64_t value, int64_t low)
{
    if (value >= low && value <= UINT32_MAX)
        return BELAY_OK;
    return bl_error_set(&t->error, BELAY_CONF_VALUE, "%s is %" PRId64 ", it must be from %" PRId64 " to %" PRIu32, name,
                        value, low, UINT32_MAX);
}

static belay_code set_options(bl_trainer *t, const belay_train_options *given)
{
    belay_train_options *o = &t->options;
    *o = given != NULL ? *given : (belay_train_options){0};
    o->epochs = o->epochs != 0 ? o->epochs : 5;
    o->batch = o->batch != 0 ? o->batch : 64;
    o->accumulate = o->accumulate != 0 ? o->accumulate : 1;
    o->max_faults = o->max_faults > 0 ? o->max_faults : o->max_faults == 0 ? 100 : 0;
    o->seed = o->seed != 0 ? o->seed : t->context->seed;
    TRY(check_range(t, "epochs", o->epochs, 1));
    TRY(check_range(t, "batch", o->batch, 1));
    TRY(check_range(t, "accumulate", o->accumulate, 1));
    TRY(check_range(t, "patience", o->patience, 0));
    if (o->n_skip > 0 && o->skip == NULL)
        return bl_error_set(&t->error, BELAY_CONF_MISSING,
                            "%" PRId64 " batches to skip were promised at a NULL pointer", o->n_skip);
    if (!(o->label_smoothing >= 0 && o->label_smoothing < 1))
        return bl_error_set(&t->error, BELAY_CONF_VALUE, "label_smoothing is %g, it must be from 0 to below 1",
                            bl_text_real(o->label_smoothing));
    if (o->autocast != BELAY_F32 && o->autocast != BELAY_BF16 && o->autocast != BELAY_F16)
        return bl_error_set(&t->error, BELAY_CONF_VALUE, "autocast is %s, it must be bf16, f16, or f32 for none",
                            belay_dtype_name(o->autocast));
    if (o->scaler != NULL && !belay_tensor_is_alive(belay_grad_scaler_state(o->scaler)))
        return bl_error_set(&t->error, BELAY_CONF_VALUE, "the loss scale of a training is nil: it could not be made");
    if ((int)o->on_fault < 0 || o->on_fault > BELAY_ON_FAULT_STOP)
        return bl_error_set(&t->error, BELAY_CONF_VALUE, "on_fault is %d, which is no policy", (int)o->on_fault);
    return BELAY_OK;
}

static void set_state(bl_trainer *t)
{
    const belay_train_options *o = &t->options;
    int64_t n = belay_dataset_n_samples(t->data), batch = o->batch * t->ranks.size; /* fits: both below 2^32 */
    t->n_batches = o->drop_last ? n / batch : n / batch + (n % batch != 0);
    double none = (double)NAN;
    t->state = (bl_train_state){.batch = batch,
                                .accumulate = o->accumulate,
                                .seed = (int64_t)o->seed,
                                .shuffle = !o->no_shuffle,
                                .drop_last = o->drop_last,
                                .samples = n,
                                .best_epoch = -1,
                                .best_accuracy = none,
                                .best_loss = none,
                                .last_accuracy = none,
                                .last_loss = none,
                                .train_accuracy = none,
                                .train_loss = none};
}

/* A batch that is to be left out is one that the run comes to. */
static belay_code check_skipped(bl_trainer *t)
{
    for (int64_t i = 0; i < t->options.n_skip; i++) {
        const belay_batch_place *place = &t->options.skip[i];
        if (place->epoch >= 0 && place->position >= 0 && place->position < t->n_batches)
            continue;
        bl_error_set(&t->error, BELAY_CONF_VALUE,
                     "batch %" PRId64 " of epoch %" PRId64 " is to be skipped, an epoch has batches 0 to %" PRId64,
                     place->position, place->epoch, t->n_batches - 1);
        bl_error_advise(&t->error, "Epochs and batches count from 0; take it out of those to skip (--skip-batch).");
        return BELAY_CONF_VALUE;
    }
    return BELAY_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

static belay_code open_loaders(bl_trainer *t)
{
    const belay_train_options *o = &t->options;
    t->batches = belay_loader_new(t->data, &(belay_loader_options){.batch = o->batch,
                                                                   .rank = t->ranks.rank,
                                                                   .ranks = t->ranks.size,
                                                                   .shuffle = !o->no_shuffle,
                                                                   .drop_last = o->drop_last,
                                                                   .workers = o->workers,
                                                                   .seed = o->seed,
                                                                   .start_epoch = t->state.epoch,
                                                                   .start_batch = t->state.position});
    if (belay_loader_is_nil(t->batches))
        return t->watch.first;
    if (o->valid == NULL)
        return BELAY_OK;
    t->valid = belay_loader_new(o->valid, &(belay_loader_options){.batch = o->batch,
                                                                  .rank = t->ranks.rank,
                                                                  .ranks = t->ranks.size,
                                                                  .workers = o->workers > 0,
                                                                  .start_epoch = t->state.epoch});
    return belay_loader_is_nil(t->valid) ? t->watch.first : BELAY_OK;
}

static belay_code prepare(bl_trainer *t, const belay_train_options *options)
{
    TRY(bl_train_ranks_join(t, options != NULL ? options->reducer : NULL));
    TRY(set_options(t, options));
    TRY(bl_train_ranks_init(t));
    t->told = bl_alloc(1, sizeof *t->told);
    t->fate = bl_alloc(t->options.accumulate, sizeof *t->fate);
    if (t->told == NULL || t->fate == NULL)
        return bl_error_set(&t->error, BELAY_MEM_EXHAUSTED, "no memory to begin a run");
    t->watch.told = bl_train_told_add;
    t->watch.state = t->told;
    bl_train_watch_init(&t->watch, t->context);
    t->loss.label_smoothing = t->options.label_smoothing;
    set_state(t);
    return check_skipped(t);
}

static belay_code open_trainer(bl_trainer *t, const belay_train_options *options)
{
    TRY(prepare(t, options));
    TRY(bl_train_folder_open(t));
    TRY(bl_train_ranks_compare(t));
    return open_loaders(t);
}

static void close_trainer(bl_trainer *t)
{
    bl_train_watch_fini(&t->watch);
    belay_loader_close(t->batches);
    belay_loader_close(t->valid);
    bl_train_folder_close(t);
    bl_train_ranks_fini(t);
    if (t->ranks.group != NULL && t->options.reducer != NULL)
        belay_ddp_sync_set(t->options.reducer, true);
    bl_train_room_fini(&t->room);
    if (t->told != NULL)
        json_decref(t->told->batch);
    bl_free(t->told);
    bl_free(t->fate);
}

/* ---- telling ------------------------------------------------------------------------------------------------------ */

static double seconds_of(int64_t nanoseconds) { return (double)nanoseconds * 1e-9; }

static double rate_of(int64_t n, int64_t nanoseconds)
{
    return nanoseconds > 0 ? (double)n / seconds_of(nanoseconds) : (double)NAN;
}

static bl_train_figures epoch_figures(const bl_trainer *t)
{
    return (bl_train_figures){t->state.epoch_loss, t->state.epoch_samples, t->state.epoch_right};
}

static belay_progress progress_of(const bl_trainer *t, belay_progress_kind kind)
{
    bl_train_figures figures = epoch_figures(t);
    return (belay_progress){.kind = kind,
                            .epoch = t->state.epoch,
                            .n_epochs = t->options.epochs,
                            .batch = t->state.position,
                            .n_batches = t->n_batches,
                            .n_steps = t->state.steps,
                            .loss = bl_train_figures_loss(&figures),
                            .accuracy = bl_train_figures_accuracy(&figures),
                            .valid_loss = (double)NAN,
                            .valid_accuracy = (double)NAN,
                            .lr = belay_optimizer_lr_get(t->optimizer),
                            .samples_per_second = rate_of(t->n_epoch_seen, t->epoch_time),
                            .seconds = seconds_of(bl_clock_now() - t->began),
                            .n_faults = t->state.faults};
}

static void tell(const bl_trainer *t, const belay_progress *progress)
{
    if (t->options.progress != NULL)
        t->options.progress(t->options.progress_state, progress);
}

static void tell_begin(const bl_trainer *t)
{
    belay_progress progress = progress_of(t, BELAY_PROGRESS_BEGUN);
    progress.n_samples = t->state.samples;
    progress.n_valid_samples = t->options.valid != NULL ? belay_dataset_n_samples(t->options.valid) : 0;
    progress.n_parameters = belay_module_n_elements(t->model);
    progress.path = t->folder.goes_on ? t->folder.last : NULL;
    tell(t, &progress);
}

/* ---- an epoch ----------------------------------------------------------------------------------------------------- */

/* Several ranks agree on it at the end of a window. */
static bool is_asked_to_stop(bl_trainer *t)
{
    if (t->ranks.group == NULL && t->options.stop != NULL && t->stopped_by == 0)
        t->stopped_by = *t->options.stop;
    return t->stopped_by != 0;
}

/* After a validation batch that was left out. */
static void note_batch(void *state, const belay_batch *batch)
{
    bl_trainer *t = state;
    bl_train_look(t, t->valid, batch);
    if (t->error.code == BELAY_OK)
        (void)!bl_train_record(t, "left out");
}

/* Figures by which epochs are compared: of the validation data, without them of the training data. */
static belay_code validate(bl_trainer *t, belay_evaluation *out)
{
    bl_train_figures figures = epoch_figures(t);
    *out = (belay_evaluation){.loss = bl_train_figures_loss(&figures), .accuracy = bl_train_figures_accuracy(&figures)};
    if (t->valid == NULL)
        return BELAY_OK;
    bl_train_pass pass = {.model = t->model,
                          .batches = t->valid,
                          .room = &t->room,
                          .stop = t->ranks.group == NULL ? t->options.stop : NULL,
                          .faulted = note_batch,
                          .state = t};
    bl_phase was = bl_train_ranks_phase(t, BL_PHASE_EVALUATE);
    TRY(bl_train_evaluate(&pass, out));
    bl_context_commit(t->context);
    TRY(bl_train_record(t, "noted"));
    TRY(t->error.code);
    TRY(bl_train_ranks_sum(t, &pass.figures, &out->n_faulted_batches));
    bl_train_figures_tell(&pass.figures, out);
    bl_train_ranks_phase(t, was);
    return BELAY_OK;
}

static bool is_better(double accuracy, double loss, const bl_train_state *s)
{
    if (s->best_epoch < 0 || isnan(s->best_accuracy))
        return s->best_epoch < 0 || !isnan(accuracy);
    return accuracy > s->best_accuracy || (accuracy == s->best_accuracy && loss < s->best_loss);
}

static bl_report_metrics row_of(const bl_trainer *t, const belay_progress *p)
{
    return (bl_report_metrics){.epoch = p->epoch,
                               .steps = p->n_steps,
                               .train_loss = p->loss,
                               .train_accuracy = p->accuracy,
                               .valid_loss = p->valid_loss,
                               .valid_accuracy = p->valid_accuracy,
                               .lr = p->lr,
                               .samples_per_second = p->samples_per_second,
                               .seconds = p->seconds,
                               .faults = t->state.faults,
                               .skipped = t->state.skipped,
                               .best = p->is_best};
}

/* The state as the next epoch begins. */
static void advance(bl_trainer *t, const belay_evaluation *e, const belay_progress *p)
{
    bl_train_state *s = &t->state;
    if (p->is_best) {
        s->best_epoch = s->epoch;
        s->best_accuracy = e->accuracy;
        s->best_loss = e->loss;
    }
    s->since_best = p->is_best ? 0 : s->since_best + 1;
    s->last_accuracy = e->accuracy;
    s->last_loss = e->loss;
    s->train_accuracy = p->accuracy;
    s->train_loss = p->loss;
    s->epoch_loss = 0;
    s->epoch_samples = s->epoch_right = 0;
    s->position = 0;
    s->epoch++;
    t->all_time += t->epoch_time;
    t->n_all_seen += t->n_epoch_seen;
    t->epoch_time = t->n_epoch_seen = 0;
}

static belay_code end_epoch(bl_trainer *t, const belay_evaluation *e)
{
    belay_progress progress = progress_of(t, BELAY_PROGRESS_EPOCH);
    if (t->valid != NULL) {
        progress.valid_loss = e->loss;
        progress.valid_accuracy = e->accuracy;
    }
    progress.is_best = is_better(e->accuracy, e->loss, &t->state);
    bl_report_metrics row = row_of(t, &progress);
    advance(t, e, &progress);
    bl_phase was = bl_train_ranks_phase(t, BL_PHASE_SAVE);
    TRY(bl_train_folder_epoch(t, &row, progress.is_best));
    t->is_saved = bl_train_writes(t);
    bl_train_ranks_phase(t, was);
    tell(t, &progress);
    return BELAY_OK;
}

static belay_code run_epoch(bl_trainer *t)
{
    belay_evaluation evaluation;
    belay_batch none;
    while (t->state.position < t->n_batches) {
        if (is_asked_to_stop(t))
            return BELAY_OK;
        t->is_saved = false;
        TRY(bl_train_window(t));
        belay_progress progress = progress_of(t, BELAY_PROGRESS_STEP);
        tell(t, &progress);
    }
    TRY(validate(t, &evaluation));
    if (is_asked_to_stop(t))
        return BELAY_OK;
    belay_loader_next(t->batches, &none); /* the end of its epoch */
    return end_epoch(t, &evaluation);
}

static belay_code run_epochs(bl_trainer *t)
{
    const belay_train_options *o = &t->options;
    while (t->state.epoch < o->epochs && !is_asked_to_stop(t)) {
        t->ended_early = o->patience > 0 && t->state.since_best >= o->patience;
        if (t->ended_early)
            return BELAY_OK;
        TRY(run_epoch(t));
    }
    return BELAY_OK;
}

/* ---- the end ------------------------------------------------------------------------------------------------------ */

static belay_train_result result_of(const bl_trainer *t, belay_code code)
{
    const bl_train_state *s = &t->state;
    return (belay_train_result){
        .code = code,
        .status = code == BELAY_OK && t->stopped_by != 0 ? 128 + t->stopped_by : belay_code_status(code),
        .stopped_by = t->stopped_by,
        .ended_early = t->ended_early,
        .n_epochs = s->epoch,
        .n_steps = s->steps,
        .n_faults = s->faults + t->window.faults,
        .n_skipped = s->skipped + t->window.skipped,
        .n_transient = s->transient + t->window.transient,
        .n_overflowed = s->overflowed,
        .n_corrected = (int64_t)t->context->n_corrected - t->n_corrected_before,
        .best_epoch = s->best_epoch,
        .best_accuracy = s->best_accuracy,
        .best_loss = s->best_loss,
        .last_accuracy = s->last_accuracy,
        .last_loss = s->last_loss,
        .train_loss = s->train_loss,
        .train_accuracy = s->train_accuracy,
        .samples_per_second = rate_of(t->n_all_seen + t->n_epoch_seen, t->all_time + t->epoch_time),
        .seconds = seconds_of(bl_clock_now() - t->began)};
}

static belay_code save(bl_trainer *t, belay_code code)
{
    bl_error first = t->error;
    belay_code saved = t->is_saved ? BELAY_OK : bl_train_folder_save_last(t);
    belay_train_result result = result_of(t, code != BELAY_OK ? code : saved);
    belay_code reported = bl_train_folder_report(t, &result);
    if (code != BELAY_OK) {
        t->error = first;
        return code;
    }
    return saved != BELAY_OK ? saved : reported;
}

/* Whatever ended the run, what was trained is kept, unless the files themselves are what failed.  Over several ranks one
 * of them keeps it: a window that was not applied everywhere was applied nowhere. */
static belay_code end_run(bl_trainer *t, belay_code code)
{
    bl_train_ranks_phase(t, BL_PHASE_SAVE);
    if (code != BELAY_OK)
        bl_train_ranks_give_up(t, code);
    if (code == BELAY_OK && !bl_train_writes(t)) { /* rank 0 saves meanwhile */
        code = bl_train_ranks_meet(t, BELAY_OK);
        if (code == BELAY_OK)
            return BELAY_OK;
    }
    bool may_write = belay_code_status(code) != 4 || code == BELAY_MEM_EXHAUSTED || code == BELAY_COMM_FAILED;
    if (!t->folder.is_open || !may_write || belay_code_severity(code) == BELAY_SEVERITY_BUG)
        return code == BELAY_OK ? bl_train_ranks_meet(t, code) : code;
    if (!bl_train_ranks_saves(t, code))
        return code;
    belay_code saved = save(t, code);
    return code == BELAY_OK ? bl_train_ranks_meet(t, saved) : saved;
}

static belay_code run(bl_trainer *t, const belay_train_options *options)
{
    belay_code code = open_trainer(t, options);
    if (code == BELAY_OK) {
        tell_begin(t);
        code = run_epochs(t);
    }
    return end_run(t, code);
}

belay_code belay_train(belay_module *model, belay_optimizer *optimizer, belay_dataset *data,
                       const belay_train_options *options, belay_train_result *result)
{
    BL_ENTER(bl_module_context(model));
    bl_trainer t = {.context = bl_module_use(model), .model = model, .optimizer = optimizer, .data = data};
    belay_train_result unused = {0};
    result = result != NULL ? result : &unused;
    belay_code refused = bl_caller_code(BELAY_CONF_ORDER);
    *result = (belay_train_result){.code = refused, .status = belay_code_status(refused)};
    bool is_whole = t.context != NULL && bl_optim_ask(optimizer, t.context->site) && optimizer->context == t.context &&
                    bl_data_use(data, t.context->site) != NULL &&
                    (options == NULL || options->valid == NULL || bl_data_use(options->valid, t.context->site) != NULL);
    if (!is_whole) /* what is nil was told when it was made */
        return result->code;
    t.began = bl_clock_now();
    t.n_corrected_before = (int64_t)t.context->n_corrected;
    bl_module_hold(model);
    bl_optim_hold(optimizer);
    int here = bl_place_go(t.context, bl_module_place(model));
    (void)bl_place_settle(t.context, NULL); /* faults in flight are no batch's */
    belay_code code = run(&t, options);
    *result = result_of(&t, code);
    close_trainer(&t);
    bl_place_go(t.context, here);
    bl_optim_release(optimizer);
    bl_module_release(model);
    return bl_train_tell(t.context, code, &t.error);
}
