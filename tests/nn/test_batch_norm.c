/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation as a module: its running statistics are part of the step.  They go on by every batch of a window
 * that is applied, and keep their bits through one that is not, on the cpu and on a device behind the host's back. */
#include "support/told.h"

#include <belay/amp.h>
#include <belay/devices.h>
#include <belay/nn.h>
#include <belay/optim.h>

#include <inttypes.h>
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

static model open_model_in(belay_memory_mode memory, const char *device, const belay_batch_norm_module_options *options)
{
    told_clear();
    belay_options opening = {.device = device, .memory = memory, .log = told_remember, .no_journal = true, .seed = 3};
    model m = {.context = belay_open(&opening)};
    m.root = belay_sequential_module(m.context);
    m.table = belay_module_add_child(
        m.root, "table",
        belay_embedding_module(m.context, &(belay_embedding_module_options){.rows = ROWS, .width = CHANNELS}));
    m.norm = belay_module_add_child(m.root, "norm", belay_batch_norm_module(m.context, options));
    m.sgd = belay_sgd(m.root, &(belay_sgd_options){.lr = 0.1});
    return m;
}

static model open_model(const char *device, const belay_batch_norm_module_options *options)
{
    return open_model_in(BELAY_MEMORY_DEFAULT, device, options);
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

/* ---- several optimizers ---------------------------------------------------------------------------------------------- */

/* Another leaf with another optimizer, whose gradient is `grad`. */
typedef struct other {
    belay_tensor leaf;
    belay_optimizer *sgd;
} other;

static other other_of(const model *m)
{
    other o = {.leaf = told_leaf(m->context, belay_shape1(1), (const float[]){1})};
    o.sgd = belay_sgd_over(m->context, &o.leaf, 1, &(belay_sgd_options){.lr = 0.1});
    return o;
}

static void backward_of(const model *m, const other *o, double factor)
{
    belay_scope scope = belay_scope_open(m->context);
    belay_backward(belay_sum(belay_affine(o->leaf, factor, 0), NULL));
    belay_scope_close(scope);
}

static void they_go_with_the_optimizer_that_has_their_layer_s_parameters(void **state)
{
    for (int no_affine = 0; no_affine < 2; no_affine++) { /* whose nearest parameters are the table's */
        model m =
            open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS, .no_affine = no_affine != 0});
        other o = other_of(&m);
        buffers before = buffers_of(&m);
        batch_of(&m, 0, 1, NULL);
        backward_of(&m, &o, 1);
        belay_optimizer_step(o.sgd); /* applied: not theirs */
        buffers now = buffers_of(&m);
        assert_memory_equal(&now, &before, sizeof before);
        backward_of(&m, &o, (double)INFINITY);
        belay_optimizer_step(o.sgd); /* refused: not theirs either */
        belay_optimizer_discard(o.sgd);
        belay_optimizer_step(m.sgd);
        assert_true(belay_optimizer_is_applied(m.sgd));
        assert_int_equal(buffers_of(&m).tracked, 1);

        before = buffers_of(&m);
        batch_of(&m, 1, (double)INFINITY, NULL);
        backward_of(&m, &o, 1);
        belay_optimizer_step(o.sgd);
        belay_optimizer_step(m.sgd); /* refused: theirs, whatever the other's came to */
        assert_false(belay_optimizer_is_applied(m.sgd));
        belay_optimizer_step(o.sgd);
        belay_optimizer_step(m.sgd);
        now = buffers_of(&m);
        assert_memory_equal(&now, &before, sizeof before);
        belay_close(m.context);
    }
}

static void a_window_with_a_fault_drops_those_of_every_optimizer(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    other o = other_of(&m);
    buffers before = buffers_of(&m);
    batch_of(&m, 0, 1, NULL);
    belay_embedding(belay_module_find(m.root, "table.weight"), ids_of(&m, ROWS), NULL); /* the fault */
    backward_of(&m, &o, 1);
    belay_optimizer_step(o.sgd);
    belay_optimizer_step(m.sgd);
    buffers now = buffers_of(&m);
    assert_memory_equal(&now, &before, sizeof before);
    belay_close(m.context);
}

