/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "triage/tell.h"

/* ---- facts --------------------------------------------------------------------------------------------------------- */

/* "[32000, 4096]" as a list of integers, NULL when it is none. */
static json_t *list_of(const char *text)
{
    const char *at = text + 1;
    if (text[0] != '[' && text[0] != '(')
        return NULL;
    json_t *list = json_array();
    while (list != NULL) {
        char *end = NULL;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (end == at || errno != 0 || json_array_append_new(list, json_integer(value)) != 0)
            break;
        at = end + strspn(end, ", ");
        if ((*at == ']' || *at == ')') && at[1] == '\0')
            return list;
    }
    json_decref(list);
    return NULL;
}

/* An integer where the text is one in its usual spelling, else a list, else a text. */
static json_t *value_of(const char *text)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool is_plain = end != text && *end == '\0' && errno == 0 && text[0] != '+' && text[0] != ' ';
    if (is_plain)
        return json_integer(number);
    json_t *list = list_of(text);
    return list != NULL ? list : bl_json_text(text);
}

/* The second value of a name makes a list of them. */
static bool put_again(json_t *facts, const char *name, json_t *value)
{
    json_t *old = json_object_get(facts, name);
    if (old == NULL)
        return json_object_set_new(facts, name, value) == 0;
    bool is_list_of_values = json_is_array(old) && json_object_get(facts, "") == NULL && json_array_size(old) > 0 &&
                             (json_is_array(json_array_get(old, 0)) == json_is_array(value));
    if (is_list_of_values)
        return json_array_append_new(old, value) == 0;
    json_t *list = json_array();
    if (list == NULL || json_array_append(list, old) != 0 || json_array_append_new(list, value) != 0) {
        json_decref(list);
        return false;
    }
    return json_object_set_new(facts, name, list) == 0;
}

static bool put_of_rank(json_t *facts, const bl_fact *fact, json_t *value)
{
    char rank[16];
    json_t *map = json_object_get(facts, fact->name);
    snprintf(rank, sizeof rank, "%d", fact->rank);
    if (!json_is_object(map)) {
        map = json_object();
        if (json_object_set_new(facts, fact->name, map) != 0) {
            json_decref(value);
            return false;
        }
    }
    return json_object_set_new(map, rank, value) == 0;
}

static json_t *facts_of(const bl_verdict *verdict)
{
    json_t *facts = json_object();
    bool ok = facts != NULL;
    for (int i = 0; ok && i < verdict->n_facts; i++) {
        const bl_fact *fact = &verdict->facts[i];
        json_t *value = value_of(fact->value);
        ok = value != NULL && (fact->rank >= 0 ? put_of_rank(facts, fact, value) : put_again(facts, fact->name, value));
    }
    if (ok)
        return facts;
    json_decref(facts);
    return NULL;
}

/* ---- verdicts ------------------------------------------------------------------------------------------------------- */

static json_t *line_of(const bl_explain *explain, const bl_event *event)
{
    json_t *text = bl_json_text(event->text), *file = bl_json_text(bl_tell_file(explain, event));
    return json_pack("{s:o, s:I, s:o, s:o}", "file", file, "line", (json_int_t)event->line, "rank",
                     event->rank < 0 ? json_null() : json_integer(event->rank), "text", text);
}

