/* SPDX-License-Identifier: Apache-2.0 */
/* belay run --mpi: ranks started by mpirun, or by srun inside of a Slurm allocation.  Each is a `belay run --rank-of`,
 * which looks after one program (run_rank.c); all of them and we meet in the attempt's folder, which every host must see
 * under the same path.
 *
 *   the first rank that failed is marked   -> the others have timeout + grace, then their supervisors end them
 *   all ranks have ended                   -> the launcher has a moment, then it is ended, with all that it left
 *   timeout + grace and four seconds passed -> all that is left is killed, whatever the launcher does
 *
 * What mpirun returns is never looked at: with recovery it is 0 when ranks were killed. */
#define _GNU_SOURCE /* environ */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "cli/run.h"
#include "dist/transport.h"
#include "proc/child.h"
#include "triage/ends.h"

/* The supervisors of the ranks are given `margin` beyond their own times, so that each can tell how its rank ended. */
static const int64_t second = 1000000000, look_every = 100000000, margin = 4000000000;

struct bl_run_mpi {
    char **argv; /* each on the heap */
    int n_argv;
    int64_t capacity;
    bool is_srun, lacks_memory;
    int n_up, n_ended;
    int64_t started, failed_at, all_ended_at, ended_at;
    bool stopped, killed;
};

/* ---- which launcher ----------------------------------------------------------------------------------------------------- */

static bool is_there(const char *program)
{
    char *path = NULL;
    bl_error unused = {0};
    bool found = bl_child_find(program, &path, &unused) == BELAY_OK;
    bl_free(path);
    return found;
}

static belay_code find_launcher(bl_run *run, bl_error *error)
{
    run->mpi->is_srun = getenv("SLURM_JOB_ID") != NULL && run->options->hostfile == NULL && is_there("srun");
    if (run->mpi->is_srun || is_there("mpirun"))
        return BELAY_OK;
    return bl_error_set(error, BELAY_COMM_ABSENT, "mpirun is not on PATH, so that no rank can be started");
}

static belay_code check(const bl_run *run, bl_error *error)
{
    const bl_run_options *o = run->options;
    if (o->n == 0) {
        bl_error_set(error, BELAY_CONF_MISSING, "--mpi needs the number of ranks");
        bl_error_advise(error, "Give it: belay run -n 4 --mpi -- PROGRAM.");
        return BELAY_CONF_MISSING;
    }
    return o->hostfile != NULL ? bl_run_hosts_check(o->hostfile, error) : BELAY_OK;
}

