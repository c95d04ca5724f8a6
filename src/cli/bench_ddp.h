/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `belay bench` that starts ranks: two on this host, and two in network namespaces with a slow line between
 * them.  What cannot be done here is said, and is no failure. */
#ifndef BL_CLI_BENCH_DDP_H
#define BL_CLI_BENCH_DDP_H

#include "base/error.h"

/* Two ranks of one thread each.  `skipped` says why nothing was measured, "" otherwise. */
typedef struct bl_bench_pair {
    char skipped[160];
    double seconds;           /* a step of the reference job, accumulate 1, averaged over both ranks */
    double alone_seconds;     /* the same of two copies that know nothing of each other, both at work */
    double agreement_seconds; /* what a step costs for one bucket of next to nothing, gate and agreement */
} bl_bench_pair;
BL_MUST_USE belay_code bl_bench_pair_run(int windows, bl_bench_pair *out, bl_error *error);

/* An MLP of twelve 1024 x 1024 layers in buckets of 4 MiB, and the reference job, over 500 Mbit/s: backward beside the
 * reductions, and one after the other. */
typedef struct bl_bench_wire {
    char skipped[160];
    double batch; /* samples, so that backward takes about as long as the reductions */
    double reduction_seconds, backward_seconds;
    double wide_seconds, wide_blocking_seconds;
    double reference_seconds, reference_blocking_seconds;
} bl_bench_wire;
BL_MUST_USE belay_code bl_bench_wire_run(int windows, bl_bench_wire *out, bl_error *error);

#endif
