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

/* Where a plug-in may lie as seen from here. */
static const char *const below[] = {"", "/../lib/belay", "/belay"};

static bool is_in(const char *folder, const char *name, bl_text *path)
{
    bl_text_clear(path);
    bl_text_format(path, "%s/libbelay_%s.so", folder, name);
    return !path->failed && access(bl_text_get(path), F_OK) == 0;
}

/* *folder: where it is, of the places around `here`; "" where it is in none. */
static void find_around(const char *here, const char *name, bl_text *folder)
{
    bl_text path = {0};
    bool is_there = false;
    for (int i = 0; i < BL_COUNT(below) && !is_there; i++) {
        bl_text_clear(folder);
        bl_text_format(folder, "%s%s", here, below[i]);
        is_there = is_in(bl_text_get(folder), name, &path);
    }
    if (!is_there)
        bl_text_clear(folder);
    bl_text_fini(&path);
}

void bl_transport_find(const char *name, bl_text *folder)
{
    char here[PATH_SIZE];
    bl_text_clear(folder);
    if (find_here(here))
        find_around(here, name, folder);
}

static belay_code open_plugin(const char *path, const bl_transport_api **out, bl_error *error)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle != NULL)
        return check(handle, path, out, error);
    const char *why = dlerror();
    bl_error_set(error, BELAY_COMM_ABSENT, "the plug-in %.300s cannot be loaded", path);
    bl_error_fact(error, "%s", why != NULL ? why : "no reason was given");
    return BELAY_COMM_ABSENT;
}

static belay_code say_absent(const char *name, const char *chosen, const char *here, bl_error *error)
{
    bl_error_set(error, BELAY_COMM_ABSENT, "libbelay_%s.so is not found", name);
    if (chosen != NULL)
        bl_error_fact(error, "looked in: %s (BELAY_PLUGINS)", chosen);
    for (int i = 0; i < BL_COUNT(below) && chosen == NULL; i++)
        bl_error_fact(error, "looked in: %s%s", here, below[i]);
    return BELAY_COMM_ABSENT;
}

static belay_code load(const char *name, const bl_transport_api **out, bl_error *error)
{
    const char *chosen = getenv("BELAY_PLUGINS");
    char here[PATH_SIZE] = "";
    bl_text folder = {0}, path = {0};
    chosen = chosen != NULL && chosen[0] != '\0' ? chosen : NULL;
    if (chosen != NULL)
        bl_text_add(&folder, chosen);
    else if (find_here(here))
        find_around(here, name, &folder);
    bool is_there = folder.n_bytes > 0 && is_in(bl_text_get(&folder), name, &path);
    bool lacks_memory = folder.failed || path.failed;
    belay_code code = lacks_memory ? bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to look for a plug-in")
                      : is_there   ? open_plugin(bl_text_get(&path), out, error)
                                   : say_absent(name, chosen, here, error);
    bl_text_fini(&folder);
    bl_text_fini(&path);
    return code;
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
