/* SPDX-License-Identifier: Apache-2.0 */
/* Modes from code, and functions under guard. */
#include <belay/debug.h>

#include <execinfo.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "device/cpu/blas.h"
#include "op/op.h"
#include "tensor/place.h"

/* Says words that are no fault. */
static void say(belay_context *context, belay_code code, bl_text *words)
{
    bl_context_tell_refused(context);
    if (context->log != NULL && !words->failed)
        context->log(context->log_state, code, bl_text_get(words));
    bl_text_fini(words);
}

/* ---- modes ----------------------------------------------------------------------------------------------------------- */

static bool is_switch(belay_switch value) { return (int)value >= 0 && value <= BELAY_SWITCH_OFF; }

static belay_code check_options(belay_context *context, const belay_debug_options *o)
{
    if (!is_switch(o->launch_blocking) || !is_switch(o->poison) || !is_switch(o->trace_nonfinite))
        return bl_context_raise(context, BELAY_CONF_VALUE,
                                "a switch of belay_debug_options is neither kept, on nor off");
    if ((int)o->sync_debug < 0 || o->sync_debug > BELAY_SYNC_DEBUG_ERROR)
        return bl_context_raise(context, BELAY_CONF_VALUE, "sync_debug is %d, which is no mode of it",
                                (int)o->sync_debug);
    if ((int)o->memory < 0 || o->memory > BELAY_MEMORY_EXACT_LEFT)
        return bl_context_raise(context, BELAY_CONF_VALUE, "memory is %d, which is no memory mode", (int)o->memory);
    return BELAY_OK;
}

static void set_sync_debug(belay_context *context, belay_sync_debug mode)
{
    if (mode == BELAY_SYNC_DEBUG_DEFAULT)
        return;
    context->modes.sync_debug = mode;
    context->modes.by[BL_MODE_SYNC_DEBUG] = BL_MODE_BY_CALL;
}

static belay_code set_modes(belay_context *context, const belay_debug_options *o)
{
    TRY(check_options(context, o));
    if (o->launch_blocking != BELAY_SWITCH_KEEP) {
        context->launch_blocking = o->launch_blocking == BELAY_SWITCH_ON;
        context->modes.by[BL_MODE_LAUNCH_BLOCKING] = BL_MODE_BY_CALL;
    }
    if (o->trace_nonfinite != BELAY_SWITCH_KEEP)
        context->trace_nonfinite = o->trace_nonfinite == BELAY_SWITCH_ON;
    set_sync_debug(context, o->sync_debug);
    bl_device_options wanted = context->device_options;
    if (o->memory != BELAY_MEMORY_DEFAULT)
        wanted.memory = (bl_memory_mode)(o->memory - 1);
    if (o->poison != BELAY_SWITCH_KEEP)
        wanted.poison = o->poison == BELAY_SWITCH_ON;
    return bl_modes_memory_set(context, &wanted);
}

static void describe_setup(const belay_context *context, bl_text *out)
{
    static const char *const names[BL_N_MODES] = {"launch blocking", "sync debug", "memory"};
    char words[96];
    bl_text_add(out, "belay: debug setup\n");
    for (int i = 0; i < context->n_places; i++) {
        bl_device *device = context->places[i].device;
        int threads = device->api->threads(device);
        bl_text_format(out, "    device: %s, %d thread%s, %s%s%s\n", device->name, threads, threads == 1 ? "" : "s",
                       device->api->synchronous ? "synchronous" : "asynchronous", i == context->here ? ", current" : "",
                       device->api->loss(device) != NULL ? ", lost" : "");
    }
    bl_text_format(out, "    versions: belay %s, blas %s, openmp %d\n", BELAY_VERSION, bl_cpu_blas_describe(), _OPENMP);
    for (int mode = 0; mode < BL_N_MODES; mode++) {
        bl_mode_describe(context, mode, words, sizeof words);
        bl_text_format(out, "    %s: %s\n", names[mode], words);
    }
    bl_text_format(out, "    non-finite tracing: %s\n", context->trace_nonfinite ? "on" : "off");
}

belay_code belay_debug_setup(belay_context *context, const belay_debug_options *options)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return bl_caller_code(BELAY_CONF_ORDER);
    bl_text words = {0};
    bl_modes_look(context);
    belay_code code = options != NULL ? set_modes(context, options) : BELAY_OK;
    if (code != BELAY_OK)
        return code;
    describe_setup(context, &words);
    say(context, BELAY_OK, &words);
    return BELAY_OK;
}

belay_sync_debug belay_sync_debug_set(belay_context *context, belay_sync_debug mode)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return BELAY_SYNC_DEBUG_DEFAULT;
    belay_sync_debug was = context->modes.sync_debug;
    bl_modes_look(context);
    if (check_options(context, &(belay_debug_options){.sync_debug = mode}) == BELAY_OK)
        set_sync_debug(context, mode);
    return was;
}

belay_sync_debug belay_sync_debug_get(const belay_context *context)
{
    return BL_ASK(context) ? context->modes.sync_debug : BELAY_SYNC_DEBUG_DEFAULT;
}

/* ---- a function under guard ------------------------------------------------------------------------------------------ */

enum { MAX_FRAMES = 64, N_LARGEST = 5 };

typedef struct guard {
    belay_context *context;
    uintptr_t site; /* of the guarded call */
    bool was_blocking;
    void (*before)(void *state, const bl_report_fault *fault);
    void *before_state;
    int64_t n_faults;
    belay_code first;
    int n_frames; /* return addresses at the first fault, the innermost first */
    void *frame[MAX_FRAMES];
    uintptr_t entry; /* the one from Belay into its caller */
} guard;

