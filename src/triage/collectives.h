/* SPDX-License-Identifier: Apache-2.0 */
/* The last collective of each rank side by side: in what it waits, with which sizes, how far it had come; who differs
 * from the majority; who is not there.  Only collectives of one process group are compared.  Reads events, changes
 * none. */
#ifndef BL_TRIAGE_COLLECTIVES_H
#define BL_TRIAGE_COLLECTIVES_H

#include "triage/case.h"

enum { BL_COLLECTIVES_MOST = 1024, BL_COLLECTIVE_GROUPS = 16, BL_COLLECTIVES_ABSENT = 64, BL_COLLECTIVE_NAME = 48 };

typedef struct bl_collective {
    int rank;
    char group[BL_COLLECTIVE_NAME]; /* as the log names it, "default_pg"; "" where it does not */
    int64_t seqnum;                 /* these six are -1 where the log does not tell */
    int64_t numel, numel_out;
    int64_t last_enqueued, last_completed;
    int64_t timeout_ms;
    const char *optype; /* "" */
    const char *shape;  /* "33, 256, 8, 8"; "" */
    const char *dtype;  /* "" */
    bool is_apart;      /* differs from the majority of its group */
    const bl_event *event;
} bl_collective;

typedef enum bl_meeting {
    BL_MEETING_ONE,   /* one rank only: nothing to compare with */
    BL_MEETING_SAME,  /* all wait in the same collective with the same sizes */
    BL_MEETING_NEAR,  /* the same collective, sizes a little apart */
    BL_MEETING_SIZES, /* the same number and operation, sizes wholly apart */
    BL_MEETING_OPS,   /* the same number, other operations */
    BL_MEETING_SEQS,  /* other numbers */
    BL_MEETING_POINT  /* sends and receives, which need not be alike */
} bl_meeting;

typedef struct bl_collective_group {
    const char *name; /* of its first row */
    int first, n;     /* its rows */
    bl_meeting meeting;
    int n_majority; /* rows that are alike */
    bool is_tie;    /* two or more camps of that size */
} bl_collective_group;

typedef struct bl_collectives {
    bl_collective *rows; /* by group, then rank */
    int n;
    bl_collective_group groups[BL_COLLECTIVE_GROUPS];
    int n_groups;
    int world; /* number of ranks, as far as the logs tell; 0 */
    int absent[BL_COLLECTIVES_ABSENT];
    int n_absent; /* ranks of these logs that wait in nothing while others do */
} bl_collectives;

/* False without memory; fini is then still right to call.  The texts are those of the case. */
BL_MUST_USE bool bl_collectives_init(const bl_case *c, bl_collectives *out);
void bl_collectives_fini(bl_collectives *collectives);

/* "the same collective, sizes a little apart" */
const char *bl_meeting_describe(bl_meeting meeting);

/* The group to judge by: the one whose ranks differ most, else the largest; NULL: no rank waits. */
const bl_collective_group *bl_collectives_chief(const bl_collectives *collectives);
/* The only rank that is apart from a majority of two or more; -1. */
int bl_collectives_alone(const bl_collectives *collectives, const bl_collective_group *group);

/* Rank of an event: by label, file or process, else by what the text itself says; -1. */
int bl_event_rank(const bl_event *event);

#endif
