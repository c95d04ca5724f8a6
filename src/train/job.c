/* SPDX-License-Identifier: Apache-2.0 */
#include "train/job.h"

#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "dist/launched.h"
#include "file/path.h"
#include "train/resume.h"
#include "train/settings_agree.h"
#include "train/trainer.h"

typedef struct job {
    bl_settings *settings;
    const bl_train_job_options *options;
    belay_context *context;
    bl_train_watch watch;
    belay_dataset *data, *valid;
    belay_module *model;
    belay_group *group; /* NULL: this process is alone */
    belay_reducer *reducer;
    belay_optimizer *optimizer;
    belay_grad_scaler *scaler; /* NULL: none */
    bl_text settings_text, description;
    char *journal, *trace;
    bl_train_resume resume;
    bool made_folder;
    belay_train_result *result;
    bl_error *error;
} job;

/* ---- before there is a context ------------------------------------------------------------------------------------ */

static belay_code write_settings(job *j)
{
    json_t *json = bl_settings_to_json(j->settings);
    bl_json_to_text(json, &j->settings_text);
    json_decref(json);
    return j->settings_text.failed ? bl_file_no_memory(j->error, "write", j->settings->out) : BELAY_OK;
}

static bool is_rank(void)
{
    int size;
    return bl_launched_by(&size) != BL_LAUNCHER_NONE;
}

/* Its number, before there is a group: files of the run's folder have it in their names. */
static int rank_number(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    text = text != NULL ? text : getenv("SLURM_PROCID");
    return is_rank() && text != NULL ? atoi(text) : 0;
}

/* How many ranks there are is what the launcher says; a number that was given must be that. */
static belay_code count_ranks(bl_settings *s, bl_error *error)
{
    int size;
    bool is_given = s->set_by[BL_SETTING_n] >= BL_SET_BY_CONFIG;
    const char *world = getenv("WORLD_SIZE"); /* of a launcher that starts each rank alone */
    if (bl_launched_by(&size) == BL_LAUNCHER_NONE)
        return world != NULL && atoi(world) > 1 ? bl_launched_check(false, error) : BELAY_OK;
    if (is_given && s->n != size) {
        bl_error_set(error, BELAY_CONF_CONFLICT, "-n %" PRId64 " in a run that was started as %d ranks", s->n, size);
        bl_error_advise(error, "Leave -n out where mpirun or srun starts the ranks.");
        return BELAY_CONF_CONFLICT;
    }
    s->n = size;
    return BELAY_OK;
}

/* The number of ranks is this call's, whatever the run had. */
static belay_code read_run(job *j)
{
    bl_settings *s = j->settings;
    uint8_t by = s->set_by[BL_SETTING_n];
    s->set_by[BL_SETTING_n] = BL_SET_BY_CALLER;
    belay_code code = bl_train_resume_read(&j->resume, s, j->error);
    s->set_by[BL_SETTING_n] = by;
    return code;
}

/* "journal", and of another rank than 0 "journal.rank1". */
static char *join_name(const job *j, const char *name)
{
    char words[64];
    if (rank_number() == 0)
        return bl_file_join(j->settings->out, name);
    snprintf(words, sizeof words, "%s.rank%d", name, rank_number());
    return bl_file_join(j->settings->out, words);
}

static belay_code prepare(job *j)
{
    const bl_settings *s = j->settings;
    bl_settings_resolve(j->settings);
    TRY(count_ranks(j->settings, j->error));
    if (s->out != NULL && s->resume && !s->overwrite)
        TRY(read_run(j));
    TRY(bl_settings_check(s, j->error));
    TRY(bl_train_folder_check(s->out, s->resume, s->overwrite, j->error));
    TRY(write_settings(j));
    j->made_folder = bl_file_kind_get(s->out) == BL_FILE_ABSENT;
    TRY(bl_file_mkdir(s->out, j->error));
    j->journal = join_name(j, "journal");
    j->trace = s->trace ? join_name(j, "trace.json") : NULL;
    bool is_whole = j->journal != NULL && (j->trace != NULL || !s->trace);
    return is_whole ? BELAY_OK : bl_file_no_memory(j->error, "write", s->out);
}

