/* SPDX-License-Identifier: Apache-2.0 */
/* Reducers: made, freed, asked. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "dist/calls.h"
#include "dist/parts.h"
#include "dist/words.h"
#include "nn/module.h"

#ifdef BELAY_SMALL
enum { FIRST_BYTES = 12, BYTES = 12 };
#else
enum { FIRST_BYTES = 1 << 20, BYTES = 25 << 20 };
#endif
enum { DIGEST_EVERY = 100 };

static belay_reducer nil_reducer;

bool belay_reducer_is_nil(const belay_reducer *r) { return r == NULL || r->context == NULL || r->is_freed; }

belay_group *bl_reducer_group(const belay_reducer *r) { return r->group; }
const belay_module *bl_reducer_module(const belay_reducer *r) { return r->module; }

/* At the beginning of a public call. */
static inline bool ask(const belay_reducer *r, uintptr_t site)
{
    if (r == NULL || !bl_ask_call(r->context, site))
        return false;
    if (BL_UNLIKELY(r->is_freed))
        bl_optim_tell_stale(r->context, "a reducer", site);
    return !r->is_freed;
}
#define ASK(reducer) ask((reducer), (uintptr_t)__builtin_return_address(0))

/* ---- making ---------------------------------------------------------------------------------------------------------- */

static bool check_bytes(belay_context *context, const char *name, int64_t value)
{
    if (value > 0)
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE, "%s of a reducer is %" PRId64 ", it must be at least 1", name, value);
    return false;
}

static bool set_options(belay_reducer *r, const belay_ddp_options *given)
{
    belay_ddp_options *o = &r->options;
    *o = given != NULL ? *given : (belay_ddp_options){0};
    o->first_bucket_bytes = o->first_bucket_bytes != 0 ? o->first_bucket_bytes : FIRST_BYTES;
    o->bucket_bytes = o->bucket_bytes != 0 ? o->bucket_bytes : BYTES;
    o->digest_every = o->digest_every != 0 ? o->digest_every : DIGEST_EVERY;
    return check_bytes(r->context, "first_bucket_bytes", o->first_bucket_bytes) &&
           check_bytes(r->context, "bucket_bytes", o->bucket_bytes);
}

static bool refuse_taken(const belay_reducer *r, int64_t i)
{
    bl_error error;
    bl_error_set(&error, BELAY_CONF_ORDER, "parameter %.100s already has a reducer",
                 belay_module_parameter_name(r->module, i));
    bl_error_advise(&error, "Free the other reducer first, or make one over a module that holds both parts.");
    bl_context_raise_error(r->context, &error);
    return false;
}

static bool refuse_place(const belay_reducer *r, int64_t i, const bl_slot *slot)
{
    bl_error error;
    bl_error_set(&error, BELAY_PLACE_DEVICE, "parameter %.100s lies on %s, those before it on %s",
                 belay_module_parameter_name(r->module, i), bl_slot_device(r->context, slot)->name,
                 r->context->places[r->place].device->name);
    bl_error_advise(&error, "A reducer's module lies on one device: move it by belay_module_to.");
    bl_context_raise_error(r->context, &error);
    return false;
}

/* A parameter under two names counts once. */
static bool is_listed(const belay_reducer *r, belay_tensor leaf)
{
    for (int64_t i = 0; i < r->n; i++)
        if (r->parameter[i].leaf.slot == leaf.slot)
            return true;
    return false;
}

static bool take_parameter(belay_reducer *r, int64_t number)
{
    belay_tensor leaf = belay_module_parameter(r->module, number);
    const bl_slot *slot = bl_slot_get(r->context, leaf);
    if (slot == NULL || is_listed(r, leaf))
        return true;
    if (!slot->requires_grad) {
        r->frozen[r->n_frozen++] = (bl_frozen){leaf, number};
        return true;
    }
    if (slot->room != NULL)
        return refuse_taken(r, number);
    if (slot->storage->place != r->place)
        return refuse_place(r, number, slot);
    r->sizes[r->n] = (bl_plan_parameter){bl_slot_elements(slot), (belay_dtype)slot->dtype};
    r->parameter[r->n] =
        (bl_reduced){.leaf = leaf, .last = -1, .room = {.enter = bl_bucket_enter, .owner = r, .number = number}};
    r->n++;
    return true;
}

