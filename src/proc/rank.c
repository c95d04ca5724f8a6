/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* syscall, F_SETPIPE_SZ */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "proc/child.h"
#include "proc/parts.h"

enum { PIPE_BYTES = 1024 * 1024, N_OWN = 6, OWN_ROOM = 40 };

static belay_code no_memory(int rank, bl_error *error)
{
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to start rank %d", rank);
}

/* ---- start --------------------------------------------------------------------------------------------------------------- */

/* What a program of several ranks reads from its environment. */
static int own_settings(const bl_supervise *s, int rank, char own[N_OWN][OWN_ROOM])
{
    int i = 0;
    if (!s->o.ranked)
        return 0;
    snprintf(own[i++], OWN_ROOM, "RANK=%d", rank);
    snprintf(own[i++], OWN_ROOM, "LOCAL_RANK=%d", rank);
    snprintf(own[i++], OWN_ROOM, "WORLD_SIZE=%d", s->o.n_ranks);
    snprintf(own[i++], OWN_ROOM, "LOCAL_WORLD_SIZE=%d", s->o.n_ranks);
    snprintf(own[i++], OWN_ROOM, "MASTER_ADDR=localhost");
    snprintf(own[i++], OWN_ROOM, "MASTER_PORT=%d", s->o.port);
    return i;
}

static belay_code start_child(bl_supervise *s, int rank, const int ends[2], bl_error *error)
{
    char own[N_OWN][OWN_ROOM];
    int n_own = own_settings(s, rank, own);
    const char **set = bl_alloc((int64_t)s->o.n_set + n_own, sizeof *set);
    if (set == NULL)
        return no_memory(rank, error);
    for (int i = 0; i < s->o.n_set; i++)
        set[i] = s->o.set[i];
    for (int i = 0; i < n_own; i++)
        set[s->o.n_set + i] = own[i];
    bl_child_spec spec = {.argv = s->o.argv,
                          .set = set,
                          .n_set = s->o.n_set + n_own,
                          .in = s->o.n_ranks == 1 ? s->o.in : -1,
                          .out = ends[0],
                          .err = ends[1],
                          .own_group = !s->o.shares_terminal,
                          .core = s->o.core,
                          .traceable = s->o.quiet > 0,
                          .n_files = s->n_files.rlim_max > 0 ? &s->n_files : NULL};
    belay_code code = bl_child_start(&spec, &s->ranks[rank].facts.pid, error);
    bl_free(set);
    return code;
}

static void watch_end(bl_supervise *s, int rank)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = (uint32_t)rank}};
    bl_rank *r = &s->ranks[rank];
#ifdef SYS_pidfd_open
    r->pidfd = (int)syscall(SYS_pidfd_open, r->facts.pid, 0);
#endif
    if (r->pidfd >= 0)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, r->pidfd, &event);
}

void bl_rank_stem(const bl_supervise_options *o, int rank, int stream, bl_text *out)
{
    const char *name = stream == 0 ? "stdout" : "stderr";
    if (o->ranked)
        bl_text_format(out, "%s/rank%d.%s", o->folder, rank, name);
    else
        bl_text_format(out, "%s/%s.%s", o->folder, o->name != NULL ? o->name : "program", name);
}

static belay_code open_captures(bl_supervise *s, int rank, bl_error *error)
{
    for (int i = 0; i < 2; i++) {
        bl_text stem = {0};
        bl_rank_stem(&s->o, rank, i, &stem);
        belay_code code = stem.failed
                              ? no_memory(rank, error)
                              : bl_capture_open(bl_text_get(&stem), s->o.log_limit, &s->ranks[rank].capture[i], error);
        bl_text_fini(&stem);
        TRY(code);
    }
    return BELAY_OK;
}

static belay_code open_pipes(bl_rank *r, int ends[2], bl_error *error)
{
    for (int i = 0; i < 2; i++) {
        int pair[2];
        TRY(bl_child_pipe(pair, error));
        r->pipe[i] = pair[0];
        ends[i] = pair[1];
        (void)fcntl(pair[0], F_SETPIPE_SZ, PIPE_BYTES); /* fewer switches; refused where a user may not have so much */
    }
    return BELAY_OK;
}

