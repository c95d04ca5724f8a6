/* SPDX-License-Identifier: Apache-2.0 */
/* Counts that wrapped: a negative number of the log that is a larger one of it less 2^32.  Two numbers that belong to each
 * other so are no chance: of all larger numbers one in 2^32 fits. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "triage/case.h"
#include "triage/shapes.h"

#define INT32_LIMIT INT64_C(2147483648)

enum { LARGE = 4096 };

typedef struct large_count {
    int64_t count;
    const bl_event *event;
} large_count;

typedef struct large_counts {
    large_count list[LARGE];
    int n;
} large_counts;

static void note_large(large_counts *large, int64_t count, const bl_event *event)
{
    if (count >= INT32_LIMIT && large->n < LARGE)
        large->list[large->n++] = (large_count){count, event};
}

/* The next whole number of a text that stands alone, with its sign; false behind the last. */
static bool next_number(const char **at, int64_t *out)
{
    for (const char *c = *at; *c != '\0'; c++) {
        bool is_start = isdigit((unsigned char)*c) || (*c == '-' && isdigit((unsigned char)c[1]));
        bool follows = c > *at && (isalnum((unsigned char)c[-1]) || c[-1] == '.' || c[-1] == '_');
        if (!is_start || follows)
            continue;
        char *end = NULL;
        errno = 0;
        long long value = strtoll(c, &end, 10);
        bool stands_alone =
            errno == 0 && !isalnum((unsigned char)*end) && (*end != '.' || !isdigit((unsigned char)end[1]));
        *at = end;
        if (stands_alone) {
            *out = value;
            return true;
        }
        c = end - 1;
    }
    return false;
}

static void collect_numbers(const bl_case *c, large_counts *large)
{
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_largecount_seen); e != NULL; e = e->next) {
        int64_t value;
        for (const char *at = e->text; next_number(&at, &value);)
            note_large(large, value, e);
    }
}

static void collect_shapes(const bl_case *c, bl_signal signal, large_counts *large)
{
    for (const bl_event *e = bl_events_first(c->events, signal); e != NULL; e = e->next) {
        bl_text_shape shape;
        for (int64_t at = 0; bl_text_shape_next(e->text, (int64_t)strlen(e->text), &at, &shape);)
            if (shape.numel < INT64_MAX)
                note_large(large, shape.numel, e);
    }
}

static const large_count *origin_of(const large_counts *large, int64_t value)
{
    for (int i = 0; i < large->n; i++)
        if ((int64_t)(int32_t)(uint32_t)large->list[i].count == value)
            return &large->list[i];
    return NULL;
}

static void derive(bl_case *c, const bl_event *negative, int64_t value, const large_count *from)
{
    bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_number_wrapped, negative);
    (void)bl_events_derive_bare(c->events, BL_SIGNAL_number_wrapped_from, from->event);
    bl_event_fact_of(c->events, event, "wrapped", -1, "%lld", (long long)value);
    bl_event_fact_of(c->events, event, "count", -1, "%lld", (long long)from->count);
    bl_event_fact_of(c->events, event, "limit", -1, "%lld", (long long)INT32_LIMIT);
}

void bl_derive_wrapped(bl_case *c)
{
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_wrappedcount_negative);
    large_counts *large = first == NULL ? NULL : bl_alloc(1, sizeof *large);
    if (first != NULL && large == NULL)
        bl_events_note_no_memory(c->events);
    if (large == NULL)
        return;
    collect_numbers(c, large);
    collect_shapes(c, BL_SIGNAL_shape_torch, large);
    collect_shapes(c, BL_SIGNAL_shape_plain, large);
    for (const bl_event *e = first; e != NULL; e = e->next) {
        int64_t value;
        for (const char *at = e->text; next_number(&at, &value);) {
            const large_count *from = value < 0 && value >= -INT32_LIMIT ? origin_of(large, value) : NULL;
            if (from != NULL) {
                derive(c, e, value, from);
                bl_free(large);
                return;
            }
        }
    }
    bl_free(large);
}
