/* SPDX-License-Identifier: Apache-2.0 */
/* The number of threads changes no bit, nor does a software device that is not the current one: every row, and the walks
 * back through sums and indices. */
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

/* One after the other: the cpu with ever more threads, then sim:1 while sim:0 is current, by a seed and free. */
static const struct {
    const char *words, *place, *seed;
    int threads;
} runs[] = {
    {"1 thread", NULL, "", 1},       {"2 threads", NULL, "", 2},
    {"5 threads", NULL, "", 5},      {"sim:1, by a seed", "sim:1", "11", 1},
    {"sim:1, free", "sim:1", "", 1},
};
enum { N_RUNS = sizeof runs / sizeof runs[0] };

static belay_context *open_run(int r)
{
    setenv("BELAY_SIM_SEED", runs[r].seed, 1);
    if (runs[r].place == NULL)
        unsetenv("BELAY_TEST_PLACE");
    else
        setenv("BELAY_TEST_PLACE", runs[r].place, 1);
    return open_with(runs[r].threads);
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

static void every_row_has_the_same_bits_on_any_number_of_threads_and_on_sim(void **state)
{
    (void)state;
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
        uint64_t hash[BL_MAX_OUT], now;
        for (int t = 0; t < N_RUNS; t++) {
            belay_context *context = open_run(t);
            bl_call call = row_call(context, &r, BELAY_F32, NULL);
            assert_true(row_run(&call));
            for (int o = 0; o < call.n_out; o++) {
                now = hash_of(call.out[o]);
                hash[o] = t == 0 ? now : hash[o];
                if (now != hash[o])
                    fail_msg("%s: output %d differs between %s and %s", bl_kernel_rows[op].name, o, runs[0].words,
                             runs[t].words);
            }
            close_clean(context);
        }
        row_free(&r);
    }
}

/* Products, copies between layouts and dtypes, and a whole walk back. */
static void a_walk_back_has_the_same_bits_on_any_number_of_threads_and_on_sim(void **state)
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
    uint64_t first[3] = {0};
    for (int t = 0; t < N_RUNS; t++) {
        belay_context *context = open_run(t);
        belay_tensor e = tensor_of(context, BELAY_F32, belay_shape2(TABLE, WIDTH), table);
        belay_tensor w = tensor_of(context, BELAY_F32, belay_shape2(CLASSES, WIDTH), weight);
        belay_tensor i = from_bytes(context, BELAY_I64, belay_shape1(ROWS), ids, sizeof ids);
        belay_tensor l = from_bytes(context, BELAY_I64, belay_shape1(ROWS), labels, sizeof labels);
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
        cmocka_unit_test(every_row_has_the_same_bits_on_any_number_of_threads_and_on_sim),
        cmocka_unit_test(a_walk_back_has_the_same_bits_on_any_number_of_threads_and_on_sim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