belay_code bl_rank_start(bl_supervise *s, int rank, bl_error *error)
{
    bl_rank *r = &s->ranks[rank];
    int ends[2] = {-1, -1};
    TRY(open_captures(s, rank, error));
    r->facts.started = bl_clock_now();
    belay_code code = open_pipes(r, ends, error);
    if (code == BELAY_OK)
        code = start_child(s, rank, ends, error);
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    if (code != BELAY_OK)
        return code;
    s->n_started++;
    s->n_running++;
    watch_end(s, rank);
    return BELAY_OK;
}

void bl_rank_close(bl_rank *rank)
{
    for (int i = 0; i < 2; i++) {
        if (rank->pipe[i] >= 0)
            close(rank->pipe[i]);
        bl_capture_close(rank->capture[i]);
        rank->pipe[i] = -1;
        rank->capture[i] = NULL;
    }
    if (rank->pidfd >= 0)
        close(rank->pidfd);
    rank->pidfd = -1;
}

/* ---- output -------------------------------------------------------------------------------------------------------------- */

/* A whole line of a launcher: its ranks' into the view, its own words into its file. */
static void take_line(bl_supervise *s, int stream, const char *line, int64_t n)
{
    int64_t at = 0;
    bool ends = n > 0 && line[n - 1] == '\n';
    int rank = bl_view_marked(s->view, line, n - ends, &at);
    if (rank < 0)
        bl_capture_add(s->ranks[0].capture[stream], line, n);
    else
        bl_view_add(s->view, rank, stream, line + at, n - at);
}

static void take_apart(bl_supervise *s, int stream, const char *bytes, int64_t n)
{
    while (n > 0) {
        const char *end = memchr(bytes, '\n', (size_t)n);
        int64_t length = end != NULL ? end + 1 - bytes : n;
        if (end != NULL && s->n_line[stream] == 0) {
            take_line(s, stream, bytes, length);
        } else {
            length = bl_min_i64(length, BL_MARKED_LINE - s->n_line[stream]);
            memcpy(s->line[stream] + s->n_line[stream], bytes, (size_t)length);
            s->n_line[stream] += length;
            if (s->line[stream][s->n_line[stream] - 1] == '\n' || s->n_line[stream] == BL_MARKED_LINE) {
                take_line(s, stream, s->line[stream], s->n_line[stream]);
                s->n_line[stream] = 0;
            }
        }
        bytes += length;
        n -= length;
    }
}

static void close_stream(bl_supervise *s, int rank, int stream)
{
    close(s->ranks[rank].pipe[stream]);
    s->ranks[rank].pipe[stream] = -1;
    if (s->n_line[stream] > 0)
        take_line(s, stream, s->line[stream], s->n_line[stream]);
    s->n_line[stream] = 0;
    for (int i = 0; i < s->o.n_marked; i++)
        bl_view_end_line(s->view, i, stream);
    if (s->o.n_marked == 0)
        bl_view_end_line(s->view, rank, stream);
}

static void tell_failures(bl_supervise *s, int rank, int stream)
{
    bl_rank *r = &s->ranks[rank];
    int capture = bl_capture_facts_get(r->capture[stream]).failure, view = bl_view_failure(s->view, stream);
    if (capture != 0 && !r->told_capture) {
        r->told_capture = true;
        bl_supervise_say(
            s, (bl_supervise_event){BL_EVENT_CAPTURE_FAILED, .rank = rank, .stream = stream, .number = capture});
    }
    if (view != 0 && !s->view_told[stream]) {
        s->view_told[stream] = true;
        s->facts.view_failure[stream] = view;
        bl_supervise_say(s, (bl_supervise_event){BL_EVENT_VIEW_FAILED, .stream = stream, .number = view});
    }
}

void bl_rank_read(bl_supervise *s, int rank, int stream, bool last)
{
    bl_rank *r = &s->ranks[rank];
    ssize_t n = read(r->pipe[stream], s->buffer, BL_VIEW_READ);
    if (n < 0 && (errno == EINTR || (errno == EAGAIN && !last)))
        return;
    if (n <= 0) {
        close_stream(s, rank, stream);
        return;
    }
    bl_silence_end(s);
    if (s->o.n_marked > 0) {
        take_apart(s, stream, s->buffer, n);
    } else {
        bl_capture_add(r->capture[stream], s->buffer, n);
        bl_view_add(s->view, rank, stream, s->buffer, n);
    }
    bl_view_flush(s->view);
    tell_failures(s, rank, stream);
    /* A single program whose reader has gone is to learn of it as it would without us. */
    if (s->o.n_ranks == 1 && !s->o.marked && s->o.n_marked == 0 && bl_view_failure(s->view, stream) == EPIPE)
        close_stream(s, rank, stream);
}

