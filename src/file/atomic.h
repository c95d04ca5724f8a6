/* SPDX-License-Identifier: Apache-2.0 */
/* Writers that never leave a broken file.
 *
 * Replacing: all bytes go to ".<name>.tmp" in the same folder, which is synced and renamed over the target at commit;
 * then the folder is synced.  Whatever fails, and whenever the process dies, the target is either the whole old file or
 * the whole new one.  A failure that we live to see removes the temporary; one left by a killed process is taken over
 * by the next writer of that target.  Two processes that write one target at a time: the second is refused.
 *
 * Appending: lines are added at the end of a file.  A failure, and the next open after a death, cut the file back to
 * whole lines.
 *
 * All errors are file.write with path, reason and the bytes wanted, or mem.exhausted.  A target that is a folder, a
 * device or a pipe is refused, never replaced. */
#ifndef BL_FILE_ATOMIC_H
#define BL_FILE_ATOMIC_H

#include <stdint.h>

#include "base/error.h"
#include "file/failpoint.h"
#include "file/path.h"

typedef struct bl_file_atomic bl_file_atomic;

/* Starts a replacement of `path`; the folder must exist.  The path is copied. */
BL_MUST_USE belay_code bl_file_atomic_open(const char *path, bl_file_atomic **out, bl_error *error);

/* Adds bytes (buffered).  After a failure every later call fails with the same error. */
BL_MUST_USE belay_code bl_file_atomic_write(bl_file_atomic *file, const void *bytes, int64_t n_bytes, bl_error *error);

/* Makes the new file the file.  Only a failure of the very last step, the sync of the folder, leaves the new file in
 * place; the error then says so. */
BL_MUST_USE belay_code bl_file_atomic_commit(bl_file_atomic *file, bl_error *error);

/* Frees; without a commit before, nothing has happened.  NULL is fine. */
void bl_file_atomic_close(bl_file_atomic *file);

/* The four in one, for bytes at hand. */
BL_MUST_USE belay_code bl_file_replace(const char *path, const void *bytes, int64_t n_bytes, bl_error *error);

/* ---- lines at the end of a file ------------------------------------------------------------------------------- */

typedef struct bl_file_append bl_file_append;

/* What to keep of a file that is already there. */
#define BL_FILE_KEEP_NONE  INT64_C(0)  /* start anew */
#define BL_FILE_KEEP_LINES INT64_C(-1) /* all but a last line without its end */

/* Opens or makes `path`.  keep: one of the above, or a number of bytes as told by bl_file_append_size: the file is cut
 * there, and one that is shorter is file.mismatch. */
BL_MUST_USE belay_code bl_file_append_open(const char *path, int64_t keep, bl_file_append **out, bl_error *error);

/* Adds one line; the end of line is added here, the line must hold none of its own (bug.invariant).  Buffered. */
BL_MUST_USE belay_code bl_file_append_line(bl_file_append *file, const char *line, int64_t n_bytes, bl_error *error);

/* Hands buffered lines to the system: other processes see them, and they outlive a kill.  On failure the file is cut
 * back to what it was before the flush and the lines stay buffered. */
BL_MUST_USE belay_code bl_file_append_flush(bl_file_append *file, bl_error *error);

/* Flush, then sync: the lines outlive a power cut. */
BL_MUST_USE belay_code bl_file_append_sync(bl_file_append *file, bl_error *error);

/* Bytes of the file, buffered lines counted. */
int64_t bl_file_append_size(const bl_file_append *file);

/* Flushes and frees; frees also when the flush fails.  NULL is fine. */
BL_MUST_USE belay_code bl_file_append_close(bl_file_append *file, bl_error *error);

#endif
