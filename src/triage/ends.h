/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a run ended, by what each left in the run's folder, and which of them was the first that failed.
 *
 *   rank3.end     written by the supervisor of the rank: how its process ended
 *   rank3.status  written by the library in the rank: what it knew of its group (only programs that use groups have it)
 *   failed        the first rank that failed has been seen: from then on the others' time runs
 *   stop          all ranks are asked to end
 *
 * Files are read with bounds; what cannot be read counts as absent.  Nothing here waits, signals or prints. */
#ifndef BL_TRIAGE_ENDS_H
#define BL_TRIAGE_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { BL_ENDS_CULPRITS = 8, BL_ENDS_WORDS = 400 };

/* What the library in a rank said last. */
typedef enum bl_rank_state { BL_RANK_SILENT, BL_RANK_RUNNING, BL_RANK_CLOSED, BL_RANK_FAILED } bl_rank_state;

/* Who a rank is in the story: the lower one explains the higher ones. */
typedef enum bl_rank_part {
    BL_PART_PRIMARY,   /* failed by itself */
    BL_PART_SUSPECT,   /* did not come, or did not come up, while others waited for it */
    BL_PART_SECONDARY, /* only felt that another failed, or was ended because of it */
    BL_PART_FINE
} bl_rank_part;

typedef struct bl_rank_end {
    bool is_up;     /* its supervisor began */
    bool has_ended; /* and told how it ended */
    int pid;
    int status;  /* exit status, -1 when a signal ended it */
    int signal;  /* that ended it, 0: none */
    int asked;   /* signal that we had sent it before, 0: none */
    int held;    /* signal that had stopped it when it was asked to end, 0: none */
    double wall; /* when it ended or was stopped for good, seconds since 1970; 0: not known */

    bl_rank_state state;
    char code[48];   /* "comm.deadline"; "" */
    int said_status; /* exit status that goes with the code */
    int culprit[BL_ENDS_CULPRITS];
    int n_culprits;
    int64_t step; /* -1: not told */
    char phase[24], host[64];
    char why[BL_ENDS_WORDS];
    char journal[1024]; /* its path, as the rank sees it; "" */
    double wall_failed; /* 0: it did not */

    bl_rank_part part;
    int n_blamed; /* ranks that waited for this one in vain */
} bl_rank_end;

typedef struct bl_ends {
    int n;
    bl_rank_end *rank; /* [n] */
    int n_up, n_ended;
    int first;  /* the culprit; -1: no rank failed */
    int status; /* exit status of the run: that of the culprit */
} bl_ends;

/* Reads all there is of `n` ranks and judges it. */
BL_MUST_USE belay_code bl_ends_read(const char *folder, int n, bl_ends *out, bl_error *error);
void bl_ends_fini(bl_ends *ends);
/* Fills in parts, first and status; for tests. */
void bl_ends_judge(bl_ends *ends);

/* Whether the library in the rank has said that its group failed. */
bool bl_ends_has_failed(const char *folder, int rank);
/* How many ranks have begun, and how many have ended. */
void bl_ends_count(const char *folder, int n, int *n_up, int *n_ended);

/* Writes rank3.end. */
BL_MUST_USE belay_code bl_ends_write(const char *folder, int rank, const bl_rank_end *end, double wall_start,
                                     bl_error *error);

/* The two marks: set once, by whoever is first.  A mark that cannot be set is seen by nobody. */
#define BL_MARK_FAILED "failed"
#define BL_MARK_STOP   "stop"
void bl_ends_mark(const char *folder, const char *mark);
bool bl_ends_is_marked(const char *folder, const char *mark);

#endif
