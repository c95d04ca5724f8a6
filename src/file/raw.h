/* SPDX-License-Identifier: Apache-2.0 */
/* The four acts by which this room changes a disk, each between two fail points.  They return 0 or an errno value and
 * are called by the writers of this room only. */
#ifndef BL_FILE_RAW_H
#define BL_FILE_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"

/* Writes all bytes at `offset`; *n_written tells how far it came, also on failure. */
BL_MUST_USE int bl_file_raw_write(int fd, const char *bytes, int64_t n_bytes, int64_t offset, int64_t *n_written);
BL_MUST_USE int bl_file_raw_sync(int fd);
BL_MUST_USE int bl_file_raw_cut(int fd, int64_t n_bytes);
/* *is_done: the name has changed, also when a failure is returned. */
BL_MUST_USE int bl_file_raw_rename(const char *from, const char *to, bool *is_done);
/* Syncs the folder itself, so that names in it last.  File systems that cannot do that count as done. */
BL_MUST_USE int bl_file_raw_sync_folder(const char *folder);

#endif
