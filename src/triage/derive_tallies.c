/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of many equal runs: some go wrong with one setting, none with another.  Which setting that is stands in the line
 * of those that are clean and not in that of the others. */
#include "base/attributes.h"
#include "triage/case.h"

enum { FEW = 3 }; /* runs that say something */

typedef struct cure_row {
    bl_signal setting, derived;
} cure_row;

static const cure_row cures[] = {
    {BL_SIGNAL_launchblocking_on, BL_SIGNAL_tallied_order}, {BL_SIGNAL_synced_on, BL_SIGNAL_tallied_order},
    {BL_SIGNAL_streamed_off, BL_SIGNAL_tallied_order},      {BL_SIGNAL_overlap_off, BL_SIGNAL_tallied_order},
    {BL_SIGNAL_graphsetting_off, BL_SIGNAL_tallied_graph},  {BL_SIGNAL_peersetting_off, BL_SIGNAL_tallied_peers},
};

static bool is_on_line(const bl_case *c, bl_signal signal, const bl_event *line)
{
    for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next)
        if (event->file == line->file && event->line == line->line)
            return true;
    return false;
}

static bool numbers_of(const bl_event *tally, int64_t *differ, int64_t *runs)
{
    return bl_event_number(tally, "differ", differ) && bl_event_number(tally, "runs", runs) && *runs >= FEW &&
           *differ <= *runs;
}

static bl_event *first_bad(const bl_case *c)
{
    int64_t differ, runs;
    for (bl_event *tally = bl_events_first(c->events, BL_SIGNAL_tally_runs); tally != NULL; tally = tally->next)
        if (numbers_of(tally, &differ, &runs) && differ > 0)
            return tally;
    return NULL;
}

static void compare(bl_case *c, const bl_event *bad, const bl_event *clean)
{
    for (int i = 0; i < BL_COUNT(cures); i++) {
        if (!is_on_line(c, cures[i].setting, clean) || is_on_line(c, cures[i].setting, bad))
            continue;
        if (bl_events_first(c->events, cures[i].derived) == NULL)
            (void)bl_events_derive(c->events, cures[i].derived, bad);
        (void)bl_events_derive_bare(c->events, BL_SIGNAL_tallied_clean, clean);
    }
}

void bl_derive_tallies(bl_case *c)
{
    int64_t differ, runs;
    const bl_event *bad = first_bad(c);
    for (const bl_event *tally = bl_events_first(c->events, BL_SIGNAL_tally_runs); tally != NULL && bad != NULL;
         tally = tally->next)
        if (tally->file == bad->file && numbers_of(tally, &differ, &runs) && differ == 0)
            compare(c, bad, tally);
}
