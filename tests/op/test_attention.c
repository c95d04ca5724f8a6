/* SPDX-License-Identifier: Apache-2.0 */
/* Attention against plain loops over all scores, its gradients against finite differences and against the same
 * arithmetic by primitives, across the borders of its blocks; its bits, its memory, and what it refuses. */
#include "op/numbers.h"

#include <belay/amp.h>

#include "device/cpu/attention.h"
#include "tensor/place.h"

typedef struct sizes {
    int64_t heads, rows, keys, width, out;
    bool causal;
} sizes;

enum { MOST = 70000 };

static const double given_scale = 0.625;
static double chance;     /* to drop a probability */
enum { DRAWN_FIRST = 5 }; /* ordinal of what draws: the same in every call that is compared */

/* One row: y = softmax(scale q k^T) v over the keys that it sees. */
static void plain_row(const sizes *s, const double *q, const double *k, const double *v, int64_t row, double *y)
{
    int64_t n = s->causal && row + 1 < s->keys ? row + 1 : s->keys;
    double top = -INFINITY, sum = 0;
    double *weight = malloc((size_t)(n + 1) * sizeof *weight);
    for (int64_t j = 0; j < n; j++) {
        weight[j] = 0;
        for (int64_t c = 0; c < s->width; c++)
            weight[j] += given_scale * q[row * s->width + c] * k[j * s->width + c];
        top = fmax(top, weight[j]);
    }
    for (int64_t c = 0; c < s->out; c++)
        y[c] = 0;
    for (int64_t j = 0; j < n; j++)
        sum += exp(weight[j] - top);
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < s->out; c++)
            y[c] += exp(weight[j] - top) / sum * v[j * s->out + c];
    free(weight);
}

static void plain(const sizes *s, const double *q, const double *k, const double *v, double *y)
{
    for (int64_t h = 0; h < s->heads; h++)
        for (int64_t i = 0; i < s->rows; i++)
            plain_row(s, q + h * s->rows * s->width, k + h * s->keys * s->width, v + h * s->keys * s->out, i,
                      y + (h * s->rows + i) * s->out);
}

/* Numbers that every float dtype holds. */
static void draw_eighths(double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = nearbyint(draw(-2, 2) * 8) / 8;
}

static belay_tensor attend(const sizes *s, belay_tensor q, belay_tensor k, belay_tensor v)
{
    const belay_attention_options options = {.causal = s->causal, .scale = given_scale, .dropout = chance};
    bl_tensor_context(q)->ordinal = DRAWN_FIRST;
    bl_tensor_context(q)->position = 0; /* a walk back moves it on */
    return belay_attention(q, k, v, &options);
}

/* Inside of one block, over its borders, and without rows, keys, widths or heads. */
static const sizes all_sizes[] = {
    {2, 3, 5, 4, 3, false},      {2, 5, 5, 4, 4, true},   {1, 64, 256, 8, 8, false}, {3, 65, 257, 8, 5, false},
    {1, 130, 300, 16, 16, true}, {2, 70, 20, 8, 8, true}, {1, 300, 300, 8, 8, true}, {1, 1, 600, 4, 4, false},
    {2, 4, 0, 3, 2, false},      {2, 0, 4, 3, 2, true},   {0, 4, 4, 3, 2, false},    {2, 3, 4, 0, 2, false},
    {2, 3, 4, 3, 0, true},       {1, 5, 3, 2, 2, true},
};

static double q_of[MOST], k_of[MOST], v_of[MOST], y_of[MOST];

