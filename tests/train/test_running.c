/* SPDX-License-Identifier: Apache-2.0 */
/* Running statistics in training: a batch that faults leaves nothing in them, validation moves nothing, and a checkpoint
 * holds them. */
#include "train/train_support.h"

/* 9 batches an epoch, the last of 6: windows of 4, 4 and 1. */
enum { SAMPLES = 70, WIDTH = 5, N_VALUES = 256, FAULTY = 5 };

typedef struct run {
    belay_train_options options;
    bool is_planted;
    belay_train_result result;
    float values[N_VALUES]; /* parameters, then the running statistics */
    int64_t n_values, n_tracked;
    char told[65536];
} run;

static belay_tensor mean_over_time(belay_tensor x) { return belay_mean(x, &(belay_axes){.n = 1, .axis = {1}}); }

static belay_module *normed_model(belay_context *context)
{
    belay_module *model = belay_sequential_module(context);
    belay_module_add_child(
        model, "embedding",
        belay_embedding_module(context, &(belay_embedding_module_options){.rows = VOCABULARY, .width = WIDTH}));
    belay_module_add_child(model, "mean", belay_map_module(context, mean_over_time));
    belay_module_add_child(model, "norm",
                           belay_batch_norm_module(context, &(belay_batch_norm_module_options){.channels = WIDTH}));
    belay_module_add_child(model, "fc",
                           belay_linear_module(context, &(belay_linear_module_options){.in = WIDTH, .out = CLASSES}));
    return model;
}

static void remember(void *state, belay_code code, const char *text)
{
    (void)code;
    strncat(((run *)state)->told, text, 65535 - strlen(((run *)state)->told));
}

static void read_values(run *r, const belay_module *model)
{
    int64_t n_parameters;
    float *weights = read_weights(model, &n_parameters);
    memcpy(r->values, weights, (size_t)n_parameters * sizeof *weights);
    free(weights);
    r->n_values = n_parameters + 2 * WIDTH;
    for (int64_t k = 0; k < 2; k++)
        assert_int_equal(
            belay_tensor_read(belay_module_buffer(model, k), r->values + n_parameters + k * WIDTH, WIDTH * 4),
            BELAY_OK);
    assert_int_equal(belay_tensor_read(belay_module_buffer(model, 2), &r->n_tracked, 8), BELAY_OK);
}

static run *train(run *r)
{
    samples data = {.seed = 11,
                    .plant = {.sample = r->is_planted ? FAULTY * BATCH + 3 : -1, .column = 2, .value = VOCABULARY}};
    samples valid = {.seed = 12, .plant = {.sample = -1}};
    belay_context *context =
        belay_open(&(belay_options){.seed = 7, .threads = 1, .log = remember, .log_state = r, .no_journal = true});
    belay_module *model = normed_model(context);
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02, .clip = 1});
    belay_train_options options = r->options;
    options.batch = BATCH;
    options.accumulate = 4;
    options.no_shuffle = true;
    options.valid = open_samples(context, &valid, 20);
    belay_code code = belay_train(model, adam, open_samples(context, &data, SAMPLES), &options, &r->result);
    if (code != BELAY_OK)
        fail_msg("%s", r->told);
    read_values(r, model);
    belay_close(context);
    return r;
}

static void assert_same_values(const run *a, const run *b)
{
    assert_int_equal(a->n_values, b->n_values);
    assert_int_equal(a->n_tracked, b->n_tracked);
    assert_memory_equal(a->values, b->values, (size_t)a->n_values * sizeof *a->values);
}

static void a_batch_that_faulted_leaves_nothing_in_the_running_statistics(void **state)
{
    (void)state;
    static run faulted, without, all;
    const belay_batch_place places[] = {{0, FAULTY}, {1, FAULTY}};
    faulted = (run){.options = {.epochs = 2}, .is_planted = true};
    without = (run){.options = {.epochs = 2, .skip = places, .n_skip = 2}};
    all = (run){.options = {.epochs = 2}};
    train(&faulted);
    assert_int_equal(faulted.result.n_skipped, 2);
    assert_same_values(&faulted, train(&without));
    assert_int_equal(faulted.n_tracked, 2 * 8);
    assert_int_equal(train(&all)->n_tracked, 2 * 9);
    assert_memory_not_equal(all.values, without.values, (size_t)all.n_values * sizeof *all.values);
}

static void a_run_that_was_resumed_has_the_running_statistics_of_one_that_was_not(void **state)
{
    (void)state;
    static run whole, half, rest;
    char folder[512];
    whole = (run){.options = {.epochs = 2}};
    half = (run){.options = {.epochs = 1, .out = make_folder(folder)}};
    rest = (run){.options = {.epochs = 2, .out = folder, .resume = true}};
    train(&half);
    train(&rest);
    remove_folder(folder);
    assert_same_values(&rest, train(&whole));
}

static void a_file_of_a_module_holds_them_in_every_dtype(void **state)
{
    (void)state;
    char folder[512], path[600];
    snprintf(path, sizeof path, "%s.safetensors", make_folder(folder));
    const belay_dtype dtypes[] = {BELAY_F32, BELAY_F64, BELAY_BF16};
    for (int d = 0; d < 3; d++) {
        belay_context *context = belay_open(&(belay_options){.no_journal = true});
        const belay_batch_norm_module_options options = {.channels = 3, .cumulative = true, .dtype = dtypes[d]};
        belay_module *saved = belay_batch_norm_module(context, &options),
                     *read = belay_batch_norm_module(context, &options);
        belay_optimizer *sgd = belay_sgd(saved, &(belay_sgd_options){.lr = 1});
        belay_tensor x = belay_view(belay_arange(context, dtypes[d], 12, 0, 1), belay_shape2(4, 3));
        belay_backward(belay_sum(belay_forward(saved, x), NULL));
        belay_optimizer_step(sgd);
        assert_int_equal(belay_checkpoint_save(saved, path, NULL, 0), BELAY_OK);
        assert_int_equal(belay_checkpoint_load(read, path), BELAY_OK);
        for (int64_t k = 0; k < 3; k++) {
            unsigned char bytes[2][24] = {{0}, {0}};
            belay_tensor from = belay_module_buffer(saved, k), to = belay_module_buffer(read, k);
            int64_t n = belay_tensor_n_elements(from) * belay_dtype_size(belay_tensor_dtype(from));
            assert_int_equal(belay_tensor_read(from, bytes[0], n), BELAY_OK);
            assert_int_equal(belay_tensor_read(to, bytes[1], n), BELAY_OK);
            assert_memory_equal(bytes[0], bytes[1], sizeof bytes[0]);
            assert_true(bytes[0][n - 1] != 0 || k == 2);
        }
        assert_true(belay_tensor_item(belay_module_buffer(read, 2)) == 1);
        belay_close(context);
    }
    unlink(path);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_that_faulted_leaves_nothing_in_the_running_statistics),
        cmocka_unit_test(a_run_that_was_resumed_has_the_running_statistics_of_one_that_was_not),
        cmocka_unit_test(a_file_of_a_module_holds_them_in_every_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
