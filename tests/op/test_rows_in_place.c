/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that write over what they are given: every column against f64, as the others in test_rows.c; and every row of the
 * table stands in one of the tests. */
#include "op/rows.h"

#include "base/attributes.h"
#include "optim/optim.h"

static bool writes_in_place(int op)
{
    bl_skeleton skeleton = bl_kernel_rows[op].skeleton;
    return op != BL_OP_none && !row_runs_here(op) && skeleton != BL_SKELETON_COPY && skeleton != BL_SKELETON_MATMUL;
}

static double relative_of(int dtype)
{
    return dtype == BELAY_BF16 ? 0x1p-7 : dtype == BELAY_F16 ? 0x1p-9 : dtype == BELAY_F32 ? 1e-5 : 0;
}

/* What an optimizer and a loss scale keep has a size that no operand tells; limits that are no whole numbers would be
 * others for those that are. */
static void draw_inputs(row_inputs *r, int op)
{
    const bl_signature *s = bl_signature_of(op);
    int64_t size[8];
    sizes_ragged(op, size);
    for (int i = 0; i < s->n_symbols; i++)
        if (s->symbol[i] == 'S')
            size[i] = BL_OPTIM_STATE;
    row_draw(r, op, size);
    if (op == BL_OP_bounds) {
        r->params.f[0] = (double)(r->params.i[0] = 1);
        r->params.f[1] = (double)(r->params.i[1] = 2) + 1;
    }
}

/* Numbers that a dtype of whole ones holds. */
static void fit_inputs(row_inputs *r, int dtype)
{
    for (int k = 0; k < r->n; k++)
        for (int64_t i = 0; r->dtype[k] == BL_SIGNATURE_COLUMN && i < count_of(r->shape[k]); i++)
            r->v[k][i] = dtype == BELAY_BOOL ? r->v[k][i] > 1.5 : nearbyint(fabs(r->v[k][i]));
}

static void assert_near(const char *what, const char *operand, int dtype, belay_tensor wide, belay_tensor narrow)
{
    static double want[MOST_ROW_NUMBERS], got[MOST_ROW_NUMBERS];
    int64_t n = read_numbers(wide, want, MOST_ROW_NUMBERS);
    assert_int_equal(read_numbers(narrow, got, MOST_ROW_NUMBERS), n);
    for (int64_t i = 0; i < n; i++)
        if (!is_near(got[i], want[i], relative_of(dtype), relative_of(dtype)))
            fail_msg("%s on %s, %s: element %lld is %.17g, f64 gives %.17g", what, belay_dtype_name((belay_dtype)dtype),
                     operand, (long long)i, got[i], want[i]);
}

static void assert_column(const row_inputs *r, int dtype)
{
    const bl_signature *s = bl_signature_of(r->op);
    const char *name = bl_kernel_rows[r->op].name;
    belay_context *context = open_with(1);
    bl_call wide = row_call(context, r, BELAY_F64, NULL), narrow = row_call(context, r, (belay_dtype)dtype, NULL);
    if (!row_run(&wide) || !row_run(&narrow))
        fail_msg("%s did not run on %s: %s", name, belay_dtype_name((belay_dtype)dtype), told);
    for (int k = 0; k < s->n_in; k++)
        if (s->operand[k].is_in_place)
            assert_near(name, s->operand[k].name, dtype, wide.in[k], narrow.in[k]);
    assert_int_equal(wide.n_out, narrow.n_out);
    for (int o = 0; o < wide.n_out; o++)
        assert_near(name, "what it makes", dtype, wide.out[o], narrow.out[o]);
    close_clean(context);
}

static void every_column_is_the_f64_column_rounded(void **state)
{
    (void)state;
    int n_columns = 0;
    for (int op = 1; op < BL_N_OPS; op++)
        for (int dtype = 0; writes_in_place(op) && dtype < BELAY_N_DTYPES; dtype++) {
            if (!row_has_column(op, dtype) || dtype == BELAY_F64)
                continue;
            row_inputs r;
            draw_inputs(&r, op);
            if (!belay_dtype_is_float((belay_dtype)dtype))
                fit_inputs(&r, dtype);
            assert_column(&r, dtype);
            row_free(&r);
            n_columns++;
        }
    assert_true(n_columns > 20);
}

