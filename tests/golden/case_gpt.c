/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, and a decoder in the manner of GPT-2 whose head is its token table: from primitives, then as a module. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/golden.h"

static void run_attention(golden *g)
{
    belay_tensor q = golden_input(g, "q"), k = golden_input(g, "k");
    belay_attention_options options = {.causal = golden_flag(g, "causal"), .scale = golden_number(g, "scale")};
    golden_output(g, "y", belay_attention(q, k, golden_input(g, "v"), &options));
}

const golden_op golden_attention_ops[] = {
    {"attention", .run = run_attention},
    {0},
};

/* ---- the decoder from primitives ---- */

/* True where query i may see key j: j <= i. */
static belay_tensor causal_mask(golden *g, int64_t n_queries, int64_t n_keys)
{
    uint8_t *mask = calloc((size_t)(n_queries * n_keys) + 1, 1);
    for (int64_t i = 0; i < n_queries && mask != NULL; i++)
        for (int64_t j = 0; j < n_keys; j++)
            mask[i * n_keys + j] = j <= i;
    belay_tensor tensor = golden_from(g, BELAY_BOOL, belay_shape2(n_queries, n_keys), mask, n_queries * n_keys);
    free(mask);
    return tensor;
}

/* softmax(q k^T / sqrt(width)) v; q [..., queries, width], k and v [..., keys, width]. */
static belay_tensor attend(golden *g, belay_tensor q, belay_tensor k, belay_tensor v, bool is_causal)
{
    belay_shape of_q = belay_tensor_shape(q), of_k = belay_tensor_shape(k);
    double width = (double)of_q.size[of_q.rank - 1];
    belay_tensor scores = belay_affine(belay_matmul(q, belay_transpose(k, -2, -1)), 1 / sqrt(width), 0);
    const float never = -INFINITY;
    if (is_causal)
        scores = belay_where(causal_mask(g, of_q.size[of_q.rank - 2], of_k.size[of_k.rank - 2]), scores,
                             golden_from(g, BELAY_F32, belay_shape0(), &never, sizeof never));
    return belay_matmul(belay_softmax(scores, -1), v);
}

enum { MAX_STEPS = 64 };

typedef struct decoder {
    golden *g;
    int64_t heads, blocks;
} decoder;

/* Parameter "<prefix><name>": a leaf that was made before. */
static belay_tensor parameter(const decoder *d, int64_t block, const char *name)
{
    char full[96];
    if (block < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "h.%d.%s", (int)block, name);
    for (int i = 0; i < d->g->n_leaves; i++)
        if (strcmp(d->g->leaf[i].name, full) == 0)
            return d->g->leaf[i].tensor;
    golden_fail(d->g, "the file has no parameter %s", full);
    return (belay_tensor){0};
}

static belay_tensor norm(const decoder *d, int64_t block, const char *name, belay_tensor x)
{
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    return belay_layer_norm(x, 1, parameter(d, block, weight), parameter(d, block, bias),
                            golden_number(d->g, "layer_norm_eps"));
}

static belay_tensor linear(const decoder *d, int64_t block, const char *name, belay_tensor x)
{
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    return belay_linear(x, parameter(d, block, weight), parameter(d, block, bias));
}

/* [batch, time, channel] -> [batch, heads, time, channel / heads] */
static belay_tensor to_heads(const decoder *d, belay_tensor x)
{
    belay_shape s = belay_tensor_shape(x);
    return belay_transpose(belay_view(x, belay_shape4(s.size[0], s.size[1], d->heads, s.size[2] / d->heads)), 1, 2);
}

static belay_tensor attention_block(const decoder *d, int64_t block, belay_tensor x)
{
    belay_shape s = belay_tensor_shape(x);
    const int64_t sizes[] = {s.size[2], s.size[2], s.size[2]};
    belay_tensor part[3];
    belay_split(linear(d, block, "attn.c_attn", x), 2, sizes, 3, part);
    belay_tensor y = attend(d->g, to_heads(d, part[0]), to_heads(d, part[1]), to_heads(d, part[2]), true);
    return linear(d, block, "attn.c_proj", belay_view(belay_transpose(y, 1, 2), s));
}

static belay_tensor logits_of(const decoder *d, belay_tensor ids)
{
    belay_tensor table = parameter(d, -1, "wte.weight");
    belay_tensor places = belay_slice(parameter(d, -1, "wpe.weight"), 0, 0, belay_tensor_shape(ids).size[1], 1);
    belay_tensor x = belay_add(belay_embedding(table, ids, NULL), places);
    for (int64_t block = 0; block < d->blocks; block++) {
        x = belay_add(x, attention_block(d, block, norm(d, block, "ln_1", x)));
        belay_tensor inner = belay_gelu_tanh(linear(d, block, "mlp.c_fc", norm(d, block, "ln_2", x)));
        x = belay_add(x, linear(d, block, "mlp.c_proj", inner));
    }
    return belay_linear(norm(d, -1, "ln_f", x), table, (belay_tensor){0});
}

/* ids[:, :-1] predict ids[:, 1:]; by the module where there is one. */
static belay_tensor loss_of(const decoder *d, belay_module *model, int64_t step)
{
    belay_tensor ids = golden_input_row(d->g, "ids", step), before = belay_slice(ids, 1, 0, -1, 1);
    belay_tensor logits = model != NULL ? belay_forward(model, before) : logits_of(d, before);
    belay_shape s = belay_tensor_shape(logits);
    if (step == 0)
        golden_check(d->g, "output.logits0", logits);
    belay_tensor labels = belay_view(belay_slice(ids, 1, 1, BELAY_END, 1), belay_shape1(-1));
    return belay_cross_entropy(belay_view(logits, belay_shape2(-1, s.size[2])), labels, NULL);
}

