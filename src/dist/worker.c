/* SPDX-License-Identifier: Apache-2.0 */
/* What the main thread asks of the worker: posts, says what it is at, waits. */
#include "dist/worker_parts.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"

enum {
    SPINS = 10000, /* questions in a row before it sleeps, at most */
    LOOKS = 50     /* it gives up a call of the transport that it saw so often in a row, and late */
};

/* ---- what the main thread asks --------------------------------------------------------------------------------------- */

void bl_worker_end_work(bl_work *work, bool failed)
{
    if (work->end != NULL)
        work->end(work->state_of, failed);
    if (work->ended_word != NULL)
        __atomic_store_n(work->ended_word, work->ended_value, __ATOMIC_RELEASE);
    bl_work_state_set(work, failed ? BL_WORK_FAILED : BL_WORK_ENDED);
}

void bl_worker_post(bl_group_worker *w, bl_work *work)
{
    work->posted = bl_clock_now();
    work->next = NULL;
    work->is_started = false;
    bl_worker_lock(w);
    bool is_refused = w->is_failed;
    work->number = w->n_posted[work->plane]++;
    w->me.n_calls = w->n_posted[BL_PLANE_WORDS];
    w->me.n_launched = w->n_posted[BL_PLANE_DATA];
    w->n_changes++;
    if (!is_refused) {
        bl_work_state_set(work, BL_WORK_POSTED);
        if (w->last[work->plane] != NULL)
            w->last[work->plane]->next = work;
        else
            w->first[work->plane] = work;
        w->last[work->plane] = work;
        bl_worker_stir(w);
    }
    bl_worker_unlock(w);
    if (is_refused)
        bl_worker_end_work(work, true);
}

void bl_worker_fail(bl_group_worker *w, const bl_failure *failure)
{
    bl_worker_lock(w);
    if (!w->is_failed) {
        w->failure = *failure;
        w->is_failed = true;
        bl_worker_stir(w);
    }
    bl_worker_unlock(w);
}

bool bl_worker_has_failed(bl_group_worker *w, bl_failure *failure)
{
    bl_worker_lock(w);
    bool has_failed = w->is_failed;
    if (has_failed && failure != NULL)
        *failure = w->failure;
    bl_worker_unlock(w);
    return has_failed;
}

static void set_position(bl_group_worker *w, const belay_context *context)
{
    w->me.step = context->step;
    w->me.epoch = context->epoch;
    w->me.position = context->position;
}

void bl_worker_at(bl_group_worker *w, const belay_context *context)
{
    bl_worker_lock(w);
    set_position(w, context);
    bl_worker_unlock(w);
}

bl_phase bl_worker_phase(bl_group_worker *w, bl_phase phase, const belay_context *context)
{
    bl_worker_lock(w);
    bl_phase before = (bl_phase)w->me.phase;
    set_position(w, context);
    if (phase != before)
        w->phase_since = bl_clock_now();
    w->me.phase = phase;
    w->n_changes++;
    bl_worker_unlock(w);
    return before;
}

void bl_worker_report(bl_group_worker *w, const char *state, const belay_context *context)
{
    bl_worker_at(w, context);
    bl_beat me = bl_worker_beat_now(w, bl_clock_now());
    if (!bl_worker_has_failed(w, NULL))
        bl_status_write(w, state, NULL, &me);
}

bool bl_worker_has_told(bl_group_worker *w)
{
    bl_worker_lock(w);
    bool has_told = w->n_told == w->n_changes;
    bl_worker_unlock(w);
    return has_told;
}

/* Where the transport holds this rank up, as it was when it heard of any last. */
int bl_worker_lowest_survivor(bl_group_worker *w)
{
    int64_t now = bl_clock_now(), last = 0;
    int lowest = w->place.rank;
    bl_worker_lock(w);
    for (int r = 0; r < w->place.size; r++)
        last = bl_max_i64(last, w->peer[r].heard);
    now = w->is_left ? last : now;
    for (int r = w->place.rank - 1; r >= 0; r--)
        if (now - w->peer[r].heard <= bl_worker_old_age(w) && !(w->is_failed && bl_failure_has(&w->failure, r)))
            lowest = r;
    bl_worker_unlock(w);
    return lowest;
}

