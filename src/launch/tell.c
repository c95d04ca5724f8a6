/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/tell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "launch/custom.h"
#include "tensor/address.h"

/* ---- bad indices ----------------------------------------------------------------------------------------------------- */

/* Reads n elements of an operand; the device has ended what wrote it.  A closed stream's device is read by its default
 * one. */
static void read_elements(belay_context *context, const bl_flight *f, int operand, int64_t element, int64_t n,
                          void *out)
{
    bl_device *device = context->places[f->place].device;
    const bl_stream *stream = &context->streams[f->stream];
    const bl_operand *o = &f->operand[operand];
    int64_t size = belay_dtype_size(o->dtype);
    if (device->api->copy_out(device, stream->is_open && !stream->is_ending ? stream->number : 0, out,
                              (const char *)o->data + element * size, n * size) != BELAY_OK)
        memset(out, 0, (size_t)(n * size));
}

/* Indices of an operand, read some at a time. */
typedef struct index_reader {
    int64_t begin, end;
    int64_t bytes[512];
} index_reader;

static int64_t index_at(belay_context *context, const bl_flight *f, int operand, int64_t n, int64_t element,
                        index_reader *r)
{
    if (element < r->begin || element >= r->end) {
        r->begin = element;
        r->end = bl_min_i64(n, element + BL_COUNT(r->bytes));
        read_elements(context, f, operand, element, r->end - element, r->bytes);
    }
    bl_operand host = {.data = r->bytes, .dtype = f->operand[operand].dtype};
    return bl_load_index(&host, element - r->begin);
}

static bool is_new(const bl_report_fault *f, int64_t value)
{
    for (int i = 0; i < f->n_values; i++)
        if (f->value[i] == value)
            return false;
    return true;
}

/* Reads `got` again from the operand, and the first few distinct bad values. */
static void read_values(belay_context *context, const bl_flight *flight, const bl_fault_record *r, bl_report_fault *f)
{
    belay_shape *shape = &f->tensor[r->operand].shape;
    index_reader reader = {0};
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->size[i];
    f->got = index_at(context, flight, r->operand, n, r->element, &reader);
    uint64_t seen = 0;
    if (f->got >= 0 && f->got < r->limit) { /* has been written again since */
        f->got = f->value[f->n_values++] = r->got;
        return;
    }
    for (int64_t e = r->element; e < n && seen < r->count && f->n_values < BL_COUNT(f->value); e++) {
        int64_t value = index_at(context, flight, r->operand, n, e, &reader);
        bool is_ignored = r->code == BELAY_INDEX_LABEL && flight->params.i[1] != 0 && value == flight->params.i[0];
        bool is_bad = (value < 0 || value >= r->limit) && !is_ignored;
        seen += is_bad;
        if (is_bad && is_new(f, value))
            f->value[f->n_values++] = value;
    }
}

/* "ids[2, 1] is 1.5, not a whole number of 64 bits": the value was a float. */
static void describe_cast(belay_context *context, const bl_flight *flight, const bl_fault_record *r, bl_report_fault *f)
{
    const bl_report_tensor *t = &f->tensor[r->operand];
    double bytes = 0;
    bl_text at = {0};
    read_elements(context, flight, r->operand, r->element, 1, &bytes);
    bl_report_coordinates(&t->shape, r->element, &at);
    snprintf(f->what, sizeof f->what, "%s%s is %.9g, not a whole number of 64 bits",
             t->name[0] != '\0' ? t->name : t->role, bl_text_get(&at),
             bl_text_real(bl_launch_float(flight->operand[r->operand].dtype, &bytes)));
    bl_text_fini(&at);
}

/* "running_mean[1] would become inf by this batch": its bits were noted in place of an index, and in place of a limit what
 * they come of. */
