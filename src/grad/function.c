/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of the user's own: forward and backward as two functions over tensors. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "grad/tape.h"

struct belay_function_call {
    belay_context *context;
    const belay_function *function;
    void *state;
    bool records;
    int autocast; /* that the forward ran under: the backward does, too */
    int n_in;
    bool *wants;         /* n_in */
    const bl_node *node; /* in backward */
    belay_tensor *saved;
    int64_t n_saved, capacity;
};

/* Closes what a function of the user's left open inside of `depth`. */
static void close_scopes_inside(belay_context *context, uint32_t depth)
{
    while (context->depth > depth)
        belay_scope_close((belay_scope){context->number, context->depth, context->scopes[context->depth].serial});
}

/* While the tape is walked or cut: nothing is recorded, and no scope around it is closed. */
static void end_state(belay_context *context, const belay_function *function, void *state)
{
    if (function->free == NULL)
        return;
    bool was_recording = context->recording;
    uint32_t depth = context->depth, floor = bl_scope_floor_set(context);
    context->recording = false;
    function->free(state);
    context->recording = was_recording;
    context->floor = floor;
    close_scopes_inside(context, depth);
}

static void call_free(belay_context *context, void *object)
{
    belay_function_call *call = object;
    for (int64_t i = 0; i < call->n_saved; i++)
        bl_tensor_drop(context, call->saved[i]);
    end_state(context, call->function, call->state);
    bl_free(call->saved);
    bl_free(call->wants);
    bl_free(call);
}

/* Both sides are told when a gradient is not like its input. */
static bool gradient_fits(belay_context *context, const belay_function *function, int k, const bl_edge *in,
                          const bl_slot *grad)
{
    belay_shape shape = bl_slot_shape(grad);
    if (bl_shape_equal(&shape, &in->shape) && grad->dtype == (int)in->dtype)
        return true;
    bl_text words[2] = {{0}, {0}};
    bl_report_shape(&in->shape, &words[0]);
    bl_report_shape(&shape, &words[1]);
    bl_context_raise(context, BELAY_SHAPE_CONTRACT, "backward of %s gave input %d, %s %s, a gradient of %s %s",
                     function->name, k, bl_text_get(&words[0]), belay_dtype_name(in->dtype), bl_text_get(&words[1]),
                     belay_dtype_name((belay_dtype)grad->dtype));
    bl_text_fini(&words[0]);
    bl_text_fini(&words[1]);
    return false;
}

/* Under autocast a gradient may come in the dtype that it was computed in. */
static bool is_cast(int has, belay_dtype wanted)
{
    return has != (int)wanted && has != BELAY_F64 && wanted != BELAY_F64 && belay_dtype_is_float((belay_dtype)has) &&
           belay_dtype_is_float(wanted);
}

