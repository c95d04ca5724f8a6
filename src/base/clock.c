/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdatomic.h>
#include <time.h>

static _Atomic int64_t frozen = -1;

int64_t bl_clock_now(void)
{
    int64_t set = atomic_load_explicit(&frozen, memory_order_relaxed);
    if (set >= 0)
        return set;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t bl_clock_wall(void) { return (int64_t)time(NULL); }

void bl_clock_set(int64_t nanoseconds) { atomic_store(&frozen, nanoseconds); }
