/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that follow from rows: maps by position, every other op by the names in its signature. */
#include <pthread.h>
#include <string.h>

#include "grad/tape.h"

/* Which operands an op's gradient names, and of which inputs it is the gradient; computed once. */
typedef struct keep_masks {
    uint32_t in, out, makes;
} keep_masks;
static keep_masks masks[BL_N_OPS][BL_MAX_GRADS];
static pthread_once_t masks_made = PTHREAD_ONCE_INIT;

/* The forward's input whose gradient output `o` of a gradient op is. */
static int input_of(int op, const bl_signature *backward, int o)
{
    const char *name = backward->operand[backward->n_in + o].name;
    return strncmp(name, "g_", 2) == 0 ? bl_signature_find(bl_signature_of(op), name + 2) : -1;
}

static keep_masks names_of(int op, int grad_op)
{
    const bl_signature *forward = bl_signature_of(op), *backward = bl_signature_of(grad_op);
    keep_masks m = {0};
    for (int i = 0; i < backward->n_in; i++) {
        int k = bl_signature_find(forward, backward->operand[i].name);
        if (k >= forward->n_in)
            m.out |= 1u << (k - forward->n_in);
        else if (k >= 0)
            m.in |= 1u << k;
    }
    for (int o = 0; o < backward->n_out; o++) {
        int k = input_of(op, backward, o);
        m.makes |= k >= 0 ? 1u << k : 0;
    }
    return m;
}

static void make_masks(void)
{
    for (int op = 1; op < BL_N_OPS; op++)
        if (bl_kernel_rows[op].signature != NULL)
            for (int g = 0; g < BL_MAX_GRADS && bl_kernel_rows[op].grad[g] != 0; g++)
                masks[op][g] = names_of(op, bl_kernel_rows[op].grad[g]);
}

/* ---- maps ------------------------------------------------------------------------------------------------------------ */

static void rule_map(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    const bl_row *row = &bl_kernel_rows[node->op];
    belay_tensor g = node->grad[0];
    for (int k = 0; k < node->n_in; k++) {
        int op = row->grad[k];
        if (!node->in[k].is_wanted || op == BL_OP_none)
            continue;
        if (op == BL_OP_pass_grad) {
            grad_in[k] = bl_launch_sum_to(context, g, &node->in[k].shape);
            continue;
        }
        bl_call call = {.context = context, .op = op, .params = node->params, .is_backward = true};
        call.site = node->site;
        call.layer = node->layer;
        if (bl_kernel_rows[op].skeleton == BL_SKELETON_MASK) {
            call.n_in = 2;
            call.in[0] = node->in[0].kept;
            call.in[1] = g;
            call.params.i[0] = k == 1;
        } else if (bl_kernel_rows[op].skeleton == BL_SKELETON_MAP1R) {
            call.n_in = 1;
            call.in[0] = g;
        } else {
            belay_tensor second = node->n_in > 1 ? node->in[1].kept : node->kept_out[0];
            call.n_in = 3;
            call.in[0] = g;
            call.in[1] = belay_tensor_is_nil(node->in[0].kept) ? g : node->in[0].kept;
            call.in[2] = belay_tensor_is_nil(second) ? g : second;
        }
        if (bl_launch_run(&call))
            grad_in[k] = bl_launch_sum_to(context, call.out[0], &node->in[k].shape);
    }
}

/* ---- by names -------------------------------------------------------------------------------------------------------- */

/* The gradient that arrived at an output, zeros where none did. */
static belay_tensor arrived(belay_context *context, bl_node *node, int output)
{
    if (belay_tensor_is_nil(node->grad[output])) {
        int other = 0; /* one has arrived, else the node would not be walked */
        while (other + 1 < node->n_out && belay_tensor_is_nil(node->grad[other]))
            other++;
        return bl_launch_fill_like(context, node->grad[other], node->out_dtype[output], &node->out_shape[output], 0);
    }
    return bl_launch_contiguous(context, node->grad[output]);
}

/* The operand that a gradient op's input names: what was kept, or a gradient of an output. */
static belay_tensor operand_named(belay_context *context, bl_node *node, const char *name)
{
    const bl_signature *forward = bl_signature_of(node->op);
    int k = bl_signature_find(forward, name);
    if (k >= forward->n_in)
        return node->kept_out[k - forward->n_in];
    if (k >= 0)
        return node->in[k].kept;
    k = strncmp(name, "g_", 2) == 0 ? bl_signature_find(forward, name + 2) : -1;
    return k >= forward->n_in ? arrived(context, node, k - forward->n_in) : (belay_tensor){0};
}

/* Which inputs want a gradient. */
static uint32_t wanted_of(const bl_node *node)
{
    uint32_t wanted = 0;
    for (int k = 0; k < node->n_in; k++)
        wanted |= node->in[k].is_wanted ? 1u << k : 0;
    return wanted;
}

/* A sum by index goes straight into what the leaf has collected: a table is large, the rows of a batch are few. */
static void add_in_place(belay_context *context, const bl_node *node, const bl_signature *backward, bl_call *call)
{
    int k = input_of(node->op, backward, 0);
    if (bl_kernel_rows[call->op].skeleton != BL_SKELETON_SORTED || backward->n_out != 1 || k < 0 || k >= node->n_in)
        return;
    call->into = bl_grad_collected(context, node, k);
    call->params.i[7] = !belay_tensor_is_nil(call->into);
}