static void where_no_optimizer_has_any_they_go_with_the_next_step(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    other o = other_of(&m);
    belay_optimizer *twice = belay_sgd(m.norm, &(belay_sgd_options){.lr = 0.1});
    belay_optimizer_free(m.sgd); /* the other that has them is still there */
    batch_of(&m, 0, 1, NULL);
    belay_optimizer_step(o.sgd);
    assert_int_equal(buffers_of(&m).tracked, 0);
    belay_optimizer_free(twice);
    belay_optimizer_step(o.sgd);
    assert_int_equal(buffers_of(&m).tracked, 1);
    told_close(m.context);
}

static void what_is_written_in_the_window_is_newer(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    const float loaded[CHANNELS] = {7, 8, 9};
    batch_of(&m, 0, 1, NULL);
    assert_int_equal(belay_tensor_write(belay_module_find(m.norm, "running_mean"), loaded, sizeof loaded), BELAY_OK);
    belay_optimizer_step(m.sgd);
    buffers b = buffers_of(&m);
    assert_memory_equal(b.mean, loaded, sizeof loaded);
    assert_int_equal(b.tracked, 1);
    told_close(m.context);
}

/* A write between two batches of a window: the second goes on from it. */
static void a_batch_after_a_write_goes_on_from_what_was_written(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    const float loaded[CHANNELS] = {7, 8, 9};
    float x[BATCH * CHANNELS];
    double mean[CHANNELS] = {7, 8, 9}, var[CHANNELS] = {1, 1, 1};
    batch_of(&m, 0, 1, x);
    double none[CHANNELS] = {0};
    move_on(none, var, x, 0.1);
    assert_int_equal(belay_tensor_write(belay_module_find(m.root, "norm.running_mean"), loaded, sizeof loaded),
                     BELAY_OK);
    batch_of(&m, 1, 1, x);
    move_on(mean, var, x, 0.1);
    belay_optimizer_step(m.sgd);
    buffers b = buffers_of(&m);
    assert_buffers(&b, mean, var, 2);
    told_close(m.context);
}

/* An optimizer over all that is kept, and one over a part that is stepped: two phases. */
/* An optimizer of all is kept, and one of the head is stepped. */
static void what_waits_for_an_optimizer_that_is_passed_over_goes_with_the_others(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    belay_tensor table = belay_module_find(m.table, "weight");
    other o = other_of(&m);
    belay_optimizer *part = belay_sgd_over(m.context, &table, 1, &(belay_sgd_options){.lr = 0.1});
    for (int k = 1; k < 20; k++) {
        batch_of(&m, k % 2, 1, NULL);
        belay_optimizer_step(part);
        assert_int_equal(buffers_of(&m).tracked, k <= 16 ? 0 : k);
    }
    assert_int_equal(belay_n_faults(m.context), 1); /* the warning */
    for (int k = 20; k < 23; k++) {                 /* until it is stepped again */
        batch_of(&m, k % 2, 1, NULL);
        belay_optimizer_step(m.sgd);
        assert_int_equal(buffers_of(&m).tracked, k);
        batch_of(&m, k % 2, 1, NULL);
        belay_optimizer_step(o.sgd);
        assert_int_equal(buffers_of(&m).tracked, k);
        belay_optimizer_discard(m.sgd);
    }
    assert_int_equal(belay_n_faults(m.context), 1);
    belay_close(m.context);
}

/* An encoder that two optimizers share: the step of one says nothing about a layer that only the other has. */
static void a_shared_parameter_takes_no_statistics_along(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    belay_tensor table = belay_module_find(m.table, "weight");
    belay_optimizer *part = belay_sgd_over(m.context, &table, 1, &(belay_sgd_options){.lr = 0.1});
    for (int k = 1; k < 4; k++) {
        batch_of(&m, k, 1, NULL);
        belay_optimizer_step(part);
        assert_int_equal(buffers_of(&m).tracked, k - 1);
        belay_optimizer_step(m.sgd);
        assert_int_equal(buffers_of(&m).tracked, k);
    }
    told_close(m.context);
}

/* Weights that the program moves by itself: no step will come. */
static void without_any_optimizer_they_move_on_at_once(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    belay_optimizer_free(m.sgd);
    for (int k = 1; k < 4; k++) {
        batch_of(&m, k, 1, NULL);
        assert_int_equal(buffers_of(&m).tracked, k);
    }
    told_close(m.context);
}

