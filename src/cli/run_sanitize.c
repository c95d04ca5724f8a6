/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank under compute-sanitizer.  The tool ends with 0 whatever it found unless it is told otherwise, and it turns
 * itself off where it cannot attach: so it gets an exit code, and must report a planted bug first. */
#define _GNU_SOURCE /* memmem */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/run.h"
#include "proc/child.h"

static const char planted_report[] = "Invalid __global__ write of size 4";

static char tool_word[] = "--tool", memcheck[] = "memcheck", exit_word[] = "--error-exitcode", exit_code[] = "86",
            targets[] = "--target-processes", all[] = "all", run_word[] = "run", planted[] = "--planted-bug";
static char *const tool_words[] = {tool_word, memcheck, exit_word, exit_code, targets, all};

/* ---- the tool -------------------------------------------------------------------------------------------------------- */

static char *in_folder(const char *folder, const char *rest)
{
    bl_error error = {0};
    bl_text path = {0};
    char *found = NULL;
    bl_text_format(&path, "%s%s/compute-sanitizer", folder, rest);
    if (path.failed || bl_child_find(bl_text_get(&path), &found, &error) != BELAY_OK)
        found = NULL;
    bl_text_fini(&path);
    return found;
}

static belay_code find_tool(char **tool, bl_error *error)
{
    const char *home = getenv("CUDA_HOME");
    bl_error unused = {0};
    if (bl_child_find("compute-sanitizer", tool, &unused) == BELAY_OK)
        return BELAY_OK;
    *tool = home != NULL && home[0] != '\0' ? in_folder(home, "/bin") : NULL;
    if (*tool == NULL)
        *tool = in_folder("/usr/local/cuda", "/bin");
    if (*tool != NULL)
        return BELAY_OK;
    bl_error_set(error, BELAY_PLACE_ABSENT, "compute-sanitizer is not on this machine, and --sanitize needs it");
    bl_error_fact(error, "looked on PATH, in $CUDA_HOME/bin and in /usr/local/cuda/bin");
    bl_error_advise(error, "Install the CUDA toolkit's cuda-sanitizer package, of the toolkit that the program uses.");
    return BELAY_PLACE_ABSENT;
}

static belay_code no_memory(bl_error *error)
{
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to start the sanitizer");
}

/* tool words + what it is to run. */
static char **words_before(char *tool, char *const *program, int n)
{
    char **argv = bl_alloc(1 + BL_COUNT(tool_words) + n + 1, sizeof *argv);
    if (argv == NULL)
        return NULL;
    argv[0] = tool;
    for (int i = 0; i < BL_COUNT(tool_words); i++)
        argv[1 + i] = tool_words[i];
    for (int i = 0; i < n; i++)
        argv[1 + BL_COUNT(tool_words) + i] = program[i];
    return argv;
}

/* ---- the proof --------------------------------------------------------------------------------------------------------- */

/* The last line that is not empty, as a fact. */
static void add_last_line(const bl_supervise *supervise, int stream, bl_error *error)
{
    int64_t n;
    char quoted[BL_FILE_QUOTE];
    const char *tail = bl_supervise_tail(supervise, 0, stream, &n);
    while (n > 0 && tail[n - 1] == '\n')
        n--;
    const char *start = n > 0 ? memrchr(tail, '\n', (size_t)n) : NULL;
    start = start != NULL ? start + 1 : tail;
    if (n > 0)
        bl_error_fact(error, "it said last: %s", bl_file_quote(start, tail + n - start, quoted));
}

static belay_code judge(const bl_supervise *supervise, bl_error *error)
{
    int64_t n_out, n_err;
    const char *out = bl_supervise_tail(supervise, 0, 0, &n_out), *err = bl_supervise_tail(supervise, 0, 1, &n_err);
    size_t n = strlen(planted_report);
    int status = bl_rank_status(bl_supervise_rank(supervise, 0));
    bool reported =
        memmem(out, (size_t)n_out, planted_report, n) != NULL || memmem(err, (size_t)n_err, planted_report, n) != NULL;
    if (reported && status == BL_RUN_FOUND)
        return BELAY_OK;
    bl_error_set(error, BELAY_PLACE_ABSENT,
                 "compute-sanitizer %s the planted bug: what it says here would prove nothing",
                 reported ? "reported, but did not end with its exit code for," : "did not report");
    bl_error_fact(error, "exit status %d, wanted %d and \"%s\"", status, BL_RUN_FOUND, planted_report);
    add_last_line(supervise, 0, error);
    add_last_line(supervise, 1, error);
    bl_error_advise(error, "Run it where nvidia-smi lists a GPU; take the sanitizer of the driver's own CUDA version.");
    return BELAY_PLACE_ABSENT;
}

/* The planted bug's report is no evidence about the program. */
static void remove_proof(const char *folder)
{
    static const char *const names[] = {"program.stdout.log", "program.stderr.log", "kernel.log"};
    for (int i = 0; i < BL_COUNT(names); i++) {
        char *path = bl_file_join(folder, names[i]);
        if (path != NULL)
            (void)unlink(path);
        bl_free(path);
    }
    (void)rmdir(folder);
}

static belay_code run_proof(bl_run *run, char *const *argv, bl_error *error)
{
    bl_supervise *supervise = NULL;
    char *folder = bl_file_join(run->folder, "proof");
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    belay_code code = folder != NULL ? bl_file_mkdir(folder, error) : no_memory(error);
    if (code == BELAY_OK) {
        bl_supervise_options o = {.argv = argv,
                                  .n_ranks = 1,
                                  .folder = folder,
                                  .log_limit = 1 << 20,
                                  .grace = 1000000000,
                                  .in = -1,
                                  .view_out = nothing,
                                  .view_err = nothing};
        code = bl_supervise_run(&o, &supervise, error);
    }
    if (code == BELAY_OK)
        code = judge(supervise, error);
    bl_supervise_close(supervise);
    if (code == BELAY_OK)
        remove_proof(folder);
    if (nothing >= 0)
        close(nothing);
    bl_free(folder);
    return code;
}

static belay_code prove(bl_run *run, char *tool, bl_error *error)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *program[] = {self, run_word, planted};
    char **argv = words_before(tool, program, 3);
    belay_code code = argv != NULL ? run_proof(run, argv, error) : no_memory(error);
    bl_free(argv);
    return code;
}

belay_code bl_run_sanitize(bl_run *run, bl_error *error)
{
    char *tool = NULL;
    TRY(find_tool(&tool, error));
    belay_code code = prove(run, tool, error);
    if (code == BELAY_OK) {
        char **argv = words_before(tool, run->cli->arguments, run->cli->n_arguments);
        if (argv == NULL)
            code = no_memory(error);
        bl_free(run->argv);
        run->argv = argv;
    }
    run->tool = tool;
    if (code != BELAY_OK)
        return code;
    bl_run_say("belay: each rank runs under compute-sanitizer memcheck, which reported the planted bug\n"
               "    expect 15 to 34 times the time; status %d means that it found something\n"
               "    PyTorch and XLA allocate every tensor by itself, so that the tool sees its end; slower\n",
               BL_RUN_FOUND);
    return BELAY_OK;
}
