/* SPDX-License-Identifier: Apache-2.0 */
/* A run's folder.  At any moment, whatever failed or was killed, it holds the last whole checkpoints or none at all; a
 * run that goes on cuts the files that grow to what `last` knew of them.
 *
 * Of several ranks the first one writes here; the others have a faults.rankN.jsonl of their own, and read `last`. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/path.h"
#include "report/html.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

belay_code bl_train_folder_look(const char *folder, const char *name, bool *has, bl_error *error)
{
    struct stat status;
    char words[128], *path = bl_file_join(folder, name);
    if (path == NULL)
        return bl_file_no_memory(error, "look into", folder);
    belay_code code = BELAY_OK;
    if (stat(path, &status) == 0)
        *has = true;
    else if (errno != ENOENT && errno != ENOTDIR)
        code = bl_error_set(error, BELAY_FILE_OPEN, "cannot look at '%s': %s", path, bl_error_errno(errno, words));
    bl_free(path);
    return code;
}

/* A checkpoint is `last` before it is also `best`, so no kill leaves `best` alone. */
static belay_code lost_last(const char *path, bl_error *error)
{
    bl_error_set(error, BELAY_FILE_OPEN,
                 "'%s' holds best.safetensors but not last.safetensors, from which a run goes on", path);
    bl_error_advise(error, "Put last.safetensors back, or begin the run anew with --overwrite or in a new --out.");
    return BELAY_FILE_OPEN;
}

belay_code bl_train_folder_check(const char *path, bool resume, bool overwrite, bl_error *error)
{
    if (resume && overwrite)
        return bl_error_set(error, BELAY_CONF_CONFLICT, "a run cannot both be gone on with and be overwritten");
    bool has_run = false, has_last = false, has_best = false;
    TRY(bl_train_folder_look(path, "run.json", &has_run, error));
    TRY(bl_train_folder_look(path, "last.safetensors", &has_last, error));
    TRY(bl_train_folder_look(path, "best.safetensors", &has_best, error));
    if (resume && has_best && !has_last)
        return lost_last(path, error);
    if (!(has_run || has_last || has_best) || resume || overwrite)
        return BELAY_OK;
    bl_error_set(error, BELAY_FILE_EXISTS, "'%s' holds a run already", path);
    bl_error_advise(error, "Go on with it by --resume, replace it by --overwrite, or choose another folder.");
    return BELAY_FILE_EXISTS;
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* Rank 0's name, or that of another rank: "faults.jsonl", "faults.rank2.jsonl". */
static char *join_faults(const char *path, int rank)
{
    char name[48] = "faults.jsonl";
    if (rank > 0)
        snprintf(name, sizeof name, "faults.rank%d.jsonl", rank);
    return bl_file_join(path, name);
}

static belay_code set_paths(bl_train_folder *f, const char *path, int rank, bl_error *error)
{
    f->path = bl_strdup(path);
    f->best = bl_file_join(path, "best.safetensors");
    f->last = bl_file_join(path, "last.safetensors");
    f->run = bl_file_join(path, "run.json");
    f->metrics_path = bl_file_join(path, "metrics.csv");
    f->faults_path = join_faults(path, rank);
    bool is_whole = f->path != NULL && f->best != NULL && f->last != NULL && f->run != NULL &&
                    f->metrics_path != NULL && f->faults_path != NULL;
    return is_whole ? BELAY_OK : bl_file_no_memory(error, "write", path);
}

/* What an earlier run left; what says that there is one first, and `best` before `last`, as lost_last relies on. */
static belay_code clear_ranks(const char *path, bl_error *error)
{
    for (int rank = 1;; rank++) {
        char *faults = join_faults(path, rank);
        if (faults == NULL)
            return bl_file_no_memory(error, "clear", path);
        bool was_there = unlink(faults) == 0;
        bl_free(faults);
        if (!was_there)
            return BELAY_OK;
    }
}

static belay_code clear(const bl_train_folder *f, bl_error *error)
{
    char *report = bl_file_join(f->path, "report.html");
    const char *const paths[] = {f->run, f->best, f->last, f->metrics_path, f->faults_path, report};
    belay_code code = report != NULL ? BELAY_OK : bl_file_no_memory(error, "clear", f->path);
    for (int i = 0; i < BL_COUNT(paths) && code == BELAY_OK; i++)
        if (unlink(paths[i]) != 0 && errno != ENOENT) {
            char words[128];
            code = bl_error_set(error, BELAY_FILE_WRITE, "'%s' cannot be removed: %s", paths[i],
                                bl_error_errno(errno, words));
        }
    bl_free(report);
    return code == BELAY_OK ? clear_ranks(f->path, error) : code;
}

/* A new one starts with its head. */
static belay_code open_metrics(bl_trainer *t, int64_t keep)
{
    bl_train_folder *f = &t->folder;
    TRY(bl_file_append_open(f->metrics_path, keep, &f->metrics, &t->error));
    if (bl_file_append_size(f->metrics) > 0)
        return BELAY_OK;
    bl_text head = {0};
    bl_report_metrics_head(&head);
    belay_code code = head.failed ? bl_file_no_memory(&t->error, "write", f->metrics_path)
                                  : bl_file_append_line(f->metrics, bl_text_get(&head), head.n_bytes, &t->error);
    bl_text_fini(&head);
    return code == BELAY_OK ? bl_file_append_flush(f->metrics, &t->error) : code;
}

/* ---- the state ---------------------------------------------------------------------------------------------------- */

#define BL_TRAIN_STATE_SAME BELAY_I64
#define BL_TRAIN_STATE_INT  BELAY_I64
#define BL_TRAIN_STATE_REAL BELAY_F64

static belay_code list_state(bl_checkpoint *list, bl_train_state *state, bl_error *error)
{
#define X(kind, name) TRY(bl_checkpoint_add_scalar(list, #name, BL_TRAIN_STATE_##kind, &state->name, error));
    BL_TRAIN_STATE(X)
#undef X
    return BELAY_OK;
}

static belay_code check_same(const bl_trainer *t, const char *name, int64_t theirs, int64_t ours, bl_error *error)
{
    const char *path = t->folder.last;
    if (theirs == ours)
        return BELAY_OK;
    bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' was written with %s %" PRId64 ", this run has %" PRId64, path, name,
                 theirs, ours);
    if (t->ranks.size > 1 && strcmp(name, "batch") == 0)
        bl_error_fact(error, "a batch is that of all %d ranks together", t->ranks.size);
    bl_error_fact(error, "to go on bit for bit, both must be the same");
    return BELAY_FILE_MISMATCH;
}

