/* SPDX-License-Identifier: Apache-2.0 */
/* Words about a step that was refused, and about what was used after its end. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "launch/nonfinite.h"
#include "optim/optim.h"
#include "tensor/window.h"

void bl_optim_tell_stale(belay_context *context, const char *what, uintptr_t site)
{
    if (context->is_closing)
        return;
    __attribute__((cleanup(bl_enter_end), unused)) bl_enter call = bl_enter_call(context, site);
    bl_error error;
    bl_error_set(&error, BELAY_LIFE_STALE, "%s was used after it had been freed", what);
    bl_error_advise(&error, "Free it when nothing uses it any more.");
    bl_context_raise_error(context, &error);
}

/* Where and when: of the step, whatever call it is told at. */
static void place_at(const belay_context *context, const bl_window *w, bl_report_fault *f)
{
    f->has_position = true;
    f->step = w->step;
    f->epoch = w->epoch;
    f->position = w->position;
    f->micro_batch = w->micro_batch;
    if (w->site != 0)
        bl_context_site_tell(context, w->site, f);
    if (context->site != 0 && context->site != w->site)
        bl_context_site(context, context->site, f->surfaced, sizeof f->surfaced);
}

/* What non-finite tracing met first. */
static void describe_first(const bl_window *w, bl_report_fault *f)
{
    if (!w->first_bad.is_there)
        return;
    bl_report_fault_fact(f, "the first op: %s", w->first_bad.op);
    bl_report_fault_fact(f, "its result: %s", w->first_bad.values);
}

static void tell_lost(belay_context *context, const bl_window *w)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_RUN_WINDOW_LOST);
    if (w->faulted)
        snprintf(f.what, sizeof f.what, "step %" PRIu64 " was not applied: %s in its window", w->step,
                 belay_code_name(w->code));
    else
        snprintf(f.what, sizeof f.what, "step %" PRIu64 " was not applied: its gate was closed", w->step);
    describe_first(w, &f);
    place_at(context, w, &f);
    bl_context_fault(context, &f);
}

/* Under a loss scale tracing refuses nothing: gradients say whether a value mattered. */
static void tell_traced(belay_context *context, const bl_window *w, const char *was)
{
    bl_report_fault f;
    if (!w->first_bad.is_there)
        return;
    bl_report_fault_init(&f, BELAY_NUM_TRACED);
    snprintf(f.what, sizeof f.what, "step %" PRIu64 " was %s; a value of its window was not finite", w->step, was);
    describe_first(w, &f);
    place_at(context, w, &f);
    bl_context_fault(context, &f);
}

void bl_optim_tell_discarded(belay_context *context)
{
    const bl_window w = {.number = context->window,
                         .step = context->step,
                         .epoch = context->epoch,
                         .position = context->position,
                         .micro_batch = context->micro_batch,
                         .site = context->site,
                         .first_bad = context->mixed.first_bad};
    tell_traced(context, &w, "discarded");
}

static void describe_survey(bl_report_fault *f, const belay_shape *shape, const bl_survey *s)
{
    bl_text bad = {0};
    bl_survey_describe(s, shape, &bad);
    bl_report_fault_fact(f, "bad: %s", bl_text_get(&bad));
    if (s->n_good > 0)
        bl_report_fault_fact(f, "the others lie in [%g, %g]", s->low, s->high);
    bl_text_fini(&bad);
}

static void name_gradient(const belay_optimizer *o, const bl_window *w, int64_t i, const bl_slot *leaf,
                          bl_report_fault *f)
{
    bl_text words = {0};
    belay_shape shape = bl_slot_shape(leaf);
    const char *name = bl_journal_text_get(o->context->journal, leaf->name);
    if (name[0] != '\0')
        bl_text_format(&words, "%.160s ", name);
    else
        bl_text_format(&words, "parameter %" PRId64 " ", i);
    bl_report_shape(&shape, &words);
    snprintf(f->what, sizeof f->what, "step %" PRIu64 " was not applied: the gradient of %s is not finite", w->step,
             bl_text_get(&words));
    bl_text_fini(&words);
}

/* The first parameter, in the optimizer's order, whose gradient is not finite; none when only their norm is not. */
static void describe_gradient(const belay_optimizer *o, const bl_window *w, bl_report_fault *f)
{
    for (int64_t i = 0; i < o->n; i++) {
        const bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
        const bl_slot *grad = o->is_used[i] != 0 ? bl_slot_get(o->context, o->parameter[i].grad_flat) : NULL;
        bl_survey s = grad != NULL && leaf != NULL ? bl_survey_of(o->context, grad) : (bl_survey){0};
        if (s.n_bad == 0)
            continue;
        belay_shape shape = bl_slot_shape(leaf);
        name_gradient(o, w, i, leaf, f);
        describe_survey(f, &shape, &s);
        return;
    }
}

