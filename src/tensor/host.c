/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/host.h"

#include <belay/devices.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "tensor/lease.h"
#include "tensor/loan.h"
#include "tensor/place.h"

/* Bytes that share a sum: a change is found to so many. */
enum { PIECE = 256 };

typedef struct host_memory {
    uint32_t generation; /* of its handle; grows when it is freed */
    bool is_alive;
    char *data; /* NULL: none; of a freed one, while a copy may use it */
    int64_t n_bytes;
    bl_uses uses;
} host_memory;

/* A copy that the host has not waited for. */
typedef struct copy {
    uint32_t memory;
    int stream;
    uint64_t number;
    bl_extent extent; /* of the memory */
    bool is_in;       /* to the device: the memory is read */
    uintptr_t site;
    uint32_t tensor; /* its name */
    uint64_t *sums;  /* one a piece; NULL: the copy writes, or there was no memory for them */
} copy;

struct bl_hosts {
    host_memory **memory; /* by slot, from 1 */
    int64_t n, capacity;
    copy *copies; /* the oldest first */
    int64_t n_copies, copies_capacity;
};

/* ---- sums ------------------------------------------------------------------------------------------------------------ */

static uint64_t sum_of(const char *data, int64_t n_bytes)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < n_bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, data + i, (size_t)bl_min_i64(8, n_bytes - i));
        sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        sum ^= sum >> 29;
    }
    return sum;
}

static int64_t n_pieces(const bl_extent *extent) { return (extent->end - extent->begin + PIECE - 1) / PIECE; }

static uint64_t sum_of_piece(const host_memory *m, const bl_extent *extent, int64_t piece)
{
    int64_t begin = extent->begin + piece * PIECE;
    return sum_of(m->data + begin, bl_min_i64(PIECE, extent->end - begin));
}

static uint64_t *sums_new(const host_memory *m, const bl_extent *extent)
{
    uint64_t *sums = bl_alloc(bl_max_i64(n_pieces(extent), 1), sizeof *sums);
    for (int64_t i = 0; sums != NULL && i < n_pieces(extent); i++)
        sums[i] = sum_of_piece(m, extent, i);
    return sums;
}

/* The first piece that is not what it was; -1: all are. */
static int64_t changed_piece(const host_memory *m, const copy *c)
{
    for (int64_t i = 0; c->sums != NULL && i < n_pieces(&c->extent); i++)
        if (sum_of_piece(m, &c->extent, i) != c->sums[i])
            return i;
    return -1;
}

/* ---- telling --------------------------------------------------------------------------------------------------------- */

static const char *name_of(const belay_context *context, const copy *c)
{
    const char *name = bl_journal_text_get(context->journal, c->tensor);
    return name[0] != '\0' ? name : "a tensor";
}

static void tell_change(belay_context *context, const host_memory *m, const copy *c, int64_t piece)
{
    bl_report_fault f;
    int64_t begin = c->extent.begin + piece * PIECE;
    bl_report_fault_init(&f, BELAY_LIFE_HOST);
    snprintf(f.what, sizeof f.what,
             "host memory of %" PRId64 " bytes was changed while its copy to %.120s might still be reading it",
             m->n_bytes, name_of(context, c));
    bl_report_fault_fact(&f,
                         "copied: bytes [%" PRId64 ", %" PRId64 "); first changed: of bytes [%" PRId64 ", %" PRId64 ")",
                         c->extent.begin, c->extent.end, begin, bl_min_i64(begin + PIECE, c->extent.end));
    bl_context_site_tell(context, c->site, &f);
    bl_place_describe_stream(context, c->stream, f.stream, sizeof f.stream);
    if (context->site != 0 && context->site != c->site)
        bl_context_site(context, context->site, f.surfaced, sizeof f.surfaced);
    bl_context_fault(context, &f);
}

static void tell_freed(belay_context *context, const host_memory *m, const copy *c)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_LIFE_HOST);
    snprintf(f.what, sizeof f.what,
             "host memory of %" PRId64 " bytes was freed while its copy %s %.120s might still be %s it", m->n_bytes,
             c->is_in ? "to" : "from", name_of(context, c), c->is_in ? "reading" : "writing");
    bl_report_fault_fact(&f, "copied: bytes [%" PRId64 ", %" PRId64 "); the memory stays until the copy has ended",
                         c->extent.begin, c->extent.end);
    snprintf(f.other_words, sizeof f.other_words, "copied at");
    bl_context_site(context, c->site, f.other_site, sizeof f.other_site);
    bl_place_describe_stream(context, c->stream, f.other_stream, sizeof f.other_stream);
    bl_context_fault(context, &f);
}

