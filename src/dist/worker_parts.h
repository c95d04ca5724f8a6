/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the worker share.
 *
 *   worker.c         what the main thread asks of it, and waits for
 *   worker_run.c     the thread: starts works when their turn has come, asks whether they ended
 *   worker_beat.c    heartbeats, and when a work is late
 *   worker_open.c    opening and closing
 *
 * Names with "the main thread" are called by it, the others by the worker, unless they say so. */
#ifndef BL_DIST_WORKER_PARTS_H
#define BL_DIST_WORKER_PARTS_H

#include <time.h>

#include "dist/worker.h"

#define BL_MS INT64_C(1000000)
enum {
    BL_WORKER_SPIN_NS = 30000,   /* after something happened: asks again and again for so long */
    BL_WORKER_LOOK_NS = 20000000 /* the main thread looks after the worker so often */
};

/* Any thread. */
static inline void bl_worker_lock(bl_group_worker *w) { pthread_mutex_lock(&w->lock); }
static inline void bl_worker_unlock(bl_group_worker *w) { pthread_mutex_unlock(&w->lock); }

static inline void bl_work_state_set(bl_work *work, bl_work_state state)
{
    __atomic_store_n(&work->state, state, __ATOMIC_RELEASE);
}

/* There is something to do.  Under the lock. */
static inline void bl_worker_stir(bl_group_worker *w)
{
    w->has_news = true;
    pthread_cond_signal(&w->wake);
}

/* So many nanoseconds from now, for waits. */
static inline struct timespec bl_worker_after(int64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += t.tv_nsec;
    t.tv_sec += (time_t)(ns / (1000 * BL_MS));
    t.tv_nsec = (long)(ns % (1000 * BL_MS));
    return t;
}

/* ---- worker.c */

/* The work, and its word, may be gone as soon as it is over.  Any thread. */
void bl_worker_end_work(bl_work *work, bool failed);

/* ---- worker_run.c */

/* Each call of the transport is between these two, since it may never come back: the main thread can then take over all
 * works.  `leave` is false when the call was given up meanwhile: the work that it was for is over, and may be gone. */
void bl_worker_enter(bl_group_worker *w, const char *name, const bl_work *work);
void bl_worker_enter_message(bl_group_worker *w, const char *name, const char *way, int peer);
bool bl_worker_leave(bl_group_worker *w);

typedef struct bl_works {
    bl_work *list[2 * BL_N_PLANES];
} bl_works;

/* All that are not over; no list of the worker has them any more.  Under the lock; any thread, as the next. */
bl_works bl_worker_take_works(bl_group_worker *w);
void bl_worker_fail_works(const bl_works *all);

/* ---- worker_beat.c */

/* A lost rank has been silent for so long. */
int64_t bl_worker_old_age(const bl_group_worker *w);
/* What this rank says of itself.  Any thread, as the next three. */
bl_beat bl_worker_beat_now(bl_group_worker *w, int64_t now);
/* "all_reduce #37", "bucket 3 of model". */
void bl_worker_describe(const bl_work *work, char *out, size_t size);
int64_t bl_worker_waited_for(const bl_group_worker *w, const bl_work *work, int64_t now);
/* Nanoseconds since its deadline. */
int64_t bl_worker_late_by(const bl_group_worker *w, const bl_work *work, int64_t now);
/* Reads and sends what there is. */
void bl_worker_beat(bl_group_worker *w, int64_t now);
/* Fails the group when the oldest work of a plane is late. */
void bl_worker_look_at_deadline(bl_group_worker *w, int plane, int64_t now);
/* Before the transport is closed: messages that are on their way keep their memory. */
void bl_worker_settle(bl_group_worker *w);

#endif
