/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets.  What may happen to one, and what it is refused for:
 *
 *   FILLING    gradients arrive, add up, are cleared
 *   SEALED     all parameters of it are whole: what arrives now came too late (life.bucket)
 *   IN_FLIGHT  the group's worker reads and writes it: whatever else touches it, or writes one of its parameters, is
 *              refused (life.bucket); questions for a gradient wait
 *   FILLING    again when the reduction has ended */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "dist/parts.h"
#include "tensor/window.h"

static const char *name_of(const belay_reducer *r, int64_t parameter)
{
    return belay_module_parameter_name(r->module, r->parameter[parameter].room.number);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static void wait(void *state) { (void)bl_buckets_settle(state); }

static bool make_one(belay_reducer *r, const bl_plan *plan, int64_t number, bl_bucket *b)
{
    belay_context *context = r->context;
    const bl_plan_bucket *size = &plan->bucket[number];
    belay_shape shape = belay_shape1(size->n_elements);
    *b = (bl_bucket){.number = number, .n_elements = size->n_elements, .dtype = size->dtype};
    snprintf(b->words, sizeof b->words, "bucket %" PRId64 " of %" PRId64, number, plan->n_buckets);
    belay_tensor flat = bl_tensor_new_on(context, r->place, size->dtype, &shape, b->words);
    bl_call zero = {.context = context, .op = BL_OP_fill, .dtype = size->dtype, .shape = shape, .into = flat};
    if (belay_tensor_is_nil(flat) || !bl_launch_run(&zero))
        return false;
    b->flat = bl_tensor_own(context, flat);
    if (!bl_stage_init(context, &r->line, size->n_elements * belay_dtype_size(size->dtype), &b->stage))
        return false;
    b->gradients = (bl_lease){.wait = wait, .state = r};
    b->parameters = (bl_lease){.may_read = true, .wait = wait, .state = r};
    snprintf(b->gradients.what, sizeof b->gradients.what, "%s", b->words);
    snprintf(b->parameters.what, sizeof b->parameters.what, "%s", b->words);
    return true;
}

/* The part of a bucket that a parameter's gradient lies in, named as gradients are. */
static belay_tensor view_of(const belay_reducer *r, const bl_plan *plan, const bl_bucket *bucket, int64_t i)
{
    belay_context *context = r->context;
    const bl_slot *leaf = bl_slot_get(context, r->parameter[i].leaf);
    belay_shape shape = bl_slot_shape(leaf);
    int64_t stride[BELAY_MAX_RANK] = {0}, n;
    char name[160];
    if (!bl_shape_strides(&shape, stride, &n))
        return (belay_tensor){0};
    belay_tensor view =
        bl_tensor_view(context, bucket[plan->place[i].bucket].flat, &shape, stride, plan->place[i].offset);
    if (belay_tensor_is_nil(view))
        return view;
    snprintf(name, sizeof name, "%.150s.grad", name_of(r, i));
    bl_slot_get(context, view)->name = bl_journal_text(context->journal, name);
    return bl_tensor_own(context, view);
}

static void free_buckets(belay_reducer *r, bl_bucket *bucket, int64_t n)
{
    for (int64_t i = 0; i < n && bucket != NULL; i++) {
        bl_lease_end(r->context, &bucket[i].gradients);
        bl_lease_end(r->context, &bucket[i].parameters);
        bl_lease_bind(r->context, bucket[i].flat, NULL); /* a held gradient may outlive the lease */
        if (bucket[i].work.state != BL_WORK_FAILED)      /* else the transport may still write there: it goes with its
                                                            context */
            bl_tensor_drop(r->context, bucket[i].flat);
        bl_stage_fini(r->context, &bucket[i].stage, r->group);
    }
    bl_free(bucket);
}

/* A gradient that is there goes on in the new view. */
static bool move_gradient(const belay_reducer *r, int64_t i, belay_tensor view)
{
    bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
    if (leaf == NULL || belay_tensor_is_nil(leaf->grad))
        return true;
    if (!bl_launch_move(r->context, view, leaf->grad))
        return false;
    bl_tensor_drop(r->context, leaf->grad);
    leaf->grad = bl_tensor_hold(r->context, view);
    return true;
}

static void adopt(belay_reducer *r, int64_t i, belay_tensor view, bl_bucket *bucket)
{
    bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
    bl_tensor_drop(r->context, r->parameter[i].room.view);
    r->parameter[i].room.view = view;
    if (leaf == NULL)
        return;
    leaf->room = &r->parameter[i].room;
    leaf->storage->lease = &bucket[r->plan.place[i].bucket].parameters;
}

static bool fill_views(belay_reducer *r, const bl_plan *plan, const bl_bucket *bucket, belay_tensor *view)
{
    bool is_whole = true;
    for (int64_t i = 0; i < r->n && is_whole; i++) {
        view[i] = view_of(r, plan, bucket, i);
        is_whole = !belay_tensor_is_nil(view[i]);
    }
    for (int64_t i = 0; i < r->n && is_whole; i++)
        is_whole = move_gradient(r, i, view[i]);
    return is_whole;
}

static bool make_all(belay_reducer *r, const bl_plan *plan, bl_bucket **bucket, belay_tensor **view)
{
    *bucket = bl_alloc(plan->n_buckets > 0 ? plan->n_buckets : 1, sizeof **bucket);
    *view = bl_alloc(r->n > 0 ? r->n : 1, sizeof **view);
    bool is_whole = *bucket != NULL && *view != NULL;
    if (!is_whole)
        bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory for %" PRId64 " buckets of gradients",
                         plan->n_buckets);
    for (int64_t b = 0; b < plan->n_buckets && is_whole; b++)
        is_whole = make_one(r, plan, b, &(*bucket)[b]);
    return is_whole && fill_views(r, plan, *bucket, *view);
}

