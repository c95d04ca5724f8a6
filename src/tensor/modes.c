/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/modes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/context.h"

static const char *const variables[BL_N_MODES] = {"BELAY_LAUNCH_BLOCKING", "BELAY_SYNC_DEBUG", "BELAY_MEMORY"};
static const char *const sync_names[] = {"default", "off", "warn", "error"};
static const char *const memory_names[BL_N_MEMORY_MODES] = {"pool", "redzone", "exact", "exact-left"};

const char *bl_sync_debug_name(belay_sync_debug mode) { return sync_names[mode]; }
const char *bl_memory_mode_name(bl_memory_mode mode) { return memory_names[mode]; }

static const char *value_of(int mode)
{
    const char *value = getenv(variables[mode]);
    return value != NULL ? value : "";
}

/* The place of a text of `n` bytes in a list, -1: it is not there. */
static int find(const char *const *names, int n_names, const char *text, size_t n)
{
    for (int i = 0; i < n_names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], text, n) == 0)
            return i;
    return -1;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

static belay_code refuse_variable(int mode, const char *value, const char *what, const char *choices, bl_error *error)
{
    bl_error_set(error, BELAY_CONF_VALUE, "%s is \"%.40s\", which is no %s", variables[mode], value, what);
    bl_error_advise(error, "Set it to %s, or unset it.", choices);
    return BELAY_CONF_VALUE;
}

static belay_code read_blocking(belay_context *context, const char *value, bl_error *error)
{
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return refuse_variable(BL_MODE_LAUNCH_BLOCKING, value, "switch", "0 or 1", error);
    context->launch_blocking = value[0] == '1';
    return BELAY_OK;
}

static belay_code read_sync_debug(belay_context *context, const char *value, bl_error *error)
{
    int found = find(sync_names + 1, 3, value, strlen(value));
    if (found < 0)
        return refuse_variable(BL_MODE_SYNC_DEBUG, value, "mode of sync debug", "off, warn or error", error);
    context->modes.sync_debug = (belay_sync_debug)(found + 1);
    return BELAY_OK;
}

static belay_code read_memory(belay_context *context, const char *value, bl_error *error)
{
    const char *comma = strchr(value, ',');
    int found = find(memory_names, BL_N_MEMORY_MODES, value, comma != NULL ? (size_t)(comma - value) : strlen(value));
    if (found < 0 || (comma != NULL && strcmp(comma, ",poison") != 0))
        return refuse_variable(BL_MODE_MEMORY, value, "memory mode",
                               "pool, redzone, exact or exact-left, with \",poison\" behind it if wanted", error);
    context->device_options.memory = (bl_memory_mode)found;
    context->device_options.poison = comma != NULL;
    return BELAY_OK;
}

static belay_code check_options(const belay_options *options, bl_error *error)
{
    if ((int)options->sync_debug < 0 || options->sync_debug > BELAY_SYNC_DEBUG_ERROR)
        return bl_error_set(error, BELAY_CONF_VALUE, "sync_debug is %d, which is no mode of it",
                            (int)options->sync_debug);
    if ((int)options->memory < 0 || options->memory > BELAY_MEMORY_EXACT_LEFT)
        return bl_error_set(error, BELAY_CONF_VALUE, "memory is %d, which is no memory mode", (int)options->memory);
    return BELAY_OK;
}

static void take_options(belay_context *context, const belay_options *options)
{
    bl_modes *m = &context->modes;
    if (options->launch_blocking) {
        context->launch_blocking = true;
        m->by[BL_MODE_LAUNCH_BLOCKING] = BL_MODE_BY_OPTIONS;
    }
    if (options->sync_debug != BELAY_SYNC_DEBUG_DEFAULT) {
        m->sync_debug = options->sync_debug;
        m->by[BL_MODE_SYNC_DEBUG] = BL_MODE_BY_OPTIONS;
    }
    if (options->memory != BELAY_MEMORY_DEFAULT) {
        context->device_options.memory = (bl_memory_mode)(options->memory - 1);
        context->device_options.poison = false;
        m->by[BL_MODE_MEMORY] = BL_MODE_BY_OPTIONS;
    }
    context->device_options.poison = context->device_options.poison || options->poison;
}

