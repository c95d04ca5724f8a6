/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine knows of a program's end: the kernel's log since the start, kills for want of memory, where core
 * files go.  What may not be read is said with its reason, never guessed. */
#ifndef BL_PROC_MACHINE_H
#define BL_PROC_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "proc/capture.h"

/* ---- the kernel's log ----------------------------------------------------------------------------------------------- */

typedef struct bl_kernel_log {
    int fd;              /* of /dev/kmsg, to be polled; -1: not open */
    bl_capture *capture; /* NULL: no log is available */
    char why[384];       /* then: "no kernel log available: ..." */
    int64_t n_lines;
    bool lost;        /* records were overwritten before they were read */
    int64_t since;    /* microseconds since boot */
    pid_t killed[64]; /* "Killed process PID": pids, the first that fit */
    bool is_ours[64]; /* it was below us when the line came; a process that was gone by then is not */
    int n_killed;
} bl_kernel_log;

/* Begins at now; lines go to STEM.log as /dev/kmsg gives them.  Never fails: `why` says what is missing. */
void bl_kernel_log_open(bl_kernel_log *log, const char *stem);
/* Takes what is there. */
void bl_kernel_log_read(bl_kernel_log *log);
/* Takes the rest. */
void bl_kernel_log_close(bl_kernel_log *log);

/* ---- kills for want of memory --------------------------------------------------------------------------------------- */

typedef struct bl_oom {
    int64_t in_group;   /* kills counted by our control group; -1: not told */
    int64_t in_machine; /* by the whole machine; -1: not told */
} bl_oom;
bl_oom bl_oom_get(void);
/* Kills since `before`; -1 where not told. */
bl_oom bl_oom_since(const bl_oom *before);

/* Whether this process counts processes otherwise than the kernel's log does, as in a container. */
bool bl_machine_counts_otherwise(void);

/* ---- core files ----------------------------------------------------------------------------------------------------- */

typedef struct bl_core {
    char pattern[256]; /* kernel.core_pattern; "" when it cannot be read */
    char where[512];   /* the file that is there, or words how to get it; "" when there is none */
    bool is_file;
} bl_core;
/* The core file of a process that ended in our folder, written since `since` (seconds since 1970). */
void bl_core_find(pid_t pid, const char *program, int64_t since, bl_core *out);

#endif
