/* SPDX-License-Identifier: Apache-2.0 */
/* The reading half of safetensors.h. */
#include "file/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "file/json.h"
#include "file/reader.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are read as they lie in the file");

enum { length_size = 8, alignment = 64 };

typedef struct name_slot {
    const bl_safetensors_entry *entry;
} name_slot;

struct bl_safetensors {
    char *path;
    int fd;
    int64_t n_file, data_start; /* bytes of the file; where the tensors begin */
    json_t *header;             /* owns the names and metadata */
    const json_t *metadata;     /* within header, or NULL */
    int64_t n_entries;
    bl_safetensors_entry *entries; /* by offset */
    name_slot *by_name;            /* sorted by strcmp */
    void **loaded;                 /* an entry's bytes, NULL until asked for */
};

typedef struct dtype_row {
    const char *name;
    int64_t size;
} dtype_row;

static const dtype_row dtype_rows[] = {
#define X(name, size) {#name, size},
    BL_SAFETENSORS_DTYPES(X)
#undef X
};

static bool is_dtype(bl_safetensors_dtype dtype) { return (unsigned)dtype < BL_SAFETENSORS_N_DTYPES; }

const char *bl_safetensors_dtype_name(bl_safetensors_dtype dtype)
{
    return is_dtype(dtype) ? dtype_rows[dtype].name : "unknown";
}

int64_t bl_safetensors_dtype_size(bl_safetensors_dtype dtype) { return is_dtype(dtype) ? dtype_rows[dtype].size : 0; }

/* ---- the header, proved --------------------------------------------------------------------------------------- */

static belay_code malformed(const bl_safetensors *file, bl_error *error, const char *format, ...) BL_PRINTF(3, 4);

static belay_code malformed(const bl_safetensors *file, bl_error *error, const char *format, ...)
{
    char reason[320];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return bl_error_set(error, BELAY_FILE_FORMAT, "'%s' is no whole safetensors file: %s", file->path, reason);
}

static const char *quote(const char *name, char buffer[BL_FILE_QUOTE])
{
    return bl_file_quote(name, (int64_t)strlen(name), buffer);
}

static belay_code read_dtype(const bl_safetensors *file, const json_t *info, bl_safetensors_entry *entry,
                             bl_error *error)
{
    char name[BL_FILE_QUOTE], quoted[BL_FILE_QUOTE];
    const char *dtype = json_string_value(json_object_get(info, "dtype"));
    if (dtype == NULL)
        return malformed(file, error, "tensor '%s' has no dtype", quote(entry->name, name));
    for (int i = 0; i < BL_COUNT(dtype_rows); i++)
        if (strcmp(dtype, dtype_rows[i].name) == 0) {
            entry->dtype = (bl_safetensors_dtype)i;
            return BELAY_OK;
        }
    belay_code code = malformed(file, error, "tensor '%s' has the dtype '%s', which Belay does not know",
                                quote(entry->name, name), quote(dtype, quoted));
    bl_error_fact(error, "known: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL");
    return code;
}

static belay_code read_shape(const bl_safetensors *file, const json_t *info, bl_safetensors_entry *entry,
                             bl_error *error)
{
    char name[BL_FILE_QUOTE];
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return malformed(file, error, "tensor '%s' has no shape", quote(entry->name, name));
    size_t rank = json_array_size(shape);
    if (rank > BL_SAFETENSORS_MAX_RANK)
        return bl_error_set(error, BELAY_FILE_LIMIT, "'%s': tensor '%s' has %zu axes, the reader takes %d", file->path,
                            quote(entry->name, name), rank, BL_SAFETENSORS_MAX_RANK);
    entry->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return malformed(file, error, "tensor '%s': axis %zu of its shape is no size", quote(entry->name, name), i);
        entry->shape[i] = json_integer_value(size);
    }
    return BELAY_OK;
}

