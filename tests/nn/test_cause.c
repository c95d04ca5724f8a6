/* SPDX-License-Identifier: Apache-2.0 */
/* One cause, one paragraph: where a part of a module cannot be made, or a part of a forward, what needs it absorbs; and
 * numbers of parts have limits that are named before anything is made. */
#include "support/told.h"

#include <belay/nn.h>

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { WIDTH = 4, HEADS = 2, LAYERS = 2, IDS = 5 };

/* ---- every maker ----------------------------------------------------------------------------------------------------- */

static belay_module *make_lstm(belay_context *context, belay_dtype dtype)
{
    return belay_lstm_module(
        context,
        &(belay_lstm_module_options){
            .in = WIDTH, .hidden = WIDTH, .layers = LAYERS, .dropout = 0.5, .dtype = dtype, .bidirectional = true});
}
static belay_module *make_gru(belay_context *context, belay_dtype dtype)
{
    return belay_gru_module(
        context,
        &(belay_gru_module_options){.in = WIDTH, .hidden = WIDTH, .layers = LAYERS, .dropout = 0.5, .dtype = dtype});
}
static belay_module *make_attention(belay_context *context, belay_dtype dtype)
{
    return belay_multihead_attention_module(
        context, &(belay_multihead_attention_module_options){.embed = WIDTH, .heads = HEADS, .dtype = dtype});
}
static belay_module *make_block(belay_context *context, belay_dtype dtype)
{
    return belay_transformer_block_module(context, &(belay_transformer_block_module_options){
                                                       .width = WIDTH, .heads = HEADS, .dropout = 0.1, .dtype = dtype});
}
static belay_module *make_mlp(belay_context *context, belay_dtype dtype)
{
    return belay_mlp(context, &(belay_mlp_options){.sizes = {WIDTH, WIDTH, WIDTH}, .dropout = 0.1, .dtype = dtype});
}
static belay_module *make_batch_norm(belay_context *context, belay_dtype dtype)
{
    return belay_batch_norm_module(context, &(belay_batch_norm_module_options){.channels = 3, .dtype = dtype});
}
static belay_module *make_plain_batch_norm(belay_context *context, belay_dtype dtype)
{
    return belay_batch_norm_module(
        context, &(belay_batch_norm_module_options){.channels = 3, .no_affine = true, .dtype = dtype});
}
static belay_module *make_conv(belay_context *context, belay_dtype dtype)
{
    return belay_conv1d_module(context, &(belay_conv_module_options){.in = 3, .out = 2, .kernel = {2}, .dtype = dtype});
}
static belay_module *make_gpt2(belay_context *context, belay_dtype dtype)
{
    return belay_gpt2(context, &(belay_gpt2_options){.vocabulary = IDS,
                                                     .context = 8,
                                                     .layers = LAYERS,
                                                     .heads = HEADS,
                                                     .width = WIDTH,
                                                     .dropout = 0.1,
                                                     .dtype = dtype});
}
static belay_module *make_lstm_classifier(belay_context *context, belay_dtype dtype)
{
    return belay_text_classifier(
        context, &(belay_text_classifier_options){
                     .n_tokens = IDS, .classes = 2, .embed = WIDTH, .hidden = WIDTH, .dropout = 0.1, .dtype = dtype});
}
static belay_module *make_mean_classifier(belay_context *context, belay_dtype dtype)
{
    return belay_text_classifier(context, &(belay_text_classifier_options){.model = BELAY_TEXT_MEAN,
                                                                           .n_tokens = IDS,
                                                                           .classes = 2,
                                                                           .embed = WIDTH,
                                                                           .hidden = WIDTH,
                                                                           .dropout = 0.1,
                                                                           .dtype = dtype});
}

static const struct {
    const char *name, *first; /* parameter, or buffer */
    belay_module *(*make)(belay_context *context, belay_dtype dtype);
    bool takes_ids;
} makers[] = {
    {"lstm", "parameter weight_ih_l0 of module lstm", make_lstm, false},
    {"gru", "parameter weight_ih_l0 of module gru", make_gru, false},
    {"attention", "parameter in_proj_weight of module multihead_attention", make_attention, false},
    {"block", "parameter weight of module layer_norm", make_block, false},
    {"mlp", "parameter weight of module linear", make_mlp, false},
    {"batch_norm", "parameter weight of module batch_norm", make_batch_norm, false},
    {"plain batch_norm", NULL, make_plain_batch_norm, false},
    {"conv1d", "parameter weight of module conv1d", make_conv, false},
    {"gpt2", "parameter weight of module table", make_gpt2, true},
    {"lstm classifier", "parameter weight of module embedding", make_lstm_classifier, true},
    {"mean classifier", "parameter weight of module embedding", make_mean_classifier, true},
};

static void a_dtype_that_no_parameter_can_have_is_told_once(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof makers / sizeof makers[0]); i++) {
        belay_context *context = told_open();
        bool has_parameters = makers[i].first != NULL; /* statistics are none */
        char words[160] = "belay: dtype 99 is none (type.dtype)\n";
        if (has_parameters)
            snprintf(words, sizeof words, "belay: %s cannot be i64: it has a gradient (type.dtype)\n", makers[i].first);
        assert_true(belay_module_is_nil(makers[i].make(context, has_parameters ? BELAY_I64 : (belay_dtype)99)));
        assert_int_equal(belay_n_faults(context), 1);
        assert_memory_equal(told(), words, strlen(words));
        told_clear();
        belay_close(context);
    }
}

