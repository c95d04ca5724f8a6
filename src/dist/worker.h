/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that owns a group's transport.  Everything that the transport does is done there; the main thread posts works
 * and says what it is at.  Signals are blocked in it. */
#ifndef BL_DIST_WORKER_H
#define BL_DIST_WORKER_H

#include <pthread.h>

#include "dist/beat.h"

/* Longest path in a status file. */
enum { BL_STATUS_PATH = 1024 };

/* Most works of data that are under way at once. */
enum { BL_WORKS_UNDER_WAY = 4 };

#define BL_CALL_LEFT UINT64_MAX

typedef struct bl_hand bl_hand; /* the thread, which outlives a group where the transport wants one thread for all */

struct bl_group_worker {
    pthread_mutex_t lock;
    pthread_cond_t wake, done; /* for the worker, for the main thread */
    const bl_transport_api *api;
    bl_hand *hand;
    uint64_t number; /* of the group in its process */
    int64_t timeout, period;
    char status_folder[512], journal[BL_STATUS_PATH]; /* "": none */

    /* Under the lock. */
    bool is_opened, is_closed;  /* `open` has ended, the thread has let go of it */
    bool shall_close, is_whole; /* likewise asked for */
    bool has_news;
    belay_code open_code;
    bl_error error;
    bl_work *first[BL_N_PLANES], *last[BL_N_PLANES]; /* that wait for their turn */
    uint64_t n_posted[BL_N_PLANES];
    bl_beat me; /* without its ages */
    int64_t phase_since, wait_since;
    uint64_t n_changes, n_told; /* of `me`; of them those that all peers were told */
    bl_failure failure;
    bool is_failed; /* `failure` is there and stays */
    bool
        is_left; /* the main thread has given up waiting for a call of the transport: no work is the worker's any more */

    /* Written by the worker before is_opened, then read by all. */
    bl_transport *transport;
    bl_transport_place place;

    /* The call of the transport that the worker is in.  The rest is the worker's, except while it is given up. */
    uint64_t call; /* atomic: odd inside of one, another number for each; BL_CALL_LEFT: it was given up */
    const char *call_name;
    const bl_work *call_work; /* what it is for; NULL: a heartbeat, */
    const char *call_way;     /* "to", "from" */
    int call_peer;            /* that rank */

    /* The worker's alone. */
    bl_peer *peer;                   /* heard: under the lock */
    bl_work *under_way[BL_N_PLANES]; /* the oldest first */
    int n_under_way[BL_N_PLANES];
    int64_t moved[BL_N_PLANES]; /* atomic: when a work of it ended last, */
    int64_t excused;            /* and when those that had not come were saving */
    uint64_t n_agreed;          /* words that are over, well */
    bool is_flushed;            /* what was not over has failed */
    uint64_t version;           /* of what peers are to be told */
    uint64_t version_changes;   /* `n_changes` in it */
    int64_t version_at;
    int told_by;      /* the peer whose mismatch is to be adopted, or -1 */
    int64_t adopt_at; /* when */
    int64_t closing_since;
    bool is_dirty; /* a message is not off */
    bool was_left; /* it has come back from a call that was given up */
    int64_t happened, nap;
    void **kept;
    int64_t n_kept, kept_capacity;
    bl_group_worker *next; /* in the list of those that were abandoned */
};

/* Opens the transport in the worker's thread.  `status_folder`, and `journal` of whoever calls, for the rank's status file;
 * NULL: none.  NULL with the error. */
bl_group_worker *bl_worker_open(const bl_transport_api *api, int64_t timeout, const char *status_folder,
                                const char *journal, bl_error *error);
/* Lets go of it; after a failure (`whole` is false) its memory stays, since the transport may still write there: false. */
bool bl_worker_close(bl_group_worker *worker, bool whole);
/* That memory, too. */
void bl_worker_keep(bl_group_worker *worker, void *memory);

void bl_worker_post(bl_group_worker *worker, bl_work *work);
/* Until it is over.  Where the transport does not come back from a call, the main thread fails the group by itself, a while
 * after the worker should have: all works have failed then, and what the worker still holds is never freed. */
void bl_worker_wait(bl_group_worker *worker, bl_work *work, const char *what, const char *site);
/* The first one counts. */
void bl_worker_fail(bl_group_worker *worker, const bl_failure *failure);
bool bl_worker_has_failed(bl_group_worker *worker, bl_failure *failure);

/* What the main thread is at. */
bl_phase bl_worker_phase(bl_group_worker *worker, bl_phase phase, const belay_context *context);

void bl_worker_at(bl_group_worker *worker, const belay_context *context);

/* Whether the others have been told of all that it said. */
bool bl_worker_has_told(bl_group_worker *worker);

int bl_worker_lowest_survivor(bl_group_worker *worker);

/* For the launcher, "running" or "closed"; what was written of a failure stays. */
void bl_worker_report(bl_group_worker *worker, const char *state, const belay_context *context);
void bl_status_write(const bl_group_worker *worker, const char *state, const bl_failure *failure, const bl_beat *me);

#endif