bool bl_buckets_make(belay_reducer *r, const int64_t *order)
{
    bl_plan plan;
    bl_bucket *bucket = NULL;
    belay_tensor *view = NULL;
    if (!bl_plan_make(r->sizes, order, r->n, r->options.first_bucket_bytes, r->options.bucket_bytes, &plan)) {
        bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory to plan buckets of %" PRId64 " gradients", r->n);
        return false;
    }
    belay_scope scope = belay_scope_open(r->context);
    bool is_whole = make_all(r, &plan, &bucket, &view);
    belay_scope_close(scope);
    if (is_whole) {
        bl_bucket *old = r->bucket;
        int64_t n_old = r->plan.n_buckets;
        bl_plan_free(&r->plan);
        r->plan = plan;
        r->bucket = bucket;
        for (int64_t i = 0; i < r->n; i++)
            adopt(r, i, view[i], bucket);
        for (int64_t b = 0; b < plan.n_buckets; b++)
            bl_lease_bind(r->context, bucket[b].flat, &bucket[b].gradients);
        free_buckets(r, old, n_old);
    } else {
        for (int64_t i = 0; i < r->n && view != NULL; i++)
            bl_tensor_drop(r->context, view[i]);
        free_buckets(r, bucket, bucket != NULL ? plan.n_buckets : 0);
        bl_plan_free(&plan);
    }
    bl_free(view);
    return is_whole;
}

void bl_buckets_free(belay_reducer *r)
{
    for (int64_t i = 0; i < r->n && r->parameter != NULL; i++) {
        bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
        if (leaf != NULL && leaf->room == &r->parameter[i].room) {
            leaf->room = NULL;
            leaf->storage->lease = NULL;
        }
        bl_tensor_drop(r->context, r->parameter[i].room.view);
    }
    free_buckets(r, r->bucket, r->plan.n_buckets);
    bl_plan_free(&r->plan);
    r->bucket = NULL;
}

/* ---- states ---------------------------------------------------------------------------------------------------------- */

