/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention, the decoder block and GPT-2: names and layouts as PyTorch's and Hugging Face's, what they
 * compute, what they refuse, and what happens when memory ends. */
#include "nn/expect.h"

#include <belay/optim.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static void parameters_have_the_names_order_and_layouts_of_pytorch_and_hugging_face(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const named attention[] = {{"in_proj_weight", belay_shape2(18, 6)},
                               {"in_proj_bias", belay_shape1(18)},
                               {"out_proj.weight", belay_shape2(6, 6)},
                               {"out_proj.bias", belay_shape1(6)}};
    belay_multihead_attention_module_options o = {.embed = 6, .heads = 2};
    expect_parameters(belay_multihead_attention_module(context, &o), attention, 4);
    const named plain[] = {{"in_proj_weight", belay_shape2(18, 6)}, {"out_proj.weight", belay_shape2(6, 6)}};
    o.no_bias = true;
    expect_parameters(belay_multihead_attention_module(context, &o), plain, 2);
    const named model[] = {
        {"transformer.wte.weight", belay_shape2(11, 768)},
        {"transformer.wpe.weight", belay_shape2(5, 768)},
        {"transformer.h.0.ln_1.weight", belay_shape1(768)},
        {"transformer.h.0.ln_1.bias", belay_shape1(768)},
        {"transformer.h.0.attn.c_attn.weight", belay_shape2(768, 2304)},
        {"transformer.h.0.attn.c_attn.bias", belay_shape1(2304)},
        {"transformer.h.0.attn.c_proj.weight", belay_shape2(768, 768)},
        {"transformer.h.0.attn.c_proj.bias", belay_shape1(768)},
        {"transformer.h.0.ln_2.weight", belay_shape1(768)},
        {"transformer.h.0.ln_2.bias", belay_shape1(768)},
        {"transformer.h.0.mlp.c_fc.weight", belay_shape2(768, 3072)},
        {"transformer.h.0.mlp.c_fc.bias", belay_shape1(3072)},
        {"transformer.h.0.mlp.c_proj.weight", belay_shape2(3072, 768)},
        {"transformer.h.0.mlp.c_proj.bias", belay_shape1(768)},
        {"transformer.ln_f.weight", belay_shape1(768)},
        {"transformer.ln_f.bias", belay_shape1(768)},
    };
    belay_gpt2_options small = {.vocabulary = 11, .context = 5, .layers = 1};
    expect_parameters(belay_gpt2(context, &small), model, 16);
    told_close(context);
}

/* Mean and deviation of a parameter's values. */
static void expect_moments(const belay_module *module, const char *name, double mean, double deviation)
{
    static float values[1 << 16];
    double sum = 0, squares = 0;
    belay_tensor tensor = belay_module_find(module, name);
    int64_t n = belay_tensor_n_elements(tensor);
    assert_in_range(n, 1, 1 << 16);
    told_read(tensor, values, n);
    for (int64_t i = 0; i < n; i++)
        sum += (double)values[i];
    for (int64_t i = 0; i < n; i++)
        squares += ((double)values[i] - sum / (double)n) * ((double)values[i] - sum / (double)n);
    double is = sqrt(squares / (double)n);
    if (!(fabs(sum / (double)n - mean) <= 0.1 * deviation) || !(fabs(is - deviation) <= 0.1 * deviation))
        fail_msg("%s has mean %g and deviation %g, not %g and %g", name, sum / (double)n, is, mean, deviation);
}

static void first_values_are_those_of_the_originals(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *model = belay_gpt2(
        context, &(belay_gpt2_options){.vocabulary = 50, .context = 40, .layers = 2, .heads = 4, .width = 64});
    expect_moments(model, "transformer.wte.weight", 0, 0.02);
    expect_moments(model, "transformer.wpe.weight", 0, 0.02);
    expect_moments(model, "transformer.h.1.attn.c_attn.weight", 0, 0.02);
    expect_moments(model, "transformer.h.1.attn.c_proj.weight", 0, 0.01);
    expect_moments(model, "transformer.h.0.mlp.c_fc.weight", 0, 0.02);
    expect_moments(model, "transformer.h.0.mlp.c_proj.weight", 0, 0.01);
    expect_moments(model, "transformer.h.0.mlp.c_proj.bias", 0, 0);
    expect_moments(model, "transformer.ln_f.weight", 1, 0);
    belay_module *attention =
        belay_multihead_attention_module(context, &(belay_multihead_attention_module_options){.embed = 96, .heads = 3});
    expect_moments(attention, "in_proj_weight", 0, sqrt(1.5 / 96 / 3)); /* of a uniform: its bound over sqrt(3) */
    expect_moments(attention, "out_proj.weight", 0, sqrt(1.0 / 96 / 3));
    expect_moments(attention, "in_proj_bias", 0, 0);
    expect_moments(attention, "out_proj.bias", 0, 0);
    told_close(context);
}

