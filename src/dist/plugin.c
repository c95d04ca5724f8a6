/* SPDX-License-Identifier: Apache-2.0 */
/* Where plug-ins lie, and loading them. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "dist/transport.h"

enum { MAX_LOADED = 4, PATH_SIZE = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const bl_transport_api *loaded[MAX_LOADED];

/* The folder of this library, or of the program that holds it; false where it is not known.  A program's name may have
 * been found on PATH, and says nothing then. */
static bool find_here(char out[PATH_SIZE])
{
    Dl_info info;
    bool has_path =
        dladdr((const void *)&loaded, &info) != 0 && info.dli_fname != NULL && strchr(info.dli_fname, '/') != NULL;
    char *whole = has_path ? realpath(info.dli_fname, NULL) : NULL;
    whole = whole != NULL ? whole : realpath("/proc/self/exe", NULL);
    char *slash = whole != NULL ? strrchr(whole, '/') : NULL;
    if (slash != NULL)
        *slash = '\0';
    bool is_known = slash != NULL && snprintf(out, PATH_SIZE, "%s", whole) < PATH_SIZE;
    free(whole);
    return is_known;
}

static belay_code check(void *handle, const char *path, const bl_transport_api **out, bl_error *error)
{
    bl_transport_plugin_function ask = NULL;
    *(void **)&ask = dlsym(handle, BL_TRANSPORT_PLUGIN);
    const bl_transport_api *api = ask != NULL ? ask() : NULL;
    if (api == NULL || api->version != BL_TRANSPORT_VERSION) {
        bl_error_set(error, BELAY_COMM_ABSENT, "%.300s is no plug-in of this version of Belay", path);
        bl_error_advise(error, "Install the library and its plug-ins from one build.");
        return BELAY_COMM_ABSENT;
    }
    *out = api;
    return BELAY_OK;
}

/* BELAY_OK, comm.absent where a file is there that cannot be used, else *is_there is false. */
static belay_code try_folder(const char *folder, const char *below, const char *name, bool *is_there,
                             const bl_transport_api **out, bl_error *error)
{
    char path[PATH_SIZE + 64];
    snprintf(path, sizeof path, "%s%s/libbelay_%s.so", folder, below, name);
    if (!(*is_there = access(path, F_OK) == 0))
        return BELAY_COMM_ABSENT;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle != NULL)
        return check(handle, path, out, error);
    const char *why = dlerror();
    bl_error_set(error, BELAY_COMM_ABSENT, "the plug-in %.300s cannot be loaded", path);
    bl_error_fact(error, "%s", why != NULL ? why : "no reason was given");
    return BELAY_COMM_ABSENT;
}

static belay_code load(const char *name, const bl_transport_api **out, bl_error *error)
{
    static const char *const below[] = {"", "/../lib/belay", "/belay"};
    const char *chosen = getenv("BELAY_PLUGINS");
    char here[PATH_SIZE] = "";
    bool is_chosen = chosen != NULL && chosen[0] != '\0', is_there = false;
    if (is_chosen) {
        belay_code code = try_folder(chosen, "", name, &is_there, out, error);
        if (is_there)
            return code;
    } else if (find_here(here)) {
        for (int i = 0; i < BL_COUNT(below) && !is_there; i++) {
            belay_code code = try_folder(here, below[i], name, &is_there, out, error);
            if (is_there)
                return code;
        }
    }
    bl_error_set(error, BELAY_COMM_ABSENT, "libbelay_%s.so is not found", name);
    if (is_chosen)
        bl_error_fact(error, "looked in: %s (BELAY_PLUGINS)", chosen);
    else
        for (int i = 0; i < BL_COUNT(below); i++)
            bl_error_fact(error, "looked in: %s%s", here, below[i]);
    return BELAY_COMM_ABSENT;
}

belay_code bl_transport_load(const char *name, const bl_transport_api **out, bl_error *error)
{
    belay_code code = BELAY_OK;
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < MAX_LOADED && loaded[i] != NULL && strcmp(loaded[i]->name, name) != 0)
        i++;
    if (i < MAX_LOADED && loaded[i] != NULL)
        *out = loaded[i];
    else
        code = load(name, out, error);
    if (code == BELAY_OK && i < MAX_LOADED)
        loaded[i] = *out;
    pthread_mutex_unlock(&lock);
    return code;
}
