/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "triage/collectives.h"
#include "triage/rank_messages.h"

enum { RANKS = 48 }; /* of which a list is told */

typedef struct rank_list {
    int rank[RANKS];
    int n;
} rank_list;

static void insert(rank_list *list, int rank)
{
    int at = 0;
    while (at < list->n && list->rank[at] < rank)
        at++;
    if (rank < 0 || list->n == RANKS || (at < list->n && list->rank[at] == rank))
        return;
    memmove(&list->rank[at + 1], &list->rank[at], (size_t)(list->n - at) * sizeof list->rank[0]);
    list->rank[at] = rank;
    list->n++;
}

static bool holds(const rank_list *list, int rank)
{
    for (int i = 0; i < list->n; i++)
        if (list->rank[i] == rank)
            return true;
    return false;
}

static int small_number(const bl_event *event, const char *name)
{
    int64_t value = -1;
    return bl_event_number(event, name, &value) && value >= 0 && value < BL_EVENTS_MOST ? (int)value : -1;
}

static void tell_ranks(bl_case *c, bl_event *event, const char *name, const rank_list *list)
{
    for (int i = 0; i < list->n; i++)
        bl_event_fact_of(c->events, event, name, -1, "%d", list->rank[i]);
}

static rank_list ranks_of(const bl_case *c, bl_signal signal)
{
    rank_list list = {0};
    for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next)
        insert(&list, bl_event_rank(event));
    return list;
}

static rank_list ranks_seen(const bl_case *c)
{
    rank_list list = {0};
    for (int64_t i = 0; i < bl_events_n(c->events); i++)
        insert(&list, bl_events_at(c->events, i)->rank);
    for (int i = 0; i < c->n_sources; i++)
        insert(&list, c->sources[i].rank);
    return list;
}

/* ---- NCCL's environment ---------------------------------------------------------------------------------------------- */

static bool is_same_setting(const bl_event *a, const bl_event *b)
{
    const char *x = bl_event_get(a, "variable"), *y = bl_event_get(b, "variable");
    const char *v = bl_event_get(a, "value"), *w = bl_event_get(b, "value");
    return x != NULL && y != NULL && v != NULL && w != NULL && strcmp(x, y) == 0 && strcmp(v, w) == 0;
}

static void write_ranks(bl_text *out, const rank_list *list)
{
    bl_text_add(out, list->n == 1 ? " on rank " : " on ranks ");
    for (int i = 0; i < list->n; i++)
        bl_text_format(out, "%s%d", i == 0 ? "" : i == list->n - 1 ? " and " : ", ", list->rank[i]);
    bl_text_add(out, " only");
}

/* A setting that some ranks of NCCL print and others do not. */
static void derive_environment(bl_case *c)
{
    rank_list all = ranks_of(c, BL_SIGNAL_ncclrank_comm);
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_ncclenv_set);
    for (const bl_event *setting = first; setting != NULL && all.n > 1; setting = setting->next) {
        const char *variable = bl_event_get(setting, "variable"), *value = bl_event_get(setting, "value");
        rank_list same = {0};
        for (const bl_event *event = first; event != NULL; event = event->next)
            if (is_same_setting(event, setting))
                insert(&same, bl_event_rank(event));
        if (same.n == 0 || same.n >= all.n || variable == NULL || value == NULL || strstr(variable, "DEBUG") != NULL)
            continue;
        bl_text words = {0};
        bl_event *event = bl_events_derive_for(c->events, BL_SIGNAL_ranks_env_differs, setting, -1);
        bl_text_format(&words, "%s=%s", variable, value);
        write_ranks(&words, &same);
        if (words.failed)
            bl_events_note_no_memory(c->events);
        bl_event_fact_of(c->events, event, "env_differs", -1, "%s", bl_text_get(&words));
        bl_text_fini(&words);
        return;
    }
}

/* Whoever notices something is not the one to blame: these become events of no rank, or of the one that they name. */
typedef struct noticed_row {
    bl_signal noticed, derived;
    const char *blamed; /* fact that names one rank, or several; NULL */
} noticed_row;

