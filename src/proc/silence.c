/* SPDX-License-Identifier: Apache-2.0 */
/* A run in which no rank says anything: what every process and thread of it is doing, in a file.  What /proc tells is
 * written first, since it costs nothing; then gdb, one process after the other, each with a deadline.  The CPU that each
 * rank used since half of the silence is a fact and nothing is concluded from it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "proc/child.h"
#include "proc/parts.h"

#define SECOND INT64_C(1000000000)

enum { MOST_PROCESSES = 256, MOST_THREADS = 64 };
static const int64_t gdb_deadline = 20 * SECOND;

/* ---- the processes of a rank ------------------------------------------------------------------------------------------- */

static bool list_rank(const bl_supervise *s, int rank, bl_processes *out)
{
    bl_process self;
    pid_t pid = s->ranks[rank].facts.pid;
    if (s->ranks[rank].facts.ended != 0 || !bl_processes_list(pid, out) || !bl_process_get(pid, &self) ||
        !bl_grow(&out->process, &out->capacity, out->n + 1, (int64_t)sizeof self))
        return false;
    memmove(out->process + 1, out->process, (size_t)out->n * sizeof self);
    out->process[0] = self;
    out->n++;
    return true;
}

static uint64_t ticks_of(const bl_supervise *s, int rank)
{
    bl_processes list = {0};
    uint64_t ticks = 0;
    if (list_rank(s, rank, &list))
        for (int64_t i = 0; i < list.n; i++)
            ticks += list.process[i].ticks;
    bl_processes_fini(&list);
    return ticks;
}

static void sample(bl_supervise *s)
{
    s->silence.sampled = true;
    s->silence.sampled_at = bl_clock_now();
    for (int i = 0; i < s->n_started; i++)
        s->ranks[i].ticks = ticks_of(s, i);
}

static void measure(bl_supervise *s, int rank)
{
    bl_rank *r = &s->ranks[rank];
    double seconds = (double)(bl_clock_now() - s->silence.sampled_at) / (double)SECOND;
    uint64_t now = ticks_of(s, rank);
    bool known = r->facts.ended == 0 && seconds > 0 && now >= r->ticks;
    r->facts.cores = known ? (double)(now - r->ticks) / (double)sysconf(_SC_CLK_TCK) / seconds : -1;
}

/* ---- what /proc tells ------------------------------------------------------------------------------------------------------ */

