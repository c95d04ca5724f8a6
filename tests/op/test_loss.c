/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and the losses: against their definitions in double, under every option, and their faults. */
#include "op/numbers.h"
#include "support/spoil.h"

static void softmax_reference(const double *x, double *y, int64_t n, int64_t step, bool logarithm)
{
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        top = fmax(top, x[j * step]);
    for (int64_t j = 0; j < n; j++)
        sum += exp(x[j * step] - top);
    for (int64_t j = 0; j < n; j++)
        y[j * step] = logarithm ? x[j * step] - top - log(sum) : exp(x[j * step] - top) / sum;
}

static void softmax_is_its_definition_along_every_axis(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double x[3 * 37 * 5], want[3 * 37 * 5];
    draw_many(x, 3 * 37 * 5, -200, 200);
    const belay_shape shape = belay_shape3(3, 37, 5);
    for (int axis = -3; axis < 3; axis++)
        for (int logarithm = 0; logarithm < 2; logarithm++) {
            int a = axis < 0 ? axis + 3 : axis;
            int64_t n = shape.size[a], step = a == 0 ? 185 : a == 1 ? 5 : 1;
            for (int64_t i = 0; i < 3 * 37 * 5; i++)
                if (i / step % n == 0)
                    softmax_reference(x + i, want + i, n, step, logarithm);
            const belay_dtype dtypes[] = {BELAY_F64, BELAY_F32};
            for (int d = 0; d < 2; d++) {
                belay_tensor in = tensor_of(context, dtypes[d], shape, x);
                belay_tensor y = logarithm ? belay_log_softmax(in, axis) : belay_softmax(in, axis);
                assert_shape(y, shape);
                assert_numbers("softmax", y, want, d == 0 ? 1e-13 : 2e-5, d == 0 ? 1e-15 : 1e-6);
            }
        }
    close_clean(context);
}

static void softmax_keeps_nan_and_takes_infinities(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double x[] = {1, NAN, 2, -INFINITY, 3, 3, -INFINITY, -INFINITY, -INFINITY};
    const double want[] = {NAN, NAN, NAN, 0, 0.5, 0.5, NAN, NAN, NAN};
    assert_numbers("softmax", belay_softmax(tensor_of(context, BELAY_F32, belay_shape2(3, 3), x), 1), want, 0, 0);
    close_clean(context);
}

static belay_tensor softmax_0(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c, (void)s;
    return belay_softmax(in[0], 0);
}
static belay_tensor log_softmax_1(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c, (void)s;
    return belay_log_softmax(in[0], 1);
}

static void softmax_has_the_slopes_of_its_values(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double x[35], *values[] = {x};
    draw_many(x, 35, -3, 3);
    const belay_shape shape = belay_shape2(5, 7);
    assert_gradients("softmax", context, softmax_0, NULL, 1, &shape, values);
    assert_gradients("log_softmax", context, log_softmax_1, NULL, 1, &shape, values);
    close_clean(context);
}

/* ---- cross-entropy --------------------------------------------------------------------------------------------------- */

typedef struct loss_case {
    belay_cross_entropy_options options;
    const int64_t *labels;
    int64_t n, classes, inner; /* logits [n, classes, inner] */
    const double *weight;
} loss_case;

/* PyTorch's cross_entropy in double: losses of the rows, then what the reduction makes of them. */
static void loss_reference(const loss_case *c, const double *x, double *rows, double *reduced)
{
    double sum = 0, counted = 0, p[64];
    const double s = c->options.label_smoothing;
    for (int64_t r = 0; r < c->n * c->inner; r++) {
        const double *row = x + r / c->inner * c->classes * c->inner + r % c->inner;
        double logits[64];
        for (int64_t j = 0; j < c->classes; j++)
            logits[j] = row[j * c->inner];
        softmax_reference(logits, p, c->classes, 1, true);
        rows[r] = 0;
        if (c->options.has_ignore && c->labels[r] == c->options.ignore)
            continue;
        for (int64_t j = 0; j < c->classes; j++) {
            double w = c->weight != NULL ? c->weight[j] : 1;
            rows[r] -= ((j == c->labels[r] ? 1 - s : 0) + s / (double)c->classes) * w * p[j];
        }
        counted += c->weight != NULL ? c->weight[c->labels[r]] : 1;
        sum += rows[r];
    }
    *reduced = c->options.reduction == BELAY_MEAN ? sum / counted : sum;
}

