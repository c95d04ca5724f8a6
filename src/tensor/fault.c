/* SPDX-License-Identifier: Apache-2.0 */
/* The context's faults: recorded in order, told once, the first since the last applied step in front. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "report/site.h"
#include "tensor/place.h"
#include "tensor/timeline.h"
#include "tensor/window.h"

void bl_context_site(const belay_context *context, uintptr_t site, char *out, size_t size)
{
    if (site & BL_SITE_LABEL)
        snprintf(out, size, "%s", bl_journal_text_get(context->journal, (uint32_t)site));
    else
        bl_report_site(site, out, size);
}

static void set_position(const belay_context *context, bl_report_fault *f)
{
    if (!f->has_position) {
        f->has_position = true;
        f->step = context->step;
        f->epoch = context->epoch;
        f->position = context->position;
        f->micro_batch = context->micro_batch;
    }
    f->rank = context->rank;
}

void bl_context_site_tell(const belay_context *context, uintptr_t site, bl_report_fault *f)
{
    bl_context_site(context, site, f->site, sizeof f->site);
    if ((site & BL_SITE_LABEL) == 0)
        bl_report_site_source(site, f->source, sizeof f->source);
}

/* Fills in what the raiser left empty and the context knows. */
static void complete(belay_context *context, bl_report_fault *f)
{
    if (f->layer[0] == '\0')
        snprintf(f->layer, sizeof f->layer, "%s", context->layer);
    uintptr_t site = context->site;
    if (site == 0 && context->n_labels > 0)
        site = context->labels[context->n_labels - 1];
    if (f->site[0] == '\0' && site != 0)
        bl_context_site_tell(context, site, f);
    if (f->device[0] == '\0')
        snprintf(f->device, sizeof f->device, "%s", context->device->name);
    set_position(context, f);
}

/* Copies one text into the entry's words and moves on. */
static const char *put(char **at, const char *text)
{
    size_t n = strlen(text) + 1;
    char *to = memcpy(*at, text, n);
    *at += n;
    return to;
}

/* Where fault number `number` is kept: all that come late share the last place. */
static bl_fault_entry *entry_of(belay_context *context, int64_t number)
{
    return &context->faults[number < BL_MAX_FAULTS ? number : BL_MAX_FAULTS];
}

/* Keeps the fault; without memory its code and numbers only. */
static void keep(bl_fault_entry *entry, const bl_report_fault *f, const char *text, uint64_t window)
{
    const char *operand = "";
    if (f->operand >= 0)
        operand = f->tensor[f->operand].name[0] != '\0' ? f->tensor[f->operand].name : f->tensor[f->operand].role;
    bl_text object = {0};
    bl_report_fault_json(f, &object);
    const char *json = object.failed ? "" : bl_text_get(&object);
    size_t n = strlen(f->op) + strlen(operand) + strlen(f->layer) + strlen(f->site) + strlen(f->sample) + strlen(text) +
               strlen(json) + 7;
    bl_free(entry->words);
    entry->window = window;
    char *at = entry->words = bl_alloc((int64_t)n, 1);
    bool kept = at != NULL;
    entry->fault = (belay_fault){.code = f->code,
                                 .op = kept ? put(&at, f->op) : "",
                                 .operand = kept ? put(&at, operand) : "",
                                 .layer = kept ? put(&at, f->layer) : "",
                                 .site = kept ? put(&at, f->site) : "",
                                 .sample = kept ? put(&at, f->sample) : "",
                                 .text = kept ? put(&at, text) : "",
                                 .json = kept ? put(&at, json) : "",
                                 .element = f->element,
                                 .got = f->got,
                                 .limit = f->limit,
                                 .count = f->count,
                                 .step = f->step,
                                 .epoch = f->epoch,
                                 .position = f->position,
                                 .micro_batch = f->micro_batch};
    bl_text_fini(&object);
}

