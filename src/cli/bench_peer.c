/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/attributes.h"
#include "base/memory.h"
#include "proc/child.h"

/* bench_peer.py, as the build wrote it into a text. */
extern const char bl_peer_script[];

enum { PROCESSES = 2, MOST_THREADS = 2, PATIENCE_MS = 300 * 1000, LINE = 256 };

/* One interpreter: its BLAS has so many threads for good. */
typedef struct interpreter {
    pid_t pid;
    int to, from; /* -1: closed */
} interpreter;

struct bl_peer {
    interpreter process[PROCESSES];
    char version[LINE], why[LINE];
    char job[16], chosen_words[64];
    int chosen, chosen_threads;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void end(interpreter *p)
{
    close_fd(&p->to);
    close_fd(&p->from);
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    p->pid = 0;
}

/* A line without its end; false when none came in time, or the process ended. */
static bool read_line(const interpreter *p, char line[LINE])
{
    for (int n = 0; n < LINE - 1;) {
        struct pollfd waits = {.fd = p->from, .events = POLLIN};
        if (poll(&waits, 1, PATIENCE_MS) <= 0 || read(p->from, line + n, 1) != 1)
            return false;
        if (line[n] == '\n') {
            line[n] = '\0';
            return true;
        }
        n++;
    }
    return false;
}

static belay_code start(const char *python, int blas_threads, interpreter *p, bl_error *error)
{
    char openblas[40], mkl[40];
    snprintf(openblas, sizeof openblas, "OPENBLAS_NUM_THREADS=%d", blas_threads);
    snprintf(mkl, sizeof mkl, "MKL_NUM_THREADS=%d", blas_threads);
    const char *set[] = {openblas, mkl};
    char *argv[] = {(char *)(uintptr_t)python, "-c", (char *)(uintptr_t)bl_peer_script, NULL};
    int in[2], out[2];
    TRY(bl_child_pipe(in, error));
    if (bl_child_pipe(out, error) != BELAY_OK) {
        close(in[0]);
        close(in[1]);
        return error->code;
    }
    (void)fcntl(in[0], F_SETFL, fcntl(in[0], F_GETFL) & ~O_NONBLOCK); /* the interpreter waits for it */
    bl_child_spec spec = {.argv = argv, .set = set, .n_set = BL_COUNT(set), .in = in[0], .out = out[1], .err = -1};
    belay_code code = bl_child_start(&spec, &p->pid, error);
    close(in[0]);
    close(out[1]);
    p->to = in[1];
    p->from = out[0];
    return code;
}

/* Starts the interpreters and reads what they are; `why` is set when there is no peer. */
static void meet(bl_peer *peer, const char *python)
{
    for (int i = 0; i < PROCESSES; i++) {
        bl_error error = {0};
        char line[LINE];
        interpreter *p = &peer->process[i];
        if (start(python, i + 1, p, &error) != BELAY_OK)
            snprintf(peer->why, LINE, "%.200s", error.what);
        else if (!read_line(p, line))
            snprintf(peer->why, LINE, "%.100s ended without an answer", python);
        else if (strncmp(line, "torch ", 6) != 0)
            snprintf(peer->why, LINE, "%.60s: %.150s", python, strncmp(line, "none ", 5) == 0 ? line + 5 : line);
        else
            snprintf(peer->version, LINE, "%s", line + 6);
        if (peer->why[0] != '\0')
            return;
    }
}

bl_peer *bl_peer_open(const char *python)
{
    bl_peer *peer = bl_alloc(1, sizeof *peer);
    if (peer == NULL)
        return NULL;
    for (int i = 0; i < PROCESSES; i++)
        peer->process[i] = (interpreter){.to = -1, .from = -1};
    signal(SIGPIPE, SIG_IGN); /* an interpreter that ended is told by write */
    meet(peer, python);
    return peer;
}

const char *bl_peer_version(const bl_peer *peer) { return peer != NULL && peer->why[0] == '\0' ? peer->version : NULL; }
const char *bl_peer_why(const bl_peer *peer) { return peer != NULL ? peer->why : "no memory"; }

static double ask(const interpreter *p, const char *job, int threads, int steps)
{
    char line[LINE];
    int n = snprintf(line, sizeof line, "%s %d %d\n", job, threads, steps);
    if (write(p->to, line, (size_t)n) != n || !read_line(p, line))
        return 0;
    double seconds = strtod(line, NULL);
    return seconds > 0 && seconds < 1e6 ? seconds : 0;
}

const char *bl_peer_choose(bl_peer *peer, const char *job, int most, int steps)
{
    double best = 0;
    if (bl_peer_version(peer) == NULL)
        return NULL;
    snprintf(peer->job, sizeof peer->job, "%s", job);
    for (int i = 0; i < PROCESSES && i < most; i++)
        for (int threads = 1; threads <= MOST_THREADS && threads <= most; threads++) {
            double seconds = ask(&peer->process[i], job, threads, steps);
            if (seconds > 0 && (best == 0 || seconds < best)) {
                best = seconds;
                peer->chosen = i;
                peer->chosen_threads = threads;
            }
        }
    snprintf(peer->chosen_words, sizeof peer->chosen_words, "%d thread%s, %d of its BLAS", peer->chosen_threads,
             peer->chosen_threads == 1 ? "" : "s", peer->chosen + 1);
    return best > 0 ? peer->chosen_words : NULL;
}

double bl_peer_seconds(bl_peer *peer, int steps)
{
    return ask(&peer->process[peer->chosen], peer->job, peer->chosen_threads, steps);
}

void bl_peer_close(bl_peer *peer)
{
    for (int i = 0; peer != NULL && i < PROCESSES; i++)
        end(&peer->process[i]);
    bl_free(peer);
}
