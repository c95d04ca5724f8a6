/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and pools against sums written out, their gradients by finite differences.  That the values are PyTorch's
 * is the golden runner's to say. */
#include "op/numbers.h"

/* One convolution: conv1d where n_axes is 1, with the first of each pair. */
typedef struct setting {
    int n_axes;
    int64_t batch, in, out, size[2], kernel[2];
    belay_conv_options options;
    bool has_bias;
} setting;

static int64_t step_of(int64_t option) { return option != 0 ? option : 1; }
static int64_t size_of(const setting *s, int k) { return k < s->n_axes ? s->size[k] : 1; }
static int64_t kernel_of(const setting *s, int k) { return k < s->n_axes ? s->kernel[k] : 1; }

static int64_t positions_of(const setting *s, int k)
{
    if (k >= s->n_axes)
        return 1;
    int64_t span = step_of(s->options.dilation[k]) * (s->kernel[k] - 1) + 1;
    return (s->size[k] + 2 * s->options.padding[k] - span) / step_of(s->options.stride[k]) + 1;
}

static belay_shape x_shape(const setting *s)
{
    return s->n_axes == 1 ? belay_shape3(s->batch, s->in, s->size[0])
                          : (belay_shape){4, {s->batch, s->in, s->size[0], s->size[1]}};
}
/* Channels in that one out sees. */
static int64_t seen_by(const setting *s) { return s->in / step_of(s->options.groups); }

static belay_shape weight_shape(const setting *s)
{
    return s->n_axes == 1 ? belay_shape3(s->out, seen_by(s), s->kernel[0])
                          : (belay_shape){4, {s->out, seen_by(s), s->kernel[0], s->kernel[1]}};
}
static belay_shape y_shape(const setting *s)
{
    belay_shape y = x_shape(s);
    y.size[1] = s->out;
    for (int k = 0; k < s->n_axes; k++)
        y.size[2 + k] = positions_of(s, k);
    return y;
}

static belay_tensor apply(belay_context *context, const belay_tensor *in, void *state)
{
    (void)context;
    const setting *s = state;
    belay_tensor bias = s->has_bias ? in[2] : (belay_tensor){0};
    return s->n_axes == 1 ? belay_conv1d(in[0], in[1], bias, &s->options)
                          : belay_conv2d(in[0], in[1], bias, &s->options);
}

/* Calls `seen` for every product of the sum: numbers of the elements of x, weight and y. */
static void each_product(const setting *s, void (*seen)(int64_t x, int64_t w, int64_t y, void *state), void *state)
{
    const int64_t h = size_of(s, 0), w = size_of(s, 1), kh = kernel_of(s, 0), kw = kernel_of(s, 1);
    const int64_t oh = positions_of(s, 0), ow = positions_of(s, 1), in = seen_by(s),
                  n = s->batch * s->out * in * oh * ow * kh * kw;
    for (int64_t e = 0; e < n; e++) {
        int64_t j = e % kw, i = e / kw % kh, q = e / kw / kh % ow, p = e / kw / kh / ow % oh;
        int64_t c = e / kw / kh / ow / oh % in, o = e / kw / kh / ow / oh / in % s->out;
        int64_t b = e / kw / kh / ow / oh / in / s->out;
        int64_t channel = o / (s->out / step_of(s->options.groups)) * in + c;
        int64_t row = p * step_of(s->options.stride[0]) - s->options.padding[0] + i * step_of(s->options.dilation[0]);
        int64_t column = q;
        if (s->n_axes == 2)
            column = q * step_of(s->options.stride[1]) - s->options.padding[1] + j * step_of(s->options.dilation[1]);
        if (row >= 0 && row < h && column >= 0 && column < w)
            seen(((b * s->in + channel) * h + row) * w + column, ((o * in + c) * kh + i) * kw + j,
                 ((b * s->out + o) * oh + p) * ow + q, state);
    }
}

typedef struct sums {
    const double *x, *weight, *g;
    double *y, *g_x, *g_weight;
} sums;

