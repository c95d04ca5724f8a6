/* SPDX-License-Identifier: Apache-2.0 */
/* Ops with data-dependent indices: against plain loops, under every policy, their faults by whole text. */
#include "base/attributes.h"
#include "op/numbers.h"
#include "support/spoil.h"
#include "tensor/context.h"

/* ---- values ---------------------------------------------------------------------------------------------------------- */

enum { A = 3, B = 4, C = 5, N = 7 };

static double x[A * B * C], src[A * N * C];
static int64_t ids[N], index3[A * N * C];

static void draw_all(int axis)
{
    draw_many(x, A * B * C, -2, 2);
    draw_many(src, A * N * C, -2, 2);
    for (int i = 0; i < N; i++)
        ids[i] = (int64_t)draw(0, axis == 0 ? A : axis == 1 ? B : C);
    for (int i = 0; i < A * N * C; i++)
        index3[i] = (int64_t)draw(0, axis == 0 ? A : axis == 1 ? B : C);
}

static belay_tensor ids_of(belay_context *context, belay_dtype dtype, belay_shape shape, const int64_t *v)
{
    return belay_cast(belay_tensor_from(context, BELAY_I64, shape, v, count_of(shape) * 8), dtype);
}

static double at3(const double *v, const int64_t *size, const int64_t *i)
{
    return v[(i[0] * size[1] + i[1]) * size[2] + i[2]];
}

static void selections_are_plain_loops_along_every_axis(void **state)
{
    (void)state;
    double selected[A * B * C * N], gathered[A * B * C * N];
    const belay_dtype dtypes[] = {BELAY_I64, BELAY_I32, BELAY_U16, BELAY_U8};
    for (int axis = 0; axis < 3; axis++)
        for (int d = 0; d < 4; d++) {
            belay_context *context = open_with(1);
            draw_all(axis);
            const int64_t size[3] = {A, B, C};
            int64_t out[3] = {A, B, C}, i[3], n = 0;
            out[axis] = N;
            for (i[0] = 0; i[0] < out[0]; i[0]++)
                for (i[1] = 0; i[1] < out[1]; i[1]++)
                    for (i[2] = 0; i[2] < out[2]; i[2]++, n++) {
                        int64_t from[3] = {i[0], i[1], i[2]};
                        from[axis] = ids[i[axis]];
                        selected[n] = at3(x, size, from);
                        from[axis] = index3[n % (A * N * C)];
                        gathered[n] = at3(x, size, from);
                    }
            const belay_shape shape = belay_shape3(out[0], out[1], out[2]);
            static int64_t wide[A * B * C * N];
            for (int64_t e = 0; e < n; e++)
                wide[e] = index3[e % (A * N * C)];
            belay_tensor in = tensor_of(context, BELAY_F64, belay_shape3(A, B, C), x);
            belay_tensor y = belay_index_select(in, axis - 3, ids_of(context, dtypes[d], belay_shape1(N), ids), NULL);
            assert_shape(y, shape);
            assert_numbers("index_select", y, selected, 0, 0);
            y = belay_gather(in, axis, ids_of(context, dtypes[d], shape, wide), NULL);
            assert_shape(y, shape);
            assert_numbers("gather", y, gathered, 0, 0);
            close_clean(context);
        }
}

static void additions_by_index_are_plain_loops_in_order(void **state)
{
    (void)state;
    for (int axis = 0; axis < 3; axis++) {
        belay_context *context = open_with(1);
        draw_all(axis);
        const int64_t size[3] = {A, B, C};
        int64_t in[3] = {A, B, C}, i[3], n = 0;
        in[axis] = N;
        double scattered[A * B * C], added[A * B * C], source[A * B * C * N];
        int64_t wide[A * B * C * N];
        memcpy(scattered, x, sizeof x);
        memcpy(added, x, sizeof x);
        for (i[0] = 0; i[0] < in[0]; i[0]++)
            for (i[1] = 0; i[1] < in[1]; i[1]++)
                for (i[2] = 0; i[2] < in[2]; i[2]++, n++) {
                    source[n] = draw(-1, 1);
                    wide[n] = index3[n % (A * N * C)];
                    int64_t to[3] = {i[0], i[1], i[2]};
                    to[axis] = wide[n];
                    scattered[(to[0] * size[1] + to[1]) * size[2] + to[2]] += source[n];
                    to[axis] = ids[i[axis]];
                    added[(to[0] * size[1] + to[1]) * size[2] + to[2]] += 0.5 * source[n];
                }
        const belay_shape shape = belay_shape3(in[0], in[1], in[2]);
        belay_tensor base = tensor_of(context, BELAY_F64, belay_shape3(A, B, C), x);
        belay_tensor s = tensor_of(context, BELAY_F64, shape, source);
        belay_tensor y = belay_scatter_add(base, axis, ids_of(context, BELAY_I64, shape, wide), s, NULL);
        assert_numbers("scatter_add", y, scattered, 0, 0);
        y = belay_index_add(base, axis, ids_of(context, BELAY_I64, belay_shape1(N), ids), s, 0.5, NULL);
        assert_numbers("index_add", y, added, 1e-15, 1e-15);
        assert_numbers("x is untouched", base, x, 0, 0);
        close_clean(context);
    }
}

