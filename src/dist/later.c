/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a window for which the device waits, not the host.
 *
 *   main thread                         worker                               device
 *   copies the loss scale to the host                                        ... kernels of the window | copy
 *   posts this rank's word         ->   begins behind all of it:
 *   puts the buckets' way back,         reads gate and scale, tells          holds until the buckets are reduced, copies
 *   a hold, and goes on to the          the others, compares; closes         holds until the words are compared
 *   update, the next batch              the gate where somebody faulted  ->  the update reads the gate
 *   hears of it at the next backward
 *
 * Where the host has something to do once the ranks have agreed, or what it has to say takes a wait, all of this is left
 * to agree.c, which waits: in the first window (the order in which gradients came is shared), where parameters may be
 * unused, where weights are compared, after a fault that the host knows, without a backward, with gradients outside of the
 * buckets.  To the other ranks that is the same: the words are. */
#include "base/memory.h"
#include "dist/parts.h"
#include "dist/same.h"
#include "tensor/window.h"

/* ---- life ------------------------------------------------------------------------------------------------------------ */

enum { SCALE_BYTES = BL_OPTIM_STATE * 8 };

bool bl_later_open(belay_reducer *r)
{
    bl_later *l = &r->later;
    int64_t size = belay_group_size(r->group);
    l->group = r->group;
    l->device = r->context->places[r->place].device;
    l->mine = bl_alloc(1, sizeof *l->mine);
    l->all = bl_alloc(size, sizeof *l->all);
    l->value = bl_alloc(size, sizeof *l->value);
    if (l->mine == NULL || l->all == NULL || l->value == NULL) {
        bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory for the words of %d ranks", (int)size);
        return false;
    }
    return bl_stage_init(r->context, &r->line, 0, &l->words) &&
           bl_stage_init(r->context, &r->line, SCALE_BYTES, &l->scale);
}

void bl_later_close(belay_reducer *r)
{
    bl_later *l = &r->later;
    bl_stage_fini(r->context, &l->words, NULL);
    bl_stage_fini(r->context, &l->scale, NULL);
    if (l->work.state == BL_WORK_FAILED) { /* the transport may still write there */
        bl_group_keep(r->group, l->mine);
        bl_group_keep(r->group, l->all);
    } else {
        bl_free(l->mine);
        bl_free(l->all);
    }
    bl_free(l->value);
    *l = (bl_later){.is_on = false};
}

/* ---- whether --------------------------------------------------------------------------------------------------------- */

/* What other devices that run behind the host's back do for the window is not waited for here. */
static bool is_only_one(const belay_reducer *r)
{
    for (int place = 0; place < r->context->n_places; place++)
        if (place != r->place && bl_place_is_asynchronous(r->context, place))
            return false;
    return true;
}

static bool has_all_gradients(const belay_reducer *r, const belay_optimizer *o)
{
    for (int64_t i = 0; i < r->n; i++) {
        const bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
        if (leaf == NULL || belay_tensor_is_nil(leaf->grad))
            return false;
    }
    for (int64_t i = 0; i < o->n; i++) {
        const bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
        if (leaf == NULL || (leaf->room == NULL && !belay_tensor_is_nil(leaf->grad)))
            return false;
    }
    return true;
}

/* There is none, or one, which lies where the gradients do. */
static bool can_read_scale(const belay_reducer *r)
{
    belay_tensor state[2];
    int n = bl_scaler_states(r->context, state, BL_COUNT(state));
    const bl_slot *slot = n > 0 ? bl_slot_get(r->context, state[0]) : NULL;
    return n == 0 || (n == 1 && slot != NULL && slot->storage->place == r->place);
}

bool bl_later_may(const belay_reducer *r, const belay_optimizer *o)
{
    const belay_context *context = r->context;
    int64_t every = r->options.digest_every;
    bool is_steady = r->has_learned && r->n_rounds > 0 && !r->options.find_unused_parameters &&
                     !context->window_faulted && r->group->broken == BELAY_OK;
    return is_steady && bl_place_is_asynchronous(context, r->place) && !context->launch_blocking &&
           !(every > 0 && r->n_windows % (uint64_t)every == 0) && is_only_one(r) && has_all_gradients(r, o) &&
           can_read_scale(r);
}

/* ---- the worker ------------------------------------------------------------------------------------------------------ */

/* All that could close this rank's gate has ended. */
static void begin(void *state)
{
    bl_later *l = state;
    uint32_t gate = bl_gate_get(l->gate);
    bool is_lost = l->device->api->loss(l->device) != NULL;
    if (gate != 0 || is_lost) {
        l->mine->flags |= BL_FLAG_FAULT;
        l->mine->value = gate > BL_GATE_CLOSED ? (int64_t)gate : is_lost ? BELAY_MEM_ACCESS : BELAY_OK;
    }
    if (l->has_scale)
        l->mine->scale = bl_scaler_join(0, ((const double *)l->scale.host)[BL_SCALER_SCALE]);
}

