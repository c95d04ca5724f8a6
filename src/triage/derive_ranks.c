/* SPDX-License-Identifier: Apache-2.0 */
/* What several ranks say together: who waits in what, who is alone, who failed first and who only felt it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "triage/collectives.h"
#include "triage/rank_failures.h"
#include "triage/rank_messages.h"

enum {
    TOLD = 16, /* ranks of which a table of facts is made */
    BLOCK = 12 /* lines of an entry of torchrun's list, other output between them */
};

static void number(bl_case *c, bl_event *event, const char *name, int rank, int64_t value)
{
    if (value >= 0)
        bl_event_fact_of(c->events, event, name, rank, "%lld", (long long)value);
}

/* ---- what a rank was doing when it began to wait ----------------------------------------------------------------------- */

/* The last event of a signal that the row's rank showed before it waited. */
static const bl_event *last_before(const bl_case *c, bl_signal signal, const bl_collective *row)
{
    const bl_event *last = NULL;
    for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next)
        if (event->file == row->event->file && event->line < row->event->line && event->rank == row->event->rank &&
            (last == NULL || event->line > last->line))
            last = event;
    return last;
}

static const char *phase_of(const bl_case *c, const bl_collective *row, int64_t *epoch)
{
    static const bl_signal signals[] = {BL_SIGNAL_phaseof_train, BL_SIGNAL_phaseof_validate, BL_SIGNAL_phaseof_save};
    static const char *const names[] = {"train", "validate", "save"};
    const bl_event *last = NULL;
    const char *name = "";
    for (int i = 0; i < 3; i++) {
        const bl_event *event = last_before(c, signals[i], row);
        if (event != NULL && (last == NULL || event->line >= last->line)) {
            last = event;
            name = names[i];
        }
    }
    *epoch = -1;
    if (last != NULL && !bl_event_number(last, "epoch", epoch))
        *epoch = -1;
    return name;
}

static void tell_phases(bl_case *c, bl_event *event, const bl_collectives *t, const bl_collective_group *g)
{
    for (int i = g->first; i < g->first + g->n && i < g->first + TOLD; i++) {
        int64_t epoch = -1, steps = -1;
        const bl_collective *row = &t->rows[i];
        const char *phase = phase_of(c, row, &epoch);
        const bl_event *step = last_before(c, BL_SIGNAL_stepof_total, row);
        if (*phase != '\0')
            bl_event_fact_of(c->events, event, "phase", row->rank, "%s", phase);
        if (step != NULL && bl_event_number(step, "steps", &steps))
            number(c, event, "steps", row->rank, steps);
        number(c, event, "epoch", -1, epoch);
    }
}

/* ---- the table as facts ------------------------------------------------------------------------------------------------- */

static bool all_equal(const bl_collectives *t, const bl_collective_group *g, bool by_optype)
{
    const bl_collective *first = &t->rows[g->first];
    for (int i = g->first + 1; i < g->first + g->n; i++)
        if (by_optype ? strcmp(first->optype, t->rows[i].optype) != 0 : first->seqnum != t->rows[i].seqnum)
            return false;
    return true;
}

static void tell_row(bl_case *c, bl_event *event, const bl_collective *row, bool same_seq, bool same_op)
{
    if (!same_seq)
        number(c, event, "seqnum", row->rank, row->seqnum);
    if (!same_op)
        bl_event_fact_of(c->events, event, "optype", row->rank, "%s", row->optype);
    number(c, event, "numel", row->rank, row->numel);
    if (row->shape[0] != '\0')
        bl_event_fact_of(c->events, event, "shape", row->rank, "[%s]", row->shape);
}

