/* SPDX-License-Identifier: Apache-2.0 */
/* Everything is put with the line as the place's current stream, so that clocks and uses are kept as of any other copy. */
#include "dist/stage.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include <belay/devices.h>

#include "base/memory.h"
#include "tensor/place.h"

/* ---- the line -------------------------------------------------------------------------------------------------------- */

bool bl_stage_line_open(belay_context *context, int place, bl_stage_line *line)
{
    *line = (bl_stage_line){.place = place, .stream = BL_STREAM_NONE};
    if (!bl_place_is_asynchronous(context, place))
        return true;
    int before = bl_place_go(context, place);
    belay_stream stream = belay_stream_open(context, "reduction");
    (void)bl_place_go(context, before);
    if (belay_stream_is_nil(stream))
        return false;
    line->stream = (int)stream.slot;
    return true;
}

void bl_stage_line_close(belay_context *context, bl_stage_line *line)
{
    if (line->stream == BL_STREAM_NONE || context->is_closing) /* then the device ends it */
        return;
    bl_stream *stream = &context->streams[line->stream];
    bl_device *device = context->places[line->place].device;
    device->api->stream_close(device, stream->number);
    stream->is_ending = true;
    bl_clock_join(&context->host_clock, &stream->clock);
    bl_place_forget_stream(context, line->stream);
    line->stream = BL_STREAM_NONE;
}

static bool is_free(const bl_stage *stage) { return stage->line == NULL || stage->line->stream == BL_STREAM_NONE; }

/* From here on the line is the place's current stream; returns the one that was. */
static int go_to(belay_context *context, const bl_stage_line *line)
{
    int before = context->places[line->place].stream;
    context->places[line->place].stream = line->stream;
    return before;
}

static void go_back(belay_context *context, const bl_stage_line *line, int before)
{
    context->places[line->place].stream = before;
}

/* ---- stages ---------------------------------------------------------------------------------------------------------- */

bool bl_stage_init(belay_context *context, const bl_stage_line *line, int64_t n_bytes, bl_stage *stage)
{
    *stage = (bl_stage){.line = line, .n_bytes = n_bytes};
    if (is_free(stage))
        return true;
    stage->host = bl_alloc_aligned(n_bytes > 0 ? n_bytes : 1, 64);
    if (stage->host != NULL)
        return true;
    bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory on the host for %" PRId64 " bytes that are to be reduced",
                     n_bytes);
    return false;
}

/* The host waits until no copy uses the stage's memory. */
static void wait_for_copies(belay_context *context, const bl_stage *stage)
{
    const bl_stream *stream = &context->streams[stage->line->stream];
    bl_device *device = context->places[stage->line->place].device;
    bl_place_let_go(context);
    (void)device->api->stream_synchronise(device, stream->number, stage->last); /* what is lost has ended too */
}

void bl_stage_fini(belay_context *context, bl_stage *stage, belay_group *group)
{
    if (is_free(stage))
        return;
    wait_for_copies(context, stage);
    if (group != NULL && group->broken != BELAY_OK)
        bl_group_keep(group, stage->host);
    else
        bl_free(stage->host);
    *stage = (bl_stage){0};
}

void bl_stage_filled(belay_context *context, bl_stage *stage)
{
    if (is_free(stage))
        return;
    int number = context->places[stage->line->place].stream;
    const bl_stream *stream = &context->streams[number];
    bl_event *event = &stage->filled[number];
    *event = (bl_event){.stream = number, .clock = stream->clock};
    bl_device *device = context->places[stage->line->place].device;
    event->number = device->api->stream_put(device, stream->number);
    event->clock.upto[number] = event->number;
    stage->filled_by[number] = stream->generation;
}

/* ---- out ------------------------------------------------------------------------------------------------------------- */

static belay_code check_tensor(belay_context *context, const bl_stage *stage, const bl_slot *slot)
{
    int64_t n_bytes = bl_slot_elements(slot) * belay_dtype_size((belay_dtype)slot->dtype);
    if (!bl_slot_is_contiguous(slot))
        return bl_context_raise(context, BELAY_SHAPE_CONTRACT, "what is reduced must be contiguous");
    if (!is_free(stage) && n_bytes > stage->n_bytes)
        return bl_context_raise(context, BELAY_SIZE_EXTENT,
                                "%" PRId64 " bytes were to be reduced by way of %" PRId64 " bytes of the host", n_bytes,
                                stage->n_bytes);
    return BELAY_OK;
}

/* Behind every part; what was forgotten is found by the proof. */
static belay_code wait_for_parts(belay_context *context, bl_stage *stage)
{
    for (int s = 0; s < BL_MAX_STREAMS; s++) {
        bl_event event = stage->filled[s];
        stage->filled[s].number = 0;
        if (context->streams[s].generation != stage->filled_by[s]) /* closed: that waited for its work */
            continue;
        TRY(bl_place_order(context, stage->line->stream, &event));
    }
    return BELAY_OK;
}

static belay_code prove(belay_context *context, const bl_slot *slot, bool writes)
{
    bl_report_fault f;
    bl_extent extent = bl_place_extent(slot);
    bl_race race = bl_place_race(context, slot->storage, &extent, writes);
    if (race.stream == BL_STREAM_NONE)
        return BELAY_OK;
    bl_report_fault_init(&f, BELAY_LIFE_STREAM);
    bl_place_describe_race(context, slot->storage, writes, &race, &f);
    return bl_context_fault(context, &f);
}

