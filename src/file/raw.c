/* SPDX-License-Identifier: Apache-2.0 */
#include "file/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/checked.h"
#include "file/failpoint.h"

/* Bytes of one call: the kernel takes less than 2^31 at a time. */
enum { call_limit = 1 << 30 };

static int write_some(int fd, const char *bytes, int64_t n_bytes, int64_t offset, int64_t *n_written)
{
    int failure = bl_file_fail_point();
    if (failure != 0)
        return failure;
    ssize_t n = pwrite(fd, bytes, (size_t)bl_min_i64(n_bytes, call_limit), (off_t)offset);
    if (n < 0)
        return errno == EINTR ? 0 : errno;
    if (n == 0)
        return ENOSPC;
    *n_written += n;
    return bl_file_fail_point();
}

int bl_file_raw_write(int fd, const char *bytes, int64_t n_bytes, int64_t offset, int64_t *n_written)
{
    *n_written = 0;
    while (*n_written < n_bytes) {
        int64_t done = *n_written;
        int failure = write_some(fd, bytes + done, n_bytes - done, offset + done, n_written);
        if (failure != 0)
            return failure;
    }
    return 0;
}

int bl_file_raw_sync(int fd)
{
    int failure = bl_file_fail_point();
    if (failure != 0)
        return failure;
    while (fsync(fd) != 0)
        if (errno != EINTR)
            return errno;
    return bl_file_fail_point();
}

int bl_file_raw_cut(int fd, int64_t n_bytes)
{
    int failure = bl_file_fail_point();
    if (failure != 0)
        return failure;
    while (ftruncate(fd, (off_t)n_bytes) != 0)
        if (errno != EINTR)
            return errno;
    return bl_file_fail_point();
}

int bl_file_raw_rename(const char *from, const char *to, bool *is_done)
{
    *is_done = false;
    int failure = bl_file_fail_point();
    if (failure != 0)
        return failure;
    if (rename(from, to) != 0)
        return errno;
    *is_done = true;
    return bl_file_fail_point();
}

int bl_file_raw_sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? 0 : errno; /* a folder that may be written but not read */
    int failure = bl_file_raw_sync(fd);
    close(fd);
    return failure == EINVAL || failure == ENOTSUP ? 0 : failure;
}
