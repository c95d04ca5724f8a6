/* SPDX-License-Identifier: Apache-2.0 */
/* Words about a step that was refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "optim/optim.h"

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

static void tell_lost(belay_context *context, const bl_window *w)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_RUN_WINDOW_LOST);
    if (w->faulted)
        snprintf(f.what, sizeof f.what, "step %" PRIu64 " was not applied: %s in its window", w->step,
                 belay_code_name(w->code));
    else
        snprintf(f.what, sizeof f.what, "step %" PRIu64 " was not applied: its gate was closed", w->step);
    place_at(context, w, &f);
    bl_context_fault(context, &f);
}

/* What a gradient looks like to a person. */
typedef struct survey {
    int64_t n_bad;
    int64_t first; /* lowest bad element */
    double first_value;
    int64_t n_good;
    double low, high; /* of the finite ones */
} survey;

static double value_at(int dtype, const void *bytes, int64_t i)
{
    switch (dtype) {
    case BELAY_F64:
        return ((const double *)bytes)[i];
    case BELAY_BF16:
        return (double)bl_from_bf16(((const bl_bf16 *)bytes)[i]);
    case BELAY_F16:
        return (double)bl_from_f16(((const bl_f16 *)bytes)[i]);
    default:
        return (double)((const float *)bytes)[i];
    }
}

static void add_value(survey *s, int64_t element, double value)
{
    if (isfinite(value)) {
        s->low = s->n_good == 0 || value < s->low ? value : s->low;
        s->high = s->n_good == 0 || value > s->high ? value : s->high;
        s->n_good++;
    } else if (s->n_bad++ == 0) {
        s->first = element;
        s->first_value = value;
    }
}

/* Reads a gradient piece by piece. */
static survey survey_of(belay_context *context, const bl_slot *grad)
{
    enum { PIECE = 512 };
    double bytes[PIECE];
    int64_t n = bl_slot_elements(grad), size = belay_dtype_size((belay_dtype)grad->dtype);
    survey s = {0};
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        int64_t count = bl_min_i64(PIECE, n - begin);
        if (bl_place_read(context, grad, begin * size, bytes, count * size) != BELAY_OK)
            break;
        for (int64_t i = 0; i < count; i++)
            add_value(&s, begin + i, value_at(grad->dtype, bytes, i));
    }
    return s;
}

static void describe_survey(bl_report_fault *f, const belay_shape *shape, const survey *s)
{
    bl_text at = {0};
    bl_report_coordinates(shape, s->first, &at);
    bl_report_fault_fact(f, "bad: %" PRId64 " of %" PRId64 " elements, first at %s: %g", s->n_bad, s->n_bad + s->n_good,
                         bl_text_get(&at), bl_text_real(s->first_value));
    if (s->n_good > 0)
        bl_report_fault_fact(f, "the others lie in [%g, %g]", s->low, s->high);
    bl_text_fini(&at);
}

static void name_gradient(const belay_optimizer *o, const bl_window *w, const bl_slot *leaf, bl_report_fault *f)
{
    bl_text words = {0};
    belay_shape shape = bl_slot_shape(leaf);
    bl_report_shape(&shape, &words);
    const char *name = bl_journal_text_get(o->context->journal, leaf->name);
    snprintf(f->what, sizeof f->what, "step %" PRIu64 " was not applied: the gradient of %s%.160s %s is not finite",
             w->step, name[0] != '\0' ? "" : "parameter", name, bl_text_get(&words));
    bl_text_fini(&words);
}

/* The first parameter, in the optimizer's order, whose gradient is not finite; none when only their norm is not. */
static void describe_gradient(const belay_optimizer *o, const bl_window *w, bl_report_fault *f)
{
    for (int64_t i = 0; i < o->n; i++) {
        const bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
        const bl_slot *grad = o->is_used[i] != 0 ? bl_slot_get(o->context, o->parameter[i].grad_flat) : NULL;
        survey s = grad != NULL && leaf != NULL ? survey_of(o->context, grad) : (survey){0};
        if (s.n_bad == 0)
            continue;
        belay_shape shape = bl_slot_shape(leaf);
        name_gradient(o, w, leaf, f);
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
    name_gradient(o, w, leaf, f);
    bl_report_coordinates(&shape, first, &from);
    bl_report_coordinates(&shape, last, &to);
    bl_report_fault_fact(f, "the first bad element lies between %s and %s; launch blocking tells which and what it is",
                         bl_text_get(&from), bl_text_get(&to));
    bl_text_fini(&from);
    bl_text_fini(&to);
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
    place_at(context, w, &f);
    bl_context_fault(context, &f);
}

void bl_optim_tell_window(belay_context *context, const bl_window *w, uint32_t outcome)
{
    if (outcome == BL_WINDOW_APPLIED)
        bl_context_commit_upto(context, w->number);
    else if (outcome == BL_WINDOW_FAULTED)
        tell_lost(context, w);
    else
        tell_overflow(context, w, outcome);
}