/* What nobody asked for is left to the environment. */
static bool is_asked_for(const bl_settings *s, int setting, int value)
{
    return value != 0 || s->set_by[setting] >= BL_SET_BY_CONFIG;
}

static belay_sync_debug sync_debug_of(const bl_settings *s)
{
    return is_asked_for(s, BL_SETTING_sync_debug, s->sync_debug)
               ? (belay_sync_debug)(s->sync_debug + BELAY_SYNC_DEBUG_OFF)
               : BELAY_SYNC_DEBUG_DEFAULT;
}

static belay_memory_mode memory_of(const bl_settings *s)
{
    return is_asked_for(s, BL_SETTING_memory, s->memory) ? (belay_memory_mode)(s->memory + BELAY_MEMORY_POOL)
                                                         : BELAY_MEMORY_DEFAULT;
}

/* Ranks of a host share its cores. */
static int threads_of(const bl_settings *s)
{
    int here = bl_launched_here();
    if (s->threads > 0 || here == 1)
        return (int)s->threads;
    return omp_get_num_procs() > here ? omp_get_num_procs() / here : 1;
}

static belay_code open_context(job *j)
{
    const bl_settings *s = j->settings;
    bool takes_turn = s->n > 1 || is_rank(); /* then the group says whose device is which */
    j->context = belay_open(&(belay_options){.device = takes_turn ? "cpu" : s->device,
                                             .seed = (uint64_t)s->seed,
                                             .log = j->options->log,
                                             .log_state = j->options->log_state,
                                             .threads = threads_of(s),
                                             .index_policy = (belay_index_policy)(s->index_policy + BELAY_INDEX_RAISE),
                                             .journal = j->journal,
                                             .launch_blocking = s->launch_blocking,
                                             .sync_debug = sync_debug_of(s),
                                             .memory = memory_of(s),
                                             .trace = j->trace,
                                             .trace_nonfinite = s->trace_nonfinite});
    if (!belay_is_open(j->context))
        return j->context->open_code;
    belay_site_push(j->context, ""); /* no line of this file says anything to whoever gave the settings */
    bl_train_watch_init(&j->watch, j->context);
    if (rank_number() == 0)
        bl_train_resume_tell(&j->resume, s, j->context);
    return BELAY_OK;
}

/* ---- ranks -------------------------------------------------------------------------------------------------------- */

static belay_code open_group(job *j)
{
    const bl_settings *s = j->settings;
    if (s->n <= 1 && !is_rank())
        return BELAY_OK;
    j->group = belay_group_open(j->context, &(belay_group_options){.maker = "mpi", .timeout = s->timeout});
    TRY(j->watch.first);
    TRY(belay_group_bind(j->group, s->device));
    return bl_settings_agree(s, j->group);
}

/* Gradients lie in buckets before an optimizer looks for them. */
static belay_code make_reducer(job *j)
{
    if (j->group != NULL)
        j->reducer = belay_ddp(j->model, j->group, &(belay_ddp_options){.batch = j->settings->batch});
    return j->watch.first;
}

/* A rank that cannot go on says why; the others wait for it. */
static belay_code give_up(job *j, belay_code code)
{
    if (code != BELAY_OK && j->group != NULL && !bl_group_give_up_by_fault(j->group))
        belay_group_abort(j->group, belay_code_why(code));
    return code;
}

/* ---- data, model, optimizer --------------------------------------------------------------------------------------- */

static belay_code open_data(job *j)
{
    const bl_settings *s = j->settings;
    belay_text_options texts = {.seq = s->seq,
                                .text = s->text,
                                .label = s->label,
                                .tokens = s->tokens == BL_TOKENS_WORD ? BELAY_TOKENS_WORD : BELAY_TOKENS_CHAR,
                                .valid_split = s->valid == NULL ? s->valid_split : 0};
    j->data = belay_dataset_open(j->context, s->data, &texts);
    TRY(j->watch.first);
    if (s->valid != NULL) {
        texts.tokenizer = belay_dataset_tokenizer(j->data);
        texts.labels = belay_dataset_labels(j->data);
        j->valid = belay_dataset_open(j->context, s->valid, &texts);
    } else if (s->valid_split > 0) {
        j->valid = belay_dataset_validation(j->data);
    }
    if (j->watch.first == BELAY_OK && belay_dataset_n_samples(j->valid) == 0)
        j->valid = NULL;
    return j->watch.first;
}

