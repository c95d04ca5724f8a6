/* SPDX-License-Identifier: Apache-2.0 */
/* The one clock.  Deadlines and rates read it; a test sets it, so that no test waits. */
#ifndef BL_BASE_CLOCK_H
#define BL_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of a clock that only goes forward (CLOCK_MONOTONIC, or what a test set). */
int64_t bl_clock_now(void);

/* Seconds since 1970, UTC, for file heads and reports. */
int64_t bl_clock_wall(void);

/* From now on bl_clock_now returns `nanoseconds`; negative gives the real clock back. */
void bl_clock_set(int64_t nanoseconds);

#endif
