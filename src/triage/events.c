/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "triage/events.h"

/* One (signal, file, rank): the first events, and the last in a place of its own. */
typedef struct bucket {
    int signal, file, rank;
    int64_t n_seen;
    bl_event *last;
} bucket;

typedef struct block { /* texts live in blocks that never move */
    struct block *before;
    int64_t n_bytes, capacity;
    alignas(8) char bytes[];
} block;

struct bl_events {
    bl_event **event; /* each its own allocation: pointers stay */
    int64_t n_events, events_capacity;
    bucket *buckets; /* open addressing; n_seen 0: empty */
    int64_t n_buckets, buckets_capacity;
    block *texts;
    int64_t n_text_bytes;
    bl_event *first[BL_N_SIGNALS], *end[BL_N_SIGNALS];
    int64_t count[BL_N_SIGNALS];
    int64_t *first_failure; /* of each file, its line; INT64_MAX: none */
    int n_files;
    bool is_sealed, lacks_memory;
};

bl_events *bl_events_new(void) { return bl_alloc(1, sizeof(bl_events)); }

void bl_events_free(bl_events *events)
{
    if (events == NULL)
        return;
    for (int64_t i = 0; i < events->n_events; i++)
        bl_free(events->event[i]);
    for (block *b = events->texts, *before; b != NULL; b = before) {
        before = b->before;
        bl_free(b);
    }
    bl_free(events->event);
    bl_free(events->first_failure);
    bl_free(events->buckets);
    bl_free(events);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* An event is kept whole or not at all, with all of its facts: whoever looks for one that its pattern demands finds it.
 * So lines take no room behind BL_EVENTS_BYTES, what follows from them none behind the rest, and one event always fits
 * between. */
#define BYTES_OF_ALL (BL_EVENTS_BYTES + BL_EVENTS_BYTES / 4)
enum { BYTES_OF_ONE = 65536 };
_Static_assert(BL_EVENT_TEXT + BL_EVENT_FACTS * (256 + 8 + 4 * (int)sizeof(bl_fact)) < BYTES_OF_ONE, "one event fits");

/* Room that is never moved; NULL: there is none left.  Whole words of 8 bytes, so that facts fit too. */
static void *keep(bl_events *events, int64_t n_wanted)
{
    enum { BLOCK = 65536 };
    block *b = events->texts;
    int64_t n_bytes = (n_wanted + 7) / 8 * 8;
    if (events->n_text_bytes + n_bytes > BYTES_OF_ALL)
        return NULL;
    if (b == NULL || b->capacity - b->n_bytes < n_bytes) {
        int64_t capacity = n_bytes > BLOCK ? n_bytes : BLOCK;
        b = bl_alloc(1, (int64_t)sizeof(block) + capacity);
        if (b == NULL) {
            events->lacks_memory = true;
            return NULL;
        }
        *b = (block){.before = events->texts, .capacity = capacity};
        events->texts = b;
    }
    void *to = b->bytes + b->n_bytes;
    b->n_bytes += n_bytes;
    events->n_text_bytes += n_bytes;
    return to;
}

static const char *keep_text(bl_events *events, const char *bytes, int64_t n_bytes)
{
    char *to = keep(events, n_bytes + 1);
    if (to == NULL)
        return "";
    memcpy(to, bytes, (size_t)n_bytes);
    to[n_bytes] = '\0';
    return to;
}

/* ---- buckets ------------------------------------------------------------------------------------------------------ */

static uint64_t hash(int signal, int file, int rank)
{
    uint64_t h = (uint64_t)signal * 1000003u + (uint64_t)(file + 1);
    h = h * 1000003u + (uint64_t)(rank + 1);
    return h ^ (h >> 29);
}

static bucket *place_of(bucket *buckets, int64_t capacity, int signal, int file, int rank)
{
    for (uint64_t i = hash(signal, file, rank);; i++) {
        bucket *b = &buckets[i & (uint64_t)(capacity - 1)];
        if (b->n_seen == 0 || (b->signal == signal && b->file == file && b->rank == rank))
            return b;
    }
}

static bool grow_buckets(bl_events *events)
{
    int64_t capacity = events->buckets_capacity == 0 ? 256 : 2 * events->buckets_capacity;
    bucket *grown = bl_alloc(capacity, sizeof(bucket));
    if (grown == NULL)
        return false;
    for (int64_t i = 0; i < events->buckets_capacity; i++) {
        const bucket *old = &events->buckets[i];
        if (old->n_seen > 0)
            *place_of(grown, capacity, old->signal, old->file, old->rank) = *old;
    }
    bl_free(events->buckets);
    events->buckets = grown;
    events->buckets_capacity = capacity;
    return true;
}

static bucket *bucket_of(bl_events *events, int signal, int file, int rank)
{
    if (2 * events->n_buckets >= events->buckets_capacity && !grow_buckets(events))
        return NULL;
    bucket *b = place_of(events->buckets, events->buckets_capacity, signal, file, rank);
    if (b->n_seen == 0) {
        *b = (bucket){.signal = signal, .file = file, .rank = rank};
        events->n_buckets++;
    }
    return b;
}

/* ---- adding ------------------------------------------------------------------------------------------------------- */

static bl_event *new_event(bl_events *events, int64_t most)
{
    if (events->n_events >= most ||
        !bl_grow(&events->event, &events->events_capacity, events->n_events + 1, sizeof(bl_event *)))
        return NULL;
    bl_event *event = bl_alloc(1, sizeof(bl_event));
    if (event != NULL)
        events->event[events->n_events++] = event;
    return event;
}

bl_event *bl_events_add(bl_events *events, bl_signal signal, const bl_line *line, int64_t time, int segment)
{
    bucket *b = bucket_of(events, (int)signal, line->file, line->rank);
    if (b == NULL) {
        events->lacks_memory = true;
        return NULL;
    }
    events->count[signal]++;
    b->n_seen++;
    if (events->n_text_bytes > BL_EVENTS_BYTES)
        return NULL;
    bl_event *event = b->n_seen <= BL_EVENTS_KEPT ? new_event(events, BL_EVENTS_MOST) : b->last;
    if (event == NULL) {
        events->lacks_memory = events->lacks_memory || events->n_events < BL_EVENTS_MOST;
        return NULL;
    }
    *event = (bl_event){.signal = signal,
                        .file = line->file,
                        .line = line->number,
                        .rank = line->rank,
                        .pid = line->pid,
                        .segment = segment,
                        .time = time,
                        .has_own_time = line->time_kind == BL_TIME_WALL,
                        .time_has_zone = line->time_has_zone,
                        .said_rank = line->said_rank,
                        .device = line->device,
                        .n_like = b->n_seen - 1};
    event->text = keep_text(events, line->text, line->n_text < BL_EVENT_TEXT ? line->n_text : BL_EVENT_TEXT);
    b->last = event;
    return event;
}

static void link_in(bl_events *events, bl_event *event)
{
    bl_event **slot =
        events->first[event->signal] == NULL ? &events->first[event->signal] : &events->end[event->signal]->next;
    *slot = event;
    events->end[event->signal] = event;
}

bl_event *bl_events_derive(bl_events *events, bl_signal signal, const bl_event *base)
{
    /* What follows from many lines still has room when the lines took all of theirs. */
    const int64_t most = BL_EVENTS_MOST + BL_EVENTS_MOST / 4;
    if (events->n_text_bytes > BYTES_OF_ALL - BYTES_OF_ONE)
        return NULL;
    bl_event *event = new_event(events, most);
    if (event == NULL) {
        events->lacks_memory = events->lacks_memory || events->n_events < most;
        return NULL;
    }
    const bl_event nothing = {
        .file = -1, .rank = -1, .time = BL_NO_TIME, .said_rank = -1, .device = -1, .pid = -1, .text = ""};
    *event = base != NULL ? *base : nothing;
    event->signal = signal;
    event->next = NULL;
    event->n_like = 0;
    event->facts_room = 0; /* they are the base's: adding one copies them */
    events->count[signal]++;
    link_in(events, event);
    return event;
}

bl_event *bl_events_derive_bare(bl_events *events, bl_signal signal, const bl_event *base)
{
    bl_event *event = bl_events_derive(events, signal, base);
    if (event != NULL)
        event->n_facts = 0;
    return event;
}

bl_event *bl_events_derive_for(bl_events *events, bl_signal signal, const bl_event *base, int rank)
{
    bl_event *event = bl_events_derive_bare(events, signal, base);
    if (event != NULL)
        event->rank = rank;
    return event;
}

static bool has_room_for_fact(bl_events *events, bl_event *event)
{
    if (event->n_facts < event->facts_room)
        return true;
    int room = event->n_facts < 6 ? 6 : 2 * event->n_facts;
    bl_fact *facts = keep(events, (int64_t)sizeof(bl_fact) * room);
    if (facts == NULL)
        return false;
    if (event->n_facts > 0)
        memcpy(facts, event->facts, (size_t)event->n_facts * sizeof(bl_fact));
    event->facts = facts;
    event->facts_room = room;
    return true;
}

void bl_event_fact(bl_events *events, bl_event *event, const char *name, const char *value, int64_t n_bytes)
{
    enum { MOST = 256 };
    if (event == NULL || event->n_facts == BL_EVENT_FACTS || !has_room_for_fact(events, event))
        return;
    const char *kept = keep_text(events, value, n_bytes < MOST ? n_bytes : MOST);
    event->facts[event->n_facts++] = (bl_fact){.name = name, .value = kept, .rank = -1};
}

void bl_event_fact_of(bl_events *events, bl_event *event, const char *name, int rank, const char *format, ...)
{
    char value[256];
    va_list arguments;
    if (event == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    int before = event->n_facts;
    bl_event_fact(events, event, name, value, (int64_t)strlen(value));
    if (event->n_facts > before)
        event->facts[before].rank = rank;
}

const char *bl_events_text(bl_events *events, const char *text)
{
    return keep_text(events, text, (int64_t)strlen(text));
}

bool bl_events_lack_memory(const bl_events *events) { return events->lacks_memory; }

void bl_events_note_no_memory(bl_events *events) { events->lacks_memory = true; }

/* ---- order --------------------------------------------------------------------------------------------------------- */

static int compare(const bl_event *a, const bl_event *b)
{
    bool timed = a->time != BL_NO_TIME && b->time != BL_NO_TIME && a->file != b->file;
    if (timed && a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return (int)a->signal - (int)b->signal;
}

bool bl_event_before(const bl_event *a, const bl_event *b) { return compare(a, b) < 0; }

/* A total order for the sort: whoever has a time comes by it, the others after. */
static int compare_for_sort(const void *left, const void *right)
{
    const bl_event *a = *(bl_event *const *)left, *b = *(bl_event *const *)right;
    int64_t time_a = a->time == BL_NO_TIME ? INT64_MAX : a->time, time_b = b->time == BL_NO_TIME ? INT64_MAX : b->time;
    if (time_a != time_b)
        return time_a < time_b ? -1 : 1;
    return compare(a, b);
}

void bl_events_name_file(bl_events *events, int file, int rank)
{
    for (int64_t i = 0; i < events->n_events; i++)
        if (events->event[i]->file == file && events->event[i]->rank < 0)
            events->event[i]->rank = rank;
}

void bl_events_name_pid(bl_events *events, int64_t pid, int rank)
{
    for (int64_t i = 0; i < events->n_events; i++)
        if (events->event[i]->pid == pid && events->event[i]->rank < 0)
            events->event[i]->rank = rank;
}

void bl_events_take_back(bl_events *events, int file, int64_t first, int64_t last)
{
    for (int64_t i = 0; i < events->n_events; i++) {
        bl_event *event = events->event[i];
        bl_role role = bl_signals[event->signal].role;
        bool is_failure = role == BL_ROLE_FAULT || role == BL_ROLE_ECHO || role == BL_ROLE_END;
        if (!is_failure || event->file != file || event->line < first || event->line > last)
            continue;
        events->count[event->signal]--;
        event->signal = BL_SIGNAL_quoted_failure;
        events->count[event->signal]++;
    }
}

static void note_first_failures(bl_events *events)
{
    for (int64_t i = 0; i < events->n_events; i++)
        events->n_files = events->event[i]->file >= events->n_files ? events->event[i]->file + 1 : events->n_files;
    events->first_failure = bl_alloc(events->n_files, sizeof *events->first_failure);
    if (events->first_failure == NULL) {
        events->lacks_memory = true;
        events->n_files = 0;
    }
    for (int file = 0; file < events->n_files; file++)
        events->first_failure[file] = INT64_MAX;
    for (int64_t i = 0; i < events->n_events; i++) {
        const bl_event *event = events->event[i];
        bl_role role = bl_signals[event->signal].role;
        bool is_failure = (role == BL_ROLE_FAULT || role == BL_ROLE_ECHO) && event->file >= 0 && events->n_files > 0;
        if (is_failure && event->line < events->first_failure[event->file])
            events->first_failure[event->file] = event->line;
    }
}

int64_t bl_events_first_failure(const bl_events *events, int file)
{
    return file >= 0 && file < events->n_files ? events->first_failure[file] : INT64_MAX;
}

void bl_events_seal(bl_events *events)
{
    note_first_failures(events);
    if (events->n_events > 1)
        qsort(events->event, (size_t)events->n_events, sizeof(bl_event *), compare_for_sort);
    for (int64_t i = 0; i < events->n_events; i++)
        link_in(events, events->event[i]);
    events->is_sealed = true;
}

bl_event *bl_events_first(const bl_events *events, bl_signal signal) { return events->first[signal]; }

int64_t bl_events_count(const bl_events *events, bl_signal signal) { return events->count[signal]; }

int64_t bl_events_n(const bl_events *events) { return events->n_events; }

bl_event *bl_events_at(const bl_events *events, int64_t i) { return events->event[i]; }

/* ---- facts --------------------------------------------------------------------------------------------------------- */

const char *bl_event_get(const bl_event *event, const char *name)
{
    for (int i = 0; i < event->n_facts; i++)
        if (strcmp(event->facts[i].name, name) == 0)
            return event->facts[i].value;
    return NULL;
}

bool bl_event_number(const bl_event *event, const char *name, int64_t *out)
{
    const char *text = bl_event_get(event, name);
    char *end = NULL;
    if (text == NULL || *text == '\0')
        return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *out = value;
    return true;
}