/* The paragraph; without memory for it, as much as fits `brief`. */
static const char *describe(const bl_report_fault *f, bl_text *words, char brief[640])
{
    bl_report_fault_describe(f, words);
    if (!words->failed)
        return bl_text_get(words);
    snprintf(brief, 640, "belay: %.500s (%s)\n", f->what[0] != '\0' ? f->what : belay_code_why(f->code),
             belay_code_name(f->code));
    return brief;
}

static void keep_in_order(belay_context *context, const bl_report_fault *f, const char *text)
{
    bool is_warning = belay_code_severity(f->code) == BELAY_SEVERITY_WARNING;
    bool is_first = !is_warning && context->first_fault < 0;
    uint64_t window = f->gating != 0 ? f->window : context->window;
    if (!is_warning && window > context->last_faulted)
        context->last_faulted = window;
    if (is_first) {
        context->first_fault = context->n_faults;
        context->first_code = f->code;
    }
    if (is_first || context->n_faults < BL_MAX_FAULTS)
        keep(entry_of(context, context->n_faults), f, text, window);
    context->n_faults++;
}

/* Kept are the echoes themselves. */
static void tell_refused_on(belay_context *context, int place)
{
    bl_place *p = &context->places[place];
    bl_report_fault f;
    bl_text words = {0};
    char brief[640];
    bl_report_fault_init(&f, BELAY_PLACE_LOST);
    snprintf(f.what, sizeof f.what, "device %s is lost: %" PRIu64 " more call%s refused", p->device->name, p->n_untold,
             p->n_untold == 1 ? " was" : "s were");
    if (p->untold_at != 0)
        bl_context_site(context, p->untold_at, f.other_site, sizeof f.other_site);
    snprintf(f.other_words, sizeof f.other_words, "%s", p->n_untold == 1 ? "called at" : "the last at");
    bl_place_describe_loss(context, place, "lost by", &f);
    set_position(context, &f);
    p->n_untold = 0;
    if (context->log != NULL)
        context->log(context->log_state, f.code, describe(&f, &words, brief));
    bl_text_fini(&words);
}

void bl_context_tell_refused(belay_context *context)
{
    for (int place = 0; place < context->n_places; place++)
        if (context->places[place].n_untold > 0)
            tell_refused_on(context, place);
}

void bl_context_tell_apart(belay_context *context, bl_report_fault *f)
{
    bl_text words = {0};
    char brief[640];
    set_position(context, f);
    const char *text = describe(f, &words, brief);
    keep_in_order(context, f, text);
    if (context->log != NULL)
        context->log(context->log_state, f->code, text);
    bl_text_fini(&words);
}

static void tell(belay_context *context, belay_code code, const char *text)
{
    bl_context_tell_refused(context);
    if (context->log != NULL)
        context->log(context->log_state, code, text);
}

belay_code bl_context_fault(belay_context *context, bl_report_fault *f)
{
    if (!belay_is_open(context))
        return f->code;
    bool is_warning = belay_code_severity(f->code) == BELAY_SEVERITY_WARNING;
    complete(context, f);
    bl_text words = {0};
    char brief[640];
    const char *text = describe(f, &words, brief);
    keep_in_order(context, f, text);
    bool gates = f->gating != 0 ? f->gating > 0 : context->recording || context->is_gating;
    if (!is_warning && gates)
        bl_window_fault(context, f->gating != 0 ? f->window : context->window, f->code);
    if (context->trace != NULL)
        bl_timeline_fault(context, f);
    if (context->fault_observer != NULL)
        context->fault_observer(context->observer_state, f);
    if (!f->is_echo)
        tell(context, f->code, text);
    bl_text_fini(&words);
    return f->code;
}

belay_code bl_context_raise(belay_context *context, belay_code code, const char *format, ...)
{
    bl_report_fault f;
    va_list args;
    va_start(args, format);
    bl_report_fault_begin(&f, code, format, args);
    va_end(args);
    return bl_context_fault(context, &f);
}

