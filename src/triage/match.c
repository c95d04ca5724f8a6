/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE           /* memmem */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "triage/match.h"
#include "triage/search.h"

enum { MOST_LINE = 65536 };
#define MATCH_LIMIT 100000 /* steps of PCRE2 for one pattern and line: a hostile line costs no more */

struct bl_matcher {
    bl_anchors anchors, weak; /* of strong rows; of weak ones */
    int64_t *weak_bytes;      /* lengths of the weak anchors */
    bl_search_plain *weak_search;
    pcre2_code *code[BL_N_SIGNALS];
    pcre2_code *hint, *outcome, *talk;
    pcre2_match_data *data, *check;
    pcre2_match_context *context;
    int always[BL_N_SIGNALS], n_always; /* rows without an anchor */
    int group[BL_N_SIGNALS];            /* number of the first row of its group */
};

/* Words before an error that say that it is only spoken of. */
static const char hint_pattern[] =
    "(?i)(?:(?:\\b(?:prompt|output|completion|question|answer)|(?<!\")\\b(?:sample|user|assistant))['\"]?\\s*[:=]\\s*['"
    "\"].*|"
    "\"role\"\\s*:\\s*\"(?:user|assistant|system|tool)\".*|"
    "\\b(?:if (?:you|it|this|the \\w+) (?:also |still |only |then "
    ")?(?:see|sees|get|gets|hit|hits|encounter|encounters|fails?|raises?|happens)|"
    "expect(?:ed|s)?|e\\.g\\.|for example|for instance|hint|tip|such as|known (?:issue|problem|error)|troubleshoot\\w*|"
    "will get|you (?:may|might|will) (?:see|get)|in case of|may (?:raise|cause|result)|can (?:raise|cause|result)|"
    "look(?:s|ing)? "
    "for|grep|raise|assert_?raises|pytest\\.raises|simulat(?:e|ed|ing)|inject(?:ed|ing)?|fixed|changelog|docs?:|"
    "no )\\b)";
/* What a model was told or says: no setting and no value in it is one of this run. */
static const char talk_pattern[] =
    "(?i)(?:\\b(?:prompt|completion|question|answer)|(?<!\")\\b(?:sample|user|assistant))['\"]?\\s*[:=]\\s*['\"]";
/* Ends of a line that say that all is well. */
static const char outcome_pattern[] =
    "(?i)\\(expected\\b|\\b(?:as|is|was) expected\\b|(?:\\.\\.\\. ?ok|\\bok|\\bPASSED|\\bpassed|\\[ +OK \\].*)\\s*$";

/* ---- building ------------------------------------------------------------------------------------------------------ */

static belay_code compile(const char *pattern, const char *name, pcre2_code **out, bl_error *error)
{
    int number = 0;
    PCRE2_SIZE offset = 0;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_DUPNAMES | PCRE2_NEVER_UTF | PCRE2_MULTILINE,
                         &number, &offset, NULL);
    if (*out == NULL)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "the pattern of signal %s does not compile at byte %zu", name,
                            offset);
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return BELAY_OK;
}

static int group_of(int row)
{
    size_t length = strcspn(bl_signals[row].name, "_");
    for (int i = 0; i < row; i++)
        if (strncmp(bl_signals[i].name, bl_signals[row].name, length) == 0 && bl_signals[i].name[length] == '_')
            return i;
    return row;
}

static bool open_weak(bl_matcher *matcher)
{
    if (!bl_anchors_init(&matcher->weak, true))
        return false;
    const bl_anchors *weak = &matcher->weak;
    bl_literals literals = {.list = weak->list, .n = weak->n, .shortest = INT64_MAX};
    matcher->weak_bytes = bl_alloc(weak->n, sizeof *matcher->weak_bytes);
    for (int i = 0; matcher->weak_bytes != NULL && i < weak->n; i++) {
        int64_t n = (int64_t)strlen(weak->list[i]);
        matcher->weak_bytes[i] = n;
        literals.shortest = bl_min_i64(literals.shortest, n);
        literals.longest = bl_max_i64(literals.longest, n);
    }
    literals.n_bytes = matcher->weak_bytes;
    matcher->weak_search = matcher->weak_bytes == NULL ? NULL : bl_search_plain_new(&literals);
    return matcher->weak_search != NULL;
}

