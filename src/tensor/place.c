/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "tensor/host.h"
#include "tensor/lease.h"
#include "tensor/loan.h"
#include "tensor/redzone.h"
#include "tensor/timeline.h"
#include "tensor/window.h"

/* ---- places ---------------------------------------------------------------------------------------------------------- */

/* "sim" is "sim:0". */
bool bl_place_is_named(const bl_device *device, const char *name)
{
    char whole[32];
    snprintf(whole, sizeof whole, "%s:%d", device->api->kind, device->ordinal);
    return strcmp(whole, name) == 0 || (device->ordinal == 0 && strcmp(device->api->kind, name) == 0);
}

/* The stream's row in the journal, where its device counts what has ended. */
static void show_stream(belay_context *context, int s)
{
    bl_stream *stream = &context->streams[s];
    bl_device *device = context->places[stream->place].device;
    bl_stream_record row = {.is_synchronous = device->api->synchronous, .number = (uint32_t)stream->number};
    snprintf(row.device, sizeof row.device, "%s", device->name);
    if (!device->api->synchronous)
        row.put = device->api->stream_put(device, stream->number);
    stream->row = bl_journal_stream_open(context->journal, s, &row);
    if (!device->api->synchronous)
        device->api->stream_show(device, stream->number, &stream->row->passed);
}

void bl_places_show(belay_context *context)
{
    for (int s = 0; s < BL_MAX_STREAMS; s++)
        if (context->streams[s].is_open)
            show_stream(context, s);
}

void bl_places_hide(belay_context *context)
{
    for (int s = 0; s < BL_MAX_STREAMS; s++) {
        const bl_stream *stream = &context->streams[s];
        bl_device *device = stream->is_open ? context->places[stream->place].device : NULL;
        if (device != NULL && !device->api->synchronous)
            device->api->stream_show(device, stream->number, NULL);
    }
}

int bl_place_enter_stream(belay_context *context, int place, int number)
{
    for (int s = 0; s < BL_MAX_STREAMS; s++) {
        bl_stream *stream = &context->streams[s];
        if (stream->is_open)
            continue;
        *stream = (bl_stream){.is_open = true,
                              .generation = stream->generation + 1,
                              .place = place,
                              .number = number,
                              .clock = context->host_clock};
        if (context->journal != NULL) /* else bl_places_show does it */
            show_stream(context, s);
        return s;
    }
    return BL_STREAM_NONE;
}

int bl_place_default_stream(const belay_context *context, int place)
{
    for (int s = 0; s < BL_MAX_STREAMS; s++)
        if (context->streams[s].is_open && context->streams[s].place == place && context->streams[s].number == 0)
            return s;
    return BL_STREAM_NONE;
}

/* The number goes to another stream some day, whose commands it would be taken for. */
void bl_place_forget_stream(belay_context *context, int number)
{
    for (int64_t s = 1; s < context->n_slots; s++) {
        const bl_slot *slot = bl_slot_at(context, (uint32_t)s);
        if (slot->is_alive && slot->storage->uses != NULL)
            bl_uses_forget(slot->storage->uses, number);
    }
    for (int64_t i = 0; i < context->n_pending; i++)
        bl_uses_forget(context->pending[i].uses, number);
    if (context->fence_hooks != NULL)
        context->fence_hooks->forget_stream(context, number);
    bl_host_forget_stream(context, number);
    for (int64_t i = 0; i < context->n_events; i++)
        if (context->events[i].stream == number)
            context->events[i].number = 0;
    context->older[number] = (bl_event){0};
    for (int s = 0; s < BL_MAX_STREAMS; s++)
        context->streams[s].clock.upto[number] = context->older[s].clock.upto[number] = 0;
    for (int64_t i = 0; i < context->n_events; i++)
        context->events[i].clock.upto[number] = 0;
    context->host_clock.upto[number] = 0;
    context->streams[number].is_open = false;
    bl_journal_stream_close(context->journal, number);
}

