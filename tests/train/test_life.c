/* SPDX-License-Identifier: Apache-2.0 */
/* What a run or a training works with is not freed under its hands, and memory that ends in a worker ends the run. */
#include "train/train_support.h"

static const char *const texts[] = {"ab", "ba", "ab", "bb"}, *const names[] = {"x", "y", "x", "y"};

static const char when[] = "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n";

static belay_context *open_told(told *t)
{
    return belay_open(&(belay_options){.seed = 7, .threads = 1, .log = hear, .log_state = t, .no_journal = true});
}

/* A run of four texts in `folder`, its words and labels with it. */
static void make_run(const char *folder)
{
    told t = {0};
    belay_context *context = open_told(&t);
    belay_dataset *data = belay_dataset_texts(context, texts, names, 4, &(belay_text_options){.seq = 3});
    belay_module *model = belay_text_classifier(
        context,
        &(belay_text_classifier_options){
            .model = BELAY_TEXT_MEAN, .n_tokens = belay_dataset_n_tokens(data), .classes = 2, .embed = 3, .hidden = 4});
    belay_train_options options = {.epochs = 1,
                                   .out = folder,
                                   .description = "{\"model\":\"mean\",\"n_tokens\":4,\"classes\":2,\"seq\":3,"
                                                  "\"embed\":3,\"hidden\":4,\"dropout\":0,\"mean_all\":false}"};
    if (belay_train(model, belay_adam(model, &(belay_adam_options){.lr = 0.1}), data, &options, NULL) != BELAY_OK)
        fail_msg("%s", t.text);
    assert_int_equal(belay_close(context), 0);
}

static void expect(told *t, const char *what, belay_code code, int line, const char *advice)
{
    char expected[4096];
    snprintf(expected, sizeof expected, "belay: %s (%s)\n    called at: test_life.c:%d\n%s    try: %s\n", what,
             belay_code_name(code), line, when, advice);
    assert_words_equal(t->text, expected);
    t->text[0] = '\0';
}

static void expect_well(belay_run *run)
{
    belay_prediction p[2];
    assert_int_equal(belay_run_predict(run, texts, 2, p), BELAY_OK);
    assert_true(p[0].class_id >= 0 && p[1].class_id >= 0);
    assert_string_equal(belay_run_label(run, 1), "y");
}

static void what_belongs_to_a_run_is_freed_by_the_run_only(void **state)
{
    (void)state;
    char folder[512], what[1024];
    told t = {0};
    make_run(make_folder(folder));
    belay_context *context = open_told(&t);
    belay_run *run = belay_run_open(context, folder);
    belay_module *model = belay_run_model(run), *other = belay_sequential_module(context);
    int line = __LINE__ + 1;
    belay_module_free(model);
    snprintf(what, sizeof what, "module classifier was freed, but it belongs to the run '%s'", belay_run_path(run));
    expect(&t, what, BELAY_CONF_VALUE, line, "Close that: the module goes with it.");
    line = __LINE__ + 1;
    belay_module_add_child(other, "part", model);
    snprintf(what, sizeof what, "module classifier cannot become part of module sequential: it belongs to the run '%s'",
             belay_run_path(run));
    expect(&t, what, BELAY_CONF_VALUE, line, belay_code_advice(BELAY_CONF_VALUE));
    belay_tokenizer_free(belay_run_tokenizer(run)); /* the run still holds on to both */
    belay_labels_free(belay_run_labels(run));
    expect_well(run);
    belay_run_close(run);
    assert_true(belay_module_is_nil(model));
    belay_run *second = belay_run_open(context, folder); /* its context closes it */
    belay_tokenizer_free(belay_run_tokenizer(second));
    expect_well(second);
    assert_string_equal(t.text, "");
    assert_int_equal(belay_close(context), 2);
    remove_folder(folder);
}

static belay_run *closed_by_log;
static void close_run(void *state, belay_code code, const char *text)
{
    hear(state, code, text);
    if (code == BELAY_DATA_TEXT)
        belay_run_close(closed_by_log);
}

