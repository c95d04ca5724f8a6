/* SPDX-License-Identifier: Apache-2.0 */
/* Who calls: a context is used by the process that opened it, and never from a thread that a loader runs (unless that
 * thread opened it).  What comes from elsewhere is refused: nothing of the context is touched, nil is returned, and the
 * call is named by its site.
 *
 *   a loader's worker  the first refused call is noted with the worker; the loader tells it as the fault of the sample
 *                      whose get made the call (place.worker)
 *   a forked child     told at once, once for each site, to the context's log (place.fork).  What the parent shares with
 *                      its child - journal, files - is not touched; the faults kept are the child's own
 *
 * A call costs one comparison and one look at a variable of its thread. */
#ifndef BL_TENSOR_CALLER_H
#define BL_TENSOR_CALLER_H

#include <stdbool.h>
#include <stdint.h>

#include <belay/types.h>

/* A thread that a loader runs.  `site` is its own while it is in a get. */
typedef struct bl_caller_worker {
    int64_t number;
    uintptr_t site; /* of the first refused call, 0: none */
} bl_caller_worker;

/* The worker that this thread is, NULL: none. */
extern _Thread_local bl_caller_worker *bl_caller_here __attribute__((tls_model("initial-exec")));
/* Forks between the process in which Belay was first used and this one; written in a child before it runs anything. */
extern uint32_t bl_caller_forks;

/* A context that was found by a handle, and may not be used here: kept for the call that knows its site. */
extern _Thread_local belay_context *bl_caller_refused __attribute__((tls_model("initial-exec")));

/* The context notes who opened it. */
void bl_caller_open(belay_context *context);

/* Tells that a call at `site` was refused; always false.  NULL: of the context that was kept. */
bool bl_caller_refuse(belay_context *context, uintptr_t site);
/* The same around a call that may make others: those say nothing more.  False when it is one of them. */
bool bl_caller_begin(belay_context *context, uintptr_t site);
void bl_caller_end(void);
/* Keeps the context for the call that knows its site. */
void bl_caller_keep(belay_context *context);
/* The code for which the call at work was refused, or `otherwise`. */
belay_code bl_caller_code(belay_code otherwise);

/* Whether the faults that the context keeps may be read here: always, but for workers, and children that have none. */
bool bl_caller_has_faults(const belay_context *context);

#endif
