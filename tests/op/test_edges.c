/* SPDX-License-Identifier: Apache-2.0 */
/* The edges of every row: sizes of zero, views of any layout, NaN and infinities, sizes beyond what memory holds. */
#include "op/rows.h"

/* ---- zero sizes ------------------------------------------------------------------------------------------------------ */

/* Blocks that the next tensors get hold sevens: what a launch fails to write shows. */
static void soil_memory(belay_context *context)
{
    belay_scope scope = belay_scope_open(context);
    for (int64_t n = 1; n <= 4096; n *= 2)
        for (int i = 0; i < 3; i++)
            full_of(context, BELAY_F64, belay_shape1(n), 7);
    belay_scope_close(scope);
}

static bool is_empty(belay_tensor tensor) { return belay_tensor_n_elements(tensor) == 0; }

static void rows_take_sizes_of_zero(void **state)
{
    (void)state;
    static double got[MAX_NUMBERS];
    for (int op = 1; op < BL_N_OPS; op++) {
        if (!row_runs_here(op))
            continue;
        const bl_signature *s = bl_signature_of(op);
        bl_skeleton skeleton = bl_kernel_rows[op].skeleton;
        for (int zero = 0; zero < (row_is_map(op) ? 1 : s->n_symbols); zero++) {
            if (!row_is_map(op) && s->symbol[zero] >= '1' && s->symbol[zero] <= '9')
                continue;
            int64_t size[8];
            row_inputs r;
            sizes_ragged(op, size);
            size[zero] = 0;
            row_draw(&r, op, size);
            belay_context *context = open_with(1);
            soil_memory(context);
            bl_call call = row_call(context, &r, BELAY_F64, NULL);
            if (!row_run(&call))
                fail_msg("%s with %c = 0: %s", bl_kernel_rows[op].name, s->symbol[zero], told);
            bool is_sum = skeleton == BL_SKELETON_REDUCE || skeleton == BL_SKELETON_SORTED;
            for (int o = 0; o < call.n_out && is_sum && is_empty(call.in[0]); o++) {
                int64_t n = read_numbers(call.out[o], got, MAX_NUMBERS);
                for (int64_t i = 0; i < n; i++)
                    if (got[i] != 0)
                        fail_msg("%s with %c = 0: element %lld is %g", bl_kernel_rows[op].name, s->symbol[zero],
                                 (long long)i, got[i]);
            }
            assert_int_equal(belay_synchronise(context), BELAY_OK);
            if (index_bound(&r) > 0) /* else every index is out of range */
                assert_string_equal(told, "");
            belay_close(context);
            row_free(&r);
        }
    }
}

static void sums_over_nothing_are_zero_and_means_nan(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    soil_memory(context);
    belay_tensor x = zeros_of(context, BELAY_F32, belay_shape3(2, 0, 3));
    const double zeros[6] = {0}, nans[6] = {NAN, NAN, NAN, NAN, NAN, NAN};
    const belay_axes middle = {.n = 1, .axis = {1}}, outer = {.n = 1, .axis = {0}};
    assert_numbers("sum", belay_sum(x, &middle), zeros, 0, 0);
    assert_numbers("mean", belay_mean(x, &middle), nans, 0, 0);
    assert_shape(belay_sum(x, &outer), belay_shape2(0, 3));
    assert_true(belay_tensor_item(belay_sum(x, NULL)) == 0);
    assert_true(isnan(belay_tensor_item(belay_mean(x, NULL))));
    close_clean(context);
}

