/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "triage/tell.h"

enum { WIDTH = 110, QUOTED = 160 };

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

static void add_inputs(const bl_explain *explain, bl_text *out)
{
    const bl_case *c = bl_explain_case(explain);
    int64_t lines = 0;
    for (int i = 0; i < c->n_sources; i++)
        lines += c->sources[i].n_lines;
    bl_text_format(out, "%d %s, %lld lines\n", c->n_sources, c->n_sources == 1 ? "file" : "files", (long long)lines);
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

void bl_tell_text(const bl_explain *explain, bl_text *out)
{
    const bl_findings *findings = bl_explain_findings(explain);
    add_inputs(explain, out);
    if (findings->n_verdicts == 0)
        bl_text_add(out, "No fault in these logs.\n");
    for (int i = 0; i < findings->n_verdicts; i++)
        add_verdict(explain, &findings->verdicts[i], i + 1, out);
    add_echoes(explain, out);
}
