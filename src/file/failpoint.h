/* SPDX-License-Identifier: Apache-2.0 */
/* Writes that can be told to fail.  A fail point stands before and after each write, sync, cut and rename of this room;
 * they are numbered from 0 in the order in which the process passes them.  A test arms one, runs a whole job, and
 * proves that what is on disk can still be used.  Unarmed, a point costs one load. */
#ifndef BL_FILE_FAILPOINT_H
#define BL_FILE_FAILPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum bl_file_fail_mode {
    BL_FILE_FAIL_EIO,    /* the point reports EIO */
    BL_FILE_FAIL_ENOSPC, /* the point reports ENOSPC */
    BL_FILE_FAIL_KILL    /* the process ends there and then by SIGKILL */
} bl_file_fail_mode;

/* Arms point n, counted from now on; only that one fails.  A negative n disarms; INT64_MAX only counts. */
void bl_file_fail_at(int64_t n, bl_file_fail_mode mode);

/* Points passed since the last bl_file_fail_at that armed one, and whether the armed one was reached. */
int64_t bl_file_fail_asked(void);
bool bl_file_fail_reached(void);

/* Arms from the environment: BELAY_FAIL_POINT is "n:error", "n:nospace" or "n:kill".  Unset leaves all as it is; any
 * other text is conf.value.  Called once, by a program's main. */
BL_MUST_USE belay_code bl_file_fail_init(bl_error *error);

/* A point: 0 to go on, else the errno value to report.  For every writer of files, also in other rooms. */
BL_MUST_USE int bl_file_fail_point(void);

#endif
