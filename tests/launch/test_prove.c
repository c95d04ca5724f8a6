/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs: what a call is refused for, in whole texts. */
#include "support/told.h"

#include <stdio.h>
#include <string.h>

#include "launch/launch.h"
#include "launch/prove.h"

static const belay_tensor nil;

static belay_tensor zeros(belay_context *context, belay_dtype dtype, int rank, int64_t a, int64_t b, int64_t c)
{
    return belay_zeros(context, dtype, (belay_shape){rank, {a, b, c}});
}

/* The paragraph of a refused op: headline, op, tensors. */
static void expect(int line, const char *what, const char *op, const char *tensors, belay_code code)
{
    told_expect("belay: %s (%s)\n"
                "    op: %s, called at test_prove.c:%d\n"
                "    tensors: %s; on cpu\n" TOLD_START "%s",
                what, belay_code_name(code), op, line, tensors, told_try(code));
}

static void maps_prove_shapes_and_dtypes(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = zeros(context, BELAY_F32, 2, 2, 3, 0), b = zeros(context, BELAY_F32, 2, 3, 2, 0);
    belay_tensor d = zeros(context, BELAY_F64, 2, 2, 3, 0), flags = zeros(context, BELAY_BOOL, 1, 3, 0, 0);
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_add(a, b)));
    expect(line, "a [2, 3] and b [3, 2] do not broadcast: 2 against 3", "add", "a [2, 3] f32; b [3, 2] f32",
           BELAY_SHAPE_CONTRACT);
    line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_mul(a, d)));
    expect(line, "b is f64 where f32 is needed", "mul", "a [2, 3] f32; b [2, 3] f64", BELAY_TYPE_DTYPE);
    line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_exp(belay_zeros(context, BELAY_I32, belay_shape1(1)))));
    expect(line, "exp takes floats, not i32", "exp", "x [1] i32", BELAY_TYPE_DTYPE);
    line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_add(flags, flags)));
    expect(line, "add takes numbers, not bool", "add", "a [3] bool; b [3] bool", BELAY_TYPE_DTYPE);
    line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_where(a, a, a)));
    expect(line, "condition is f32 where bool is needed", "where", "condition [2, 3] f32; a [2, 3] f32; b [2, 3] f32",
           BELAY_TYPE_DTYPE);
    assert_int_equal(belay_close(context), 3);
}

static void products_prove_their_sides(void **state)
{
    (void)state;
    belay_context *context = told_open();
    int line = __LINE__ + 1;
    belay_matmul(zeros(context, BELAY_F32, 2, 2, 3, 0), zeros(context, BELAY_F32, 2, 4, 5, 0));
    expect(line, "inner sizes differ: a has 3 columns, b has 4 rows", "matmul", "a [2, 3] f32; b [4, 5] f32",
           BELAY_SHAPE_CONTRACT);
    line = __LINE__ + 1;
    belay_matmul(zeros(context, BELAY_F32, 2, 2, 3, 0), zeros(context, BELAY_F64, 2, 3, 5, 0));
    expect(line, "a is f32, b is f64", "matmul", "a [2, 3] f32; b [3, 5] f64", BELAY_TYPE_DTYPE);
    line = __LINE__ + 1;
    belay_matmul(zeros(context, BELAY_I64, 2, 2, 3, 0), zeros(context, BELAY_I64, 2, 3, 5, 0));
    expect(line, "matmul takes floats, not i64", "matmul", "a [2, 3] i64; b [3, 5] i64", BELAY_TYPE_DTYPE);
    bl_call call = {.context = context, .op = BL_OP_matmul, .n_in = 2};
    call.in[0] = zeros(context, BELAY_F32, 3, 2, 3, 4);
    call.in[1] = zeros(context, BELAY_F32, 3, 3, 4, 5);
    assert_false(bl_launch_run(&call));
    assert_non_null(strstr(told(), "belay: a has 2 matrices, b has 3 (shape.contract)\n"));
    assert_int_equal(belay_close(context), 3);
}

