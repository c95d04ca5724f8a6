/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "triage/cuda_errors.h"
#include "triage/findings.h"

typedef struct candidate {
    const bl_rule_row *rule;
    bl_event *found[BL_RULE_GROUPS];
    int n_found;
} candidate;

/* ---- which rules hold ------------------------------------------------------------------------------------------------- */

static belay_code try_rule(const bl_rule_row *rule, const bl_events *events, candidate *out, bool *holds,
                           bl_error *error)
{
    bl_condition needs, unless;
    bl_event *forbidden[BL_RULE_GROUPS];
    *out = (candidate){.rule = rule};
    TRY(bl_condition_parse(rule->needs, rule->name, &needs, error));
    TRY(bl_condition_parse(rule->unless, rule->name, &unless, error));
    *holds = bl_condition_holds(&needs, events, out->found) && !bl_condition_holds(&unless, events, forbidden);
    out->n_found = needs.n_groups;
    return BELAY_OK;
}

/* The cause before its echoes: nearness first, then the earlier one, then the surer one. */
static int compare(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->rule->tier != b->rule->tier)
        return (int)a->rule->tier - (int)b->rule->tier;
    if (a->found[0]->file != b->found[0]->file || a->found[0]->line != b->found[0]->line) {
        if (bl_event_before(a->found[0], b->found[0]))
            return -1;
        if (bl_event_before(b->found[0], a->found[0]))
            return 1;
    }
    if (a->rule->strength != b->rule->strength)
        return (int)b->rule->strength - (int)a->rule->strength;
    return a->rule < b->rule ? -1 : 1;
}

/* ---- one verdict ------------------------------------------------------------------------------------------------------ */

static void add_evidence(bl_verdict *verdict, const bl_event *event)
{
    if (event == NULL || event->file < 0 || verdict->n_evidence == BL_EVIDENCE_MOST)
        return;
    for (int i = 0; i < verdict->n_evidence; i++)
        if (verdict->evidence[i]->file == event->file && verdict->evidence[i]->line == event->line)
            return;
    verdict->evidence[verdict->n_evidence++] = event;
}

static void add_fact(bl_verdict *verdict, const bl_fact *fact)
{
    if (verdict->n_facts == BL_FACTS_MOST || fact->value[0] == '\0')
        return;
    for (int i = 0; i < verdict->n_facts; i++)
        if (strcmp(verdict->facts[i].name, fact->name) == 0 && strcmp(verdict->facts[i].value, fact->value) == 0 &&
            verdict->facts[i].rank == fact->rank)
            return;
    verdict->facts[verdict->n_facts++] = *fact;
}

static void add_number(bl_verdict *verdict, bl_events *events, const char *name, int64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)number);
    add_fact(verdict, &(bl_fact){.name = name, .value = bl_events_text(events, digits), .rank = -1});
}

static void add_facts(bl_verdict *verdict, const bl_event *event)
{
    for (int i = 0; event != NULL && i < event->n_facts; i++)
        add_fact(verdict, &event->facts[i]);
}

/* How well an event tells of the moment of the fault: in its file and before it, else in another file and before that
 * one's first failure, else at all. */
static int fitness(const bl_events *events, const bl_event *event, const bl_event *primary)
{
    bool is_same = event->file == primary->file;
    if (event->line <= (is_same ? primary->line : bl_events_first_failure(events, event->file)))
        return is_same ? 3 : 2;
    return is_same ? 1 : 0;
}

static void add_all(bl_verdict *verdict, const bl_events *events, bl_signal signal)
{
    for (const bl_event *e = bl_events_first(events, signal); e != NULL; e = e->next)
        if (e->file >= 0 && verdict->n_support < BL_SUPPORT_MOST)
            verdict->support[verdict->n_support++] = e;
}

/* All events of a signal, and of those that it was concluded from. */
static void add_signal(bl_verdict *verdict, const bl_events *events, bl_signal signal)
{
    add_all(verdict, events, signal);
    for (int s = 0; bl_signals[signal].role == BL_ROLE_DERIVED && s < BL_N_SIGNALS; s++)
        if (bl_signals[s].role != BL_ROLE_DERIVED && strcmp(bl_signals[s].subject, bl_signals[signal].subject) == 0)
            add_all(verdict, events, (bl_signal)s);
}

static belay_code add_support(bl_verdict *verdict, const bl_events *events, bl_error *error)
{
    bl_condition needs;
    TRY(bl_condition_parse(verdict->rule->needs, verdict->rule->name, &needs, error));
    for (int g = 0; g < needs.n_groups; g++)
        for (int i = 0; i < needs.n_choices[g]; i++)
            if (bl_events_first(events, needs.choice[g][i]) != NULL)
                add_signal(verdict, events, needs.choice[g][i]);
    return BELAY_OK;
}