static void index_smaller_than_its_tensors_reaches_their_first_corner(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double v[] = {1, 2, 3, 4, 5, 6}, s[] = {10, 20, 30, 40, 50, 60, 70, 80, 90};
    const int64_t i[] = {1, 0};
    const double gathered[] = {4, 2}, scattered[] = {1, 22, 3, 14, 5, 6};
    belay_tensor in = tensor_of(context, BELAY_F32, belay_shape2(2, 3), v);
    belay_tensor at = ids_of(context, BELAY_I64, belay_shape2(1, 2), i);
    assert_numbers("gather", belay_gather(in, 0, at, NULL), gathered, 0, 0);
    belay_tensor from = tensor_of(context, BELAY_F32, belay_shape2(3, 3), s);
    assert_numbers("scatter_add", belay_scatter_add(in, 0, at, from, NULL), scattered, 0, 0);
    close_clean(context);
}

static void integers_scatter_and_wrap(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double base[] = {250, 1}, add[] = {7, 5, 3}, want[] = {262 - 256, 4};
    const int64_t at[] = {0, 0, 1};
    belay_tensor y = belay_scatter_add(tensor_of(context, BELAY_U8, belay_shape1(2), base), 0,
                                       ids_of(context, BELAY_I64, belay_shape1(3), at),
                                       tensor_of(context, BELAY_U8, belay_shape1(3), add), NULL);
    assert_numbers("scatter_add", y, want, 0, 0);
    close_clean(context);
}

static void integers_are_added_alpha_times_and_wrap(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double old[] = {1, 2, 3}, four[] = {4, 5, 6};
    const int64_t at[] = {2, 0, 2};
    for (int dtype = BELAY_I64; dtype < BELAY_BOOL; dtype++) {
        belay_tensor to = tensor_of(context, (belay_dtype)dtype, belay_shape1(3), old), i, s;
        s = tensor_of(context, (belay_dtype)dtype, belay_shape1(3), four);
        i = ids_of(context, BELAY_I64, belay_shape1(3), at);
        const double twice[] = {11, 2, 23}, most = dtype == BELAY_U8 ? 0x1p8 : dtype == BELAY_U16 ? 0x1p16 : 0;
        assert_numbers("twice", belay_index_add(to, 0, i, s, 2, NULL), twice, 0, 0);
        const double less[] = {most - 4, 2, most - 7};
        assert_numbers("less", belay_index_add(to, 0, i, s, -1, NULL), less, 0, 0);
        assert_numbers("none", belay_index_add(to, 0, i, s, 0, NULL), old, 0, 0);
    }
    close_clean(context);
}

static void index_selects_by_tuples_broadcast_together(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    draw_all(0);
    const int64_t i0[] = {2, 0}, i1[] = {3, 1, 1};
    double want[2 * 3 * C];
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < C; c++)
                want[(a * 3 + b) * C + c] = x[(i0[a] * B + i1[b]) * C + c];
    belay_tensor in = tensor_of(context, BELAY_F64, belay_shape3(A, B, C), x);
    const belay_tensor at[] = {ids_of(context, BELAY_I32, belay_shape2(2, 1), i0),
                               ids_of(context, BELAY_U8, belay_shape1(3), i1)};
    belay_tensor y = belay_index(in, at, 2, NULL);
    assert_shape(y, belay_shape3(2, 3, C));
    assert_numbers("index", y, want, 0, 0);
    y = belay_index(in, at + 1, 1, &(belay_index_options){.policy = BELAY_INDEX_ZERO});
    assert_shape(y, belay_shape3(3, B, C));
    belay_close(context);
}

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

