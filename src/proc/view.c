/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memrchr */
#include "proc/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"

#define MARK     '\x1e' /* before the rank's number ... */
#define MARK_END '\x1f' /* ... and behind it */

enum {
    LINE = 4096, /* longer ones are shown in pieces */
    GROWTH = 18, /* bytes that one byte becomes at most: an empty line with a prefix */
    PREFIXED_ROOM = GROWTH * BL_VIEW_READ + 2 * LINE,
    AT_ONCE = 4096, /* PIPE_BUF: a pipe that can be written to takes as much without waiting */
};

/* A descriptor and what is still to be written to it. */
typedef struct channel {
    int fd, failure;
    bool waits; /* a pipe, a terminal or a socket, whose reader may be slow */
    char *bytes;
    int64_t n, capacity;
} channel;

/* A line of a stream that has no end yet. */
typedef struct line {
    char bytes[LINE];
    int64_t n, since;
    char prefix[24];
    int n_prefix;
    bool returned; /* after a carriage return: what comes replaces it */
} line;

struct bl_view {
    channel channel[2];
    int of_stream[2]; /* both 0 when they are one descriptor */
    bool prefixed, marks;
    int n_ranks;
    line *lines; /* two a rank */
};

static belay_code init_channel(channel *c, int fd, bool prefixed, bl_error *error)
{
    struct stat status;
    c->fd = fd;
    c->waits = fstat(fd, &status) != 0 || !(S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
    c->capacity = prefixed ? PREFIXED_ROOM + BL_VIEW_READ : 2 * BL_VIEW_READ;
    c->bytes = bl_alloc(c->capacity, 1);
    return c->bytes != NULL ? BELAY_OK : bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the live view");
}

static belay_code init(bl_view *view, int out, int err, bl_error *error)
{
    view->of_stream[1] = out == err ? 0 : 1;
    TRY(init_channel(&view->channel[0], out, view->prefixed, error));
    if (out != err)
        TRY(init_channel(&view->channel[1], err, view->prefixed, error));
    if (view->prefixed && (view->lines = bl_alloc(2 * (int64_t)view->n_ranks, sizeof(line))) == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the live view");
    for (int i = 0; view->prefixed && i < 2 * view->n_ranks; i++)
        view->lines[i].n_prefix = snprintf(view->lines[i].prefix, sizeof view->lines[i].prefix, "[rank%d]: ", i / 2);
    return BELAY_OK;
}

belay_code bl_view_open(int out, int err, int n_ranks, bool prefixed, bl_view **view, bl_error *error)
{
    *view = NULL;
    bl_view *made = bl_alloc(1, sizeof *made);
    if (made == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the live view");
    made->prefixed = prefixed;
    made->n_ranks = n_ranks;
    belay_code code = init(made, out, err, error);
    if (code != BELAY_OK)
        bl_view_close(made);
    else
        *view = made;
    return code;
}

void bl_view_mark(bl_view *view, int rank)
{
    view->marks = true;
    for (int i = 0; i < 2; i++)
        view->lines[i].n_prefix =
            snprintf(view->lines[i].prefix, sizeof view->lines[i].prefix, "%c%d%c", MARK, rank, MARK_END);
}

void bl_view_plain(bl_view *view, int rank) { view->lines[2 * rank].n_prefix = view->lines[2 * rank + 1].n_prefix = 0; }

void bl_view_close(bl_view *view)
{
    if (view == NULL)
        return;
    bl_free(view->channel[0].bytes);
    bl_free(view->channel[1].bytes);
    bl_free(view->lines);
    bl_free(view);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

static bool can_write(const channel *c)
{
    struct pollfd entry = {.fd = c->fd, .events = POLLOUT};
    return !c->waits || poll(&entry, 1, 0) > 0;
}

/* So much that it neither waits nor, if possible, ends inside of a line. */
static int64_t portion(const channel *c, int64_t at)
{
    int64_t left = c->n - at;
    if (!c->waits || left <= AT_ONCE)
        return left;
    const char *end = memrchr(c->bytes + at, '\n', AT_ONCE);
    return end != NULL ? end + 1 - (c->bytes + at) : AT_ONCE;
}

static void flush_channel(channel *c)
{
    int64_t at = 0;
    while (at < c->n && c->failure == 0 && can_write(c)) {
        ssize_t n = write(c->fd, c->bytes + at, (size_t)portion(c, at));
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0 && errno != EINTR)
            c->failure = errno;
        at += n > 0 ? n : 0;
    }
    if (c->failure != 0)
        at = c->n;
    if (at > 0 && at < c->n)
        memmove(c->bytes, c->bytes + at, (size_t)(c->n - at));
    c->n -= at;
}

void bl_view_flush(bl_view *view)
{
    flush_channel(&view->channel[0]);
    flush_channel(&view->channel[1]);
}

int bl_view_poll(const bl_view *view, struct pollfd entries[2])
{
    int n = 0;
    for (int i = 0; i < 2; i++)
        if (view->channel[i].n > 0)
            entries[n++] = (struct pollfd){.fd = view->channel[i].fd, .events = POLLOUT};
    return n;
}

bool bl_view_has_room(const bl_view *view, int stream)
{
    const channel *c = &view->channel[view->of_stream[stream]];
    return c->failure != 0 || c->capacity - c->n >= (view->prefixed ? PREFIXED_ROOM : BL_VIEW_READ);
}

int bl_view_failure(const bl_view *view, int stream) { return view->channel[view->of_stream[stream]].failure; }

static void put(channel *c, const char *bytes, int64_t n)
{
    n = bl_min_i64(n, c->capacity - c->n);
    if (c->failure != 0 || n <= 0)
        return;
    memcpy(c->bytes + c->n, bytes, (size_t)n);
    c->n += n;
}

/* ---- lines ---------------------------------------------------------------------------------------------------------------- */

static void put_line(bl_view *view, int stream, const line *l, const char *bytes, int64_t n)
{
    channel *c = &view->channel[view->of_stream[stream]];
    put(c, l->prefix, l->n_prefix);
    put(c, bytes, n);
    if (n > 0 && l->n_prefix > 0 && !view->marks && memchr(bytes, '\x1b', (size_t)n) != NULL)
        put(c, "\x1b[0m", 4); /* one rank's colour is not the next one's */
    put(c, "\n", 1);
}

static void end_line(bl_view *view, int stream, line *l)
{
    put_line(view, stream, l, l->bytes, l->n);
    l->n = 0;
    l->since = 0;
    l->returned = false;
}

/* Bytes without a line end and without a carriage return. */
static void add_text(bl_view *view, int stream, line *l, const char *bytes, int64_t n)
{
    if (n > 0 && l->returned) {
        l->n = 0;
        l->returned = false;
    }
    while (n > 0) {
        if (l->n == LINE)
            end_line(view, stream, l);
        if (l->since == 0)
            l->since = bl_clock_now();
        int64_t fits = bl_min_i64(n, LINE - l->n);
        memcpy(l->bytes + l->n, bytes, (size_t)fits);
        l->n += fits;
        bytes += fits;
        n -= fits;
    }
}

void bl_view_add(bl_view *view, int rank, int stream, const char *bytes, int64_t n_bytes)
{
    if (!view->prefixed) {
        put(&view->channel[view->of_stream[stream]], bytes, n_bytes);
        return;
    }
    line *l = &view->lines[2 * rank + stream];
    for (int64_t at = 0; at < n_bytes; at++) {
        int64_t start = at;
        while (at < n_bytes && bytes[at] != '\n' && bytes[at] != '\r')
            at++;
        bool ends = at < n_bytes && bytes[at] == '\n';
        if (ends && l->n == 0 && at - start <= LINE) {
            put_line(view, stream, l, bytes + start, at - start); /* a whole line, as most are */
            l->returned = false;
            continue;
        }
        add_text(view, stream, l, bytes + start, at - start);
        if (ends)
            end_line(view, stream, l);
        else if (at < n_bytes)
            l->returned = true;
    }
}

int bl_view_marked(const bl_view *view, const char *bytes, int64_t n_bytes, int64_t *at)
{
    int64_t rank = 0, i = 1;
    if (n_bytes < 3 || bytes[0] != MARK)
        return -1;
    for (; i < n_bytes && i < 8 && bytes[i] >= '0' && bytes[i] <= '9'; i++)
        rank = 10 * rank + (bytes[i] - '0');
    if (i == 1 || i == n_bytes || bytes[i] != MARK_END || rank >= view->n_ranks)
        return -1;
    *at = i + 1;
    return (int)rank;
}

void bl_view_end_line(bl_view *view, int rank, int stream)
{
    if (view->prefixed && view->lines[2 * rank + stream].n > 0)
        end_line(view, stream, &view->lines[2 * rank + stream]);
}

void bl_view_end_lines(bl_view *view, int64_t age)
{
    int64_t now = bl_clock_now();
    for (int i = 0; view->prefixed && i < 2 * view->n_ranks; i++)
        if (view->lines[i].n > 0 && now - view->lines[i].since >= age && bl_view_has_room(view, i % 2))
            end_line(view, i % 2, &view->lines[i]);
}

int64_t bl_view_oldest(const bl_view *view)
{
    int64_t oldest = 0;
    for (int i = 0; view->prefixed && i < 2 * view->n_ranks; i++) {
        int64_t since = view->lines[i].since;
        if (view->lines[i].n > 0 && (oldest == 0 || since < oldest))
            oldest = since;
    }
    return oldest;
}
