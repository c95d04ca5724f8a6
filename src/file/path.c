/* SPDX-License-Identifier: Apache-2.0 */
#include "file/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"

bl_file_kind bl_file_kind_get(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return BL_FILE_ABSENT;
    if (S_ISREG(status.st_mode))
        return BL_FILE_REGULAR;
    return S_ISDIR(status.st_mode) ? BL_FILE_FOLDER : BL_FILE_OTHER;
}

const char *bl_file_kind_describe(mode_t mode)
{
    if (S_ISREG(mode))
        return "a regular file";
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a named pipe";
    if (S_ISSOCK(mode))
        return "a socket";
    if (S_ISCHR(mode))
        return "a character device";
    return S_ISBLK(mode) ? "a block device" : "of no known kind";
}

char *bl_file_join(const char *folder, const char *name)
{
    size_t n_folder = strlen(folder), n_name = strlen(name);
    bool needs_slash = n_folder > 0 && folder[n_folder - 1] != '/';
    char *path = bl_alloc((int64_t)(n_folder + needs_slash + n_name + 1), 1);
    if (path == NULL)
        return NULL;
    memcpy(path, folder, n_folder);
    if (needs_slash)
        path[n_folder] = '/';
    memcpy(path + n_folder + needs_slash, name, n_name);
    return path;
}

char *bl_file_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return bl_strdup(".");
    return slash == path ? bl_strdup("/") : bl_strndup(path, slash - path);
}

const char *bl_file_extension(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return dot != NULL && dot != name ? dot : "";
}

/* One level; what is already there is looked at only when making it fails. */
static belay_code make_folder(const char *folder, const char *path, bl_error *error)
{
    if (mkdir(folder, 0777) == 0)
        return BELAY_OK;
    int failure = errno;
    struct stat status;
    if (failure == EEXIST && stat(folder, &status) == 0) {
        if (S_ISDIR(status.st_mode))
            return BELAY_OK;
        return bl_error_set(error, BELAY_FILE_WRITE, "cannot make the folder '%s': '%s' is %s", path, folder,
                            bl_file_kind_describe(status.st_mode));
    }
    if (bl_file_kind_get(folder) == BL_FILE_FOLDER) /* for example a read-only "/" that needs no making */
        return BELAY_OK;
    char buffer[128];
    return bl_error_set(error, BELAY_FILE_WRITE, "cannot make the folder '%s': %s", path,
                        bl_error_errno(failure, buffer));
}

belay_code bl_file_mkdir(const char *path, bl_error *error)
{
    char *copy = bl_strdup(path);
    if (copy == NULL)
        return bl_file_no_memory(error, "make the folder", path);
    belay_code code = BELAY_OK;
    for (char *at = copy; code == BELAY_OK && *at != '\0'; at++) {
        if (at == copy || *at != '/' || at[-1] == '/')
            continue;
        *at = '\0';
        code = make_folder(copy, path, error);
        *at = '/';
    }
    if (code == BELAY_OK)
        code = make_folder(copy, path, error);
    bl_free(copy);
    return code;
}

/* The bytes shown for the character at `bytes`, and in *n_used how many of the input they stand for. */
static int quote_one(const char *bytes, int64_t n_bytes, char shown[16], int *n_used)
{
    unsigned char c = (unsigned char)bytes[0];
    int length = bl_utf8_length(bytes, n_bytes);
    bool is_c1_control = length == 2 && c == 0xC2 && (unsigned char)bytes[1] < 0xA0;
    if (length == 0 || c < 0x20 || c == 0x7F || is_c1_control) {
        *n_used = 1;
        return snprintf(shown, 16, "\\x%02X", c);
    }
    memcpy(shown, bytes, (size_t)length);
    *n_used = length;
    return length;
}

const char *bl_file_quote(const char *bytes, int64_t n_bytes, char buffer[BL_FILE_QUOTE])
{
    int used = 0, cut = 0; /* cut: the last place where "..." still fits */
    for (int64_t i = 0; i < n_bytes;) {
        char shown[16];
        int n_used, n_shown = quote_one(bytes + i, n_bytes - i, shown, &n_used);
        if (used + n_shown >= BL_FILE_QUOTE) {
            memcpy(buffer + cut, "...", 4);
            return buffer;
        }
        memcpy(buffer + used, shown, (size_t)n_shown);
        used += n_shown;
        i += n_used;
        if (used + 4 <= BL_FILE_QUOTE)
            cut = used;
    }
    buffer[used] = '\0';
    return buffer;
}
