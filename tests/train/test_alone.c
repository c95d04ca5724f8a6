/* SPDX-License-Identifier: Apache-2.0 */
/* A training over a group of one rank is the training without a group, bit for bit, whatever it meets. */
#include "train/amp_support.h"

static void compare(trial t)
{
    trial other = t;
    char mine[512], theirs[512];
    static told heard, heard_too;
    memset(&heard, 0, sizeof heard);
    memset(&heard_too, 0, sizeof heard_too);
    t.told = &heard;
    t.options.out = make_folder(mine);
    run_trial(&t);
    other.told = &heard_too;
    other.options.out = make_folder(theirs);
    other.is_ranked = true;
    other.maker = "self";
    run_trial(&other);
    assert_int_equal(other.size, 1);
    assert_int_equal(other.code, t.code);
    assert_int_equal(other.closed, t.closed);
    assert_same_weights(&other, &t);
    assert_int_equal(other.result.status, t.result.status);
    assert_int_equal(other.result.n_faults, t.result.n_faults);
    assert_int_equal(other.result.n_skipped, t.result.n_skipped);
    assert_int_equal(other.result.n_transient, t.result.n_transient);
    assert_int_equal(other.result.n_steps, t.result.n_steps);
    assert_memory_equal(&other.result.last_loss, &t.result.last_loss, sizeof(double));
    assert_memory_equal(&other.result.train_loss, &t.result.train_loss, sizeof(double));
    if (t.code != BELAY_RUN_MAX_FAULTS) /* told after the whole pass, so that all ranks count the same */
        assert_words_equal(heard_too.text, heard.text);
    int64_t n = 0, n_too = 0;
    char *last = read_file_in(mine, "last.safetensors", &n),
         *last_too = read_file_in(theirs, "last.safetensors", &n_too);
    assert_int_equal(n, n_too);
    assert_int_equal(last != NULL, last_too != NULL);
    free(last);
    free(last_too);
    remove_folder(mine);
    remove_folder(theirs);
    end_trial(&t);
    end_trial(&other);
}

static void a_clean_run_is_the_same(void **state)
{
    (void)state;
    for (int is_mean = 0; is_mean < 2; is_mean++) {
        trial t = new_trial();
        t.is_mean = is_mean != 0;
        compare(t);
        t.options.no_shuffle = false;
        t.options.drop_last = true;
        t.n_valid = 0;
        compare(t);
    }
}

/* First, middle and last of a window, and of its tail. */
static void a_run_with_a_fault_is_the_same(void **state)
{
    (void)state;
    static const int64_t positions[] = {3, 4, 5, 6, 8};
    for (int p = 0; p < 5; p++)
        for (int kind = 0; kind < 4; kind++) {
            trial t = new_trial();
            bool refuses = kind == 3;
            t.samples.plant = (plant){.sample = positions[p] * BATCH + 1,
                                      .column = kind == 1 ? -1 : 2,
                                      .value = VOCABULARY,
                                      .when = kind == 2 ? 1 : 0,
                                      .refuses = refuses};
            t.options.on_fault = kind == 2 ? BELAY_ON_FAULT_REDO : BELAY_ON_FAULT_SKIP;
            compare(t);
        }
}

static void a_run_that_ends_on_a_fault_is_the_same(void **state)
{
    (void)state;
    trial t = new_trial();
    t.samples.plant = (plant){.sample = 4 * BATCH + 1, .column = 2, .value = VOCABULARY};
    t.options.on_fault = BELAY_ON_FAULT_STOP;
    compare(t);
    t.options.on_fault = BELAY_ON_FAULT_SKIP;
    t.options.max_faults = -1;
    compare(t);
}

static void an_overflow_is_the_same(void **state)
{
    (void)state;
    for (int64_t position = 3; position < 6; position++) {
        amp_trial a = new_amp_trial(BELAY_F16);
        a.bad_epoch = 0;
        a.bad_position = position;
        amp_trial b = a;
        b.trial.is_ranked = true;
        b.trial.maker = "self";
        run_amp_trial(&a);
        run_amp_trial(&b);
        assert_int_equal(a.trial.result.n_overflowed, 1);
        assert_int_equal(b.trial.result.n_overflowed, 1);
        assert_true(a.scale == b.scale);
        assert_same_weights(&a.trial, &b.trial);
        end_trial(&a.trial);
        end_trial(&b.trial);
    }
}