static void add_product(int64_t x, int64_t w, int64_t y, void *state)
{
    sums *s = state;
    s->y[y] += s->x[x] * s->weight[w];
    s->g_x[x] += s->g[y] * s->weight[w];
    s->g_weight[w] += s->g[y] * s->x[x];
}

static double *numbers(belay_shape shape, bool are_drawn)
{
    int64_t n = count_of(shape);
    double *v = calloc((size_t)n + 1, sizeof *v);
    assert_non_null(v);
    if (are_drawn)
        draw_many(v, n, -1, 1);
    return v;
}

static void assert_all(const char *what, belay_tensor tensor, const double *want)
{
    int64_t n = belay_tensor_n_elements(tensor);
    double *got = calloc((size_t)n + 1, sizeof *got);
    read_numbers(tensor, got, n);
    for (int64_t i = 0; i < n; i++)
        if (!is_near(got[i], want[i], 1e-10, 1e-10))
            fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, got[i], want[i]);
    free(got);
}

/* Forward and backward in f64 against sums written out. */
static void check_sums(setting s)
{
    belay_context *context = open_with(2);
    drawn = 3;
    double *x = numbers(x_shape(&s), true), *weight = numbers(weight_shape(&s), true), *g = numbers(y_shape(&s), true);
    double *y = numbers(y_shape(&s), false), *g_x = numbers(x_shape(&s), false);
    double *g_weight = numbers(weight_shape(&s), false);
    belay_tensor in[3] = {tensor_of(context, BELAY_F64, x_shape(&s), x),
                          tensor_of(context, BELAY_F64, weight_shape(&s), weight)};
    each_product(&s, add_product, &(sums){x, weight, g, y, g_x, g_weight});
    for (int k = 0; k < 2; k++)
        belay_tensor_requires_grad_set(in[k], true);
    s.has_bias = false;
    belay_tensor got = apply(context, in, &s);
    assert_shape(got, y_shape(&s));
    assert_all("y", got, y);
    belay_backward_from(got, tensor_of(context, BELAY_F64, y_shape(&s), g));
    assert_all("gradient of x", belay_tensor_grad(in[0]), g_x);
    assert_all("gradient of weight", belay_tensor_grad(in[1]), g_weight);
    double *const all[] = {x, weight, g, y, g_x, g_weight};
    for (int i = 0; i < 6; i++)
        free(all[i]);
    close_clean(context);
}

/* An image whose columns are cut into panels. */
static void bias_is_added_once_to_every_position_of_a_cut_image(void **state)
{
    (void)state;
    belay_context *context = open_with(2);
    enum { SIDE = 124, IN = 8, OUT = 2 };
    belay_tensor x = belay_uniform(context, BELAY_F64, belay_shape4(1, IN, SIDE, SIDE), -1, 1);
    belay_tensor weight = belay_uniform(context, BELAY_F64, belay_shape4(OUT, IN, 3, 3), -1, 1);
    belay_tensor bias = belay_uniform(context, BELAY_F64, belay_shape1(OUT), -1, 1);
    belay_conv_options options = {.padding = {1, 1}};
    belay_tensor with = belay_conv2d(x, weight, bias, &options);
    belay_tensor without = belay_conv2d(x, weight, (belay_tensor){0}, &options);
    belay_tensor spread = belay_view(bias, belay_shape4(1, OUT, 1, 1));
    belay_tensor worst = belay_amax(belay_abs(belay_sub(belay_sub(with, without), spread)), NULL);
    assert_true(belay_tensor_item(worst) < 1e-12);
    close_clean(context);
}

