/* SPDX-License-Identifier: Apache-2.0 */
/* The writing half of safetensors.h: everything is proved first, then one pass over the tensors. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/atomic.h"
#include "file/safetensors.h"
#include "file/split.h"

#ifdef BELAY_SMALL
enum { chunk_size = 16 };
#else
enum { chunk_size = 1 << 20 };
#endif

typedef struct job {
    const char *path;
    const bl_safetensors_source *tensors;
    int64_t n_tensors;
    const bl_safetensors_pair *metadata;
    int64_t n_metadata;
    int64_t *n_bytes;   /* of each tensor */
    const char **names; /* to find doubles */
    char *chunk;        /* for sources that fill */
} job;

/* ---- proofs ----------------------------------------------------------------------------------------------------- */

static belay_code check_text(const job *work, const char *what, const char *text, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    if (text == NULL)
        return bl_error_set(error, BELAY_CONF_MISSING, "%s for '%s' is NULL", what, work->path);
    int64_t n = (int64_t)strlen(text);
    if (bl_split_first_bad(text, n) == n)
        return BELAY_OK;
    return bl_error_set(error, BELAY_CONF_VALUE, "%s '%s' for '%s' is not UTF-8", what, bl_file_quote(text, n, quoted),
                        work->path);
}

static belay_code check_source(const job *work, const bl_safetensors_source *tensor, int64_t *n_bytes, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    TRY(check_text(work, "the tensor name", tensor->name, error));
    if (strcmp(tensor->name, "__metadata__") == 0)
        return bl_error_set(error, BELAY_CONF_VALUE, "no tensor for '%s' can have the name '__metadata__'", work->path);
    bl_file_quote(tensor->name, (int64_t)strlen(tensor->name), quoted);
    if (bl_safetensors_dtype_size(tensor->dtype) == 0)
        return bl_error_set(error, BELAY_CONF_VALUE, "tensor '%s' for '%s' has dtype number %d, which is none", quoted,
                            work->path, (int)tensor->dtype);
    if (tensor->rank < 0 || tensor->rank > BL_SAFETENSORS_MAX_RANK)
        return bl_error_set(error, BELAY_CONF_VALUE, "tensor '%s' for '%s' has %d axes; the format here takes %d",
                            quoted, work->path, tensor->rank, BL_SAFETENSORS_MAX_RANK);
    if (!bl_checked_product(tensor->shape, tensor->rank, n_bytes) ||
        !bl_checked_mul(*n_bytes, bl_safetensors_dtype_size(tensor->dtype), n_bytes))
        return bl_error_set(error, BELAY_SIZE_OVERFLOW, "the shape of tensor '%s' for '%s' is no size", quoted,
                            work->path);
    if (tensor->bytes == NULL && tensor->fill == NULL && *n_bytes > 0)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "tensor '%s' for '%s' has no bytes", quoted, work->path);
    return BELAY_OK;
}

static int compare_texts(const void *left, const void *right)
{
    const char *const *a = left, *const *b = right;
    return strcmp(*a, *b);
}

static belay_code check_doubles(const job *work, const char *what, int64_t n, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    qsort(work->names, (size_t)n, sizeof *work->names, compare_texts);
    for (int64_t i = 0; i < n; i++) {
        const char *name = work->names[i];
        if (i > 0 && strcmp(name, work->names[i - 1]) == 0)
            return bl_error_set(error, BELAY_CONF_VALUE, "the %s '%s' for '%s' is given twice", what,
                                bl_file_quote(name, (int64_t)strlen(name), quoted), work->path);
    }
    return BELAY_OK;
}

static belay_code check_all(job *work, bl_error *error)
{
    for (int64_t i = 0; i < work->n_metadata; i++) {
        TRY(check_text(work, "the metadata key", work->metadata[i].key, error));
        TRY(check_text(work, "the metadata value", work->metadata[i].value, error));
        work->names[i] = work->metadata[i].key;
    }
    TRY(check_doubles(work, "metadata key", work->n_metadata, error));
    for (int64_t i = 0; i < work->n_tensors; i++) {
        TRY(check_source(work, &work->tensors[i], &work->n_bytes[i], error));
        work->names[i] = work->tensors[i].name;
    }
    return check_doubles(work, "tensor name", work->n_tensors, error);
}

/* ---- the header ---------------------------------------------------------------------------------------------------
 */

static void add_json_string(bl_text *text, const char *string)
{
    bl_text_add(text, "\"");
    for (const char *at = string; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '"' || c == '\\')
            bl_text_format(text, "\\%c", c);
        else if (c < 0x20)
            bl_text_format(text, "\\u%04x", c);
        else
            bl_text_add_bytes(text, at, 1);
    }
    bl_text_add(text, "\"");
}

static void add_metadata(const job *work, bl_text *text)
{
    if (work->n_metadata == 0)
        return;
    bl_text_add(text, "\"__metadata__\":{");
    for (int64_t i = 0; i < work->n_metadata; i++) {
        bl_text_add(text, i > 0 ? "," : "");
        add_json_string(text, work->metadata[i].key);
        bl_text_add(text, ":");
        add_json_string(text, work->metadata[i].value);
    }
    bl_text_add(text, "}");
}

