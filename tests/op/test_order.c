/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums, sorting, one-hot rows, variance, norms, powers: against their definitions, with NaN and equal elements, and their
 * faults. */
#include "op/numbers.h"
#include "support/spoil.h"

/* The only fault, of that call on line `line`. */
static void expect(int line, const char *op, belay_code code, const char *what, const char *tensors)
{
    char text[2048];
    snprintf(text, sizeof text,
             "belay: %s (%s)\n    op: %s, called at test_order.c:%d\n    tensors: %s; on cpu\n"
             "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n    try: %s\n",
             what, belay_code_name(code), op, line, tensors, belay_code_advice(code));
    assert_words_equal(told, text);
    told[0] = '\0';
}

/* ---- running sums ---------------------------------------------------------------------------------------------------- */

static belay_tensor cumsum_1(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c, (void)s;
    return belay_cumsum(in[0], -2);
}

static void cumsum_adds_up_along_every_axis(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double x[3 * 5 * 4], want[3 * 5 * 4], *values[] = {x};
    const belay_shape shape = belay_shape3(3, 5, 4);
    draw_many(x, 60, -2, 2);
    for (int axis = 0; axis < 3; axis++) {
        int64_t n = shape.size[axis], step = axis == 0 ? 20 : axis == 1 ? 4 : 1;
        for (int64_t i = 0; i < 60; i++)
            want[i] = x[i] + (i / step % n > 0 ? want[i - step] : 0);
        assert_numbers("cumsum", belay_cumsum(tensor_of(context, BELAY_F64, shape, x), axis), want, 1e-14, 1e-14);
    }
    assert_gradients("cumsum", context, cumsum_1, NULL, 1, &shape, values);
    assert_shape(belay_cumsum(belay_zeros(context, BELAY_F32, belay_shape2(3, 0)), 1), belay_shape2(3, 0));
    close_clean(context);
}

/* What a step of a sum of that dtype is: more of them than it holds. */
static double step_of(int dtype) { return dtype == BELAY_BOOL ? 1 : dtype == BELAY_U8 ? 200 : 50000; }

static void sums_of_whole_numbers_are_in_64_bits(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    for (int dtype = BELAY_I64; dtype < BELAY_N_DTYPES; dtype++) {
        const double step = step_of(dtype);
        double x[2 * 70 * 3], running[2 * 70 * 3], whole[] = {420 * step}, apart[70], outer[6];
        for (int64_t i = 0; i < 420; i++) {
            x[i] = step;
            running[i] = step * (double)(i / 3 % 70 + 1);
        }
        for (int i = 0; i < 70; i++)
            apart[i] = 6 * step;
        for (int i = 0; i < 6; i++)
            outer[i] = 70 * step;
        belay_tensor t = tensor_of(context, (belay_dtype)dtype, belay_shape3(2, 70, 3), x);
        const belay_tensor y[] = {belay_sum(t, NULL), belay_sum(t, &(belay_axes){.n = 2, .axis = {0, 2}}),
                                  belay_sum(t, &(belay_axes){.n = 1, .axis = {1}}), belay_cumsum(t, 1),
                                  belay_sum(belay_transpose(t, 0, 1), &(belay_axes){.n = 1, .axis = {0}})};
        const double *want[] = {whole, apart, outer, running, outer};
        for (int k = 0; k < 5; k++) {
            assert_int_equal(belay_tensor_dtype(y[k]), BELAY_I64);
            assert_numbers(belay_dtype_name((belay_dtype)dtype), y[k], want[k], 0, 0);
        }
        assert_true(belay_tensor_item(belay_sum(belay_select(belay_view(t, belay_shape1(420)), 0, 0), NULL)) == step);
        assert_true(belay_tensor_item(belay_sum(belay_zeros(context, (belay_dtype)dtype, belay_shape1(0)), NULL)) == 0);
    }
    const double said[] = {1, 2, 3, 4}, so[] = {1, 2, 0, 4};
    belay_tensor p = tensor_of(context, BELAY_I32, belay_shape1(4), said);
    assert_true(belay_tensor_item(belay_sum(belay_eq(p, tensor_of(context, BELAY_I32, belay_shape1(4), so)), NULL)) ==
                3);
    const int64_t ends[] = {INT64_MAX, 1}, wrapped[] = {INT64_MAX, INT64_MIN};
    belay_tensor e = from_bytes(context, BELAY_I64, belay_shape1(2), ends, sizeof ends);
    int64_t got[2];
    assert_int_equal(belay_tensor_read(belay_cumsum(e, 0), got, sizeof got), BELAY_OK);
    assert_memory_equal(got, wrapped, sizeof got);
    assert_int_equal(belay_tensor_read(belay_sum(e, NULL), got, sizeof got[0]), BELAY_OK);
    assert_true(got[0] == INT64_MIN);
    close_clean(context);
}

