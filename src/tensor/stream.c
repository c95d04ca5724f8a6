/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events of <belay/devices.h>. */
#include <belay/devices.h>

#include <string.h>

#include "base/memory.h"
#include "tensor/place.h"
#include "tensor/timeline.h"

/* ---- handles --------------------------------------------------------------------------------------------------------- */

static belay_stream handle_of(const belay_context *context, int number)
{
    return (belay_stream){context->number, (uint32_t)number, context->streams[number].generation};
}

/* The stream's number, or BL_STREAM_NONE: nothing is said for nil, life.stale is raised for a closed one. */
static int use_stream(belay_context *context, belay_stream handle)
{
    bool is_there = handle.slot < BL_MAX_STREAMS && context->streams[handle.slot].is_open &&
                    context->streams[handle.slot].generation == handle.generation;
    if (is_there)
        return (int)handle.slot;
    bl_context_raise(context, BELAY_LIFE_STALE, "a stream was used that %s",
                     handle.slot < BL_MAX_STREAMS && handle.generation <= context->streams[handle.slot].generation
                         ? "is closed"
                         : "no context ever gave");
    return BL_STREAM_NONE;
}

static bl_device *device_of(const belay_context *context, int stream)
{
    return context->places[context->streams[stream].place].device;
}

/* ---- streams --------------------------------------------------------------------------------------------------------- */

belay_stream belay_stream_open(belay_context *context, const char *name)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return (belay_stream){0};
    int number = 0, stream = context->places[context->here].stream;
    if (context->device->api->synchronous)
        return handle_of(context, stream);
    belay_code code = context->device->api->stream_open(context->device, &number);
    if (code == BELAY_PLACE_LOST) {
        bl_place_raise_lost(context, context->here);
        return (belay_stream){0};
    }
    if (code == BELAY_SIZE_OVERFLOW)
        bl_context_raise(context, code, "device %s has %d streams, the most that it can", context->device->name,
                         BL_MAX_DEVICE_STREAMS);
    else if (code != BELAY_OK)
        bl_context_raise(context, code, "no memory, or no thread, for a stream of device %s", context->device->name);
    if (code != BELAY_OK)
        return (belay_stream){0};
    stream = bl_place_enter_stream(context, context->here, number);
    if (stream == BL_STREAM_NONE) {
        context->device->api->stream_close(context->device, number);
        bl_context_raise(context, BELAY_SIZE_OVERFLOW, "the context uses %d streams, the most that it can",
                         BL_MAX_STREAMS);
        return (belay_stream){0};
    }
    context->streams[stream].name = bl_journal_text(context->journal, name != NULL ? name : "");
    context->streams[stream].row->name = context->streams[stream].name;
    bl_timeline_name(context, context->here, stream);
    return handle_of(context, stream);
}

void belay_stream_close(belay_stream handle)
{
    belay_context *context = bl_context_find(handle.context);
    BL_ENTER(context);
    if (context == NULL)
        return;
    int number = use_stream(context, handle);
    if (number == BL_STREAM_NONE || context->streams[number].number == 0)
        return;
    bl_stream *stream = &context->streams[number];
    bl_place *place = &context->places[stream->place];
    if (!place->device->api->synchronous &&
        !bl_clock_is_behind(&context->host_clock, number,
                            place->device->api->stream_put(place->device, stream->number)))
        bl_modes_waits(context, stream->place, "a stream was closed");
    place->device->api->stream_close(place->device, stream->number);
    stream->is_ending = true;
    bl_clock_join(&context->host_clock, &stream->clock);
    bl_place_look(context);
    if (place->stream == number)
        place->stream = bl_place_default_stream(context, stream->place);
    bl_place_forget_stream(context, number);
}

belay_stream belay_stream_current(belay_context *context)
{
    BL_ENTER(context);
    return belay_is_open(context) ? handle_of(context, context->places[context->here].stream) : (belay_stream){0};
}

belay_stream belay_stream_use(belay_stream handle)
{
    belay_context *context = bl_context_find(handle.context);
    BL_ENTER(context);
    if (context == NULL)
        return (belay_stream){0};
    int number = use_stream(context, handle);
    if (number == BL_STREAM_NONE)
        return (belay_stream){0};
    bl_place *place = &context->places[context->streams[number].place];
    belay_stream before = handle_of(context, place->stream);
    place->stream = number;
    return before;
}

belay_code belay_stream_synchronise(belay_stream handle)
{
    belay_context *context = bl_context_find(handle.context);
    BL_ENTER(context);
    if (context == NULL)
        return bl_caller_code(BELAY_LIFE_STALE);
    int number = use_stream(context, handle);
    if (number == BL_STREAM_NONE)
        return BELAY_LIFE_STALE;
    bl_device *device = device_of(context, number);
    return bl_place_wait(context, number, device->api->stream_put(device, context->streams[number].number),
                         &context->streams[number].clock, "a stream was waited for");
}