/* ---- what they compute ---- */

enum { BATCH = 2, TIME = 7, EMBED = 6, HEADS = 3 };

static belay_tensor drawn(belay_context *context, int64_t time)
{
    return belay_normal(context, BELAY_F32, belay_shape3(BATCH, time, EMBED), 0, 1);
}

static belay_tensor heads_of(belay_tensor x)
{
    belay_shape s = belay_tensor_shape(x);
    return belay_transpose(belay_view(x, belay_shape4(s.size[0], s.size[1], HEADS, EMBED / HEADS)), 1, 2);
}

/* The module by primitives, with all scores in memory; mask [queries, keys] of 0 and -Inf, or nil. */
static belay_tensor by_primitives(const belay_module *module, belay_tensor q, belay_tensor k, belay_tensor v,
                                  belay_tensor mask)
{
    const belay_tensor x[] = {q, k, v};
    belay_tensor part[3], weight = belay_module_find(module, "in_proj_weight");
    belay_tensor bias = belay_module_find(module, "in_proj_bias");
    for (int i = 0; i < 3; i++)
        part[i] = heads_of(belay_linear(x[i], belay_slice(weight, 0, i * EMBED, (i + 1) * EMBED, 1),
                                        belay_slice(bias, 0, i * EMBED, (i + 1) * EMBED, 1)));
    belay_tensor scores =
        belay_affine(belay_matmul(part[0], belay_transpose(part[1], 2, 3)), 1 / sqrt((double)EMBED / HEADS), 0);
    if (!belay_tensor_is_nil(mask))
        scores = belay_add(scores, mask);
    belay_tensor y = belay_transpose(belay_matmul(belay_softmax(scores, -1), part[2]), 1, 2);
    belay_shape s = belay_tensor_shape(y);
    return belay_linear(belay_view(y, belay_shape3(s.size[0], s.size[1], EMBED)),
                        belay_module_find(module, "out_proj.weight"), belay_module_find(module, "out_proj.bias"));
}

static void expect_same(const char *what, belay_tensor a, belay_tensor b)
{
    float x[512], y[512];
    int64_t n = belay_tensor_n_elements(a);
    assert_in_range(n, 1, 512);
    assert_int_equal(belay_tensor_n_elements(b), n);
    told_read(a, x, n);
    told_read(b, y, n);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i] - y[i]) <= 2e-5f + 2e-5f * fabsf(y[i])))
            fail_msg("%s: element %d is %.9g and %.9g", what, (int)i, (double)x[i], (double)y[i]);
}

/* Walks back from y and keeps the gradients of x and of every parameter. */
static int gradients(belay_module *module, belay_tensor x, belay_tensor y, belay_tensor out[8])
{
    int n = 0;
    belay_backward(belay_sum(belay_mul(y, y), NULL));
    out[n++] = belay_affine(belay_tensor_grad(x), 1, 0);
    for (int64_t i = 0; i < belay_module_n_parameters(module); i++)
        out[n++] = belay_affine(belay_tensor_grad(belay_module_parameter(module, i)), 1, 0);
    belay_module_grads_clear(module);
    belay_tensor_grad_clear(x);
    return n;
}

/* Biases that are not zero. */
static belay_module *attention_module(belay_context *context, bool causal)
{
    const float bias[3 * EMBED] = {0.1f, -0.2f, 0.3f, 0.5f, -0.4f, 0.6f, 0.2f, 0.1f, -0.7f,
                                   0.3f, 0.2f,  0.1f, 0.9f, -0.1f, 0.2f, 0.4f, 0.5f, -0.3f};
    belay_module *module = belay_multihead_attention_module(
        context, &(belay_multihead_attention_module_options){.embed = EMBED, .heads = HEADS, .causal = causal});
    assert_int_equal(belay_tensor_write(belay_module_find(module, "in_proj_bias"), bias, sizeof bias), BELAY_OK);
    assert_int_equal(belay_tensor_write(belay_module_find(module, "out_proj.bias"), bias, EMBED * 4), BELAY_OK);
    return module;
}

