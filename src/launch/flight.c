/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "kernel/custom.h"
#include "launch/tell.h"
#include "tensor/place.h"

struct bl_flights {
    bl_flight ring[BL_RING_LAUNCHES];
    uint64_t n_forced;
    bl_batch_origin *origin; /* of the batch in work, once a launch has needed it */
    uint64_t origin_batch;   /* which batch that is */
    bool is_looking;
    int64_t n_records; /* flights whose fault is not told yet */
};

static bl_flight *flight_of(belay_context *context, uint64_t serial)
{
    return &context->flights->ring[serial % BL_RING_LAUNCHES];
}

/* ---- where samples come from ----------------------------------------------------------------------------------------- */

static void origin_release(bl_batch_origin *origin)
{
    if (origin == NULL || --origin->holders > 0)
        return;
    for (int64_t i = 0; i < origin->n && origin->words != NULL; i++)
        bl_free(origin->words[i]);
    bl_free(origin->words);
    bl_free(origin);
}

static char *copy_words(const char *words)
{
    size_t n = strlen(words) + 1;
    char *copy = bl_alloc((int64_t)n, 1);
    return copy != NULL ? memcpy(copy, words, n) : NULL;
}

/* The words of every sample of the batch in work; without memory, fewer. */
static bl_batch_origin *origin_new(belay_context *context)
{
    bl_batch_origin *origin = bl_alloc(1, sizeof *origin);
    if (origin == NULL)
        return NULL;
    *origin = (bl_batch_origin){.holders = 1, .n = context->n_batch};
    origin->words = bl_alloc(bl_max_i64(origin->n, 1), sizeof *origin->words);
    char words[sizeof((bl_report_fault *)0)->sample];
    for (int64_t row = 0; row < origin->n && origin->words != NULL; row++)
        if (context->describe_sample(context->sample_state, row, words, sizeof words))
            origin->words[row] = copy_words(words);
    return origin;
}

static bl_batch_origin *origin_hold(belay_context *context)
{
    struct bl_flights *f = context->flights;
    if (context->describe_sample == NULL)
        return NULL;
    if (f->origin == NULL || f->origin_batch != context->n_batches) {
        origin_release(f->origin);
        f->origin = origin_new(context);
        f->origin_batch = context->n_batches;
    }
    if (f->origin != NULL)
        f->origin->holders++;
    return f->origin;
}

/* ---- flights --------------------------------------------------------------------------------------------------------- */

static void land(belay_context *context, bl_flight *flight)
{
    for (int k = 0; k < BL_MAX_OPERANDS; k++)
        if (flight->held[k] != NULL)
            bl_storage_land(context, flight->held[k]);
    origin_release(flight->origin);
    bl_custom_release(flight->custom);
    flight->custom = NULL;
    memset(flight->held, 0, sizeof flight->held);
    flight->origin = NULL;
    flight->serial = 0;
}

/* The host has waited for it. */
static bool is_waited_for(const belay_context *context, const bl_flight *flight)
{
    return !context->streams[flight->stream].is_open ||
           bl_clock_is_behind(&context->host_clock, flight->stream, flight->number);
}

static bool has_landed(belay_context *context, const bl_flight *flight)
{
    bl_device *device = context->places[flight->place].device;
    const bl_stream *stream = &context->streams[flight->stream];
    return is_waited_for(context, flight) || device->api->stream_passed(device, stream->number) >= flight->number;
}

static bool is_index(const bl_signature *s, int op, int k)
{
    return op == BL_OP_cast_ids ? k == 0 : k < s->n_in && s->operand[k].dtype == BL_SIGNATURE_INDEX;
}