static void tell_table(bl_case *c, bl_event *event, const bl_collectives *t, const bl_collective_group *g)
{
    const bl_collective *first = &t->rows[g->first];
    bool same_seq = all_equal(t, g, false), same_op = all_equal(t, g, true);
    if (event == NULL)
        return;
    if (same_seq)
        number(c, event, "seqnum", -1, first->seqnum);
    if (same_op)
        bl_event_fact_of(c->events, event, "optype", -1, "%s", first->optype);
    for (int i = g->first; i < g->first + g->n && i < g->first + TOLD; i++)
        tell_row(c, event, &t->rows[i], same_seq, same_op);
    if (g->n == 1) {
        number(c, event, "rank", -1, first->rank);
        number(c, event, "last_completed", -1, first->last_completed);
        number(c, event, "last_enqueued", -1, first->last_enqueued);
    }
    number(c, event, "timeout_ms", -1, first->timeout_ms);
    if (g->is_tie)
        bl_event_fact_of(c->events, event, "majority", -1, "tie");
    number(c, event, "alone", -1, bl_collectives_alone(t, g));
}

/* "TensorShape dim 0", when that is all in which two rows differ. */
static const char *differing_field(const bl_collective *a, const bl_collective *b, char out[64])
{
    const char *x = a->shape, *y = b->shape;
    int dimension = 0, differing = -1, n_differing = 0;
    if (a->seqnum != b->seqnum)
        return "SequenceNumber";
    if (strcmp(a->optype, b->optype) != 0)
        return "OpType";
    if (strcmp(a->dtype, b->dtype) != 0)
        return "TensorDtypes";
    while (*x != '\0' && *y != '\0') {
        size_t n = strcspn(x, ","), m = strcspn(y, ",");
        if (n != m || strncmp(x, y, n) != 0) {
            differing = dimension;
            n_differing++;
        }
        x += n + (x[n] == ',');
        y += m + (y[m] == ',');
        dimension++;
    }
    if (*x != '\0' || *y != '\0' || n_differing != 1)
        return "TensorShape";
    snprintf(out, 64, "TensorShape dim %d", differing);
    return out;
}

static const bl_collective *first_apart(const bl_collectives *t, const bl_collective_group *g, bool apart)
{
    for (int i = g->first; i < g->first + g->n; i++)
        if (t->rows[i].is_apart == apart)
            return &t->rows[i];
    return &t->rows[g->first];
}

/* ---- meetings ------------------------------------------------------------------------------------------------------------ */

static void derive_difference(bl_case *c, const bl_collectives *t, const bl_collective_group *g)
{
    char field[64];
    const bl_collective *usual = first_apart(t, g, false), *other = first_apart(t, g, true);
    bool is_print = usual->event->signal == BL_SIGNAL_fingerprint_differs;
    int alone = bl_collectives_alone(t, g);
    bl_signal signal = g->meeting == BL_MEETING_NEAR ? BL_SIGNAL_ranks_sizes_near : BL_SIGNAL_ranks_apart;
    if (usual->event->signal == BL_SIGNAL_stackframe_call)
        signal = BL_SIGNAL_ranks_stacks_apart;
    if (is_print)
        signal = g->meeting == BL_MEETING_SEQS ? BL_SIGNAL_ranks_print_places : BL_SIGNAL_ranks_print_sizes;
    bl_event *event = bl_events_derive_for(c->events, signal, alone >= 0 ? other->event : usual->event, alone);
    tell_table(c, event, t, g);
    if (event != NULL && (is_print || g->meeting == BL_MEETING_NEAR))
        bl_event_fact_of(c->events, event, "differing_field", -1, "%s",
                         usual->shape[0] == '\0' && usual->seqnum == other->seqnum
                             ? "NumelIn"
                             : differing_field(usual, other, field));
    if (event != NULL)
        tell_phases(c, event, t, g);
    bl_events_derive_for(c->events, BL_SIGNAL_ranks_other_side, alone >= 0 ? usual->event : other->event, -1);
}

static void tell_absent(bl_case *c, bl_event *event, const bl_collectives *t)
{
    for (int i = 0; i < t->n_absent && i < TOLD && event != NULL; i++)
        number(c, event, "absent_rank", -1, t->absent[i]);
}