static void attention_to_itself_is_the_primitives_forward_and_backward(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        float never[TIME * TIME];
        belay_tensor got[8], want[8], mask = {0};
        belay_context *context = told_open();
        for (int i = 0; i < TIME * TIME; i++)
            never[i] = i % TIME > i / TIME ? -INFINITY : 0;
        if (causal)
            mask = told_f32(context, belay_shape2(TIME, TIME), never);
        belay_module *module = attention_module(context, causal != 0);
        belay_tensor x = belay_tensor_requires_grad_set(drawn(context, TIME), true);
        belay_tensor y = belay_forward(module, x), plain = by_primitives(module, x, x, x, mask);
        expect_same("output", y, plain);
        int n = gradients(module, x, y, got);
        assert_int_equal(gradients(module, x, plain, want), n);
        for (int i = 0; i < n; i++)
            expect_same(i == 0 ? "gradient of x" : belay_module_parameter_name(module, i - 1), got[i], want[i]);
        told_close(context);
    }
}

static void attention_to_others_is_the_primitives_forward_and_backward(void **state)
{
    (void)state;
    belay_tensor got[8], want[8], none = {0};
    belay_context *context = told_open();
    belay_module *module = attention_module(context, false);
    belay_tensor q = belay_tensor_requires_grad_set(drawn(context, 3), true), k = drawn(context, TIME);
    belay_tensor v = drawn(context, TIME);
    belay_tensor y = belay_multihead_attention_module_run(module, q, k, v);
    belay_tensor plain = by_primitives(module, q, k, v, none);
    expect_same("output", y, plain);
    int n = gradients(module, q, y, got);
    assert_int_equal(gradients(module, q, plain, want), n);
    for (int i = 0; i < n; i++)
        expect_same(i == 0 ? "gradient of q" : belay_module_parameter_name(module, i - 1), got[i], want[i]);
    expect_same("itself", belay_multihead_attention_module_run(module, q, q, q), belay_forward(module, q));
    told_close(context);
}

static belay_module *small_gpt2(belay_context *context, double dropout)
{
    return belay_gpt2(
        context,
        &(belay_gpt2_options){.vocabulary = 9, .context = 8, .layers = 2, .heads = 2, .width = 8, .dropout = dropout});
}

static const int32_t tokens[] = {1, 2, 6, 0, 8, 3, 3, 5, 7, 4, 2, 1};

static belay_tensor ids_of(belay_context *context) /* [2, 6] */
{
    return belay_tensor_from(context, BELAY_I32, belay_shape2(2, 6), tokens, sizeof tokens);
}

static void no_position_sees_those_behind_it(void **state)
{
    (void)state;
    float before[9 * 12], after[9 * 12];
    int32_t other[12];
    belay_context *context = told_open();
    belay_module *model = small_gpt2(context, 0);
    told_read(belay_forward(model, ids_of(context)), before, 9 * 12);
    memcpy(other, tokens, sizeof tokens);
    other[4] = 1; /* the first text's last but one */
    belay_tensor changed = belay_tensor_from(context, BELAY_I32, belay_shape2(2, 6), other, sizeof other);
    told_read(belay_forward(model, changed), after, 9 * 12);
    assert_memory_equal(before, after, 4 * 9 * sizeof(float));
    assert_memory_not_equal(before + 9 * 4, after + 9 * 4, 9 * sizeof(float));
    assert_memory_not_equal(before + 9 * 5, after + 9 * 5, 9 * sizeof(float));
    assert_memory_equal(before + 9 * 6, after + 9 * 6, 6 * 9 * sizeof(float));
    told_close(context);
}

static void dropout_acts_in_training_only(void **state)
{
    (void)state;
    float a[9 * 12], b[9 * 12];
    belay_context *context = told_open();
    belay_module *model = small_gpt2(context, 0.5);
    told_read(belay_forward(model, ids_of(context)), a, 9 * 12);
    told_read(belay_forward(model, ids_of(context)), b, 9 * 12);
    assert_memory_not_equal(a, b, sizeof a);
    belay_module_training_set(model, false);
    told_read(belay_forward(model, ids_of(context)), a, 9 * 12);
    told_read(belay_forward(model, ids_of(context)), b, 9 * 12);
    assert_memory_equal(a, b, sizeof a);
    told_close(context);
}