static void fill(bl_flight *f, const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    const bl_place *place = &context->places[p->place];
    f->serial = p->launch.serial;
    f->place = p->place;
    f->stream = place->stream;
    f->op = call->op;
    f->as = call->as;
    f->role = call->role;
    f->is_backward = call->is_backward || context->in_backward;
    f->gates = p->launch.gates;
    f->window = context->window;
    f->site = call->site != 0 ? call->site : context->site;
    f->layer = call->layer != 0 ? call->layer : context->layer_text;
    f->step = context->step;
    f->epoch = context->epoch;
    f->position = context->position;
    f->micro_batch = context->micro_batch;
    f->params = p->launch.params;
    f->custom = p->launch.custom;
    f->n_shown = bl_prove_show(call, f->shown);
    memcpy(f->operand, p->launch.operand, sizeof f->operand);
}

void bl_flight_begin(const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    bl_flight *f = flight_of(context, p->launch.serial);
    const bl_signature *s = bl_signature_of(call->op);
    bl_device *device = context->places[p->place].device;
    fill(f, call, p);
    bl_custom_hold(f->custom);
    f->number = device->api->stream_put(device, context->streams[f->stream].number);
    bool has_index = false;
    for (int k = 0; k < call->n_in; k++) {
        const bl_slot *slot = is_index(s, call->op, k) ? bl_slot_get(context, call->in[k]) : NULL;
        if (slot == NULL)
            continue;
        f->held[k] = slot->storage;
        slot->storage->flights++;
        has_index = true;
    }
    f->origin = has_index ? origin_hold(context) : NULL;
}

/* ---- telling --------------------------------------------------------------------------------------------------------- */

static bl_cause cause_of(const bl_flight *flight)
{
    return (bl_cause){.site = flight->site,
                      .step = flight->step,
                      .layer = flight->layer,
                      .epoch = flight->epoch,
                      .position = flight->position,
                      .code = flight->record.code};
}

/* The walk back over the call of a forward meets its bad index again.  Kernels of the user's own have no such pair: each
 * tells for itself. */
static bool is_echo_of(const bl_flight *flight, const bl_cause *cause)
{
    return flight->is_backward && flight->custom == NULL && flight->site == cause->site &&
           flight->layer == cause->layer && flight->record.code == cause->code && flight->step == cause->step &&
           flight->epoch == cause->epoch && flight->position == cause->position;
}

static bool is_echo(const belay_context *context, const bl_flight *flight)
{
    uint64_t n = context->n_causes < BL_MAX_CAUSES ? context->n_causes : BL_MAX_CAUSES;
    for (uint64_t i = 0; i < n; i++)
        if (is_echo_of(flight, &context->causes[i]))
            return true;
    return false;
}

static bool same_cause(const bl_cause *a, const bl_cause *b)
{
    return a->site == b->site && a->layer == b->layer && a->code == b->code && a->step == b->step &&
           a->epoch == b->epoch && a->position == b->position;
}

/* Each once: a policy that moves bad indices lets a call meet them again and again. */
static void note_cause(belay_context *context, const bl_flight *flight)
{
    bl_cause cause = cause_of(flight);
    if (flight->is_backward || flight->custom != NULL)
        return;
    for (uint64_t i = 0; i < context->n_causes && i < BL_MAX_CAUSES; i++)
        if (same_cause(&context->causes[i], &cause))
            return;
    context->causes[context->n_causes++ % BL_MAX_CAUSES] = cause;
}

/* Of the faults behind one of a forward, its echoes. */
static uint64_t n_echoes(const bl_flight *flight, bl_flight *const *later, int n)
{
    uint64_t echoes = 0;
    bl_cause cause = cause_of(flight);
    bool may_echo = !flight->is_backward && flight->custom == NULL && flight->record.policy == BELAY_INDEX_RAISE;
    for (int i = 0; i < n && may_echo; i++)
        echoes += is_echo_of(later[i], &cause);
    return echoes;
}

static void tell(belay_context *context, bl_flight *flight, bl_flight *const *later, int n)
{
    bl_fault_record record = flight->record;
    flight->has_record = false;
    context->flights->n_records--;
    if (is_echo(context, flight))
        return;
    note_cause(context, flight);
    bl_tell_record(context, flight, &record, n_echoes(flight, later, n));
}

