/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of the table: maps against their formulas in double, every other column against f64, gradients against
 * finite differences. */
#include "op/rows.h"

/* ---- formulas -------------------------------------------------------------------------------------------------------- */

static double ref_gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

/* The forward maps in double; in[0] is the first operand. */
static bool formula(const char *name, const double *in, double *out)
{
    const double a = in[0], b = in[1], c = in[2];
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"add", a + b},
        {"sub", a - b},
        {"mul", a * b},
        {"div", a / b},
        {"neg", -a},
        {"exp", exp(a)},
        {"log", log(a)},
        {"sqrt", sqrt(a)},
        {"relu", fmax(a, 0)},
        {"tanh", tanh(a)},
        {"sigmoid", 1 / (1 + exp(-a))},
        {"gelu", 0.5 * a * erfc(-a * M_SQRT1_2)},
        {"gelu_tanh", ref_gelu_tanh(a)},
        {"affine", a * 0.375 + 1.5},
        {"clamp", fmin(fmax(a, 0.375), 1.5)},
        {"pow", pow(a, b)},
        {"pow_number", pow(a, 0.375)},
        {"abs", fabs(a)},
        {"maximum", fmax(a, b)},
        {"minimum", fmin(a, b)},
        {"silu", a / (1 + exp(-a))},
        {"softplus", log(1 + exp(a))},
        {"binary_error", (1 - b) * log(1 + exp(a)) + b * log(1 + exp(-a))},
        {"squared_error", (a - b) * (a - b)},
        {"eq", a == b},
        {"ne", a != b},
        {"lt", a < b},
        {"le", a <= b},
        {"gt", a > b},
        {"ge", a >= b},
        {"where", a != 0 ? b : c},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0) {
            *out = all[i].value;
            return true;
        }
    return false;
}

/* Gradients and draws have no formula here: the gradient tests and the tests of random numbers hold them. */
static bool needs_formula(int op)
{
    const bl_row *row = &bl_kernel_rows[op];
    return row_is_map(op) && strstr(row->name, "_grad") == NULL && row->skeleton != BL_SKELETON_MAP0P &&
           row->skeleton != BL_SKELETON_MAP0R && row->skeleton != BL_SKELETON_MAP1R &&
           row->skeleton != BL_SKELETON_MASK;
}

static void maps_are_their_formulas(void **state)
{
    (void)state;
    static double want[128];
    belay_context *context = open_with(1);
    for (int op = 1; op < BL_N_OPS; op++) {
        if (!row_runs_here(op) || !needs_formula(op))
            continue;
        int64_t size[8];
        row_inputs r;
        sizes_ragged(op, size);
        row_draw(&r, op, size);
        for (int64_t i = 0; i < size[0]; i++) {
            const double in[] = {r.v[0][i], r.n > 1 ? r.v[1][i] : 0, r.n > 2 ? r.v[2][i] : 0};
            if (!formula(bl_kernel_rows[op].name, in, &want[i]))
                fail_msg("row %s has no formula in this test", bl_kernel_rows[op].name);
        }
        bl_call call = row_call(context, &r, BELAY_F64, NULL);
        assert_true(row_run(&call));
        assert_numbers(bl_kernel_rows[op].name, call.out[0], want, 1e-14, 1e-15);
        row_free(&r);
    }
    close_clean(context);
}

/* ---- columns --------------------------------------------------------------------------------------------------------- */

static double relative_of(int dtype)
{
    return dtype == BELAY_BF16 ? 0x1p-8 : dtype == BELAY_F16 ? 0x1p-10 : dtype == BELAY_F32 ? 4e-6 : 0;
}

/* What an integer dtype keeps of a whole number. */
static double wrapped(int dtype, double v)
{
    int64_t whole = (int64_t)v;
    switch (dtype) {
    case BELAY_I32:
        return (double)(int32_t)(uint32_t)(uint64_t)whole;
    case BELAY_U16:
        return (double)(uint16_t)(uint64_t)whole;
    case BELAY_U8:
        return (double)(uint8_t)(uint64_t)whole;
    case BELAY_BOOL:
        return whole != 0;
    default:
        return v;
    }
}

/* Numbers that the dtype holds; sums of whole ones are not divided. */
static void fit_inputs(row_inputs *r, int dtype)
{
    if (bl_kernel_rows[r->op].skeleton == BL_SKELETON_REDUCE)
        r->params.f[0] = 1;
    for (int k = 0; k < r->n; k++)
        for (int64_t i = 0; r->dtype[k] == BL_SIGNATURE_COLUMN && i < count_of(r->shape[k]); i++)
            r->v[k][i] = wrapped(dtype, nearbyint(fabs(r->v[k][i])));
}