static const noticed_row noticed_rows[] = {
    {BL_SIGNAL_wiresize_nccl, BL_SIGNAL_ranks_wire_sizes, NULL},
    {BL_SIGNAL_wiresize_mpi, BL_SIGNAL_ranks_wire_sizes, NULL},
    {BL_SIGNAL_wiresize_gloo, BL_SIGNAL_ranks_slot_sizes, NULL},
    {BL_SIGNAL_named_horovod, BL_SIGNAL_ranks_named_sizes, NULL},
    {BL_SIGNAL_named_deepspeed, BL_SIGNAL_ranks_disagree, NULL},
    {BL_SIGNAL_structure_count, BL_SIGNAL_ranks_structure, NULL},
    {BL_SIGNAL_structure_sizes, BL_SIGNAL_ranks_structure, NULL},
    {BL_SIGNAL_fingerprint_other, BL_SIGNAL_ranks_print_refused, NULL},
    {BL_SIGNAL_barrier_failed, BL_SIGNAL_ranks_missed_barrier, "missing_ranks"},
    {BL_SIGNAL_peer_unhealthy, BL_SIGNAL_ranks_lost_task, "dead_task"},
    {BL_SIGNAL_collective_stall, BL_SIGNAL_ranks_stalled, "missing_ranks"},
    {BL_SIGNAL_desync_report, BL_SIGNAL_ranks_recorded, NULL},
    {BL_SIGNAL_desync_missing, BL_SIGNAL_ranks_recorded, NULL},
    {BL_SIGNAL_desync_culprit, BL_SIGNAL_ranks_recorded, "culprit_rank"},
    {BL_SIGNAL_desync_joined, BL_SIGNAL_ranks_recorded_lag, "lagging_ranks"},
    {BL_SIGNAL_desync_missing_list, BL_SIGNAL_ranks_recorded_lag, "missing_ranks"},
};

static void derive_noticed(bl_case *c)
{
    for (int i = 0; i < BL_COUNT(noticed_rows); i++) {
        const noticed_row *row = &noticed_rows[i];
        const bl_event *first = bl_events_first(c->events, row->noticed);
        bool is_there = bl_events_first(c->events, row->derived) != NULL;
        bl_event *event = first == NULL || is_there ? NULL : bl_events_derive(c->events, row->derived, first);
        if (event != NULL)
            event->rank = row->blamed == NULL ? -1 : small_number(first, row->blamed); /* several: no number */
    }
}

/* The distinct results on the way up, of the first process that printed them. */
static void derive_chain(bl_case *c)
{
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_ncclchain_result);
    int64_t last = 0;
    if (first == NULL)
        return;
    bl_event *chain = bl_events_derive_for(c->events, BL_SIGNAL_ranks_nccl_chain, first, -1);
    for (const bl_event *event = first; event != NULL; event = event->next) {
        int64_t result = 0;
        if (event->file != first->file || event->pid != first->pid || !bl_event_number(event, "nccl_result", &result))
            continue;
        if (result != last)
            bl_event_fact_of(c->events, chain, "nccl_result_chain", -1, "%lld", (long long)result);
        last = result;
    }
}

/* ---- ranks and devices ------------------------------------------------------------------------------------------------ */

/* NCCL prints a bus id as one number: domain << 20 | bus << 12 | device << 4 | function. */
static void tell_pci(bl_case *c, bl_event *event, const char *bus_id)
{
    char *end = NULL;
    unsigned long long id = strtoull(bus_id, &end, 16);
    if (*end != '\0' || id > 0xfffffffffULL)
        return;
    bl_event_fact_of(c->events, event, "bus_id", -1, "%s", bus_id);
    bl_event_fact_of(c->events, event, "pci", -1, "%04llx:%02llx:%02llx", id >> 20, (id >> 12) & 0xff,
                     (id >> 4) & 0xff);
}

static void derive_shared_gpu(bl_case *c)
{
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_duplicate_gpu);
    rank_list ranks = {0};
    if (first == NULL)
        return;
    for (const bl_event *event = first; event != NULL; event = event->next) {
        insert(&ranks, small_number(event, "rank_a"));
        insert(&ranks, small_number(event, "rank_b"));
    }
    bl_event *shared = bl_events_derive_for(c->events, BL_SIGNAL_ranks_share_gpu, first, -1);
    const char *bus_id = bl_event_get(first, "bus_id");
    tell_ranks(c, shared, "sharing_rank", &ranks);
    if (bus_id != NULL)
        tell_pci(c, shared, bus_id);
    if (first->device >= 0)
        bl_event_fact_of(c->events, shared, "device", -1, "%d", first->device);
}

/* The number of GPUs of a node, where all that tell it agree; -1. */
static int gpus_per_node(const bl_case *c)
{
    int told = -1;
    for (const bl_event *event = bl_events_first(c->events, BL_SIGNAL_gpucount_seen); event != NULL;
         event = event->next) {
        int n = small_number(event, "gpus_per_node");
        if (told >= 0 && n != told)
            return -1;
        told = n;
    }
    return told;
}

