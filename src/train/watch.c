/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch.h"

static void see(void *state, const bl_report_fault *fault)
{
    bl_train_watch *watch = state;
    belay_severity severity = belay_code_severity(fault->code);
    if (severity != BELAY_SEVERITY_WARNING && watch->n_faults++ == 0)
        watch->first = fault->code;
    if (severity >= BELAY_SEVERITY_FATAL && watch->fatal == BELAY_OK)
        watch->fatal = fault->code;
    if (watch->told != NULL)
        watch->told(watch->state, fault);
    if (watch->before != NULL)
        watch->before(watch->before_state, fault);
}

void bl_train_watch_init(bl_train_watch *watch, belay_context *context)
{
    watch->context = context;
    watch->before = context->fault_observer;
    watch->before_state = context->observer_state;
    context->fault_observer = see;
    context->observer_state = watch;
}

void bl_train_watch_fini(bl_train_watch *watch)
{
    if (watch->context == NULL)
        return;
    watch->context->fault_observer = watch->before;
    watch->context->observer_state = watch->before_state;
    watch->context = NULL;
}

belay_code bl_train_tell(belay_context *context, belay_code code, const bl_error *error)
{
    if (code == BELAY_OK || error->code == BELAY_OK)
        return code;
    bool was = belay_recording_set(context, false);
    bl_context_raise_error(context, error);
    belay_recording_set(context, was);
    return code;
}