static void assert_column(const row_inputs *r, int dtype)
{
    static double want[MOST_ROW_NUMBERS], got[MOST_ROW_NUMBERS];
    belay_context *context = open_with(1);
    const char *name = bl_kernel_rows[r->op].name;
    bl_call wide = row_call(context, r, BELAY_F64, NULL), narrow = row_call(context, r, (belay_dtype)dtype, NULL);
    if (!row_run(&wide) || !row_run(&narrow))
        fail_msg("%s did not run on %s: %s", name, belay_dtype_name((belay_dtype)dtype), told);
    assert_int_equal(wide.n_out, narrow.n_out);
    for (int o = 0; o < wide.n_out; o++) {
        int64_t n = read_numbers(wide.out[o], want, MOST_ROW_NUMBERS);
        assert_int_equal(read_numbers(narrow.out[o], got, MOST_ROW_NUMBERS), n);
        bool is_float = belay_dtype_is_float(belay_tensor_dtype(narrow.out[o]));
        for (int64_t i = 0; i < n; i++) {
            double wanted = is_float ? want[i] : wrapped(belay_tensor_dtype(narrow.out[o]), want[i]);
            if (!is_near(got[i], wanted, is_float ? relative_of(dtype) : 0, is_float ? 4e-6 : 0))
                fail_msg("%s on %s, output %d: element %lld is %.17g, f64 gives %.17g", name,
                         belay_dtype_name((belay_dtype)dtype), o, (long long)i, got[i], wanted);
        }
    }
    close_clean(context);
}

static void every_column_is_the_f64_column_rounded(void **state)
{
    (void)state;
    int n_columns = 0;
    for (int op = 1; op < BL_N_OPS; op++)
        for (int dtype = 0; row_runs_here(op) && dtype < BELAY_N_DTYPES; dtype++) {
            if (!row_has_column(op, dtype) || dtype == BELAY_F64)
                continue;
            int64_t size[8];
            row_inputs r;
            sizes_ragged(op, size);
            row_draw(&r, op, size);
            if (!belay_dtype_is_float((belay_dtype)dtype))
                fit_inputs(&r, dtype);
            assert_column(&r, dtype);
            row_free(&r);
            n_columns++;
        }
    assert_true(n_columns > 150);
}

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

typedef struct row_expression {
    const row_inputs *r;
    int operand[BL_MAX_IN]; /* which the expression's inputs are */
    int n;
} row_expression;

static belay_tensor run_row(belay_context *context, const belay_tensor *in, void *state)
{
    const row_expression *e = state;
    belay_tensor given[BL_MAX_IN] = {{0}};
    for (int k = 0; k < e->n; k++)
        given[e->operand[k]] = in[k];
    bl_call call = row_call(context, e->r, BELAY_F64, given);
    return bl_op_run(&call);
}

static bool has_gradient(int op, int k)
{
    const bl_row *row = &bl_kernel_rows[op];
    if (row_is_map(op))
        return row->grad[k] != BL_OP_none;
    char name[64];
    snprintf(name, sizeof name, "g_%s", bl_signature_of(op)->operand[k].name);
    for (int g = 0; g < BL_MAX_GRADS && row->grad[g] != BL_OP_none; g++)
        if (bl_signature_find(bl_signature_of(row->grad[g]), name) >= bl_signature_of(row->grad[g])->n_in)
            return true;
    return false;
}

static void gradients_are_the_slopes(void **state)
{
    (void)state;
    int n_rows = 0;
    for (int op = 1; op < BL_N_OPS; op++) {
        if (!row_runs_here(op) || strncmp(bl_kernel_rows[op].name, "lstm", 4) == 0)
            continue;
        int64_t size[8];
        row_inputs r;
        sizes_ragged(op, size);
        row_draw(&r, op, size);
        row_expression e = {.r = &r};
        belay_shape shapes[4];
        double *values[4];
        for (int k = 0; k < r.n; k++)
            if (r.dtype[k] == BL_SIGNATURE_COLUMN && has_gradient(op, k)) {
                shapes[e.n] = r.shape[k];
                values[e.n] = r.v[k];
                e.operand[e.n++] = k;
                /* Off the grid, so that no kink and no tie lies between the two points. */
                for (int64_t i = 0; i < count_of(r.shape[k]); i++)
                    r.v[k][i] += draw(0.001, 0.02);
            }
        belay_context *context = open_with(1);
        if (e.n > 0)
            assert_gradients(bl_kernel_rows[op].name, context, run_row, &e, e.n, shapes, values);
        n_rows += e.n > 0;
        close_clean(context);
        row_free(&r);
    }
    assert_true(n_rows > 25);
}

/* Gradients of broadcast operands add up over what was repeated. */
static belay_tensor multiply(belay_context *c, const belay_tensor *in, void *s)
{
    (void)c, (void)s;
    return belay_mul(in[0], in[1]);
}
static belay_tensor choose(belay_context *c, const belay_tensor *in, void *s)
{
    (void)s;
    const uint8_t bits[] = {1, 0, 1};
    return belay_where(from_bytes(c, BELAY_BOOL, belay_shape2(3, 1), bits, 3), in[0], in[1]);
}

static void gradients_of_broadcast_operands_add_up(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const belay_shape pairs[][2] = {
        {belay_shape2(3, 4), belay_shape1(4)},       {belay_shape2(3, 1), belay_shape2(1, 4)},
        {belay_shape0(), belay_shape2(3, 4)},        {belay_shape3(2, 1, 4), belay_shape2(3, 1)},
        {belay_shape3(1, 1, 1), belay_shape2(3, 4)},
    };
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        double a[32], b[32], *values[] = {a, b};
        draw_many(a, 32, -2, 2);
        draw_many(b, 32, -2, 2);
        assert_gradients("mul", context, multiply, NULL, 2, pairs[p], values);
        assert_gradients("where", context, choose, NULL, 2, pairs[p], values);
    }
    close_clean(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_their_formulas),
        cmocka_unit_test(every_column_is_the_f64_column_rounded),
        cmocka_unit_test(gradients_are_the_slopes),
        cmocka_unit_test(gradients_of_broadcast_operands_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