static int test_axis;

static belay_tensor select_of(belay_context *c, const belay_tensor *in, void *s)
{
    (void)s;
    return belay_index_select(in[0], test_axis, ids_of(c, BELAY_I64, belay_shape1(N), ids), NULL);
}
static belay_tensor gather_of(belay_context *c, const belay_tensor *in, void *s)
{
    (void)s;
    return belay_gather(in[0], test_axis, ids_of(c, BELAY_I64, belay_shape3(2, 3, 2), index3), NULL);
}
static belay_tensor scatter_of(belay_context *c, const belay_tensor *in, void *s)
{
    (void)s;
    belay_tensor at = ids_of(c, BELAY_I64, belay_shape3(2, 3, 2), index3);
    return belay_scatter_add(in[0], test_axis, at, in[1], NULL);
}
static belay_tensor add_of(belay_context *c, const belay_tensor *in, void *s)
{
    (void)s;
    return belay_index_add(in[0], 1, ids_of(c, BELAY_I64, belay_shape1(N), ids), in[1], -2, NULL);
}
static belay_tensor index_of(belay_context *c, const belay_tensor *in, void *s)
{
    (void)s;
    const belay_tensor at[] = {ids_of(c, BELAY_I64, belay_shape2(N, 1), ids),
                               ids_of(c, BELAY_I64, belay_shape1(6), index3)};
    return belay_index(in[0], at, 2, NULL);
}
static belay_tensor embedding_of(belay_context *c, const belay_tensor *in, void *s)
{
    return belay_embedding(in[0], ids_of(c, BELAY_I64, belay_shape1(N), ids), s);
}

static void gradients_of_selections_are_their_slopes(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double *values[] = {x, src};
    for (test_axis = 0; test_axis < 3; test_axis++) {
        draw_all(test_axis);
        const belay_shape shapes[] = {belay_shape3(A, B, C), belay_shape3(A, 5, 4)};
        assert_gradients("index_select", context, select_of, NULL, 1, shapes, values);
        assert_gradients("gather", context, gather_of, NULL, 1, shapes, values);
        assert_gradients("scatter_add", context, scatter_of, NULL, 2, shapes, values);
    }
    draw_all(1);
    const belay_shape shapes[] = {belay_shape3(A, B, C), belay_shape3(A, N, C)};
    assert_gradients("index_add", context, add_of, NULL, 2, shapes, values);
    draw_all(0);
    assert_gradients("index", context, index_of, NULL, 1, shapes, values);
    const belay_shape table = belay_shape2(B, C);
    assert_gradients("embedding", context, embedding_of, NULL, 1, &table, values);
    close_clean(context);
}

static void padding_row_is_read_but_takes_no_gradient(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double table[] = {1, 2, 3, 4, 5, 6}, want[] = {3, 4, 5, 6, 3, 4}, slopes[] = {0, 0, 0, 0, 1, 1};
    const int64_t at[] = {1, 2, 1};
    belay_tensor w = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape2(3, 2), table), true);
    belay_tensor y = belay_embedding(w, ids_of(context, BELAY_U16, belay_shape1(3), at),
                                     &(belay_embedding_options){.has_padding = true, .padding = 1});
    assert_numbers("embedding", y, want, 0, 0);
    belay_backward(belay_sum(y, NULL));
    assert_numbers("gradient", belay_tensor_grad(w), slopes, 0, 0);
    close_clean(context);
}

/* ---- policies and faults --------------------------------------------------------------------------------------------- */

typedef belay_tensor (*selection)(belay_tensor x, belay_tensor ids, belay_index_policy policy);
static belay_tensor by_embedding(belay_tensor v, belay_tensor i, belay_index_policy p)
{
    return belay_embedding(v, i, &(belay_embedding_options){.policy = p});
}
static belay_tensor by_select(belay_tensor v, belay_tensor i, belay_index_policy p)
{
    return belay_index_select(v, 0, i, &(belay_index_options){.policy = p});
}
static belay_tensor by_index(belay_tensor v, belay_tensor i, belay_index_policy p)
{
    return belay_index(v, &i, 1, &(belay_index_options){.policy = p});
}
static belay_tensor by_gather(belay_tensor v, belay_tensor i, belay_index_policy p)
{
    belay_tensor both = belay_expand(belay_view(i, belay_shape2(4, 1)), belay_shape2(4, 2));
    return belay_gather(v, 0, both, &(belay_index_options){.policy = p});
}

