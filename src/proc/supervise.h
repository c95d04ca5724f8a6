/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a program in one or several ranks, from start to the last process gone: the loop over their pipes, their
 * ends, our signals and the deadlines.  One thread, one poll.
 *
 *   starts ranks -> copies what they say into files and into the view, forwards signals, notes stops and ends
 *   a rank fails -> the others get `grace`, then SIGTERM, then `grace`, then SIGKILL
 *   SIGINT or SIGTERM to us -> forwarded; after `grace` SIGKILL to all that is left; a second one: SIGKILL at once
 *   all ranks have ended -> what they left behind gets at most a second, SIGTERM, `grace`, SIGKILL
 *
 * Returns only when no process that came from the run is left; one that SIGKILL does not end within half a minute, as it
 * may be where a driver hangs, is told and left.  It owns all children of the process while it runs.
 * Nothing is printed: what happens is told to `tell`. */
#ifndef BL_PROC_SUPERVISE_H
#define BL_PROC_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/text.h"
#include "proc/capture.h"
#include "proc/machine.h"

enum { BL_SUPERVISE_RANKS = 1024, BL_SUPERVISE_LEFT = 16 };

typedef struct bl_supervise bl_supervise;

typedef enum bl_supervise_event_kind {
    BL_EVENT_STOPPED,        /* `rank` was stopped by `number`, a signal */
    BL_EVENT_CONTINUED,      /* `rank` goes on */
    BL_EVENT_FAILED,         /* `rank` failed, the first of them */
    BL_EVENT_TERMINATING,    /* SIGTERM went to what is left, `number` processes */
    BL_EVENT_KILLING,        /* SIGKILL */
    BL_EVENT_CAPTURE_FAILED, /* stream `stream` of `rank` is no longer kept: errno `number` */
    BL_EVENT_VIEW_FAILED,    /* the view of `stream` is over: errno `number` */
    BL_EVENT_SILENT,         /* no rank has said anything; `path` holds the stacks */
} bl_supervise_event_kind;

typedef struct bl_supervise_event {
    bl_supervise_event_kind kind;
    int rank, stream, number;
    const char *path;
} bl_supervise_event;

typedef void bl_supervise_tell(void *state, const bl_supervise *supervise, const bl_supervise_event *event);

/* For owners who look after more than the processes: `look` is called every `look_every` nanoseconds.  `stop` is asked
 * when SIGINT or SIGTERM came: true when it has told the ranks by itself, so that nothing is forwarded. */
typedef struct bl_supervise_watch {
    void (*look)(void *state, bl_supervise *supervise);
    bool (*stop)(void *state, bl_supervise *supervise, int number);
    int64_t look_every;
    void *state;
} bl_supervise_watch;

typedef struct bl_supervise_options {
    char *const *argv;
    int n_ranks;            /* 1 ... BL_SUPERVISE_RANKS */
    bool ranked;            /* gives RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT */
    int port;               /* for MASTER_PORT */
    const char *const *set; /* "NAME=value" for every rank */
    int n_set;
    const char *folder;      /* is there; gets rank0.stdout.log or program.stdout.log, ..., kernel.log,
                             * silence_1.txt */
    int64_t log_limit;       /* bytes of a stream's files */
    int64_t grace;           /* nanoseconds */
    int64_t linger;          /* nanoseconds until SIGTERM of what outlives the ranks; 0: a second */
    int64_t quiet;           /* nanoseconds of silence until stacks are taken; 0: never */
    const char *gdb;         /* for the stacks; NULL: /proc alone */
    bool shares_terminal;    /* one rank that stays in our process group: the terminal signals it itself */
    bool core;               /* raise the core limit */
    const char *name;        /* of the files of a single rank: NAME.stdout.log; NULL: program */
    const char *kernel_name; /* NAME.log; NULL: kernel */
    bool no_kernel_log;      /* somebody else on this machine keeps it */
    bool marked;             /* one rank, the lines of whose view are marked for a launcher above us, as rank mark's */
    int mark;
    int n_marked;     /* one program, which starts so many ranks whose lines are marked: they go to the view, and
                             * what is not marked into its file; 0: it does not */
    bool plain_first; /* lines of rank 0 of n_marked get no prefix */
    bl_supervise_watch watch; /* zero: none */
    int in;                   /* standard input of a single rank; negative: /dev/null */
    int view_out, view_err;   /* our descriptors for the live view */
    bl_supervise_tell *tell;
    void *state;
} bl_supervise_options;

