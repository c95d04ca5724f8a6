/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM and GRU as functions with a gradient.  That their values are PyTorch's is the golden runner's to say. */
#include "op/numbers.h"

#include <belay/nn.h>

enum { LAYERS = 2, UNITS = 2 * LAYERS, MOST = 3 + 4 * UNITS };

/* Inputs in the order x, h0, c0, then ih, hh, bias_ih, bias_hh of each unit, a layer in one direction. */
typedef struct setting {
    int layers;
    double dropout;
    int64_t batch, steps, in, hidden;
    bool no_state, no_bias;
    int outputs; /* bits: y, h_n, c_n are walked back from */
    bool is_gru, is_both;
    unsigned unwanted; /* bit k: input k takes no gradient */
} setting;

static int n_directions(const setting *s) { return s->is_both ? 2 : 1; }
static int n_units(const setting *s) { return s->layers * n_directions(s); }
static int n_inputs(const setting *s) { return 3 + 4 * n_units(s); }

static belay_shape shape_of(const setting *s, int k)
{
    int unit = (k - 3) / 4, which = (k - 3) % 4;
    int64_t sums = (s->is_gru ? 3 : 4) * s->hidden;
    if (k == 0)
        return belay_shape3(s->batch, s->steps, s->in);
    if (k < 3)
        return belay_shape3(n_units(s), s->batch, s->hidden);
    if (which == 0)
        return belay_shape2(sums, unit < n_directions(s) ? s->in : n_directions(s) * s->hidden);
    return which == 1 ? belay_shape2(sums, s->hidden) : belay_shape1(sums);
}

static bool is_left_out(const setting *s, int k)
{
    return (s->no_state && (k == 1 || k == 2)) || (s->is_gru && k == 2) || (s->no_bias && k >= 3 && (k - 3) % 4 >= 2);
}

/* The result of a GRU has no c_n. */
static belay_lstm_result run(belay_context *context, const setting *s, const belay_tensor *in)
{
    belay_recurrent_weights weights[UNITS];
    for (int unit = 0; unit < n_units(s); unit++) {
        const belay_tensor *w = &in[3 + 4 * unit];
        weights[unit] = (belay_recurrent_weights){w[0], w[1], w[2], w[3]};
    }
    belay_recurrent_options options = {s->layers, s->dropout, true, s->is_both};
    belay_position_set(context, 0, 0); /* the same masks every time */
    if (!s->is_gru)
        return belay_lstm(in[0], in[1], in[2], weights, &options);
    belay_gru_result r = belay_gru(in[0], in[1], weights, &options);
    return (belay_lstm_result){.output = r.output, .h_n = r.h_n};
}

/* Elements of an output, each weighted with a number of its own, added up. */
static belay_tensor weigh(belay_context *context, belay_tensor y)
{
    double weights[MAX_NUMBERS];
    int64_t n = belay_tensor_n_elements(y);
    for (int64_t i = 0; i < n; i++)
        weights[i] = 0.5 + (double)(i * 7 % 11) / 8;
    belay_tensor w = tensor_of(context, belay_tensor_dtype(y), belay_tensor_shape(y), weights);
    return belay_sum(belay_mul(y, w), NULL);
}

static belay_tensor loss_of(belay_context *context, const setting *s, const belay_tensor *in)
{
    belay_lstm_result r = run(context, s, in);
    const belay_tensor out[] = {r.output, r.h_n, r.c_n};
    belay_tensor loss = {0};
    for (int o = 0; o < 3; o++)
        if (s->outputs >> o & 1) {
            belay_tensor part = weigh(context, out[o]);
            loss = belay_tensor_is_nil(loss) ? part : belay_add(loss, part);
        }
    return loss;
}

static void make_inputs(belay_context *context, const setting *s, belay_dtype dtype, belay_tensor *in,
                        double values[MOST][MAX_NUMBERS / 4])
{
    drawn = 5;
    for (int k = 0; k < n_inputs(s); k++) {
        draw_many(values[k], count_of(shape_of(s, k)), -1, 1);
        in[k] = is_left_out(s, k) ? (belay_tensor){0} : tensor_of(context, dtype, shape_of(s, k), values[k]);
        if (!is_left_out(s, k) && (s->unwanted >> k & 1) == 0)
            belay_tensor_requires_grad_set(in[k], true);
    }
}

static double loss_at(belay_context *context, const setting *s, const belay_tensor *in, int k, double *values,
                      int64_t i, double value)
{
    double kept = values[i];
    values[i] = value;
    belay_scope scope = belay_scope_open(context);
    assert_int_equal(belay_tensor_write(in[k], values, count_of(shape_of(s, k)) * 8), BELAY_OK);
    double loss = belay_tensor_item(loss_of(context, s, in));
    belay_scope_close(scope);
    values[i] = kept;
    return loss;
}