static belay_code read_offsets(const bl_safetensors *file, const json_t *info, bl_safetensors_entry *entry,
                               bl_error *error)
{
    char name[BL_FILE_QUOTE];
    const json_t *pair = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(pair, 0), *second = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return malformed(file, error, "tensor '%s' has no two data_offsets", quote(entry->name, name));
    int64_t begin = json_integer_value(first), end = json_integer_value(second);
    int64_t n_data = file->n_file - file->data_start;
    if (begin < 0 || end < begin || end > n_data)
        return malformed(file, error,
                         "tensor '%s' lies at bytes %" PRId64 " to %" PRId64 " of the data, which has %" PRId64,
                         quote(entry->name, name), begin, end, n_data);
    entry->offset = file->data_start + begin;
    entry->n_bytes = end - begin;
    return BELAY_OK;
}

static belay_code check_extent(const bl_safetensors *file, bl_safetensors_entry *entry, bl_error *error)
{
    char name[BL_FILE_QUOTE];
    int64_t n_bytes;
    if (!bl_checked_product(entry->shape, entry->rank, &entry->n_elements) ||
        !bl_checked_mul(entry->n_elements, dtype_rows[entry->dtype].size, &n_bytes))
        return malformed(file, error, "the shape of tensor '%s' passes 2^63 bytes", quote(entry->name, name));
    if (n_bytes == entry->n_bytes)
        return BELAY_OK;
    return malformed(file, error, "tensor '%s' has %" PRId64 " elements of %s, %" PRId64 " bytes, but holds %" PRId64,
                     quote(entry->name, name), entry->n_elements, dtype_rows[entry->dtype].name, n_bytes,
                     entry->n_bytes);
}

static belay_code read_entry(bl_safetensors *file, const char *name, const json_t *info, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    bl_safetensors_entry *entry = &file->entries[file->n_entries];
    entry->name = name;
    if (!json_is_object(info))
        return malformed(file, error, "the header's '%s' is no object", quote(name, quoted));
    TRY(read_dtype(file, info, entry, error));
    TRY(read_shape(file, info, entry, error));
    TRY(read_offsets(file, info, entry, error));
    TRY(check_extent(file, entry, error));
    file->n_entries++;
    return BELAY_OK;
}

static belay_code read_metadata(bl_safetensors *file, json_t *metadata, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return malformed(file, error, "its __metadata__ is no object");
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return malformed(file, error, "its metadata '%s' is no text", quote(key, quoted));
    }
    file->metadata = metadata;
    return BELAY_OK;
}

static int compare_offsets(const void *left, const void *right)
{
    const bl_safetensors_entry *a = left, *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->n_bytes != b->n_bytes)
        return a->n_bytes < b->n_bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int compare_names(const void *left, const void *right)
{
    const name_slot *a = left, *b = right;
    return strcmp(a->entry->name, b->entry->name);
}

/* One tensor after the other, from the first byte of the data to the last of the file. */
static belay_code check_cover(const bl_safetensors *file, bl_error *error)
{
    char name[BL_FILE_QUOTE], before[BL_FILE_QUOTE];
    int64_t at = file->data_start;
    for (int64_t i = 0; i < file->n_entries; i++) {
        const bl_safetensors_entry *entry = &file->entries[i];
        if (entry->offset < at)
            return malformed(file, error, "tensors '%s' and '%s' overlap", quote(file->entries[i - 1].name, before),
                             quote(entry->name, name));
        if (entry->offset > at)
            return malformed(file, error, "%" PRId64 " bytes before tensor '%s' belong to none", entry->offset - at,
                             quote(entry->name, name));
        at += entry->n_bytes;
    }
    if (at != file->n_file)
        return malformed(file, error, "%" PRId64 " bytes at its end belong to no tensor", file->n_file - at);
    return BELAY_OK;
}

