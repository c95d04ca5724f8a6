/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation as a module: its running statistics are part of the step.  They go on by every batch of a window
 * that is applied, and keep their bits through one that is not, on the cpu and on a device behind the host's back. */
#include "support/told.h"

#include <belay/devices.h>
#include <belay/nn.h>
#include <belay/optim.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHANNELS = 3, BATCH = 4, ROWS = 6 };

/* A table of rows that ids choose, and the norm over them: an id out of range is the fault of a window. */
typedef struct model {
    belay_context *context;
    belay_module *root, *table, *norm;
    belay_optimizer *sgd;
} model;

static model open_model(const char *device, const belay_batch_norm_module_options *options)
{
    told_clear();
    model m = {.context =
                   belay_open(&(belay_options){.device = device, .log = told_remember, .no_journal = true, .seed = 3})};
    m.root = belay_sequential_module(m.context);
    m.table = belay_module_add_child(
        m.root, "table",
        belay_embedding_module(m.context, &(belay_embedding_module_options){.rows = ROWS, .width = CHANNELS}));
    m.norm = belay_module_add_child(m.root, "norm", belay_batch_norm_module(m.context, options));
    m.sgd = belay_sgd(m.root, &(belay_sgd_options){.lr = 0.1});
    return m;
}

static belay_tensor ids_of(const model *m, int64_t first)
{
    const int64_t ids[BATCH] = {first, 1, 2, (first + 3) % ROWS};
    return belay_tensor_from(m->context, BELAY_I64, belay_shape1(BATCH), ids, sizeof ids);
}

/* One micro-batch, forward and back; its inputs go to `x`, where one is wanted. */
static void batch_of(const model *m, int64_t first, double factor, float *x)
{
    belay_scope scope = belay_scope_open(m->context);
    belay_tensor rows = belay_forward(m->table, ids_of(m, first));
    belay_tensor y = belay_forward(m->norm, rows);
    belay_backward(belay_sum(belay_affine(belay_mul(y, y), factor, 0), NULL));
    if (x != NULL)
        told_read(rows, x, BATCH * CHANNELS);
    belay_scope_close(scope);
}

typedef struct buffers {
    float mean[CHANNELS], var[CHANNELS];
    int64_t tracked;
} buffers;

static buffers buffers_of(const model *m)
{
    buffers b = {.tracked = -1};
    told_read(belay_module_find(m->root, "norm.running_mean"), b.mean, CHANNELS);
    told_read(belay_module_find(m->root, "norm.running_var"), b.var, CHANNELS);
    belay_tensor count = belay_module_find(m->root, "norm.num_batches_tracked");
    assert_int_equal(belay_tensor_read(count, &b.tracked, sizeof b.tracked), BELAY_OK);
    return b;
}

/* PyTorch's rule for one batch, in double. */
static void move_on(double mean[CHANNELS], double var[CHANNELS], const float *x, double momentum)
{
    for (int c = 0; c < CHANNELS; c++) {
        double sum = 0, squares = 0;
        for (int n = 0; n < BATCH; n++)
            sum += (double)x[n * CHANNELS + c];
        for (int n = 0; n < BATCH; n++)
            squares += pow((double)x[n * CHANNELS + c] - sum / BATCH, 2);
        mean[c] = (1 - momentum) * mean[c] + momentum * (sum / BATCH);
        var[c] = (1 - momentum) * var[c] + momentum * (squares / (BATCH - 1));
    }
}

static void assert_buffers(const buffers *b, const double mean[CHANNELS], const double var[CHANNELS], int64_t tracked)
{
    for (int c = 0; c < CHANNELS; c++) {
        assert_true(fabs((double)b->mean[c] - mean[c]) < 1e-6);
        assert_true(fabs((double)b->var[c] - var[c]) < 1e-6);
    }
    assert_int_equal(b->tracked, tracked);
}

