/* SPDX-License-Identifier: Apache-2.0 */
/* A batch that faults is named, and the run goes on as if it did not exist. */
#include "train/train_support.h"

/* 10 batches an epoch: windows of batches 0-3, 4-7 and the tail 8, 9. */
enum { SAMPLES = 78, ROW = 3, COLUMN = 2 };

static trial ten_batches(void)
{
    trial t = new_trial();
    t.n_samples = SAMPLES;
    t.options.accumulate = 4;
    return t;
}

/* The same run in which these batches do not exist. */
static void run_without(trial *t, int64_t position, int n_epochs)
{
    const belay_batch_place places[] = {{0, position}, {1, position}};
    t->options.skip = places;
    t->options.n_skip = n_epochs;
    run_trial(t);
    assert_int_equal(t->code, BELAY_OK);
    assert_int_equal(t->result.n_faults, 0);
}

static trial plant_at(int64_t position, int64_t column, int64_t value)
{
    trial t = ten_batches();
    t.samples.plant = (plant){.sample = position * BATCH + ROW, .column = column, .value = value};
    return t;
}

/* ---- the matrix --------------------------------------------------------------------------------------------------- */

static const struct {
    int64_t column, value;
    const char *headline, *values, *likely, *advice;
} bad[] = {
    {COLUMN, VOCABULARY, "tokens[3, 2] is 20, outside [0, 20) of embedding.weight (index.range)", "20",
     "the value equals the bound: off by one, or a padding or special id that the table was not grown for",
     "Count ids from 0; a padding or special token needs a row of its own: make the table one row larger."},
    {COLUMN, -1, "tokens[3, 2] is -1, outside [0, 20) of embedding.weight (index.range)", "-1",
     "-1 is a usual mark of a missing entry; or a count that went one below 0",
     "Give missing entries a row of their own; negative ids do not count from the end here."},
    {COLUMN, INT64_C(1) << 40, "tokens[3, 2] is 1099511627776, outside [0, 20) of embedding.weight (index.range)",
     "1099511627776", "far beyond any size: memory that was never filled, or the bits or the cast of a float",
     "Check that the tensor was filled, and with values of its dtype."},
    {-1, CLASSES, "labels[3] is 3, outside [0, 3) (index.label)", "3",
     "the value equals the number of classes: labels counted from 1, or a class that the model was not given",
     "Subtract 1 from labels that count from 1; else give the model one more output."},
    {-1, -1, "labels[3] is -1, outside [0, 3) (index.label)", "-1", "-1 is a usual mark of a sample without a label",
     "If it means none, set has_ignore and ignore = -1 in the options of the loss, or leave such samples out."},
};
enum { N_BAD = (int)(sizeof bad / sizeof bad[0]) };

static int64_t rows_of(int64_t position) { return position == 9 ? SAMPLES - 9 * BATCH : BATCH; }

/* The whole paragraph of one epoch's fault. */
static void expect_paragraph(char *out, size_t size, int kind, int64_t position, int epoch, int n_steps)
{
    bool is_label = bad[kind].column < 0;
    char site[64], tensors[128];
    long long n = rows_of(position);
    snprintf(site, sizeof site, "train_support.h:%d", run_trial_line);
    if (is_label)
        snprintf(tensors, sizeof tensors, "logits [%lld, 3] f32; labels [%lld] i64; on cpu", n, n);
    else
        snprintf(tensors, sizeof tensors, "embedding.weight [20, 5] f32; tokens [%lld, 6] i64; on cpu", n);
    snprintf(out, size,
             "belay: %s\n"
             "    op: %s, called at %s\n"
             "    tensors: %s\n"
             "    bad: 1 of %lld elements; values %s\n"
             "    sample: samples.tsv:%lld (row 3 of the batch)\n"
             "    when: epoch %d, batch %lld (micro-batch %lld of its window), step %d, rank 0\n"
             "    likely: %s\n"
             "    try: %s\n",
             bad[kind].headline, is_label ? "cross_entropy" : "embedding in layer classifier.embedding", site, tensors,
             is_label ? n : n * SEQ, bad[kind].values, (long long)(position * BATCH + ROW + 2), epoch,
             (long long)position, (long long)(position % 4), epoch * 3 + n_steps, bad[kind].likely, bad[kind].advice);
}

