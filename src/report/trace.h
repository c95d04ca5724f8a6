/* SPDX-License-Identifier: Apache-2.0 */
/* trace.json: what the host called and what each stream did, on one time line, in the Chrome trace event format that
 * Perfetto and chrome://tracing open.
 *
 * The file is written as the run goes, an event a line, not to one side and renamed at the end: a run that dies is the
 * one whose trace is wanted, and the format takes a list without its end.  A torn line is cut off again, whatever fails;
 * closing ends the list, so that the file is JSON.  Memory is bounded by a buffer, the file by `limit`.
 *
 * Device 0 is the host and its stream 0 the thread that calls; device n + 1 is the device with number n.  Times are
 * nanoseconds of base/clock.h; in the file they are microseconds since it was opened.  Any thread may add. */
#ifndef BL_REPORT_TRACE_H
#define BL_REPORT_TRACE_H

#include "base/error.h"
#include "report/fault.h"

typedef struct bl_trace bl_trace;

enum { BL_TRACE_HOST = 0 };
#define BL_TRACE_LIMIT (INT64_C(512) << 20)

/* Something that began and ended; texts that are NULL or "" and numbers that are 0 are left out. */
typedef struct bl_trace_span {
    int device, stream;
    const char *name; /* the op */
    int64_t start, end;
    uint64_t launch; /* the host's call and the work on a stream that have it in common are joined by an arrow */
    const char *site, *layer;
    uint64_t step;
} bl_trace_span;

/* Makes the file; one that is there is overwritten.  `limit` bytes, 0: BL_TRACE_LIMIT: what comes later is counted, and
 * only faults still find some room.  Codes: file.*, mem.exhausted. */
BL_MUST_USE belay_code bl_trace_open(const char *path, int64_t limit, bl_trace **out, bl_error *error);

/* What the tracks are called: "sim:0" (stream -1), and its stream "copy".  All that adds takes NULL and does nothing
 * then; after a write that failed it does nothing either, and closing tells of it. */
void bl_trace_name(bl_trace *trace, int device, int stream, const char *name);
void bl_trace_span_add(bl_trace *trace, const bl_trace_span *span);
/* An instant on that track; what was added so far outlives a kill from here on. */
void bl_trace_fault(bl_trace *trace, int device, int stream, int64_t at, const bl_report_fault *fault);
/* A figure over time, as bytes in use. */
void bl_trace_counter(bl_trace *trace, int device, const char *name, int64_t at, int64_t value);
/* What was added so far outlives a kill. */
void bl_trace_flush(bl_trace *trace);

/* Ends the list and frees.  The first write that failed is told, though the file holds all that was added before it.
 * NULL is fine. */
BL_MUST_USE belay_code bl_trace_close(bl_trace *trace, bl_error *error);

#endif