/* ---- waiting --------------------------------------------------------------------------------------------------------- */

static void begin_waiting(bl_group_worker *w, const char *what, const char *site)
{
    bl_worker_lock(w);
    w->me.waits = 1;
    w->n_changes++;
    w->wait_since = bl_clock_now();
    snprintf(w->me.what, sizeof w->me.what, "%s", what);
    snprintf(w->me.site, sizeof w->me.site, "%s", site);
    bl_worker_unlock(w);
}

/* Nobody is to blame: it may be this host, its network, or the transport itself. */
static void describe_stuck(bl_group_worker *w, const bl_work *work, const char *what, bl_failure *failure)
{
    char whom[128];
    bl_report_fault *f = &failure->fault;
    bl_failure_begin(failure, BELAY_COMM_DEADLINE);
    if (w->call_work != NULL)
        bl_worker_describe(w->call_work, whom, sizeof whom);
    else
        snprintf(whom, sizeof whom, "a heartbeat %s rank %d", w->call_way, w->call_peer);
    snprintf(f->what, sizeof f->what, "the call %s of %s for %s does not return; %s has waited %.1f s", w->call_name,
             w->api->name, whom, what, (double)bl_worker_waited_for(w, work, bl_clock_now()) / 1e9);
    bl_report_fault_fact(f, "this rank sends no heartbeats meanwhile: the others take it for dead");
    snprintf(f->advice, sizeof f->advice,
             "Look at the network and the load of this host; a debugger shows where its thread belay-group stands.");
}

/* In place of the worker, unless it has come back from that call just now. */
static void take_over(bl_group_worker *w, uint64_t call, const bl_work *work, const char *what)
{
    bl_worker_lock(w);
    if (!__atomic_compare_exchange_n(&w->call, &call, BL_CALL_LEFT, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        bl_worker_unlock(w);
        return;
    }
    w->is_left = true;
    if (!w->is_failed)
        describe_stuck(w, work, what, &w->failure);
    w->is_failed = true;
    bl_works all = bl_worker_take_works(w);
    bl_worker_unlock(w);
    bl_beat me = bl_worker_beat_now(w, bl_clock_now());
    bl_status_write(w, "failed", &w->failure, &me);
    bl_worker_fail_works(&all);
}

/* What the main thread saw of the worker when it looked last. */
typedef struct look {
    uint64_t call;
    int n; /* so often in a row, and late */
} look;

/* A while after the deadline, when the worker should have failed by itself. */
static bool is_late(const bl_group_worker *w, const bl_work *work)
{
    int64_t more = bl_max_i64(1000 * BL_MS, bl_min_i64(w->timeout / 4, 10000 * BL_MS));
    return bl_worker_late_by(w, work, bl_clock_now()) > more;
}

static bool is_stuck(const bl_group_worker *w, const bl_work *work, look *last)
{
    uint64_t call = __atomic_load_n(&w->call, __ATOMIC_ACQUIRE);
    bool is_inside = call != BL_CALL_LEFT && call % 2 == 1;
    last->n = is_inside && call == last->call && is_late(w, work) ? last->n + 1 : 0;
    last->call = call;
    return last->n >= LOOKS;
}

/* False when that was in vain for a moment. */
static bool wait_a_moment(bl_group_worker *w, const bl_work *work)
{
    struct timespec until = bl_worker_after(BL_WORKER_LOOK_NS);
    int late = 0;
    bl_worker_lock(w);
    while (!bl_work_is_over(work) && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&w->done, &w->lock, &until);
    bl_worker_unlock(w);
    return bl_work_is_over(work);
}

void bl_worker_wait(bl_group_worker *w, bl_work *work, const char *what, const char *site)
{
    int64_t begin = bl_clock_now();
    look last = {0};
    begin_waiting(w, what, site);
    for (int i = 0; i < SPINS && !bl_work_is_over(work) && bl_clock_now() - begin < BL_WORKER_SPIN_NS; i++)
        sched_yield();
    while (!wait_a_moment(w, work))
        if (is_stuck(w, work, &last))
            take_over(w, last.call, work, what);
    bl_worker_lock(w);
    w->me.waits = 0;
    w->n_changes++;
    bl_worker_unlock(w);
}