static void attention_is_what_plain_loops_give_in_every_dtype(void **state)
{
    (void)state;
    static double got[MOST];
    const double near[] = {[BELAY_F32] = 4e-6, [BELAY_F64] = 1e-12, [BELAY_BF16] = 0x1p-8, [BELAY_F16] = 0x1p-10};
    for (size_t i = 0; i < sizeof all_sizes / sizeof all_sizes[0]; i++)
        for (belay_dtype dtype = BELAY_F32; dtype <= BELAY_F16; dtype++) {
            const sizes *s = &all_sizes[i];
            belay_context *context = open_with(2);
            draw_eighths(q_of, s->heads * s->rows * s->width);
            draw_eighths(k_of, s->heads * s->keys * s->width);
            draw_eighths(v_of, s->heads * s->keys * s->out);
            plain(s, q_of, k_of, v_of, y_of);
            belay_tensor y = attend(s, tensor_of(context, dtype, belay_shape3(s->heads, s->rows, s->width), q_of),
                                    tensor_of(context, dtype, belay_shape3(s->heads, s->keys, s->width), k_of),
                                    tensor_of(context, dtype, belay_shape3(s->heads, s->keys, s->out), v_of));
            assert_shape(y, belay_shape3(s->heads, s->rows, s->out));
            int64_t n = read_numbers(y, got, MOST);
            for (int64_t e = 0; e < n; e++)
                if (!is_near(got[e], y_of[e], near[dtype], 2 * near[dtype]))
                    fail_msg("sizes %d, %s: element %lld is %.17g, loops give %.17g", (int)i, belay_dtype_name(dtype),
                             (long long)e, got[e], y_of[e]);
            close_clean(context);
        }
}

/* Scores that overflow an exponential, and rows that see -Inf. */
static void large_scores_do_not_overflow_and_rows_of_nothing_are_not_numbers(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double q[] = {300, -300}, k[] = {300, 200, -300}, v[] = {1, 2, 4}, want[] = {1, 4};
    belay_tensor y = belay_attention(tensor_of(context, BELAY_F32, belay_shape2(2, 1), q),
                                     tensor_of(context, BELAY_F32, belay_shape2(3, 1), k),
                                     tensor_of(context, BELAY_F32, belay_shape2(3, 1), v), NULL);
    assert_numbers("large", y, want, 0, 0);
    const double one[] = {1}, none[] = {-INFINITY, -INFINITY, -INFINITY}, nan[] = {NAN};
    y = belay_attention(tensor_of(context, BELAY_F32, belay_shape2(1, 1), one),
                        tensor_of(context, BELAY_F32, belay_shape2(3, 1), none),
                        tensor_of(context, BELAY_F32, belay_shape2(3, 1), v), NULL);
    assert_numbers("nothing but -Inf", y, nan, 0, 0);
    close_clean(context);
}

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

static belay_tensor run(belay_context *context, const belay_tensor *in, void *state)
{
    (void)context;
    return attend(state, in[0], in[1], in[2]);
}

static void gradients_are_the_slopes_over_the_borders_of_blocks(void **state)
{
    (void)state;
    sizes some[] = {{2, 3, 5, 3, 2, false}, {2, 4, 4, 2, 3, true}, {1, 66, 3, 2, 2, true}, {1, 2, 258, 2, 1, false}};
    for (size_t i = 0; i < 2 * (sizeof some / sizeof some[0]); i++) {
        sizes *s = &some[i / 2];
        chance = i % 2 == 0 ? 0 : 0.4;
        belay_context *context = open_with(1);
        const belay_shape shapes[] = {belay_shape3(s->heads, s->rows, s->width),
                                      belay_shape3(s->heads, s->keys, s->width),
                                      belay_shape3(s->heads, s->keys, s->out)};
        double *values[] = {q_of, k_of, v_of};
        for (int k = 0; k < 3; k++)
            draw_many(values[k], count_of(shapes[k]), -1, 1);
        assert_gradients("attention", context, run, s, 3, shapes, values);
        close_clean(context);
    }
    chance = 0;
}

/* By primitives, with all scores in memory. */
static belay_tensor by_primitives(belay_context *context, const sizes *s, belay_tensor q, belay_tensor k,
                                  belay_tensor v)
{
    belay_tensor scores = belay_affine(belay_matmul(q, belay_transpose(k, 1, 2)), given_scale, 0);
    double *mask = malloc((size_t)(s->rows * s->keys) * sizeof *mask);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->keys; j++)
            mask[i * s->keys + j] = s->causal && j > i ? -INFINITY : 0;
    scores = belay_add(scores, tensor_of(context, BELAY_F64, belay_shape2(s->rows, s->keys), mask));
    free(mask);
    context->ordinal = DRAWN_FIRST;
    return belay_matmul(belay_dropout(belay_softmax(scores, -1), chance, true), v);
}