static void derive_agreement(bl_case *c, const bl_collectives *t, const bl_collective_group *g)
{
    const bl_collective *row = &t->rows[g->first];
    bl_signal signal = BL_SIGNAL_ranks_all_wait;
    int rank = -1;
    if (g->meeting == BL_MEETING_ONE)
        signal = BL_SIGNAL_ranks_one_waits;
    else if (t->n_absent > 0 && t->n_absent < g->n && g->meeting == BL_MEETING_SAME) {
        signal = BL_SIGNAL_ranks_absent;
        rank = t->n_absent == 1 ? t->absent[0] : -1;
    }
    bl_event *event = bl_events_derive_for(c->events, signal, row->event, rank);
    tell_table(c, event, t, g);
    tell_absent(c, event, t);
}

static bool is_unbound(const bl_case *c, const bl_collective *row)
{
    return bl_events_first(c->events, BL_SIGNAL_binding_unknown) != NULL && row->seqnum >= 0 && row->seqnum <= 1 &&
           row->numel <= 1;
}

static void derive_meeting(bl_case *c, const bl_collectives *t, const bl_rank_failures *f)
{
    const bl_collective_group *g = bl_collectives_chief(t);
    if (g == NULL)
        return;
    if (g->meeting > BL_MEETING_SAME && g->meeting < BL_MEETING_POINT) {
        derive_difference(c, t, g);
        return;
    }
    if (t->rows[g->first].event->signal == BL_SIGNAL_fingerprint_differs) { /* old versions print one side */
        tell_table(c, bl_events_derive_for(c->events, BL_SIGNAL_ranks_print_sizes, t->rows[g->first].event, -1), t, g);
        return;
    }
    if (f->n > 0)
        return; /* they wait for the one that failed */
    if (is_unbound(c, &t->rows[g->first])) {
        tell_table(c, bl_events_derive_for(c->events, BL_SIGNAL_ranks_unbound, t->rows[g->first].event, -1), t, g);
        bl_events_derive_for(c->events, BL_SIGNAL_ranks_other_side,
                             bl_events_first(c->events, BL_SIGNAL_binding_unknown), -1);
        return;
    }
    derive_agreement(c, t, g);
}

/* ---- failures ------------------------------------------------------------------------------------------------------------- */

/* "... OSError: [Errno 28] ..." gives "OSError 28", however the line begins. */
static bool tell_errno(bl_case *c, bl_event *event, const char *text)
{
    enum { MOST_ERRNO = 4095 }; /* of Linux */
    const char *mark = strstr(text, ": [Errno "), *word = mark;
    char *end = NULL;
    if (mark == NULL)
        return false;
    while (word > text && isalnum((unsigned char)word[-1]))
        word--;
    long number = strtol(mark + strlen(": [Errno "), &end, 10);
    if (word == mark || *end != ']' || number < 0 || number > MOST_ERRNO)
        return false;
    bl_event_fact_of(c->events, event, "exception", -1, "%.*s %ld", (int)(mark - word), word, number);
    return true;
}

static void tell_how(bl_case *c, bl_event *event, const bl_event *base)
{
    const char *how = bl_event_get(base, "how"), *exception = bl_event_get(base, "exception");
    const char *signal = bl_event_get(base, "signal");
    if (how != NULL && strcmp(how, "Segmentation fault") == 0)
        how = "segmentation fault in a host thread";
    if (how != NULL)
        bl_event_fact_of(c->events, event, "how", -1, "%s", how);
    else if (exception != NULL)
        bl_event_fact_of(c->events, event, "how", -1, "an exception that nobody caught");
    if (!tell_errno(c, event, base->text) && exception != NULL)
        bl_event_fact_of(c->events, event, "exception", -1, "%s", exception);
    if (signal != NULL)
        bl_event_fact_of(c->events, event, "signal", -1, "%s", signal);
}

