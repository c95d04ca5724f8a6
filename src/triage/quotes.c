/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memmem, strncasecmp */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "triage/quotes.h"

enum { SAMPLE_LINES = 400, LONGEST_MARK = 200 };

/* ---- marks --------------------------------------------------------------------------------------------------------- */

typedef struct span {
    const char *at;
    int64_t n;
} span;

static bool has(span text, const char *word) { return memmem(text.at, (size_t)text.n, word, strlen(word)) != NULL; }

/* The word, in small letters or not, with no letter before or behind it. */
static bool has_word(span text, const char *word)
{
    int64_t n = (int64_t)strlen(word);
    for (int64_t i = 0; i + n <= text.n; i++) {
        bool begins = i == 0 || !isalpha((unsigned char)text.at[i - 1]);
        bool ends = i + n == text.n || !isalpha((unsigned char)text.at[i + n]);
        if (begins && ends && strncasecmp(text.at + i, word, (size_t)n) == 0)
            return true;
    }
    return false;
}

static bool has_any(span text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (has_word(text, *words))
            return true;
    return false;
}

/* "--- ... ---", "=== ...", "<sample>", "[/sample]". */
static bool is_decorated(span text)
{
    static const char signs[] = "-=*#~<>_+|";
    if (text.n < 4 || text.n > LONGEST_MARK)
        return false;
    bool is_ruled = strchr(signs, text.at[0]) != NULL && strchr(signs, text.at[1]) != NULL;
    bool is_tag =
        (text.at[0] == '<' && text.at[text.n - 1] == '>') || (text.at[0] == '[' && text.at[text.n - 1] == ']');
    return is_ruled || is_tag;
}

static const char *const sample_words[] = {"sample",     "samples",     "generation", "generated",
                                           "completion", "completions", "transcript", "excerpt",
                                           "quote",      "quotation",   NULL};

static bool is_sample_end(span text)
{
    static const char *const ends[] = {"end", "ends", "eof", "end_of_sample", NULL};
    return is_decorated(text) && (has_any(text, ends) || has(text, "</") || has(text, "[/")) &&
           has_any(text, sample_words);
}

static bool follow_sample(bl_quotes *quotes, span text, int64_t number, int64_t *from)
{
    if (number - quotes->sample > SAMPLE_LINES)
        quotes->sample = 0;
    *from = quotes->sample;
    if (is_sample_end(text)) {
        quotes->sample = 0;
        return *from > 0;
    }
    if (is_decorated(text) && has_any(text, sample_words))
        quotes->sample = number;
    return false;
}

/* ---- tests ---------------------------------------------------------------------------------------------------------- */

/* "==== 213 passed, 1 xfailed in 41.22s ====" of pytest, the last lines of CTest and GoogleTest. */
static bool has_passed(span text)
{
    static const char *const bad[] = {"failed", "error", "errors", "interrupted", NULL};
    bool is_pytest = text.n > 4 && text.at[0] == '=' && has(text, " passed") && has(text, " in ");
    bool is_ctest = has(text, "100% tests passed, 0 tests failed");
    bool is_google = has(text, "[  PASSED  ] ");
    return is_ctest || ((is_pytest || is_google) && !has_any(text, bad));
}

static bool begins_tests(span text)
{
    return has(text, "= test session starts =") || has(text, "[==========] Running ") ||
           (text.n > 13 && memcmp(text.at, "Test project ", 13) == 0);
}

static bool follow_tests(bl_quotes *quotes, span text, int64_t number, int64_t *from)
{
    if (begins_tests(text))
        quotes->tests = number;
    if (quotes->tests == 0)
        return false;
    if (has(text, "[  FAILED  ] ")) {
        quotes->tests = 0;
        return false;
    }
    *from = quotes->tests;
    bool passed = has_passed(text);
    if (passed || (text.at[0] == '=' && has(text, " failed") && has(text, " in ")))
        quotes->tests = 0;
    return passed;
}

bool bl_quotes_follow(bl_quotes *quotes, const bl_line *line, int64_t *from)
{
    span text = {line->text, line->n_text};
    while (text.n > 0 && isspace((unsigned char)*text.at)) {
        text.at++;
        text.n--;
    }
    while (text.n > 0 && isspace((unsigned char)text.at[text.n - 1]))
        text.n--;
    if (text.n == 0)
        return false;
    return follow_sample(quotes, text, line->number, from) || follow_tests(quotes, text, line->number, from);
}