/* The event of a signal that tells most of the moment of the fault: the fittest, of those the last. */
static bl_event *nearest(const bl_events *events, bl_signal signal, const bl_event *primary)
{
    bl_event *best = bl_events_first(events, signal);
    int best_fitness = best == NULL ? 0 : fitness(events, best, primary);
    for (bl_event *event = best; event != NULL; event = event->next) {
        int its = fitness(events, event, primary);
        bool is_later = event->file != best->file || event->line >= best->line;
        if (its > best_fitness || (its == best_fitness && its >= 2 && is_later)) {
            best = event;
            best_fitness = its;
        }
    }
    return best;
}

static belay_code add_companions(bl_verdict *verdict, const candidate *chosen, const bl_events *events, bl_error *error)
{
    bl_condition with;
    TRY(bl_condition_parse(chosen->rule->with, chosen->rule->name, &with, error));
    for (int g = 0; g < with.n_groups; g++)
        for (int i = 0; i < with.n_choices[g]; i++) {
            bl_event *event = nearest(events, with.choice[g][i], chosen->found[0]);
            add_evidence(verdict, event);
            add_facts(verdict, event);
        }
    return BELAY_OK;
}

/* An error's number and its text, from the name of its signal or what a watchdog repeats of it. */
static void add_error(bl_verdict *verdict, const bl_event *event)
{
    const char *digits = bl_signals[event->signal].name + strlen("error_"), *said = bl_event_get(event, "error");
    const bl_cuda_error *row = bl_cuda_error_find(BL_CUDA_DOMAIN_CUDA, strtoll(digits, NULL, 10));
    if (digits[0] < '0' || digits[0] > '9')
        row = said == NULL ? NULL : bl_cuda_error_find_text(said, (int64_t)strlen(said), NULL);
    if (row == NULL)
        return;
    add_fact(verdict, &(bl_fact){.name = "error", .value = row->text, .rank = -1});
    for (int s = 0; s < BL_N_SIGNALS; s++) {
        const char *name = bl_signals[s].name;
        if (strncmp(name, "error_", 6) == 0 && strtoll(name + 6, NULL, 10) == row->code)
            add_fact(verdict, &(bl_fact){.name = "error_code", .value = name + 6, .rank = -1});
    }
}

/* Where the program stood (progress_*), and the numbers of the errors that it printed. */
static void add_context(bl_verdict *verdict, const bl_events *events, const bl_event *primary)
{
    for (int s = 0; s < BL_N_SIGNALS; s++) {
        const char *name = bl_signals[s].name;
        if (bl_events_first(events, (bl_signal)s) == NULL)
            continue;
        if (strncmp(name, "progress_", 9) == 0 || strncmp(name, "size_", 5) == 0)
            add_facts(verdict, nearest(events, (bl_signal)s, primary));
        if (strncmp(name, "error_", 6) == 0)
            add_error(verdict, bl_events_first(events, (bl_signal)s));
    }
}

/* The rank that shows the signal alone or clearly before the others; -1 where there is no such one. */
static int origin(const bl_event *primary, const bl_events *events)
{
    enum { CLEARLY = 1000000 }; /* microseconds */
    int rank = primary->rank;
    bool alone = true, first = primary->has_own_time;
    for (const bl_event *event = bl_events_first(events, primary->signal); event != NULL; event = event->next) {
        if (event->rank == rank)
            continue;
        alone = alone && event->rank < 0;
        first = first && event->has_own_time && event->time - primary->time > CLEARLY;
    }
    return alone || first ? rank : -1;
}

/* All ranks that show the signal, when they are several; the process, when it is known. */
static void add_ranks(bl_verdict *verdict, bl_events *events, const bl_event *primary)
{
    int n_ranks = 0, ranks[64];
    for (const bl_event *event = bl_events_first(events, primary->signal); event != NULL; event = event->next) {
        bool is_new = event->rank >= 0 && n_ranks < 64;
        for (int i = 0; i < n_ranks; i++)
            is_new = is_new && ranks[i] != event->rank;
        if (is_new)
            ranks[n_ranks++] = event->rank;
    }
    for (int i = 0; i < n_ranks; i++)
        add_number(verdict, events, n_ranks == 1 ? "rank" : "ranks_affected", ranks[i]);
    if (primary->pid >= 0)
        add_number(verdict, events, "pid", primary->pid);
}

/* A kernel log knows no ranks; the one rank among the other lines of the evidence is where it was felt. */
static int rank_of_evidence(const bl_verdict *verdict)
{
    int rank = -1;
    for (int i = 0; i < verdict->n_evidence; i++) {
        int other = verdict->evidence[i]->rank;
        if (other >= 0 && rank >= 0 && other != rank)
            return -1;
        rank = other >= 0 ? other : rank;
    }
    return rank;
}

