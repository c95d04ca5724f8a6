/* SPDX-License-Identifier: Apache-2.0 */
/* Text classifiers and the MLP: names and layouts as PyTorch's, what they compute, what they refuse, and what happens
 * when memory ends. */
#include "nn/expect.h"

#include <belay/optim.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static void parameters_have_names_order_and_layouts_of_pytorch(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const named lstm[] = {
        {"embedding.weight", belay_shape2(7, 128)},
        {"lstm.weight_ih_l0", belay_shape2(1024, 128)},
        {"lstm.weight_hh_l0", belay_shape2(1024, 256)},
        {"lstm.bias_ih_l0", belay_shape1(1024)},
        {"lstm.bias_hh_l0", belay_shape1(1024)},
        {"lstm.weight_ih_l1", belay_shape2(1024, 256)},
        {"lstm.weight_hh_l1", belay_shape2(1024, 256)},
        {"lstm.bias_ih_l1", belay_shape1(1024)},
        {"lstm.bias_hh_l1", belay_shape1(1024)},
        {"fc.weight", belay_shape2(3, 256)},
        {"fc.bias", belay_shape1(3)},
    };
    belay_text_classifier_options o = {.n_tokens = 7, .classes = 3};
    expect_parameters(belay_text_classifier(context, &o), lstm, 11);
    const named mean[] = {{"embedding.weight", belay_shape2(7, 4)},
                          {"hidden.weight", belay_shape2(6, 4)},
                          {"hidden.bias", belay_shape1(6)},
                          {"fc.weight", belay_shape2(3, 6)},
                          {"fc.bias", belay_shape1(3)}};
    o = (belay_text_classifier_options){.model = BELAY_TEXT_MEAN, .n_tokens = 7, .classes = 3, .embed = 4, .hidden = 6};
    expect_parameters(belay_text_classifier(context, &o), mean, 5);
    const named straight[] = {
        {"embedding.weight", belay_shape2(7, 4)}, {"fc.weight", belay_shape2(3, 4)}, {"fc.bias", belay_shape1(3)}};
    o.no_hidden = true;
    expect_parameters(belay_text_classifier(context, &o), straight, 3);
    const named mlp[] = {{"0.weight", belay_shape2(10, 20)},
                         {"0.bias", belay_shape1(10)},
                         {"2.weight", belay_shape2(2, 10)},
                         {"2.bias", belay_shape1(2)}};
    expect_parameters(belay_mlp(context, &(belay_mlp_options){.sizes = {20, 10, 2}}), mlp, 4);
    belay_module *dropping = belay_mlp(context, &(belay_mlp_options){.sizes = {20, 10, 2}, .dropout = 0.5});
    assert_string_equal(belay_module_parameter_name(dropping, 2), "3.weight");
    told_close(context);
}

/* fc.weight picks coordinates of the mean: what the classifier gives is the mean itself. */
static void mean_of(bool mean_all, const int64_t *ids, float *out)
{
    belay_context *context = told_open();
    belay_text_classifier_options o = {
        .model = BELAY_TEXT_MEAN, .n_tokens = 4, .classes = 2, .embed = 2, .no_hidden = true, .mean_all = mean_all};
    belay_module *model = belay_text_classifier(context, &o);
    const float table[] = {100, 200, 1, 2, 3, 5, 8, 13}, pick[] = {1, 0, 0, 1}, none[] = {0, 0};
    assert_int_equal(belay_tensor_write(belay_module_find(model, "embedding.weight"), table, sizeof table), BELAY_OK);
    assert_int_equal(belay_tensor_write(belay_module_find(model, "fc.weight"), pick, sizeof pick), BELAY_OK);
    assert_int_equal(belay_tensor_write(belay_module_find(model, "fc.bias"), none, sizeof none), BELAY_OK);
    belay_tensor x = belay_tensor_from(context, BELAY_I64, belay_shape2(2, 4), ids, 64);
    told_read(belay_forward(model, x), out, 4);
    told_close(context);
}

static void mean_leaves_padding_out_unless_asked_for_all(void **state)
{
    (void)state;
    const int64_t ids[] = {1, 3, 0, 0, 0, 0, 0, 0};
    float out[4];
    mean_of(false, ids, out);
    const float tokens[] = {4.5f, 7.5f, 0, 0}; /* a text without a token gives zeros */
    assert_memory_equal(out, tokens, sizeof out);
    mean_of(true, ids, out);
    const float all[] = {52.25f, 103.75f, 100, 200};
    assert_memory_equal(out, all, sizeof out);
}

/* Small classifiers on six samples of two classes. */
enum { SAMPLES = 6, STEPS = 4 };
static const int64_t sample_ids[SAMPLES * STEPS] = {1, 2, 3, 0, 3, 2, 1, 0, 4, 5, 4, 5,
                                                    1, 1, 2, 2, 5, 4, 0, 0, 4, 4, 4, 4};
