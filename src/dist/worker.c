/* SPDX-License-Identifier: Apache-2.0 */
/* The worker: starts works when their turn has come, asks whether they ended, keeps the heartbeats going. */
#include "dist/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "dist/hand.h"
#include "dist/words.h"

#define MS INT64_C(1000000)
enum {
    SPIN_NS = 30000,        /* after something happened: asks again and again for so long, */
    SPINS = 10000,          /* and never more often, whatever the clock says */
    FIRST_NAP_NS = 5000,    /* then sleeps, and longer each time, up to: */
    WORDS_NAP_NS = 1000000, /* while words are */
    IDLE_NAP_NS = 5000000,  /* while nothing is */
    LOOK_NS = 20000000,     /* the main thread looks after the worker so often */
    LOOKS = 50,             /* it gives up a call of the transport that it saw so often in a row, and late */
    EXCUSED_TIMEOUTS = 10   /* so long may an operation take while those that have not come save or evaluate */
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

static void lock(bl_group_worker *w) { pthread_mutex_lock(&w->lock); }
static void unlock(bl_group_worker *w) { pthread_mutex_unlock(&w->lock); }

static struct timespec after(int64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += t.tv_nsec;
    t.tv_sec += (time_t)(ns / (1000 * MS));
    t.tv_nsec = (long)(ns % (1000 * MS));
    return t;
}

/* ---- what the main thread asks --------------------------------------------------------------------------------------- */

static void stir(bl_group_worker *w)
{
    w->has_news = true;
    pthread_cond_signal(&w->wake);
}

static void set_state(bl_work *work, bl_work_state state) { __atomic_store_n(&work->state, state, __ATOMIC_RELEASE); }

/* The work, and its word, may be gone as soon as it is over. */
static void end_work(bl_work *work, bool failed)
{
    if (work->end != NULL)
        work->end(work->state_of, failed);
    if (work->ended_word != NULL)
        __atomic_store_n(work->ended_word, work->ended_value, __ATOMIC_RELEASE);
    set_state(work, failed ? BL_WORK_FAILED : BL_WORK_ENDED);
}

void bl_worker_post(bl_group_worker *w, bl_work *work)
{
    work->posted = bl_clock_now();
    work->next = NULL;
    work->is_started = false;
    lock(w);
    bool is_refused = w->is_failed;
    work->number = w->n_posted[work->plane]++;
    w->me.n_calls = w->n_posted[BL_PLANE_WORDS];
    w->me.n_launched = w->n_posted[BL_PLANE_DATA];
    w->n_changes++;
    if (!is_refused) {
        set_state(work, BL_WORK_POSTED);
        if (w->last[work->plane] != NULL)
            w->last[work->plane]->next = work;
        else
            w->first[work->plane] = work;
        w->last[work->plane] = work;
        stir(w);
    }
    unlock(w);
    if (is_refused)
        end_work(work, true);
}

void bl_worker_fail(bl_group_worker *w, const bl_failure *failure)
{
    lock(w);
    if (!w->is_failed) {
        w->failure = *failure;
        w->is_failed = true;
        stir(w);
    }
    unlock(w);
}

bool bl_worker_has_failed(bl_group_worker *w, bl_failure *failure)
{
    lock(w);
    bool has_failed = w->is_failed;
    if (has_failed && failure != NULL)
        *failure = w->failure;
    unlock(w);
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
    lock(w);
    set_position(w, context);
    unlock(w);
}

bl_phase bl_worker_phase(bl_group_worker *w, bl_phase phase, const belay_context *context)
{
    lock(w);
    bl_phase before = (bl_phase)w->me.phase;
    set_position(w, context);
    if (phase != before)
        w->phase_since = bl_clock_now();
    w->me.phase = phase;
    w->n_changes++;
    unlock(w);
    return before;
}

/* ---- calls of the transport ------------------------------------------------------------------------------------------ */

/* Each is between these two, since it may never come back: the main thread can then take over all works. */
static void enter(bl_group_worker *w, const char *name, const bl_work *work)
{
    if (w->was_left)
        return;
    w->call_name = name;
    w->call_work = work;
    __atomic_store_n(&w->call, __atomic_load_n(&w->call, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

static void enter_message(bl_group_worker *w, const char *name, const char *way, int peer)
{
    if (w->was_left)
        return;
    w->call_way = way;
    w->call_peer = peer;
    enter(w, name, NULL);
}

/* False when the call was given up meanwhile: the work that it was for is over, and may be gone. */
static bool leave(bl_group_worker *w)
{
    if (w->was_left)
        return false;
    uint64_t call = __atomic_load_n(&w->call, __ATOMIC_RELAXED);
    if (call != BL_CALL_LEFT &&
        __atomic_compare_exchange_n(&w->call, &call, call + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return true;
    w->was_left = true;
    lock(w); /* until all is taken over */
    unlock(w);
    return false;
}

/* ---- heartbeats ------------------------------------------------------------------------------------------------------ */

/* A lost rank has been silent for several periods. */
static int64_t old_age(const bl_group_worker *w) { return 3 * w->period + 50 * MS; }

static bl_beat beat_now(bl_group_worker *w, int64_t now)
{
    lock(w);
    bl_beat me = w->me;
    me.phase_ns = now - w->phase_since;
    me.wait_ns = me.waits ? now - w->wait_since : 0;
    unlock(w);
    return me;
}

static bl_roll roll_now(bl_group_worker *w, const bl_beat *me, int64_t now)
{
    return (bl_roll){w->place.rank, w->place.size, me, w->peer, now, w->timeout, old_age(w)};
}

/* "all_reduce #37", "bucket 3 of model". */
static void describe_work(const bl_work *work, char *out, size_t size)
{
    if (work->plane == BL_PLANE_WORDS && work->kind == BL_WORK_ALL_GATHER && work->n == BL_WORD_BYTES)
        bl_word_call(work->mine, out, size);
    else
        snprintf(out, size, "%s", work->what != NULL ? work->what : "an operation");
}

static const bl_work *oldest(bl_group_worker *w, int plane)
{
    lock(w);
    const bl_work *work = w->under_way[plane] != NULL ? w->under_way[plane] : w->first[plane];
    unlock(w);
    return work;
}

static int64_t waited_for(const bl_group_worker *w, const bl_work *work, int64_t now)
{
    return now - bl_max_i64(work->posted, __atomic_load_n(&w->moved[work->plane], __ATOMIC_RELAXED));
}

/* Nanoseconds since its deadline. */
static int64_t late_by(const bl_group_worker *w, const bl_work *work, int64_t now)
{
    int64_t begin = now - waited_for(w, work, now), excused = __atomic_load_n(&w->excused, __ATOMIC_RELAXED);
    return now - bl_max_i64(begin, excused) - w->timeout;
}

static void fail_by_deadline(bl_group_worker *w, const bl_work *work, const bl_beat *told, int64_t now)
{
    char what[128];
    bl_failure failure;
    bl_beat me = beat_now(w, now);
    bl_roll roll = roll_now(w, &me, now);
    describe_work(work, what, sizeof what);
    bl_roll_deadline(&roll, work, what, waited_for(w, work, now), told, &failure);
    bl_worker_fail(w, &failure);
}

/* A rank that waits too tells of its own waiting. */
static void adopt(bl_group_worker *w, int peer, int64_t now)
{
    const bl_beat *told = &w->peer[peer].last;
    const bl_work *work = oldest(w, BL_PLANE_WORDS) != NULL ? oldest(w, BL_PLANE_WORDS) : oldest(w, BL_PLANE_DATA);
    if (told->code == BELAY_COMM_DEADLINE && work != NULL) {
        fail_by_deadline(w, work, told, now);
        return;
    }
    bl_failure failure;
    bl_beat me = beat_now(w, now);
    bl_roll roll = roll_now(w, &me, now);
    bl_roll_adopt(&roll, peer, &failure);
    bl_worker_fail(w, &failure);
}

/* What all find out at the same exchange each finds by itself, with all words; only one that cannot takes a peer's. */
static void hear(bl_group_worker *w, int r, int64_t now)
{
    bl_peer *p = &w->peer[r];
    if (p->in.group != w->number) /* of a group of before */
        return;
    lock(w);
    p->last = p->in;
    p->heard = now;
    unlock(w);
    if (p->last.code == BELAY_OK || bl_worker_has_failed(w, NULL))
        return;
    if (!bl_beat_is_found_by_all((belay_code)p->last.code)) {
        adopt(w, r, now);
    } else if (w->told_by < 0) {
        w->told_by = r;
        w->adopt_at = now + bl_min_i64(w->timeout / 4, 1000 * MS);
    }
}

/* An error in a message to or from a rank is no message: its silence tells. */
static void receive(bl_group_worker *w, int r, int64_t now)
{
    bl_peer *p = &w->peer[r];
    for (int most = 8; most > 0 && !p->is_cut; most--) {
        bool is_done = false;
        if (!p->is_receiving) {
            enter_message(w, "receive", "from", r);
            p->is_cut = w->api->receive(w->transport, r, &p->in, sizeof p->in, &p->receiving, NULL) != BELAY_OK;
            leave(w);
            p->is_receiving = !p->is_cut;
            continue;
        }
        enter_message(w, "test", "from", r);
        p->is_cut = w->api->test(w->transport, p->receiving, &is_done, NULL) != BELAY_OK;
        leave(w);
        if (!is_done)
            return;
        p->is_receiving = false;
        if (!p->is_cut)
            hear(w, r, now);
    }
}

static void send(bl_group_worker *w, int r, int64_t now)
{
    bl_peer *p = &w->peer[r];
    if (p->is_sending && !p->is_cut) {
        bool is_done = false;
        enter_message(w, "test", "to", r);
        p->is_cut = w->api->test(w->transport, p->sending, &is_done, NULL) != BELAY_OK;
        leave(w);
        p->is_sending = !is_done;
    }
    if (p->is_cut || p->is_sending || p->told == w->version)
        return;
    p->out = beat_now(w, now);
    p->told = w->version;
    enter_message(w, "send", "to", r);
    p->is_cut = w->api->send(w->transport, r, &p->out, sizeof p->out, &p->sending, NULL) != BELAY_OK;
    leave(w);
    p->is_sending = !p->is_cut;
}

static void beat(bl_group_worker *w, int64_t now)
{
    lock(w);
    uint64_t n_changes = w->n_changes;
    unlock(w);
    int64_t since = now - w->version_at;
    if (since >= w->period || (n_changes != w->version_changes && since >= w->period / 5)) {
        w->version++;
        w->version_at = now;
        w->version_changes = n_changes;
    }
    bool all = true;
    for (int r = 0; r < w->place.size; r++)
        if (r != w->place.rank) {
            receive(w, r, now);
            send(w, r, now);
            all = all && (w->peer[r].is_cut || (w->peer[r].told == w->version && !w->peer[r].is_sending));
        }
    if (all) {
        lock(w);
        w->n_told = w->version_changes;
        unlock(w);
    }
    if (w->told_by >= 0 && now >= w->adopt_at && !bl_worker_has_failed(w, NULL))
        adopt(w, w->told_by, now);
}

void bl_worker_report(bl_group_worker *w, const char *state, const belay_context *context)
{
    bl_worker_at(w, context);
    bl_beat me = beat_now(w, bl_clock_now());
    if (!bl_worker_has_failed(w, NULL))
        bl_status_write(w, state, NULL, &me);
}

bool bl_worker_has_told(bl_group_worker *w)
{
    lock(w);
    bool has_told = w->n_told == w->n_changes;
    unlock(w);
    return has_told;
}

/* Where the transport holds this rank up, as it was when it heard of any last. */
int bl_worker_lowest_survivor(bl_group_worker *w)
{
    int64_t now = bl_clock_now(), last = 0;
    int lowest = w->place.rank;
    lock(w);
    for (int r = 0; r < w->place.size; r++)
        last = bl_max_i64(last, w->peer[r].heard);
    now = w->is_left ? last : now;
    for (int r = w->place.rank - 1; r >= 0; r--)
        if (now - w->peer[r].heard <= old_age(w) && !(w->is_failed && bl_failure_has(&w->failure, r)))
            lowest = r;
    unlock(w);
    return lowest;
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
        enter(w, "all_reduce", work);
        return w->api->all_reduce(w->transport, work->plane, work->data, work->n, work->dtype, work->op, request,
                                  error);
    case BL_WORK_BROADCAST:
        enter(w, "broadcast", work);
        return w->api->broadcast(w->transport, work->plane, work->data, work->n, work->root, request, error);
    case BL_WORK_ALL_GATHER:
        break;
    }
    enter(w, "all_gather", work);
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
    lock(w);
    bl_work *work = w->first[plane];
    if (work != NULL && (w->is_failed || w->n_under_way[plane] == under_way_most[plane] || !is_ready(w, work)))
        work = NULL;
    if (work != NULL) {
        w->first[plane] = work->next;
        if (work->next == NULL)
            w->last[plane] = NULL;
    }
    unlock(w);
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
        set_state(work, BL_WORK_UNDER_WAY);
        belay_code code = start(w, work, &request, &error);
        if (!leave(w))
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
        enter(w, "test", work);
        belay_code code = w->api->test(w->transport, work->request, &is_done, &error);
        if (!leave(w))
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
        end_work(work, false);
        w->n_agreed += plane == BL_PLANE_WORDS;
        any = true;
    }
    return any;
}

/* The oldest work of a plane must be over by its deadline, or that much after the one before.  Who saves or evaluates gets
 * the same time again, and again. */
static void look_at_deadline(bl_group_worker *w, int plane, int64_t now)
{
    const bl_work *work = oldest(w, plane);
    if (work == NULL || late_by(w, work, now) <= 0)
        return;
    bl_beat me = beat_now(w, now);
    bl_roll roll = roll_now(w, &me, now);
    if (waited_for(w, work, now) < EXCUSED_TIMEOUTS * w->timeout && bl_roll_is_excused(&roll, work))
        __atomic_store_n(&w->excused, now, __ATOMIC_RELAXED);
    else
        fail_by_deadline(w, work, NULL, now);
}

/* ---- after a failure ------------------------------------------------------------------------------------------------- */

typedef struct works {
    bl_work *list[2 * BL_N_PLANES];
} works;

/* All that are not over; no list of the worker has them any more.  Under the lock. */
static works take_works(bl_group_worker *w)
{
    works all;
    for (int plane = 0; plane < BL_N_PLANES; plane++) {
        all.list[2 * plane] = w->under_way[plane];
        all.list[2 * plane + 1] = w->first[plane];
        w->under_way[plane] = w->first[plane] = w->last[plane] = NULL;
        w->n_under_way[plane] = 0;
    }
    return all;
}

static void fail_works(const works *all)
{
    for (int i = 0; i < BL_COUNT(all->list); i++)
        for (bl_work *work = all->list[i], *next; work != NULL; work = next) {
            next = work->next;
            end_work(work, true);
        }
}

/* What was under way is abandoned; the others are told at once, then the launcher. */
static void flush(bl_group_worker *w, int64_t now)
{
    lock(w);
    const bl_failure *f = &w->failure;
    w->me.code = f->fault.code;
    w->me.n_culprits = f->n_culprits;
    memcpy(w->me.culprit, f->culprit, sizeof w->me.culprit);
    snprintf(w->me.why, sizeof w->me.why, "%.*s", (int)sizeof w->me.why - 1, f->fault.what);
    bool is_told = w->is_left; /* to the launcher, by the main thread */
    unlock(w);
    w->version++;
    w->version_at = now;
    w->is_flushed = true;
    beat(w, now);
    bl_beat me = beat_now(w, now);
    if (!is_told)
        bl_status_write(w, "failed", &w->failure, &me);
    lock(w);
    works all = take_works(w);
    unlock(w);
    fail_works(&all);
    lock(w);
    pthread_cond_broadcast(&w->done);
    unlock(w);
}

/* ---- waiting --------------------------------------------------------------------------------------------------------- */

static void begin_waiting(bl_group_worker *w, const char *what, const char *site)
{
    lock(w);
    w->me.waits = 1;
    w->n_changes++;
    w->wait_since = bl_clock_now();
    snprintf(w->me.what, sizeof w->me.what, "%s", what);
    snprintf(w->me.site, sizeof w->me.site, "%s", site);
    unlock(w);
}

/* Nobody is to blame: it may be this host, its network, or the transport itself. */
static void describe_stuck(bl_group_worker *w, const bl_work *work, const char *what, bl_failure *failure)
{
    char whom[128];
    bl_report_fault *f = &failure->fault;
    bl_failure_begin(failure, BELAY_COMM_DEADLINE);
    if (w->call_work != NULL)
        describe_work(w->call_work, whom, sizeof whom);
    else
        snprintf(whom, sizeof whom, "a heartbeat %s rank %d", w->call_way, w->call_peer);
    snprintf(f->what, sizeof f->what, "the call %s of %s for %s does not return; %s has waited %.1f s", w->call_name,
             w->api->name, whom, what, (double)waited_for(w, work, bl_clock_now()) / 1e9);
    bl_report_fault_fact(f, "this rank sends no heartbeats meanwhile: the others take it for dead");
    snprintf(f->advice, sizeof f->advice,
             "Look at the network and the load of this host; a debugger shows where its thread belay-group stands.");
}

/* In place of the worker, unless it has come back from that call just now. */
static void take_over(bl_group_worker *w, uint64_t call, const bl_work *work, const char *what)
{
    lock(w);
    if (!__atomic_compare_exchange_n(&w->call, &call, BL_CALL_LEFT, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        unlock(w);
        return;
    }
    w->is_left = true;
    if (!w->is_failed)
        describe_stuck(w, work, what, &w->failure);
    w->is_failed = true;
    works all = take_works(w);
    unlock(w);
    bl_beat me = beat_now(w, bl_clock_now());
    bl_status_write(w, "failed", &w->failure, &me);
    fail_works(&all);
}

/* What the main thread saw of the worker when it looked last. */
typedef struct look {
    uint64_t call;
    int n; /* so often in a row, and late */
} look;

/* A while after the deadline, when the worker should have failed by itself. */
static bool is_late(const bl_group_worker *w, const bl_work *work)
{
    int64_t more = bl_max_i64(1000 * MS, bl_min_i64(w->timeout / 4, 10000 * MS));
    return late_by(w, work, bl_clock_now()) > more;
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
    struct timespec until = after(LOOK_NS);
    int late = 0;
    lock(w);
    while (!bl_work_is_over(work) && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&w->done, &w->lock, &until);
    unlock(w);
    return bl_work_is_over(work);
}

void bl_worker_wait(bl_group_worker *w, bl_work *work, const char *what, const char *site)
{
    int64_t begin = bl_clock_now();
    look last = {0};
    begin_waiting(w, what, site);
    for (int i = 0; i < SPINS && !bl_work_is_over(work) && bl_clock_now() - begin < SPIN_NS; i++)
        sched_yield();
    while (!wait_a_moment(w, work))
        if (is_stuck(w, work, &last))
            take_over(w, last.call, work, what);
    lock(w);
    w->me.waits = 0;
    w->n_changes++;
    unlock(w);
}

/* ---- leaving --------------------------------------------------------------------------------------------------------- */

/* A broken group is left when all that are heard of know it, or soon after. */
static bool may_leave(bl_group_worker *w, int64_t now)
{
    if (!w->is_flushed || now - w->closing_since >= 250 * MS)
        return true;
    for (int r = 0; r < w->place.size; r++) {
        const bl_peer *p = &w->peer[r];
        bool is_heard = r != w->place.rank && !p->is_cut && now - p->heard <= old_age(w);
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
    lock(w);
    bool data = is_at_work(w, BL_PLANE_DATA), words = is_at_work(w, BL_PLANE_WORDS);
    int64_t most = data ? pace_of(w)->nap : words || w->shall_close ? WORDS_NAP_NS : IDLE_NAP_NS;
    bool spins = (data || words) && now - w->happened < SPIN_NS;
    w->nap = data || words ? bl_min_i64(w->nap + w->nap / 4, most) : most;
    if (!w->has_news && !spins) {
        struct timespec until = after(w->nap);
        while (!w->has_news && pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)
            ;
    }
    if (w->has_news) {
        w->happened = now;
        w->nap = FIRST_NAP_NS;
        w->has_news = false;
    }
    unlock(w);
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
    lock(w);
    bool shall_close = w->shall_close;
    if (shall_close && w->closing_since == 0)
        w->closing_since = now;
    unlock(w);
    if (shall_close && may_leave(w, now))
        return false;
    for (int plane = 0; plane < BL_N_PLANES && !has_failed; plane++) {
        any = start_works(w, plane) || any;
        int n_tests = plane == BL_PLANE_DATA ? pace_of(w)->n_tests : 1;
        for (int i = 0; i < n_tests && w->under_way[plane] != NULL && !bl_worker_has_failed(w, NULL); i++)
            any = test_works(w, plane, now) || any;
    }
    if (any) {
        lock(w);
        pthread_cond_broadcast(&w->done);
        unlock(w);
    }
    beat(w, now);
    for (int plane = 0; plane < BL_N_PLANES && !bl_worker_has_failed(w, NULL); plane++)
        look_at_deadline(w, plane, now);
    rest(w, any || (bl_worker_has_failed(w, NULL) && !w->is_flushed), now);
    return true;
}

/* Messages to peers that are not off yet keep their memory. */
static bool is_sending(const bl_group_worker *w)
{
    for (int r = 0; r < w->place.size; r++)
        if (w->peer[r].is_sending && !w->peer[r].is_cut)
            return true;
    return false;
}

static void settle(bl_group_worker *w)
{
    int64_t begin = bl_clock_now();
    while (is_sending(w) && bl_clock_now() - begin < 100 * MS) {
        for (int r = 0; r < w->place.size; r++) {
            w->peer[r].told = w->version;
            send(w, r, begin);
        }
        sched_yield();
    }
    w->is_dirty = is_sending(w);
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
    w->me.group = w->number;
    snprintf(w->me.host, sizeof w->me.host, "%.*s", (int)sizeof w->me.host - 1, w->place.host);
}

void bl_worker_run(bl_group_worker *w)
{
    belay_code code = open_transport(w);
    if (code == BELAY_OK)
        set_out(w);
    lock(w);
    w->open_code = code;
    w->is_opened = true;
    pthread_cond_broadcast(&w->done);
    unlock(w);
    if (code == BELAY_OK) {
        while (turn(w))
            ;
        if (w->is_whole)
            settle(w);
        w->api->close(w->transport, w->is_whole);
    }
    lock(w);
    w->is_closed = true;
    pthread_cond_broadcast(&w->done);
    unlock(w);
}

/* ---- opening and closing --------------------------------------------------------------------------------------------- */

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
    w->period = bl_max_i64(20 * MS, bl_min_i64(timeout / 10, 1000 * MS));
    w->nap = FIRST_NAP_NS;
    snprintf(w->status_folder, sizeof w->status_folder, "%s", status_folder != NULL ? status_folder : "");
    snprintf(w->journal, sizeof w->journal, "%s", journal != NULL ? journal : "");
    return w;
}

/* Whether that came true within the time. */
static bool wait_until(bl_group_worker *w, const bool *flag, int64_t ns)
{
    int64_t begin = bl_clock_now();
    lock(w);
    while (!*flag && bl_clock_now() - begin < ns) {
        struct timespec until = after(LOOK_NS);
        pthread_cond_timedwait(&w->done, &w->lock, &until);
    }
    bool is_true = *flag;
    unlock(w);
    return is_true;
}

static const char never_back[] = "a call of a group before has not come back";

/* Should it open after all, it is left at once. */
static void give_up_opening(bl_group_worker *w)
{
    lock(w);
    w->shall_close = true;
    stir(w);
    unlock(w);
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
    int64_t most = bl_max_i64(timeout, 30000 * MS); /* processes start as fast as they may */
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
    bool is_closed = wait_until(w, &w->is_closed, 2000 * MS);
    bl_hand_leave(w->hand, NULL, is_closed ? NULL : never_back);
    if (is_closed)
        worker_free(w);
    return NULL;
}

bool bl_worker_close(bl_group_worker *w, bool whole)
{
    lock(w);
    w->shall_close = true;
    w->is_whole = whole && !w->is_failed;
    stir(w);
    unlock(w);
    bool is_closed = wait_until(w, &w->is_closed, 2000 * MS);
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
