/* SPDX-License-Identifier: Apache-2.0 */
/* Training in mixed precision: it ends where f32 ends, an overflow costs its window and nothing else, and a run that is
 * gone on with goes on bit for bit. */
#include "train/amp_support.h"

enum { SEEDS = 5 };

/* ---- it ends where f32 ends ---- */

typedef struct range {
    double low, high;
} range;

static range losses_of(belay_dtype dtype, bool is_mean)
{
    range r = {INFINITY, -INFINITY};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        amp_trial a = new_amp_trial(dtype);
        a.seed = seed;
        a.trial.is_mean = is_mean;
        a.trial.n_samples = 400;
        a.trial.n_valid = 100;
        a.trial.options.epochs = 6;
        a.trial.options.accumulate = 2;
        run_amp_trial(&a);
        assert_int_equal(a.trial.code, BELAY_OK);
        r.low = fmin(r.low, a.trial.result.last_loss);
        r.high = fmax(r.high, a.trial.result.last_loss);
        end_trial(&a.trial);
    }
    return r;
}

static void classifiers_end_in_the_range_of_f32(void **state)
{
    (void)state;
    for (int model = 0; model < 2; model++) {
        range exact = losses_of(BELAY_F32, model == 1);
        assert_true(exact.high < log(CLASSES)); /* something was learnt */
        for (belay_dtype dtype = BELAY_BF16; dtype <= BELAY_F16; dtype++) {
            range low = losses_of(dtype, model == 1);
            print_message("%s, %s: [%g, %g], f32: [%g, %g]\n", model == 1 ? "mean" : "lstm", belay_dtype_name(dtype),
                          low.low, low.high, exact.low, exact.high);
            assert_true(low.low <= exact.high && low.high >= exact.low);
        }
    }
}

/* ---- an overflow ---- */

/* Epoch 0 has 9 batches in windows of 3: each of them once. */
static void an_overflow_in_any_micro_batch_is_as_its_window_skipped(void **state)
{
    (void)state;
    for (int64_t position = 0; position < 9; position++) {
        int64_t first = position / 3 * 3;
        const belay_batch_place window[] = {{0, first}, {0, first + 1}, {0, first + 2}};
        amp_trial bad = new_amp_trial(BELAY_F16), without = new_amp_trial(BELAY_F16);
        bad.scaler = without.scaler = (belay_grad_scaler_options){.init_scale = 256, .is_fixed = true};
        bad.bad_epoch = 0;
        bad.bad_position = position;
        without.trial.options.skip = window;
        without.trial.options.n_skip = 3;
        run_amp_trial(&bad);
        run_amp_trial(&without);
        assert_int_equal(bad.trial.code, BELAY_OK);
        assert_int_equal(bad.trial.result.n_overflowed, 1);
        assert_int_equal(bad.trial.result.n_steps, without.trial.result.n_steps);
        assert_int_equal(bad.trial.result.n_faults, 0);
        assert_same_weights(&bad.trial, &without.trial);
        end_trial(&bad.trial);
        end_trial(&without.trial);
    }
}

static void an_overflow_halves_the_scale_of_a_training_once(void **state)
{
    (void)state;
    amp_trial a = new_amp_trial(BELAY_F16);
    a.scaler.init_scale = 256;
    a.bad_epoch = 0;
    a.bad_position = 4;
    run_amp_trial(&a);
    assert_int_equal(a.trial.result.n_overflowed, 1);
    assert_int_equal(a.n_backoffs, 1);
    assert_true(a.scale == 128);
    end_trial(&a.trial);
}

/* A bad id in one micro-batch: the window's others are computed again, scaled again, and the scale does not move. */
static void a_faulted_micro_batch_is_as_skipped_under_a_scale(void **state)
{
    (void)state;
    const belay_batch_place bad_place[] = {{0, 4}};
    amp_trial bad = new_amp_trial(BELAY_F16), without = new_amp_trial(BELAY_F16);
    bad.trial.samples.plant = (plant){.sample = 4 * BATCH + 2, .column = 1, .value = VOCABULARY + 5, .when = 1};
    without.trial.options.skip = bad_place;
    without.trial.options.n_skip = 1;
    run_amp_trial(&bad);
    run_amp_trial(&without);
    assert_int_equal(bad.trial.result.n_skipped, 1);
    assert_int_equal(bad.n_backoffs, without.n_backoffs);
    assert_same_weights(&bad.trial, &without.trial);
    end_trial(&bad.trial);
    end_trial(&without.trial);
}

/* ---- going on ---- */

static void a_run_in_f16_goes_on_bit_for_bit(void **state)
{
    (void)state;
    char whole_path[512], parts_path[512];
    amp_trial whole = new_amp_trial(BELAY_F16), parts = new_amp_trial(BELAY_F16);
    /* so large that it overflows at first, and grows again soon */
    whole.scaler = parts.scaler = (belay_grad_scaler_options){.init_scale = 0x1p30, .growth_interval = 2};
    whole.trial.options.epochs = 6;
    whole.trial.options.out = make_folder(whole_path);
    run_amp_trial(&whole);
    assert_true(whole.n_backoffs > 2);
    parts.trial.options.epochs = 2;
    parts.trial.options.out = make_folder(parts_path);
    run_amp_trial(&parts);
    end_trial(&parts.trial);
    parts.trial.options.epochs = 6;
    parts.trial.options.resume = true;
    run_amp_trial(&parts);
    assert_int_equal(parts.trial.code, BELAY_OK);
    assert_same_weights(&whole.trial, &parts.trial);
    assert_true(whole.scale == parts.scale);
    assert_int_equal(whole.n_backoffs, parts.n_backoffs);
    end_trial(&whole.trial);
    end_trial(&parts.trial);
    remove_folder(whole_path);
    remove_folder(parts_path);
}

/* ---- options ---- */

static void options_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    told heard = {0};
    amp_trial a = new_amp_trial(BELAY_F64);
    a.trial.told = &heard;
    run_amp_trial(&a);
    assert_int_equal(a.trial.code, BELAY_CONF_VALUE);
    assert_true(words_have(heard.text, "belay: autocast is f64, it must be bf16, f16, or f32 for none (conf.value)\n"));
    end_trial(&a.trial);
    heard = (told){0};
    a = new_amp_trial(BELAY_F16);
    a.trial.told = &heard;
    a.scaler.backoff_factor = 2;
    run_amp_trial(&a);
    assert_int_equal(a.trial.code, BELAY_CONF_VALUE);
    assert_true(
        words_have(heard.text, "belay: the loss scale of a training is nil: it could not be made (conf.value)\n"));
    end_trial(&a.trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classifiers_end_in_the_range_of_f32),
        cmocka_unit_test(an_overflow_in_any_micro_batch_is_as_its_window_skipped),
        cmocka_unit_test(an_overflow_halves_the_scale_of_a_training_once),
        cmocka_unit_test(a_faulted_micro_batch_is_as_skipped_under_a_scale),
        cmocka_unit_test(a_run_in_f16_goes_on_bit_for_bit),
        cmocka_unit_test(options_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