static void values_and_gradients_are_the_sums(void **state)
{
    (void)state;
    check_sums((setting){.n_axes = 1, .batch = 3, .in = 2, .out = 4, .size = {11}, .kernel = {3}});
    check_sums((setting){.n_axes = 1,
                         .batch = 2,
                         .in = 3,
                         .out = 1,
                         .size = {13},
                         .kernel = {4},
                         .options = {.stride = {3}, .padding = {5}, .dilation = {2}}});
    check_sums((setting){.n_axes = 2, .batch = 2, .in = 3, .out = 5, .size = {6, 7}, .kernel = {1, 1}});
    check_sums((setting){.n_axes = 2,
                         .batch = 3,
                         .in = 2,
                         .out = 3,
                         .size = {7, 9},
                         .kernel = {3, 2},
                         .options = {.stride = {2, 3}, .padding = {1, 4}, .dilation = {2, 1}}});
    check_sums((setting){
        .n_axes = 2, .batch = 1, .in = 1, .out = 2, .size = {5, 4}, .kernel = {5, 4}, .options = {.padding = {6, 7}}});
}

/* Each group of channels sees its own; a group a channel is depthwise. */
static void groups_are_convolutions_apart(void **state)
{
    (void)state;
    check_sums(
        (setting){.n_axes = 1, .batch = 3, .in = 4, .out = 6, .size = {11}, .kernel = {3}, .options = {.groups = 2}});
    check_sums((setting){.n_axes = 1,
                         .batch = 2,
                         .in = 5,
                         .out = 10,
                         .size = {13},
                         .kernel = {4},
                         .options = {.stride = {3}, .padding = {5}, .dilation = {2}, .groups = 5}});
    check_sums((setting){.n_axes = 2,
                         .batch = 3,
                         .in = 6,
                         .out = 3,
                         .size = {7, 9},
                         .kernel = {3, 2},
                         .options = {.stride = {2, 3}, .padding = {1, 4}, .dilation = {2, 1}, .groups = 3}});
    check_sums((setting){.n_axes = 2, /* images in panels of several, and one that is cut */
                         .batch = 40,
                         .in = 8,
                         .out = 8,
                         .size = {24, 20},
                         .kernel = {3, 3},
                         .options = {.padding = {1, 1}, .groups = 8}});
    check_sums((setting){.n_axes = 2,
                         .batch = 1,
                         .in = 8,
                         .out = 4,
                         .size = {130, 125},
                         .kernel = {3, 3},
                         .options = {.padding = {1, 1}, .groups = 4}});
}

/* Images whose columns are more than a panel are cut within an image, small ones go together. */
static void panels_change_nothing(void **state)
{
    (void)state;
    check_sums((setting){.n_axes = 2,
                         .batch = 2,
                         .in = 16,
                         .out = 1,
                         .size = {96, 90},
                         .kernel = {3, 3},
                         .options = {.padding = {1, 1}}});
    check_sums((setting){.n_axes = 1, .batch = 40, .in = 40, .out = 2, .size = {300}, .kernel = {3}});
}

static void gradients_are_the_slopes(void **state)
{
    (void)state;
    setting settings[] = {
        {.n_axes = 1, .batch = 2, .in = 2, .out = 3, .size = {6}, .kernel = {3}, .options = {.padding = {1}}},
        {.n_axes = 2,
         .batch = 2,
         .in = 2,
         .out = 2,
         .size = {4, 5},
         .kernel = {2, 3},
         .options = {.stride = {2, 1}, .padding = {0, 2}}},
        {.n_axes = 2, .batch = 2, .in = 4, .out = 2, .size = {3, 4}, .kernel = {2, 2}, .options = {.groups = 2}},
    };
    belay_context *context = open_with(1);
    for (int i = 0; i < 3; i++) {
        setting *s = &settings[i];
        s->has_bias = true;
        const belay_shape shapes[] = {x_shape(s), weight_shape(s), belay_shape1(s->out)};
        double *values[] = {numbers(shapes[0], true), numbers(shapes[1], true), numbers(shapes[2], true)};
        assert_gradients("conv", context, apply, s, 3, shapes, values);
        for (int k = 0; k < 3; k++)
            free(values[k]);
    }
    close_clean(context);
}