/* ---- events ---------------------------------------------------------------------------------------------------------- */

/* Events that the host has waited for order nothing any more.  When there are too many others, the older half goes too:
 * whoever still waits for one of those waits for the latest of them on its stream, which orders more than was asked for,
 * and says so to the clocks. */
static void forget_old_events(belay_context *context)
{
    int64_t old = 0, most = context->n_events >= BL_MAX_EVENTS ? BL_MAX_EVENTS / 2 : 0;
    for (; old < context->n_events; old++) {
        const bl_event *event = &context->events[old];
        if (bl_clock_is_behind(&context->host_clock, event->stream, event->number))
            continue;
        if (old >= most)
            break;
        context->older[event->stream] = *event;
    }
    if (old == 0)
        return;
    context->n_events -= old;
    context->events_begin += (uint64_t)old;
    memmove(context->events, context->events + old, (size_t)context->n_events * sizeof *context->events);
}

belay_event belay_event_record(belay_stream handle)
{
    belay_context *context = bl_context_find(handle.context);
    BL_ENTER(context);
    if (context == NULL)
        return (belay_event){0};
    int number = use_stream(context, handle);
    if (number == BL_STREAM_NONE)
        return (belay_event){0};
    bl_device *device = device_of(context, number);
    const bl_stream *stream = &context->streams[number];
    bl_event event = {.stream = number, .clock = stream->clock};
    event.number = device->api->synchronous ? 0 : device->api->stream_put(device, stream->number);
    event.clock.upto[number] = event.number;
    if (context->n_events == context->events_capacity || context->n_events >= BL_MAX_EVENTS)
        forget_old_events(context);
    if (!bl_grow(&context->events, &context->events_capacity, context->n_events + 1, sizeof *context->events)) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for an event");
        return (belay_event){0};
    }
    context->events[context->n_events++] = event;
    return (belay_event){context->number, (uint32_t)number, context->events_begin + (uint64_t)context->n_events};
}

/* The event, or NULL: one that the host has waited for, or, with *is_known false, none that was ever recorded. */
static const bl_event *find_event(belay_context *context, belay_event handle, bool *is_known)
{
    *is_known = handle.context == context->number && handle.serial != 0 &&
                handle.serial <= context->events_begin + (uint64_t)context->n_events;
    if (!*is_known)
        bl_context_raise(context, BELAY_LIFE_STALE, "an event was used that %s",
                         handle.context == context->number || handle.context == 0 ? "was never recorded"
                                                                                  : "belongs to another context");
    if (!*is_known || handle.stream >= BL_MAX_STREAMS)
        return NULL;
    if (handle.serial > context->events_begin)
        return &context->events[handle.serial - context->events_begin - 1];
    const bl_event *older = &context->older[handle.stream];
    return bl_clock_is_behind(&context->host_clock, (int)handle.stream, older->number) ? NULL : older;
}

belay_code belay_stream_wait(belay_stream handle, belay_event event)
{
    belay_context *context = bl_context_find(handle.context);
    BL_ENTER(context);
    if (context == NULL)
        return bl_caller_code(BELAY_LIFE_STALE);
    bool is_known;
    int number = use_stream(context, handle);
    const bl_event *e = number != BL_STREAM_NONE ? find_event(context, event, &is_known) : NULL;
    if (number == BL_STREAM_NONE || !is_known)
        return BELAY_LIFE_STALE;
    return e != NULL ? bl_place_order(context, number, e) : BELAY_OK;
}

belay_code belay_event_synchronise(belay_event event)
{
    belay_context *context = bl_context_find(event.context);
    BL_ENTER(context);
    if (context == NULL)
        return bl_caller_code(BELAY_LIFE_STALE);
    bool is_known;
    const bl_event *e = find_event(context, event, &is_known);
    if (!is_known)
        return BELAY_LIFE_STALE;
    if (e == NULL)
        return BELAY_OK;
    bl_clock clock = e->clock;
    return bl_place_wait(context, e->stream, e->number, &clock, "an event was waited for");
}

bool belay_event_is_done(belay_event event)
{
    belay_context *context = bl_context_find(event.context);
    BL_ENTER(context);
    if (context == NULL)
        return false;
    bool is_known;
    const bl_event *e = find_event(context, event, &is_known);
    if (e == NULL)
        return is_known;
    const bl_stream *stream = &context->streams[e->stream];
    bl_device *device = device_of(context, e->stream);
    if (!device->api->synchronous && device->api->stream_passed(device, stream->number) < e->number)
        return false;
    bl_clock_join(&context->host_clock, &e->clock);
    bl_place_look(context);
    return true;
}
