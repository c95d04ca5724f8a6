/* SPDX-License-Identifier: Apache-2.0 */
/* For finding what is wrong: modes set from code, a function under guard, a look at a tensor's values. */
#ifndef BELAY_DEBUG_H
#define BELAY_DEBUG_H

#include <belay/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- modes ----------------------------------------------------------------------------------------------------------- */

typedef enum belay_switch { BELAY_SWITCH_KEEP = 0, BELAY_SWITCH_ON = 1, BELAY_SWITCH_OFF = 2 } belay_switch;

/* Zero keeps what is in force. */
typedef struct belay_debug_options {
    belay_switch launch_blocking; /* wait for every launch: a fault surfaces at the call that made it */
    belay_sync_debug sync_debug;
    belay_memory_mode memory; /* before the context's first tensor; later it has no effect: conf.late */
    belay_switch poison;      /* likewise */
    belay_switch trace_nonfinite;
} belay_debug_options;

/* Sets modes, and tells the log (with code BELAY_OK) the devices of the context, versions of libraries, and all modes
 * with who set them.  NULL options set nothing.  Faults: conf.value, conf.late (a warning), mem.exhausted. */
BELAY_API BELAY_MUST_USE belay_code belay_debug_setup(belay_context *context, const belay_debug_options *options);

/* Sync debug alone; returns how it was.  DEFAULT, and what is no mode (conf.value), change nothing. */
BELAY_API belay_sync_debug belay_sync_debug_set(belay_context *context, belay_sync_debug mode);
BELAY_API belay_sync_debug belay_sync_debug_get(const belay_context *context);

/* ---- a function under guard ------------------------------------------------------------------------------------------ */

typedef void (*belay_guarded_function)(belay_context *context, void *arg);

/* Runs the function with launch blocking on.  When it meets a fault, the log gets one more paragraph behind the fault's
 * own when the function has returned: the lines from the first faulting call up to this one, the figures of each device's
 * memory, and the five largest tensors that live, with the lines that made them.  Returns the code of that fault.
 * Warnings are none. */
BELAY_API BELAY_MUST_USE belay_code belay_guarded(belay_context *context, belay_guarded_function function, void *arg);

/* ---- a tensor's values ----------------------------------------------------------------------------------------------- */

/* A look that was asked for; its tensors are temporaries of the innermost scope.  All zero after a fault. */
typedef struct belay_bounds {
    belay_tensor edges, found;
    belay_shape shape; /* of the tensor looked at */
} belay_bounds;

#define BELAY_MAX_OUTSIDE 4

typedef struct belay_bounds_answer {
    double min, max;   /* NaN aside; NaN where there is no other value.  Whole numbers past 2^53 are rounded */
    int64_t n;         /* elements */
    int64_t n_outside; /* not in [low, high); every NaN is one of them */
    int n_first;       /* the first of those: at[k] are the coordinates in the tensor's axes, element[k] is row-major */
    int64_t element[BELAY_MAX_OUTSIDE];
    int64_t at[BELAY_MAX_OUTSIDE][BELAY_MAX_RANK];
} belay_bounds_answer;

/* Looks for values outside of [low, high) in a tensor of any dtype and shape.  Nothing waits: the look is a launch like
 * any other, on the tensor's device and its current stream.  No fault is raised for what it finds.  Faults: life.stale,
 * conf.value (a bound is NaN), mem.exhausted. */
BELAY_API belay_bounds belay_check_bounds(belay_tensor tensor, double low, double high);

/* What it found; a fence.  After a fault, an answer of no elements.  Faults: life.stale, when the scope of the look has
 * closed; conf.missing; mem.exhausted. */
BELAY_API BELAY_MUST_USE belay_code belay_bounds_get(belay_bounds bounds, belay_bounds_answer *out);

#ifdef __cplusplus
}
#endif
#endif
