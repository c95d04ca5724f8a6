/* SPDX-License-Identifier: Apache-2.0 */
/* Training, evaluation, prediction and checkpoints of a model on one device while another is the current one. */
#include "train/train_support.h"

static void open_told(told *t, belay_options options, belay_context **out)
{
    memset(t, 0, sizeof *t);
    options.seed = 7;
    options.no_journal = true;
    options.log = hear;
    options.log_state = t;
    *out = belay_open(&options);
    assert_true(belay_is_open(*out));
}

static belay_module *model_on(belay_context *context, const char *device, bool is_mean)
{
    belay_module *model = small_model(context, is_mean);
    assert_int_equal(belay_module_to(model, device), BELAY_OK);
    return model;
}

/* What a run on a device comes to; every buffer is on the heap. */
typedef struct outcome {
    float *weights;
    int64_t n_weights;
    belay_train_result result;
    belay_evaluation evaluation;
    belay_prediction prediction[3];
} outcome;

static const int64_t asked[3 * SEQ] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 1, 19, 0, 0, 0, 0, 0};

static outcome run_on(const char *current, const char *device, bool is_mean, const belay_train_options *more)
{
    static told t;
    outcome o;
    belay_context *context;
    samples data = {.seed = 11, .plant = {.sample = -1}}, valid = {.seed = 12, .plant = {.sample = -1}};
    open_told(&t, (belay_options){.device = current}, &context);
    belay_module *model = model_on(context, device, is_mean);
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02, .clip = 1});
    belay_dataset *set = open_samples(context, &data, 70);
    belay_train_options options = more != NULL ? *more : (belay_train_options){.epochs = 2};
    options.batch = BATCH;
    options.accumulate = 3;
    options.valid = open_samples(context, &valid, 20);
    options.description = small_description(is_mean);
    assert_int_equal(belay_train(model, adam, set, &options, &o.result), BELAY_OK);
    assert_int_equal(belay_evaluate(model, options.valid, 8, &o.evaluation), BELAY_OK);
    assert_int_equal(belay_predict(model, asked, 3, SEQ, o.prediction), BELAY_OK);
    assert_string_equal(belay_device_get(context), current);
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++)
        assert_string_equal(belay_tensor_device(belay_module_parameter(model, i)), device);
    o.weights = read_weights(model, &o.n_weights);
    assert_string_equal(t.text, "");
    assert_int_equal(belay_close(context), 0);
    return o;
}

static void end_outcome(outcome *o)
{
    free(o->weights);
    belay_evaluation_fini(&o->evaluation);
}

static void expect_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->n_weights, b->n_weights);
    assert_memory_equal(a->weights, b->weights, (size_t)a->n_weights * sizeof *a->weights);
    assert_true(a->evaluation.loss == b->evaluation.loss && a->evaluation.accuracy == b->evaluation.accuracy);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a->prediction[i].class_id, b->prediction[i].class_id);
        assert_true(a->prediction[i].probability == b->prediction[i].probability);
    }
}

static void a_model_on_another_device_than_the_current_one_trains_as_on_the_cpu(void **state)
{
    (void)state;
    for (int is_mean = 0; is_mean < 2; is_mean++) {
        outcome cpu = run_on("cpu", "cpu", is_mean, NULL), sim = run_on("sim:0", "sim:1", is_mean, NULL);
        expect_same(&cpu, &sim);
        end_outcome(&cpu);
        end_outcome(&sim);
    }
}

static void a_run_resumes_on_another_device_as_if_it_had_not_stopped(void **state)
{
    (void)state;
    char folder[512];
    make_folder(folder);
    outcome whole = run_on("cpu", "cpu", false, &(belay_train_options){.epochs = 3});
    outcome first = run_on("sim:0", "sim:1", false, &(belay_train_options){.epochs = 1, .out = folder});
    outcome rest = run_on("sim:1", "sim:0", false, &(belay_train_options){.epochs = 3, .out = folder, .resume = true});
    assert_int_equal(first.result.n_epochs, 1);
    expect_same(&whole, &rest);
    end_outcome(&whole);
    end_outcome(&first);
    end_outcome(&rest);
    remove_folder(folder);
}

static void a_checkpoint_goes_from_device_to_device(void **state)
{
    (void)state;
    static told t;
    char folder[512], path[600];
    belay_context *context;
    int64_t n[2];
    make_folder(folder);
    *strrchr(folder, '/') = '\0';
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    open_told(&t, (belay_options){.device = "sim:0"}, &context);
    belay_module *from = model_on(context, "sim:1", false), *to = model_on(context, "cpu", false);
    assert_int_equal(belay_checkpoint_save(from, path, NULL, 0), BELAY_OK);
    assert_int_equal(belay_checkpoint_load(to, path), BELAY_OK);
    float *a = read_weights(from, &n[0]), *b = read_weights(to, &n[1]);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(a, b, (size_t)n[0] * sizeof *a);
    free(b);
    assert_int_equal(belay_module_to(to, "sim:1"), BELAY_OK);
    belay_module *other = small_model(context, false);
    assert_int_equal(belay_checkpoint_save(to, path, NULL, 0), BELAY_OK);
    assert_int_equal(belay_checkpoint_load(other, path), BELAY_OK);
    assert_string_equal(belay_tensor_device(belay_module_parameter(other, 0)), "sim:0");
    b = read_weights(other, &n[1]);
    assert_memory_equal(a, b, (size_t)n[0] * sizeof *a);
    free(a);
    free(b);
    assert_string_equal(t.text, "");
    assert_int_equal(belay_close(context), 0);
    empty_folder(folder);
}