/* ---- scalars --------------------------------------------------------------------------------------------------------- */

static void a_scalar_has_an_axis_of_one_element(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double three[] = {3}, one[] = {1}, none[] = {0}, nan_[] = {NAN};
    for (int axis = -1; axis <= 0; axis++) {
        belay_tensor x = tensor_of(context, BELAY_F32, belay_shape0(), three), at[3];
        const belay_axes axes = {.n = 1, .axis = {axis}, .keep = axis == 0};
        x = belay_tensor_requires_grad_set(x, true);
        const struct {
            const char *name;
            belay_tensor y;
            const double *want;
        } all[] = {
            {"softmax", belay_softmax(x, axis), one},
            {"log_softmax", belay_log_softmax(x, axis), none},
            {"sort", belay_sort(x, axis, true, &at[0]), three},
            {"topk", belay_topk(x, 1, axis, false, &at[1]), three},
            {"max", belay_max(x, axis, true, &at[2]), three},
            {"argsort", belay_argsort(x, axis, false), none},
            {"argmax", belay_argmax(x, axis, false), none},
            {"at sort", at[0], none},
            {"at topk", at[1], none},
            {"at max", at[2], none},
            {"cumsum", belay_cumsum(x, axis), three},
            {"sum", belay_sum(x, &axes), three},
            {"mean", belay_mean(x, &axes), three},
            {"amax", belay_amax(x, &axes), three},
            {"var", belay_var(x, &axes, 1), nan_},
        };
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            assert_shape(all[i].y, belay_shape0());
            assert_numbers(all[i].name, all[i].y, all[i].want, 0, 0);
        }
        const double seven[] = {7};
        belay_tensor sums = belay_add(belay_add(all[2].y, all[3].y), belay_add(all[4].y, all[10].y));
        belay_backward(belay_add(belay_add(sums, all[11].y), belay_add(all[12].y, all[13].y)));
        assert_numbers("gradient", belay_tensor_grad(x), seven, 0, 0);
    }
    close_clean(context);
    context = open_with(1);
    belay_tensor x = tensor_of(context, BELAY_F32, belay_shape0(), three);
    belay_topk(x, 0, 0, false, NULL);
    expect(__LINE__ - 1, "topk", BELAY_CONF_VALUE, "k is 0, outside [1, 1], the size of axis 0", "x [] f32");
    belay_softmax(x, 1);
    expect(__LINE__ - 1, "softmax", BELAY_SHAPE_AXIS, "axis 1 of a tensor with 0 axes", "x [] f32");
    belay_sum(x, &(belay_axes){.n = 2, .axis = {0, -1}});
    expect(__LINE__ - 1, "sum", BELAY_SHAPE_AXIS, "sum names axis 0 twice", "x [] f32");
    belay_close(context);
}

/* ---- sorting --------------------------------------------------------------------------------------------------------- */

static bool stands_in_front(const double *x, int64_t a, int64_t b, bool descending)
{
    double va = x[a], vb = x[b];
    if (isnan(va) || isnan(vb))
        return isnan(va) && isnan(vb) ? a < b : isnan(va) == descending;
    return va == vb ? a < b : (va < vb) != descending;
}