static void empty_batches_have_results_and_gradients(void **state)
{
    (void)state;
    setting s = {.n_axes = 2, .in = 2, .out = 3, .size = {4, 5}, .kernel = {2, 3}, .has_bias = true};
    belay_context *context = open_with(1);
    double *weight = numbers(weight_shape(&s), true), none[64] = {0};
    belay_tensor in[3] = {tensor_of(context, BELAY_F32, x_shape(&s), none),
                          tensor_of(context, BELAY_F32, weight_shape(&s), weight),
                          tensor_of(context, BELAY_F32, belay_shape1(3), none)};
    for (int k = 0; k < 3; k++)
        belay_tensor_requires_grad_set(in[k], true);
    belay_tensor y = apply(context, in, &s);
    assert_shape(y, y_shape(&s));
    belay_backward(belay_sum(y, NULL));
    assert_shape(belay_tensor_grad(in[0]), x_shape(&s));
    assert_numbers("gradient of weight", belay_tensor_grad(in[1]), none, 0, 0);
    assert_numbers("gradient of bias", belay_tensor_grad(in[2]), none, 0, 0);
    free(weight);
    close_clean(context);
}

/* Bits of the result and of the gradients. */
static void run_bits(int threads, float *out)
{
    belay_context *context = open_with(threads);
    belay_tensor x = belay_normal(context, BELAY_F32, (belay_shape){4, {6, 8, 33, 31}}, 0, 1);
    belay_tensor w = belay_normal(context, BELAY_F32, (belay_shape){4, {4, 8, 3, 3}}, 0, 1);
    belay_tensor_requires_grad_set(x, true);
    belay_tensor_requires_grad_set(w, true);
    belay_tensor y = belay_conv2d(x, w, (belay_tensor){0}, NULL);
    belay_tensor pooled = belay_max_pool2d(y, &(belay_pool_options){.kernel = {3, 3}, .stride = {2, 2}}, NULL);
    belay_backward(belay_sum(belay_mul(pooled, pooled), NULL));
    belay_tensor sum = belay_sum(belay_tensor_grad(x), &(belay_axes){.n = 2, .axis = {0, 1}});
    assert_int_equal(belay_tensor_read(sum, out, (int64_t)33 * 31 * 4), BELAY_OK);
    assert_int_equal(belay_tensor_read(belay_tensor_grad(w), out + 33 * 31, 288 * 4), BELAY_OK);
    close_clean(context);
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    static float one[33 * 31 + 288], other[33 * 31 + 288];
    run_bits(1, one);
    run_bits(2, other);
    assert_memory_equal(one, other, sizeof one);
    run_bits(5, other);
    assert_memory_equal(one, other, sizeof one);
}

static void scratch_memory_does_not_grow_with_the_batch(void **state)
{
    (void)state;
    told[0] = '\0';
    belay_context *context =
        belay_open(&(belay_options){.log = remember, .no_journal = true, .threads = 1, .memory = BELAY_MEMORY_POOL});
    belay_tensor x = belay_zeros(context, BELAY_F32, (belay_shape){4, {16, 16, 96, 96}});
    belay_tensor w = belay_zeros(context, BELAY_F32, (belay_shape){4, {1, 16, 3, 3}});
    int64_t before = belay_memory_get(context).peak;
    belay_tensor_requires_grad_set(w, true);
    belay_backward(belay_sum(belay_conv2d(x, w, (belay_tensor){0}, NULL), NULL));
    /* Columns of the batch are 81 MB; a panel is 4 MiB, a result and its gradient half of one each. */
    assert_true(belay_memory_get(context).peak - before < (int64_t)20 << 20);
    close_clean(context);
}

static void sixteen_bits_follow_f32(void **state)
{
    (void)state;
    setting s = {.n_axes = 2, .batch = 2, .in = 3, .out = 4, .size = {6, 7}, .kernel = {3, 3}};
    static double want[MAX_NUMBERS];
    belay_context *context = open_with(1);
    double *x = numbers(x_shape(&s), true), *weight = numbers(weight_shape(&s), true);
    belay_tensor y[2];
    for (int k = 0; k < 2; k++) {
        belay_dtype dtype = k == 0 ? BELAY_F32 : BELAY_BF16;
        const belay_tensor in[3] = {tensor_of(context, dtype, x_shape(&s), x),
                                    tensor_of(context, dtype, weight_shape(&s), weight)};
        y[k] = apply(context, in, &s);
    }
    read_numbers(y[0], want, MAX_NUMBERS);
    assert_numbers("y", y[1], want, 0.05, 0.05);
    free(x);
    free(weight);
    close_clean(context);
}

