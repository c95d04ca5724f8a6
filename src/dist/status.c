/* SPDX-License-Identifier: Apache-2.0 */
/* FOLDER/rank<N>.status: what a launcher learns of a rank, whatever became of its process. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/worker.h"
#include "file/json.h"

static json_t *culprits_of(const bl_failure *failure)
{
    json_t *list = json_array();
    for (int i = 0; failure != NULL && list != NULL && i < failure->n_culprits; i++)
        json_array_append_new(list, json_integer(failure->culprit[i]));
    return list;
}

static void add_failure(json_t *object, const bl_failure *failure)
{
    const bl_report_fault *f = &failure->fault;
    json_object_set_new(object, "code", json_string(belay_code_name(f->code)));
    json_object_set_new(object, "status", json_integer(belay_code_status(f->code)));
    json_object_set_new(object, "culprits", culprits_of(failure));
    json_object_set_new(object, "why", bl_json_text(f->what));
    json_object_set_new(object, "advice", bl_json_text(f->advice[0] != '\0' ? f->advice : belay_code_advice(f->code)));
}

/* A launcher that finds no file tells of the rank by other means: a failure to write is none of the group's. */
void bl_status_write(const bl_group_worker *w, const char *state, const bl_failure *failure, const bl_beat *me)
{
    char path[600];
    if (w->status_folder[0] == '\0')
        return;
    bl_json_init();
    json_t *object = json_object();
    if (object == NULL)
        return;
    snprintf(path, sizeof path, "%s/rank%d.status", w->status_folder, w->place.rank);
    json_object_set_new(object, "rank", json_integer(w->place.rank));
    json_object_set_new(object, "size", json_integer(w->place.size));
    json_object_set_new(object, "host", bl_json_text(w->place.host));
    json_object_set_new(object, "pid", json_integer(getpid()));
    if (w->journal[0] != '\0')
        json_object_set_new(object, "journal", bl_json_text(w->journal));
    json_object_set_new(object, "state", json_string(state));
    if (failure != NULL)
        add_failure(object, failure);
    json_object_set_new(object, "step", json_integer((json_int_t)me->step));
    json_object_set_new(object, "phase",
                        json_string(bl_phase_names[me->phase < BL_N_PHASES ? me->phase : BL_PHASE_OUTSIDE]));
    json_object_set_new(object, "wall", json_integer(bl_clock_wall()));
    if (bl_json_write(path, object, NULL) != BELAY_OK)
        unlink(path); /* what it said before would be wrong */
    json_decref(object);
}