/* With dropout of the probabilities, too: what is dropped is the same as of a matrix of them. */
static void values_and_gradients_are_those_of_the_primitives(void **state)
{
    (void)state;
    static double got[MOST], want[MOST];
    const sizes some[] = {
        {9, 70, 300, 8, 5, false}, {1, 200, 300, 8, 8, true}, {2, 300, 300, 8, 8, true}, {3, 5, 7, 3, 2, false}};
    enum { N = sizeof some / sizeof some[0] };
    for (size_t i = 0; i < 2 * N; i++) {
        const sizes *s = &some[i % N];
        chance = i < N ? 0 : 0.3;
        belay_context *context = open_with(2);
        const belay_shape shapes[] = {belay_shape3(s->heads, s->rows, s->width),
                                      belay_shape3(s->heads, s->keys, s->width),
                                      belay_shape3(s->heads, s->keys, s->out)};
        belay_tensor in[2][3];
        for (int k = 0; k < 3; k++) {
            draw_many(q_of, count_of(shapes[k]), -1, 1);
            for (int way = 0; way < 2; way++)
                in[way][k] = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F64, shapes[k], q_of), true);
        }
        belay_tensor y[2] = {attend(s, in[0][0], in[0][1], in[0][2]),
                             by_primitives(context, s, in[1][0], in[1][1], in[1][2])};
        for (int way = 0; way < 2; way++)
            belay_backward(belay_sum(belay_mul(y[way], y[way]), NULL));
        for (int k = -1; k < 3; k++) {
            int64_t n = read_numbers(k < 0 ? y[0] : belay_tensor_grad(in[0][k]), got, MOST);
            assert_int_equal(read_numbers(k < 0 ? y[1] : belay_tensor_grad(in[1][k]), want, MOST), n);
            for (int64_t e = 0; e < n; e++)
                if (!is_near(got[e], want[e], 1e-9, 1e-11))
                    fail_msg("sizes %d, input %d: %lld is %.17g, primitives give %.17g", (int)i, k, (long long)e,
                             got[e], want[e]);
        }
        close_clean(context);
    }
    chance = 0;
}

/* ---- bits and memory ------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(belay_tensor tensor, uint64_t hash)
{
    static unsigned char bytes[MOST * 8];
    int64_t n_bytes = belay_tensor_n_elements(tensor) * belay_dtype_size(belay_tensor_dtype(tensor));
    assert_true(n_bytes <= (int64_t)sizeof bytes);
    assert_int_equal(belay_tensor_read(tensor, bytes, n_bytes), BELAY_OK);
    for (int64_t i = 0; i < n_bytes; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static uint64_t walk_back(const sizes *s, int threads, const char *place)
{
    if (place != NULL)
        setenv("BELAY_TEST_PLACE", place, 1);
    else
        unsetenv("BELAY_TEST_PLACE");
    belay_context *context = open_with(threads);
    belay_tensor in[3];
    drawn = 3;
    for (int k = 0; k < 3; k++) {
        belay_shape shape = belay_shape3(s->heads, k == 0 ? s->rows : s->keys, k == 2 ? s->out : s->width);
        draw_many(q_of, count_of(shape), -1, 1);
        in[k] = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, shape, q_of), true);
    }
    belay_tensor y = attend(s, in[0], in[1], in[2]);
    belay_backward(belay_sum(belay_mul(y, y), NULL));
    uint64_t hash = hash_of(y, 14695981039346656037u);
    for (int k = 0; k < 3; k++)
        hash = hash_of(belay_tensor_grad(in[k]), hash);
    close_clean(context);
    return hash;
}

/* One thread and many heads: by heads.  Few heads on several threads: rows and keys apart. */
static void bits_depend_neither_on_threads_nor_on_who_owns_what(void **state)
{
    (void)state;
    const char *place = getenv("BELAY_TEST_PLACE");
    const sizes some[] = {{1, 700, 700, 16, 16, true}, {2, 300, 560, 24, 8, false}, {20, 90, 90, 16, 16, true}};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        chance = i == 1 ? 0.2 : 0;
        uint64_t first = walk_back(&some[i], 1, NULL);
        for (int threads = 2; threads <= 6; threads++)
            assert_true(walk_back(&some[i], threads, NULL) == first);
        assert_true(walk_back(&some[i], 1, "sim:1") == first);
    }
    chance = 0;
    if (place != NULL)
        setenv("BELAY_TEST_PLACE", place, 1);
}

