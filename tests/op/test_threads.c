/* SPDX-License-Identifier: Apache-2.0 */
/* The number of threads changes no bit: every row, and the walks back through sums and indices. */
#include "op/rows.h"

/* Sizes by which the largest operand has enough work for five threads. */
static void sizes_large(int op, int64_t size[8])
{
    const bl_signature *s = bl_signature_of(op);
    int axes = 1;
    for (int k = 0; k < s->n_in + s->n_out; k++)
        axes = s->operand[k].n_axes > axes ? s->operand[k].n_axes : axes;
    sizes_all(size, (int64_t)pow(200000, 1.0 / axes) + 1);
}

static uint64_t hash_of(belay_tensor tensor)
{
    int64_t n_bytes = belay_tensor_n_elements(tensor) * belay_dtype_size(belay_tensor_dtype(tensor));
    unsigned char *bytes = malloc((size_t)n_bytes + 1);
    uint64_t hash = 14695981039346656037u;
    assert_int_equal(belay_tensor_read(tensor, bytes, n_bytes), BELAY_OK);
    for (int64_t i = 0; i < n_bytes; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    free(bytes);
    return hash;
}

static void every_row_has_the_same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    const int threads[] = {1, 2, 5};
    for (int op = 1; op < BL_N_OPS; op++) {
        if (!row_runs_here(op) || strncmp(bl_kernel_rows[op].name, "lstm", 4) == 0)
            continue;
        int64_t size[8];
        row_inputs r;
        sizes_large(op, size);
        row_draw(&r, op, size);
        for (int k = 0; k < r.n; k++)
            for (int64_t i = 0; r.dtype[k] == BL_SIGNATURE_COLUMN && i < count_of(r.shape[k]); i++)
                r.v[k][i] = op == BL_OP_cast_ids ? r.v[k][i] : r.v[k][i] + draw(0, 0.03);
        uint64_t hash[3][BL_MAX_OUT];
        for (int t = 0; t < 3; t++) {
            belay_context *context = open_with(threads[t]);
            bl_call call = row_call(context, &r, BELAY_F32, NULL);
            assert_true(bl_launch_run(&call));
            for (int o = 0; o < call.n_out; o++) {
                hash[t][o] = hash_of(call.out[o]);
                if (hash[t][o] != hash[0][o])
                    fail_msg("%s: output %d differs between 1 and %d threads", bl_kernel_rows[op].name, o, threads[t]);
            }
            close_clean(context);
        }
        row_free(&r);
    }
}

/* Products, copies between layouts and dtypes, and a whole walk back. */
static void a_walk_back_has_the_same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    enum { ROWS = 700, WIDTH = 96, TABLE = 50, CLASSES = 300 };
    static double table[TABLE * WIDTH], weight[CLASSES * WIDTH];
    static int64_t ids[ROWS], labels[ROWS];
    draw_many(table, TABLE * WIDTH, -1, 1);
    draw_many(weight, CLASSES * WIDTH, -1, 1);
    for (int i = 0; i < ROWS; i++) {
        ids[i] = (int64_t)draw(0, TABLE);
        labels[i] = (int64_t)draw(0, CLASSES);
    }
    const int threads[] = {1, 2, 5};
    uint64_t first[3] = {0};
    for (int t = 0; t < 3; t++) {
        belay_context *context = open_with(threads[t]);
        belay_tensor e = tensor_of(context, BELAY_F32, belay_shape2(TABLE, WIDTH), table);
        belay_tensor w = tensor_of(context, BELAY_F32, belay_shape2(CLASSES, WIDTH), weight);
        belay_tensor i = belay_tensor_from(context, BELAY_I64, belay_shape1(ROWS), ids, sizeof ids);
        belay_tensor l = belay_tensor_from(context, BELAY_I64, belay_shape1(ROWS), labels, sizeof labels);
        belay_tensor_requires_grad_set(e, true);
        belay_tensor_requires_grad_set(w, true);
        belay_tensor x = belay_contiguous(belay_transpose(belay_embedding(e, i, NULL), 0, 1));
        belay_tensor logits = belay_linear(belay_transpose(x, 0, 1), w, (belay_tensor){0});
        belay_tensor loss = belay_cross_entropy(logits, l, NULL);
        belay_backward(loss);
        const uint64_t bits[] = {hash_of(loss), hash_of(belay_tensor_grad(e)), hash_of(belay_tensor_grad(w))};
        for (int k = 0; k < 3; k++) {
            first[k] = t == 0 ? bits[k] : first[k];
            assert_true(bits[k] == first[k]);
        }
        close_clean(context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_the_same_bits_on_any_number_of_threads),
        cmocka_unit_test(a_walk_back_has_the_same_bits_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
