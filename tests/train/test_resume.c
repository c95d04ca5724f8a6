/* SPDX-License-Identifier: Apache-2.0 */
/* A run that was stopped goes on bit for bit; a folder that holds a run is not lost by accident. */
#include "train/train_support.h"

#include "train/job.h"

/* ---- stopping ----------------------------------------------------------------------------------------------------- */

/* Asks to stop after so many windows. */
typedef struct stopper {
    volatile sig_atomic_t stop;
    int n, after;
} stopper;

static void stop_after(void *state, const belay_progress *p)
{
    stopper *s = state;
    if (p->kind == BELAY_PROGRESS_STEP && ++s->n == s->after)
        s->stop = SIGINT;
}

/* A run with faults, dropout, an order of its own and a tail. */
static trial stopped_trial(void)
{
    trial t = new_trial();
    t.n_samples = 78;
    t.options.epochs = 3;
    t.options.accumulate = 4;
    t.options.no_shuffle = false;
    t.samples.plant = (plant){.sample = 33, .column = 1, .value = VOCABULARY};
    return t;
}

/* The columns of metrics.csv that do not tell the time. */
static void read_metrics(const char *folder, char *out, size_t size)
{
    char *metrics = read_file_in(folder, "metrics.csv", NULL), *rest = NULL;
    out[0] = '\0';
    for (char *line = strtok_r(metrics, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        int column = 0;
        for (char *field = line; field != NULL; column++) {
            char *comma = strchr(field, ',');
            int n = comma != NULL ? (int)(comma - field) : (int)strlen(field);
            size_t used = strlen(out);
            if (column != 7 && column != 8)
                snprintf(out + used, size - used, "%.*s,", n, field);
            field = comma != NULL ? comma + 1 : NULL;
        }
        strcat(out, "\n");
    }
    free(metrics);
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    int64_t n_a = 0, n_b = 0;
    char *bytes_a = read_file_in(a, name, &n_a), *bytes_b = read_file_in(b, name, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(bytes_a, bytes_b, (size_t)n_a);
    free(bytes_a);
    free(bytes_b);
}

static void assert_same_run(const trial *a, const char *folder_a, const trial *b, const char *folder_b)
{
    char metrics_a[4096], metrics_b[4096];
    assert_same_weights(a, b);
    assert_int_equal(a->result.n_steps, b->result.n_steps);
    assert_int_equal(a->result.n_faults, b->result.n_faults);
    assert_int_equal(a->result.best_epoch, b->result.best_epoch);
    assert_true(a->result.best_loss == b->result.best_loss);
    assert_same_file(folder_a, folder_b, "best.safetensors");
    assert_same_file(folder_a, folder_b, "faults.jsonl");
    read_metrics(folder_a, metrics_a, sizeof metrics_a);
    read_metrics(folder_b, metrics_b, sizeof metrics_b);
    assert_string_equal(metrics_a, metrics_b);
}

static void a_run_stopped_after_any_step_goes_on_bit_for_bit(void **state)
{
    (void)state;
    char whole_path[512], path[512];
    trial whole = stopped_trial();
    whole.options.out = make_folder(whole_path);
    run_trial(&whole);
    assert_int_equal(whole.code, BELAY_OK);
    for (int after = 1; after <= 9; after++) {
        trial t = stopped_trial();
        stopper s = {.after = after};
        t.options.out = make_folder(path);
        t.options.stop = &s.stop;
        t.options.progress = stop_after;
        t.options.progress_state = &s;
        run_trial(&t);
        assert_int_equal(t.code, BELAY_OK);
        assert_int_equal(t.result.status, 128 + SIGINT);
        assert_int_equal(t.result.stopped_by, SIGINT);
        assert_int_equal(t.closed, 0);
        assert_true(is_there(path, "last.safetensors"));
        end_trial(&t);
        t.options.stop = NULL;
        t.options.resume = true;
        run_trial(&t);
        assert_int_equal(t.code, BELAY_OK);
        assert_int_equal(t.result.status, 0);
        assert_same_run(&t, path, &whole, whole_path);
        remove_folder(path);
        end_trial(&t);
    }
    remove_folder(whole_path);
    end_trial(&whole);
}

static void signal_at_first_step(void *state, const belay_progress *p)
{
    (void)state;
    if (p->kind == BELAY_PROGRESS_STEP && p->n_steps == 1)
        raise(SIGTERM);
}

static void a_signal_ends_the_run_after_its_step_with_a_save(void **state)
{
    (void)state;
    char path[512];
    trial t = stopped_trial();
    t.options.out = make_folder(path);
    t.options.stop = bl_train_stop_catch();
    t.options.progress = signal_at_first_step;
    run_trial(&t);
    bl_train_stop_restore();
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(t.result.status, 128 + SIGTERM);
    assert_int_equal(t.result.n_steps, 1);
    assert_true(is_there(path, "last.safetensors"));
    char *run = read_file_in(path, "run.json", NULL);
    assert_non_null(strstr(run, "\"ended\": \"stopped as asked\""));
    free(run);
    remove_folder(path);
    end_trial(&t);
}

static void a_run_stopped_after_every_step_goes_on_bit_for_bit(void **state)
{
    (void)state;
    char whole_path[512], path[512];
    int n_runs = 0;
    trial whole = stopped_trial(), t = stopped_trial();
    whole.options.out = make_folder(whole_path);
    run_trial(&whole);
    t.options.out = make_folder(path);
    t.options.resume = true;
    t.options.progress = stop_after;
    do {
        stopper s = {.after = 1};
        end_trial(&t);
        t.options.stop = &s.stop;
        t.options.progress_state = &s;
        run_trial(&t);
        assert_int_equal(t.code, BELAY_OK);
        n_runs++;
    } while (t.result.stopped_by != 0 && n_runs < 100);
    assert_true(n_runs >= 9);
    assert_same_run(&t, path, &whole, whole_path);
    remove_folder(path);
    remove_folder(whole_path);
    end_trial(&t);
    end_trial(&whole);
}

static void a_run_stopped_in_validation_validates_again(void **state)
{
    (void)state;
    char whole_path[512], path[512];
    sig_atomic_t stop = 0;
    trial whole = stopped_trial(), t = stopped_trial();
    whole.options.out = make_folder(whole_path);
    run_trial(&whole);
    t.options.out = make_folder(path);
    t.options.stop = &stop;
    t.valid.stop = &stop;
    t.valid.stop_at = 3;
    run_trial(&t);
    assert_int_equal(t.result.stopped_by, SIGTERM);
    assert_int_equal(t.result.n_epochs, 0);
    assert_int_equal(t.result.n_steps, 3);
    assert_false(is_there(path, "best.safetensors"));
    end_trial(&t);
    t.options.stop = NULL;
    t.options.resume = true;
    run_trial(&t);
    assert_same_run(&t, path, &whole, whole_path);
    remove_folder(path);
    remove_folder(whole_path);
    end_trial(&t);
    end_trial(&whole);
}

static void a_run_that_is_done_goes_on_with_more_epochs(void **state)
{
    (void)state;
    char path[512];
    trial whole = stopped_trial(), t = stopped_trial();
    run_trial(&whole);
    t.options.out = make_folder(path);
    t.options.epochs = 2;
    run_trial(&t);
    end_trial(&t);
    t.options.resume = true;
    run_trial(&t); /* nothing left to do */
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(t.result.n_epochs, 2);
    end_trial(&t);
    t.options.epochs = 3;
    run_trial(&t);
    assert_same_weights(&t, &whole);
    remove_folder(path);
    end_trial(&t);
    end_trial(&whole);
}

/* ---- refusals ----------------------------------------------------------------------------------------------------- */

static void expect_refusal(trial *t, belay_code code, const char *format, const char *path)
{
    char text[2048];
    told heard_words = {0};
    t->told = &heard_words;
    run_trial(t);
    snprintf(text, sizeof text, format, path, run_trial_line);
    assert_int_equal(t->code, code);
    assert_int_equal(t->result.status, belay_code_status(code));
    assert_words_equal(heard_words.text, text);
    end_trial(t);
    t->told = NULL;
}

static void a_folder_with_a_run_is_refused(void **state)
{
    (void)state;
    char path[512];
    trial t = new_trial();
    t.options.out = make_folder(path);
    run_trial(&t);
    end_trial(&t);
    expect_refusal(&t, BELAY_FILE_EXISTS,
                   "belay: '%s' holds a run already (file.exists)\n"
                   "    called at: train_support.h:%d\n"
                   "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                   "    try: Go on with it by --resume, replace it by --overwrite, or choose another folder.\n",
                   path);
    t.options.resume = t.options.overwrite = true;
    expect_refusal(&t, BELAY_CONF_CONFLICT,
                   "belay: a run cannot both be gone on with and be overwritten (conf.conflict)\n"
                   "    called at: train_support.h:%2$d\n"
                   "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                   "    try: Keep one of the two.\n",
                   path);
    remove_folder(path);
}

static void overwrite_replaces_a_run(void **state)
{
    (void)state;
    char path[512];
    trial t = new_trial(), whole = new_trial();
    t.options.out = make_folder(path);
    t.options.epochs = 1;
    run_trial(&t);
    end_trial(&t);
    t.options.epochs = 2;
    t.options.overwrite = true;
    run_trial(&t);
    run_trial(&whole);
    assert_int_equal(t.code, BELAY_OK);
    assert_same_weights(&t, &whole);
    remove_folder(path);
    end_trial(&t);
    end_trial(&whole);
}

static void a_run_does_not_go_on_with_other_batches_or_another_model(void **state)
{
    (void)state;
    char path[512];
    trial t = new_trial();
    t.options.out = make_folder(path);
    run_trial(&t);
    end_trial(&t);
    t.options.resume = true;
    t.options.batch = 16;
    expect_refusal(&t, BELAY_FILE_MISMATCH,
                   "belay: '%s/last.safetensors' was written with batch 8, this run has 16 (file.mismatch)\n"
                   "    called at: train_support.h:%d\n"
                   "    to go on bit for bit, both must be the same\n"
                   "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                   "    try: Use the settings with which it was written.\n",
                   path);
    t.options.batch = BATCH;
    t.is_mean = true;
    expect_refusal(&t, BELAY_FILE_MISMATCH,
                   "belay: '%s/last.safetensors' does not hold 'hidden.weight', which the model has (file.mismatch)\n"
                   "    called at: train_support.h:%d\n"
                   "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                   "    try: Use the settings with which it was written.\n",
                   path);
    remove_folder(path);
}

static void drop(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

/* No kill leaves best.safetensors alone. */
static void a_folder_whose_last_checkpoint_is_gone_is_refused(void **state)
{
    (void)state;
    char path[512];
    int64_t n_before, n_after;
    trial t = new_trial();
    t.options.out = make_folder(path);
    run_trial(&t);
    end_trial(&t);
    drop(path, "last.safetensors");
    char *before = read_file_in(path, "best.safetensors", &n_before);
    t.options.resume = true;
    expect_refusal(&t, BELAY_FILE_OPEN,
                   "belay: '%s' holds best.safetensors but not last.safetensors, from which a run goes on (file.open)\n"
                   "    called at: train_support.h:%d\n"
                   "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                   "    try: Put last.safetensors back, or begin the run anew with --overwrite or in a new --out.\n",
                   path);
    char *after = read_file_in(path, "best.safetensors", &n_after);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, (size_t)n_before);
    free(before);
    free(after);
    remove_folder(path);
}

/* What a kill between the first `last` and its `best` leaves. */
static void a_best_that_was_not_written_is_written_from_last(void **state)
{
    (void)state;
    char path[512], whole_path[512];
    trial whole = stopped_trial(), t = stopped_trial();
    whole.options.out = make_folder(whole_path);
    whole.options.epochs = t.options.epochs = 1;
    run_trial(&whole);
    t.options.out = make_folder(path);
    run_trial(&t);
    end_trial(&t);
    drop(path, "best.safetensors");
    t.options.resume = true;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    assert_same_run(&t, path, &whole, whole_path);
    remove_folder(path);
    remove_folder(whole_path);
    end_trial(&t);
    end_trial(&whole);
}

/* A run that was stopped within an epoch has other weights than its best. */
static void a_best_that_was_taken_away_is_told_and_looked_for_anew(void **state)
{
    (void)state;
    char path[512], text[2048];
    told heard_words = {0};
    trial t = new_trial();
    t.options.out = make_folder(path);
    t.options.epochs = 1;
    run_trial(&t);
    end_trial(&t);
    stopper s = {.after = 1};
    t.options.epochs = 2;
    t.options.resume = true;
    t.options.progress = stop_after;
    t.options.progress_state = &s;
    t.options.stop = &s.stop;
    run_trial(&t);
    end_trial(&t);
    drop(path, "best.safetensors");
    t.options.progress = NULL;
    t.options.stop = NULL;
    t.told = &heard_words;
    run_trial(&t);
    snprintf(text, sizeof text,
             "belay: '%s/best.safetensors' of epoch 0 is missing: the run goes on without it, its next epoch counts as "
             "the best (run.changed)\n"
             "    called at: train_support.h:%d\n"
             "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 4, rank 0\n"
             "    try: Give what the run had before, to go on as if it had never stopped.\n",
             path, run_trial_line);
    assert_int_equal(t.code, BELAY_OK);
    assert_words_equal(heard_words.text, text);
    assert_int_equal(t.result.best_epoch, 1);
    assert_true(is_there(path, "best.safetensors"));
    remove_folder(path);
    end_trial(&t);
}

static void a_batch_to_skip_that_no_epoch_has_is_refused(void **state)
{
    (void)state;
    static const belay_batch_place places[] = {{0, 3}, {1, 9}};
    char path[512];
    trial t = new_trial();
    t.options.out = make_folder(path);
    t.options.skip = places;
    t.options.n_skip = 2;
    expect_refusal(&t, BELAY_CONF_VALUE,
                   "belay: batch 9 of epoch 1 is to be skipped, an epoch has batches 0 to 8 (conf.value)\n"
                   "    called at: train_support.h:%2$d\n"
                   "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                   "    try: Epochs and batches count from 0; take it out of those to skip (--skip-batch).\n",
                   path);
    assert_false(is_there(path, "run.json"));
    t.options.n_skip = 1;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    remove_folder(path);
    end_trial(&t);
}

/* Where each process of a run began. */
typedef struct beginnings {
    int n;
    belay_progress last;
    bool had_path;
} beginnings;

static void note_beginning(void *state, const belay_progress *p)
{
    beginnings *b = state;
    if (p->kind != BELAY_PROGRESS_BEGUN)
        return;
    b->n++;
    b->last = *p;
    b->had_path = p->path != NULL;
}

static void a_run_tells_where_it_begins(void **state)
{
    (void)state;
    char path[512];
    beginnings b = {0};
    trial t = new_trial();
    t.options.out = make_folder(path);
    t.options.resume = true; /* with nothing to go on from, in the library, it begins */
    t.options.epochs = 1;
    t.options.progress = note_beginning;
    t.options.progress_state = &b;
    run_trial(&t);
    assert_int_equal(b.n, 1);
    assert_false(b.had_path);
    assert_int_equal(b.last.n_samples, 70);
    assert_int_equal(b.last.n_valid_samples, 20);
    assert_int_equal(b.last.n_batches, 9);
    assert_int_equal(b.last.n_parameters, t.n_weights);
    end_trial(&t);
    t.options.epochs = 2;
    run_trial(&t);
    assert_int_equal(b.n, 2);
    assert_true(b.had_path);
    assert_int_equal(b.last.epoch, 1);
    assert_int_equal(b.last.batch, 0);
    remove_folder(path);
    end_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_stopped_after_any_step_goes_on_bit_for_bit),
        cmocka_unit_test(a_signal_ends_the_run_after_its_step_with_a_save),
        cmocka_unit_test(a_run_stopped_after_every_step_goes_on_bit_for_bit),
        cmocka_unit_test(a_run_stopped_in_validation_validates_again),
        cmocka_unit_test(a_run_that_is_done_goes_on_with_more_epochs),
        cmocka_unit_test(a_folder_with_a_run_is_refused),
        cmocka_unit_test(overwrite_replaces_a_run),
        cmocka_unit_test(a_run_does_not_go_on_with_other_batches_or_another_model),
        cmocka_unit_test(a_folder_whose_last_checkpoint_is_gone_is_refused),
        cmocka_unit_test(a_best_that_was_not_written_is_written_from_last),
        cmocka_unit_test(a_best_that_was_taken_away_is_told_and_looked_for_anew),
        cmocka_unit_test(a_batch_to_skip_that_no_epoch_has_is_refused),
        cmocka_unit_test(a_run_tells_where_it_begins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