static void policies_say_what_a_bad_index_reads_and_where_its_gradient_goes(void **state)
{
    (void)state;
    const selection all[] = {by_embedding, by_select, by_index, by_gather};
    const double table[] = {1, 2, 3, 4, 5, 6};
    const int64_t at[] = {0, 3, -1, (int64_t)1 << 40};
    const double zeros[] = {1, 2, 0, 0, 0, 0, 0, 0}, clamped[] = {1, 2, 5, 6, 1, 2, 5, 6};
    const double zero_slopes[] = {1, 1, 0, 0, 0, 0}, clamp_slopes[] = {2, 2, 0, 0, 2, 2};
    for (size_t f = 0; f < 4; f++)
        for (int policy = BELAY_INDEX_DEFAULT; policy <= BELAY_INDEX_ZERO; policy++) {
            belay_context *context = open_with(1);
            belay_tensor w = tensor_of(context, BELAY_F32, belay_shape2(3, 2), table);
            belay_tensor_requires_grad_set(w, true);
            belay_tensor i = ids_of(context, BELAY_I64, belay_shape1(4), at);
            bool clamps = policy == BELAY_INDEX_CLAMP, raises = policy <= BELAY_INDEX_RAISE;
            for (int again = 0; again < 2; again++) {
                belay_tensor y = all[f](w, i, (belay_index_policy)policy);
                assert_numbers("values", y, clamps ? clamped : zeros, 0, 0);
                if (again == 0)
                    belay_backward(belay_sum(y, NULL));
            }
            assert_numbers("slopes", belay_tensor_grad(w), clamps ? clamp_slopes : zero_slopes, 0, 0);
            const char *code = raises ? "(index.range)" : clamps ? "(index.clamped)" : "(index.zeroed)";
            char *first = strstr(told, code);
            assert_non_null(first);
            assert_int_equal(strstr(first + 1, code) != NULL, raises); /* warned once a site; faults each time */
            assert_int_equal(belay_close(context), raises ? 3 : 0);
        }
}

static const char *when = "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n";

static void bad_indices_are_named_with_tensor_value_and_bound(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    char text[1024];
    const int64_t at[] = {0, 1, 2, 0, -5, 3};
    belay_tensor v = belay_tensor_name_set(belay_zeros(context, BELAY_F32, belay_shape3(2, 3, 4)), "cache");
    belay_tensor i = belay_tensor_name_set(ids_of(context, BELAY_I64, belay_shape1(6), at), "slots");
    belay_index_select(v, 1, i, NULL);
    int line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: slots[4] is -5, outside [0, 3) of cache (index.range)\n"
             "    op: index_select, called at test_index.c:%d\n"
             "    tensors: cache [2, 3, 4] f32; slots [6] i64; on cpu\n"
             "    bad: 2 of 6 elements; values -5, 3\n%s"
             "    likely: a negative value: a difference below 0, or a number that wrapped\n"
             "    try: Look where it is computed: a subtraction, or arithmetic in too few bits.\n",
             line, when);
    assert_words_equal(told, text);
    told[0] = '\0';
    const int64_t rows[] = {0, 2, 1};
    const belay_tensor two[] = {belay_tensor_name_set(ids_of(context, BELAY_I32, belay_shape2(3, 1), rows), "rows"), i};
    belay_index(v, two, 2, NULL);
    line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: slots[0, 4] is -5, outside [0, 3) of cache (index.range)\n"
             "    op: index, called at test_index.c:%d\n"
             "    tensors: cache [2, 3, 4] f32; rows [3, 6] i32; slots [3, 6] i64; on cpu\n"
             "    bad: 12 of 18 elements; values -5, 3\n%s"
             "    likely: a negative value: a difference below 0, or a number that wrapped\n"
             "    try: Look where it is computed: a subtraction, or arithmetic in too few bits.\n",
             line, when);
    assert_words_equal(told, text);
    told[0] = '\0';
    belay_tensor s = belay_zeros(context, BELAY_F32, belay_shape3(2, 6, 4));
    belay_index_add(v, 1, i, s, 1, NULL);
    line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: slots[4] is -5, outside [0, 3) of cache (index.range)\n"
             "    op: index_add, called at test_index.c:%d\n"
             "    tensors: src [2, 6, 4] f32; slots [6] i64; cache [2, 3, 4] f32; on cpu\n"
             "    bad: 2 of 6 elements; values -5, 3\n%s"
             "    likely: a negative value: a difference below 0, or a number that wrapped\n"
             "    try: Look where it is computed: a subtraction, or arithmetic in too few bits.\n",
             line, when);
    assert_words_equal(told, text);
    const int64_t few[] = {0, 2, 9};
    belay_tensor t = belay_zeros(context, BELAY_F32, belay_shape1(3)),
                 to = ids_of(context, BELAY_I64, belay_shape1(3), few);
    for (int scatters = 0; scatters < 2; scatters++) {
        told[0] = '\0';
        scatters ? belay_scatter_add(t, 0, to, t, NULL) : belay_index_add(t, 0, to, t, 2, NULL);
        line = __LINE__ - 1;
        snprintf(
            text, sizeof text,
            "belay: %s[2] is 9, outside [0, 3) of x (index.range)\n"
            "    op: %s, called at test_index.c:%d\n"
            "    tensors: src [3] f32; %s [3] i64; x [3] f32; on cpu\n"
            "    bad: 1 of 3 elements; values 9\n%s"
            "    likely: slightly above the bound: the tokenizer knows more ids than the table has rows\n"
            "    try: Make the table as large as the largest id plus 1; tokens that were added later need rows too.\n",
            scatters ? "index" : "ids", scatters ? "scatter_add" : "index_add", line, scatters ? "index" : "ids", when);
        assert_words_equal(told, text);
    }
    belay_close(context);
}