/* Windows of two batches; until the step they read as before. */
static void every_batch_of_an_applied_window_moves_the_running_statistics_on(void **state)
{
    for (int cumulative = 0; cumulative < 2; cumulative++) {
        model m = open_model(*state, &(belay_batch_norm_module_options){
                                         .channels = CHANNELS, .momentum = 0.25, .cumulative = cumulative != 0});
        double mean[CHANNELS] = {0}, var[CHANNELS] = {1, 1, 1};
        for (int window = 0; window < 3; window++) {
            buffers before = buffers_of(&m), during;
            for (int k = 0; k < 2; k++) {
                float x[BATCH * CHANNELS];
                batch_of(&m, window + k, 1, x);
                move_on(mean, var, x, cumulative ? 1.0 / (window * 2 + k + 1) : 0.25);
                during = buffers_of(&m);
                assert_memory_equal(&during, &before, sizeof before);
            }
            belay_optimizer_step(m.sgd);
            buffers after = buffers_of(&m);
            assert_buffers(&after, mean, var, window * 2 + 2);
        }
        told_close(m.context);
    }
}

typedef enum refusal { BY_FAULT, BY_OVERFLOW, BY_DISCARD, N_REFUSALS } refusal;

/* A window of two batches that comes to nothing. */
static void lose_window(const model *m, refusal why)
{
    batch_of(m, 1, 1, NULL);
    batch_of(m, why == BY_FAULT ? ROWS : 2, why == BY_OVERFLOW ? (double)INFINITY : 1, NULL);
    if (why == BY_DISCARD)
        belay_optimizer_discard(m->sgd);
    else
        belay_optimizer_step(m->sgd);
}

static void good_window(const model *m, int first)
{
    batch_of(m, first, 1, NULL);
    batch_of(m, first + 1, 1, NULL);
    belay_optimizer_step(m->sgd);
}

static void a_refused_step_leaves_the_running_statistics_their_bits(void **state)
{
    for (refusal why = 0; why < N_REFUSALS; why++)
        for (int cumulative = 0; cumulative < 2; cumulative++) {
            const belay_batch_norm_module_options options = {.channels = CHANNELS, .cumulative = cumulative != 0};
            model m = open_model(*state, &options);
            good_window(&m, 0);
            buffers before = buffers_of(&m);
            assert_int_equal(before.tracked, 2);
            lose_window(&m, why);
            buffers after = buffers_of(&m);
            assert_memory_equal(&after, &before, sizeof before);
            good_window(&m, 3);
            after = buffers_of(&m);
            assert_int_equal(belay_optimizer_n_applied(m.sgd), 2);
            belay_close(m.context);

            model clean = open_model(*state, &options);
            good_window(&clean, 0);
            good_window(&clean, 3);
            buffers wanted = buffers_of(&clean);
            assert_memory_equal(&after, &wanted, sizeof wanted);
            told_close(clean.context);
        }
}

static void a_step_that_nobody_asked_about_refuses_them_too(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    for (int window = 0; window < 9; window++)
        if (window % 3 == 1)
            lose_window(&m, BY_FAULT);
        else
            good_window(&m, window % 3);
    buffers got = buffers_of(&m);
    belay_close(m.context);
    m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    for (int window = 0; window < 9; window++)
        if (window % 3 != 1)
            good_window(&m, window % 3);
    buffers wanted = buffers_of(&m);
    assert_memory_equal(&got, &wanted, sizeof wanted);
    assert_int_equal(got.tracked, 12);
    told_close(m.context);
}

static void evaluation_reads_the_running_statistics_and_moves_nothing(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS, .eps = 0.5});
    const float mean[CHANNELS] = {1, -2, 0.5f}, var[CHANNELS] = {0.25f, 1.5f, 3.5f}, x[CHANNELS] = {1, 2, 4};
    float y[CHANNELS];
    assert_int_equal(belay_tensor_write(belay_module_find(m.norm, "running_mean"), mean, sizeof mean), BELAY_OK);
    assert_int_equal(belay_tensor_write(belay_module_find(m.norm, "running_var"), var, sizeof var), BELAY_OK);
    belay_module_training_set(m.root, false);
    belay_tensor one = belay_tensor_from(m.context, BELAY_F32, belay_shape2(1, CHANNELS), x, sizeof x);
    told_read(belay_forward(m.norm, one), y, CHANNELS);
    for (int c = 0; c < CHANNELS; c++)
        assert_true(fabs((double)(y[c] - (x[c] - mean[c]) / sqrtf(var[c] + 0.5f))) < 1e-6);
    belay_optimizer_step(m.sgd);
    buffers b = buffers_of(&m);
    assert_memory_equal(b.mean, mean, sizeof mean);
    assert_memory_equal(b.var, var, sizeof var);
    assert_int_equal(b.tracked, 0);
    told_close(m.context);
}

