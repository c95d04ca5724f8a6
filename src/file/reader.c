/* SPDX-License-Identifier: Apache-2.0 */
#include "file/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"

static belay_code fail(belay_code code, const char *verb, const char *path, int number, bl_error *error)
{
    char buffer[128];
    return bl_error_set(error, code, "cannot %s '%s': %s", verb, path, bl_error_errno(number, buffer));
}

belay_code bl_file_open_regular(const char *path, int *fd, int64_t *n_bytes, bl_error *error)
{
    /* Without O_NONBLOCK the open of a pipe would wait for its writer. */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *fd = -1;
    *n_bytes = 0;
    struct stat status;
    if (opened < 0 && errno == ENXIO && stat(path, &status) == 0)
        return bl_error_set(error, BELAY_FILE_OPEN, "cannot open '%s': it is %s", path,
                            bl_file_kind_describe(status.st_mode));
    if (opened < 0)
        return fail(BELAY_FILE_OPEN, "open", path, errno, error);
    belay_code code = BELAY_OK;
    if (fstat(opened, &status) != 0)
        code = fail(BELAY_FILE_OPEN, "open", path, errno, error);
    else if (!S_ISREG(status.st_mode))
        code = bl_error_set(error, BELAY_FILE_OPEN, "cannot open '%s': it is %s", path,
                            bl_file_kind_describe(status.st_mode));
    if (code != BELAY_OK) {
        close(opened);
        return code;
    }
    *fd = opened;
    *n_bytes = (int64_t)status.st_size;
    return BELAY_OK;
}

/* At most n_bytes, fewer only at the end of the file; -1 with errno set. */
static int64_t read_most(int fd, int64_t offset, char *into, int64_t n_bytes)
{
    int64_t done = 0;
    while (done < n_bytes) {
        ssize_t n = pread(fd, into + done, (size_t)bl_min_i64(n_bytes - done, 1 << 30), (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += n;
    }
    return done;
}

belay_code bl_file_read_at(int fd, const char *path, int64_t offset, void *into, int64_t n_bytes, bl_error *error)
{
    int64_t n = read_most(fd, offset, into, n_bytes);
    if (n < 0)
        return fail(BELAY_FILE_READ, "read", path, errno, error);
    if (n == n_bytes)
        return BELAY_OK;
    belay_code code = bl_error_set(error, BELAY_FILE_READ, "'%s' became shorter while it was read", path);
    bl_error_fact(error, "wanted %lld bytes at offset %lld, got %lld", (long long)n_bytes, (long long)offset,
                  (long long)n);
    bl_error_advise(error, "Something else writes or cuts the file; read it when that is done.");
    return code;
}

static belay_code too_long(const char *path, int64_t limit, bl_error *error)
{
    return bl_error_set(error, BELAY_FILE_LIMIT, "'%s' is longer than %lld bytes", path, (long long)limit);
}

/* The size is only a hint: the file may grow, and some (in /proc) tell 0. */
static belay_code read_all(int fd, const char *path, int64_t hint, int64_t limit, char **bytes, int64_t *n_bytes,
                           bl_error *error)
{
    int64_t capacity = 0, used = 0, wanted = bl_min_i64(hint, limit) + 1;
    for (;;) {
        if (!bl_grow(bytes, &capacity, wanted, 1))
            return bl_file_no_memory(error, "read", path);
        int64_t n = read_most(fd, used, *bytes + used, capacity - used);
        if (n < 0)
            return fail(BELAY_FILE_READ, "read", path, errno, error);
        used += n;
        if (used > limit)
            return too_long(path, limit, error);
        if (used < capacity)
            break;
        wanted = capacity + 1;
    }
    (*bytes)[used] = '\0';
    *n_bytes = used;
    return BELAY_OK;
}

belay_code bl_file_read_whole(const char *path, int64_t limit, char **bytes, int64_t *n_bytes, bl_error *error)
{
    int fd;
    int64_t size;
    *bytes = NULL;
    *n_bytes = 0;
    TRY(bl_file_open_regular(path, &fd, &size, error));
    belay_code code =
        size > limit ? too_long(path, limit, error) : read_all(fd, path, size, limit, bytes, n_bytes, error);
    close(fd);
    if (code != BELAY_OK) {
        bl_free(*bytes);
        *bytes = NULL;
    }
    return code;
}