/* Rows are copied in blocks, by a way of its own for the common short rows: every width, every block, ends included. */
static void bad_ids_in_some_blocks_are_zeros_and_all_else_is_copied(void **state)
{
    (void)state;
    enum { V = 20, MANY = 400 };
    static const int64_t widths[] = {1, 2, 3, 4, 8, 9, 16, 33}, bad[] = {127, 128, 255, 300, MANY - 1};
    static const belay_dtype dtypes[] = {BELAY_I64, BELAY_I32, BELAY_U8};
    static double table[V * 33], want[MANY * 33];
    int64_t at[MANY];
    for (int c = 0; c < BL_COUNT(widths) * BL_COUNT(dtypes); c++) {
        belay_context *context = open_with(1 + c % 2);
        const int64_t width = widths[c / BL_COUNT(dtypes)];
        draw_many(table, V * width, -2, 2);
        for (int64_t i = 0; i < MANY; i++)
            at[i] = (int64_t)draw(0, V);
        for (int i = 0; i < BL_COUNT(bad); i++)
            at[bad[i]] = V + i;
        for (int64_t e = 0; e < MANY * width; e++)
            want[e] = at[e / width] < V ? table[at[e / width] * width + e % width] : 0;
        belay_tensor weight = tensor_of(context, BELAY_F64, belay_shape2(V, width), table);
        belay_tensor i = ids_of(context, dtypes[c % BL_COUNT(dtypes)], belay_shape1(MANY), at);
        belay_tensor y = belay_embedding(belay_tensor_name_set(weight, "table"), belay_tensor_name_set(i, "ids"), NULL);
        assert_numbers("embedding", y, want, 0, 0);
        assert_non_null(strstr(told, "ids[127] is 20, outside [0, 20) of table"));
        assert_non_null(strstr(told, "bad: 5 of 400 elements; values 20, 21, 22, 23\n"));
        told[0] = '\0';
        belay_close(context);
    }
}

static void policy_that_is_none_is_refused(void **state)
{
    (void)state;
    static const int none[] = {4, 77, -1};
    for (int i = 0; i < 3; i++) {
        belay_context *context = open_with(1);
        const int64_t at[] = {0, 9};
        char text[128];
        belay_tensor table = belay_zeros(context, BELAY_F32, belay_shape2(3, 2));
        belay_tensor rows = belay_index_select(table, 0, ids_of(context, BELAY_I64, belay_shape1(2), at),
                                               &(belay_index_options){.policy = (belay_index_policy)none[i]});
        assert_true(belay_tensor_is_nil(rows));
        snprintf(text, sizeof text, "belay: policy is %d, which is no index policy (conf.value)\n", none[i]);
        assert_memory_equal(told, text, strlen(text));
        belay_close(context);
    }
}

