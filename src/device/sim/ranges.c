/* SPDX-License-Identifier: Apache-2.0 */
#include "device/sim/ranges.h"

#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

void bl_sim_ranges_fini(bl_sim_ranges *ranges)
{
    bl_free(ranges->range);
    *ranges = (bl_sim_ranges){0};
}

/* The first free range that ends behind `at`. */
static int64_t place_of(const bl_sim_ranges *ranges, int64_t at)
{
    int64_t low = 0, high = ranges->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ranges->range[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Every taken range may come back as a row of its own, and cutting one out makes one more. */
static bool reserve(bl_sim_ranges *ranges)
{
    return bl_grow(&ranges->range, &ranges->capacity, ranges->n + ranges->n_taken + 2, sizeof *ranges->range);
}

static void insert(bl_sim_ranges *ranges, int64_t at, bl_sim_range range)
{
    memmove(&ranges->range[at + 1], &ranges->range[at], (size_t)(ranges->n - at) * sizeof *ranges->range);
    ranges->range[at] = range;
    ranges->n++;
}

static void erase(bl_sim_ranges *ranges, int64_t at)
{
    ranges->n--;
    memmove(&ranges->range[at], &ranges->range[at + 1], (size_t)(ranges->n - at) * sizeof *ranges->range);
}

static bl_sim_range join(bl_sim_ranges *ranges, bl_sim_range range)
{
    int64_t at = place_of(ranges, range.begin - 1);
    if (at < ranges->n && ranges->range[at].end == range.begin)
        ranges->range[at].end = range.end;
    else
        insert(ranges, at, range);
    if (at + 1 < ranges->n && ranges->range[at + 1].begin == range.end) {
        ranges->range[at].end = ranges->range[at + 1].end;
        erase(ranges, at + 1);
    }
    return ranges->range[at];
}

bool bl_sim_ranges_add(bl_sim_ranges *ranges, bl_sim_range range)
{
    if (!reserve(ranges))
        return false;
    join(ranges, range);
    return true;
}

bl_sim_range bl_sim_ranges_give(bl_sim_ranges *ranges, bl_sim_range range)
{
    ranges->n_taken--;
    return join(ranges, range);
}

/* Cuts [begin, end) out of row `at`, which holds it; room was reserved. */
static void cut(bl_sim_ranges *ranges, int64_t at, bl_sim_range out)
{
    bl_sim_range whole = ranges->range[at];
    ranges->range[at].end = out.begin;
    if (out.end < whole.end)
        insert(ranges, at + 1, (bl_sim_range){out.end, whole.end});
    if (whole.begin == out.begin)
        erase(ranges, at);
}

/* Where n numbers fit into rows [first, last), not before `from`. */
static int64_t fit(const bl_sim_ranges *ranges, int64_t first, int64_t last, int64_t n, int64_t alignment, int64_t from,
                   int64_t *row)
{
    for (*row = first; *row < last; (*row)++) {
        int64_t begin = bl_max_i64(ranges->range[*row].begin, from);
        begin = (begin + alignment - 1) / alignment * alignment;
        if (ranges->range[*row].end - begin >= n)
            return begin;
    }
    return -1;
}

int64_t bl_sim_ranges_take(bl_sim_ranges *ranges, int64_t n, int64_t alignment, int64_t from)
{
    int64_t row, behind = place_of(ranges, from);
    if (!reserve(ranges))
        return -1;
    int64_t begin = fit(ranges, behind, ranges->n, n, alignment, from, &row);
    if (begin < 0)
        begin = fit(ranges, 0, ranges->n, n, alignment, 0, &row);
    if (begin < 0)
        return -1;
    cut(ranges, row, (bl_sim_range){begin, begin + n});
    ranges->n_taken++;
    return begin;
}

bool bl_sim_ranges_remove(bl_sim_ranges *ranges, bl_sim_range range)
{
    if (!reserve(ranges))
        return false;
    cut(ranges, place_of(ranges, range.begin), range);
    return true;
}
