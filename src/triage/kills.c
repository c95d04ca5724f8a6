/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/kills.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

enum { PIDS = 4096, PROGRAMS = 16, NAME = 15, KILLED = 128 + 9 }; /* NAME: what the kernel keeps of one */

struct bl_kills {
    bool has_run;
    bool has_unknown; /* a process of a run may have been killed whose number nobody noted */
    int n_pids, n_programs;
    int64_t pid[PIDS];
    const char *program[PROGRAMS]; /* command lines */
};

/* ---- the runs ---------------------------------------------------------------------------------------------------------- */

static void note_pid(bl_kills *kills, const bl_event *event)
{
    int64_t pid;
    if (!bl_event_number(event, "run_pid", &pid) || pid <= 0 || kills->n_pids == PIDS)
        kills->has_unknown = true;
    else
        kills->pid[kills->n_pids++] = pid;
}

/* A shell ends so when a process of its own was killed: that one's number is not known. */
static void note_status(bl_kills *kills, const bl_event *event)
{
    int64_t status;
    kills->has_unknown = kills->has_unknown || (bl_event_number(event, "exit_status", &status) && status == KILLED);
}

static void note_program(bl_kills *kills, const bl_event *event)
{
    kills->has_run = true;
    if (kills->n_programs < PROGRAMS)
        kills->program[kills->n_programs++] = bl_event_get(event, "run_program");
}

bl_kills *bl_kills_new(const bl_events *events)
{
    bl_kills *kills = bl_alloc(1, sizeof *kills);
    for (int64_t i = 0; kills != NULL && i < bl_events_n(events); i++) {
        const bl_event *event = bl_events_at(events, i);
        if (event->signal == BL_SIGNAL_runjsonpid_own)
            note_pid(kills, event);
        else if (event->signal == BL_SIGNAL_runjsonend_status)
            note_status(kills, event);
        else if (event->signal == BL_SIGNAL_runjsonprogram_started)
            note_program(kills, event);
        else if (event->signal == BL_SIGNAL_runjsonspace_own)
            kills->has_unknown = true; /* the kernel counts processes otherwise than the run did */
    }
    return kills;
}

/* ---- one line ---------------------------------------------------------------------------------------------------------- */

/* "Out of memory: Killed process 4242 (python)", "oom-kill:constraint=...,task=python,pid=4242"; false where the line tells
 * neither number nor name. */
static bool read_line(const char *line, int64_t *pid, char name[NAME + 1])
{
    const char *begin, *end, *at = strstr(line, "ut of memory: Kill"), *task = strstr(line, ",task=");
    if (at != NULL && (at = strstr(at, " process ")) != NULL) {
        *pid = strtoll(at + strlen(" process "), NULL, 10);
        begin = strchr(at, '(');
        end = begin != NULL ? strchr(begin, ')') : NULL;
        begin += begin != NULL;
    } else if (task != NULL && strstr(line, "oom-kill:") != NULL && (end = strstr(task, ",pid=")) != NULL) {
        *pid = strtoll(end + strlen(",pid="), NULL, 10);
        begin = task + strlen(",task=");
    } else {
        return false;
    }
    if (begin == NULL || end == NULL)
        return false;
    size_t n = (size_t)(end - begin) < NAME ? (size_t)(end - begin) : NAME;
    memcpy(name, begin, n);
    name[n] = '\0';
    return true;
}

static bool is_part_of_word(char c) { return c != '\0' && strchr(" \t\"\\'`;&|()<>=$", c) == NULL; }

/* Whether the process of that name may be the program that the word names: of a long name the kernel keeps the beginning,
 * and "python" may be "python3.12". */
static bool fits(const char *word, size_t n, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(word, name, length) == 0 && (length == n || (length == NAME && n > length)))
        return true;
    return length > n && n > 1 && strncmp(word, name, n) == 0 && strspn(name + n, "0123456789.") == length - n;
}

/* Whether a word of the command line, without its folders, is that name. */
static bool has_word(const char *program, const char *name)
{
    while (*program != '\0') {
        size_t n = 0, base = 0;
        for (; is_part_of_word(program[n]); n++)
            base = program[n] == '/' ? n + 1 : base;
        if (n > base && fits(program + base, n - base, name))
            return true;
        program += n > 0 ? n : 1;
    }
    return false;
}

bool bl_kills_is_foreign(const bl_kills *kills, const char *line)
{
    int64_t pid;
    char name[NAME + 1];
    if (!kills->has_run)
        return false;
    if (!read_line(line, &pid, name)) /* a summary that was cut: the kernel's next line tells the same */
        return strstr(line, "oom-kill:constraint=") != NULL;
    for (int i = 0; i < kills->n_pids; i++)
        if (kills->pid[i] == pid)
            return false;
    bool fits_a_program = false;
    for (int i = 0; i < kills->n_programs; i++)
        fits_a_program = fits_a_program || has_word(kills->program[i], name);
    return !fits_a_program || (kills->n_pids > 0 && !kills->has_unknown);
}

void bl_kills_take_back(bl_events *events)
{
    bl_kills *kills = bl_kills_new(events);
    if (kills == NULL) {
        bl_events_note_no_memory(events);
        return;
    }
    for (int64_t i = 0; kills->has_run && i < bl_events_n(events); i++) {
        const bl_event *event = bl_events_at(events, i);
        if (event->signal == BL_SIGNAL_host_memory && bl_kills_is_foreign(kills, event->text))
            bl_events_take_back(events, event->file, event->line, event->line);
    }
    bl_free(kills);
}