static belay_code build(bl_matcher *matcher, bl_error *error)
{
    matcher->data = pcre2_match_data_create(32, NULL);
    matcher->check = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
    if (!bl_anchors_init(&matcher->anchors, false) || !open_weak(matcher) || matcher->data == NULL ||
        matcher->check == NULL || matcher->context == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the patterns");
    pcre2_set_match_limit(matcher->context, MATCH_LIMIT);
    TRY(compile(hint_pattern, "(hint)", &matcher->hint, error));
    TRY(compile(outcome_pattern, "(outcome)", &matcher->outcome, error));
    TRY(compile(talk_pattern, "(talk)", &matcher->talk, error));
    for (int i = 0; i < BL_N_SIGNALS; i++) {
        matcher->group[i] = group_of(i);
        if (bl_signals[i].pattern[0] != '\0' && bl_signals[i].anchors[0] == '\0')
            matcher->always[matcher->n_always++] = i;
    }
    return BELAY_OK;
}

belay_code bl_matcher_new(bl_matcher **out, bl_error *error)
{
    bl_matcher *matcher = bl_alloc(1, sizeof *matcher);
    if (matcher == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the patterns");
    belay_code code = build(matcher, error);
    if (code != BELAY_OK) {
        bl_matcher_free(matcher);
        return code;
    }
    *out = matcher;
    return BELAY_OK;
}

void bl_matcher_free(bl_matcher *matcher)
{
    if (matcher == NULL)
        return;
    for (int i = 0; i < BL_N_SIGNALS; i++)
        pcre2_code_free(matcher->code[i]);
    pcre2_code_free(matcher->hint);
    pcre2_code_free(matcher->outcome);
    pcre2_code_free(matcher->talk);
    pcre2_match_data_free(matcher->data);
    pcre2_match_data_free(matcher->check);
    pcre2_match_context_free(matcher->context);
    bl_anchors_fini(&matcher->anchors);
    bl_anchors_fini(&matcher->weak);
    bl_search_plain_free(matcher->weak_search);
    bl_free(matcher->weak_bytes);
    bl_free(matcher);
}

const bl_anchors *bl_matcher_anchors(const bl_matcher *matcher) { return &matcher->anchors; }

/* ---- one line -------------------------------------------------------------------------------------------------------- */

static bool matches(bl_matcher *matcher, const pcre2_code *code, pcre2_match_data *data, const char *text, size_t n)
{
    return pcre2_match(code, (PCRE2_SPTR)text, n, 0, 0, data, matcher->context) >= 0;
}

/* A line that is one quotation and nothing else quotes nobody: some runtimes print their errors so. */
static bool is_whole_quotation(const char *text, size_t n)
{
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    return n > 2 && text[0] == '"' && text[n - 1] == '"' && memchr(text + 1, '"', n - 2) == NULL;
}

/* The error stands behind a quotation mark that does not belong to an exception's own printing, RuntimeError('...'). */
static bool is_behind_mark(const char *text, size_t start)
{
    if (start == 0 || strchr("'\"`", text[start - 1]) == NULL)
        return false;
    size_t end = start - 1;
    return !(end > 0 && text[end - 1] == '(' && end > 1 &&
             strchr("rn", text[end - 2]) != NULL); /* Error(, Exception( */
}

/* The error stands inside of "..." that is part of a sentence: no value of a key (error: "...", msg="..."). */
static bool is_in_quotes(const char *text, size_t start)
{
    size_t open = 0, n_marks = 0;
    for (size_t i = 0; i < start; i++)
        if (text[i] == '"') {
            open = i;
            n_marks++;
        }
    if (n_marks % 2 == 0 || open == 0 || text[open - 1] != ' ')
        return false;
    while (open > 0 && text[open - 1] == ' ')
        open--;
    return open > 0 && strchr(":=,[{", text[open - 1]) == NULL;
}

static bool is_spoken_of(bl_matcher *matcher, const bl_line *line, size_t n, size_t start)
{
    bool is_quoted = is_behind_mark(line->text, start) || is_in_quotes(line->text, start);
    return (is_quoted && !is_whole_quotation(line->text, n)) ||
           matches(matcher, matcher->hint, matcher->check, line->text, start) ||
           matches(matcher, matcher->outcome, matcher->check, line->text, n);
}

static void add_facts(const bl_matcher *matcher, int row, const bl_line *line, bl_events *events, bl_event *event)
{
    uint32_t n_names = 0, entry_size = 0;
    PCRE2_SPTR table = NULL;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(matcher->data);
    uint32_t n_pairs = pcre2_get_ovector_count(matcher->data);
    pcre2_pattern_info(matcher->code[row], PCRE2_INFO_NAMECOUNT, &n_names);
    pcre2_pattern_info(matcher->code[row], PCRE2_INFO_NAMEENTRYSIZE, &entry_size);
    pcre2_pattern_info(matcher->code[row], PCRE2_INFO_NAMETABLE, &table);
    for (uint32_t i = 0; i < n_names; i++) {
        PCRE2_SPTR entry = table + i * entry_size;
        uint32_t group = ((uint32_t)entry[0] << 8) | entry[1];
        if (group < n_pairs && at[2 * group] != PCRE2_UNSET)
            bl_event_fact(events, event, (const char *)entry + 2, line->text + at[2 * group],
                          (int64_t)(at[2 * group + 1] - at[2 * group]));
    }
}

/* A row's pattern, compiled when it is first needed: most rows are needed by no line of a given log. */
static const pcre2_code *code_of(bl_matcher *matcher, int row, bl_events *events)
{
    bl_error error = {0};
    if (matcher->code[row] == NULL && bl_signals[row].pattern[0] != '\0' &&
        compile(bl_signals[row].pattern, bl_signals[row].name, &matcher->code[row], &error) != BELAY_OK)
        bl_events_note_no_memory(events); /* each pattern compiles in a test: what is left is memory */
    return matcher->code[row];
}

static void try_row(bl_matcher *matcher, int row, const bl_line *line, const bl_place *place, bl_events *events,
                    bool *group_done)
{
    size_t n = line->n_text < MOST_LINE ? (size_t)line->n_text : MOST_LINE;
    bl_role role = bl_signals[row].role;
    bool is_failure = role == BL_ROLE_FAULT || role == BL_ROLE_ECHO || role == BL_ROLE_END;
    if (group_done[matcher->group[row]] || (is_failure && place->is_quoted))
        return;
    const pcre2_code *code = code_of(matcher, row, events);
    if (code == NULL || !matches(matcher, code, matcher->data, line->text, n))
        return;
    group_done[matcher->group[row]] = true;
    if (is_failure ? is_spoken_of(matcher, line, n, pcre2_get_ovector_pointer(matcher->data)[0])
                   : matches(matcher, matcher->talk, matcher->check, line->text, n))
        return;
    bl_event *event = bl_events_add(events, (bl_signal)row, line, place->time, place->segment);
    if (event != NULL)
        add_facts(matcher, row, line, events, event);
}

static void want_anchor(const bl_anchors *anchors, int anchor, bool *wanted)
{
    for (int i = anchors->first[anchor]; i < anchors->first[anchor + 1]; i++)
        wanted[anchors->signals[i]] = true;
}

/* The rows to try. */
static void mark_rows(const bl_matcher *matcher, const bl_line *line, const int *anchors, int n_anchors, bool *wanted)
{
    for (int i = 0; i < n_anchors; i++)
        want_anchor(&matcher->anchors, anchors[i], wanted);
    for (int a = 0; n_anchors < 0 && a < matcher->anchors.n; a++)
        if (memmem(line->text, (size_t)line->n_text, matcher->anchors.list[a], strlen(matcher->anchors.list[a])) !=
            NULL)
            want_anchor(&matcher->anchors, a, wanted);
}

typedef struct weak_hits {
    const bl_anchors *anchors;
    bool *wanted;
} weak_hits;

static void want_weak(void *state, int number, int64_t end)
{
    const weak_hits *hits = state;
    (void)end;
    want_anchor(hits->anchors, number, hits->wanted);
}

void bl_matcher_line(bl_matcher *matcher, const bl_line *line, const int *anchors, int n_anchors, const bl_place *place,
                     bl_events *events)
{
    bool wanted[BL_N_SIGNALS] = {false}, group_done[BL_N_SIGNALS] = {false};
    mark_rows(matcher, line, anchors, n_anchors, wanted);
    weak_hits hits = {&matcher->weak, wanted};
    if (place->is_whole_read)
        bl_search_plain_run(matcher->weak_search, line->text, line->n_text, want_weak, &hits);
    for (int i = 0; place->is_whole_read && i < matcher->n_always; i++)
        wanted[matcher->always[i]] = true;
    for (int row = 0; row < BL_N_SIGNALS; row++)
        if (wanted[row])
            try_row(matcher, row, line, place, events, group_done);
}
