/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one program: looked up, with its environment, its descriptors, its process group, no signal blocked, and what
 * a supervisor ignores for itself (SIGPIPE, SIGXFSZ) as a program expects it.  A program that cannot be started is an
 * error here, never a child that says 127.  Between fork and exec nothing is called that a program with threads could not
 * call there.
 *
 * Codes: file.open (not found, not executable), mem.exhausted (memory, processes or descriptors ran out). */
#ifndef BL_PROC_CHILD_H
#define BL_PROC_CHILD_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/error.h"

typedef struct bl_child_spec {
    char *const *argv;      /* NULL-ended; argv[0] without a slash is looked up on PATH */
    const char *const *set; /* "NAME=value", these win over the caller's environment */
    int n_set;
    int in, out, err;             /* descriptors for 0, 1, 2; negative: /dev/null */
    bool own_group;               /* leads a process group of its own */
    bool core;                    /* raises the core limit as far as it may go */
    bool traceable;               /* lets any process of its user debug it */
    const struct rlimit *n_files; /* RLIMIT_NOFILE of the child; NULL: the caller's */
} bl_child_spec;

/* Starts it.  The child dies with SIGKILL when the thread that started it ends. */
BL_MUST_USE belay_code bl_child_start(const bl_child_spec *spec, pid_t *pid, bl_error *error);

/* The file that argv[0] names, on the heap (bl_free). */
BL_MUST_USE belay_code bl_child_find(const char *name, char **path, bl_error *error);

/* A pipe whose ends are closed on exec and lie above the standard descriptors; [0] does not block. */
BL_MUST_USE belay_code bl_child_pipe(int ends[2], bl_error *error);

/* "SIGSEGV", "SIGRTMIN+3", "signal 77". */
const char *bl_signal_name(int number, char buffer[24]);

#endif
