/* SPDX-License-Identifier: Apache-2.0 */
#include "file/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "file/atomic.h"
#include "file/path.h"
#include "file/reader.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool out_of_memory;

static void *allocate(size_t n_bytes)
{
    void *block = n_bytes <= INT64_MAX ? bl_alloc((int64_t)n_bytes, 1) : NULL;
    if (block == NULL)
        out_of_memory = true;
    return block;
}

static void set_functions(void)
{
    json_malloc_t allocate_now;
    json_free_t free_now;
    json_get_alloc_funcs(&allocate_now, &free_now);
    if (allocate_now == malloc &&
        free_now == free) /* what was allocated before is still freed rightly: both are libc's */
        json_set_alloc_funcs(allocate, bl_free);
}

void bl_json_init(void)
{
    pthread_once(&once, set_functions);
    out_of_memory = false;
}

bool bl_json_out_of_memory(void) { return out_of_memory; }

static bool is_nul(enum json_error_code code)
{
    return code == json_error_null_character || code == json_error_null_byte_in_key;
}

static belay_code describe_fault(const json_error_t *reason, const char *path, int64_t first_line, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    long long line = first_line + (reason->line > 0 ? reason->line - 1 : 0);
    bl_file_quote(reason->text, (int64_t)strlen(reason->text), quoted);
    if (is_nul(json_error_code(reason)))
        return bl_error_set(error, BELAY_DATA_TEXT, "%s:%lld: column %d: a text holds \\u0000, a NUL", path, line,
                            reason->column);
    if (reason->column > 0)
        return bl_error_set(error, BELAY_FILE_FORMAT, "%s:%lld: column %d: %s", path, line, reason->column, quoted);
    return bl_error_set(error, BELAY_FILE_FORMAT, "%s:%lld: %s", path, line, quoted);
}

belay_code bl_json_parse(const char *bytes, int64_t n_bytes, const char *path, int64_t first_line, json_t **out,
                         bl_error *error)
{
    bl_json_init();
    json_error_t reason;
    *out = json_loadb(bytes, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &reason);
    if (*out != NULL)
        return BELAY_OK;
    if (out_of_memory || json_error_code(&reason) == json_error_out_of_memory)
        return bl_file_no_memory(error, "read", path);
    return describe_fault(&reason, path, first_line, error);
}
belay_code bl_json_read(const char *path, int64_t limit, json_t **out, bl_error *error)
{
    char *bytes;
    int64_t n_bytes;
    *out = NULL;
    TRY(bl_file_read_whole(path, limit > 0 ? limit : BL_JSON_CONFIG_LIMIT, &bytes, &n_bytes, error));
    belay_code code = bl_json_parse(bytes, n_bytes, path, 1, out, error);
    bl_free(bytes);
    return code;
}

typedef struct sink {
    bl_file_atomic *file;
    bl_error *error;
    belay_code code;
} sink;

static int write_piece(const char *bytes, size_t n_bytes, void *user)
{
    sink *to = user;
    to->code = bl_file_atomic_write(to->file, bytes, (int64_t)n_bytes, to->error);
    return to->code == BELAY_OK ? 0 : -1;
}

static belay_code write_value(bl_file_atomic *file, const char *path, const json_t *value, bl_error *error)
{
    sink to = {.file = file, .error = error, .code = BELAY_OK};
    bl_json_init();
    if (json_dump_callback(value, write_piece, &to, JSON_INDENT(2) | JSON_ENCODE_ANY) != 0) {
        if (to.code != BELAY_OK)
            return to.code;
        return out_of_memory ? bl_file_no_memory(error, "write", path)
                             : bl_error_set(error, BELAY_BUG_INVARIANT, "the value for '%s' is no JSON", path);
    }
    TRY(bl_file_atomic_write(file, "\n", 1, error));
    return bl_file_atomic_commit(file, error);
}

belay_code bl_json_write(const char *path, const json_t *value, bl_error *error)
{
    bl_file_atomic *file;
    TRY(bl_file_atomic_open(path, &file, error));
    belay_code code = write_value(file, path, value, error);
    bl_file_atomic_close(file);
    return code;
}
