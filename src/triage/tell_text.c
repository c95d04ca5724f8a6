/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "triage/tell.h"

enum { WIDTH = 110, QUOTED = 160, RANKS_SHOWN = 32 };

const char *bl_tell_file(const bl_explain *explain, const bl_event *event)
{
    const bl_case *c = bl_explain_case(explain);
    return event->file >= 0 && event->file < c->n_sources ? c->sources[event->file].path : "?";
}

/* Words of our own, broken between words to lines of WIDTH columns behind `indent` blanks. */
static void add_wrapped(bl_text *out, const char *words, int indent)
{
    int column = indent;
    bl_text_format(out, "%*s", indent, "");
    while (*words != '\0') {
        int length = (int)strcspn(words, " ");
        if (column > indent && column + length > WIDTH) {
            bl_text_format(out, "\n%*s", indent, "");
            column = indent;
        }
        bl_text_format(out, "%s%.*s", column > indent ? " " : "", length, words);
        column += length + (column > indent);
        words += length;
        words += strspn(words, " ");
    }
    bl_text_add(out, "\n");
}

static void add_place(const bl_explain *explain, const bl_event *event, bl_text *out)
{
    const char *file = bl_tell_file(explain, event);
    bl_text_add_escaped(out, file, (int64_t)strlen(file), 4096);
    if (event->line > 0)
        bl_text_format(out, ":%lld", (long long)event->line);
    if (event->rank >= 0)
        bl_text_format(out, " (rank %d)", event->rank);
}

static void add_line(const bl_explain *explain, const bl_event *event, bl_text *out)
{
    bl_text_add(out, "    ");
    add_place(explain, event, out);
    bl_text_add(out, "\n        | ");
    bl_text_add_escaped(out, event->text, (int64_t)strlen(event->text), QUOTED);
    bl_text_add(out, "\n");
}

static void add_facts(const bl_verdict *verdict, bl_text *out)
{
    if (verdict->n_facts > 0)
        bl_text_add(out, "  facts:\n");
    for (int i = 0; i < verdict->n_facts; i++) {
        const bl_fact *fact = &verdict->facts[i];
        bl_text_format(out, "    %s", fact->name);
        if (fact->rank >= 0)
            bl_text_format(out, " of rank %d", fact->rank);
        bl_text_add(out, " = ");
        bl_text_add_escaped(out, fact->value, (int64_t)strlen(fact->value), QUOTED);
        bl_text_add(out, "\n");
    }
}

static void add_steps(const char *steps, bl_text *out)
{
    while (*steps != '\0') {
        int length = (int)strcspn(steps, "\n");
        bl_text_format(out, "    - %.*s\n", length, steps);
        steps += length + (steps[length] == '\n');
    }
}

static void add_verdict(const bl_explain *explain, const bl_verdict *verdict, int number, bl_text *out)
{
    const bl_rule_row *rule = verdict->rule;
    bl_text_format(out, "%d. %s (%s", number, bl_class_name(rule->class_), bl_strength_name(rule->strength));
    if (rule->scope != BL_SCOPE_NONE)
        bl_text_format(out, ", %s", bl_scope_name(rule->scope));
    if (verdict->origin_rank >= 0)
        bl_text_format(out, ", began on rank %d", verdict->origin_rank);
    bl_text_add(out, ")\n");
    add_wrapped(out, bl_class_says(rule->class_), 2);
    bl_text_add(out, "  why:\n");
    add_wrapped(out, rule->why, 4);
    bl_text_add(out, "  evidence:\n");
    for (int i = 0; i < verdict->n_evidence; i++)
        add_line(explain, verdict->evidence[i], out);
    add_facts(verdict, out);
    if (rule->wrong[0] != '\0') {
        bl_text_add(out, "  not this:\n");
        add_wrapped(out, rule->wrong, 4);
    }
    bl_text_add(out, "  next:\n");
    add_steps(rule->next, out);
    bl_text_add(out, "\n");
}

static void add_echoes(const bl_explain *explain, bl_text *out)
{
    const bl_findings *findings = bl_explain_findings(explain);
    if (findings->n_echoes > 0)
        bl_text_add(out, "only echoes:\n");
    for (int i = 0; i < findings->n_echoes; i++) {
        const bl_echo *echo = &findings->echoes[i];
        bl_text_add(out, "    ");
        add_place(explain, echo->event, out);
        if (echo->count > 1)
            bl_text_format(out, ", %lld times", (long long)echo->count);
        bl_text_format(out, ": %s\n        | ", echo->why);
        bl_text_add_escaped(out, echo->event->text, (int64_t)strlen(echo->event->text), QUOTED);
        bl_text_add(out, "\n");
    }
}

/* ---- ranks ----------------------------------------------------------------------------------------------------------- */

static int by_moment(const void *left, const void *right)
{
    const bl_rank_failure *a = left, *b = right;
    if (bl_event_before(a->event, b->event))
        return -1;
    return bl_event_before(b->event, a->event) ? 1 : a->rank - b->rank;
}

static void add_failures(const bl_explain *explain, bl_text *out)
{
    const bl_rank_failures *failures = bl_explain_failures(explain);
    bl_rank_failure sorted[RANKS_SHOWN];
    int n = failures->n < RANKS_SHOWN ? failures->n : RANKS_SHOWN;
    if (n == 0 || n + failures->n_echo_ranks < 2)
        return;
    memcpy(sorted, failures->list, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_moment);
    bl_text_add(out, "first failure of each rank, in order:\n");
    for (int i = 0; i < n; i++)
        add_line(explain, sorted[i].event, out);
    if (failures->n > n)
        bl_text_format(out, "    and %d more\n", failures->n - n);
    if (failures->n_echo_ranks > 0) {
        bl_text_add(out, "    ranks that only felt it:");
        for (int i = 0; i < failures->n_echo_ranks && i < RANKS_SHOWN; i++)
            bl_text_format(out, " %d", failures->echo_ranks[i]);
        bl_text_add(out, "\n");
    }
    bl_text_add(out, "\n");
}