static void tell_failure(bl_case *c, bl_event *event, const bl_rank_failures *f, const bl_rank_failure *origin,
                         const bl_collectives *t)
{
    const bl_collective_group *g = bl_collectives_chief(t);
    if (event == NULL)
        return;
    for (int i = 0; i < f->n && i < TOLD && f->n > 1; i++)
        number(c, event, "failed_rank", -1, f->list[i].rank);
    if (origin != NULL) {
        number(c, event, "died_rank", -1, origin->rank);
        tell_how(c, event, origin->event);
    }
    for (int i = 0; i < f->n_echo_ranks && i < TOLD; i++)
        number(c, event, "echo_rank", -1, f->echo_ranks[i]);
    if (g == NULL)
        return;
    number(c, event, "seqnum", -1, t->rows[g->first].seqnum);
    bl_event_fact_of(c->events, event, "optype_of_echo", -1, "%s", t->rows[g->first].optype);
    number(c, event, "timeout_ms", -1, t->rows[g->first].timeout_ms);
}

static void derive_deaths(bl_case *c, const bl_rank_failures *f, const bl_collectives *t)
{
    const bl_rank_failure *origin = bl_rank_failures_origin(f);
    const bl_rank_failure *base = origin != NULL ? origin : &f->list[0];
    int rank = origin != NULL ? origin->rank : -1;
    if (f->echo == NULL) {
        bool is_told =
            bl_event_get(base->event, "died_rank") != NULL || base->event->signal == BL_SIGNAL_launcher_killed;
        if (f->n == 1 && is_told)
            tell_failure(c, bl_events_derive_for(c->events, BL_SIGNAL_ranks_ended_so, base->event, rank), f, base, t);
        return;
    }
    tell_failure(c, bl_events_derive_for(c->events, BL_SIGNAL_ranks_waited_for_dead, base->event, rank), f, origin, t);
    if (origin != NULL && origin->is_plain)
        tell_failure(c, bl_events_derive_for(c->events, BL_SIGNAL_ranks_died, base->event, rank), f, origin, t);
    else if (origin == NULL && bl_rank_failures_all_plain(f))
        tell_failure(c, bl_events_derive_for(c->events, BL_SIGNAL_ranks_died_several, base->event, -1), f, origin, t);
}

/* ---- nobody's failure is there --------------------------------------------------------------------------------------------- */

static bool felt_it(const bl_rank_failures *f, int64_t rank)
{
    for (int i = 0; i < f->n_echo_ranks; i++)
        if (f->echo_ranks[i] == rank)
            return true;
    return false;
}

/* Of the ranks whose own log is here, the only one that printed neither failure nor echo; -1. */
static int silent_rank(const bl_case *c, const bl_rank_failures *f)
{
    int silent = -1;
    for (int i = 0; i < c->n_sources; i++) {
        int rank = c->sources[i].rank;
        if (rank < 0 || felt_it(f, rank) || rank == silent)
            continue;
        if (silent >= 0)
            return -1;
        silent = rank;
    }
    return silent;
}

static const bl_event *below(const bl_case *c, bl_signal signal, const bl_event *head, int64_t n_lines)
{
    for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next)
        if (event->file == head->file && event->line > head->line && event->line <= head->line + n_lines)
            return event;
    return NULL;
}

/* torchrun's "Root Cause (first observed failure)": the rank it names; false when there is none. */
static bool root_cause(const bl_case *c, const bl_event **line, int64_t *rank, int64_t *exitcode)
{
    const bl_event *root = bl_events_first(c->events, BL_SIGNAL_elastic_root);
    if (root == NULL)
        return false;
    const bl_event *named = below(c, BL_SIGNAL_elastic_rank, root, BLOCK),
                   *code = below(c, BL_SIGNAL_elastic_code, root, BLOCK);
    *line = named;
    *exitcode = 0;
    if (code != NULL)
        (void)bl_event_number(code, "exitcode", exitcode);
    return named != NULL && bl_event_number(named, "rank", rank) && *rank >= 0 && *rank < BL_EVENTS_MOST;
}

