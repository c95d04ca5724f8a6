/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of one process, and how a group is not opened.  What needs several ranks is in ranks_*.c. */
#include "support/told.h"

#include <math.h>

#include <belay/devices.h>
#include <belay/dist.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "dist/group.h"
#include "file/json.h"

static belay_context *context;

static void start(void)
{
    static const char *const names[] = {"RANK",         "WORLD_SIZE",   "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                        "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID",        "BELAY_PLUGINS",
                                        "BELAY_STATUS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    context = told_open();
    belay_site_push(context, "here");
}

static belay_group *open_bound(void)
{
    start();
    belay_group *group = belay_group_open(context, NULL);
    assert_false(belay_group_is_nil(group));
    assert_int_equal(belay_group_bind(group, "cpu"), BELAY_OK);
    return group;
}

static void expect(belay_code code, const char *headline, const char *facts)
{
    told_expect("belay: %s (%s)\n    called at: here\n%s" TOLD_START "%s", headline, belay_code_name(code), facts,
                told_try(code));
}

static void expect_advice(belay_code code, const char *headline, const char *facts, const char *advice)
{
    told_expect("belay: %s (%s)\n    called at: here\n%s" TOLD_START "    try: %s\n", headline, belay_code_name(code),
                facts, advice);
}

/* ---- one process ----------------------------------------------------------------------------------------------------- */

static void a_process_alone_is_rank_0_of_1(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    assert_int_equal(belay_group_rank(group), 0);
    assert_int_equal(belay_group_size(group), 1);
    assert_int_equal(belay_group_local_rank(group), 0);
    assert_int_equal(belay_group_local_size(group), 1);
    belay_group_close(group);
    told_close(context);
}

static void operations_of_a_process_alone_leave_what_was_there(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    const float values[3] = {1, -2, 3};
    float got[3];
    belay_tensor t = told_f32(context, belay_shape1(3), values);
    belay_tensor all = told_f32(context, belay_shape2(1, 3), (float[3]){0});
    int64_t n = 0;
    assert_int_equal(belay_group_all_reduce(group, t, BELAY_GROUP_SUM), BELAY_OK);
    assert_int_equal(belay_group_broadcast(group, t, 0), BELAY_OK);
    assert_int_equal(belay_group_all_gather(group, t, all), BELAY_OK);
    assert_int_equal(belay_group_barrier(group), BELAY_OK);
    assert_int_equal(belay_group_agree(group, 7, &n), BELAY_OK);
    assert_int_equal(n, 7);
    told_read(all, got, 3);
    assert_memory_equal(got, values, sizeof values);
    told_read(t, got, 3);
    assert_memory_equal(got, values, sizeof values);
    told_close(context); /* closes the group */
}

static void groups_of_one_process_may_be_many(void **state)
{
    (void)state;
    belay_group *first = open_bound();
    belay_group *second = belay_group_open(context, &(belay_group_options){.maker = "self", .timeout = 3});
    assert_int_equal(belay_group_bind(second, "cpu"), BELAY_OK);
    assert_int_equal(belay_group_barrier(second), BELAY_OK);
    assert_int_equal(belay_group_barrier(first), BELAY_OK);
    belay_group_close(second);
    assert_int_equal(belay_group_barrier(first), BELAY_OK);
    told_close(context);
}

static void nothing_is_said_of_a_group_that_is_nil(void **state)
{
    (void)state;
    start();
    int64_t n = 3;
    assert_true(belay_group_is_nil(NULL));
    assert_int_equal(belay_group_rank(NULL), 0);
    assert_int_equal(belay_group_size(NULL), 1);
    assert_int_equal(belay_group_bind(NULL, "cpu"), BELAY_CONF_MISSING);
    assert_int_equal(belay_group_barrier(NULL), BELAY_CONF_MISSING);
    assert_int_equal(belay_group_agree(NULL, 3, &n), BELAY_CONF_MISSING);
    assert_int_equal(n, 0);
    assert_int_equal(belay_group_agree(NULL, 3, NULL), BELAY_CONF_MISSING);
    belay_group_abort(NULL, "x");
    belay_group_close(NULL);
    told_close(context);
}

static void a_data_work_is_scaled_before_it_is_summed(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    float f32[2] = {2, 3};
    double f64[2] = {2, 3};
    uint16_t bf16[2] = {0x4000, 0x4040}, f16[2] = {0x4000, 0x4200};
    int64_t i64[2] = {2, 3};
    uint64_t ready = 0, ended = 0;
    bl_work works[] = {{.data = f32, .dtype = BELAY_F32},
                       {.data = f64, .dtype = BELAY_F64},
                       {.data = bf16, .dtype = BELAY_BF16},
                       {.data = f16, .dtype = BELAY_F16},
                       {.data = i64, .dtype = BELAY_I64}};
    for (int i = 0; i < 5; i++) {
        works[i].plane = BL_PLANE_DATA;
        works[i].n = 2;
        works[i].factor = 0.5f;
        works[i].ready = &ready;
        works[i].ready_at = 7;
        works[i].ended_word = &ended;
        works[i].ended_value = (uint64_t)i + 1;
        bl_group_post(group, &works[i]);
    }
    assert_false(bl_work_is_over(&works[0]));
    __atomic_store_n(&ready, 7, __ATOMIC_RELEASE);
    assert_true(bl_group_wait(group, &works[4]));
    for (int i = 0; i < 5; i++)
        assert_true(bl_group_wait(group, &works[i]));
    assert_true(f32[0] == 1 && f32[1] == 1.5f && f64[0] == 1 && f64[1] == 1.5);
    assert_int_equal(bf16[0], 0x3F80);
    assert_int_equal(bf16[1], 0x3FC0);
    assert_int_equal(f16[0], 0x3C00);
    assert_int_equal(f16[1], 0x3E00);
    assert_true(i64[0] == 2 && i64[1] == 3);
    assert_int_equal(__atomic_load_n(&ended, __ATOMIC_ACQUIRE), 5);
    told_close(context);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------- */

static void an_operation_before_the_group_is_bound_is_refused(void **state)
{
    (void)state;
    start();
    belay_group *group = belay_group_open(context, NULL);
    assert_int_equal(belay_group_barrier(group), BELAY_CONF_ORDER);
    expect_advice(BELAY_CONF_ORDER, "an operation of a group came before the group was bound to a device", "",
                  "Call belay_group_bind first, on all ranks.");
    assert_int_equal(belay_close(context), 3);
}

static void a_group_is_bound_once(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    assert_int_equal(belay_group_bind(group, "cpu"), BELAY_CONF_ORDER);
    expect(BELAY_CONF_ORDER, "a group was bound to a device twice", "");
    assert_int_equal(belay_close(context), 3);
}

static void a_device_that_is_none_binds_nothing(void **state)
{
    (void)state;
    start();
    belay_group *group = belay_group_open(context, NULL);
    assert_int_equal(belay_group_bind(group, "a device of a very long name"), BELAY_CONF_VALUE);
    expect(BELAY_CONF_VALUE, "device is \"a device of a very long name\", which names no device",
           "    devices: cpu, sim:N, cuda:N\n");
    assert_int_equal(belay_group_bind(group, NULL), BELAY_CONF_MISSING);
    expect(BELAY_CONF_MISSING, "a device was asked for by no name", "");
    assert_int_equal(belay_group_bind(group, "cpu"), BELAY_OK);
    assert_int_equal(belay_group_barrier(group), BELAY_OK);
    assert_int_equal(belay_close(context), 2);
}

static void a_software_device_is_that_of_the_local_rank(void **state)
{
    (void)state;
    start();
    belay_group *group = belay_group_open(context, NULL);
    assert_int_equal(belay_group_bind(group, "sim"), BELAY_OK);
    assert_string_equal(belay_device_get(context), "sim:0");
    float values[3] = {1, 2, 3};
    belay_tensor t = told_f32(context, belay_shape1(3), values);
    assert_int_equal(belay_group_all_reduce(group, t, BELAY_GROUP_SUM), BELAY_OK);
    told_close(context);
}

static void a_closed_group_is_stale(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    belay_group_close(group);
    assert_true(belay_group_is_nil(group));
    told_expect("%s", "");
    assert_int_equal(belay_group_barrier(group), BELAY_LIFE_STALE);
    expect_advice(BELAY_LIFE_STALE, "a group was used after it had been closed", "",
                  "Close a group last, after all that goes over it.");
    assert_int_equal(belay_group_rank(group), 0);
    expect_advice(BELAY_LIFE_STALE, "a group was used after it had been closed", "",
                  "Close a group last, after all that goes over it.");
    assert_int_equal(belay_close(context), 3);
}

static void a_group_is_closed_after_what_goes_over_it(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    group->n_reducers = 2;
    belay_group_close(group);
    expect_advice(BELAY_CONF_ORDER, "a group was closed under 2 reducers", "",
                  "Free the reducers first, by belay_reducer_free.");
    group->n_reducers = 0;
    belay_group_close(group);
    assert_true(belay_group_is_nil(group));
    assert_int_equal(belay_close(context), 3);
}

static void tensors_that_cannot_be_moved_are_refused_and_the_group_goes_on(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    belay_tensor t = told_f32(context, belay_shape1(2), (float[]){1, 2});
    belay_tensor wide = told_f32(context, belay_shape2(2, 2), (float[]){1, 2, 3, 4});
    belay_tensor small = belay_tensor_from(context, BELAY_U8, belay_shape1(2), "ab", 2);
    belay_tensor none = {0};
    assert_int_equal(belay_group_all_reduce(group, none, BELAY_GROUP_SUM), BELAY_CONF_MISSING);
    expect(BELAY_CONF_MISSING, "a nil tensor was given to all_reduce", "");
    assert_int_equal(belay_group_all_reduce(group, small, BELAY_GROUP_SUM), BELAY_TYPE_DTYPE);
    expect(BELAY_TYPE_DTYPE, "all_reduce has no sums of u8", "");
    assert_int_equal(belay_group_all_reduce(group, t, BELAY_GROUP_OR), BELAY_TYPE_DTYPE);
    expect(BELAY_TYPE_DTYPE, "all_reduce has no bits joined by or of f32", "");
    assert_int_equal(belay_group_all_reduce(group, t, (belay_group_op)3), BELAY_CONF_VALUE);
    expect(BELAY_CONF_VALUE, "the operation of an all_reduce is 3, which is none", "");
    assert_int_equal(belay_group_broadcast(group, t, 1), BELAY_CONF_VALUE);
    expect(BELAY_CONF_VALUE, "the root of a broadcast is rank 1, of 1", "");
    assert_int_equal(belay_group_all_gather(group, t, wide), BELAY_SHAPE_CONTRACT);
    expect(BELAY_SHAPE_CONTRACT, "all_gather writes f32 [1, 2], and its output is f32 [2, 2]", "");
    assert_int_equal(belay_group_all_gather(group, t, small), BELAY_SHAPE_CONTRACT);
    expect(BELAY_SHAPE_CONTRACT, "all_gather writes f32 [1, 2], and its output is u8 [2]", "");
    belay_tensor turned = belay_transpose(wide, 0, 1);
    assert_int_equal(belay_group_broadcast(group, turned, 0), BELAY_SHAPE_CONTRACT);
    expect(BELAY_SHAPE_CONTRACT, "a tensor given to broadcast is not contiguous", "");
    int64_t n;
    assert_int_equal(belay_group_agree(group, -1, &n), BELAY_CONF_VALUE);
    expect(BELAY_CONF_VALUE, "ranks agree on numbers of batches, not -1", "");
    assert_int_equal(belay_group_agree(group, 1, NULL), BELAY_CONF_MISSING);
    expect(BELAY_CONF_MISSING, "ranks agree on a number of batches, and its place is NULL", "");
    assert_int_equal(belay_group_barrier(group), BELAY_OK);
    belay_faults_clear(context);
    assert_int_equal(belay_close(context), 0);
}

static void a_tensor_of_another_context_is_foreign(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    belay_context *other = belay_open(&(belay_options){.no_journal = true});
    belay_tensor t = belay_tensor_from(other, BELAY_F32, belay_shape1(1), (float[]){1}, 4);
    assert_int_equal(belay_group_broadcast(group, t, 0), BELAY_LIFE_FOREIGN);
    expect(BELAY_LIFE_FOREIGN, "a tensor given to broadcast belongs to another context", "");
    assert_int_equal(belay_close(other), 0);
    assert_int_equal(belay_close(context), 3);
}

static void after_giving_up_the_group_is_broken_in_silence(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    belay_group_abort(group, "enough");
    assert_int_equal(belay_group_barrier(group), BELAY_COMM_PEER);
    told_expect("%s", "");
    assert_int_equal(belay_close(context), 3);
}

/* Clearing faults does not take it back; a fault of its own comes before it. */
static void a_rank_that_gave_up_closes_with_a_status(void **state)
{
    (void)state;
    belay_group *group = open_bound();
    belay_group_abort(group, "enough");
    belay_group_close(group);
    belay_faults_clear(context);
    assert_int_equal(belay_close(context), 3);
    group = open_bound();
    belay_fault_raise(context, BELAY_FILE_OPEN, "cannot open 'x'");
    told_clear();
    belay_group_abort(group, "it has no data");
    assert_int_equal(belay_close(context), 4);
}

/* ---- how a group is not opened --------------------------------------------------------------------------------------- */

static void options_that_are_none_are_refused(void **state)
{
    (void)state;
    start();
    assert_true(belay_group_is_nil(belay_group_open(context, &(belay_group_options){.maker = "mip"})));
    expect_advice(BELAY_CONF_UNKNOWN, "there is no maker of groups called mip", "    did you mean mpi?\n",
                  "Use self or mpi, or leave it out.");
    assert_true(belay_group_is_nil(belay_group_open(context, &(belay_group_options){.timeout = -1})));
    expect(BELAY_CONF_VALUE, "timeout is -1 s, outside of [0, 1e6]", "");
    assert_true(belay_group_is_nil(belay_group_open(context, &(belay_group_options){.timeout = (double)NAN})));
    expect(BELAY_CONF_VALUE, "timeout is nan s, outside of [0, 1e6]", "");
    assert_int_equal(belay_close(context), 2);
}

static void rank_and_world_size_alone_start_nothing(void **state)
{
    (void)state;
    start();
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "6", 1);
    assert_true(belay_group_is_nil(belay_group_open(context, NULL)));
    expect_advice(BELAY_COMM_LAUNCH, "RANK is 1 and WORLD_SIZE 6, but neither mpirun nor srun started this process",
                  "    these two variables are another launcher's; Belay's ranks meet through MPI\n",
                  "Start it by `mpirun -n 6 PROGRAM` or `belay run -n 6 --mpi -- PROGRAM`.");
    belay_group *alone = belay_group_open(context, &(belay_group_options){.maker = "self"});
    assert_false(belay_group_is_nil(alone));
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    assert_int_equal(belay_close(context), 2);
}

static void mpi_needs_a_launcher(void **state)
{
    (void)state;
    start();
    assert_true(belay_group_is_nil(belay_group_open(context, &(belay_group_options){.maker = "mpi"})));
    expect_advice(BELAY_COMM_LAUNCH, "a group over mpi was asked for in a process that neither mpirun nor srun started",
                  "", "Start it by `mpirun -n 4 PROGRAM` or `belay run -n 4 --mpi -- PROGRAM`.");
    assert_int_equal(belay_close(context), 2);
}

/* Where the plug-in is loaded from is asked once, of the folder that is named or of those beside the program. */
static void a_plug_in_that_is_not_there_is_absent_with_the_places(void **state)
{
    (void)state;
    start();
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("BELAY_PLUGINS", "/nowhere", 1);
    assert_true(belay_group_is_nil(belay_group_open(context, NULL)));
    expect(BELAY_COMM_ABSENT, "libbelay_mpi.so is not found", "    looked in: /nowhere (BELAY_PLUGINS)\n");
    unsetenv("BELAY_PLUGINS");
    assert_true(belay_group_is_nil(belay_group_open(context, NULL)));
    char here[1024] = "", facts[4096];
    assert_true(readlink("/proc/self/exe", here, sizeof here - 1) > 0);
    *strrchr(here, '/') = '\0';
    snprintf(facts, sizeof facts, "    looked in: %s\n    looked in: %s/../lib/belay\n    looked in: %s/belay\n", here,
             here, here);
    expect(BELAY_COMM_ABSENT, "libbelay_mpi.so is not found", facts);
    assert_int_equal(belay_close(context), 4);
    start();
    told_close(context);
}

static void what_is_no_plug_in_is_absent_with_the_reason(void **state)
{
    (void)state;
    char folder[] = "/tmp/belay-plugins-XXXXXX", path[128], headline[256];
    start();
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/libbelay_mpi.so", folder);
    FILE *file = fopen(path, "w");
    fputs("no library", file);
    fclose(file);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("BELAY_PLUGINS", folder, 1);
    assert_true(belay_group_is_nil(belay_group_open(context, NULL)));
    snprintf(headline, sizeof headline, "belay: the plug-in %s cannot be loaded (comm.absent)\n", path);
    assert_memory_equal(told(), headline, strlen(headline));
    assert_true(words_have(told(), "libbelay_mpi.so"));
    told_clear();
    unlink(path);
    rmdir(folder);
    assert_int_equal(belay_close(context), 4);
}

/* ---- without memory -------------------------------------------------------------------------------------------------- */

static bool one_job(void)
{
    int64_t n;
    belay_group *group = belay_group_open(context, NULL);
    bool works = belay_group_bind(group, "cpu") == BELAY_OK;
    belay_tensor t = told_f32(context, belay_shape1(2), (float[]){1, 2});
    belay_tensor all = told_f32(context, belay_shape2(1, 2), (float[]){1, 2});
    works = works && belay_group_all_reduce(group, t, BELAY_GROUP_SUM) == BELAY_OK &&
            belay_group_broadcast(group, t, 0) == BELAY_OK && belay_group_all_gather(group, t, all) == BELAY_OK &&
            belay_group_agree(group, 2, &n) == BELAY_OK && belay_group_barrier(group) == BELAY_OK;
    belay_group_close(group);
    return works;
}

static void without_memory_each_call_is_a_named_fault(void **state)
{
    (void)state;
    bool works = false;
    for (int64_t n = 0; n < 500 && !works; n++) {
        start();
        bl_memory_fail_at(n);
        works = one_job();
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_true(works || failed);
        if (!works)
            assert_true(words_have(told(), "(mem.exhausted)"));
        told_clear();
        int status = belay_close(context);
        assert_true(works ? status == 0 : status == 4);
    }
    assert_true(works);
}

/* ---- for a launcher -------------------------------------------------------------------------------------------------- */

static json_t *status_of(const char *folder)
{
    char path[128];
    json_t *object = NULL;
    snprintf(path, sizeof path, "%s/rank0.status", folder);
    assert_int_equal(bl_json_read(path, 0, &object, NULL), BELAY_OK);
    return object;
}

static void expect_state(const char *folder, const char *wanted)
{
    json_t *object = status_of(folder);
    assert_string_equal(json_string_value(json_object_get(object, "state")), wanted);
    assert_int_equal(json_integer_value(json_object_get(object, "rank")), 0);
    assert_int_equal(json_integer_value(json_object_get(object, "size")), 1);
    assert_int_equal(json_integer_value(json_object_get(object, "pid")), getpid());
    json_decref(object);
}

static void a_launcher_reads_how_a_rank_stands(void **state)
{
    (void)state;
    char folder[] = "/tmp/belay-status-XXXXXX", path[128];
    start();
    assert_non_null(mkdtemp(folder));
    setenv("BELAY_STATUS", folder, 1);
    belay_group *group = belay_group_open(context, NULL);
    expect_state(folder, "running");
    belay_group_close(group);
    expect_state(folder, "closed");
    group = belay_group_open(context, NULL);
    belay_group_abort(group, "the disk is full");
    belay_group_close(group);
    expect_state(folder, "failed");
    json_t *object = status_of(folder);
    assert_string_equal(json_string_value(json_object_get(object, "code")), "comm.peer");
    assert_int_equal(json_integer_value(json_object_get(object, "status")), 5);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(object, "culprits"), 0)), 0);
    assert_string_equal(json_string_value(json_object_get(object, "why")), "rank 0 gave up: the disk is full");
    assert_string_equal(json_string_value(json_object_get(object, "advice")),
                        "Look at the rank named; this one is secondary.");
    assert_string_equal(json_string_value(json_object_get(object, "phase")), "outside of a step");
    json_decref(object);
    snprintf(path, sizeof path, "%s/rank0.status", folder);
    unlink(path);
    rmdir(folder);
    told_expect("%s", "");
    assert_int_equal(belay_close(context), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_alone_is_rank_0_of_1),
        cmocka_unit_test(operations_of_a_process_alone_leave_what_was_there),
        cmocka_unit_test(groups_of_one_process_may_be_many),
        cmocka_unit_test(nothing_is_said_of_a_group_that_is_nil),
        cmocka_unit_test(a_data_work_is_scaled_before_it_is_summed),
        cmocka_unit_test(an_operation_before_the_group_is_bound_is_refused),
        cmocka_unit_test(a_group_is_bound_once),
        cmocka_unit_test(a_device_that_is_none_binds_nothing),
        cmocka_unit_test(a_software_device_is_that_of_the_local_rank),
        cmocka_unit_test(a_closed_group_is_stale),
        cmocka_unit_test(a_group_is_closed_after_what_goes_over_it),
        cmocka_unit_test(tensors_that_cannot_be_moved_are_refused_and_the_group_goes_on),
        cmocka_unit_test(a_tensor_of_another_context_is_foreign),
        cmocka_unit_test(after_giving_up_the_group_is_broken_in_silence),
        cmocka_unit_test(a_rank_that_gave_up_closes_with_a_status),
        cmocka_unit_test(options_that_are_none_are_refused),
        cmocka_unit_test(rank_and_world_size_alone_start_nothing),
        cmocka_unit_test(mpi_needs_a_launcher),
        cmocka_unit_test(a_plug_in_that_is_not_there_is_absent_with_the_places),
        cmocka_unit_test(what_is_no_plug_in_is_absent_with_the_reason),
        cmocka_unit_test(without_memory_each_call_is_a_named_fault),
        cmocka_unit_test(a_launcher_reads_how_a_rank_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
