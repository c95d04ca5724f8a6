/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a window.  Each rank says in one word what became of its part; all hear all words, and the same follows on
 * each: whether the window is applied is decided by none of them alone.
 *
 *   a fault on any rank          the gate closes on all
 *   a device that is lost        the rank gives the group up
 *   a rank without a backward    it has joined the reductions with zeros
 *   other numbers of reductions  a rank that faulted takes part with zeros (rounds.c); else comm.mismatch
 *   other scale, step, weights   comm.mismatch, with the rank that differs
 *
 * Words go before anybody waits for buckets, so that a rank that will never launch one is known first. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "dist/calls.h"
#include "dist/parts.h"
#include "dist/same.h"
#include "dist/words.h"
#include "tensor/window.h"

/* ---- what this rank says --------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static uint64_t digest_bytes(uint64_t hash, const unsigned char *bytes, int64_t n)
{
    uint64_t word;
    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    word = (uint64_t)n;
    memcpy(&word, bytes, (size_t)n);
    return mix(hash, word);
}

/* Of the bits of all parameters; 0 when they cannot be read, which was told. */
static uint64_t digest_of(const belay_reducer *r)
{
    uint64_t hash = 1;
    for (int64_t i = 0; i < r->n; i++) {
        const bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
        int64_t n_bytes = leaf != NULL ? bl_slot_elements(leaf) * belay_dtype_size((belay_dtype)leaf->dtype) : 0;
        unsigned char *bytes = bl_alloc(n_bytes > 0 ? n_bytes : 1, 1);
        bool is_read = bytes != NULL && leaf != NULL && bl_place_read(r->context, leaf, 0, bytes, n_bytes) == BELAY_OK;
        if (bytes == NULL)
            bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory to compare %" PRId64 " bytes of weights",
                             n_bytes);
        if (is_read)
            hash = digest_bytes(hash, bytes, n_bytes);
        bl_free(bytes);
        if (!is_read)
            return 0;
    }
    return hash | 1;
}

static bool is_scaled(const belay_reducer *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        const bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
        if (leaf != NULL && !belay_tensor_is_nil(leaf->grad) && (leaf->grad_scale.marks & BL_GRAD_SCALED) != 0)
            return true;
    }
    return false;
}

/* But for what the device has to tell. */
static bl_word word_of(const belay_reducer *r, uint32_t flags, const double figure[3])
{
    belay_context *context = r->context;
    bl_word word = bl_group_word(r->group, BL_CALL_STEP);
    bool is_closed = context->window_faulted || bl_gate_get(bl_window_gate(context)) != 0;
    word.flags = flags | (is_closed ? BL_FLAG_FAULT : 0) | (is_scaled(r) ? BL_FLAG_SCALED : 0);
    word.step += r->n_dropped;
    word.value = is_closed ? context->window_code : BELAY_OK;
    word.n_batch = context->n_batch;
    if (figure != NULL)
        memcpy(word.figure, figure, sizeof word.figure);
    return word;
}

/* ---- whether the words fit together ---------------------------------------------------------------------------------- */

static bool fit_together(belay_reducer *r)
{
    if (bl_same_are(r->group, r->group->all, r->later.value))
        return true;
    bl_group_look(r->group);
    return false;
}

/* ---- what follows ---------------------------------------------------------------------------------------------------- */

static bool all_are(const belay_reducer *r, uint32_t flag)
{
    for (int q = 0; q < belay_group_size(r->group); q++)
        if ((r->group->all[q].flags & flag) == 0)
            return false;
    return true;
}

/* Which parameters had a gradient on any rank; what every rank had a backward for is all of them. */
static bool find_used(belay_reducer *r, bool anybody_walked)
{
    for (int64_t i = 0; i < r->n; i++) {
        const bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
        r->used[i] = leaf != NULL && !belay_tensor_is_nil(leaf->grad);
        if (!r->options.find_unused_parameters)
            r->used[i] = anybody_walked;
    }
    if (!r->options.find_unused_parameters || r->n == 0)
        return true;
    return bl_group_host_all_reduce(r->group, r->used, r->n, BELAY_U8, BELAY_GROUP_MAX, "which parameters were used") ==
           BELAY_OK;
}