/* Most bytes of a device: tensors, and what its kernels take for themselves. */
static int64_t most_bytes(belay_context *context)
{
    const bl_cpu *cpu = (const bl_cpu *)context->places[0].device;
    int64_t in_use, held, tensors, scratch;
    bl_pool_memory(cpu->pool, &in_use, &held, &tensors);
    bl_pool_memory(cpu->scratch, &in_use, &held, &scratch);
    return tensors + scratch;
}

static void no_matrix_of_all_scores_is_ever_in_memory(void **state)
{
    (void)state;
    enum { TIME = 2048, WIDTH = 16 };
    static float values[TIME * WIDTH];
    const char *place = getenv("BELAY_TEST_PLACE");
    if (place != NULL)
        return; /* it asks the pools of the cpu */
    for (int causal = 0; causal < 2; causal++) {
        belay_context *context = open_with(2);
        belay_tensor in[3];
        for (int k = 0; k < 3; k++)
            in[k] = belay_tensor_requires_grad_set(
                belay_tensor_from(context, BELAY_F32, belay_shape3(1, TIME, WIDTH), values, sizeof values), true);
        belay_tensor y =
            belay_attention(in[0], in[1], in[2], &(belay_attention_options){.causal = causal != 0, .dropout = 0.1});
        belay_backward(belay_sum(y, NULL));
        assert_false(belay_tensor_is_nil(belay_tensor_grad(in[2])));
        assert_true(most_bytes(context) < (int64_t)TIME * TIME); /* not even at a byte a score */
        close_clean(context);
    }
}

static void under_autocast_it_is_the_attention_of_16_bit_operands(void **state)
{
    (void)state;
    static double want[MOST];
    const sizes s = {2, 9, 9, 4, 4, true};
    belay_context *context = open_with(1);
    belay_tensor in[3], cast[3];
    for (int k = 0; k < 3; k++) {
        draw_many(q_of, 2 * 9 * 4, -1, 1);
        in[k] = tensor_of(context, BELAY_F32, belay_shape3(2, 9, 4), q_of);
        cast[k] = belay_cast(in[k], BELAY_BF16);
    }
    int64_t n = read_numbers(attend(&s, cast[0], cast[1], cast[2]), want, MOST);
    assert_int_equal(n, 2 * 9 * 4);
    belay_autocast region = belay_autocast_open(context, BELAY_BF16);
    belay_tensor y = attend(&s, in[0], cast[1], in[2]);
    belay_autocast_close(region);
    assert_int_equal(belay_tensor_dtype(y), BELAY_BF16);
    assert_numbers("autocast", y, want, 0, 0);
    close_clean(context);
}

/* ---- refused --------------------------------------------------------------------------------------------------------- */

#define REFUSED(call, headline, tensors, code)                                                                         \
    do {                                                                                                               \
        char text_[2048];                                                                                              \
        told[0] = '\0';                                                                                                \
        assert_true(belay_tensor_is_nil(call));                                                                        \
        snprintf(text_, sizeof text_,                                                                                  \
                 "belay: %s (%s)\n    op: attention, called at test_attention.c:%d\n    tensors: %s; on cpu\n"         \
                 "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n    try: %s\n",            \
                 headline, belay_code_name(code), __LINE__, tensors, belay_code_advice(code));                         \
        assert_words_equal(told, text_);                                                                               \
    } while (0)