/* Indices of a row in order, by counting who stands in front of each. */
static void order_of(const double *x, int64_t n, bool descending, double *at)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < n; j++)
            before += j != i && stands_in_front(x, j, i, descending);
        at[before] = (double)i;
    }
}

static void rows_are_sorted_stably_with_nan_as_the_largest(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    enum { ROWS = 4, MOST = 67 };
    static const int64_t sizes[] = {1, 2, 3, 8, 31, MOST};
    for (int s = 0; s < 6; s++)
        for (int descending = 0; descending < 2; descending++) {
            double x[ROWS * MOST], at[ROWS * MOST], y[ROWS * MOST];
            int64_t n = sizes[s];
            for (int64_t i = 0; i < ROWS * n; i++)
                x[i] = i % 11 == 5 ? (double)NAN : floor(draw(-4, 4)); /* many are equal */
            for (int64_t r = 0; r < ROWS; r++)
                order_of(x + r * n, n, descending, at + r * n);
            for (int64_t i = 0; i < ROWS * n; i++)
                y[i] = x[i / n * n + (int64_t)at[i]];
            const belay_dtype dtypes[] = {BELAY_F32, BELAY_F64, BELAY_BF16};
            for (int d = 0; d < 3; d++) {
                belay_tensor in = tensor_of(context, dtypes[d], belay_shape2(ROWS, n), x), indices;
                assert_numbers("sort", belay_sort(in, 1, descending, &indices), y, 0, 0);
                assert_numbers("indices", indices, at, 0, 0);
                assert_numbers("argsort", belay_argsort(in, -1, descending), at, 0, 0);
                belay_tensor columns = belay_sort(belay_transpose(in, 0, 1), 0, descending, NULL);
                assert_numbers("by column", belay_transpose(columns, 0, 1), y, 0, 0);
                for (int64_t k = 0; k <= n; k += n / 3 + 1) {
                    belay_tensor top = belay_topk(in, k, 1, !descending, &indices);
                    assert_shape(top, belay_shape2(ROWS, k));
                    belay_tensor first = belay_slice(belay_sort(in, 1, descending, NULL), 1, 0, k, 1);
                    static double wanted[ROWS * MOST];
                    read_numbers(first, wanted, ROWS * MOST);
                    assert_numbers("topk", top, wanted, 0, 0);
                    read_numbers(belay_slice(belay_argsort(in, 1, descending), 1, 0, k, 1), wanted, ROWS * MOST);
                    assert_numbers("topk's indices", indices, wanted, 0, 0);
                }
            }
        }
    close_clean(context);
}

static belay_tensor sort_0(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c, (void)s;
    return belay_sort(in[0], 0, true, NULL);
}
static belay_tensor top_3(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c, (void)s;
    return belay_topk(in[0], 3, 1, false, NULL);
}

static void gradients_go_back_to_where_elements_stood(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double x[28], *values[] = {x};
    const belay_shape shape = belay_shape2(4, 7);
    draw_many(x, 28, -3, 3);
    assert_gradients("sort", context, sort_0, NULL, 1, &shape, values);
    assert_gradients("topk", context, top_3, NULL, 1, &shape, values);
    close_clean(context);
}

/* The indices are the caller's tensor: what was written there since is tested in the walk back. */
static void an_index_that_was_written_over_is_a_fault_in_backward(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const float x[] = {3, 1, 2};
    const int64_t bad[] = {1, 7, 0};
    belay_tensor leaf =
        belay_tensor_requires_grad_set(belay_tensor_from(context, BELAY_F32, belay_shape1(3), x, sizeof x), true);
    belay_tensor indices, y = belay_sort(leaf, 0, false, &indices);
    assert_int_equal(spoil(indices, bad, sizeof bad), BELAY_OK);
    belay_backward(belay_sum(y, NULL));
    assert_int_equal(belay_n_faults(context), 1);
    belay_fault f;
    assert_true(belay_fault_get(context, 0, &f));
    assert_true(f.code == BELAY_INDEX_RANGE && f.got == 7 && f.limit == 3 && f.element == 1);
    assert_int_equal(belay_close(context), 3);
}