/* This rank's window is lost, and the others average once more: the host has to take part in it. */
static bool has_to_follow(const bl_later *l) { return (l->all[l->group->place.rank].flags & BL_FLAG_FOLLOWS) != 0; }

/* Why the window is not applied; BELAY_OK: it is. */
static belay_code decide(const bl_later *l)
{
    bool fit = bl_group_settle_words(l->group, l->all) && (has_to_follow(l) || bl_same_are(l->group, l->all, l->value));
    return fit ? bl_same_code(l->all, l->group->place.size) : BELAY_COMM_MISMATCH;
}

static void end(void *state, bool failed)
{
    const bl_later *l = state;
    belay_code code = failed ? bl_group_failure(l->group) : decide(l);
    if (code != BELAY_OK)
        bl_gate_close(l->gate, code);
}

/* ---- the main thread ------------------------------------------------------------------------------------------------- */

static belay_code take_scale(belay_reducer *r)
{
    belay_tensor state;
    bl_work copied = {.n = BL_OPTIM_STATE};
    r->later.has_scale = bl_scaler_states(r->context, &state, 1) > 0;
    if (!r->later.has_scale)
        return BELAY_OK;
    bl_stage_filled(r->context, &r->later.scale);
    return bl_stage_out(r->context, &r->later.scale, state, &copied);
}

/* The way back of the buckets and the hold.  After a fault, which was told, the host waits instead. */
static belay_code put_holds(belay_reducer *r)
{
    TRY(bl_buckets_bring_back(r));
    return bl_stage_hold(r->context, &r->later.words, &r->later.work);
}

void bl_later_post(belay_reducer *r, const bl_word *word)
{
    bl_later *l = &r->later;
    *l->mine = *word;
    l->gate = bl_window_gate(r->context);
    l->work = (bl_work){.begin = begin, .end = end, .state_of = l, .site = r->context->site};
    bl_group_exchange_work(l->mine, l->all, &l->work);
    belay_code code = take_scale(r);
    bl_stage_behind(r->context, r->place, &l->work);
    code = code != BELAY_OK ? code : put_holds(r);
    if (code != BELAY_OK) /* before the others are told */
        bl_window_fault(r->context, r->context->window, code);
    bl_group_post(r->group, &l->work);
    l->is_on = true;
    r->group->later = r;
    if (code == BELAY_OK) /* without memory the host waits for the line itself, which waits for that work */
        code = bl_stage_join(r->context, &r->line);
    if (code == BELAY_OK) {
        bl_buckets_release(r);
    } else {
        (void)bl_later_settle(r);
        (void)bl_buckets_settle(r);
    }
}

/* Takes part in what the others average, then says its word again; the window is lost already. */
static bool follow(belay_reducer *r)
{
    const bl_later *l = &r->later;
    int64_t n_rounds = r->n_rounds;
    uintptr_t walk_site = r->walk_site;
    bool goes_on = bl_rounds_follow(r->group, l->all) && bl_group_exchange(r->group, l->mine) == BELAY_OK;
    if (goes_on && !bl_same_are(r->group, r->group->all, l->value))
        bl_group_look(r->group);
    r->verdict = bl_same_verdict(r->group->all, r->group->place.size);
    r->n_rounds = n_rounds;
    r->walk_site = walk_site;
    return bl_buckets_settle(r) && r->group->broken == BELAY_OK;
}

/* First what its words do not wait for. */
void bl_later_await(void *state)
{
    belay_reducer *r = state;
    for (int64_t k = 0; k < r->plan.n_buckets; k++) {
        bl_bucket *b = &r->bucket[k];
        bool is_held_for = b->is_awaited || (b->state == BL_BUCKET_IN_FLIGHT && !b->stage.is_out);
        if (!is_held_for || bl_work_is_over(&b->work))
            continue;
        bl_stage_reach(r->context, &b->work);
        bl_group_await(r->group, &b->work);
    }
    if (r->later.is_on && !bl_work_is_over(&r->later.work)) {
        bl_stage_reach(r->context, &r->later.work);
        bl_group_await(r->group, &r->later.work);
    }
}

bool bl_later_settle(belay_reducer *r)
{
    bl_later *l = &r->later;
    if (!l->is_on)
        return r->group->broken == BELAY_OK;
    l->is_on = false;
    r->group->later = NULL;
    bl_phase was = bl_group_phase(r->group, BL_PHASE_AGREE);
    bl_stage_reach(r->context, &l->work);
    bool is_over = bl_group_wait(r->group, &l->work);
    bl_group_phase(r->group, was);
    bl_group_look(r->group); /* words that do not fit together */
    if (!is_over || r->group->broken != BELAY_OK)
        return false;
    r->verdict = bl_same_verdict(l->all, r->group->place.size);
    return !has_to_follow(l) || follow(r);
}
