/* SPDX-License-Identifier: Apache-2.0 */
#include "file/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/reader.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are read as they lie in the file");

struct bl_tokens {
    char *path;
    int fd;
    int64_t n;
};

static belay_code malformed(const bl_tokens *file, const char *why, bl_error *error)
{
    bl_error_set(error, BELAY_FILE_FORMAT, "'%s' is no token file: %s", file->path, why);
    bl_error_advise(error, "Write it as llm.c's scripts do: 256 int32 (20240520, 1, number of tokens), then uint16.");
    return error->code;
}

/* The header against what it must be and against the length of the file. */
static belay_code check_header(bl_tokens *file, int64_t n_bytes, bl_error *error)
{
    int32_t header[BL_TOKENS_HEADER / 4];
    char why[160];
    if (n_bytes < BL_TOKENS_HEADER) {
        snprintf(why, sizeof why, "it has %" PRId64 " bytes, its header alone has %d", n_bytes, BL_TOKENS_HEADER);
        return malformed(file, why, error);
    }
    TRY(bl_file_read_at(file->fd, file->path, 0, header, sizeof header, error));
    file->n = header[2];
    if (header[0] != BL_TOKENS_MAGIC)
        snprintf(why, sizeof why, "it starts with %" PRId32 ", not with %d", header[0], BL_TOKENS_MAGIC);
    else if (header[1] != BL_TOKENS_VERSION)
        snprintf(why, sizeof why, "its version is %" PRId32 ", not %d", header[1], BL_TOKENS_VERSION);
    else if (file->n < 1)
        snprintf(why, sizeof why, "it says that it holds %" PRId64 " tokens", file->n);
    else if (n_bytes != BL_TOKENS_HEADER + 2 * file->n)
        snprintf(why, sizeof why, "it has %" PRId64 " bytes, %" PRId64 " tokens make %" PRId64, n_bytes, file->n,
                 BL_TOKENS_HEADER + 2 * file->n);
    else
        return BELAY_OK;
    return malformed(file, why, error);
}

belay_code bl_tokens_open(const char *path, bl_tokens **out, bl_error *error)
{
    int64_t n_bytes = 0;
    *out = NULL;
    bl_tokens *file = bl_alloc(1, sizeof *file);
    if (file == NULL)
        return bl_file_no_memory(error, "open", path);
    *file = (bl_tokens){.path = bl_strdup(path), .fd = -1};
    belay_code code = file->path == NULL ? bl_file_no_memory(error, "open", path)
                                         : bl_file_open_regular(path, &file->fd, &n_bytes, error);
    if (code == BELAY_OK)
        code = check_header(file, n_bytes, error);
    if (code != BELAY_OK) {
        bl_tokens_close(file);
        return code;
    }
    *out = file;
    return BELAY_OK;
}

void bl_tokens_close(bl_tokens *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        close(file->fd);
    bl_free(file->path);
    bl_free(file);
}

int64_t bl_tokens_count(const bl_tokens *file) { return file->n; }
const char *bl_tokens_path(const bl_tokens *file) { return file->path; }

belay_code bl_tokens_read(const bl_tokens *file, int64_t first, int64_t n, uint16_t *into, bl_error *error)
{
    if (first < 0 || n < 0 || n > file->n || first > file->n - n)
        return bl_error_set(error, BELAY_BUG_INVARIANT,
                            "%" PRId64 " tokens from number %" PRId64 " on were asked of '%s', which has %" PRId64, n,
                            first, file->path, file->n);
    return bl_file_read_at(file->fd, file->path, BL_TOKENS_HEADER + 2 * first, into, 2 * n, error);
}