static belay_tensor loss_of(belay_context *context, belay_tensor logits, const loss_case *c)
{
    belay_shape shape = c->inner > 1 ? belay_shape2(c->n, c->inner) : belay_shape1(c->n);
    belay_cross_entropy_options options = c->options;
    belay_tensor labels =
        belay_tensor_from(context, BELAY_I64, shape, c->labels, c->n * c->inner * (int64_t)sizeof *c->labels);
    if (c->weight != NULL)
        options.weight = tensor_of(context, belay_tensor_dtype(logits), belay_shape1(c->classes), c->weight);
    return belay_cross_entropy(logits, labels, &options);
}

static belay_tensor loss_expression(belay_context *context, const belay_tensor *in, void *state)
{
    return loss_of(context, in[0], state);
}

static void cross_entropy_is_its_definition_under_every_option(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    enum { N = 7, CLASSES = 37, INNER = 3 };
    double x[N * CLASSES * INNER], weight[CLASSES], rows[N * INNER], reduced, *values[] = {x};
    int64_t labels[N * INNER];
    draw_many(x, N * CLASSES * INNER, -5, 5);
    draw_many(weight, CLASSES, 0.2, 2);
    for (int option = 0; option < 48; option++) {
        loss_case c = {.labels = labels, .n = N, .classes = CLASSES, .inner = option & 8 ? INNER : 1};
        c.options.has_ignore = option & 1;
        c.options.ignore = -100;
        c.weight = option & 2 ? weight : NULL;
        c.options.label_smoothing = option & 4 ? 0.1 : 0;
        c.options.reduction = (belay_reduction)(option / 16);
        for (int64_t r = 0; r < c.n * c.inner; r++)
            labels[r] = c.options.has_ignore && r % 3 == 1 ? -100 : (r * 11) % CLASSES;
        loss_reference(&c, x, rows, &reduced);
        belay_shape shape = c.inner > 1 ? belay_shape3(N, CLASSES, INNER) : belay_shape2(N, CLASSES);
        belay_tensor y = loss_of(context, tensor_of(context, BELAY_F64, shape, x), &c);
        const double *want = c.options.reduction == BELAY_NONE ? rows : &reduced;
        assert_numbers("cross_entropy f64", y, want, 1e-12, 1e-14);
        y = loss_of(context, tensor_of(context, BELAY_F32, shape, x), &c);
        assert_numbers("cross_entropy f32", y, want, 1e-5, 1e-6);
        assert_int_equal(belay_tensor_shape(y).rank, c.options.reduction == BELAY_NONE ? 1 + (c.inner > 1) : 0);
        assert_gradients("cross_entropy", context, loss_expression, &c, 1, &shape, values);
    }
    close_clean(context);
}

static void cross_entropy_takes_one_row_without_a_batch(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double x[] = {0, 0, 0, 0};
    const uint8_t label = 3;
    belay_tensor labels = belay_tensor_from(context, BELAY_U8, belay_shape0(), &label, 1);
    belay_tensor y = belay_cross_entropy(tensor_of(context, BELAY_F32, belay_shape1(4), x), labels, NULL);
    assert_true(fabs(belay_tensor_item(y) - log(4)) < 1e-6);
    close_clean(context);
}

static void mean_over_no_counted_row_is_nan(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const int64_t labels[] = {-1, -1};
    const double x[] = {1, 2, 3, 4};
    belay_tensor l = belay_tensor_from(context, BELAY_I64, belay_shape1(2), labels, sizeof labels);
    belay_tensor logits = tensor_of(context, BELAY_F32, belay_shape2(2, 2), x);
    belay_cross_entropy_options options = {.has_ignore = true, .ignore = -1};
    assert_true(isnan(belay_tensor_item(belay_cross_entropy(logits, l, &options))));
    belay_tensor none = belay_zeros(context, BELAY_F32, belay_shape2(0, 2));
    l = belay_zeros(context, BELAY_I64, belay_shape1(0));
    assert_true(isnan(belay_tensor_item(belay_cross_entropy(none, l, NULL))));
    options = (belay_cross_entropy_options){.reduction = BELAY_SUM};
    assert_true(belay_tensor_item(belay_cross_entropy(none, l, &options)) == 0);
    close_clean(context);
}