/* ---- every row ------------------------------------------------------------------------------------------------------- */

/* Whose values, or gradients, test_rows.c does not hold: the file of PyTorch's values or the test that does. */
static const struct {
    const char *row, *proof;
} beside[] = {
    {"advance", "nn/test_batch_norm.c:a_refused_step_leaves_the_running_statistics_their_bits"},
    {"attention", "op/test_attention.c:attention_is_what_plain_loops_give_in_every_dtype"},
    {"batch_stats", "golden/data/batch_norm2d_train.safetensors"},
    {"batch_norm", "golden/data/batch_norm2d_train.safetensors"},
    {"batch_track", "nn/test_batch_norm.c:every_batch_of_an_applied_window_moves_the_running_statistics_on"},
    {"bounds", "op/test_debug.c:bounds_hold_for_every_dtype_and_at_their_edges"},
    {"conv_columns", "op/test_conv.c:values_and_gradients_are_the_sums"},
    {"fill", "op/test_made.c:equal_and_evenly_spaced_values_are_written_out_in_every_dtype"},
    {"arange", "op/test_made.c:equal_and_evenly_spaced_values_are_written_out_in_every_dtype"},
    {"uniform", "op/test_made.c:draws_are_those_of_the_generator"},
    {"normal", "op/test_made.c:draws_are_those_of_the_generator"},
    {"dropout", "op/test_made.c:dropout_drops_its_share_scales_the_rest_and_takes_the_same_back"},
    {"gru_cell", "golden/data/gru_2layer_bidirectional_h0.safetensors"},
    {"gru_cell_grad", "nn/test_lstm.c:gradients_of_a_gru_are_the_slopes"},
    {"embedding", "golden/data/embedding.safetensors"},
    {"index_select", "op/test_index.c:selections_are_plain_loops_along_every_axis"},
    {"gather", "op/test_index.c:selections_are_plain_loops_along_every_axis"},
    {"index", "op/test_index.c:index_selects_by_tuples_broadcast_together"},
    {"index_add", "op/test_index.c:additions_by_index_are_plain_loops_in_order"},
    {"scatter_add", "op/test_index.c:additions_by_index_are_plain_loops_in_order"},
    {"cast_ids", "op/test_index.c:float_ids_are_refused_or_checked"},
    {"cross_entropy", "op/test_loss.c:cross_entropy_is_its_definition_under_every_option"},
    {"nll_loss", "op/test_loss.c:nll_of_log_softmax_is_cross_entropy"},
    {"lstm_cell", "golden/data/lstm_2layer_bidirectional_h0.safetensors"},
    {"lstm_cell_grad", "nn/test_lstm.c:gradients_are_the_slopes_whatever_outputs_are_used"},
    {"lstm_dropout", "nn/test_lstm.c:gradients_are_the_slopes_without_state_without_bias_and_under_dropout"},
    {"copy", "op/test_product.c:casts_follow_their_rule_between_every_two_dtypes"},
    {"matmul", "op/test_product.c:products_are_three_loops_in_every_layout_and_dtype"},
    {"layer_norm", "golden/data/layer_norm.safetensors"},
    {"rms_norm", "op/test_order.c:rms_norm_is_its_definition_over_several_axes"},
    {"optim_prepare", "golden/data/opt_adam_clip.safetensors"},
    {"optim_squares", "golden/data/opt_adam_clip.safetensors"},
    {"scaler_unscale", "optim/test_scaler.c:unscaled_gradients_can_be_read_and_are_divided_no_second_time"},
    {"scaler_update", "golden/data/amp_scale.safetensors"},
    {"optim_sgd", "golden/data/opt_sgd_nesterov_clip.safetensors"},
    {"optim_adam", "golden/data/opt_adam_amsgrad_clip.safetensors"},
    {"optim_age", "optim/test_step.c:parameter_without_gradient_does_not_age"},
    {"cumsum", "op/test_order.c:cumsum_adds_up_along_every_axis"},
    {"sort", "op/test_order.c:rows_are_sorted_stably_with_nan_as_the_largest"},
    {"one_hot", "op/test_order.c:one_hot_follows_the_index_policy"},
    {"max_pool", "op/test_conv.c:pools_are_written_out"},
    {"avg_pool", "op/test_conv.c:pools_are_written_out"},
    {"sum", "golden/data/sum_dim02_keepdim.safetensors"},
    {"sum_squares", "op/test_made.c:sums_of_squares_are_two_plain_loops"},
    {"var", "op/test_order.c:variance_is_its_definition_biased_and_not"},
    {"max", "golden/data/max_dim1.safetensors"},
    {"amax", "golden/data/amax_ties.safetensors"},
    {"softmax", "op/test_loss.c:softmax_is_its_definition_along_every_axis"},
    {"log_softmax", "op/test_loss.c:softmax_is_its_definition_along_every_axis"},
};

