/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "proc/reap.h"

enum { KERNEL_LOG_LIMIT = 32 * 1024 * 1024, SYSLOG_READ_ALL = 3, SYSLOG_SIZE_BUFFER = 10 };

/* A whole small file; false when it cannot be read. */
static bool read_small(const char *path, char *buffer, int64_t n_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t at = 0;
    if (fd < 0)
        return false;
    for (ssize_t n; at < n_bytes - 1 && (n = read(fd, buffer + at, (size_t)(n_bytes - 1 - at))) > 0;)
        at += n;
    close(fd);
    buffer[at] = '\0';
    return true;
}

/* ---- the kernel's log --------------------------------------------------------------------------------------------------- */

static const char *name_errno(int number)
{
    return number == EPERM    ? "EPERM"
           : number == EACCES ? "EACCES"
           : number == ENOENT ? "ENOENT"
           : number == ENOSYS ? "ENOSYS"
           : number == ENXIO  ? "ENXIO"
                              : "errno";
}

static int64_t microseconds_since_boot(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* "Out of memory: Killed process 1234 (name)", also "Memory cgroup out of memory: Killed process". */
static void note_kill(bl_kernel_log *log, const char *line)
{
    const char *words = strstr(line, "illed process ");
    if (words == NULL || log->n_killed == BL_COUNT(log->killed))
        return;
    long pid = strtol(words + strlen("illed process "), NULL, 10);
    if (pid <= 0 || pid >= INT32_MAX)
        return;
    log->is_ours[log->n_killed] = bl_process_is_below_us((pid_t)pid);
    log->killed[log->n_killed++] = (pid_t)pid;
}

static void keep_line(bl_kernel_log *log, const char *line, int64_t n_bytes)
{
    bl_capture_add(log->capture, line, n_bytes);
    log->n_lines++;
    note_kill(log, line);
}

static void say_absent(bl_kernel_log *log, int kmsg, int klog)
{
    char first[128], second[128];
    snprintf(log->why, sizeof log->why, "no kernel log available: /dev/kmsg: %.50s (%s); syslog: %.50s (%s)",
             bl_error_errno(kmsg, first), name_errno(kmsg), bl_error_errno(klog, second), name_errno(klog));
}

static void open_sources(bl_kernel_log *log)
{
    log->fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int kmsg = errno;
    if (log->fd >= 0 && lseek(log->fd, 0, SEEK_END) == 0)
        return;
    if (log->fd >= 0) {
        kmsg = errno;
        close(log->fd);
        log->fd = -1;
    }
    char probe[256];
    if (klogctl(SYSLOG_READ_ALL, probe, sizeof probe) < 0)
        say_absent(log, kmsg, errno);
}

void bl_kernel_log_open(bl_kernel_log *log, const char *stem)
{
    bl_error error = {0};
    *log = (bl_kernel_log){.fd = -1, .since = microseconds_since_boot()};
    open_sources(log);
    if (log->why[0] != '\0')
        return;
    if (bl_capture_open(stem, KERNEL_LOG_LIMIT, &log->capture, &error) != BELAY_OK)
        snprintf(log->why, sizeof log->why, "no kernel log kept: %.120s", error.what);
}

/* A record is one read: "6,1234,12345678901,-;text\n KEY=value\n". */
void bl_kernel_log_read(bl_kernel_log *log)
{
    char record[8193];
    while (log->fd >= 0 && log->capture != NULL) {
        ssize_t n = read(log->fd, record, sizeof record - 1);
        if (n < 0 && errno == EPIPE) {
            log->lost = true;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        record[n] = '\0';
        keep_line(log, record, n);
    }
}

/* "<6>[ 8123.400112] text": of the old interface, all of the buffer, from which the lines since the start are taken. */
static void take_old(bl_kernel_log *log, char *bytes)
{
    for (char *line = bytes; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        const char *bracket = memchr(line, '[', length);
        double seconds = bracket != NULL ? strtod(bracket + 1, NULL) : 0;
        char kept = line[length];
        line[length] = '\0';
        if (seconds > 0 && seconds < 1e12 && (int64_t)(seconds * 1e6) >= log->since) {
            keep_line(log, line, (int64_t)length);
            bl_capture_add(log->capture, "\n", 1);
        }
        line += length + (kept != '\0');
    }
}

static void read_old(bl_kernel_log *log)
{
    int size = klogctl(SYSLOG_SIZE_BUFFER, NULL, 0);
    char *bytes = size > 0 && size < (1 << 28) ? bl_alloc((int64_t)size + 1, 1) : NULL;
    int n = bytes != NULL ? klogctl(SYSLOG_READ_ALL, bytes, size) : -1;
    if (n > 0)
        take_old(log, bytes);
    bl_free(bytes);
}

void bl_kernel_log_close(bl_kernel_log *log)
{
    if (log->fd >= 0) {
        bl_kernel_log_read(log);
        close(log->fd);
        log->fd = -1;
    } else if (log->capture != NULL) {
        read_old(log);
    }
    bl_capture_close(log->capture);
    log->capture = NULL;
}

/* ---- kills for want of memory -------------------------------------------------------------------------------------------- */

/* The number behind a word that begins a line; -1: there is none. */
static int64_t number_of(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, length) == 0 && line[length] == ' ')
            return strtoll(line + length, NULL, 10);
    }
    return -1;
}