static void check_planted(int kind, int64_t position, int threads, const trial *without)
{
    char expected[4096];
    told heard_words = {0};
    trial t = plant_at(position, bad[kind].column, bad[kind].value);
    t.told = &heard_words;
    t.threads = threads;
    t.options.workers = threads > 1 ? threads : 0;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(t.result.status, 0);
    assert_int_equal(t.closed, 0);
    assert_int_equal(t.result.n_faults, 2);
    assert_int_equal(t.result.n_skipped, 2);
    expect_paragraph(expected, sizeof expected / 2, kind, position, 0, (int)(position / 4));
    expect_paragraph(expected + strlen(expected), sizeof expected / 2, kind, position, 1, (int)(position / 4));
    assert_words_equal(heard_words.text, expected);
    assert_same_weights(&t, without);
    assert_true(t.result.last_loss == without->result.last_loss);
    assert_true(t.result.train_loss == without->result.train_loss);
    end_trial(&t);
}

static void a_bad_value_is_named_whole_and_the_weights_are_those_without_its_batch(void **state)
{
    (void)state;
    static const int64_t positions[] = {4, 5, 7, 8, 9}; /* first, middle, last of a window; both of the tail */
    for (size_t p = 0; p < sizeof positions / sizeof positions[0]; p++)
        for (int threads = 1; threads <= 2; threads++) {
            trial without = ten_batches();
            without.threads = threads;
            run_without(&without, positions[p], 2);
            for (int kind = 0; kind < N_BAD; kind++)
                check_planted(kind, positions[p], threads, &without);
            end_trial(&without);
        }
}

/* The comparison above can fail: the batch does matter. */
static void leaving_a_batch_out_changes_the_weights(void **state)
{
    (void)state;
    trial whole = ten_batches(), without = ten_batches();
    run_trial(&whole);
    run_without(&without, 5, 2);
    assert_false(have_same_weights(&whole, &without));
    end_trial(&whole);
    end_trial(&without);
}

static void a_window_in_which_every_batch_faults_is_no_step(void **state)
{
    (void)state;
    trial t = plant_at(9, COLUMN, VOCABULARY), without = ten_batches();
    const belay_batch_place eight[] = {{0, 8}, {1, 8}}, both[] = {{0, 8}, {0, 9}, {1, 8}, {1, 9}};
    t.options.skip = eight;
    t.options.n_skip = 2;
    run_trial(&t);
    without.options.skip = both;
    without.options.n_skip = 4;
    run_trial(&without);
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(t.closed, 0);
    assert_int_equal(t.result.n_steps, 4);
    assert_same_weights(&t, &without);
    end_trial(&t);
    end_trial(&without);
}

static void a_sample_that_its_dataset_refuses_takes_its_batch_out(void **state)
{
    (void)state;
    told heard_words = {0};
    trial t = plant_at(5, 0, 0), without = ten_batches();
    t.samples.plant.refuses = true;
    t.told = &heard_words;
    run_trial(&t);
    run_without(&without, 5, 2);
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(heard_words.n, 2);
    assert_int_equal(heard_words.n_of[BELAY_DATA_WORKER], 2);
    assert_non_null(strstr(heard_words.text, "the page is torn"));
    assert_same_weights(&t, &without);
    end_trial(&t);
    end_trial(&without);
}

static void a_batch_that_is_to_be_left_out_faults_no_step(void **state)
{
    (void)state;
    trial t = plant_at(5, COLUMN, -1), without = ten_batches();
    run_without(&t, 5, 2);
    run_without(&without, 5, 2);
    assert_same_weights(&t, &without);
    end_trial(&t);
    end_trial(&without);
}

/* ---- policies ----------------------------------------------------------------------------------------------------- */

static void redo_takes_a_transient_fault_for_nothing(void **state)
{
    (void)state;
    trial t = plant_at(5, COLUMN, VOCABULARY), whole = ten_batches();
    t.samples.plant.when = 1; /* the first get only */
    t.options.on_fault = BELAY_ON_FAULT_REDO;
    run_trial(&t);
    run_trial(&whole);
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(t.result.n_faults, 1);
    assert_int_equal(t.result.n_transient, 1);
    assert_int_equal(t.result.n_skipped, 0);
    assert_same_weights(&t, &whole);
    end_trial(&t);
    end_trial(&whole);
}

