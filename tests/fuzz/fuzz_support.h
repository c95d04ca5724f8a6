/* SPDX-License-Identifier: Apache-2.0 */
/* For fuzz targets of readers that take a path: the input as a file in memory.  A target that finds a broken promise
 * calls fuzz_require, which ends the process. */
#ifndef TESTS_FUZZ_SUPPORT_H
#define TESTS_FUZZ_SUPPORT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_require(bool holds, const char *promise)
{
    if (holds)
        return;
    fprintf(stderr, "broken promise: %s\n", promise);
    abort();
}

/* The path of a file that holds these bytes, the same at each call. */
static inline const char *fuzz_path(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        char name[] = "/dev/shm/belay-fuzz-XXXXXX", other[] = "/tmp/belay-fuzz-XXXXXX";
        fd = mkstemp(name);
        if (fd >= 0) {
            unlink(name);
        } else {
            fd = mkstemp(other);
            unlink(other);
        }
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    fuzz_require(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size,
                 "the input can be written to a file");
    return path;
}

#endif
