/* SPDX-License-Identifier: Apache-2.0 */
/* The list of devices. */
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"

extern const bl_device_api bl_device_cpu;
extern const bl_device_api bl_device_sim;
extern const bl_device_api bl_device_cuda;

static const bl_device_api *const devices[] = {&bl_device_cpu, &bl_device_sim, &bl_device_cuda};

static const bl_device_api *find_kind(const char *name, size_t length)
{
    for (int i = 0; i < BL_COUNT(devices); i++)
        if (strlen(devices[i]->kind) == length && memcmp(devices[i]->kind, name, length) == 0)
            return devices[i];
    return NULL;
}

/* "cpu", "sim:1": kind and ordinal; false when the text has another form. */
static bool parse_name(const char *name, const bl_device_api **api, int *ordinal)
{
    const char *colon = strchr(name, ':');
    size_t length = colon != NULL ? (size_t)(colon - name) : strlen(name);
    char *end = NULL;
    long number = colon != NULL ? strtol(colon + 1, &end, 10) : 0;
    if (colon != NULL && (end == colon + 1 || *end != '\0' || number < 0 || number > 1023))
        return false;
    *api = find_kind(name, length);
    *ordinal = (int)number;
    return *api != NULL;
}

bool bl_device_is_kind(const char *name) { return find_kind(name, strlen(name)) != NULL; }

/* The kind that was meant, with the number that was given.  Who asks for a GPU means no CPU, near as the words are. */
static void tell_nearest(const char *name, bl_error *error)
{
    size_t length = strcspn(name, ":");
    char kind[16];
    bl_nearest best = {0};
    snprintf(kind, sizeof kind, "%.*s", (int)(length < sizeof kind ? length : sizeof kind - 1), name);
    for (int i = 0; i < BL_COUNT(devices); i++)
        bl_nearest_offer(&best, kind, devices[i]->kind);
    if (strcmp(kind, "gpu") == 0)
        best.name = bl_device_cuda.kind;
    if (best.name != NULL && find_kind(name, length) == NULL)
        bl_error_fact(error, "did you mean %s%.8s?", best.name, name + length);
}

belay_code bl_device_open(const char *name, const bl_device_options *options, bl_device **out, bl_error *error)
{
    const bl_device_api *api;
    bl_device_options given = *options;
    *out = NULL;
    if (!parse_name(name, &api, &given.ordinal)) {
        bl_error_set(error, BELAY_CONF_VALUE, "device is \"%.40s\", which names no device", name);
        bl_error_fact(error, "devices: cpu, sim:N, cuda:N");
        tell_nearest(name, error);
        return BELAY_CONF_VALUE;
    }
    return api->open(&given, out, error);
}

void bl_device_close(bl_device *device)
{
    if (device != NULL)
        device->api->close(device);
}

const bl_device_api *bl_device_kind(int number)
{
    return number >= 0 && number < BL_COUNT(devices) ? devices[number] : NULL;
}
