/* SPDX-License-Identifier: Apache-2.0 */
/* What a path is, and how this room writes about it.  Nothing here opens or changes a file, but bl_file_mkdir. */
#ifndef BL_FILE_PATH_H
#define BL_FILE_PATH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/error.h"

typedef enum bl_file_kind {
    BL_FILE_ABSENT, /* nothing there, or a folder on the way is missing or closed to us */
    BL_FILE_REGULAR,
    BL_FILE_FOLDER,
    BL_FILE_OTHER /* fifo, socket, device */
} bl_file_kind;

/* Follows symbolic links. */
bl_file_kind bl_file_kind_get(const char *path);

/* "a directory", "a named pipe", ...: for a headline "is %s". */
const char *bl_file_kind_describe(mode_t mode);

/* "folder/name" on the heap (bl_free), or NULL without memory.  An empty folder gives "name". */
BL_MUST_USE char *bl_file_join(const char *folder, const char *name);

/* The folder part of a path on the heap ("." when there is none), or NULL without memory. */
BL_MUST_USE char *bl_file_folder(const char *path);

/* The extension with its dot, as written, "" when there is none: "a/b.TSV" -> ".TSV".  Points into `path`. */
const char *bl_file_extension(const char *path);

/* Makes a folder and those above it; one that is already there is fine.  file.write. */
BL_MUST_USE belay_code bl_file_mkdir(const char *path, bl_error *error);

/* mem.exhausted with this headline: "no memory to <doing> '<path>'". */
static inline belay_code bl_file_no_memory(bl_error *error, const char *doing, const char *path)
{
    bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to %s '%s'", doing, path);
    return BELAY_MEM_EXHAUSTED;
}

/* Foreign bytes for an error text: control characters and bytes that are not UTF-8 as \xNN, cut with "..." when the
 * buffer ends.  Returns the buffer. */
#define BL_FILE_QUOTE 96
const char *bl_file_quote(const char *bytes, int64_t n_bytes, char buffer[BL_FILE_QUOTE]);

#endif