/* ---- copies that have ended ------------------------------------------------------------------------------------------ */

static bool has_ended(const belay_context *context, const copy *c)
{
    return !context->streams[c->stream].is_open || bl_clock_is_behind(&context->host_clock, c->stream, c->number);
}

static void forget_copy(struct bl_hosts *h, int64_t i)
{
    bl_free(h->copies[i].sums);
    memmove(&h->copies[i], &h->copies[i + 1], (size_t)(h->n_copies - i - 1) * sizeof *h->copies);
    h->n_copies--;
}

static bool is_in_use(const struct bl_hosts *h, uint32_t memory)
{
    for (int64_t i = 0; i < h->n_copies; i++)
        if (h->copies[i].memory == memory)
            return true;
    return false;
}

static void release_if_done(struct bl_hosts *h, uint32_t memory)
{
    host_memory *m = h->memory[memory];
    if (m->is_alive || is_in_use(h, memory))
        return;
    bl_free(m->data);
    m->data = NULL;
}

void bl_host_look(belay_context *context)
{
    struct bl_hosts *h = context->hosts;
    for (int64_t i = 0; h != NULL && i < h->n_copies;) {
        copy c = h->copies[i];
        if (!has_ended(context, &c)) {
            i++;
            continue;
        }
        const host_memory *m = h->memory[c.memory];
        int64_t piece = m->is_alive ? changed_piece(m, &c) : -1;
        h->copies[i].sums = NULL;
        forget_copy(h, i);
        if (piece >= 0)
            tell_change(context, m, &c, piece);
        bl_free(c.sums);
        release_if_done(h, c.memory);
    }
}

void bl_host_forget_stream(belay_context *context, int stream)
{
    for (int64_t i = 1; context->hosts != NULL && i < context->hosts->n; i++)
        bl_uses_forget(&context->hosts->memory[i]->uses, stream);
}

void bl_host_close(belay_context *context)
{
    struct bl_hosts *h = context->hosts;
    if (h == NULL)
        return;
    while (h->n_copies > 0)
        forget_copy(h, h->n_copies - 1);
    for (int64_t i = 1; i < h->n; i++) {
        bl_free(h->memory[i]->data);
        bl_free(h->memory[i]);
    }
    bl_free(h->memory);
    bl_free(h->copies);
    bl_free(h);
    context->hosts = NULL;
}

/* ---- handles --------------------------------------------------------------------------------------------------------- */

static host_memory *find(const belay_context *context, belay_host handle)
{
    const struct bl_hosts *h = context->hosts;
    if (h == NULL || handle.slot == 0 || (int64_t)handle.slot >= h->n)
        return NULL;
    host_memory *m = h->memory[handle.slot];
    return m->is_alive && m->generation == handle.generation ? m : NULL;
}

/* NULL after life.stale. */
static host_memory *use(belay_context *context, belay_host handle)
{
    host_memory *m = handle.context == context->number ? find(context, handle) : NULL;
    if (m == NULL)
        bl_context_raise(context, BELAY_LIFE_STALE, "host memory was used that %s",
                         handle.context == 0                 ? "is nil"
                         : handle.context == context->number ? "has been freed"
                                                             : "belongs to another context");
    return m;
}

/* A slot whose memory is gone, or a new one; 0: there is no memory for it. */
static uint32_t slot_take(belay_context *context)
{
    if (context->hosts == NULL)
        context->hosts = bl_alloc(1, sizeof *context->hosts);
    struct bl_hosts *h = context->hosts;
    if (h == NULL)
        return 0;
    h->n = bl_max_i64(h->n, 1);
    for (int64_t i = 1; i < h->n; i++)
        if (h->memory[i]->data == NULL && h->memory[i]->generation != UINT32_MAX)
            return (uint32_t)i;
    if (h->n == UINT32_MAX || !bl_grow(&h->memory, &h->capacity, h->n + 1, sizeof(host_memory *)))
        return 0;
    h->memory[h->n] = bl_alloc(1, sizeof **h->memory);
    return h->memory[h->n] != NULL ? (uint32_t)h->n++ : 0;
}

belay_host belay_host_new(belay_context *context, int64_t n_bytes)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return (belay_host){0};
    if (n_bytes < 0) {
        bl_context_raise(context, BELAY_CONF_VALUE, "host memory of %" PRId64 " bytes was asked for", n_bytes);
        return (belay_host){0};
    }
    uint32_t slot = slot_take(context);
    char *data = slot != 0 ? bl_alloc_aligned(bl_max_i64(n_bytes, 1), 64) : NULL;
    if (data == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for %" PRId64 " bytes of the host", n_bytes);
        return (belay_host){0};
    }
    memset(data, 0, (size_t)n_bytes);
    host_memory *m = context->hosts->memory[slot];
    *m = (host_memory){.generation = m->generation + 1, .is_alive = true, .data = data, .n_bytes = n_bytes};
    return (belay_host){context->number, slot, m->generation};
}

