/* SPDX-License-Identifier: Apache-2.0 */
/* Follows walks back.  Before a walk the tape says after which node nothing more arrives at a leaf; once the walk has
 * passed that node, the leaf's part of its bucket is whole.  So a parameter that several ops use is whole once, and one
 * that no op uses is known before the walk has begun: its part is zeros, and its bucket need not wait. */
#include <inttypes.h>
#include <stdio.h>

#include "base/memory.h"
#include "dist/parts.h"
#include "dist/words.h"

static const char *name_of(const belay_reducer *r, int64_t i)
{
    return belay_module_parameter_name(r->module, r->parameter[i].room.number);
}

/* ---- rounds ---------------------------------------------------------------------------------------------------------- */

/* Another order is taken over between rounds, when nothing is in flight; all ranks come here at the same round. */
static void take_order(belay_reducer *r)
{
    if (r->next_order == NULL)
        return;
    if (!bl_buckets_make(r, r->next_order)) /* the others have it: they must not go on without this rank */
        belay_group_abort(r->group, "its buckets could not be made in the order that was learned");
    bl_free(r->next_order);
    r->next_order = NULL;
}

static void begin_round(belay_reducer *r)
{
    take_order(r);
    for (int64_t b = 0; b < r->plan.n_buckets; b++)
        r->bucket[b].pending = r->plan.bucket[b].n_parameters;
    for (int64_t i = 0; i < r->n; i++)
        r->parameter[i].is_whole = false;
    r->next = 0;
    r->n_rounds++;
    r->n_reduced++;
}

/* Those whose turn it is. */
static void launch_ready(belay_reducer *r)
{
    while (r->next < r->plan.n_buckets && r->bucket[r->next].state == BL_BUCKET_SEALED)
        bl_bucket_launch(r, &r->bucket[r->next++]);
}

static void end_round(belay_reducer *r)
{
    for (int64_t i = 0; i < r->n; i++)
        bl_bucket_arrive(r, i);
    launch_ready(r);
}

/* What comes next waits for words: devices that go on at the host's calls only get to where the buckets may begin, since
 * others may wait for those. */
static void reach_buckets(const belay_reducer *r)
{
    for (int64_t k = 0; k < r->plan.n_buckets; k++)
        if (r->bucket[k].state == BL_BUCKET_IN_FLIGHT)
            bl_stage_reach(r->context, &r->bucket[k].work);
}

void bl_reducer_join_round(void *state)
{
    belay_reducer *r = state;
    if (r->is_walking) { /* in a function's backward, which on the others does not call what it calls here */
        belay_group_abort(r->group, "the others average again inside of the backward that it averages");
        return;
    }
    (void)bl_buckets_settle(r);
    r->walk_site = r->context->site;
    begin_round(r);
    end_round(r);
    reach_buckets(r);
}

/* Says to the others that it averages; buckets of the round before are over. */
static void announce(belay_reducer *r)
{
    (void)bl_buckets_settle(r);
    bl_round_begin(&r->round, r->walk_site);
}

void bl_reducer_run_round(belay_reducer *r)
{
    r->walk_site = r->context->site;
    announce(r);
    begin_round(r);
    end_round(r);
    reach_buckets(r);
}

/* ---- the walk -------------------------------------------------------------------------------------------------------- */

static void begin(void *state, uintptr_t site)
{
    belay_reducer *r = state;
    r->is_reached = false;
    r->walk_site = site;
}

static void reach(void *state, const bl_grad_room *room, int64_t at)
{
    belay_reducer *r = state;
    if (room->owner != r)
        return;
    for (int64_t i = 0; i < r->n && !r->is_reached; i++)
        r->parameter[i].last = -1;
    r->is_reached = true;
    r->parameter[bl_reduced_number(r, room)].last = at;
}

/* By `last`, the latest first; of one node, in the order that was.  Nearly sorted from the walk before. */
static void sort(belay_reducer *r)
{
    for (int64_t k = 1; k < r->n; k++) {
        int64_t i = r->order[k], at = k;
        for (; at > 0 && r->parameter[r->order[at - 1]].last < r->parameter[i].last; at--)
            r->order[at] = r->order[at - 1];
        r->order[at] = i;
    }
}

/* Nothing came or comes to it, in this backward or one before of the window. */
static bool is_unused(const belay_reducer *r, int64_t i)
{
    const bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
    return r->parameter[i].last < 0 && (leaf == NULL || belay_tensor_is_nil(leaf->grad));
}