/* Multi-head attention drops probabilities; without training it is the one that drops nothing. */
static void attention_drops_probabilities_in_training_only(void **state)
{
    (void)state;
    float a[2 * 5 * 6], b[2 * 5 * 6];
    belay_context *context = told_open();
    const belay_multihead_attention_module_options o = {.embed = 6, .heads = 2, .causal = true, .dropout = 0.5};
    belay_module *module = belay_multihead_attention_module(context, &o);
    belay_tensor x = belay_normal(context, BELAY_F32, belay_shape3(2, 5, 6), 0, 1);
    told_read(belay_forward(module, x), a, 2 * 5 * 6);
    told_read(belay_forward(module, x), b, 2 * 5 * 6);
    assert_memory_not_equal(a, b, sizeof a);
    told_read(belay_multihead_attention_module_run(module, x, x, x), a, 2 * 5 * 6);
    assert_memory_not_equal(a, b, sizeof a);
    belay_module_training_set(module, false);
    told_read(belay_forward(module, x), a, 2 * 5 * 6);
    told_read(belay_multihead_attention_module_run(module, x, x, x), b, 2 * 5 * 6);
    for (int i = 0; i < 2 * 5 * 6; i++)
        assert_true(fabsf(a[i] - b[i]) < 1e-6f);
    told_read(belay_forward(module, x), b, 2 * 5 * 6);
    assert_memory_equal(a, b, sizeof a);
    told_close(context);
}

/* One step on next tokens; the loss, NaN after a fault. */
static double train_step(belay_context *context, belay_module *model, belay_optimizer *adam)
{
    belay_scope step = belay_scope_open(context);
    belay_tensor ids = ids_of(context);
    belay_tensor logits = belay_forward(model, belay_slice(ids, 1, 0, -1, 1));
    belay_tensor labels = belay_view(belay_slice(ids, 1, 1, BELAY_END, 1), belay_shape1(-1));
    belay_tensor loss = belay_cross_entropy(belay_view(logits, belay_shape2(-1, 9)), labels, NULL);
    belay_backward(loss);
    double value = belay_tensor_is_nil(loss) ? (double)NAN : belay_tensor_item(loss);
    belay_optimizer_step(adam);
    belay_scope_close(step);
    return value;
}

static void training_lowers_the_loss(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *model = small_gpt2(context, 0);
    belay_optimizer *adam = belay_adamw(model, &(belay_adam_options){.lr = 0.01});
    double first = train_step(context, model, adam), last = 0;
    for (int i = 0; i < 60; i++)
        last = train_step(context, model, adam);
    assert_true(fabs(first - log(9)) < 0.1);
    assert_true(last < 0.3 * first);
    told_close(context);
}

