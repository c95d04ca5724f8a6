/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/run.h"
#include "device/cpu/blas.h"

/* A standard stream that the caller closed would be the next file that is opened, and lines for people would go into
 * it.  In its place stands one on which reading or writing fails as on a closed one. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return;
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    int status = bl_cli_main(argc, argv);
    if (bl_run_rank_number() >= 0) {
        fflush(NULL);
#ifndef __SANITIZE_ADDRESS__ /* whose exit handler looks for leaks, and finds MPI's */
        if (status == 0)
            return status; /* by its exit handlers mpirun is told that this rank is done */
#endif
        _exit(status); /* they wait for other ranks, and one may be dead */
    }
#ifndef __SANITIZE_ADDRESS__ /* whose exit handler looks for leaks */
    if (!bl_cpu_blas_is_open()) {
        fflush(NULL);
        _exit(status); /* without exit handlers: see device/cpu/blas.h */
    }
#endif
    return status;
}
