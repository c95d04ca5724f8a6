/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of the user's own: forward and backward as two functions over tensors. */
#include <string.h>

#include "base/memory.h"
#include "grad/tape.h"

struct belay_function_call {
    belay_context *context;
    const belay_function *function;
    void *state;
    bool records;
    int n_in;
    bool *wants; /* n_in */
    belay_tensor *saved;
    int64_t n_saved, capacity;
};

static void call_free(belay_context *context, void *object)
{
    belay_function_call *call = object;
    for (int64_t i = 0; i < call->n_saved; i++)
        bl_tensor_drop(context, call->saved[i]);
    if (call->function->free != NULL)
        call->function->free(call->state);
    bl_free(call->saved);
    bl_free(call->wants);
    bl_free(call);
}

static void rule_function(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    belay_function_call *call = node->state;
    uintptr_t site = context->site;
    context->site = node->site; /* ops of backward are told with the forward's site */
    call->function->backward(call, call->state, node->grad, node->n_out, grad_in, node->n_in);
    context->site = site;
    for (int k = 0; k < node->n_in; k++) {
        belay_shape shape = belay_tensor_shape(grad_in[k]);
        if (belay_tensor_is_nil(grad_in[k]) || memcmp(&shape, &node->in[k].shape, sizeof shape) == 0)
            continue;
        bl_context_raise(context, BELAY_SHAPE_CONTRACT, "backward of %s gave input %d a gradient of another shape",
                         call->function->name, k);
        grad_in[k] = (belay_tensor){0};
    }
}

static belay_function_call *call_new(belay_context *context, const belay_function *function, void *state,
                                     const belay_tensor *in, int n_in)
{
    belay_function_call *call = bl_alloc(1, sizeof *call);
    bool *wants = bl_alloc(n_in, sizeof *wants);
    if (call == NULL || wants == NULL) {
        bl_free(call);
        bl_free(wants);
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to apply %s", function->name);
        return NULL;
    }
    *call =
        (belay_function_call){.context = context, .function = function, .state = state, .n_in = n_in, .wants = wants};
    call->records = bl_grad_is_wanted(context, in, n_in);
    for (int k = 0; k < n_in; k++)
        wants[k] = call->records && belay_tensor_requires_grad(in[k]);
    return call;
}

static bool inputs_live(belay_context *context, const belay_tensor *in, int n_in, uint64_t optional)
{
    for (int k = 0; k < n_in; k++) {
        bool may_skip = k < 64 && (optional >> k & 1) != 0;
        if (belay_tensor_is_nil(in[k]) ? !may_skip : bl_slot_use(context, in[k]) == NULL)
            return false;
    }
    return true;
}

void belay_function_apply(belay_context *context, const belay_function *function, void *state, const belay_tensor *in,
                          int n_in, uint64_t optional, belay_tensor *out, int n_out)
{
    BL_ENTER(context);
    for (int o = 0; o < n_out; o++)
        out[o] = (belay_tensor){0};
    bool legal = n_out >= 1 && n_out <= BL_MAX_OUT;
    if (!legal)
        bl_context_raise(context, BELAY_CONF_VALUE, "%s has %d outputs, outside [1, %d]", function->name, n_out,
                         BL_MAX_OUT);
    belay_function_call *call =
        legal && inputs_live(context, in, n_in, optional) ? call_new(context, function, state, in, n_in) : NULL;
    if (call == NULL) {
        if (function->free != NULL)
            function->free(state);
        return;
    }
    bool was = belay_recording_set(context, false);
    context->in_backward |= call->records; /* a fault inside gates the step although nothing is recorded */
    belay_scope scope = belay_scope_open(context);
    function->forward(call, state, in, n_in, out, n_out);
    for (int o = 0; o < n_out; o++)
        out[o] = belay_keep(out[o]);
    belay_scope_close(scope);
    context->in_backward = false;
    belay_recording_set(context, was);
    bl_node *node = NULL;
    if (call->records && !belay_tensor_is_nil(out[0]))
        node = bl_grad_record(context, rule_function, in, n_in, out, n_out);
    if (node == NULL) {
        call_free(context, call);
        return;
    }
    node->state = call;
    node->state_free = call_free;
}

int belay_function_save(belay_function_call *call, belay_tensor tensor)
{
    if (!call->records)
        return -1;
    belay_tensor held = bl_tensor_hold(call->context, tensor);
    if (!bl_grow(&call->saved, &call->capacity, call->n_saved + 1, sizeof *call->saved)) {
        bl_tensor_drop(call->context, held);
        bl_context_raise(call->context, BELAY_MEM_EXHAUSTED, "no memory to save a tensor for backward");
        return -1;
    }
    call->saved[call->n_saved] = held;
    return (int)call->n_saved++;
}

belay_tensor belay_function_saved(const belay_function_call *call, int number)
{
    return number >= 0 && number < call->n_saved ? call->saved[number] : (belay_tensor){0};
}

bool belay_function_records(const belay_function_call *call) { return call->records; }
bool belay_function_wants(const belay_function_call *call, int k) { return k >= 0 && k < call->n_in && call->wants[k]; }
belay_context *belay_function_context(const belay_function_call *call) { return call->context; }