static const int64_t sample_labels[SAMPLES] = {0, 0, 1, 0, 1, 1};

static belay_module *small_model(belay_context *context, belay_text_model kind)
{
    return belay_text_classifier(
        context, &(belay_text_classifier_options){
                     .model = kind, .n_tokens = 6, .classes = 2, .embed = 4, .hidden = 5, .layers = 2, .dropout = 0.1});
}

/* One step; the loss before it. */
static double train_step(belay_context *context, belay_module *model, belay_optimizer *adam)
{
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = belay_tensor_from(context, BELAY_I64, belay_shape2(SAMPLES, STEPS), sample_ids, sizeof sample_ids);
    belay_tensor y = belay_tensor_from(context, BELAY_I64, belay_shape1(SAMPLES), sample_labels, sizeof sample_labels);
    belay_tensor loss = belay_cross_entropy(belay_forward(model, x), y, NULL);
    belay_backward(loss);
    belay_optimizer_step(adam);
    double value = belay_tensor_item(loss);
    belay_scope_close(scope);
    return value;
}

static void training_lowers_the_loss(void **state)
{
    (void)state;
    for (int kind = BELAY_TEXT_LSTM; kind <= BELAY_TEXT_MEAN; kind++) {
        belay_context *context = told_open();
        belay_module *model = small_model(context, (belay_text_model)kind);
        belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02});
        double first = train_step(context, model, adam), last = 0;
        for (int step = 0; step < 60; step++)
            last = train_step(context, model, adam);
        assert_true(first > 0.4 && last < 0.1);
        const float zeros[4] = {0};
        float row[24];
        told_read(belay_module_find(model, "embedding.weight"), row, 24);
        assert_memory_equal(row, zeros, sizeof zeros); /* padding stays what it was */
        told_close(context);
    }
}

static void bad_id_names_layer_and_parameter(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *model = small_model(context, BELAY_TEXT_LSTM);
    const int64_t ids[] = {1, 2, 6, 0};
    belay_tensor x = belay_tensor_from(context, BELAY_I64, belay_shape2(2, 2), ids, sizeof ids);
    belay_tensor_name_set(x, "tokens");
    int line = __LINE__ + 1;
    belay_forward(model, x);
    told_expect("belay: tokens[1, 0] is 6, outside [0, 6) of embedding.weight (index.range)\n"
                "    op: embedding in layer classifier.embedding, called at test_classifier.c:%d\n"
                "    tensors: embedding.weight [6, 4] f32; tokens [2, 2] i64; on cpu\n"
                "    bad: 1 of 4 elements; values 6\n" TOLD_START
                "    likely: the value equals the bound: off by one, or a padding or special id that the table was not "
                "grown for\n"
                "    try: Count ids from 0; a padding or special token needs a row of its own: make the table one row "
                "larger.\n",
                line);
    assert_int_equal(belay_close(context), 3);
}

static void an_lstm_without_weights_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape3(4, 5, 3)), none = {0};
    int line = __LINE__ + 1;
    belay_lstm_result r = belay_lstm(x, none, none, NULL, NULL);
    assert_true(belay_tensor_is_nil(r.h_n));
    told_expect("belay: lstm needs the weights of its layers (conf.missing)\n"
                "    called at: test_classifier.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_MISSING));
    belay_close(context);
}

