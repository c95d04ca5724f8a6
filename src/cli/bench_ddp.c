/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_ddp.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "proc/child.h"

/* Of all that ranks print; longer than any of them takes, however slow the machine is. */
enum { ANSWER = 4096, MOST_SECONDS = 900, MOST_WORDS = 40 };

/* ---- programs --------------------------------------------------------------------------------------------------------- */

static bool is_there(const char *program)
{
    char *path = NULL;
    bl_error unused = {0};
    bool found = bl_child_find(program, &path, &unused) == BELAY_OK;
    bl_free(path);
    return found;
}

/* Reads until the end, or until it takes too long: false. */
static bool read_answer(int fd, char *answer)
{
    int64_t until = bl_clock_now() + (int64_t)MOST_SECONDS * 1000000000;
    size_t n = 0;
    while (bl_clock_now() < until) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char spilled[256];
        if (poll(&p, 1, 1000) <= 0)
            continue;
        bool is_full = n + 1 >= ANSWER;
        ssize_t got = is_full ? read(fd, spilled, sizeof spilled) : read(fd, answer + n, ANSWER - 1 - n);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return true;
        n += is_full ? 0 : (size_t)got;
        answer[n] = '\0';
    }
    return false;
}

static belay_code end(pid_t pid, bool in_time, const char *what, bl_error *error)
{
    int status = 0;
    if (!in_time)
        kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!in_time)
        return bl_error_set(error, BELAY_COMM_DEADLINE, "%s did not end within %d s", what, MOST_SECONDS);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "%s failed: wait status %d", what, status);
    return BELAY_OK;
}

/* What a rank said that failed, else the first line of all. */
static void tell_words(const char *answer, bl_error *error)
{
    const char *words = strstr(answer, "belay: ");
    words = words != NULL ? words : answer;
    if (words[0] != '\0')
        bl_error_fact(error, "it said: %.*s", (int)(strcspn(words, "\n") < 160 ? strcspn(words, "\n") : 160), words);
}

/* Runs a program with what Open MPI wants of root and of few cores; `answer` (ANSWER bytes) gets its output, errors as well. */
static belay_code run(const char *const *words, const char *what, char *answer, bl_error *error)
{
    static const char *const set[] = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                      "OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_orte_enable_recovery=1"};
    int ends[2];
    pid_t pid;
    answer[0] = '\0';
    TRY(bl_child_pipe(ends, error));
    bl_child_spec spec = {.argv = (char *const *)(uintptr_t)words,
                          .set = set,
                          .n_set = BL_COUNT(set),
                          .in = -1,
                          .out = ends[1],
                          .err = ends[1],
                          .own_group = true};
    belay_code code = bl_child_start(&spec, &pid, error);
    close(ends[1]);
    if (code == BELAY_OK)
        code = end(pid, read_answer(ends[0], answer), what, error);
    close(ends[0]);
    if (code != BELAY_OK)
        tell_words(answer, error);
    return code;
}

/* The number behind that name, at the beginning of a line. */
static belay_code take(const char *answer, const char *name, double *out, bl_error *error)
{
    size_t length = strlen(name);
    for (const char *line = answer; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            *out = strtod(line + length, NULL);
            return BELAY_OK;
        }
    }
    bl_error_set(error, BELAY_BUG_INVARIANT, "ranks did not say %s", name);
    tell_words(answer, error);
    return error->code;
}

static belay_code find_self(char self[PATH_MAX], bl_error *error)
{
    ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);
    if (n < 0)
        return bl_error_set(error, BELAY_FILE_OPEN, "cannot tell which file this program is");
    self[n] = '\0';
    return BELAY_OK;
}

/* ---- two ranks on this host ------------------------------------------------------------------------------------------- */

belay_code bl_bench_pair_run(int windows, bl_bench_pair *out, bl_error *error)
{
    char self[PATH_MAX], count[32], answer[ANSWER] = "";
    *out = (bl_bench_pair){.skipped = ""};
    if (!is_there("mpirun")) {
        snprintf(out->skipped, sizeof out->skipped, "mpirun is not on PATH");
        return BELAY_OK;
    }
    TRY(find_self(self, error));
    snprintf(count, sizeof count, "--windows=%d", windows);
    const char *words[] = {"mpirun", "-np", "2", "--bind-to", "none", self, "bench", "--rank-of=pair", count, NULL};
    TRY(run(words, "two ranks on this host", answer, error));
    TRY(take(answer, "pair_seconds", &out->seconds, error));
    TRY(take(answer, "alone_seconds", &out->alone_seconds, error));
    return take(answer, "agreement_seconds", &out->agreement_seconds, error);
}