/* Takes the record of a slot that a kernel has published; the slot is free then. */
static bool take_record(bl_fault_ring *ring, int slot, uint64_t launch, bl_fault_record *out)
{
    bl_fault_record *r = &ring->record[slot];
    if (__atomic_load_n(&r->published, __ATOMIC_ACQUIRE) == 0 || (launch != 0 && r->launch != launch))
        return false;
    *out = *r;
    __atomic_store_n(&r->published, 0, __ATOMIC_RELAXED);
    __atomic_fetch_and(&ring->claimed, ~(UINT64_C(1) << slot), __ATOMIC_RELEASE);
    return true;
}

/* From the ring to the flights. */
static void collect(belay_context *context)
{
    bl_fault_record record;
    if (BL_LIKELY(__atomic_load_n(&context->ring->claimed, __ATOMIC_ACQUIRE) == 0))
        return;
    for (int slot = 0; slot < BL_RING_FAULTS; slot++) {
        if (!take_record(context->ring, slot, 0, &record))
            continue;
        bl_flight *flight = flight_of(context, record.launch);
        if (flight->serial == record.launch) {
            flight->record = record;
            flight->has_record = true;
            context->flights->n_records++;
        } else {
            bl_context_raise(context, BELAY_BUG_INVARIANT,
                             "a fault of launch %" PRIu64 " came after its flight had ended", record.launch);
        }
    }
}

static void tell_dropped(belay_context *context)
{
    uint64_t dropped = __atomic_exchange_n(&context->ring->dropped, 0, __ATOMIC_ACQ_REL);
    if (dropped > 0)
        bl_context_raise(context, BELAY_INDEX_RANGE,
                         "%" PRIu64 " more launches met bad indices than the ring of faults holds", dropped);
}

static int by_launch(const void *a, const void *b)
{
    uint64_t x = (*(bl_flight *const *)a)->serial, y = (*(bl_flight *const *)b)->serial;
    return x < y ? -1 : x > y;
}

/* The faults that the host has waited for, and those of launches up to that one, in the order of their launches. */
static void tell_all(belay_context *context, uint64_t upto)
{
    struct bl_flights *flights = context->flights;
    bl_flight *told[BL_RING_LAUNCHES] = {0};
    int n = 0;
    for (int i = 0; i < BL_RING_LAUNCHES && n < flights->n_records; i++)
        if (flights->ring[i].has_record &&
            (flights->ring[i].serial <= upto || is_waited_for(context, &flights->ring[i])))
            told[n++] = &flights->ring[i];
    qsort(told, (size_t)n, sizeof(bl_flight *), by_launch);
    for (int i = 0; i < n; i++)
        tell(context, told[i], told + i + 1, n - i - 1);
    tell_dropped(context);
}

static void tell_loss(belay_context *context, int place)
{
    bl_device *device = context->places[place].device;
    const bl_access *access = device->api->loss(device);
    const bl_flight *flight = access != NULL && access->launch != 0 ? flight_of(context, access->launch) : NULL;
    bl_tell_access(context, flight != NULL && flight->serial == access->launch ? flight : NULL, place, access);
}

/* While the flight of the launch that lost it is still there. */
static void tell_losses(belay_context *context)
{
    for (int i = 0; i < context->n_places; i++) {
        const bl_place *place = &context->places[i];
        if (!place->loss_is_told && place->device->api->loss(place->device) != NULL)
            bl_place_tell_loss(context, i);
    }
}