static bl_bucket *bucket_of(const belay_reducer *r, int64_t i) { return &r->bucket[r->plan.place[i].bucket]; }

/* It was moved to another device after the reducer had been made. */
static void refuse_moved(const belay_reducer *r, int64_t i, const bl_slot *leaf)
{
    bl_error error;
    bl_error_set(&error, BELAY_PLACE_DEVICE, "%.100s lies on %s, the bucket of its gradient on %s", name_of(r, i),
                 bl_slot_device(r->context, leaf)->name, r->context->places[r->place].device->name);
    bl_error_fact(&error, "it was moved after the reducer had been made");
    bl_error_advise(&error, "Call belay_ddp after belay_module_to.");
    bl_context_raise_error(r->context, &error);
}

static void refuse_late(const belay_reducer *r, int64_t i, const bl_bucket *b)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_LIFE_BUCKET);
    snprintf(f.what, sizeof f.what, "a gradient arrived at %.100s after its part of %s had been declared whole",
             name_of(r, i), b->words);
    bl_report_fault_fact(&f, "nothing on the tape below the loss led there any more");
    snprintf(f.other_words, sizeof f.other_words, "backward began");
    bl_context_site(r->context, r->walk_site, f.other_site, sizeof f.other_site);
    snprintf(f.advice, sizeof f.advice,
             "Give a function the parameters that its backward computes gradients of as inputs.");
    bl_context_fault(r->context, &f);
}

bool bl_bucket_enter(bl_grad_room *room)
{
    belay_reducer *r = room->owner;
    int64_t i = bl_reduced_number(r, room);
    const bl_slot *leaf = bl_slot_get(r->context, r->parameter[i].leaf);
    if (leaf != NULL && leaf->storage->place != r->place) {
        refuse_moved(r, i, leaf);
        return false;
    }
    if (r->is_walking && r->parameter[i].is_whole) {
        refuse_late(r, i, bucket_of(r, i));
        return false;
    }
    return r->is_walking || bucket_of(r, i)->state == BL_BUCKET_FILLING || bl_buckets_settle(r);
}

static void fill_zero(const belay_reducer *r, int64_t i)
{
    belay_tensor view = r->parameter[i].room.view;
    bl_call call = {.context = r->context, .op = BL_OP_fill, .dtype = r->sizes[i].dtype, .into = view};
    call.shape = belay_tensor_shape(view);
    (void)bl_launch_run(&call);
}

void bl_bucket_arrive(belay_reducer *r, int64_t i)
{
    bl_reduced *p = &r->parameter[i];
    bl_bucket *b = bucket_of(r, i);
    const bl_slot *leaf = bl_slot_get(r->context, p->leaf);
    if (p->is_whole)
        return;
    p->is_whole = true;
    if (leaf == NULL || belay_tensor_is_nil(leaf->grad))
        fill_zero(r, i);
    bl_stage_filled(r->context, &b->stage);
    if (--b->pending == 0)
        b->state = BL_BUCKET_SEALED;
}

/* What a reduction would do is proved once more, from what lies there now. */
static bool pass_gate(const belay_reducer *r, const bl_bucket *b, const bl_slot *flat)
{
    int64_t size = belay_dtype_size(b->dtype), n_bytes = b->n_elements * size;
    int64_t end = flat != NULL ? flat->offset * size + n_bytes : 0;
    if (flat == NULL)
        bl_context_raise(r->context, BELAY_LIFE_STALE, "%s is gone before its reduction", b->words);
    else if (flat->dtype != (int)b->dtype)
        bl_context_raise(r->context, BELAY_TYPE_DTYPE, "%s holds %s, its reduction is of %s", b->words,
                         belay_dtype_name((belay_dtype)flat->dtype), belay_dtype_name(b->dtype));
    else if (end > flat->storage->n_bytes)
        bl_context_raise(r->context, BELAY_SIZE_EXTENT,
                         "a reduction of %" PRId64 " bytes would pass the end of %s by %" PRId64 " bytes", n_bytes,
                         b->words, end - flat->storage->n_bytes);
    else if (flat->storage->place != r->place)
        bl_context_raise(r->context, BELAY_PLACE_DEVICE, "%s lies on %s, its parameters on %s", b->words,
                         bl_slot_device(r->context, flat)->name, r->context->places[r->place].device->name);
    else
        return true;
    return false;
}

