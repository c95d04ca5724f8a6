/* SPDX-License-Identifier: Apache-2.0 */
/* belay run: any program, supervised.  Attempts follow each other: the first; after a memory fault one that locates it,
 * if asked; as many more as --retries says.  The exit status is the program's. */
#include "cli/run.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "proc/child.h"

static const bl_setting_row rows[] = {
    {.name = "n",
     .kind = BL_KIND_INT,
     .offset = offsetof(bl_run_options, n),
     .group = BL_GROUP_RUN,
     .int_low = 1,
     .int_high = BL_SUPERVISE_RANKS,
     .words = "one process that is told no rank",
     .place = "N",
     .unit = "processes",
     .help = "Start N processes, each with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and "
             "MASTER_PORT."},
    {.name = "mpi",
     .kind = BL_KIND_FLAG,
     .offset = offsetof(bl_run_options, mpi),
     .group = BL_GROUP_RUN,
     .words = "",
     .place = "",
     .unit = "",
     .help = "Start the N processes by mpirun, inside of a Slurm allocation by srun.  All hosts must see the folder of "
             "the evidence."},
    {.name = "hostfile",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(bl_run_options, hostfile),
     .group = BL_GROUP_RUN,
     .words = "this host",
     .place = "FILE",
     .unit = "",
     .help = "Hosts for mpirun, one a line."},
    {.name = "timeout",
     .kind = BL_KIND_REAL,
     .offset = offsetof(bl_run_options, timeout),
     .group = BL_GROUP_RUN,
     .real_default = 60,
     .real_low = 0.1,
     .real_high = 86400,
     .words = "",
     .place = "SECONDS",
     .unit = "s",
     .help = "With --mpi: time that ranks wait for another one.  Those that are still there so long and --grace after "
             "one failed are ended."},
    {.name = "out",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(bl_run_options, out),
     .group = BL_GROUP_RUN,
     .words = "belay-run-TIME-PID",
     .place = "FOLDER",
     .unit = "",
     .help = "Folder for the evidence: logs, stacks, the kernel's log, run.json."},
    {.name = "log-limit",
     .kind = BL_KIND_INT,
     .offset = offsetof(bl_run_options, log_limit),
     .group = BL_GROUP_RUN,
     .int_default = 256,
     .int_low = 1,
     .int_high = 1 << 20,
     .words = "",
     .place = "MIB",
     .unit = "MiB",
     .help = "Most that is kept of each stream: its first half for good, of the rest what came last."},
    {.name = "grace",
     .kind = BL_KIND_REAL,
     .offset = offsetof(bl_run_options, grace),
     .group = BL_GROUP_RUN,
     .real_default = 10,
     .real_low = 0,
     .real_high = 86400,
     .words = "",
     .place = "SECONDS",
     .unit = "s",
     .help = "Time for the other ranks after the first failed, and between SIGTERM or a forwarded signal and SIGKILL."},
    {.name = "retries",
     .kind = BL_KIND_INT,
     .offset = offsetof(bl_run_options, retries),
     .group = BL_GROUP_FAULTS,
     .int_low = 0,
     .int_high = 1000,
     .words = "",
     .place = "K",
     .unit = "times",
     .help = "Start a run that failed again, at most K times."},
    {.name = "locate",
     .kind = BL_KIND_FLAG,
     .offset = offsetof(bl_run_options, locate),
     .group = BL_GROUP_FAULTS,
     .words = "",
     .place = "",
     .unit = "",
     .help =
         "After a memory fault run once more with what locates it: launch blocking for one rank, GPU core dumps and "
         "records of collectives for several.  Side effects are said."},
    {.name = "sanitize",
     .kind = BL_KIND_FLAG,
     .offset = offsetof(bl_run_options, sanitize),
     .group = BL_GROUP_FAULTS,
     .words = "",
     .place = "",
     .unit = "",
     .help = "Run each rank under compute-sanitizer memcheck, once that has reported a planted bug here."},
    {.name = "quiet-limit",
     .kind = BL_KIND_REAL,
     .offset = offsetof(bl_run_options, quiet_limit),
     .group = BL_GROUP_FAULTS,
     .real_low = 0,
     .real_high = 1e6,
     .words = "off",
     .place = "SECONDS",
     .unit = "s",
     .help = "When no rank has said anything for so long, take the stacks of all and show their last lines."},
    {.name = "rank-of",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(bl_run_options, rank_of),
     .group = BL_GROUP_FAULTS,
     .words = "",
     .place = "FOLDER",
     .unit = "",
     .help = "Only look after one rank that mpirun or srun started, for the run that FOLDER belongs to: what --mpi "
             "gives them to start."},
    {.name = "planted-bug",
     .kind = BL_KIND_FLAG,
     .offset = offsetof(bl_run_options, planted_bug),
     .group = BL_GROUP_FAULTS,
     .words = "",
     .place = "",
     .unit = "",
     .help = "Only write four bytes behind an allocation of a GPU: what --sanitize is proved by."},
};

