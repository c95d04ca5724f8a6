/* SPDX-License-Identifier: Apache-2.0 */
/* A group that is whole: every operation, dtype and root; sizes of nothing, ragged ones and, with BELAY_MPI_PIECE in the
 * environment, ones that are moved in many pieces; groups one after the other. */
#include "dist/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "dist/group.h"

static const int64_t sizes[] = {0, 1, 7, 64, 1001};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], MOST = 1001 };

static ranks r;

/* What rank `rank` holds at place i: small whole numbers, exact in every dtype, other bits for `or`. */
static int64_t value_of(int rank, int64_t i, bool is_bits) { return is_bits ? 1 << rank : (i * 3 + rank * 5) % 11; }

static void put(belay_dtype dtype, void *to, int64_t i, int64_t value)
{
    switch (dtype) {
    case BELAY_F32:
        ((float *)to)[i] = (float)value;
        break;
    case BELAY_F64:
        ((double *)to)[i] = (double)value;
        break;
    case BELAY_BF16:
        ((bl_bf16 *)to)[i] = bl_to_bf16((float)value);
        break;
    case BELAY_F16:
        ((bl_f16 *)to)[i] = bl_to_f16((float)value);
        break;
    case BELAY_I64:
        ((int64_t *)to)[i] = value;
        break;
    case BELAY_I32:
        ((int32_t *)to)[i] = (int32_t)value;
        break;
    case BELAY_U16:
        ((uint16_t *)to)[i] = (uint16_t)value;
        break;
    case BELAY_BOOL:
        ((uint8_t *)to)[i] = value & 1;
        break;
    default:
        ((uint8_t *)to)[i] = (uint8_t)value;
        break;
    }
}

static int64_t joined(belay_dtype dtype, belay_group_op op, int64_t i)
{
    int64_t all = 0;
    for (int rank = 0; rank < r.size; rank++) {
        int64_t v = value_of(rank, i, op == BELAY_GROUP_OR);
        v = dtype == BELAY_BOOL ? v & 1 : v;
        all = op == BELAY_GROUP_SUM ? all + v : op == BELAY_GROUP_OR ? all | v : v > all ? v : all;
    }
    return all;
}

static bool has(belay_dtype dtype, belay_group_op op)
{
    bool is_small = dtype == BELAY_U16 || dtype == BELAY_U8 || dtype == BELAY_BOOL;
    return op == BELAY_GROUP_SUM ? !is_small : op == BELAY_GROUP_MAX || !belay_dtype_is_float(dtype);
}

static void reduce_one(belay_dtype dtype, belay_group_op op, int64_t n)
{
    static double mine[MOST], wanted[MOST], got[MOST];
    int64_t n_bytes = n * belay_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        put(dtype, mine, i, value_of(r.rank, i, op == BELAY_GROUP_OR));
        put(dtype, wanted, i, joined(dtype, op, i));
    }
    belay_scope scope = belay_scope_open(r.context);
    belay_tensor t = belay_tensor_from(r.context, dtype, belay_shape1(n), mine, n_bytes);
    assert_int_equal(belay_group_all_reduce(r.group, t, op), BELAY_OK);
    assert_int_equal(belay_tensor_read(t, got, n_bytes), BELAY_OK);
    assert_memory_equal(got, wanted, (size_t)n_bytes);
    belay_scope_close(scope);
}

static void all_reduce_joins_every_dtype_by_every_operation(void **state)
{
    (void)state;
    r = ranks_open(0);
    for (int dtype = 0; dtype < BELAY_N_DTYPES; dtype++)
        for (int op = BELAY_GROUP_SUM; op <= BELAY_GROUP_OR; op++)
            for (int s = 0; s < N_SIZES && has((belay_dtype)dtype, (belay_group_op)op); s++)
                reduce_one((belay_dtype)dtype, (belay_group_op)op, sizes[s]);
    ranks_close(&r);
}

static void the_largest_is_nan_where_one_is(void **state)
{
    (void)state;
    r = ranks_open(0);
    for (int nan_at = 0; nan_at < r.size; nan_at++) {
        float value = r.rank == nan_at ? __builtin_nanf("") : (float)r.rank;
        belay_tensor t = told_f32(r.context, belay_shape1(1), &value);
        assert_int_equal(belay_group_all_reduce(r.group, t, BELAY_GROUP_MAX), BELAY_OK);
        told_read(t, &value, 1);
        assert_true(value != value);
    }
    ranks_close(&r);
}

