/* SPDX-License-Identifier: Apache-2.0 */
/* A whole job from settings, and what can be done with the run that it leaves: evaluate, predict, refuse. */
#include "train/train_support.h"

#include "train/job.h"

static const char *const words[][2] = {{"sun", "sky"},    {"moon", "sky"},   {"star", "sky"},   {"cloud", "sky"},
                                       {"wind", "sky"},   {"rain", "sky"},   {"oak", "ground"}, {"elm", "ground"},
                                       {"fir", "ground"}, {"ash", "ground"}, {"yew", "ground"}, {"moss", "ground"}};
enum { N_WORDS = (int)(sizeof words / sizeof words[0]), REPEATS = 8 };

static char folder[512], data_path[600];

static void write_data(const char *name, const char *extra)
{
    snprintf(data_path, sizeof data_path, "%.400s", folder);
    snprintf(strrchr(data_path, '/'), 64, "/%s", name);
    FILE *file = fopen(data_path, "w");
    fputs("text\tlabel\n", file);
    for (int i = 0; i < N_WORDS * REPEATS; i++)
        fprintf(file, "%s\t%s\n", words[i % N_WORDS][0], words[i % N_WORDS][1]);
    fputs(extra, file);
    fclose(file);
}

static void set(bl_settings *settings, const char *name, const char *value)
{
    bl_error error = {0};
    if (bl_settings_set(settings, bl_setting_find(name), value, BL_SET_BY_CALLER, name, &error) != BELAY_OK)
        fail_msg("%s", error.what);
}

static void begin(void)
{
    make_folder(folder);
    write_data("words.tsv", "");
}

static void end(void)
{
    unlink(data_path);
    remove_folder(folder);
}

static const char *const small[][2] = {{"embed", "6"},      {"hidden", "8"},  {"lr", "0.02"},   {"epochs", "12"},
                                       {"accumulate", "1"}, {"batch", "8"},   {"workers", "0"}, {"threads", "1"},
                                       {"seq", "5"},        {"model", "mean"}};

static belay_code run_job(const char *const (*more)[2], int n_more, told *heard_words, belay_train_result *result,
                          bl_error *error)
{
    bl_settings settings;
    if (bl_settings_init(&settings, error) != BELAY_OK)
        abort();
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        set(&settings, small[i][0], small[i][1]);
    set(&settings, "data", data_path);
    set(&settings, "out", folder);
    for (int i = 0; i < n_more; i++)
        set(&settings, more[i][0], more[i][1]);
    bl_train_job_options options = {.log = hear, .log_state = heard_words};
    belay_code code = bl_train_job(&settings, &options, result, error);
    bl_settings_fini(&settings);
    return code;
}

static void run_well(const char *const (*more)[2], int n_more, belay_train_result *result)
{
    told heard_words = {0};
    bl_error error = {0};
    if (run_job(more, n_more, &heard_words, result, &error) != BELAY_OK)
        fail_msg("%s%s", error.what, heard_words.text);
    assert_int_equal(result->status, 0);
}

/* ---- a run that went well ----------------------------------------------------------------------------------------- */

static void a_job_leaves_a_run_that_evaluates_and_predicts(void **state)
{
    (void)state;
    const char *const texts[] = {"moon", "fir", "", "b\377d"};
    belay_train_result result;
    belay_evaluation e;
    belay_prediction p[4];
    told heard_words = {0};
    begin();
    run_well(NULL, 0, &result);
    assert_int_equal(result.n_epochs, 12);
    assert_true(is_there(folder, "journal"));
    belay_context *context =
        belay_open(&(belay_options){.log = hear, .log_state = &heard_words, .threads = 1, .no_journal = true});
    belay_run *run = belay_run_open(context, folder);
    assert_false(belay_run_is_nil(run));
    assert_int_equal(belay_run_seq(run), 5);
    assert_int_equal(belay_run_n_classes(run), 2);
    belay_text_options texts_as_trained = {0};
    belay_run_text_options(run, &texts_as_trained);
    belay_dataset *data = belay_dataset_open(context, data_path, &texts_as_trained);
    assert_int_equal(belay_evaluate(belay_run_model(run), data, 0, &e), BELAY_OK);
    assert_int_equal(e.n_samples, N_WORDS * REPEATS);
    assert_true(e.accuracy > 0.9);
    belay_class_figures f = belay_evaluation_class(&e, belay_labels_class(belay_run_labels(run), "sky"));
    assert_int_equal(f.n_samples, N_WORDS / 2 * REPEATS);
    assert_true(f.recall > 0.9 && f.precision > 0.9 && f.f1 > 0.9);
    assert_true(isnan(belay_evaluation_class(&e, 2).recall));
    belay_evaluation_fini(&e);
    assert_string_equal(heard_words.text, "");
    assert_int_equal(belay_run_predict(run, texts, 4, p), BELAY_OK);
    assert_string_equal(belay_run_label(run, p[0].class_id), "sky");
    assert_string_equal(belay_run_label(run, p[1].class_id), "ground");
    assert_true(p[0].probability > 0.5 && p[0].probability <= 1);
    assert_int_equal(p[2].code, BELAY_OK);
    assert_int_equal(p[3].code, BELAY_DATA_TEXT);
    assert_int_equal(p[3].class_id, -1);
    assert_null(belay_run_label(run, 2));
    belay_run_close(run);
    belay_close(context);
    end();
}