static void describe_statistic(const bl_fault_record *r, bl_report_fault *f)
{
    static const char *const of[] = {"of x holds no Inf or NaN, but numbers too large for statistics",
                                     "of x holds Inf or NaN", "has Inf or NaN in its running statistics already"};
    static const char *const advice[] = {
        "Look at what makes x: numbers this large belong to no layer that goes on well.",
        "Set trace_nonfinite (belay_debug_setup, BELAY_TRACE_NONFINITE): it names the first op that makes one.",
        "Look at what was written or loaded into them; a fresh layer has means of 0 and variances of 1."};
    const bl_report_tensor *t = &f->tensor[r->operand];
    int why = r->limit > 0 && r->limit < BL_COUNT(of) ? (int)r->limit : 0;
    bl_text at = {0};
    bl_report_coordinates(&t->shape, r->element, &at);
    snprintf(f->what, sizeof f->what, "%s%s would become %g by this batch", t->name[0] != '\0' ? t->name : t->role,
             bl_text_get(&at), bl_text_real((double)bl_float_of_bits((uint32_t)r->got)));
    bl_report_fault_fact(f, "channel %" PRId64 " %s", r->element, of[why]);
    snprintf(f->advice, sizeof f->advice, "%s", advice[why]);
    f->limit = 0;
    bl_text_fini(&at);
}

/* A count of batches, which one more could not be added to. */
static void describe_count(const bl_fault_record *r, bl_report_fault *f)
{
    const bl_report_tensor *t = &f->tensor[r->operand];
    snprintf(f->what, sizeof f->what, "%s is %" PRId64 ", outside [0, %" PRId64 ")",
             t->name[0] != '\0' ? t->name : t->role, r->got, INT64_MAX);
    f->count = 0;
}

/* Words about a row of the batch that the launch worked on. */
static bool describe_row(const belay_context *context, const bl_flight *flight, int64_t row, char *out, size_t size)
{
    if (flight->origin == NULL)
        return context->describe_sample != NULL && context->describe_sample(context->sample_state, row, out, size);
    const char *words = flight->origin->words != NULL && row < flight->origin->n ? flight->origin->words[row] : NULL;
    snprintf(out, size, "%s", words != NULL ? words : "");
    return words != NULL;
}

/* The sample: row `row` of `n_rows`, when that counts rows of the batch. */
static void name_row(const belay_context *context, const bl_flight *flight, int64_t n_rows, int64_t row,
                     bl_report_fault *f)
{
    int64_t n_batch = flight->origin != NULL ? flight->origin->n : context->n_batch;
    if (n_rows == n_batch && describe_row(context, flight, row, f->sample, sizeof f->sample))
        f->sample_row = row;
}

/* A bad element's first coordinate is the row. */
static void name_sample(const belay_context *context, const bl_flight *flight, bl_report_fault *f)
{
    const belay_shape *shape = &f->tensor[f->operand].shape;
    int64_t row = f->element;
    for (int i = 1; i < shape->rank; i++)
        row /= bl_max_i64(shape->size[i], 1);
    if (shape->rank > 0)
        name_row(context, flight, shape->size[0], row, f);
}

/* Indices that a policy moved or zeroed are counted always and told once a site. */
static bool is_told(belay_context *context, uintptr_t site, uint64_t count)
{
    context->n_corrected += count;
    for (int i = 0; i < context->n_warned; i++)
        if (context->warned[i] == site)
            return true;
    if (context->n_warned < BL_MAX_WARNED)
        context->warned[context->n_warned++] = site;
    return false;
}

/* ---- where and when -------------------------------------------------------------------------------------------------- */

static void describe_flight(const belay_context *context, const bl_flight *flight, bl_report_fault *f)
{
    bl_prove_describe_shown(context, flight->op, flight->shown, flight->n_shown, f);
    bl_prove_describe_as(flight->as, flight->role, bl_signature_of(flight->op)->n_in, f);
    if (flight->custom != NULL)
        bl_custom_describe(flight->custom, f);
    f->is_backward = flight->is_backward;
    f->gating = flight->gates ? 1 : -1;
    f->window = flight->window;
    if (flight->layer != 0)
        snprintf(f->layer, sizeof f->layer, "%s", bl_journal_text_get(context->journal, flight->layer));
    if (flight->site != 0)
        bl_context_site_tell(context, flight->site, f);
    bl_place_describe_stream(context, flight->stream, f->stream, sizeof f->stream);
    f->has_position = true;
    f->step = flight->step;
    f->epoch = flight->epoch;
    f->position = flight->position;
    f->micro_batch = flight->micro_batch;
    if (!bl_place_is_asynchronous(context, flight->place))
        return;
    f->launch = flight->serial;
    uintptr_t here = context->site;
    if (here != 0 && here != flight->site)
        bl_context_site(context, here, f->surfaced, sizeof f->surfaced);
}

