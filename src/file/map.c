/* SPDX-License-Identifier: Apache-2.0 */
#include "file/map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static belay_code fail(bl_error *error, belay_code code, const char *doing, const char *path, int number)
{
    char words[128];
    bl_error_set(error, code, "cannot %s %s", doing, path);
    bl_error_fact(error, "%s", bl_error_errno(number, words));
    return code;
}

static belay_code map_memory(int fd, const char *path, int64_t n_bytes, int protection, bl_file_map *out,
                             bl_error *error)
{
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *bytes = mmap(NULL, (size_t)n_bytes, protection, flags, fd, 0);
    if (bytes == MAP_FAILED)
        return fail(error, BELAY_MEM_EXHAUSTED, "map", path, errno);
    *out = (bl_file_map){bytes, n_bytes};
    return BELAY_OK;
}

belay_code bl_file_map_create(const char *path, int64_t n_bytes, bl_file_map *out, bl_error *error)
{
    *out = (bl_file_map){0};
    if (path == NULL)
        return map_memory(-1, "memory", n_bytes, PROT_READ | PROT_WRITE, out, error);
    /* A reader of the old file keeps it whole, and a link laid there is not followed. */
    if (unlink(path) != 0 && errno != ENOENT)
        return fail(error, BELAY_FILE_WRITE, "replace", path, errno);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(error, BELAY_FILE_WRITE, "create", path, errno);
    int failed = posix_fallocate(fd, 0, n_bytes);
    belay_code code = failed != 0 ? fail(error, BELAY_FILE_WRITE, "give all its blocks to", path, failed)
                                  : map_memory(fd, path, n_bytes, PROT_READ | PROT_WRITE, out, error);
    close(fd);
    if (code != BELAY_OK)
        unlink(path);
    return code;
}

belay_code bl_file_map_open(const char *path, int64_t limit, bl_file_map *out, bl_error *error)
{
    *out = (bl_file_map){0};
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail(error, BELAY_FILE_OPEN, "open", path, errno);
    belay_code code = BELAY_OK;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        code = bl_error_set(error, BELAY_FILE_OPEN, "%s is not a file", path);
    else if (status.st_size < 1 || status.st_size > limit)
        code = bl_error_set(error, BELAY_FILE_FORMAT, "%s has %lld bytes, outside of 1 to %lld", path,
                            (long long)status.st_size, (long long)limit);
    else
        code = map_memory(fd, path, status.st_size, PROT_READ, out, error);
    close(fd);
    return code;
}

void bl_file_map_close(bl_file_map *map)
{
    if (map->bytes != NULL)
        munmap(map->bytes, (size_t)map->n_bytes);
    *map = (bl_file_map){0};
}