static belay_code read_entries(bl_safetensors *file, bl_error *error)
{
    int64_t n = (int64_t)json_object_size(file->header);
    file->entries = bl_alloc(n, sizeof *file->entries);
    file->by_name = bl_alloc(n, sizeof *file->by_name);
    file->loaded = bl_alloc(n, sizeof *file->loaded);
    if (file->entries == NULL || file->by_name == NULL || file->loaded == NULL)
        return bl_file_no_memory(error, "read", file->path);
    const char *key;
    json_t *value;
    json_object_foreach(file->header, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            TRY(read_metadata(file, value, error));
        else
            TRY(read_entry(file, key, value, error));
    }
    qsort(file->entries, (size_t)file->n_entries, sizeof *file->entries, compare_offsets);
    for (int64_t i = 0; i < file->n_entries; i++)
        file->by_name[i].entry = &file->entries[i];
    qsort(file->by_name, (size_t)file->n_entries, sizeof *file->by_name, compare_names);
    return check_cover(file, error);
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static belay_code parse_header(bl_safetensors *file, const char *bytes, int64_t n_bytes, bl_error *error)
{
    if (n_bytes < 2 || bytes[0] != '{')
        return malformed(file, error, "its header does not start with '{'");
    bl_error reason = {.code = BELAY_OK};
    belay_code code = bl_json_parse(bytes, n_bytes, "header", 1, &file->header, &reason);
    if (code == BELAY_MEM_EXHAUSTED)
        return bl_file_no_memory(error, "read", file->path);
    if (code != BELAY_OK) {
        code = malformed(file, error, "its header is not JSON");
        bl_error_fact(error, "%s", reason.what);
        return code;
    }
    return read_entries(file, error);
}

/* Beside the parts of a large model lies an index of them, and has a name like theirs. */
static belay_code is_text(const bl_safetensors *file, bl_error *error)
{
    belay_code code = malformed(file, error, "it begins with '{', as JSON does");
    bl_error_advise(error,
                    "Name the file that holds the tensors. A model in several files, which an .index.json lists, "
                    "is to be joined into one first.");
    return code;
}

static belay_code read_header(bl_safetensors *file, bl_error *error)
{
    uint64_t n_header;
    if (file->n_file < length_size)
        return malformed(file, error, "it has %" PRId64 " bytes, fewer than the %d that tell the header's length",
                         file->n_file, length_size);
    TRY(bl_file_read_at(file->fd, file->path, 0, &n_header, length_size, error));
    int64_t n_rest = file->n_file - length_size;
    if (n_header > (uint64_t)n_rest && (n_header & 0xff) == '{')
        return is_text(file, error);
    if (n_header > (uint64_t)n_rest)
        return malformed(file, error,
                         "its header should have %" PRIu64 " bytes, but only %" PRId64 " follow its length", n_header,
                         n_rest);
    if (n_header > (uint64_t)BL_SAFETENSORS_HEADER_LIMIT)
        return bl_error_set(error, BELAY_FILE_LIMIT,
                            "'%s': its header has %" PRIu64 " bytes, the reader takes %" PRId64, file->path, n_header,
                            BL_SAFETENSORS_HEADER_LIMIT);
    file->data_start = length_size + (int64_t)n_header;
    char *bytes = bl_alloc((int64_t)n_header, 1);
    if (bytes == NULL)
        return bl_file_no_memory(error, "read", file->path);
    belay_code code = bl_file_read_at(file->fd, file->path, length_size, bytes, (int64_t)n_header, error);
    if (code == BELAY_OK)
        code = parse_header(file, bytes, (int64_t)n_header, error);
    bl_free(bytes);
    return code;
}

belay_code bl_safetensors_open(const char *path, bl_safetensors **out, bl_error *error)
{
    *out = NULL;
    bl_safetensors *file = bl_alloc(1, sizeof *file);
    if (file == NULL)
        return bl_file_no_memory(error, "read", path);
    file->fd = -1;
    file->path = bl_strdup(path);
    belay_code code = file->path == NULL ? bl_file_no_memory(error, "read", path)
                                         : bl_file_open_regular(path, &file->fd, &file->n_file, error);
    if (code == BELAY_OK)
        code = read_header(file, error);
    if (code != BELAY_OK)
        bl_safetensors_close(file);
    else
        *out = file;
    return code;
}

void bl_safetensors_close(bl_safetensors *file)
{
    if (file == NULL)
        return;
    for (int64_t i = 0; file->loaded != NULL && i < file->n_entries; i++)
        bl_free(file->loaded[i]);
    bl_free(file->loaded);
    bl_free(file->by_name);
    bl_free(file->entries);
    json_decref(file->header);
    if (file->fd >= 0)
        close(file->fd);
    bl_free(file->path);
    bl_free(file);
}

const char *bl_safetensors_path(const bl_safetensors *file) { return file->path; }
int64_t bl_safetensors_n_entries(const bl_safetensors *file) { return file->n_entries; }

const bl_safetensors_entry *bl_safetensors_entry_at(const bl_safetensors *file, int64_t index)
{
    return index >= 0 && index < file->n_entries ? &file->entries[index] : NULL;
}

const bl_safetensors_entry *bl_safetensors_find(const bl_safetensors *file, const char *name)
{
    const bl_safetensors_entry key = {.name = name};
    const name_slot wanted = {.entry = &key};
    const name_slot *found =
        bsearch(&wanted, file->by_name, (size_t)file->n_entries, sizeof *file->by_name, compare_names);
    return found != NULL ? found->entry : NULL;
}

const char *bl_safetensors_metadata(const bl_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(file->metadata, key));
}