static void rows_with_bad_ids_are_refused_and_the_others_predicted(void **state)
{
    (void)state;
    int64_t ids[3 * SEQ] = {0};
    belay_prediction p[3];
    told heard_words = {0};
    ids[SEQ + 2] = VOCABULARY;
    belay_context *context =
        belay_open(&(belay_options){.log = hear, .log_state = &heard_words, .threads = 1, .no_journal = true});
    assert_int_equal(belay_predict(small_model(context, false), ids, 3, SEQ, p), BELAY_OK);
    int line = __LINE__ - 1;
    assert_int_equal(p[0].code, BELAY_OK);
    assert_int_equal(p[1].code, BELAY_INDEX_RANGE);
    assert_int_equal(p[2].code, BELAY_OK);
    assert_int_equal(p[0].class_id, p[2].class_id);
    char text[1024];
    snprintf(text, sizeof text,
             "belay: tokens[0, 2] is 20, outside [0, 20) of embedding.weight (index.range)\n"
             "    op: embedding in layer classifier.embedding, called at test_run.c:%d\n"
             "    tensors: embedding.weight [20, 5] f32; tokens [1, 6] i64; on cpu\n"
             "    bad: 1 of 6 elements; values 20\n"
             "    sample: row 1 of the ids (row 0 of the batch)\n"
             "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
             "    likely: the value equals the bound: off by one, or a padding or special id that the table was not "
             "grown for\n"
             "    try: Count ids from 0; a padding or special token needs a row of its own: make the table one row "
             "larger.\n",
             line);
    assert_words_equal(heard_words.text, text);
    assert_int_equal(belay_n_faults(context), 1);
    belay_close(context);
}

static void figures_and_predictions_without_room_are_refused(void **state)
{
    (void)state;
    int64_t ids[SEQ] = {0}, label = 0;
    belay_prediction p;
    belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
    belay_module *model = small_model(context, false);
    belay_dataset *data = belay_dataset_ids(context, ids, &label, 1, &(belay_ids_options){.seq = SEQ});
    belay_fault fault;
    assert_int_equal(belay_evaluate(model, data, 0, NULL), BELAY_CONF_MISSING);
    belay_evaluation_fini(NULL);
    assert_int_equal(belay_predict(model, ids, 1, SEQ, NULL), BELAY_CONF_MISSING);
    assert_int_equal(belay_predict(model, NULL, 1, SEQ, &p), BELAY_CONF_MISSING);
    assert_int_equal(belay_checkpoint_save(model, NULL, NULL, 0), BELAY_CONF_MISSING);
    assert_int_equal(belay_checkpoint_save(model, "unused", NULL, 1), BELAY_CONF_MISSING);
    assert_int_equal(belay_checkpoint_load(model, NULL), BELAY_CONF_MISSING);
    assert_true(belay_run_is_nil(belay_run_open(context, NULL)));
    static const char *const headlines[] = {
        "belay: an evaluation needs room for its figures (conf.missing)\n",
        "belay: a prediction of 1 rows needs room for what is predicted (conf.missing)\n",
        "belay: a prediction of 1 rows needs their ids (conf.missing)\n",
        "belay: a checkpoint needs the path of its file (conf.missing)\n",
        "belay: a checkpoint needs the metadata that were promised (conf.missing)\n",
        "belay: a checkpoint needs the path of its file (conf.missing)\n",
        "belay: a run needs the path of its folder (conf.missing)\n"};
    for (int i = 0; i < 7; i++) {
        assert_true(belay_fault_get(context, i, &fault));
        assert_memory_equal(fault.text, headlines[i], strlen(headlines[i]));
    }
    assert_int_equal(belay_n_faults(context), 7);
    assert_int_equal(belay_close(context), 2);
}