/* A parameter that others used and this rank did not takes what they made of it. */
static void adopt(belay_reducer *r, bool scaled)
{
    for (int64_t i = 0; i < r->n; i++) {
        bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
        if (r->used[i] == 0 || leaf == NULL || !belay_tensor_is_nil(leaf->grad))
            continue;
        leaf->grad = bl_tensor_hold(r->context, r->parameter[i].room.view);
        leaf->grad_scale = bl_scaler_mark(r->context, scaled);
    }
}

/* Each of the numbers below n once; `used` is room for n. */
static bool is_order(const int64_t *order, int64_t n, uint8_t *used)
{
    memset(used, 0, (size_t)n);
    for (int64_t k = 0; k < n; k++) {
        if (order[k] < 0 || order[k] >= n || used[order[k]] != 0)
            return false;
        used[order[k]] = 1;
    }
    return true;
}

static belay_code refuse_order(const belay_reducer *r)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_COMM_FAILED);
    snprintf(f.what, sizeof f.what,
             "the order of gradients that came from rank 0 is none of %" PRId64 " parameters: it was damaged", r->n);
    bl_group_break(r->group, &f, NULL, 0);
    bl_group_look(r->group);
    return r->group->broken;
}

/* All ranks propose the order in which gradients came; the lowest rank's is taken. */
static belay_code learn_order(belay_reducer *r)
{
    int64_t *order = bl_alloc(r->n > 0 ? r->n : 1, sizeof *order);
    if (order == NULL) {
        belay_group_abort(r->group, "no memory for an order of buckets");
        return bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory for an order of %" PRId64 " gradients",
                                r->n);
    }
    memcpy(order, r->order, (size_t)r->n * sizeof *order);
    belay_code code =
        bl_group_host_broadcast(r->group, order, r->n * (int64_t)sizeof *order, 0, "the order of gradients");
    if (code == BELAY_OK && !is_order(order, r->n, r->used))
        code = refuse_order(r);
    if (code == BELAY_OK) {
        r->next_order = order;
        r->has_learned = true;
    } else
        bl_free(order);
    return code;
}

static void close_gate(const belay_reducer *r)
{
    if (!r->context->window_faulted)
        bl_window_fault(r->context, r->context->window, bl_same_code(r->group->all, belay_group_size(r->group)));
}

/* It has a gradient, in no bucket. */
static bool lies_outside(const belay_optimizer *o, int64_t i)
{
    const bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
    return leaf != NULL && leaf->room == NULL && !belay_tensor_is_nil(leaf->grad);
}

/* Gradients that lie in no bucket are not the same on all ranks: when those of any overflowed, all ranks' do. */
static belay_tensor first_outside(const belay_optimizer *o)
{
    for (int64_t i = 0; i < o->n; i++)
        if (lies_outside(o, i))
            return bl_slot_get(o->context, o->parameter[i].leaf)->grad;
    return (belay_tensor){0};
}

static bool overflows_outside(const belay_optimizer *o)
{
    bool is_finite = true;
    for (int64_t i = 0; i < o->n; i++) {
        const bl_optim_parameter *p = &o->parameter[i];
        const bl_slot *leaf = bl_slot_get(o->context, p->leaf), *sums = bl_slot_get(o->context, p->partial);
        if (sums == NULL || !lies_outside(o, i))
            continue;
        belay_shape flat = belay_shape1(bl_slot_elements(leaf));
        int64_t n = bl_slot_elements(sums);
        double *sum = bl_alloc(n > 0 ? n : 1, sizeof *sum);
        bl_call call = {.context = o->context, .op = BL_OP_optim_squares, .n_in = 2};
        call.in[0] = bl_launch_reshape(o->context, leaf->grad, &flat);
        call.in[1] = p->partial;
        bool is_read = sum != NULL && bl_launch_run(&call) && bl_place_settle(o->context, NULL) == BELAY_OK &&
                       bl_place_read(o->context, sums, 0, sum, n * (int64_t)sizeof *sum) == BELAY_OK;
        for (int64_t k = 0; k < n && is_read; k++)
            is_finite = is_finite && isfinite(sum[k]);
        bl_free(sum);
    }
    return !is_finite;
}

