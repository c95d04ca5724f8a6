/* SPDX-License-Identifier: Apache-2.0 */
/* A bad id or a kill in a training in 16 bits: each policy leaves the weights that it promises, to the bit, and the loss
 * scale goes on as if nothing had been. */
#include "train/amp_support.h"

#include <sys/wait.h>

#include "file/failpoint.h"
#include "file/safetensors.h"

enum { EPOCHS = 4, BAD_BATCH = 4 };

/* Overflows at first and grows again soon: where a scale is one window behind, the weights are others. */
static const belay_grad_scaler_options moving = {.init_scale = 0x1p19, .growth_interval = 2};
static const belay_grad_scaler_options held = {.init_scale = 256, .is_fixed = true};

static amp_trial new_fault_trial(belay_dtype dtype, const belay_grad_scaler_options *scaler)
{
    amp_trial a = new_amp_trial(dtype);
    a.scaler = *scaler;
    a.trial.options.epochs = EPOCHS;
    return a;
}

/* A bad id in that batch: bit k of `when` at its get number k, 0 at each. */
static amp_trial new_bad_trial(belay_dtype dtype, const belay_grad_scaler_options *scaler, uint64_t when)
{
    amp_trial a = new_fault_trial(dtype, scaler);
    a.trial.samples.plant = (plant){.sample = BAD_BATCH * BATCH + 3, .column = 2, .value = VOCABULARY, .when = when};
    return a;
}

static const belay_batch_place places[EPOCHS] = {{0, BAD_BATCH}, {1, BAD_BATCH}, {2, BAD_BATCH}, {3, BAD_BATCH}};

static void assert_same_end(amp_trial *a, amp_trial *b)
{
    assert_int_equal(a->trial.code, BELAY_OK);
    assert_int_equal(b->trial.code, BELAY_OK);
    assert_same_weights(&a->trial, &b->trial);
    assert_true(a->trial.result.n_steps > EPOCHS);
    assert_int_equal(a->trial.result.n_steps, b->trial.result.n_steps);
    assert_true(a->scale == b->scale);
    assert_int_equal(a->n_backoffs, b->n_backoffs);
    end_trial(&a->trial);
    end_trial(&b->trial);
}

/* ---- policies ---- */

static void for_each(void (*test)(belay_dtype dtype, const belay_grad_scaler_options *scaler))
{
    test(BELAY_BF16, &moving); /* which has no scale */
    test(BELAY_F16, &held);
    test(BELAY_F16, &moving);
}

static void skip_batch(belay_dtype dtype, const belay_grad_scaler_options *scaler)
{
    amp_trial bad = new_bad_trial(dtype, scaler, 0), without = new_fault_trial(dtype, scaler);
    bad.trial.options.on_fault = BELAY_ON_FAULT_SKIP;
    without.trial.options.skip = places;
    without.trial.options.n_skip = EPOCHS;
    run_amp_trial(&bad);
    run_amp_trial(&without);
    assert_int_equal(bad.trial.result.n_skipped, EPOCHS);
    assert_same_end(&bad, &without);
}

static void redo_of_a_transient(belay_dtype dtype, const belay_grad_scaler_options *scaler)
{
    amp_trial bad = new_bad_trial(dtype, scaler, 1), whole = new_fault_trial(dtype, scaler);
    bad.trial.options.on_fault = BELAY_ON_FAULT_REDO;
    run_amp_trial(&bad);
    run_amp_trial(&whole);
    assert_int_equal(bad.trial.result.n_transient, 1);
    assert_same_end(&bad, &whole);
}

static void redo_of_a_lasting(belay_dtype dtype, const belay_grad_scaler_options *scaler)
{
    amp_trial bad = new_bad_trial(dtype, scaler, 0), without = new_fault_trial(dtype, scaler);
    bad.trial.options.on_fault = BELAY_ON_FAULT_REDO;
    without.trial.options.skip = places;
    without.trial.options.n_skip = EPOCHS;
    run_amp_trial(&bad);
    run_amp_trial(&without);
    assert_int_equal(bad.trial.result.n_skipped, EPOCHS);
    assert_int_equal(bad.trial.result.n_transient, 0);
    assert_same_end(&bad, &without);
}

/* Stopped, the data mended, gone on with: as a run that met nothing. */
static void stop_and_go_on(belay_dtype dtype, const belay_grad_scaler_options *scaler)
{
    char path[512];
    amp_trial bad = new_bad_trial(dtype, scaler, 0), whole = new_fault_trial(dtype, scaler);
    bad.trial.options.on_fault = BELAY_ON_FAULT_STOP;
    bad.trial.options.out = make_folder(path);
    run_amp_trial(&bad);
    assert_int_equal(bad.trial.code, BELAY_RUN_STOPPED);
    assert_int_equal(bad.trial.result.status, 3);
    end_trial(&bad.trial);
    bad.trial.samples.plant.sample = -1;
    bad.trial.options.resume = true;
    run_amp_trial(&bad);
    run_amp_trial(&whole);
    assert_same_end(&bad, &whole);
    remove_folder(path);
}

static void a_skipped_batch_is_as_if_it_were_not_there(void **state)
{
    (void)state;
    for_each(skip_batch);
}

static void redo_takes_a_transient_fault_for_nothing(void **state)
{
    (void)state;
    for_each(redo_of_a_transient);
}

static void redo_skips_what_faults_again(void **state)
{
    (void)state;
    for_each(redo_of_a_lasting);
}

static void a_stopped_run_goes_on_as_if_nothing_had_been(void **state)
{
    (void)state;
    for_each(stop_and_go_on);
}