static void what_does_not_fit_together_is_named(void **state)
{
    (void)state;
    if (getenv("BELAY_TEST_PLACE") != NULL)
        return;
    belay_context *context = open_with(1);
    belay_tensor a = belay_zeros(context, BELAY_F32, belay_shape3(2, 3, 4)), nil = {0};
    belay_tensor b = belay_zeros(context, BELAY_F32, belay_shape3(2, 5, 3)), two[2];
    two[0] = belay_zeros(context, BELAY_F32, belay_shape2(3, 4));
    two[1] = belay_zeros(context, BELAY_F64, belay_shape3(2, 3, 4));
    belay_attention_options broken = {.scale = NAN};
    REFUSED(belay_attention(a, b, b, NULL), "k is [2, 5, 3] where [2, 5, 4] is needed",
            "q [2, 3, 4] f32; k [2, 5, 3] f32; v [2, 5, 3] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_attention(a, a, b, NULL), "v is [2, 5, 3] where [2, 3, 3] is needed",
            "q [2, 3, 4] f32; k [2, 3, 4] f32; v [2, 5, 3] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_attention(a, two[0], a, NULL),
            "attention takes q, k and v of [..., time, width], not of 3, 2 and 3 axes",
            "q [2, 3, 4] f32; k [3, 4] f32; v [2, 3, 4] f32", BELAY_SHAPE_RANK);
    REFUSED(belay_attention(a, a, two[1], NULL), "v is f64 where f32 is needed",
            "q [2, 3, 4] f32; k [2, 3, 4] f32; v [2, 3, 4] f64", BELAY_TYPE_DTYPE);
    REFUSED(belay_attention(a, a, a, &broken), "scale of attention is nan, outside [-3.40282e+38, 3.40282e+38]",
            "q [2, 3, 4] f32; k [2, 3, 4] f32; v [2, 3, 4] f32", BELAY_CONF_VALUE);
    broken.scale = 1e39; /* no number in f32 */
    REFUSED(belay_attention(a, a, a, &broken), "scale of attention is 1e+39, outside [-3.40282e+38, 3.40282e+38]",
            "q [2, 3, 4] f32; k [2, 3, 4] f32; v [2, 3, 4] f32", BELAY_CONF_VALUE);
    broken = (belay_attention_options){.dropout = 1};
    REFUSED(belay_attention(a, a, a, &broken), "dropout of attention is 1, outside [0, 1)",
            "q [2, 3, 4] f32; k [2, 3, 4] f32; v [2, 3, 4] f32", BELAY_CONF_VALUE);
    broken.dropout = NAN;
    REFUSED(belay_attention(a, a, a, &broken), "dropout of attention is nan, outside [0, 1)",
            "q [2, 3, 4] f32; k [2, 3, 4] f32; v [2, 3, 4] f32", BELAY_CONF_VALUE);
    told[0] = '\0';
    assert_true(belay_tensor_is_nil(belay_attention(nil, a, a, NULL)));
    assert_true(belay_tensor_is_nil(belay_attention(a, nil, a, NULL)));
    assert_true(belay_tensor_is_nil(belay_attention(a, a, nil, NULL)));
    assert_words_equal(told, "");
    belay_faults_clear(context);
    close_clean(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_what_plain_loops_give_in_every_dtype),
        cmocka_unit_test(large_scores_do_not_overflow_and_rows_of_nothing_are_not_numbers),
        cmocka_unit_test(gradients_are_the_slopes_over_the_borders_of_blocks),
        cmocka_unit_test(values_and_gradients_are_those_of_the_primitives),
        cmocka_unit_test(bits_depend_neither_on_threads_nor_on_who_owns_what),
        cmocka_unit_test(no_matrix_of_all_scores_is_ever_in_memory),
        cmocka_unit_test(under_autocast_it_is_the_attention_of_16_bit_operands),
        cmocka_unit_test(what_does_not_fit_together_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