static void see(void *state, const bl_report_fault *fault)
{
    guard *g = state;
    if (belay_code_severity(fault->code) != BELAY_SEVERITY_WARNING && g->n_faults++ == 0) {
        g->first = fault->code;
        g->n_frames = backtrace(g->frame, MAX_FRAMES);
        g->entry = g->context->entry;
    }
    if (g->before != NULL)
        g->before(g->before_state, fault);
}

static int find_frame(const guard *g, uintptr_t address)
{
    for (int i = 0; i < g->n_frames; i++)
        if ((uintptr_t)g->frame[i] == address)
            return i;
    return -1;
}

/* The program's frames: from the one that called Belay to the one that called the guard, but those of guards: that of
 * this one stands before the last, and others are the same place in the code. */
static void describe_frames(const guard *g, bl_text *out)
{
    char site[256];
    int first = find_frame(g, g->entry), last = find_frame(g, g->site);
    for (int i = first >= 0 ? first : 0; i < g->n_frames && (last < 0 || i <= last); i++) {
        if (last > 0 && g->frame[i] == g->frame[last - 1])
            continue;
        bl_context_site(g->context, (uintptr_t)g->frame[i], site, sizeof site);
        bl_text_format(out, "    %s: %s\n", i == first ? "at" : "from", site);
    }
}

static void describe_devices(const belay_context *context, bl_text *out)
{
    for (int i = 0; i < context->n_places; i++) {
        bl_device *device = context->places[i].device;
        int64_t in_use, held, peak;
        bl_pool_memory(device->api->pool(device), &in_use, &held, &peak);
        bl_text_format(out, "    device %s: %" PRId64 " bytes in use, %" PRId64 " held, %" PRId64 " at most%s\n",
                       device->name, in_use, held, peak, device->api->loss(device) != NULL ? "; it is lost" : "");
    }
}

/* Puts a slot among the largest, each storage once. */
static void rank_slot(const bl_slot *largest[N_LARGEST], const bl_slot *slot)
{
    for (int i = 0; i < N_LARGEST; i++)
        if (largest[i] != NULL && largest[i]->storage == slot->storage)
            return;
    for (int i = 0; i < N_LARGEST; i++) {
        if (largest[i] != NULL && largest[i]->storage->n_bytes >= slot->storage->n_bytes)
            continue;
        memmove(&largest[i + 1], &largest[i], (size_t)(N_LARGEST - i - 1) * sizeof(const bl_slot *));
        largest[i] = slot;
        return;
    }
}

static void describe_tensors(const belay_context *context, bl_text *out)
{
    const bl_slot *largest[N_LARGEST] = {NULL};
    char site[256];
    for (int64_t s = 1; s < context->n_slots; s++)
        if (bl_slot_at(context, (uint32_t)s)->is_alive)
            rank_slot(largest, bl_slot_at(context, (uint32_t)s));
    for (int i = 0; i < N_LARGEST && largest[i] != NULL; i++) {
        const bl_storage *storage = largest[i]->storage;
        const char *name = bl_journal_text_get(context->journal, storage->name);
        bl_context_site(context, storage->site, site, sizeof site);
        bl_text_format(out, "    tensor %s: %" PRId64 " bytes on %s, made at %s\n",
                       name[0] != '\0' ? name : "without a name", storage->n_bytes,
                       context->places[storage->place].device->name, site);
    }
}

static void tell_guarded(const guard *g)
{
    char site[256];
    bl_text words = {0};
    bl_context_site(g->context, g->site, site, sizeof site);
    bl_text_format(&words, "belay: a guarded function met %" PRId64 " fault%s, first %s\n    called at: %s\n",
                   g->n_faults, g->n_faults == 1 ? "" : "s", belay_code_name(g->first), site);
    describe_frames(g, &words);
    describe_devices(g->context, &words);
    describe_tensors(g->context, &words);
    say(g->context, g->first, &words);
}

static belay_code begin_guard(guard *g, belay_context *context, bool has_function)
{
    __attribute__((cleanup(bl_enter_end), unused)) bl_enter call = bl_enter_call(context, g->site);
    if (!belay_is_open(context))
        return bl_caller_code(BELAY_CONF_ORDER);
    bl_modes_look(context);
    if (!has_function)
        return bl_context_raise(context, BELAY_CONF_MISSING, "belay_guarded was given no function");
    (void)bl_place_settle(context, NULL); /* faults in flight are not the function's */
    g->context = context;
    g->was_blocking = context->launch_blocking;
    g->before = context->fault_observer;
    g->before_state = context->observer_state;
    context->launch_blocking = true;
    context->n_guarded++;
    context->fault_observer = see;
    context->observer_state = g;
    return BELAY_OK;
}

/* Faults of what it has launched are the function's, whatever it has done to the modes. */
static void end_guard(guard *g)
{
    belay_context *context = g->context;
    __attribute__((cleanup(bl_enter_end), unused)) bl_enter call = bl_enter_call(context, g->site);
    (void)bl_place_settle(context, NULL);
    context->n_guarded--;
    context->launch_blocking = g->was_blocking;
    context->fault_observer = g->before;
    context->observer_state = g->before_state;
    if (g->n_faults > 0)
        tell_guarded(g);
}

/* The function's calls are outermost ones, so that each has its own site: the guard itself is in none while it runs. */
belay_code belay_guarded(belay_context *context, belay_guarded_function function, void *arg)
{
    guard g = {.site = (uintptr_t)__builtin_return_address(0)};
    belay_code code = begin_guard(&g, context, function != NULL);
    if (code != BELAY_OK || context == NULL || g.context == NULL) /* it did not begin */
        return code;
    function(context, arg);
    end_guard(&g);
    return g.first;
}
