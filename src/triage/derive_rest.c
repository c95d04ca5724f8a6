/* SPDX-License-Identifier: Apache-2.0 */
/* A log whose only failures are echoes, or the death of a process, is no healthy one: its first failure that no later
 * success takes back. */
#include <string.h>

#include "triage/case.h"

/* Whether the same file tells later that the program finished. */
static bool is_taken_back(const bl_case *c, const bl_event *failure)
{
    for (const bl_event *end = bl_events_first(c->events, BL_SIGNAL_finished_exit); end != NULL; end = end->next)
        if (end->file == failure->file && end->line > failure->line && end->segment == failure->segment)
            return true;
    return false;
}

void bl_derive_rest(bl_case *c)
{
    int64_t n = bl_events_n(c->events);
    for (int64_t i = 0; i < n; i++) {
        const bl_event *event = bl_events_at(c->events, i);
        bl_role role = bl_signals[event->signal].role;
        if ((role != BL_ROLE_ECHO && role != BL_ROLE_FAULT && role != BL_ROLE_END) || event->file < 0 ||
            is_taken_back(c, event))
            continue;
        (void)bl_events_derive(c->events, BL_SIGNAL_rest_unexplained, event);
        return;
    }
}