static belay_code make_model(job *j)
{
    const bl_settings *s = j->settings;
    bool is_lstm = s->model == BL_MODEL_LSTM;
    j->model = belay_text_classifier(
        j->context, &(belay_text_classifier_options){.model = is_lstm ? BELAY_TEXT_LSTM : BELAY_TEXT_MEAN,
                                                     .n_tokens = belay_dataset_n_tokens(j->data),
                                                     .classes = belay_dataset_n_classes(j->data),
                                                     .embed = s->embed,
                                                     .hidden = s->hidden,
                                                     .layers = (int)s->layers,
                                                     .dropout = s->dropout,
                                                     .mean_all = s->mean_all,
                                                     .no_hidden = s->hidden == 0});
    bl_text_format(&j->description,
                   "{\"model\":\"%s\",\"n_tokens\":%" PRId64 ",\"classes\":%" PRId64 ",\"seq\":%" PRId64
                   ",\"embed\":%" PRId64 ",\"hidden\":%" PRId64 ",\"layers\":%" PRId64
                   ",\"dropout\":%.17g,\"mean_all\":%s}",
                   is_lstm ? "lstm" : "mean", belay_dataset_n_tokens(j->data), belay_dataset_n_classes(j->data), s->seq,
                   s->embed, s->hidden, s->layers, s->dropout, s->mean_all ? "true" : "false");
    if (j->watch.first == BELAY_OK && j->description.failed)
        return bl_train_tell(j->context, bl_file_no_memory(j->error, "describe the model of", s->out), j->error);
    return j->watch.first;
}

/* Steps of all epochs together; each epoch ends with a step of its own. */
static int64_t n_steps(const job *j)
{
    const bl_settings *s = j->settings;
    int64_t n = belay_dataset_n_samples(j->data), total = 0;
    int64_t batch = s->batch * s->n; /* fits: limits of the rows */
    int64_t n_batches = s->drop_last ? n / batch : (n + batch - 1) / batch;
    if (!bl_checked_mul((n_batches + s->accumulate - 1) / s->accumulate, s->epochs, &total))
        total = INT64_MAX;
    return bl_max_i64(total, 1);
}

static belay_schedule schedule_of(const job *j)
{
    static const belay_schedule_kind kinds[] = {[BL_SCHEDULE_CONSTANT] = BELAY_SCHEDULE_CONSTANT,
                                                [BL_SCHEDULE_COSINE] = BELAY_SCHEDULE_COSINE,
                                                [BL_SCHEDULE_STEP] = BELAY_SCHEDULE_STEP,
                                                [BL_SCHEDULE_LINEAR] = BELAY_SCHEDULE_LINEAR};
    const bl_settings *s = j->settings;
    int64_t after_warmup = bl_max_i64(n_steps(j) - s->warmup, 1);
    return (belay_schedule){.kind = kinds[s->schedule],
                            .period = s->schedule == BL_SCHEDULE_STEP ? after_warmup / 3 + (after_warmup % 3 != 0)
                                                                      : after_warmup,
                            .warmup = s->warmup};
}

static belay_code make_optimizer(job *j)
{
    const bl_settings *s = j->settings;
    belay_schedule schedule = schedule_of(j);
    belay_adam_options adam = {.lr = s->lr, .weight_decay = s->weight_decay, .clip = s->clip, .schedule = schedule};
    belay_sgd_options sgd = {.lr = s->lr, .weight_decay = s->weight_decay, .clip = s->clip, .schedule = schedule};
    if (s->optimizer == BL_OPTIMIZER_SGD)
        j->optimizer = belay_sgd(j->model, &sgd);
    else if (s->optimizer == BL_OPTIMIZER_ADAMW)
        j->optimizer = belay_adamw(j->model, &adam);
    else
        j->optimizer = belay_adam(j->model, &adam);
    if (s->amp == BL_AMP_F16)
        j->scaler = belay_grad_scaler_new(j->context, NULL);
    return j->watch.first;
}