/* ---- contradictions -------------------------------------------------------------------------------------------------- */

enum { STEPS_AFTER = 10 };

/* The steps of one file on both sides of a line. */
typedef struct steps {
    int64_t before_last, before, after, last; /* numbers; -1 */
    int64_t n_after;
} steps;

static steps steps_around(const bl_events *events, const bl_event *fault)
{
    steps s = {-1, -1, -1, -1, 0};
    for (int64_t i = 0; i < bl_events_n(events); i++) {
        const bl_event *e = bl_events_at(events, i);
        int64_t step;
        if (e->signal != BL_SIGNAL_stepof_number || e->file != fault->file || !bl_event_number(e, "step", &step))
            continue;
        if (e->line < fault->line) {
            s.before_last = s.before;
            s.before = step;
            continue;
        }
        s.after = s.n_after++ == 0 ? step : s.after;
        s.n_after += step < s.last ? INT64_MIN / 2 : 0; /* it began anew */
        s.last = step;
    }
    return s;
}

static bool is_later(const bl_event *e, const bl_event *fault)
{
    return e->file == fault->file && e->line > fault->line;
}

/* A stall is over when the same file tells of later steps and of no failure. */
static bool went_on(const bl_events *events, const bl_event *stall)
{
    for (int64_t i = 0; i < bl_events_n(events); i++) {
        const bl_event *e = bl_events_at(events, i);
        bl_role role = bl_signals[e->signal].role;
        bool is_failure = role == BL_ROLE_FAULT || role == BL_ROLE_ECHO || role == BL_ROLE_END;
        if (is_later(e, stall) && is_failure && (e->signal != stall->signal || e->line > stall->line + 3))
            return false;
    }
    steps s = steps_around(events, stall);
    return s.n_after >= 3 && s.after >= s.before && s.last > s.after;
}

static bool ends_process(const bl_event *e)
{
    static const bl_signal signals[] = {BL_SIGNAL_error_700, BL_SIGNAL_error_710, BL_SIGNAL_error_716,
                                        BL_SIGNAL_error_719};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (e->signal == signals[i])
            return true;
    return strncmp(bl_signals[e->signal].name, "assert_", 7) == 0;
}

/* Traces and launchers tell that a process did end; then another one may have gone on. */
static bool tells_of_an_end(const bl_event *e)
{
    static const char *const groups[] = {"trace_", "launcher_", "exit_", "elastic_", "raised_", "peer_", "watchdog_"};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strncmp(bl_signals[e->signal].name, groups[i], strlen(groups[i])) == 0)
            return true;
    return bl_signals[e->signal].role == BL_ROLE_END;
}

/* No process goes on after such an error; a file of one process that counts on in the same stride had none. */
static bool was_not_real(const bl_events *events, const bl_event *fault)
{
    for (int64_t i = 0; i < bl_events_n(events); i++) {
        const bl_event *e = bl_events_at(events, i);
        if (e->file == fault->file && (tells_of_an_end(e) || e->rank != fault->rank))
            return false;
    }
    steps s = steps_around(events, fault);
    return s.before_last >= 0 && s.n_after >= STEPS_AFTER && s.before > s.before_last &&
           s.after - s.before == s.before - s.before_last;
}

/* Of a file the last stall counts: when that one is over, so are those before it. */
static void take_back_stalls(bl_events *events)
{
    int file = -1;
    bool is_over = false;
    for (int64_t i = bl_events_n(events) - 1; i >= 0; i--) {
        const bl_event *e = bl_events_at(events, i);
        if (e->signal != BL_SIGNAL_collective_stall)
            continue;
        if (e->file != file)
            is_over = went_on(events, e);
        file = e->file;
        if (is_over)
            bl_events_take_back(events, e->file, e->line, e->line);
    }
}

/* Of a file the first fault that was real ends its process. */
static void take_back_faults(bl_events *events)
{
    int dead = -1;
    for (int64_t i = 0; i < bl_events_n(events); i++) {
        const bl_event *e = bl_events_at(events, i);
        if (!ends_process(e) || e->file == dead)
            continue;
        if (was_not_real(events, e))
            bl_events_take_back(events, e->file, e->line, e->line);
        else
            dead = e->file;
    }
}

void bl_quotes_take_back(bl_events *events)
{
    take_back_stalls(events);
    take_back_faults(events);
}