static void axes_apart_over_nothing_are_as_neighbours(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    static const struct {
        belay_shape shape;
        belay_axes axes;
        int64_t n;
    } cases[] = {{{3, {0, 3, 5}}, {2, {0, 2}, false}, 3},          {{3, {0, 3, 5}}, {2, {0, 1}, true}, 5},
                 {{5, {1, 0, 2, 1, 3}}, {2, {1, 3}, false}, 6},    {{5, {1, 0, 2, 1, 3}}, {2, {-2, -4}, true}, 6},
                 {{4, {2, 3, 4, 0}}, {2, {1, 3}, false}, 8},       {{4, {2, 0, 4, 0}}, {2, {1, 3}, true}, 8},
                 {{5, {2, 3, 2, 0, 2}}, {3, {0, 2, 4}, false}, 0}, {{4, {0, 2, 0, 0}}, {2, {0, 2}, false}, 0}};
    double zeros[8] = {0}, nans[8];
    for (int i = 0; i < 8; i++)
        nans[i] = NAN;
    soil_memory(context);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int dtype = BELAY_F32; dtype <= BELAY_F16; dtype++) {
            belay_tensor x = zeros_of(context, (belay_dtype)dtype, cases[i].shape), y = belay_sum(x, &cases[i].axes);
            assert_int_equal(belay_tensor_n_elements(y), cases[i].n);
            assert_numbers("sum", y, zeros, 0, 0);
            x = belay_tensor_requires_grad_set(x, true);
            y = belay_mean(x, &cases[i].axes);
            assert_int_equal(belay_tensor_n_elements(y), cases[i].n);
            assert_numbers("mean", y, nans, 0, 0);
            assert_numbers("var", belay_var(x, &cases[i].axes, 1), nans, 0, 0);
            assert_numbers("biased var", belay_var(x, &cases[i].axes, 0), nans, 0, 0);
            belay_backward(belay_sum(y, NULL));
            assert_int_equal(belay_tensor_n_elements(belay_tensor_grad(x)), 0);
        }
    close_clean(context);
}

static void empty_gradients_are_zeros(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double one[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, none[12] = {0};
    soil_memory(context);
    belay_tensor w = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape2(4, 3), one), true);
    belay_tensor ids = zeros_of(context, BELAY_I64, belay_shape2(0, 5));
    belay_tensor y = belay_embedding(w, ids, NULL);
    assert_shape(y, belay_shape3(0, 5, 3));
    belay_backward(belay_sum(y, NULL));
    assert_numbers("embedding", belay_tensor_grad(w), none, 0, 0);
    belay_tensor_grad_clear(w);
    belay_tensor x = zeros_of(context, BELAY_F32, belay_shape2(0, 3));
    belay_backward(belay_sum(belay_linear(x, w, (belay_tensor){0}), NULL));
    assert_numbers("linear", belay_tensor_grad(w), none, 0, 0);
    close_clean(context);
}

enum { MANY = 42 }; /* a power of two: rows that nobody can go through */

typedef belay_tensor (*of_nothing)(belay_tensor x, belay_tensor three);
static belay_tensor many_softmax(belay_tensor x, belay_tensor i) { return (void)i, belay_softmax(x, 1); }
static belay_tensor many_log_softmax(belay_tensor x, belay_tensor i) { return (void)i, belay_log_softmax(x, -1); }
static belay_tensor many_cumsum(belay_tensor x, belay_tensor i) { return (void)i, belay_cumsum(x, 1); }
static belay_tensor many_sort(belay_tensor x, belay_tensor i) { return (void)i, belay_sort(x, 1, false, NULL); }
static belay_tensor many_topk(belay_tensor x, belay_tensor i) { return (void)i, belay_topk(x, 0, 1, false, NULL); }
static belay_tensor many_norm(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_layer_norm(x, 1, (belay_tensor){0}, (belay_tensor){0}, 0);
}
static belay_tensor many_rms(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_rms_norm(x, 1, (belay_tensor){0}, 0);
}
static belay_tensor many_rows(belay_tensor x, belay_tensor i)
{
    (void)i;
    belay_tensor one = belay_view(x, belay_shape3(1, (int64_t)1 << MANY, 0));
    return belay_attention(one, one, one, NULL);
}
static belay_tensor many_heads(belay_tensor x, belay_tensor i)
{
    (void)i;
    belay_tensor heads = belay_view(x, belay_shape3((int64_t)1 << MANY, 0, 4));
    return belay_attention(heads, heads, heads, &(belay_attention_options){.causal = true});
}
static belay_tensor many_selected(belay_tensor x, belay_tensor i)
{
    return belay_index_select(belay_view(x, belay_shape3((int64_t)1 << MANY, 4, 0)), 1, i, NULL);
}
static belay_tensor many_added(belay_tensor x, belay_tensor i)
{
    belay_tensor to = belay_view(x, belay_shape3((int64_t)1 << MANY, 3, 0));
    return belay_index_add(to, 1, i, to, 1, NULL);
}
static belay_tensor many_gathered(belay_tensor x, belay_tensor i)
{
    (void)i;
    belay_tensor at = zeros_of(belay_tensor_context(x), BELAY_I64, belay_shape2((int64_t)1 << MANY, 0));
    return belay_gather(x, 1, at, NULL);
}
static belay_tensor many_pooled(belay_tensor x, belay_tensor i)
{
    (void)i;
    return belay_max_pool1d(belay_view(x, belay_shape3((int64_t)1 << MANY, 0, 2)), &(belay_pool_options){.kernel = {2}},
                            NULL);
}
static belay_tensor many_multiplied(belay_tensor x, belay_tensor i)
{
    (void)i;
    belay_tensor a = belay_view(x, belay_shape3((int64_t)1 << MANY, 3, 0));
    return belay_matmul(belay_transpose(a, 1, 2), a);
}
static belay_tensor many_positions(belay_tensor x, belay_tensor i)
{
    (void)x, (void)i;
    belay_context *context = belay_tensor_context(x);
    belay_tensor image = zeros_of(context, BELAY_F32, belay_shape4(1, 1, 2, 2));
    belay_tensor w = zeros_of(context, BELAY_F32, belay_shape4(0, 1, 1, 1));
    belay_tensor_requires_grad_set(image, true);
    int64_t far = (int64_t)1 << 30;
    return belay_conv2d(image, w, (belay_tensor){0}, &(belay_conv_options){.padding = {far, far}});
}
static belay_tensor many_lines(belay_tensor x, belay_tensor i)
{
    (void)i;
    belay_tensor w = zeros_of(belay_tensor_context(x), BELAY_F32, belay_shape4(2, 1, 1, 1));
    return belay_conv2d(belay_view(x, belay_shape4(1, 1, (int64_t)1 << MANY, 0)), w, (belay_tensor){0},
                        &(belay_conv_options){.stride = {(int64_t)1 << MANY, 1}, .padding = {0, 1}});
}

