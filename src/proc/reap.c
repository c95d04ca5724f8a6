/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* syscall */
#include "proc/reap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"

belay_code bl_reap_open(bl_error *error)
{
    char reason[128];
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) == 0)
        return BELAY_OK;
    return bl_error_set(error, BELAY_FILE_OPEN, "cannot become the parent of orphaned processes: %s",
                        bl_error_errno(errno, reason));
}

/* ---- /proc ------------------------------------------------------------------------------------------------------------ */

/* The fields of /proc/PID/stat; the name stands in brackets and may hold anything, brackets too. */
static bool parse(const char *line, bl_process *out)
{
    const char *open = strchr(line, '('), *close = strrchr(line, ')');
    if (open == NULL || close == NULL || close < open)
        return false;
    size_t length = (size_t)(close - open - 1);
    snprintf(out->name, sizeof out->name, "%.*s", (int)(length < sizeof out->name ? length : sizeof out->name - 1),
             open + 1);
    int parent;
    unsigned long long user, system, started;
    long threads;
    if (sscanf(close + 1,
               " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %ld %*d %llu", // NOLINT
               &out->state, &parent, &user, &system, &threads, &started) != 6)
        return false;
    out->parent = parent;
    out->ticks = user + system;
    out->threads = threads;
    out->started = started;
    return true;
}

bool bl_process_get(pid_t pid, bl_process *out)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    if (n <= 0)
        return false;
    line[n] = '\0';
    *out = (bl_process){.pid = pid};
    return parse(line, out);
}

bool bl_process_is_below_us(pid_t pid)
{
    enum { DEEPEST = 64 }; /* parents may end while we climb, and their numbers become others' */
    bl_process process;
    for (int depth = 0; depth < DEEPEST && pid > 1 && bl_process_get(pid, &process); depth++) {
        if (process.parent == getpid())
            return true;
        pid = process.parent;
    }
    return false;
}

static bool read_all(bl_processes *all)
{
    DIR *folder = opendir("/proc");
    if (folder == NULL)
        return false;
    bool whole = true;
    for (struct dirent *entry; whole && (entry = readdir(folder)) != NULL;) {
        bl_process process;
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            !bl_process_get((pid_t)strtol(entry->d_name, NULL, 10), &process))
            continue;
        whole = bl_grow(&all->process, &all->capacity, all->n + 1, (int64_t)sizeof process);
        if (whole)
            all->process[all->n++] = process;
    }
    closedir(folder);
    return whole;
}

static void swap(bl_processes *list, int64_t a, int64_t b)
{
    bl_process kept = list->process[a];
    list->process[a] = list->process[b];
    list->process[b] = kept;
}

static bool is_zombie(const bl_process *process) { return process->state == 'Z' || process->state == 'X'; }

/* Moves the children of `parent` to the place *n. */
static void take_children(bl_processes *all, pid_t parent, int64_t *n)
{
    for (int64_t i = *n; i < all->n; i++)
        if (all->process[i].parent == parent && !is_zombie(&all->process[i]))
            swap(all, i, (*n)++);
}

bool bl_processes_list(pid_t root, bl_processes *out)
{
    *out = (bl_processes){0};
    if (!read_all(out))
        return false;
    int64_t n = 0;
    take_children(out, root, &n);
    for (int64_t i = 0; i < n; i++)
        take_children(out, out->process[i].pid, &n);
    out->n = n;
    return true;
}

void bl_processes_fini(bl_processes *list)
{
    bl_free(list->process);
    *list = (bl_processes){0};
}

/* ---- signals ----------------------------------------------------------------------------------------------------------- */

static int hold(pid_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0);
#else
    errno = ENOSYS;
    return -1;
#endif
}

/* Signals a process that was listed, unless its number has become another's. */
static void signal_listed(const bl_process *listed, int number)
{
    bl_process now;
    int held = hold(listed->pid);
    if (held < 0 && errno != ENOSYS && errno != EPERM)
        return;
    if (bl_process_get(listed->pid, &now) && now.started == listed->started) {
#ifdef SYS_pidfd_send_signal
        if (held < 0 || syscall(SYS_pidfd_send_signal, held, number, NULL, 0) != 0)
#endif
            (void)kill(listed->pid, number);
    }
    if (held >= 0)
        close(held);
}

int64_t bl_reap_signal(int number)
{
    bl_processes list;
    int64_t n = -1;
    if (bl_processes_list(getpid(), &list)) {
        n = list.n;
        for (int64_t i = 0; i < list.n; i++)
            signal_listed(&list.process[i], number);
    }
    bl_processes_fini(&list);
    return n;
}