static void a_module_that_is_freed_in_its_window_takes_its_statistics_along(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    belay_module *other = belay_batch_norm_module(m.context, &(belay_batch_norm_module_options){.channels = CHANNELS});
    belay_forward(other, belay_view(belay_arange(m.context, BELAY_F32, 6, 0, 1), belay_shape2(2, 3)));
    belay_module_free(other);
    good_window(&m, 0);
    assert_int_equal(buffers_of(&m).tracked, 2);
    assert_string_equal(told(), "");
    belay_close(m.context);
}

/* ---- names and refusals ---------------------------------------------------------------------------------------------- */

static void names_and_first_values_are_pytorch_s(void **state)
{
    (void)state;
    model m = open_model("cpu", &(belay_batch_norm_module_options){.channels = CHANNELS});
    assert_int_equal(belay_module_n_parameters(m.norm), 2);
    assert_string_equal(belay_module_parameter_name(m.norm, 0), "weight");
    assert_string_equal(belay_module_parameter_name(m.norm, 1), "bias");
    assert_int_equal(belay_module_n_buffers(m.norm), 3);
    assert_string_equal(belay_module_buffer_name(m.norm, 0), "running_mean");
    assert_string_equal(belay_module_buffer_name(m.norm, 1), "running_var");
    assert_string_equal(belay_module_buffer_name(m.norm, 2), "num_batches_tracked");
    float v[CHANNELS];
    told_read(belay_module_find(m.norm, "weight"), v, CHANNELS);
    assert_true(v[0] == 1 && v[2] == 1);
    buffers b = buffers_of(&m);
    assert_true(b.mean[1] == 0 && b.var[1] == 1 && b.tracked == 0);
    told_close(m.context);

    m = open_model("cpu", &(belay_batch_norm_module_options){
                              .channels = CHANNELS, .no_affine = true, .no_tracking = true, .dtype = BELAY_F64});
    assert_int_equal(belay_module_n_parameters(m.norm) + belay_module_n_buffers(m.norm), 0);
    told_close(m.context);

    belay_context *context = told_open();
    belay_module *rms = belay_rms_norm_module(context, &(belay_rms_norm_module_options){.width = 2});
    assert_string_equal(belay_module_parameter_name(rms, 0), "weight");
    const float x[] = {3, 4};
    told_read(belay_forward(rms, belay_tensor_from(context, BELAY_F32, belay_shape1(2), x, sizeof x)), v, 2);
    assert_true(fabsf(v[0] - 3 / sqrtf(12.5f)) < 1e-6f && fabsf(v[1] - 4 / sqrtf(12.5f)) < 1e-6f);
    told_close(context);
}

/* The maker on line `line` raised exactly this. */
static void expect_refusal(int line, belay_code code, const char *what)
{
    told_expect("belay: %s (%s)\n"
                "    called at: test_batch_norm.c:%d\n" TOLD_START "%s",
                what, belay_code_name(code), line, told_try(code));
}

static void makers_refuse_what_cannot_be(void **state)
{
    (void)state;
    belay_context *context = told_open();
    assert_true(belay_module_is_nil(belay_batch_norm_module(context, NULL)));
    expect_refusal(__LINE__ - 1, BELAY_CONF_VALUE, "channels of batch_norm is 0: it must be at least 1");
    assert_true(belay_module_is_nil(belay_rms_norm_module(context, NULL)));
    expect_refusal(__LINE__ - 1, BELAY_CONF_VALUE, "width of rms_norm is 0: it must be at least 1");
    belay_batch_norm_module(context, &(belay_batch_norm_module_options){.channels = 2, .momentum = 1.5});
    expect_refusal(__LINE__ - 1, BELAY_CONF_VALUE, "momentum of batch_norm is 1.5, outside [0, 1]");
    belay_batch_norm_module(context,
                            &(belay_batch_norm_module_options){.channels = 2, .cumulative = true, .no_tracking = true});
    expect_refusal(__LINE__ - 2, BELAY_CONF_CONFLICT,
                   "batch_norm was asked for running statistics that are cumulative, and for none");
    belay_close(context);
}