static void redo_skips_what_faults_again(void **state)
{
    (void)state;
    static const uint64_t when[] = {3, 5}; /* faulted twice; clean when redone, and faulted in the second pass */
    trial without = ten_batches();
    run_without(&without, 5, 1);
    for (int i = 0; i < 2; i++) {
        trial t = plant_at(5, COLUMN, VOCABULARY);
        t.samples.plant.when = when[i];
        t.options.on_fault = BELAY_ON_FAULT_REDO;
        run_trial(&t);
        assert_int_equal(t.code, BELAY_OK);
        assert_int_equal(t.result.n_faults, 1);
        assert_int_equal(t.result.n_transient, 0);
        assert_int_equal(t.result.n_skipped, 1);
        assert_same_weights(&t, &without);
        end_trial(&t);
    }
    end_trial(&without);
}

static void stop_ends_the_run_before_the_step_and_it_can_be_gone_on_with(void **state)
{
    (void)state;
    char path[512];
    told heard_words = {0};
    const belay_batch_place places[] = {{0, 5}, {1, 5}};
    trial t = plant_at(5, COLUMN, VOCABULARY), without = ten_batches();
    t.told = &heard_words;
    t.options.on_fault = BELAY_ON_FAULT_STOP;
    t.options.out = make_folder(path);
    run_trial(&t);
    assert_int_equal(t.code, BELAY_RUN_STOPPED);
    assert_int_equal(t.result.status, 3);
    assert_int_equal(t.closed, 3);
    assert_int_equal(t.result.n_steps, 1);
    assert_int_equal(t.result.n_faults, 1);
    assert_non_null(strstr(heard_words.text, "belay: the run stopped at epoch 0, batch 5 (run.stopped)\n"));
    end_trial(&t);
    t.options.resume = true;
    t.options.skip = places;
    t.options.n_skip = 2;
    run_trial(&t);
    run_without(&without, 5, 2);
    assert_int_equal(t.code, BELAY_OK);
    assert_same_weights(&t, &without);
    remove_folder(path);
    end_trial(&t);
    end_trial(&without);
}

static void more_faults_than_allowed_end_the_run(void **state)
{
    (void)state;
    told heard_words = {0};
    trial t = plant_at(5, COLUMN, VOCABULARY);
    t.told = &heard_words;
    t.options.max_faults = 1;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_RUN_MAX_FAULTS);
    assert_int_equal(t.result.status, 3);
    assert_int_equal(t.result.n_faults, 2);
    assert_non_null(
        strstr(heard_words.text, "belay: 2 micro-batches faulted, the most allowed is 1 (run.max_faults)\n"));
    end_trial(&t);
    t.options.max_faults = -1;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_RUN_MAX_FAULTS);
    assert_int_equal(t.result.n_faults, 1);
    end_trial(&t);
}

static void a_fault_in_validation_gates_nothing(void **state)
{
    (void)state;
    char path[512];
    trial t = ten_batches(), whole = ten_batches();
    t.valid.plant = (plant){.sample = 1, .column = 0, .value = VOCABULARY};
    t.options.out = make_folder(path);
    run_trial(&t);
    run_trial(&whole);
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(t.closed, 0);
    assert_int_equal(t.result.n_faults, 0);
    assert_same_weights(&t, &whole);
    char *faults = read_file_in(path, "faults.jsonl", NULL);
    assert_non_null(strstr(faults, "\"policy\":\"left out\""));
    free(faults);
    remove_folder(path);
    end_trial(&t);
    end_trial(&whole);
}

/* ---- index policies ----------------------------------------------------------------------------------------------- */

static void clamp_and_zero_count_and_warn_once_and_labels_still_raise(void **state)
{
    (void)state;
    static const belay_index_policy policies[] = {BELAY_INDEX_CLAMP, BELAY_INDEX_ZERO};
    static const belay_code codes[] = {BELAY_INDEX_CLAMPED, BELAY_INDEX_ZEROED};
    for (int i = 0; i < 2; i++) {
        told heard_words = {0};
        trial t = plant_at(5, COLUMN, VOCABULARY), label = plant_at(5, -1, CLASSES), without = ten_batches();
        t.policy = label.policy = without.policy = policies[i];
        t.told = &heard_words;
        run_trial(&t);
        assert_int_equal(t.code, BELAY_OK);
        assert_int_equal(t.result.n_faults, 0);
        assert_int_equal(t.result.n_corrected, 2);
        assert_int_equal(heard_words.n, 1);
        assert_int_equal(heard_words.n_of[codes[i]], 1);
        run_trial(&label);
        run_without(&without, 5, 2);
        assert_int_equal(label.result.n_skipped, 2);
        assert_same_weights(&label, &without);
        end_trial(&t);
        end_trial(&label);
        end_trial(&without);
    }
}

