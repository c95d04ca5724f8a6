/* SPDX-License-Identifier: Apache-2.0 */
/* belay info: what this build and this machine offer. */
#include <belay/dlpack_abi.h>

#include <omp.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>
#ifdef BL_HAVE_LIBDW
#include <elfutils/version.h>
#endif

#include "base/checked.h"
#include "cli/commands.h"
#include "device/cpu/blas.h"
#include "device/device.h"
#include "tensor/context.h"

/* One line of a section: what, and what is said of it. */
static void line(bl_cli *cli, json_t *section, const char *name, const char *value)
{
    if (cli->json) {
        bl_cli_put_text(cli, section, name, value);
        return;
    }
    fputs("  ", stdout);
    bl_cli_print(cli, name, 16);
    bl_cli_print(cli, value, 0);
    putchar('\n');
}

static json_t *section(bl_cli *cli, const char *name)
{
    json_t *object = NULL;
    if (cli->json)
        bl_cli_put(cli, cli->document, name, object = json_object());
    else
        printf("%s\n", name);
    return object;
}

static void tell_device(bl_cli *cli, json_t *object, const char *name)
{
    bl_error error = {0};
    bl_device *device = NULL;
    char words[512];
    bool is_here = bl_device_open(name, &(bl_device_options){0}, &device, &error) == BELAY_OK;
    int threads = is_here ? device->api->threads(device) : 0;
    if (cli->json) {
        json_t *entry = json_object();
        bl_cli_put(cli, entry, "is_here", json_boolean(is_here));
        bl_cli_put_int(cli, entry, "threads", threads);
        bl_cli_put_text(cli, entry, "why_not", is_here ? NULL : error.what);
        bl_cli_put(cli, object, name, entry);
    } else {
        if (is_here)
            snprintf(words, sizeof words, "%d thread%s, %s", threads, threads == 1 ? "" : "s",
                     device->api->synchronous ? "synchronous" : "asynchronous");
        else
            snprintf(words, sizeof words, "%s (%s)", error.what, belay_code_name(error.code));
        line(cli, object, name, words);
    }
    bl_device_close(device);
}

/* Of each kind those that are here; of one that is not, why. */
static void tell_devices(bl_cli *cli)
{
    json_t *object = section(cli, "devices");
    char name[32];
    const bl_device_api *api;
    for (int kind = 0; (api = bl_device_kind(kind)) != NULL; kind++) {
        int n = api->count();
        for (int i = 0; i < (n > 0 ? n : 1); i++) {
            snprintf(name, sizeof name, "%s:%d", api->kind, i);
            tell_device(cli, object, strcmp(api->kind, "cpu") == 0 ? api->kind : name);
        }
    }
}

static void tell_libraries(bl_cli *cli)
{
    json_t *object = section(cli, "libraries");
    char words[64];
    line(cli, object, "blas", bl_cpu_blas_describe());
    snprintf(words, sizeof words, "%d", _OPENMP);
    line(cli, object, "openmp", words);
    line(cli, object, "jansson", jansson_version_str());
    line(cli, object, "utf8proc", utf8proc_version());
    line(cli, object, "unicode", utf8proc_unicode_version());
    snprintf(words, sizeof words, "%d.%d", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
    line(cli, object, "dlpack", words);
#ifdef BL_HAVE_LIBDW
    snprintf(words, sizeof words, "0.%d", _ELFUTILS_VERSION);
    line(cli, object, "libdw", words);
#endif
}

static void tell_build(bl_cli *cli)
{
    json_t *object = section(cli, "build");
    line(cli, object, "compiler", BELAY_COMPILER);
    line(cli, object, "type", BELAY_BUILD);
    line(cli, object, "left out", BELAY_LEFT_OUT[0] != '\0' ? BELAY_LEFT_OUT : "nothing");
}

/* What a context would have that is opened here and now, from the environment. */
static void tell_modes(bl_cli *cli, const belay_context *context)
{
    static const char *const names[BL_N_MODES] = {"launch blocking", "sync debug", "memory"};
    char words[96];
    json_t *object = section(cli, "modes");
    line(cli, object, "index policy", "raise (train: --index-policy)");
    for (int mode = 0; mode < BL_N_MODES && belay_is_open(context); mode++) {
        bl_mode_describe(context, mode, words, sizeof words);
        line(cli, object, names[mode], words);
    }
    line(cli, object, "non-finite", "not traced (train: --trace-nonfinite)");
}

/* Bytes: a number in the document, MiB for people. */
static void tell_bytes(bl_cli *cli, json_t *object, const char *name, int64_t n_bytes)
{
    char words[64];
    if (cli->json) {
        bl_cli_put_int(cli, object, name, n_bytes);
        return;
    }
    snprintf(words, sizeof words, "%.1f MiB", (double)n_bytes / 1048576);
    line(cli, object, name, words);
}

static void tell_memory(bl_cli *cli, const belay_context *context)
{
    json_t *object = section(cli, "memory");
    int64_t page = sysconf(_SC_PAGESIZE), n_pages, n_free;
    if (bl_checked_mul(page, sysconf(_SC_PHYS_PAGES), &n_pages) &&
        bl_checked_mul(page, sysconf(_SC_AVPHYS_PAGES), &n_free)) {
        tell_bytes(cli, object, "machine", n_pages);
        tell_bytes(cli, object, "machine free", n_free);
    }
    belay_memory m = belay_memory_get(context);
    tell_bytes(cli, object, "cpu in use", m.in_use);
    tell_bytes(cli, object, "cpu peak", m.peak);
}

static int run_info(bl_cli *cli)
{
    if (cli->json)
        bl_cli_put_text(cli, cli->document, "version", BELAY_VERSION);
    else
        printf("belay %s\n", BELAY_VERSION);
    tell_devices(cli);
    tell_libraries(cli);
    tell_build(cli);
    belay_context *context = bl_cli_open(cli, &(bl_cli_place){0});
    tell_modes(cli, context);
    tell_memory(cli, context);
    belay_close(context);
    return bl_cli_end(cli, cli->status_of_told);
}

const bl_command bl_cli_info = {
    .name = "info",
    .arguments = "",
    .says = "devices, libraries, versions, modes, memory in use",
    .more = "",
    .example = "belay info",
    .rows = NULL,
    .n_rows = 0,
    .options_bytes = 1,
    .min_arguments = 0,
    .max_arguments = 0,
    .run = run_info,
};