/* oom_kill of a group's file; the group's name may be seen from inside of a container, where its folder is the root. */
static int64_t count_of(const char *mount, const char *group, const char *file)
{
    char path[1400], text[4096];
    snprintf(path, sizeof path, "%s%s/%s", mount, group, file);
    if (!read_small(path, text, sizeof text)) {
        snprintf(path, sizeof path, "%s/%s", mount, file);
        if (!read_small(path, text, sizeof text))
            return -1;
    }
    return number_of(text, "oom_kill");
}

/* "9:memory:/path" (version 1) or "0::/path" (version 2). */
static int64_t count_in_group(void)
{
    char text[8192], group[1024];
    int64_t count = -1;
    if (!read_small("/proc/self/cgroup", text, sizeof text))
        return -1;
    for (char *line = text; count < 0 && *line != '\0';) {
        size_t length = strcspn(line, "\n");
        char *name = memchr(line, ':', length), *path = name != NULL ? strchr(name + 1, ':') : NULL;
        if (path != NULL && path < line + length) {
            snprintf(group, sizeof group, "%.*s", (int)(line + length - path - 1), path + 1);
            if (strncmp(name, "::", 2) == 0)
                count = count_of("/sys/fs/cgroup", group, "memory.events");
            else if (strncmp(name, ":memory:", 8) == 0)
                count = count_of("/sys/fs/cgroup/memory", group, "memory.oom_control");
        }
        line += length + (line[length] == '\n');
    }
    return count;
}

bl_oom bl_oom_get(void)
{
    char *text = bl_alloc(32768, 1);
    bl_oom oom = {.in_group = count_in_group(), .in_machine = -1};
    if (text != NULL && read_small("/proc/vmstat", text, 32768))
        oom.in_machine = number_of(text, "oom_kill");
    bl_free(text);
    return oom;
}

bl_oom bl_oom_since(const bl_oom *before)
{
    bl_oom now = bl_oom_get();
    return (bl_oom){
        .in_group = now.in_group < 0 || before->in_group < 0 ? -1 : now.in_group - before->in_group,
        .in_machine = now.in_machine < 0 || before->in_machine < 0 ? -1 : now.in_machine - before->in_machine,
    };
}

bool bl_machine_counts_otherwise(void)
{
    static const char first[] = "pid:[4026531836]"; /* number of the first space of process numbers, since Linux 3.8 */
    char name[64];
    ssize_t n = readlink("/proc/self/ns/pid", name, sizeof name);
    return n != (ssize_t)strlen(first) || memcmp(name, first, strlen(first)) != 0;
}

/* ---- core files -------------------------------------------------------------------------------------------------------------- */

/* kernel.core_pattern for one process: %p and %e are known, what else stands there cannot be. */
static bool expand(const char *pattern, pid_t pid, const char *program, bool with_pid, bl_text *path)
{
    bool has_pid = false;
    for (const char *at = pattern; *at != '\0'; at++) {
        if (*at != '%') {
            bl_text_add_bytes(path, at, 1);
            continue;
        }
        at++;
        if (*at == '%')
            bl_text_add(path, "%");
        else if (*at == 'p' || *at == 'P')
            bl_text_format(path, "%d", (int)pid);
        else if (*at == 'e')
            bl_text_format(path, "%.15s", program);
        else
            return false;
        has_pid = has_pid || *at == 'p' || *at == 'P';
    }
    if (with_pid && !has_pid)
        bl_text_format(path, ".%d", (int)pid);
    return !path->failed;
}

static void look(bl_core *out, const bl_text *path, int64_t since)
{
    struct stat status;
    if (stat(bl_text_get(path), &status) != 0 || !S_ISREG(status.st_mode) || (int64_t)status.st_mtime < since)
        return;
    out->is_file = true;
    snprintf(out->where, sizeof out->where, "%s", bl_text_get(path));
}

void bl_core_find(pid_t pid, const char *program, int64_t since, bl_core *out)
{
    char uses_pid[16] = "0";
    const char *name = strrchr(program, '/');
    bl_text path = {0};
    *out = (bl_core){0};
    if (!read_small("/proc/sys/kernel/core_pattern", out->pattern, sizeof out->pattern))
        return;
    out->pattern[strcspn(out->pattern, "\n")] = '\0';
    if (out->pattern[0] == '|') {
        bool systemd = strstr(out->pattern, "systemd-coredump") != NULL;
        snprintf(out->where, sizeof out->where, systemd ? "coredumpctl info %d" : "handed to a program, pid %d",
                 (int)pid);
        return;
    }
    (void)read_small("/proc/sys/kernel/core_uses_pid", uses_pid, sizeof uses_pid);
    if (expand(out->pattern, pid, name != NULL ? name + 1 : program, uses_pid[0] == '1', &path))
        look(out, &path, since);
    bl_text_fini(&path);
}
