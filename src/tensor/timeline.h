/* SPDX-License-Identifier: Apache-2.0 */
/* The context's trace: calls of the host, work on streams, faults and memory on one time line.  Without a trace none of
 * this is reached. */
#ifndef BL_TENSOR_TIMELINE_H
#define BL_TENSOR_TIMELINE_H

#include "tensor/context.h"

/* Begins the file; the devices that are opened later tell when they run what. */
BL_MUST_USE belay_code bl_timeline_open(belay_context *context, const char *path, bl_error *error);
/* Ends it; what could not be written is told. */
void bl_timeline_close(belay_context *context);

/* A place or a stream has a name from now on. */
void bl_timeline_name(belay_context *context, int place, int stream);

/* The host has put a launch: from `start` until now. */
void bl_timeline_launch(belay_context *context, const bl_launch *launch, const char *name, int place, int64_t start);
void bl_timeline_fault(belay_context *context, const bl_report_fault *fault);

#endif
