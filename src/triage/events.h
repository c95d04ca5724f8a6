/* SPDX-License-Identifier: Apache-2.0 */
/* Events: the signals that were seen, where, by whom and when, with the facts that they carried.  Bounded: of each
 * (signal, file, rank) the first BL_EVENTS_KEPT - 1 are kept and the last one, the others are counted; of all texts at
 * most BL_EVENTS_BYTES are kept. */
#ifndef BL_TRIAGE_EVENTS_H
#define BL_TRIAGE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"
#include "triage/line.h"
#include "triage/signal.h"

enum { BL_EVENTS_KEPT = 64, BL_EVENT_FACTS = 64, BL_EVENT_TEXT = 400 };
#define BL_EVENTS_MOST  INT64_C(50000)
#define BL_EVENTS_BYTES INT64_C(16777216)

typedef struct bl_fact {
    const char *name;  /* of a constant, or of the events' memory */
    const char *value; /* of the events' memory */
    int rank;          /* whose value it is; -1: of the whole */
} bl_fact;

typedef struct bl_event {
    bl_signal signal;
    int file;     /* number of the input; -1: no line (derived from several) */
    int64_t line; /* from 1 */
    int rank;     /* -1: not known */
    int segment;  /* number of the command in a recorded session, from 0 */
    int64_t time; /* microseconds since 1970, of the line or of the nearest before it; BL_NO_TIME: none */
    bool has_own_time;
    bool time_has_zone;
    int said_rank;    /* within the text, "[Rank 3]"; -1.  In a process group of its own it may count otherwise */
    int device;       /* of NCCL's "host:pid:tid [3]"; -1 */
    int64_t pid;      /* of NCCL, Ray and syslog lines; -1 */
    const char *text; /* the line as it stands after its prefixes, cut */
    int n_facts, facts_room;
    bl_fact *facts;        /* of the events' memory */
    int64_t n_like;        /* events of this bucket up to this one that were not kept */
    struct bl_event *next; /* of the same signal, in order; valid after bl_events_seal */
} bl_event;

#define BL_NO_TIME INT64_MIN

typedef struct bl_events bl_events;

bl_events *bl_events_new(void);
void bl_events_free(bl_events *events);

/* Notes that the line shows the signal.  NULL: it was only counted (`lacks_memory` tells why). */
bl_event *bl_events_add(bl_events *events, bl_signal signal, const bl_line *line, int64_t time, int segment);
/* A derived event that stands on `base` (its place, rank and time); NULL without memory. */
bl_event *bl_events_derive(bl_events *events, bl_signal signal, const bl_event *base);
/* The same without the facts of its base; _for: and of this rank, -1 for none. */
bl_event *bl_events_derive_bare(bl_events *events, bl_signal signal, const bl_event *base);
bl_event *bl_events_derive_for(bl_events *events, bl_signal signal, const bl_event *base, int rank);
/* Adds a fact; what does not fit is left out.  `name` must outlive the events. */
void bl_event_fact(bl_events *events, bl_event *event, const char *name, const char *value, int64_t n_bytes);
void bl_event_fact_of(bl_events *events, bl_event *event, const char *name, int rank, const char *format, ...)
    BL_PRINTF(5, 6);
/* Keeps a text as long as the events; "" where there is no room. */
const char *bl_events_text(bl_events *events, const char *text);
bool bl_events_lack_memory(const bl_events *events);
/* For who looks at the events and has no memory to do so. */
void bl_events_note_no_memory(bl_events *events);

/* The file is this rank's log: its events that had none get it.  Before sealing. */
void bl_events_name_file(bl_events *events, int file, int rank);

/* Process `pid` was this rank: its events that had none get it.  Before sealing. */
void bl_events_name_pid(bl_events *events, int64_t pid, int rank);

/* The failures of these lines of a file were none: they become quoted_failure, which no rule needs.  Before sealing. */
void bl_events_take_back(bl_events *events, int file, int64_t first, int64_t last);

/* Puts the events in order: by time where known, then file and line.  From now on events are found. */
void bl_events_seal(bl_events *events);

/* The first event of a signal, NULL for none; then event->next. */
bl_event *bl_events_first(const bl_events *events, bl_signal signal);
/* The line of the first failure in a file, a fault or an echo; INT64_MAX for none. */
int64_t bl_events_first_failure(const bl_events *events, int file);
/* How often it was seen, kept or not. */
int64_t bl_events_count(const bl_events *events, bl_signal signal);
/* All events in order: 0 .. n - 1 (derived ones last). */
int64_t bl_events_n(const bl_events *events);
bl_event *bl_events_at(const bl_events *events, int64_t i);

/* Value of a fact, NULL when the event has none of that name; and as a number (false: none, or it does not fit). */
const char *bl_event_get(const bl_event *event, const char *name);
bool bl_event_number(const bl_event *event, const char *name, int64_t *out);
/* Whether a comes before b. */
bool bl_event_before(const bl_event *a, const bl_event *b);

#endif
