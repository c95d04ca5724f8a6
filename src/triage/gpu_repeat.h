/* SPDX-License-Identifier: Apache-2.0 */
/* A tally of failures of one GPU: distinct processes and programs, and the parts that they name.  For gpu_*.c. */
#ifndef BL_TRIAGE_GPU_REPEAT_H
#define BL_TRIAGE_GPU_REPEAT_H

#include "triage/gpu_parts.h"

typedef struct bl_gpu_part {
    int gpc, tpc;
    int64_t n;
} bl_gpu_part;

/* Zero-initialised is an empty one.  Distinct things are told apart up to BL_GPU_DISTINCT of them. */
typedef struct bl_gpu_tally {
    int64_t n, n_from_history;
    int64_t pids[BL_GPU_DISTINCT];
    int n_pids;
    struct {
        char name[BL_GPU_NAME];
        int64_t n;
    } programs[BL_GPU_DISTINCT];
    int n_programs;
    bl_gpu_part parts[BL_GPU_DISTINCT];
    int n_parts;
    int64_t n_with_tpc;
    const bl_gpu_incident *first, *last;
    bool has_span; /* all times can be compared */
    int64_t span;
} bl_gpu_tally;

void bl_gpu_tally_add(bl_gpu_tally *tally, const bl_gpu_incident *incident);
void bl_gpu_tally_add_past(bl_gpu_tally *tally, const bl_history_event *event);

/* The part that most name; gpc -1 when none is named. */
bl_gpu_part bl_gpu_tally_part(const bl_gpu_tally *tally);
/* How often a program stands in the tally. */
int64_t bl_gpu_tally_program(const bl_gpu_tally *tally, const char *name);

/* The program behind a process name: interpreters and launchers are one, since their names say nothing about what ran. */
const char *bl_gpu_program(const char *name);

#endif