/* A launch that has nothing to write ends at once, forward and back. */
static void rows_without_elements_are_not_gone_through(void **state)
{
    (void)state;
    static const of_nothing all[] = {many_softmax, many_log_softmax, many_cumsum,    many_sort,
                                     many_topk,    many_norm,        many_rms,       many_rows,
                                     many_heads,   many_selected,    many_added,     many_gathered,
                                     many_pooled,  many_multiplied,  many_positions, many_lines};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        belay_context *context = open_with(2);
        const int64_t three[] = {2, 0, 1};
        belay_tensor x = zeros_of(context, BELAY_F32, belay_shape2((int64_t)1 << MANY, 0));
        belay_tensor_requires_grad_set(x, true);
        belay_tensor y = all[i](x, from_bytes(context, BELAY_I64, belay_shape1(3), three, sizeof three));
        if (belay_tensor_is_nil(y))
            fail_msg("%zu: %s", i, told);
        belay_backward(belay_sum(y, NULL));
        close_clean(context);
    }
}

/* Rows of nothing that make a number each are refused for want of memory. */
static void results_of_more_rows_than_memory_holds_are_refused(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape2((int64_t)1 << MANY, 0));
    const belay_axes last = {.n = 1, .axis = {1}};
    for (int op = 0; op < 3; op++) {
        told[0] = '\0';
        belay_tensor y = op == 0 ? belay_sum(x, &last) : op == 1 ? belay_mean(x, &last) : belay_var(x, &last, 0);
        char text[1024];
        int line = __LINE__ - 2;
        bl_device *device = context->places[0].device;
        int64_t in_use, held, most; /* as the memory mode has it */
        bl_pool_memory(device->api->pool(device), &in_use, &held, &most);
        assert_true(belay_tensor_is_nil(y));
        snprintf(text, sizeof text,
                 "belay: no memory for a tensor of 17592186044416 bytes (mem.exhausted)\n"
                 "    called at: test_edges.c:%d\n"
                 "    in use: %lld bytes, held: %lld bytes\n"
                 "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                 "    try: Use a smaller batch, sequence or model, or a machine with more memory.\n",
                 line, (long long)in_use, (long long)held);
        if (made_at == NULL)
            assert_words_equal(told, text);
    }
    belay_close(context);
}