static belay_code raise_copy(belay_context *context, const bl_slot *slot, belay_code code)
{
    if (code == BELAY_PLACE_LOST)
        return bl_place_raise_lost(context, slot->storage->place);
    return bl_context_raise(context, code, "device %s has no memory for a copy", bl_slot_device(context, slot)->name);
}

/* The line is current. */
static belay_code copy(belay_context *context, bl_stage *stage, const bl_slot *slot, bool is_back)
{
    bl_storage *storage = slot->storage;
    bl_device *device = bl_slot_device(context, slot);
    const bl_stream *stream = &context->streams[stage->line->stream];
    bl_extent extent = bl_place_extent(slot);
    int64_t n_bytes = extent.end - extent.begin;
    if (n_bytes == 0)
        return BELAY_OK;
    belay_code code = is_back ? device->api->copy_in_later(device, stream->number, slot->data, stage->host, n_bytes)
                              : device->api->copy_out_later(device, stream->number, stage->host, slot->data, n_bytes);
    if (code != BELAY_OK)
        return raise_copy(context, slot, code);
    bl_place_put(context, storage->place);
    bl_place_note(context, storage, &extent, is_back, 0, bl_journal_site(context->journal, context->site));
    stage->last = stream->clock.upto[stage->line->stream];
    return BELAY_OK;
}

static belay_code copy_out(belay_context *context, bl_stage *stage, const bl_slot *slot)
{
    TRY(check_tensor(context, stage, slot));
    TRY(wait_for_parts(context, stage));
    TRY(prove(context, slot, false));
    return copy(context, stage, slot, false);
}

static void give_zeros(belay_context *context, bl_stage *stage, bl_work *work)
{
    wait_for_copies(context, stage);
    memset(stage->host, 0, (size_t)stage->n_bytes);
    work->ready = NULL;
}

belay_code bl_stage_out(belay_context *context, bl_stage *stage, belay_tensor tensor, bl_work *work)
{
    const bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return BELAY_LIFE_STALE;
    work->ready = NULL;
    work->ended_word = NULL;
    work->data = slot->data;
    if (is_free(stage))
        return check_tensor(context, stage, slot);
    const bl_stage_line *line = stage->line;
    work->data = stage->host;
    work->ended_word = &stage->ended;
    work->ended_value = ++stage->generation;
    int before = go_to(context, line);
    belay_code code = copy_out(context, stage, slot);
    go_back(context, line, before);
    stage->is_out = code == BELAY_OK;
    work->ready = &context->streams[line->stream].row->passed;
    work->ready_at = stage->last;
    if (code != BELAY_OK)
        give_zeros(context, stage, work);
    return code;
}

/* ---- back ------------------------------------------------------------------------------------------------------------ */

static belay_code copy_back(belay_context *context, bl_stage *stage, bl_slot *slot)
{
    TRY(check_tensor(context, stage, slot));
    TRY(prove(context, slot, true));
    TRY(bl_place_hold(context, stage->line->place, &stage->ended, stage->generation));
    stage->last = context->streams[stage->line->stream].clock.upto[stage->line->stream];
    slot->storage->version++;
    slot->storage->written = bl_journal_site(context->journal, context->site);
    return copy(context, stage, slot, true);
}

belay_code bl_stage_back(belay_context *context, bl_stage *stage, belay_tensor tensor)
{
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return BELAY_LIFE_STALE;
    if (is_free(stage) || !stage->is_out)
        return BELAY_OK;
    stage->is_out = false;
    int before = go_to(context, stage->line);
    belay_code code = copy_back(context, stage, slot);
    go_back(context, stage->line, before);
    return code;
}

belay_code bl_stage_hold(belay_context *context, bl_stage *stage, bl_work *work)
{
    work->ended_word = &stage->ended;
    work->ended_value = ++stage->generation;
    if (is_free(stage))
        return BELAY_OK;
    int before = go_to(context, stage->line);
    belay_code code = bl_place_hold(context, stage->line->place, &stage->ended, stage->generation);
    stage->last = context->streams[stage->line->stream].clock.upto[stage->line->stream];
    go_back(context, stage->line, before);
    return code;
}

belay_code bl_stage_join(belay_context *context, const bl_stage_line *line)
{
    if (line->stream == BL_STREAM_NONE)
        return BELAY_OK;
    const bl_stream *stream = &context->streams[line->stream];
    bl_event event = {.stream = line->stream, .number = stream->clock.upto[line->stream], .clock = stream->clock};
    return bl_place_order(context, context->places[line->place].stream, &event);
}

/* ---- words that kernels write ---------------------------------------------------------------------------------------- */

void bl_stage_behind(belay_context *context, int place, bl_work *work)
{
    bl_device *device = context->places[place].device;
    work->ready = NULL;
    if (device->api->synchronous)
        return;
    bl_place_gather(context, place);
    const bl_stream *stream = bl_place_stream(context, place);
    work->ready = &stream->row->passed;
    work->ready_at = device->api->stream_put(device, stream->number);
}

void bl_stage_reach(belay_context *context, const bl_work *work)
{
    const struct timespec nap = {.tv_nsec = 20000};
    while (work->ready != NULL && !bl_work_is_over(work) &&
           __atomic_load_n(work->ready, __ATOMIC_ACQUIRE) < work->ready_at) {
        bl_place_poll(context);
        (void)nanosleep(&nap, NULL);
    }
}
