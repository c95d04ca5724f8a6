/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's thread: starts works when their turn has come, asks whether they ended, sleeps in between. */
#include "dist/worker_parts.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "dist/hand.h"

enum {
    FIRST_NAP_NS = 5000,    /* it sleeps, and longer each time, up to: */
    WORDS_NAP_NS = 1000000, /* while words are on their way */
    IDLE_NAP_NS = 5000000   /* while nothing is */
};

/* While data are on their way: the longest nap, and how often in a row it is asked, since each question moves what has come.
 * What comes over a network waits in buffers of the kernel, and to look for it costs calls of the system: a thread that
 * looks every 100 us takes a fifth of the core that backward needs, at 500 Mbit/s. */
typedef struct pace {
    int64_t nap;
    int n_tests;
} pace;
static const pace in_memory = {100000, 8}, over_network = {400000, 4};

static const pace *pace_of(const bl_group_worker *w)
{
    return w->place.local_size == w->place.size ? &in_memory : &over_network;
}

/* Words end in their order: what waits for one has all that came before. */
static const int under_way_most[BL_N_PLANES] = {[BL_PLANE_WORDS] = 1, [BL_PLANE_DATA] = BL_WORKS_UNDER_WAY};

/* ---- calls of the transport ------------------------------------------------------------------------------------------ */

