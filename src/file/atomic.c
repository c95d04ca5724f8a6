/* SPDX-License-Identifier: Apache-2.0 */
/* Replacing a file: see atomic.h.  The temporary is locked (flock), so that a leftover of a dead process can be told
 * from the temporary of one that lives. */
#include "file/atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "file/raw.h"

#ifdef BELAY_SMALL
enum { buffer_size = 16 };
#else
enum { buffer_size = 256 * 1024 };
#endif

struct bl_file_atomic {
    char *path, *folder, *temporary;
    int fd;              /* of the temporary, locked; -1 before it is ours */
    bool owns_temporary; /* it is there under its name and ours to remove */
    int64_t n_out;       /* bytes handed to the system */
    int64_t n_buffered;
    bl_error failure; /* the first; code BELAY_OK while all is well */
    char buffer[buffer_size];
};

static belay_code repeat_failure(const bl_file_atomic *file, bl_error *error)
{
    if (error != NULL && file->failure.code != BELAY_OK)
        *error = file->failure;
    return file->failure.code;
}

/* Remembers and tells the first failure; `act` is what was done to the temporary. */
static belay_code fail(bl_file_atomic *file, int number, const char *act, bl_error *error)
{
    char buffer[128];
    bl_error_set(&file->failure, BELAY_FILE_WRITE, "cannot write '%s': %s", file->path, bl_error_errno(number, buffer));
    bl_error_fact(&file->failure, "while %s '%s'", act, file->temporary);
    return repeat_failure(file, error);
}

static belay_code refuse(const char *path, const char *reason, bl_error *error)
{
    return bl_error_set(error, BELAY_FILE_WRITE, "cannot write '%s': %s", path, reason);
}

/* What stands at the target must be replaceable: nothing, or a regular file. */
static belay_code check_target(const char *path, mode_t *old_mode, bl_error *error)
{
    struct stat status;
    char buffer[128];
    *old_mode = 0;
    size_t length = strlen(path);
    if (stat(path, &status) != 0) {
        if (errno != ENOENT)
            return refuse(path, bl_error_errno(errno, buffer), error);
        return length > 0 && path[length - 1] != '/' ? BELAY_OK : refuse(path, "it names no file", error);
    }
    if (!S_ISREG(status.st_mode))
        return bl_error_set(error, BELAY_FILE_WRITE, "cannot write '%s': it is %s", path,
                            bl_file_kind_describe(status.st_mode));
    *old_mode = status.st_mode & 0777;
    return BELAY_OK;
}

/* Whether the locked file is still the one under the name: a writer before us may have renamed or removed it between
 * our open and our lock. */
static bool is_under_name(int fd, const char *name)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(name, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino && S_ISREG(opened.st_mode) && opened.st_nlink == 1;
}

/* Opens and locks the temporary; 0 or an errno value, EWOULDBLOCK when another process writes it. */
static int claim_temporary(bl_file_atomic *file)
{
    for (int attempt = 0; attempt < 8; attempt++) {
        int fd = open(file->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0)
            return errno;
        bool is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (!is_locked && errno == EWOULDBLOCK) {
            close(fd);
            return EWOULDBLOCK;
        }
        if (is_under_name(fd, file->temporary)) { /* a file system without locks is used without */
            file->fd = fd;
            file->owns_temporary = true;
            return 0;
        }
        close(fd);
    }
    return EEXIST;
}

static belay_code open_temporary(bl_file_atomic *file, mode_t old_mode, bl_error *error)
{
    int failure = claim_temporary(file);
    if (failure == EWOULDBLOCK) {
        belay_code code = refuse(file->path, "another process is writing it", error);
        bl_error_fact(error, "its temporary is '%s'", file->temporary);
        bl_error_advise(error, "Wait for that process, or give each its own folder.");
        return code;
    }
    if (failure != 0)
        return fail(file, failure, "opening", error);
    if (old_mode != 0)
        (void)fchmod(file->fd, old_mode); /* fails on a leftover of another user: then its mode stays */
    failure = bl_file_raw_cut(file->fd, 0);
    return failure == 0 ? BELAY_OK : fail(file, failure, "emptying", error);
}

/* ".<name>.tmp" beside the target. */
static char *temporary_name(const char *path, const char *folder)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t length = strlen(name);
    char *hidden = bl_alloc((int64_t)length + 6, 1);
    if (hidden == NULL)
        return NULL;
    hidden[0] = '.';
    memcpy(hidden + 1, name, length);
    memcpy(hidden + 1 + length, ".tmp", 5);
    char *joined = slash != NULL ? bl_file_join(folder, hidden) : bl_strdup(hidden);
    bl_free(hidden);
    return joined;
}

