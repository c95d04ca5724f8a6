/* SPDX-License-Identifier: Apache-2.0 */
/* 2^31 - 1, 2^31 and 2^31 + 1 as numbers of elements, of bytes, and as row times width: by metadata only.  A view repeats
 * one element, or a table is made of addresses of which a few pages are ever touched. */
#include "support/told.h"

#include <belay/devices.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/context.h"

enum { N_EDGES = 3 };
static const int64_t edges[N_EDGES] = {(INT64_C(1) << 31) - 1, INT64_C(1) << 31, (INT64_C(1) << 31) + 1};

static belay_tensor repeated(belay_context *context, belay_dtype dtype, belay_shape shape)
{
    return belay_expand(belay_ones(context, dtype, belay_shape1(1)), shape);
}

static void elements_are_counted_and_reached_in_64_bits(void **state)
{
    (void)state;
    belay_context *context = told_open();
    for (int i = 0; i < N_EDGES; i++) {
        const int64_t n = edges[i];
        belay_tensor x = repeated(context, BELAY_U8, belay_shape1(n));
        assert_int_equal(belay_tensor_n_elements(x), n);
        assert_true(belay_tensor_item(belay_select(x, 0, -1)) == 1);
        assert_true(belay_tensor_item(belay_select(x, 0, n - 1)) == 1);
        assert_int_equal(belay_tensor_n_elements(belay_slice(x, 0, n - 2, BELAY_END, 1)), 2);
        assert_int_equal(belay_tensor_n_elements(belay_slice(x, 0, 0, BELAY_END, 2)), (n + 1) / 2);
        assert_string_equal(told(), "");
        int line = __LINE__ + 1;
        assert_true(belay_tensor_is_nil(belay_select(x, 0, n)));
        told_expect("belay: index %lld of axis 0, which has size %lld (shape.axis)\n"
                    "    op: select, called at test_extents.c:%d\n"
                    "    tensors: x [%lld] u8; on cpu\n" TOLD_START "%s",
                    (long long)n, (long long)n, line, (long long)n, told_try(BELAY_SHAPE_AXIS));
    }
    assert_int_equal(belay_close(context), 3);
}

static void bytes_are_counted_in_64_bits(void **state)
{
    (void)state;
    belay_context *context = told_open();
    char bytes[2];
    for (int i = 0; i < N_EDGES; i++)
        for (int wide = 0; wide < 2; wide++) {
            const belay_dtype dtype = wide ? BELAY_F64 : BELAY_U8;
            const int64_t n = edges[i], n_bytes = n * belay_dtype_size(dtype);
            belay_tensor x = repeated(context, dtype, belay_shape2(n, 1));
            int line = __LINE__ + 1;
            assert_int_equal(belay_tensor_read(x, bytes, sizeof bytes), BELAY_SHAPE_CONTRACT);
            told_expect("belay: 2 bytes were given for a tensor [%lld, 1] %s of %lld bytes (shape.contract)\n"
                        "    called at: test_extents.c:%d\n" TOLD_START "%s",
                        (long long)n, belay_dtype_name(dtype), (long long)n_bytes, line,
                        told_try(BELAY_SHAPE_CONTRACT));
        }
    assert_int_equal(belay_close(context), 3);
}

/* Rows of one element: row times width is the row's number. */
static void rows_past_2_to_the_31st_are_read_and_the_next_is_refused(void **state)
{
    (void)state;
    told_clear();
    belay_context *context = belay_open(
        &(belay_options){.device = "sim:0", .log = told_remember, .no_journal = true, .memory = BELAY_MEMORY_POOL});
    const int64_t rows = edges[N_EDGES - 1] + 1;
    const belay_shape shape = belay_shape2(rows, 1);
    belay_tensor table = bl_tensor_new(context, BELAY_BF16, &shape, "table");
    if (belay_tensor_is_nil(table)) /* not so many addresses here */
        skip();
    const uint16_t values[N_EDGES] = {0x3f80, 0x4000, 0x4040}; /* 1, 2, 3 */
    for (int i = 0; i < N_EDGES; i++)
        assert_int_equal(belay_tensor_write(belay_slice(table, 0, edges[i], edges[i] + 1, 1), &values[i], 2), BELAY_OK);
    belay_tensor ids = belay_tensor_from(context, BELAY_I64, belay_shape1(N_EDGES), edges, sizeof edges);
    belay_tensor places = belay_view(ids, belay_shape2(N_EDGES, 1));
    belay_tensor found[] = {belay_embedding(table, ids, NULL), belay_index_select(table, 0, ids, NULL),
                            belay_gather(table, 0, places, NULL), belay_index(table, &ids, 1, NULL)};
    for (int i = 0; i < 4; i++) {
        uint16_t got[N_EDGES] = {0};
        assert_int_equal(belay_tensor_read(found[i], got, sizeof got), BELAY_OK);
        assert_memory_equal(got, values, sizeof got);
    }
    assert_string_equal(told(), "");
    belay_tensor past = belay_tensor_name_set(belay_full(context, BELAY_I64, belay_shape1(1), (double)rows), "past");
    int line = __LINE__ + 1;
    belay_embedding(table, past, NULL);
    int fence = __LINE__ + 1;
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    told_expect("belay: past[0] is %lld, outside [0, %lld) of table (index.range)\n"
                "    op: embedding, called at test_extents.c:%d, launch %llu\n"
                "    surfaced at: test_extents.c:%d\n"
                "    tensors: table [%lld, 1] bf16; past [1] i64; on sim:0\n"
                "    bad: 1 of 1 elements; values %lld\n" TOLD_START
                "    likely: the value equals the bound: off by one, or a padding or special id that the table was not "
                "grown for\n"
                "    try: Count ids from 0; a padding or special token needs a row of its own: make the table one row "
                "larger.\n",
                (long long)rows, (long long)rows, line, (unsigned long long)context->n_launches, fence, (long long)rows,
                (long long)rows);
    assert_int_equal(belay_close(context), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_counted_and_reached_in_64_bits),
        cmocka_unit_test(bytes_are_counted_in_64_bits),
        cmocka_unit_test(rows_past_2_to_the_31st_are_read_and_the_next_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