/* What max returned is the program's: it may have written there before the walk back uses it. */
static void indices_of_max_are_tested_again_on_the_way_back(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    char text[1024];
    const double v[] = {1, 3, 2, 6, 5, 4}, slopes[] = {0, 1, 0, 0, 0, 0};
    const int64_t spoilt[] = {1, 7};
    belay_tensor at, scores = tensor_of(context, BELAY_F32, belay_shape2(2, 3), v);
    belay_tensor_requires_grad_set(belay_tensor_name_set(scores, "scores"), true);
    belay_tensor y = belay_max(scores, 1, false, &at);
    int line = __LINE__ - 1;
    assert_int_equal(spoil(at, spoilt, sizeof spoilt), BELAY_OK);
    belay_backward(belay_sum(y, NULL));
    snprintf(text, sizeof text,
             "belay: at[1] is 7, outside [0, 3) (index.range)\n"
             "    op: max_grad (backward), called at test_index.c:%d\n"
             "    tensors: g_y [2] f32; at [2] i64; on cpu\n"
             "    bad: 1 of 2 elements; values 7\n%s"
             "    likely: slightly above the bound: the tokenizer knows more ids than the table has rows\n"
             "    try: Make the table as large as the largest id plus 1; tokens that were added later need rows too.\n",
             line, when);
    assert_words_equal(told, text);
    assert_numbers("gradient", belay_tensor_grad(scores), slopes, 0, 0);
    belay_close(context);
}

/* What a call whose walk back follows an index gives, and that index: of the op's own making, or the program's. */
typedef belay_tensor (*followed)(belay_tensor v, belay_tensor own, belay_tensor *indices);
static belay_tensor follow_max(belay_tensor v, belay_tensor own, belay_tensor *indices)
{
    (void)own;
    return belay_max(v, 1, false, indices);
}
static belay_tensor follow_sort(belay_tensor v, belay_tensor own, belay_tensor *indices)
{
    (void)own;
    return belay_sort(v, 1, true, indices);
}
static belay_tensor follow_topk(belay_tensor v, belay_tensor own, belay_tensor *indices)
{
    (void)own;
    return belay_topk(v, 2, 1, false, indices);
}
static belay_tensor follow_max_pool(belay_tensor v, belay_tensor own, belay_tensor *indices)
{
    (void)own;
    return belay_max_pool1d(v, &(belay_pool_options){.kernel = {2}}, indices);
}
static belay_tensor follow_embedding(belay_tensor v, belay_tensor own, belay_tensor *indices)
{
    *indices = own;
    return belay_embedding(v, own, NULL);
}
static belay_tensor follow_gather(belay_tensor v, belay_tensor own, belay_tensor *indices)
{
    *indices = belay_view(own, belay_shape2(2, 1));
    return belay_gather(v, 1, *indices, NULL);
}
static belay_tensor follow_index_add(belay_tensor v, belay_tensor own, belay_tensor *indices)
{
    *indices = own;
    return belay_index_add(v, 0, own, v, 2, NULL);
}

/* Under a policy that moves bad indices, those that only the walk back meets are counted and told once a site; those that
 * the forward has counted are not counted again. */