/* The same by the chunk that the device found: the gradients are gone. */
static void describe_chunk(const belay_optimizer *o, const bl_window *w, int64_t chunk, bl_report_fault *f)
{
    int64_t i = 0;
    while (i < o->n && chunk >= belay_tensor_n_elements(o->parameter[i].partial))
        chunk -= belay_tensor_n_elements(o->parameter[i++].partial);
    const bl_slot *leaf = i < o->n ? bl_slot_get(o->context, o->parameter[i].leaf) : NULL;
    if (leaf == NULL)
        return;
    belay_shape shape = bl_slot_shape(leaf);
    int64_t first = chunk * BL_OPTIM_CHUNK, last = bl_min_i64(first + BL_OPTIM_CHUNK, bl_slot_elements(leaf)) - 1;
    bl_text from = {0}, to = {0};
    name_gradient(o, w, i, leaf, f);
    bl_report_coordinates(&shape, first, &from);
    bl_report_coordinates(&shape, last, &to);
    bl_report_fault_fact(f, "the first bad element lies between %s and %s; launch blocking tells which and what it is",
                         bl_text_get(&from), bl_text_get(&to));
    bl_text_fini(&from);
    bl_text_fini(&to);
}

/* Whether an overflow is what happens while a loss scale finds its place.  It is not when there was nothing left to take
 * back (the scale was 1 or below), or when steps had been applied under it and many are refused in a row. */
static void judge(const bl_window_words *words, bl_report_fault *f)
{
    uint32_t n = words->refused & ~(BL_WINDOW_SETTLED | BL_WINDOW_FIXED);
    bool is_settled = (words->refused & BL_WINDOW_SETTLED) != 0, is_fixed = (words->refused & BL_WINDOW_FIXED) != 0;
    bool is_divergence = words->scale <= 1 || (is_settled && n >= BL_OPTIM_DIVERGED);
    bl_report_fault_fact(f, "the loss scale was %g; overflows in a row: %" PRIu32, (double)words->scale, n);
    if (words->scale == 0)
        bl_report_fault_fact(f,
                             "this is divergence: nothing raises a scale of 0, no step will be applied under it again");
    else if (words->scale <= 1)
        bl_report_fault_fact(f, "this is divergence: a loss scale of 1 or below makes no gradient larger");
    else if (is_divergence)
        bl_report_fault_fact(f, "this is divergence: steps had been applied before, and %d in a row were not",
                             BL_OPTIM_DIVERGED);
    else if (is_fixed)
        bl_report_fault_fact(f, "the scale is fixed, it does not back off");
    else
        bl_report_fault_fact(f, is_settled ? "this is ordinary now and then: steps had been applied before, and the "
                                             "scale backs off to where they can be again"
                                           : "this is ordinary warm-up: no step has been applied yet, and the scale is "
                                             "still finding its place");
    if (is_divergence)
        snprintf(f->advice, sizeof f->advice,
                 "Lower the learning rate or clip, and go on from a checkpoint of before; --trace-nonfinite names the "
                 "first op.");
    else if (is_fixed)
        snprintf(f->advice, sizeof f->advice, "Take a lower fixed scale, or one that moves, if it repeats.");
}

static void describe_scaling(const belay_context *context, const bl_window *w, bl_report_fault *f)
{
    const bl_window_words *words = &context->ring->window[bl_window_place(w->number)];
    describe_first(w, f);
    if (words->refused != 0) /* by a step under a loss scale */
        judge(words, f);
}

static void tell_overflow(belay_context *context, const bl_window *w, uint32_t outcome)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_RUN_OVERFLOW);
    snprintf(f.what, sizeof f.what, "step %" PRIu64 " was not applied: the norm of the gradients is not finite",
             w->step);
    if (w->optimizer->has_gradients)
        describe_gradient(w->optimizer, w, &f);
    else
        describe_chunk(w->optimizer, w, (int64_t)outcome - BL_WINDOW_OVERFLOWED, &f);
    describe_scaling(context, w, &f);
    place_at(context, w, &f);
    bl_context_fault(context, &f);
}

void bl_optim_tell_window(belay_context *context, const bl_window *w, uint32_t outcome)
{
    if (outcome == BL_WINDOW_APPLIED) {
        bl_context_commit_upto(context, w->number);
        tell_traced(context, w, "applied");
    } else if (outcome == BL_WINDOW_FAULTED) {
        tell_lost(context, w);
    } else {
        tell_overflow(context, w, outcome);
    }
}
