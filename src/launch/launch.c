/* SPDX-License-Identifier: Apache-2.0 */
/* Proof, record, launch, fence. */
#include "launch/launch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "kernel/custom.h"
#include "launch/flight.h"
#include "launch/nonfinite.h"
#include "tensor/lease.h"
#include "tensor/loan.h"
#include "tensor/timeline.h"
#include "tensor/window.h"

/* Which command of its stream the launch will be; on a synchronous device launches are counted. */
static uint64_t next_number(belay_context *context, const bl_proof *p)
{
    bl_device *device = context->places[p->place].device;
    if (device->api->synchronous)
        return p->launch.serial;
    return p->launch.n_items > 0 ? device->api->stream_put(device, bl_place_stream(context, p->place)->number) + 1 : 0;
}

/* The launch record goes to the journal before the launch. */
static void write_record(const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    const bl_launch *l = &p->launch;
    bl_launch_record *r = bl_journal_launch(context->journal, l->serial);
    r->step = context->step;
    r->epoch = context->epoch;
    r->position = context->position;
    r->micro_batch = context->micro_batch;
    r->site = l->site;
    r->layer = call->layer != 0 ? call->layer : context->layer_text;
    r->op = call->custom != NULL ? call->custom->journal_op : (uint16_t)call->op;
    r->n_operands = (uint8_t)l->n_operands;
    r->device = (uint8_t)p->place;
    r->stream = (uint32_t)context->places[p->place].stream;
    r->is_backward = call->is_backward || context->in_backward;
    r->number = next_number(context, p);
    for (int k = 0; k < l->n_operands; k++) {
        bl_operand_record *o = &r->operand[k];
        const bl_slot *slot = belay_tensor_is_nil(p->tensor[k]) ? NULL : bl_slot_get(context, p->tensor[k]);
        if (slot == NULL) {
            memset(o, 0, sizeof *o);
            continue;
        }
        if ((p->written >> k & 1) != 0) {
            slot->storage->version++;
            slot->storage->written = l->site;
        }
        o->address = (uint64_t)(uintptr_t)bl_slot_data(slot);
        int64_t last = 0;
        bool is_empty = false;
        for (int i = 0; i < slot->rank; i++) {
            last += (slot->size[i] - 1) * slot->stride[i];
            is_empty = is_empty || slot->size[i] == 0;
        }
        o->n_bytes = is_empty ? 0 : (uint64_t)((last + 1) * belay_dtype_size(slot->dtype));
        o->storage = slot->storage->serial;
        o->name = slot->name;
        o->dtype = (uint8_t)slot->dtype;
        o->rank = (uint8_t)slot->rank;
        o->is_output = p->written >> k & 1;
        memcpy(o->size, slot->size, sizeof o->size);
    }
    bl_journal_launched(context->journal, r, l->serial);
}

static bool prove(bl_call *call, bl_proof *p)
{
    if (BL_UNLIKELY((int)call->policy < 0 || call->policy > BELAY_INDEX_ZERO)) {
        bl_prove_fail(call, BELAY_CONF_VALUE, "policy is %d, which is no index policy", (int)call->policy);
        return false;
    }
    switch (bl_kernel_rows[call->op].skeleton) {
    case BL_SKELETON_COPY:
        return bl_prove_copy(call, p);
    case BL_SKELETON_MATMUL:
        return bl_prove_matmul(call, p);
    case BL_SKELETON_LANE:
    case BL_SKELETON_TAKE:
    case BL_SKELETON_REDUCE:
    case BL_SKELETON_SORTED:
    case BL_SKELETON_DEVICE:
        return bl_prove_signature(call, p);
    default:
        return bl_prove_map(call, p);
    }
}

static void drop_results(bl_call *call)
{
    for (int o = 0; o < call->n_out; o++) {
        if (belay_tensor_is_nil(call->into))
            bl_tensor_drop(call->context, call->out[o]);
        call->out[o] = (belay_tensor){0};
    }
    call->n_out = 0;
}

double bl_launch_float(int dtype, const void *element)
{
    switch (dtype) {
    case BELAY_F64:
        return *(const double *)element;
    case BELAY_F32:
        return (double)*(const float *)element;
    case BELAY_BF16:
        return (double)bl_from_bf16(*(const bl_bf16 *)element);
    default:
        return (double)bl_from_f16(*(const bl_f16 *)element);
    }
}

/* Nothing that is written was lent to be read only. */
static bool may_write(const bl_call *call, const bl_proof *p)
{
    for (int k = 0; k < BL_MAX_OPERANDS; k++) {
        const bl_slot *slot = (p->written >> k & 1) != 0 ? bl_slot_get(call->context, p->tensor[k]) : NULL;
        if (slot == NULL || !bl_loan_is_read_only(slot->storage->loan))
            continue;
        bl_text words = {0};
        bl_loan_describe_write(call->context, slot, &words);
        bl_prove_fail(call, BELAY_LIFE_READ_ONLY, "%s", bl_text_get(&words));
        bl_text_fini(&words);
        return false;
    }
    return true;
}

/* No tensor of the call is let to somebody else. */
static bool may_touch(const bl_call *call, const bl_proof *p)
{
    for (int k = 0; k < p->launch.n_operands; k++) {
        const bl_slot *slot = belay_tensor_is_nil(p->tensor[k]) ? NULL : bl_slot_get(call->context, p->tensor[k]);
        if (slot != NULL && !bl_lease_permits(call->context, slot, (p->written >> k & 1) != 0, bl_prove_op(call)))
            return false;
    }
    return true;
}