belay_code bl_modes_open(belay_context *context, const belay_options *options, bl_error *error)
{
    static belay_code (*const readers[BL_N_MODES])(belay_context *, const char *,
                                                   bl_error *) = {read_blocking, read_sync_debug, read_memory};
    bl_modes *m = &context->modes;
    m->sync_debug = BELAY_SYNC_DEBUG_OFF;
    TRY(check_options(options, error));
    for (int i = 0; i < BL_N_MODES; i++) {
        snprintf(m->seen[i], sizeof m->seen[i], "%s", value_of(i));
        if (m->seen[i][0] == '\0')
            continue;
        TRY(readers[i](context, value_of(i), error));
        m->by[i] = BL_MODE_BY_VARIABLE;
    }
    take_options(context, options);
    return BELAY_OK;
}

/* ---- words ----------------------------------------------------------------------------------------------------------- */

void bl_mode_describe(const belay_context *context, int mode, char *out, size_t size)
{
    static const char *const by[] = {"default", NULL, "belay_options", "set by a call"};
    const bl_modes *m = &context->modes;
    const char *value = mode == BL_MODE_LAUNCH_BLOCKING ? (context->launch_blocking ? "on" : "off")
                        : mode == BL_MODE_SYNC_DEBUG    ? bl_sync_debug_name(m->sync_debug)
                                                        : bl_memory_mode_name(context->device_options.memory);
    bool is_poisoned = mode == BL_MODE_MEMORY && context->device_options.poison;
    snprintf(out, size, "%s%s (%s)", value, is_poisoned ? " with poison" : "",
             m->by[mode] == BL_MODE_BY_VARIABLE ? variables[mode] : by[m->by[mode]]);
}

/* ---- memory, from code ----------------------------------------------------------------------------------------------- */

static bool has_been_used(const belay_context *context)
{
    return context->n_births > 0 || context->n_launches > 0 || context->n_places != 1;
}

static void tell_late_memory(belay_context *context, const bl_device_options *wanted)
{
    bl_error error;
    char words[96];
    bl_error_set(&error, BELAY_CONF_LATE, "memory mode %s%s was asked for after memory had been used",
                 bl_memory_mode_name(wanted->memory), wanted->poison ? " with poison" : "");
    bl_mode_describe(context, BL_MODE_MEMORY, words, sizeof words);
    bl_error_fact(&error, "in force: memory %s", words);
    bl_error_advise(&error, "Call belay_debug_setup before the first tensor is made, or give memory in belay_options.");
    bl_context_raise_error(context, &error);
}

belay_code bl_modes_memory_set(belay_context *context, const bl_device_options *wanted)
{
    bl_place *place = &context->places[0];
    bl_device *fresh = NULL;
    bl_error error;
    if (wanted->memory == context->device_options.memory && wanted->poison == context->device_options.poison)
        return BELAY_OK;
    if (has_been_used(context)) {
        tell_late_memory(context, wanted);
        return BELAY_OK;
    }
    char name[sizeof place->device->name];
    snprintf(name, sizeof name, "%s", place->device->name);
    if (bl_device_open(name, wanted, &fresh, &error) != BELAY_OK)
        return bl_context_raise_error(context, &error);
    bl_device_close(place->device);
    place->device = context->device = fresh;
    context->device_options = *wanted;
    context->modes.by[BL_MODE_MEMORY] = BL_MODE_BY_CALL;
    return BELAY_OK;
}

/* ---- variables that came late ---------------------------------------------------------------------------------------- */