belay_code bl_run_mpi_open(bl_run *run, bl_error *error)
{
    TRY(check(run, error));
    run->mpi = bl_alloc(1, sizeof *run->mpi);
    if (run->mpi == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to start the run");
    return find_launcher(run, error);
}

const char *bl_run_mpi_launcher(const bl_run *run) { return run->mpi->is_srun ? "srun" : "mpirun"; }

static void free_argv(bl_run_mpi *mpi)
{
    for (int i = 0; i < mpi->n_argv; i++)
        bl_free(mpi->argv[i]);
    bl_free(mpi->argv);
    mpi->argv = NULL;
    mpi->n_argv = 0;
    mpi->capacity = 0;
}

void bl_run_mpi_close(bl_run *run)
{
    if (run->mpi != NULL)
        free_argv(run->mpi);
    bl_free(run->mpi);
    run->mpi = NULL;
}

/* ---- its command line ----------------------------------------------------------------------------------------------------- */

static void add(bl_run_mpi *mpi, const char *format, ...) BL_PRINTF(2, 3);
static void add(bl_run_mpi *mpi, const char *format, ...)
{
    char *word = NULL;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (n >= 0 && bl_grow(&mpi->argv, &mpi->capacity, mpi->n_argv + 2, sizeof *mpi->argv))
        word = bl_alloc((int64_t)n + 1, 1);
    if (word == NULL) {
        mpi->lacks_memory = true;
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(word, (size_t)n + 1, format, arguments);
    va_end(arguments);
    mpi->argv[mpi->n_argv++] = word;
    mpi->argv[mpi->n_argv] = NULL;
}

/* mpirun hands nothing of our environment to other hosts unless it is named. */
static void forward(const bl_run *run, bl_run_mpi *mpi)
{
    for (int i = 0; i < run->n_set; i++)
        if (strncmp(run->set[i], "OMPI_", 5) != 0) {
            add(mpi, "-x");
            add(mpi, "%.*s", (int)strcspn(run->set[i], "="), run->set[i]);
        }
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        bool is_set = false;
        size_t length = strcspn(*entry, "=") + 1;
        for (int i = 0; i < run->n_set; i++)
            is_set = is_set || strncmp(run->set[i], *entry, length) == 0;
        if (is_set || (strncmp(*entry, "BELAY_", 6) != 0 && strncmp(*entry, "OMP_NUM_THREADS=", 16) != 0 &&
                       strncmp(*entry, "LD_LIBRARY_PATH=", 16) != 0))
            continue;
        add(mpi, "-x");
        add(mpi, "%.*s", (int)length - 1, *entry);
    }
}

static void add_launcher(const bl_run *run, bl_run_mpi *mpi)
{
    const bl_run_options *o = run->options;
    if (mpi->is_srun) {
        add(mpi, "srun");
        add(mpi, "--ntasks=%lld", (long long)o->n);
        add(mpi, "--kill-on-bad-exit=0");
        add(mpi, "--wait=0");
        return;
    }
    add(mpi, "mpirun");
    add(mpi, "-np");
    add(mpi, "%lld", (long long)o->n);
    if (o->hostfile != NULL) {
        add(mpi, "--hostfile");
        add(mpi, "%s", o->hostfile);
    }
    forward(run, mpi);
}

static belay_code find_self(char self[PATH_MAX], bl_error *error)
{
    char reason[128];
    ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);
    if (n < 0)
        return bl_error_set(error, BELAY_FILE_OPEN, "cannot tell which file this program is: %s",
                            bl_error_errno(errno, reason));
    self[n] = '\0';
    return BELAY_OK;
}

static belay_code make_argv(const bl_run *run, const char *self, const char *folder, bl_error *error)
{
    bl_run_mpi *mpi = run->mpi;
    const bl_run_options *o = run->options;
    free_argv(mpi);
    add_launcher(run, mpi);
    add(mpi, "%s", self);
    add(mpi, "run");
    add(mpi, "--rank-of=%s", folder);
    add(mpi, "--timeout=%.17g", o->timeout);
    add(mpi, "--grace=%.17g", o->grace);
    add(mpi, "--log-limit=%lld", (long long)o->log_limit);
    add(mpi, "--");
    for (char **word = run->argv; *word != NULL; word++)
        add(mpi, "%s", *word);
    return mpi->lacks_memory ? bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to start the run") : BELAY_OK;
}

static void set_unless_set(bl_run *run, const char *name, const char *value)
{
    if (getenv(name) == NULL)
        bl_run_set(run, name, value);
}

/* What Open MPI must be told.  Idle ranks that yield are what lets more ranks than cores run: a barrier of four on two
 * cores takes 1.4 ms with it and 43 ms without. */