/* ---- two ranks on a slow line ----------------------------------------------------------------------------------------- */

/* $1: what names begin with.  The line's ends hold back what is sent faster than 500 Mbit/s. */
static const char set_up[] = "ip netns add ${1}a && ip netns add ${1}b &&"
                             "ip link add ${1}v netns ${1}a type veth peer name ${1}w netns ${1}b &&"
                             "ip -n ${1}a addr add 10.211.7.1/24 dev ${1}v &&"
                             "ip -n ${1}b addr add 10.211.7.2/24 dev ${1}w &&"
                             "ip -n ${1}a link set lo up && ip -n ${1}b link set lo up &&"
                             "ip -n ${1}a link set ${1}v up && ip -n ${1}b link set ${1}w up &&"
                             "tc -n ${1}a qdisc add dev ${1}v root tbf rate 500mbit burst 256kb latency 100ms &&"
                             "tc -n ${1}b qdisc add dev ${1}w root tbf rate 500mbit burst 256kb latency 100ms";
static const char take_down[] = "ip netns del ${1}a; ip netns del ${1}b; rm -f \"$2\"; true";
/* $1: names, $2: the agent's file, $3: this program, $4: windows.  Open MPI takes hosts of one name for one host. */
static const char start[] =
    "printf '%s\\n' 'shift; exec ip netns exec '\"$1\"'b unshare --uts sh -c '\"'\"'hostname slow-b; exec sh -c "
    "\"$0\"'\"'\"' "
    "\"$*\"' > \"$2\" &&"
    "exec ip netns exec ${1}a unshare --uts sh -c 'hostname slow-a; exec \"$@\"' sh "
    "mpirun -np 2 --host 10.211.7.1:1,10.211.7.2:1 --mca plm_rsh_agent \"/bin/sh $2\" --mca btl tcp,self "
    "--mca btl_tcp_if_include 10.211.7.0/24 --mca oob_tcp_if_include 10.211.7.0/24 --bind-to none "
    "\"$3\" bench --rank-of=wire \"$4\"";

static const char *why_not(void)
{
    static const char *const needed[] = {"mpirun", "ip", "tc", "unshare"};
    static char words[64];
    if (geteuid() != 0)
        return "only root makes network namespaces";
    for (int i = 0; i < BL_COUNT(needed); i++)
        if (!is_there(needed[i])) {
            snprintf(words, sizeof words, "%s is not on PATH", needed[i]);
            return words;
        }
    return NULL;
}

static belay_code read_wire(const char *answer, bl_bench_wire *out, bl_error *error)
{
    TRY(take(answer, "wide_batch", &out->batch, error));
    TRY(take(answer, "wide_reduction_seconds", &out->reduction_seconds, error));
    TRY(take(answer, "wide_backward_seconds", &out->backward_seconds, error));
    TRY(take(answer, "wide_seconds", &out->wide_seconds, error));
    TRY(take(answer, "wide_blocking_seconds", &out->wide_blocking_seconds, error));
    TRY(take(answer, "reference_seconds", &out->reference_seconds, error));
    return take(answer, "reference_blocking_seconds", &out->reference_blocking_seconds, error);
}

belay_code bl_bench_wire_run(int windows, bl_bench_wire *out, bl_error *error)
{
    char self[PATH_MAX], count[32], answer[ANSWER] = "", names[16], agent[64];
    const char *reason = why_not();
    bl_error down = {0};
    *out = (bl_bench_wire){.skipped = ""};
    if (reason != NULL) {
        snprintf(out->skipped, sizeof out->skipped, "%s", reason);
        return BELAY_OK;
    }
    TRY(find_self(self, error));
    snprintf(count, sizeof count, "--windows=%d", windows);
    snprintf(names, sizeof names, "blb%ld", (long)getpid());
    snprintf(agent, sizeof agent, "/tmp/belay-bench-agent-%ld", (long)getpid());
    const char *up[] = {"/bin/sh", "-c", set_up, "sh", names, NULL};
    const char *go[] = {"/bin/sh", "-c", start, "sh", names, agent, self, count, NULL};
    const char *off[] = {"/bin/sh", "-c", take_down, "sh", names, agent, NULL};
    if (run(up, "making two network namespaces", answer, error) != BELAY_OK) {
        snprintf(out->skipped, sizeof out->skipped, "network namespaces cannot be made here");
        (void)!run(off, "removing them", answer, &down);
        return BELAY_OK;
    }
    belay_code code = run(go, "two ranks on a slow line", answer, error);
    if (code == BELAY_OK)
        code = read_wire(answer, out, error);
    (void)!run(off, "removing two network namespaces", answer, &down);
    return code;
}
