/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "device/cpu/blas.h"

int main(int argc, char **argv)
{
    int status = bl_cli_main(argc, argv);
#ifndef __SANITIZE_ADDRESS__ /* whose exit handler looks for leaks */
    if (!bl_cpu_blas_is_open()) {
        fflush(NULL);
        _exit(status); /* without exit handlers: see device/cpu/blas.h */
    }
#endif
    return status;
}