static void shapes_that_do_not_fit_an_lstm_are_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *lstm = belay_lstm_module(context, &(belay_lstm_module_options){.in = 3, .hidden = 2, .layers = 2});
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape3(4, 5, 7)), none = {0};
    int line = __LINE__ + 1;
    belay_forward(lstm, x);
    told_expect("belay: weight_ih of layer 0 is [8, 3] where [8, 7] is needed (shape.contract)\n"
                "    op: lstm in layer lstm, called at test_classifier.c:%d\n"
                "    tensors: x [4, 5, 7] f32; weight_ih_l0 [8, 3] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    belay_tensor state_of_one = belay_zeros(context, BELAY_F32, belay_shape3(1, 4, 2));
    x = belay_zeros(context, BELAY_F32, belay_shape3(4, 5, 3));
    line = __LINE__ + 1;
    belay_lstm_module_run(lstm, x, state_of_one, none);
    told_expect("belay: h0 is [1, 4, 2] where [2, 4, 2] is needed (shape.contract)\n"
                "    op: lstm in layer lstm, called at test_classifier.c:%d\n"
                "    tensors: x [4, 5, 3] f32; h0 [1, 4, 2] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_CONTRACT));
    line = __LINE__ + 1;
    belay_forward(lstm, belay_zeros(context, BELAY_F64, belay_shape3(4, 5, 3)));
    told_expect("belay: weight_ih of layer 0 is f32 where f64 is needed (type.dtype)\n"
                "    op: lstm in layer lstm, called at test_classifier.c:%d\n"
                "    tensors: x [4, 5, 3] f64; weight_ih_l0 [8, 3] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_TYPE_DTYPE));
    line = __LINE__ + 1;
    belay_forward(lstm, belay_zeros(context, BELAY_F32, belay_shape2(4, 3)));
    told_expect("belay: lstm takes x [batch, time, in], not 2 axes (shape.rank)\n"
                "    op: lstm in layer lstm, called at test_classifier.c:%d\n"
                "    tensors: x [4, 3] f32; weight_hh_l0 [8, 2] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_SHAPE_RANK));
    line = __LINE__ + 1;
    belay_lstm_module_run(belay_dropout_module(context, 0), x, none, none);
    told_expect("belay: module dropout is no lstm (conf.value)\n"
                "    called at: test_classifier.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_CONF_VALUE));
    assert_int_equal(belay_close(context), 3);
}

static belay_module *refused_module(belay_context *context, int which)
{
    switch (which) {
    case 0:
        return belay_text_classifier(context, NULL);
    case 1:
        return belay_text_classifier(context, &(belay_text_classifier_options){.n_tokens = 9});
    case 2:
        return belay_text_classifier(context,
                                     &(belay_text_classifier_options){.n_tokens = 9, .classes = 2, .dropout = 1});
    case 3:
        return belay_text_classifier(
            context, &(belay_text_classifier_options){.model = (belay_text_model)7, .n_tokens = 9, .classes = 2});
    case 4:
        return belay_embedding_module(
            context, &(belay_embedding_module_options){.rows = 4, .width = 2, .has_padding = true, .padding = 4});
    case 5:
        return belay_lstm_module(context, &(belay_lstm_module_options){.in = 4, .hidden = 2, .layers = 31});
    case 6:
        return belay_dropout_module(context, (double)NAN);
    case 7:
        return belay_mlp(context, &(belay_mlp_options){.sizes = {4}});
    case 8:
        return belay_layer_norm_module(context, &(belay_layer_norm_module_options){.width = -1});
    case 9:
        return belay_map_module(context, NULL);
    default:
        return belay_lstm_module(context, &(belay_lstm_module_options){.in = 4, .hidden = INT64_MAX / 2});
    }
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    static const char *const words[] = {
        "n_tokens of text_classifier is 0: it must be at least 1 (conf.value)\n",
        "classes of text_classifier is 0: it must be at least 1 (conf.value)\n",
        "dropout of text_classifier is 1, outside [0, 1) (conf.value)\n",
        "model of text_classifier is 7, which is no model (conf.value)\n",
        "padding of embedding is 4, outside [0, 4) (conf.value)\n",
        "layers of lstm is 31, outside [1, 30] (conf.value)\n",
        "dropout of dropout is nan, outside [0, 1) (conf.value)\n",
        "sizes[1] of mlp is 0: it must be at least 1 (conf.value)\n",
        "width of layer_norm is -1: it must be at least 1 (conf.value)\n",
        "a map module was made without its function (conf.value)\n",
        "hidden of lstm is 4611686018427387903: four times that is above 2^63 - 1 (size.overflow)\n",
    };
    expect_refusals(refused_module, words, (int)(sizeof words / sizeof words[0]));
}

/* Builds a model and an optimizer and trains one step; whether all of it went well. */
static bool job(int kind)
{
    belay_context *context = belay_open(&(belay_options){.log = told_remember, .no_journal = true, .threads = 2});
    belay_module *model = small_model(context, (belay_text_model)kind);
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.01});
    double loss = belay_is_open(context) ? train_step(context, model, adam) : (double)NAN;
    bool is_whole = !belay_module_is_nil(model) && loss > 0;
    return belay_close(context) == 0 && is_whole;
}

static void every_failing_allocation_is_a_named_fault(void **state)
{
    (void)state;
    expect_exhaustion_is_told(job, BELAY_TEXT_LSTM);
    expect_exhaustion_is_told(job, BELAY_TEXT_MEAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_names_order_and_layouts_of_pytorch),
        cmocka_unit_test(mean_leaves_padding_out_unless_asked_for_all),
        cmocka_unit_test(training_lowers_the_loss),
        cmocka_unit_test(bad_id_names_layer_and_parameter),
        cmocka_unit_test(an_lstm_without_weights_is_a_fault),
        cmocka_unit_test(shapes_that_do_not_fit_an_lstm_are_named),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(every_failing_allocation_is_a_named_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