static void check_slopes(const setting *s)
{
    static double values[MOST][MAX_NUMBERS / 4], grad[MAX_NUMBERS];
    belay_context *context = open_with(1);
    belay_tensor in[MOST];
    make_inputs(context, s, BELAY_F64, in, values);
    belay_scope scope = belay_scope_open(context);
    for (int i = 0; i < 2; i++) /* the second walk adds to what the first one left */
        belay_backward(loss_of(context, s, in));
    belay_scope_close(scope);
    belay_recording_set(context, false);
    for (int k = 0; k < n_inputs(s); k++) {
        if (is_left_out(s, k) || (s->unwanted >> k & 1) != 0)
            continue;
        assert_shape(belay_tensor_grad(in[k]), shape_of(s, k));
        int64_t n = read_numbers(belay_tensor_grad(in[k]), grad, MAX_NUMBERS);
        for (int64_t i = 0; i < n; i++) {
            double x = values[k][i], h = 1e-5;
            double slope =
                (loss_at(context, s, in, k, values[k], i, x + h) - loss_at(context, s, in, k, values[k], i, x - h)) /
                (2 * h);
            if (!is_near(grad[i] / 2, slope, 1e-6, 1e-8))
                fail_msg("layers %d, outputs %d: gradient %lld of input %d is %.17g, the slope is %.17g", s->layers,
                         s->outputs, (long long)i, k, grad[i] / 2, slope);
        }
        assert_int_equal(belay_tensor_write(in[k], values[k], n * 8), BELAY_OK);
    }
    close_clean(context);
}

static void gradients_are_the_slopes_whatever_outputs_are_used(void **state)
{
    (void)state;
    for (int layers = 1; layers <= LAYERS; layers++)
        for (int outputs = 1; outputs < 8; outputs++)
            check_slopes(
                &(setting){.layers = layers, .batch = 2, .steps = 3, .in = 2, .hidden = 3, .outputs = outputs});
}

static void gradients_are_the_slopes_without_state_without_bias_and_under_dropout(void **state)
{
    (void)state;
    const setting base = {.layers = 2, .batch = 3, .steps = 3, .in = 2, .hidden = 3, .outputs = 7};
    setting s = base;
    s.no_state = true;
    check_slopes(&s);
    s = base;
    s.no_bias = true;
    check_slopes(&s);
    s = base;
    s.dropout = 0.4;
    check_slopes(&s);
    s = base;
    s.steps = 1;
    check_slopes(&s);
    s.no_state = true;
    check_slopes(&s);
}

static void gradients_of_both_directions_are_the_slopes(void **state)
{
    (void)state;
    const setting base = {
        .layers = 2, .batch = 2, .steps = 3, .in = 2, .hidden = 2, .outputs = 7, .dropout = 0.4, .is_both = true};
    for (int outputs = 1; outputs < 8; outputs++) {
        setting s = base;
        s.outputs = outputs;
        check_slopes(&s);
    }
    setting s = base;
    s.no_state = s.no_bias = true;
    check_slopes(&s);
    s.steps = 1;
    check_slopes(&s);
}

static void gradients_of_a_gru_are_the_slopes(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        const setting base = {.layers = 2,
                              .batch = 2,
                              .steps = 3,
                              .in = 2,
                              .hidden = 3,
                              .outputs = 3,
                              .dropout = 0.4,
                              .is_gru = true,
                              .is_both = both == 1};
        for (int outputs = 1; outputs < 4; outputs++) {
            setting s = base;
            s.outputs = outputs;
            check_slopes(&s);
        }
        setting s = base;
        s.no_state = true;
        check_slopes(&s);
        s.no_bias = true;
        check_slopes(&s);
        s.steps = 1;
        check_slopes(&s);
        s.no_state = false;
        check_slopes(&s);
    }
}

/* Where nothing below a layer takes a gradient, the walk ends there. */
static void gradients_that_nobody_wants_are_left_out(void **state)
{
    (void)state;
    for (int gru = 0; gru < 2; gru++) {
        setting s = {.layers = 2,
                     .batch = 2,
                     .steps = 3,
                     .in = 2,
                     .hidden = 3,
                     .outputs = 3,
                     .is_gru = gru == 1,
                     .is_both = true,
                     .unwanted = 1 | 2 | 4};
        check_slopes(&s);
        s.unwanted |= 0xFFu << 3; /* the lower layer */
        check_slopes(&s);
        s.unwanted = ~1u; /* only x */
        check_slopes(&s);
    }
}

/* Mixes a tensor's bytes into a sum. */
static void mix(uint64_t *sum, belay_tensor tensor)
{
    int64_t n = belay_tensor_n_elements(tensor) * 4;
    unsigned char *bytes = malloc((size_t)n);
    assert_non_null(bytes);
    assert_int_equal(belay_tensor_read(tensor, bytes, n), BELAY_OK);
    for (int64_t i = 0; i < n; i++)
        *sum = (*sum ^ bytes[i]) * 1099511628211u;
    free(bytes);
}

