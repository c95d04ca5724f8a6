/* SPDX-License-Identifier: Apache-2.0 */
/* What `belay bench` measures of `belay explain`: the command itself, as a user starts it, on a log of a training run with
 * a fault on each thousandth line, and on a small one.  The logs lie in TMPDIR under no name: nothing is left behind,
 * however the run ends. */
#ifndef BL_CLI_BENCH_EXPLAIN_H
#define BL_CLI_BENCH_EXPLAIN_H

#include "base/error.h"

typedef struct bl_bench_explain {
    double bytes_per_second;  /* of the large log */
    double share;             /* reading the same bytes and nothing else, over that */
    double memory;            /* bytes, the most that the command had */
    double small_seconds;     /* for 1,000 lines, the last of which is a fault */
    double faults_per_second; /* bytes of a log of fault lines alone */
} bl_bench_explain;

/* With a log of `mib` MiB; the medians of three. */
BL_MUST_USE belay_code bl_bench_explain_run(int64_t mib, bl_bench_explain *out, bl_error *error);

#endif