/* From one rank on all fail, and none below. */
static bool is_from_one_on(const rank_list *failing, const rank_list *seen)
{
    bool has_lower = false;
    for (int i = 0; i < seen->n; i++) {
        bool fails = holds(failing, seen->rank[i]);
        has_lower = has_lower || seen->rank[i] < failing->rank[0];
        if (fails != (seen->rank[i] >= failing->rank[0]))
            return false;
    }
    return has_lower;
}

static void derive_ordinals(bl_case *c)
{
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_ordinal_bad);
    rank_list failing = ranks_of(c, BL_SIGNAL_ordinal_bad), seen = ranks_seen(c);
    int told = gpus_per_node(c);
    if (first == NULL)
        return;
    bool is_global = failing.n > 0 && is_from_one_on(&failing, &seen);
    bl_event *event = bl_events_derive_for(
        c->events, is_global ? BL_SIGNAL_ranks_ordinal_global : BL_SIGNAL_ranks_ordinal, first, -1);
    tell_ranks(c, event, "failing_rank", &failing);
    if (told >= 0 || is_global)
        bl_event_fact_of(c->events, event, "gpus_per_node", -1, "%d", told >= 0 ? told : failing.rank[0]);
    if (is_global)
        bl_event_fact_of(c->events, event, "first_bad_ordinal", -1, "%d", failing.rank[0]);
}

/* ---- parameters --------------------------------------------------------------------------------------------------------- */

static void tell_list(bl_case *c, bl_event *event, const char *name, const char *list)
{
    while (*list != '\0') {
        int length = (int)strcspn(list, ", ");
        if (length > 0)
            bl_event_fact_of(c->events, event, name, -1, "%.*s", length, list);
        list += length;
        list += strspn(list, ", ");
    }
}

static void derive_unused(bl_case *c)
{
    const bl_event *names = bl_events_first(c->events, BL_SIGNAL_ddplist_names);
    const bl_event *indices = bl_events_first(c->events, BL_SIGNAL_ddplist_indices);
    const bl_event *base = names != NULL ? names : indices;
    if (base == NULL)
        return;
    bl_event *event = bl_events_derive_for(c->events, BL_SIGNAL_ranks_unused, base, -1);
    if (names != NULL && bl_event_get(names, "names") != NULL)
        tell_list(c, event, "parameter", bl_event_get(names, "names"));
    if (indices != NULL && bl_event_get(indices, "numbers") != NULL)
        tell_list(c, event, "index", bl_event_get(indices, "numbers"));
}

/* ---- loss scales --------------------------------------------------------------------------------------------------------- */

static double scale_of(const bl_event *event)
{
    const char *text = bl_event_get(event, "scale");
    return text == NULL ? 0.0 : strtod(text, NULL);
}

/* Two loss scales that differ by a power of two, as backing off makes them. */
static bool is_backed_off(double a, double b)
{
    int exponent = 0;
    return a > 0.0 && b > 0.0 && isfinite(a) && isfinite(b) && a != b && frexp(a / b, &exponent) == 0.5;
}

static bool is_same_step(const bl_event *a, const bl_event *b)
{
    const char *x = bl_event_get(a, "step"), *y = bl_event_get(b, "step");
    return x != NULL && y != NULL && strcmp(x, y) == 0;
}

static bool skipped_too(const bl_case *c, const bl_event *state)
{
    for (const bl_event *skip = bl_events_first(c->events, BL_SIGNAL_rankscale_skip); skip != NULL; skip = skip->next)
        if (bl_event_rank(skip) == bl_event_rank(state) && is_same_step(skip, state))
            return true;
    return false;
}

static void tell_scale(bl_case *c, bl_event *event, const bl_event *of, int found_inf)
{
    bl_event_fact_of(c->events, event, "scale", bl_event_rank(of), "%.15g", scale_of(of));
    bl_event_fact_of(c->events, event, "found_inf", bl_event_rank(of), "%d", found_inf);
}

/* At the step at which one rank skips, another one keeps its scale. */
static void derive_scales(bl_case *c)
{
    enum { SKIPS = 64, STATES = 8192 };
    int n_skips = 0;
    for (const bl_event *skip = bl_events_first(c->events, BL_SIGNAL_rankscale_skip); skip != NULL && n_skips < SKIPS;
         skip = skip->next, n_skips++) {
        int n = 0;
        for (const bl_event *state = bl_events_first(c->events, BL_SIGNAL_rankscale_state); state != NULL && n < STATES;
             state = state->next, n++) {
            bool is_pair = bl_event_rank(skip) >= 0 && bl_event_rank(state) >= 0 &&
                           bl_event_rank(skip) != bl_event_rank(state) && is_same_step(skip, state);
            if (!is_pair || !is_backed_off(scale_of(skip), scale_of(state)) || skipped_too(c, state))
                continue;
            bl_event *event = bl_events_derive_for(c->events, BL_SIGNAL_ranks_scale_differs, skip, bl_event_rank(skip));
            bl_event_fact_of(c->events, event, "step", -1, "%s", bl_event_get(skip, "step"));
            tell_scale(c, event, skip, 1);
            tell_scale(c, event, state, 0);
            bl_events_derive_for(c->events, BL_SIGNAL_ranks_other_side, state, -1);
            return;
        }
    }
}