static void those_of_a_layer_that_is_frozen_go_with_the_next_step(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    other o = other_of(&m);
    belay_tensor_requires_grad_set(belay_module_find(m.norm, "weight"), false);
    belay_tensor_requires_grad_set(belay_module_find(m.norm, "bias"), false);
    batch_of(&m, 0, 1, NULL);
    belay_optimizer_step(o.sgd);
    assert_int_equal(buffers_of(&m).tracked, 0); /* the table's optimizer is around */
    belay_tensor_requires_grad_set(belay_module_find(m.table, "weight"), false);
    belay_scope scope = belay_scope_open(m.context);
    belay_forward(m.root, ids_of(&m, 1));
    belay_scope_close(scope);
    backward_of(&m, &o, 1);
    belay_optimizer_step(o.sgd);
    assert_int_equal(buffers_of(&m).tracked, 2);
    told_close(m.context);
}

static void that_they_wait_for_an_optimizer_which_is_not_stepped_is_told_once(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    other o = other_of(&m);
    const int line = __LINE__ + 3;
    for (int step = 0; step < 40; step++) {
        batch_of(&m, step % 2, 1, NULL);
        belay_optimizer_step(o.sgd);
        if (step == 14)
            told_expect("%s", "");
    }
    told_expect("belay: norm.running_mean waits for a step of the sgd that has its layer's parameters, and none comes "
                "(run.waiting)\n"
                "    called at: test_batch_norm.c:%d\n"
                "    steps of other optimizers meanwhile: 16\n"
                "    buffers that wait: 3; they go with the steps of others from now on\n"
                "    when: epoch 0, batch 16 (micro-batch 1 of its window), step 15, rank 0\n%s",
                line, told_try(BELAY_RUN_WAITING));
    assert_int_equal(buffers_of(&m).tracked, 40);
    told_close(m.context);
}

/* ---- without a step -------------------------------------------------------------------------------------------------- */

/* A forward in training that nothing records; its inputs go to `x`. */
static void unrecorded(const model *m, int64_t first, float *x)
{
    bool was = belay_recording_set(m->context, false);
    belay_scope scope = belay_scope_open(m->context);
    belay_forward(m->root, ids_of(m, first));
    if (x != NULL)
        told_read(belay_forward(m->table, ids_of(m, first)), x, BATCH * CHANNELS);
    belay_scope_close(scope);
    belay_recording_set(m->context, was);
}

static void what_is_not_recorded_moves_them_on_at_once(void **state)
{
    for (int cumulative = 0; cumulative < 2; cumulative++) {
        model m =
            open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS, .cumulative = cumulative != 0});
        double mean[CHANNELS] = {0}, var[CHANNELS] = {1, 1, 1};
        float x[BATCH * CHANNELS];
        for (int k = 0; k < 3; k++) {
            unrecorded(&m, k, x);
            move_on(mean, var, x, cumulative ? 1.0 / (k + 1) : 0.1);
            buffers b = buffers_of(&m);
            assert_buffers(&b, mean, var, k + 1);
        }
        belay_optimizer_discard(m.sgd);
        assert_int_equal(buffers_of(&m).tracked, 3);
        told_close(m.context);
    }
}

/* Between a batch of a window and its step: it counts whatever becomes of the step, and the batch where that is applied. */
static void a_batch_without_a_step_counts_beside_those_that_wait(void **state)
{
    for (int is_applied = 0; is_applied < 2; is_applied++) {
        model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
        double mean[CHANNELS] = {0}, var[CHANNELS] = {1, 1, 1}, both_mean[CHANNELS] = {0},
               both_var[CHANNELS] = {1, 1, 1};
        float x[BATCH * CHANNELS];
        batch_of(&m, 0, is_applied ? 1 : (double)INFINITY, x);
        move_on(both_mean, both_var, x, 0.1);
        unrecorded(&m, 1, x);
        move_on(mean, var, x, 0.1);
        move_on(both_mean, both_var, x, 0.1);
        buffers b = buffers_of(&m);
        assert_buffers(&b, mean, var, 1);
        belay_optimizer_step(m.sgd);
        b = buffers_of(&m);
        assert_buffers(&b, is_applied ? both_mean : mean, is_applied ? both_var : var, 1 + is_applied);
        belay_close(m.context);
    }
}

