/* SPDX-License-Identifier: Apache-2.0 */
/* belay info: what this build and this machine offer. */
#include <omp.h>
#include <unistd.h>
#include <utf8proc.h>
#ifdef BL_HAVE_LIBDW
#include <elfutils/version.h>
#endif

#include "cli/commands.h"
#include "device/cpu/blas.h"
#include "device/device.h"

/* One line of a section: what, and what is said of it. */
static void line(bl_cli *cli, json_t *section, const char *name, const char *value)
{
    if (cli->json) {
        bl_cli_put_text(cli, section, name, value);
        return;
    }
    fputs("  ", stdout);
    bl_cli_print(name, 16);
    bl_cli_print(value, 0);
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

static void tell_devices(bl_cli *cli)
{
    static const char *const names[] = {"cpu", "sim:0", "cuda:0"};
    json_t *object = section(cli, "devices");
    for (int i = 0; i < BL_COUNT(names); i++) {
        bl_error error = {0};
        bl_device *device = NULL;
        char words[512];
        if (bl_device_open(names[i], 0, &device, &error) == BELAY_OK)
            snprintf(words, sizeof words, "%d threads, %s", device->api->threads(device),
                     device->api->synchronous ? "synchronous" : "asynchronous");
        else
            snprintf(words, sizeof words, "%s (%s)", error.what, belay_code_name(error.code));
        bl_device_close(device);
        line(cli, object, names[i], words);
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

static void tell_modes(bl_cli *cli)
{
    json_t *object = section(cli, "modes");
    line(cli, object, "index policy", "raise (train: --index-policy)");
    line(cli, object, "launches", "a fault surfaces at its call on cpu (train: --launch-blocking elsewhere)");
    line(cli, object, "memory", "pool");
    line(cli, object, "non-finite", "not traced (train: --trace-nonfinite)");
}

static void tell_memory(bl_cli *cli)
{
    json_t *object = section(cli, "memory");
    const double gib = 1024.0 * 1024.0 * 1024.0;
    char words[64];
    double page = (double)sysconf(_SC_PAGESIZE);
    snprintf(words, sizeof words, "%.1f GiB of %.1f GiB free", (double)sysconf(_SC_AVPHYS_PAGES) * page / gib,
             (double)sysconf(_SC_PHYS_PAGES) * page / gib);
    line(cli, object, "machine", words);
    belay_context *context = bl_cli_open(cli, &(bl_cli_place){0});
    belay_memory m = belay_memory_get(context);
    snprintf(words, sizeof words, "%lld bytes in use, %lld held, peak %lld", (long long)m.in_use, (long long)m.held,
             (long long)m.peak);
    line(cli, object, "cpu", words);
    belay_close(context);
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
    tell_modes(cli);
    tell_memory(cli);
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
