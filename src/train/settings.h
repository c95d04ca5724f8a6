/* SPDX-License-Identifier: Apache-2.0 */
/* A run's settings: a struct made from the rows of train/settings.def, each field with who set it.  Values are checked
 * against their row's limits when they are set, and against each other by bl_settings_check.
 *
 * Codes: conf.value, conf.unknown (with the nearest name), conf.missing, conf.conflict, file.format, mem.exhausted. */
#ifndef BL_TRAIN_SETTINGS_H
#define BL_TRAIN_SETTINGS_H

#include "base/error.h"
#include "file/json.h"
#include "train/setting_rows.h"

/* For any struct with fields that rows describe, such as a command's options: the default, a value from its text, the
 * value as JSON, what the field owns freed. */
BL_MUST_USE belay_code bl_setting_init(void *object, const bl_setting_row *row, bl_error *error);
BL_MUST_USE belay_code bl_setting_store(void *object, const bl_setting_row *row, const char *value, const char *option,
                                        bl_error *error);
BL_MUST_USE json_t *bl_setting_to_json(const void *object, const bl_setting_row *row);
void bl_setting_fini(void *object, const bl_setting_row *row);

/* All defaults.  Free with bl_settings_fini, also after a failure. */
BL_MUST_USE belay_code bl_settings_init(bl_settings *settings, bl_error *error);
void bl_settings_fini(bl_settings *settings);

/* Sets one from its text ("on" and "off" for a flag, a further pair for pairs).  `option` names it in errors: "--lr".
 * A value set by a later source wins; the caller's is last. */
BL_MUST_USE belay_code bl_settings_set(bl_settings *settings, const bl_setting_row *row, const char *value,
                                       bl_set_by by, const char *option, bl_error *error);

/* Values from the object "settings" of a run.json or from a plain object of names and values; a setting that the caller
 * has already set keeps its value.  `path` is for errors. */
BL_MUST_USE belay_code bl_settings_from_json(bl_settings *settings, const json_t *json, bl_set_by by, const char *path,
                                             bl_error *error);
/* {"lr": {"value": 0.001, "set_by": "default"}, ...} for run.json, new; NULL without memory. */
BL_MUST_USE json_t *bl_settings_to_json(const bl_settings *settings);

/* Where one source says --valid and a weaker one --valid-split, or the other way round, the stronger one holds: the other
 * is put out of force.  Once, when all sources have been read. */
void bl_settings_resolve(bl_settings *settings);

/* What no row alone can see: what is missing, what contradicts. */
BL_MUST_USE belay_code bl_settings_check(const bl_settings *settings, bl_error *error);

/* Whether a batch is among those to leave out. */
bool bl_pairs_has(const bl_pairs *pairs, int64_t epoch, int64_t position);

#endif
