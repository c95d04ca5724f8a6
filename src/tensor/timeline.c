/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/timeline.h"

#include <stdio.h>

#include "base/clock.h"
#include "report/trace.h"

enum { LAUNCHES_PER_FIGURE = 32 };

/* Called by a device when it has run a launch, on whatever thread it did. */
static void ran(void *state, const bl_device_ran *r)
{
    belay_context *context = state;
    bl_trace_span_add(context->trace, &(bl_trace_span){.device = r->place + 1,
                                                       .stream = r->stream,
                                                       .name = r->name,
                                                       .start = r->start,
                                                       .end = r->end,
                                                       .launch = r->launch});
}

belay_code bl_timeline_open(belay_context *context, const char *path, bl_error *error)
{
    TRY(bl_trace_open(path, 0, &context->trace, error));
    context->device_options.ran = ran;
    context->device_options.ran_state = context;
    return BELAY_OK;
}

void bl_timeline_close(belay_context *context)
{
    bl_error error = {0};
    bl_trace *trace = context->trace;
    context->trace = NULL;
    if (bl_trace_close(trace, &error) != BELAY_OK)
        bl_context_raise_error(context, &error);
}

void bl_timeline_name(belay_context *context, int place, int stream)
{
    const bl_stream *s = &context->streams[stream];
    if (context->trace == NULL)
        return;
    bl_trace_name(context->trace, place + 1, -1, context->places[place].device->name);
    bl_trace_name(context->trace, place + 1, s->number,
                  s->number == 0 ? "default" : bl_journal_text_get(context->journal, s->name));
}

void bl_timeline_launch(belay_context *context, const bl_launch *launch, const char *name, int place, int64_t start)
{
    char site[256] = "";
    int64_t now = bl_clock_now();
    const bl_device *device = context->places[place].device;
    uintptr_t address = bl_journal_site_get(context->journal, launch->site);
    if (address != 0)
        bl_context_site(context, address, site, sizeof site);
    bl_trace_span span = {.device = BL_TRACE_HOST,
                          .name = name,
                          .start = start,
                          .end = now,
                          .launch = launch->serial,
                          .site = site,
                          .layer = context->layer,
                          .step = context->step};
    bl_trace_span_add(context->trace, &span);
    if (launch->serial % LAUNCHES_PER_FIGURE != 1)
        return;
    int64_t in_use, held, peak;
    bl_pool_memory(device->api->pool((bl_device *)(uintptr_t)device), &in_use, &held, &peak);
    bl_trace_counter(context->trace, place + 1, "memory in use", now, in_use);
}

void bl_timeline_fault(belay_context *context, const bl_report_fault *fault)
{
    bl_trace_fault(context->trace, BL_TRACE_HOST, 0, bl_clock_now(), fault);
}
