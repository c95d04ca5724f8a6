/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a Belay group say of each other: whom they waited for in vain, and what became of that one. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "triage/case.h"

/* In a status file the culprits stand between the code and the words, in run.json nothing does. */
enum { CODE_TO_WHY = 16, MOST_RANK = 1000000, MOST_REMARKS = 2048 };

/* How many lines before the words their code stands, when it is one of `signal`; INT64_MAX: none. */
static int64_t distance(const bl_case *c, bl_signal signal, const bl_event *why)
{
    int64_t nearest = INT64_MAX;
    for (const bl_event *code = bl_events_first(c->events, signal); code != NULL; code = code->next)
        if (code->file == why->file && code->line < why->line && why->line - code->line <= CODE_TO_WHY &&
            why->line - code->line < nearest)
            nearest = why->line - code->line;
    return nearest;
}

/* ---- what they say ----------------------------------------------------------------------------------------------------- */

typedef struct remark {
    const bl_event *event;
    const char *words, *rest; /* all of them, and what stands behind the ranks that they begin with */
    int rank;                 /* the first of those; -1 */
} remark;

typedef struct remarks {
    remark list[MOST_REMARKS];
    int n;
} remarks;

/* The rank that the words begin with, "rank 1 ..." or the first of "ranks 1, 2 ..."; -1.  *rest is then behind them. */
static int named(const char *text, const char **rest)
{
    char *end;
    if (strncmp(text, "rank", 4) != 0)
        return -1;
    text += text[4] == 's' ? 5 : 4;
    if (text[0] != ' ' || !isdigit((unsigned char)text[1]))
        return -1;
    long rank = strtol(text + 1, &end, 10);
    *rest = end;
    return rank < MOST_RANK ? (int)rank : -1;
}

static void add_remark(remarks *r, const bl_event *event)
{
    const char *words = bl_event_get(event, "said"), *rest = "";
    if (words == NULL || r->n == MOST_REMARKS)
        return;
    int rank = named(words, &rest);
    r->list[r->n++] = (remark){.event = event, .words = words, .rest = rest, .rank = rank};
}

/* Of ranks that waited, or (`differs`) that differ: the words of files, then headlines. */
static void collect(const bl_case *c, bool differs, remarks *out)
{
    bl_signal line = differs ? BL_SIGNAL_peerline_differs : BL_SIGNAL_peerline_waited;
    bl_signal code = differs ? BL_SIGNAL_peercode_differs : BL_SIGNAL_peercode_waited;
    bl_signal other = differs ? BL_SIGNAL_peercode_waited : BL_SIGNAL_peercode_differs;
    int n_looked_at = 0;
    out->n = 0;
    for (const bl_event *why = bl_events_first(c->events, BL_SIGNAL_peerwhy_told);
         why != NULL && n_looked_at++ < MOST_REMARKS; why = why->next)
        if (distance(c, code, why) < distance(c, other, why))
            add_remark(out, why);
    for (const bl_event *event = bl_events_first(c->events, line); event != NULL; event = event->next)
        add_remark(out, event);
}

/* ---- who did not come -------------------------------------------------------------------------------------------------- */

static int count_naming(const remarks *r, int rank)
{
    int n = 0;
    for (int i = 0; i < r->n; i++)
        n += r->list[i].rank == rank && r->list[i].event->rank != rank;
    return n;
}

/* It waited for another one, which is then nearer to the cause. */
static bool names_another(const remarks *r, int rank)
{
    for (int i = 0; i < r->n; i++)
        if (r->list[i].event->rank == rank && r->list[i].rank >= 0 && r->list[i].rank != rank)
            return true;
    return false;
}

/* Of what the others say the first that names the rank that most of them waited for; NULL: nobody is named. */
static const remark *choose(const remarks *r)
{
    const remark *best = NULL;
    int most = 0;
    for (int i = 0; i < r->n; i++) {
        const remark *m = &r->list[i];
        int n = m->rank < 0 || m->rank == m->event->rank ? 0 : count_naming(r, m->rank);
        if (n > most && !names_another(r, m->rank)) {
            best = m;
            most = n;
        }
    }
    return best;
}

/* The line from which on the rank's file only tells of its group. */
static int64_t first_word_of_group(const bl_case *c, int file)
{
    for (const bl_event *echo = bl_events_first(c->events, BL_SIGNAL_belay_echo); echo != NULL; echo = echo->next)
        if (echo->file == file)
            return echo->line;
    return INT64_MAX;
}

