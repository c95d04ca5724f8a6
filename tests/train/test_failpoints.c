/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever fails or is killed, and whenever: the run's folder loads, or says that no checkpoint was written yet, and a
 * run that goes on ends with the weights of one that was never disturbed. */
#include "train/train_support.h"

#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "file/failpoint.h"

static bool is_soak(void)
{
    const char *soak = getenv("BELAY_SOAK");
    return soak != NULL && strcmp(soak, "0") != 0;
}

static trial disturbed_trial(const char *path)
{
    trial t = new_trial();
    t.n_samples = 44;
    t.n_valid = 10;
    t.samples.plant = (plant){.sample = 20, .column = 1, .value = -1};
    t.options.out = path;
    return t;
}

static trial undisturbed;
static int64_t n_points; /* that a run passes; thousands where the limits are tiny */

static int run_undisturbed(void **state)
{
    (void)state;
    undisturbed = disturbed_trial(NULL);
    run_trial(&undisturbed);
    char path[512];
    trial counted = disturbed_trial(make_folder(path));
    bl_file_fail_at(INT64_MAX, BL_FILE_FAIL_EIO);
    run_trial(&counted);
    n_points = bl_file_fail_asked();
    bl_file_fail_at(-1, BL_FILE_FAIL_EIO);
    bool fine = undisturbed.code == BELAY_OK && counted.code == BELAY_OK;
    end_trial(&counted);
    remove_folder(path);
    return fine ? 0 : -1;
}

/* From one point to the next: odd, for those before and those after a write. */
static int64_t stride(void) { return is_soak() ? 1 : n_points <= 240 ? 3 : (n_points / 80) | 1; }

static int end_undisturbed(void **state)
{
    (void)state;
    end_trial(&undisturbed);
    return 0;
}

/* The promise, with `what` for the message of a test that fails. */
static void check_folder(const char *path, const char *what)
{
    told heard_words = {0};
    belay_context *context =
        belay_open(&(belay_options){.log = hear, .log_state = &heard_words, .threads = 1, .no_journal = true});
    belay_run *run = belay_run_open(context, path);
    bool says_none = heard_words.n == 1 && heard_words.n_of[BELAY_FILE_OPEN] == 1;
    if (belay_run_is_nil(run) && !says_none)
        fail_msg("%s: the folder neither loads nor says that there is nothing:\n%s", what, heard_words.text);
    belay_close(context);
    trial t = disturbed_trial(path);
    t.options.resume = true;
    run_trial(&t);
    if (t.code != BELAY_OK || !have_same_weights(&t, &undisturbed))
        fail_msg("%s: the run that went on ended with %s and %s weights", what, belay_code_name(t.code),
                 t.code == BELAY_OK ? "other" : "no");
    end_trial(&t);
}

static void every_write_sync_and_rename_may_fail(void **state)
{
    (void)state;
    static const bl_file_fail_mode modes[] = {BL_FILE_FAIL_EIO, BL_FILE_FAIL_ENOSPC};
    for (int m = 0; m < 2; m++)
        for (int64_t n = 0;; n += stride()) {
            char path[512], what[64];
            trial t = disturbed_trial(make_folder(path));
            snprintf(what, sizeof what, "fail point %lld, mode %d", (long long)n, (int)modes[m]);
            bl_file_fail_at(n, modes[m]);
            run_trial(&t);
            bool reached = bl_file_fail_reached();
            bl_file_fail_at(-1, modes[m]);
            if (reached && t.code != BELAY_OK)
                assert_int_equal(t.code, BELAY_FILE_WRITE);
            else
                assert_int_equal(t.code, BELAY_OK);
            end_trial(&t);
            check_folder(path, what);
            remove_folder(path);
            if (!reached) {
                assert_true(n > 60);
                break;
            }
        }
}

/* ---- kills -------------------------------------------------------------------------------------------------------- */

/* Runs in a process of its own; whether it was killed. */
static bool run_in_child(const char *path, bool resume, int64_t fail_at, int64_t kill_after)
{
    pid_t child = fork();
    if (child == 0) {
        trial t = disturbed_trial(path);
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        struct itimerspec when = {.it_value = {kill_after / 1000000000, kill_after % 1000000000}};
        t.options.resume = resume;
        bl_file_fail_at(fail_at, BL_FILE_FAIL_KILL);
        if (kill_after > 0 &&
            (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &when, NULL) != 0))
            _exit(9);
        run_trial(&t);
        _exit(t.code == BELAY_OK ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(was_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return was_killed;
}

static void the_process_may_be_killed_at_every_write_sync_and_rename(void **state)
{
    (void)state;
    for (int64_t n = 0;; n += is_soak() || n_points > 240 ? stride() : 2) {
        char path[512], what[64];
        snprintf(what, sizeof what, "killed at point %lld", (long long)n);
        make_folder(path);
        bool was_killed = run_in_child(path, false, n, 0);
        check_folder(path, what);
        remove_folder(path);
        if (!was_killed)
            break;
    }
}

/* The moments are fixed shares of how long a run takes here; a seed draws them. */
static void the_process_may_be_killed_at_any_moment(void **state)
{
    (void)state;
    char path[512];
    make_folder(path);
    int64_t began = bl_clock_now();
    run_in_child(path, false, -1, 0);
    int64_t duration = bl_clock_now() - began;
    remove_folder(path);
    bl_rng_key key = {.seed = 20260801};
    print_message("seed %llu\n", (unsigned long long)key.seed);
    for (uint64_t i = 0; i < (is_soak() ? 50 : 10); i++) {
        char what[64];
        int64_t first = 1 + (int64_t)bl_rng_below(&key, 2 * i, (uint64_t)duration);
        int64_t second = 1 + (int64_t)bl_rng_below(&key, 2 * i + 1, (uint64_t)duration);
        snprintf(what, sizeof what, "killed after %lld and %lld ns", (long long)first, (long long)second);
        make_folder(path);
        run_in_child(path, false, -1, first);
        run_in_child(path, true, -1, second);
        check_folder(path, what);
        remove_folder(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_write_sync_and_rename_may_fail),
        cmocka_unit_test(the_process_may_be_killed_at_every_write_sync_and_rename),
        cmocka_unit_test(the_process_may_be_killed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, run_undisturbed, end_undisturbed);
}
