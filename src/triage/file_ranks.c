/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/file_ranks.h"

static int rank_told(const bl_source *source) { return source->rank >= 0 ? source->rank : source->told_rank; }

void bl_file_ranks_settle(bl_source *sources, int n, bl_events *events)
{
    int n_told = 0;
    for (int i = 0; i < n; i++) {
        int rank = rank_told(&sources[i]);
        n_told += rank >= 0;
        for (int k = 0; k < i && rank >= 0; k++)
            if (rank_told(&sources[k]) == rank)
                return;
    }
    for (int i = 0; i < n && n_told >= 2; i++)
        if (sources[i].rank < 0 && sources[i].told_rank >= 0) {
            sources[i].rank = sources[i].told_rank;
            bl_events_name_file(events, i, sources[i].rank);
        }
}
