/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/vote.h"

static int count(const uint64_t *value, int size, uint64_t of)
{
    int n = 0;
    for (int r = 0; r < size; r++)
        n += value[r] == of;
    return n;
}

bl_vote bl_vote_of(const uint64_t *value, int size)
{
    bl_vote vote = {.odd = -1};
    int most = count(value, size, value[0]);
    for (int r = 1; r < size; r++) {
        int n = count(value, size, value[r]);
        if (n > most) {
            vote.reference = r;
            most = n;
        }
    }
    for (int r = size - 1; r >= 0; r--) {
        if (value[r] == value[vote.reference])
            continue;
        vote.odd = r;
        vote.n_odd++;
        vote.is_tie = vote.is_tie || count(value, size, value[r]) == most;
    }
    return vote;
}

void bl_vote_name(const uint64_t *value, int size, int as, bool same, bl_text *out)
{
    int n = 0, left = 0;
    for (int r = 0; r < size; r++)
        left += (value[r] == value[as]) == same;
    bl_text_add(out, left == 1 ? "rank " : "ranks ");
    for (int r = 0; r < size; r++) {
        if ((value[r] == value[as]) != same)
            continue;
        bl_text_format(out, "%s%d", n == 0 ? "" : n + 1 == left ? " and " : ", ", r);
        n++;
    }
}
