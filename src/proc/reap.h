/* SPDX-License-Identifier: Apache-2.0 */
/* Every process below us, also those that left their group or session: the kernel gives orphans to this process
 * (bl_reap_open), so that /proc shows all of them as a tree with us as the root.  Nothing outside of that tree is ever
 * signalled: a process is held by a pidfd and looked at again before the signal. */
#ifndef BL_PROC_REAP_H
#define BL_PROC_REAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* From now on orphans below this process become its children.  file.open when the kernel refuses. */
BL_MUST_USE belay_code bl_reap_open(bl_error *error);

typedef struct bl_process {
    pid_t pid, parent;
    char state; /* as /proc tells it: R S D T Z ... */
    char name[20];
    uint64_t started; /* clock ticks since boot */
    uint64_t ticks;   /* of CPU, user and system */
    int64_t threads;
} bl_process;

typedef struct bl_processes {
    bl_process *process;
    int64_t n, capacity;
} bl_processes;

/* What lives below `root`, without itself and without zombies, parents before children.  False without memory or
 * without /proc.  Free with bl_processes_fini, also then. */
BL_MUST_USE bool bl_processes_list(pid_t root, bl_processes *out);
void bl_processes_fini(bl_processes *list);

/* One process; false when it is gone. */
BL_MUST_USE bool bl_process_get(pid_t pid, bl_process *out);

/* Whether it is, or was a moment ago, a process below this one. */
bool bl_process_is_below_us(pid_t pid);

/* Sends a signal to all that lives below this process; how many there were, -1 when they could not be listed. */
int64_t bl_reap_signal(int number);

#endif
