/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats: what each rank says of itself to each other, and who is to blame when an operation is not over.
 *
 * All of this is the worker's; nothing here waits. */
#ifndef BL_DIST_BEAT_H
#define BL_DIST_BEAT_H

#include "dist/group.h"

enum { BL_MAX_CULPRITS = 8, BL_BEAT_BYTES = 512 };

/* Of a rank, as it was when it was sent. */
typedef struct bl_beat {
    uint64_t group; /* which group of the process, from 1 */
    uint64_t n_calls, n_launched;
    uint64_t step;
    uint32_t epoch, position;
    uint32_t phase;
    uint32_t waits;   /* 1: in `what`, which else is the call before */
    int64_t phase_ns; /* since when; `waits`: likewise */
    int64_t wait_ns;
    int32_t code; /* why its group is broken; BELAY_OK: it is whole */
    int32_t n_culprits;
    int32_t culprit[BL_MAX_CULPRITS];
    char host[32];
    char what[64], site[BL_WORD_SITE];
    char why[248];
} bl_beat;
_Static_assert(sizeof(bl_beat) == BL_BEAT_BYTES, "a heartbeat has a fixed size");

/* Why a group is broken. */
typedef struct bl_failure {
    int n_culprits;
    int culprit[BL_MAX_CULPRITS];
    bl_report_fault fault;
} bl_failure;

typedef struct bl_peer {
    bl_beat last, in, out;
    int64_t heard; /* clock */
    int receiving, sending;
    bool is_receiving, is_sending, is_cut; /* is_cut: the transport said so */
    uint64_t told;                         /* the version of ours that it was sent */
} bl_peer;

/* What the reports are made of. */
typedef struct bl_roll {
    int rank, size;
    const bl_beat *me; /* with its ages as they are now */
    const bl_peer *peer;
    int64_t now, timeout, old; /* `old`: nanoseconds after which a silent rank counts as lost */
} bl_roll;

void bl_failure_begin(bl_failure *failure, belay_code code);
void bl_failure_culprit(bl_failure *failure, int rank);
bool bl_failure_has(const bl_failure *failure, int rank);

/* "in backward of step 12, batch 0:48, since 3.1 s", or what it waits in. */
void bl_beat_describe(const bl_beat *beat, char *out, size_t size);

/* A line for each rank, culprits first; one for more than four others that are alike, and how many there was no room for. */
void bl_roll_tell(const bl_roll *roll, bl_failure *failure);
void bl_roll_tell_rank(const bl_roll *roll, int rank, bl_report_fault *fault);

/* A work is not over that was posted `waited` nanoseconds ago: names who is to blame, or whom `told` blames, a peer whose
 * deadline was a moment before (NULL: none). */
void bl_roll_deadline(const bl_roll *roll, const bl_work *work, const char *what, int64_t waited, const bl_beat *told,
                      bl_failure *failure);

/* Whether all that have not come to that work are heard of and save or evaluate, which may take longer than an operation;
 * never when another one has been silent for long. */
bool bl_roll_is_excused(const bl_roll *roll, const bl_work *work);

/* Whether ranks meet that together: in the words of an exchange. */
bool bl_beat_is_found_by_all(belay_code code);
/* What a peer's broken group means for this one, which waits in nothing. */
void bl_roll_adopt(const bl_roll *roll, int peer, bl_failure *failure);

#endif
