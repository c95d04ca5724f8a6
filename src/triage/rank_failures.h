/* SPDX-License-Identifier: Apache-2.0 */
/* The first failure of each rank, and who only felt it: a line that says that a peer is gone, or that a collective
 * never came back, is no failure of the rank that prints it.  Reads events, changes none. */
#ifndef BL_TRIAGE_RANK_FAILURES_H
#define BL_TRIAGE_RANK_FAILURES_H

#include "triage/case.h"

enum { BL_RANK_FAILURES_MOST = 1024, BL_RANK_ECHOES_MOST = 1024 };

typedef struct bl_rank_failure {
    int rank;
    const bl_event *event; /* of a failure that has a class of its own, else of the first plain one */
    bool is_plain;         /* an exception, signal or exit of the host that says nothing of a class */
} bl_rank_failure;

typedef struct bl_rank_failures {
    bl_rank_failure *list; /* by rank */
    int n;
    int *echo_ranks; /* ascending; ranks that printed echoes and did not fail */
    int n_echo_ranks;
    const bl_event *echo;     /* the first of a rank that did not fail, or of no known rank; NULL */
    const bl_event *closed;   /* the first closed connection; NULL */
    const bl_event *unranked; /* the first plain failure of nobody knows which rank; NULL */
    bool has_unranked;        /* a failure with a class of its own, of nobody knows which rank */
} bl_rank_failures;

/* False without memory; fini is then still right to call. */
BL_MUST_USE bool bl_rank_failures_init(const bl_case *c, bl_rank_failures *out);
void bl_rank_failures_fini(bl_rank_failures *failures);

/* The one that began: the only one, or the one clearly before all others; NULL: none, or they cannot be told apart.
 * Clocks of two hosts may differ by a second or two, which is no order. */
const bl_rank_failure *bl_rank_failures_origin(const bl_rank_failures *failures);
bool bl_rank_failures_has(const bl_rank_failures *failures, int rank);
bool bl_rank_failures_all_plain(const bl_rank_failures *failures);

#endif
