/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "report/html.h"
#include "triage/tell.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>belay explain</title>\n<style>\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2024}\n"
    "section{border:1px solid #d5d9de;border-left:6px solid #8b95a1;border-radius:6px;padding:.2rem 1rem "
    "1rem;margin:1rem 0}\n"
    "section.settled{border-left-color:#b3261e}section.likely{border-left-color:#c77700}\n"
    "pre{background:#f4f5f7;padding:.4rem .6rem;overflow-x:auto;margin:.2rem 0 .8rem}\n"
    "table{border-collapse:collapse}td{padding:.1rem .8rem .1rem 0;vertical-align:top}\n"
    "h3{margin:.9rem 0 .2rem;font-size:1rem}.place{color:#57606a}\n"
    "@media(prefers-color-scheme:dark){body{background:#15181c;color:#e3e6ea}pre{background:#20252b}"
    "section{border-color:#39414a}.place{color:#9aa4af}}\n</style></head><body>\n<h1>belay explain</h1>\n";

static void add_place(const bl_explain *explain, const bl_event *event, bl_text *out)
{
    bl_text_add(out, "<div class=\"place\">");
    bl_report_html_escape(bl_tell_file(explain, event), out);
    if (event->line > 0)
        bl_text_format(out, ":%lld", (long long)event->line);
    if (event->rank >= 0)
        bl_text_format(out, ", rank %d", event->rank);
}

static void add_line(const bl_explain *explain, const bl_event *event, const char *why, bl_text *out)
{
    add_place(explain, event, out);
    if (why[0] != '\0') {
        bl_text_add(out, ": ");
        bl_report_html_escape(why, out);
    }
    bl_text_add(out, "</div><pre>");
    bl_report_html_escape(event->text, out);
    bl_text_add(out, "</pre>\n");
}

static void add_paragraph(const char *title, const char *words, bl_text *out)
{
    if (words[0] == '\0')
        return;
    bl_text_format(out, "<h3>%s</h3><p>", title);
    bl_report_html_escape(words, out);
    bl_text_add(out, "</p>\n");
}

static void add_lines(const char *title, const char *lines, bl_text *out)
{
    if (lines[0] == '\0')
        return;
    bl_text_format(out, "<h3>%s</h3><pre>", title);
    bl_report_html_escape(lines, out);
    bl_text_add(out, "</pre>\n");
}

static void add_facts(const bl_verdict *verdict, bl_text *out)
{
    bl_text_add(out, "<h3>Facts</h3><table>\n");
    for (int i = 0; i < verdict->n_facts; i++) {
        bl_text_add(out, "<tr><td>");
        bl_report_html_escape(verdict->facts[i].name, out);
        if (verdict->facts[i].rank >= 0)
            bl_text_format(out, " of rank %d", verdict->facts[i].rank);
        bl_text_add(out, "</td><td>");
        bl_report_html_escape(verdict->facts[i].value, out);
        bl_text_add(out, "</td></tr>\n");
    }
    bl_text_add(out, "</table>\n");
}

static void add_verdict(const bl_explain *explain, const bl_verdict *verdict, bl_text *out)
{
    const bl_rule_row *rule = verdict->rule;
    bl_text_format(out, "<section class=\"%s\"><h2>%s</h2><p>%s, scope: %s", bl_strength_name(rule->strength),
                   bl_class_name(rule->class_), bl_strength_name(rule->strength), bl_scope_name(rule->scope));
    if (verdict->origin_rank >= 0)
        bl_text_format(out, ", began on rank %d", verdict->origin_rank);
    bl_text_add(out, "</p>\n");
    add_paragraph("What it is", bl_class_says(rule->class_), out);
    add_paragraph("Why", rule->why, out);
    bl_text_add(out, "<h3>Evidence</h3>\n");
    for (int i = 0; i < verdict->n_evidence; i++)
        add_line(explain, verdict->evidence[i], "", out);
    add_facts(verdict, out);
    add_paragraph("Not this", rule->wrong, out);
    bl_text_add(out, "<h3>Next</h3><pre>");
    bl_report_html_escape(rule->next, out);
    bl_text_add(out, "</pre></section>\n");
}

void bl_tell_html(const bl_explain *explain, bl_text *out)
{
    const bl_findings *findings = bl_explain_findings(explain);
    bl_text_add(out, head);
    if (findings->n_verdicts == 0)
        bl_text_add(out, "<p>No fault in these logs.</p>\n");
    for (int i = 0; i < findings->n_verdicts; i++)
        add_verdict(explain, &findings->verdicts[i], out);
    if (findings->n_echoes > 0)
        bl_text_add(out, "<h2>Only echoes</h2>\n");
    for (int i = 0; i < findings->n_echoes; i++)
        add_line(explain, findings->echoes[i].event, findings->echoes[i].why, out);
    add_lines("Journals", bl_explain_journals(explain), out);
    add_paragraph("Notes", bl_explain_notes(explain), out);
    bl_text_add(out, "</body></html>\n");
}