belay_code bl_place_open(belay_context *context, const char *name, int *out, bl_error *error)
{
    for (int i = 0; i < context->n_places; i++)
        if (bl_place_is_named(context->places[i].device, name)) {
            *out = i;
            return BELAY_OK;
        }
    if (context->n_places == BL_MAX_PLACES)
        return bl_error_set(error, BELAY_SIZE_OVERFLOW, "the context uses %d devices, the most that it can",
                            BL_MAX_PLACES);
    bl_place place = {.device = NULL};
    context->device_options.place = context->n_places;
    TRY(bl_device_open(name, &context->device_options, &place.device, error));
    context->places[context->n_places] = place;
    place.stream = bl_place_enter_stream(context, context->n_places, 0);
    if (place.stream == BL_STREAM_NONE) {
        bl_device_close(place.device);
        return bl_error_set(error, BELAY_SIZE_OVERFLOW, "the context uses %d streams, the most that it can",
                            BL_MAX_STREAMS);
    }
    context->places[context->n_places].stream = place.stream;
    context->is_watched = context->is_watched || place.device->range != NULL;
    *out = context->n_places++;
    bl_timeline_name(context, *out, place.stream);
    return BELAY_OK;
}

void bl_places_close(belay_context *context)
{
    while (context->n_places > 0) {
        bl_place *place = &context->places[context->n_places - 1];
        for (int64_t i = 0; i < context->n_pending; i++)
            if (context->pending[i].place == context->n_places - 1)
                place->device->api->give(place->device, context->pending[i].data, context->pending[i].n_bytes);
        bl_device_close(place->device);
        context->n_places--;
    }
    for (int64_t i = 0; i < context->n_pending; i++)
        bl_free(context->pending[i].uses);
    bl_free(context->pending);
    bl_free(context->events);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static bool has_passed(belay_context *context, const bl_use *use)
{
    const bl_stream *s = &context->streams[use->stream];
    bl_device *device = context->places[s->place].device;
    return !s->is_open || bl_clock_is_behind(&context->host_clock, use->stream, use->number) ||
           device->api->stream_passed(device, s->number) >= use->number;
}

static bool all_have_passed(belay_context *context, const bl_uses *uses)
{
    for (int i = 0; i < uses->n; i++)
        if (!has_passed(context, &uses->use[i]))
            return false;
    return true;
}

static void forget_pending(belay_context *context, int64_t i)
{
    memmove(&context->pending[i], &context->pending[i + 1],
            (size_t)(context->n_pending - i - 1) * sizeof *context->pending);
    context->n_pending--;
}

/* Gives the device what its commands are through with, among the first `most` that wait. */
static void sweep(belay_context *context, int place, int64_t most)
{
    for (int64_t i = 0, seen = 0; i < context->n_pending && seen < most; seen++) {
        const bl_pending *p = &context->pending[i];
        if (p->place != place || !all_have_passed(context, p->uses)) {
            i++;
            continue;
        }
        bl_device *device = context->places[place].device;
        device->api->give(device, p->data, p->n_bytes);
        bl_free(p->uses);
        forget_pending(context, i);
    }
    bl_redzone_tell(context, place, false);
}

/* A block of that size whose uses all come before the next command of the place's current stream.  Poison is written and
 * red zones are looked at by the host, which may not do so before they have ended: then none is taken early. */
static void *take_pending(belay_context *context, int place, int64_t n_bytes, bl_uses *uses)
{
    const bl_clock *clock = &bl_place_stream(context, place)->clock;
    bool is_watched = context->device_options.poison || context->device_options.memory != BL_MEMORY_POOL;
    for (int64_t i = context->n_pending - 1; i >= 0 && !is_watched; i--) {
        const bl_pending *p = &context->pending[i];
        if (p->place != place || p->n_bytes != n_bytes || !bl_uses_are_behind(p->uses, clock))
            continue;
        void *data = p->data;
        bl_uses_inherit(uses, p->uses, n_bytes);
        bl_free(p->uses);
        forget_pending(context, i);
        return data;
    }
    return NULL;
}

void bl_place_sweep(belay_context *context, int place) { sweep(context, place, INT64_MAX); }

void bl_place_let_go(belay_context *context)
{
    void (*let_go)(belay_context *) = context->let_go;
    if (let_go == NULL)
        return;
    context->let_go = NULL; /* it may wait for a device itself */
    let_go(context);
    context->let_go = let_go;
}

void *bl_place_take_behind(belay_context *context, int place, int64_t n_bytes, bl_uses *uses)
{
    enum { SWEPT_AT_ONCE = 8 };
    bl_device *device = context->places[place].device;
    bl_place_begin(context, place);
    void *data = uses != NULL ? take_pending(context, place, n_bytes, uses) : NULL;
    if (data != NULL)
        return data;
    sweep(context, place, SWEPT_AT_ONCE);
    data = device->api->take(device, n_bytes);
    if (data != NULL || context->n_pending == 0)
        return data;
    bl_modes_waits(context, place, "its memory was in use");
    bl_place_let_go(context);
    device->api->synchronise(device); /* what is lost has ended too */
    sweep(context, place, INT64_MAX);
    return device->api->take(device, n_bytes);
}

void bl_place_give(belay_context *context, bl_storage *storage)
{
    if (storage->loan != NULL && bl_loan_keep(context, storage))
        return;
    bl_device *device = context->places[storage->place].device;
    bool is_idle = storage->uses == NULL || all_have_passed(context, storage->uses);
    if (!is_idle &&
        bl_grow(&context->pending, &context->pending_capacity, context->n_pending + 1, sizeof *context->pending)) {
        context->pending[context->n_pending++] =
            (bl_pending){storage->data, storage->n_bytes, storage->place, storage->uses};
        storage->uses = NULL;
        return;
    }
    if (!is_idle) { /* no memory to remember it by */
        bl_place_let_go(context);
        device->api->synchronise(device);
    }
    device->api->give(device, storage->data, storage->n_bytes);
    bl_redzone_tell(context, storage->place, false);
}

/* ---- order ----------------------------------------------------------------------------------------------------------- */

void bl_place_begin(belay_context *context, int place)
{
    bl_clock_join(&bl_place_stream(context, place)->clock, &context->host_clock);
}

bl_extent bl_place_extent(const bl_slot *slot)
{
    int64_t begin = (const char *)slot->data - (const char *)slot->storage->data, last = 0;
    for (int i = 0; i < slot->rank; i++)
        last += (slot->size[i] - 1) * slot->stride[i];
    bool is_empty = bl_slot_elements(slot) == 0;
    return (bl_extent){begin, is_empty ? begin : begin + (last + 1) * belay_dtype_size((belay_dtype)slot->dtype)};
}

/* What is put into `stream` from now on runs after command `number` of stream `of`.  Where devices cannot wait for each
 * other the host does, and knows. */
static belay_code await(belay_context *context, int stream, int of, uint64_t number)
{
    const bl_stream *s = &context->streams[stream], *o = &context->streams[of];
    bl_device *device = context->places[s->place].device, *other = context->places[o->place].device;
    if (!o->is_open || other->api->synchronous || stream == of)
        return BELAY_OK;
    belay_code code = BELAY_MEM_EXHAUSTED;
    if (other->api == device->api)
        code = device->api->stream_wait(device, s->number, other, o->number, number);
    if (code == BELAY_MEM_EXHAUSTED) {
        bl_modes_waits(context, o->place, "another device was to wait for it");
        bl_place_let_go(context);
        code = other->api->stream_synchronise(other, o->number, number);
    }
    return code;
}

bl_race bl_place_race(belay_context *context, const bl_storage *storage, const bl_extent *extent, bool writes)
{
    bl_race race = {.stream = BL_STREAM_NONE};
    const bl_uses *uses = storage->uses;
    if (uses == NULL)
        return race;
    bl_place_begin(context, storage->place);
    int here = context->places[storage->place].stream;
    const bl_clock *clock = &context->streams[here].clock;
    for (int i = -1; (i = bl_uses_conflict(uses, i + 1, clock, extent, writes)) >= 0;) {
        const bl_use *use = &uses->use[i];
        if (use->is_inherited) { /* not the program's care: its clocks stay as they are */
            (void)await(context, here, use->stream, use->number); /* a device that is lost says so at the command */
            continue;
        }
        return (bl_race){use->stream, use->is_write, use};
    }
    return race;
}

belay_code bl_place_order(belay_context *context, int number, const bl_event *event)
{
    bl_stream *stream = &context->streams[number];
    if (event->number == 0 || event->stream == number) /* waited for, or ordered by the stream itself */
        return BELAY_OK;
    belay_code code = await(context, number, event->stream, event->number);
    if (code == BELAY_OK) /* a lost stream does not wait: to have waited for it orders nothing else */
        bl_clock_join(&stream->clock, &event->clock);
    if (context->places[stream->place].device->api->synchronous) /* the host has waited */
        bl_clock_join(&context->host_clock, &event->clock);
    return code == BELAY_PLACE_LOST ? bl_place_raise_lost(context, stream->place) : code;
}

belay_code bl_place_hold(belay_context *context, int place, const uint64_t *word, uint64_t value)
{
    bl_device *device = context->places[place].device;
    if (device->api->synchronous)
        return BELAY_OK;
    bl_place_begin(context, place);
    belay_code code = device->api->stream_hold(device, bl_place_stream(context, place)->number, word, value);
    if (code == BELAY_OK)
        bl_place_put(context, place);
    if (code == BELAY_MEM_EXHAUSTED)
        return bl_context_raise(context, code, "no memory for device %s to wait for the host", device->name);
    return code == BELAY_PLACE_LOST ? bl_place_raise_lost(context, place) : code;
}

void bl_place_poll(belay_context *context)
{
    for (int place = 0; place < context->n_places; place++) {
        bl_device *device = context->places[place].device;
        if (!device->api->synchronous)
            (void)device->api->stream_passed(device, 0);
    }
}

belay_code bl_place_wait(belay_context *context, int number, uint64_t upto, const bl_clock *clock, const char *why)
{
    const bl_stream *stream = &context->streams[number];
    bl_device *device = context->places[stream->place].device;
    if (device->api->synchronous)
        return BELAY_OK;
    TRY(bl_modes_wait(context, stream->place, why));
    bl_place_let_go(context);
    belay_code code = device->api->stream_synchronise(device, stream->number, upto);
    bl_clock_join(&context->host_clock, clock);
    context->host_clock.upto[number] =
        upto > context->host_clock.upto[number] ? upto : context->host_clock.upto[number];
    bl_place_look(context);
    return code == BELAY_PLACE_LOST ? bl_place_raise_lost(context, stream->place) : code;
}

void bl_place_put(belay_context *context, int place)
{
    int number = context->places[place].stream;
    bl_stream *stream = &context->streams[number];
    bl_device *device = context->places[place].device;
    if (device->api->synchronous)
        return;
    stream->clock.upto[number] = device->api->stream_put(device, stream->number);
    __atomic_store_n(&stream->row->put, stream->clock.upto[number], __ATOMIC_RELAXED);
}

void bl_place_note(belay_context *context, bl_storage *storage, const bl_extent *extent, bool writes, uint64_t launch,
                   uint32_t site)
{
    int number = context->places[storage->place].stream;
    bl_use use = {*extent, context->streams[number].clock.upto[number], launch, site, (int16_t)number, writes, false};
    if (storage->uses != NULL && extent->begin < extent->end)
        bl_uses_note(storage->uses, &use, &context->host_clock);
}

void bl_place_describe_stream(const belay_context *context, int number, char *out, size_t size)
{
    const bl_stream *stream = &context->streams[number];
    const char *name = bl_journal_text_get(context->journal, stream->name);
    if (stream->number == 0)
        snprintf(out, size, "%s", "");
    else if (name[0] != '\0')
        snprintf(out, size, "%.40s", name);
    else
        snprintf(out, size, "%d of %s", stream->number, context->places[stream->place].device->name);
}

static void stream_words(const belay_context *context, int number, char *out, size_t size)
{
    char name[56];
    bl_place_describe_stream(context, number, name, sizeof name);
    if (name[0] != '\0')
        snprintf(out, size, "stream %s", name);
    else
        snprintf(out, size, "the default stream of %s", context->places[context->streams[number].place].device->name);
}

void bl_place_describe_race(belay_context *context, const bl_storage *storage, bool writes, const bl_race *race,
                            bl_report_fault *f)
{
    char words[160];
    const char *name = bl_journal_text_get(context->journal, storage->name);
    snprintf(words, sizeof words, "%s%.120s", name[0] != '\0' ? "tensor " : "a tensor", name);
    bl_place_describe_uses(context, words, context->places[storage->place].stream, writes, race, f);
}

void bl_place_describe_uses(belay_context *context, const char *what, int here, bool writes, const bl_race *race,
                            bl_report_fault *f)
{
    char now[64], other[64];
    stream_words(context, here, now, sizeof now);
    stream_words(context, race->stream, other, sizeof other);
    snprintf(f->what, sizeof f->what, "%s would be %s on %s while %s may still be %s it: nothing orders the two", what,
             writes ? "written" : "read", now, other, race->is_write ? "writing" : "reading");
    char site[256];
    uintptr_t address = bl_journal_site_get(context->journal, race->use->site);
    bl_context_site(context, address, site, sizeof site);
    snprintf(f->other_words, sizeof f->other_words, "%s at", race->is_write ? "written" : "read");
    snprintf(f->other_site, sizeof f->other_site, "%s", site);
    bl_place_describe_stream(context, here, f->stream, sizeof f->stream);
    bl_place_describe_stream(context, race->stream, f->other_stream, sizeof f->other_stream);
}

/* ---- fences ---------------------------------------------------------------------------------------------------------- */

void bl_place_look(belay_context *context)
{
    if (context->is_watched && bl_trap_has_touches())
        bl_touch_look(context);
    if (context->hosts != NULL)
        bl_host_look(context);
    bl_window_look(context);
    if (context->fence_hooks == NULL)
        return;
    context->fence_hooks->look(context);
    bl_window_look(context); /* who was told may have asked, and waited for a window */
}

/* "kernel gather read 1 byte past the end of x (mem.access), called at train.c:12", of a fault that was kept. */
static void note_cause(belay_context *context, bl_place *p, int64_t number)
{
    belay_fault fault;
    if (!belay_fault_get(context, number, &fault))
        return;
    const char *words = strncmp(fault.text, "belay: ", 7) == 0 ? fault.text + 7 : fault.text;
    snprintf(p->lost_by, sizeof p->lost_by, "%.*s%s%.80s", (int)bl_min_i64((int64_t)strcspn(words, "\n"), 160), words,
             fault.site[0] != '\0' ? ", called at " : "", fault.site);
}

void bl_place_tell_loss(belay_context *context, int place)
{
    bl_place *p = &context->places[place];
    int64_t number = context->n_faults;
    if (p->loss_is_told)
        return;
    p->loss_is_told = true;
    if (context->fence_hooks != NULL)
        context->fence_hooks->tell_loss(context, place);
    note_cause(context, p, number);
}

void bl_place_describe_loss(const belay_context *context, int place, const char *key, bl_report_fault *f)
{
    const bl_place *p = &context->places[place];
    const bl_access *loss = p->device->api->loss(p->device);
    snprintf(f->device, sizeof f->device, "%s", p->device->name);
    if (p->lost_by[0] != '\0')
        bl_report_fault_fact(f, "%s: %s", key, p->lost_by);
    else if (loss != NULL && loss->address == 0 && !loss->is_write_known)
        bl_report_fault_fact(f,
                             "%s: an illegal access at an address that the machine does not tell, in launch %" PRIu64,
                             key, loss->launch);
    else if (loss != NULL)
        bl_report_fault_fact(f, "%s: an illegal %s at 0x%" PRIx64 ", in launch %" PRIu64, key,
                             !loss->is_write_known ? "access"
                             : loss->is_write      ? "write"
                                                   : "read",
                             loss->address, loss->launch);
    bl_report_fault_fact(f, "calls refused so far: %" PRIu64, p->n_refused);
}

belay_code bl_place_raise_lost(belay_context *context, int place)
{
    bl_place *p = &context->places[place];
    bl_report_fault f;
    bl_place_tell_loss(context, place);
    bl_report_fault_init(&f, BELAY_PLACE_LOST);
    f.is_echo = p->n_refused++ > 0;
    snprintf(f.what, sizeof f.what, "device %s is lost: nothing runs on it any more", p->device->name);
    bl_place_describe_loss(context, place, f.is_echo ? "echo of" : "lost by", &f);
    if (f.is_echo) {
        p->n_untold++;
        p->untold_at = context->site;
    }
    return bl_context_fault(context, &f);
}

/* All streams of a place have ended what was put into them, and the host knows. */
static void host_has_waited(belay_context *context, int place)
{
    for (int s = 0; s < BL_MAX_STREAMS; s++)
        if (context->streams[s].is_open && context->streams[s].place == place)
            bl_clock_join(&context->host_clock, &context->streams[s].clock);
}

belay_code bl_place_fence(belay_context *context, int place, const char *why)
{
    bl_device *device = context->places[place].device;
    if (device->api->synchronous)
        return BELAY_OK;
    TRY(bl_modes_wait(context, place, why));
    bl_place_let_go(context);
    belay_code code = device->api->synchronise(device);
    host_has_waited(context, place);
    bl_place_look(context);
    return code == BELAY_PLACE_LOST ? bl_place_raise_lost(context, place) : code;
}

/* Whether the host has not waited for all that was put into a place's streams. */
static bool has_work(const belay_context *context, int place)
{
    bool works = false;
    for (int s = 0; s < BL_MAX_STREAMS && !works; s++) {
        const bl_stream *stream = &context->streams[s];
        works = stream->is_open && stream->place == place &&
                !bl_clock_is_behind(&context->host_clock, s, stream->clock.upto[s]);
    }
    return works;
}

void bl_place_gather(belay_context *context, int place)
{
    int here = context->places[place].stream;
    for (int s = 0; s < BL_MAX_STREAMS; s++) {
        const bl_stream *stream = &context->streams[s];
        uint64_t last = stream->clock.upto[s];
        if (stream->is_open && !bl_clock_is_behind(&context->streams[here].clock, s, last))
            (void)await(context, here, s, last); /* a lost device has ended all */
    }
}

belay_code bl_place_settle(belay_context *context, const char *why)
{
    belay_code first = BELAY_OK;
    for (int place = 0; place < context->n_places; place++) {
        bl_device *device = context->places[place].device;
        if (device->api->synchronous || !has_work(context, place))
            continue;
        if (why != NULL)
            bl_modes_waits(context, place, why);
        bl_place_let_go(context);
        belay_code code = device->api->synchronise(device);
        host_has_waited(context, place);
        first = first != BELAY_OK ? first : code;
    }
    bl_place_look(context);
    bl_redzone_look(context);
    return first;
}

/* ---- copies ---------------------------------------------------------------------------------------------------------- */

static belay_code end_copy(belay_context *context, const bl_slot *slot, belay_code code)
{
    if (code == BELAY_PLACE_LOST)
        return bl_place_raise_lost(context, slot->storage->place);
    if (code != BELAY_OK)
        return bl_context_raise(context, code, "device %s has no memory for a copy",
                                bl_slot_device(context, slot)->name);
    return BELAY_OK;
}

belay_code bl_place_write(belay_context *context, const bl_slot *slot, int64_t offset, const void *host,
                          int64_t n_bytes)
{
    bl_storage *storage = slot->storage;
    bl_device *device = bl_slot_device(context, slot);
    bl_extent extent = bl_place_extent(slot);
    if (bl_loan_is_read_only(storage->loan))
        return bl_loan_refuse_write(context, slot);
    extent.begin += offset;
    extent.end = extent.begin + n_bytes;
    bl_race race = bl_place_race(context, storage, &extent, true);
    if (race.stream != BL_STREAM_NONE) {
        bl_report_fault f;
        bl_report_fault_init(&f, BELAY_LIFE_STREAM);
        bl_place_describe_race(context, storage, true, &race, &f);
        return bl_context_fault(context, &f);
    }
    const bl_stream *stream = bl_place_stream(context, storage->place);
    if (!device->api->synchronous && n_bytes > device->api->most_staged)
        TRY(bl_modes_wait(context, storage->place, "a large tensor was written"));
    belay_code code = device->api->copy_in(device, stream->number, (char *)slot->data + offset, host, n_bytes);
    if (code == BELAY_OK && storage->uses != NULL) {
        bl_place_put(context, storage->place);
        bl_place_note(context, storage, &extent, true, 0, bl_journal_site(context->journal, context->site));
    }
    return code == BELAY_OK ? code : end_copy(context, slot, code);
}

belay_code bl_place_read(belay_context *context, const bl_slot *slot, int64_t offset, void *host, int64_t n_bytes)
{
    if (!bl_lease_permits(context, slot, false, "the host"))
        return BELAY_LIFE_BUCKET;
    bl_device *device = bl_slot_device(context, slot);
    const bl_stream *stream = bl_place_stream(context, slot->storage->place);
    belay_code code = device->api->copy_out(device, stream->number, host, (const char *)slot->data + offset, n_bytes);
    return code == BELAY_OK ? code : end_copy(context, slot, code);
}