void *belay_host_data(belay_host handle)
{
    belay_context *context = bl_context_find(handle.context);
    BL_ENTER(context);
    if (context == NULL)
        return NULL;
    host_memory *m = use(context, handle);
    return m != NULL ? m->data : NULL;
}

int64_t belay_host_n_bytes(belay_host handle)
{
    belay_context *context = bl_context_find(handle.context);
    const host_memory *m = BL_ASK(context) ? find(context, handle) : NULL;
    return m != NULL ? m->n_bytes : 0;
}

void belay_host_free(belay_host handle)
{
    belay_context *context = bl_context_find(handle.context);
    BL_ENTER(context);
    if (context == NULL)
        return;
    host_memory *m = use(context, handle);
    if (m == NULL)
        return;
    struct bl_hosts *h = context->hosts;
    bl_host_look(context);
    for (int64_t i = 0; i < h->n_copies; i++)
        if (h->copies[i].memory == handle.slot) {
            tell_freed(context, m, &h->copies[i]);
            break;
        }
    m->is_alive = false;
    release_if_done(h, handle.slot);
}

/* ---- copies ---------------------------------------------------------------------------------------------------------- */

typedef struct request {
    belay_context *context;
    const bl_slot *slot;
    host_memory *memory;
    uint32_t memory_slot;
    bl_extent extent; /* of the memory */
    bool is_in;
} request;

static belay_code check_extent(const request *r, int64_t offset, int64_t n_bytes)
{
    int64_t wanted = bl_slot_elements(r->slot) * belay_dtype_size((belay_dtype)r->slot->dtype), end;
    if (n_bytes != wanted)
        return bl_context_raise(r->context, BELAY_SHAPE_CONTRACT,
                                "%" PRId64 " bytes were to be copied %s a tensor of %" PRId64 " bytes", n_bytes,
                                r->is_in ? "to" : "from", wanted);
    if (!bl_slot_is_contiguous(r->slot))
        return bl_context_raise(r->context, BELAY_SHAPE_CONTRACT,
                                "a tensor that is copied without a wait must be contiguous");
    if (offset < 0 || !bl_checked_add(offset, n_bytes, &end) || end > r->memory->n_bytes)
        return bl_context_raise(r->context, BELAY_SIZE_EXTENT,
                                "%" PRId64 " bytes from offset %" PRId64 " on reach past host memory of %" PRId64
                                " bytes",
                                n_bytes, offset, r->memory->n_bytes);
    return BELAY_OK;
}

/* No other stream uses the tensor, or the memory, without an order. */
static belay_code check_order(const request *r)
{
    belay_context *context = r->context;
    int place = r->slot->storage->place, here = context->places[place].stream;
    if (r->is_in && bl_loan_is_read_only(r->slot->storage->loan))
        return bl_loan_refuse_write(context, r->slot);
    bl_extent of_tensor = bl_place_extent(r->slot);
    bl_report_fault f;
    bl_race race = bl_place_race(context, r->slot->storage, &of_tensor, r->is_in);
    bl_report_fault_init(&f, BELAY_LIFE_STREAM);
    if (race.stream != BL_STREAM_NONE) {
        bl_place_describe_race(context, r->slot->storage, r->is_in, &race, &f);
        return bl_context_fault(context, &f);
    }
    bl_place_begin(context, place);
    int at = bl_uses_conflict(&r->memory->uses, 0, &context->streams[here].clock, &r->extent, !r->is_in);
    if (at < 0)
        return BELAY_OK;
    const bl_use *use = &r->memory->uses.use[at];
    char words[64];
    snprintf(words, sizeof words, "host memory of %" PRId64 " bytes", r->memory->n_bytes);
    race = (bl_race){use->stream, use->is_write, use};
    bl_place_describe_uses(context, words, here, !r->is_in, &race, &f);
    return bl_context_fault(context, &f);
}

static belay_code put(const request *r)
{
    bl_device *device = bl_slot_device(r->context, r->slot);
    int stream = bl_place_stream(r->context, r->slot->storage->place)->number;
    void *host = r->memory->data + r->extent.begin;
    int64_t n_bytes = r->extent.end - r->extent.begin;
    belay_code code = r->is_in ? device->api->copy_in_later(device, stream, r->slot->data, host, n_bytes)
                               : device->api->copy_out_later(device, stream, host, r->slot->data, n_bytes);
    if (code == BELAY_PLACE_LOST)
        return bl_place_raise_lost(r->context, r->slot->storage->place);
    if (code != BELAY_OK)
        return bl_context_raise(r->context, code, "device %s has no memory for a copy", device->name);
    return BELAY_OK;
}

