/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/nonfinite.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "launch/prove.h"

/* ---- a look at a tensor ---------------------------------------------------------------------------------------------- */

static void add_value(bl_survey *s, int64_t element, double value)
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

/* Piece by piece: the host never holds a whole one. */
bl_survey bl_survey_of(belay_context *context, const bl_slot *slot)
{
    enum { PIECE = 512 };
    double bytes[PIECE];
    bl_survey s = {0};
    if (!belay_dtype_is_float((belay_dtype)slot->dtype) || !bl_slot_is_contiguous(slot))
        return s;
    int64_t n = bl_slot_elements(slot), size = belay_dtype_size((belay_dtype)slot->dtype);
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        int64_t count = bl_min_i64(PIECE, n - begin);
        if (bl_place_read(context, slot, begin * size, bytes, count * size) != BELAY_OK)
            break;
        for (int64_t i = 0; i < count; i++)
            add_value(&s, begin + i, bl_launch_float(slot->dtype, (const char *)bytes + i * size));
    }
    return s;
}

void bl_survey_describe(const bl_survey *s, const belay_shape *shape, bl_text *out)
{
    bl_text at = {0};
    bl_report_coordinates(shape, s->first, &at);
    bl_text_format(out, "%" PRId64 " of %" PRId64 " elements, first at %s: %g", s->n_bad, s->n_bad + s->n_good,
                   bl_text_get(&at), bl_text_real(s->first_value));
    bl_text_fini(&at);
}

void bl_survey_range(const bl_survey *s, bl_text *out) { bl_text_format(out, "[%g, %g]", s->low, s->high); }

/* ---- tracing --------------------------------------------------------------------------------------------------------- */

static bool are_finite(const bl_call *call)
{
    for (int k = 0; k < call->n_in; k++) {
        const bl_slot *slot = belay_tensor_is_nil(call->in[k]) ? NULL : bl_slot_get(call->context, call->in[k]);
        if (slot != NULL && bl_survey_of(call->context, slot).n_bad > 0)
            return false;
    }
    return true;
}

/* Under a loss scale: for the report of the window. */
static void keep_first(const bl_call *call, const bl_slot *slot, const bl_survey *s)
{
    bl_first_bad *first = &call->context->mixed.first_bad;
    char site[96];
    if (first->is_there)
        return;
    first->is_there = true;
    const char *layer =
        bl_journal_text_get(call->context->journal, call->layer != 0 ? call->layer : call->context->layer_text);
    bl_context_site(call->context, call->site != 0 ? call->site : call->context->site, site, sizeof site);
    bool is_backward = call->is_backward || call->context->in_backward;
    snprintf(first->op, sizeof first->op, "%s%s at %.60s%s%.60s", bl_kernel_rows[call->op].name,
             is_backward ? " of the walk back, whose forward is" : "", site, layer[0] != '\0' ? ", in " : "", layer);
    bl_text words[3] = {{0}, {0}, {0}};
    belay_shape shape = bl_slot_shape(slot);
    bl_report_shape(&shape, &words[0]);
    bl_survey_describe(s, &shape, &words[1]);
    bl_survey_range(s, &words[2]);
    snprintf(first->values, sizeof first->values, "%s %s, bad: %s%s%s", bl_text_get(&words[0]),
             belay_dtype_name((belay_dtype)slot->dtype), bl_text_get(&words[1]),
             s->n_good > 0 ? "; the others lie in " : "", s->n_good > 0 ? bl_text_get(&words[2]) : "");
    for (int i = 0; i < 3; i++)
        bl_text_fini(&words[i]);
}

static void raise_first(const bl_call *call, const bl_slot *slot, const bl_survey *s)
{
    belay_shape shape = bl_slot_shape(slot);
    bl_text at = {0}, bad = {0};
    bl_report_fault f;
    bl_report_coordinates(&shape, s->first, &at);
    bl_survey_describe(s, &shape, &bad);
    bl_report_fault_init(&f, BELAY_NUM_NONFINITE);
    snprintf(f.what, sizeof f.what, "%s made a value that is not finite, first at %s of its result",
             bl_kernel_rows[call->op].name, bl_text_get(&at));
    bl_prove_describe(call, &f);
    bl_report_fault_fact(&f, "bad: %s", bl_text_get(&bad));
    if (s->n_good > 0)
        bl_report_fault_fact(&f, "the others lie in [%g, %g]", s->low, s->high);
    bl_context_fault(call->context, &f);
    bl_text_fini(&at);
    bl_text_fini(&bad);
}

void bl_nonfinite_look(const bl_call *call)
{
    belay_context *context = call->context;
    bool is_scaled = context->mixed.n_scalers > 0 && (context->recording || context->is_gating);
    if (!are_finite(call))
        return;
    for (int o = 0; o < call->n_out; o++) {
        const bl_slot *slot = bl_slot_get(context, call->out[o]);
        bl_survey s = slot != NULL ? bl_survey_of(context, slot) : (bl_survey){0};
        if (s.n_bad == 0)
            continue;
        if (is_scaled)
            keep_first(call, slot, &s);
        else
            raise_first(call, slot, &s);
        return;
    }
}
