/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that are not in this build: the same symbols, and they say so. */
#include <stddef.h>

#include "device/device.h"

static belay_code absent(const char *kind, const bl_device_options *options, bl_error *error)
{
    return bl_error_set(error, BELAY_PLACE_ABSENT, "device %s:%d is not in this build", kind, options->ordinal);
}

static belay_code open_cuda(const bl_device_options *options, bl_device **out, bl_error *error)
{
    *out = NULL;
    return absent("cuda", options, error);
}

static int count_none(void) { return 0; }

extern const bl_device_api bl_device_cuda;
const bl_device_api bl_device_cuda = {.kind = "cuda", .open = open_cuda, .count = count_none};