static json_t *lines_of(const bl_explain *explain, const bl_verdict *verdict)
{
    json_t *list = json_array();
    for (int i = 0; list != NULL && i < verdict->n_evidence; i++)
        if (json_array_append_new(list, line_of(explain, verdict->evidence[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* All lines that show a signal of the rule's condition, those that a derived one was concluded from among them: what the
 * verdict would not stand without.  Numbers alone; bounded. */
static json_t *stands_on(const bl_explain *explain, const bl_verdict *verdict)
{
    json_t *list = json_array();
    for (int i = 0; list != NULL && i < verdict->n_support; i++)
        if (json_array_append_new(list, json_pack("{s:o, s:I}", "file",
                                                  bl_json_text(bl_tell_file(explain, verdict->support[i])), "line",
                                                  (json_int_t)verdict->support[i]->line)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* A line of a text; paths in it may be of any bytes. */
static json_t *text_of(const char *line, size_t length)
{
    bl_text copy = {0};
    bl_text_add_bytes(&copy, line, (int64_t)length);
    json_t *text = copy.failed ? NULL : bl_json_text(bl_text_get(&copy));
    bl_text_fini(&copy);
    return text;
}

static json_t *steps_of(const char *next)
{
    json_t *list = json_array();
    while (list != NULL && *next != '\0') {
        size_t length = strcspn(next, "\n");
        if (json_array_append_new(list, text_of(next, length)) != 0) {
            json_decref(list);
            return NULL;
        }
        next += length + (next[length] == '\n');
    }
    return list;
}

static json_t *verdict_of(const bl_explain *explain, const bl_verdict *verdict)
{
    const bl_rule_row *rule = verdict->rule;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:s, s:s, s:o}", "class", bl_class_name(rule->class_),
        "strength", bl_strength_name(rule->strength), "scope", bl_scope_name(rule->scope), "rule", rule->name,
        "origin_rank", verdict->origin_rank < 0 ? json_null() : json_integer(verdict->origin_rank), "says",
        bl_class_says(rule->class_), "evidence", lines_of(explain, verdict), "stands_on", stands_on(explain, verdict),
        "facts", facts_of(verdict), "why", rule->why, "usual_wrong_verdict", rule->wrong, "next", steps_of(rule->next));
}

static json_t *echo_of(const bl_explain *explain, const bl_echo *echo)
{
    json_t *line = line_of(explain, echo->event);
    if (line == NULL || json_object_set_new(line, "count", json_integer(echo->count)) != 0 ||
        json_object_set_new(line, "why", json_string(echo->why)) != 0) {
        json_decref(line);
        return NULL;
    }
    return line;
}

static bool append(json_t *list, json_t *value) { return value != NULL && json_array_append_new(list, value) == 0; }

static bool put_verdicts(const bl_explain *explain, json_t *into)
{
    const bl_findings *findings = bl_explain_findings(explain);
    json_t *verdicts = json_array(), *echoes = json_array();
    bool ok = json_object_set_new(into, "verdicts", verdicts) == 0;
    ok = json_object_set_new(into, "echoes", echoes) == 0 && ok;
    for (int i = 0; ok && i < findings->n_verdicts; i++)
        ok = append(verdicts, verdict_of(explain, &findings->verdicts[i]));
    for (int i = 0; ok && i < findings->n_echoes; i++)
        ok = append(echoes, echo_of(explain, &findings->echoes[i]));
    return ok;
}

/* ---- the inputs ------------------------------------------------------------------------------------------------------ */

static bool put_files(const bl_explain *explain, json_t *into)
{
    const bl_case *c = bl_explain_case(explain);
    json_t *files = json_array();
    bool ok = json_object_set_new(into, "files", files) == 0;
    for (int i = 0; ok && i < c->n_sources; i++)
        ok = append(files, json_pack("{s:o, s:I, s:I, s:b}", "file", bl_json_text(c->sources[i].path), "lines",
                                     (json_int_t)c->sources[i].n_lines, "bytes", (json_int_t)c->sources[i].n_bytes,
                                     "looked_at_whole", c->sources[i].was_whole_read));
    return ok;
}

/* ---- ranks ---------------------------------------------------------------------------------------------------------- */

static json_t *number_or_null(int64_t number) { return number < 0 ? json_null() : json_integer(number); }

static bool put_collectives(const bl_explain *explain, json_t *into)
{
    const bl_collectives *all = bl_explain_collectives(explain);
    json_t *list = json_array();
    bool ok = json_object_set_new(into, "collectives", list) == 0;
    for (int i = 0; ok && i < all->n; i++) {
        const bl_collective *row = &all->rows[i];
        ok = append(list, json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "rank", row->rank, "group",
                                    bl_json_text(row->group), "seqnum", number_or_null(row->seqnum), "optype",
                                    bl_json_text(row->optype), "numel", number_or_null(row->numel), "shape",
                                    bl_json_text(row->shape), "last_enqueued", number_or_null(row->last_enqueued),
                                    "last_completed", number_or_null(row->last_completed), "is_apart", row->is_apart));
    }
    return ok;
}

static bool put_failures(const bl_explain *explain, json_t *into)
{
    const bl_rank_failures *failures = bl_explain_failures(explain);
    json_t *list = json_array();
    bool ok = json_object_set_new(into, "first_failures", list) == 0;
    for (int i = 0; ok && i < failures->n; i++)
        ok = append(list, line_of(explain, failures->list[i].event));
    return ok;
}

static bool put_questions(const bl_explain *explain, json_t *into)
{
    const bl_questions *questions = bl_explain_questions(explain);
    json_t *list = json_array();
    bool ok = json_object_set_new(into, "questions", list) == 0;
    for (int q = 0; ok && questions != NULL && q < BL_N_QUESTIONS; q++)
        ok = append(list, json_pack("{s:s, s:s, s:s}", "question", bl_question_describe((bl_question)q), "answer",
                                    bl_answer_describe((bl_question)q, questions->list[q].answer), "because",
                                    questions->list[q].because));
    return ok;
}

bool bl_tell_json(const bl_explain *explain, json_t *into)
{
    bl_json_init();
    return put_verdicts(explain, into) && put_failures(explain, into) && put_collectives(explain, into) &&
           put_questions(explain, into) && put_files(explain, into) &&
           json_object_set_new(into, "journals", steps_of(bl_explain_journals(explain))) == 0 &&
           json_object_set_new(into, "notes", steps_of(bl_explain_notes(explain))) == 0;
}