static void a_batch_without_a_step_that_faults_moves_nothing(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    unrecorded(&m, 0, NULL);
    told_expect("%s", "");
    buffers before = buffers_of(&m), after;
    unrecorded(&m, ROWS, NULL); /* an id out of range */
    after = buffers_of(&m);
    assert_memory_equal(&after, &before, sizeof before);
    told_clear();

    float x[BATCH * CHANNELS] = {0};
    x[4] = NAN;
    belay_recording_set(m.context, false);
    belay_tensor batch = belay_tensor_from(m.context, BELAY_F32, belay_shape2(BATCH, CHANNELS), x, sizeof x);
    for (int cast = 0; cast < 2; cast++) {
        belay_autocast open = belay_autocast_open(m.context, cast ? BELAY_BF16 : BELAY_F32);
        const int line = __LINE__ + 1;
        belay_forward(m.norm, batch);
        belay_autocast_close(open);
        after = buffers_of(&m);
        assert_memory_equal(&after, &before, sizeof before);
        char start[512];
        snprintf(start, sizeof start,
                 "belay: norm.running_mean[1] would become nan by this batch (num.nonfinite)\n"
                 "    op: batch_norm in layer norm, called at test_batch_norm.c:%d",
                 line);
        assert_memory_equal(told(), start, strlen(start));
        assert_non_null(strstr(told(), "    channel 1 of x holds Inf or NaN\n"));
        assert_non_null(strstr(told(), "    tensors: x [4, 3] "));
        told_clear();
    }
    belay_recording_set(m.context, true);
    good_window(&m, 0); /* no step is refused for it */
    assert_int_equal(buffers_of(&m).tracked, 3);
    told_close(m.context);
}

/* On a device the host hears of it only while the good batch is at work. */
static void a_fault_of_an_earlier_batch_holds_none_back(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    batch_of(&m, ROWS, 1, NULL);
    unrecorded(&m, 1, NULL);
    assert_int_equal(buffers_of(&m).tracked, 1);
    assert_true(belay_n_faults(m.context) > 0);
    belay_optimizer_step(m.sgd);
    assert_int_equal(buffers_of(&m).tracked, 1);
    belay_close(m.context);
}

static void without_momentum_they_stay(void **state)
{
    model m = open_model(*state, &(belay_batch_norm_module_options){.channels = CHANNELS, .no_momentum = true});
    good_window(&m, 0);
    unrecorded(&m, 1, NULL);
    buffers b = buffers_of(&m);
    assert_buffers(&b, (const double[CHANNELS]){0}, (const double[CHANNELS]){1, 1, 1}, 3);
    told_close(m.context);
}

/* ---- views as buffers ------------------------------------------------------------------------------------------------ */

/* Columns or rows of one tensor, made anew for each batch: handles that are dead by the step. */
static void views_of_one_tensor_can_be_running_statistics(void **state)
{
    told_clear();
    belay_context *context = belay_open(&(belay_options){.device = *state, .log = told_remember, .no_journal = true});
    for (int axis = 0; axis < 2; axis++) {
        const belay_shape shape = axis == 0 ? belay_shape2(2, CHANNELS) : belay_shape2(CHANNELS, 2);
        belay_tensor both = belay_zeros(context, BELAY_F32, shape), x, y[2];
        other o = {.leaf = told_leaf(context, belay_shape1(CHANNELS), (const float[]){1, 1, 1})};
        o.sgd = belay_sgd_over(context, &o.leaf, 1, &(belay_sgd_options){.lr = 0.1});
        for (int batch = 0; batch < 2; batch++) {
            belay_scope scope = belay_scope_open(context);
            x = belay_view(belay_arange(context, BELAY_F32, BATCH * CHANNELS, batch, 1), belay_shape2(BATCH, CHANNELS));
            for (int k = 0; k < 2; k++)
                y[k] = belay_select(both, axis, k);
            belay_batch_norm(x, y[0], y[1], o.leaf, (belay_tensor){0},
                             &(belay_batch_norm_options){.training = true, .momentum = 0.5});
            belay_scope_close(scope);
        }
        float got[2 * CHANNELS], zeros[2 * CHANNELS] = {0};
        told_read(both, got, 2 * CHANNELS);
        assert_memory_equal(got, zeros, sizeof zeros);
        belay_optimizer_step(o.sgd);
        told_read(axis == 0 ? both : belay_transpose(both, 0, 1), got, 2 * CHANNELS);
        for (int c = 0; c < CHANNELS; c++) { /* of 4.5 + c, then of 5.5 + c; 15 is the variance of 0 3 6 9 */
            assert_true(fabsf(got[c] - (0.25f * (4.5f + (float)c) + 0.5f * (5.5f + (float)c))) < 1e-5f);
            assert_true(fabsf(got[CHANNELS + c] - 0.75f * 15) < 1e-5f);
        }
    }
    told_close(context);
}

/* ---- statistics that are not finite ---------------------------------------------------------------------------------- */