int64_t bl_safetensors_n_metadata(const bl_safetensors *file) { return (int64_t)json_object_size(file->metadata); }

/* jansson walks objects of non-const type only; nothing is changed. */
static void *metadata_at(const bl_safetensors *file, int64_t index)
{
    json_t *object = (json_t *)(uintptr_t)file->metadata;
    void *at = json_object_iter(object);
    for (int64_t i = 0; at != NULL && i < index; i++)
        at = json_object_iter_next(object, at);
    return index >= 0 ? at : NULL;
}

const char *bl_safetensors_metadata_key(const bl_safetensors *file, int64_t index)
{
    void *at = metadata_at(file, index);
    return at != NULL ? json_object_iter_key(at) : NULL;
}

const char *bl_safetensors_metadata_value(const bl_safetensors *file, int64_t index)
{
    void *at = metadata_at(file, index);
    return at != NULL ? json_string_value(json_object_iter_value(at)) : NULL;
}

belay_code bl_safetensors_read(const bl_safetensors *file, const bl_safetensors_entry *entry, void *into,
                               int64_t n_bytes, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    if (n_bytes != entry->n_bytes)
        return bl_error_set(error, BELAY_BUG_INVARIANT,
                            "tensor '%s' of '%s' has %" PRId64 " bytes, its reader has room for %" PRId64,
                            quote(entry->name, quoted), file->path, entry->n_bytes, n_bytes);
    return bl_file_read_at(file->fd, file->path, entry->offset, into, n_bytes, error);
}

belay_code bl_safetensors_bytes(bl_safetensors *file, const bl_safetensors_entry *entry, const void **bytes,
                                int64_t *n_bytes, bl_error *error)
{
    void **loaded = &file->loaded[entry - file->entries];
    if (*loaded == NULL) {
        void *memory = bl_alloc_aligned(entry->n_bytes, alignment);
        if (memory == NULL)
            return bl_file_no_memory(error, "read a tensor of", file->path);
        belay_code code = bl_safetensors_read(file, entry, memory, entry->n_bytes, error);
        if (code != BELAY_OK) {
            bl_free(memory);
            return code;
        }
        *loaded = memory;
    }
    *bytes = *loaded;
    *n_bytes = entry->n_bytes;
    return BELAY_OK;
}
