/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "triage/collectives.h"

const char *bl_meeting_describe(bl_meeting meeting)
{
    static const char *const words[] = {
        [BL_MEETING_ONE] = "only one rank is known to wait",
        [BL_MEETING_SAME] = "all wait in the same collective with the same sizes",
        [BL_MEETING_NEAR] = "the same collective, sizes a little apart",
        [BL_MEETING_SIZES] = "the same number and operation, sizes wholly apart",
        [BL_MEETING_OPS] = "the same number, other operations",
        [BL_MEETING_SEQS] = "other numbers: some ranks are ahead",
        [BL_MEETING_POINT] = "sends and receives, which need not be alike",
    };
    return words[meeting];
}

/* "...Rank 3]..." */
static int rank_in_text(const char *text)
{
    const char *at = strstr(text, "Rank ");
    for (; at != NULL; at = strstr(at + 1, "Rank ")) {
        char *end = NULL;
        long rank = strtol(at + 5, &end, 10);
        if (end > at + 5 && *end == ']' && rank >= 0 && rank < BL_EVENTS_MOST)
            return (int)rank;
    }
    return -1;
}

int bl_event_rank(const bl_event *event)
{
    if (event->rank >= 0)
        return event->rank;
    return event->said_rank >= 0 ? event->said_rank : rank_in_text(event->text);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

static int64_t number_of(const bl_event *event, const char *name)
{
    int64_t value = -1;
    return bl_event_number(event, name, &value) ? value : -1;
}

static const char *text_of(const bl_event *event, const char *name)
{
    const char *value = bl_event_get(event, name);
    return value == NULL ? "" : value;
}

/* "0 PG GUID 0(default_pg)" -> "default_pg", "1" -> "1". */
static void name_group(const bl_event *event, char out[BL_COLLECTIVE_NAME])
{
    const char *text = text_of(event, "group");
    const char *open = strrchr(text, '('), *blank = strrchr(text, ' ');
    size_t length;
    if (open != NULL && strchr(open, ')') != NULL) {
        text = open + 1;
        length = strcspn(text, ")");
    } else {
        text = blank != NULL ? blank + 1 : text;
        length = strlen(text);
    }
    length = length < BL_COLLECTIVE_NAME - 1 ? length : BL_COLLECTIVE_NAME - 1;
    memcpy(out, text, length);
    out[length] = '\0';
}

static bool is_same_work(const bl_collective *a, const bl_collective *b)
{
    return a->seqnum == b->seqnum && strcmp(a->optype, b->optype) == 0 && a->numel == b->numel &&
           a->numel_out == b->numel_out && strcmp(a->shape, b->shape) == 0 && strcmp(a->dtype, b->dtype) == 0;
}

/* The row that this one repeats: of the same rank, and of its group as far as both name one. */
static bl_collective *known_row(bl_collectives *t, const bl_collective *row)
{
    for (int i = 0; i < t->n; i++) {
        bl_collective *known = &t->rows[i];
        if (known->rank != row->rank)
            continue;
        if (strcmp(known->group, row->group) == 0)
            return known;
        if ((known->group[0] == '\0' || row->group[0] == '\0') && is_same_work(known, row))
            return known;
    }
    return NULL;
}

static void add_timeout(bl_collectives *t, const bl_event *event)
{
    bl_collective row = {.rank = bl_event_rank(event),
                         .seqnum = number_of(event, "seqnum"),
                         .numel = number_of(event, "numel"),
                         .numel_out = number_of(event, "numel_out"),
                         .last_enqueued = -1,
                         .last_completed = -1,
                         .timeout_ms = number_of(event, "timeout_ms"),
                         .optype = text_of(event, "optype"),
                         .shape = text_of(event, "shape"),
                         .dtype = "",
                         .event = event};
    if (row.optype[0] == '\0')
        return;
    name_group(event, row.group);
    bl_collective *known = known_row(t, &row);
    if (known != NULL && known->group[0] == '\0')
        memcpy(known->group, row.group, sizeof row.group);
    if (known == NULL && t->n < BL_COLLECTIVES_MOST)
        t->rows[t->n++] = row;
}

/* The last entry of a recorder's dump that had not completed, else the last one. */
static void add_recorded(bl_collectives *t, const bl_event *event)
{
    bl_collective row = {.rank = bl_event_rank(event),
                         .seqnum = number_of(event, "seqnum"),
                         .numel = number_of(event, "numel"),
                         .numel_out = -1,
                         .last_enqueued = -1,
                         .last_completed = -1,
                         .timeout_ms = -1,
                         .optype = text_of(event, "optype"),
                         .shape = text_of(event, "shape"),
                         .dtype = "",
                         .group = "recorder",
                         .event = event};
    bool is_done = strcmp(text_of(event, "state"), "completed") == 0;
    bl_collective *known = known_row(t, &row);
    if (row.rank < 0)
        return;
    if (known == NULL && t->n < BL_COLLECTIVES_MOST) {
        t->rows[t->n++] = row;
        known = &t->rows[t->n - 1];
    } else if (known == NULL || known->last_enqueued > known->last_completed) {
        return;
    }
    int64_t completed = known->last_completed;
    *known = row;
    known->last_completed = is_done ? row.seqnum : completed;
    known->last_enqueued = row.seqnum;
}

/* The innermost collective of each rank's stack, where stacks of several ranks are there. */
static void add_stacks(bl_collectives *t, const bl_events *events)
{
    const bl_event *head = bl_events_first(events, BL_SIGNAL_stackhead_seen);
    for (const bl_event *e = bl_events_first(events, BL_SIGNAL_stackframe_call); e != NULL && head != NULL;
         e = e->next) {
        bl_collective row = {.rank = bl_event_rank(e),
                             .seqnum = -1,
                             .numel = -1,
                             .numel_out = -1,
                             .last_enqueued = -1,
                             .last_completed = -1,
                             .timeout_ms = -1,
                             .optype = text_of(e, "optype"),
                             .shape = "",
                             .dtype = "",
                             .group = "stack",
                             .event = e};
        if (row.rank >= 0 && known_row(t, &row) == NULL && t->n < BL_COLLECTIVES_MOST)
            t->rows[t->n++] = row;
    }
    if (t->n == 1) /* one stack alone tells of no hang */
        t->n = 0;
}

/* One side of a line that tells two. */
static void add_fingerprint(bl_collectives *t, const bl_event *event, bool second)
{
    int64_t rank = number_of(event, second ? "rank_b" : "rank_a");
    bl_collective row = {.rank = rank >= 0 && rank < BL_EVENTS_MOST ? (int)rank : -1,
                         .seqnum = number_of(event, second ? "seq_b" : "seq_a"),
                         .numel = -1,
                         .numel_out = -1,
                         .last_enqueued = -1,
                         .last_completed = -1,
                         .timeout_ms = -1,
                         .optype = text_of(event, second ? "op_b" : "op_a"),
                         .shape = text_of(event, second ? "shape_b" : "shape_a"),
                         .dtype = text_of(event, second ? "dtype_b" : "dtype_a"),
                         .group = "fingerprint",
                         .event = event};
    if (row.rank < 0 || row.optype[0] == '\0')
        return;
    bl_collective *known = known_row(t, &row);
    if (known == NULL && t->n < BL_COLLECTIVES_MOST)
        t->rows[t->n++] = row;
    else if (known != NULL && !second)
        known->event = event; /* its own line rather than another rank's */
}

static void add_progress(bl_collectives *t, const bl_event *event)
{
    char group[BL_COLLECTIVE_NAME];
    int rank = bl_event_rank(event);
    name_group(event, group);
    for (int i = 0; i < t->n; i++) {
        bl_collective *row = &t->rows[i];
        bool same_group = row->group[0] == '\0' || group[0] == '\0' || strcmp(row->group, group) == 0;
        if (row->rank != rank || !same_group || row->last_enqueued >= 0)
            continue;
        row->last_enqueued = number_of(event, "last_enqueued");
        row->last_completed = number_of(event, "last_completed");
        if (row->group[0] == '\0')
            memcpy(row->group, group, sizeof group);
    }
}

static void add_rows(const bl_events *events, bl_collectives *t)
{
    const bl_event *event;
    for (event = bl_events_first(events, BL_SIGNAL_collective_timeout); event != NULL; event = event->next)
        add_timeout(t, event);
    for (event = bl_events_first(events, BL_SIGNAL_collective_progress); event != NULL; event = event->next)
        add_progress(t, event);
    if (t->n > 0)
        return;
    for (event = bl_events_first(events, BL_SIGNAL_fingerprint_differs); event != NULL; event = event->next) {
        add_fingerprint(t, event, false);
        add_fingerprint(t, event, true);
    }
    for (event = t->n == 0 ? bl_events_first(events, BL_SIGNAL_recorder_entry) : NULL; event != NULL;
         event = event->next)
        add_recorded(t, event);
    if (t->n == 0)
        add_stacks(t, events);
}

/* ---- groups -------------------------------------------------------------------------------------------------------- */

/* A row without a group belongs to the only one that is named. */
static void name_unnamed(bl_collectives *t)
{
    const char *only = NULL;
    for (int i = 0; i < t->n; i++) {
        if (t->rows[i].group[0] == '\0')
            continue;
        if (only != NULL && strcmp(only, t->rows[i].group) != 0)
            return;
        only = t->rows[i].group;
    }
    char name[BL_COLLECTIVE_NAME] = {0};
    if (only != NULL)
        memcpy(name, only, sizeof name);
    for (int i = 0; i < t->n; i++)
        memcpy(t->rows[i].group, name, sizeof name);
}

/* Whether the group has a row of this one's rank among the n that are kept; of a row of no known rank, any row. */
static bool is_repeated(const bl_collectives *t, int n, int at)
{
    const bl_collective *row = &t->rows[at];
    for (int i = 0; i < t->n; i++) {
        const bl_collective *other = &t->rows[i];
        bool is_there = i < n || i > at;
        bool stands_for_it = other->rank == row->rank ? i < n : row->rank < 0;
        if (is_there && stands_for_it && strcmp(other->group, row->group) == 0)
            return true;
    }
    return false;
}

/* One rank is one row of its group, the first: that it printed two sizes is not two ranks that differ. */
static void drop_repeated(bl_collectives *t)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (!is_repeated(t, n, i))
            t->rows[n++] = t->rows[i];
    t->n = n;
}