/* ---- layouts --------------------------------------------------------------------------------------------------------- */

enum { N_LAYOUTS = 5 };

/* The same numbers [3, 4, 5] in another layout. */
static belay_tensor laid_out(int layout, belay_tensor x)
{
    const int back[] = {2, 0, 1}, there[] = {1, 2, 0};
    const belay_tensor many[] = {x, x, x};
    belay_tensor columns[2];
    switch (layout) {
    case 1:
        return belay_transpose(belay_contiguous(belay_transpose(x, 0, 2)), 0, 2);
    case 2:
        return belay_permute(belay_contiguous(belay_permute(x, back, 3)), there, 3);
    case 3: /* every second of a wider tensor, from the second on */
        columns[0] = columns[1] = belay_view(x, belay_shape4(3, 4, 5, 1));
        return belay_slice(belay_view(belay_cat(columns, 2, 3), belay_shape3(3, 4, 10)), 2, 1, BELAY_END, 2);
    case 4: /* the middle of a taller one */
        return belay_slice(belay_cat(many, 3, 1), 1, 4, 8, 1);
    default:
        return x;
    }
}

typedef belay_tensor (*unary)(belay_tensor x, belay_tensor index);
static belay_tensor op_add(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_add(x, belay_transpose(belay_transpose(x, 0, 1), 0, 1));
}
static belay_tensor op_exp(belay_tensor x, belay_tensor i) { return (void)i, belay_exp(x); }
static belay_tensor op_clamp(belay_tensor x, belay_tensor i) { return (void)i, belay_clamp(x, -1, 1); }
static belay_tensor op_lt(belay_tensor x, belay_tensor i) { return (void)i, belay_lt(x, belay_neg(x)); }
static belay_tensor op_where(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_where(belay_gt(x, belay_neg(x)), x, belay_neg(x));
}
static belay_tensor op_cast(belay_tensor x, belay_tensor i) { return (void)i, belay_cast(x, BELAY_I32); }
static belay_tensor op_sum(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_sum(x, &(belay_axes){.n = 2, .axis = {0, 2}});
}
static belay_tensor op_mean(belay_tensor x, belay_tensor i) { return (void)i, belay_mean(x, NULL); }
static belay_tensor op_amax(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_amax(x, &(belay_axes){.n = 2, .axis = {0, -1}, .keep = true});
}
static belay_tensor op_max(belay_tensor x, belay_tensor i) { return (void)i, belay_max(x, 1, false, NULL); }
static belay_tensor op_argmax(belay_tensor x, belay_tensor i) { return (void)i, belay_argmax(x, 0, true); }
static belay_tensor op_softmax(belay_tensor x, belay_tensor i) { return (void)i, belay_softmax(x, 1); }
static belay_tensor op_norm(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_layer_norm(x, 1, (belay_tensor){0}, (belay_tensor){0}, 0);
}
static belay_tensor op_select(belay_tensor x, belay_tensor i)
{
    return belay_index_select(x, 1, belay_select(belay_select(i, 2, 0), 0, 1), NULL);
}
static belay_tensor op_gather(belay_tensor x, belay_tensor i) { return belay_gather(x, 1, i, NULL); }
static belay_tensor op_scatter(belay_tensor x, belay_tensor i)
{
    return belay_scatter_add(belay_neg(x), 1, i, x, NULL);
}
static belay_tensor op_index(belay_tensor x, belay_tensor i)
{
    return belay_index(x, (const belay_tensor[]){belay_select(i, 0, 0), belay_select(i, 0, 2)}, 2, NULL);
}
static belay_tensor op_view(belay_tensor x, belay_tensor i) { return (void)i, belay_view(x, belay_shape2(-1, 6)); }
static belay_tensor op_linear(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_linear(x, belay_select(x, 0, 0), (belay_tensor){0});
}
static belay_tensor op_matmul(belay_tensor x, belay_tensor i)
{
    return (void)i, belay_matmul(x, belay_transpose(x, 1, 2));
}

