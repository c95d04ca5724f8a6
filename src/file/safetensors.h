/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors format, read and written.
 *
 *   8 bytes        length n of the header, little-endian
 *   n bytes        JSON: {"__metadata__": {key: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}, ...}
 *   the rest       the tensors' bytes, little-endian, row by row; offsets count from here, without gap or overlap
 *
 * Reading proves the whole header before anything of it is used: lengths against the file, dtype and shape against the
 * extent, extents against each other.  The file is not mapped: one that shrinks while it is read is file.read, not a
 * signal.  Source of the format: https://github.com/huggingface/safetensors (README, "Format").
 *
 * Codes: file.open file.read file.limit file.format, file.write, mem.exhausted. */
#ifndef BL_FILE_SAFETENSORS_H
#define BL_FILE_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* name in the file, bytes of an element */
#define BL_SAFETENSORS_DTYPES(X)                                                                                       \
    X(F64, 8)                                                                                                          \
    X(F32, 4)                                                                                                          \
    X(F16, 2)                                                                                                          \
    X(BF16, 2)                                                                                                         \
    X(I64, 8)                                                                                                          \
    X(I32, 4)                                                                                                          \
    X(I16, 2)                                                                                                          \
    X(I8, 1)                                                                                                           \
    X(U64, 8)                                                                                                          \
    X(U32, 4)                                                                                                          \
    X(U16, 2)                                                                                                          \
    X(U8, 1)                                                                                                           \
    X(BOOL, 1)

typedef enum bl_safetensors_dtype {
#define X(name, size) BL_SAFETENSORS_##name,
    BL_SAFETENSORS_DTYPES(X)
#undef X
        BL_SAFETENSORS_N_DTYPES
} bl_safetensors_dtype;

#define BL_SAFETENSORS_MAX_RANK     16
#define BL_SAFETENSORS_HEADER_LIMIT INT64_C(100000000)

const char *bl_safetensors_dtype_name(bl_safetensors_dtype dtype);
int64_t bl_safetensors_dtype_size(bl_safetensors_dtype dtype);

/* What the header says of one tensor, proved. */
typedef struct bl_safetensors_entry {
    const char *name; /* the reader's */
    bl_safetensors_dtype dtype;
    int rank;
    int64_t shape[BL_SAFETENSORS_MAX_RANK];
    int64_t n_elements;
    int64_t n_bytes;
    int64_t offset; /* in the file */
} bl_safetensors_entry;

typedef struct bl_safetensors bl_safetensors;

BL_MUST_USE belay_code bl_safetensors_open(const char *path, bl_safetensors **out, bl_error *error);
void bl_safetensors_close(bl_safetensors *file);

const char *bl_safetensors_path(const bl_safetensors *file);

/* Entries in the order of their bytes in the file; NULL outside of 0 .. n - 1. */
int64_t bl_safetensors_n_entries(const bl_safetensors *file);
const bl_safetensors_entry *bl_safetensors_entry_at(const bl_safetensors *file, int64_t index);
/* By name; NULL when there is none. */
const bl_safetensors_entry *bl_safetensors_find(const bl_safetensors *file, const char *name);

/* Metadata: the text of a key, NULL when there is none; and by number, in the order of the file. */
const char *bl_safetensors_metadata(const bl_safetensors *file, const char *key);
int64_t bl_safetensors_n_metadata(const bl_safetensors *file);
const char *bl_safetensors_metadata_key(const bl_safetensors *file, int64_t index);
const char *bl_safetensors_metadata_value(const bl_safetensors *file, int64_t index);

/* Reads a tensor's bytes into the caller's memory; n_bytes must be the entry's (else bug.invariant). */
BL_MUST_USE belay_code bl_safetensors_read(const bl_safetensors *file, const bl_safetensors_entry *entry, void *into,
                                           int64_t n_bytes, bl_error *error);

/* A tensor's bytes in memory of the reader, aligned to 64, read at the first call and kept until close.
 * *n_bytes is the entry's. */
BL_MUST_USE belay_code bl_safetensors_bytes(bl_safetensors *file, const bl_safetensors_entry *entry, const void **bytes,
                                            int64_t *n_bytes, bl_error *error);

/* ---- writing ------------------------------------------------------------------------------------------------ */

/* A tensor to write.  Its bytes are either at hand, or `fill` gives them piece by piece, in order. */
typedef struct bl_safetensors_source {
    const char *name;
    bl_safetensors_dtype dtype;
    int rank;
    const int64_t *shape;
    const void *bytes; /* n_elements * size of dtype; NULL: ask `fill` */
    belay_code (*fill)(void *user, int64_t offset, void *into, int64_t n_bytes, bl_error *error);
    void *user;
} bl_safetensors_source;

typedef struct bl_safetensors_pair {
    const char *key;
    const char *value;
} bl_safetensors_pair;

/* Replaces `path` atomically.  Bytes lie by element size, largest first, so that each tensor is aligned to its dtype
 * (PyTorch needs that), then in the order given: equal arguments give equal files.  Names and metadata must be UTF-8,
 * names must differ (else conf.value); metadata are written in the order given. */
BL_MUST_USE belay_code bl_safetensors_write(const char *path, const bl_safetensors_source *tensors, int64_t n_tensors,
                                            const bl_safetensors_pair *metadata, int64_t n_metadata, bl_error *error);

#endif