static int compare_rows(const void *left, const void *right)
{
    const bl_collective *a = left, *b = right;
    int by_group = strcmp(a->group, b->group);
    if (by_group != 0)
        return by_group;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static bool is_point_to_point(const char *optype)
{
    return strstr(optype, "SEND") != NULL || strstr(optype, "RECV") != NULL || strstr(optype, "send") != NULL ||
           strstr(optype, "recv") != NULL || strcmp(optype, "COALESCED") == 0 || strcmp(optype, "UNKNOWN") == 0;
}

/* Operations in which the sizes of ranks may rightly differ. */
static bool is_uneven_by_right(const char *optype)
{
    return strstr(optype, "ALLTOALL") != NULL || strstr(optype, "all_to_all") != NULL ||
           strcmp(optype, "GATHER") == 0 || strcmp(optype, "SCATTER") == 0 || strcmp(optype, "REDUCE") == 0;
}

static bool is_alike(const bl_collective *a, const bl_collective *b)
{
    if (a->seqnum != b->seqnum || strcmp(a->optype, b->optype) != 0)
        return false;
    return is_uneven_by_right(a->optype) || is_same_work(a, b);
}

/* Where the first dimension of a shape ends. */
static const char *after_first(const char *shape)
{
    const char *comma = strchr(shape, ',');
    return comma == NULL ? "" : comma;
}

/* A little apart: only dimension 0 differs, or by no more than a quarter. */
static bool is_near(const bl_collective *a, const bl_collective *b)
{
    if (a->shape[0] != '\0' && b->shape[0] != '\0')
        return strcmp(after_first(a->shape), after_first(b->shape)) == 0 && *after_first(a->shape) != '\0';
    int64_t large = bl_max_i64(a->numel, b->numel), small = bl_min_i64(a->numel, b->numel);
    if (small == large) { /* only what comes out differs */
        large = bl_max_i64(a->numel_out, b->numel_out);
        small = bl_min_i64(a->numel_out, b->numel_out);
    }
    return small > 1 && large - small <= large / 4;
}

static bl_meeting compare_two(const bl_collective *a, const bl_collective *b)
{
    if (is_point_to_point(a->optype) || is_point_to_point(b->optype))
        return BL_MEETING_POINT;
    if (a->seqnum != b->seqnum)
        return BL_MEETING_SEQS;
    if (strcmp(a->optype, b->optype) != 0)
        return BL_MEETING_OPS;
    if (is_alike(a, b))
        return BL_MEETING_SAME;
    return is_near(a, b) ? BL_MEETING_NEAR : BL_MEETING_SIZES;
}

static int count_alike(const bl_collectives *t, const bl_collective_group *g, const bl_collective *row)
{
    int n = 0;
    for (int i = g->first; i < g->first + g->n; i++)
        n += is_alike(&t->rows[i], row);
    return n;
}

/* Finds the camp with the most rows, and how the others differ from it. */
static void judge(bl_collectives *t, bl_collective_group *g)
{
    const bl_collective *chief = &t->rows[g->first];
    for (int i = g->first; i < g->first + g->n; i++) {
        int n = count_alike(t, g, &t->rows[i]);
        if (n > g->n_majority) {
            g->n_majority = n;
            chief = &t->rows[i];
        }
    }
    g->meeting = g->n == 1 ? BL_MEETING_ONE : BL_MEETING_SAME;
    for (int i = g->first; i < g->first + g->n && g->n > 1; i++) {
        bl_collective *row = &t->rows[i];
        bl_meeting meeting = compare_two(chief, row);
        row->is_apart = meeting != BL_MEETING_SAME && meeting != BL_MEETING_POINT;
        g->is_tie = g->is_tie || (row->is_apart && count_alike(t, g, row) == g->n_majority);
        g->meeting = meeting > g->meeting ? meeting : g->meeting;
    }
}

static void split_groups(bl_collectives *t)
{
    for (int i = 0; i < t->n; i++) {
        bl_collective_group *last = t->n_groups == 0 ? NULL : &t->groups[t->n_groups - 1];
        if (last != NULL && strcmp(last->name, t->rows[i].group) == 0) {
            last->n++;
        } else if (t->n_groups < BL_COLLECTIVE_GROUPS) {
            t->groups[t->n_groups++] = (bl_collective_group){.name = t->rows[i].group, .first = i, .n = 1};
        } else {
            return;
        }
    }
}

/* ---- who is there --------------------------------------------------------------------------------------------------- */

static bool waits(const bl_collectives *t, int rank)
{
    for (int i = 0; i < t->n; i++)
        if (t->rows[i].rank == rank)
            return true;
    return false;
}

static void note_rank(bl_collectives *t, int rank)
{
    if (rank < 0 || t->n == 0 || waits(t, rank) || t->n_absent == BL_COLLECTIVES_ABSENT)
        return;
    int at = 0;
    while (at < t->n_absent && t->absent[at] < rank)
        at++;
    if (at < t->n_absent && t->absent[at] == rank)
        return;
    memmove(&t->absent[at + 1], &t->absent[at], (size_t)(t->n_absent - at) * sizeof t->absent[0]);
    t->absent[at] = rank;
    t->n_absent++;
}

static void find_world(const bl_case *c, bl_collectives *t)
{
    const bl_event *event = bl_events_first(c->events, BL_SIGNAL_ncclrank_comm);
    for (; event != NULL; event = event->next) {
        int64_t world = number_of(event, "world");
        if (world > t->world && world < BL_EVENTS_MOST)
            t->world = (int)world;
    }
    for (int64_t i = 0; i < bl_events_n(c->events); i++)
        note_rank(t, bl_events_at(c->events, i)->rank);
    for (int i = 0; i < c->n_sources; i++)
        note_rank(t, c->sources[i].rank);
}

bool bl_collectives_init(const bl_case *c, bl_collectives *out)
{
    *out = (bl_collectives){0};
    out->rows = bl_alloc(BL_COLLECTIVES_MOST, sizeof *out->rows);
    if (out->rows == NULL)
        return false;
    add_rows(c->events, out);
    name_unnamed(out);
    drop_repeated(out);
    if (out->n > 1)
        qsort(out->rows, (size_t)out->n, sizeof *out->rows, compare_rows);
    split_groups(out);
    for (int g = 0; g < out->n_groups; g++)
        judge(out, &out->groups[g]);
    find_world(c, out);
    return true;
}

void bl_collectives_fini(bl_collectives *collectives)
{
    bl_free(collectives->rows);
    *collectives = (bl_collectives){0};
}

const bl_collective_group *bl_collectives_chief(const bl_collectives *collectives)
{
    const bl_collective_group *best = NULL;
    for (int g = 0; g < collectives->n_groups; g++) {
        const bl_collective_group *group = &collectives->groups[g];
        bool differs = group->meeting > BL_MEETING_SAME && group->meeting < BL_MEETING_POINT;
        bool best_differs = best != NULL && best->meeting > BL_MEETING_SAME && best->meeting < BL_MEETING_POINT;
        if (best == NULL || (differs && !best_differs) || (differs == best_differs && group->n > best->n))
            best = group;
    }
    return best;
}

int bl_collectives_alone(const bl_collectives *collectives, const bl_collective_group *group)
{
    int alone = -1;
    for (int i = group->first; i < group->first + group->n; i++) {
        if (!collectives->rows[i].is_apart)
            continue;
        if (alone >= 0)
            return -1;
        alone = collectives->rows[i].rank;
    }
    return group->n_majority >= 2 ? alone : -1;
}
