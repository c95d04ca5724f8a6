/* SPDX-License-Identifier: Apache-2.0 */
/* The context: device, faults, scopes, the step.  One thread uses a context at a time; different contexts are
 * independent.  Nothing here prints, exits or aborts. */
#ifndef BELAY_CONTEXT_H
#define BELAY_CONTEXT_H

#include <belay/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gets each fault and warning as the paragraph that a person reads.  Called on the thread that uses the context, in the
 * middle of the call that met it: of that context it may ask questions, and change nothing. */
typedef void (*belay_log_function)(void *state, belay_code code, const char *text);

/* Writes the paragraph to stderr. */
BELAY_API void belay_log_stderr(void *state, belay_code code, const char *text);

/* What is said of a program that makes the host wait for an asynchronous device: PyTorch's set_sync_debug_mode. */
typedef enum belay_sync_debug {
    BELAY_SYNC_DEBUG_DEFAULT = 0, /* as BELAY_SYNC_DEBUG says, else off */
    BELAY_SYNC_DEBUG_OFF = 1,
    BELAY_SYNC_DEBUG_WARN = 2, /* run.sync, once for each line and reason; how often in all when the context closes */
    BELAY_SYNC_DEBUG_ERROR = 3 /* run.sync_refused: there is no wait, and so no value */
} belay_sync_debug;

/* How the memory of tensors lies. */
typedef enum belay_memory_mode {
    BELAY_MEMORY_DEFAULT = 0,   /* as BELAY_MEMORY says, else pool */
    BELAY_MEMORY_POOL = 1,      /* blocks of size classes, kept for re-use */
    BELAY_MEMORY_REDZONE = 2,   /* the same between bytes of a known pattern, which are looked at when a block dies */
    BELAY_MEMORY_EXACT = 3,     /* each its own pages, really freed, ending at an inaccessible page */
    BELAY_MEMORY_EXACT_LEFT = 4 /* likewise, beginning behind one */
} belay_memory_mode;

/* What becomes of an operation whose tensors lie on several devices. */
typedef enum belay_place {
    BELAY_PLACE_STRICT = 0, /* it is refused: place.device names two of them */
    BELAY_PLACE_MOVE = 1 /* the others are copied to where the module's tensors lie, or the first: place.moved says so
                               once for each line, belay_n_moved counts */
} belay_place;

/* Where a field has its default, the environment is asked, once, by belay_open:
 *
 *   BELAY_LAUNCH_BLOCKING  0, 1
 *   BELAY_SYNC_DEBUG       off, warn, error
 *   BELAY_MEMORY           pool, redzone, exact, exact-left; with ",poison" behind it if wanted
 *
 * A value that is none of them is conf.value.  What is set or changed later has no effect and is told once: conf.late. */
typedef struct belay_options {
    const char *device; /* "cpu" (NULL), "sim:N", "cuda:N" */
    uint64_t seed;
    belay_log_function log; /* NULL: faults are kept and not told */
    void *log_state;
    int threads;                     /* 0: the processors that this process may use */
    belay_index_policy index_policy; /* 0: raise */
    belay_place place;
    const char *journal; /* path; NULL: a file in TMPDIR, removed by belay_close */
    bool no_journal;
    bool launch_blocking; /* a fault surfaces at the call that made it; on `cpu` it always does */
    belay_sync_debug sync_debug;
    belay_memory_mode memory;
    bool poison;          /* fresh memory holds NaN, freed memory another pattern: what reads it is seen */
    bool trace_nonfinite; /* look at every output for Inf and NaN: slow */
    const char *trace;    /* path of a time line for Perfetto, written as the run goes; NULL: none */
    int rank;             /* printed in reports */
} belay_options;

/* Opens a context; NULL options mean all defaults.  Never NULL: on failure the fault goes to the log and a nil context
 * comes back, whose tensors are nil and whose belay_close gives the status. */
BELAY_API belay_context *belay_open(const belay_options *options);

/* Frees everything of the context: tensors, modules, optimizers, loaders.  Gives an exit status: 0 when no fault has
 * come since the last step that was applied, else that of the first one's group; 3 where it would be 0 and this rank gave
 * a group up (belay_group_abort), and 6 whenever a device was lost.  From then on handles of tensors and scopes find no
 * context and do nothing; the pointer itself, and those to modules, optimizers, data and runs, must not be used.  Refused
 * (conf.order) inside of a call that uses the context: a forward, a function of the user's, one under guard. */