/* ---- negative log-likelihood ------------------------------------------------------------------------------------------ */

static belay_tensor nll_of(belay_context *context, const belay_tensor *in, void *state)
{
    const loss_case *c = state;
    belay_tensor labels = belay_tensor_from(context, BELAY_I64, belay_shape2(c->n, c->inner), c->labels,
                                            c->n * c->inner * (int64_t)sizeof *c->labels);
    belay_nll_loss_options o = {c->options.reduction, c->options.has_ignore, c->options.ignore, {0}};
    if (c->weight != NULL)
        o.weight = tensor_of(context, belay_tensor_dtype(in[0]), belay_shape1(c->classes), c->weight);
    return belay_nll_loss(in[0], labels, &o);
}

static void nll_of_log_softmax_is_cross_entropy(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    enum { N = 5, CLASSES = 7, INNER = 3 };
    double x[N * CLASSES * INNER], weight[CLASSES], rows[N * INNER], one, *values[] = {x};
    int64_t labels[N * INNER];
    const belay_shape shape = belay_shape3(N, CLASSES, INNER);
    draw_many(x, N * CLASSES * INNER, -5, 5);
    draw_many(weight, CLASSES, 0.2, 2);
    for (int option = 0; option < 12; option++) {
        loss_case c = {.labels = labels, .n = N, .classes = CLASSES, .inner = INNER};
        c.options.has_ignore = option & 1;
        c.options.ignore = -100;
        c.weight = option & 2 ? weight : NULL;
        c.options.reduction = (belay_reduction)(option / 4);
        for (int64_t r = 0; r < N * INNER; r++)
            labels[r] = c.options.has_ignore && r % 4 == 1 ? -100 : (r * 3) % CLASSES;
        loss_reference(&c, x, rows, &one);
        const double *want = c.options.reduction == BELAY_NONE ? rows : &one;
        belay_tensor log_p = belay_log_softmax(tensor_of(context, BELAY_F64, shape, x), 1);
        assert_numbers("nll_loss f64", nll_of(context, &log_p, &c), want, 1e-12, 1e-14);
        log_p = belay_log_softmax(tensor_of(context, BELAY_F32, shape, x), 1);
        assert_numbers("nll_loss f32", nll_of(context, &log_p, &c), want, 1e-5, 1e-6);
        assert_gradients("nll_loss", context, nll_of, &c, 1, &shape, values);
    }
    close_clean(context);
}

static void nll_names_a_bad_label_and_what_does_not_fit(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const int64_t labels[] = {0, 3};
    belay_tensor x = belay_tensor_name_set(belay_zeros(context, BELAY_F32, belay_shape2(2, 3)), "scores");
    belay_tensor l = belay_tensor_from(context, BELAY_I64, belay_shape1(2), labels, sizeof labels);
    const char *when = "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n";
    char text[1024];
    belay_nll_loss(x, belay_tensor_name_set(l, "labels"), NULL);
    snprintf(text, sizeof text,
             "belay: labels[1] is 3, outside [0, 3) (index.label)\n"
             "    op: nll_loss, called at test_loss.c:%d\n"
             "    tensors: scores [2, 3] f32; labels [2] i64; on cpu\n"
             "    bad: 1 of 2 elements; values 3\n%s"
             "    likely: the value equals the number of classes: labels counted from 1, or a class that the model was "
             "not given\n"
             "    try: Subtract 1 from labels that count from 1; else give the model one more output.\n",
             __LINE__ - 9, when);
    assert_words_equal(told, text);
    told[0] = '\0';
    belay_nll_loss(x, belay_zeros(context, BELAY_I64, belay_shape1(3)), NULL);
    snprintf(text, sizeof text,
             "belay: labels [3] for log_probabilities [2, 3]: [2] is needed (shape.contract)\n"
             "    op: nll_loss, called at test_loss.c:%d\n"
             "    tensors: scores [2, 3] f32; labels [3] i64; on cpu\n%s    try: %s\n",
             __LINE__ - 5, when, belay_code_advice(BELAY_SHAPE_CONTRACT));
    assert_words_equal(told, text);
    told[0] = '\0';
    belay_nll_loss((belay_tensor){0}, l, NULL);
    belay_nll_loss(x, (belay_tensor){0}, NULL);
    assert_string_equal(told, "");
    belay_close(context);
}

