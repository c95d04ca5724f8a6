/* SPDX-License-Identifier: Apache-2.0 */
/* The fence: where the host learns what kernels recorded. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "launch/launch.h"
#include "launch/prove.h"

static int64_t index_at(belay_context *context, const bl_operand *o, int64_t element)
{
    int64_t size = belay_dtype_size(o->dtype), bytes = 0;
    context->device->api->copy_out(context->device, &bytes, (const char *)o->data + element * size, size);
    bl_operand host = {.data = &bytes, .dtype = o->dtype};
    return bl_load_index(&host, 0);
}

static bool is_new(const bl_report_fault *f, int64_t value)
{
    for (int i = 0; i < f->n_values; i++)
        if (f->value[i] == value)
            return false;
    return true;
}

/* Reads `got` again from the operand, and the first few distinct bad values. */
static void read_values(belay_context *context, const bl_launch *l, const bl_fault_record *r, bl_report_fault *f)
{
    const bl_operand *o = &l->operand[r->operand];
    belay_shape *shape = &f->tensor[r->operand].shape;
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->size[i];
    f->got = index_at(context, o, r->element);
    uint64_t seen = 0;
    for (int64_t e = r->element; e < n && seen < r->count && f->n_values < BL_COUNT(f->value); e++) {
        int64_t value = index_at(context, o, e);
        bool is_ignored = r->code == BELAY_INDEX_LABEL && l->params.i[1] != 0 && value == l->params.i[0];
        bool is_bad = (value < 0 || value >= r->limit) && !is_ignored;
        seen += is_bad;
        if (is_bad && is_new(f, value))
            f->value[f->n_values++] = value;
    }
}

/* "ids[2, 1] is 1.5, not a whole number of 64 bits": the value was a float. */
static void describe_cast(belay_context *context, const bl_launch *l, const bl_fault_record *r, bl_report_fault *f)
{
    const bl_operand *o = &l->operand[r->operand];
    const bl_report_tensor *t = &f->tensor[r->operand];
    int64_t size = belay_dtype_size(o->dtype);
    double bytes = 0;
    bl_text at = {0};
    context->device->api->copy_out(context->device, &bytes, (const char *)o->data + r->element * size, size);
    bl_report_coordinates(&t->shape, r->element, &at);
    snprintf(f->what, sizeof f->what, "%s%s is %.9g, not a whole number of 64 bits",
             t->name[0] != '\0' ? t->name : t->role, bl_text_get(&at), bl_launch_float(o->dtype, &bytes));
    bl_text_fini(&at);
}

/* The sample: the bad element's first coordinate counts rows of the batch when the sizes agree. */
static void name_sample(belay_context *context, bl_report_fault *f)
{
    const belay_shape *shape = &f->tensor[f->operand].shape;
    if (context->describe_sample == NULL || shape->rank < 1 || shape->size[0] != context->n_batch)
        return;
    int64_t row = f->element;
    for (int i = 1; i < shape->rank; i++)
        row /= bl_max_i64(shape->size[i], 1);
    if (context->describe_sample(context->sample_state, row, f->sample, sizeof f->sample))
        f->sample_row = row;
}

/* Indices that a policy moved or zeroed are counted always and told once a site. */
static bool is_told(belay_context *context, const bl_call *call, uint64_t count)
{
    uintptr_t site = call->site != 0 ? call->site : context->site;
    context->n_corrected += count;
    for (int i = 0; i < context->n_warned; i++)
        if (context->warned[i] == site)
            return true;
    if (context->n_warned < BL_MAX_WARNED)
        context->warned[context->n_warned++] = site;
    return false;
}

static void tell(belay_context *context, const bl_call *call, const bl_launch *l, const bl_fault_record *r)
{
    belay_code code = r->code;
    if (r->policy != BELAY_INDEX_RAISE) {
        if (call->is_backward || is_told(context, call, r->count))
            return;
        code = r->policy == BELAY_INDEX_CLAMP ? BELAY_INDEX_CLAMPED : BELAY_INDEX_ZEROED;
    } else if (call->is_backward && context->window_faulted) {
        return; /* the forward's fault again */
    }
    bl_report_fault f;
    bl_report_fault_init(&f, code);
    bl_prove_describe(call, &f);
    f.operand = r->operand;
    f.element = r->element;
    f.limit = r->limit;
    f.count = r->count;
    if (r->code == BELAY_NUM_CAST)
        describe_cast(context, l, r, &f);
    else
        read_values(context, l, r, &f);
    name_sample(context, &f);
    bl_context_fault(context, &f);
}

void bl_launch_fence(belay_context *context, const bl_call *call, const bl_launch *launch)
{
    context->device->api->synchronise(context->device);
    bl_fault_ring *ring = context->device->api->ring(context->device);
    for (uint64_t slot = 0; slot < BL_RING_FAULTS; slot++) {
        bl_fault_record *r = &ring->record[slot];
        if (__atomic_load_n(&r->published, __ATOMIC_ACQUIRE) != slot + 1)
            break;
        if (r->launch == launch->serial)
            tell(context, call, launch, r);
        r->published = 0;
    }
    ring->claimed = 0;
    if (ring->dropped == 0)
        return;
    bl_context_raise(context, BELAY_INDEX_RANGE,
                     "%" PRIu64 " more launches met bad indices than the ring of faults holds", ring->dropped);
    ring->dropped = 0;
}
