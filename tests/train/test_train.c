/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that go well: they learn, repeat, tell how far they are, and write what they promise. */
#include "train/train_support.h"

static void training_learns_what_can_be_learnt(void **state)
{
    (void)state;
    trial t = new_trial();
    t.is_mean = true;
    t.n_samples = 300;
    t.options.epochs = 30;
    t.options.no_shuffle = false;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(t.closed, 0);
    assert_int_equal(t.result.n_epochs, 30);
    assert_int_equal(t.result.n_steps, 30 * 13);
    assert_int_equal(t.result.n_faults, 0);
    assert_true(t.result.train_accuracy > 0.6);
    assert_true(t.result.best_accuracy >= t.result.last_accuracy);
    end_trial(&t);
}

static void the_same_seed_gives_the_same_bits_on_any_number_of_threads_and_workers(void **state)
{
    (void)state;
    trial one = new_trial(), two = new_trial();
    one.options.no_shuffle = two.options.no_shuffle = false;
    two.threads = 2;
    two.options.workers = 2;
    run_trial(&one);
    run_trial(&two);
    assert_int_equal(one.code, BELAY_OK);
    assert_same_weights(&one, &two);
    assert_true(one.result.last_loss == two.result.last_loss);
    end_trial(&one);
    end_trial(&two);
}

typedef struct heard {
    int n_steps, n_epochs, n_saved;
    int64_t last_batch;
} heard;

static void count(void *state, const belay_progress *p)
{
    heard *h = state;
    h->n_steps += p->kind == BELAY_PROGRESS_STEP;
    h->n_epochs += p->kind == BELAY_PROGRESS_EPOCH;
    h->n_saved += p->kind == BELAY_PROGRESS_SAVED;
    if (p->kind == BELAY_PROGRESS_STEP) {
        assert_int_equal(p->n_batches, 9);
        assert_true(p->batch > (h->last_batch == 9 ? 0 : h->last_batch));
        h->last_batch = p->batch;
        assert_true(isfinite(p->loss));
    }
}

static void progress_tells_each_step_epoch_and_checkpoint(void **state)
{
    (void)state;
    char path[512];
    heard h = {0};
    trial t = new_trial();
    t.options.out = make_folder(path);
    t.options.progress = count;
    t.options.progress_state = &h;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(h.n_steps, 6);
    assert_int_equal(h.n_epochs, 2);
    assert_true(h.n_saved == 3 || h.n_saved == 4);
    remove_folder(path);
    end_trial(&t);
}

static void a_run_leaves_what_is_promised_in_its_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"best.safetensors", "last.safetensors", "run.json",
                                        "metrics.csv",      "faults.jsonl",     "report.html"};
    char path[512];
    int64_t n_bytes;
    trial t = new_trial();
    t.options.out = make_folder(path);
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(is_there(path, names[i]));
    char *faults = read_file_in(path, "faults.jsonl", &n_bytes), *metrics = read_file_in(path, "metrics.csv", NULL);
    assert_int_equal(n_bytes, 0);
    assert_ptr_equal(strstr(metrics, "epoch,steps,train_loss,train_accuracy,valid_loss,valid_accuracy,lr,"
                                     "samples_per_second,seconds,faults,skipped,best\n0,3,"),
                     metrics);
    char *report = read_file_in(path, "report.html", NULL), *run = read_file_in(path, "run.json", NULL);
    assert_non_null(strstr(report, "<svg"));
    assert_null(strstr(report, "http"));
    assert_null(strstr(report, "src="));
    assert_non_null(strstr(run, "\"ended\": \"all epochs done\""));
    free(faults);
    free(metrics);
    free(report);
    free(run);
    remove_folder(path);
    end_trial(&t);
}

static void patience_ends_a_run_that_gets_no_better(void **state)
{
    (void)state;
    trial t = new_trial();
    t.options.epochs = 200;
    t.options.patience = 2;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    assert_true(t.result.ended_early);
    assert_true(t.result.n_epochs < 200);
    assert_int_equal(t.result.best_epoch, t.result.n_epochs - 3);
    end_trial(&t);
}

static void memory_of_a_step_stays_flat(void **state)
{
    (void)state;
    belay_context *context = belay_open(&(belay_options){.seed = 7, .threads = 1, .no_journal = true});
    samples s = {.seed = 11, .plant = {.sample = -1}};
    belay_module *model = small_model(context, false);
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02});
    belay_dataset *data = open_samples(context, &s, 64);
    belay_train_options options = {.epochs = 1, .batch = BATCH, .accumulate = 2};
    assert_int_equal(belay_train(model, adam, data, &options, NULL), BELAY_OK);
    belay_memory before = belay_memory_get(context);
    options.epochs = 5;
    assert_int_equal(belay_train(model, adam, data, &options, NULL), BELAY_OK);
    belay_memory after = belay_memory_get(context);
    assert_int_equal(after.in_use, before.in_use);
    assert_int_equal(after.peak, before.peak);
    assert_int_equal(belay_close(context), 0);
}

static void options_outside_of_their_range_are_refused_by_name(void **state)
{
    (void)state;
    told heard_words = {0};
    trial t = new_trial();
    t.told = &heard_words;
    t.options.accumulate = -1;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_CONF_VALUE);
    assert_int_equal(t.result.status, 2);
    assert_non_null(strstr(heard_words.text, "accumulate is -1, it must be from 1 to 4294967295 (conf.value)"));
    end_trial(&t);
    heard_words = (told){0};
    t = new_trial();
    t.told = &heard_words;
    t.options.n_skip = 2;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_CONF_MISSING);
    assert_non_null(strstr(heard_words.text, "2 batches to skip were promised at a NULL pointer (conf.missing)"));
    end_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_learns_what_can_be_learnt),
        cmocka_unit_test(the_same_seed_gives_the_same_bits_on_any_number_of_threads_and_workers),
        cmocka_unit_test(progress_tells_each_step_epoch_and_checkpoint),
        cmocka_unit_test(a_run_leaves_what_is_promised_in_its_folder),
        cmocka_unit_test(patience_ends_a_run_that_gets_no_better),
        cmocka_unit_test(memory_of_a_step_stays_flat),
        cmocka_unit_test(options_outside_of_their_range_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