static bool take_parameters(belay_reducer *r)
{
    int64_t n = belay_module_n_parameters(r->module), room = n > 0 ? n : 1;
    r->parameter = bl_alloc(room, sizeof *r->parameter);
    r->frozen = bl_alloc(room, sizeof *r->frozen);
    r->sizes = bl_alloc(room, sizeof *r->sizes);
    r->order = bl_alloc(room, sizeof *r->order);
    r->used = bl_alloc(room, sizeof *r->used);
    if (r->parameter == NULL || r->frozen == NULL || r->sizes == NULL || r->order == NULL || r->used == NULL) {
        bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory for a reducer of %" PRId64 " parameters", n);
        return false;
    }
    for (int64_t i = 0; i < n; i++)
        if (!take_parameter(r, i))
            return false;
    for (int64_t i = 0; i < r->n; i++) /* backward meets the last first, as a guess */
        r->order[i] = r->n - 1 - i;
    return true;
}

/* ---- one start for all ----------------------------------------------------------------------------------------------- */

/* Rank 0's values of a tensor, on all. */
static bool share(const belay_reducer *r, belay_tensor tensor, const char *name)
{
    const bl_slot *slot = bl_slot_get(r->context, tensor);
    int64_t n_bytes = slot != NULL ? bl_slot_elements(slot) * belay_dtype_size((belay_dtype)slot->dtype) : 0;
    void *host = bl_alloc(n_bytes > 0 ? n_bytes : 1, 1);
    bool is_done = host != NULL && slot != NULL && belay_tensor_read(tensor, host, n_bytes) == BELAY_OK &&
                   bl_group_host_broadcast(r->group, host, n_bytes, 0, name) == BELAY_OK &&
                   (belay_group_rank(r->group) == 0 || belay_tensor_write(tensor, host, n_bytes) == BELAY_OK);
    if (host == NULL)
        bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory to hand %.100s to all ranks", name);
    bl_free(host);
    if (!is_done) /* the others wait for this rank's part in it; a group that is broken knows already */
        belay_group_abort(r->group, "a tensor could not be handed to all ranks");
    return is_done;
}

static bool share_buffers(const belay_reducer *r)
{
    bool is_done = true;
    for (int64_t i = 0; i < belay_module_n_buffers(r->module) && is_done; i++)
        is_done = share(r, belay_module_buffer(r->module, i), belay_module_buffer_name(r->module, i));
    return is_done;
}

static bool share_all(const belay_reducer *r)
{
    bool is_done = true;
    for (int64_t i = 0; i < belay_module_n_parameters(r->module) && is_done; i++)
        is_done = share(r, belay_module_parameter(r->module, i), belay_module_parameter_name(r->module, i));
    return is_done && share_buffers(r);
}

/* ---- life ------------------------------------------------------------------------------------------------------------ */

static void reducer_fini(belay_reducer *r)
{
    bl_buckets_free(r);
    bl_round_close(&r->round);
    bl_later_close(r);
    bl_stage_line_close(r->context, &r->line);
    bl_free(r->parameter);
    bl_free(r->frozen);
    bl_free(r->sizes);
    bl_free(r->order);
    bl_free(r->next_order);
    bl_free(r->used);
}

static void shell_free(void *reducer) { bl_free(reducer); }

static void destroy(void *object)
{
    belay_reducer *r = object;
    (void)bl_later_settle(r);
    (void)bl_buckets_settle(r);
    bl_reducer_unfollow(r);
    bl_module_release(r->module);
    r->group->n_reducers--;
    reducer_fini(r);
    *r = (belay_reducer){.context = r->context, .is_freed = true};
    bl_context_bury(r->context, &r->grave, shell_free);
}

static void describe(const belay_reducer *r, char *out, size_t size)
{
    snprintf(out, size, "%.40s",
             r->n > 0 ? belay_module_parameter_name(r->module, r->parameter[0].room.number) : "nothing");
    if (r->n > 1)
        bl_words_add(out, size, " and %" PRId64 " other%s", r->n - 1, r->n == 2 ? "" : "s");
}

static bool open_round(belay_reducer *r)
{
    r->round = (bl_round){.group = r->group, .join = bl_reducer_join_round, .await = bl_later_await, .state = r};
    describe(r, r->round.what, sizeof r->round.what);
    return bl_round_open(&r->round);
}

/* Of the first fault that was told since there were `n_faults`. */
static belay_code code_since(const belay_context *context, int64_t n_faults)
{
    belay_fault fault;
    return belay_fault_get(context, n_faults, &fault) ? fault.code : context->first_code;
}