/* ---- binary cross-entropy --------------------------------------------------------------------------------------------- */

enum { BCE_N = 4, BCE_WIDTH = 5 };

typedef struct bce_case {
    belay_reduction reduction;
    const double *weight, *pos_weight; /* [BCE_N, BCE_WIDTH], [BCE_WIDTH] */
} bce_case;

static belay_tensor bce_of(belay_context *context, const belay_tensor *in, void *state)
{
    const bce_case *c = state;
    belay_bce_with_logits_options o = {.reduction = c->reduction};
    belay_dtype dtype = belay_tensor_dtype(in[0]);
    if (c->weight != NULL)
        o.weight = tensor_of(context, dtype, belay_shape2(BCE_N, BCE_WIDTH), c->weight);
    if (c->pos_weight != NULL)
        o.pos_weight = tensor_of(context, dtype, belay_shape1(BCE_WIDTH), c->pos_weight);
    return belay_bce_with_logits(in[0], in[1], &o);
}

static void bce_is_its_definition_under_every_option(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    enum { N = BCE_N * BCE_WIDTH };
    double x[N], t[N], weight[N], pos[BCE_WIDTH], want[N], *values[] = {x, t};
    draw_many(x, N, -4, 4);
    draw_many(t, N, 0, 1);
    draw_many(weight, N, 0.2, 2);
    draw_many(pos, BCE_WIDTH, 0.2, 3);
    const belay_shape shapes[] = {belay_shape2(BCE_N, BCE_WIDTH), belay_shape2(BCE_N, BCE_WIDTH)};
    for (int option = 0; option < 12; option++) {
        bce_case c = {(belay_reduction)(option / 4), option & 1 ? weight : NULL, option & 2 ? pos : NULL};
        double sum = 0;
        for (int i = 0; i < N; i++) {
            double p = 1 / (1 + exp(-x[i])), positive = c.pos_weight != NULL ? pos[i % BCE_WIDTH] : 1;
            want[i] = -(positive * t[i] * log(p) + (1 - t[i]) * log(1 - p)) * (c.weight != NULL ? weight[i] : 1);
            sum += want[i];
        }
        const double one = c.reduction == BELAY_MEAN ? sum / N : sum, *wanted = c.reduction == BELAY_NONE ? want : &one;
        const belay_dtype dtypes[] = {BELAY_F64, BELAY_F32};
        for (int d = 0; d < 2; d++) {
            const belay_tensor in[] = {tensor_of(context, dtypes[d], shapes[0], x),
                                       tensor_of(context, dtypes[d], shapes[1], t)};
            assert_numbers("bce_with_logits", bce_of(context, in, &c), wanted, d == 0 ? 1e-12 : 1e-5, 1e-6 * d);
        }
        assert_gradients("bce_with_logits", context, bce_of, &c, 2, shapes, values);
    }
    close_clean(context);
}

static void bce_takes_logits_of_any_size(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double x[] = {-1e4, 1e4, -1e4, 1e4, 90, -90}, t[] = {0, 1, 1, 0, 1, 1};
    const double want[] = {0, 0, 1e4, 1e4, 0, 90};
    for (int weighted = 0; weighted < 2; weighted++) {
        belay_tensor logits = tensor_of(context, BELAY_F32, belay_shape1(6), x);
        belay_tensor target = tensor_of(context, BELAY_F32, belay_shape1(6), t);
        belay_bce_with_logits_options o = {.reduction = BELAY_NONE};
        if (weighted)
            o.pos_weight = belay_ones(context, BELAY_F32, belay_shape0());
        belay_tensor_requires_grad_set(logits, true);
        belay_tensor y = belay_bce_with_logits(logits, target, &o);
        assert_numbers("bce_with_logits", y, want, 1e-6, 1e-30);
        belay_backward(belay_sum(y, NULL));
        const double slopes[] = {0, 0, -1, 1, 0, -1};
        assert_numbers("slope", belay_tensor_grad(logits), slopes, 1e-6, 1e-30);
    }
    close_clean(context);
}

