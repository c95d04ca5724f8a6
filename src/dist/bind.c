/* SPDX-License-Identifier: Apache-2.0 */
/* Binding ranks to devices: all say theirs, and all see who took whose. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <belay/devices.h>

#include "device/device.h"
#include "dist/calls.h"
#include "tensor/place.h"

enum { NAME_SIZE = 16, HOST_SIZE = 56 };

/* In a word: `more` holds the device's name, then the host's; `value` its number, -1: a shared one; `n_batch` the lowest
 * rank of the host; `digest` local rank and size; `scale` whether a number was given. */
static const char *host_of(const bl_word *word) { return word->more + NAME_SIZE; }

static bool is_explicit(const char *device) { return strchr(device, ':') != NULL; }

/* "sim" -> "sim:1" for local rank 1; what is no kind of device is refused as it was given. */
static bool name_of(const belay_group *group, const char *device, char out[NAME_SIZE])
{
    bool takes_local = bl_device_is_kind(device) && strcmp(device, "cpu") != 0;
    int n = takes_local ? snprintf(out, NAME_SIZE, "%s:%d", device, group->place.local_rank)
                        : snprintf(out, NAME_SIZE, "%s", device);
    return n > 0 && n < NAME_SIZE;
}

/* Two ranks that would work on one device, or -1. */
static int shared_with(const bl_word *all, int rank)
{
    for (int r = 0; r < rank; r++)
        if (all[rank].value >= 0 && all[r].n_batch == all[rank].n_batch &&
            strncmp(all[r].more, all[rank].more, NAME_SIZE) == 0)
            return r;
    return -1;
}

/* Its number is the rank among all, and no rank of its host has that number. */
static bool is_global(const bl_word *word, int rank)
{
    int64_t local_rank = (int64_t)(word->digest >> 32), local_size = (int64_t)(word->digest & UINT32_MAX);
    return word->scale != 0 && word->value == rank && rank != local_rank && word->value >= local_size;
}

static void tell_table(const bl_word *all, int size, bl_report_fault *fault)
{
    for (int r = 0; r < size; r++)
        bl_report_fault_fact(fault, "rank %d: %.*s, local rank %d on %.*s", r, NAME_SIZE - 1, all[r].more,
                             (int)(all[r].digest >> 32), HOST_SIZE - 1, host_of(&all[r]));
}

belay_code bl_bind_check(const bl_word *all, int size, bl_report_fault *fault)
{
    bl_report_fault_init(fault, BELAY_PLACE_SHARED);
    for (int r = 0; r < size && fault->what[0] == '\0'; r++) {
        if (!is_global(&all[r], r))
            continue;
        snprintf(fault->what, sizeof fault->what,
                 "rank %d took device %.*s: that is its rank among all, where the local rank was meant", r,
                 NAME_SIZE - 1, all[r].more);
        snprintf(fault->advice, sizeof fault->advice,
                 "Give belay_group_bind the kind of device alone: each rank then takes that of its local rank.");
    }
    for (int r = 0; r < size && fault->what[0] == '\0'; r++)
        if (shared_with(all, r) >= 0)
            snprintf(fault->what, sizeof fault->what, "ranks %d and %d are both on device %.*s of %.*s",
                     shared_with(all, r), r, NAME_SIZE - 1, all[r].more, HOST_SIZE - 1, host_of(&all[r]));
    if (fault->what[0] == '\0')
        return BELAY_OK;
    tell_table(all, size, fault);
    return BELAY_PLACE_SHARED;
}

static belay_code open_device(belay_group *group, const char *device, int *place, char name[NAME_SIZE])
{
    if (device != NULL && name_of(group, device, name))
        return bl_place_named(group->context, name, place);
    TRY(bl_place_named(group->context, device, place));
    return bl_context_raise(group->context, BELAY_CONF_VALUE, "the device's name '%.64s' has more than %d characters",
                            device, NAME_SIZE - 1);
}

void bl_bind_say(const bl_transport_place *p, const char *device, const char *name, bl_word *word)
{
    const char *colon = strchr(name, ':');
    word->value = colon != NULL ? strtol(colon + 1, NULL, 10) : -1;
    word->n_batch = p->leader;
    word->digest = (uint64_t)p->local_rank << 32 | (uint32_t)p->local_size;
    word->scale = is_explicit(device);
    snprintf(word->more, NAME_SIZE, "%s", name);
    snprintf(word->more + NAME_SIZE, HOST_SIZE, "%.*s", HOST_SIZE - 1, p->host);
}

static belay_code bind(belay_group *group, const char *device)
{
    char name[NAME_SIZE];
    int place = 0;
    belay_code code = open_device(group, device, &place, name);
    if (code != BELAY_OK) {
        bl_word word = bl_group_word(group, BL_CALL_BIND);
        word.flags |= BL_FLAG_REFUSED;
        snprintf(word.more, sizeof word.more, "%s", belay_code_name(code));
        belay_code met = bl_group_exchange(group, &word);
        return met != BELAY_OK ? met : code;
    }
    bl_word word = bl_group_word(group, BL_CALL_BIND);
    bl_bind_say(&group->place, device, name, &word);
    TRY(bl_group_exchange(group, &word));
    bl_report_fault fault;
    if (bl_bind_check(group->all, group->place.size, &fault) != BELAY_OK) {
        bl_group_break(group, &fault, NULL, 0);
        bl_group_look(group);
        return group->broken;
    }
    bl_place_go(group->context, place);
    group->is_bound = true;
    return BELAY_OK;
}

belay_code belay_group_bind(belay_group *group, const char *device)
{
    BL_ENTER(group != NULL ? group->context : NULL);
    if (!bl_group_ask(group))
        return bl_group_code(group);
    bl_group_look(group);
    if (group->broken != BELAY_OK)
        return group->broken;
    if (group->is_bound)
        return bl_context_raise(group->context, BELAY_CONF_ORDER, "a group was bound to a device twice");
    return bind(group, device);
}
