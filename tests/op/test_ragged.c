/* SPDX-License-Identifier: Apache-2.0 */
/* Every op with indices that are data, on every device, with every dtype of index, for batches of no row, of one and of
 * odd numbers, forward and back: a bad index is named by op, element, value and bound, and no other row is touched. */
#include "support/told.h"

#include <belay/devices.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, WIDTH = 3, MOST = 33 };

/* x: the table, or the logits; src: what is added. */
typedef struct batch {
    belay_tensor x, ids, src;
    int64_t n;
} batch;

static belay_tensor in_column(const batch *b) { return belay_view(b->ids, belay_shape2(b->n, 1)); }

static belay_tensor by_embedding(const batch *b) { return belay_embedding(b->x, b->ids, NULL); }
static belay_tensor by_select(const batch *b) { return belay_index_select(b->x, 0, b->ids, NULL); }
static belay_tensor by_index(const batch *b) { return belay_index(b->x, &b->ids, 1, NULL); }
static belay_tensor by_gather(const batch *b) { return belay_gather(b->x, 0, in_column(b), NULL); }
static belay_tensor by_scatter(const batch *b) { return belay_scatter_add(b->x, 0, in_column(b), b->src, NULL); }
static belay_tensor by_add(const batch *b) { return belay_index_add(b->x, 0, b->ids, b->src, 1, NULL); }
static belay_tensor by_loss(const batch *b)
{
    return belay_cross_entropy(b->x, b->ids, &(belay_cross_entropy_options){.reduction = BELAY_SUM});
}
static belay_tensor by_nll(const batch *b)
{
    belay_nll_loss_options options = {.reduction = BELAY_SUM};
    return belay_nll_loss(belay_log_softmax(b->x, 1), b->ids, &options);
}

static const struct row {
    const char *name;
    belay_tensor (*call)(const batch *b);
    int columns; /* of x that take part */
    bool adds, is_loss, is_column;
} rows[] = {
    {"embedding", by_embedding, WIDTH, false, false, false}, {"index_select", by_select, WIDTH, false, false, false},
    {"index", by_index, WIDTH, false, false, false},         {"gather", by_gather, 1, false, false, true},
    {"scatter_add", by_scatter, 1, true, false, true},       {"index_add", by_add, WIDTH, true, false, false},
    {"cross_entropy", by_loss, ROWS, false, true, false},    {"nll_loss", by_nll, ROWS, false, true, false},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static belay_tensor ids_of(belay_context *context, belay_dtype dtype, int64_t n, int64_t at, int64_t bad)
{
    unsigned char bytes[MOST * 8] = {0};
    for (int64_t i = 0; i < n; i++) {
        int64_t value = i == at ? bad : i % ROWS;
        memcpy(bytes + i * belay_dtype_size(dtype), &value, (size_t)belay_dtype_size(dtype));
    }
    return belay_tensor_name_set(belay_tensor_from(context, dtype, belay_shape1(n), bytes, n * belay_dtype_size(dtype)),
                                 "ids");
}

static belay_tensor leaf(belay_context *context, const char *name, int64_t n, int64_t width)
{
    belay_tensor x = belay_affine(belay_arange(context, BELAY_F32, n * width, 0, 1), 0.25, 1);
    x = belay_tensor_name_set(belay_contiguous(belay_view(x, belay_shape2(n, width))), name);
    return belay_tensor_requires_grad_set(x, true);
}

static float grad_at(belay_tensor x, int64_t row, int64_t column)
{
    belay_tensor grad = belay_tensor_grad(x);
    return (float)belay_tensor_item(belay_select(belay_select(grad, 0, row), 0, column));
}

/* Gradients of the sum of all results: how often a row was read, without the bad index. */
static void assert_gradients(const struct row *r, const batch *b, int64_t at)
{
    for (int64_t i = 0; r->is_loss && i < b->n; i++)
        assert_true((grad_at(b->x, i, 0) == 0) == (i == at));
    for (int64_t i = 0; !r->is_loss && i < ROWS; i++) {
        int64_t times = b->n / ROWS + (i < b->n % ROWS) - (at >= 0 && at % ROWS == i);
        assert_true(grad_at(b->x, i, 0) == (r->adds ? 1 : (float)times));
    }
    for (int64_t i = 0; r->adds && i < b->n; i++)
        assert_true(grad_at(b->src, i, 0) == (i == at ? 0 : 1));
}

/* One launch over n ids of which number `at` (-1: none) is bad. */
static void run(const char *device, const struct row *r, belay_dtype dtype, int64_t n, int64_t at, int64_t bad)
{
    told_clear();
    belay_context *context = belay_open(&(belay_options){.device = device, .log = told_remember, .no_journal = true});
    batch b = {.n = n, .ids = ids_of(context, dtype, n, at, bad)};
    b.x = leaf(context, "x", r->is_loss ? n : ROWS, r->is_loss ? ROWS : WIDTH);
    b.src = leaf(context, "src", n, r->columns < WIDTH ? r->columns : WIDTH);
    assert_int_equal(belay_device_set(context, strcmp(device, "cpu") == 0 ? "cpu" : "sim:0"), BELAY_OK);
    belay_tensor y = r->call(&b);
    assert_string_equal(belay_tensor_device(y), device);
    belay_backward(belay_sum(y, NULL));
    if (n > 0 || r->adds)
        assert_gradients(r, &b, at);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    belay_fault f;
    assert_int_equal(belay_n_faults(context), at >= 0 ? 1 : 0);
    if (at >= 0) {
        char headline[256], place[32];
        assert_true(belay_fault_get(context, 0, &f));
        snprintf(place, sizeof place, r->is_column ? "%lld, 0" : "%lld", (long long)at);
        snprintf(headline, sizeof headline,
                 r->is_loss ? "belay: ids[%s] is %lld, outside [0, %d) (%s)\n"
                            : "belay: ids[%s] is %lld, outside [0, %d) of x (%s)\n",
                 place, (long long)bad, ROWS, belay_code_name(r->is_loss ? BELAY_INDEX_LABEL : BELAY_INDEX_RANGE));
        assert_memory_equal(f.text, headline, strlen(headline));
        assert_string_equal(f.op, r->name);
        assert_string_equal(f.operand, "ids");
        assert_true(f.element == at && f.got == bad && f.limit == ROWS && f.count == 1);
    } else
        assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), at >= 0 ? 3 : 0);
}

static void every_index_is_tested_forward_and_back(void **state)
{
    const char *device = *state;
    static const belay_dtype dtypes[] = {BELAY_I64, BELAY_I32, BELAY_U16, BELAY_U8};
    static const int64_t sizes[] = {0, 1, 7, MOST};
    for (int k = 0; k < N_ROWS; k++)
        for (int d = 0; d < 4; d++)
            for (int s = 0; s < 4; s++) {
                const int64_t n = sizes[s], top = d == 3 ? UINT8_MAX : d == 2 ? UINT16_MAX : -1;
                run(device, &rows[k], dtypes[d], n, -1, 0);
                if (n > 0) {
                    run(device, &rows[k], dtypes[d], n, n - 1, ROWS);
                    run(device, &rows[k], dtypes[d], n, n / 2, top);
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"every_index_is_tested_forward_and_back_on_cpu", every_index_is_tested_forward_and_back, NULL, NULL, "cpu"},
        {"every_index_is_tested_forward_and_back_on_sim_0", every_index_is_tested_forward_and_back, NULL, NULL,
         "sim:0"},
        {"every_index_is_tested_forward_and_back_on_sim_1", every_index_is_tested_forward_and_back, NULL, NULL,
         "sim:1"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