static void overflow_outside(const belay_optimizer *o)
{
    belay_tensor grad = first_outside(o);
    if (belay_tensor_is_nil(grad))
        return;
    bl_call call = {.context = o->context, .op = BL_OP_fill, .dtype = belay_tensor_dtype(grad), .into = grad};
    call.shape = belay_tensor_shape(grad);
    call.params.f[0] = INFINITY;
    (void)bl_launch_run(&call);
}

/* ---- what no reducer averages ---------------------------------------------------------------------------------------- */

static void name_outside(const belay_optimizer *o, int64_t n, bl_text *out)
{
    int64_t n_told = 0;
    bool goes_on = true;
    for (int64_t i = 0; i < o->n && goes_on; i++) {
        char number[32];
        const char *name = belay_tensor_name(o->parameter[i].leaf);
        snprintf(number, sizeof number, "number %" PRId64, i);
        if (lies_outside(o, i))
            goes_on = bl_words_name(out, n_told++, n, name[0] != '\0' ? name : number);
    }
}

/* Each rank steps these by gradients of its own. */
static void warn_of_outside(belay_reducer *r, const belay_optimizer *o)
{
    int64_t n = 0;
    if (r->told_outside || belay_group_size(r->group) == 1 || r->context->window_faulted)
        return;
    for (int64_t i = 0; i < o->n; i++)
        n += lies_outside(o, i);
    if (n == 0)
        return;
    r->told_outside = true;
    bl_error error;
    bl_text names = {0};
    name_outside(o, n, &names);
    bl_error_set(&error, BELAY_COMM_OUTSIDE,
                 "%" PRId64 " of %" PRId64 " parameters of an optimizer lie%s in no reducer: "
                 "each rank steps %s by its own gradients",
                 n, o->n, n == 1 ? "s" : "", n == 1 ? "it" : "them");
    bl_error_fact(&error, "%s: %.200s", n == 1 ? "it is" : "they are", bl_text_get(&names));
    bl_text_fini(&names);
    bl_context_raise_error(r->context, &error);
}

/* ---- the agreement --------------------------------------------------------------------------------------------------- */

static belay_code finish(belay_reducer *r, bl_verdict *v)
{
    *v = bl_same_verdict(r->group->all, belay_group_size(r->group));
    bl_group_phase(r->group, BL_PHASE_REDUCE);
    bool anybody_walked = !all_are(r, BL_FLAG_ABSENT), is_scaled = (v->flags & BL_FLAG_SCALED) != 0;
    if (!bl_buckets_settle(r))
        return r->group->broken;
    if ((v->flags & BL_FLAG_FAULT) != 0) {
        close_gate(r);
        return BELAY_OK;
    }
    if (!find_used(r, anybody_walked))
        return r->group->broken;
    adopt(r, is_scaled);
    if (!r->has_learned && (v->flags & BL_FLAG_ABSENT) == 0)
        return learn_order(r);
    return BELAY_OK;
}

static belay_code agree(belay_reducer *r, uint32_t flags, const double figure[3], bl_verdict *v)
{
    if (r->group->broken != BELAY_OK)
        return r->group->broken;
    (void)bl_place_settle(r->context, NULL); /* what the device met in this window is to be told to the others */
    if (r->context->places[r->place].loss_is_told && bl_group_give_up_by_fault(r->group))
        return r->group->broken; /* or all would drop windows from now on */
    if (r->n_rounds == 0) {
        flags |= BL_FLAG_ABSENT;
        bl_reducer_run_round(r);
    }
    bl_group_phase(r->group, BL_PHASE_AGREE);
    int64_t every = r->options.digest_every;
    uint64_t digest =
        every > 0 && r->n_windows % (uint64_t)every == 0 ? digest_of(r) : 0; /* a fault in it is told, too */
    bl_word word = word_of(r, flags, figure);
    word.scale = bl_scaler_bits(r->context);
    word.digest = digest;
    belay_code code = bl_group_exchange(r->group, &word);
    if (code != BELAY_OK)
        return code;
    return fit_together(r) ? finish(r, v) : r->group->broken;
}

