/* SPDX-License-Identifier: Apache-2.0 */
#include "report/source.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that may be quoted, or -1. */
static int open_file(const char *path, time_t no_newer)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= BL_SOURCE_FILE &&
        status.st_mtime <= no_newer)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The first bytes of a line without the blanks before it: one more than is told, to see that it was cut. */
typedef struct line {
    char bytes[BL_SOURCE_LINE + 1];
    size_t n_bytes;
    int number;   /* of the line being read */
    bool is_over; /* it was read whole */
} line;

static void take(line *l, int wanted, const char *block, ssize_t n)
{
    for (ssize_t i = 0; i < n && !l->is_over; i++) {
        char c = block[i] == '\t' || block[i] == '\r' ? ' ' : block[i];
        if (c == '\n')
            l->is_over = l->number++ == wanted;
        else if (l->number == wanted && l->n_bytes < sizeof l->bytes && (c != ' ' || l->n_bytes > 0))
            l->bytes[l->n_bytes++] = c;
    }
}

/* A file that grows while it is read ends all the same. */
static void read_line(int fd, int wanted, line *l)
{
    char block[4096];
    int64_t n_read = 0;
    while (!l->is_over && n_read < BL_SOURCE_FILE) {
        ssize_t n = read(fd, block, sizeof block);
        if (n <= 0)
            break;
        n_read += n;
        take(l, wanted, block, n);
    }
}

bool bl_report_source_line(const char *path, int number, time_t no_newer, char *out, size_t size)
{
    line l = {.number = 1};
    if (size > 0)
        out[0] = '\0';
    int fd = number > 0 ? open_file(path, no_newer) : -1;
    if (fd < 0)
        return false;
    read_line(fd, number, &l);
    close(fd);
    bool is_cut = l.n_bytes > BL_SOURCE_LINE;
    size_t n = is_cut ? BL_SOURCE_LINE - 3 : l.n_bytes;
    while (is_cut && n > 0 && ((unsigned char)l.bytes[n] & 0xc0) == 0x80) /* within a character */
        n--;
    while (n > 0 && l.bytes[n - 1] == ' ')
        n--;
    snprintf(out, size, "%.*s%s", (int)n, l.bytes, is_cut ? "..." : "");
    return n > 0;
}