static void add_number(bl_text *out, int64_t number, int width)
{
    if (number < 0)
        bl_text_format(out, "  %*s", width, "-");
    else
        bl_text_format(out, "  %*lld", width, (long long)number);
}

static void add_collective(const bl_collective *row, bool is_tie, bl_text *out)
{
    bl_text_format(out, "    %4d", row->rank);
    add_number(out, row->seqnum, 9);
    bl_text_add(out, "  ");
    int64_t before = out->n_bytes;
    bl_text_add_escaped(out, row->optype, (int64_t)strlen(row->optype), 24);
    bl_text_format(out, "%*s", (int)(before + 18 > out->n_bytes ? before + 18 - out->n_bytes : 0), "");
    add_number(out, row->numel, 12);
    add_number(out, row->last_enqueued, 9);
    add_number(out, row->last_completed, 9);
    if (row->shape[0] != '\0') {
        bl_text_add(out, "  [");
        bl_text_add_escaped(out, row->shape, (int64_t)strlen(row->shape), 64);
        bl_text_add(out, "]");
    }
    bl_text_add(out, row->is_apart && !is_tie ? "  <- apart\n" : "\n");
}

static void add_collectives(const bl_explain *explain, bl_text *out)
{
    const bl_collectives *all = bl_explain_collectives(explain);
    for (int g = 0; g < all->n_groups; g++) {
        const bl_collective_group *group = &all->groups[g];
        bl_text_add(out, "last collective of each rank");
        if (group->name[0] != '\0') {
            bl_text_add(out, ", group ");
            bl_text_add_escaped(out, group->name, (int64_t)strlen(group->name), 64);
        }
        bl_text_format(out, ": %s%s\n", bl_meeting_describe(group->meeting), group->is_tie ? " (a tie)" : "");
        bl_text_add(out, "    rank     seqnum  operation             elements   queued       done\n");
        for (int i = 0; i < group->n && i < RANKS_SHOWN; i++)
            add_collective(&all->rows[group->first + i], group->is_tie, out);
        if (group->n > RANKS_SHOWN)
            bl_text_format(out, "    and %d more\n", group->n - RANKS_SHOWN);
    }
    if (all->n_absent > 0) {
        bl_text_add(out, "    waiting in nothing: rank");
        for (int i = 0; i < all->n_absent && i < RANKS_SHOWN; i++)
            bl_text_format(out, " %d", all->absent[i]);
        bl_text_add(out, "\n");
    }
    if (all->n_groups > 0)
        bl_text_add(out, "\n");
}

static void add_questions(const bl_explain *explain, bl_text *out)
{
    const bl_questions *questions = bl_explain_questions(explain);
    if (questions == NULL || bl_explain_findings(explain)->n_verdicts == 0)
        return;
    bl_text_add(out, "is it special to data-parallel training?\n");
    for (int q = 0; q < BL_N_QUESTIONS; q++) {
        bl_answer answer = questions->list[q].answer;
        bl_text_format(out, "    %s %s", bl_question_describe((bl_question)q),
                       bl_answer_describe((bl_question)q, answer));
        if (questions->list[q].event != NULL && questions->list[q].event->file >= 0) {
            bl_text_add(out, ", ");
            add_place(explain, questions->list[q].event, out);
        }
        if (questions->list[q].because[0] != '\0')
            bl_text_format(out, ": %s", questions->list[q].because);
        bl_text_add(out, "\n");
    }
    bl_text_add(out, "\n");
}

static void add_inputs(const bl_explain *explain, bl_text *out)
{
    const bl_case *c = bl_explain_case(explain);
    int64_t lines = 0;
    for (int i = 0; i < c->n_sources; i++)
        lines += c->sources[i].n_lines;
    bl_text_format(out, "%d %s, %lld %s\n", c->n_sources, c->n_sources == 1 ? "file" : "files", (long long)lines,
                   lines == 1 ? "line" : "lines");
    const char *notes = bl_explain_notes(explain);
    while (*notes != '\0') {
        size_t length = strcspn(notes, "\n");
        bl_text_add(out, "note: ");
        bl_text_add_escaped(out, notes, (int64_t)length, INT64_MAX);
        bl_text_add(out, "\n");
        notes += length + (notes[length] == '\n');
    }
    bl_text_add(out, "\n");
}

static void add_journals(const bl_explain *explain, bl_text *out)
{
    const char *lines = bl_explain_journals(explain);
    if (*lines != '\0')
        bl_text_add(out, bl_explain_findings(explain)->n_verdicts == 0 ? "\njournals:\n" : "journals:\n");
    while (*lines != '\0') {
        int length = (int)strcspn(lines, "\n");
        bl_text_format(out, "    %.*s\n", length, lines);
        lines += length + (lines[length] == '\n');
        if (*lines == '\0')
            bl_text_add(out, "\n");
    }
}

void bl_tell_text(const bl_explain *explain, bl_text *out)
{
    const bl_findings *findings = bl_explain_findings(explain);
    add_inputs(explain, out);
    if (findings->n_verdicts == 0)
        bl_text_add(out, "No fault in these logs.\n");
    for (int i = 0; i < findings->n_verdicts; i++)
        add_verdict(explain, &findings->verdicts[i], i + 1, out);
    add_journals(explain, out);
    add_failures(explain, out);
    add_collectives(explain, out);
    add_questions(explain, out);
    add_echoes(explain, out);
}