static void bce_refuses_what_does_not_fit(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape2(2, 3));
    const struct {
        belay_tensor target;
        belay_bce_with_logits_options options;
        const char *what, *tensors;
        belay_code code;
    } bad[] = {
        {belay_zeros(context, BELAY_F32, belay_shape1(3)),
         {0},
         "target is [3] where [2, 3] is needed",
         "logits [2, 3] f32; target [3] f32",
         BELAY_SHAPE_CONTRACT},
        {belay_zeros(context, BELAY_I64, belay_shape2(2, 3)),
         {0},
         "target is i64 where f32 is needed",
         "logits [2, 3] f32; target [2, 3] i64",
         BELAY_TYPE_DTYPE},
        {x,
         {.weight = belay_zeros(context, BELAY_F32, belay_shape3(4, 2, 3))},
         "weight [4, 2, 3] does not broadcast to logits [2, 3]",
         "logits [2, 3] f32; target [2, 3] f32; weight [4, 2, 3] f32",
         BELAY_SHAPE_CONTRACT},
        {x,
         {.pos_weight = belay_zeros(context, BELAY_F32, belay_shape1(2))},
         "pos_weight [2] does not broadcast to logits [2, 3]",
         "logits [2, 3] f32; target [2, 3] f32; pos_weight [2] f32",
         BELAY_SHAPE_CONTRACT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[1024];
        told[0] = '\0';
        belay_bce_with_logits(x, bad[i].target, &bad[i].options);
        snprintf(text, sizeof text,
                 "belay: %s (%s)\n    op: bce_with_logits, called at test_loss.c:%d\n    tensors: %s; on cpu\n"
                 "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n    try: %s\n",
                 bad[i].what, belay_code_name(bad[i].code), __LINE__ - 4, bad[i].tensors,
                 belay_code_advice(bad[i].code));
        assert_words_equal(told, text);
    }
    told[0] = '\0';
    belay_bce_with_logits((belay_tensor){0}, x, NULL);
    belay_bce_with_logits(x, (belay_tensor){0}, NULL);
    assert_string_equal(told, "");
    belay_close(context);
}

/* A label out of range raises under every index policy; its row loses nothing and passes nothing back. */
static void bad_label_is_named_and_never_moved(void **state)
{
    (void)state;
    for (int policy = BELAY_INDEX_DEFAULT; policy <= BELAY_INDEX_ZERO; policy++) {
        told[0] = '\0';
        belay_context *context = belay_open(
            &(belay_options){.log = remember, .no_journal = true, .index_policy = (belay_index_policy)policy});
        const int64_t labels[] = {0, 5, -1, 1, -7, (int64_t)1 << 40};
        const double x[6 * 5] = {0};
        belay_tensor l = belay_tensor_from(context, BELAY_I64, belay_shape1(6), labels, sizeof labels);
        belay_tensor logits = tensor_of(context, BELAY_F32, belay_shape2(6, 5), x);
        belay_tensor_name_set(l, "labels");
        belay_tensor_name_set(logits, "logits");
        belay_tensor_requires_grad_set(logits, true);
        belay_cross_entropy_options options = {.has_ignore = true, .ignore = -1, .reduction = BELAY_SUM};
        belay_tensor y = belay_cross_entropy(logits, l, &options);
        int line = __LINE__ - 1;
        char text[1024];
        snprintf(text, sizeof text,
                 "belay: labels[1] is 5, outside [0, 5) (index.label)\n"
                 "    op: cross_entropy, called at test_loss.c:%d\n"
                 "    tensors: logits [6, 5] f32; labels [6] i64; on cpu\n"
                 "    bad: 3 of 6 elements; values 5, -7, 1099511627776\n"
                 "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                 "    likely: the value equals the number of classes: labels counted from 1, or a class that the model "
                 "was not given\n"
                 "    try: Subtract 1 from labels that count from 1; else give the model one more output.\n",
                 line);
        assert_words_equal(told, text);
        assert_true(fabs(belay_tensor_item(y) - 2 * log(5)) < 1e-5);
        belay_backward(y);
        double grad[30];
        read_numbers(belay_tensor_grad(logits), grad, 30);
        for (int r = 0; r < 6; r++)
            for (int j = 0; j < 5; j++)
                assert_true(fabs(grad[r * 5 + j] - (r % 3 == 0 ? 0.2 - (labels[r] == j) : 0)) < 1e-6);
        assert_words_equal(told, text);
        assert_int_equal(belay_close(context), 3);
    }
}