/* ---- output that ends ----------------------------------------------------------------------------------------------------- */

/* "2025-02-08T12:00:16" as microseconds; BL_NO_TIME. */
static int64_t time_of(const char *text)
{
    struct tm tm = {0};
    if (text == NULL || sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                               &tm.tm_min, &tm.tm_sec) != 6)
        return BL_NO_TIME;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (int64_t)timegm(&tm) * 1000000;
}

static const bl_event *last_step(const bl_case *c)
{
    const bl_event *last = NULL;
    for (const bl_event *event = bl_events_first(c->events, BL_SIGNAL_stepof_number); event != NULL;
         event = event->next)
        if (last == NULL || event->file != last->file ? last == NULL || bl_event_before(last, event)
                                                      : event->line > last->line)
            last = event;
    return last;
}

static void tell_time(bl_case *c, bl_event *event, const bl_event *of)
{
    char words[40];
    time_t seconds = (time_t)(of->time / 1000000);
    struct tm tm;
    if (of->time == BL_NO_TIME || of->time < 0 || gmtime_r(&seconds, &tm) == NULL ||
        strftime(words, sizeof words, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        return;
    bl_event_fact_of(c->events, event, "last_time", -1, "%s.%06d%s", words, (int)(of->time % 1000000),
                     of->time_has_zone ? "Z" : "");
}

static int64_t last_output(const bl_case *c, const bl_event *end)
{
    int64_t last = BL_NO_TIME;
    for (int64_t i = 0; i < bl_events_n(c->events); i++) {
        const bl_event *event = bl_events_at(c->events, i);
        if (event->signal != end->signal && event->has_own_time && event->time > last)
            last = event->time;
    }
    for (int i = 0; i < c->n_sources; i++)
        last = c->sources[i].last_time > last ? c->sources[i].last_time : last;
    return last;
}

static bool has_failure(const bl_case *c)
{
    for (int64_t i = 0; i < bl_events_n(c->events); i++) {
        const bl_event *event = bl_events_at(c->events, i);
        const char *name = bl_signals[event->signal].name;
        bool is_end = strncmp(name, "limit_", 6) == 0 || strncmp(name, "launcher_", 9) == 0 ||
                      strncmp(name, "exit_task_code", 14) == 0;
        if (!is_end &&
            (bl_signals[event->signal].role == BL_ROLE_FAULT || bl_signals[event->signal].role == BL_ROLE_ECHO))
            return true;
    }
    return false;
}

/* A job that was ended from outside without any error: did its output stop long before? */
static void derive_hang(bl_case *c)
{
    enum { LONG_SECONDS = 600 };
    const bl_event *limit = bl_events_first(c->events, BL_SIGNAL_limit_time);
    const bl_event *end = limit != NULL ? limit : bl_events_first(c->events, BL_SIGNAL_limit_cancel);
    if (end == NULL || has_failure(c))
        return;
    const char *cancelled = bl_event_get(end, "cancelled");
    int64_t ended = time_of(cancelled), last = last_output(c, end);
    bool is_known = ended != BL_NO_TIME && last != BL_NO_TIME;
    bool is_hang = is_known && ended - last > (int64_t)LONG_SECONDS * 1000000;
    if (!is_hang && limit == NULL)
        return; /* somebody stopped a job that ran */
    bl_event *event =
        bl_events_derive_for(c->events, is_hang ? BL_SIGNAL_ranks_hang : BL_SIGNAL_ranks_ran_out, end, -1);
    const bl_event *step = last_step(c);
    if (cancelled != NULL)
        bl_event_fact_of(c->events, event, "cancelled", -1, "%s", cancelled);
    if (step == NULL)
        return;
    bl_event_fact_of(c->events, event, "last_iteration", -1, "%s", bl_event_get(step, "step"));
    tell_time(c, event, step);
    bl_events_derive_for(c->events, BL_SIGNAL_ranks_other_side, step, -1);
}

void bl_derive_rank_messages(bl_case *c)
{
    derive_noticed(c);
    derive_environment(c);
    derive_chain(c);
    derive_shared_gpu(c);
    derive_ordinals(c);
    derive_unused(c);
    derive_scales(c);
    derive_hang(c);
}