static void texts_that_are_not_there_are_refused(void **state)
{
    (void)state;
    belay_train_result result;
    belay_prediction p[2];
    const char *texts[] = {NULL, "a"};
    begin();
    run_well(NULL, 0, &result);
    belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
    belay_run *run = belay_run_open(context, folder);
    assert_int_equal(belay_run_predict(run, texts, 2, p), BELAY_OK);
    assert_int_equal(p[0].code, BELAY_CONF_VALUE);
    assert_int_equal(p[0].class_id, -1);
    assert_int_equal(p[1].code, BELAY_OK);
    assert_int_equal(belay_run_predict(run, NULL, 2, p), BELAY_CONF_MISSING);
    assert_int_equal(belay_run_predict(run, texts, 2, NULL), BELAY_CONF_MISSING);
    assert_int_equal(belay_run_predict(run, texts, -1, p), BELAY_CONF_VALUE);
    belay_close(context);
    end();
}

static void a_run_says_who_set_what(void **state)
{
    (void)state;
    belay_train_result result;
    begin();
    run_well(NULL, 0, &result);
    char *run = read_file_in(folder, "run.json", NULL);
    json_error_t unused;
    json_t *json = json_loads(run, 0, &unused), *settings = json_object_get(json, "settings");
    json_t *lr = json_object_get(settings, "lr"), *clip = json_object_get(settings, "clip");
    assert_true(json_real_value(json_object_get(lr, "value")) == 0.02);
    assert_string_equal(json_string_value(json_object_get(lr, "set_by")), "caller");
    assert_string_equal(json_string_value(json_object_get(clip, "set_by")), "default");
    json_decref(json);
    free(run);
    end();
}

static void a_job_goes_on_with_the_settings_of_its_run(void **state)
{
    (void)state;
    static const char *const more[][2] = {{"epochs", "3"}, {"valid-split", "0.2"}, {"schedule", "cosine"}};
    belay_train_result first, second;
    told heard_words = {0};
    bl_error error = {0};
    bl_settings settings;
    begin();
    run_well(more, 3, &first);
    assert_int_equal(bl_settings_init(&settings, &error), BELAY_OK);
    set(&settings, "out", folder);
    set(&settings, "resume", "on");
    bl_train_job_options options = {.log = hear, .log_state = &heard_words};
    if (bl_train_job(&settings, &options, &second, &error) != BELAY_OK)
        fail_msg("%s%s", error.what, heard_words.text);
    assert_int_equal(second.n_epochs, 3);
    assert_int_equal(second.n_steps, first.n_steps);
    assert_true(second.best_loss == first.best_loss);
    assert_int_equal(settings.set_by[BL_SETTING_lr], BL_SET_BY_RUN);
    bl_settings_fini(&settings);
    end();
}

static void every_kind_of_job_trains_and_reopens(void **state)
{
    (void)state;
    static const char *const kinds[][4][2] = {
        {{"model", "lstm"}, {"optimizer", "adamw"}, {"schedule", "step"}, {"warmup", "3"}},
        {{"mean-all", "on"}, {"hidden", "0"}, {"optimizer", "sgd"}, {"schedule", "linear"}},
        {{"tokens", "word"}, {"valid-split", "0"}, {"drop-last", "on"}, {"label-smoothing", "0.1"}},
        {{"workers", "2"}, {"on-fault", "redo"}, {"index-policy", "clamp"}, {"patience", "2"}}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        belay_train_result result;
        begin();
        run_well(kinds[i], 4, &result);
        belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
        assert_false(belay_run_is_nil(belay_run_open(context, folder)));
        assert_int_equal(belay_close(context), 0);
        end();
    }
}

/* ---- what cannot be begun ----------------------------------------------------------------------------------------- */