/* A gradient of a row whose slopes test_rows.c takes: of any that can run alone, and of those of maps. */
static bool is_gradient_of_some(int op)
{
    for (int of = 1; of < BL_N_OPS; of++)
        for (int g = 0; g < BL_MAX_GRADS; g++)
            if (of != op && row_runs_here(of) && (int)bl_kernel_rows[of].grad[g] == op)
                return true;
    return false;
}

/* maps_are_their_formulas of test_rows.c fails where a map has none. */
static bool has_formula(int op)
{
    bl_skeleton skeleton = bl_kernel_rows[op].skeleton;
    return row_is_map(op) && row_runs_here(op) && !row_is_made(op) && skeleton != BL_SKELETON_MAP1R &&
           skeleton != BL_SKELETON_MASK && strstr(bl_kernel_rows[op].name, "_grad") == NULL;
}

static const char *proof_of(const char *row)
{
    for (int i = 0; i < BL_COUNT(beside); i++)
        if (strcmp(beside[i].row, row) == 0)
            return beside[i].proof;
    return NULL;
}

/* "FILE", which is there, or "FILE:TEST", which FILE runs. */
static void assert_proof(const char *row, const char *proof)
{
    char path[512], wanted[160];
    static char text[1 << 17];
    const char *colon = strchr(proof, ':');
    snprintf(path, sizeof path, "%s/tests/%.*s", BELAY_SOURCE_DIR,
             (int)(colon != NULL ? colon - proof : (long)strlen(proof)), proof);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s: %s is not there", row, path);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    snprintf(wanted, sizeof wanted, "(%s", colon != NULL ? colon + 1 : "");
    const char *at = strstr(text, wanted);
    while (at != NULL && strchr("),", at[strlen(wanted)]) == NULL)
        at = strstr(at + 1, wanted);
    if (colon != NULL && at == NULL)
        fail_msg("%s: %s runs no test %s", row, path, colon + 1);
}

static void every_row_is_held_by_a_test(void **state)
{
    (void)state;
    for (int op = 1; op < BL_N_OPS; op++) {
        const char *name = bl_kernel_rows[op].name, *proof = proof_of(name);
        bool is_held = has_formula(op) || is_gradient_of_some(op);
        if (!is_held && proof == NULL)
            fail_msg("row %s: neither a formula nor a slope holds its values; name the test that does", name);
        if (is_held && proof != NULL)
            fail_msg("row %s is held by test_rows.c and named here as well", name);
        if (proof != NULL)
            assert_proof(name, proof);
    }
    for (int i = 0; i < BL_COUNT(beside); i++) {
        bool is_there = false;
        for (int op = 1; op < BL_N_OPS; op++)
            is_there = is_there || strcmp(bl_kernel_rows[op].name, beside[i].row) == 0;
        if (!is_there)
            fail_msg("there is no row %s", beside[i].row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_column_is_the_f64_column_rounded),
        cmocka_unit_test(every_row_is_held_by_a_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
