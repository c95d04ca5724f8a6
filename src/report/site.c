/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* dladdr */
#include "report/site.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef BL_HAVE_LIBDW
#include <elfutils/libdwfl.h>
#endif

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

#ifdef BL_HAVE_LIBDW
/* One lookup at a time: libdw's state is not shared between threads. */
static pthread_mutex_t lookup_lock = PTHREAD_MUTEX_INITIALIZER;

/* Separate debug files are looked for beside the binary and under /usr/lib/debug, never on the network. */
static char *debug_path = NULL;
static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_linux_proc_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .debuginfo_path = &debug_path,
};

static bool find_line(uintptr_t address, char *out, size_t size)
{
    bool found = false;
    pthread_mutex_lock(&lookup_lock);
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (dwfl != NULL && dwfl_linux_proc_report(dwfl, getpid()) == 0 && dwfl_report_end(dwfl, NULL, NULL) == 0) {
        Dwfl_Line *line = dwfl_getsrc(dwfl, address);
        int number = 0;
        const char *file = line != NULL ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
        if (file != NULL && number > 0) {
            snprintf(out, size, "%s:%d", base_name(file), number);
            found = true;
        }
    }
    if (dwfl != NULL)
        dwfl_end(dwfl);
    pthread_mutex_unlock(&lookup_lock);
    return found;
}
#else
static bool find_line(uintptr_t address, char *out, size_t size)
{
    (void)address, (void)out, (void)size;
    return false;
}
#endif

void bl_report_site(uintptr_t address, char *out, size_t size)
{
    if (address == 0) {
        snprintf(out, size, "unknown");
        return;
    }
    uintptr_t call = address - 1; /* inside of the call instruction */
    if (find_line(call, out, size))
        return;
    Dl_info info;
    if (dladdr((void *)call, &info) == 0 || info.dli_fname == NULL)
        snprintf(out, size, "%p", (void *)call);
    else if (info.dli_sname != NULL)
        snprintf(out, size, "%s+0x%zx", info.dli_sname, (size_t)(address - (uintptr_t)info.dli_saddr));
    else
        snprintf(out, size, "%s+0x%zx", base_name(info.dli_fname), (size_t)(address - (uintptr_t)info.dli_fbase));
}
