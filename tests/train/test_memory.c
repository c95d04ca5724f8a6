/* SPDX-License-Identifier: Apache-2.0 */
/* Any allocation may fail: the run then ends with mem.exhausted, or as if it had not, and nothing leaks. */
#include "train/train_support.h"

static trial tiny_trial(const char *path)
{
    trial t = new_trial();
    t.is_mean = true;
    t.n_samples = 11;
    t.n_valid = 4;
    t.options.epochs = 1;
    t.options.batch = 3;
    t.options.accumulate = 2;
    t.samples.plant = (plant){.sample = 4, .column = 1, .value = VOCABULARY};
    t.options.out = path;
    return t;
}

/* Opens what a run left; whether it could. */
static bool reopens(const char *path)
{
    const int64_t ids[2 * SEQ] = {1, 2, 3, 4, 5, 6, 7, 8};
    belay_prediction predictions[2];
    belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
    belay_run *run = belay_run_open(context, path);
    belay_code code = belay_predict(belay_run_model(run), ids, 2, SEQ, predictions);
    bool is_well = !belay_run_is_nil(run) && code == BELAY_OK;
    belay_close(context);
    return is_well;
}

static void a_run_survives_the_failure_of_any_allocation(void **state)
{
    (void)state;
    char path[512];
    const char *soak = getenv("BELAY_SOAK");
    int64_t step = soak != NULL && strcmp(soak, "0") != 0 ? 1 : 7;
    trial whole = tiny_trial(make_folder(path));
    run_trial(&whole);
    assert_int_equal(whole.code, BELAY_OK);
    remove_folder(path);
    for (int64_t n = 0;; n += step) {
        trial t = tiny_trial(make_folder(path));
        told heard_words = {0};
        t.told = &heard_words;
        bl_memory_fail_at(n);
        run_trial(&t);
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        bool left_out = t.result.n_faults > whole.result.n_faults; /* a sample could not be had */
        if (t.code == BELAY_OK && !left_out && !have_same_weights(&t, &whole))
            fail_msg("allocation %lld: the run ended well with other weights:\n%s", (long long)n, heard_words.text);
        if (t.code != BELAY_OK && t.code != BELAY_MEM_EXHAUSTED && t.code != BELAY_CONF_ORDER)
            fail_msg("allocation %lld: the run ended with %s:\n%s", (long long)n, belay_code_name(t.code),
                     heard_words.text);
        end_trial(&t);
        t.told = NULL;
        t.options.resume = true;
        run_trial(&t);
        if (t.code != BELAY_OK || (!left_out && !have_same_weights(&t, &whole)))
            fail_msg("allocation %lld: gone on with, the run ended with %s", (long long)n, belay_code_name(t.code));
        end_trial(&t);
        remove_folder(path);
        if (!failed)
            break;
    }
    end_trial(&whole);
}

static void reading_a_run_survives_the_failure_of_any_allocation(void **state)
{
    (void)state;
    char path[512];
    trial t = tiny_trial(make_folder(path));
    run_trial(&t);
    end_trial(&t);
    for (int64_t n = 0;; n++) {
        bl_memory_fail_at(n);
        bool is_well = reopens(path), failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_true(is_well || failed);
        if (!failed)
            break;
    }
    assert_true(reopens(path));
    remove_folder(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_survives_the_failure_of_any_allocation),
        cmocka_unit_test(reading_a_run_survives_the_failure_of_any_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