/* ---- stops and ends -------------------------------------------------------------------------------------------------------- */

int bl_rank_status(const bl_rank_facts *rank) { return rank->signal != 0 ? 128 + rank->signal : rank->status; }

/* What it said last is shown before its end is told. */
static void drain(bl_supervise *s, int rank)
{
    enum { MOST = 64 }; /* others may still write into the same pipe */
    for (int i = 0; i < 2 * MOST; i++) {
        int stream = i % 2, fd = s->ranks[rank].pipe[stream];
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        if (fd >= 0 && bl_view_has_room(s->view, stream) && poll(&entry, 1, 0) > 0)
            bl_rank_read(s, rank, stream, false);
    }
}

static int64_t microseconds(struct timeval t) { return (int64_t)t.tv_sec * 1000000 + t.tv_usec; }

static void note_end(bl_supervise *s, int rank, int status, const struct rusage *usage)
{
    bl_rank *r = &s->ranks[rank];
    bl_rank_facts *f = &r->facts;
    f->ended = bl_clock_now();
    if (f->stopped != 0 && f->held == 0) {
        f->held = f->stopped;
        f->held_since = r->stopped_at;
    }
    f->stopped = 0;
    f->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    f->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    f->core_dumped = WIFSIGNALED(status) && WCOREDUMP(status);
    f->cpu_user = microseconds(usage->ru_utime);
    f->cpu_system = microseconds(usage->ru_stime);
    f->memory = (int64_t)usage->ru_maxrss * 1024;
    s->n_running--;
    if (r->pidfd >= 0)
        close(r->pidfd);
    r->pidfd = -1;
    drain(s, rank);
    if (bl_rank_status(f) == 0 || s->facts.first_failed >= 0)
        return;
    s->facts.first_failed = rank;
    if (s->next == BL_STEP_NONE && s->n_running > 0) {
        s->next = BL_STEP_TERM;
        s->deadline = f->ended + s->o.grace;
    }
    bl_supervise_say(s, (bl_supervise_event){BL_EVENT_FAILED, .rank = rank});
}

static void note_continued(bl_supervise *s, int rank)
{
    s->ranks[rank].facts.stopped = 0;
    bl_supervise_say(s, (bl_supervise_event){BL_EVENT_CONTINUED, .rank = rank});
}

/* A stopped program takes no signal but this one and SIGKILL. */
static void continue_rank(const bl_supervise *s, const bl_rank_facts *f)
{
    (void)kill(s->o.shares_terminal ? f->pid : -f->pid, SIGCONT);
}

void bl_rank_note(bl_supervise *s, int rank, int status, const struct rusage *usage)
{
    bl_rank_facts *f = &s->ranks[rank].facts;
    if (WIFEXITED(status) && f->stopped != 0) /* it went on, and ended before the system could say so */
        note_continued(s, rank);
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
        note_end(s, rank, status, usage);
    } else if (WIFSTOPPED(status)) {
        f->n_stops++;
        f->stopped = WSTOPSIG(status);
        s->ranks[rank].stopped_at = bl_clock_now();
        bl_supervise_say(s, (bl_supervise_event){BL_EVENT_STOPPED, .rank = rank, .number = f->stopped});
        if (f->asked != 0) /* to end */
            continue_rank(s, f);
    } else if (WIFCONTINUED(status)) {
        note_continued(s, rank);
    }
}

void bl_rank_forward(bl_supervise *s, int number)
{
    bool ends = number == SIGINT || number == SIGTERM || number == SIGKILL;
    for (int i = 0; i < s->n_started; i++) {
        bl_rank_facts *f = &s->ranks[i].facts;
        if (f->ended != 0)
            continue;
        (void)kill(s->o.shares_terminal ? f->pid : -f->pid, number);
        if (ends && f->asked == 0) {
            f->held = f->stopped;
            f->held_since = s->ranks[i].stopped_at;
        }
        if (ends && f->asked != SIGKILL)
            f->asked = number;
        if (ends) /* whether we have heard of a stop or not */
            continue_rank(s, f);
    }
}