static const struct {
    const char *name;
    unary f;
} layout_ops[] = {
    {"add", op_add},         {"exp", op_exp},
    {"clamp", op_clamp},     {"lt", op_lt},
    {"where", op_where},     {"cast", op_cast},
    {"sum", op_sum},         {"mean", op_mean},
    {"amax", op_amax},       {"max", op_max},
    {"argmax", op_argmax},   {"softmax", op_softmax},
    {"layer_norm", op_norm}, {"index_select", op_select},
    {"gather", op_gather},   {"scatter_add", op_scatter},
    {"index", op_index},     {"view", op_view},
    {"linear", op_linear},   {"matmul", op_matmul},
};

static void assert_same(const char *name, int layout, const double *got, const double *want, int64_t n, double relative)
{
    for (int64_t i = 0; i < n; i++)
        if (!is_near(got[i], want[i], relative, relative))
            fail_msg("%s in layout %d: element %lld is %.17g, else %.17g", name, layout, (long long)i, got[i], want[i]);
}

static void layouts_change_no_value_and_no_gradient(void **state)
{
    (void)state;
    double x[60], index[60], want[128], slopes[60], got[128];
    draw_many(x, 60, -2, 2);
    for (int i = 0; i < 60; i++)
        index[i] = i * 7 % 3;
    for (size_t f = 0; f < sizeof layout_ops / sizeof layout_ops[0]; f++)
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            belay_context *context = open_with(1);
            const belay_shape shape = belay_shape3(3, 4, 5);
            belay_tensor leaf = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F64, shape, x), true);
            belay_tensor ids = laid_out(layout, tensor_of(context, BELAY_I32, shape, index));
            belay_scope scope = belay_scope_open(context);
            belay_tensor y = layout_ops[f].f(laid_out(layout, leaf), ids);
            int64_t n = read_numbers(y, got, 128);
            if (layout == 0)
                memcpy(want, got, sizeof want);
            assert_same(layout_ops[f].name, layout, got, want, n, 1e-14);
            bool has_slopes = belay_tensor_requires_grad(y);
            if (has_slopes)
                belay_backward(belay_sum(belay_mul(y, y), NULL));
            belay_scope_close(scope);
            if (has_slopes) {
                read_numbers(belay_tensor_grad(leaf), got, 60);
                if (layout == 0)
                    memcpy(slopes, got, sizeof slopes);
                assert_same(layout_ops[f].name, layout, got, slopes, 60, 1e-13);
            }
            close_clean(context);
        }
}

static void expanded_operands_act_as_if_repeated(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double v[] = {1, -2, 3}, want[] = {1, 1, -2, -2, 3, 3};
    belay_tensor x = belay_expand(tensor_of(context, BELAY_F32, belay_shape2(3, 1), v), belay_shape2(3, 2));
    assert_numbers("expand", x, want, 0, 0);
    assert_shape(belay_expand(x, belay_shape2(3, -1)), belay_shape2(3, 2));
    assert_shape(belay_expand(x, belay_shape3(2, -1, -1)), belay_shape3(2, 3, 2));
    assert_numbers("the rows kept", belay_expand(belay_slice(x, 1, 0, 1, 1), belay_shape2(-1, 2)), want, 0, 0);
    assert_numbers("contiguous", belay_contiguous(x), want, 0, 0);
    assert_true(belay_tensor_item(belay_sum(x, NULL)) == 4);
    const double sums[] = {2, -4, 6};
    assert_numbers("sum", belay_sum(x, &(belay_axes){.n = 1, .axis = {1}}), sums, 0, 0);
    assert_true(belay_tensor_item(belay_amax(x, NULL)) == 3);
    close_clean(context);
}

static void scalars_go_through_every_kind_of_op(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double two = 2;
    belay_tensor x = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F64, belay_shape0(), &two), true);
    belay_tensor y = belay_mul(belay_exp(x), x);
    assert_shape(y, belay_shape0());
    assert_true(belay_tensor_item(belay_sum(y, NULL)) == belay_tensor_item(y));
    assert_true(belay_tensor_item(belay_mean(y, NULL)) == belay_tensor_item(y));
    assert_true(belay_tensor_item(belay_amax(y, NULL)) == belay_tensor_item(y));
    assert_true(belay_tensor_item(belay_cast(y, BELAY_I64)) == floor(2 * exp(2)));
    assert_shape(belay_view(y, belay_shape2(1, 1)), belay_shape2(1, 1));
    assert_shape(belay_expand(y, belay_shape1(3)), belay_shape1(3));
    belay_backward(belay_sum(belay_expand(y, belay_shape1(3)), NULL));
    assert_true(fabs(belay_tensor_item(belay_tensor_grad(x)) - 9 * exp(2)) < 1e-12);
    close_clean(context);
}

