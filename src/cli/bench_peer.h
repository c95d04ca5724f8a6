/* SPDX-License-Identifier: Apache-2.0 */
/* A PyTorch beside `belay bench`: a Python process that runs the same jobs, asked for a few steps at a time so that both
 * sides take turns on the same machine.  While it is not asked, it waits and costs nothing. */
#ifndef BL_CLI_BENCH_PEER_H
#define BL_CLI_BENCH_PEER_H

#include <stdbool.h>

#include "base/error.h"

typedef struct bl_peer bl_peer;

/* Starts `python` with one thread and with two for its BLAS.  Never fails: without a peer, bl_peer_version is NULL and
 * bl_peer_why says why.  A process that gives no answer in `patience_ms` (0: a minute to start, two for a job) is ended,
 * and not asked again.  NULL when there is no memory. */
bl_peer *bl_peer_open(const char *python, int patience_ms);
const char *bl_peer_version(const bl_peer *peer);
/* Why there is no peer, or no answer: of the process that failed last. */
const char *bl_peer_why(const bl_peer *peer);

/* Tries the job ("reference", "demo", "gpt2") under each setting of threads, at most `most`, `steps` steps each, and keeps
 * the fastest; words for it ("2 threads, 1 of the BLAS") until the next call.  NULL: it did not answer. */
const char *bl_peer_choose(bl_peer *peer, const char *job, int most, int steps);
/* Seconds of a step under the setting that was chosen; 0: it did not answer. */
double bl_peer_seconds(bl_peer *peer, int steps);

/* Ends the processes.  NULL is fine. */
void bl_peer_close(bl_peer *peer);

#endif