static void a_k_out_of_range_is_refused(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape2(2, 3));
    belay_topk(x, 4, 1, false, NULL);
    expect(__LINE__ - 1, "topk", BELAY_CONF_VALUE, "k is 4, outside [0, 3], the size of axis 1", "x [2, 3] f32");
    belay_topk(x, -1, 0, false, NULL);
    expect(__LINE__ - 1, "topk", BELAY_CONF_VALUE, "k is -1, outside [0, 2], the size of axis 0", "x [2, 3] f32");
    belay_tensor indices = x;
    belay_sort((belay_tensor){0}, 0, false, &indices);
    assert_true(belay_tensor_is_nil(indices) && belay_tensor_is_nil(belay_cumsum(indices, 0)));
    assert_string_equal(told, "");
    belay_close(context);
}

/* ---- one-hot --------------------------------------------------------------------------------------------------------- */

static void one_hot_follows_the_index_policy(void **state)
{
    (void)state;
    for (int policy = BELAY_INDEX_RAISE; policy <= BELAY_INDEX_ZERO; policy++) {
        belay_context *context = open_with(1);
        const double v[] = {2, 3, 0, 1}, want[] = {0, 0, 1, 0, 0, policy == BELAY_INDEX_CLAMP, 1, 0, 0, 0, 1, 0};
        belay_tensor ids = belay_tensor_name_set(tensor_of(context, BELAY_U8, belay_shape2(2, 2), v), "ids");
        belay_tensor y = belay_one_hot(ids, 3, &(belay_index_options){(belay_index_policy)policy});
        int line = __LINE__ - 1;
        assert_shape(y, belay_shape3(2, 2, 3));
        assert_int_equal(belay_tensor_dtype(y), BELAY_I64);
        assert_numbers("one_hot", y, want, 0, 0);
        char text[1024];
        snprintf(text, sizeof text,
                 "belay: ids[0, 1] is 3, outside [0, 3) (index.range)\n"
                 "    op: one_hot, called at test_order.c:%d\n"
                 "    tensors: ids [2, 2] u8; on cpu\n"
                 "    bad: 1 of 4 elements; values 3\n",
                 line);
        if (policy == BELAY_INDEX_RAISE)
            assert_memory_equal(told, text, strlen(text));
        assert_int_equal(belay_close(context), policy == BELAY_INDEX_RAISE ? 3 : 0);
    }
    belay_context *context = open_with(1);
    belay_tensor ids = belay_zeros(context, BELAY_I64, belay_shape1(2)),
                 floats = belay_zeros(context, BELAY_F32, belay_shape1(2));
    belay_one_hot(ids, 0, NULL);
    expect(__LINE__ - 1, "one_hot", BELAY_CONF_VALUE, "classes is 0, outside [1, inf)", "ids [2] i64");
    belay_one_hot(floats, 3, NULL);
    expect(__LINE__ - 1, "one_hot", BELAY_TYPE_DTYPE, "ids is f32 where an integer dtype is needed", "ids [2] f32");
    belay_close(context);
}

/* ---- variance -------------------------------------------------------------------------------------------------------- */

static belay_tensor var_02(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c;
    return belay_var(in[0], &(belay_axes){.n = 2, .axis = {0, 2}}, *(const int64_t *)s);
}

static void variance_is_its_definition_biased_and_not(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double x[3 * 5 * 4], want[5], *values[] = {x};
    const belay_shape shape = belay_shape3(3, 5, 4);
    draw_many(x, 60, -2, 2);
    for (int64_t correction = 0; correction < 3; correction++) {
        for (int c = 0; c < 5; c++) {
            double sum = 0, squares = 0;
            for (int i = 0; i < 60; i++)
                sum += i / 4 % 5 == c ? x[i] : 0;
            for (int i = 0; i < 60; i++)
                squares += i / 4 % 5 == c ? (x[i] - sum / 12) * (x[i] - sum / 12) : 0;
            want[c] = squares / (double)(12 - correction);
        }
        belay_tensor in = tensor_of(context, BELAY_F64, shape, x);
        assert_numbers("var", var_02(context, &in, &correction), want, 1e-13, 0);
        in = tensor_of(context, BELAY_F32, shape, x);
        belay_tensor kept = belay_var(in, &(belay_axes){.n = 2, .axis = {0, -1}, .keep = true}, correction);
        assert_shape(kept, belay_shape3(1, 5, 1));
        assert_numbers("var f32", kept, want, 1e-5, 0);
        assert_gradients("var", context, var_02, &correction, 1, &shape, values);
    }
    close_clean(context);
}

