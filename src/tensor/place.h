/* SPDX-License-Identifier: Apache-2.0 */
/* The devices and streams of a context: where tensors lie, in which order what is done to them runs, when their memory
 * may be used again.  Rooms above reach a device's memory by these functions only.
 *
 * A synchronous device has one stream, on which nothing is ever in flight: there these functions are the device's own. */
#ifndef BL_TENSOR_PLACE_H
#define BL_TENSOR_PLACE_H

#include "tensor/context.h"

/* ---- places ---------------------------------------------------------------------------------------------------------- */

/* The number of the device of that name, opened if it is not yet; conf.value, place.absent, size.overflow. */
BL_MUST_USE belay_code bl_place_open(belay_context *context, const char *name, int *out, bl_error *error);
void bl_places_close(belay_context *context);
/* The journal was opened: from now on the streams stand in it.  It is about to be closed: nothing writes there. */
void bl_places_show(belay_context *context);
void bl_places_hide(belay_context *context);
/* The same with the fault raised. */
BL_MUST_USE belay_code bl_place_named(belay_context *context, const char *name, int *out);
bool bl_place_is_named(const bl_device *device, const char *name);
/* Makes a place the current one; returns the one before. */
int bl_place_go(belay_context *context, int place);

static inline bl_device *bl_slot_device(const belay_context *context, const bl_slot *slot)
{
    return context->places[slot->storage->place].device;
}
static inline bool bl_place_is_asynchronous(const belay_context *context, int place)
{
    return !context->places[place].device->api->synchronous;
}

/* bl_place_take on an asynchronous device. */
void *bl_place_take_behind(belay_context *context, int place, int64_t n_bytes, bl_uses *uses);
/* Memory at a place; NULL when there is none.  What is given back is handed out again to commands that are ordered
 * behind all its uses, which are noted in *uses (zeros before; NULL on a synchronous device), to others when the device
 * has ended them. */
static inline void *bl_place_take(belay_context *context, int place, int64_t n_bytes, bl_uses *uses)
{
    bl_device *device = context->places[place].device;
    return device->api->synchronous ? device->api->take(device, n_bytes)
                                    : bl_place_take_behind(context, place, n_bytes, uses);
}
void bl_place_give(belay_context *context, bl_storage *storage);
/* Gives the device all that waits and that its commands are through with. */
void bl_place_sweep(belay_context *context, int place);

/* Copies n_bytes between the host and a tensor's storage, `offset` bytes behind the tensor's first element.  The write
 * goes through the current stream of the tensor's device and is proved against other streams' uses (life.stream); for a
 * read, bl_place_fence comes first.  Faults are raised; place.lost. */
BL_MUST_USE belay_code bl_place_write(belay_context *context, const bl_slot *slot, int64_t offset, const void *host,
                                      int64_t n_bytes);
BL_MUST_USE belay_code bl_place_read(belay_context *context, const bl_slot *slot, int64_t offset, void *host,
                                     int64_t n_bytes);

/* ---- fences ---------------------------------------------------------------------------------------------------------- */

/* Before the host waits for a device: what that holds for ends, or fails by a deadline of its own.  Every wait of the
 * host for a device calls it. */
void bl_place_let_go(belay_context *context);

/* The host waits for all work of a device and learns of its faults, which are told; `why` says what for ("a tensor was
 * read").  place.lost, run.sync_refused. */
BL_MUST_USE belay_code bl_place_fence(belay_context *context, int place, const char *why);
/* The host waits for all devices, whatever sync debug says, and is told (`why` NULL: is not told) that it does. */
belay_code bl_place_settle(belay_context *context, const char *why);
/* What is put into the place's current stream from here on runs after all that was put into any stream.  No clock knows:
 * this is for words that kernels of all streams write, not for tensors. */
void bl_place_gather(belay_context *context, int place);
/* Tells the faults of launches that the host has waited for; waits for nothing. */
void bl_place_look(belay_context *context);
/* Tells what lost a device, once, and keeps its words for what comes of it. */
void bl_place_tell_loss(belay_context *context, int place);
/* Raises place.lost, after what lost the device when that has not been told yet.  From the second on they are echoes. */
belay_code bl_place_raise_lost(belay_context *context, int place);
/* Device and facts of a place.lost: the cause under that key, and how many calls were refused. */
void bl_place_describe_loss(const belay_context *context, int place, const char *key, bl_report_fault *fault);

/* ---- streams --------------------------------------------------------------------------------------------------------- */

static inline bl_stream *bl_place_stream(belay_context *context, int place)
{
    return &context->streams[context->places[place].stream];
}

/* A stream of the device in the context's list: its number there, or BL_STREAM_NONE when the list is full. */
int bl_place_enter_stream(belay_context *context, int place, int number);
int bl_place_default_stream(const belay_context *context, int place);
/* A stream that has ended all its work goes. */
void bl_place_forget_stream(belay_context *context, int number);

/* What is put into stream `number` from now on comes after the event. */
BL_MUST_USE belay_code bl_place_order(belay_context *context, int number, const bl_event *event);
/* What is put into the place's current stream from now on runs once *word is `value` or more, as bl_device_api.stream_hold
 * says; the host does not wait.  Nothing on a synchronous device. */
BL_MUST_USE belay_code bl_place_hold(belay_context *context, int place, const uint64_t *word, uint64_t value);
/* For a host that waits for something else than a device: work that goes on at the host's calls goes on. */
void bl_place_poll(belay_context *context);
/* The host waits for a stream up to a command; `clock` is what that is ordered behind. */
BL_MUST_USE belay_code bl_place_wait(belay_context *context, int number, uint64_t upto, const bl_clock *clock,
                                     const char *why);

/* Whether a command of the place's current stream may use the storage; when not, what it would race with. */
typedef struct bl_race {
    int stream; /* of the other use; BL_STREAM_NONE: no race */
    bool is_write;
    const bl_use *use;
} bl_race;
bl_race bl_place_race(belay_context *context, const bl_storage *storage, const bl_extent *extent, bool writes);
/* The bytes of its storage from a tensor's first to its last. */
bl_extent bl_place_extent(const bl_slot *slot);
/* The name of a stream of the context, by its number there: "copy", "1 of sim:0"; "" for a default one. */
void bl_place_describe_stream(const belay_context *context, int number, char *out, size_t size);
/* Fills in words and sites of life.stream; the rest is the caller's. */
void bl_place_describe_race(belay_context *context, const bl_storage *storage, bool writes, const bl_race *race,
                            bl_report_fault *fault);

/* The same of anything that has uses, for the stream `here`; `what` are words for it. */
void bl_place_describe_uses(belay_context *context, const char *what, int here, bool writes, const bl_race *race,
                            bl_report_fault *fault);

/* What is put into the place's current stream from here on is ordered behind what the host has waited for. */
void bl_place_begin(belay_context *context, int place);
/* A command was just put into the place's current stream; it used the storage. */
void bl_place_put(belay_context *context, int place);
void bl_place_note(belay_context *context, bl_storage *storage, const bl_extent *extent, bool writes, uint64_t launch,
                   uint32_t site);

#endif
