/* SPDX-License-Identifier: Apache-2.0 */
/* What `belay bench` measures of the loader alone: batches of words by characters, seq 20, two workers. */
#ifndef BL_CLI_BENCH_LOADER_H
#define BL_CLI_BENCH_LOADER_H

#include "base/error.h"

typedef struct bl_bench_loader {
    double samples_per_second; /* of the fastest epoch */
} bl_bench_loader;

BL_MUST_USE belay_code bl_bench_loader_run(bl_bench_loader *out, bl_error *error);

#endif