/* Exit by a signal that is no echo: a watchdog aborts (6), a launcher stops (15). */
static bool is_own_end(int64_t exitcode) { return exitcode != 0 && exitcode != -6 && exitcode != -15; }

/* Nobody says why, but the launcher says who ended first. */
static bool derive_root_cause(bl_case *c, const bl_rank_failures *f)
{
    const bl_event *line = NULL;
    int64_t rank = -1, exitcode = 0;
    if (!root_cause(c, &line, &rank, &exitcode) || !is_own_end(exitcode) || felt_it(f, rank))
        return false;
    bl_signal signal = f->n_echo_ranks > 0 ? BL_SIGNAL_ranks_root_cause : BL_SIGNAL_ranks_ended_so;
    bl_event *event = bl_events_derive_for(c->events, signal, line, (int)rank);
    number(c, event, "died_rank", -1, rank);
    if (event != NULL)
        bl_event_fact_of(c->events, event, "exitcode", -1, "%lld", (long long)exitcode);
    return true;
}

/* The rank whose log is named after the pod; -1. */
static int rank_of_pod(const bl_case *c, const char *pod)
{
    size_t n = strlen(pod);
    for (int i = 0; i < c->n_sources; i++) {
        const char *slash = strrchr(c->sources[i].path, '/');
        const char *name = slash == NULL ? c->sources[i].path : slash + 1;
        if (strncmp(name, pod, n) == 0 && !isalnum((unsigned char)name[n]) && name[n] != '-')
            return c->sources[i].rank;
    }
    return -1;
}

/* What the cluster's events say of a pod holds for its rank. */
static void name_pods(bl_case *c)
{
    for (bl_event *end = bl_events_first(c->events, BL_SIGNAL_podend_code); end != NULL; end = end->next) {
        int rank = rank_of_pod(c, bl_event_get(end, "pod"));
        for (int64_t i = 0; i < bl_events_n(c->events) && rank >= 0; i++) {
            bl_event *event = bl_events_at(c->events, i);
            if (event->file == end->file && event->line == end->line && event->rank < 0)
                event->rank = rank;
        }
    }
}

/* Nobody says why, but the cluster says whose container ended by itself. */
static bool derive_pod_end(bl_case *c, const bl_rank_failures *f)
{
    for (const bl_event *end = bl_events_first(c->events, BL_SIGNAL_podend_code); end != NULL; end = end->next) {
        if (end->rank < 0 || f->n_echo_ranks == 0 || felt_it(f, end->rank))
            continue;
        bl_event *event = bl_events_derive(c->events, BL_SIGNAL_ranks_root_cause, end);
        number(c, event, "died_rank", -1, end->rank);
        return true;
    }
    return false;
}

static void derive_unseen_death(bl_case *c, const bl_rank_failures *f, const bl_collectives *t)
{
    int silent = silent_rank(c, f);
    if (derive_root_cause(c, f) || derive_pod_end(c, f))
        return;
    if (f->unranked != NULL && f->echo != NULL) {
        bl_event *event = bl_events_derive_for(c->events, BL_SIGNAL_ranks_died_several, f->unranked, -1);
        tell_failure(c, event, f, NULL, t);
        if (event != NULL)
            tell_how(c, event, f->unranked);
        return;
    }
    if (f->closed == NULL || f->unranked != NULL)
        return;
    if (silent >= 0 && f->n_echo_ranks >= 1) {
        bl_event *event = bl_events_derive_for(c->events, BL_SIGNAL_ranks_went_silent, f->closed, silent);
        number(c, event, "died_rank", -1, silent);
        tell_failure(c, event, f, NULL, t);
        return;
    }
    tell_failure(c, bl_events_derive_for(c->events, BL_SIGNAL_ranks_echo_only, f->closed, -1), f, NULL, t);
}

