/* SPDX-License-Identifier: Apache-2.0 */
/* belay run --rank-of FOLDER: what mpirun or srun really start, once a rank.  It runs the rank's program, keeps what it
 * says in FOLDER/rankN.*.log, tells in FOLDER/rankN.end how it ended, and ends it: when all are asked to stop, and when a
 * rank failed and this one is still there after the time that it had.  Its own exit status is always 0, so that no
 * launcher ends the others. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "cli/run.h"
#include "proc/child.h"
#include "triage/ends.h"

enum { LOOKS_TO_A_STATUS = 5 };
static const int64_t second = 1000000000, look_every = 100000000;

typedef struct rank {
    const bl_run_options *options;
    const char *folder;
    int number;
    char host[64];
    int n_looks;
    int64_t stopped_at; /* since when it has been stopped, 0: it runs */
    int64_t failed_at;  /* when the mark was seen, 0: not yet */
    bool stopped, ended;
} rank;

/* ---- who we are ----------------------------------------------------------------------------------------------------------- */

static int number_of(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    long value = text != NULL && text[0] != '\0' ? strtol(text, &end, 10) : -1;
    return end != NULL && *end == '\0' && value >= 0 && value < BL_SUPERVISE_RANKS ? (int)value : -1;
}

static int from_launcher(const char *mpirun, const char *srun)
{
    int number = number_of(mpirun);
    return number < 0 && getenv("SLURM_STEP_ID") != NULL ? number_of(srun) : number;
}

int bl_run_rank_number(void) { return from_launcher("OMPI_COMM_WORLD_RANK", "SLURM_PROCID"); }

const char *bl_run_host(char host[64])
{
    host[0] = '\0';
    (void)gethostname(host, 64);
    host[63] = '\0';
    return host;
}

/* ---- while it runs ---------------------------------------------------------------------------------------------------------- */

/* A line in the rank's name, marked as its own are. */
static void say(const rank *r, const char *what, const char *signal)
{
    bl_run_say("\x1e%d\x1f"
               "belay: this rank %s%s\n",
               r->number, what, signal);
}

static void tell(void *state, const bl_supervise *s, const bl_supervise_event *event)
{
    rank *r = state;
    char signal[24];
    (void)s;
    if (event->kind == BL_EVENT_STOPPED || event->kind == BL_EVENT_CONTINUED)
        r->stopped_at = event->kind == BL_EVENT_STOPPED ? bl_clock_now() : 0;
    if (event->kind == BL_EVENT_FAILED)
        bl_ends_mark(r->folder, BL_MARK_FAILED);
    else if (event->kind == BL_EVENT_STOPPED)
        say(r, "was stopped by ", bl_signal_name(event->number, signal));
    else if (event->kind == BL_EVENT_CONTINUED)
        say(r, "goes on", "");
    else if (event->kind == BL_EVENT_CAPTURE_FAILED)
        say(r, "says what can no longer be kept in a file", "");
}

static void look(void *state, bl_supervise *s)
{
    rank *r = state;
    int64_t now = bl_clock_now(), most = (int64_t)((r->options->timeout + r->options->grace) * 1e9);
    if (!r->stopped && bl_ends_is_marked(r->folder, BL_MARK_STOP)) {
        r->stopped = true;
        bl_supervise_stop(s, SIGTERM);
    }
    if (r->failed_at == 0 && r->n_looks++ % LOOKS_TO_A_STATUS == 0 && bl_ends_has_failed(r->folder, r->number))
        bl_ends_mark(r->folder, BL_MARK_FAILED);
    if (r->stopped_at != 0 &&
        now - r->stopped_at > (int64_t)(r->options->timeout * 1e9)) /* the others need not find out */
        bl_ends_mark(r->folder, BL_MARK_FAILED);
    if (r->failed_at == 0 && bl_ends_is_marked(r->folder, BL_MARK_FAILED))
        r->failed_at = now;
    if (r->failed_at != 0 && now - r->failed_at > most && !r->ended && !r->stopped) {
        r->ended = true;
        bl_supervise_end(s, bl_min_i64(second, (int64_t)(r->options->grace * 1e9)));
    }
}

/* ---- its end ------------------------------------------------------------------------------------------------------------------ */

