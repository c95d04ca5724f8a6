/* SPDX-License-Identifier: Apache-2.0 */
#include "train/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "file/path.h"
#include "file/safetensors.h"
#include "train/trainer.h"

/* ---- is there a run? ---------------------------------------------------------------------------------------------- */

static belay_code no_folder(const char *path, const char *why, bool is_absent, bl_error *error)
{
    bl_error_set(error, BELAY_FILE_OPEN, "cannot go on with the run in '%s': %s", path, why);
    if (is_absent)
        bl_error_advise(error, "Check the spelling of --out; leave --resume out to begin a run there.");
    return BELAY_FILE_OPEN;
}

static belay_code check_is_folder(const char *path, bl_error *error)
{
    struct stat status;
    char words[128];
    if (stat(path, &status) != 0)
        return no_folder(path, bl_error_errno(errno, words), errno == ENOENT || errno == ENOTDIR, error);
    if (!S_ISDIR(status.st_mode)) {
        snprintf(words, sizeof words, "it is %s", bl_file_kind_describe(status.st_mode));
        return no_folder(path, words, true, error);
    }
    return BELAY_OK;
}

/* A journal without run.json is what is left of a run that ended before it had begun. */
static belay_code no_run(const char *path, bl_error *error)
{
    bool has_journal = false;
    TRY(bl_train_folder_look(path, "journal", &has_journal, error));
    bl_error_set(error, BELAY_FILE_OPEN, "'%s' holds no run to go on with", path);
    if (has_journal)
        bl_error_fact(error, "a run was begun there and ended before it had written anything");
    bl_error_advise(error, has_journal ? "Leave --resume out to begin it again."
                                       : "Check the spelling of --out; leave --resume out to begin a run there.");
    return BELAY_FILE_OPEN;
}

/* ---- what it says ------------------------------------------------------------------------------------------------- */

typedef struct place {
    int64_t epoch, position;
} place;

static belay_code read_scalar(const bl_safetensors *file, const char *name, int64_t *out, bl_error *error)
{
    const bl_safetensors_entry *entry = bl_safetensors_find(file, name);
    if (entry == NULL || entry->dtype != BL_SAFETENSORS_I64 || entry->n_elements != 1) {
        bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' does not hold '%s', which a run has", bl_safetensors_path(file),
                     name);
        bl_error_advise(error, "Put back the last.safetensors that the run wrote, or begin it anew with --overwrite.");
        return BELAY_FILE_MISMATCH;
    }
    return bl_safetensors_read(file, entry, out, (int64_t)sizeof *out, error);
}

/* The settings in the metadata; a run of another program has none. */
static belay_code read_before(bl_train_resume *r, const bl_safetensors *file, bl_error *error)
{
    const char *text = bl_safetensors_metadata(file, "belay.settings"), *path = bl_safetensors_path(file);
    json_t *json = NULL;
    if (text == NULL)
        return BELAY_OK;
    TRY(bl_settings_init(&r->before, error));
    bl_json_init();
    TRY(bl_json_parse(text, (int64_t)strlen(text), path, 1, &json, error));
    belay_code code = bl_settings_from_json(&r->before, json, BL_SET_BY_RUN, path, error);
    json_decref(json);
    r->has_before = code == BELAY_OK;
    return code;
}

static belay_code read_last(bl_train_resume *r, const char *path, place *at, bl_error *error)
{
    bl_safetensors *file = NULL;
    TRY(bl_safetensors_open(path, &file, error));
    belay_code code = read_before(r, file, error);
    if (code == BELAY_OK)
        code = read_scalar(file, "belay.run.epoch", &at->epoch, error);
    if (code == BELAY_OK)
        code = read_scalar(file, "belay.run.position", &at->position, error);
    bl_safetensors_close(file);
    return code;
}

/* Weights that a whole epoch went into were there. */
static belay_code check_outcome(const json_t *json, const char *folder, bool has_last, bl_error *error)
{
    int64_t n = json_integer_value(json_object_get(json_object_get(json, "outcome"), "epochs"));
    if (has_last || n <= 0)
        return BELAY_OK;
    bl_error_set(error, BELAY_FILE_OPEN,
                 "the checkpoints of the run in '%s' are missing: it had done %" PRId64 " epochs", folder, n);
    bl_error_advise(error, "Put last.safetensors back, or begin the run anew with --overwrite.");
    return BELAY_FILE_OPEN;
}