/* 2048 is the first f16 that has no neighbour one away: 2048 + 1 is a tie and stays even, 2048 + 3 goes up. */
static void sums_of_f16_round_to_nearest_even(void **state)
{
    (void)state;
    r = ranks_open(0);
    bl_f16 values[2] = {bl_to_f16(r.rank == 0   ? 2048.0f
                                  : r.rank == 1 ? 1.0f
                                                : 0.0f),
                        bl_to_f16(r.rank == 0   ? 2048.0f
                                  : r.rank == 1 ? 3.0f
                                                : 0.0f)};
    belay_tensor t = belay_tensor_from(r.context, BELAY_F16, belay_shape1(2), values, 4);
    assert_int_equal(belay_group_all_reduce(r.group, t, BELAY_GROUP_SUM), BELAY_OK);
    assert_int_equal(belay_tensor_read(t, values, 4), BELAY_OK);
    assert_true(bl_from_f16(values[0]) == 2048.0f);
    assert_true(bl_from_f16(values[1]) == (r.size > 1 ? 2052.0f : 2048.0f));
    ranks_close(&r);
}

static void broadcast_gives_all_what_the_root_has(void **state)
{
    (void)state;
    r = ranks_open(0);
    static float values[MOST], got[MOST];
    for (int root = 0; root < r.size; root++)
        for (int s = 0; s < N_SIZES; s++) {
            for (int64_t i = 0; i < sizes[s]; i++)
                values[i] = (float)(r.rank * 10000) + (float)i;
            belay_tensor t = told_f32(r.context, belay_shape1(sizes[s]), values);
            assert_int_equal(belay_group_broadcast(r.group, t, root), BELAY_OK);
            told_read(t, got, sizes[s]);
            for (int64_t i = 0; i < sizes[s]; i++)
                assert_true(got[i] == (float)(root * 10000) + (float)i);
        }
    ranks_close(&r);
}

static void all_gather_puts_ranks_in_their_order(void **state)
{
    (void)state;
    r = ranks_open(0);
    static float values[MOST];
    float *got = test_malloc((size_t)r.size * sizeof values);
    for (int s = 0; s < N_SIZES; s++) {
        int64_t n = sizes[s];
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)(r.rank * 10000) + (float)i;
        belay_tensor in = told_f32(r.context, belay_shape1(n), values);
        memset(got, 0, (size_t)r.size * sizeof values);
        belay_tensor out = told_f32(r.context, belay_shape2(r.size, n), got);
        assert_int_equal(belay_group_all_gather(r.group, in, out), BELAY_OK);
        told_read(out, got, n * r.size);
        for (int64_t i = 0; i < n * r.size; i++)
            assert_true(got[i] == (float)(i / n * 10000) + (float)(i % n));
    }
    test_free(got);
    ranks_close(&r);
}

static void operations_reach_software_devices(void **state)
{
    (void)state;
    r = ranks_open_unbound(0);
    assert_int_equal(belay_group_bind(r.group, "sim"), BELAY_OK);
    char name[16];
    snprintf(name, sizeof name, "sim:%d", belay_group_local_rank(r.group));
    assert_string_equal(belay_device_get(r.context), name);
    float value = (float)r.rank;
    belay_tensor t = told_f32(r.context, belay_shape1(1), &value);
    assert_int_equal(belay_group_all_reduce(r.group, t, BELAY_GROUP_SUM), BELAY_OK);
    told_read(t, &value, 1);
    assert_true(value == (float)(r.size * (r.size - 1) / 2));
    ranks_close(&r);
}

static void ranks_agree_on_the_least(void **state)
{
    (void)state;
    r = ranks_open(0);
    belay_site_push(r.context, "loop");
    int64_t least = 0;
    assert_int_equal(belay_group_agree(r.group, 5, &least), BELAY_OK);
    assert_int_equal(least, 5);
    assert_int_equal(belay_group_agree(r.group, 10 + r.rank, &least), BELAY_OK);
    assert_int_equal(least, 10);
    if (r.rank > 0)
        ranks_expect(
            "belay: rank %d leaves out %d of its %d batches: rank 0 has 10 (comm.uneven)\n    called at: loop\n"
            "%s%s",
            r.rank, r.rank, 10 + r.rank, ranks_start(&r), told_try(BELAY_COMM_UNEVEN));
    ranks_close(&r);
}

