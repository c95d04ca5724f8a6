/* SPDX-License-Identifier: Apache-2.0 */
/* The sliding window of reader.h.
 *
 *   buffer  |  taken  |  not yet taken  |  free  |
 *           0       begin              end     capacity
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "file/reader.h"

/* A read after a seek is small, for one row; reads that follow each other double up to the largest. */
#ifdef BELAY_SMALL
enum { smallest_read = 5, largest_read = 20 };
#else
enum { smallest_read = 4096, largest_read = 256 * 1024 };
#endif

struct bl_file_stream {
    char *path;
    int fd;
    int64_t limit;
    char *buffer;
    int64_t capacity, begin, end;
    int64_t end_offset; /* in the file, of what follows the window */
    int64_t next_read;
};

belay_code bl_file_stream_open(const char *path, int64_t limit, bl_file_stream **out, bl_error *error)
{
    *out = NULL;
    bl_file_stream *stream = bl_alloc(1, sizeof *stream);
    if (stream == NULL)
        return bl_file_no_memory(error, "read", path);
    int64_t n_bytes;
    stream->fd = -1;
    stream->limit = limit;
    stream->next_read = largest_read;
    stream->path = bl_strdup(path);
    belay_code code = stream->path == NULL ? bl_file_no_memory(error, "read", path)
                                           : bl_file_open_regular(path, &stream->fd, &n_bytes, error);
    if (code != BELAY_OK)
        bl_file_stream_close(stream);
    else
        *out = stream;
    return code;
}

void bl_file_stream_close(bl_file_stream *stream)
{
    if (stream == NULL)
        return;
    if (stream->fd >= 0)
        close(stream->fd);
    bl_free(stream->buffer);
    bl_free(stream->path);
    bl_free(stream);
}

void bl_file_stream_seek(bl_file_stream *stream, int64_t offset)
{
    stream->begin = stream->end = 0;
    stream->end_offset = offset;
    stream->next_read = smallest_read;
}

char *bl_file_stream_bytes(const bl_file_stream *stream, int64_t *n_bytes)
{
    *n_bytes = stream->end - stream->begin;
    return stream->buffer != NULL ? stream->buffer + stream->begin : NULL;
}

void bl_file_stream_take(bl_file_stream *stream, int64_t n_bytes)
{
    stream->begin += bl_min_i64(n_bytes, stream->end - stream->begin);
}

int64_t bl_file_stream_offset(const bl_file_stream *stream)
{
    return stream->end_offset - (stream->end - stream->begin);
}

const char *bl_file_stream_path(const bl_file_stream *stream) { return stream->path; }

/* Room for the next read behind what is not yet taken, within the limit. */
static bool make_room(bl_file_stream *stream)
{
    int64_t held = stream->end - stream->begin;
    if (held > 0 && stream->begin > 0)
        memmove(stream->buffer, stream->buffer + stream->begin, (size_t)held);
    stream->begin = 0;
    stream->end = held;
    int64_t wanted = bl_min_i64(held + stream->next_read, stream->limit);
    return bl_grow(&stream->buffer, &stream->capacity, wanted, 1);
}

belay_code bl_file_stream_more(bl_file_stream *stream, bool *ended, bool *is_full, bl_error *error)
{
    *ended = false;
    *is_full = stream->end - stream->begin >= stream->limit;
    if (*is_full)
        return BELAY_OK;
    if (!make_room(stream))
        return bl_file_no_memory(error, "read", stream->path);
    int64_t room = bl_min_i64(stream->capacity - stream->end, stream->limit - stream->end);
    ssize_t n;
    do
        n = pread(stream->fd, stream->buffer + stream->end, (size_t)bl_min_i64(room, stream->next_read),
                  (off_t)stream->end_offset);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        char buffer[128];
        return bl_error_set(error, BELAY_FILE_READ, "cannot read '%s': %s", stream->path,
                            bl_error_errno(errno, buffer));
    }
    *ended = n == 0;
    stream->end += n;
    stream->end_offset += n;
    stream->next_read = bl_min_i64(stream->next_read * 2, largest_read);
    return BELAY_OK;
}

/* The line that is whole in the window, its end found at `newline`. */
static void take_line(bl_file_stream *stream, int64_t length, bool has_end, const char **line, int64_t *n_bytes)
{
    char *bytes = stream->buffer + stream->begin;
    bl_file_stream_take(stream, length + has_end);
    *line = bytes;
    *n_bytes = length > 0 && bytes[length - 1] == '\r' ? length - 1 : length;
}

belay_code bl_file_stream_line(bl_file_stream *stream, int64_t number, const char **line, int64_t *n_bytes,
                               bl_error *error)
{
    int64_t scanned = 0, held;
    bool ended = false, is_full = false;
    *line = NULL;
    *n_bytes = 0;
    for (;;) {
        char *bytes = bl_file_stream_bytes(stream, &held);
        char *newline = held > scanned ? memchr(bytes + scanned, '\n', (size_t)(held - scanned)) : NULL;
        if (newline != NULL) {
            take_line(stream, newline - bytes, true, line, n_bytes);
            return BELAY_OK;
        }
        if (ended) {
            if (held > 0)
                take_line(stream, held, false, line, n_bytes);
            return BELAY_OK;
        }
        if (is_full)
            return bl_error_set(error, BELAY_FILE_LIMIT, "%s:%lld: the line is longer than %lld bytes", stream->path,
                                (long long)number, (long long)stream->limit - 1);
        scanned = held;
        TRY(bl_file_stream_more(stream, &ended, &is_full, error));
    }
}