/* What all ranks refuse alike leaves the group whole; what some do is comm.mismatch on all. */
static bool prepare(belay_reducer *r, const belay_ddp_options *options)
{
    int64_t n_faults = r->context->n_faults;
    if (!set_options(r, options) || !take_parameters(r) || !bl_stage_line_open(r->context, r->place, &r->line) ||
        !bl_later_open(r) || !bl_buckets_make(r, r->order) || !open_round(r)) {
        (void)bl_group_refuse(r->group, BL_CALL_MANIFEST, code_since(r->context, n_faults));
        return false;
    }
    return bl_manifest_agree(r);
}

/* One that was not made has no number: those to come have the same on all ranks, whatever each had no memory for. */
static bool begin(belay_reducer *r, const belay_ddp_options *options)
{
    int64_t n_opened = r->group->n_rounds_opened;
    if (prepare(r, options))
        return share_all(r);
    r->group->n_rounds_opened = n_opened;
    return false;
}

static bool adopt(belay_reducer *r)
{
    if (bl_context_adopt(r->context, r, destroy))
        return true;
    bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory for a reducer");
    belay_group_abort(r->group, "no memory for a reducer");
    return false;
}

/* Why there is no module was told when it was made or freed; the others wait for this rank nonetheless. */
static belay_reducer *refuse_module(belay_group *group)
{
    if (!bl_group_use(group))
        return &nil_reducer;
    belay_context *context = group->context;
    if (context->n_faults == 0)
        bl_context_raise(context, BELAY_CONF_MISSING, "a reducer needs a module, and was given NULL");
    (void)bl_group_refuse(group, BL_CALL_MANIFEST, context->first_code);
    return &nil_reducer;
}

belay_reducer *belay_ddp(belay_module *module, belay_group *group, const belay_ddp_options *options)
{
    belay_context *home = bl_module_context(module);
    BL_ENTER(home != NULL || group == NULL ? home : group->context);
    belay_context *context = bl_module_use(module);
    if (context == NULL)
        return refuse_module(group);
    if (group == NULL) {
        if (context->n_faults == 0) /* else why there is none was told */
            bl_context_raise(context, BELAY_CONF_MISSING, "a reducer needs a group, and was given NULL");
        return &nil_reducer;
    }
    if (!bl_group_use(group))
        return &nil_reducer;
    if (group->context != context) {
        bl_context_raise(context, BELAY_LIFE_FOREIGN, "a module belongs to another context than its group");
        (void)bl_group_refuse(group, BL_CALL_MANIFEST, BELAY_LIFE_FOREIGN);
        return &nil_reducer;
    }
    belay_reducer *r = bl_alloc(1, sizeof *r);
    if (r == NULL) {
        (void)bl_group_refuse(group, BL_CALL_MANIFEST,
                              bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for a reducer"));
        return &nil_reducer;
    }
    *r = (belay_reducer){
        .context = context, .group = group, .module = module, .syncs = true, .place = bl_module_place(module)};
    r->line.stream = BL_STREAM_NONE;
    if (!begin(r, options) || !adopt(r)) {
        reducer_fini(r);
        bl_free(r);
        return &nil_reducer;
    }
    bl_module_hold(module);
    group->n_reducers++;
    bl_reducer_follow(r);
    return r;
}

void belay_reducer_free(belay_reducer *r)
{
    if (!ASK(r))
        return;
    BL_ENTER(r->context);
    if (r->is_walking) {
        bl_context_raise(r->context, BELAY_CONF_ORDER, "a reducer was freed inside of a backward that it averages");
        return;
    }
    bl_context_forget(r->context, r);
    destroy(r);
}

/* ---- using ----------------------------------------------------------------------------------------------------------- */

belay_tensor belay_ddp_forward(belay_reducer *r, belay_tensor x)
{
    if (!ASK(r))
        return (belay_tensor){0};
    BL_ENTER(r->context);
    if (r->options.broadcast_buffers && !share_buffers(r))
        return (belay_tensor){0};
    return belay_forward(r->module, x);
}

bool belay_ddp_sync_set(belay_reducer *r, bool syncs)
{
    if (!ASK(r))
        return false;
    bool was = r->syncs;
    r->syncs = syncs;
    return was;
}

int64_t belay_reducer_n_buckets(const belay_reducer *r) { return ASK(r) ? r->plan.n_buckets : 0; }
int64_t belay_reducer_n_reduced(const belay_reducer *r) { return ASK(r) ? r->n_reduced : 0; }

int64_t belay_reducer_bucket_of(const belay_reducer *r, int64_t parameter)
{
    for (int64_t i = 0; ASK(r) && i < r->n; i++)
        if (r->parameter[i].room.number == parameter)
            return r->plan.place[i].bucket;
    return -1;
}