static void host_memory_goes_from_rank_to_rank(void **state)
{
    (void)state;
    r = ranks_open(0);
    char text[32] = "";
    double sums[2] = {1, (double)r.rank};
    int32_t mine = r.rank * 7, all[64];
    snprintf(text, sizeof text, "of rank %d", r.rank);
    assert_int_equal(bl_group_host_broadcast(r.group, text, sizeof text, r.size - 1, "a text"), BELAY_OK);
    assert_int_equal(text[8] - '0', r.size - 1);
    assert_int_equal(bl_group_host_all_reduce(r.group, sums, 2, BELAY_F64, BELAY_GROUP_SUM, "sums"), BELAY_OK);
    assert_true(sums[0] == r.size && sums[1] == r.size * (r.size - 1) / 2);
    assert_int_equal(bl_group_host_all_gather(r.group, &mine, all, sizeof mine, "numbers"), BELAY_OK);
    for (int i = 0; i < r.size; i++)
        assert_int_equal(all[i], i * 7);
    ranks_close(&r);
}

static void works_that_overlap_end_in_their_order(void **state)
{
    (void)state;
    enum { N = 12, LONG = 50000 };
    r = ranks_open(0);
    static float data[N][LONG];
    bl_work works[N];
    uint64_t ready = 0;
    for (int i = 0; i < N; i++) {
        for (int64_t k = 0; k < LONG; k++)
            data[i][k] = (float)(i + 1) * (float)(r.rank + 1);
        works[i] = (bl_work){.plane = BL_PLANE_DATA, .data = data[i], .n = LONG, .dtype = BELAY_F32, .factor = 0.5f};
        works[i].ready = &ready;
        works[i].ready_at = (uint64_t)i;
        bl_group_post(r.group, &works[i]);
    }
    assert_int_equal(belay_group_barrier(r.group), BELAY_OK); /* words pass what waits */
    assert_false(bl_work_is_over(&works[N - 1]));
    __atomic_store_n(&ready, N, __ATOMIC_RELEASE);
    for (int i = N - 1; i >= 0; i--)
        assert_true(bl_group_wait(r.group, &works[i]));
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < LONG; k++)
            assert_true(data[i][k] == 0.5f * (float)(i + 1) * (float)(r.size * (r.size + 1) / 2));
    ranks_close(&r);
}

static void one_group_over_mpi_at_a_time(void **state)
{
    (void)state;
    r = ranks_open(0);
    belay_site_push(r.context, "loop");
    if (ranks_self() >= 0) {
        assert_true(belay_group_is_nil(belay_group_open(r.context, NULL)));
        ranks_expect(
            "belay: a group over mpi was opened while this process has one (conf.order)\n    called at: loop\n%s"
            "    try: Close the first group, on all ranks, or use it.\n",
            ranks_start(&r));
    }
    belay_group_close(r.group);
    r.group = belay_group_open(r.context, NULL);
    assert_int_equal(belay_group_bind(r.group, "cpu"), BELAY_OK);
    assert_int_equal(belay_group_barrier(r.group), BELAY_OK);
    belay_faults_clear(r.context);
    ranks_close(&r);
}

/* It would wait for a thread that only its parent has. */
static void a_forked_child_has_no_group_over_mpi(void **state)
{
    (void)state;
    if (ranks_self() < 0)
        skip();
    r = ranks_open(0);
    ranks_close(&r);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        char wanted[160];
        belay_context *context = told_open();
        bool is_nil = belay_group_is_nil(belay_group_open(context, NULL));
        snprintf(wanted, sizeof wanted,
                 "belay: process %d was forked from %d, which has used mpi, and cannot use it itself "
                 "(comm.failed)\n",
                 (int)getpid(), (int)parent);
        _exit(is_nil && strstr(told(), wanted) != NULL ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_joins_every_dtype_by_every_operation),
        cmocka_unit_test(the_largest_is_nan_where_one_is),
        cmocka_unit_test(sums_of_f16_round_to_nearest_even),
        cmocka_unit_test(broadcast_gives_all_what_the_root_has),
        cmocka_unit_test(all_gather_puts_ranks_in_their_order),
        cmocka_unit_test(operations_reach_software_devices),
        cmocka_unit_test(ranks_agree_on_the_least),
        cmocka_unit_test(host_memory_goes_from_rank_to_rank),
        cmocka_unit_test(works_that_overlap_end_in_their_order),
        cmocka_unit_test(one_group_over_mpi_at_a_time),
        cmocka_unit_test(a_forked_child_has_no_group_over_mpi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
