/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/same.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dist/vote.h"

/* ---- whether the words fit together ---------------------------------------------------------------------------------- */

/* What must be the same, X(what a rank has, how it is printed, its value). */
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

static void describe(const bl_same *same, const uint64_t *value, int size, bl_vote vote, bl_difference *out)
{
    bl_report_fault *f = &out->fault;
    bl_text odd = {0}, rest = {0};
    char words[2][48];
    *out = (bl_difference){.n_culprits = 0};
    bl_report_fault_init(f, BELAY_COMM_MISMATCH);
    bl_vote_name(value, size, vote.odd, &odd);
    bl_vote_name(value, size, vote.reference, &rest);
    same->print(value[vote.odd], words[0], sizeof words[0]);
    same->print(value[vote.reference], words[1], sizeof words[1]);
    snprintf(f->what, sizeof f->what, "%.120s %s than %.120s%s", bl_text_get(&odd), same->what, bl_text_get(&rest),
             vote.is_tie ? "; as many say one as the other" : "");
    bl_report_fault_fact(f, "%.100s: %s", bl_text_get(&odd), words[0]);
    bl_report_fault_fact(f, "%.100s: %s", bl_text_get(&rest), words[1]);
    bl_text_fini(&odd);
    bl_text_fini(&rest);
    for (int q = 0; q < size && out->n_culprits < BL_MOST_CULPRITS && !vote.is_tie; q++)
        if (value[q] != value[vote.reference])
            out->culprit[out->n_culprits++] = q;
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

static bool is_same(const bl_word *all, int size, const bl_same *same, uint64_t *value, bl_difference *out)
{
    for (int q = 0; q < size; q++)
        value[q] = same->value(&all[q]);
    if (same->may_lack)
        fill_gaps(all, size, value);
    bl_vote vote = bl_vote_of(value, size);
    if (vote.odd < 0)
        return true;
    describe(same, value, size, vote, out);
    return false;
}

bool bl_same_are(const bl_word *all, int size, uint64_t *value, bl_difference *difference)
{
    for (int i = 0; i < BL_COUNT(sames); i++)
        if (!is_same(all, size, &sames[i], value, difference))
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

belay_code bl_same_code(const bl_word *all, int size)
{
    for (int q = 0; q < size; q++)
        if ((all[q].flags & BL_FLAG_FAULT) != 0)
            return all[q].value != BELAY_OK ? (belay_code)all[q].value : BELAY_COMM_PEER;
    return BELAY_OK;
}