static void policies_count_indices_that_were_spoilt_behind_the_forward(void **state)
{
    (void)state;
    static const struct {
        followed call;
        const char *op, *at, *bound, *tensors, *values;
    } all[] = {
        {follow_max, "max_grad", "at[0]", "[0, 3)", "g_y [2] f32; at [2] i64", "90, -7"},
        {follow_sort, "sort_grad", "at[0, 0]", "[0, 3)", "g_y [2, 3] f32; at [2, 3] i64", "90, -7, 91, -8"},
        {follow_topk, "sort_grad", "at[0, 0]", "[0, 3)", "g_y [2, 2] f32; at [2, 2] i64", "90, -7, 91, -8"},
        {follow_max_pool, "max_pool_grad", "at[0, 0, 0]", "[0, 3)", "g_y [2, 1, 1] f32; at [2, 1, 1] i64", "90, -7"},
        {follow_embedding, "embedding_grad", "ids[0]", "[0, 2)", "g_y [2, 3] f32; ids [2] i64", "90, -7"},
        {follow_gather, "gather_grad", "index[0, 0, 0]", "[0, 3)", "g_y [2, 1, 1] f32; index [2, 1, 1] i64", "90, -7"},
        {follow_index_add, "index_select", "ids[0]", "[0, 2) of x", "x [1, 2, 3] f32; ids [2] i64", "90, -7"}};
    const double v[] = {1, 3, 2, 6, 5, 4};
    const int64_t good[] = {1, 0}, spoilt[] = {90, -7, 91, -8, 92, -9};
    for (int i = 0; i < BL_COUNT(all); i++)
        for (int policy = BELAY_INDEX_CLAMP; policy <= BELAY_INDEX_ZERO; policy++) {
            told[0] = '\0';
            belay_context *context = belay_open(&(belay_options){.device = "cpu",
                                                                 .log = remember,
                                                                 .no_journal = true,
                                                                 .threads = 1,
                                                                 .index_policy = (belay_index_policy)policy});
            belay_tensor x2 = tensor_of(context, BELAY_F32, belay_shape2(2, 3), v), at;
            belay_tensor own = belay_tensor_from(context, BELAY_I64, belay_shape1(2), good, sizeof good);
            belay_tensor_requires_grad_set(x2, true);
            for (int again = 0; again < 2; again++) {
                belay_tensor y = all[i].call(x2, own, &at);
                const int64_t n = belay_tensor_n_elements(at);
                if (again == 0) {
                    assert_int_equal(context->n_corrected, 0);
                    assert_string_equal(told, "");
                }
                assert_int_equal(spoil(at, spoilt, n * 8), BELAY_OK);
                belay_backward(belay_sum(y, NULL));
                assert_int_equal(context->n_corrected, (again + 1) * n);
                assert_int_equal(belay_tensor_write(own, good, sizeof good), BELAY_OK);
            }
            char text[1024], *called = strstr(told, "test_index.c:");
            assert_non_null(called);
            int64_t n = belay_tensor_n_elements(at);
            bool clamps = policy == BELAY_INDEX_CLAMP;
            snprintf(text, sizeof text,
                     "belay: %s is 90, outside %s (index.%s)\n"
                     "    op: %s (backward), called at test_index.c:%d\n"
                     "    tensors: %s; on cpu\n"
                     "    bad: %d of %d elements; values %s\n%s"
                     "    likely: well past the bound: ids of another vocabulary or table, or two inputs swapped\n"
                     "    try: The run goes on with%s rows; use policy raise to find the samples.\n",
                     all[i].at, all[i].bound, clamps ? "clamped" : "zeroed", all[i].op, atoi(called + 13),
                     all[i].tensors, (int)n, (int)n, all[i].values, when, clamps ? " wrong" : "out those");
            assert_words_equal(told, text);
            assert_int_equal(belay_close(context), 0);
        }
}

static void float_ids_are_refused_or_checked(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    char text[1024];
    const double at[] = {2, 0, 1.5, NAN, 1, -INFINITY};
    belay_tensor w = belay_zeros(context, BELAY_F32, belay_shape2(3, 2));
    belay_tensor i = belay_tensor_name_set(tensor_of(context, BELAY_F32, belay_shape2(2, 3), at), "tokens");
    belay_embedding(w, i, NULL);
    int line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: ids is f32 where an integer dtype is needed (type.dtype)\n"
             "    op: embedding, called at test_index.c:%d\n"
             "    tensors: weight [3, 2] f32; tokens [2, 3] f32; on cpu\n%s"
             "    try: %s\n",
             line, when, belay_code_advice(BELAY_TYPE_DTYPE));
    assert_words_equal(told, text);
    told[0] = '\0';
    const belay_embedding_options options = {.cast_ids = true, .policy = BELAY_INDEX_CLAMP};
    belay_embedding(w, i, &options);
    line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: tokens[0, 2] is 1.5, not a whole number of 64 bits (num.cast)\n"
             "    op: cast_ids, called at test_index.c:%d\n"
             "    tensors: tokens [2, 3] f32; on cpu\n"
             "    bad: 3 of 6 elements\n%s"
             "    try: %s\n",
             line, when, belay_code_advice(BELAY_NUM_CAST));
    assert_words_equal(told, text);
    told[0] = '\0';
    const double whole[] = {2, 0, 1, 1, 2, 7}, far[] = {1e19, -9.3e18, 9.3e18, 0, 0, 0};
    belay_embedding(w, belay_tensor_name_set(tensor_of(context, BELAY_F64, belay_shape1(6), whole), "tokens"),
                    &(belay_embedding_options){.cast_ids = true});
    assert_non_null(strstr(told, "belay: tokens[5] is 7, outside [0, 3) of weight (index.range)\n"));
    told[0] = '\0';
    belay_embedding(w, tensor_of(context, BELAY_F64, belay_shape1(6), far), &options);
    assert_non_null(strstr(told, "ids[0] is 1e+19, not a whole number of 64 bits (num.cast)\n"));
    assert_non_null(strstr(told, "    bad: 3 of 6 elements\n"));
    belay_close(context);
}

