/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks are started and bound: every rank is told the same, whole (launch_*.expected). */
#include "dist/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static belay_context *context;

static belay_group *start(void)
{
    context = told_open();
    belay_site_push(context, "here");
    return belay_group_open(context, NULL);
}

static void show(void)
{
    printf("%s", told());
    told_clear();
}

static void an_operation_before_binding_is_refused(void **state)
{
    (void)state;
    belay_group *group = start();
    assert_int_equal(belay_group_barrier(group), BELAY_CONF_ORDER);
    show();
    assert_int_equal(belay_group_bind(group, "cpu"), BELAY_OK);
    assert_int_equal(belay_group_barrier(group), BELAY_OK);
    belay_faults_clear(context);
    told_close(context);
}

static void two_ranks_on_one_device_are_refused_with_the_table(void **state)
{
    (void)state;
    belay_group *group = start();
    assert_int_equal(belay_group_bind(group, "sim:0"), BELAY_PLACE_SHARED);
    show();
    assert_int_equal(belay_group_barrier(group), BELAY_PLACE_SHARED);
    assert_int_equal(belay_close(context), 2);
}

/* Rank 0 takes what another one's local rank stands for. */
static void one_rank_on_anothers_device_is_refused(void **state)
{
    (void)state;
    belay_group *group = start();
    assert_int_equal(belay_group_bind(group, belay_group_rank(group) == 0 ? "sim:1" : "sim"), BELAY_PLACE_SHARED);
    show();
    assert_int_equal(belay_close(context), 2);
}

static void ranks_on_a_shared_kind_or_their_own_devices_are_bound(void **state)
{
    (void)state;
    belay_group *group = start();
    assert_int_equal(belay_group_bind(group, belay_group_rank(group) == 1 ? "sim:1" : "cpu"), BELAY_OK);
    assert_int_equal(belay_group_barrier(group), BELAY_OK);
    told_close(context);
}

/* It said so itself; the others hear which rank it was. */
static void a_rank_whose_device_is_absent_is_named(void **state)
{
    (void)state;
    belay_group *group = start();
    belay_code code = belay_group_bind(group, belay_group_rank(group) == 1 ? "cuda:77" : "cpu");
    assert_int_equal(code, BELAY_COMM_MISMATCH);
    show();
    assert_int_equal(belay_close(context), ranks_self() == 1 ? 4 : 3);
}

static void a_launcher_without_recovery_is_told(void **state)
{
    (void)state;
    belay_group *group = start();
    show();
    assert_int_equal(belay_group_bind(group, "cpu"), BELAY_OK);
    assert_int_equal(belay_group_barrier(group), BELAY_OK);
    told_close(context);
}

static void a_plug_in_that_is_absent_is_told(void **state)
{
    (void)state;
    assert_true(belay_group_is_nil(start()));
    show();
    assert_int_equal(belay_close(context), 4);
}

/* As under an srun whose processes are as many worlds of their own to MPI. */
static void an_mpi_that_knows_of_other_ranks_is_told(void **state)
{
    (void)state;
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_NTASKS", "5", 1);
    assert_true(belay_group_is_nil(start()));
    show();
    assert_int_equal(belay_close(context), 2);
}

int main(int argc, char **argv)
{
    const struct {
        const char *word;
        struct CMUnitTest test;
    } rows[] = {
        {"unbound", cmocka_unit_test(an_operation_before_binding_is_refused)},
        {"shared", cmocka_unit_test(two_ranks_on_one_device_are_refused_with_the_table)},
        {"other", cmocka_unit_test(one_rank_on_anothers_device_is_refused)},
        {"own", cmocka_unit_test(ranks_on_a_shared_kind_or_their_own_devices_are_bound)},
        {"device", cmocka_unit_test(a_rank_whose_device_is_absent_is_named)},
        {"recovery", cmocka_unit_test(a_launcher_without_recovery_is_told)},
        {"world", cmocka_unit_test(an_mpi_that_knows_of_other_ranks_is_told)},
        {"absent", cmocka_unit_test(a_plug_in_that_is_absent_is_told)},
    };
    for (size_t i = 0; argc == 2 && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(argv[1], rows[i].word) == 0) {
            const struct CMUnitTest tests[] = {rows[i].test};
            return cmocka_run_group_tests(tests, NULL, NULL);
        }
    fprintf(stderr, "usage: ranks_launch SCENARIO\n");
    return 2;
}
