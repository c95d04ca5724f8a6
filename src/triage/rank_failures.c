/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/memory.h"
#include "triage/collectives.h"
#include "triage/rank_failures.h"

static bool begins_with(const char *text, const char *word) { return strncmp(text, word, strlen(word)) == 0; }

/* Failures of the host that say how a process ended and not what was wrong. */
static bool is_plain(const bl_event *event)
{
    static const char *const words[] = {"host_exception", "host_segfault", "host_disk",      "loggederror_",
                                        "raised_",        "exit_",         "launcher_killed"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (begins_with(bl_signals[event->signal].name, words[i]))
            return true;
    return false;
}

/* Lines in which both sides of a mismatch complain alike, analyses, and failures that only follow from others. */
static bool is_no_death(const bl_event *event)
{
    static const char *const words[] = {"desync_",    "barrier_", "fingerprint_", "wiresize_",    "named_",
                                        "structure_", "ddp_",     "duplicate_",   "error_garbage"};
    const char *how = bl_event_get(event, "how");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (begins_with(bl_signals[event->signal].name, words[i]))
            return true;
    return how != NULL && strcmp(how, "Aborted") == 0;
}

static bool is_death(const bl_event *event)
{
    return bl_signals[event->signal].role == BL_ROLE_FAULT && !is_no_death(event);
}

static bool is_echo(const bl_event *event)
{
    const char *name = bl_signals[event->signal].name;
    return bl_signals[event->signal].role == BL_ROLE_ECHO && !begins_with(name, "limit_") &&
           !begins_with(name, "library_") && !begins_with(name, "exit_") && !begins_with(name, "sanitizer_") &&
           !begins_with(name, "launcher_failed") && !begins_with(name, "peer_unreachable");
}

static bool is_same_line(const bl_event *a, const bl_event *b) { return a->file == b->file && a->line == b->line; }

/* The same line also shows an echo, or a complaint of both sides: then it is that. */
static bool is_felt_only(const bl_events *events, int64_t at)
{
    const bl_event *event = bl_events_at(events, at);
    for (int step = -1; step <= 1; step += 2)
        for (int64_t i = at + step; i >= 0 && i < bl_events_n(events); i += step) {
            const bl_event *other = bl_events_at(events, i);
            if (!is_same_line(event, other))
                break;
            if (is_echo(other) || (bl_signals[other->signal].role == BL_ROLE_FAULT && is_no_death(other)))
                return true;
        }
    return false;
}

static int failed_rank(const bl_event *event)
{
    int64_t rank = -1;
    if (bl_event_number(event, "died_rank", &rank) && rank >= 0 && rank < BL_EVENTS_MOST)
        return (int)rank;
    return bl_event_rank(event);
}

static void note_failure(bl_rank_failures *f, const bl_event *event)
{
    bl_rank_failure failure = {.rank = failed_rank(event), .event = event, .is_plain = is_plain(event)};
    int at = 0;
    if (failure.rank < 0) {
        f->has_unranked = f->has_unranked || !failure.is_plain;
        if (failure.is_plain && !begins_with(bl_signals[event->signal].name, "loggederror_") &&
            (f->unranked == NULL || bl_event_before(event, f->unranked)))
            f->unranked = event;
        return;
    }
    while (at < f->n && f->list[at].rank < failure.rank)
        at++;
    if (at < f->n && f->list[at].rank == failure.rank) {
        bool tells_more = f->list[at].is_plain && !failure.is_plain;
        bool is_earlier = f->list[at].is_plain == failure.is_plain && bl_event_before(event, f->list[at].event);
        if (tells_more || is_earlier)
            f->list[at] = failure;
        return;
    }
    if (f->n == BL_RANK_FAILURES_MOST)
        return;
    memmove(&f->list[at + 1], &f->list[at], (size_t)(f->n - at) * sizeof f->list[0]);
    f->list[at] = failure;
    f->n++;
}

static void note_echo(bl_rank_failures *f, const bl_event *event)
{
    int rank = bl_event_rank(event), at = 0;
    if (event->signal == BL_SIGNAL_peer_closed && (f->closed == NULL || bl_event_before(event, f->closed)))
        f->closed = event;
    if (bl_rank_failures_has(f, rank) || (rank < 0 && begins_with(bl_signals[event->signal].name, "launcher_")))
        return;
    if (f->echo == NULL || bl_event_before(event, f->echo))
        f->echo = event;
    while (at < f->n_echo_ranks && f->echo_ranks[at] < rank)
        at++;
    if (rank < 0 || f->n_echo_ranks == BL_RANK_ECHOES_MOST || (at < f->n_echo_ranks && f->echo_ranks[at] == rank))
        return;
    memmove(&f->echo_ranks[at + 1], &f->echo_ranks[at], (size_t)(f->n_echo_ranks - at) * sizeof f->echo_ranks[0]);
    f->echo_ranks[at] = rank;
    f->n_echo_ranks++;
}

bool bl_rank_failures_init(const bl_case *c, bl_rank_failures *out)
{
    *out = (bl_rank_failures){.list = bl_alloc(BL_RANK_FAILURES_MOST, sizeof *out->list),
                              .echo_ranks = bl_alloc(BL_RANK_ECHOES_MOST, sizeof *out->echo_ranks)};
    if (out->list == NULL || out->echo_ranks == NULL)
        return false;
    for (int64_t i = 0; i < bl_events_n(c->events); i++)
        if (is_death(bl_events_at(c->events, i)) && !is_felt_only(c->events, i))
            note_failure(out, bl_events_at(c->events, i));
    for (int64_t i = 0; i < bl_events_n(c->events); i++)
        if (is_echo(bl_events_at(c->events, i)))
            note_echo(out, bl_events_at(c->events, i));
    return true;
}

void bl_rank_failures_fini(bl_rank_failures *failures)
{
    bl_free(failures->list);
    bl_free(failures->echo_ranks);
    *failures = (bl_rank_failures){0};
}

bool bl_rank_failures_has(const bl_rank_failures *f, int rank)
{
    for (int i = 0; i < f->n; i++)
        if (f->list[i].rank == rank)
            return true;
    return false;
}

bool bl_rank_failures_all_plain(const bl_rank_failures *f)
{
    for (int i = 0; i < f->n; i++)
        if (!f->list[i].is_plain)
            return false;
    return f->n > 0;
}

static bool is_clearly_before(const bl_event *a, const bl_event *b)
{
    enum { SKEW = 2000000 }; /* microseconds */
    if (a->file == b->file && (a->time == BL_NO_TIME || b->time == BL_NO_TIME))
        return false;
    return a->time != BL_NO_TIME && b->time != BL_NO_TIME && b->time - a->time > SKEW;
}

const bl_rank_failure *bl_rank_failures_origin(const bl_rank_failures *f)
{
    for (int i = 0; i < f->n; i++) {
        bool is_first = true;
        for (int k = 0; k < f->n && is_first; k++)
            is_first = k == i || is_clearly_before(f->list[i].event, f->list[k].event);
        if (is_first)
            return &f->list[i];
    }
    return NULL;
}