/* The variance of large values is no f32, while what is normalised by it is 0: no gradient would tell. */
static void statistics_that_are_not_finite_refuse_the_step_and_are_told(void **state)
{
    /* in the others the step waits, and the fault surfaces there */
    model m = open_model_in(BELAY_MEMORY_POOL, *state, &(belay_batch_norm_module_options){.channels = CHANNELS});
    good_window(&m, 0);
    buffers before = buffers_of(&m);
    told_expect("%s", "");
    float x[BATCH * CHANNELS] = {0};
    for (int n = 0; n < BATCH; n++)
        x[n * CHANNELS + 1] = n % 2 == 0 ? 3e20f : -3e20f;
    belay_tensor batch = belay_tensor_from(m.context, BELAY_F32, belay_shape2(BATCH, CHANNELS), x, sizeof x);
    const int line = __LINE__ + 1;
    belay_tensor y = belay_forward(m.norm, batch);
    belay_backward(belay_sum(y, NULL));
    belay_optimizer_step(m.sgd);
    assert_false(belay_optimizer_is_applied(m.sgd));
    bool is_sim = strcmp(*state, "cpu") != 0;
    char surfaced[64] = "", lost_surfaced[64] = "";
#ifdef BELAY_SMALL /* whose ring of launches is full during the backward */
    const int first = line + 1;
#else
    const int first = line + 3;
#endif
    if (is_sim) {
        snprintf(surfaced, sizeof surfaced, "    surfaced at: test_batch_norm.c:%d\n", first);
        snprintf(lost_surfaced, sizeof lost_surfaced, "    surfaced at: test_batch_norm.c:%d\n", line + 3);
    }
    const char *start = "belay: norm.running_var[1] would become inf by this batch (num.nonfinite)\n"
                        "    op: batch_norm in layer norm, called at test_batch_norm.c";
    assert_memory_equal(told(), start, strlen(start));
    told_expect("%s:%d%s\n%s"
                "    tensors: x [4, 3] f32; norm.running_mean [3] f32; norm.running_var [3] f32; "
                "norm.num_batches_tracked [] i64; on %s\n"
                "    bad: 1 of 3 elements\n"
                "    channel 1 of x holds no Inf or NaN, but numbers too large for statistics\n"
                "    when: epoch 0, batch 2 (micro-batch 0 of its window), step 1, rank 0\n"
                "    try: Look at what makes x: numbers this large belong to no layer that goes on well.\n"
                "belay: step 1 was not applied: num.nonfinite in its window (run.window_lost)\n"
                "    called at: test_batch_norm.c:%d\n%s"
                "    when: epoch 0, batch 3 (micro-batch 1 of its window), step 1, rank 0\n%s",
                start, line, is_sim ? ", launch 62" : "", surfaced, (const char *)*state, line + 2, lost_surfaced,
                told_try(BELAY_RUN_WINDOW_LOST));
    assert_int_equal(belay_optimizer_n_faulted(m.sgd), 1);
    buffers after = buffers_of(&m);
    assert_memory_equal(&after, &before, sizeof before);
    good_window(&m, 0);
    assert_int_equal(buffers_of(&m).tracked, 4);
    told_close(m.context);
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
    belay_batch_norm_module(context,
                            &(belay_batch_norm_module_options){.channels = 2, .no_momentum = true, .momentum = 0.5});
    expect_refusal(__LINE__ - 2, BELAY_CONF_CONFLICT, "batch_norm was asked for no momentum, and for one");
    belay_batch_norm_module(context,
                            &(belay_batch_norm_module_options){.channels = 2, .no_momentum = true, .cumulative = true});
    expect_refusal(__LINE__ - 2, BELAY_CONF_CONFLICT,
                   "batch_norm was asked for no momentum, and for cumulative statistics");
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
    belay_batch_norm(x, nil, nil, nil, nil, &(belay_batch_norm_options){.no_momentum = true, .momentum = 0.5});
    expect_op(__LINE__ - 1, BELAY_CONF_CONFLICT, "no momentum was asked for, and one", "x [4, 3] f32");
    belay_batch_norm(x, nil, nil, nil, nil, &(belay_batch_norm_options){.no_momentum = true, .cumulative = true});
    expect_op(__LINE__ - 1, BELAY_CONF_CONFLICT, "no momentum was asked for, and cumulative statistics",
              "x [4, 3] f32");
    assert_true(belay_tensor_is_nil(belay_batch_norm(nil, flat, flat, nil, nil, NULL)));
    told_expect("%s", "");
    belay_close(context);
}