static void rule_signature(belay_context *context, bl_node *node, belay_tensor *grad_in)
{
    const bl_row *row = &bl_kernel_rows[node->op];
    uint32_t wanted = wanted_of(node);
    for (int g = 0; g < BL_MAX_GRADS && row->grad[g] != BL_OP_none; g++) {
        const bl_signature *backward = bl_signature_of(row->grad[g]);
        if ((masks[node->op][g].makes & wanted) == 0)
            continue;
        bl_call call = {.context = context, .op = row->grad[g], .n_in = backward->n_in, .params = node->params};
        call.policy = node->policy;
        call.is_backward = true;
        call.site = node->site;
        call.layer = node->layer;
        call.has_dims = true;
        call.dims_of = node->op;
        memcpy(call.dims, node->dims, sizeof call.dims);
        if (bl_kernel_rows[call.op].skeleton == BL_SKELETON_REDUCE &&
            bl_kernel_rows[node->op].skeleton != BL_SKELETON_REDUCE)
            call.params.f[0] = 1; /* a reduction's divisor */
        for (int i = 0; i < backward->n_in; i++)
            call.in[i] = operand_named(context, node, backward->operand[i].name);
        add_in_place(context, node, backward, &call);
        if (!bl_launch_run(&call) || !belay_tensor_is_nil(call.into))
            continue;
        for (int o = 0; o < call.n_out; o++) {
            int k = input_of(node->op, backward, o);
            if (k >= 0 && k < node->n_in)
                grad_in[k] = call.out[o];
        }
    }
}

/* ---- recording ------------------------------------------------------------------------------------------------------- */

static bool has_gradient(const bl_row *row)
{
    for (int g = 0; g < BL_MAX_GRADS; g++)
        if (row->grad[g] != BL_OP_none)
            return true;
    return false;
}

/* Sizes by the signature's symbols, read off the operands. */
static void note_dims(const bl_call *call, bl_node *node)
{
    const bl_signature *s = bl_signature_of(call->op);
    for (int i = 0; i < 8; i++)
        node->dims[i] = -1;
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        belay_tensor tensor = k < s->n_in ? call->in[k] : call->out[k - s->n_in];
        const bl_slot *slot = belay_tensor_is_nil(tensor) ? NULL : bl_slot_get(call->context, tensor);
        for (int i = 0; slot != NULL && i < s->operand[k].n_axes; i++)
            node->dims[s->operand[k].axis[i]] = slot->size[i];
    }
}

/* The operands that a map's gradient reads, where those are fewer than its op keeps: another may be written before. */
static uint32_t read_by(int grad_op)
{
    switch (grad_op) {
    case BL_OP_none:
        return 0;
    case BL_OP_mul_grad_a:
    case BL_OP_div_grad_a:
        return BL_KEEP_B;
    case BL_OP_mul_grad_b:
    case BL_OP_binary_error_grad_b:
        return BL_KEEP_A;
    default:
        return BL_KEEP_A | BL_KEEP_B | BL_KEEP_B << 1;
    }
}

/* What the gradients that are wanted read. */
static keep_masks kept_by(const bl_row *row, const bl_node *node)
{
    uint32_t wanted = wanted_of(node);
    keep_masks kept = {0};
    for (int g = 0; g < BL_MAX_GRADS && row->signature != NULL; g++) {
        const keep_masks *m = &masks[node->op][g];
        kept.in |= (m->makes & wanted) != 0 ? m->in : 0;
        kept.out |= (m->makes & wanted) != 0 ? m->out : 0;
    }
    if (row->signature != NULL)
        return kept;
    for (int k = 0; k < node->n_in; k++)
        kept.in |= (wanted >> k & 1) != 0 ? read_by(row->grad[k]) : 0;
    kept.in = (kept.in & (uint32_t)row->keep) | (row->skeleton == BL_SKELETON_SELECT);
    kept.out = (row->keep & BL_KEEP_OUT) != 0;
    return kept;
}

void bl_grad_record_call(const bl_call *call)
{
    const bl_row *row = &bl_kernel_rows[call->op];
    bool is_map = row->signature == NULL;
    if (!has_gradient(row) || !bl_grad_is_wanted(call->context, call->in, call->n_in))
        return;
    pthread_once(&masks_made, make_masks);
    bl_node *node =
        bl_grad_record(call->context, is_map ? rule_map : rule_signature, call->in, call->n_in, call->out, call->n_out);
    if (node == NULL)
        return;
    node->op = call->op;
    node->params = call->params;
    node->policy = call->policy;
    if (!is_map)
        note_dims(call, node);
    keep_masks kept = kept_by(row, node);
    for (int k = 0; k < call->n_in; k++)
        if (kept.in >> k & 1)
            node->in[k].kept = bl_tensor_hold(call->context, call->in[k]);
    for (int o = 0; o < call->n_out; o++)
        if (kept.out >> o & 1)
            node->kept_out[o] = bl_tensor_hold(call->context, call->out[o]);
}
