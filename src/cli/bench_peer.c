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
#include "base/clock.h"
#include "base/memory.h"
#include "proc/child.h"

/* bench_peer.py, as the build wrote it into a text. */
extern const char bl_peer_script[];

/* To import PyTorch from a cold disk, and for a few steps of the largest job in the slowest setting. */
enum { START_MS = 60 * 1000, ANSWER_MS = 120 * 1000 };
enum { PROCESSES = 2, MOST_THREADS = 2, LINE = 256 };

/* One interpreter: its BLAS has so many threads for good. */
typedef struct interpreter {
    pid_t pid;
    int to, from; /* -1: closed */
} interpreter;

struct bl_peer {
    interpreter process[PROCESSES];
    char python[LINE], version[LINE], why[LINE];
    int start_ms, answer_ms;
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

/* Milliseconds until then, at least 0. */
static int left_until(int64_t deadline)
{
    int64_t left = deadline - bl_clock_now();
    return left > 0 ? (int)((left + 999999) / 1000000) : 0;
}

/* A line without its end; false when none came in that time, and then the process is ended: `why` has the reason. */
static bool read_line(bl_peer *peer, interpreter *p, int patience_ms, char line[LINE])
{
    int64_t deadline = bl_clock_now() + (int64_t)patience_ms * 1000000;
    int ready = 1;
    for (int n = 0; n < LINE - 1; n++) {
        struct pollfd waits = {.fd = p->from, .events = POLLIN};
        do
            ready = poll(&waits, 1, left_until(deadline));
        while (ready < 0 && errno == EINTR);
        if (ready <= 0 || read(p->from, line + n, 1) != 1)
            break;
        if (line[n] == '\n') {
            line[n] = '\0';
            return true;
        }
    }
    if (ready == 0)
        snprintf(peer->why, LINE, "%.100s did not answer in %g s", peer->python, patience_ms / 1e3);
    else
        snprintf(peer->why, LINE, "%.100s ended without an answer", peer->python);
    end(p);
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

/* Starts the interpreters and reads what they are; without a `version` there is no peer, and `why` is set. */
static void meet(bl_peer *peer, const char *python)
{
    char version[LINE] = "";
    for (int i = 0; i < PROCESSES; i++) {
        bl_error error = {0};
        char line[LINE];
        interpreter *p = &peer->process[i];
        if (start(python, i + 1, p, &error) != BELAY_OK)
            snprintf(peer->why, LINE, "%.200s", error.what);
        else if (!read_line(peer, p, peer->start_ms, line))
            return;
        else if (strncmp(line, "torch ", 6) != 0)
            snprintf(peer->why, LINE, "%.60s: %.150s", python, strncmp(line, "none ", 5) == 0 ? line + 5 : line);
        else
            snprintf(version, LINE, "%s", line + 6);
        if (peer->why[0] != '\0')
            return;
    }
    memcpy(peer->version, version, sizeof version);
}

bl_peer *bl_peer_open(const char *python, int patience_ms)
{
    bl_peer *peer = bl_alloc(1, sizeof *peer);
    if (peer == NULL)
        return NULL;
    snprintf(peer->python, LINE, "%s", python);
    peer->start_ms = patience_ms > 0 ? patience_ms : START_MS;
    peer->answer_ms = patience_ms > 0 ? patience_ms : ANSWER_MS;
    for (int i = 0; i < PROCESSES; i++)
        peer->process[i] = (interpreter){.to = -1, .from = -1};
    signal(SIGPIPE, SIG_IGN); /* an interpreter that ended is told by write */
    meet(peer, python);
    return peer;
}

const char *bl_peer_version(const bl_peer *peer)
{
    return peer != NULL && peer->version[0] != '\0' ? peer->version : NULL;
}
const char *bl_peer_why(const bl_peer *peer) { return peer != NULL ? peer->why : "no memory"; }

static double ask(bl_peer *peer, interpreter *p, const char *job, int threads, int steps)
{
    char line[LINE];
    int n = snprintf(line, sizeof line, "%s %d %d\n", job, threads, steps);
    if (p->pid == 0 || write(p->to, line, (size_t)n) != n || !read_line(peer, p, peer->answer_ms, line))
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
            double seconds = ask(peer, &peer->process[i], job, threads, steps);
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
    return ask(peer, &peer->process[peer->chosen], peer->job, peer->chosen_threads, steps);
}

void bl_peer_close(bl_peer *peer)
{
    for (int i = 0; peer != NULL && i < PROCESSES; i++)
        end(&peer->process[i]);
    bl_free(peer);
}