/* All bits of forward and backward on so many threads; large enough for every launch to be split. */
static uint64_t bits_of(int threads, bool is_gru)
{
    uint64_t sum = 14695981039346656037u;
    belay_context *context = open_with(threads);
    belay_recurrent_module_options options = {.in = 32, .hidden = 128, .layers = 2, .dropout = 0.3};
    options.bidirectional = is_gru;
    belay_module *lstm = is_gru ? belay_gru_module(context, &options) : belay_lstm_module(context, &options);
    belay_tensor x = belay_normal(context, BELAY_F32, belay_shape3(130, 3, 32), 0, 1);
    belay_tensor y = belay_forward(lstm, belay_tensor_requires_grad_set(x, true));
    mix(&sum, y);
    belay_backward(belay_sum(belay_mul(y, y), NULL));
    mix(&sum, belay_tensor_grad(x));
    for (int64_t i = 0; i < belay_module_n_parameters(lstm); i++)
        mix(&sum, belay_tensor_grad(belay_module_parameter(lstm, i)));
    close_clean(context);
    return sum;
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (int gru = 0; gru < 2; gru++) {
        uint64_t one = bits_of(1, gru == 1);
        assert_true(bits_of(2, gru == 1) == one);
        assert_true(bits_of(5, gru == 1) == one);
    }
}

static void dropout_between_layers_is_dropout_of_the_lower_output(void **state)
{
    (void)state;
    const setting both = {.layers = 2, .dropout = 0.4, .batch = 3, .steps = 4, .in = 2, .hidden = 5};
    static double values[MOST][MAX_NUMBERS / 4], want[MAX_NUMBERS];
    belay_context *context = open_with(1);
    belay_tensor in[MOST];
    make_inputs(context, &both, BELAY_F64, in, values);
    belay_tensor y = run(context, &(setting){.layers = 2, .dropout = 0.4}, in).output;
    belay_recording_set(context, false);
    belay_position_set(context, 0, 0);
    const belay_lstm_weights w[] = {{in[3], in[4], in[5], in[6]}, {in[7], in[8], in[9], in[10]}};
    belay_tensor h0[2], c0[2];
    for (int layer = 0; layer < 2; layer++) {
        h0[layer] = belay_slice(in[1], 0, layer, layer + 1, 1);
        c0[layer] = belay_slice(in[2], 0, layer, layer + 1, 1);
    }
    belay_tensor low = belay_contiguous(belay_lstm(in[0], h0[0], c0[0], &w[0], NULL).output);
    belay_tensor high = belay_lstm(belay_dropout(low, 0.4, true), h0[1], c0[1], &w[1], NULL).output;
    read_numbers(high, want, MAX_NUMBERS);
    assert_numbers("y", y, want, 0, 0);
    belay_tensor evaluated =
        belay_lstm(in[0], in[1], in[2], w, &(belay_lstm_options){.layers = 2, .dropout = 0.4}).output;
    read_numbers(belay_lstm(low, h0[1], c0[1], &w[1], NULL).output, want, MAX_NUMBERS);
    assert_numbers("y in evaluation", evaluated, want, 0, 0);
    close_clean(context);
}

static void sixteen_bits_follow_f32(void **state)
{
    (void)state;
    static double values[MOST][MAX_NUMBERS / 4], want[MAX_NUMBERS];
    for (int gru = 0; gru < 2; gru++) {
        const setting s = {.layers = 2,
                           .batch = 3,
                           .steps = 4,
                           .in = 4,
                           .hidden = 6,
                           .outputs = gru == 1 ? 3 : 7,
                           .is_gru = gru == 1,
                           .is_both = gru == 1};
        belay_context *context = open_with(1);
        belay_tensor wide[MOST], narrow[MOST];
        make_inputs(context, &s, BELAY_F32, wide, values);
        make_inputs(context, &s, BELAY_BF16, narrow, values);
        read_numbers(run(context, &s, wide).output, want, MAX_NUMBERS);
        assert_numbers("y", run(context, &s, narrow).output, want, 0.05, 0.03);
        belay_backward(loss_of(context, &s, wide));
        belay_backward(loss_of(context, &s, narrow));
        read_numbers(belay_tensor_grad(wide[0]), want, MAX_NUMBERS);
        assert_numbers("gradient of x", belay_tensor_grad(narrow[0]), want, 0.1, 0.15);
        close_clean(context);
    }
}

