/* SPDX-License-Identifier: Apache-2.0 */
/* Free ranges of a line of numbers, sorted, neighbours merged.  Giving back needs no memory: room for it was reserved
 * when the range was taken. */
#ifndef BL_DEVICE_SIM_RANGES_H
#define BL_DEVICE_SIM_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"

typedef struct bl_sim_range {
    int64_t begin, end;
} bl_sim_range;

/* All zero is an empty one. */
typedef struct bl_sim_ranges {
    bl_sim_range *range;
    int64_t n, capacity;
    int64_t n_taken; /* ranges that may come back */
} bl_sim_ranges;

void bl_sim_ranges_fini(bl_sim_ranges *ranges);
/* A range that was not there before; false when there is no memory. */
BL_MUST_USE bool bl_sim_ranges_add(bl_sim_ranges *ranges, bl_sim_range range);
/* Takes n numbers at a multiple of `alignment`: the first that fit at or behind `from`, else the first of all; -1 when
 * none fit. */
int64_t bl_sim_ranges_take(bl_sim_ranges *ranges, int64_t n, int64_t alignment, int64_t from);
/* Gives a taken range back; what it and its neighbours make together. */
bl_sim_range bl_sim_ranges_give(bl_sim_ranges *ranges, bl_sim_range range);
/* Takes [begin, end) out of the free range around it; false when there is no memory. */
BL_MUST_USE bool bl_sim_ranges_remove(bl_sim_ranges *ranges, bl_sim_range range);

#endif
