/* SPDX-License-Identifier: Apache-2.0 */
/* A case: the inputs of one call of explain and the events in them.  The files derive_*.c add what follows from several
 * events together, as events of signals whose role is DERIVED; then the rules are tried. */
#ifndef BL_TRIAGE_CASE_H
#define BL_TRIAGE_CASE_H

#include "triage/events.h"
#include "triage/gpu.h"

typedef struct bl_source {
    const char *path; /* as given, or as found in a folder */
    int64_t n_lines, n_bytes;
    bool was_whole_read;           /* every line was looked at, not only those with an anchor */
    int rank;                      /* by the file's name, else as the files settle it; -1 */
    int told_rank;                 /* that its lines name throughout; -1 */
    int64_t first_time, last_time; /* wall, microseconds; BL_NO_TIME */
} bl_source;

typedef struct bl_case {
    bl_events *events; /* sealed */
    bl_source *sources;
    int n_sources;
    bl_gpu_fold *gpus;   /* what the kernel logs say */
    bl_history *history; /* of the GPUs; NULL: none */
    const char *host;    /* name of this machine, for GPUs of its history that have no UUID */
} bl_case;

/* Sanitizers, debuggers, core dumps: their blocks of lines become one event each. */
void bl_derive_tools(bl_case *c);
/* Sizes, bounds, non-finite values and loss scales. */
void bl_derive_numbers(bl_case *c);
/* Counts that wrapped in 32 bits; called by bl_derive_numbers. */
void bl_derive_wrapped(bl_case *c);
/* Tables of many runs; called by bl_derive_sessions. */
void bl_derive_tallies(bl_case *c);
/* Recorded sessions: which setting parts the runs that fail from those that pass. */
void bl_derive_sessions(bl_case *c);
/* Which rank failed first; what each waits in; who is alone. */
void bl_derive_ranks(bl_case *c);
/* How the ranks of a supervised run ended. */
void bl_derive_run(bl_case *c);
/* What ranks of a Belay group say of each other; after bl_derive_run. */
void bl_derive_peers(bl_case *c);
/* What no other rule explains; after all others. */
void bl_derive_rest(bl_case *c);
/* The machine: kernel log joined with the application's faults. */
void bl_derive_machine(bl_case *c);

#endif