static belay_code check_count(const char *path, const char *name, int64_t value, int64_t low, bl_error *error)
{
    if (value >= low)
        return BELAY_OK;
    return bl_error_set(error, BELAY_FILE_FORMAT, "'%s' has %" PRId64 " as belay.run.%s", path, value, name);
}

static belay_code check_state(const bl_trainer *t, const bl_train_state *state, bl_error *error)
{
    const char *path = t->folder.last;
#define BL_CHECK_SAME(name) TRY(check_same(t, #name, state->name, t->state.name, error));
#define BL_CHECK_INT(name)  TRY(check_count(path, #name, state->name, strcmp(#name, "best_epoch") == 0 ? -1 : 0, error));
#define BL_CHECK_REAL(name)
#define X(kind, name) BL_CHECK_##kind(name)
    BL_TRAIN_STATE(X)
#undef X
#undef BL_CHECK_SAME
#undef BL_CHECK_INT
#undef BL_CHECK_REAL
    if (state->position > t->n_batches || state->epoch > UINT32_MAX)
        return bl_error_set(error, BELAY_FILE_FORMAT,
                            "'%s' stands at epoch %" PRId64 ", batch %" PRId64 ", an epoch has %" PRId64 " batches",
                            path, state->epoch, state->position, t->n_batches);
    return BELAY_OK;
}

/* Ids mean what they meant: the same words, in the same places. */
static belay_code check_words(bl_trainer *t, const bl_safetensors *file, const char *key, const char *ours,
                              const char *what)
{
    const char *theirs = bl_safetensors_metadata(file, key);
    if (theirs == NULL || ours == NULL || strcmp(theirs, ours) == 0)
        return BELAY_OK;
    bl_error_set(&t->error, BELAY_FILE_MISMATCH, "the training data have other %s than those that '%s' was trained on",
                 what, t->folder.last);
    bl_error_advise(&t->error, "Go on with the data that the run was begun with, or begin another run in a new --out.");
    return BELAY_FILE_MISMATCH;
}

static belay_code list_all(bl_checkpoint *list, bl_trainer *t, bl_error *error)
{
    TRY(bl_checkpoint_add_model(list, t->model, error));
    TRY(bl_checkpoint_add_optimizer(list, t->context, t->optimizer, error));
    return t->options.scaler != NULL ? bl_checkpoint_add_scaler(list, t->context, t->options.scaler, error) : BELAY_OK;
}