belay_code bl_context_raise_error(belay_context *context, const bl_error *error)
{
    bl_report_fault f;
    bl_report_fault_init(&f, error->code);
    snprintf(f.what, sizeof f.what, "%s", error->what);
    snprintf(f.facts, sizeof f.facts, "%.*s", (int)sizeof f.facts - 1, error->facts);
    snprintf(f.advice, sizeof f.advice, "%s", error->advice);
    return bl_context_fault(context, &f);
}

belay_code bl_context_raise_foreign(belay_context *context, const char *who, belay_tensor tensor)
{
    const char *words;
    belay_code code = bl_tensor_foreign(tensor, &words);
    return bl_context_raise(context, code, "%s %s", who, words);
}

/* What is no row of the list has no severity, and would end a step without a word of what to do. */
static void raise_no_code(belay_context *context, belay_code code, const char *text)
{
    bl_error error;
    bl_error_set(&error, BELAY_CONF_VALUE, "a fault was raised with the code %d, which is none", (int)code);
    bl_error_fact(&error, "its text: %.600s", text);
    bl_error_advise(&error, "Give a code of docs/faults.md other than BELAY_OK.");
    bl_context_raise_error(context, &error);
}

void belay_fault_raise(belay_context *context, belay_code code, const char *format, ...)
{
    BL_ENTER(context);
    bl_report_fault f;
    va_list args;
    va_start(args, format);
    bl_report_fault_init(&f, code);
    if (format != NULL)
        bl_report_fault_begin(&f, code, format, args);
    va_end(args);
    if (bl_error_is_code(code))
        bl_context_fault(context, &f);
    else
        raise_no_code(context, code, f.what);
}

void bl_context_commit(belay_context *context)
{
    context->first_fault = -1;
    context->first_code = BELAY_OK;
}

/* What came after it is in front then.  Where that is not kept any more, what is in front stays. */
void bl_context_commit_upto(belay_context *context, uint64_t window)
{
    if (context->first_fault < 0 || entry_of(context, context->first_fault)->window > window)
        return;
    if (context->last_faulted <= window) {
        bl_context_commit(context);
        return;
    }
    for (int64_t i = context->first_fault + 1; i < context->n_faults && i < BL_MAX_FAULTS; i++) {
        const bl_fault_entry *entry = entry_of(context, i);
        if (belay_code_severity(entry->fault.code) == BELAY_SEVERITY_WARNING || entry->window <= window)
            continue;
        context->first_fault = i;
        context->first_code = entry->fault.code;
        return;
    }
}

void bl_context_rewind(belay_context *context, int64_t n)
{
    context->n_faults = n < context->n_faults ? n : context->n_faults;
    if (context->first_fault >= n)
        bl_context_commit(context);
}

int64_t belay_n_faults(const belay_context *context) { return bl_caller_has_faults(context) ? context->n_faults : 0; }

bool belay_fault_get(const belay_context *context, int64_t number, belay_fault *out)
{
    bool is_kept = bl_caller_has_faults(context) && number >= 0 && number < context->n_faults &&
                   (number < BL_MAX_FAULTS || number == context->first_fault);
    if (is_kept && out != NULL)
        *out = context->faults[number < BL_MAX_FAULTS ? number : BL_MAX_FAULTS].fault;
    return is_kept;
}

bool belay_fault_first(const belay_context *context, belay_fault *out)
{
    return bl_caller_has_faults(context) && context->first_code != BELAY_OK &&
           belay_fault_get(context, context->first_fault, out);
}

void belay_faults_clear(belay_context *context)
{
    if (!bl_caller_has_faults(context) || context->number == 0)
        return;
    for (int64_t i = 0; i <= BL_MAX_FAULTS; i++) {
        bl_free(context->faults[i].words);
        context->faults[i].words = NULL;
    }
    bl_context_rewind(context, 0);
}