/* ---- NaN ------------------------------------------------------------------------------------------------------------- */

static void nan_stays_nan_through_every_float_map(void **state)
{
    (void)state;
    double got[8];
    for (int op = 1; op < BL_N_OPS; op++) {
        bl_skeleton skeleton = bl_kernel_rows[op].skeleton;
        const bl_signature *s = bl_signature_of(op);
        if ((skeleton != BL_SKELETON_MAP1 && skeleton != BL_SKELETON_MAP2 && op != BL_OP_affine && op != BL_OP_clamp) ||
            !row_runs_here(op))
            continue;
        for (int dtype = BELAY_F32; dtype <= BELAY_F16; dtype++)
            for (int bad = 0; bad < s->n_in; bad++) {
                row_inputs r;
                const int64_t size[8] = {5};
                row_draw(&r, op, size);
                r.v[bad][3] = NAN;
                belay_context *context = open_with(1);
                bl_call call = row_call(context, &r, (belay_dtype)dtype, NULL);
                assert_true(row_run(&call));
                read_numbers(call.out[0], got, 8);
                for (int i = 0; i < 5; i++)
                    if (isnan(got[i]) != (i == 3))
                        fail_msg("%s of %s with a NaN in operand %d: element %d is %g", bl_kernel_rows[op].name,
                                 belay_dtype_name((belay_dtype)dtype), bad, i, got[i]);
                close_clean(context);
                row_free(&r);
            }
    }
}

static void nan_stays_in_its_row(void **state)
{
    (void)state;
    double x[3 * 40], got[3 * 40];
    draw_many(x, 120, -2, 2);
    x[40 + 17] = NAN;
    const int64_t labels[] = {1, 2, 3};
    for (int op = 0; op < 7; op++) {
        belay_context *context = open_with(1);
        belay_tensor in = tensor_of(context, BELAY_F32, belay_shape2(3, 40), x), at, y = {0};
        belay_tensor l = from_bytes(context, BELAY_I64, belay_shape1(3), labels, sizeof labels);
        const belay_axes last = {.n = 1, .axis = {1}};
        y = op == 0   ? belay_softmax(in, 1)
            : op == 1 ? belay_log_softmax(in, 1)
            : op == 2 ? belay_layer_norm(in, 1, (belay_tensor){0}, (belay_tensor){0}, 0)
            : op == 3 ? belay_cross_entropy(in, l, &(belay_cross_entropy_options){.reduction = BELAY_NONE})
            : op == 4 ? belay_max(in, 1, false, &at)
            : op == 5 ? belay_amax(in, &last)
                      : belay_sum(in, &last);
        int64_t n = read_numbers(y, got, 120), width = n / 3;
        for (int64_t i = 0; i < n; i++)
            if (isnan(got[i]) != (i / width == 1))
                fail_msg("row op %d: element %lld is %g", op, (long long)i, got[i]);
        if (op == 4) {
            read_numbers(at, got, 3);
            assert_true(got[1] == 17);
        }
        close_clean(context);
    }
}

static void clamp_of_nan_is_nan_without_a_gradient_and_its_borders_pass_theirs(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double x[] = {-2, -1, 0, 1, 2, -INFINITY, INFINITY, NAN}, want[] = {-1, -1, 0, 1, 1, -1, 1, NAN},
                 slope[] = {0, 1, 1, 1, 0, 0, 0, 0};
    belay_tensor in = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape1(8), x), true);
    belay_tensor y = belay_clamp(in, -1, 1);
    assert_numbers("clamp", y, want, 0, 0);
    belay_backward(belay_sum(y, NULL));
    assert_numbers("gradient", belay_tensor_grad(in), slope, 0, 0);
    close_clean(context);
}