/* ---- faults that come late --------------------------------------------------------------------------------------------- */

/* Everything that a device tells of a bad sample in an evaluation, a bad row in a prediction, and ids that were bad
 * before either. */
typedef struct late {
    belay_evaluation evaluation;
    belay_prediction prediction[2];
    char text[8192];
    int64_t n_trained, n_skipped;
} late;

static late find_late(const char *device)
{
    static told t;
    late l = {0};
    belay_context *context;
    samples data = {.seed = 11, .plant = {.sample = -1}},
            valid = {.seed = 12, .plant = {.sample = 10, .column = 2, .value = VOCABULARY + 3}};
    int64_t rows[2 * SEQ] = {1, 2, 3, 4, 5, 6, 7, 8, 9, VOCABULARY, 1, 1};
    open_told(&t, (belay_options){.device = device}, &context);
    belay_module *model = small_model(context, false);
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02});
    belay_tensor table = belay_tensor_name_set(belay_ones(context, BELAY_F32, belay_shape2(2, 2)), "table");
    belay_tensor bad = belay_tensor_from(context, BELAY_I64, belay_shape1(1), &(int64_t){7}, sizeof(int64_t));
    belay_tensor_name_set(bad, "bad");
    belay_site_push(context, "before");
    (void)belay_embedding(table, bad, NULL);
    belay_site_pop(context);
    belay_train_result result;
    belay_train_options options = {.epochs = 1, .batch = BATCH, .description = small_description(false)};
    assert_int_equal(belay_train(model, adam, open_samples(context, &data, 16), &options, &result), BELAY_OK);
    l.n_trained = result.n_steps;
    l.n_skipped = result.n_skipped;
    belay_site_push(context, "before");
    (void)belay_embedding(table, bad, NULL);
    belay_site_pop(context);
    belay_site_push(context, "evaluation");
    assert_int_equal(belay_evaluate(model, open_samples(context, &valid, 20), 8, &l.evaluation), BELAY_OK);
    belay_site_pop(context);
    belay_site_push(context, "before");
    (void)belay_embedding(table, bad, NULL);
    belay_site_pop(context);
    belay_site_push(context, "prediction");
    assert_int_equal(belay_predict(model, rows, 2, SEQ, l.prediction), BELAY_OK);
    belay_site_pop(context);
    memcpy(l.text, t.text, sizeof l.text - 1);
    belay_close(context);
    return l;
}

/* Without the lines and words by which an asynchronous device tells more. */
static void strip(char *text, const char *device)
{
    char *to = text;
    for (char *from = text; *from != '\0';) {
        size_t n = strcspn(from, "\n") + 1;
        char *launch = strstr(from, ", launch ");
        bool is_extra = strncmp(from, "    surfaced at: ", 17) == 0;
        size_t keep = launch != NULL && launch < from + n ? (size_t)(launch - from) : n - 1;
        if (!is_extra) {
            memmove(to, from, keep);
            to += keep;
            if (keep > strlen(device) && memcmp(to - strlen(device), device, strlen(device)) == 0)
                to -= strlen(device);
            *to++ = '\n';
        }
        from += n;
    }
    *to = '\0';
}

static void a_fault_that_comes_with_the_values_is_told_of_its_batch_and_row(void **state)
{
    (void)state;
    late cpu = find_late("cpu"), sim = find_late("sim:1");
    assert_int_equal(cpu.evaluation.n_faulted_batches, 1);
    assert_int_equal(sim.evaluation.n_faulted_batches, 1);
    assert_int_equal(sim.evaluation.n_samples, 12);
    assert_true(sim.evaluation.loss == cpu.evaluation.loss);
    assert_int_equal(sim.prediction[0].class_id, cpu.prediction[0].class_id);
    assert_int_equal(sim.prediction[1].class_id, -1);
    assert_int_equal(sim.prediction[1].code, BELAY_INDEX_RANGE);
    assert_int_equal(sim.n_trained, cpu.n_trained);
    assert_int_equal(sim.n_skipped, 0);
    assert_int_equal(cpu.n_skipped, 0);
    strip(cpu.text, "cpu");
    strip(sim.text, "sim:1");
    assert_words_equal(sim.text, cpu.text);
    belay_evaluation_fini(&cpu.evaluation);
    belay_evaluation_fini(&sim.evaluation);
}