/* No tensor of the call is in use on another stream without an order. */
static bool is_ordered(const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    for (int k = 0; k < p->launch.n_operands; k++) {
        const bl_slot *slot = belay_tensor_is_nil(p->tensor[k]) ? NULL : bl_slot_get(context, p->tensor[k]);
        if (slot == NULL)
            continue;
        bool writes = (p->written >> k & 1) != 0;
        bl_extent extent = bl_place_extent(slot);
        bl_race race = bl_place_race(context, slot->storage, &extent, writes);
        if (race.stream == BL_STREAM_NONE)
            continue;
        bl_report_fault f;
        bl_report_fault_init(&f, BELAY_LIFE_STREAM);
        bl_prove_describe(call, &f);
        bl_place_describe_race(context, slot->storage, writes, &race, &f);
        bl_context_fault(context, &f);
        return false;
    }
    return true;
}

static void note_uses(const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    for (int k = 0; k < p->launch.n_operands; k++) {
        const bl_slot *slot = belay_tensor_is_nil(p->tensor[k]) ? NULL : bl_slot_get(context, p->tensor[k]);
        if (slot == NULL)
            continue;
        bl_extent extent = bl_place_extent(slot);
        bl_place_note(context, slot->storage, &extent, (p->written >> k & 1) != 0, p->launch.serial, p->launch.site);
    }
}

/* Puts the launch into the current stream of its place.  False after a fault: it did not get there. */
static belay_code put_asynchronous(const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    bl_device *device = context->places[p->place].device;
    int stream = bl_place_stream(context, p->place)->number;
    bl_place_begin(context, p->place);
    belay_code code = p->launch.n_items > 0 ? device->api->run(device, stream, &p->launch) : BELAY_OK;
    if (code != BELAY_OK)
        bl_journal_launch_refused(context->journal, p->launch.serial);
    if (code != BELAY_OK || p->launch.n_items == 0)
        return code;
    bl_place_put(context, p->place);
    note_uses(call, p);
    bl_flight_begin(call, p);
    if (!context->launch_blocking)
        return BELAY_OK;
    bl_place_let_go(context);
    code = device->api->stream_synchronise(device, stream, device->api->stream_put(device, stream));
    bl_flight_end(context, p->launch.serial);
    return code;
}

static belay_code put_synchronous(const bl_call *call, const bl_proof *p)
{
    belay_context *context = call->context;
    bl_device *device = context->places[p->place].device;
    belay_code code = p->launch.n_items > 0 ? device->api->run(device, 0, &p->launch) : BELAY_OK;
    __atomic_store_n(&bl_place_stream(context, p->place)->row->passed, p->launch.serial, __ATOMIC_RELEASE);
    if (BL_UNLIKELY(context->ring->claimed != 0) && code == BELAY_OK)
        bl_flight_tell_now(call, p);
    return code;
}

static void tell_refusal(const bl_call *call, const bl_proof *p, belay_code code)
{
    belay_context *context = call->context;
    if (code == BELAY_PLACE_LOST)
        bl_place_raise_lost(context, p->place);
    else
        bl_prove_fail(call, code,
                      code == BELAY_MEM_EXHAUSTED ? "device %s has no memory to run %s on %s"
                                                  : "device %s has no code for %s on %s",
                      context->places[p->place].device->name, bl_prove_op(call), belay_dtype_name(p->launch.dtype));
}

bool bl_launch_submit(bl_call *call, bl_proof *p)
{
    belay_context *context = call->context;
    bl_launch *l = &p->launch;
    bool is_asynchronous = bl_place_is_asynchronous(context, p->place);
    if ((BL_UNLIKELY(context->has_read_only) && !may_write(call, p)) ||
        (BL_UNLIKELY(context->n_leases > 0) && !may_touch(call, p))) {
        drop_results(call);
        return false;
    }
    if (BL_UNLIKELY(is_asynchronous) &&
        (!is_ordered(call, p) || !bl_flight_make_room(context, context->n_launches + 1))) {
        drop_results(call);
        return false;
    }
    l->op = call->op;
    l->params = call->params;
    l->policy = call->policy != BELAY_INDEX_DEFAULT ? call->policy : context->policy;
    l->gates = context->recording || context->is_gating;
    l->window = bl_window_place(context->window);
    l->ring = context->ring;
    l->serial = ++context->n_launches;
    l->step = (uint32_t)context->step;
    l->site = bl_journal_site(context->journal, call->site != 0 ? call->site : context->site);
    write_record(call, p);
    int64_t start = BL_UNLIKELY(context->trace != NULL) ? bl_clock_now() : 0;
    belay_code code = is_asynchronous ? put_asynchronous(call, p) : put_synchronous(call, p);
    if (BL_UNLIKELY(start != 0))
        bl_timeline_launch(context, l, call->custom != NULL ? call->custom->name : bl_kernel_rows[call->op].name,
                           p->place, start);
    if (BL_UNLIKELY(code != BELAY_OK)) {
        tell_refusal(call, p, code);
        drop_results(call);
        return false;
    }
    if (BL_UNLIKELY(context->trace_nonfinite))
        bl_nonfinite_look(call);
    return true;
}

bool bl_launch_run(bl_call *call)
{
    bl_proof p = {0};
    call->n_out = 0;
    if (!belay_is_open(call->context))
        return false;
    if (prove(call, &p))
        return bl_launch_submit(call, &p);
    drop_results(call);
    return false;
}
