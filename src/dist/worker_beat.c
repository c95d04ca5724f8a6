/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats to and from each other rank, and what follows from them: who is late, and whose failure is this rank's, too. */
#include "dist/worker_parts.h"

#include <sched.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/clock.h"
#include "dist/words.h"

enum { EXCUSED_TIMEOUTS = 10 /* so long may an operation take while those that have not come save or evaluate */ };

/* ---- heartbeats ------------------------------------------------------------------------------------------------------ */

/* Several periods. */
int64_t bl_worker_old_age(const bl_group_worker *w) { return 3 * w->period + 50 * BL_MS; }

bl_beat bl_worker_beat_now(bl_group_worker *w, int64_t now)
{
    bl_worker_lock(w);
    bl_beat me = w->me;
    me.phase_ns = now - w->phase_since;
    me.wait_ns = me.waits ? now - w->wait_since : 0;
    bl_worker_unlock(w);
    return me;
}

static bl_roll roll_now(bl_group_worker *w, const bl_beat *me, int64_t now)
{
    return (bl_roll){w->place.rank, w->place.size, me, w->peer, now, w->timeout, bl_worker_old_age(w)};
}

void bl_worker_describe(const bl_work *work, char *out, size_t size)
{
    if (work->plane == BL_PLANE_WORDS && work->kind == BL_WORK_ALL_GATHER && work->n == BL_WORD_BYTES)
        bl_word_call(work->mine, out, size);
    else
        snprintf(out, size, "%s", work->what != NULL ? work->what : "an operation");
}

static const bl_work *oldest(bl_group_worker *w, int plane)
{
    bl_worker_lock(w);
    const bl_work *work = w->under_way[plane] != NULL ? w->under_way[plane] : w->first[plane];
    bl_worker_unlock(w);
    return work;
}

int64_t bl_worker_waited_for(const bl_group_worker *w, const bl_work *work, int64_t now)
{
    return now - bl_max_i64(work->posted, __atomic_load_n(&w->moved[work->plane], __ATOMIC_RELAXED));
}

int64_t bl_worker_late_by(const bl_group_worker *w, const bl_work *work, int64_t now)
{
    int64_t begin = now - bl_worker_waited_for(w, work, now), excused = __atomic_load_n(&w->excused, __ATOMIC_RELAXED);
    return now - bl_max_i64(begin, excused) - w->timeout;
}

static void fail_by_deadline(bl_group_worker *w, const bl_work *work, const bl_beat *told, int64_t now)
{
    char what[128];
    bl_failure failure;
    bl_beat me = bl_worker_beat_now(w, now);
    bl_roll roll = roll_now(w, &me, now);
    bl_worker_describe(work, what, sizeof what);
    bl_roll_deadline(&roll, work, what, bl_worker_waited_for(w, work, now), told, &failure);
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
    bl_beat me = bl_worker_beat_now(w, now);
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
    bl_worker_lock(w);
    p->last = p->in;
    p->heard = now;
    bl_worker_unlock(w);
    if (p->last.code == BELAY_OK || bl_worker_has_failed(w, NULL))
        return;
    if (!bl_beat_is_found_by_all((belay_code)p->last.code)) {
        adopt(w, r, now);
    } else if (w->told_by < 0) {
        w->told_by = r;
        w->adopt_at = now + bl_min_i64(w->timeout / 4, 1000 * BL_MS);
    }
}

/* An error in a message to or from a rank is no message: its silence tells. */
static void receive(bl_group_worker *w, int r, int64_t now)
{
    bl_peer *p = &w->peer[r];
    for (int most = 8; most > 0 && !p->is_cut; most--) {
        bool is_done = false;
        if (!p->is_receiving) {
            bl_worker_enter_message(w, "receive", "from", r);
            p->is_cut = w->api->receive(w->transport, r, &p->in, sizeof p->in, &p->receiving, NULL) != BELAY_OK;
            bl_worker_leave(w);
            p->is_receiving = !p->is_cut;
            continue;
        }
        bl_worker_enter_message(w, "test", "from", r);
        p->is_cut = w->api->test(w->transport, p->receiving, &is_done, NULL) != BELAY_OK;
        bl_worker_leave(w);
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
        bl_worker_enter_message(w, "test", "to", r);
        p->is_cut = w->api->test(w->transport, p->sending, &is_done, NULL) != BELAY_OK;
        bl_worker_leave(w);
        p->is_sending = !is_done;
    }
    if (p->is_cut || p->is_sending || p->told == w->version)
        return;
    p->out = bl_worker_beat_now(w, now);
    p->told = w->version;
    bl_worker_enter_message(w, "send", "to", r);
    p->is_cut = w->api->send(w->transport, r, &p->out, sizeof p->out, &p->sending, NULL) != BELAY_OK;
    bl_worker_leave(w);
    p->is_sending = !p->is_cut;
}

void bl_worker_beat(bl_group_worker *w, int64_t now)
{
    bl_worker_lock(w);
    uint64_t n_changes = w->n_changes;
    bl_worker_unlock(w);
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
        bl_worker_lock(w);
        w->n_told = w->version_changes;
        bl_worker_unlock(w);
    }
    if (w->told_by >= 0 && now >= w->adopt_at && !bl_worker_has_failed(w, NULL))
        adopt(w, w->told_by, now);
}

/* The oldest work of a plane must be over by its deadline, or that much after the one before.  Who saves or evaluates gets
 * the same time again, and again. */
void bl_worker_look_at_deadline(bl_group_worker *w, int plane, int64_t now)
{
    const bl_work *work = oldest(w, plane);
    if (work == NULL || bl_worker_late_by(w, work, now) <= 0)
        return;
    bl_beat me = bl_worker_beat_now(w, now);
    bl_roll roll = roll_now(w, &me, now);
    if (bl_worker_waited_for(w, work, now) < EXCUSED_TIMEOUTS * w->timeout && bl_roll_is_excused(&roll, work))
        __atomic_store_n(&w->excused, now, __ATOMIC_RELAXED);
    else
        fail_by_deadline(w, work, NULL, now);
}

/* Messages to peers that are not off yet keep their memory. */
static bool is_sending(const bl_group_worker *w)
{
    for (int r = 0; r < w->place.size; r++)
        if (w->peer[r].is_sending && !w->peer[r].is_cut)
            return true;
    return false;
}

void bl_worker_settle(bl_group_worker *w)
{
    int64_t begin = bl_clock_now();
    while (is_sending(w) && bl_clock_now() - begin < 100 * BL_MS) {
        for (int r = 0; r < w->place.size; r++) {
            w->peer[r].told = w->version;
            send(w, r, begin);
        }
        sched_yield();
    }
    w->is_dirty = is_sending(w);
}
