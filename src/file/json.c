/* SPDX-License-Identifier: Apache-2.0 */
#include "file/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "file/atomic.h"
#include "file/path.h"
#include "file/reader.h"

/* jansson's lexer does not look whether its buffer could grow: out of memory it goes on with a token that lacks bytes,
 * and may then assert.  So a parse has a reserve at hand.  When an allocation fails, the reserve serves the rest, the
 * input ends, and the result is thrown away; nothing in the reserve outlives the parse. */
enum { reserve_base = 16 * 1024, piece = 64 };

typedef struct parse {
    const char *bytes; /* input not yet handed over */
    int64_t n_bytes;
    char *reserve;
    int64_t n_reserve, n_used;
} parse;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool out_of_memory;
static _Thread_local parse *current;

static void *take_from_reserve(int64_t n_bytes)
{
    if (current == NULL || n_bytes > current->n_reserve - current->n_used - 16)
        return NULL;
    void *block = current->reserve + current->n_used;
    current->n_used += (n_bytes + 15) / 16 * 16;
    return block;
}

static void *allocate(size_t n_bytes)
{
    if (n_bytes > INT64_MAX / 2)
        return NULL;
    void *block = bl_alloc((int64_t)n_bytes, 1);
    if (block != NULL)
        return block;
    out_of_memory = true;
    return take_from_reserve((int64_t)n_bytes);
}

static void release(void *block)
{
    uintptr_t at = (uintptr_t)block, start = current != NULL ? (uintptr_t)current->reserve : 0;
    bool is_reserve = current != NULL && at >= start && at - start < (uintptr_t)current->n_reserve;
    if (!is_reserve)
        bl_free(block);
}

static void set_functions(void)
{
    json_malloc_t allocate_now;
    json_free_t free_now;
    json_get_alloc_funcs(&allocate_now, &free_now);
    if (allocate_now == malloc && free_now == free) /* blocks from before are freed rightly: bl_free is libc's */
        json_set_alloc_funcs(allocate, release);
}

void bl_json_init(void)
{
    pthread_once(&once, set_functions);
    out_of_memory = false;
}

bool bl_json_out_of_memory(void) { return out_of_memory; }

/* Small pieces: after a failure only the rest of one is still parsed. */
static size_t hand_over(void *buffer, size_t room, void *user)
{
    parse *work = user;
    if (out_of_memory)
        return 0;
    int64_t n = bl_min_i64(bl_min_i64(piece, (int64_t)room), work->n_bytes);
    if (n > 0)
        memcpy(buffer, work->bytes, (size_t)n);
    work->bytes += n;
    work->n_bytes -= n;
    return (size_t)n;
}

/* NULL with *reason, or with out_of_memory set. */
static json_t *run_parse(parse *work, json_error_t *reason)
{
    current = work;
    json_t *value = json_load_callback(hand_over, work, JSON_REJECT_DUPLICATES, reason);
    if (out_of_memory || (value == NULL && json_error_code(reason) == json_error_out_of_memory)) {
        out_of_memory = true;
        json_decref(value);
        value = NULL;
    }
    current = NULL;
    return value;
}

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
    json_error_t reason;
    parse work = {.bytes = bytes, .n_bytes = n_bytes};
    *out = NULL;
    bl_json_init();
    if (!bl_checked_mul(n_bytes, 2, &work.n_reserve) || !bl_checked_add(work.n_reserve, reserve_base, &work.n_reserve))
        return bl_file_no_memory(error, "read", path);
    work.reserve = bl_alloc_aligned(work.n_reserve, 16);
    if (work.reserve == NULL)
        return bl_file_no_memory(error, "read", path);
    *out = run_parse(&work, &reason);
    bl_free(work.reserve);
    if (*out != NULL)
        return BELAY_OK;
    return out_of_memory ? bl_file_no_memory(error, "read", path) : describe_fault(&reason, path, first_line, error);
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

static bool is_utf8(const char *bytes)
{
    int length = 1;
    for (int64_t n = (int64_t)strlen(bytes); n > 0 && length > 0; n -= length, bytes += length)
        length = bl_utf8_length(bytes, n);
    return length > 0;
}

json_t *bl_json_text(const char *bytes)
{
    bl_text shown = {0};
    if (bytes == NULL)
        return json_null();
    if (is_utf8(bytes))
        return json_string(bytes);
    bl_text_add_escaped(&shown, bytes, (int64_t)strlen(bytes), INT64_MAX);
    json_t *text = shown.failed ? NULL : json_string(bl_text_get(&shown));
    bl_text_fini(&shown);
    return text;
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
    int failure = json_dump_callback(value, write_piece, &to, JSON_INDENT(2) | JSON_ENCODE_ANY);
    if (failure != 0 || out_of_memory) {
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

static int add_piece(const char *bytes, size_t n_bytes, void *user)
{
    bl_text_add_bytes(user, bytes, (int64_t)n_bytes);
    return ((const bl_text *)user)->failed ? -1 : 0;
}

void bl_json_to_text(const json_t *value, bl_text *out)
{
    bl_json_init();
    if (value == NULL || json_dump_callback(value, add_piece, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0 ||
        out_of_memory)
        out->failed = true;
}