static void a_large_mean_costs_the_variance_no_digits(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double x[1000];
    for (int i = 0; i < 1000; i++)
        x[i] = 1e6 + (i % 2);
    const double want = 0.25, none = NAN, boundless = INFINITY;
    assert_numbers("var", belay_var(tensor_of(context, BELAY_F32, belay_shape1(1000), x), NULL, 0), &want, 1e-4, 0);
    belay_tensor one = tensor_of(context, BELAY_F32, belay_shape1(1), x),
                 two = tensor_of(context, BELAY_F32, belay_shape1(2), x);
    assert_numbers("of one", belay_var(one, NULL, 1), &none, 0, 0);
    assert_numbers("corrected away", belay_var(two, NULL, 3), &boundless, 0, 0);
    assert_numbers("of none", belay_var(belay_zeros(context, BELAY_F32, belay_shape1(0)), NULL, 0), &none, 0, 0);
    close_clean(context);
}

static void variance_refuses_a_correction_below_zero(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_var(belay_zeros(context, BELAY_F32, belay_shape1(2)), NULL, -1);
    expect(__LINE__ - 1, "var", BELAY_CONF_VALUE, "correction is -1, below 0", "x [2] f32");
    assert_true(belay_tensor_is_nil(belay_var((belay_tensor){0}, NULL, 1)));
    belay_close(context);
}

/* ---- rms_norm -------------------------------------------------------------------------------------------------------- */

static belay_tensor rms_norm_2(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c, (void)s;
    return belay_rms_norm(in[0], 2, in[1], 0.25);
}

static void rms_norm_is_its_definition_over_several_axes(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    enum { ROWS = 3, N = 35 };
    double x[ROWS * N], w[N], want[ROWS * N], *values[] = {x, w};
    const belay_shape shapes[] = {belay_shape3(ROWS, 5, 7), belay_shape2(5, 7)};
    draw_many(x, ROWS * N, -2, 2);
    draw_many(w, N, 0.5, 2);
    for (int r = 0; r < ROWS; r++) {
        double squares = 0;
        for (int i = 0; i < N; i++)
            squares += x[r * N + i] * x[r * N + i];
        for (int i = 0; i < N; i++)
            want[r * N + i] = x[r * N + i] / sqrt(squares / N + 0.25) * w[i];
    }
    const belay_tensor in[] = {tensor_of(context, BELAY_F64, shapes[0], x),
                               tensor_of(context, BELAY_F64, shapes[1], w)};
    assert_numbers("rms_norm", rms_norm_2(context, in, NULL), want, 1e-13, 0);
    assert_gradients("rms_norm", context, rms_norm_2, NULL, 2, shapes, values);
    const double small[] = {0x1p-30, 0}, tiny[] = {0x1p-30 / sqrt(0x1p-61 + 0x1p-23), 0};
    belay_tensor row = tensor_of(context, BELAY_F32, belay_shape1(2), small);
    assert_numbers("eps of its own", belay_rms_norm(row, 1, (belay_tensor){0}, 0), tiny, 1e-6, 0);
    close_clean(context);
}