/* Three samples of four steps of WIDTH values, or of IDS. */
static void run(belay_context *context, belay_module *module, bool takes_ids)
{
    belay_scope scope = belay_scope_open(context);
    belay_tensor x;
    if (takes_ids)
        x = belay_view(belay_arange(context, BELAY_I64, 4, 1, 1), belay_shape2(1, 4));
    else
        x = belay_view(belay_arange(context, BELAY_F32, 3 * 3 * WIDTH, -1, 0.1), belay_shape3(3, 3, WIDTH));
    belay_backward(belay_sum(belay_forward(module, x), NULL));
    belay_scope_close(scope);
}

static void one_allocation_that_fails_is_told_once(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof makers / sizeof makers[0]); i++) {
        bool failed = true;
        for (int64_t n = 0; failed; n++) {
            belay_context *context = told_open();
            bl_memory_fail_at(n);
            run(context, makers[i].make(context, BELAY_F32), makers[i].takes_ids);
            failed = bl_memory_failed();
            bl_memory_fail_at(-1);
            if (belay_n_faults(context) > 1)
                fail_msg("%s, allocation %lld:\n%s", makers[i].name, (long long)n, told());
            told_clear();
            belay_close(context);
        }
    }
}

/* As long a sequence as a view can say, of which nothing can be computed. */
static void a_forward_that_no_memory_holds_is_told_once(void **state)
{
    (void)state;
    belay_module *(*const make[])(belay_context *, belay_dtype) = {make_lstm, make_gru, make_attention, make_block};
    for (int i = 0; i < 4; i++) {
        belay_context *context = told_open();
        belay_module *module = make[i](context, BELAY_F32);
        belay_tensor x = belay_expand(belay_zeros(context, BELAY_F32, belay_shape3(1, 1, WIDTH)),
                                      belay_shape3(1, INT64_C(1) << 44, WIDTH));
        assert_true(belay_tensor_is_nil(belay_forward(module, x)));
        assert_int_equal(belay_n_faults(context), 1);
        told_clear();
        belay_close(context);
    }
}

/* ---- limits ---------------------------------------------------------------------------------------------------------- */

static void expect_limit(int line, const char *what)
{
    told_expect("belay: %s (conf.value)\n    called at: test_cause.c:%d\n" TOLD_START "%s", what, line,
                told_try(BELAY_CONF_VALUE));
}

/* Refused before anything of them is made: no allocation is asked for but the words of the fault. */
static void numbers_of_layers_have_limits_that_are_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_gpt2(context, &(belay_gpt2_options){.layers = INT64_C(1) << 40});
    expect_limit(__LINE__ - 1, "layers of gpt2 is 1099511627776, outside [1, 4096]");
    belay_gpt2(context, &(belay_gpt2_options){.layers = -1});
    expect_limit(__LINE__ - 1, "layers of gpt2 is -1, outside [1, 4096]");
    belay_lstm_module(context, &(belay_lstm_module_options){.in = 1, .hidden = 1, .layers = INT32_MAX});
    expect_limit(__LINE__ - 1, "layers of lstm is 2147483647, outside [1, 30]");
    belay_gru_module(context, &(belay_gru_module_options){.in = 1, .hidden = 1, .layers = 16, .bidirectional = true});
    expect_limit(__LINE__ - 1, "layers of gru is 16, outside [1, 15] in both directions");
    belay_text_classifier(context, &(belay_text_classifier_options){.n_tokens = 2, .classes = 2, .layers = 31});
    expect_limit(__LINE__ - 1, "layers of text_classifier is 31, outside [1, 30]");
    assert_int_equal(belay_memory_get(context).peak, 0);
    belay_close(context);
}

/* Sizes that cannot be are told by the first tensor that would have them, and what was made before it goes. */
static void sizes_that_cannot_be_are_told_once_and_keep_nothing(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_gpt2(context, &(belay_gpt2_options){.width = INT64_C(1) << 60, .heads = 1});
    told_expect("belay: a tensor of shape [50257, 1152921504606846976] has more bytes than 2^63 - 1 (size.overflow)\n"
                "    called at: test_cause.c:%d\n" TOLD_START "%s",
                __LINE__ - 3, told_try(BELAY_SIZE_OVERFLOW));
    belay_text_classifier(context, &(belay_text_classifier_options){.n_tokens = 2, .classes = INT64_C(1) << 60});
    told_expect("belay: a tensor of shape [1152921504606846976, 256] has more bytes than 2^63 - 1 (size.overflow)\n"
                "    called at: test_cause.c:%d\n" TOLD_START "%s",
                __LINE__ - 3, told_try(BELAY_SIZE_OVERFLOW));
    assert_int_equal(belay_memory_get(context).in_use, 0);
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dtype_that_no_parameter_can_have_is_told_once),
        cmocka_unit_test(a_forward_that_no_memory_holds_is_told_once),
        cmocka_unit_test(numbers_of_layers_have_limits_that_are_named),
        cmocka_unit_test(sizes_that_cannot_be_are_told_once_and_keep_nothing),
        cmocka_unit_test(one_allocation_that_fails_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
