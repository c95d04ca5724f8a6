/* SPDX-License-Identifier: Apache-2.0 */
/* The modes of a context: who set each, what the environment said, and what sync debug does about a wait.
 *
 *   BELAY_LAUNCH_BLOCKING  0, 1
 *   BELAY_SYNC_DEBUG       off, warn, error
 *   BELAY_MEMORY           pool, redzone, exact, exact-left; with ",poison" behind it if wanted
 *
 * They are read by belay_open.  What belay_options sets wins; a variable that changed later has no effect, which is told
 * once (conf.late). */
#ifndef BL_TENSOR_MODES_H
#define BL_TENSOR_MODES_H

#include <belay/context.h>

#include "base/error.h"
#include "device/device.h"

enum { BL_MODE_LAUNCH_BLOCKING, BL_MODE_SYNC_DEBUG, BL_MODE_MEMORY, BL_N_MODES };
typedef enum bl_mode_by { BL_MODE_BY_DEFAULT, BL_MODE_BY_VARIABLE, BL_MODE_BY_OPTIONS, BL_MODE_BY_CALL } bl_mode_by;

enum { BL_MAX_WAITS = 64, BL_VARIABLE_SIZE = 40 };

typedef struct bl_modes {
    belay_sync_debug sync_debug; /* never the default */
    uint8_t by[BL_N_MODES];
    char seen[BL_N_MODES][BL_VARIABLE_SIZE]; /* the variables when they were read; "": not set */
    bool is_late[BL_N_MODES];                /* that one changed is told */
    int n_waits;                             /* sites, those that fit */
    uint64_t n_waited;                       /* times, at all sites */
    struct {
        uintptr_t site;
        const char *why;
        uint64_t n;
    } waits[BL_MAX_WAITS];
} bl_modes;

/* Sets the modes of a context that is being opened; conf.value. */
BL_MUST_USE belay_code bl_modes_open(belay_context *context, const belay_options *options, bl_error *error);
/* Sets memory mode and poison, while nothing has been made on the only device; else conf.late, a warning.  mem.exhausted
 * and other failures to open the device again. */
BL_MUST_USE belay_code bl_modes_memory_set(belay_context *context, const bl_device_options *wanted);
/* Tells variables that changed since; for calls that are made once a micro-batch, or less often. */
void bl_modes_look(belay_context *context);
/* Tells what belay_close has to: late variables, how often the host was made to wait, and where. */
void bl_modes_close(belay_context *context);

/* Before the program makes the host wait for the device at a place; `why` says what for.  run.sync_refused: it must not. */
BL_MUST_USE belay_code bl_modes_wait(belay_context *context, int place, const char *why);
/* The same where the host has to wait, whatever sync debug says. */
void bl_modes_waits(belay_context *context, int place, const char *why);

/* "sync debug: warn (BELAY_SYNC_DEBUG)", without the name. */
void bl_mode_describe(const belay_context *context, int mode, char *out, size_t size);
const char *bl_sync_debug_name(belay_sync_debug mode);
const char *bl_memory_mode_name(bl_memory_mode mode);

#endif
