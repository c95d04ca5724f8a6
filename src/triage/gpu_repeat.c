/* SPDX-License-Identifier: Apache-2.0 */
/* Counting: how many processes and programs met the same kind of failure on one GPU, and on which of its parts. */
#include "triage/gpu_repeat.h"

#include <stdlib.h>
#include <string.h>

static bool is_interpreter(const char *name)
{
    static const char *const names[] = {"pt_main_thread", "ray::",   "torchrun", "accelerate",
                                        "deepspeed",      "ipython", "jupyter"};
    if (strncmp(name, "python", 6) == 0)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

const char *bl_gpu_program(const char *name) { return is_interpreter(name) ? "python" : name; }

static void add_pid(bl_gpu_tally *tally, int64_t pid)
{
    for (int i = 0; i < tally->n_pids; i++)
        if (tally->pids[i] == pid)
            return;
    if (pid >= 0 && tally->n_pids < BL_GPU_DISTINCT)
        tally->pids[tally->n_pids++] = pid;
}

static void add_program(bl_gpu_tally *tally, const char *name)
{
    const char *program = bl_gpu_program(name);
    if (program[0] == '\0')
        return;
    for (int i = 0; i < tally->n_programs; i++)
        if (strcmp(tally->programs[i].name, program) == 0) {
            tally->programs[i].n++;
            return;
        }
    if (tally->n_programs == BL_GPU_DISTINCT)
        return;
    size_t n = strnlen(program, BL_GPU_NAME - 1);
    memcpy(tally->programs[tally->n_programs].name, program, n);
    tally->programs[tally->n_programs].name[n] = '\0';
    tally->programs[tally->n_programs++].n = 1;
}

static void add_part(bl_gpu_tally *tally, int gpc, int tpc)
{
    if (gpc < 0 || tpc < 0)
        return;
    tally->n_with_tpc++;
    for (int i = 0; i < tally->n_parts; i++)
        if (tally->parts[i].gpc == gpc && tally->parts[i].tpc == tpc) {
            tally->parts[i].n++;
            return;
        }
    if (tally->n_parts < BL_GPU_DISTINCT)
        tally->parts[tally->n_parts++] = (bl_gpu_part){gpc, tpc, 1};
}

static void add_time(bl_gpu_tally *tally, const bl_gpu_incident *incident)
{
    int64_t between;
    if (tally->first == NULL) {
        tally->first = tally->last = incident;
        tally->has_span = incident->place.time_kind != BL_TIME_NONE;
        return;
    }
    tally->last = incident;
    if (!bl_gpu_between(tally->first->place, tally->first->epoch, incident->place, incident->epoch, &between))
        tally->has_span = false;
    else if (between > tally->span)
        tally->span = between;
}

void bl_gpu_tally_add(bl_gpu_tally *tally, const bl_gpu_incident *incident)
{
    tally->n++;
    add_pid(tally, incident->pid);
    add_program(tally, incident->name);
    add_part(tally, incident->sm_reason != BL_SM_NONE ? incident->gpc : -1, incident->tpc);
    add_time(tally, incident);
}

void bl_gpu_tally_add_past(bl_gpu_tally *tally, const bl_history_event *event)
{
    tally->n++;
    tally->n_from_history++;
    add_pid(tally, event->pid);
    add_program(tally, event->program);
    add_part(tally, event->gpc, event->tpc);
}

bl_gpu_part bl_gpu_tally_part(const bl_gpu_tally *tally)
{
    bl_gpu_part most = {-1, -1, 0};
    for (int i = 0; i < tally->n_parts; i++)
        if (tally->parts[i].n > most.n)
            most = tally->parts[i];
    return most;
}

int64_t bl_gpu_tally_program(const bl_gpu_tally *tally, const char *name)
{
    const char *program = bl_gpu_program(name);
    for (int i = 0; i < tally->n_programs; i++)
        if (strncmp(tally->programs[i].name, program, BL_GPU_NAME - 1) == 0)
            return tally->programs[i].n;
    return 0;
}