/* The small ones first: a file of another run changes nothing. */
static belay_code read_last(bl_trainer *t, bl_safetensors *file, bl_checkpoint *scalars, bl_checkpoint *tensors)
{
    bl_train_state state = t->state;
    TRY(list_state(scalars, &state, &t->error));
    TRY(list_all(tensors, t, &t->error));
    TRY(bl_checkpoint_read(scalars, false, file, &t->error));
    TRY(check_words(t, file, "belay.labels", t->folder.labels, "labels"));
    TRY(check_words(t, file, "belay.tokenizer", t->folder.tokenizer, "tokens"));
    TRY(check_state(t, &state, &t->error));
    TRY(bl_checkpoint_read(tensors, true, file, &t->error));
    t->state = state;
    t->context->step = (uint64_t)state.steps;
    return BELAY_OK;
}

static belay_code load_last(bl_trainer *t)
{
    bl_safetensors *file = NULL;
    bl_checkpoint scalars = {0}, tensors = {0};
    TRY(bl_safetensors_open(t->folder.last, &file, &t->error));
    belay_code code = read_last(t, file, &scalars, &tensors);
    bl_checkpoint_fini(&scalars);
    bl_checkpoint_fini(&tensors);
    bl_safetensors_close(file);
    return code;
}

/* ---- checkpoints -------------------------------------------------------------------------------------------------- */

static belay_code write_list(const bl_trainer *t, const bl_checkpoint *list, const char *path, bl_error *error)
{
    const belay_pair pairs[] = {{"format", "pt"},
                                {"belay.format", "1"},
                                {"belay.model", t->options.description},
                                {"belay.settings", t->options.settings},
                                {"belay.labels", t->folder.labels},
                                {"belay.tokenizer", t->folder.tokenizer}};
    belay_pair given[BL_COUNT(pairs)];
    int64_t n = 0;
    for (int i = 0; i < BL_COUNT(pairs); i++)
        if (pairs[i].value != NULL)
            given[n++] = pairs[i];
    return bl_checkpoint_write(list, path, given, n, error);
}

static void tell_saved(const bl_trainer *t, const char *path)
{
    belay_progress progress = {.kind = BELAY_PROGRESS_SAVED, .epoch = t->state.epoch, .path = path};
    if (t->options.progress != NULL)
        t->options.progress(t->options.progress_state, &progress);
}

static belay_code save_best(bl_trainer *t)
{
    bl_checkpoint list = {0};
    belay_code code = bl_checkpoint_add_model(&list, t->model, &t->error);
    if (code == BELAY_OK)
        code = write_list(t, &list, t->folder.best, &t->error);
    bl_checkpoint_fini(&list);
    if (code == BELAY_OK)
        tell_saved(t, t->folder.best);
    return code;
}

/* The weights are those of the best epoch. */
static bool is_new_best(const bl_train_state *s)
{
    return s->best_epoch >= 0 && s->position == 0 && s->best_epoch + 1 == s->epoch;
}

/* Files that grow belong to rank 0; whoever saves in its place keeps what is there of them. */
static void take_sizes(bl_trainer *t)
{
    struct stat status;
    char *faults = join_faults(t->folder.path, 0);
    t->state.metrics_bytes = stat(t->folder.metrics_path, &status) == 0 ? (int64_t)status.st_size : 0;
    t->state.faults_bytes = faults != NULL && stat(faults, &status) == 0 ? (int64_t)status.st_size : 0;
    bl_free(faults);
}

belay_code bl_train_folder_save_last(bl_trainer *t)
{
    bl_checkpoint list = {0};
    if (!t->folder.is_open)
        return BELAY_OK;
    if (!bl_train_writes(t)) {
        take_sizes(t);
        if (is_new_best(&t->state)) /* rank 0 may have ended before it came to that */
            TRY(save_best(t));
    }
    belay_code code = list_all(&list, t, &t->error);
    if (code == BELAY_OK)
        code = list_state(&list, &t->state, &t->error);
    if (code == BELAY_OK)
        code = write_list(t, &list, t->folder.last, &t->error);
    bl_checkpoint_fini(&list);
    if (code == BELAY_OK)
        tell_saved(t, t->folder.last);
    return code;
}

static belay_code add_metrics(bl_trainer *t, const bl_report_metrics *row)
{
    bl_text line = {0};
    bl_report_metrics_line(row, &line);
    belay_code code = line.failed ? bl_file_no_memory(&t->error, "write", t->folder.metrics_path)
                                  : bl_file_append_line(t->folder.metrics, bl_text_get(&line), line.n_bytes, &t->error);
    bl_text_fini(&line);
    return code;
}

