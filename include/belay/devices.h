/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, streams and events.
 *
 * A context may use several devices; each is opened when it is first named.  A tensor lies on one.  Makers without
 * inputs (belay_tensor_from, belay_zeros, parameters) use the context's *current* device; ops run where their tensors
 * lie, whatever the current one is.
 *
 * `cpu` is synchronous.  On `sim` and `cuda` a call returns before its work is done; work of one stream runs in order,
 * work of two streams in any.  What a kernel meets surfaces at a fence (a value read, a wait, belay_close) and is told
 * with the site of the call that launched it.  Two streams that use one tensor, one of them writing, must be ordered by
 * an event: if they are not, the later call is refused as life.stream.  Memory is different: a tensor may be freed while
 * any stream still uses it; the block is not used again before. */
#ifndef BELAY_DEVICES_H
#define BELAY_DEVICES_H

#include <belay/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices --------------------------------------------------------------------------------------------------------- */

/* Makes a device ("cpu", "sim:1") the current one.  Faults: conf.value, place.absent, size.overflow (more than eight
 * devices in one context), mem.exhausted; the current one stays then. */
BELAY_API BELAY_MUST_USE belay_code belay_device_set(belay_context *context, const char *device);

/* The same until the guard is closed.  Guards close in the reverse order; another order, or twice, is life.scope. */
typedef struct belay_device_guard {
    uint32_t context; /* which context, 0 for nil */
    uint32_t depth;
    uint32_t serial;
} belay_device_guard;
BELAY_API belay_device_guard belay_device_guard_open(belay_context *context, const char *device);
BELAY_API void belay_device_guard_close(belay_device_guard guard);

/* Where a tensor lies ("sim:0"); "" for nil. */
BELAY_API const char *belay_tensor_device(belay_tensor tensor);

/* How many devices of a kind ("cpu", "sim", "cuda") there are; 0 for a kind that is none. */
BELAY_API int belay_n_devices(const char *kind);

/* The tensor on that device: itself when it lies there, else a copy, through which gradients flow back.  Waits for what
 * computes it.  Faults: as belay_device_set, life.stale, life.stream. */
BELAY_API belay_tensor belay_tensor_to(belay_tensor tensor, const char *device);

/* How many tensors were copied because belay_options.place is move. */
BELAY_API uint64_t belay_n_moved(const belay_context *context);

/* Waits for all work of all devices (or one) of the context; faults are told.  place.lost when one is. */
BELAY_API BELAY_MUST_USE belay_code belay_synchronise(belay_context *context);
BELAY_API BELAY_MUST_USE belay_code belay_device_synchronise(belay_context *context, const char *device);

/* True after an illegal access on it: every call on it is place.lost from then on, and only a new process has it again. */
BELAY_API bool belay_device_is_lost(const belay_context *context, const char *device);

/* Gives back to the system what the current device holds for re-use, and sets `n_bytes` (NULL: not asked) to how much.
 * It repairs nothing: place.lost on a lost device. */
BELAY_API BELAY_MUST_USE belay_code belay_device_empty_cache(belay_context *context, int64_t *n_bytes);

/* ---- streams and events ---------------------------------------------------------------------------------------------- */

/* Small handles, as tensors are: a closed stream's is life.stale. */
typedef struct belay_stream {
    uint32_t context; /* which context, 0 for nil */
    uint32_t slot;
    uint32_t generation;
} belay_stream;
typedef struct belay_event {
    uint32_t context; /* which context, 0 for nil */
    uint32_t stream;
    uint64_t serial;
} belay_event;

/* A stream of the current device; `name` (copied, may be NULL) stands in reports.  At most 8 on a device and 16 in a
 * context (size.overflow).  On a synchronous device it is the one that there is.  Nil after a fault. */
BELAY_API belay_stream belay_stream_open(belay_context *context, const char *name);
/* Waits for its work.  A device's current stream is its default one again when that was closed. */
BELAY_API void belay_stream_close(belay_stream stream);
static inline bool belay_stream_is_nil(belay_stream stream) { return stream.context == 0; }

/* The current stream of the current device, and making one current on its device; returns the one before. */
BELAY_API belay_stream belay_stream_current(belay_context *context);
BELAY_API belay_stream belay_stream_use(belay_stream stream);

/* The work of a stream so far.  The last 4,096 that nobody has waited for are kept; who waits for an older one waits for its
 * stream's latest of the older ones, too. */
BELAY_API belay_event belay_event_record(belay_stream stream);
/* What is put into `stream` from now on runs after the event; the host does not wait. */
BELAY_API BELAY_MUST_USE belay_code belay_stream_wait(belay_stream stream, belay_event event);
/* Whether the event's work has ended; once true, the host counts as having waited for it. */
BELAY_API bool belay_event_is_done(belay_event event);
BELAY_API BELAY_MUST_USE belay_code belay_event_synchronise(belay_event event);
BELAY_API BELAY_MUST_USE belay_code belay_stream_synchronise(belay_stream stream);

/* ---- copies that nobody waits for ------------------------------------------------------------------------------------ */

/* Memory of the host, for copies by a device while the program goes on: what CUDA calls pinned.  Belongs to its context.
 *
 * belay_tensor_from and belay_tensor_write take any memory, which is the caller's again when they return; a large copy
 * (more than 64 KiB) makes them wait.  belay_tensor_read waits always.  The calls below never wait: the copy runs in the
 * current stream of the tensor's device, and the bytes are the copy's until the host has waited for it (an event, the
 * stream, the device).  Two copies that use the same bytes, one of them writing, are ordered as tensors are.
 *
 * Bytes that were changed while a copy from them was under way are found when the host has waited for it: life.host.
 * Bytes that are read before the copy to them has ended are simply the old ones, or half of each: nothing can tell. */
typedef struct belay_host {
    uint32_t context; /* which context, 0 for nil */
    uint32_t slot;
    uint32_t generation;
} belay_host;

/* Zeros at 64-byte alignment.  Nil after conf.value, mem.exhausted. */
BELAY_API belay_host belay_host_new(belay_context *context, int64_t n_bytes);
/* NULL for nil, and after life.stale.  Valid until it is freed. */
BELAY_API void *belay_host_data(belay_host host);
BELAY_API int64_t belay_host_n_bytes(belay_host host);
/* Freed while a copy may still use it, it is life.host; the bytes stay until the copy has ended. */
BELAY_API void belay_host_free(belay_host host);
static inline bool belay_host_is_nil(belay_host host) { return host.context == 0; }

/* Copies all bytes of a contiguous tensor from host memory, or to it, from byte `offset` on.  Faults: life.stale,
 * shape.contract, size.extent, life.stream, place.lost, mem.exhausted; nothing is copied then. */
BELAY_API BELAY_MUST_USE belay_code belay_tensor_write_later(belay_tensor tensor, belay_host host, int64_t offset,
                                                             int64_t n_bytes);
BELAY_API BELAY_MUST_USE belay_code belay_tensor_read_later(belay_tensor tensor, belay_host host, int64_t offset,
                                                            int64_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
