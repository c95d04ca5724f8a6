/* SPDX-License-Identifier: Apache-2.0 */
#include "train/settings_agree.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "dist/vote.h"

enum { WORDS = 96 };

/* A host may have its own devices, threads and paths; what lies there is compared when it was read. */
static bool is_own(const bl_setting_row *row)
{
    static const int own[] = {BL_SETTING_data,    BL_SETTING_valid,   BL_SETTING_workers,  BL_SETTING_device,
                              BL_SETTING_threads, BL_SETTING_timeout, BL_SETTING_hostfile, BL_SETTING_config};
    for (int i = 0; i < BL_COUNT(own); i++)
        if (row == &bl_setting_rows[own[i]])
            return true;
    return false;
}

/* FNV-1a. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    return hash;
}

static void hash_all(const bl_settings *s, uint64_t out[BL_N_SETTINGS])
{
    bl_text words = {0};
    for (int i = 0; i < BL_N_SETTINGS; i++) {
        bl_text_clear(&words);
        bl_setting_value_describe(s, &bl_setting_rows[i], &words);
        out[i] = is_own(&bl_setting_rows[i]) ? 0 : hash_of(bl_text_get(&words));
    }
    bl_text_fini(&words);
}

/* What each rank has for the setting, in words, [size][WORDS]. */
static belay_code gather_words(const bl_settings *s, const bl_setting_row *row, belay_group *group, char *all)
{
    char mine[WORDS] = "";
    bl_text words = {0};
    bl_setting_value_describe(s, row, &words);
    snprintf(mine, sizeof mine, "%s", bl_text_get(&words));
    bl_text_fini(&words);
    return bl_group_host_all_gather(group, mine, all, WORDS, "a setting that differs");
}

static belay_code tell(const bl_setting_row *row, belay_group *group, char *all, const uint64_t *value, bl_vote vote)
{
    bl_text before = {0};
    for (int q = 0; q < belay_group_size(group); q++) /* other ranks' bytes */
        all[(size_t)q * WORDS + WORDS - 1] = '\0';
    bl_text_format(&before, "%s%s differs: ", row->name[1] == '\0' ? "-" : "--", row->name);
    belay_code code = bl_vote_break(group, value, vote,
                                    &(bl_vote_words){.before = bl_text_get(&before),
                                                     .between = " and ",
                                                     .odd = all + (size_t)vote.odd * WORDS,
                                                     .reference = all + (size_t)vote.reference * WORDS,
                                                     .advice = "Start all ranks by one command."});
    bl_group_look(group);
    bl_text_fini(&before);
    return code;
}

static belay_code compare(const bl_settings *s, belay_group *group, uint64_t *all, uint64_t *value, char *words)
{
    uint64_t mine[BL_N_SETTINGS];
    int size = belay_group_size(group);
    hash_all(s, mine);
    TRY(bl_group_host_all_gather(group, mine, all, (int64_t)sizeof mine, "the settings"));
    for (int i = 0; i < BL_N_SETTINGS; i++) {
        for (int q = 0; q < size; q++)
            value[q] = all[q * BL_N_SETTINGS + i];
        bl_vote vote = bl_vote_of(value, size);
        if (vote.odd < 0)
            continue;
        TRY(gather_words(s, &bl_setting_rows[i], group, words));
        return tell(&bl_setting_rows[i], group, words, value, vote);
    }
    return BELAY_OK;
}

belay_code bl_settings_agree(const bl_settings *s, belay_group *group)
{
    int64_t size = belay_group_size(group);
    uint64_t *all = bl_alloc(size * BL_N_SETTINGS, sizeof *all), *value = bl_alloc(size, sizeof *value);
    char *words = bl_alloc(size, WORDS);
    belay_code code;
    if (all != NULL && value != NULL && words != NULL) {
        code = compare(s, group, all, value, words);
    } else {
        code = bl_context_raise(group->context, BELAY_MEM_EXHAUSTED, "no memory to compare settings of %d ranks",
                                (int)size);
        belay_group_abort(group, "no memory to compare settings");
    }
    bl_free(all);
    bl_free(value);
    bl_free(words);
    return code;
}