/* ---- kills ---- */

/* Killed at the n-th write, sync or rename of its files; false when it came to its end before. */
static bool is_killed_at(const char *path, int64_t n)
{
    pid_t child = fork();
    if (child == 0) {
        amp_trial a = new_fault_trial(BELAY_F16, &moving);
        a.trial.options.out = path;
        bl_file_fail_at(n, BL_FILE_FAIL_KILL);
        run_amp_trial(&a);
        _exit(a.trial.code == BELAY_OK ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(was_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return was_killed;
}

static void a_killed_run_in_f16_goes_on_bit_for_bit(void **state)
{
    (void)state;
    int n_kills = 0;
    for (int64_t n = 0;; n += 7, n_kills++) {
        char path[512];
        amp_trial whole = new_fault_trial(BELAY_F16, &moving), resumed = new_fault_trial(BELAY_F16, &moving);
        resumed.trial.options.out = make_folder(path);
        resumed.trial.options.resume = true;
        bool was_killed = is_killed_at(path, n);
        run_amp_trial(&resumed);
        run_amp_trial(&whole);
        assert_true(whole.n_backoffs > 1);
        assert_same_end(&resumed, &whole);
        remove_folder(path);
        if (!was_killed)
            break;
    }
    assert_true(n_kills > 5);
}

/* ---- a checkpoint whose state was damaged ---- */

/* Overwrites value `place` of the entry where it lies in the file. */
static void damage(const char *folder, const char *name, int place, double value)
{
    char path[640];
    bl_safetensors *file = NULL;
    bl_error error = {0};
    snprintf(path, sizeof path, "%s/last.safetensors", folder);
    assert_int_equal(bl_safetensors_open(path, &file, &error), BELAY_OK);
    const bl_safetensors_entry *entry = bl_safetensors_find(file, name);
    assert_non_null(entry);
    double values[64];
    assert_true(entry->n_bytes <= (int64_t)sizeof values);
    assert_int_equal(bl_safetensors_read(file, entry, values, entry->n_bytes, &error), BELAY_OK);
    int64_t n_bytes = 0, n = entry->n_bytes, at = -1;
    bl_safetensors_close(file);
    char *bytes = read_file_in(folder, "last.safetensors", &n_bytes);
    for (int64_t i = 0; i + n <= n_bytes; i++) /* it is told by its bytes: a scale is like nothing else */
        if (memcmp(bytes + i, values, (size_t)n) == 0)
            at = i;
    assert_true(at >= 0);
    memcpy(bytes + at + place * (int64_t)sizeof value, &value, sizeof value);
    FILE *out = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, (size_t)n_bytes, out), n_bytes);
    fclose(out);
    free(bytes);
}

static const struct damaged {
    const char *name;
    int place;
    double value;
    const char *what;
} damages[] = {
#define SCALES ", outside the positive values of f32, (0, 3.40282e+38]"
#define COUNTS ", outside the counts from 0 to 9007199254740992"
    {"belay.scaler.state", 0, NAN, "a scale of nan" SCALES},
    {"belay.scaler.state", 0, 0, "a scale of 0" SCALES},
    {"belay.scaler.state", 0, 1e300, "a scale of 1e+300" SCALES},
    {"belay.scaler.state", 0, -8, "a scale of -8" SCALES},
    {"belay.scaler.state", 0, 1e-46, "a scale of 1e-46" SCALES},
    {"belay.scaler.state", 1, -1, "a growth count of -1" COUNTS},
    {"belay.scaler.state", 1, 0.5, "a growth count of 0.5" COUNTS},
    {"belay.scaler.state", 4, NAN, "a number of overflows in a row of nan" COUNTS},
    {"belay.optimizer.state", 3, -1, "a schedule's position of -1" COUNTS},
    {"belay.optimizer.state", 5, INFINITY, "a number of applied steps of inf" COUNTS},
    {"belay.optimizer.t", 0, -1, "an age of -1" COUNTS},
};

static void state_that_cannot_be_is_refused_with_its_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char path[512], expected[1024];
        static told heard;
        amp_trial a = new_fault_trial(BELAY_F16, &moving);
        a.trial.options.out = make_folder(path);
        run_amp_trial(&a);
        end_trial(&a.trial);
        damage(path, damages[i].name, damages[i].place, damages[i].value);
        heard = (told){0};
        a.trial.told = &heard;
        a.trial.options.epochs = EPOCHS + 1;
        a.trial.options.resume = true;
        run_amp_trial(&a);
        if (a.trial.code != BELAY_FILE_FORMAT)
            fail_msg("%s was taken: %s\n%s", damages[i].what, belay_code_name(a.trial.code), heard.text);
        snprintf(expected, sizeof expected, "belay: '%s/last.safetensors' holds '%s' with %s (file.format)\n", path,
                 damages[i].name, damages[i].what);
        if (!words_have(heard.text, expected))
            fail_msg("not told: %s\nbut: %s", expected, heard.text);
        assert_true(words_have(
            heard.text, "    try: Put back the file as it was written, or begin the run anew with --overwrite.\n"));
        end_trial(&a.trial);
        remove_folder(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skipped_batch_is_as_if_it_were_not_there),
        cmocka_unit_test(redo_takes_a_transient_fault_for_nothing),
        cmocka_unit_test(redo_skips_what_faults_again),
        cmocka_unit_test(a_stopped_run_goes_on_as_if_nothing_had_been),
        cmocka_unit_test(a_killed_run_in_f16_goes_on_bit_for_bit),
        cmocka_unit_test(state_that_cannot_be_is_refused_with_its_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
