/* SPDX-License-Identifier: Apache-2.0 */
/* Lines at the end of a file: see atomic.h.  Bytes go to explicit offsets, so that a torn write can be cut off and
 * written again. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "file/atomic.h"
#include "file/raw.h"

#ifdef BELAY_SMALL
enum { buffer_size = 16 };
#else
enum { buffer_size = 64 * 1024 };
#endif

struct bl_file_append {
    char *path;
    int fd;
    int64_t n_file; /* whole lines in the file */
    char *buffer;
    int64_t n_buffered, capacity;
};

static belay_code fail(const bl_file_append *file, int number, bl_error *error)
{
    char buffer[128];
    belay_code code =
        bl_error_set(error, BELAY_FILE_WRITE, "cannot write '%s': %s", file->path, bl_error_errno(number, buffer));
    bl_error_fact(error, "wanted %lld bytes at offset %lld", (long long)file->n_buffered, (long long)file->n_file);
    bl_error_advise(error, "Check free space and permissions; the lines before stand.");
    return code;
}

/* Bytes of `fd` up to and with its last end of line. */
static belay_code whole_lines(const bl_file_append *file, int64_t n_bytes, int64_t *n_whole, bl_error *error)
{
    char block[512];
    while (n_bytes > 0) {
        int64_t start = bl_max_i64(0, n_bytes - (int64_t)sizeof block);
        ssize_t n = pread(file->fd, block, (size_t)(n_bytes - start), (off_t)start);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != n_bytes - start)
            return fail(file, n < 0 ? errno : EIO, error);
        while (n_bytes > start && block[n_bytes - start - 1] != '\n')
            n_bytes--;
        if (n_bytes > start)
            break;
    }
    *n_whole = n_bytes;
    return BELAY_OK;
}

static belay_code check_keep(const bl_file_append *file, int64_t n_bytes, int64_t keep, bl_error *error)
{
    int64_t n_whole = 0;
    if (keep <= n_bytes)
        TRY(whole_lines(file, keep, &n_whole, error));
    if (keep == n_whole)
        return BELAY_OK;
    belay_code code;
    if (keep > n_bytes)
        code = bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' has %lld bytes, but had %lld when it was left",
                            file->path, (long long)n_bytes, (long long)keep);
    else
        code = bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' was left with %lld bytes, but no line ends there",
                            file->path, (long long)keep);
    bl_error_advise(error, "Restore the file, or start a new run.");
    return code;
}

static belay_code cut(bl_file_append *file, int64_t keep, bl_error *error)
{
    struct stat status;
    if (fstat(file->fd, &status) != 0)
        return fail(file, errno, error);
    if (!S_ISREG(status.st_mode))
        return bl_error_set(error, BELAY_FILE_WRITE, "cannot write '%s': it is %s", file->path,
                            bl_file_kind_describe(status.st_mode));
    int64_t n_bytes = (int64_t)status.st_size;
    if (keep == BL_FILE_KEEP_LINES)
        TRY(whole_lines(file, n_bytes, &keep, error));
    else
        TRY(check_keep(file, n_bytes, keep, error));
    file->n_file = keep;
    int failure = keep < n_bytes ? bl_file_raw_cut(file->fd, keep) : 0;
    return failure == 0 ? BELAY_OK : fail(file, failure, error);
}

static belay_code open_file(bl_file_append *file, const char *path, int64_t keep, bl_error *error)
{
    file->path = bl_strdup(path);
    if (file->path == NULL)
        return bl_file_no_memory(error, "write", path);
    file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (file->fd < 0)
        return fail(file, errno, error);
    return cut(file, keep, error);
}

static void discard(bl_file_append *file)
{
    if (file->fd >= 0)
        close(file->fd);
    bl_free(file->path);
    bl_free(file->buffer);
    bl_free(file);
}

belay_code bl_file_append_open(const char *path, int64_t keep, bl_file_append **out, bl_error *error)
{
    *out = NULL;
    bl_file_append *file = bl_alloc(1, sizeof *file);
    if (file == NULL)
        return bl_file_no_memory(error, "write", path);
    file->fd = -1;
    belay_code code = open_file(file, path, keep, error);
    if (code != BELAY_OK)
        discard(file);
    else
        *out = file;
    return code;
}

belay_code bl_file_append_line(bl_file_append *file, const char *line, int64_t n_bytes, bl_error *error)
{
    int64_t wanted;
    if (n_bytes < 0 || (n_bytes > 0 && memchr(line, '\n', (size_t)n_bytes) != NULL))
        return bl_error_set(error, BELAY_BUG_INVARIANT, "a line for '%s' holds an end of line", file->path);
    if (!bl_checked_add(file->n_buffered, n_bytes, &wanted) || !bl_checked_add(wanted, 1, &wanted) ||
        !bl_grow(&file->buffer, &file->capacity, wanted, 1))
        return bl_file_no_memory(error, "write a line to", file->path);
    if (n_bytes > 0)
        memcpy(file->buffer + file->n_buffered, line, (size_t)n_bytes);
    file->buffer[wanted - 1] = '\n';
    file->n_buffered = wanted;
    return file->n_buffered >= buffer_size ? bl_file_append_flush(file, error) : BELAY_OK;
}

belay_code bl_file_append_flush(bl_file_append *file, bl_error *error)
{
    int64_t n_written;
    int failure = bl_file_raw_write(file->fd, file->buffer, file->n_buffered, file->n_file, &n_written);
    if (failure != 0) {
        /* A torn line is cut off now; if that fails too, the next flush writes over it and the next open cuts it. */
        if (n_written > 0)
            (void)!bl_file_raw_cut(file->fd, file->n_file);
        return fail(file, failure, error);
    }
    file->n_file += file->n_buffered;
    file->n_buffered = 0;
    return BELAY_OK;
}

belay_code bl_file_append_sync(bl_file_append *file, bl_error *error)
{
    TRY(bl_file_append_flush(file, error));
    int failure = bl_file_raw_sync(file->fd);
    return failure == 0 ? BELAY_OK : fail(file, failure, error);
}

int64_t bl_file_append_size(const bl_file_append *file) { return file->n_file + file->n_buffered; }

belay_code bl_file_append_close(bl_file_append *file, bl_error *error)
{
    if (file == NULL)
        return BELAY_OK;
    belay_code code = bl_file_append_flush(file, error);
    discard(file);
    return code;
}