/* Events of that process, told by the line's origin or by its text, are that rank's. */
static void name_process(bl_case *c, int64_t pid, int64_t rank)
{
    if (pid < 0 || rank < 0 || rank >= BL_EVENTS_MOST)
        return;
    for (int64_t i = 0; i < bl_events_n(c->events); i++) {
        bl_event *event = bl_events_at(c->events, i);
        int64_t told = -1;
        if (event->rank < 0 && (event->pid == pid || (bl_event_number(event, "pid", &told) && told == pid)))
            event->rank = (int)rank;
    }
}

/* The last event of the signal above a line, within an entry of torchrun's list; NULL. */
static const bl_event *above(const bl_case *c, bl_signal signal, const bl_event *line)
{
    const bl_event *last = NULL;
    for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next)
        if (event->file == line->file && event->line < line->line && event->line >= line->line - BLOCK &&
            (last == NULL || event->line > last->line))
            last = event;
    return last;
}

/* torchrun's list of failures tells the rank above the process; a rank above the entry before is not this one's. */
static int64_t rank_above(const bl_case *c, const bl_event *code)
{
    const bl_event *named = above(c, BL_SIGNAL_elastic_rank, code), *before = above(c, BL_SIGNAL_elastic_code, code);
    int64_t rank = -1;
    if (named == NULL || (before != NULL && before->line > named->line) || !bl_event_number(named, "rank", &rank))
        return -1;
    return rank;
}

/* What launchers say of ranks and processes holds for the lines of the kernel and of others about those processes. */
static void name_processes(bl_case *c)
{
    static const bl_signal launchers[] = {BL_SIGNAL_exit_mpi, BL_SIGNAL_exit_mpi_code, BL_SIGNAL_exit_killed,
                                          BL_SIGNAL_hydra_rank};
    int64_t pid, rank;
    for (const bl_event *code = bl_events_first(c->events, BL_SIGNAL_elastic_code); code != NULL; code = code->next)
        if (bl_event_number(code, "pid", &pid))
            name_process(c, pid, rank_above(c, code));
    for (int i = 0; i < BL_COUNT(launchers); i++)
        for (const bl_event *e = bl_events_first(c->events, launchers[i]); e != NULL; e = e->next)
            if (bl_event_number(e, "process", &pid) &&
                (bl_event_number(e, "died_rank", &rank) || bl_event_number(e, "rank", &rank)))
                name_process(c, pid, rank);
}

/* A stack below a heading "rank 2" is that rank's. */
static void name_stacks(bl_case *c)
{
    static const bl_signal signals[] = {BL_SIGNAL_stackframe_call, BL_SIGNAL_stackhead_seen};
    for (const bl_event *head = bl_events_first(c->events, BL_SIGNAL_stackhead_seen); head != NULL; head = head->next) {
        int64_t rank;
        if (!bl_event_number(head, "of_rank", &rank) || rank >= BL_EVENTS_MOST)
            continue;
        for (int i = 0; i < BL_COUNT(signals); i++)
            for (bl_event *e = bl_events_first(c->events, signals[i]); e != NULL; e = e->next)
                if (e->file == head->file && e->line >= head->line)
                    e->rank = (int)rank; /* a later heading takes over */
    }
}

void bl_derive_ranks(bl_case *c)
{
    bl_collectives t;
    bl_rank_failures f = {0};
    name_processes(c);
    name_stacks(c);
    name_pods(c);
    if (bl_collectives_init(c, &t) && bl_rank_failures_init(c, &f)) {
        derive_meeting(c, &t, &f);
        if (f.n > 0)
            derive_deaths(c, &f, &t);
        else if (!f.has_unranked)
            derive_unseen_death(c, &f, &t);
        bl_derive_rank_order(c);
        bl_derive_rank_messages(c);
    } else {
        bl_events_note_no_memory(c->events);
    }
    bl_rank_failures_fini(&f);
    bl_collectives_fini(&t);
}
