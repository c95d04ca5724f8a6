/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of train/settings.def as a table. */
#include "train/setting_rows.h"

#include <string.h>

#include "base/nearest.h"

#define X(list, enumerator, name) name,
static const char *const choices_TOKENS[] = {BL_CHOICES_TOKENS(X) NULL};
static const char *const choices_MODEL[] = {BL_CHOICES_MODEL(X) NULL};
static const char *const choices_OPTIMIZER[] = {BL_CHOICES_OPTIMIZER(X) NULL};
static const char *const choices_SCHEDULE[] = {BL_CHOICES_SCHEDULE(X) NULL};
static const char *const choices_AMP[] = {BL_CHOICES_AMP(X) NULL};
static const char *const choices_INDEX_POLICY[] = {BL_CHOICES_INDEX_POLICY(X) NULL};
static const char *const choices_ON_FAULT[] = {BL_CHOICES_ON_FAULT(X) NULL};
static const char *const choices_SYNC_DEBUG[] = {BL_CHOICES_SYNC_DEBUG(X) NULL};
static const char *const choices_MEMORY_MODE[] = {BL_CHOICES_MEMORY_MODE(X) NULL};
#undef X

#define ROW(field_, name_, kind_, group_, resume_, help_)                                                              \
    .name = name_, .kind = BL_KIND_##kind_, .offset = offsetof(bl_settings, field_), .group = BL_GROUP_##group_,       \
    .on_resume = BL_RESUME_##resume_, .help = help_
#define BL_SETTING_INT(field, name, default_, low, high, words_, unit_, group, on_resume, help)                        \
    {ROW(field, name, INT, group, on_resume, help),                                                                    \
     .int_default = default_,                                                                                          \
     .int_low = low,                                                                                                   \
     .int_high = high,                                                                                                 \
     .words = words_,                                                                                                  \
     .place = "N",                                                                                                     \
     .unit = unit_},
#define BL_SETTING_REAL(field, name, default_, low, high, open_, unit_, group, on_resume, help)                        \
    {ROW(field, name, REAL, group, on_resume, help),                                                                   \
     .real_default = default_,                                                                                         \
     .real_low = low,                                                                                                  \
     .real_high = high,                                                                                                \
     .open = BL_OPEN_##open_,                                                                                          \
     .words = "",                                                                                                      \
     .place = "X",                                                                                                     \
     .unit = unit_},
#define BL_SETTING_CHOICE(field, name, default_, list, group, on_resume, help)                                         \
    {ROW(field, name, CHOICE, group, on_resume, help),                                                                 \
     .int_default = BL_##list##_##default_,                                                                            \
     .int_high = BL_N_##list - 1,                                                                                      \
     .choices = choices_##list,                                                                                        \
     .words = "",                                                                                                      \
     .place = "",                                                                                                      \
     .unit = ""},
#define BL_SETTING_TEXT(field, name, default_, words_, place_, group, on_resume, help)                                 \
    {ROW(field, name, TEXT, group, on_resume, help), .text_default = default_, .words = words_, .place = place_,       \
     .unit = ""},
#define BL_SETTING_PAIRS(field, name, place_, group, on_resume, help)                                                  \
    {ROW(field, name, PAIRS, group, on_resume, help), .words = "none", .place = place_, .unit = ""},
#define BL_SETTING_FLAG(field, name, group, on_resume, help)                                                           \
    {ROW(field, name, FLAG, group, on_resume, help), .words = "off", .place = "", .unit = ""},

const bl_setting_row bl_setting_rows[BL_N_SETTINGS] = {
#include "train/settings.def"
};

const char *bl_setting_group_name(bl_setting_group group)
{
    static const char *const names[] = {"data", "model", "training", "running", "faults", "this call"};
    return names[group];
}

const char *bl_set_by_name(bl_set_by by)
{
    static const char *const names[] = {"default", "run", "config", "caller"};
    return names[by];
}

const bl_setting_row *bl_setting_find(const char *name)
{
    for (int i = 0; i < BL_N_SETTINGS; i++)
        if (strcmp(bl_setting_rows[i].name, name) == 0)
            return &bl_setting_rows[i];
    return NULL;
}

const char *bl_setting_nearest(const char *name)
{
    bl_nearest best = {0};
    for (int i = 0; i < BL_N_SETTINGS; i++)
        bl_nearest_offer(&best, name, bl_setting_rows[i].name);
    return best.name;
}