static void prepare(bl_run *run, const char *folder)
{
    char text[64];
    bl_text plugins = {0};
    bl_transport_find("mpi", &plugins); /* for programs that lie elsewhere */
    if (plugins.n_bytes > 0)
        set_unless_set(run, "BELAY_PLUGINS", bl_text_get(&plugins));
    bl_text_fini(&plugins);
    bl_run_set(run, "BELAY_STATUS", folder);
    snprintf(text, sizeof text, "%.17g", run->options->timeout);
    bl_run_set(run, "BELAY_TIMEOUT", text);
    bl_run_set(run, "BELAY_LAUNCHER", bl_run_host(text));
    bl_run_set(run, "OMPI_MCA_orte_enable_recovery", "1");
    set_unless_set(run, "OMPI_ALLOW_RUN_AS_ROOT", "1");
    set_unless_set(run, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    set_unless_set(run, "OMPI_MCA_rmaps_base_oversubscribe", "1");
    set_unless_set(run, "OMPI_MCA_mpi_yield_when_idle", "1");
    /* What reads out of the memory of a rank that has died aborts the one that reads. */
    set_unless_set(run, "OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    set_unless_set(run, "OMPI_MCA_hwloc_base_binding_policy", "none");
    snprintf(text, sizeof text, "%.0f", run->options->timeout + 1); /* a daemon that lost us ends, too */
    set_unless_set(run, "OMPI_MCA_oob_tcp_keepalive_time", text);
}

/* ---- while it runs ---------------------------------------------------------------------------------------------------------- */

static int64_t nanoseconds(double seconds) { return (int64_t)(seconds * 1e9); }

bool bl_run_mpi_is_over(const bl_run *run) { return run->mpi->all_ended_at != 0; }

/* Ranks that never began are failures of their own: the others wait for them in vain.  A start has 30 seconds at least. */
static bool is_late(const bl_run *run, int64_t now)
{
    int64_t most = bl_max_i64(nanoseconds(run->options->timeout), 30 * second);
    return run->mpi->n_up < run->options->n && now - run->mpi->started > most;
}

static void look(void *state, bl_supervise *s)
{
    bl_run *run = state;
    bl_run_mpi *mpi = run->mpi;
    const bl_run_options *o = run->options;
    int64_t now = bl_clock_now(), grace = nanoseconds(o->grace);
    bl_ends_count(run->attempt_path, (int)o->n, &mpi->n_up, &mpi->n_ended);
    if (mpi->failed_at == 0 && is_late(run, now))
        bl_ends_mark(run->attempt_path, BL_MARK_FAILED);
    if (mpi->failed_at == 0 && bl_ends_is_marked(run->attempt_path, BL_MARK_FAILED))
        mpi->failed_at = now;
    if (mpi->all_ended_at == 0 && mpi->n_ended == o->n)
        mpi->all_ended_at = now;
    if (mpi->ended_at != 0 && now - mpi->ended_at > 2 * second && !mpi->killed) {
        mpi->killed = true;
        bl_supervise_kill(s);
    }
    if (mpi->ended_at != 0 || mpi->stopped)
        return;
    bool is_over = mpi->all_ended_at != 0 && now - mpi->all_ended_at > 2 * second;
    bool is_late_for_all = mpi->failed_at != 0 && now - mpi->failed_at > nanoseconds(o->timeout) + grace + margin;
    bool never_began = mpi->failed_at != 0 && mpi->n_up == 0;
    if (is_over || is_late_for_all || never_began) {
        mpi->ended_at = now;
        bl_supervise_end(s, bl_min_i64(grace, second));
    }
}

/* Ranks are asked by their supervisors: what mpirun does on a signal leaves them one second. */
static bool stop(void *state, bl_supervise *s, int number)
{
    bl_run *run = state;
    (void)s;
    (void)number;
    run->mpi->stopped = true;
    bl_ends_mark(run->attempt_path, BL_MARK_STOP);
    return true;
}

belay_code bl_run_mpi_fill(bl_run *run, bl_supervise_options *o, bl_error *error)
{
    bl_run_mpi *mpi = run->mpi;
    char self[PATH_MAX], whole[PATH_MAX];
    TRY(find_self(self, error));
    const char *folder = realpath(run->attempt_path, whole) != NULL ? whole : run->attempt_path;
    prepare(run, folder);
    TRY(make_argv(run, self, folder, error));
    mpi->started = bl_clock_now();
    mpi->failed_at = mpi->all_ended_at = mpi->ended_at = 0;
    mpi->stopped = mpi->killed = false;
    o->argv = mpi->argv;
    o->n_ranks = 1;
    o->ranked = false;
    o->n_set = run->n_set;
    o->name = bl_run_mpi_launcher(run);
    o->n_marked = (int)run->options->n;
    o->plain_first = run->options->plain;
    o->in = -1;
    o->shares_terminal = false;
    o->linger = o->grace; /* after a launcher that was killed: by then the supervisors have ended their ranks */
    o->grace += margin;   /* the ranks' supervisors kill after `grace` */
    o->tell = bl_run_mpi_tell;
    o->watch = (bl_supervise_watch){.look = look, .stop = stop, .look_every = look_every, .state = run};
    return BELAY_OK;
}
