/* SPDX-License-Identifier: Apache-2.0 */
/* Values stored by their rows, checked against the row and against each other. */
#include "train/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "file/path.h"

/* ---- one value into a field ------------------------------------------------------------------------------------- */

static belay_code no_memory(bl_error *error, const char *option)
{
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to keep the value of %s", option);
}

static belay_code refuse(const bl_setting_row *row, const char *value, const char *option, bl_error *error)
{
    bl_text limits = {0};
    char quoted[BL_FILE_QUOTE];
    bl_setting_limits_describe(row, &limits);
    belay_code code = limits.failed
                          ? no_memory(error, option)
                          : bl_error_set(error, BELAY_CONF_VALUE, "%s must be %s, not '%s'", option,
                                         bl_text_get(&limits), bl_file_quote(value, (int64_t)strlen(value), quoted));
    bl_text_fini(&limits);
    return code;
}

/* Decimal digits with an optional sign and nothing else, up to `end`. */
static bool parse_int(const char *text, char end, int64_t *out, const char **rest)
{
    const char *digits = text + (*text == '-' || *text == '+');
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || digits[n] != end)
        return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    *rest = digits + n + (end != '\0');
    return errno == 0;
}

static bool parse_real(const char *text, double *out)
{
    char *rest = NULL;
    if (text[0] == '\0' || text[strspn(text, "+-.0123456789eE")] != '\0')
        return false;
    *out = strtod(text, &rest);
    return *rest == '\0' && isfinite(*out);
}

static bool set_int(const bl_setting_row *row, const char *value, int64_t *field)
{
    int64_t number;
    const char *rest;
    if (!parse_int(value, '\0', &number, &rest) || number < row->int_low || number > row->int_high)
        return false;
    *field = number;
    return true;
}

static bool set_real(const bl_setting_row *row, const char *value, double *field)
{
    double number;
    if (!parse_real(value, &number) || number < row->real_low || number > row->real_high ||
        (row->open == BL_OPEN_LOW && number <= row->real_low) ||
        (row->open == BL_OPEN_HIGH && number >= row->real_high))
        return false;
    *field = number;
    return true;
}

static bool set_choice(const bl_setting_row *row, const char *value, int *field)
{
    for (int i = 0; row->choices[i] != NULL; i++)
        if (strcmp(row->choices[i], value) == 0) {
            *field = i;
            return true;
        }
    return false;
}

static bool set_flag(const char *value, bool *field)
{
    if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        return false;
    *field = strcmp(value, "on") == 0;
    return true;
}

static belay_code set_text(const char *value, char **field, const char *option, bl_error *error)
{
    char *copy = bl_strdup(value);
    if (copy == NULL)
        return no_memory(error, option);
    bl_free(*field);
    *field = copy;
    return BELAY_OK;
}

static belay_code add_pair(const bl_setting_row *row, const char *value, bl_pairs *field, const char *option,
                           bl_error *error)
{
    bl_pair pair;
    const char *rest = value;
    if (!parse_int(value, ':', &pair.epoch, &rest) || !parse_int(rest, '\0', &pair.position, &rest) || pair.epoch < 0 ||
        pair.epoch > UINT32_MAX || pair.position < 0 || pair.position > UINT32_MAX)
        return refuse(row, value, option, error);
    if (!bl_grow(&field->pair, &field->capacity, field->n + 1, (int64_t)sizeof *field->pair))
        return no_memory(error, option);
    field->pair[field->n++] = pair;
    return BELAY_OK;
}

belay_code bl_setting_store(void *object, const bl_setting_row *row, const char *value, const char *option,
                            bl_error *error)
{
    void *field = (char *)object + row->offset;
    bool fits = false;
    switch (row->kind) {
    case BL_KIND_INT:
        fits = set_int(row, value, field);
        break;
    case BL_KIND_REAL:
        fits = set_real(row, value, field);
        break;
    case BL_KIND_CHOICE:
        fits = set_choice(row, value, field);
        break;
    case BL_KIND_FLAG:
        fits = set_flag(value, field);
        break;
    case BL_KIND_TEXT:
        return value[0] == '\0' ? refuse(row, value, option, error) : set_text(value, field, option, error);
    case BL_KIND_PAIRS:
        return add_pair(row, value, field, option, error);
    }
    return fits ? BELAY_OK : refuse(row, value, option, error);
}