/* A group that is broken applies nothing. */
static belay_code wait_for_agreement(belay_reducer *r, uint32_t flags, const double figure[3])
{
    bl_phase was = bl_group_phase(r->group, BL_PHASE_AGREE);
    belay_scope scope = belay_scope_open(r->context);
    belay_code code = agree(r, flags, figure, &r->verdict);
    belay_scope_close(scope);
    if (code != BELAY_OK) {
        (void)bl_buckets_settle(r);
        bl_window_fault(r->context, r->context->window, code);
    }
    bl_group_phase(r->group, was);
    return code;
}

/* Where a device can wait for the ranks, the host goes on to the optimizer's step; none: it waits. */
static belay_code end_window(belay_reducer *r, const belay_optimizer *o, uint32_t flags, const double figure[3])
{
    belay_code code = BELAY_OK;
    if (r->is_agreed)
        return BELAY_OK;
    if (r->group->later != NULL) /* of another reducer, or where no backward has come since */
        (void)bl_later_settle(r->group->later);
    r->verdict = (bl_verdict){.first_faulted = -1};
    if (o != NULL && flags == 0 && bl_later_may(r, o)) {
        bl_word word = word_of(r, 0, NULL);
        bl_later_post(r, &word);
    } else {
        code = wait_for_agreement(r, flags, figure);
    }
    r->is_agreed = true;
    r->n_rounds = 0;
    r->n_windows++;
    return code;
}

belay_code bl_reducer_agree(belay_reducer *r, uint32_t flags, const double figure[3], bl_verdict *verdict)
{
    belay_code code = end_window(r, NULL, flags, figure);
    if (!bl_later_settle(r) && code == BELAY_OK) /* it was ended before, by a step's gradients that were used early */
        code = r->group->broken;
    *verdict = r->verdict;
    return code;
}

static bool has_any(const belay_reducer *r, const belay_optimizer *o)
{
    for (int64_t i = 0; i < o->n; i++) {
        const bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
        if (leaf != NULL && leaf->room != NULL && leaf->room->owner == r)
            return true;
    }
    return false;
}

static void settle(belay_reducer *r, belay_optimizer *o)
{
    if (!has_any(r, o) || r->is_agreed)
        return;
    bool overflows = overflows_outside(o);
    if (end_window(r, o, overflows ? BL_FLAG_OVERFLOW : 0, NULL) == BELAY_OK && !overflows &&
        (r->verdict.flags & BL_FLAG_OVERFLOW) != 0)
        overflow_outside(o);
}

void bl_agree_settle(void *state, belay_optimizer *o) { settle(state, o); }

void bl_agree_hook(void *state, belay_optimizer *o)
{
    belay_reducer *r = state;
    settle(r, o);
    if (!has_any(r, o))
        return;
    warn_of_outside(r, o);
    r->is_agreed = false;
}

void bl_agree_drop(void *state, belay_optimizer *o)
{
    belay_reducer *r = state;
    if (!has_any(r, o))
        return;
    if (!r->is_agreed) {
        (void)end_window(r, NULL, BL_FLAG_FAULT, NULL);
        r->n_dropped++;
    }
    r->is_agreed = false;
}

/* The others were told that this rank applies the window, and apply it: its weights are not theirs any more. */
void bl_agree_spoil(void *state, belay_optimizer *o)
{
    const belay_reducer *r = state;
    bool was_lost = (r->verdict.flags & BL_FLAG_FAULT) != 0;
    if (has_any(r, o) && !was_lost && belay_group_size(r->group) > 1)
        (void)bl_group_give_up_by_fault(r->group);
}