static void put(const bl_supervise *s, const char *bytes, int64_t n)
{
    while (n > 0) {
        ssize_t done = write(s->silence.fd, bytes, (size_t)n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return;
        bytes += done;
        n -= done;
    }
}

/* One file of a thread on a line behind its name; or why it cannot be read. */
static void add_file(pid_t pid, const char *thread, const char *file, bl_text *out)
{
    char path[128], text[4096], reason[128];
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/%s", (int)pid, thread, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    int number = errno;
    if (fd >= 0)
        close(fd);
    bl_text_format(out, "    %s: ", file);
    if (n < 0)
        bl_text_format(out, "%s", bl_error_errno(number, reason));
    for (ssize_t i = 0; i < n; i++) {
        bool last = i + 1 == n;
        if (text[i] == '\n' && !last)
            bl_text_add(out, "\n        ");
        else if (text[i] != '\n')
            bl_text_add_escaped(out, text + i, 1, 1);
    }
    bl_text_add(out, "\n");
}

static void add_thread(pid_t pid, const char *thread, bl_text *out)
{
    bl_process self;
    if (!bl_process_get((pid_t)strtol(thread, NULL, 10), &self))
        return;
    bl_text_format(out, "  thread %s ", thread);
    bl_text_add_escaped(out, self.name, (int64_t)strlen(self.name), 20);
    bl_text_format(out, ", state %c\n", self.state);
    add_file(pid, thread, "wchan", out);
    add_file(pid, thread, "syscall", out);
    add_file(pid, thread, "stack", out);
}

static void add_threads(pid_t pid, bl_text *out)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (struct dirent *entry; n < MOST_THREADS && (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.') {
            add_thread(pid, entry->d_name, out);
            n++;
        }
    closedir(folder);
}

static void write_process(const bl_supervise *s, int rank, const bl_process *process)
{
    bl_text text = {0};
    bl_text_format(&text, "rank %d: process %d ", rank, (int)process->pid);
    bl_text_add_escaped(&text, process->name, (int64_t)strlen(process->name), 20);
    bl_text_format(&text, ", state %c, %lld threads\n", process->state, (long long)process->threads);
    add_threads(process->pid, &text);
    put(s, bl_text_get(&text), text.n_bytes);
    bl_text_fini(&text);
}

/* ---- the file ----------------------------------------------------------------------------------------------------------------- */

static bool open_file(bl_supervise *s)
{
    bl_text path = {0};
    bl_text_format(&path, "%s/silence_%d.txt", s->o.folder, s->facts.n_silences);
    bl_free(s->silence.path);
    s->silence.path = path.failed ? NULL : bl_strdup(bl_text_get(&path));
    bl_text_fini(&path);
    if (s->silence.path != NULL)
        s->silence.fd = open(s->silence.path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    return s->silence.fd >= 0;
}

static void queue(bl_supervise *s, const bl_process *process)
{
    bl_processes *q = &s->silence.queue;
    bool is_stopped = process->state == 'T' || process->state == 't'; /* gdb would wait for it */
    if (s->o.gdb != NULL && !is_stopped && bl_grow(&q->process, &q->capacity, q->n + 1, (int64_t)sizeof *process))
        q->process[q->n++] = *process;
}

static void look_at_rank(bl_supervise *s, int rank)
{
    bl_processes list = {0};
    measure(s, rank);
    if (list_rank(s, rank, &list))
        for (int64_t i = 0; i < list.n && i < MOST_PROCESSES; i++) {
            write_process(s, rank, &list.process[i]);
            queue(s, &list.process[i]);
        }
    bl_processes_fini(&list);
}

static void begin(bl_supervise *s)
{
    s->facts.n_silences++;
    s->silence.active = true;
    s->silence.at = 0;
    s->silence.queue.n = 0;
    if (!open_file(s))
        return;
    for (int i = 0; i < s->n_started; i++)
        look_at_rank(s, i);
}

static void finish(bl_supervise *s)
{
    if (s->silence.fd >= 0)
        close(s->silence.fd);
    s->silence.active = false;
    s->silence.done = true;
    const char *path = s->silence.fd >= 0 ? s->silence.path : NULL;
    s->silence.fd = -1;
    bl_supervise_say(s, (bl_supervise_event){BL_EVENT_SILENT, .number = s->facts.n_silences, .path = path});
}

/* ---- gdb -------------------------------------------------------------------------------------------------------------------------- */

static void start_gdb(bl_supervise *s, pid_t pid)
{
    char number[16], gdb[] = "-batch", nx[] = "-nx", p[] = "-p", ex[] = "-ex", bt[] = "thread apply all backtrace";
    char *words[] = {(char *)(uintptr_t)s->o.gdb, gdb, nx, p, number, ex, bt, NULL};
    const char *set[] = {"DEBUGINFOD_URLS="}; /* symbols never come from the network */
    char head[64];
    bl_error error = {0};
    snprintf(number, sizeof number, "%d", (int)pid);
    put(s, head, snprintf(head, sizeof head, "\ngdb of process %d\n", (int)pid));
    bl_child_spec spec = {
        .argv = words, .set = set, .n_set = 1, .in = -1, .out = s->silence.fd, .err = s->silence.fd, .own_group = true};
    if (bl_child_start(&spec, &s->silence.gdb, &error) != BELAY_OK) {
        put(s, error.what, (int64_t)strlen(error.what));
        put(s, "\n", 1);
        s->silence.gdb = 0;
    }
    s->silence.deadline = bl_clock_now() + gdb_deadline;
}

static void end_gdb(bl_supervise *s)
{
    if (s->silence.gdb <= 0)
        return;
    (void)kill(-s->silence.gdb, SIGKILL);
    (void)waitpid(s->silence.gdb, NULL, 0);
    s->silence.gdb = 0;
}

void bl_silence_note(bl_supervise *s, pid_t pid)
{
    if (pid == s->silence.gdb)
        s->silence.gdb = 0;
}

/* The next process when no gdb runs; when there is none, the end. */
static int64_t go_on(bl_supervise *s)
{
    static const char late[] = "gdb was ended after 20 s\n";
    if (s->silence.gdb > 0 && bl_clock_now() >= s->silence.deadline) {
        end_gdb(s);
        put(s, late, (int64_t)strlen(late));
    }
    while (s->silence.gdb <= 0 && s->silence.fd >= 0 && s->silence.at < s->silence.queue.n)
        start_gdb(s, s->silence.queue.process[s->silence.at++].pid);
    if (s->silence.gdb > 0)
        return s->silence.deadline;
    finish(s);
    return 0;
}

/* ---- when ----------------------------------------------------------------------------------------------------------------------------- */

int64_t bl_silence_step(bl_supervise *s)
{
    int64_t now = bl_clock_now(), half = s->last_output + s->o.quiet / 2, whole = s->last_output + s->o.quiet;
    if (s->o.quiet <= 0)
        return 0;
    if (s->n_running == 0) {
        end_gdb(s);
        if (s->silence.active)
            finish(s);
        return 0;
    }
    if (s->silence.active)
        return go_on(s);
    if (s->silence.done)
        return 0;
    if (!s->silence.sampled && now >= half)
        sample(s);
    if (!s->silence.sampled)
        return half;
    if (now < whole)
        return whole;
    begin(s);
    return go_on(s);
}

void bl_silence_end(bl_supervise *s)
{
    s->last_output = bl_clock_now();
    s->silence.sampled = false;
    s->silence.done = false;
}

void bl_silence_close(bl_supervise *s)
{
    end_gdb(s);
    if (s->silence.fd >= 0)
        close(s->silence.fd);
    s->silence.fd = -1;
    bl_processes_fini(&s->silence.queue);
    bl_free(s->silence.path);
    s->silence.path = NULL;
}