static void what_a_step_would_write_is_looked_at_before(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const belay_tensor nil = {0};
    const belay_batch_norm_options training = {.training = true};
    belay_tensor x = belay_view(belay_arange(context, BELAY_F32, 12, 0, 1), belay_shape2(4, 3));
    belay_tensor stats = belay_zeros(context, BELAY_F32, belay_shape1(5)),
                 three = belay_zeros(context, BELAY_F32, belay_shape1(3));
    belay_tensor one = belay_expand(belay_zeros(context, BELAY_F32, belay_shape1(1)), belay_shape1(3));
    const char *both = "x [4, 3] f32; running_mean [3] f32; running_var [3] f32";
    belay_batch_norm(x, one, three, nil, nil, &training);
    expect_op(__LINE__ - 1, BELAY_SHAPE_CONTRACT,
              "running_mean is one number for all channels: it cannot hold those of each", both);
    belay_batch_norm(x, three, one, nil, nil, &training);
    expect_op(__LINE__ - 1, BELAY_SHAPE_CONTRACT,
              "running_var is one number for all channels: it cannot hold those of each", both);
    belay_batch_norm(x, three, three, nil, nil, &training);
    expect_op(__LINE__ - 1, BELAY_CONF_VALUE, "running_mean and running_var share elements: each needs its own", both);
    belay_batch_norm(x, belay_slice(stats, 0, 0, 3, 1), belay_slice(stats, 0, 2, 5, 1), nil, nil, &training);
    expect_op(__LINE__ - 1, BELAY_CONF_VALUE, "running_mean and running_var share elements: each needs its own", both);
    belay_batch_norm(x, three, three, nil, nil, NULL); /* nothing is written */
    told_expect("%s", "");

    const int64_t counts[] = {-3, INT64_MAX};
    for (int i = 0; i < 2; i++) {
        belay_tensor count = belay_tensor_from(context, BELAY_I64, belay_shape0(), &counts[i], sizeof counts[i]);
        belay_tensor var = belay_zeros(context, BELAY_F32, belay_shape1(3));
        const int line = __LINE__ + 1;
        belay_batch_norm(x, three, var, nil, nil, &(belay_batch_norm_options){.training = true, .n_tracked = count});
        told_expect("belay: n_tracked is %" PRId64 ", outside [0, 9223372036854775807) (conf.value)\n"
                    "    op: batch_norm, called at test_batch_norm.c:%d\n"
                    "    tensors: x [4, 3] f32; running_mean [3] f32; running_var [3] f32; n_tracked [] i64; on "
                    "cpu\n" TOLD_START "%s",
                    counts[i], line, told_try(BELAY_CONF_VALUE));
    }
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
        ON_BOTH(they_go_with_the_optimizer_that_has_their_layer_s_parameters),
        ON_BOTH(a_window_with_a_fault_drops_those_of_every_optimizer),
        ON_BOTH(where_no_optimizer_has_any_they_go_with_the_next_step),
        ON_BOTH(what_is_written_in_the_window_is_newer),
        ON_BOTH(a_batch_after_a_write_goes_on_from_what_was_written),
        ON_BOTH(what_waits_for_an_optimizer_that_is_passed_over_goes_with_the_others),
        ON_BOTH(a_shared_parameter_takes_no_statistics_along),
        ON_BOTH(without_any_optimizer_they_move_on_at_once),
        ON_BOTH(those_of_a_layer_that_is_frozen_go_with_the_next_step),
        ON_BOTH(that_they_wait_for_an_optimizer_which_is_not_stepped_is_told_once),
        ON_BOTH(what_is_not_recorded_moves_them_on_at_once),
        ON_BOTH(a_batch_without_a_step_counts_beside_those_that_wait),
        ON_BOTH(a_batch_without_a_step_that_faults_moves_nothing),
        ON_BOTH(a_fault_of_an_earlier_batch_holds_none_back),
        ON_BOTH(without_momentum_they_stay),
        ON_BOTH(views_of_one_tensor_can_be_running_statistics),
        ON_BOTH(statistics_that_are_not_finite_refuse_the_step_and_are_told),
        cmocka_unit_test(what_a_step_would_write_is_looked_at_before),
        cmocka_unit_test(names_and_first_values_are_pytorch_s),
        cmocka_unit_test(makers_refuse_what_cannot_be),
        cmocka_unit_test(the_op_refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
