/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that run behind the host's back.  Each leaves a flight: all that a report about it needs, since by the time
 * that its fault is learned its tensors may be dead, its batch gone and the program elsewhere.  A flight holds the
 * storages that the report reads bad values from.
 *
 * A fault is told when the host has waited for its launch, or has seen that the end of its window was decided on the
 * device; never before, even if its record is there already.  So the same program is told the same, in the order of its
 * launches, on every run; only how late depends on the device.
 *
 * Flights lie in a ring as long as the journal's ring of launches.  The place of a launch that has not ended is taken
 * again all the same: the host waits for it, which is counted, and tells its fault. */
#ifndef BL_LAUNCH_FLIGHT_H
#define BL_LAUNCH_FLIGHT_H

#include "launch/prove.h"

/* Where the samples of a batch come from, in words. */
typedef struct bl_batch_origin {
    int64_t holders;
    int64_t n;
    char **words; /* n; NULL where there are none */
} bl_batch_origin;

typedef struct bl_flight {
    uint64_t serial; /* of the launch; 0: no flight */
    int place, stream;
    uint64_t number; /* of the command in its stream */
    int op;
    const char *as; /* as of its call, as the next */
    const char *const *role;
    bool is_backward;
    bool gates; /* its faults close the window's gate */
    uint64_t window;
    uintptr_t site; /* 0: where the call stands that tells */
    uint32_t layer;
    uint64_t step;
    uint32_t epoch, position, micro_batch;
    bl_params params;
    int n_shown;
    bl_shown shown[BL_MAX_IN + 1];
    bl_operand operand[BL_MAX_OPERANDS];
    bl_storage *held[BL_MAX_OPERANDS]; /* of operands that bad values are read from; NULL: not held */
    bl_batch_origin *origin;
    struct bl_custom *custom; /* held */
    bool has_record;          /* a fault that is not told yet */
    bl_fault_record record;
} bl_flight;

/* Makes room for the next launch of an asynchronous place: it may wait for the one that flew a whole ring before.  False
 * after mem.exhausted. */
bool bl_flight_make_room(belay_context *context, uint64_t serial);
/* Remembers a launch that was put into the current stream of its place. */
void bl_flight_begin(const bl_call *call, const bl_proof *proof);

/* Launch blocking: the device has ended the launch, and its fault is told.  To the clocks the host has not waited: the
 * mode hides no race. */
void bl_flight_end(belay_context *context, uint64_t serial);

/* Tells what the kernel of a launch on a synchronous device recorded: everything is still at hand. */
void bl_flight_tell_now(const bl_call *call, const bl_proof *proof);

/* Launches that made the host wait because the ring was full. */
uint64_t bl_flight_n_forced(const belay_context *context);

#endif
