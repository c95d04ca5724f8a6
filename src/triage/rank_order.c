/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for what, where no collective's own line tells it: tables of stalled tensors, and the order in which ranks
 * queued the collectives of two communicators. */
#include <string.h>

#include "base/attributes.h"
#include "triage/collectives.h"
#include "triage/rank_messages.h"

enum { TABLE_LINES = 80, TABLE_ROWS = 64, ORDER_RANKS = 64 };

/* ---- tables of stalls -------------------------------------------------------------------------------------------------- */

static bool misses_the_same(const bl_event *a, const bl_event *b)
{
    const char *x = bl_event_get(a, "tensors"), *y = bl_event_get(b, "tensors");
    size_t n = x == NULL ? 0 : strcspn(x, ", "), m = y == NULL ? 0 : strcspn(y, ", ");
    return n == m && n > 0 && strncmp(x, y, n) == 0;
}

static bool is_of_one_rank(const bl_event *a, const bl_event *b)
{
    return strcmp(bl_event_get(a, "of_rank"), bl_event_get(b, "of_rank")) == 0;
}

/* The rows "3: [tensor, ..]" that follow a warning of stalls in its file, the first of each rank: the next warning lists
 * them again, and what one rank misses then is no other side. */
static int rows_below(const bl_case *c, const bl_event *head, const bl_event *rows[TABLE_ROWS])
{
    int n = 0;
    for (const bl_event *row = bl_events_first(c->events, BL_SIGNAL_stalltable_row); row != NULL; row = row->next)
        if (row->file == head->file && row->line > head->line && row->line - head->line < TABLE_LINES) {
            bool is_new = n < TABLE_ROWS;
            for (int i = 0; i < n && is_new; i++)
                is_new = !is_of_one_rank(rows[i], row);
            if (is_new)
                rows[n++] = row;
        }
    return n;
}

static int count_same(const bl_event *const *rows, int n, const bl_event *row)
{
    int same = 0;
    for (int i = 0; i < n; i++)
        same += misses_the_same(rows[i], row);
    return same;
}

/* Ranks that miss different tensors wait for each other; those of the smaller side are missing where the others are. */
static void derive_stall_table(bl_case *c)
{
    const bl_event *head = bl_events_first(c->events, BL_SIGNAL_collective_stall), *rows[TABLE_ROWS];
    int n = head == NULL ? 0 : rows_below(c, head, rows), least = n;
    for (int i = 0; i < n; i++)
        least = count_same(rows, n, rows[i]) < least ? count_same(rows, n, rows[i]) : least;
    if (n == 0)
        return;
    bool has_sides = least < n;
    const bl_event *odd = rows[0];
    for (int i = n - 1; i >= 0; i--)
        if (count_same(rows, n, rows[i]) == least)
            odd = rows[i];
    bl_event *event =
        bl_events_derive_for(c->events, has_sides ? BL_SIGNAL_ranks_stall_sides : BL_SIGNAL_ranks_stalled, odd, -1);
    for (int i = 0; i < n && event != NULL; i++)
        if (!has_sides || misses_the_same(rows[i], odd))
            bl_event_fact_of(c->events, event, "missing_ranks", -1, "%s", bl_event_get(rows[i], "of_rank"));
    for (int i = 0; i < n && has_sides; i++)
        if (!misses_the_same(rows[i], odd)) {
            bl_events_derive_for(c->events, BL_SIGNAL_ranks_other_side, rows[i], -1);
            return;
        }
}

/* ---- two communicators ------------------------------------------------------------------------------------------------- */

/* The last two collectives that a rank queued, when they are of two communicators. */
typedef struct last_two {
    int rank;
    const bl_event *first, *second;
} last_two;

static bool is_same_fact(const bl_event *a, const bl_event *b, const char *name)
{
    const char *x = bl_event_get(a, name), *y = bl_event_get(b, name);
    return x == y || (x != NULL && y != NULL && strcmp(x, y) == 0);
}

static bool is_same_collective(const bl_event *a, const bl_event *b)
{
    return is_same_fact(a, b, "communicator") && is_same_fact(a, b, "seqnum") && is_same_fact(a, b, "optype");
}

static bool is_crossed(const last_two *a, const last_two *b)
{
    return is_same_collective(a->first, b->second) && is_same_collective(a->second, b->first);
}

static int last_of_ranks(const bl_case *c, last_two ranks[ORDER_RANKS])
{
    int n = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_enqueued_collective); e != NULL; e = e->next) {
        int rank = bl_event_rank(e), at = 0;
        while (at < n && ranks[at].rank != rank)
            at++;
        if (rank < 0 || at == ORDER_RANKS)
            continue;
        if (at == n)
            ranks[n++] = (last_two){.rank = rank};
        ranks[at].first = ranks[at].second;
        ranks[at].second = e;
    }
    return n;
}

static void derive_order(bl_case *c)
{
    last_two ranks[ORDER_RANKS];
    int n = last_of_ranks(c, ranks);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            bool are_pairs = ranks[a].first != NULL && ranks[b].first != NULL &&
                             !is_same_fact(ranks[a].first, ranks[a].second, "communicator");
            if (!are_pairs || !is_crossed(&ranks[a], &ranks[b]))
                continue;
            bl_event *event = bl_events_derive_for(c->events, BL_SIGNAL_ranks_comm_order, ranks[a].first, -1);
            const bl_event *two[] = {ranks[a].first, ranks[a].second};
            static const char *const names[] = {"communicator", "seqnum", "optype"};
            for (int i = 0; i < 6 && event != NULL; i++)
                if (bl_event_get(two[i % 2], names[i / 2]) != NULL)
                    bl_event_fact_of(c->events, event, names[i / 2], -1, "%s", bl_event_get(two[i % 2], names[i / 2]));
            bl_events_derive_for(c->events, BL_SIGNAL_ranks_other_side, ranks[b].first, -1);
            return;
        }
}

void bl_derive_rank_order(bl_case *c)
{
    derive_stall_table(c);
    derive_order(c);
}