static void rule_function(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    belay_function_call *call = node->state;
    call->node = node;
    for (int64_t i = 0; i < call->n_saved; i++)
        if (BL_UNLIKELY(bl_tensor_is_written(context, call->saved[i]))) {
            char role[24];
            snprintf(role, sizeof role, "saved %d", (int)i);
            bl_grad_refuse_written(context, call->function->name, role, call->saved[i], NULL);
            return;
        }
    if (call->function->backward == NULL) {
        bl_context_raise(context, BELAY_CONF_MISSING, "%s has no backward, and a gradient of its input is wanted",
                         call->function->name);
        return;
    }
    context->mixed.autocast = call->autocast;
    call->function->backward(call, call->state, node->grad, node->n_out, grad_in, node->n_in);
    context->mixed.autocast = 0;
    for (int k = 0; k < node->n_in; k++) {
        if (belay_tensor_is_nil(node->in[k].leaf)) { /* left out, or dead before the op was recorded */
            grad_in[k] = (belay_tensor){0};
            continue;
        }
        const bl_slot *slot = bl_slot_use(context, grad_in[k]);
        if (slot != NULL && call->autocast != 0 && is_cast(slot->dtype, node->in[k].dtype))
            slot = bl_slot_use(context, grad_in[k] = bl_launch_cast(context, grad_in[k], node->in[k].dtype));
        if (slot == NULL || !gradient_fits(context, call->function, k, &node->in[k], slot) ||
            !bl_grad_bring(context, call->function->name, node->in[k].place, &grad_in[k]))
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
    call->autocast = context->mixed.autocast;
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

/* Hands a result to the scope around the function.  What is not a temporary of the function's own (an input, what
 * another result is already) is handed out as another view, so that its owner keeps it. */
static belay_tensor hand_out(belay_context *context, belay_tensor result)
{
    const bl_slot *slot = bl_slot_use(context, result);
    if (slot == NULL)
        return (belay_tensor){0};
    if (slot->owner == (int32_t)context->depth)
        return belay_keep(result);
    belay_shape shape = bl_slot_shape(slot);
    return belay_keep(bl_tensor_view(context, result, &shape, slot->stride, slot->offset));
}

/* Runs forward unrecorded, in a scope of its own; a fault inside gates the step if it would have outside. */
static void run_forward(belay_function_call *call, const belay_tensor *in, int n_in, belay_tensor *out, int n_out)
{
    belay_context *context = call->context;
    bool was_recording = context->recording, was_gating = context->is_gating;
    context->is_gating = was_gating || was_recording;
    context->recording = false;
    belay_scope scope = belay_scope_open(context);
    if (scope.context != 0) { /* else as many stand inside of each other as there can be, which was told */
        uint32_t floor = bl_scope_floor_set(context);
        call->function->forward(call, call->state, in, n_in, out, n_out);
        context->floor = floor;
        close_scopes_inside(context, scope.depth);
        for (int o = 0; o < n_out; o++)
            out[o] = hand_out(context, out[o]);
        belay_scope_close(scope);
    }
    context->is_gating = was_gating;
    context->recording = was_recording;
}

static bool any_lives(const belay_tensor *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (!belay_tensor_is_nil(tensors[i]))
            return true;
    return false;
}

/* What is missing in a function that its user filled in; NULL: nothing. */
static const char *part_missing(const belay_function *function)
{
    return function == NULL            ? "function"
           : function->name == NULL    ? "name in its function"
           : function->forward == NULL ? "forward in its function"
                                       : NULL;
}

/* `out` starts as nil. */
static void apply(belay_context *context, const belay_function *function, void *state, const belay_tensor *in, int n_in,
                  uint64_t optional, belay_tensor out[BL_MAX_OUT], int n_out)
{
    if (part_missing(function) != NULL) {
        bl_context_raise(context, BELAY_CONF_MISSING, "belay_function_apply was given no %s", part_missing(function));
        if (function != NULL && function->free != NULL)
            function->free(state);
        return;
    }
    bool legal = n_in >= 0 && n_out >= 1 && n_out <= BL_MAX_OUT;
    if (!legal)
        bl_context_raise(context, BELAY_CONF_VALUE, "%s has %d inputs and %d outputs, where outputs lie in [1, %d]",
                         function->name, n_in, n_out, BL_MAX_OUT);
    bool runs = legal && belay_is_open(context) && inputs_live(context, in, n_in, optional);
    belay_function_call *call = runs ? call_new(context, function, state, in, n_in) : NULL;
    if (call == NULL) {
        if (function->free != NULL)
            function->free(state);
        return;
    }
    run_forward(call, in, n_in, out, n_out);
    for (int64_t i = 0; i < call->n_saved; i++) /* it may have gone on writing what it had saved */
        bl_tensor_see(context, call->saved[i]);
    bl_node *node = NULL;
    if (call->records && any_lives(out, n_out))
        node = bl_grad_record(context, rule_function, in, n_in, out, n_out);
    if (node == NULL) {
        call_free(context, call);
        return;
    }
    node->state = call;
    node->state_free = call_free;
}

void belay_function_apply(belay_context *context, const belay_function *function, void *state, const belay_tensor *in,
                          int n_in, uint64_t optional, belay_tensor *out, int n_out)
{
    BL_ENTER(context);
    belay_tensor made[BL_MAX_OUT] = {{0}}; /* `out` may be where `in` is */
    apply(context, function, state, in, n_in, optional, made, n_out);
    for (int o = 0; o < n_out; o++)
        out[o] = o < BL_MAX_OUT ? made[o] : (belay_tensor){0};
}

int belay_function_save(belay_function_call *call, belay_tensor tensor)
{
    bool is_nil = belay_tensor_is_nil(tensor); /* kept as one: what is optional has its number too */
    if (!call->records || (!is_nil && bl_slot_use(call->context, tensor) == NULL))
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

belay_tensor bl_function_collected(const belay_function_call *call, int k)
{
    return call->node != NULL && k >= 0 && k < call->n_in ? bl_grad_collected(call->context, call->node, k)
                                                          : (belay_tensor){0};
}
