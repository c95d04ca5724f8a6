/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"

enum { TAIL_ROOM = 2 * BL_CAPTURE_TAIL, CUT_WITHIN = 64 * 1024, PATH_ROOM = 16 };

struct bl_capture {
    char *stem, *path; /* path: room for STEM.000001.log */
    int64_t n_stem;
    int fd;
    int64_t limit;
    int64_t n_part;         /* bytes in the part that is written */
    int64_t n_before;       /* bytes in the part before it, when that is no first part */
    int64_t n_written;      /* bytes in all parts that ever were */
    bl_capture_facts facts; /* n_dropped: of parts that are gone */
    char tail[TAIL_ROOM];   /* the last n_tail bytes, and room to add without moving each time */
    int64_t n_tail;
};

static void name_part(bl_capture *capture, int64_t part)
{
    size_t room = (size_t)(capture->n_stem + PATH_ROOM);
    if (part == 0)
        snprintf(capture->path, room, "%s.log", capture->stem);
    else
        snprintf(capture->path, room, "%s.%06lld.log", capture->stem, (long long)(part % 1000000));
}

static int open_part(bl_capture *capture)
{
    capture->fd = open(capture->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    capture->n_part = 0;
    return capture->fd >= 0 ? 0 : errno;
}

static belay_code no_memory(const char *stem, bl_error *error)
{
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to keep '%s.log'", stem);
}

static belay_code init(bl_capture *capture, const char *stem, bl_error *error)
{
    char reason[128];
    capture->n_stem = (int64_t)strlen(stem);
    capture->stem = bl_strdup(stem);
    capture->path = bl_alloc(capture->n_stem + PATH_ROOM, 1);
    if (capture->stem == NULL || capture->path == NULL)
        return no_memory(stem, error);
    name_part(capture, 0);
    int failure = open_part(capture);
    if (failure == 0)
        return BELAY_OK;
    return bl_error_set(error, BELAY_FILE_WRITE, "cannot write '%s': %s", capture->path,
                        bl_error_errno(failure, reason));
}

belay_code bl_capture_open(const char *stem, int64_t limit, bl_capture **out, bl_error *error)
{
    *out = NULL;
    bl_capture *capture = bl_alloc(1, sizeof *capture);
    if (capture == NULL)
        return no_memory(stem, error);
    capture->fd = -1;
    capture->limit = bl_max_i64(limit, 4096);
    belay_code code = init(capture, stem, error);
    if (code != BELAY_OK)
        bl_capture_close(capture);
    else
        *out = capture;
    return code;
}

void bl_capture_close(bl_capture *capture)
{
    if (capture == NULL)
        return;
    if (capture->fd >= 0)
        close(capture->fd);
    bl_free(capture->stem);
    bl_free(capture->path);
    bl_free(capture);
}

/* ---- the files ----------------------------------------------------------------------------------------------------------- */

static int64_t part_limit(const bl_capture *capture)
{
    return capture->facts.n_parts == 0 ? capture->limit / 2 : capture->limit / 4;
}

/* Drops the part before the last one, and begins a new one. */
static int next_part(bl_capture *capture)
{
    int64_t part = capture->facts.n_parts;
    close(capture->fd);
    if (part >= 2) {
        name_part(capture, part - 1);
        (void)unlink(capture->path);
        capture->facts.n_dropped += capture->n_before;
    }
    capture->n_before = part >= 1 ? capture->n_part : 0;
    name_part(capture, ++capture->facts.n_parts);
    return open_part(capture);
}

static int write_all(bl_capture *capture, const char *bytes, int64_t n_bytes)
{
    while (n_bytes > 0) {
        ssize_t n = write(capture->fd, bytes, (size_t)n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        capture->n_part += n;
        capture->n_written += n;
        bytes += n;
        n_bytes -= n;
    }
    return 0;
}

/* How much goes into this part: all, or up to the last line end before its limit, or up to the limit. */
static int64_t fitting(const bl_capture *capture, const char *bytes, int64_t n_bytes)
{
    int64_t room = part_limit(capture) - capture->n_part;
    if (n_bytes <= room)
        return n_bytes;
    if (room <= 0)
        return 0;
    int64_t back = bl_max_i64(0, room - CUT_WITHIN);
    for (int64_t n = room; n > back; n--)
        if (bytes[n - 1] == '\n')
            return n;
    return capture->n_part > 0 && room < CUT_WITHIN ? 0 : room; /* a line is not cut where a part can be left short */
}

static int keep(bl_capture *capture, const char *bytes, int64_t n_bytes)
{
    int failure = 0;
    while (failure == 0 && n_bytes > 0) {
        int64_t n = fitting(capture, bytes, n_bytes);
        failure = write_all(capture, bytes, n);
        bytes += n;
        n_bytes -= n;
        if (failure == 0 && n_bytes > 0)
            failure = next_part(capture);
    }
    return failure;
}

/* ---- the last bytes ------------------------------------------------------------------------------------------------------- */

static void remember(bl_capture *capture, const char *bytes, int64_t n_bytes)
{
    if (n_bytes >= BL_CAPTURE_TAIL) {
        bytes += n_bytes - BL_CAPTURE_TAIL;
        n_bytes = BL_CAPTURE_TAIL;
        capture->n_tail = 0;
    }
    if (capture->n_tail + n_bytes > TAIL_ROOM) {
        int64_t stay = BL_CAPTURE_TAIL - n_bytes;
        memmove(capture->tail, capture->tail + capture->n_tail - stay, (size_t)stay);
        capture->n_tail = stay;
    }
    memcpy(capture->tail + capture->n_tail, bytes, (size_t)n_bytes);
    capture->n_tail += n_bytes;
}

const char *bl_capture_tail(const bl_capture *capture, int64_t *n_bytes)
{
    *n_bytes = bl_min_i64(capture->n_tail, BL_CAPTURE_TAIL);
    return capture->tail + capture->n_tail - *n_bytes;
}

void bl_capture_add(bl_capture *capture, const char *bytes, int64_t n_bytes)
{
    if (n_bytes <= 0)
        return;
    remember(capture, bytes, n_bytes);
    if (capture->facts.failure == 0)
        capture->facts.failure = keep(capture, bytes, n_bytes);
    capture->facts.n_bytes += n_bytes;
}

bl_capture_facts bl_capture_facts_get(const bl_capture *capture)
{
    bl_capture_facts facts = capture->facts;
    facts.n_dropped += facts.n_bytes - capture->n_written;
    return facts;
}
