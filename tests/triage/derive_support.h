/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of logs become a case, as explain makes one of files: each text is one input, read whole. */
#ifndef BL_TEST_DERIVE_SUPPORT_H
#define BL_TEST_DERIVE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "triage/case.h"
#include "triage/line.h"
#include "triage/match.h"

enum { MOST_TEXTS = 4 };

typedef struct told_case {
    bl_case c;
    bl_source sources[MOST_TEXTS];
} told_case;

static bl_matcher *matcher;

static inline int open_matcher(void **state)
{
    bl_error error = {0};
    (void)state;
    if (bl_matcher_new(&matcher, &error) == BELAY_OK)
        return 0;
    print_error("%s\n", error.what);
    return 1;
}

static inline int close_matcher(void **state)
{
    (void)state;
    bl_matcher_free(matcher);
    return 0;
}

static inline void read_text(bl_events *events, int file, const char *text)
{
    bl_place place = {.time = BL_NO_TIME, .is_whole_read = true};
    for (int64_t number = 1; *text != '\0'; number++) {
        char scratch[4096];
        size_t n = strcspn(text, "\n");
        bl_line line = {.file = file, .number = number};
        assert_true(n < sizeof scratch);
        bl_line_parse(NULL, text, (int64_t)n, scratch, &line);
        bl_matcher_line(matcher, &line, NULL, -1, &place, events);
        text += n + (text[n] == '\n');
    }
}

static inline void tell_texts(told_case *to, int n, const char *const *texts)
{
    *to = (told_case){.c.n_sources = n};
    to->c.events = bl_events_new();
    to->c.sources = to->sources;
    assert_non_null(to->c.events);
    for (int i = 0; i < n; i++)
        read_text(to->c.events, i, texts[i]);
    bl_events_seal(to->c.events);
}

static inline void tell_text(told_case *to, const char *text) { tell_texts(to, 1, &text); }
static inline void forget_texts(told_case *told) { bl_events_free(told->c.events); }

static inline const bl_event *seen(const told_case *told, bl_signal signal)
{
    return bl_events_first(told->c.events, signal);
}

static inline void assert_fact(const bl_event *event, const char *name, const char *value)
{
    assert_non_null(event);
    const char *told = bl_event_get(event, name);
    if (told == NULL || strcmp(told, value) != 0)
        fail_msg("%s is %s, not %s", name, told == NULL ? "not told" : told, value);
}

#endif
