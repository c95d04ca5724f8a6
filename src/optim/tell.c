/* SPDX-License-Identifier: Apache-2.0 */
/* Words about a step that was refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "optim/optim.h"

void bl_optim_tell_window_lost(belay_optimizer *o)
{
    belay_context *context = o->context;
    if (context->window_faulted)
        bl_context_raise(context, BELAY_RUN_WINDOW_LOST, "step %" PRIu64 " was not applied: %s in its window",
                         context->step, belay_code_name(context->window_code));
    else
        bl_context_raise(context, BELAY_RUN_WINDOW_LOST, "step %" PRIu64 " was not applied: its gate was closed",
                         context->step);
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
                         bl_text_get(&at), s->first_value);
    if (s->n_good > 0)
        bl_report_fault_fact(f, "the others lie in [%g, %g]", s->low, s->high);
    bl_text_fini(&at);
}

/* The first parameter, in the optimizer's order, whose gradient is not finite; none when only their norm is not. */
void bl_optim_tell_overflow(belay_optimizer *o)
{
    belay_context *context = o->context;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_RUN_OVERFLOW);
    snprintf(f.what, sizeof f.what, "step %" PRIu64 " was not applied: the norm of the gradients is not finite",
             context->step);
    for (int64_t i = 0; i < o->n; i++) {
        const bl_slot *leaf = bl_slot_get(context, o->parameter[i].leaf);
        const bl_slot *grad = o->is_used[i] != 0 ? bl_slot_get(context, o->parameter[i].grad_flat) : NULL;
        survey s = grad != NULL && leaf != NULL ? survey_of(context, grad) : (survey){0};
        if (s.n_bad == 0)
            continue;
        bl_text words = {0};
        belay_shape shape = bl_slot_shape(leaf);
        bl_report_shape(&shape, &words);
        const char *name = bl_journal_text_get(context->journal, leaf->name);
        snprintf(f.what, sizeof f.what, "step %" PRIu64 " was not applied: the gradient of %s%.160s %s is not finite",
                 context->step, name[0] != '\0' ? "" : "parameter", name, bl_text_get(&words));
        describe_survey(&f, &shape, &s);
        bl_text_fini(&words);
        break;
    }
    bl_context_fault(context, &f);
}
