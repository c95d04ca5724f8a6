/* SPDX-License-Identifier: Apache-2.0 */
/* A small case made of lines, for tests of what several ranks say together.  Include after <cmocka.h>. */
#ifndef BL_TESTS_RANK_SUPPORT_H
#define BL_TESTS_RANK_SUPPORT_H

#include <string.h>

#include "triage/case.h"
#include "triage/match.h"

enum { RANK_CASE_FILES = 8 };

typedef struct rank_case {
    bl_matcher *matcher;
    bl_source sources[RANK_CASE_FILES];
    bl_case c;
    int64_t n_lines[RANK_CASE_FILES];
} rank_case;

static inline void rank_case_open(rank_case *r)
{
    bl_error error = {0};
    *r = (rank_case){.c = {.events = bl_events_new()}};
    r->c.sources = r->sources;
    assert_non_null(r->c.events);
    assert_int_equal(bl_matcher_new(&r->matcher, &error), BELAY_OK);
}

/* One more line of file `file`, of that rank (-1: not known) and moment in seconds (0: none). */
static inline void rank_case_say(rank_case *r, int file, int rank, int64_t seconds, const char *text)
{
    char scratch[2048];
    bl_line line = {.number = 0};
    bl_place place = {.time = seconds == 0 ? BL_NO_TIME : seconds * 1000000, .is_whole_read = true};
    assert_true(strlen(text) < sizeof scratch);
    bl_line_parse(NULL, text, (int64_t)strlen(text), scratch, &line);
    line.file = file;
    line.number = ++r->n_lines[file];
    line.rank = rank >= 0 ? rank : line.said_rank;
    if (seconds != 0) {
        line.time_kind = BL_TIME_WALL;
        line.time = place.time;
    }
    if (file >= r->c.n_sources)
        r->c.n_sources = file + 1;
    r->sources[file].rank = rank;
    bl_matcher_line(r->matcher, &line, NULL, -1, &place, r->c.events);
}

static inline void rank_case_derive(rank_case *r)
{
    for (int i = 0; i < r->c.n_sources; i++)
        r->sources[i].first_time = r->sources[i].last_time = BL_NO_TIME;
    bl_events_seal(r->c.events);
    bl_derive_ranks(&r->c);
}

static inline void rank_case_close(rank_case *r)
{
    bl_events_free(r->c.events);
    bl_matcher_free(r->matcher);
}

/* Fails unless the event carries that fact of that rank. */
static inline void assert_fact(const bl_event *event, const char *name, int rank, const char *value)
{
    assert_non_null(event);
    for (int i = 0; i < event->n_facts; i++)
        if (strcmp(event->facts[i].name, name) == 0 && event->facts[i].rank == rank &&
            strcmp(event->facts[i].value, value) == 0)
            return;
    for (int i = 0; i < event->n_facts; i++)
        print_error("there is %s[%d] = %s\n", event->facts[i].name, event->facts[i].rank, event->facts[i].value);
    fail_msg("no fact %s[%d] = %s", name, rank, value);
}

#endif
