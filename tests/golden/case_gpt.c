/* SPDX-License-Identifier: Apache-2.0 */
/* Attention from primitives, and a decoder in the manner of GPT-2 whose head is its token table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/golden.h"

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

static void run_attention(golden *g)
{
    belay_tensor q = golden_input(g, "q"), k = golden_input(g, "k");
    golden_output(g, "y", attend(g, q, k, golden_input(g, "v"), golden_flag(g, "causal")));
}

const golden_op golden_attention_ops[] = {
    {"attention", .run = run_attention},
    {0},
};

/* ---- the decoder ---- */

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

/* ids[:, :-1] predict ids[:, 1:]. */
static belay_tensor loss_of(const decoder *d, int64_t step)
{
    belay_tensor ids = golden_input_row(d->g, "ids", step);
    belay_tensor logits = logits_of(d, belay_slice(ids, 1, 0, -1, 1));
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

void golden_train_gpt(golden *g)
{
    decoder d = {g, (int64_t)golden_number(g, "heads"), (int64_t)golden_number(g, "blocks")};
    belay_tensor leaf[GOLDEN_NAMES];
    double loss[MAX_STEPS] = {0};
    belay_adam_options options = golden_adam_options(g);
    int n_steps = (int)golden_number(g, "steps");
    int64_t n_leaves = make_leaves(g, leaf);
    belay_optimizer *o = belay_adamw_over(g->context, leaf, n_leaves, &options);
    for (int step = 0; step < n_steps && step < MAX_STEPS; step++) {
        belay_scope scope = belay_scope_open(g->context);
        belay_tensor of_step = loss_of(&d, step);
        belay_backward(of_step);
        loss[step] = belay_tensor_item(of_step);
        if (step == 0)
            check_leaves(g, "grad.", true);
        belay_optimizer_step(o);
        belay_scope_close(scope);
    }
    golden_check_numbers(g, "output.loss", loss, n_steps);
    check_leaves(g, "output.final.", false);
    g->n_leaves = 0; /* all is compared */
}