belay_code bl_train_folder_epoch(bl_trainer *t, const bl_report_metrics *row, bool is_best)
{
    if (!t->folder.is_open || !bl_train_writes(t))
        return BELAY_OK;
    TRY(add_metrics(t, row));
    TRY(bl_file_append_sync(t->folder.metrics, &t->error));
    TRY(bl_file_append_sync(t->folder.faults, &t->error));
    t->state.metrics_bytes = bl_file_append_size(t->folder.metrics);
    t->state.faults_bytes = bl_file_append_size(t->folder.faults);
    bool has_best = bl_file_kind_get(t->folder.best) != BL_FILE_ABSENT;
    if (is_best && has_best)
        TRY(save_best(t));
    TRY(bl_train_folder_save_last(t));
    if (is_best && !has_best)
        TRY(save_best(t));
    return bl_report_html(t->folder.path, &t->error);
}

/* ---- run.json ----------------------------------------------------------------------------------------------------- */

static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *outcome_of(const belay_train_result *r)
{
    json_t *out = json_object();
    const char *ended = r->code != BELAY_OK  ? belay_code_name(r->code)
                        : r->stopped_by != 0 ? "stopped as asked"
                        : r->ended_early     ? "no better epoch for as long as allowed"
                                             : "all epochs done";
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"epochs", r->n_epochs},       {"steps", r->n_steps},         {"faults", r->n_faults},
                  {"skipped", r->n_skipped},     {"transient", r->n_transient}, {"overflowed", r->n_overflowed},
                  {"corrected", r->n_corrected}, {"best_epoch", r->best_epoch}};
    json_object_set_new(out, "ended", json_string(ended));
    for (int i = 0; i < BL_COUNT(counts); i++)
        json_object_set_new(out, counts[i].name, json_integer(counts[i].value));
    json_object_set_new(out, "best_accuracy", real(r->best_accuracy));
    json_object_set_new(out, "best_loss", real(r->best_loss));
    json_object_set_new(out, "samples_per_second", real(r->samples_per_second));
    json_object_set_new(out, "seconds", real(r->seconds));
    return out;
}

/* Settings of a run that were not given as text: those of its options. */
static json_t *settings_of(const belay_train_options *o)
{
    static const char *const policies[] = {"skip", "redo", "stop"};
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"epochs", o->epochs},     {"batch", o->batch},       {"accumulate", o->accumulate},
                  {"workers", o->workers},   {"patience", o->patience}, {"max-faults", o->max_faults},
                  {"seed", (int64_t)o->seed}};
    json_t *out = json_object();
    for (int i = 0; i < BL_COUNT(counts); i++)
        json_object_set_new(out, counts[i].name, json_integer(counts[i].value));
    json_object_set_new(out, "drop-last", json_boolean(o->drop_last));
    json_object_set_new(out, "label-smoothing", json_real(o->label_smoothing));
    json_object_set_new(out, "on-fault", json_string(policies[o->on_fault]));
    return out;
}

static belay_code add_text(json_t *run, const char *key, const char *text, bl_error *error)
{
    json_t *value;
    if (text == NULL)
        return BELAY_OK;
    TRY(bl_json_parse(text, (int64_t)strlen(text), key, 1, &value, error));
    json_object_set_new(run, key, value);
    return BELAY_OK;
}

static belay_code write_run(bl_trainer *t, json_t *run, const belay_train_result *outcome)
{
    json_object_set_new(run, "version", json_integer(1));
    TRY(add_text(run, "settings", t->options.settings, &t->error));
    if (t->options.settings == NULL)
        json_object_set_new(run, "settings", settings_of(&t->options));
    TRY(add_text(run, "model", t->options.description, &t->error));
    if (outcome != NULL)
        json_object_set_new(run, "outcome", outcome_of(outcome));
    if (bl_json_out_of_memory())
        return bl_file_no_memory(&t->error, "write", t->folder.run);
    return bl_json_write(t->folder.run, run, &t->error);
}

belay_code bl_train_folder_report(bl_trainer *t, const belay_train_result *outcome)
{
    if (t->folder.faults == NULL)
        return BELAY_OK;
    bl_json_init();
    json_t *run = json_object();
    belay_code code = run != NULL ? write_run(t, run, outcome) : bl_file_no_memory(&t->error, "write", t->folder.run);
    json_decref(run);
    return code == BELAY_OK ? bl_report_html(t->folder.path, &t->error) : code;
}

/* ---- begun, or gone on with --------------------------------------------------------------------------------------- */

/* A kill after the first `last` leaves it without its `best`, which has the same weights then.  One that is missing at
 * another time was taken away. */