static void amax_shares_its_gradient_among_ties_and_max_does_not(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double x[] = {1, 3, 3, 2, 0, 0}, shared[] = {0, 0.5, 0.5, 1, 0, 0}, one[] = {0, 1, 0, 1, 0, 0}, at[] = {1, 0};
    belay_tensor in = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape2(2, 3), x), true), where;
    belay_backward(belay_sum(belay_amax(in, &(belay_axes){.n = 1, .axis = {1}}), NULL));
    assert_numbers("amax", belay_tensor_grad(in), shared, 0, 0);
    belay_tensor_grad_clear(in);
    belay_backward(belay_sum(belay_max(in, 1, false, &where), NULL));
    assert_numbers("max", belay_tensor_grad(in), one, 0, 0);
    assert_numbers("indices", where, at, 0, 0);
    assert_int_equal(belay_tensor_dtype(where), BELAY_I64);
    close_clean(context);
}

/* ---- sizes that no memory holds -------------------------------------------------------------------------------------- */

static void sizes_beyond_2_to_the_31_are_exact(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double one = 1;
    const int64_t large = ((int64_t)1 << 31) + 5;
    belay_tensor x = tensor_of(context, BELAY_U8, belay_shape1(1), &one);
    belay_tensor wide = belay_expand(x, belay_shape2(3, large));
    assert_int_equal(belay_tensor_n_elements(wide), 3 * large);
    belay_tensor end = belay_slice(wide, 1, large - 2, BELAY_END, 1);
    assert_shape(end, belay_shape2(3, 2));
    assert_shape(belay_slice(wide, 1, 1, BELAY_END, large - 2), belay_shape2(3, 2));
    assert_shape(belay_slice(wide, 0, 0, 3, INT64_MAX), belay_shape2(1, large));
    const double ones[] = {1, 1, 1, 1, 1, 1};
    assert_numbers("slice", end, ones, 0, 0);
    assert_shape(belay_select(belay_transpose(wide, 0, 1), 0, -1), belay_shape1(3));
    close_clean(context);
}

static void products_of_sizes_beyond_2_to_the_63_are_refused(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const int64_t huge = (int64_t)1 << 40;
    belay_tensor x = zeros_of(context, BELAY_F32, belay_shape2(1, 1));
    assert_true(belay_tensor_is_nil(belay_expand(x, belay_shape2(huge, huge))));
    assert_non_null(strstr(told, "(size.overflow)"));
    told[0] = '\0';
    assert_true(belay_tensor_is_nil(zeros_of(context, BELAY_F32, belay_shape2(huge, huge))));
    assert_non_null(strstr(told, "(size.overflow)"));
    told[0] = '\0';
    belay_tensor none = zeros_of(context, BELAY_F32, belay_shape2(1, 0));
    assert_true(
        belay_tensor_is_nil(belay_expand(belay_view(none, belay_shape3(1, 1, 0)), belay_shape3(huge, huge, 0))));
    assert_non_null(strstr(told, "(size.overflow)"));
    told[0] = '\0';
    /* a result of 2^62 bytes is refused for want of memory, not by a crash */
    belay_tensor tall = belay_expand(x, belay_shape2(huge << 5, 1)),
                 flat = belay_expand(x, belay_shape2(1, huge >> 25));
    assert_true(belay_tensor_is_nil(belay_add(tall, flat)));
    assert_non_null(strstr(told, "(mem.exhausted)"));
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_take_sizes_of_zero),
        cmocka_unit_test(sums_over_nothing_are_zero_and_means_nan),
        cmocka_unit_test(axes_apart_over_nothing_are_as_neighbours),
        cmocka_unit_test(empty_gradients_are_zeros),
        cmocka_unit_test(rows_without_elements_are_not_gone_through),
        cmocka_unit_test(results_of_more_rows_than_memory_holds_are_refused),
        cmocka_unit_test(layouts_change_no_value_and_no_gradient),
        cmocka_unit_test(expanded_operands_act_as_if_repeated),
        cmocka_unit_test(scalars_go_through_every_kind_of_op),
        cmocka_unit_test(nan_stays_nan_through_every_float_map),
        cmocka_unit_test(nan_stays_in_its_row),
        cmocka_unit_test(clamp_of_nan_is_nan_without_a_gradient_and_its_borders_pass_theirs),
        cmocka_unit_test(amax_shares_its_gradient_among_ties_and_max_does_not),
        cmocka_unit_test(sizes_beyond_2_to_the_31_are_exact),
        cmocka_unit_test(products_of_sizes_beyond_2_to_the_63_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
