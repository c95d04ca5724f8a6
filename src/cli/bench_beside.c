/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_beside.h"

#include <stdio.h>

#include "cli/bench_gpt2.h"

enum { MOST_PAIRS = 64 };

typedef struct beside_row {
    const char *key, *name, *job; /* the peer's word for it */
    double target;
    bool is_single; /* one thread on both sides */
    int steps;      /* of a turn */
    int most_pairs;
} beside_row;

static const beside_row rows[BL_BENCH_BESIDE] = {
    {"peer_reference", "reference job", "reference", 2, false, 1, MOST_PAIRS},
    {"peer_demo", "the demo's model (hidden 64), one thread", "demo", 3, true, 20, MOST_PAIRS},
    {"peer_gpt2", "GPT-2 124M, batch 4 x 64", "gpt2", 1.5, false, 1, 3},
};

static bl_bench_job open_job(int row, int threads)
{
    belay_options options = {.seed = 1, .threads = threads, .no_journal = true, .memory = BELAY_MEMORY_POOL};
    if (row == 2)
        return bl_bench_gpt2_open(threads);
    return bl_bench_job_open(row == 0 ? BL_BENCH_REFERENCE : BL_BENCH_DEMO, &options);
}

static double steps_of(const bl_bench_job *job, int steps)
{
    double seconds = 0;
    for (int i = 0; i < steps; i++)
        seconds += bl_bench_job_step(job);
    return seconds / steps;
}

/* Turns of both, each pair in the other order than the one before. */
static void take_turns(const beside_row *row, const bl_bench_job *job, bl_peer *peer, int pairs, bl_bench_beside *out)
{
    double quotient[MOST_PAIRS], ours[MOST_PAIRS], theirs[MOST_PAIRS];
    for (int i = 0; i < pairs; i++) {
        if (i % 2 == 0)
            ours[i] = steps_of(job, row->steps);
        theirs[i] = bl_peer_seconds(peer, row->steps);
        if (i % 2 != 0)
            ours[i] = steps_of(job, row->steps);
        if (!(ours[i] > 0) || !(theirs[i] > 0))
            return;
        quotient[i] = theirs[i] / ours[i];
    }
    out->seconds = bl_bench_median(ours, pairs);
    out->peer_seconds = bl_bench_median(theirs, pairs);
    out->quotient = bl_bench_median(quotient, pairs);
}

belay_code bl_bench_beside_run(bl_peer *peer, int threads, int pairs, int n, bl_bench_beside *out, bl_error *error)
{
    for (int i = 0; i < n; i++) {
        const beside_row *row = &rows[i];
        out[i] = (bl_bench_beside){.key = row->key, .name = row->name, .target = row->target};
        const char *setting = bl_peer_choose(peer, row->job, row->is_single ? 1 : 2, row->steps);
        if (setting == NULL)
            continue;
        snprintf(out[i].setting, sizeof out[i].setting, "%s", setting);
        bl_bench_job job = open_job(i, row->is_single ? 1 : threads);
        steps_of(&job, row->steps);
        take_turns(row, &job, peer, pairs < row->most_pairs ? pairs : row->most_pairs, &out[i]);
        TRY(bl_bench_job_close(&job, row->name, error));
    }
    return BELAY_OK;
}
