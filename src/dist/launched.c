/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/launched.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A number of the environment, or -1. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return -1;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value <= INT_MAX ? (int)value : -1;
}

bl_launcher bl_launched_by(int *size)
{
    if (number_of("OMPI_COMM_WORLD_RANK") >= 0 && number_of("OMPI_COMM_WORLD_SIZE") > 0) {
        *size = number_of("OMPI_COMM_WORLD_SIZE");
        return BL_LAUNCHER_MPIRUN;
    }
    if (number_of("SLURM_STEP_ID") >= 0 && number_of("SLURM_PROCID") >= 0 && number_of("SLURM_NTASKS") > 0) {
        *size = number_of("SLURM_NTASKS");
        return BL_LAUNCHER_SRUN;
    }
    *size = 1;
    return BL_LAUNCHER_NONE;
}

/* Of Slurm's "4(x2),3" the first: that of all hosts but, where ranks do not divide, the last ones. */
int bl_launched_here(void)
{
    int size, n = -1;
    const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");
    bl_launcher launcher = bl_launched_by(&size);
    if (launcher == BL_LAUNCHER_MPIRUN)
        n = number_of("OMPI_COMM_WORLD_LOCAL_SIZE");
    else if (launcher == BL_LAUNCHER_SRUN && tasks != NULL)
        n = atoi(tasks);
    return n > 1 ? n : 1;
}

belay_code bl_launched_check(bool is_wanted, bl_error *error)
{
    int rank = number_of("RANK"), world = number_of("WORLD_SIZE");
    bool is_said = getenv("RANK") != NULL && getenv("WORLD_SIZE") != NULL;
    if (!is_said && !is_wanted)
        return BELAY_OK;
    int n = is_said && world > 0 ? world : 4;
    if (is_said)
        bl_error_set(error, BELAY_COMM_LAUNCH,
                     "RANK is %.20s and WORLD_SIZE %.20s, but neither mpirun nor srun started this process",
                     getenv("RANK"), getenv("WORLD_SIZE"));
    else
        bl_error_set(error, BELAY_COMM_LAUNCH,
                     "a group over mpi was asked for in a process that neither mpirun nor srun started");
    if (is_said && rank >= 0)
        bl_error_fact(error, "these two variables are another launcher's; Belay's ranks meet through MPI");
    bl_error_advise(error, "Start it by `mpirun -n %d PROGRAM` or `belay run -n %d --mpi -- PROGRAM`.", n, n);
    return BELAY_COMM_LAUNCH;
}

bool bl_launched_recovers(void)
{
    const char *value = getenv("OMPI_MCA_orte_enable_recovery");
    return value != NULL && (strcmp(value, "1") == 0 || strcmp(value, "true") == 0 || strcmp(value, "yes") == 0);
}
