/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/vote.h"

#include <stdio.h>

#include "dist/beat.h"
#include "dist/group.h"

static int count(const void *of, int size, int as, bl_vote_same same)
{
    int n = 0;
    for (int r = 0; r < size; r++)
        n += same(of, r, as);
    return n;
}

bl_vote bl_vote_by(const void *of, int size, bl_vote_same same)
{
    bl_vote vote = {.odd = -1};
    int most = count(of, size, 0, same);
    for (int r = 1; r < size; r++) {
        int n = count(of, size, r, same);
        if (n <= most)
            continue;
        vote.reference = r;
        most = n;
    }
    for (int r = size - 1; r >= 0; r--) {
        if (same(of, r, vote.reference))
            continue;
        vote.odd = r;
        vote.n_odd++;
        vote.is_tie = vote.is_tie || count(of, size, r, same) == most;
    }
    return vote;
}

void bl_vote_name_by(const void *of, int size, int as, bl_vote_same same, bl_text *out)
{
    const char *between = count(of, size, as, same) == 1 ? "rank " : "ranks ";
    for (int r = 0; r < size; r++) {
        if (!same(of, r, as))
            continue;
        bl_text_format(out, "%s%d", between, r);
        between = ", ";
    }
}

static bool are_equal(const void *of, int a, int b) { return ((const uint64_t *)of)[a] == ((const uint64_t *)of)[b]; }

bl_vote bl_vote_of(const uint64_t *value, int size) { return bl_vote_by(value, size, are_equal); }

void bl_vote_name(const uint64_t *value, int size, int as, bl_text *out)
{
    bl_vote_name_by(value, size, as, are_equal, out);
}

/* Those that differ; nobody where as many say one as the other. */
static int list_culprits(const uint64_t *value, int size, bl_vote vote, int culprits[], int most)
{
    int n = 0;
    for (int r = 0; r < size && n < most && !vote.is_tie; r++)
        if (value[r] != value[vote.reference])
            culprits[n++] = r;
    return n;
}

belay_code bl_vote_break(belay_group *group, const uint64_t *value, bl_vote vote, const bl_vote_words *words)
{
    int size = group->place.size, culprits[BL_MAX_CULPRITS];
    bl_report_fault f;
    bl_text odd = {0}, rest = {0};
    bl_report_fault_init(&f, BELAY_COMM_MISMATCH);
    bl_vote_name(value, size, vote.odd, &odd);
    bl_vote_name(value, size, vote.reference, &rest);
    snprintf(f.what, sizeof f.what, "%s%.120s%s%.120s%s", words->before, bl_text_get(&odd), words->between,
             bl_text_get(&rest), vote.is_tie ? "; as many say one as the other" : "");
    bl_report_fault_fact(&f, "%.100s: %s", bl_text_get(&odd), words->odd);
    bl_report_fault_fact(&f, "%.100s: %s", bl_text_get(&rest), words->reference);
    if (words->advice != NULL)
        snprintf(f.advice, sizeof f.advice, "%s", words->advice);
    bl_text_fini(&odd);
    bl_text_fini(&rest);
    bl_group_break(group, &f, culprits, list_culprits(value, size, vote, culprits, BL_COUNT(culprits)));
    return BELAY_COMM_MISMATCH;
}