static void rms_norm_refuses_what_does_not_fit(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape2(2, 3)),
                 w = belay_zeros(context, BELAY_F32, belay_shape1(2));
    belay_rms_norm(x, 3, (belay_tensor){0}, 0);
    expect(__LINE__ - 1, "rms_norm", BELAY_SHAPE_RANK, "rms_norm over the last 3 axes of a tensor with 2",
           "x [2, 3] f32");
    belay_rms_norm(x, 1, w, 0);
    expect(__LINE__ - 1, "rms_norm", BELAY_SHAPE_CONTRACT, "weight is [2] where [3] is needed",
           "x [2, 3] f32; weight [2] f32");
    assert_true(belay_tensor_is_nil(belay_rms_norm((belay_tensor){0}, 1, w, 0)));
    assert_string_equal(told, "");
    belay_close(context);
}

/* ---- batch_norm ------------------------------------------------------------------------------------------------------ */

/* By its own statistics, or by given ones. */
static belay_tensor batch_norm_of(belay_context *context, const belay_tensor *in, void *state)
{
    const belay_batch_norm_options *o = state;
    const double mean[] = {0.5, -1, 0}, var[] = {2, 0.5, 1};
    belay_tensor running[2] = {{0}, {0}};
    if (!o->training) {
        running[0] = tensor_of(context, BELAY_F64, belay_shape1(3), mean);
        running[1] = tensor_of(context, BELAY_F64, belay_shape1(3), var);
    }
    return belay_batch_norm(in[0], running[0], running[1], in[1], in[2], o);
}

static void batch_norm_has_the_slopes_of_its_values(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const belay_shape of_x[] = {belay_shape2(7, 3), belay_shape3(2, 3, 5), belay_shape3(1, 3, 37)};
    for (int s = 0; s < 3; s++)
        for (int training = 0; training < 2; training++) {
            double x[111], w[3], b[3], *values[] = {x, w, b};
            draw_many(x, 111, -2, 2);
            draw_many(w, 3, 0.5, 2);
            draw_many(b, 3, -1, 1);
            const belay_shape shapes[] = {of_x[s], belay_shape1(3), belay_shape1(3)};
            belay_batch_norm_options o = {.training = training != 0, .eps = 0.01};
            assert_gradients("batch_norm", context, batch_norm_of, &o, 3, shapes, values);
        }
    close_clean(context);
}

static void a_normalised_batch_has_mean_0_and_variance_1_in_every_channel(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double x[4 * 3 * 35];
    for (int i = 0; i < 420; i++)
        x[i] = 1e4 * (i / 35 % 3) + draw(-1, 1); /* a mean that is large beside what differs */
    const belay_tensor in = tensor_of(context, BELAY_F32, (belay_shape){4, {4, 3, 5, 7}}, x), nil = {0};
    belay_tensor y = belay_batch_norm(in, nil, nil, nil, nil, &(belay_batch_norm_options){.training = true});
    assert_shape(y, (belay_shape){4, {4, 3, 5, 7}});
    const double zeros[3] = {0}, ones[] = {1, 1, 1};
    assert_numbers("mean", belay_mean(y, &(belay_axes){.n = 3, .axis = {0, 2, 3}}), zeros, 0, 2e-3);
    assert_numbers("variance", belay_var(y, &(belay_axes){.n = 3, .axis = {0, 2, 3}}, 0), ones, 1e-3, 0);
    close_clean(context);
}

/* ---- maps at their edges --------------------------------------------------------------------------------------------- */

static void powers_have_the_slopes_of_their_limits(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double a[] = {0, 0, 0, -2, 4}, b[] = {0, 1, 2, 3, 0.5};
    const double y[] = {1, 0, 0, -8, 2}, ga[] = {0, 1, 0, 12, 0.25}, gb[] = {0, 0, 0, NAN, 2 * log(4)};
    belay_tensor base = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F64, belay_shape1(5), a), true);
    belay_tensor exponent = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F64, belay_shape1(5), b), true);
    belay_tensor power = belay_pow(base, exponent);
    assert_numbers("pow", power, y, 1e-15, 0);
    belay_backward(belay_sum(power, NULL));
    assert_numbers("base", belay_tensor_grad(base), ga, 1e-15, 0);
    assert_numbers("exponent", belay_tensor_grad(exponent), gb, 1e-15, 0);
    const double square[] = {0, 0, 0, 4, 16};
    assert_numbers("pow_number", belay_pow_number(base, 2), square, 0, 0);
    assert_true(belay_tensor_is_nil(belay_pow_number((belay_tensor){0}, 2)));
    close_clean(context);
}