void bl_worker_enter(bl_group_worker *w, const char *name, const bl_work *work)
{
    if (w->was_left)
        return;
    w->call_name = name;
    w->call_work = work;
    __atomic_store_n(&w->call, __atomic_load_n(&w->call, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

void bl_worker_enter_message(bl_group_worker *w, const char *name, const char *way, int peer)
{
    if (w->was_left)
        return;
    w->call_way = way;
    w->call_peer = peer;
    bl_worker_enter(w, name, NULL);
}

bool bl_worker_leave(bl_group_worker *w)
{
    if (w->was_left)
        return false;
    uint64_t call = __atomic_load_n(&w->call, __ATOMIC_RELAXED);
    if (call != BL_CALL_LEFT &&
        __atomic_compare_exchange_n(&w->call, &call, call + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return true;
    w->was_left = true;
    bl_worker_lock(w); /* until all is taken over */
    bl_worker_unlock(w);
    return false;
}

/* ---- works ----------------------------------------------------------------------------------------------------------- */

/* An error in data may be a peer's doing, which has died or was cut off: nobody is blamed for it. */
static void fail_by_error(bl_group_worker *w, int plane, const bl_error *error)
{
    bl_failure failure;
    bl_failure_begin(&failure, error->code);
    snprintf(failure.fault.what, sizeof failure.fault.what, "%s", error->what);
    snprintf(failure.fault.facts, sizeof failure.fault.facts, "%.*s", (int)sizeof failure.fault.facts - 1,
             error->facts);
    snprintf(failure.fault.advice, sizeof failure.fault.advice, "%s", error->advice);
    if (plane == BL_PLANE_WORDS || w->place.size == 1)
        bl_failure_culprit(&failure, w->place.rank);
    bl_worker_fail(w, &failure);
}

static void scale(const bl_work *work)
{
    float by = work->factor;
    switch (work->dtype) {
    case BELAY_F32:
        for (int64_t i = 0; i < work->n; i++)
            ((float *)work->data)[i] *= by;
        break;
    case BELAY_F64:
        for (int64_t i = 0; i < work->n; i++)
            ((double *)work->data)[i] *= (double)by;
        break;
    case BELAY_BF16:
        for (int64_t i = 0; i < work->n; i++)
            ((bl_bf16 *)work->data)[i] = bl_to_bf16(bl_from_bf16(((bl_bf16 *)work->data)[i]) * by);
        break;
    case BELAY_F16:
        for (int64_t i = 0; i < work->n; i++)
            ((bl_f16 *)work->data)[i] = bl_to_f16(bl_from_f16(((bl_f16 *)work->data)[i]) * by);
        break;
    default:
        break;
    }
}

static belay_code start(bl_group_worker *w, const bl_work *work, int *request, bl_error *error)
{
    switch (work->kind) {
    case BL_WORK_ALL_REDUCE:
        bl_worker_enter(w, "all_reduce", work);
        return w->api->all_reduce(w->transport, work->plane, work->data, work->n, work->dtype, work->op, request,
                                  error);
    case BL_WORK_BROADCAST:
        bl_worker_enter(w, "broadcast", work);
        return w->api->broadcast(w->transport, work->plane, work->data, work->n, work->root, request, error);
    case BL_WORK_ALL_GATHER:
        break;
    }
    bl_worker_enter(w, "all_gather", work);
    return w->api->all_gather(w->transport, work->plane, work->mine, work->data, work->n, request, error);
}

static bool is_ready(const bl_group_worker *w, const bl_work *work)
{
    if (work->after > w->n_agreed)
        return false;
    return work->ready == NULL || __atomic_load_n(work->ready, __ATOMIC_ACQUIRE) >= work->ready_at;
}

/* The next work of the plane, if its turn has come: it is under way from now on. */
static bl_work *next_work(bl_group_worker *w, int plane)
{
    bl_worker_lock(w);
    bl_work *work = w->first[plane];
    if (work != NULL && (w->is_failed || w->n_under_way[plane] == under_way_most[plane] || !is_ready(w, work)))
        work = NULL;
    if (work != NULL) {
        w->first[plane] = work->next;
        if (work->next == NULL)
            w->last[plane] = NULL;
    }
    bl_worker_unlock(w);
    if (work == NULL)
        return NULL;
    work->next = NULL;
    bl_work **end = &w->under_way[plane];
    while (*end != NULL)
        end = &(*end)->next;
    *end = work;
    w->n_under_way[plane]++;
    return work;
}

static bool start_works(bl_group_worker *w, int plane)
{
    bool any = false;
    int request = 0;
    bl_error error;
    for (bl_work *work; (work = next_work(w, plane)) != NULL; any = true) {
        if (work->begin != NULL)
            work->begin(work->state_of);
        if (work->kind == BL_WORK_ALL_REDUCE && work->factor != 0 && work->factor != 1)
            scale(work);
        work->is_started = true;
        bl_work_state_set(work, BL_WORK_UNDER_WAY);
        belay_code code = start(w, work, &request, &error);
        if (!bl_worker_leave(w))
            return true;
        work->request = request;
        if (code != BELAY_OK) {
            fail_by_error(w, plane, &error);
            return true;
        }
    }
    return any;
}

static bool test_works(bl_group_worker *w, int plane, int64_t now)
{
    bool any = false;
    bl_error error;
    for (bl_work **at = &w->under_way[plane]; *at != NULL;) {
        bl_work *work = *at;
        bool is_done = false;
        bl_worker_enter(w, "test", work);
        belay_code code = w->api->test(w->transport, work->request, &is_done, &error);
        if (!bl_worker_leave(w))
            return true;
        if (code != BELAY_OK) {
            fail_by_error(w, plane, &error);
            return true;
        }
        if (!is_done) {
            at = &work->next;
            continue;
        }
        *at = work->next;
        w->n_under_way[plane]--;
        __atomic_store_n(&w->moved[plane], now, __ATOMIC_RELAXED);
        bl_worker_end_work(work, false);
        w->n_agreed += plane == BL_PLANE_WORDS;
        any = true;
    }
    return any;
}

/* ---- after a failure ------------------------------------------------------------------------------------------------- */

bl_works bl_worker_take_works(bl_group_worker *w)
{
    bl_works all;
    for (int plane = 0; plane < BL_N_PLANES; plane++) {
        all.list[2 * plane] = w->under_way[plane];
        all.list[2 * plane + 1] = w->first[plane];
        w->under_way[plane] = w->first[plane] = w->last[plane] = NULL;
        w->n_under_way[plane] = 0;
    }
    return all;
}

void bl_worker_fail_works(const bl_works *all)
{
    for (int i = 0; i < BL_COUNT(all->list); i++)
        for (bl_work *work = all->list[i], *next; work != NULL; work = next) {
            next = work->next;
            bl_worker_end_work(work, true);
        }
}

/* What was under way is abandoned; the others are told at once, then the launcher. */
static void flush(bl_group_worker *w, int64_t now)
{
    bl_worker_lock(w);
    const bl_failure *f = &w->failure;
    w->me.code = f->fault.code;
    w->me.n_culprits = f->n_culprits;
    memcpy(w->me.culprit, f->culprit, sizeof w->me.culprit);
    snprintf(w->me.why, sizeof w->me.why, "%.*s", (int)sizeof w->me.why - 1, f->fault.what);
    bool is_told = w->is_left; /* to the launcher, by the main thread */
    bl_worker_unlock(w);
    w->version++;
    w->version_at = now;
    w->is_flushed = true;
    bl_worker_beat(w, now);
    bl_beat me = bl_worker_beat_now(w, now);
    if (!is_told)
        bl_status_write(w, "failed", &w->failure, &me);
    bl_worker_lock(w);
    bl_works all = bl_worker_take_works(w);
    bl_worker_unlock(w);
    bl_worker_fail_works(&all);
    bl_worker_lock(w);
    pthread_cond_broadcast(&w->done);
    bl_worker_unlock(w);
}

/* ---- leaving --------------------------------------------------------------------------------------------------------- */

/* A broken group is left when all that are heard of know it, or soon after. */
static bool may_leave(bl_group_worker *w, int64_t now)
{
    if (!w->is_flushed || now - w->closing_since >= 250 * BL_MS)
        return true;
    for (int r = 0; r < w->place.size; r++) {
        const bl_peer *p = &w->peer[r];
        bool is_heard = r != w->place.rank && !p->is_cut && now - p->heard <= bl_worker_old_age(w);
        if (is_heard && (p->told != w->version || p->is_sending || p->last.code == BELAY_OK))
            return false;
    }
    return true;
}

/* ---- the thread ------------------------------------------------------------------------------------------------------ */

static bool is_at_work(bl_group_worker *w, int plane) { return w->under_way[plane] != NULL || w->first[plane] != NULL; }

static void rest(bl_group_worker *w, bool has_happened, int64_t now)
{
    if (has_happened) {
        w->happened = now;
        w->nap = FIRST_NAP_NS;
    }
    bl_worker_lock(w);
    bool data = is_at_work(w, BL_PLANE_DATA), words = is_at_work(w, BL_PLANE_WORDS);
    int64_t most = data ? pace_of(w)->nap : words || w->shall_close ? WORDS_NAP_NS : IDLE_NAP_NS;
    bool spins = (data || words) && now - w->happened < BL_WORKER_SPIN_NS;
    w->nap = data || words ? bl_min_i64(w->nap + w->nap / 4, most) : most;
    if (!w->has_news && !spins) {
        struct timespec until = bl_worker_after(w->nap);
        while (!w->has_news && pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)
            ;
    }
    if (w->has_news) {
        w->happened = now;
        w->nap = FIRST_NAP_NS;
        w->has_news = false;
    }
    bl_worker_unlock(w);
    if (spins)
        sched_yield();
}

/* False when it is time to leave. */
static bool turn(bl_group_worker *w)
{
    int64_t now = bl_clock_now();
    bool has_failed = bl_worker_has_failed(w, NULL), any = false;
    if (has_failed && !w->is_flushed)
        flush(w, now);
    bl_worker_lock(w);
    bool shall_close = w->shall_close;
    if (shall_close && w->closing_since == 0)
        w->closing_since = now;
    bl_worker_unlock(w);
    if (shall_close && may_leave(w, now))
        return false;
    for (int plane = 0; plane < BL_N_PLANES && !has_failed; plane++) {
        any = start_works(w, plane) || any;
        int n_tests = plane == BL_PLANE_DATA ? pace_of(w)->n_tests : 1;
        for (int i = 0; i < n_tests && w->under_way[plane] != NULL && !bl_worker_has_failed(w, NULL); i++)
            any = test_works(w, plane, now) || any;
    }
    if (any) {
        bl_worker_lock(w);
        pthread_cond_broadcast(&w->done);
        bl_worker_unlock(w);
    }
    bl_worker_beat(w, now);
    for (int plane = 0; plane < BL_N_PLANES && !bl_worker_has_failed(w, NULL); plane++)
        bl_worker_look_at_deadline(w, plane, now);
    rest(w, any || (bl_worker_has_failed(w, NULL) && !w->is_flushed), now);
    return true;
}

static belay_code open_transport(bl_group_worker *w)
{
    TRY(w->api->open(&w->transport, &w->place, &w->error));
    w->peer = bl_alloc(w->place.size, sizeof *w->peer);
    if (w->peer != NULL)
        return BELAY_OK;
    w->api->close(w->transport, true);
    return bl_error_set(&w->error, BELAY_MEM_EXHAUSTED, "no memory for a group of %d ranks", w->place.size);
}

static void set_out(bl_group_worker *w)
{
    int64_t now = bl_clock_now();
    for (int r = 0; r < w->place.size; r++)
        w->peer[r].heard = now;
    w->phase_since = now;
    w->told_by = -1;
    w->nap = FIRST_NAP_NS;
    w->me.group = w->number;
    snprintf(w->me.host, sizeof w->me.host, "%.*s", (int)sizeof w->me.host - 1, w->place.host);
}

void bl_worker_run(bl_group_worker *w)
{
    belay_code code = open_transport(w);
    if (code == BELAY_OK)
        set_out(w);
    bl_worker_lock(w);
    w->open_code = code;
    w->is_opened = true;
    pthread_cond_broadcast(&w->done);
    bl_worker_unlock(w);
    if (code == BELAY_OK) {
        while (turn(w))
            ;
        if (w->is_whole)
            bl_worker_settle(w);
        w->api->close(w->transport, w->is_whole);
    }
    bl_worker_lock(w);
    w->is_closed = true;
    pthread_cond_broadcast(&w->done);
    bl_worker_unlock(w);
}