static void empty_batches_and_no_steps_have_results_and_gradients(void **state)
{
    (void)state;
    static double values[MOST][MAX_NUMBERS / 4], want[MAX_NUMBERS];
    for (int kind = 0; kind < 8; kind++) {
        int which = kind & 1;
        const setting s = {.layers = 2,
                           .batch = which * 2,
                           .steps = 3 - which * 3,
                           .in = 2,
                           .hidden = 3,
                           .outputs = (kind & 2) != 0 ? 3 : 7,
                           .is_gru = (kind & 2) != 0,
                           .is_both = (kind & 4) != 0};
        belay_context *context = open_with(1);
        belay_tensor in[MOST];
        make_inputs(context, &s, BELAY_F64, in, values);
        belay_lstm_result r = run(context, &s, in);
        assert_shape(r.output, belay_shape3(s.batch, s.steps, 3 * n_directions(&s)));
        assert_numbers("h_n", r.h_n, values[1], 0, 0); /* no step: the state given */
        if (!s.is_gru)
            assert_numbers("c_n", r.c_n, values[2], 0, 0);
        belay_backward(loss_of(context, &s, in));
        memset(want, 0, sizeof want);
        for (int k = 3; k < n_inputs(&s); k++)
            assert_numbers("weights", belay_tensor_grad(in[k]), want, 0, 0);
        assert_shape(belay_tensor_grad(in[1]), shape_of(&s, 1));
        close_clean(context);
    }
}

/* The reverse direction is the same run over the steps turned around. */
static void reverse_is_a_run_over_turned_steps(void **state)
{
    (void)state;
    static double values[MOST][MAX_NUMBERS / 4], want[MAX_NUMBERS];
    for (int gru = 0; gru < 2; gru++) {
        const setting both = {.layers = 1,
                              .batch = 2,
                              .steps = 4,
                              .in = 3,
                              .hidden = 2,
                              .no_state = true,
                              .is_gru = gru == 1,
                              .is_both = true};
        setting one = both;
        one.is_both = false;
        belay_context *context = open_with(1);
        belay_tensor in[MOST], turned[4];
        make_inputs(context, &both, BELAY_F64, in, values);
        belay_recording_set(context, false);
        for (int t = 0; t < 4; t++)
            turned[t] = belay_slice(in[0], 1, 3 - t, 4 - t, 1);
        belay_tensor back[MOST] = {belay_cat(turned, 4, 1), {0}, {0}, in[7], in[8], in[9], in[10]};
        belay_lstm_result wanted = run(context, &one, back), got = run(context, &both, in);
        for (int t = 0; t < 4; t++) {
            read_numbers(belay_slice(wanted.output, 1, 3 - t, 4 - t, 1), want, MAX_NUMBERS);
            assert_numbers("reverse y", belay_slice(belay_slice(got.output, 1, t, t + 1, 1), 2, 2, 4, 1), want, 0, 0);
        }
        read_numbers(wanted.h_n, want, MAX_NUMBERS);
        assert_numbers("reverse h_n", belay_slice(got.h_n, 0, 1, 2, 1), want, 0, 0);
        read_numbers(run(context, &one, in).output, want, MAX_NUMBERS);
        assert_numbers("forward y", belay_slice(got.output, 2, 0, 2, 1), want, 0, 0);
        close_clean(context);
    }
}

static void unused_outputs_cost_no_memory_of_their_size(void **state)
{
    (void)state;
    const setting s = {.layers = 1, .batch = 8, .steps = 50, .in = 2, .hidden = 8, .outputs = 2, .no_state = true};
    static double values[MOST][MAX_NUMBERS / 4];
    told[0] = '\0';
    belay_context *context =
        belay_open(&(belay_options){.log = remember, .no_journal = true, .threads = 1, .memory = BELAY_MEMORY_POOL});
    belay_tensor in[MOST];
    make_inputs(context, &s, BELAY_F32, in, values);
    belay_tensor loss = loss_of(context, &s, in);
    int64_t before = belay_memory_get(context).peak;
    belay_backward(loss);
    /* Gradients of the weights, of x and its view; nothing of [steps, batch, hidden]. */
    assert_true(belay_memory_get(context).peak - before < (int64_t)8 * 50 * 8 * 4);
    close_clean(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_slopes_whatever_outputs_are_used),
        cmocka_unit_test(gradients_are_the_slopes_without_state_without_bias_and_under_dropout),
        cmocka_unit_test(gradients_of_both_directions_are_the_slopes),
        cmocka_unit_test(gradients_of_a_gru_are_the_slopes),
        cmocka_unit_test(gradients_that_nobody_wants_are_left_out),
        cmocka_unit_test(reverse_is_a_run_over_turned_steps),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(dropout_between_layers_is_dropout_of_the_lower_output),
        cmocka_unit_test(sixteen_bits_follow_f32),
        cmocka_unit_test(empty_batches_and_no_steps_have_results_and_gradients),
        cmocka_unit_test(unused_outputs_cost_no_memory_of_their_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
