/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "triage/variables.h"

typedef enum read_when { INIT, GROUP, BUILD, RENAMED } read_when;

typedef struct variable_row {
    const char *name;
    read_when when;
    const char *says;
} variable_row;

static const variable_row rows[] = {
#define VARIABLE(name, when, says) {name, when, says},
#include "triage/variables.def"
#undef VARIABLE
};

static const variable_row *row_of(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

/* The first line of that process before `set` that shows a device, or a process group, in use. */
static const bl_event *use_before(const bl_case *c, const bl_event *set, bl_signal signal)
{
    for (const bl_event *use = bl_events_first(c->events, signal); use != NULL; use = use->next)
        if (use->file == set->file && use->segment == set->segment && use->line < set->line &&
            (use->rank < 0 || set->rank < 0 || use->rank == set->rank))
            return use;
    return NULL;
}

static void add_place(const bl_case *c, const bl_event *event, bl_text *out)
{
    const char *path = c->sources[event->file].path;
    bl_text_add_escaped(out, path, (int64_t)strlen(path), 4096);
    bl_text_format(out, ":%lld", (long long)event->line);
}

static void note_late(const bl_case *c, const bl_event *set, const variable_row *row, bl_text *notes)
{
    const bl_event *use = use_before(c, set, row->when == INIT ? BL_SIGNAL_inuse_device : BL_SIGNAL_inusegroup_ready);
    if (use == NULL)
        return;
    add_place(c, set, notes);
    bl_text_format(notes, ": %s is set too late: %s was in use before, at ", row->name,
                   row->when == INIT ? "the device" : "the process group");
    add_place(c, use, notes);
    bl_text_format(notes, "; %s\n", row->says);
}

void bl_variables_note(const bl_case *c, bl_text *notes)
{
    const variable_row *told[sizeof rows / sizeof rows[0]] = {0};
    for (const bl_event *set = bl_events_first(c->events, BL_SIGNAL_variable_set); set != NULL; set = set->next) {
        const variable_row *row = row_of(bl_event_get(set, "variable"));
        if (row == NULL || set->file < 0 || told[row - rows] != NULL)
            continue;
        told[row - rows] = row;
        if (row->when == INIT || row->when == GROUP) {
            note_late(c, set, row, notes);
            continue;
        }
        add_place(c, set, notes);
        bl_text_format(notes, ": %s has no effect: %s\n", row->name, row->says);
    }
}
