/* SPDX-License-Identifier: Apache-2.0 */
/* Files mapped into memory: written so that they outlive the process, or read. */
#ifndef BL_FILE_MAP_H
#define BL_FILE_MAP_H

#include "base/error.h"

typedef struct bl_file_map {
    void *bytes;
    int64_t n_bytes;
} bl_file_map;

/* Makes the file anew, in place of what was there, gives it all of its blocks at once, so that a full disk is an error here and never a signal
 * later, and maps it shared.  A NULL path gives anonymous memory.  Faults: file.open, file.write, mem.exhausted. */
BL_MUST_USE belay_code bl_file_map_create(const char *path, int64_t n_bytes, bl_file_map *out, bl_error *error);

/* Maps a file for reading; refuses what is not a regular file and what is larger than `limit` bytes. */
BL_MUST_USE belay_code bl_file_map_open(const char *path, int64_t limit, bl_file_map *out, bl_error *error);
void bl_file_map_close(bl_file_map *map);

#endif