belay_code bl_settings_set(bl_settings *settings, const bl_setting_row *row, const char *value, bl_set_by by,
                           const char *option, bl_error *error)
{
    uint8_t *set_by = &settings->set_by[row - bl_setting_rows];
    if (*set_by > by)
        return BELAY_OK;
    if (row->kind == BL_KIND_PAIRS && *set_by < by)
        ((bl_pairs *)(void *)((char *)settings + row->offset))->n = 0;
    TRY(bl_setting_store(settings, row, value, option, error));
    *set_by = (uint8_t)by;
    return BELAY_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

belay_code bl_setting_init(void *object, const bl_setting_row *row, bl_error *error)
{
    void *field = (char *)object + row->offset;
    switch (row->kind) {
    case BL_KIND_INT:
        *(int64_t *)field = row->int_default;
        break;
    case BL_KIND_REAL:
        *(double *)field = row->real_default;
        break;
    case BL_KIND_CHOICE:
        *(int *)field = (int)row->int_default;
        break;
    case BL_KIND_TEXT:
        return row->text_default != NULL ? set_text(row->text_default, field, row->name, error) : BELAY_OK;
    case BL_KIND_PAIRS:
    case BL_KIND_FLAG:
        break;
    }
    return BELAY_OK;
}

void bl_setting_fini(void *object, const bl_setting_row *row)
{
    void *field = (char *)object + row->offset;
    if (row->kind == BL_KIND_TEXT) {
        bl_free(*(char **)field);
        *(char **)field = NULL;
    } else if (row->kind == BL_KIND_PAIRS) {
        bl_free(((bl_pairs *)field)->pair);
        *(bl_pairs *)field = (bl_pairs){0};
    }
}

belay_code bl_settings_init(bl_settings *settings, bl_error *error)
{
    memset(settings, 0, sizeof *settings);
    for (int i = 0; i < BL_N_SETTINGS; i++)
        TRY(bl_setting_init(settings, &bl_setting_rows[i], error));
    return BELAY_OK;
}

void bl_settings_fini(bl_settings *settings)
{
    for (int i = 0; i < BL_N_SETTINGS; i++)
        bl_setting_fini(settings, &bl_setting_rows[i]);
}

static belay_code check_missing(const bl_settings *s, bl_error *error)
{
    if (s->data == NULL)
        return bl_error_set(error, BELAY_CONF_MISSING, "no training file was given");
    if (s->out == NULL)
        return bl_error_set(error, BELAY_CONF_MISSING, "no folder for the run was given: --out");
    return BELAY_OK;
}

static bool was_set(const bl_settings *s, int setting) { return s->set_by[setting] != BL_SET_BY_DEFAULT; }

static belay_code conflict(bl_error *error, const char *headline, const char *advice)
{
    bl_error_set(error, BELAY_CONF_CONFLICT, "%s", headline);
    bl_error_advise(error, "%s", advice);
    return BELAY_CONF_CONFLICT;
}

void bl_settings_resolve(bl_settings *s)
{
    bl_set_by file = (bl_set_by)s->set_by[BL_SETTING_valid], part = (bl_set_by)s->set_by[BL_SETTING_valid_split];
    if (s->valid == NULL || !(s->valid_split > 0))
        return;
    if (file < part)
        bl_setting_fini(s, &bl_setting_rows[BL_SETTING_valid]);
    else if (file > part || part == BL_SET_BY_RUN)
        s->valid_split = 0;
}

/* A batch that the run never comes to.  What a run that goes on brings along was right when it began. */
static belay_code check_skipped(const bl_settings *s, bl_error *error)
{
    for (int64_t i = 0; i < s->skip_batch.n && s->set_by[BL_SETTING_skip_batch] != BL_SET_BY_RUN; i++) {
        const bl_pair *pair = &s->skip_batch.pair[i];
        if (pair->epoch < s->epochs)
            continue;
        bl_error_set(error, BELAY_CONF_VALUE,
                     "--skip-batch %" PRId64 ":%" PRId64 " names epoch %" PRId64 ", the run has epochs 0 to %" PRId64,
                     pair->epoch, pair->position, pair->epoch, s->epochs - 1);
        bl_error_advise(error, "Epochs count from 0; leave it out, or raise --epochs.");
        return BELAY_CONF_VALUE;
    }
    return BELAY_OK;
}

belay_code bl_settings_check(const bl_settings *s, bl_error *error)
{
    TRY(check_missing(s, error));
    TRY(check_skipped(s, error));
    if (s->valid != NULL && was_set(s, BL_SETTING_valid_split) && s->valid_split > 0)
        return conflict(error, "--valid and --valid-split both say what to validate on", "Keep one of the two.");
    if (s->hidden == 0 && s->model == BL_MODEL_LSTM)
        return conflict(error, "--hidden 0 leaves an LSTM without a state",
                        "Give --hidden 1 or more, or --model mean.");
    if (s->mean_all && s->model != BL_MODEL_MEAN)
        return conflict(error, "--mean-all is for --model mean only", "Leave it out, or add --model mean.");
    if (s->resume && s->overwrite)
        return conflict(error, "--resume goes on with the run that --overwrite replaces", "Keep one of the two.");
    return BELAY_OK;
}

bool bl_pairs_has(const bl_pairs *pairs, int64_t epoch, int64_t position)
{
    for (int64_t i = 0; i < pairs->n; i++)
        if (pairs->pair[i].epoch == epoch && pairs->pair[i].position == position)
            return true;
    return false;
}