static void add_tensor(const bl_safetensors_source *tensor, int64_t begin, int64_t end, bl_text *text)
{
    bl_text_add(text, text->n_bytes > 1 ? "," : "");
    add_json_string(text, tensor->name);
    bl_text_format(text, ":{\"dtype\":\"%s\",\"shape\":[", bl_safetensors_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++)
        bl_text_format(text, "%s%" PRId64, i > 0 ? "," : "", tensor->shape[i]);
    bl_text_format(text, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
}

/* Element sizes, largest first: the order in which the tensors' bytes lie. */
static const int64_t sizes[] = {8, 4, 2, 1};

static belay_code describe(const job *work, bl_text *text, bl_error *error)
{
    int64_t at = 0;
    bl_text_add(text, "{");
    add_metadata(work, text);
    for (int s = 0; s < BL_COUNT(sizes); s++)
        for (int64_t i = 0; i < work->n_tensors; i++) {
            if (bl_safetensors_dtype_size(work->tensors[i].dtype) != sizes[s])
                continue;
            int64_t begin = at;
            if (!bl_checked_add(at, work->n_bytes[i], &at))
                return bl_error_set(error, BELAY_SIZE_OVERFLOW, "the tensors for '%s' pass 2^63 bytes together",
                                    work->path);
            add_tensor(&work->tensors[i], begin, at, text);
        }
    bl_text_add(text, "}");
    while (!text->failed && text->n_bytes % 8 != 0)
        bl_text_add(text, " ");
    if (text->failed)
        return bl_file_no_memory(error, "write", work->path);
    if (text->n_bytes > BL_SAFETENSORS_HEADER_LIMIT)
        return bl_error_set(error, BELAY_FILE_LIMIT,
                            "the header for '%s' has %" PRId64 " bytes, the format takes %" PRId64, work->path,
                            text->n_bytes, BL_SAFETENSORS_HEADER_LIMIT);
    return BELAY_OK;
}

/* ---- the bytes ------------------------------------------------------------------------------------------------------
 */

static belay_code write_tensor(job *work, bl_file_atomic *file, int64_t index, bl_error *error)
{
    const bl_safetensors_source *tensor = &work->tensors[index];
    int64_t n_bytes = work->n_bytes[index];
    if (tensor->bytes != NULL)
        return bl_file_atomic_write(file, tensor->bytes, n_bytes, error);
    if (n_bytes > 0 && work->chunk == NULL && (work->chunk = bl_alloc(chunk_size, 1)) == NULL)
        return bl_file_no_memory(error, "write", work->path);
    for (int64_t at = 0; at < n_bytes; at += chunk_size) {
        int64_t n = bl_min_i64(chunk_size, n_bytes - at);
        TRY(tensor->fill(tensor->user, at, work->chunk, n, error));
        TRY(bl_file_atomic_write(file, work->chunk, n, error));
    }
    return BELAY_OK;
}

static belay_code write_parts(job *work, bl_file_atomic *file, const bl_text *header, bl_error *error)
{
    uint64_t length = (uint64_t)header->n_bytes;
    TRY(bl_file_atomic_write(file, &length, sizeof length, error));
    TRY(bl_file_atomic_write(file, header->bytes, header->n_bytes, error));
    for (int s = 0; s < BL_COUNT(sizes); s++)
        for (int64_t i = 0; i < work->n_tensors; i++)
            if (bl_safetensors_dtype_size(work->tensors[i].dtype) == sizes[s])
                TRY(write_tensor(work, file, i, error));
    return bl_file_atomic_commit(file, error);
}

static belay_code write_file(job *work, bl_text *header, bl_error *error)
{
    work->n_bytes = bl_alloc(work->n_tensors, sizeof *work->n_bytes);
    work->names = bl_alloc(bl_max_i64(work->n_tensors, work->n_metadata), sizeof *work->names);
    if (work->n_bytes == NULL || work->names == NULL)
        return bl_file_no_memory(error, "write", work->path);
    TRY(check_all(work, error));
    TRY(describe(work, header, error));
    bl_file_atomic *file;
    TRY(bl_file_atomic_open(work->path, &file, error));
    belay_code code = write_parts(work, file, header, error);
    bl_file_atomic_close(file);
    return code;
}

belay_code bl_safetensors_write(const char *path, const bl_safetensors_source *tensors, int64_t n_tensors,
                                const bl_safetensors_pair *metadata, int64_t n_metadata, bl_error *error)
{
    job work = {
        .path = path, .tensors = tensors, .n_tensors = n_tensors, .metadata = metadata, .n_metadata = n_metadata};
    bl_text header = {0};
    belay_code code = write_file(&work, &header, error);
    bl_text_fini(&header);
    bl_free(work.n_bytes);
    bl_free(work.names);
    bl_free(work.chunk);
    return code;
}