static void a_run_closed_inside_of_its_prediction_stays(void **state)
{
    (void)state;
    char folder[512], expected[4096];
    const char *const bad[] = {"ab", "\377"};
    belay_prediction p[2];
    told t = {0};
    make_run(make_folder(folder));
    belay_context *context = belay_open(&(belay_options){.log = close_run, .log_state = &t, .no_journal = true});
    belay_run *run = closed_by_log = belay_run_open(context, folder);
    int line = __LINE__ + 1;
    assert_int_equal(belay_run_predict(run, bad, 2, p), BELAY_OK);
    assert_true(p[0].class_id >= 0);
    assert_int_equal(p[1].code, BELAY_DATA_TEXT);
    snprintf(expected, sizeof expected,
             "belay: byte 1 of the text is not UTF-8 (0xFF) (data.text)\n"
             "    called at: test_life.c:%d\n%s    try: %s\n"
             "belay: the run '%s' was closed while its model is at work (conf.order)\n"
             "    called at: test_life.c:%d\n%s    try: Close it after the call that works with its model has "
             "returned.\n",
             line, when, belay_code_advice(BELAY_DATA_TEXT), belay_run_path(run), line, when);
    assert_words_equal(t.text, expected);
    belay_run_close(run);
    belay_close(context);
    remove_folder(folder);
}

/* ---- training ----------------------------------------------------------------------------------------------------- */

typedef struct used {
    belay_module *model;
    belay_optimizer *optimizer;
} used;

static void free_all(void *state, const belay_progress *progress)
{
    const used *u = state;
    if (progress->kind != BELAY_PROGRESS_EPOCH)
        return;
    belay_context *context = belay_module_context(u->model);
    belay_module_free(u->model);
    belay_optimizer_free(u->optimizer);
    assert_int_equal(belay_close(context), belay_code_status(BELAY_CONF_ORDER));
}

static void what_a_training_uses_is_not_freed_inside_of_it(void **state)
{
    (void)state;
    told t = {0};
    samples s = {.seed = 11, .plant = {.sample = -1}};
    belay_context *context = open_told(&t);
    belay_module *model = small_model(context, true);
    used u = {model, belay_adam(model, &(belay_adam_options){.lr = 0.02})};
    belay_dataset *data = open_samples(context, &s, 16);
    belay_train_options options = {.epochs = 1, .batch = BATCH, .progress = free_all, .progress_state = &u};
    assert_int_equal(belay_train(model, u.optimizer, data, &options, NULL), BELAY_OK);
    assert_non_null(strstr(t.text, "belay: module classifier was freed while it is at work (conf.order)\n"));
    assert_non_null(strstr(t.text, "belay: an optimizer was freed inside of its own step, or of the training that uses "
                                   "it (conf.order)\n"));
    assert_non_null(strstr(t.text, "belay: a context was closed inside of a call that uses it (conf.order)\n"));
    assert_int_equal(t.n, 3);
    t.text[0] = '\0';
    belay_optimizer_free(u.optimizer); /* now they may */
    belay_module_free(model);
    assert_string_equal(t.text, "");
    belay_close(context);
}

static belay_code get_without_memory(void *state, int64_t index, belay_sample *sample)
{
    belay_code code = get_sample(state, index, sample);
    if (index != 13)
        return code;
    sample->why = "no memory to decode it";
    return BELAY_MEM_EXHAUSTED;
}

static void memory_that_ends_in_a_worker_ends_the_run(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers += 2) {
        told t = {0};
        samples s = {.seed = 11, .plant = {.sample = -1}};
        char expected[2048];
        belay_train_result result;
        belay_context *context = open_told(&t);
        belay_module *model = small_model(context, true);
        belay_dataset *data = belay_dataset_callback(context, 64, get_without_memory, &s,
                                                     &(belay_ids_options){.seq = SEQ, .n_classes = CLASSES});
        belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02});
        belay_train_options options = {.epochs = 3, .batch = BATCH, .no_shuffle = true, .workers = workers};
        int line = __LINE__ + 1;
        assert_int_equal(belay_train(model, adam, data, &options, &result), BELAY_MEM_EXHAUSTED);
        assert_int_equal(result.status, 4);
        assert_int_equal(result.n_steps, 1);
        assert_int_equal(result.n_skipped, 0);
        snprintf(expected, sizeof expected,
                 "belay: sample 13 cannot be had (mem.exhausted)\n"
                 "    called at: test_life.c:%d\n"
                 "    the dataset: no memory to decode it\n"
                 "    sample: samples.tsv:15 (row 5 of the batch)\n"
                 "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 1, rank 0\n"
                 "    try: %s\n",
                 line, belay_code_advice(BELAY_MEM_EXHAUSTED));
        assert_words_equal(t.text, expected);
        assert_int_equal(belay_close(context), 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_belongs_to_a_run_is_freed_by_the_run_only),
        cmocka_unit_test(a_run_closed_inside_of_its_prediction_stays),
        cmocka_unit_test(what_a_training_uses_is_not_freed_inside_of_it),
        cmocka_unit_test(memory_that_ends_in_a_worker_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
