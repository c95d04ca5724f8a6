/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/same.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dist/vote.h"

/* ---- whether the words fit together ---------------------------------------------------------------------------------- */

/* What must be the same. */
typedef struct bl_same {
    const char *what;
    uint64_t (*value)(const bl_word *word);
    void (*print)(uint64_t value, char *out, size_t size);
    bool may_lack; /* 0 of a rank that faulted: it could not tell */
} bl_same;

static uint64_t step_of(const bl_word *w) { return w->step; }
static uint64_t scale_of(const bl_word *w) { return w->scale; }
static uint64_t digest_in(const bl_word *w) { return w->digest; }
static uint64_t hash_in(const bl_word *w) { return w->hash; }
static void print_number(uint64_t v, char *out, size_t size) { snprintf(out, size, "%" PRIu64, v); }
static void print_hash(uint64_t v, char *out, size_t size) { snprintf(out, size, "%016" PRIx64, v); }
static void print_scale(uint64_t v, char *out, size_t size)
{
    uint32_t bits = (uint32_t)v;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    snprintf(out, size, "%g", (double)scale);
}

static const bl_same sames[] = {
    {"is at another step", step_of, print_number, false},
    {"has another loss scale", scale_of, print_scale, false},
    {"has other weights", digest_in, print_hash, true},
    {"has reduced other buckets", hash_in, print_hash, false},
};

static void tell(belay_group *group, const bl_same *same, const uint64_t *value, bl_vote vote)
{
    char between[64], words[2][48];
    snprintf(between, sizeof between, " %s than ", same->what);
    same->print(value[vote.odd], words[0], sizeof words[0]);
    same->print(value[vote.reference], words[1], sizeof words[1]);
    (void)bl_vote_break(group, value, vote,
                        &(bl_vote_words){.before = "", .between = between, .odd = words[0], .reference = words[1]});
}

/* What ranks could not tell is taken as what the first of the others says. */
static void fill_gaps(const bl_word *all, int size, uint64_t *value)
{
    uint64_t first = 0;
    for (int q = 0; q < size; q++)
        first = first != 0 ? first : value[q];
    for (int q = 0; q < size; q++)
        if (value[q] == 0 && (all[q].flags & BL_FLAG_FAULT) != 0)
            value[q] = first;
}

static bool is_same(belay_group *group, const bl_word *all, const bl_same *same, uint64_t *value)
{
    int size = group->place.size;
    for (int q = 0; q < size; q++)
        value[q] = same->value(&all[q]);
    if (same->may_lack)
        fill_gaps(all, size, value);
    bl_vote vote = bl_vote_of(value, size);
    if (vote.odd < 0)
        return true;
    tell(group, same, value, vote);
    return false;
}

bool bl_same_are(belay_group *group, const bl_word *all, uint64_t *value)
{
    for (int i = 0; i < BL_COUNT(sames); i++)
        if (!is_same(group, all, &sames[i], value))
            return false;
    return true;
}

/* ---- what follows ---------------------------------------------------------------------------------------------------- */

bl_verdict bl_same_verdict(const bl_word *all, int size)
{
    bl_verdict v = {.first_faulted = -1};
    for (int q = 0; q < size; q++) {
        const bl_word *w = &all[q];
        v.flags |= w->flags;
        if ((w->flags & BL_FLAG_FAULT) != 0) {
            v.first_faulted = v.n_faulted == 0 ? q : v.first_faulted;
            v.n_faulted++;
        }
        for (int k = 0; k < 3; k++)
            v.figure[k] += w->figure[k];
    }
    return v;
}

/* Never BELAY_OK, whatever a rank says its fault was. */
static belay_code code_in(const bl_word *word)
{
    belay_code code = (belay_code)word->value;
    return word->value == (int64_t)code && bl_error_is_code(code) ? code : BELAY_COMM_PEER;
}

belay_code bl_same_code(const bl_word *all, int size)
{
    for (int q = 0; q < size; q++)
        if ((all[q].flags & BL_FLAG_FAULT) != 0)
            return code_in(&all[q]);
    return BELAY_OK;
}
