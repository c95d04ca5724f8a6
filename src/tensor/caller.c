/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/caller.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/attributes.h"
#include "report/site.h"
#include "tensor/context.h"

enum { MAX_TOLD = 64 };

_Thread_local bl_caller_worker *bl_caller_here;
_Thread_local belay_context *bl_caller_refused;
uint32_t bl_caller_forks;

static _Thread_local belay_code inside; /* why the call at work was refused, BELAY_OK: it was not */
static pthread_once_t watched = PTHREAD_ONCE_INIT;

/* Of a child, for its own life: where it was told what. */
static struct {
    uint32_t forks;
    int n;
    struct {
        const belay_context *context;
        uintptr_t site;
    } at[MAX_TOLD];
} told;

/* A child finds locks free and what they guard whole. */
static void before_fork(void)
{
    bl_context_table_hold(true);
    bl_report_site_hold(true);
}

static void after_fork(void)
{
    bl_report_site_hold(false);
    bl_context_table_hold(false);
}

static void enter_child(void)
{
    bl_caller_forks++;
    after_fork();
}

static void watch_forks(void) { (void)pthread_atfork(before_fork, after_fork, enter_child); }

void bl_caller_open(belay_context *context)
{
    pthread_once(&watched, watch_forks);
    context->forks = bl_caller_forks;
    context->worker = bl_caller_here;
    context->process = (int64_t)getpid();
}

static bool is_told(const belay_context *context)
{
    for (int i = 0; i < told.n; i++)
        if (told.at[i].context == context)
            return told.forks == bl_caller_forks;
    return false;
}

/* False when it was there already, or when there is no room for more. */
static bool note(const belay_context *context, uintptr_t site)
{
    if (told.forks != bl_caller_forks) {
        told.forks = bl_caller_forks;
        told.n = 0;
    }
    for (int i = 0; i < told.n; i++)
        if (told.at[i].context == context && told.at[i].site == site)
            return false;
    if (told.n == MAX_TOLD)
        return false;
    told.at[told.n].context = context;
    told.at[told.n++].site = site;
    return true;
}

/* The child's own list begins empty: the parent's entries may be half written, and are left as they are. */
static void tell_fork(belay_context *context, uintptr_t site)
{
    if (!is_told(context)) {
        memset(context->faults, 0, sizeof context->faults);
        context->n_faults = 0;
        bl_context_commit(context);
    }
    if (!note(context, site))
        return;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_PLACE_FORK);
    snprintf(f.what, sizeof f.what,
             "a context that process %" PRId64 " opened was used in process %ld, which was forked from it",
             context->process, (long)getpid());
    bl_context_site_tell(context, context->n_labels > 0 ? context->labels[context->n_labels - 1] : site, &f);
    bl_context_tell_apart(context, &f);
}

static belay_code refuse(belay_context *context, uintptr_t site)
{
    context = context != NULL ? context : bl_caller_refused;
    bl_caller_refused = NULL;
    if (context->forks != bl_caller_forks) {
        tell_fork(context, site);
        return BELAY_PLACE_FORK;
    }
    if (bl_caller_here->site == 0)
        bl_caller_here->site = site;
    return BELAY_PLACE_WORKER;
}

bool bl_caller_refuse(belay_context *context, uintptr_t site)
{
    if (inside == BELAY_OK)
        refuse(context, site);
    return false;
}

bool bl_caller_begin(belay_context *context, uintptr_t site)
{
    if (inside != BELAY_OK)
        return false;
    inside = refuse(context, site);
    return true;
}

void bl_caller_end(void) { inside = BELAY_OK; }

void bl_caller_keep(belay_context *context) { bl_caller_refused = inside == BELAY_OK ? context : NULL; }

belay_code bl_caller_code(belay_code otherwise) { return inside != BELAY_OK ? inside : otherwise; }

bool bl_caller_has_faults(const belay_context *context)
{
    if (context == NULL || context->forks == bl_caller_forks)
        return context != NULL && !bl_context_is_elsewhere(context);
    return is_told(context);
}