/* By metadata: tensors of no elements have any size. */
static void a_side_that_the_blas_cannot_take_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t most = INT64_C(2147483647);
    belay_tensor y = belay_matmul(zeros(context, BELAY_F32, 2, most, 0, 0), zeros(context, BELAY_F32, 2, 0, 0, 0));
    assert_true(belay_tensor_is_alive(y));
    assert_string_equal(told(), "");
    int line = __LINE__ + 1;
    belay_matmul(zeros(context, BELAY_F32, 2, most + 1, 0, 0), zeros(context, BELAY_F32, 2, 0, 0, 0));
    expect(line, "a product of 2147483648 x 0 x 0 has a side above 2^31 - 1, the most that the BLAS takes", "matmul",
           "a [2147483648, 0] f32; b [0, 0] f32", BELAY_SIZE_OVERFLOW);
    line = __LINE__ + 1;
    belay_matmul(zeros(context, BELAY_F32, 2, 0, most + 1, 0), zeros(context, BELAY_F32, 2, most + 1, 0, 0));
    expect(line, "a product of 0 x 2147483648 x 0 has a side above 2^31 - 1, the most that the BLAS takes", "matmul",
           "a [0, 2147483648] f32; b [2147483648, 0] f32", BELAY_SIZE_OVERFLOW);
    assert_int_equal(belay_close(context), 3);
}

static void signatures_prove_axes_sizes_and_dtypes(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = zeros(context, BELAY_F32, 2, 2, 3, 0);
    bl_call norm = {.context = context, .op = BL_OP_layer_norm, .n_in = 3, .in = {x}};
    norm.in[1] = zeros(context, BELAY_F32, 1, 4, 0, 0);
    assert_false(bl_launch_run(&norm));
    assert_non_null(strstr(told(), "belay: axis 0 of w has size 4, but x gives 3 for it (shape.contract)\n"
                                   "    op: layer_norm\n"
                                   "    tensors: x [2, 3] f32; w [4] f32; on cpu\n"));
    told_clear();
    int line = __LINE__ + 1;
    belay_layer_norm(x, 1, zeros(context, BELAY_F64, 1, 3, 0, 0), nil, 0);
    expect(line, "weight is f64 where f32 is needed", "layer_norm", "x [2, 3] f32; weight [3] f64", BELAY_TYPE_DTYPE);
    belay_embedding(zeros(context, BELAY_F32, 1, 3, 0, 0), zeros(context, BELAY_I64, 1, 2, 0, 0), NULL);
    assert_non_null(strstr(told(), "(shape.rank)\n"));
    told_clear();
    belay_embedding(x, zeros(context, BELAY_F32, 1, 2, 0, 0), NULL);
    assert_non_null(strstr(told(), "(type.dtype)\n"));
    told_clear();
    bl_call call = {.context = context, .op = BL_OP_layer_norm, .n_in = 3, .in = {belay_transpose(x, 0, 1)}};
    assert_false(bl_launch_run(&call));
    assert_non_null(strstr(told(), "belay: layer_norm was launched on x, which is not contiguous (bug.invariant)\n"));
    told_clear();
    call.n_in = 2;
    assert_false(bl_launch_run(&call));
    assert_non_null(
        strstr(told(), "belay: layer_norm was launched with 2 operands, its row names 3 (bug.invariant)\n"));
    assert_int_equal(belay_close(context), 3);
}

/* ---- writing into a tensor that is there ----------------------------------------------------------------------------- */

static bool add_into(belay_context *context, belay_tensor a, belay_tensor b, belay_tensor into)
{
    bl_call call = {.context = context, .op = BL_OP_add, .n_in = 2, .in = {a, b}, .into = into};
    return bl_launch_run(&call);
}

static belay_tensor part(belay_context *context, belay_tensor x, int64_t n, int64_t stride, int64_t offset)
{
    belay_shape shape = belay_shape1(n);
    return bl_tensor_view(context, x, &shape, (const int64_t[BELAY_MAX_RANK]){stride}, offset);
}

static void a_map_may_write_the_very_view_that_it_reads(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = told_f32(context, belay_shape1(4), (const float[]){1, 2, 3, 4});
    assert_true(add_into(context, x, x, x));
    float out[4];
    told_read(x, out, 4);
    assert_memory_equal(out, ((const float[]){2, 4, 6, 8}), sizeof out);
    told_close(context);
}

static void a_result_over_another_part_of_an_operand_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(8));
    belay_tensor low = part(context, x, 4, 1, 0), shifted = part(context, x, 4, 1, 1), high = part(context, x, 4, 1, 4);
    belay_tensor repeated = part(context, x, 4, 0, 0), spread = part(context, x, 4, 2, 0);
    assert_true(add_into(context, high, high, low));
    const belay_tensor overlapping[] = {shifted, repeated, spread};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(told(), "");
        assert_false(add_into(context, low, overlapping[i], low));
        assert_non_null(strstr(told(), "belay: the output overlaps operand 1 (shape.contract)\n"));
        told_clear();
    }
    assert_true(belay_tensor_is_alive(low));
    assert_int_equal(belay_close(context), 3);
}