static void a_job_that_cannot_begin_leaves_no_folder(void **state)
{
    (void)state;
    static const char *const missing[][2] = {{"data", "/nowhere/at/all.tsv"}};
    belay_train_result result;
    told heard_words = {0};
    bl_error error = {0};
    begin();
    assert_int_equal(run_job(missing, 1, &heard_words, &result, &error), BELAY_FILE_OPEN);
    assert_int_equal(error.code, BELAY_OK);
    assert_int_equal(heard_words.n, 1);
    assert_int_equal(result.status, 4);
    assert_int_equal(access(folder, F_OK), -1);
    end();
}

static void a_job_into_a_run_is_refused_before_anything_is_touched(void **state)
{
    (void)state;
    belay_train_result result;
    told heard_words = {0};
    bl_error error = {0};
    begin();
    run_well(NULL, 0, &result);
    int64_t n_before, n_after;
    char *before = read_file_in(folder, "journal", &n_before);
    assert_int_equal(run_job(NULL, 0, &heard_words, &result, &error), BELAY_FILE_EXISTS);
    char *after = read_file_in(folder, "journal", &n_after);
    assert_int_equal(error.code, BELAY_FILE_EXISTS);
    assert_int_equal(heard_words.n, 0);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, (size_t)n_before);
    free(before);
    free(after);
    end();
}

/* ---- runs that are not what they say ------------------------------------------------------------------------------ */

static void expect_no_run(const char *path, belay_code code, const char *format, ...)
{
    char text[2048];
    told heard_words = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    belay_context *context =
        belay_open(&(belay_options){.log = hear, .log_state = &heard_words, .threads = 1, .no_journal = true});
    assert_true(belay_run_is_nil(belay_run_open(context, path)));
    char *end_of_headline = strchr(heard_words.text, '\n');
    assert_non_null(end_of_headline);
    *end_of_headline = '\0';
    assert_words_equal(heard_words.text, text);
    assert_int_equal(heard_words.n_of[code], 1);
    belay_close(context);
}

static void write_model(const char *path, const char *description, bool is_mean)
{
    belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
    const belay_pair pairs[] = {{"belay.model", description}};
    assert_int_equal(belay_checkpoint_save(small_model(context, is_mean), path, pairs, description != NULL), BELAY_OK);
    assert_int_equal(belay_close(context), 0);
}

static void a_folder_without_a_checkpoint_says_so(void **state)
{
    (void)state;
    make_folder(folder);
    mkdir(folder, 0700);
    expect_no_run(folder, BELAY_FILE_OPEN, "belay: no checkpoint was written to '%s' yet (file.open)", folder);
    remove_folder(folder);
}

/* It is there all the same: that none was written yet would be the wrong advice. */
static void a_checkpoint_that_may_not_be_looked_at_says_why(void **state)
{
    (void)state;
    char path[sizeof folder + 32];
    make_folder(folder);
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/best.safetensors", folder);
    assert_int_equal(symlink("best.safetensors", path), 0);
    expect_no_run(folder, BELAY_FILE_OPEN, "belay: cannot open '%s': Too many levels of symbolic links (file.open)",
                  path);
    remove_folder(folder);
}

static void a_file_that_describes_another_model_is_refused_by_the_first_difference(void **state)
{
    (void)state;
    static const struct {
        const char *description, *headline;
        belay_code code;
    } cases[] = {
        {NULL, "'%s' does not say which model it belongs to (file.mismatch)", BELAY_FILE_MISMATCH},
        {"{\"model\":\"gru\"}", "'%s' is of a model of another kind (file.mismatch)", BELAY_FILE_MISMATCH},
        {"{\"model\":\"lstm\",\"n_tokens\":0}",
         "'%s' does not describe its model: 'n_tokens' is no whole number from 1 to 2147483647 (file.format)",
         BELAY_FILE_FORMAT},
        {"{\"model\":\"lstm\",\"n_tokens\":1000000000,\"classes\":3,\"seq\":6,\"embed\":65536,\"hidden\":7,"
         "\"layers\":2,\"dropout\":0}",
         "'%s' does not hold 'embedding.weight' as [1000000000, 65536], as its description says (file.mismatch)",
         BELAY_FILE_MISMATCH},
        {"{\"model\":\"lstm\",\"n_tokens\":20,\"classes\":3,\"seq\":6,\"embed\":5,\"hidden\":7,\"layers\":3,"
         "\"dropout\":0}",
         "'%s' does not hold 'lstm.weight_hh_l2' as [28, 7], as its description says (file.mismatch)",
         BELAY_FILE_MISMATCH},
        {"{\"model\":\"lstm\",\"n_tokens\":20,\"classes\":3,\"seq\":6,\"embed\":5,\"hidden\":7,\"layers\":1,"
         "\"dropout\":0}",
         "'%s' holds 'lstm.weight_ih_l1', which the model does not have (file.mismatch)", BELAY_FILE_MISMATCH},
    };
    make_folder(folder);
    mkdir(folder, 0700);
    char path[600];
    snprintf(path, sizeof path, "%s/best.safetensors", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[1024] = "belay: ";
        snprintf(expected + 7, sizeof expected - 7, cases[i].headline, path);
        write_model(path, cases[i].description, false);
        expect_no_run(folder, cases[i].code, "%s", expected);
    }
    remove_folder(folder);
}