static void the_larger_of_equal_elements_shares_and_a_nan_stays(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double a[] = {1, 2, 3, NAN}, b[] = {2, 2, 1, 0}, larger[] = {2, 2, 3, NAN}, smaller[] = {1, 2, 1, NAN};
    const double share[] = {0, 0.5, 1, 1}, other[] = {1, 0.5, 0, 1};
    belay_tensor x = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape1(4), a), true);
    belay_tensor y = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape1(4), b), true);
    belay_tensor top = belay_maximum(x, y);
    assert_numbers("maximum", top, larger, 0, 0);
    assert_numbers("minimum", belay_minimum(y, x), smaller, 0, 0);
    belay_backward(belay_sum(top, NULL));
    assert_numbers("share", belay_tensor_grad(x), share, 0, 0);
    assert_numbers("other", belay_tensor_grad(y), other, 0, 0);
    belay_tensor_grad_clear(x);
    belay_tensor_grad_clear(y);
    belay_backward(belay_sum(belay_minimum(x, y), NULL));
    assert_numbers("share of minimum", belay_tensor_grad(x), other, 0, 0);
    assert_numbers("other of minimum", belay_tensor_grad(y), (const double[]){0, 0.5, 1, 1}, 0, 0);
    const double rows[] = {1, NAN, 2, 1, 2, 2}, of_rows[] = {NAN, NAN, NAN, 0, 0.5, 0.5};
    for (int dtype = BELAY_F32; dtype <= BELAY_F16; dtype++) {
        belay_tensor r = tensor_of(context, (belay_dtype)dtype, belay_shape2(2, 3), rows);
        r = belay_tensor_requires_grad_set(r, true);
        belay_backward(belay_sum(belay_amax(r, &(belay_axes){.n = 1, .axis = {1}}), NULL));
        assert_numbers("amax", belay_tensor_grad(r), of_rows, 0, 0);
        belay_tensor_grad_clear(r);
        belay_backward(belay_sum(belay_max(r, 1, false, NULL), NULL));
        assert_numbers("max", belay_tensor_grad(r), (const double[]){0, 1, 0, 0, 1, 0}, 0, 0);
    }
    const double signs[] = {-3, 0, 2}, plain[] = {3, 0, 2};
    assert_numbers("abs", belay_abs(tensor_of(context, BELAY_I32, belay_shape1(3), signs)), plain, 0, 0);
    close_clean(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cumsum_adds_up_along_every_axis),
        cmocka_unit_test(sums_of_whole_numbers_are_in_64_bits),
        cmocka_unit_test(a_scalar_has_an_axis_of_one_element),
        cmocka_unit_test(rows_are_sorted_stably_with_nan_as_the_largest),
        cmocka_unit_test(gradients_go_back_to_where_elements_stood),
        cmocka_unit_test(an_index_that_was_written_over_is_a_fault_in_backward),
        cmocka_unit_test(a_k_out_of_range_is_refused),
        cmocka_unit_test(one_hot_follows_the_index_policy),
        cmocka_unit_test(variance_is_its_definition_biased_and_not),
        cmocka_unit_test(a_large_mean_costs_the_variance_no_digits),
        cmocka_unit_test(variance_refuses_a_correction_below_zero),
        cmocka_unit_test(rms_norm_is_its_definition_over_several_axes),
        cmocka_unit_test(rms_norm_refuses_what_does_not_fit),
        cmocka_unit_test(batch_norm_has_the_slopes_of_its_values),
        cmocka_unit_test(a_normalised_batch_has_mean_0_and_variance_1_in_every_channel),
        cmocka_unit_test(powers_have_the_slopes_of_their_limits),
        cmocka_unit_test(the_larger_of_equal_elements_shares_and_a_nan_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