static void losses_refuse_what_does_not_fit(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape3(2, 5, 3));
    belay_tensor labels = belay_zeros(context, BELAY_I64, belay_shape2(2, 5));
    belay_cross_entropy(x, labels, NULL);
    int line = __LINE__ - 1;
    char text[2048];
    const char *advice = belay_code_advice(BELAY_SHAPE_CONTRACT);
    const char *when = "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n";
    snprintf(text, sizeof text,
             "belay: labels [2, 5] for logits [2, 5, 3]: [2, 3] is needed (shape.contract)\n"
             "    op: cross_entropy, called at test_loss.c:%d\n"
             "    tensors: logits [2, 5, 3] f32; labels [2, 5] i64; on cpu\n%s    try: %s\n",
             line, when, advice);
    assert_words_equal(told, text);
    told[0] = '\0';
    belay_mse(x, labels, BELAY_MEAN);
    line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: target is [2, 5] where [2, 5, 3] is needed (shape.contract)\n"
             "    op: mse, called at test_loss.c:%d\n"
             "    tensors: prediction [2, 5, 3] f32; target [2, 5] i64; on cpu\n%s    try: %s\n",
             line, when, advice);
    assert_words_equal(told, text);
    told[0] = '\0';
    belay_tensor floats = belay_zeros(context, BELAY_F32, belay_shape2(2, 3));
    belay_cross_entropy(x, floats, NULL);
    line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: labels is f32 where an integer dtype is needed (type.dtype)\n"
             "    op: cross_entropy, called at test_loss.c:%d\n"
             "    tensors: x [2, 5, 3] f32; labels [2, 3] f32; on cpu\n%s    try: %s\n",
             line, when, belay_code_advice(BELAY_TYPE_DTYPE));
    assert_words_equal(told, text);
    told[0] = '\0';
    labels = belay_zeros(context, BELAY_I64, belay_shape2(2, 3));
    belay_cross_entropy(x, labels, &(belay_cross_entropy_options){.label_smoothing = 1.5});
    line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: label smoothing is 1.5, outside [0, 1] (conf.value)\n"
             "    called at: test_loss.c:%d\n%s    try: %s\n",
             line, when, belay_code_advice(BELAY_CONF_VALUE));
    assert_words_equal(told, text);
    told[0] = '\0';
    belay_cross_entropy((belay_tensor){0}, labels, NULL);
    belay_cross_entropy(x, (belay_tensor){0}, NULL);
    belay_mse(x, (belay_tensor){0}, BELAY_MEAN);
    belay_softmax((belay_tensor){0}, 0);
    assert_string_equal(told, "");
    belay_close(context);
}

static belay_tensor mse_of(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c;
    return belay_mse(in[0], in[1], *(belay_reduction *)s);
}