/* ---- what they refuse ---- */

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *model = small_gpt2(context, 0), *attention = attention_module(context, false);
    belay_tensor two = belay_zeros(context, BELAY_F32, belay_shape2(3, EMBED)), none = {0};
    belay_tensor wide = belay_zeros(context, BELAY_F32, belay_shape3(2, 3, EMBED + 1));
    int line = __LINE__ + 1;
    belay_forward(model, belay_zeros(context, BELAY_I64, belay_shape2(1, 9)));
    told_expect("belay: gpt2 was given 9 tokens in a row; its context holds 8 (shape.contract)\n"
                "    op: gpt2 in layer gpt2.transformer, called at test_transformer.c:%d\n"
                "    tensors: ids [1, 9] i64; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    line = __LINE__ + 1;
    belay_forward(model, belay_zeros(context, BELAY_I64, belay_shape1(4)));
    told_expect("belay: gpt2 takes ids [batch, time], not 1 axes (shape.rank)\n"
                "    op: gpt2 in layer gpt2.transformer, called at test_transformer.c:%d\n"
                "    tensors: ids [4] i64; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_RANK));
    line = __LINE__ + 1;
    belay_forward(attention, two);
    told_expect("belay: multihead_attention takes x [batch, time, width], not 2 axes (shape.rank)\n"
                "    op: multihead_attention in layer multihead_attention, called at test_transformer.c:%d\n"
                "    tensors: x [3, 6] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_RANK));
    line = __LINE__ + 1;
    belay_forward(attention, wide);
    told_expect("belay: x has 7 features where weight takes 6 (shape.contract)\n"
                "    op: linear in layer multihead_attention, called at test_transformer.c:%d\n"
                "    tensors: x [2, 3, 7] f32; in_proj_weight [18, 6] f32; in_proj_bias [18] f32; on cpu\n" TOLD_START
                "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    line = __LINE__ + 1;
    belay_multihead_attention_module_run(model, wide, wide, wide);
    told_expect("belay: module gpt2 is no multihead_attention (conf.value)\n"
                "    called at: test_transformer.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_VALUE));
    assert_true(belay_tensor_is_nil(belay_multihead_attention_module_run(attention, wide, none, wide)));
    assert_true(belay_tensor_is_nil(belay_multihead_attention_module_run(NULL, wide, wide, wide)));
    assert_true(belay_tensor_is_nil(belay_forward(model, none)));
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), 3);
}

static belay_module *refused_module(belay_context *context, int which)
{
    switch (which) {
    case 0:
        return belay_multihead_attention_module(context, NULL);
    case 1:
        return belay_multihead_attention_module(context,
                                                &(belay_multihead_attention_module_options){.embed = 6, .heads = 4});
    case 2:
        return belay_multihead_attention_module(context, &(belay_multihead_attention_module_options){.embed = 6});
    case 3:
        return belay_multihead_attention_module(
            context, &(belay_multihead_attention_module_options){.embed = INT64_MAX - 1, .heads = 2});
    case 4:
        return belay_transformer_block_module(context, NULL);
    case 5:
        return belay_transformer_block_module(context,
                                              &(belay_transformer_block_module_options){.width = 9, .heads = 2});
    case 6:
        return belay_transformer_block_module(
            context, &(belay_transformer_block_module_options){.width = 8, .heads = 2, .layers = -1});
    case 7:
        return belay_transformer_block_module(
            context, &(belay_transformer_block_module_options){.width = INT64_MAX - 1, .heads = 2});
    case 8:
        return belay_gpt2(context, &(belay_gpt2_options){.heads = 7});
    case 9:
        return belay_gpt2(context, &(belay_gpt2_options){.vocabulary = -5});
    case 10:
        return belay_multihead_attention_module(
            context, &(belay_multihead_attention_module_options){.embed = 6, .heads = 2, .dropout = -0.5});
    default:
        return belay_gpt2(context, &(belay_gpt2_options){.dropout = 1});
    }
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    static const char *const words[] = {
        "embed of multihead_attention is 0: it must be at least 1 (conf.value)\n",
        "heads of multihead_attention is 4, which does not divide embed, 6 (conf.value)\n",
        "heads of multihead_attention is 0: it must be at least 1 (conf.value)\n",
        "embed of multihead_attention is 9223372036854775806: three times that is above 2^63 - 1 (size.overflow)\n",
        "width of transformer_block is 0: it must be at least 1 (conf.value)\n",
        "heads of transformer_block is 2, which does not divide width, 9 (conf.value)\n",
        "layers of transformer_block is -1: it must be at least 1 (conf.value)\n",
        "width of transformer_block is 9223372036854775806: four times that is above 2^63 - 1 (size.overflow)\n",
        "heads of gpt2 is 7, which does not divide width, 768 (conf.value)\n",
        "vocabulary of gpt2 is -5: it must be at least 1 (conf.value)\n",
        "dropout of multihead_attention is -0.5, outside [0, 1) (conf.value)\n",
        "dropout of gpt2 is 1, outside [0, 1) (conf.value)\n",
    };
    expect_refusals(refused_module, words, (int)(sizeof words / sizeof words[0]));
}

/* Builds a model and an optimizer and trains one step; whether all of it went well. */
static bool job(int kind)
{
    (void)kind;
    belay_context *context = belay_open(&(belay_options){.log = told_remember, .no_journal = true, .threads = 2});
    belay_module *model = small_gpt2(context, 0.1);
    belay_optimizer *adam = belay_adamw(model, &(belay_adam_options){.lr = 0.01});
    double loss = belay_is_open(context) ? train_step(context, model, adam) : (double)NAN;
    bool is_whole = !belay_module_is_nil(model) && loss > 0;
    return belay_close(context) == 0 && is_whole;
}

static void every_failing_allocation_is_a_named_fault(void **state)
{
    (void)state;
    expect_exhaustion_is_told(job, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_the_names_order_and_layouts_of_pytorch_and_hugging_face),
        cmocka_unit_test(first_values_are_those_of_the_originals),
        cmocka_unit_test(attention_to_itself_is_the_primitives_forward_and_backward),
        cmocka_unit_test(attention_to_others_is_the_primitives_forward_and_backward),
        cmocka_unit_test(no_position_sees_those_behind_it),
        cmocka_unit_test(dropout_acts_in_training_only),
        cmocka_unit_test(attention_drops_probabilities_in_training_only),
        cmocka_unit_test(training_lowers_the_loss),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(every_failing_allocation_is_a_named_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
