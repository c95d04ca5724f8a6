/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from a config and into run.json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "file/path.h"
#include "train/settings.h"

/* ---- out -------------------------------------------------------------------------------------------------------- */

static json_t *pairs_to_json(const bl_pairs *pairs)
{
    json_t *list = json_array();
    for (int64_t i = 0; list != NULL && i < pairs->n; i++) {
        char text[48];
        snprintf(text, sizeof text, "%" PRId64 ":%" PRId64, pairs->pair[i].epoch, pairs->pair[i].position);
        if (json_array_append_new(list, json_string(text)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* A default outside of its limits stands for words ("the cores allowed"): null. */
static json_t *int_to_json(const bl_setting_row *row, int64_t value)
{
    return value < row->int_low ? json_null() : json_integer(value);
}

json_t *bl_setting_to_json(const void *object, const bl_setting_row *row)
{
    const void *field = (const char *)object + row->offset;
    switch (row->kind) {
    case BL_KIND_INT:
        return int_to_json(row, *(const int64_t *)field);
    case BL_KIND_REAL:
        return json_real(*(const double *)field);
    case BL_KIND_CHOICE:
        return json_string(row->choices[*(const int *)field]);
    case BL_KIND_TEXT:
        return bl_json_text(*(char *const *)field);
    case BL_KIND_PAIRS:
        return pairs_to_json(field);
    case BL_KIND_FLAG:
        return json_boolean(*(const bool *)field);
    }
    return NULL;
}

json_t *bl_settings_to_json(const bl_settings *settings)
{
    bl_json_init();
    json_t *object = json_object();
    for (int i = 0; object != NULL && i < BL_N_SETTINGS; i++) {
        const bl_setting_row *row = &bl_setting_rows[i];
        if (row->group == BL_GROUP_CALL)
            continue;
        json_t *entry = json_object();
        if (json_object_set_new(entry, "value", bl_setting_to_json(settings, row)) != 0 ||
            json_object_set_new(entry, "set_by", json_string(bl_set_by_name(settings->set_by[i]))) != 0 ||
            json_object_set(object, row->name, entry) != 0) {
            json_decref(object);
            object = NULL;
        }
        json_decref(entry);
    }
    return object;
}

/* ---- in --------------------------------------------------------------------------------------------------------- */

static belay_code unknown(const char *name, const char *path, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    const char *nearest = bl_setting_nearest(name);
    bl_error_set(error, BELAY_CONF_UNKNOWN, "%s: '%s' is not a setting", path,
                 bl_file_quote(name, (int64_t)strlen(name), quoted));
    if (nearest != NULL)
        bl_error_advise(error, "Did you mean '%s'?", nearest);
    return BELAY_CONF_UNKNOWN;
}

/* The text that sets a value, in `buffer` unless it is a string of its own; NULL for what no setting takes. */
static const char *value_text(const json_t *value, char buffer[64])
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        return json_is_true(value) ? "on" : "off";
    if (json_is_integer(value))
        snprintf(buffer, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(buffer, 64, "%.17g", json_real_value(value));
    else
        return NULL;
    return buffer;
}

static belay_code set_one(bl_settings *settings, const bl_setting_row *row, const json_t *value, bl_set_by by,
                          const char *option, bl_error *error)
{
    char buffer[64];
    const char *text = value_text(value, buffer);
    if (text == NULL)
        return bl_error_set(error, BELAY_CONF_VALUE, "%s is neither a text nor a number", option);
    return bl_settings_set(settings, row, text, by, option, error);
}

static belay_code set_list(bl_settings *settings, const bl_setting_row *row, const json_t *list, bl_set_by by,
                           const char *option, bl_error *error)
{
    size_t i;
    const json_t *value;
    json_array_foreach(list, i, value) TRY(set_one(settings, row, value, by, option, error));
    return BELAY_OK;
}

/* What run.json writes for a number that words stand for, and for no text. */
static bool may_be_null(const bl_setting_row *row)
{
    return (row->kind == BL_KIND_INT && row->int_default < row->int_low) ||
           (row->kind == BL_KIND_TEXT && row->text_default == NULL);
}

static belay_code refuse_null(const bl_setting_row *row, const char *option, bl_error *error)
{
    bl_text limits = {0};
    bl_setting_limits_describe(row, &limits);
    bl_error_set(error, BELAY_CONF_VALUE, "%s must be %s, not null", option, bl_text_get(&limits));
    bl_error_advise(error, "Give a value, or take '%s' out of the file for its default.", row->name);
    bl_text_fini(&limits);
    return BELAY_CONF_VALUE;
}

static belay_code set_entry(bl_settings *settings, const char *name, const json_t *value, bl_set_by by,
                            const char *path, bl_error *error)
{
    const bl_setting_row *row = bl_setting_find(name);
    char option[512];
    if (row == NULL)
        return unknown(name, path, error);
    snprintf(option, sizeof option, "%s: '%s'", path, name);
    if (row->group == BL_GROUP_CALL) {
        bl_error_set(error, BELAY_CONF_VALUE, "%s belongs on the command line", option);
        bl_error_advise(error, "Take it out of the file, and give --%s.", name);
        return BELAY_CONF_VALUE;
    }
    if (json_is_object(value) && json_object_get(value, "value") != NULL)
        value = json_object_get(value, "value");
    if (json_is_null(value))
        return may_be_null(row) ? BELAY_OK : refuse_null(row, option, error);
    if (row->kind == BL_KIND_PAIRS && json_is_array(value))
        return set_list(settings, row, value, by, option, error);
    return set_one(settings, row, value, by, option, error);
}

/* Beside "settings" a run.json has what it says of the run, and nothing that anyone may hope to set there. */
static belay_code check_outside(const json_t *json, const char *path, bl_error *error)
{
    static const char *const known[] = {"settings", "version", "model", "outcome"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)json, name, value)
    {
        bool is_known = false;
        char quoted[BL_FILE_QUOTE];
        for (int i = 0; i < BL_COUNT(known); i++)
            is_known = is_known || strcmp(name, known[i]) == 0;
        if (is_known)
            continue;
        bl_error_set(error, BELAY_CONF_UNKNOWN, "%s: '%s' stands beside \"settings\", where it sets nothing", path,
                     bl_file_quote(name, (int64_t)strlen(name), quoted));
        bl_error_advise(error, "Put it into the object \"settings\", or take it out.");
        return BELAY_CONF_UNKNOWN;
    }
    return BELAY_OK;
}

belay_code bl_settings_from_json(bl_settings *settings, const json_t *json, bl_set_by by, const char *path,
                                 bl_error *error)
{
    const json_t *inner = json_object_get(json, "settings");
    const json_t *object = inner != NULL ? inner : json;
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return bl_error_set(error, BELAY_FILE_FORMAT, "%s: settings must be an object of names and values", path);
    if (inner != NULL)
        TRY(check_outside(json, path, error));
    json_object_foreach((json_t *)object, name, value) TRY(set_entry(settings, name, value, by, path, error));
    return BELAY_OK;
}