/* What a kernel of the user's own noted; an illegal access that ended it on a device which goes on is one of that. */
static void tell_custom(belay_context *context, const bl_flight *flight, const bl_fault_record *r, uint64_t n_echoes)
{
    if (r->code == BELAY_MEM_ACCESS) {
        bl_access access = {
            .launch = r->launch, .address = (uint64_t)r->got, .is_write_known = r->limit > 0, .is_write = r->limit > 1};
        bl_tell_access(context, flight, flight->place, &access);
        return;
    }
    bl_report_fault f;
    bl_report_fault_init(&f, r->code);
    describe_flight(context, flight, &f);
    f.n_echoes = n_echoes;
    bl_custom_tell(flight->custom, r, &f);
    name_row(context, flight, f.n_items, f.element, &f);
    bl_context_fault(context, &f);
}

void bl_tell_record(belay_context *context, const bl_flight *flight, const bl_fault_record *r, uint64_t n_echoes)
{
    belay_code code = r->code;
    if (flight->custom != NULL) {
        tell_custom(context, flight, r, n_echoes);
        return;
    }
    if (r->policy != BELAY_INDEX_RAISE) {
        if (is_told(context, flight->site, r->count))
            return;
        code = r->policy == BELAY_INDEX_CLAMP ? BELAY_INDEX_CLAMPED : BELAY_INDEX_ZEROED;
    }
    bl_report_fault f;
    bl_report_fault_init(&f, code);
    describe_flight(context, flight, &f);
    f.operand = r->operand;
    f.element = r->element;
    f.limit = r->limit;
    f.count = r->count;
    f.n_echoes = n_echoes;
    if (r->code == BELAY_NUM_CAST)
        describe_cast(context, flight, r, &f);
    else if (r->code == BELAY_NUM_NONFINITE)
        describe_statistic(r, &f);
    else if (r->code == BELAY_CONF_VALUE)
        describe_count(r, &f);
    else
        read_values(context, flight, r, &f);
    if (r->code != BELAY_NUM_NONFINITE && r->code != BELAY_CONF_VALUE)
        name_sample(context, flight, &f);
    bl_context_fault(context, &f);
}

/* The operand of the flight whose memory the storage is; -1: none. */
static int operand_in(const bl_flight *flight, const bl_storage *storage)
{
    for (int k = 0; k < flight->n_shown && storage != NULL; k++) {
        const char *data = flight->operand[k].data, *begin = storage->data;
        if (!flight->shown[k].is_absent && data >= begin && data <= begin + storage->n_bytes)
            return k;
    }
    return -1;
}

void bl_tell_access(belay_context *context, const bl_flight *flight, int place, const bl_access *access)
{
    static const bl_access unknown = {0};
    access = access != NULL ? access : &unknown;
    bl_device *device = context->places[place].device;
    bl_report_fault f;
    bl_text words = {0}, facts = {0};
    bl_report_fault_init(&f, BELAY_MEM_ACCESS);
    if (flight != NULL)
        describe_flight(context, flight, &f);
    const bl_storage *storage = NULL;
    if (access->address == 0 && !access->is_write_known) /* a null pointer, or one of too many bits */
        bl_text_add(&words, "an address that the machine does not tell: it is none, or 0");
    else
        storage = bl_address_describe(context, device, access->address, access->launch, &words, &facts);
    snprintf(f.what, sizeof f.what, "%s%s %s %s", flight != NULL ? "kernel " : "a kernel", f.op,
             !access->is_write_known ? "touched"
             : access->is_write      ? "wrote"
                                     : "read",
             bl_text_get(&words));
    snprintf(f.facts, sizeof f.facts, "%s", bl_text_get(&facts));
    snprintf(f.device, sizeof f.device, "%s", device->name);
    if (flight != NULL)
        f.operand = operand_in(flight, storage);
    bl_text_fini(&words);
    bl_text_fini(&facts);
    bl_context_fault(context, &f);
}