double bl_run_wall(int64_t moment)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (double)(bl_clock_now() - moment) / 1e9;
}

static belay_code write_end(const rank *r, const bl_rank_facts *facts, bl_error *error)
{
    int64_t ended = facts->held != 0 ? facts->held_since : facts->ended != 0 ? facts->ended : bl_clock_now();
    bl_rank_end end = {.pid = (int)facts->pid,
                       .status = facts->status,
                       .signal = facts->signal,
                       .asked = facts->asked,
                       .held = facts->held,
                       .wall = bl_run_wall(ended)};
    snprintf(end.host, sizeof end.host, "%s", r->host);
    return bl_ends_write(r->folder, r->number, &end, bl_run_wall(facts->started), error);
}

static belay_code run_program(rank *r, bl_cli *cli, bl_error *error)
{
    bl_text settings[2] = {0}, name = {0}, kernel = {0};
    const char *set[2], *launcher = getenv("BELAY_LAUNCHER");
    bl_supervise *supervise = NULL;
    int local = from_launcher("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID");
    bl_text_format(&settings[0], "BELAY_STATUS=%s", r->folder);
    bl_text_format(&settings[1], "BELAY_TIMEOUT=%.17g", r->options->timeout);
    bl_text_format(&name, "rank%d", r->number);
    bl_text_format(&kernel, "kernel.%s", r->host);
    for (int i = 0; i < 2; i++)
        set[i] = bl_text_get(&settings[i]);
    bl_supervise_options o = {.argv = cli->arguments,
                              .n_ranks = 1,
                              .set = set,
                              .n_set = 2,
                              .folder = r->folder,
                              .name = bl_text_get(&name),
                              .log_limit = r->options->log_limit * 1024 * 1024,
                              .grace = (int64_t)(r->options->grace * 1e9),
                              .kernel_name = bl_text_get(&kernel),
                              .no_kernel_log = local != 0 || launcher == NULL || strcmp(launcher, r->host) == 0,
                              .marked = true,
                              .mark = r->number,
                              .in = -1,
                              .view_out = STDOUT_FILENO,
                              .view_err = STDERR_FILENO,
                              .tell = tell,
                              .state = r,
                              .watch = {.look = look, .look_every = look_every, .state = r}};
    belay_code code = bl_supervise_run(&o, &supervise, error);
    if (code == BELAY_OK)
        code = write_end(r, bl_supervise_rank(supervise, 0), error);
    bl_supervise_close(supervise);
    for (int i = 0; i < 2; i++)
        bl_text_fini(&settings[i]);
    bl_text_fini(&name);
    bl_text_fini(&kernel);
    return code;
}

/* A program that cannot be started here has ended, too. */
static void give_up(const rank *r, const bl_error *error)
{
    bl_rank_end end = {.status = belay_code_status(error->code), .wall = bl_run_wall(bl_clock_now())};
    snprintf(end.host, sizeof end.host, "%s", r->host);
    bl_run_say("\x1e%d\x1f"
               "belay: %s (%s)\n",
               r->number, error->what, belay_code_name(error->code));
    (void)!bl_ends_write(r->folder, r->number, &end, end.wall, NULL);
    bl_ends_mark(r->folder, BL_MARK_FAILED);
}

/* What asks us to end does so through the supervisor alone, also before it looks and after it has looked: a launcher of
 * several threads that was killed sends us SIGTERM once for each, and the end of the rank is still to be told.  The
 * rank itself starts with nothing held back. */
static void hold_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* a launcher that was killed takes its ranks along */
}

int bl_run_rank(bl_cli *cli, const bl_run_options *options)
{
    bl_error error = {0};
    rank r = {.options = options, .folder = options->rank_of, .number = bl_run_rank_number()};
    bl_run_host(r.host);
    if (r.number < 0) {
        bl_error_set(&error, BELAY_COMM_LAUNCH, "belay run --rank-of was not started as a rank by mpirun or srun");
        return bl_cli_fail(cli, &error);
    }
    hold_signals();
    belay_code code = bl_file_mkdir(r.folder, &error);
    if (code == BELAY_OK)
        code = run_program(&r, cli, &error);
    if (code != BELAY_OK)
        give_up(&r, &error);
    return 0;
}