/* The call on line `line` was refused with that headline; `tensors` as the paragraph lists them. */
static void expect_op(int line, belay_code code, const char *what, const char *tensors)
{
    told_expect("belay: %s (%s)\n"
                "    op: batch_norm, called at test_batch_norm.c:%d\n"
                "    tensors: %s; on cpu\n" TOLD_START "%s",
                what, belay_code_name(code), line, tensors, told_try(code));
}

static void the_op_refuses_what_does_not_fit(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const belay_tensor nil = {0};
    const belay_batch_norm_options training = {.training = true};
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape2(4, 3)),
                 flat = belay_zeros(context, BELAY_F32, belay_shape1(3));
    belay_tensor one = belay_zeros(context, BELAY_F32, belay_shape2(1, 3)),
                 two = belay_zeros(context, BELAY_F32, belay_shape1(2));
    belay_tensor wide = belay_zeros(context, BELAY_F64, belay_shape1(3));
    belay_batch_norm(flat, nil, nil, nil, nil, &training);
    expect_op(__LINE__ - 1, BELAY_SHAPE_RANK,
              "batch_norm takes [batch, channels] or [batch, channels, ...], not 1 axes", "x [3] f32");
    belay_batch_norm(one, nil, nil, nil, nil, &training);
    expect_op(__LINE__ - 1, BELAY_SHAPE_CONTRACT, "1 value for each channel in training: a variance needs two",
              "x [1, 3] f32");
    belay_batch_norm(x, flat, nil, nil, nil, &training);
    expect_op(__LINE__ - 1, BELAY_CONF_MISSING, "running_mean was given without running_var",
              "x [4, 3] f32; running_mean [3] f32");
    belay_batch_norm(x, nil, nil, two, nil, &training);
    expect_op(__LINE__ - 1, BELAY_SHAPE_CONTRACT, "weight is [2] where [3] is needed", "x [4, 3] f32; weight [2] f32");
    belay_batch_norm(x, nil, nil, nil, wide, &training);
    expect_op(__LINE__ - 1, BELAY_TYPE_DTYPE, "bias is f64 where f32 is needed", "x [4, 3] f32; bias [3] f64");
    belay_batch_norm(x, flat, flat, nil, nil, &(belay_batch_norm_options){.training = true, .cumulative = true});
    expect_op(__LINE__ - 1, BELAY_CONF_MISSING, "cumulative statistics need n_tracked, the count of batches",
              "x [4, 3] f32; running_mean [3] f32; running_var [3] f32");
    belay_batch_norm(x, nil, nil, nil, nil, &(belay_batch_norm_options){.momentum = -1});
    expect_op(__LINE__ - 1, BELAY_CONF_VALUE, "momentum is -1, outside [0, 1]", "x [4, 3] f32");
    assert_true(belay_tensor_is_nil(belay_batch_norm(nil, flat, flat, nil, nil, NULL)));
    told_expect("%s", "");
    belay_close(context);
}

#define ON_BOTH(test)                                                                                                  \
    {#test "_on_cpu", test, NULL, NULL, "cpu"}, { #test "_on_sim", test, NULL, NULL, "sim:0" }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_BOTH(every_batch_of_an_applied_window_moves_the_running_statistics_on),
        ON_BOTH(a_refused_step_leaves_the_running_statistics_their_bits),
        ON_BOTH(a_step_that_nobody_asked_about_refuses_them_too),
        ON_BOTH(evaluation_reads_the_running_statistics_and_moves_nothing),
        ON_BOTH(a_module_that_is_freed_in_its_window_takes_its_statistics_along),
        cmocka_unit_test(names_and_first_values_are_pytorch_s),
        cmocka_unit_test(makers_refuse_what_cannot_be),
        cmocka_unit_test(the_op_refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
