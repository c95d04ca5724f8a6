/* SPDX-License-Identifier: Apache-2.0 */
/* The host's memory for what a kernel works in, as a pool's source.  It knows its blocks, since a kernel that is ended in
 * the middle gives nothing back. */
#ifndef BL_DEVICE_SIM_SCRATCH_H
#define BL_DEVICE_SIM_SCRATCH_H

#include "device/pool.h"

typedef struct bl_sim_scratch {
    struct bl_sim_scratch *next, *before; /* a ring; each block begins with its link */
} bl_sim_scratch;

void bl_sim_scratch_init(bl_sim_scratch *scratch);
/* Frees what has not come back. */
void bl_sim_scratch_fini(bl_sim_scratch *scratch);
bl_memory_source bl_sim_scratch_source(bl_sim_scratch *scratch);

#endif