static belay_code fill(bl_verdict *verdict, const candidate *chosen, bl_events *events, bl_error *error)
{
    *verdict = (bl_verdict){.rule = chosen->rule, .origin_rank = origin(chosen->found[0], events)};
    for (int g = 0; g < chosen->n_found; g++) {
        add_evidence(verdict, chosen->found[g]);
        add_facts(verdict, chosen->found[g]);
    }
    TRY(add_companions(verdict, chosen, events, error));
    TRY(add_support(verdict, events, error));
    add_ranks(verdict, events, chosen->found[0]);
    add_context(verdict, events, chosen->found[0]);
    if (chosen->rule->tier == BL_TIER_MACHINE && chosen->found[0]->rank < 0)
        verdict->origin_rank = rank_of_evidence(verdict);
    return BELAY_OK;
}

/* ---- echoes ------------------------------------------------------------------------------------------------------------- */

typedef struct echo_row {
    const char *group, *why;
} echo_row;

static const echo_row echo_rows[] = {
    {"error", "the CUDA context was dead by then: after a sticky error each later call returns an error"},
    {"library", "a library noticed at its next call that the context was dead or a peer was gone"},
    {"watchdog", "the watchdog polls events and notices errors that began elsewhere"},
    {"collective", "this rank waited for one that had stopped"},
    {"launcher", "the launcher reports how it ended the processes"},
    {"exit", "the process ended because of what stands before"},
    {"exception", "raised at the first call after the fault that had to wait for the device"},
    {"xid", "the driver's note of the same event"},
};

static const char *echo_why(bl_signal signal)
{
    const char *name = bl_signals[signal].name;
    size_t length = strcspn(name, "_");
    for (size_t i = 0; i < sizeof echo_rows / sizeof echo_rows[0]; i++)
        if (strlen(echo_rows[i].group) == length && strncmp(echo_rows[i].group, name, length) == 0)
            return echo_rows[i].why;
    return "it came after the first fault";
}

static bool is_evidence(const bl_findings *findings, const bl_event *event)
{
    for (int v = 0; v < findings->n_verdicts; v++)
        for (int i = 0; i < findings->verdicts[v].n_evidence; i++) {
            const bl_event *line = findings->verdicts[v].evidence[i];
            if (line->signal == event->signal || (line->file == event->file && line->line == event->line))
                return true;
        }
    return false;
}

static void list_echoes(const bl_events *events, bl_findings *out)
{
    for (int s = 0; s < BL_N_SIGNALS && out->n_verdicts > 0 && out->n_echoes < BL_ECHOES_MOST; s++) {
        const bl_event *first = bl_events_first(events, (bl_signal)s);
        bool is_failure = bl_signals[s].role == BL_ROLE_FAULT || bl_signals[s].role == BL_ROLE_ECHO;
        while (is_failure && first != NULL && is_evidence(out, first))
            first = first->next;
        if (first == NULL || !is_failure)
            continue;
        out->echoes[out->n_echoes++] =
            (bl_echo){.event = first, .count = bl_events_count(events, (bl_signal)s), .why = echo_why((bl_signal)s)};
        add_facts(&out->verdicts[0], first);
    }
}

/* What a journal tells of the fault stands with its verdict. */
static void add_journals(const bl_events *events, bl_findings *out)
{
    static const bl_signal signals[] = {BL_SIGNAL_journal_address, BL_SIGNAL_journal_last};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0] && out->n_verdicts > 0; i++)
        for (const bl_event *e = bl_events_first(events, signals[i]); e != NULL; e = e->next)
            add_facts(&out->verdicts[0], e);
}

/* ---- all ---------------------------------------------------------------------------------------------------------------- */

/* A second verdict must stand on its own: another class, as near to its cause as a place can be. */
static bool stands_alone(const bl_findings *findings, const candidate *c)
{
    for (int v = 0; v < findings->n_verdicts; v++)
        if (findings->verdicts[v].rule->class_ == c->rule->class_)
            return false;
    return findings->n_verdicts == 0 || c->rule->tier <= BL_TIER_PLACE;
}

static belay_code choose(bl_events *events, candidate *candidates, bl_findings *out, bl_error *error)
{
    int n = 0;
    for (int i = 0; i < bl_n_rules; i++) {
        bool holds = false;
        TRY(try_rule(&bl_rules[i], events, &candidates[n], &holds, error));
        n += holds;
    }
    if (n > 1)
        qsort(candidates, (size_t)n, sizeof *candidates, compare);
    for (int i = 0; i < n && out->n_verdicts < BL_VERDICTS_MOST; i++)
        if (stands_alone(out, &candidates[i]))
            TRY(fill(&out->verdicts[out->n_verdicts++], &candidates[i], events, error));
    return BELAY_OK;
}

belay_code bl_findings_reach(bl_case *c, bl_findings *out, bl_error *error)
{
    candidate *candidates = bl_alloc(bl_n_rules + 1, sizeof *candidates);
    *out = (bl_findings){0};
    if (candidates == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to try the rules");
    belay_code code = choose(c->events, candidates, out, error);
    bl_free(candidates);
    TRY(code);
    list_echoes(c->events, out);
    add_journals(c->events, out);
    return BELAY_OK;
}