static void refuse(belay_tensor result, const char *headline)
{
    assert_true(belay_tensor_is_nil(result));
    if (strstr(told, headline) != told)
        fail_msg("told:\n%s\nexpected:\n%s", told, headline);
    told[0] = '\0';
}

static void selections_refuse_what_does_not_fit(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor v = belay_zeros(context, BELAY_F32, belay_shape2(3, 4)),
                 i = belay_zeros(context, BELAY_I64, belay_shape1(2));
    belay_tensor wide = belay_zeros(context, BELAY_I64, belay_shape2(2, 5)), none = {0};
    refuse(belay_index_select(v, 2, i, NULL), "belay: axis 2 of a tensor with 2 axes (shape.axis)\n");
    refuse(belay_index_select(v, 0, wide, NULL), "belay: ids has 2 axes where 1 are needed (shape.rank)\n");
    refuse(belay_gather(v, 0, i, NULL), "belay: index [2] reaches past x [3, 4] (shape.contract)\n");
    refuse(belay_gather(v, 0, wide, NULL), "belay: index [2, 5] reaches past x [3, 4] (shape.contract)\n");
    refuse(belay_gather(v, 1, belay_cast(wide, BELAY_BOOL), NULL),
           "belay: index is bool where an integer dtype is needed (type.dtype)\n");
    refuse(belay_scatter_add(v, 1, wide, v, NULL), "belay: index [2, 5] reaches past src [3, 4] (shape.contract)\n");
    refuse(belay_scatter_add(v, 1, belay_slice(wide, 1, 0, 2, 1), belay_cast(v, BELAY_F64), NULL),
           "belay: the result does not fit the tensor that it should be written to (shape.contract)\n");
    refuse(belay_index_add(v, 0, i, v, 1, NULL),
           "belay: src [3, 4] added to x [3, 4] by 2 ids along axis 0: the sizes differ (shape.contract)\n");
    refuse(belay_index(v, &i, 0, NULL),
           "belay: 0 indices into a tensor with 2 axes: from 1 to 2 are taken (shape.rank)\n");
    const belay_tensor two[] = {i, belay_zeros(context, BELAY_I64, belay_shape1(3))};
    refuse(belay_index(v, two, 2, NULL),
           "belay: index 1 does not broadcast with those before it: 3 against 2 (shape.contract)\n");
    refuse(belay_embedding(v, i, &(belay_embedding_options){.has_padding = true, .padding = 3}),
           "belay: padding is 3, outside [0, 3) (conf.value)\n");
    assert_true(belay_tensor_is_nil(belay_gather(none, 0, i, NULL)));
    assert_true(belay_tensor_is_nil(belay_gather(v, 0, none, NULL)));
    assert_true(belay_tensor_is_nil(belay_index(v, &none, 1, NULL)));
    assert_true(belay_tensor_is_nil(belay_scatter_add(v, 0, i, none, NULL)));
    assert_true(belay_tensor_is_nil(belay_index_add(v, 0, none, v, 1, NULL)));
    assert_string_equal(told, "");
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selections_are_plain_loops_along_every_axis),
        cmocka_unit_test(additions_by_index_are_plain_loops_in_order),
        cmocka_unit_test(index_smaller_than_its_tensors_reaches_their_first_corner),
        cmocka_unit_test(integers_scatter_and_wrap),
        cmocka_unit_test(integers_are_added_alpha_times_and_wrap),
        cmocka_unit_test(index_selects_by_tuples_broadcast_together),
        cmocka_unit_test(gradients_of_selections_are_their_slopes),
        cmocka_unit_test(padding_row_is_read_but_takes_no_gradient),
        cmocka_unit_test(policies_say_what_a_bad_index_reads_and_where_its_gradient_goes),
        cmocka_unit_test(bad_indices_are_named_with_tensor_value_and_bound),
        cmocka_unit_test(bad_ids_in_some_blocks_are_zeros_and_all_else_is_copied),
        cmocka_unit_test(policy_that_is_none_is_refused),
        cmocka_unit_test(indices_of_max_are_tested_again_on_the_way_back),
        cmocka_unit_test(policies_count_indices_that_were_spoilt_behind_the_forward),
        cmocka_unit_test(float_ids_are_refused_or_checked),
        cmocka_unit_test(selections_refuse_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
