/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `belay run` share: run.c (the command and its attempts), run_words.c (what is said), run_record.c
 * (run.json), run_locate.c, run_sanitize.c, run_planted.c; for ranks under mpirun or srun run_mpi.c (starts them),
 * run_hosts.c (their hosts), run_mpi_words.c (who failed first), run_rank.c (what looks after one). */
#ifndef BL_CLI_RUN_H
#define BL_CLI_RUN_H

#include "cli/cli.h"
#include "proc/supervise.h"
#include "triage/ends.h"

typedef struct bl_run_options {
    int64_t n; /* 0: not given */
    char *out;
    int64_t retries;
    bool locate, sanitize, planted_bug;
    double quiet_limit, grace;
    int64_t log_limit; /* MiB */
    bool mpi;
    char *hostfile, *rank_of;
    double timeout;
    bool plain; /* no option: what rank 0 says is shown as it is */
} bl_run_options;

enum { BL_RUN_SET = 40 };

typedef struct bl_run_mpi bl_run_mpi;

typedef struct bl_run {
    bl_cli *cli;
    const bl_run_options *options;
    char **words; /* the program as it was asked for */
    int n_words;
    char **argv;        /* NULL-ended: the program, with --sanitize behind the tool */
    char *tool;         /* compute-sanitizer */
    char *folder;       /* evidence */
    char *attempt_path; /* FOLDER/attempt_0 */
    int attempt;
    int64_t retries_left;
    bool locating, located; /* this attempt locates; one did */
    bool in_memory_fault;   /* the attempt before ended on one */
    int status;
    bool refused;                /* all ranks ended alike, and have said why */
    bool was_stopped;            /* by a signal to us: then nothing is to be explained */
    const char *set[BL_RUN_SET]; /* "NAME=value" of this attempt */
    bl_text set_text[BL_RUN_SET];
    int n_set;
    json_t *record;
    bl_run_mpi *mpi;     /* NULL: no ranks under a launcher */
    bl_ends ends;        /* of them, in the last attempt */
    int launcher_signal; /* that ended mpirun or srun, and with it the ranks; 0: none did */
} bl_run;

/* ---- run.c ------------------------------------------------------------------------------------------------------------ */

/* The words of a NULL-ended program under these options, from start to verdict: the exit status. */
int bl_run_program(bl_cli *cli, const bl_run_options *options, char **words, int n_words);

/* ---- run_locate.c ----------------------------------------------------------------------------------------------------- */

/* Whether what failed looks like a memory fault: by its signal, or by the last words of any rank. */
bool bl_run_is_memory_fault(const bl_supervise *supervise);
/* Adds the variables that locate one, and says their side effects. */
void bl_run_locate(bl_run *run);
void bl_run_set(bl_run *run, const char *name, const char *value);

/* ---- run_sanitize.c --------------------------------------------------------------------------------------------------- */

enum { BL_RUN_FOUND = 86 }; /* status of a program in which the sanitizer found something */

/* Finds compute-sanitizer, proves it on a planted bug, and puts it in front of the program. */
BL_MUST_USE belay_code bl_run_sanitize(bl_run *run, bl_error *error);
/* The planted bug: one write behind an allocation of a GPU; the exit status. */
int bl_run_planted(void);

/* ---- run_mpi.c, run_mpi_words.c, run_rank.c ----------------------------------------------------------------------------- */

/* Checks what --mpi needs.  comm.absent, conf.missing, file.open. */
BL_MUST_USE belay_code bl_run_mpi_open(bl_run *run, bl_error *error);
void bl_run_mpi_close(bl_run *run);
/* Whether it is a file of hosts as mpirun reads them.  file.open, file.read, file.limit, file.format. */
BL_MUST_USE belay_code bl_run_hosts_check(const char *path, bl_error *error);
/* Turns an attempt of ranks into one of a launcher that starts them. */
BL_MUST_USE belay_code bl_run_mpi_fill(bl_run *run, bl_supervise_options *o, bl_error *error);
/* All ranks have ended: what is left is the launcher's. */
bool bl_run_mpi_is_over(const bl_run *run);
/* A bl_supervise_tell for it. */
void bl_run_mpi_tell(void *state, const bl_supervise *supervise, const bl_supervise_event *event);
/* Reads what the ranks left, which gives run->status, and says who failed first. */
BL_MUST_USE belay_code bl_run_mpi_end(bl_run *run, const bl_supervise *supervise, bl_error *error);
/* Adds the launcher to an attempt of run.json, and its ranks to their list. */
void bl_run_mpi_describe(bl_run *run, const bl_supervise *supervise, json_t *attempt, json_t *ranks);
/* "mpirun" or "srun". */
const char *bl_run_mpi_launcher(const bl_run *run);

/* The rank that mpirun or srun made of this process; -1: none. */
int bl_run_rank_number(void);
const char *bl_run_host(char host[64]);
/* Seconds since 1970 of a moment of the clock. */
double bl_run_wall(int64_t moment);
/* `belay run --rank-of`: looks after one rank; the exit status. */
int bl_run_rank(bl_cli *cli, const bl_run_options *options);

/* ---- run_record.c ------------------------------------------------------------------------------------------------------ */

BL_MUST_USE belay_code bl_run_record_begin(bl_run *run, bl_error *error);
void bl_run_record_attempt(bl_run *run, const bl_supervise_options *o, const bl_supervise *supervise);
BL_MUST_USE belay_code bl_run_record_write(bl_run *run, bool is_over, bl_error *error);

/* ---- run_words.c --------------------------------------------------------------------------------------------------------- */

void bl_run_say(const char *format, ...) BL_PRINTF(1, 2);
/* A bl_supervise_tell whose state is the bl_run. */
void bl_run_tell(void *state, const bl_supervise *supervise, const bl_supervise_event *event);
/* How the attempt ended, when there is something to say. */
void bl_run_say_end(bl_run *run, const bl_supervise *supervise);
/* Whether it was killed for want of memory, as far as the kernel tells. */
void bl_run_say_memory(const bl_supervise *supervise, const bl_rank_facts *rank);
/* Where the evidence is, and the verdict over it. */
void bl_run_explain(bl_run *run);
/* "SIGSEGV", "exit status 3". */
const char *bl_run_end_name(const bl_rank_facts *rank, char buffer[64]);

#endif