static belay_code mend_best(bl_trainer *t)
{
    bl_train_state *s = &t->state;
    if (s->best_epoch < 0 || bl_file_kind_get(t->folder.best) != BL_FILE_ABSENT)
        return BELAY_OK;
    if (is_new_best(s))
        return save_best(t);
    bl_context_raise(t->context, BELAY_RUN_CHANGED,
                     "'%s' of epoch %" PRId64
                     " is missing: the run goes on without it, its next epoch counts as the best",
                     t->folder.best, s->best_epoch);
    s->best_epoch = -1;
    s->best_accuracy = s->best_loss = (double)NAN;
    return BELAY_OK;
}

/* What all ranks hold of the folder. */
static belay_code begin(bl_trainer *t)
{
    const belay_train_options *o = &t->options;
    bl_train_folder *f = &t->folder;
    TRY(set_paths(f, o->out, t->ranks.rank, &t->error));
    f->tokenizer = belay_tokenizer_to_json(o->tokenizer != NULL ? o->tokenizer : belay_dataset_tokenizer(t->data));
    f->labels = belay_labels_to_json(o->labels != NULL ? o->labels : belay_dataset_labels(t->data));
    return BELAY_OK;
}

static belay_code open_first(bl_trainer *t)
{
    const belay_train_options *o = &t->options;
    bl_train_folder *f = &t->folder;
    TRY(bl_train_folder_check(o->out, o->resume, o->overwrite, &t->error));
    TRY(begin(t));
    f->goes_on = o->resume && bl_file_kind_get(f->last) != BL_FILE_ABSENT;
    if (f->goes_on)
        TRY(load_last(t));
    TRY(bl_file_mkdir(o->out, &t->error));
    TRY(f->goes_on ? mend_best(t) : clear(f, &t->error));
    TRY(open_metrics(t, f->goes_on ? t->state.metrics_bytes : BL_FILE_KEEP_NONE));
    TRY(bl_file_append_open(f->faults_path, f->goes_on ? t->state.faults_bytes : BL_FILE_KEEP_NONE, &f->faults,
                            &t->error));
    t->state.metrics_bytes = bl_file_append_size(f->metrics);
    return bl_train_folder_report(t, NULL);
}

/* Goes on from the file that rank 0 went on from, and has its sizes. */
static belay_code open_other(bl_trainer *t)
{
    bl_train_folder *f = &t->folder;
    TRY(begin(t));
    if (f->goes_on && bl_file_kind_get(f->last) == BL_FILE_ABSENT) {
        bl_error_set(&t->error, BELAY_FILE_OPEN, "rank %d does not see '%s', from which rank 0 goes on", t->ranks.rank,
                     f->last);
        bl_error_advise(&t->error, "Put the run's folder where all hosts see it under the same path.");
        return BELAY_FILE_OPEN;
    }
    if (f->goes_on)
        TRY(load_last(t));
    TRY(bl_file_mkdir(f->path, &t->error));
    return bl_file_append_open(f->faults_path, f->goes_on ? BL_FILE_KEEP_LINES : BL_FILE_KEEP_NONE, &f->faults,
                               &t->error);
}

/* First what may refuse, on rank 0 alone; then the others. */
belay_code bl_train_folder_open(bl_trainer *t)
{
    bl_train_folder *f = &t->folder;
    if (t->options.out == NULL)
        return BELAY_OK;
    TRY(bl_train_ranks_meet(t, bl_train_writes(t) ? open_first(t) : BELAY_OK));
    struct {
        bool goes_on;
        int64_t best_epoch;
        double best_accuracy, best_loss;
    } said = {f->goes_on, t->state.best_epoch, t->state.best_accuracy, t->state.best_loss};
    TRY(bl_train_ranks_take(t, &said, (int64_t)sizeof said, "whether the run goes on"));
    f->goes_on = said.goes_on;
    TRY(bl_train_ranks_meet(t, bl_train_writes(t) ? BELAY_OK : open_other(t)));
    t->state.best_epoch = said.best_epoch; /* as mended by rank 0 */
    t->state.best_accuracy = said.best_accuracy;
    t->state.best_loss = said.best_loss;
    f->is_open = true;
    return BELAY_OK;
}

void bl_train_folder_close(bl_trainer *t)
{
    bl_train_folder *f = &t->folder;
    bl_error unheard;
    (void)!bl_file_append_close(f->metrics, &unheard);
    (void)!bl_file_append_close(f->faults, &unheard);
    char *const paths[] = {f->path, f->best, f->last, f->run, f->metrics_path, f->faults_path};
    for (int i = 0; i < BL_COUNT(paths); i++)
        bl_free(paths[i]);
    *f = (bl_train_folder){0};
}