/* run.json's settings where there is one, else those of the checkpoint. */
static belay_code fill(bl_settings *s, const bl_train_resume *r, const char *path, bool has_last, bl_error *error)
{
    json_t *json = NULL;
    belay_code code = BELAY_OK;
    if (bl_file_kind_get(path) != BL_FILE_ABSENT) {
        TRY(bl_json_read(path, 0, &json, error));
        code = check_outcome(json, s->out, has_last, error);
    } else if (r->has_before && (json = bl_settings_to_json(&r->before)) == NULL) {
        return bl_file_no_memory(error, "read", s->out);
    }
    if (code == BELAY_OK && json_is_object(json))
        code = bl_settings_from_json(s, json, BL_SET_BY_RUN, path, error);
    json_decref(json);
    return code;
}

/* ---- what differs ------------------------------------------------------------------------------------------------- */

static void name_of(const bl_setting_row *row, char out[64])
{
    bool is_data = row == &bl_setting_rows[BL_SETTING_data];
    snprintf(out, 64, "%s%s", is_data ? "" : row->name[1] == '\0' ? "-" : "--", is_data ? "DATA" : row->name);
}

/* The values of one setting in words; false when they are the same. */
static bool differ(const bl_train_resume *r, const bl_settings *s, const bl_setting_row *row, bl_text *before,
                   bl_text *now)
{
    bl_text_clear(before);
    bl_text_clear(now);
    bl_setting_value_describe(&r->before, row, before);
    bl_setting_value_describe(s, row, now);
    return strcmp(bl_text_get(before), bl_text_get(now)) != 0;
}

/* Samples of a global batch. */
static int64_t global_of(const bl_settings *s) { return s->batch * s->n; /* fits: limits of the rows */ }

static bool is_batch(const bl_setting_row *row) { return row == &bl_setting_rows[BL_SETTING_batch]; }

/* A batch that is as the run has it, for another number of ranks. */
static void share_batch(const bl_train_resume *r, bl_settings *s)
{
    int64_t global = global_of(&r->before);
    if (r->has_before && s->set_by[BL_SETTING_batch] == BL_SET_BY_RUN && global % s->n == 0)
        s->batch = global / s->n;
}

/* The bits are those of the global batch. */
static belay_code refuse_batch(const bl_train_resume *r, const bl_settings *s, const char *last, bl_error *error)
{
    int64_t before = global_of(&r->before);
    bl_error_set(error, BELAY_FILE_MISMATCH,
                 "'%s' was trained with batches of %" PRId64 " over all ranks, this call has %" PRId64, last, before,
                 global_of(s));
    bl_error_fact(error, "then -n %" PRId64 " with --batch %" PRId64 ", now -n %" PRId64 " with --batch %" PRId64,
                  r->before.n, r->before.batch, s->n, s->batch);
    if (before % s->n == 0)
        bl_error_advise(error, "Give --batch %lld to go on with this run, or begin another run in a new --out.",
                        (long long)(before / s->n));
    else
        bl_error_advise(error, "Give an -n that divides %lld, or begin another run in a new --out.", (long long)before);
    return BELAY_FILE_MISMATCH;
}

static void advise(const bl_settings *s, const bl_setting_row *row, const char *option, const char *before,
                   bl_error *error)
{
    static const char otherwise[] = "or begin another run in a new --out";
    switch (s->set_by[row - bl_setting_rows]) {
    case BL_SET_BY_CALLER:
        bl_error_advise(error, "Leave %s out to go on with this run, %s.", option, otherwise);
        break;
    case BL_SET_BY_CONFIG:
        bl_error_advise(error, "Take '%s' out of the config to go on with this run, %s.", row->name, otherwise);
        break;
    default:
        bl_error_advise(error, "Give %s%s%s to go on with this run, %s.", option, row->kind == BL_KIND_FLAG ? "=" : " ",
                        before, otherwise);
        break;
    }
}

/* The first in the headline, the others as facts. */
static belay_code check_same(const bl_train_resume *r, const bl_settings *s, const char *last, bl_error *error)
{
    bl_text before = {0}, now = {0};
    belay_code code = BELAY_OK;
    if (s->n != r->before.n && global_of(s) != global_of(&r->before))
        return refuse_batch(r, s, last, error);
    for (int i = 0; i < BL_N_SETTINGS; i++) {
        const bl_setting_row *row = &bl_setting_rows[i];
        char option[64];
        bool is_shared = is_batch(row) && s->n != r->before.n; /* otherwise, and as many together */
        if (row->on_resume != BL_RESUME_SAME || is_shared || !differ(r, s, row, &before, &now))
            continue;
        name_of(row, option);
        if (code == BELAY_OK) {
            code = bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' was trained with %s %s, this call has %s", last,
                                option, bl_text_get(&before), bl_text_get(&now));
            advise(s, row, option, bl_text_get(&before), error);
        } else {
            bl_error_fact(error, "and with %s %s, this call has %s", option, bl_text_get(&before), bl_text_get(&now));
        }
    }
    if (before.failed || now.failed)
        code = bl_file_no_memory(error, "compare the settings of", s->out);
    bl_text_fini(&before);
    bl_text_fini(&now);
    return code;
}