/* ---- the run ------------------------------------------------------------------------------------------------------ */

static belay_code train(job *j)
{
    static const belay_on_fault policies[] = {[BL_ON_FAULT_SKIP] = BELAY_ON_FAULT_SKIP,
                                              [BL_ON_FAULT_REDO] = BELAY_ON_FAULT_REDO,
                                              [BL_ON_FAULT_STOP] = BELAY_ON_FAULT_STOP};
    static const belay_dtype autocasts[] = {
        [BL_AMP_OFF] = BELAY_F32, [BL_AMP_BF16] = BELAY_BF16, [BL_AMP_F16] = BELAY_F16};
    const bl_settings *s = j->settings;
    bl_train_watch_fini(&j->watch);
    return belay_train(j->model, j->optimizer, j->data,
                       &(belay_train_options){.valid = j->valid,
                                              .epochs = s->epochs,
                                              .batch = s->batch,
                                              .accumulate = s->accumulate,
                                              .drop_last = s->drop_last,
                                              .workers = s->workers,
                                              .label_smoothing = s->label_smoothing,
                                              .autocast = autocasts[s->amp],
                                              .scaler = j->scaler,
                                              .reducer = j->reducer,
                                              .patience = s->patience,
                                              .on_fault = policies[s->on_fault],
                                              .max_faults = s->max_faults > 0 ? s->max_faults : -1,
                                              .skip = (const belay_batch_place *)s->skip_batch.pair,
                                              .n_skip = s->skip_batch.n,
                                              .out = s->out,
                                              .resume = s->resume,
                                              .overwrite = s->overwrite,
                                              .settings = bl_text_get(&j->settings_text),
                                              .description = bl_text_get(&j->description),
                                              .stop = j->options->stop,
                                              .progress = j->options->progress,
                                              .progress_state = j->options->progress_state},
                       j->result);
}

_Static_assert(sizeof(bl_pair) == sizeof(belay_batch_place) &&
                   offsetof(bl_pair, position) == offsetof(belay_batch_place, position),
               "pairs are places of batches");

static belay_code run(job *j)
{
    TRY(prepare(j));
    TRY(open_context(j));
    TRY(open_group(j));
    TRY(give_up(j, open_data(j)));
    TRY(give_up(j, make_model(j)));
    TRY(make_reducer(j));
    TRY(give_up(j, make_optimizer(j)));
    return train(j);
}

/* What a run that never came to its first file leaves is its journal. */
static bool is_empty_run(const job *j)
{
    bool has_more = false;
    bl_error unheard;
    return bl_train_folder_look(j->settings->out, "run.json", &has_more, &unheard) == BELAY_OK &&
           bl_train_folder_look(j->settings->out, "metrics.csv", &has_more, &unheard) == BELAY_OK && !has_more;
}

/* A folder that was made for a run that never began goes again. */
static void close_job(job *j)
{
    bl_train_watch_fini(&j->watch);
    if (j->context != NULL)
        belay_close(j->context);
    if (j->made_folder && is_empty_run(j)) {
        if (j->journal != NULL)
            unlink(j->journal);
        if (j->trace != NULL)
            unlink(j->trace);
        rmdir(j->settings->out);
    }
    bl_free(j->journal);
    bl_free(j->trace);
    bl_text_fini(&j->settings_text);
    bl_text_fini(&j->description);
    bl_train_resume_fini(&j->resume);
}

belay_code bl_train_job(bl_settings *settings, const bl_train_job_options *options, belay_train_result *result,
                        bl_error *error)
{
    bl_error own = {0};
    job j = {.settings = settings, .options = options, .result = result, .error = error != NULL ? error : &own};
    *j.error = (bl_error){0};
    *result = (belay_train_result){.best_epoch = -1};
    belay_code code = run(&j);
    bool has_begun = j.optimizer != NULL && result->code == code;
    if (j.context != NULL)
        *j.error = (bl_error){0}; /* told by the log */
    close_job(&j);
    if (!has_begun)
        *result = (belay_train_result){.code = code, .status = belay_code_status(code), .best_epoch = -1};
    return code;
}