static void mse_is_the_mean_sum_or_list_of_squares(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    double a[6], b[6], squares[6], sum = 0, *values[] = {a, b};
    draw_many(a, 6, -2, 2);
    draw_many(b, 6, -2, 2);
    for (int i = 0; i < 6; i++)
        sum += squares[i] = (a[i] - b[i]) * (a[i] - b[i]);
    const belay_shape shapes[] = {belay_shape2(2, 3), belay_shape2(2, 3)};
    for (belay_reduction r = BELAY_MEAN; r <= BELAY_NONE; r++) {
        double one = r == BELAY_MEAN ? sum / 6 : sum;
        belay_tensor x = tensor_of(context, BELAY_F64, shapes[0], a), t = tensor_of(context, BELAY_F64, shapes[0], b);
        assert_numbers("mse", belay_mse(x, t, r), r == BELAY_NONE ? squares : &one, 1e-14, 0);
        assert_gradients("mse", context, mse_of, &r, 2, shapes, values);
    }
    close_clean(context);
}

/* Two leaves of one sum each get a gradient of their own. */
static void gradients_of_two_leaves_are_two_tensors(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const double v[] = {1, 2}, one[] = {1, 1}, two[] = {2, 2};
    belay_tensor a = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape1(2), v), true);
    belay_tensor b = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape1(2), v), true);
    for (int pass = 0; pass < 2; pass++) {
        belay_scope scope = belay_scope_open(context);
        belay_backward(belay_sum(belay_add(a, b), NULL));
        belay_scope_close(scope);
        assert_numbers("a", belay_tensor_grad(a), pass == 0 ? one : two, 0, 0);
        assert_numbers("b", belay_tensor_grad(b), pass == 0 ? one : two, 0, 0);
    }
    close_clean(context);
}

/* Labels are the program's: it may write there before the walk back uses them. */
static void labels_are_tested_again_on_the_way_back(void **state)
{
    (void)state;
    for (int op = 0; op < 2; op++) {
        belay_context *context = open_with(1);
        char text[1024];
        const int64_t good[] = {0, 1}, spoilt[] = {0, 7};
        const double v[] = {1, 3, 2, 6, 5, 4};
        belay_tensor x = tensor_of(context, BELAY_F32, belay_shape2(2, 3), v);
        belay_tensor_requires_grad_set(x, true);
        belay_tensor labels = belay_tensor_from(context, BELAY_I64, belay_shape1(2), good, sizeof good);
        belay_tensor_name_set(labels, "labels");
        int line = __LINE__ + 1;
        belay_tensor loss = op == 0 ? belay_cross_entropy(x, labels, NULL) : belay_nll_loss(x, labels, NULL);
        assert_int_equal(spoil(labels, spoilt, sizeof spoilt), BELAY_OK);
        assert_string_equal(told, "");
        belay_backward(loss);
        snprintf(text, sizeof text,
                 "belay: labels[1] is 7, outside [0, 3) (index.label)\n"
                 "    op: %s (backward), called at test_loss.c:%d\n",
                 op == 0 ? "cross_entropy_grad" : "nll_loss_grad", line);
        assert_memory_equal(told, text, strlen(text));
        double slopes[6];
        read_numbers(belay_tensor_grad(x), slopes, 6);
        assert_true(slopes[3] == 0 && slopes[4] == 0 && slopes[5] == 0);
        belay_close(context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_tested_again_on_the_way_back),
        cmocka_unit_test(softmax_is_its_definition_along_every_axis),
        cmocka_unit_test(softmax_keeps_nan_and_takes_infinities),
        cmocka_unit_test(softmax_has_the_slopes_of_its_values),
        cmocka_unit_test(cross_entropy_is_its_definition_under_every_option),
        cmocka_unit_test(cross_entropy_takes_one_row_without_a_batch),
        cmocka_unit_test(mean_over_no_counted_row_is_nan),
        cmocka_unit_test(nll_of_log_softmax_is_cross_entropy),
        cmocka_unit_test(nll_names_a_bad_label_and_what_does_not_fit),
        cmocka_unit_test(bce_is_its_definition_under_every_option),
        cmocka_unit_test(bce_takes_logits_of_any_size),
        cmocka_unit_test(bce_refuses_what_does_not_fit),
        cmocka_unit_test(bad_label_is_named_and_never_moved),
        cmocka_unit_test(losses_refuse_what_does_not_fit),
        cmocka_unit_test(mse_is_the_mean_sum_or_list_of_squares),
        cmocka_unit_test(gradients_of_two_leaves_are_two_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