/* A flight whose fault was not told yet stays. */
static void land_all(belay_context *context)
{
    uint64_t passed[BL_MAX_STREAMS] = {0};
    for (int s = 0; s < BL_MAX_STREAMS; s++) {
        const bl_stream *stream = &context->streams[s];
        bl_device *device = stream->is_open ? context->places[stream->place].device : NULL;
        if (device != NULL && !device->api->synchronous)
            passed[s] = device->api->stream_passed(device, stream->number);
    }
    collect(context); /* of all that has passed */
    for (int i = 0; i < BL_RING_LAUNCHES; i++) {
        bl_flight *flight = &context->flights->ring[i];
        if (flight->serial != 0 && !flight->has_record &&
            (passed[flight->stream] >= flight->number || is_waited_for(context, flight)))
            land(context, flight);
    }
}

static bool look_upto(belay_context *context, uint64_t launch)
{
    struct bl_flights *flights = context->flights;
    if (flights->is_looking) /* who is told may ask, which looks */
        return false;
    flights->is_looking = true;
    collect(context);
    tell_all(context, launch);
    tell_losses(context);
    land_all(context);
    flights->is_looking = false;
    return true;
}

static void look(belay_context *context) { (void)look_upto(context, 0); }

/* Uses that are remembered of memory which only flights hold. */
static void forget_stream(belay_context *context, int number)
{
    for (int i = 0; i < BL_RING_LAUNCHES; i++)
        for (int k = 0; k < BL_MAX_OPERANDS; k++) {
            const bl_storage *storage = context->flights->ring[i].held[k];
            if (storage != NULL && storage->uses != NULL)
                bl_uses_forget(storage->uses, number);
        }
}

static void close_flights(belay_context *context)
{
    for (int i = 0; i < BL_RING_LAUNCHES; i++)
        land(context, &context->flights->ring[i]);
    origin_release(context->flights->origin);
    bl_free(context->flights);
    context->flights = NULL;
    context->fence_hooks = NULL;
}

bool bl_flight_make_room(belay_context *context, uint64_t serial)
{
    static const bl_fence_hooks hooks = {.look = look,
                                         .look_upto = look_upto,
                                         .tell_loss = tell_loss,
                                         .forget_stream = forget_stream,
                                         .close = close_flights};
    if (context->flights == NULL) {
        context->flights = bl_alloc(1, sizeof *context->flights);
        if (context->flights == NULL) {
            bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to remember launches by");
            return false;
        }
        context->fence_hooks = &hooks;
    }
    collect(context);
    bl_flight *flight = flight_of(context, serial);
    if (flight->serial == 0)
        return true;
    if (!has_landed(context, flight)) {
        context->flights->n_forced++;
        bl_modes_waits(context, flight->place, "as many launches as the ring holds were in flight");
        bl_device *device = context->places[flight->place].device;
        const bl_stream *stream = &context->streams[flight->stream];
        bl_place_let_go(context);
        (void)device->api->stream_synchronise(device, stream->number, flight->number); /* a lost one says so next */
    }
    bl_flight_end(context, flight->serial);
    return true;
}

void bl_flight_end(belay_context *context, uint64_t serial)
{
    if (context->flights == NULL)
        return;
    bl_flight *flight = flight_of(context, serial);
    collect(context);
    tell_losses(context);
    if (flight->has_record)
        tell(context, flight, NULL, 0);
    land(context, flight);
}

uint64_t bl_flight_n_forced(const belay_context *context)
{
    return context->flights != NULL ? context->flights->n_forced : 0;
}

void bl_flight_tell_now(const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    bl_flight *flight = &(bl_flight){0};
    fill(flight, call, p);
    uint64_t whose = context->flights != NULL ? flight->serial : 0; /* other devices may be writing, too */
    for (int slot = 0; slot < BL_RING_FAULTS; slot++)
        if (take_record(context->ring, slot, whose, &flight->record) && flight->record.launch == flight->serial &&
            !is_echo(context, flight)) {
            bl_fault_record record = flight->record;
            note_cause(context, flight);
            bl_tell_record(context, flight, &record, 0);
        }
    tell_dropped(context);
}
