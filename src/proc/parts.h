/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the loop share: supervise.c (the loop), rank.c (one rank's life), silence.c (stacks). */
#ifndef BL_PROC_PARTS_H
#define BL_PROC_PARTS_H

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#include "proc/reap.h"
#include "proc/supervise.h"
#include "proc/view.h"

typedef struct bl_rank {
    bl_rank_facts facts;
    int64_t stopped_at;
    int pipe[2]; /* our ends of stdout and stderr, -1: closed */
    int pidfd;   /* -1: none */
    bl_capture *capture[2];
    bool told_capture;
    uint64_t ticks; /* of its tree, when `quiet` looked first */
} bl_rank;

enum { BL_MARKED_LINE = 8192 };

/* What is sent to those that are left when the deadline comes. */
typedef enum bl_step { BL_STEP_NONE, BL_STEP_TERM, BL_STEP_KILL } bl_step;

typedef struct bl_silence {
    bool sampled, active, done; /* CPU looked at once; stacks being taken; told for this silence */
    int64_t sampled_at;
    int fd; /* of the file */
    char *path;
    bl_processes queue; /* those that gdb is still to see */
    int64_t at;
    pid_t gdb; /* 0: none runs */
    int64_t deadline;
} bl_silence;

struct bl_supervise {
    bl_supervise_options o;
    bl_supervise_facts facts;
    bl_rank *ranks;
    int n_started, n_running;
    bl_view *view;
    bool view_told[2];
    bl_kernel_log kernel_log;
    bl_oom kills_before;
    int signal_fd, epoll_fd;
    sigset_t mask;
    struct sigaction pipe_action, size_action, child_action;
    struct rlimit n_files;
    bl_step next;
    int64_t deadline, killed_since; /* 0: no SIGKILL yet */
    bool no_children, draining, given_up;
    int64_t last_interrupt, stopped_at, last_output;
    bl_silence silence;
    struct pollfd *polls;
    int *sources;  /* 2 * rank + stream of the entries from first_pipe on */
    char *buffer;  /* BL_VIEW_READ bytes */
    char *line[2]; /* of a launcher's streams, without an end yet: BL_MARKED_LINE bytes */
    int64_t n_line[2];
    int64_t looked; /* when the watch did last */
};

static inline void bl_supervise_say(bl_supervise *s, bl_supervise_event event)
{
    if (s->o.tell != NULL)
        s->o.tell(s->o.state, s, &event);
}

/* ---- rank.c ------------------------------------------------------------------------------------------------------------ */

BL_MUST_USE belay_code bl_rank_start(bl_supervise *s, int rank, bl_error *error);
/* One read of a stream that is ready; at its end, or when `last` and nothing is there, the stream is closed. */
void bl_rank_read(bl_supervise *s, int rank, int stream, bool last);
/* What wait4 told of it. */
void bl_rank_note(bl_supervise *s, int rank, int status, const struct rusage *usage);
/* Sends a signal to the groups of all that run. */
void bl_rank_forward(bl_supervise *s, int number);
void bl_rank_close(bl_rank *rank);

/* ---- silence.c ---------------------------------------------------------------------------------------------------------- */

/* Looks whether it is time, and goes on with what it does; when it is to be called again at the latest, 0: need not. */
int64_t bl_silence_step(bl_supervise *s);
/* Output came. */
void bl_silence_end(bl_supervise *s);
/* A child of ours that is no rank has ended. */
void bl_silence_note(bl_supervise *s, pid_t pid);
void bl_silence_close(bl_supervise *s);

#endif