typedef struct bl_rank_facts {
    pid_t pid;
    int64_t started, ended; /* by bl_clock_now; 0: not yet */
    int status;             /* exit status, -1 when a signal ended it */
    int signal;             /* that ended it, 0: none */
    int asked;              /* signal that we had sent it before, 0: none */
    bool core_dumped;
    bool out_of_memory;           /* the kernel's log says that it killed this process for want of memory */
    int n_stops, stopped;         /* times stopped; the signal that stops it now, 0: it is not */
    int held;                     /* the signal that had stopped it when it was asked to end or was killed; 0: none */
    int64_t held_since;           /* by bl_clock_now */
    int64_t cpu_user, cpu_system; /* microseconds, with the children that it waited for */
    int64_t memory;               /* most bytes resident */
    double cores;                 /* CPU of its whole tree in the last span looked at by `quiet`; negative: not known */
    bl_capture_facts stream[2];   /* stdout, stderr */
} bl_rank_facts;

typedef struct bl_supervise_facts {
    int first_failed; /* rank; -1: none failed */
    int stop_signal;  /* SIGINT or SIGTERM that ended the run from outside, 0: none */
    int n_silences;
    int64_t n_stuck;                  /* processes that SIGKILL did not end */
    int64_t n_left;                   /* processes that outlived their rank by more than a second */
    char left[BL_SUPERVISE_LEFT][32]; /* "pid name" of the first of them */
    int64_t started, ended;
    int64_t started_wall; /* seconds since 1970 */
    bl_oom kills;         /* since the start */
    const bl_kernel_log *kernel_log;
    int view_failure[2], n_unkept; /* errno; streams that are not kept whole for a failed write */
} bl_supervise_facts;

/* Runs it all.  An error means that it could not be started, and that nothing is left running.  *out: to be asked below
 * and closed, NULL after an error. */
BL_MUST_USE belay_code bl_supervise_run(const bl_supervise_options *options, bl_supervise **out, bl_error *error);
void bl_supervise_close(bl_supervise *supervise);

const bl_supervise_facts *bl_supervise_facts_get(const bl_supervise *supervise);
int bl_supervise_n_ranks(const bl_supervise *supervise);
const bl_rank_facts *bl_supervise_rank(const bl_supervise *supervise, int rank);
/* The last bytes that a rank said on a stream (0: stdout, 1: stderr). */
const char *bl_supervise_tail(const bl_supervise *supervise, int rank, int stream, int64_t *n_bytes);

/* For the watch.  As if SIGINT or SIGTERM had come; SIGTERM to all that run, SIGKILL `grace` nanoseconds later;
 * SIGKILL to all that came from the run. */
void bl_supervise_stop(bl_supervise *supervise, int number);
void bl_supervise_end(bl_supervise *supervise, int64_t grace);
void bl_supervise_kill(bl_supervise *supervise);

/* FOLDER/rank3.stdout, FOLDER/program.stderr: the stem of the files of a rank's stream. */
void bl_rank_stem(const bl_supervise_options *options, int rank, int stream, bl_text *out);

/* What a shell would see: the exit status, or 128 + signal. */
int bl_rank_status(const bl_rank_facts *rank);
/* That of the rank that failed first; 0 when none did. */
int bl_supervise_status(const bl_supervise *supervise);

/* 29500, or when that is taken a free port; 0 when there is none. */
int bl_supervise_port(void);

#endif
