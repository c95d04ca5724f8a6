/* SPDX-License-Identifier: Apache-2.0 */
/* One line of a source file, to be quoted.  Never reads anything but a regular file, and of that a bounded part. */
#ifndef BL_REPORT_SOURCE_H
#define BL_REPORT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

enum { BL_SOURCE_LINE = 100, BL_SOURCE_FILE = 4 << 20 };

/* Line `number`, from 1, of a file that is no longer than BL_SOURCE_FILE bytes: as it stands there, without the blanks
 * around it, its tabs as blanks; what passes BL_SOURCE_LINE bytes is cut and ends in "...".  False, and `out` is "",
 * where there is no such line, it is empty, or the file is newer than `no_newer`: its lines may have moved. */
bool bl_report_source_line(const char *path, int number, time_t no_newer, char *out, size_t size);

#endif
