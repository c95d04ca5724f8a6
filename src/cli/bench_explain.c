/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "cli/bench_job.h"
#include "proc/child.h"

enum { ROUNDS = 3, LINE = 256, BLOCK = 16 << 20, PART = 1 << 20, SMALL_LINES = 1000 };

/* ---- the logs -------------------------------------------------------------------------------------------------------- */

/* Line number `number`: one of four kinds of a healthy run's, or, each so many lines, a kernel's assertion.  Returns its
 * length. */
static int draw_line(int64_t number, int every, char line[LINE])
{
    bl_rng_key key = {1, 0, 0, 5};
    uint32_t word = bl_rng_word(&key, (uint64_t)number);
    int n = (int)number, part = (int)(word >> 2 & 0xFFFu);
    if (number % every == every - 1)
        return snprintf(
            line, LINE,
            "../aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [%d,0,0], thread: "
            "[%d,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n",
            part % 300, part % 128);
    switch (word & 3u) {
    case 0:
        return snprintf(line, LINE,
                        "2025-01-22 03:40:%02d step %d | lm loss 2.3%04d | tokens/s/gpu 9131 | lr 1.0e-04\n", part % 60,
                        n, part);
    case 1:
        return snprintf(line, LINE, "[rank%d]: iter %d loss 1.8%04d grad_norm 0.53 mem 41.2GB\n", part % 8, n, part);
    case 2:
        return snprintf(line, LINE, "INFO:trainer:epoch 3 batch %d/9000 loss=0.%04d acc=0.81\n", n % 9000, part);
    default:
        return snprintf(line, LINE,
                        "gpu-b1:13070:13091 [%d] NCCL INFO Channel 00/0 : 0[1a000] -> 1[1b000] [send] via NET/IB/0\n",
                        part % 8);
    }
}

/* Whole lines of at most BLOCK bytes; `n_small` receives the length of the first SMALL_LINES. */
static int64_t draw_block(char *block, int every, int64_t *n_small)
{
    int64_t n = 0;
    for (int64_t number = 0; n + LINE <= BLOCK; number++) {
        char line[LINE];
        int length = draw_line(number, every, line);
        memcpy(block + n, line, (size_t)length);
        n += length;
        if (number == SMALL_LINES - 1)
            *n_small = n;
    }
    return n;
}

static belay_code fail_log(bl_error *error, const char *verb, const char *folder, int64_t n_bytes)
{
    bl_error_set(error, BELAY_FILE_WRITE, "cannot %s a log of %lld bytes in %.150s: %s", verb, (long long)n_bytes,
                 folder, strerror(errno));
    bl_error_advise(error, "Set TMPDIR to a folder with room, or give a smaller --log-mib.");
    return BELAY_FILE_WRITE;
}

static bool write_all(int fd, const char *bytes, int64_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, (size_t)n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        bytes += done;
        n -= done;
    }
    return true;
}

/* A file without a name of at least n_bytes, of the block again and again. */
static belay_code make_log(const char *block, int64_t n_block, int64_t n_bytes, int *fd, int64_t *n_written,
                           bl_error *error)
{
    const char *given = getenv("TMPDIR"), *folder = given != NULL && given[0] != '\0' ? given : "/tmp";
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/belay-bench-XXXXXX", folder);
    errno = ENAMETOOLONG;
    *fd = n < (int)sizeof path ? mkstemp(path) : -1;
    if (*fd < 0)
        return fail_log(error, "make", folder, n_bytes);
    unlink(path);
    for (*n_written = 0; *n_written < n_bytes; *n_written += n_block)
        if (!write_all(*fd, block, n_block)) {
            fail_log(error, "write", folder, n_bytes);
            close(*fd);
            return error->code;
        }
    return BELAY_OK;
}

/* ---- one log --------------------------------------------------------------------------------------------------------- */

static double since(int64_t start) { return (double)(bl_clock_now() - start) * 1e-9; }

/* Seconds to read all of it; 0 after a failure. */
static double read_seconds(int fd, char *part)
{
    int64_t start = bl_clock_now();
    ssize_t n;
    off_t at = 0;
    while ((n = pread(fd, part, PART, at)) > 0)
        at += n;
    return n == 0 ? since(start) : 0;
}

/* Runs `belay explain` on it; the status says that it found the fault. */
static belay_code explain_once(int fd, double *seconds, double *memory, bl_error *error)
{
    char self[] = "/proc/self/exe", verb[] = "explain", log[64];
    snprintf(log, sizeof log, "/proc/%ld/fd/%d", (long)getpid(), fd);
    char *argv[] = {self, verb, log, NULL};
    bl_child_spec spec = {.argv = argv, .in = -1, .out = -1, .err = -1};
    struct rusage usage;
    pid_t pid;
    int status = 0;
    int64_t start = bl_clock_now();
    TRY(bl_child_start(&spec, &pid, error));
    while (wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {
    }
    *seconds = since(start);
    *memory = (double)usage.ru_maxrss * 1024;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "belay explain did not find the fault in a log: wait status %d",
                            status);
    return BELAY_OK;
}

/* What one log gave. */
typedef struct figures {
    double bytes, explain, reading, memory;
} figures;

static belay_code measure(int fd, char *part, figures *f, bl_error *error)
{
    double seconds[ROUNDS], plain[ROUNDS], most = 0;
    read_seconds(fd, part); /* into memory */
    for (int i = 0; i < ROUNDS; i++) {
        plain[i] = read_seconds(fd, part);
        TRY(explain_once(fd, &seconds[i], &most, error));
        f->memory = most > f->memory ? most : f->memory;
    }
    f->explain = bl_bench_median(seconds, ROUNDS);
    f->reading = bl_bench_median(plain, ROUNDS);
    return BELAY_OK;
}

static belay_code run_log(const char *block, int64_t n_block, int64_t n_bytes, figures *f, bl_error *error)
{
    int fd;
    int64_t n_written;
    char *part = bl_alloc(1, PART);
    if (part == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to read a log");
    belay_code code = make_log(block, n_block, n_bytes, &fd, &n_written, error);
    if (code == BELAY_OK) {
        code = measure(fd, part, f, error);
        f->bytes = (double)n_written;
        close(fd);
    }
    bl_free(part);
    return code;
}

static belay_code run_logs(char *block, int64_t mib, bl_bench_explain *out, bl_error *error)
{
    figures large = {0}, small = {0}, faults = {0};
    int64_t n_small = 0, n_block = draw_block(block, 1000, &n_small);
    TRY(run_log(block, n_block, mib << 20, &large, error));
    TRY(run_log(block, n_small, n_small, &small, error));
    n_block = draw_block(block, 1, &n_small);
    TRY(run_log(block, n_block, n_block, &faults, error));
    *out = (bl_bench_explain){.bytes_per_second = large.bytes / large.explain,
                              .share = large.reading / large.explain,
                              .memory = large.memory,
                              .small_seconds = small.explain,
                              .faults_per_second = faults.bytes / faults.explain};
    return BELAY_OK;
}

belay_code bl_bench_explain_run(int64_t mib, bl_bench_explain *out, bl_error *error)
{
    char *block = bl_alloc(1, BLOCK);
    if (block == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the lines of a log");
    belay_code code = run_logs(block, mib, out, error);
    bl_free(block);
    return code;
}