static void check_leaves(golden *g, const char *prefix, bool is_grad)
{
    for (int i = 0; i < g->n_leaves; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", prefix, g->leaf[i].name);
        golden_check(g, name, is_grad ? belay_tensor_grad(g->leaf[i].tensor) : g->leaf[i].tensor);
    }
}

/* Makes a leaf of every "param.*". */
static int64_t make_leaves(golden *g, belay_tensor out[GOLDEN_NAMES])
{
    for (int64_t i = 0; i < bl_safetensors_n_entries(g->file); i++) {
        const char *name = bl_safetensors_entry_at(g->file, i)->name;
        if (strncmp(name, "param.", 6) == 0 && g->n_leaves < GOLDEN_NAMES)
            (void)golden_input(g, name + 6);
    }
    for (int i = 0; i < g->n_leaves; i++)
        out[i] = g->leaf[i].tensor;
    return g->n_leaves;
}

/* ---- the decoder as a module ---- */

/* A parameter as the file has it: without "transformer.", and the weights of projections as [out, in]. */
static const char *name_in_file(const char *name)
{
    static const char prefix[] = "transformer.";
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
}

static belay_tensor as_in_file(const char *name, belay_tensor tensor)
{
    bool is_turned = strstr(name, ".c_") != NULL && belay_tensor_shape(tensor).rank == 2;
    return is_turned ? belay_contiguous(belay_transpose(tensor, 0, 1)) : tensor;
}

/* Writes the file's value over a parameter. */
static void load(golden *g, const char *name, belay_tensor parameter)
{
    char full[128];
    const void *bytes;
    snprintf(full, sizeof full, "param.%s", name_in_file(name));
    const bl_safetensors_entry *entry = golden_bytes(g, full, &bytes);
    belay_shape shape = belay_tensor_shape(as_in_file(name, parameter));
    if (entry == NULL)
        return;
    belay_tensor value = golden_from(g, BELAY_F32, shape, bytes, entry->n_bytes);
    belay_tensor turned = as_in_file(name, value);
    float *host = malloc((size_t)entry->n_bytes);
    if (host == NULL || belay_tensor_read(turned, host, entry->n_bytes) != BELAY_OK ||
        belay_tensor_write(parameter, host, entry->n_bytes) != BELAY_OK)
        golden_fail(g, "%s was not loaded", name);
    free(host);
}

static belay_module *make_model(golden *g)
{
    belay_gpt2_options options = {.vocabulary = (int64_t)golden_number(g, "vocab"),
                                  .context = (int64_t)golden_number(g, "context"),
                                  .layers = (int64_t)golden_number(g, "blocks"),
                                  .heads = (int64_t)golden_number(g, "heads"),
                                  .width = (int64_t)golden_number(g, "dim")};
    belay_device_guard guard = golden_there(g);
    belay_module *model = belay_gpt2(g->context, &options);
    golden_back(guard);
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++)
        load(g, belay_module_parameter_name(model, i), belay_module_parameter(model, i));
    return model;
}

static void check_model(golden *g, belay_module *model, const char *prefix, bool is_grad)
{
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        char full[128];
        const char *name = belay_module_parameter_name(model, i);
        belay_tensor tensor = belay_module_parameter(model, i);
        snprintf(full, sizeof full, "%s%s", prefix, name_in_file(name));
        golden_check(g, full, as_in_file(name, is_grad ? belay_tensor_grad(tensor) : tensor));
    }
}

/* ---- whole runs ---- */

/* By the module, or where it is NULL from the leaves. */
static void train(const decoder *d, belay_module *model, belay_optimizer *o)
{
    double loss[MAX_STEPS] = {0};
    int n_steps = (int)golden_number(d->g, "steps");
    for (int step = 0; step < n_steps && step < MAX_STEPS; step++) {
        belay_scope scope = belay_scope_open(d->g->context);
        belay_tensor of_step = loss_of(d, model, step);
        belay_backward(of_step);
        loss[step] = belay_tensor_item(of_step);
        if (step == 0 && model != NULL)
            check_model(d->g, model, "grad.", true);
        else if (step == 0)
            check_leaves(d->g, "grad.", true);
        belay_optimizer_step(o);
        belay_scope_close(scope);
    }
    golden_check_numbers(d->g, "output.loss", loss, n_steps);
}

void golden_train_gpt(golden *g)
{
    decoder d = {g, (int64_t)golden_number(g, "heads"), (int64_t)golden_number(g, "blocks")};
    belay_tensor leaf[GOLDEN_NAMES];
    belay_adam_options options = golden_adam_options(g);
    int64_t n_leaves = make_leaves(g, leaf);
    train(&d, NULL, belay_adamw_over(g->context, leaf, n_leaves, &options));
    check_leaves(g, "output.final.", false);
    belay_module *model = make_model(g);
    train(&d, model, belay_adamw(model, &options));
    belay_scope scope = belay_scope_open(g->context);
    check_model(g, model, "output.final.", false);
    belay_scope_close(scope);
    g->n_leaves = 0; /* all is compared */
}
