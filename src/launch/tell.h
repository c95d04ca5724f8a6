/* SPDX-License-Identifier: Apache-2.0 */
/* From what a kernel recorded, or a device lost its context by, to the fault that is told. */
#ifndef BL_LAUNCH_TELL_H
#define BL_LAUNCH_TELL_H

#include "launch/flight.h"

/* One launch's bad elements.  `n_echoes` later records were met by the walk back over the same launch. */
void bl_tell_record(belay_context *context, const bl_flight *flight, const bl_fault_record *record, uint64_t n_echoes);

/* An illegal access: of the flight's kernel, or of one that is not known (NULL). */
void bl_tell_access(belay_context *context, const bl_flight *flight, int place, const bl_access *access);

#endif
