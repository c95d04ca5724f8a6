/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a software device: two ranges of addresses with the same offsets.
 *
 *   device   what the program holds.  Never readable and never writable: no touch by the host is missed
 *   alias    the bytes, where kernels and copies work.  Only what is taken can be touched there; all else is a fault
 *
 * Behind the alias lies one file without a name; its pages are freed as soon as they are given back, and addresses of
 * pages come into use again as late as they can.  Used by one thread at a time; running kernels only touch bytes. */
#ifndef BL_DEVICE_SIM_ARENA_H
#define BL_DEVICE_SIM_ARENA_H

#include "base/error.h"
#include "device/pool.h"
#include "device/sim/ranges.h"

typedef struct bl_sim_arena {
    char *device, *alias;
    int64_t n_bytes; /* of each */
    int64_t next;    /* where the search for pages of their own goes on */
    bl_sim_ranges pages, small;
} bl_sim_arena;

/* Reserves `n_bytes`; where the system gives less and `is_fixed` is not set, less.  mem.exhausted names the bytes. */
BL_MUST_USE belay_code bl_sim_arena_open(bl_sim_arena *arena, int64_t n_bytes, bool is_fixed, const char *name,
                                         bl_error *error);
/* Also of one that is all zero. */
void bl_sim_arena_close(bl_sim_arena *arena);
/* A pool's source over it. */
bl_memory_source bl_sim_arena_source(bl_sim_arena *arena);

/* Whether [address, address + n_bytes) lies in the device's range. */
bool bl_sim_arena_holds(const bl_sim_arena *arena, const void *address, int64_t n_bytes);
/* From the device's address to the alias, and back; an address outside stays as it is. */
void *bl_sim_arena_alias(const bl_sim_arena *arena, const void *address);
uint64_t bl_sim_arena_device(const bl_sim_arena *arena, uint64_t address);

#endif
