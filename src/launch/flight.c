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

struct bl_flights {
    bl_flight ring[BL_RING_LAUNCHES];
    uint64_t n_forced;
    bl_batch_origin *origin; /* of the batch in work, once a launch has needed it */
    uint64_t origin_batch;   /* which batch that is */
    bool is_looking;
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
            bl_storage_release(context, flight->held[k]);
    origin_release(flight->origin);
    bl_custom_release(flight->custom);
    flight->custom = NULL;
    memset(flight->held, 0, sizeof flight->held);
    flight->origin = NULL;
    flight->serial = 0;
}

static bool has_landed(belay_context *context, const bl_flight *flight)
{
    bl_device *device = context->places[flight->place].device;
    const bl_stream *stream = &context->streams[flight->stream];
    return !stream->is_open || device->api->stream_passed(device, stream->number) >= flight->number;
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
    f->is_backward = call->is_backward || context->in_backward;
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
        slot->storage->holders++;
        has_index = true;
    }
    f->origin = has_index ? origin_hold(context) : NULL;
}

/* ---- telling --------------------------------------------------------------------------------------------------------- */

/* The walk back meets a bad index of the forward again. */
static bool is_echo(const belay_context *context, const bl_flight *flight, const bl_fault_record *r)
{
    return flight->is_backward && r->policy == BELAY_INDEX_RAISE && context->window_faulted;
}

/* Of the records behind a fault of a forward, those that the walk back met again. */
static uint64_t n_echoes(belay_context *context, const bl_fault_record *later, int n)
{
    uint64_t echoes = 0;
    for (int i = 0; i < n; i++) {
        const bl_flight *flight = flight_of(context, later[i].launch);
        echoes += flight->serial == later[i].launch && flight->is_backward && later[i].policy == BELAY_INDEX_RAISE;
    }
    return echoes;
}

static int by_launch(const void *a, const void *b)
{
    uint64_t x = ((const bl_fault_record *)a)->launch, y = ((const bl_fault_record *)b)->launch;
    return x < y ? -1 : x > y;
}

/* Takes the records that kernels have published since the last look: all, or those of one launch. */
static int take_records(belay_context *context, uint64_t launch, bl_fault_record *out)
{
    bl_fault_ring *ring = context->ring;
    int n = 0;
    for (uint64_t slot = 0; slot < BL_RING_FAULTS; slot++) {
        bl_fault_record *r = &ring->record[slot];
        bool is_there = __atomic_load_n(&r->published, __ATOMIC_ACQUIRE) == slot + 1;
        if (!is_there || (launch != 0 && r->launch != launch))
            continue;
        out[n++] = *r;
        __atomic_store_n(&r->published, 0, __ATOMIC_RELAXED);
    }
    qsort(out, (size_t)n, sizeof *out, by_launch);
    return n;
}

/* The ring starts anew when no kernel is left that could write to it. */
static bool is_idle(belay_context *context)
{
    for (int s = 0; s < BL_MAX_STREAMS; s++) {
        const bl_stream *stream = &context->streams[s];
        if (!stream->is_open || !bl_place_is_asynchronous(context, stream->place))
            continue;
        bl_device *device = context->places[stream->place].device;
        if (device->api->stream_passed(device, stream->number) < device->api->stream_put(device, stream->number))
            return false;
    }
    return true;
}

static void tell_dropped(belay_context *context)
{
    bl_fault_ring *ring = context->ring;
    if (ring->dropped == 0)
        return;
    bl_context_raise(context, BELAY_INDEX_RANGE,
                     "%" PRIu64 " more launches met bad indices than the ring of faults holds", ring->dropped);
    ring->dropped = 0;
}

static void tell_all(belay_context *context)
{
    bl_fault_record record[BL_RING_FAULTS];
    bool may_restart = is_idle(context); /* asked before the records are taken: what comes later stays */
    int n = take_records(context, 0, record);
    for (int i = 0; i < n; i++) {
        const bl_flight *flight = flight_of(context, record[i].launch);
        if (flight->serial != record[i].launch)
            bl_context_raise(context, BELAY_BUG_INVARIANT,
                             "a fault of launch %" PRIu64 " came after its flight had ended", record[i].launch);
        else if (!is_echo(context, flight, &record[i]))
            bl_tell_record(context, flight, &record[i],
                           flight->is_backward ? 0 : n_echoes(context, record + i + 1, n - i - 1));
    }
    if (!may_restart)
        return;
    context->ring->claimed = 0;
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
        bl_place *place = &context->places[i];
        if (place->loss_is_told || place->device->api->loss(place->device) == NULL)
            continue;
        place->loss_is_told = true;
        tell_loss(context, i);
    }
}

static void look(belay_context *context)
{
    struct bl_flights *flights = context->flights;
    if (flights->is_looking) /* telling reads values, which looks */
        return;
    flights->is_looking = true;
    if (__atomic_load_n(&context->ring->claimed, __ATOMIC_ACQUIRE) != 0)
        tell_all(context);
    tell_losses(context);
    for (int i = 0; i < BL_RING_LAUNCHES; i++)
        if (flights->ring[i].serial != 0 && has_landed(context, &flights->ring[i]))
            land(context, &flights->ring[i]);
    flights->is_looking = false;
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
    static const bl_fence_hooks hooks = {.look = look, .tell_loss = tell_loss, .close = close_flights};
    if (context->flights == NULL) {
        context->flights = bl_alloc(1, sizeof *context->flights);
        if (context->flights == NULL)
            return false;
        context->fence_hooks = &hooks;
    }
    bl_flight *flight = flight_of(context, serial);
    if (flight->serial == 0)
        return true;
    if (!has_landed(context, flight)) {
        context->flights->n_forced++;
        bl_modes_waits(context, flight->place, "as many launches as the ring holds were in flight");
        bl_device *device = context->places[flight->place].device;
        const bl_stream *stream = &context->streams[flight->stream];
        device->api->stream_synchronise(device, stream->number,
                                        flight->number); /* a lost one says so at its next call */
    }
    look(context);
    return true;
}

uint64_t bl_flight_n_forced(const belay_context *context)
{
    return context->flights != NULL ? context->flights->n_forced : 0;
}

void bl_flight_tell_now(const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    bl_fault_record record[BL_RING_FAULTS];
    bl_flight flight = {0};
    fill(&flight, call, p);
    int n = take_records(context, context->flights != NULL ? flight.serial : 0, record);
    if (context->flights == NULL) /* else other devices may be writing to it */
        context->ring->claimed = 0;
    for (int i = 0; i < n; i++)
        if (record[i].launch == flight.serial && !is_echo(context, &flight, &record[i]))
            bl_tell_record(context, &flight, &record[i], 0);
    if (context->flights == NULL)
        tell_dropped(context);
}