static void name_unused(const belay_reducer *r, int64_t n, bl_text *out)
{
    int64_t n_told = 0;
    bool goes_on = true;
    for (int64_t i = 0; i < r->n && goes_on; i++)
        if (is_unused(r, i))
            goes_on = bl_words_name(out, n_told++, n, name_of(r, i));
}

static void refuse_unused(const belay_reducer *r)
{
    bl_error error;
    bl_text names = {0};
    int64_t n = 0, n_frozen = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
        n += is_unused(r, i);
        n_frozen += is_unused(r, i) && leaf != NULL && !leaf->requires_grad;
    }
    if (n == 0)
        return;
    name_unused(r, n, &names);
    bl_error_set(&error, BELAY_COMM_UNUSED,
                 "%" PRId64 " of %" PRId64 " parameters took no part in a loss that was walked back", n, r->n);
    bl_error_fact(&error, "they are: %.200s", bl_text_get(&names));
    if (n_frozen > 0)
        bl_error_fact(&error, "%" PRId64 " of them want no gradient any more: make the reducer anew", n_frozen);
    bl_error_fact(&error, "their gradients went to the other ranks as zeros");
    bl_text_fini(&names);
    bl_context_raise_error(r->context, &error);
}

/* Its gradient would stay on this rank, and the weights would drift apart. */
static void refuse_unfrozen(const belay_reducer *r)
{
    for (int64_t i = 0; i < r->n_frozen; i++) {
        const bl_slot *leaf = bl_slot_get(r->context, r->frozen[i].leaf);
        if (leaf == NULL || !leaf->requires_grad || leaf->room != NULL)
            continue;
        bl_error error;
        bl_error_set(&error, BELAY_CONF_ORDER,
                     "parameter %.100s wants a gradient, and did not when its reducer was made",
                     belay_module_parameter_name(r->module, r->frozen[i].number));
        bl_error_fact(&error, "it lies in no bucket: nobody averages what it gets");
        bl_error_advise(&error, "Free the reducer and make it anew, on all ranks.");
        bl_context_raise_error(r->context, &error);
        return;
    }
}

static void start(void *state)
{
    belay_reducer *r = state;
    if (!r->is_reached)
        return;
    (void)bl_later_settle(r); /* the host is at most one window ahead of the ranks */
    if (!r->syncs || r->group->broken != BELAY_OK)
        return;
    bl_group_phase(r->group, BL_PHASE_BACKWARD);
    refuse_unfrozen(r);
    announce(r);
    begin_round(r);
    sort(r);
    r->is_walking = true;
    r->at = 0;
    bool is_whole = r->n == 0 || r->parameter[r->order[r->n - 1]].last >= 0;
    if (!is_whole && !r->options.find_unused_parameters)
        refuse_unused(r);
    for (int64_t k = r->n - 1; k >= 0 && r->parameter[r->order[k]].last < 0; k--)
        bl_bucket_arrive(r, r->order[k]);
    if (!r->options.no_overlap)
        launch_ready(r);
}

static void pass(void *state, int64_t at)
{
    belay_reducer *r = state;
    if (!r->is_walking)
        return;
    int64_t was = r->at;
    for (; r->at < r->n && r->parameter[r->order[r->at]].last >= at; r->at++)
        bl_bucket_arrive(r, r->order[r->at]);
    if (r->at > was && !r->options.no_overlap)
        launch_ready(r);
}

static void end(void *state)
{
    belay_reducer *r = state;
    if (!r->is_walking)
        return;
    end_round(r);
    r->is_walking = false;
    bl_group_phase(r->group, BL_PHASE_OUTSIDE);
}

void bl_reducer_follow(belay_reducer *r)
{
    r->watch = (bl_grad_watch){.begin = begin, .reach = reach, .start = start, .pass = pass, .end = end, .state = r};
    r->hook = (bl_commit_hook){.at = {[BL_COMMIT_RUN] = bl_agree_hook,
                                      [BL_COMMIT_DROP] = bl_agree_drop,
                                      [BL_COMMIT_SETTLE] = bl_agree_settle,
                                      [BL_COMMIT_SPOIL] = bl_agree_spoil},
                               .state = r};
    bl_grad_watch_add(r->context, &r->watch);
    bl_optim_hook_add(r->context, &r->hook);
}

void bl_reducer_unfollow(belay_reducer *r)
{
    bl_grad_watch_remove(r->context, &r->watch);
    bl_optim_hook_remove(r->context, &r->hook);
}