BELAY_API int belay_close(belay_context *context);

/* False for a context that could not be opened. */
BELAY_API bool belay_is_open(const belay_context *context);

/* ---- faults ---------------------------------------------------------------------------------------------------------- */

/* One fault as it was named.  Texts belong to the context and live until belay_faults_clear or belay_close. */
typedef struct belay_fault {
    belay_code code;
    const char *op;      /* "embedding"; "" where no op is involved */
    const char *operand; /* name of the tensor with the bad element, or "" */
    const char *layer;   /* "classifier.lstm", or "" */
    const char *site;    /* "train.c:88", or "function+0x1c" */
    const char *sample;  /* "train.tsv:213", or "" */
    const char *text;    /* the whole paragraph */
    const char *json;    /* every fact as one JSON object, as a line of faults.jsonl begins */
    int64_t element;     /* lowest bad element, linear; -1 where there is none */
    int64_t got;         /* its value */
    int64_t limit;       /* the bound it had to stay below */
    uint64_t count;      /* bad elements of the launch */
    uint64_t step;
    uint32_t epoch;
    uint32_t position; /* of the batch in its epoch */
    uint32_t micro_batch;
} belay_fault;

/* Faults since the context was opened or belay_faults_clear; the first since the last applied step is number 0 of those
 * that came after it.  The first 256 are kept, and the one in front wherever it stands; belay_n_faults counts all. */
BELAY_API int64_t belay_n_faults(const belay_context *context);
BELAY_API bool belay_fault_get(const belay_context *context, int64_t number, belay_fault *out);
/* The first fault since the last applied step; false when there is none. */
BELAY_API bool belay_fault_first(const belay_context *context, belay_fault *out);
BELAY_API void belay_faults_clear(belay_context *context);

/* Raises a fault of the caller's own (a dataset, a user's op): as if Belay had found it here.  A code that is no fault's
 * is conf.value. */
BELAY_API void belay_fault_raise(belay_context *context, belay_code code, const char *format, ...) BELAY_PRINTF(3, 4);

/* A label that stands in reports as the site, for callers from other languages.  Copied.  "": reports name no
 * site, for a program whose own lines say nothing to its user. */
BELAY_API void belay_site_push(belay_context *context, const char *label);
BELAY_API void belay_site_pop(belay_context *context);

/* ---- scopes ---------------------------------------------------------------------------------------------------------- */

/* Owns the temporaries made while it is the innermost one.  docs/lifetime.md has the rules.  A small handle as
 * belay_tensor is: closing one twice, one that was made up or one of a closed context is never undefined. */
typedef struct belay_scope {
    uint32_t context; /* which context, 0 for nil */
    uint32_t depth;
    uint32_t serial;
} belay_scope;

BELAY_API belay_scope belay_scope_open(belay_context *context);
BELAY_API void belay_scope_close(belay_scope scope);

/* Hands a temporary to the next outer scope; returns it. */
BELAY_API belay_tensor belay_keep(belay_tensor tensor);

/* ---- modes ----------------------------------------------------------------------------------------------------------- */

/* Switches recording for backward; returns how it was.  Off, forward keeps nothing and faults gate no step. */
BELAY_API bool belay_recording_set(belay_context *context, bool recording);
BELAY_API bool belay_recording_get(const belay_context *context);

/* Where the run is: printed in reports and the key of random numbers.  A hand-written loop need not call it: then the
 * position counts backward calls. */
BELAY_API void belay_position_set(belay_context *context, uint32_t epoch, uint32_t position);

/* Memory of the device in bytes: in use, held for re-use, and the most that was in use. */
typedef struct belay_memory {
    int64_t in_use;
    int64_t held;
    int64_t peak;
} belay_memory;
BELAY_API belay_memory belay_memory_get(const belay_context *context);
BELAY_API int belay_threads_get(const belay_context *context);
BELAY_API const char *belay_device_get(const belay_context *context);

#ifdef __cplusplus
}
#endif
#endif
