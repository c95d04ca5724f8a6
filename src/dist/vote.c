/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/vote.h"

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