static void a_checkpoint_cut_short_anywhere_is_refused(void **state)
{
    (void)state;
    make_folder(folder);
    mkdir(folder, 0700);
    char path[600];
    int64_t n_bytes;
    snprintf(path, sizeof path, "%s/best.safetensors", folder);
    write_model(path, small_description(false), false);
    char *bytes = read_file_in(folder, "best.safetensors", &n_bytes);
    for (int64_t n = 0; n < n_bytes; n += 250) {
        belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
        assert_int_equal(truncate(path, (off_t)n), 0);
        assert_true(belay_run_is_nil(belay_run_open(context, folder)));
        assert_int_equal(belay_close(context), 4);
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, (size_t)n_bytes, file), n_bytes);
        fclose(file);
    }
    free(bytes);
    remove_folder(folder);
}

static void loading_another_models_checkpoint_changes_nothing(void **state)
{
    (void)state;
    make_folder(folder);
    mkdir(folder, 0700);
    char path[600];
    snprintf(path, sizeof path, "%s/best.safetensors", folder);
    write_model(path, NULL, true);
    belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true, .seed = 3});
    belay_module *model = small_model(context, false);
    int64_t n;
    float *before = read_weights(model, &n);
    assert_int_equal(belay_checkpoint_load(model, path), BELAY_FILE_MISMATCH);
    float *after = read_weights(model, &n);
    assert_memory_equal(before, after, (size_t)n * sizeof *after);
    belay_close(context);
    free(before);
    free(after);
    remove_folder(folder);
}

static void weights_that_are_not_finite_predict_nothing(void **state)
{
    (void)state;
    told heard = {.n = 0};
    const int64_t ids[SEQ] = {1, 2, 3};
    const float wrong[CLASSES] = {0, NAN, 0};
    belay_prediction prediction;
    belay_context *context = belay_open(&(belay_options){.log = hear, .log_state = &heard, .no_journal = true});
    belay_module *model = small_model(context, true);
    assert_int_equal(belay_tensor_write(belay_module_find(model, "fc.bias"), wrong, sizeof wrong), BELAY_OK);
    assert_int_equal(belay_predict(model, ids, 1, SEQ, &prediction), BELAY_OK);
    assert_int_equal(prediction.code, BELAY_NUM_NONFINITE);
    assert_int_equal(prediction.class_id, -1);
    assert_non_null(strstr(heard.text, "belay: the model gave this row a logit that is Inf or NaN (num.nonfinite)\n"));
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_leaves_a_run_that_evaluates_and_predicts),
        cmocka_unit_test(rows_with_bad_ids_are_refused_and_the_others_predicted),
        cmocka_unit_test(figures_and_predictions_without_room_are_refused),
        cmocka_unit_test(texts_that_are_not_there_are_refused),
        cmocka_unit_test(a_run_says_who_set_what),
        cmocka_unit_test(a_job_goes_on_with_the_settings_of_its_run),
        cmocka_unit_test(every_kind_of_job_trains_and_reopens),
        cmocka_unit_test(a_job_that_cannot_begin_leaves_no_folder),
        cmocka_unit_test(a_job_into_a_run_is_refused_before_anything_is_touched),
        cmocka_unit_test(a_folder_without_a_checkpoint_says_so),
        cmocka_unit_test(a_checkpoint_that_may_not_be_looked_at_says_why),
        cmocka_unit_test(a_file_that_describes_another_model_is_refused_by_the_first_difference),
        cmocka_unit_test(a_checkpoint_cut_short_anywhere_is_refused),
        cmocka_unit_test(loading_another_models_checkpoint_changes_nothing),
        cmocka_unit_test(weights_that_are_not_finite_predict_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
