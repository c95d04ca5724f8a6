/* SPDX-License-Identifier: Apache-2.0 */
/* Belay's jobs beside PyTorch's, step by step in turn. */
#ifndef BL_CLI_BENCH_BESIDE_H
#define BL_CLI_BENCH_BESIDE_H

#include "cli/bench_peer.h"

/* One job: how many times as fast as PyTorch under the best of its settings of threads. */
typedef struct bl_bench_beside {
    const char *key, *name;
    double target;
    double seconds, peer_seconds; /* of a step, medians */
    double quotient;              /* median over pairs; 0: the peer did not answer */
    char setting[64];             /* of the peer */
} bl_bench_beside;
enum { BL_BENCH_BESIDE = 3 };

/* The first n jobs, `pairs` of turns each; the large model, which is the last, has three at most. */
BL_MUST_USE belay_code bl_bench_beside_run(bl_peer *peer, int threads, int pairs, int n, bl_bench_beside *out,
                                           bl_error *error);

#endif
