/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: made, closed, and kept when the transport may still write to their memory. */
#include "dist/worker_parts.h"

#include <stdio.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "dist/hand.h"

/* Memory that a transport may still write to, and a thread that may never come back: kept where it can be found. */
static pthread_mutex_t abandoned_lock = PTHREAD_MUTEX_INITIALIZER;
static bl_group_worker *abandoned;

static void abandon(bl_group_worker *w)
{
    pthread_mutex_lock(&abandoned_lock);
    w->next = abandoned;
    abandoned = w;
    pthread_mutex_unlock(&abandoned_lock);
}

static void worker_free(bl_group_worker *w)
{
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    bl_free(w->peer);
    bl_free(w);
}

static bl_group_worker *worker_new(const bl_transport_api *api, int64_t timeout, const char *status_folder,
                                   const char *journal)
{
    bl_group_worker *w = bl_alloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_cond_init(&w->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    w->api = api;
    w->timeout = timeout;
    w->period = bl_max_i64(20 * BL_MS, bl_min_i64(timeout / 10, 1000 * BL_MS));
    snprintf(w->status_folder, sizeof w->status_folder, "%s", status_folder != NULL ? status_folder : "");
    snprintf(w->journal, sizeof w->journal, "%s", journal != NULL ? journal : "");
    return w;
}

/* Whether that came true within the time. */
static bool wait_until(bl_group_worker *w, const bool *flag, int64_t ns)
{
    int64_t begin = bl_clock_now();
    bl_worker_lock(w);
    while (!*flag && bl_clock_now() - begin < ns) {
        struct timespec until = bl_worker_after(BL_WORKER_LOOK_NS);
        pthread_cond_timedwait(&w->done, &w->lock, &until);
    }
    bool is_true = *flag;
    bl_worker_unlock(w);
    return is_true;
}

static const char never_back[] = "a call of a group before has not come back";

/* Should it open after all, it is left at once. */
static void give_up_opening(bl_group_worker *w)
{
    bl_worker_lock(w);
    w->shall_close = true;
    bl_worker_stir(w);
    bl_worker_unlock(w);
    bl_hand_leave(w->hand, NULL, "its start never came to an end");
    abandon(w);
}

bl_group_worker *bl_worker_open(const bl_transport_api *api, int64_t timeout, const char *status_folder,
                                const char *journal, bl_error *error)
{
    bl_group_worker *w = worker_new(api, timeout, status_folder, journal);
    if (w == NULL) {
        bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for a group");
        return NULL;
    }
    if (bl_hand_take(api, &w->hand, error) != BELAY_OK) {
        worker_free(w);
        return NULL;
    }
    bl_hand_work(w->hand, w, &w->number);
    int64_t most = bl_max_i64(timeout, 30000 * BL_MS); /* processes start as fast as they may */
    if (!wait_until(w, &w->is_opened, most)) {
        bl_error_set(error, BELAY_COMM_DEADLINE, "%s did not start within %.1f s", api->name, (double)most / 1e9);
        bl_error_fact(error, "a rank that opens no group, or has died, keeps all others waiting here");
        bl_error_advise(error, "Look for a rank that has not come this far, or start fewer ranks on these cores.");
        give_up_opening(w);
        return NULL;
    }
    if (w->open_code == BELAY_OK)
        return w;
    *error = w->error;
    bool is_closed = wait_until(w, &w->is_closed, 2000 * BL_MS);
    bl_hand_leave(w->hand, NULL, is_closed ? NULL : never_back);
    if (is_closed)
        worker_free(w);
    return NULL;
}

bool bl_worker_close(bl_group_worker *w, bool whole)
{
    bl_worker_lock(w);
    w->shall_close = true;
    w->is_whole = whole && !w->is_failed;
    bl_worker_stir(w);
    bl_worker_unlock(w);
    bool is_closed = wait_until(w, &w->is_closed, 2000 * BL_MS);
    bl_hand_leave(w->hand, is_closed && w->is_whole ? w->transport : NULL, is_closed ? NULL : never_back);
    bool is_free = is_closed && w->is_whole && !w->is_dirty;
    if (is_free)
        worker_free(w);
    else
        abandon(w);
    return is_free;
}

/* Without memory for the list it is lost, and still not freed. */
void bl_worker_keep(bl_group_worker *w, void *memory)
{
    if (memory != NULL && bl_grow(&w->kept, &w->kept_capacity, w->n_kept + 1, sizeof *w->kept))
        w->kept[w->n_kept++] = memory;
}
