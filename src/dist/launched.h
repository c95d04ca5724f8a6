/* SPDX-License-Identifier: Apache-2.0 */
/* How this process was started, as its environment says. */
#ifndef BL_DIST_LAUNCHED_H
#define BL_DIST_LAUNCHED_H

#include <stdbool.h>

#include "base/error.h"

typedef enum bl_launcher { BL_LAUNCHER_NONE, BL_LAUNCHER_MPIRUN, BL_LAUNCHER_SRUN } bl_launcher;

/* By mpirun, by srun in a step, or by neither; how many ranks there are then. */
bl_launcher bl_launched_by(int *size);

/* How many of them are on this host, as the launcher says; 1 where it does not. */
int bl_launched_here(void);

/* comm.launch: nothing that started ranks is there, though something says that this is one (RANK and WORLD_SIZE are set),
 * or `is_wanted`: a group over MPI was asked for.  BELAY_OK: this process is alone. */
belay_code bl_launched_check(bool is_wanted, bl_error *error);

/* What the launcher must have set for the other ranks to outlive one. */
bool bl_launched_recovers(void);

#endif
