/* SPDX-License-Identifier: Apache-2.0 */
/* A run's settings: a struct made from the rows of train/settings.def, each field with who set it.  Values are checked
 * against their row's limits when they are set, and against each other by bl_settings_check.
 *
 * Codes: conf.value, conf.unknown (with the nearest name), conf.missing, conf.conflict, file.format, mem.exhausted. */
#ifndef BL_TRAIN_SETTINGS_H
#define BL_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"
#include "file/json.h"
#include "file/path.h"

/* X(list, enumerator, name) */
#define BL_CHOICES_TOKENS(X)    X(TOKENS, CHAR, "char") X(TOKENS, WORD, "word")
#define BL_CHOICES_MODEL(X)     X(MODEL, LSTM, "lstm") X(MODEL, MEAN, "mean")
#define BL_CHOICES_OPTIMIZER(X) X(OPTIMIZER, ADAM, "adam") X(OPTIMIZER, ADAMW, "adamw") X(OPTIMIZER, SGD, "sgd")
#define BL_CHOICES_SCHEDULE(X)                                                                                         \
    X(SCHEDULE, CONSTANT, "constant")                                                                                  \
    X(SCHEDULE, COSINE, "cosine") X(SCHEDULE, STEP, "step") X(SCHEDULE, LINEAR, "linear")
#define BL_CHOICES_INDEX_POLICY(X)                                                                                     \
    X(INDEX_POLICY, RAISE, "raise") X(INDEX_POLICY, CLAMP, "clamp") X(INDEX_POLICY, ZERO, "zero")
#define BL_CHOICES_ON_FAULT(X) X(ON_FAULT, SKIP, "skip") X(ON_FAULT, REDO, "redo") X(ON_FAULT, STOP, "stop")

/* enum { BL_MODEL_LSTM, BL_MODEL_MEAN }, ... */
#define X(list, enumerator, name) BL_##list##_##enumerator,
enum { BL_CHOICES_TOKENS(X) BL_N_TOKENS };
enum { BL_CHOICES_MODEL(X) BL_N_MODEL };
enum { BL_CHOICES_OPTIMIZER(X) BL_N_OPTIMIZER };
enum { BL_CHOICES_SCHEDULE(X) BL_N_SCHEDULE };
enum { BL_CHOICES_INDEX_POLICY(X) BL_N_INDEX_POLICY };
enum { BL_CHOICES_ON_FAULT(X) BL_N_ON_FAULT };
#undef X

typedef struct bl_pair {
    int64_t epoch, position;
} bl_pair;

typedef struct bl_pairs {
    bl_pair *pair;
    int64_t n, capacity;
} bl_pairs;

typedef enum bl_set_by { BL_SET_BY_DEFAULT, BL_SET_BY_RUN, BL_SET_BY_CONFIG, BL_SET_BY_CALLER } bl_set_by;

/* The number of a row: BL_SETTING_lr, in the order of the rows. */
#define BL_SETTING_INT(field, ...)    BL_SETTING_##field,
#define BL_SETTING_REAL(field, ...)   BL_SETTING_##field,
#define BL_SETTING_CHOICE(field, ...) BL_SETTING_##field,
#define BL_SETTING_TEXT(field, ...)   BL_SETTING_##field,
#define BL_SETTING_PAIRS(field, ...)  BL_SETTING_##field,
#define BL_SETTING_FLAG(field, ...)   BL_SETTING_##field,
enum {
#include "train/settings.def"
    BL_N_SETTINGS
};
#undef BL_SETTING_INT
#undef BL_SETTING_REAL
#undef BL_SETTING_CHOICE
#undef BL_SETTING_TEXT
#undef BL_SETTING_PAIRS
#undef BL_SETTING_FLAG

#define BL_SETTING_INT(field, ...)    int64_t field;
#define BL_SETTING_REAL(field, ...)   double field;
#define BL_SETTING_CHOICE(field, ...) int field;
#define BL_SETTING_TEXT(field, ...)   char *field; /* on the heap, NULL: none */
#define BL_SETTING_PAIRS(field, ...)  bl_pairs field;
#define BL_SETTING_FLAG(field, ...)   bool field;
typedef struct bl_settings {
#include "train/settings.def"
    uint8_t set_by[BL_N_SETTINGS];
} bl_settings;
#undef BL_SETTING_INT
#undef BL_SETTING_REAL
#undef BL_SETTING_CHOICE
#undef BL_SETTING_TEXT
#undef BL_SETTING_PAIRS
#undef BL_SETTING_FLAG

typedef enum bl_setting_kind {
    BL_KIND_INT,
    BL_KIND_REAL,
    BL_KIND_CHOICE,
    BL_KIND_TEXT,
    BL_KIND_PAIRS,
    BL_KIND_FLAG
} bl_setting_kind;

typedef enum bl_setting_group {
    BL_GROUP_DATA,
    BL_GROUP_MODEL,
    BL_GROUP_OPTIM,
    BL_GROUP_RUN,
    BL_GROUP_FAULTS,
    BL_GROUP_CALL,
    BL_N_GROUPS
} bl_setting_group;

typedef enum bl_setting_open { BL_OPEN_NONE, BL_OPEN_LOW, BL_OPEN_HIGH } bl_setting_open;

typedef struct bl_setting_row {
    const char *name;
    bl_setting_kind kind;
    size_t offset; /* in bl_settings */
    bl_setting_group group;
    int64_t int_default, int_low, int_high; /* CHOICE: default and number of choices - 1 */
    double real_default, real_low, real_high;
    bl_setting_open open;
    const char *text_default;
    const char *words;          /* the default in words, "" */
    const char *place;          /* what stands for the value in help: "N", "FILE"; "" for a flag and a choice */
    const char *unit;           /* "" */
    const char *const *choices; /* NULL-ended */
    const char *help;
} bl_setting_row;

extern const bl_setting_row bl_setting_rows[BL_N_SETTINGS];

/* "data", "model", ...: the group's heading in help. */
const char *bl_setting_group_name(bl_setting_group group);
/* "default", "run", "config", "caller". */
const char *bl_set_by_name(bl_set_by by);

/* The row of a name, NULL when there is none; and the name nearest to a mistyped one, NULL when none is near. */
const bl_setting_row *bl_setting_find(const char *name);
const char *bl_setting_nearest(const char *name);

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

/* What no row alone can see: what is missing, what contradicts. */
BL_MUST_USE belay_code bl_settings_check(const bl_settings *settings, bl_error *error);

/* In words: what stands for the value ("N", "lstm|mean"), the default ("0.001", "the cores allowed"), the limits ("a
 * number above 0 and at most 1000"). */
void bl_setting_place_describe(const bl_setting_row *row, bl_text *out);
void bl_setting_default_describe(const bl_setting_row *row, bl_text *out);
void bl_setting_limits_describe(const bl_setting_row *row, bl_text *out);

/* Whether a batch is among those to leave out. */
bool bl_pairs_has(const bl_pairs *pairs, int64_t epoch, int64_t position);

#endif
