/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of train/settings.def: the struct that they make, the table of them, their words.  Stands on base alone, so
 * that the generator of docs/settings.md can be built before the library. */
#ifndef BL_TRAIN_SETTING_ROWS_H
#define BL_TRAIN_SETTING_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* X(list, enumerator, name) */
#define BL_CHOICES_TOKENS(X)    X(TOKENS, CHAR, "char") X(TOKENS, WORD, "word")
#define BL_CHOICES_MODEL(X)     X(MODEL, LSTM, "lstm") X(MODEL, MEAN, "mean")
#define BL_CHOICES_OPTIMIZER(X) X(OPTIMIZER, ADAM, "adam") X(OPTIMIZER, ADAMW, "adamw") X(OPTIMIZER, SGD, "sgd")
#define BL_CHOICES_SCHEDULE(X)                                                                                         \
    X(SCHEDULE, CONSTANT, "constant")                                                                                  \
    X(SCHEDULE, COSINE, "cosine") X(SCHEDULE, STEP, "step") X(SCHEDULE, LINEAR, "linear")
#define BL_CHOICES_INDEX_POLICY(X)                                                                                     \
    X(INDEX_POLICY, RAISE, "raise") X(INDEX_POLICY, CLAMP, "clamp") X(INDEX_POLICY, ZERO, "zero")
#define BL_CHOICES_AMP(X)        X(AMP, OFF, "off") X(AMP, BF16, "bf16") X(AMP, F16, "f16")
#define BL_CHOICES_SYNC_DEBUG(X) X(SYNC_DEBUG, OFF, "off") X(SYNC_DEBUG, WARN, "warn") X(SYNC_DEBUG, ERROR, "error")
#define BL_CHOICES_MEMORY_MODE(X)                                                                                      \
    X(MEMORY_MODE, POOL, "pool") X(MEMORY_MODE, REDZONE, "redzone") X(MEMORY_MODE, EXACT, "exact")
#define BL_CHOICES_ON_FAULT(X) X(ON_FAULT, SKIP, "skip") X(ON_FAULT, REDO, "redo") X(ON_FAULT, STOP, "stop")

/* enum { BL_MODEL_LSTM, BL_MODEL_MEAN }, ... */
#define X(list, enumerator, name) BL_##list##_##enumerator,
enum { BL_CHOICES_TOKENS(X) BL_N_TOKENS };
enum { BL_CHOICES_MODEL(X) BL_N_MODEL };
enum { BL_CHOICES_OPTIMIZER(X) BL_N_OPTIMIZER };
enum { BL_CHOICES_SCHEDULE(X) BL_N_SCHEDULE };
enum { BL_CHOICES_INDEX_POLICY(X) BL_N_INDEX_POLICY };
enum { BL_CHOICES_ON_FAULT(X) BL_N_ON_FAULT };
enum { BL_CHOICES_AMP(X) BL_N_AMP };
enum { BL_CHOICES_SYNC_DEBUG(X) BL_N_SYNC_DEBUG };
enum { BL_CHOICES_MEMORY_MODE(X) BL_N_MEMORY_MODE };
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
/* Laid out by the order of the rows. */
typedef struct bl_settings { // NOLINT(clang-analyzer-optin.performance.Padding)
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

/* A setting that a run which goes on has otherwise: refused, told, or nothing to the bits. */
typedef enum bl_setting_resume { BL_RESUME_SAME, BL_RESUME_TOLD, BL_RESUME_FREE } bl_setting_resume;

typedef struct bl_setting_row {
    const char *name;
    bl_setting_kind kind;
    bl_setting_group group;
    size_t offset;                          /* in bl_settings, or in the struct of a command's options */
    int64_t int_default, int_low, int_high; /* CHOICE: default and number of choices - 1 */
    double real_default, real_low, real_high;
    const char *text_default;
    const char *words;          /* the default in words, "" */
    const char *place;          /* what stands for the value in help: "N", "FILE"; "" for a flag and a choice */
    const char *unit;           /* "" */
    const char *const *choices; /* NULL-ended */
    const char *help;
    bl_setting_open open; /* REAL: the end that is excluded */
    bl_setting_resume on_resume;
} bl_setting_row;

extern const bl_setting_row bl_setting_rows[BL_N_SETTINGS];

/* "data", "model", ...: the group's heading in help. */
const char *bl_setting_group_name(bl_setting_group group);
/* "default", "run", "config", "caller". */
const char *bl_set_by_name(bl_set_by by);

/* The row of a name, NULL when there is none; and the name nearest to a mistyped one, NULL when none is near. */
const bl_setting_row *bl_setting_find(const char *name);
const char *bl_setting_nearest(const char *name);

/* A value as the text that sets it, with bytes that are none escaped; "none" where there is no text and no pair, and the
 * words of its row for a number that is not set.  Two values are the same when their words are. */
void bl_setting_value_describe(const void *object, const bl_setting_row *row, bl_text *out);

/* In words: what stands for the value ("N", "lstm|mean"), the default ("0.001", "the cores allowed"), the limits ("a
 * number above 0 and at most 1000"). */
void bl_setting_place_describe(const bl_setting_row *row, bl_text *out);
void bl_setting_default_describe(const bl_setting_row *row, bl_text *out);
void bl_setting_limits_describe(const bl_setting_row *row, bl_text *out);

#endif
