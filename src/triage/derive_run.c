/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a supervised run ended: the lines of run.json put together again by rank. */
#include <string.h>

#include "triage/case.h"

/* The event of the signal in the object that begins at `rank`'s line and ends before the next rank's. */
static const bl_event *of_rank(const bl_case *c, bl_signal signal, const bl_event *rank, int64_t end)
{
    for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next)
        if (event->file == rank->file && event->line > rank->line && event->line < end)
            return event;
    return NULL;
}

static int64_t end_of(const bl_event *rank)
{
    const bl_event *next = rank->next;
    while (next != NULL && next->file != rank->file)
        next = next->next;
    return next == NULL ? INT64_MAX : next->line;
}

static void derive(bl_case *c, bl_signal signal, const bl_event *base, int64_t rank)
{
    bl_event *event = bl_events_derive(c->events, signal, base);
    if (event != NULL)
        event->rank = (int)rank;
}

static void judge_rank(bl_case *c, const bl_event *line)
{
    int64_t rank, end = end_of(line);
    if (!bl_event_number(line, "run_rank", &rank) || rank > INT32_MAX)
        return;
    const bl_event *killed = of_rank(c, BL_SIGNAL_runjsonmemory_kill, line, end);
    const bl_event *died = of_rank(c, BL_SIGNAL_runjsonend_signal, line, end);
    const bl_event *failed = of_rank(c, BL_SIGNAL_runjsonend_status, line, end);
    const bl_event *stopped = of_rank(c, BL_SIGNAL_runjsonstopped_signal, line, end);
    const bl_event *suspect = of_rank(c, BL_SIGNAL_runjsonpart_suspect, line, end);
    bool only_felt = of_rank(c, BL_SIGNAL_runjsonpart_secondary, line, end) != NULL;
    bool was_sent = of_rank(c, BL_SIGNAL_runjsonsent_signal, line, end) != NULL;
    if (killed != NULL)
        derive(c, BL_SIGNAL_ended_memory, killed, rank);
    else if (stopped != NULL)
        derive(c, BL_SIGNAL_ended_stopped, stopped, rank);
    else if (suspect != NULL)
        derive(c, BL_SIGNAL_ended_missing, suspect, rank);
    else if (only_felt)
        return;
    else if (died != NULL && !was_sent)
        derive(c, BL_SIGNAL_ended_signal, died, rank);
    else if (failed != NULL && !was_sent)
        derive(c, BL_SIGNAL_ended_status, failed, rank);
}

void bl_derive_run(bl_case *c)
{
    for (const bl_event *line = bl_events_first(c->events, BL_SIGNAL_runjson_rank); line != NULL; line = line->next)
        judge_rank(c, line);
}