static void a_product_may_not_be_written_over_its_factors(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor a = zeros(context, BELAY_F32, 3, 1, 2, 2), b = zeros(context, BELAY_F32, 3, 1, 2, 2);
    bl_call call = {.context = context, .op = BL_OP_matmul, .n_in = 2, .in = {a, b}, .into = a};
    assert_false(bl_launch_run(&call));
    assert_non_null(strstr(told(), "belay: the output overlaps operand 0 (shape.contract)\n"));
    assert_int_equal(belay_close(context), 3);
}

static void what_is_written_has_the_results_shape_and_dtype(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = zeros(context, BELAY_F32, 1, 4, 0, 0);
    const belay_tensor wrong[] = {zeros(context, BELAY_F32, 1, 5, 0, 0), zeros(context, BELAY_F64, 1, 4, 0, 0),
                                  zeros(context, BELAY_F32, 2, 1, 4, 0),
                                  part(context, zeros(context, BELAY_F32, 1, 8, 0, 0), 4, 2, 0)};
    for (int i = 0; i < 4; i++) {
        assert_false(add_into(context, x, x, wrong[i]));
        assert_non_null(strstr(told(), "belay: the result does not fit the tensor that it should be written to "
                                       "(shape.contract)\n"));
        told_clear();
    }
    assert_int_equal(belay_close(context), 3);
}

static void what_a_row_writes_in_place_must_stand_alone(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor p = zeros(context, BELAY_F32, 1, 8, 0, 0), t = zeros(context, BELAY_F64, 1, 1, 0, 0);
    belay_tensor s = zeros(context, BELAY_F64, 1, 8, 0, 0);
    bl_call call = {.context = context, .op = BL_OP_optim_sgd, .n_in = 5, .in = {p, p, nil, t, s}};
    assert_false(bl_launch_run(&call));
    assert_non_null(strstr(told(), "belay: p is written and is also g (shape.contract)\n"));
    told_clear();
    call.in[0] = part(context, p, 4, 1, 0);
    call.in[1] = part(context, p, 4, 1, 3);
    assert_false(bl_launch_run(&call));
    assert_non_null(strstr(told(), "belay: p is written and is also g (shape.contract)\n"));
    told_clear();
    call.in[1] = part(context, p, 4, 1, 4);
    assert_true(bl_launch_run(&call));
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), 3);
}

/* ---- rows ------------------------------------------------------------------------------------------------------------ */

static void every_row_has_a_signature_that_fits_a_launch(void **state)
{
    (void)state;
    for (int op = 1; op < BL_N_OPS; op++) {
        const bl_signature *s = bl_signature_of(op);
        assert_true(s->is_valid);
        assert_true(s->n_in <= BL_MAX_IN && s->n_out <= BL_MAX_OUT);
        assert_true(s->n_in + s->n_out <= BL_MAX_OPERANDS);
        assert_true(bl_kernel_rows[op].table <= s->n_in + s->n_out);
        for (int k = 0; k < s->n_in + s->n_out; k++)
            assert_int_equal(bl_signature_find(s, s->operand[k].name), k);
    }
}

static void empty_tensors_launch_nothing_and_are_results(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = zeros(context, BELAY_F32, 2, 0, 3, 0);
    assert_int_equal(belay_tensor_shape(belay_add(x, x)).size[1], 3);
    assert_true(belay_tensor_item(belay_sum(x, NULL)) == 0);
    belay_tensor y = belay_matmul(zeros(context, BELAY_F32, 2, 2, 0, 0), zeros(context, BELAY_F32, 2, 0, 3, 0));
    float out[6];
    told_read(y, out, 6);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == 0);
    told_close(context);
}

static void a_device_says_when_it_has_no_code(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const bl_launch launch = {.op = BL_OP_add, .dtype = BELAY_BOOL, .n_items = 1};
    assert_int_equal(context->device->api->run(context->device, 0, &launch), BELAY_TYPE_DTYPE);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_prove_shapes_and_dtypes),
        cmocka_unit_test(products_prove_their_sides),
        cmocka_unit_test(a_side_that_the_blas_cannot_take_is_refused),
        cmocka_unit_test(signatures_prove_axes_sizes_and_dtypes),
        cmocka_unit_test(a_map_may_write_the_very_view_that_it_reads),
        cmocka_unit_test(a_result_over_another_part_of_an_operand_is_refused),
        cmocka_unit_test(a_product_may_not_be_written_over_its_factors),
        cmocka_unit_test(what_is_written_has_the_results_shape_and_dtype),
        cmocka_unit_test(what_a_row_writes_in_place_must_stand_alone),
        cmocka_unit_test(every_row_has_a_signature_that_fits_a_launch),
        cmocka_unit_test(empty_tensors_launch_nothing_and_are_results),
        cmocka_unit_test(a_device_says_when_it_has_no_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