static belay_code name_parts(bl_file_atomic *file, const char *path, bl_error *error)
{
    file->path = bl_strdup(path);
    file->folder = bl_file_folder(path);
    if (file->folder != NULL)
        file->temporary = temporary_name(path, file->folder);
    if (file->path == NULL || file->temporary == NULL)
        return bl_file_no_memory(error, "write", path);
    return BELAY_OK;
}

belay_code bl_file_atomic_open(const char *path, bl_file_atomic **out, bl_error *error)
{
    mode_t old_mode;
    *out = NULL;
    TRY(check_target(path, &old_mode, error));
    bl_file_atomic *file = bl_alloc(1, sizeof *file);
    if (file == NULL)
        return bl_file_no_memory(error, "write", path);
    file->fd = -1;
    belay_code code = name_parts(file, path, error);
    if (code == BELAY_OK)
        code = open_temporary(file, old_mode, error);
    if (code != BELAY_OK)
        bl_file_atomic_close(file);
    else
        *out = file;
    return code;
}

static belay_code put(bl_file_atomic *file, const char *bytes, int64_t n_bytes, bl_error *error)
{
    int64_t n_written;
    int failure = bl_file_raw_write(file->fd, bytes, n_bytes, file->n_out, &n_written);
    file->n_out += n_written;
    if (failure == 0)
        return BELAY_OK;
    char act[96];
    snprintf(act, sizeof act, "writing %lld bytes at offset %lld of", (long long)(n_bytes - n_written),
             (long long)file->n_out);
    return fail(file, failure, act, error);
}

static belay_code flush(bl_file_atomic *file, bl_error *error)
{
    int64_t n = file->n_buffered;
    file->n_buffered = 0;
    return n > 0 ? put(file, file->buffer, n, error) : BELAY_OK;
}

belay_code bl_file_atomic_write(bl_file_atomic *file, const void *bytes, int64_t n_bytes, bl_error *error)
{
    TRY(repeat_failure(file, error));
    if (n_bytes > buffer_size - file->n_buffered)
        TRY(flush(file, error));
    if (n_bytes >= buffer_size)
        return put(file, bytes, n_bytes, error);
    if (n_bytes > 0)
        memcpy(file->buffer + file->n_buffered, bytes, (size_t)n_bytes);
    file->n_buffered += n_bytes > 0 ? n_bytes : 0;
    return BELAY_OK;
}

/* The name has changed: what is left is to make that last. */
static belay_code sync_name(bl_file_atomic *file, int failure, bl_error *error)
{
    if (failure == 0)
        failure = bl_file_raw_sync_folder(file->folder);
    if (failure == 0)
        return BELAY_OK;
    char buffer[128];
    bl_error_set(&file->failure, BELAY_FILE_WRITE, "cannot write '%s' for good: %s", file->path,
                 bl_error_errno(failure, buffer));
    bl_error_fact(&file->failure, "the new file is in place and whole, but a power cut may bring the old one back");
    bl_error_advise(&file->failure, "Check the disk.");
    return repeat_failure(file, error);
}

belay_code bl_file_atomic_commit(bl_file_atomic *file, bl_error *error)
{
    TRY(repeat_failure(file, error));
    TRY(flush(file, error));
    int failure = bl_file_raw_sync(file->fd);
    if (failure != 0)
        return fail(file, failure, "syncing", error);
    bool is_renamed;
    failure = bl_file_raw_rename(file->temporary, file->path, &is_renamed);
    if (!is_renamed)
        return fail(file, failure, "renaming", error);
    file->owns_temporary = false;
    return sync_name(file, failure, error);
}

void bl_file_atomic_close(bl_file_atomic *file)
{
    if (file == NULL)
        return;
    if (file->owns_temporary)
        unlink(file->temporary);
    if (file->fd >= 0)
        close(file->fd);
    bl_free(file->path);
    bl_free(file->folder);
    bl_free(file->temporary);
    bl_free(file);
}

belay_code bl_file_replace(const char *path, const void *bytes, int64_t n_bytes, bl_error *error)
{
    bl_file_atomic *file;
    TRY(bl_file_atomic_open(path, &file, error));
    belay_code code = bl_file_atomic_write(file, bytes, n_bytes, error);
    if (code == BELAY_OK)
        code = bl_file_atomic_commit(file, error);
    bl_file_atomic_close(file);
    return code;
}