/* ---- batches of a loop of one's own ---------------------------------------------------------------------------------- */

static void a_batch_on_another_device_than_its_model_is_refused_with_what_to_do(void **state)
{
    (void)state;
    static told t;
    belay_context *context;
    samples data = {.seed = 11, .plant = {.sample = -1}};
    belay_batch batch;
    char text[2048];
    open_told(&t, (belay_options){.device = "sim:0"}, &context);
    belay_module *model = model_on(context, "sim:1", true);
    belay_loader *batches = belay_loader_new(open_samples(context, &data, 20), &(belay_loader_options){.batch = BATCH});
    assert_true(belay_loader_next(batches, &batch));
    assert_string_equal(belay_tensor_device(batch.tokens), "sim:0");
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_forward(model, batch.tokens)));
    snprintf(text, sizeof text,
             "belay: embedding: embedding.weight lies on sim:1, tokens on sim:0 (place.device)\n"
             "    op: embedding in layer classifier.embedding, called at test_place.c:%d\n"
             "    tensors: embedding.weight [20, 5] f32 on sim:1; tokens [8, 6] i64 on sim:0\n"
             "    tokens is a loader's, which makes batches on the current device\n"
             "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
             "    try: Make sim:1 current by belay_device_set before the loader's next batch, or move the batch by "
             "belay_tensor_to.\n",
             line);
    assert_words_equal(t.text, text);
    t.text[0] = '\0';
    belay_tensor logits = belay_forward(model, belay_tensor_to(batch.tokens, "sim:1"));
    assert_string_equal(t.text, "");
    line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_cross_entropy(belay_tensor_name_set(logits, "logits"), batch.labels, NULL)));
    snprintf(text, sizeof text,
             "belay: cross_entropy: logits lies on sim:1, labels on sim:0 (place.device)\n"
             "    op: cross_entropy, called at test_place.c:%d\n"
             "    tensors: logits [8, 3] f32 on sim:1; labels [8] i64 on sim:0\n"
             "    labels is a loader's, which makes batches on the current device\n"
             "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
             "    try: Make sim:1 current by belay_device_set before the loader's next batch, or move the batch by "
             "belay_tensor_to.\n",
             line);
    assert_words_equal(t.text, text);
    t.text[0] = '\0';
    assert_int_equal(belay_device_set(context, "sim:1"), BELAY_OK);
    assert_true(belay_loader_next(batches, &batch));
    belay_tensor loss = belay_cross_entropy(belay_forward(model, batch.tokens), batch.labels, NULL);
    assert_true(isfinite(belay_tensor_item(loss)));
    assert_string_equal(t.text, "");
    belay_close(context);
}

static void place_move_lets_a_loop_of_one_s_own_go_on(void **state)
{
    (void)state;
    static told t;
    float *weights[2];
    int64_t n[2];
    for (int k = 0; k < 2; k++) {
        belay_context *context;
        samples data = {.seed = 11, .plant = {.sample = -1}};
        belay_batch batch;
        open_told(&t, (belay_options){.device = "sim:0", .place = k == 0 ? BELAY_PLACE_STRICT : BELAY_PLACE_MOVE},
                  &context);
        belay_module *model = model_on(context, "sim:1", false);
        belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02});
        belay_loader *batches =
            belay_loader_new(open_samples(context, &data, 20), &(belay_loader_options){.batch = BATCH});
        if (k == 0)
            assert_int_equal(belay_device_set(context, "sim:1"), BELAY_OK);
        while (belay_loader_next(batches, &batch)) {
            belay_scope step = belay_scope_open(context);
            belay_backward(belay_cross_entropy(belay_forward(model, batch.tokens), batch.labels, NULL));
            belay_optimizer_step(adam);
            assert_true(belay_optimizer_is_applied(adam));
            belay_scope_close(step);
        }
        assert_int_equal(belay_n_moved(context), k == 0 ? 0 : 6);
        assert_int_equal(t.n_of[BELAY_PLACE_MOVED], k == 0 ? 0 : 2);
        assert_int_equal(t.n, k == 0 ? 0 : 2);
        weights[k] = read_weights(model, &n[k]);
        assert_int_equal(belay_close(context), 0);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(weights[0], weights[1], (size_t)n[0] * sizeof(float));
    free(weights[0]);
    free(weights[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_that_comes_with_the_values_is_told_of_its_batch_and_row),
        cmocka_unit_test(a_model_on_another_device_than_the_current_one_trains_as_on_the_cpu),
        cmocka_unit_test(a_run_resumes_on_another_device_as_if_it_had_not_stopped),
        cmocka_unit_test(a_checkpoint_goes_from_device_to_device),
        cmocka_unit_test(a_batch_on_another_device_than_its_model_is_refused_with_what_to_do),
        cmocka_unit_test(place_move_lets_a_loop_of_one_s_own_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