/* ---- the folder ---------------------------------------------------------------------------------------------------------- */

static bool is_empty(const char *path)
{
    DIR *folder = opendir(path);
    bool empty = folder != NULL;
    for (struct dirent *entry; empty && (entry = readdir(folder)) != NULL;)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (folder != NULL)
        closedir(folder);
    return empty;
}

static char *name_folder(const bl_run_options *options)
{
    char words[64];
    struct tm parts;
    time_t now = (time_t)bl_clock_wall();
    if (options->out != NULL)
        return bl_strdup(options->out);
    if (localtime_r(&now, &parts) == NULL || strftime(words, sizeof words, "belay-run-%Y%m%d-%H%M%S", &parts) == 0)
        snprintf(words, sizeof words, "belay-run-%lld", (long long)now);
    snprintf(words + strlen(words), sizeof words - strlen(words), "-%d", (int)getpid());
    return bl_strdup(words);
}

static belay_code open_folder(bl_run *run, bl_error *error)
{
    run->folder = name_folder(run->options);
    if (run->folder == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to start the run");
    bl_file_kind kind = bl_file_kind_get(run->folder);
    if (kind != BL_FILE_ABSENT && (kind != BL_FILE_FOLDER || !is_empty(run->folder))) {
        char quoted[BL_FILE_QUOTE];
        bl_error_set(error, BELAY_FILE_EXISTS, "'%s' is already there, and is no empty folder",
                     bl_file_quote(run->folder, (int64_t)strlen(run->folder), quoted));
        bl_error_advise(error, "Choose another folder for --out; evidence is never overwritten.");
        return BELAY_FILE_EXISTS;
    }
    return bl_file_mkdir(run->folder, error);
}

static belay_code open_attempt(bl_run *run, bl_error *error)
{
    char name[32];
    bl_free(run->attempt_path);
    snprintf(name, sizeof name, "attempt_%d", run->attempt);
    run->attempt_path = bl_file_join(run->folder, name);
    if (run->attempt_path == NULL)
        return bl_file_no_memory(error, "make an attempt in", run->folder);
    return bl_file_mkdir(run->attempt_path, error);
}

/* ---- one attempt ------------------------------------------------------------------------------------------------------------ */

static void set_unless_set(bl_run *run, const char *name, const char *value)
{
    if (getenv(name) == NULL)
        bl_run_set(run, name, value);
}

/* What every attempt is given: words of a program that dies are not to die in a buffer. */
static void prepare(bl_run *run)
{
    char number[16];
    run->n_set = 0;
    snprintf(number, sizeof number, "%d", run->attempt);
    bl_run_set(run, "BELAY_ATTEMPT", number);
    set_unless_set(run, "PYTHONUNBUFFERED", "1");
    set_unless_set(run, "PYTHONFAULTHANDLER", "1");
    if (run->options->sanitize) { /* a pool would hide where a tensor ends */
        bl_run_set(run, "PYTORCH_NO_CUDA_MEMORY_CACHING", "1");
        bl_run_set(run, "XLA_PYTHON_CLIENT_ALLOCATOR", "platform");
    }
    if (run->locating)
        bl_run_locate(run);
}

static int64_t nanoseconds(double seconds) { return (int64_t)(seconds * 1e9); }

static void fill(const bl_run *run, bl_supervise_options *o, const char *gdb)
{
    const bl_run_options *options = run->options;
    *o = (bl_supervise_options){.argv = run->argv,
                                .n_ranks = options->n > 0 ? (int)options->n : 1,
                                .ranked = options->n > 0,
                                .port = options->n > 0 ? bl_supervise_port() : 0,
                                .set = run->set,
                                .n_set = run->n_set,
                                .folder = run->attempt_path,
                                .log_limit = options->log_limit * 1024 * 1024,
                                .grace = nanoseconds(options->grace),
                                .quiet = nanoseconds(options->quiet_limit),
                                .gdb = gdb,
                                .core = run->locating,
                                .in = STDIN_FILENO,
                                .view_out = run->cli->json ? STDERR_FILENO : STDOUT_FILENO,
                                .view_err = STDERR_FILENO,
                                .tell = bl_run_tell,
                                .state = (void *)(uintptr_t)run};
    o->shares_terminal = o->n_ranks == 1 && isatty(STDIN_FILENO) == 1;
}

/* What an attempt came to, in words, in the record, and for what follows. */
static belay_code conclude(bl_run *run, const bl_supervise_options *o, const bl_supervise *supervise, bool *go_on,
                           bl_error *error)
{
    const bl_supervise_facts *facts = bl_supervise_facts_get(supervise);
    bool failed = facts->first_failed >= 0;
    run->was_stopped = facts->stop_signal != 0;
    if (run->mpi != NULL) {
        TRY(bl_run_mpi_end(run, supervise, error));
        failed = run->status != 0;
        run->in_memory_fault = failed && (run->status == 128 + SIGSEGV || run->status == 128 + SIGBUS);
    } else {
        if (!run->locating)
            run->status = bl_supervise_status(supervise);
        run->in_memory_fault = failed && !run->was_stopped && bl_run_is_memory_fault(supervise);
    }
    *go_on = failed && !run->was_stopped;
    if (run->locating && !failed && !run->was_stopped)
        bl_run_say(
            "belay: the memory fault did not come back; what was set for it changes the order of events, so that "
            "a race may hide\n");
    if (run->mpi == NULL)
        bl_run_say_end(run, supervise);
    bl_run_record_attempt(run, o, supervise);
    return BELAY_OK;
}

/* Runs the program once; *go_on: another attempt may make sense. */
static belay_code attempt(bl_run *run, bool *go_on, bl_error *error)
{
    bl_supervise *supervise = NULL;
    bl_supervise_options o;
    char *gdb = NULL;
    bl_error unused = {0};
    TRY(open_attempt(run, error));
    prepare(run);
    if (run->options->quiet_limit > 0)
        (void)!bl_child_find("gdb", &gdb, &unused);
    fill(run, &o, gdb);
    fflush(NULL);
    belay_code code = run->mpi != NULL ? bl_run_mpi_fill(run, &o, error) : BELAY_OK;
    if (code == BELAY_OK)
        code = bl_supervise_run(&o, &supervise, error);
    bl_free(gdb);
    if (code == BELAY_OK)
        code = conclude(run, &o, supervise, go_on, error);
    bl_supervise_close(supervise);
    return code;
}

/* What comes after an attempt that failed; false: nothing. */
static bool next_attempt(bl_run *run)
{
    bool locate = run->options->locate && run->in_memory_fault && !run->located;
    if (!locate && run->retries_left == 0)
        return false;
    run->attempt++;
    run->locating = locate;
    run->located = run->located || locate;
    if (!locate) {
        run->retries_left--;
        bl_run_say("belay: starting again, %lld more times if need be\n", (long long)run->retries_left);
    }
    return true;
}

/* ---- the command --------------------------------------------------------------------------------------------------------------- */

static belay_code begin(bl_run *run, bl_error *error)
{
    char *found = NULL;
    TRY(bl_child_find(run->argv[0], &found, error)); /* before a folder is made */
    bl_free(found);
    if (run->options->mpi)
        TRY(bl_run_mpi_open(run, error));
    run->retries_left = run->options->retries;
    TRY(open_folder(run, error));
    if (run->options->sanitize)
        TRY(bl_run_sanitize(run, error));
    TRY(bl_run_record_begin(run, error));
    return bl_run_record_write(run, false, error);
}

static belay_code attempts(bl_run *run, bl_error *error)
{
    bl_error full = {0};
    bool go_on;
    TRY(begin(run, error));
    do {
        go_on = false;
        TRY(attempt(run, &go_on, error));
        if (bl_run_record_write(run, false, &full) != BELAY_OK && full.code == BELAY_MEM_EXHAUSTED)
            run->cli->lacks_memory = true;
    } while (go_on && next_attempt(run));
    if (bl_run_record_write(run, true, &full) != BELAY_OK) /* the program's own end counts more */
        bl_cli_tell(run->cli, &full);
    return BELAY_OK;
}

static void close_run(bl_run *run)
{
    for (int i = 0; i < BL_RUN_SET; i++)
        bl_text_fini(&run->set_text[i]);
    bl_run_mpi_close(run);
    bl_ends_fini(&run->ends);
    json_decref(run->record);
    bl_free(run->argv);
    bl_free(run->tool);
    bl_free(run->attempt_path);
    bl_free(run->folder);
}

int bl_run_program(bl_cli *cli, const bl_run_options *options, char **words, int n_words)
{
    bl_run run = {.cli = cli, .options = options, .words = words, .n_words = n_words};
    bl_error error = {0};
    belay_code code = BELAY_OK;
    run.argv = bl_alloc(n_words + 1, sizeof *run.argv);
    if (run.argv == NULL) {
        code = bl_error_set(&error, BELAY_MEM_EXHAUSTED, "no memory to start the run");
    } else {
        memcpy(run.argv, words, (size_t)n_words * sizeof *run.argv);
        code = attempts(&run, &error);
    }
    int status = run.status;
    if (code == BELAY_OK && status != 0)
        bl_run_explain(&run);
    if (cli->document != NULL && run.record != NULL && json_object_update(cli->document, run.record) != 0)
        cli->lacks_memory = true;
    if (cli->document != NULL && run.folder != NULL)
        bl_cli_put_text(cli, cli->document, "evidence", run.folder);
    close_run(&run);
    return code != BELAY_OK ? bl_cli_fail(cli, &error) : bl_cli_end(cli, status);
}

static int run_run(bl_cli *cli)
{
    const bl_run_options *options = cli->options;
    bl_error error = {0};
    if (options->planted_bug)
        return bl_run_planted();
    if (cli->n_arguments == 0) {
        bl_error_set(&error, BELAY_CONF_MISSING, "belay run needs CMD...");
        bl_error_advise(&error, "`belay run --help` shows how it is called.");
        return bl_cli_fail(cli, &error);
    }
    if (options->rank_of != NULL)
        return bl_run_rank(cli, options);
    return bl_run_program(cli, options, cli->arguments, cli->n_arguments);
}

const bl_command bl_cli_run = {
    .name = "run",
    .arguments = "[--] CMD...",
    .says = "start and supervise any program, keep its output, tell how it ended",
    .more = "Keeps what each rank says in files of bounded size, forwards signals, and leaves no process behind.  The\n"
            "exit status is the program's, 128 + signal after one; of several ranks that of the first that failed.",
    .example = "belay run -- python train.py\nbelay run -n 4 --retries 2 -- python train.py --epochs 3\n"
               "belay run -n 4 --mpi --hostfile hosts -- ./train",
    .rows = rows,
    .n_rows = BL_COUNT(rows),
    .options_bytes = sizeof(bl_run_options),
    .min_arguments = 0,
    .max_arguments = -1,
    .options_first = true,
    .run = run_run,
};