static void tell_late(belay_context *context, int mode)
{
    static const char *const names[BL_N_MODES] = {"launch blocking", "sync debug", "memory"};
    bl_error error;
    char words[96];
    const char *value = value_of(mode);
    if (value[0] != '\0')
        bl_error_set(&error, BELAY_CONF_LATE, "%s was set to \"%.40s\" after the context had been opened",
                     variables[mode], value);
    else
        bl_error_set(&error, BELAY_CONF_LATE, "%s was unset after the context had been opened", variables[mode]);
    bl_mode_describe(context, mode, words, sizeof words);
    bl_error_fact(&error, "in force: %s %s", names[mode], words);
    if (mode == BL_MODE_MEMORY)
        bl_error_advise(&error, "Set it before the context is opened, or give memory in belay_options.");
    else
        bl_error_advise(&error, "Set it before the context is opened, or call belay_debug_setup.");
    bl_context_raise_error(context, &error);
}

void bl_modes_look(belay_context *context)
{
    bl_modes *m = &context->modes;
    for (int i = 0; i < BL_N_MODES; i++)
        if (!m->is_late[i] && strncmp(m->seen[i], value_of(i), sizeof m->seen[i] - 1) != 0) {
            m->is_late[i] = true;
            tell_late(context, i);
        }
}

/* ---- waits ----------------------------------------------------------------------------------------------------------- */

/* True at a site's first time for that reason. */
static bool count_wait(belay_context *context, const char *why)
{
    bl_modes *m = &context->modes;
    m->n_waited++;
    for (int i = 0; i < m->n_waits; i++)
        if (m->waits[i].site == context->site && strcmp(m->waits[i].why, why) == 0) {
            m->waits[i].n++;
            return false;
        }
    if (m->n_waits == BL_MAX_WAITS)
        return false;
    m->waits[m->n_waits].site = context->site;
    m->waits[m->n_waits].why = why;
    m->waits[m->n_waits++].n = 1;
    return true;
}

static void warn_of_wait(belay_context *context, int place, const char *why)
{
    if (count_wait(context, why))
        bl_context_raise(context, BELAY_RUN_SYNC, "the host waited for %s: %s", context->places[place].device->name,
                         why);
}

belay_code bl_modes_wait(belay_context *context, int place, const char *why)
{
    if (context->modes.sync_debug == BELAY_SYNC_DEBUG_ERROR)
        return bl_context_raise(context, BELAY_RUN_SYNC_REFUSED, "the host would have waited for %s: %s",
                                context->places[place].device->name, why);
    bl_modes_waits(context, place, why);
    return BELAY_OK;
}

void bl_modes_waits(belay_context *context, int place, const char *why)
{
    if (context->modes.sync_debug != BELAY_SYNC_DEBUG_OFF)
        warn_of_wait(context, place, why);
}

static void tell_waits(belay_context *context)
{
    const bl_modes *m = &context->modes;
    bl_error error;
    if (m->n_waited <= (uint64_t)m->n_waits)
        return; /* each has been told */
    bl_error_set(&error, BELAY_RUN_SYNC, "the host waited for devices %" PRIu64 " times", m->n_waited);
    uint64_t rest = m->n_waited;
    for (int i = 0; i < m->n_waits && i < 8; i++) {
        char site[256];
        bl_context_site(context, m->waits[i].site, site, sizeof site);
        if (site[0] == '\0') /* of a program whose lines say nothing to its user */
            bl_error_fact(&error, "%s: %" PRIu64, m->waits[i].why, m->waits[i].n);
        else
            bl_error_fact(&error, "at %s, %s: %" PRIu64, site, m->waits[i].why, m->waits[i].n);
        rest -= m->waits[i].n;
    }
    if (rest > 0 && rest < m->n_waited)
        bl_error_fact(&error, "elsewhere: %" PRIu64, rest);
    bl_context_raise_error(context, &error);
}

void bl_modes_close(belay_context *context)
{
    bl_modes_look(context);
    tell_waits(context);
}