/* ---- the record --------------------------------------------------------------------------------------------------- */

static void a_fault_is_recorded_with_ranges_samples_and_policy(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "{\"code\":\"index.range\",\"what\":\"tokens[3, 2] is 20, outside [0, 20) of embedding.weight\",",
        "\"op\":\"embedding\",\"layer\":\"classifier.embedding\"",
        "\"sample\":\"samples.tsv:45\"",
        "\"tensor\":\"tokens\",\"at\":[3,2],\"got\":20,\"limit\":20,\"count\":1",
        "\"epoch\":0,\"batch\":5,\"micro_batch\":1,\"step\":1,\"rank\":0",
        "\"policy\":\"skipped\"",
        "\"inputs\":{\"name\":\"tokens\",\"shape\":[8,6],\"dtype\":\"i64\",\"device\":\"cpu\",\"min\":0,\"max\":20}",
        "\"labels\":{\"name\":\"labels\",\"shape\":[8],\"dtype\":\"i64\",\"device\":\"cpu\",\"min\":0,\"max\":1}",
        "\"samples\":[\"samples.tsv:42\",\"samples.tsv:43\"",
    };
    char path[512];
    trial t = plant_at(5, COLUMN, VOCABULARY);
    t.options.out = make_folder(path);
    run_trial(&t);
    char *faults = read_file_in(path, "faults.jsonl", NULL), *report = read_file_in(path, "report.html", NULL);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(faults, parts[i]) == NULL)
            fail_msg("faults.jsonl lacks %s:\n%s", parts[i], faults);
    assert_non_null(strstr(report, "belay: tokens[3, 2] is 20, outside [0, 20) of embedding.weight (index.range)\n"
                                   "    op: embedding in layer classifier.embedding"));
    assert_non_null(strstr(report, "    inputs: 0 .. 20\n    labels: 0 .. 1\n    taken: skipped\n"));
    free(faults);
    free(report);
    remove_folder(path);
    end_trial(&t);
}

/* A model of the user's that forgets its result. */
static belay_tensor give_nothing(belay_module *module, belay_tensor x)
{
    (void)module, (void)x;
    return (belay_tensor){0};
}

static void a_forward_that_gives_nothing_is_a_fault_and_no_silent_step(void **state)
{
    (void)state;
    static const belay_module_kind kind = {.name = "empty", .forward = give_nothing};
    told heard = {.n = 0};
    samples s = new_trial().samples;
    belay_context *context = belay_open(&(belay_options){.log = hear, .log_state = &heard, .no_journal = true});
    belay_module *model = belay_module_new(context, &kind);
    belay_module_add_parameter(model, "weight", BELAY_F32, belay_shape1(3), (belay_init){.kind = BELAY_INIT_ZEROS});
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.1});
    belay_train_result result = {0};
    belay_code code = belay_train(model, sgd, open_samples(context, &s, BATCH),
                                  &(belay_train_options){.epochs = 1, .batch = BATCH, .accumulate = 1}, &result);
    assert_int_equal(code, BELAY_OK);
    assert_int_equal(result.n_steps, 0);
    assert_int_equal(result.n_skipped, 1);
    assert_non_null(strstr(heard.text, "belay: the model's forward gave no tensor and no fault (conf.value)\n"));
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_value_is_named_whole_and_the_weights_are_those_without_its_batch),
        cmocka_unit_test(leaving_a_batch_out_changes_the_weights),
        cmocka_unit_test(a_window_in_which_every_batch_faults_is_no_step),
        cmocka_unit_test(a_sample_that_its_dataset_refuses_takes_its_batch_out),
        cmocka_unit_test(a_batch_that_is_to_be_left_out_faults_no_step),
        cmocka_unit_test(redo_takes_a_transient_fault_for_nothing),
        cmocka_unit_test(redo_skips_what_faults_again),
        cmocka_unit_test(stop_ends_the_run_before_the_step_and_it_can_be_gone_on_with),
        cmocka_unit_test(more_faults_than_allowed_end_the_run),
        cmocka_unit_test(a_fault_in_validation_gates_nothing),
        cmocka_unit_test(clamp_and_zero_count_and_warn_once_and_labels_still_raise),
        cmocka_unit_test(a_fault_is_recorded_with_ranges_samples_and_policy),
        cmocka_unit_test(a_forward_that_gives_nothing_is_a_fault_and_no_silent_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