/* A signal in the first epoch. */
static void a_run_that_is_asked_to_stop_is_the_same(void **state)
{
    (void)state;
    static sig_atomic_t stop;
    trial t[2];
    for (int i = 0; i < 2; i++) {
        t[i] = new_trial();
        stop = 0;
        t[i].samples.stop = &stop;
        t[i].samples.stop_at = 30;
        t[i].options.stop = &stop;
        t[i].is_ranked = i == 1;
        t[i].maker = "self";
        run_trial(&t[i]);
        assert_int_equal(t[i].code, BELAY_OK);
        assert_int_equal(t[i].result.status, 128 + SIGTERM);
        assert_int_equal(t[i].result.n_steps, t[0].result.n_steps);
    }
    assert_same_weights(&t[0], &t[1]);
    end_trial(&t[0]);
    end_trial(&t[1]);
}

static void a_reducer_that_could_not_be_made_is_named(void **state)
{
    (void)state;
    static told heard;
    belay_context *context =
        belay_open(&(belay_options){.threads = 1, .log = hear, .log_state = &heard, .no_journal = true});
    belay_module *model = small_model(context, true);
    belay_site_push(context, "the test");
    belay_group *group = belay_group_open(context, &(belay_group_options){.maker = "self"});
    belay_reducer *reducer = belay_ddp(model, group, NULL); /* before the group is bound */
    assert_true(belay_reducer_is_nil(reducer));
    memset(&heard, 0, sizeof heard);
    samples s = {.seed = 1, .plant = {.sample = -1}};
    belay_code code = belay_train(model, belay_adam(model, &(belay_adam_options){.lr = 0.1}),
                                  open_samples(context, &s, 20), &(belay_train_options){.reducer = reducer}, NULL);
    assert_words_equal(heard.text, "belay: the reducer of a training is nil: it could not be made (conf.value)\n"
                                   "    called at: the test\n"
                                   "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                                   "    try: Give a value inside the range that the message names.\n");
    assert_int_equal(code, BELAY_CONF_VALUE);
    (void)belay_close(context);
}

static void a_reducer_over_another_module_is_named(void **state)
{
    (void)state;
    static told heard;
    belay_context *context =
        belay_open(&(belay_options){.threads = 1, .log = hear, .log_state = &heard, .no_journal = true});
    belay_module *model = small_model(context, true), *other = small_model(context, true);
    belay_group *group = belay_group_open(context, &(belay_group_options){.maker = "self"});
    assert_int_equal(belay_group_bind(group, "cpu"), BELAY_OK);
    belay_reducer *reducer = belay_ddp(other, group, NULL);
    belay_site_push(context, "the test");
    memset(&heard, 0, sizeof heard);
    samples s = {.seed = 1, .plant = {.sample = -1}};
    belay_code code = belay_train(model, belay_adam(model, &(belay_adam_options){.lr = 0.1}),
                                  open_samples(context, &s, 20), &(belay_train_options){.reducer = reducer}, NULL);
    assert_words_equal(heard.text,
                       "belay: the reducer of a training averages another module than the one trained (conf.value)\n"
                       "    called at: the test\n"
                       "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
                       "    try: Make it by belay_ddp over the module that is given to belay_train.\n");
    assert_int_equal(code, BELAY_CONF_VALUE);
    (void)belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_run_is_the_same),
        cmocka_unit_test(a_run_with_a_fault_is_the_same),
        cmocka_unit_test(a_run_that_ends_on_a_fault_is_the_same),
        cmocka_unit_test(an_overflow_is_the_same),
        cmocka_unit_test(a_run_that_is_asked_to_stop_is_the_same),
        cmocka_unit_test(a_reducer_that_could_not_be_made_is_named),
        cmocka_unit_test(a_reducer_over_another_module_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