/* Remembers the copy; there is room. */
static void note(const request *r, uint64_t *sums)
{
    belay_context *context = r->context;
    bl_storage *storage = r->slot->storage;
    int number = context->places[storage->place].stream;
    uint32_t site = bl_journal_site(context->journal, context->site);
    bl_extent of_tensor = bl_place_extent(r->slot);
    bl_place_put(context, storage->place);
    bl_place_note(context, storage, &of_tensor, r->is_in, 0, site);
    bl_use used = {.extent = r->extent,
                   .number = context->streams[number].clock.upto[number],
                   .site = site,
                   .stream = (int16_t)number,
                   .is_write = !r->is_in};
    bl_uses_note(&r->memory->uses, &used, &context->host_clock);
    struct bl_hosts *h = context->hosts;
    h->copies[h->n_copies++] = (copy){.memory = r->memory_slot,
                                      .stream = number,
                                      .number = used.number,
                                      .extent = r->extent,
                                      .is_in = r->is_in,
                                      .site = context->site,
                                      .tensor = r->slot->name,
                                      .sums = sums};
}

static bool overlap(const copy *c, const request *r)
{
    return c->memory == r->memory_slot && c->extent.begin < r->extent.end && r->extent.begin < c->extent.end;
}

/* A copy of ours that is still to write these bytes: they are not what will be read. */
static bool is_to_be_written(const request *r)
{
    const struct bl_hosts *h = r->context->hosts;
    for (int64_t i = 0; i < h->n_copies; i++)
        if (!h->copies[i].is_in && overlap(&h->copies[i], r))
            return true;
    return false;
}

/* Before a copy writes bytes that earlier ones read: what they are is looked at for the last time. */
static void look_before_writing(const request *r)
{
    struct bl_hosts *h = r->context->hosts;
    for (int64_t i = 0; i < h->n_copies; i++) {
        copy *c = &h->copies[i];
        if (c->sums == NULL || !overlap(c, r))
            continue;
        int64_t piece = changed_piece(r->memory, c);
        bl_free(c->sums);
        c->sums = NULL;
        if (piece >= 0)
            tell_change(r->context, r->memory, c, piece);
    }
}

static belay_code copy_later(const request *r)
{
    belay_context *context = r->context;
    struct bl_hosts *h = context->hosts;
    TRY(check_order(r));
    if (!bl_grow(&h->copies, &h->copies_capacity, h->n_copies + 1, sizeof *h->copies))
        return bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to remember a copy by");
    bool is_asynchronous = bl_place_is_asynchronous(context, r->slot->storage->place);
    uint64_t *sums = r->is_in && is_asynchronous && !is_to_be_written(r) ? sums_new(r->memory, &r->extent) : NULL;
    if (!r->is_in)
        look_before_writing(r);
    belay_code code = r->extent.begin < r->extent.end ? put(r) : BELAY_OK;
    if (code != BELAY_OK || !is_asynchronous || r->extent.begin == r->extent.end)
        bl_free(sums);
    else
        note(r, sums);
    return code;
}

static belay_code request_copy(belay_context *context, belay_tensor tensor, belay_host host, int64_t offset,
                               int64_t n_bytes, bool is_in)
{
    request r = {.context = context, .slot = bl_slot_use(context, tensor), .memory_slot = host.slot, .is_in = is_in};
    if (r.slot == NULL)
        return BELAY_LIFE_STALE;
    r.memory = use(context, host);
    if (r.memory == NULL)
        return BELAY_LIFE_STALE;
    TRY(check_extent(&r, offset, n_bytes));
    r.extent = (bl_extent){offset, offset + n_bytes};
    if (!bl_lease_permits(context, r.slot, is_in, "the host"))
        return BELAY_LIFE_BUCKET;
    if (is_in) {
        r.slot->storage->version++;
        r.slot->storage->written = bl_journal_site(context->journal, context->site);
    }
    return copy_later(&r);
}

belay_code belay_tensor_write_later(belay_tensor tensor, belay_host host, int64_t offset, int64_t n_bytes)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    return context != NULL ? request_copy(context, tensor, host, offset, n_bytes, true)
                           : bl_caller_code(BELAY_LIFE_STALE);
}

belay_code belay_tensor_read_later(belay_tensor tensor, belay_host host, int64_t offset, int64_t n_bytes)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    return context != NULL ? request_copy(context, tensor, host, offset, n_bytes, false)
                           : bl_caller_code(BELAY_LIFE_STALE);
}