/* A batch that is newly to be left out, and was trained on already. */
static belay_code check_skipped(const bl_train_resume *r, const bl_settings *s, const place *at, bl_error *error)
{
    for (int64_t i = 0; i < s->skip_batch.n; i++) {
        const bl_pair *pair = &s->skip_batch.pair[i];
        bool is_done = pair->epoch < at->epoch || (pair->epoch == at->epoch && pair->position < at->position);
        if (!is_done || bl_pairs_has(&r->before.skip_batch, pair->epoch, pair->position))
            continue;
        bl_error_set(error, BELAY_CONF_VALUE,
                     "--skip-batch %" PRId64 ":%" PRId64 " comes too late: the run stands at epoch %" PRId64
                     ", batch %" PRId64,
                     pair->epoch, pair->position, at->epoch, at->position);
        bl_error_advise(error, "Leave it out, or begin the run anew with --overwrite.");
        return BELAY_CONF_VALUE;
    }
    return BELAY_OK;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

static belay_code read_folder(bl_train_resume *r, bl_settings *s, const char *run, const char *last, bl_error *error)
{
    place at = {0};
    bool has_run = false, has_last = false;
    TRY(check_is_folder(s->out, error));
    TRY(bl_train_folder_check(s->out, true, false, error));
    TRY(bl_train_folder_look(s->out, "run.json", &has_run, error));
    TRY(bl_train_folder_look(s->out, "last.safetensors", &has_last, error));
    if (!has_run && !has_last)
        return no_run(s->out, error);
    if (has_last)
        TRY(read_last(r, last, &at, error));
    TRY(fill(s, r, run, has_last, error));
    bl_settings_resolve(s);
    if (!r->has_before)
        return BELAY_OK;
    bl_settings_resolve(&r->before);
    share_batch(r, s);
    TRY(check_same(r, s, last, error));
    return check_skipped(r, s, &at, error);
}

belay_code bl_train_resume_read(bl_train_resume *resume, bl_settings *settings, bl_error *error)
{
    char *run = bl_file_join(settings->out, "run.json"), *last = bl_file_join(settings->out, "last.safetensors");
    belay_code code = run != NULL && last != NULL ? read_folder(resume, settings, run, last, error)
                                                  : bl_file_no_memory(error, "read", settings->out);
    bl_free(run);
    bl_free(last);
    return code;
}

void bl_train_resume_fini(bl_train_resume *resume) { bl_settings_fini(&resume->before); }

int64_t bl_train_resume_ranks(const char *run)
{
    enum { MOST_BYTES = 1 << 24 };
    json_t *json = NULL;
    bl_error unheard = {0};
    char *path = bl_file_join(run, "run.json");
    int64_t n = 1;
    if (path != NULL && bl_json_read(path, MOST_BYTES, &json, &unheard) == BELAY_OK) {
        const json_t *value = json_object_get(json_object_get(json_object_get(json, "settings"), "n"), "value");
        n = json_is_integer(value) ? json_integer_value(value) : 1;
    }
    json_decref(json);
    bl_free(path);
    return n >= 1 && n <= bl_setting_rows[BL_SETTING_n].int_high ? n : 1;
}

void bl_train_resume_tell(const bl_train_resume *r, const bl_settings *s, belay_context *context)
{
    bl_text before = {0}, now = {0};
    for (int i = 0; i < BL_N_SETTINGS && r->has_before; i++) {
        const bl_setting_row *row = &bl_setting_rows[i];
        bool moves_rate = i == BL_SETTING_epochs && s->schedule != BL_SCHEDULE_CONSTANT;
        char option[64];
        if ((row->on_resume != BL_RESUME_TOLD && !moves_rate) || !differ(r, s, row, &before, &now))
            continue;
        name_of(row, option);
        bl_context_raise(context, BELAY_RUN_CHANGED, "the run goes on with %s %s, so far it had %s", option,
                         bl_text_get(&now), bl_text_get(&before));
    }
    bl_text_fini(&before);
    bl_text_fini(&now);
}