/* The rank said that something failed, before it heard of its group. */
static bool has_own_fault(const bl_case *c, int rank)
{
    for (int s = 0; s < BL_N_SIGNALS; s++)
        for (const bl_event *e = bl_events_first(c->events, (bl_signal)s); e != NULL; e = e->next)
            if (bl_signals[s].role == BL_ROLE_FAULT && e->rank == rank && e->file >= 0 &&
                e->line < first_word_of_group(c, e->file))
                return true;
    return false;
}

/* How a supervisor saw it end. */
static const bl_event *end_of(const bl_case *c, int rank, bl_signal signal)
{
    const bl_event *end = bl_events_first(c->events, signal);
    while (end != NULL && end->rank != rank)
        end = end->next;
    return end;
}

static bool is_told_otherwise(const bl_case *c, int rank)
{
    return end_of(c, rank, BL_SIGNAL_ended_memory) != NULL || end_of(c, rank, BL_SIGNAL_ended_stopped) != NULL ||
           end_of(c, rank, BL_SIGNAL_ended_missing) != NULL;
}

/* The line, of the rank that says it. */
static void derive_said(bl_case *c, const remark *said)
{
    bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_peers_said, said->event);
    if (event != NULL)
        bl_event_fact_of(c->events, event, "ranks_say", -1, "%s", said->words);
}

/* Of the rank that it is about, which says nothing itself: without a line. */
static void derive_about(bl_case *c, bl_signal signal, int rank)
{
    bl_event *event = bl_events_derive(c->events, signal, NULL);
    if (event != NULL)
        event->rank = rank;
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static void derive_missing(bl_case *c, const remark *said)
{
    const bl_event *died = end_of(c, said->rank, BL_SIGNAL_ended_signal);
    const bl_event *failed = end_of(c, said->rank, BL_SIGNAL_ended_status);
    derive_said(c, said);
    if (begins(said->rest, " gave up: ") || begins(said->rest, " failed first: "))
        derive_about(c, BL_SIGNAL_peers_gave_up, said->rank);
    else if (died != NULL)
        (void)bl_events_derive(c->events, BL_SIGNAL_peers_died, died);
    else if (failed != NULL)
        (void)bl_events_derive(c->events, BL_SIGNAL_peers_ended, failed);
    else if (!is_told_otherwise(c, said->rank))
        derive_about(c, BL_SIGNAL_peers_lost, said->rank);
}

/* ---- who differs ------------------------------------------------------------------------------------------------------- */

/* "... called barrier #2, where the 2 others called all_reduce #2 ...": another word behind each. */
static bool are_other_calls(const char *words)
{
    static const char mark[] = " called ";
    const char *first = strstr(words, mark);
    const char *second = first == NULL ? NULL : strstr(first + 1, mark);
    if (second == NULL)
        return false;
    first += strlen(mark);
    second += strlen(mark);
    size_t n = strcspn(first, " ");
    return n != strcspn(second, " ") || strncmp(first, second, n) != 0;
}

/* "rank 1 has other weights than ranks 0, 2": all did the same, and came to something else. */
static bool have_drifted(const char *words) { return strstr(words, " than rank") != NULL; }

static void derive_difference(bl_case *c, const remark *said)
{
    const char *words = said->words, *first = strstr(words, "rank"), *rest;
    bool is_tie = strstr(words, ": a tie") != NULL || strstr(words, "as many say one as the other") != NULL;
    bl_signal signal = have_drifted(words)      ? BL_SIGNAL_peers_drifted
                       : are_other_calls(words) ? BL_SIGNAL_peers_apart
                                                : BL_SIGNAL_peers_differ;
    derive_said(c, said);
    derive_about(c, signal, is_tie || first == NULL ? -1 : named(first, &rest));
}

void bl_derive_peers(bl_case *c)
{
    remarks said;
    collect(c, true, &said);
    if (said.n > 0) {
        derive_difference(c, &said.list[0]);
        return; /* whoever then left left for this */
    }
    collect(c, false, &said);
    const remark *missing = choose(&said);
    if (missing != NULL && !has_own_fault(c, missing->rank))
        derive_missing(c, missing);
}
