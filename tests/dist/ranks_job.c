/* SPDX-License-Identifier: Apache-2.0 */
/* `belay train` as a rank: a run that one process began goes on over several, with as large a global batch; a number of
 * ranks that does not fit is refused before anything is touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/told.h"
#include "train/job.h"

static const char *const launched[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"};
static char kept[3][16];
static int rank, size;

static void keep_launch(void)
{
    for (int i = 0; i < 3; i++)
        snprintf(kept[i], sizeof kept[i], "%s", getenv(launched[i]) != NULL ? getenv(launched[i]) : "1");
    rank = atoi(kept[0]);
    size = atoi(kept[1]);
}

static void be_alone(bool alone)
{
    for (int i = 0; i < 3; i++)
        if (alone)
            unsetenv(launched[i]);
        else
            setenv(launched[i], kept[i], 1);
}

static const char *in_folder(const char *name)
{
    static char path[2][512];
    static int n;
    n = 1 - n;
    snprintf(path[n], sizeof path[n], "%s/%s", getenv("BELAY_RANKS"), name);
    return path[n];
}

/* By rank 0, before there is a group: the others wait until the last of them is there. */
static void make_data(const char *path)
{
    FILE *file = fopen(path, "wb");
    fprintf(file, "text\tlabel\n");
    for (int i = 0; i < 100; i++)
        fprintf(file, "%c%c%c\t%s\n", 'a' + i % 7, 'a' + i * 5 % 11, 'a' + i * 3 % 13, i % 7 < 3 ? "x" : "y");
    fclose(file);
}

static void wait_for(const char *path)
{
    for (int i = 0; i < 6000 && access(path, F_OK) != 0; i++)
        usleep(10000);
    assert_int_equal(access(path, F_OK), 0);
}

static void give(bl_settings *s, const char *name, const char *value)
{
    bl_error error;
    assert_int_equal(bl_settings_set(s, bl_setting_find(name), value, BL_SET_BY_CALLER, name, &error), BELAY_OK);
}

/* More settings in pairs of name and value, ended by NULL. */
static belay_code run(belay_train_result *result, bl_error *error, const char *const *more)
{
    bl_settings s = {0};
    bl_train_job_options options = {.log = told_remember};
    assert_int_equal(bl_settings_init(&s, error), BELAY_OK);
    give(&s, "data", in_folder("words.tsv"));
    give(&s, "out", in_folder("run"));
    for (; more[0] != NULL; more += 2)
        give(&s, more[0], more[1]);
    belay_code code = bl_train_job(&s, &options, result, error);
    bl_settings_fini(&s);
    return code;
}

static void a_run_of_one_process_goes_on_over_ranks(void **state)
{
    (void)state;
    belay_train_result first = {0}, second = {0};
    bl_error error;
    char expected[512], ready[512];
    snprintf(ready, sizeof ready, "%s", in_folder("ready"));
    if (rank == 0) {
        make_data(in_folder("words.tsv"));
        be_alone(true);
        const char *const settings[] = {"embed", "4", "hidden", "6", "seq", "4", "batch", "8", "epochs", "1", NULL};
        assert_int_equal(run(&first, &error, settings), BELAY_OK);
        be_alone(false);
        told_expect("%s", "");
        FILE *file = fopen(ready, "wb");
        fclose(file);
    }
    wait_for(ready);
    const char *const misfit[] = {"resume", "on", "epochs", "2", "batch", "8", NULL};
    assert_int_equal(run(&second, &error, misfit), BELAY_FILE_MISMATCH);
    assert_int_equal(second.status, 4);
    snprintf(expected, sizeof expected, "'%s' was trained with batches of 8 over all ranks, this call has %d",
             in_folder("run/last.safetensors"), 8 * size);
    assert_string_equal(error.what, expected);
    snprintf(expected, sizeof expected, "then -n 1 with --batch 8, now -n %d with --batch 8\n", size);
    assert_string_equal(error.facts, expected);
    snprintf(expected, sizeof expected, "Give --batch %d to go on with this run, or begin another run in a new --out.",
             8 / size);
    assert_string_equal(error.advice, expected);
    told_expect("%s", "");
    const char *const number[] = {"resume", "on", "n", "7", NULL};
    assert_int_equal(run(&second, &error, number), BELAY_CONF_CONFLICT);
    snprintf(expected, sizeof expected, "-n 7 in a run that was started as %d ranks", size);
    assert_string_equal(error.what, expected);
    const char *const rest[] = {"resume", "on", "epochs", "2", NULL};
    assert_int_equal(run(&second, &error, rest), BELAY_OK);
    assert_int_equal(second.n_epochs, 2);
    assert_int_equal(second.n_steps, 6); /* 90 samples, batches of 8, 4 of them a step */
    if (rank == 0)
        assert_non_null(strstr(told(), "the run goes on with -n"));
    else
        told_expect("%s", "");
    assert_int_equal(access(in_folder("run/journal"), F_OK), 0);
    if (rank > 0)
        assert_int_equal(access(in_folder("run/journal.rank1"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_of_one_process_goes_on_over_ranks)};
    keep_launch();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