/* ---- pools ----------------------------------------------------------------------------------------------------------- */

static belay_tensor pool_max(belay_context *context, const belay_tensor *in, void *state)
{
    (void)context;
    return belay_max_pool2d(in[0], state, NULL);
}
static belay_tensor pool_mean(belay_context *context, const belay_tensor *in, void *state)
{
    (void)context;
    return belay_avg_pool2d(in[0], state);
}
static belay_tensor pool_mean_1d(belay_context *context, const belay_tensor *in, void *state)
{
    (void)context;
    return belay_avg_pool1d(in[0], state);
}

static void pools_are_written_out(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4, 5, 9, -7, 8, NAN, 0, 1, 2}, nan = NAN;
    const double largest[] = {1, 3, 4, nan, 9, 8}, mean[] = {0.25, 1.25, 1, nan, -0.25 + 1, 2.5};
    const double apart[] = {1, 2.5, 4, nan, 0.75, 10.0 / 2}, places[] = {0, 2, 3, 8, 5, 7};
    const belay_pool_options options = {.kernel = {2, 2}, .padding = {1, 1}};
    belay_pool_options excluded = options;
    belay_context *context = open_with(1);
    belay_tensor in = tensor_of(context, BELAY_F32, belay_shape2(3, 4), x), at;
    assert_numbers("max", belay_max_pool2d(in, &options, &at), largest, 0, 0);
    assert_shape(at, belay_shape2(2, 3));
    assert_numbers("indices", at, places, 0, 0);
    assert_numbers("mean", belay_avg_pool2d(in, &options), mean, 0, 0);
    excluded.exclude_pad = true;
    assert_numbers("mean without padding", belay_avg_pool2d(in, &excluded), apart, 0, 0);
    const double wide[] = {1, 3, 4, 5, 9, 8};
    belay_tensor rows = belay_slice(in, 0, 0, 2, 1);
    assert_numbers("max along rows", belay_max_pool1d(rows, &(belay_pool_options){.kernel = {2}, .padding = {1}}, NULL),
                   wide, 0, 0);
    assert_shape(
        belay_avg_pool1d(belay_zeros(context, BELAY_F32, belay_shape3(0, 2, 4)), &(belay_pool_options){.kernel = {2}}),
        belay_shape3(0, 2, 2));
    close_clean(context);
}

static void gradients_of_pools_are_the_slopes(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_shape shape = {4, {2, 2, 7, 6}};
    drawn = 9;
    double *values = numbers(shape, true);
    const belay_pool_options options[] = {
        {.kernel = {2, 2}},
        {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}},
        {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}, .exclude_pad = true},
        {.kernel = {2, 3}, .stride = {4, 4}}, /* some elements lie in no window */
    };
    for (int i = 0; i < 4; i++) {
        belay_pool_options o = options[i];
        assert_gradients("max_pool2d", context, pool_max, &o, 1, &shape, &values);
        assert_gradients("avg_pool2d", context, pool_mean, &o, 1, &shape, &values);
        assert_gradients("avg_pool1d", context, pool_mean_1d, &o, 1, &shape, &values);
    }
    free(values);
    close_clean(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_gradients_are_the_sums),
        cmocka_unit_test(bias_is_added_once_to_every_position_of_a_cut_image),
        cmocka_unit_test(groups_are_convolutions_apart),
        cmocka_unit_test(panels_change_nothing),
        cmocka_unit_test(gradients_are_the_slopes),
        cmocka_unit_test(empty_batches_have_results_and_gradients),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(scratch_memory_does_not_grow_with_the_batch),
        cmocka_unit_test(sixteen_bits_follow_f32),
        cmocka_unit_test(pools_are_written_out),
        cmocka_unit_test(gradients_of_pools_are_the_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