/* What comes back of a reduction that failed is not the ranks' mean. */
static void end(void *state, bool failed)
{
    const bl_bucket *b = state;
    const belay_reducer *r = b->gradients.state;
    if (failed)
        bl_gate_close(b->gate, bl_group_failure(r->group));
}

void bl_bucket_launch(belay_reducer *r, bl_bucket *b)
{
    const bl_slot *flat = bl_slot_get(r->context, b->flat);
    b->state = BL_BUCKET_IN_FLIGHT;
    if (!pass_gate(r, b, flat)) { /* the others must not wait for this rank alone to find out */
        belay_group_abort(r->group, "a bucket did not pass its gate");
        return;
    }
    b->gate = bl_window_gate(r->context);
    b->work = (bl_work){.kind = BL_WORK_ALL_REDUCE,
                        .plane = BL_PLANE_DATA,
                        .n = b->n_elements,
                        .dtype = b->dtype,
                        .op = BELAY_GROUP_SUM,
                        .factor = 1.0f / (float)belay_group_size(r->group),
                        .after = bl_round_word(&r->round),
                        .end = end,
                        .state_of = b,
                        .what = b->words,
                        .site = r->walk_site};
    bl_lease_begin(r->context, &b->gradients, r->walk_site);
    bl_lease_begin(r->context, &b->parameters, r->walk_site);
    bl_stage_out(r->context, &b->stage, b->flat, &b->work); /* after a fault, which was told, zeros go */
    bl_group_post(r->group, &b->work);
}

static int64_t n_in_flight(const belay_reducer *r)
{
    int64_t n = 0;
    for (int64_t k = 0; k < r->plan.n_buckets; k++)
        n += r->bucket[k].state == BL_BUCKET_IN_FLIGHT;
    return n;
}

belay_code bl_buckets_bring_back(belay_reducer *r)
{
    belay_code first = BELAY_OK;
    for (int64_t k = 0; k < r->plan.n_buckets; k++) {
        bl_bucket *b = &r->bucket[k];
        if (b->state != BL_BUCKET_IN_FLIGHT)
            continue;
        belay_code code = bl_stage_back(r->context, &b->stage, b->flat);
        first = first != BELAY_OK ? first : code;
    }
    return first;
}

static void release(belay_reducer *r, bl_bucket *b, bool is_awaited)
{
    bl_lease_end(r->context, &b->gradients);
    bl_lease_end(r->context, &b->parameters);
    b->state = BL_BUCKET_FILLING;
    b->is_awaited = is_awaited;
}

void bl_buckets_release(belay_reducer *r)
{
    for (int64_t k = 0; k < r->plan.n_buckets; k++)
        if (r->bucket[k].state == BL_BUCKET_IN_FLIGHT)
            release(r, &r->bucket[k], true);
}

bool bl_buckets_settle(belay_reducer *r)
{
    bool is_whole = true;
    if (n_in_flight(r) > 0) {
        (void)bl_buckets_bring_back(r);
        bl_stage_join(r->context, &r->line);
    }
    for (int64_t k = 0; k < r->plan.n_buckets; k++) {
        bl_bucket *b = &r->bucket[k];
        if (b->state != BL_BUCKET_IN_FLIGHT && !b->is_awaited)
            continue;
        bl_stage_reach(r->context, &b->work);
        is_whole = bl_group_wait(r->group, &b->work) && is_whole;
        release(r, b, false);
    }
    return is_whole;
}
