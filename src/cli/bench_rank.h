/* SPDX-License-Identifier: Apache-2.0 */
/* One of the ranks that `belay bench` starts under mpirun.  Rank 0 prints what was measured, a name and a number a line. */
#ifndef BL_CLI_BENCH_RANK_H
#define BL_CLI_BENCH_RANK_H

#include "base/error.h"

/* `job`: "pair", two ranks on one host; "wire", two ranks on a slow network.  conf.unknown for another; a fault on the way
 * means that what was measured was not the job. */
BL_MUST_USE belay_code bl_bench_rank_run(const char *job, int windows, bl_error *error);

#endif
