/* SPDX-License-Identifier: Apache-2.0 */
/* A global batch over ranks: every sample once, in the same place whatever the number of ranks, and what dropout draws
 * for it too. */
#include "file/file_support.h"

#include <belay/belay.h>

#include <math.h>

enum { SEQ = 5, WIDTH = 6, HEADS = 2, MOST = 64 };

static void ignore(void *state, belay_code code, const char *text)
{
    (void)state;
    (void)code;
    (void)text;
}

static belay_context *opened(void)
{
    belay_context *ctx = belay_open(&(belay_options){.seed = 3, .log = ignore, .no_journal = true, .threads = 1});
    assert_true(belay_is_open(ctx));
    return ctx;
}

static belay_loader *loader_of(belay_context *ctx, int64_t n_samples, belay_loader_options options)
{
    static int64_t ids[MOST * SEQ], labels[MOST];
    assert_in_range(n_samples, 1, MOST);
    for (int64_t i = 0; i < n_samples; i++) {
        labels[i] = i;
        for (int64_t k = 0; k < SEQ; k++)
            ids[i * SEQ + k] = i;
    }
    belay_dataset *data = belay_dataset_ids(ctx, ids, labels, n_samples, &(belay_ids_options){.seq = SEQ});
    return belay_loader_new(data, &options);
}

/* ---- slices --------------------------------------------------------------------------------------------------------- */

/* The samples of an epoch's batch at `position` as rank `rank` is given them; how many, and whether it is there. */
static int64_t read_part(belay_loader *loader, int64_t position, int64_t *labels, belay_batch *batch)
{
    assert_true(belay_loader_get(loader, position, batch));
    assert_int_equal(batch->code, BELAY_OK);
    assert_int_equal(batch->position, position);
    assert_int_equal(belay_tensor_is_nil(batch->labels), batch->n_samples == 0);
    assert_int_equal(belay_tensor_is_nil(batch->tokens), batch->n_samples == 0);
    if (batch->n_samples > 0)
        assert_int_equal(belay_tensor_read(batch->labels, labels, batch->n_samples * 8), BELAY_OK);
    return batch->n_samples;
}

static void compare_epoch(int64_t n_samples, int64_t global, int64_t ranks, bool drop_last)
{
    belay_context *ctx = opened();
    belay_loader *whole =
        loader_of(ctx, n_samples, (belay_loader_options){.batch = global, .shuffle = true, .drop_last = drop_last});
    belay_loader *part[8];
    for (int64_t rank = 0; rank < ranks; rank++)
        part[rank] = loader_of(
            ctx, n_samples,
            (belay_loader_options){
                .batch = global / ranks, .shuffle = true, .drop_last = drop_last, .rank = rank, .ranks = ranks});
    for (int64_t p = 0; p < belay_loader_n_batches(whole); p++) {
        int64_t expected[MOST], found[MOST], n = 0, least = MOST, most = 0;
        belay_batch all, mine;
        read_part(whole, p, expected, &all);
        assert_int_equal(all.n_global, all.n_samples);
        assert_int_equal(all.first, 0);
        for (int64_t rank = 0; rank < ranks; rank++) {
            int64_t had = read_part(part[rank], p, found + n, &mine);
            assert_int_equal(mine.n_global, all.n_samples);
            assert_int_equal(mine.first, n);
            n += had;
            least = had < least ? had : least;
            most = had > most ? had : most;
        }
        assert_int_equal(n, all.n_samples);
        assert_memory_equal(found, expected, (size_t)n * sizeof *found);
        assert_true(most - least <= (n == global ? 0 : 1));
    }
    for (int64_t rank = 0; rank < ranks; rank++)
        assert_int_equal(belay_loader_n_batches(part[rank]), belay_loader_n_batches(whole));
    assert_int_equal(belay_close(ctx), 0);
}

static void parts_of_all_ranks_are_the_global_batch(void **state)
{
    (void)state;
    static const int64_t ranks[] = {1, 2, 3, 4, 6};
    for (int r = 0; r < 5; r++)
        for (int64_t n = 12; n < 38; n++) {
            compare_epoch(n, 12, ranks[r], false);
            compare_epoch(n, 12, ranks[r], true);
        }
}

static void a_walk_with_workers_gives_the_same_parts(void **state)
{
    (void)state;
    belay_context *ctx = opened();
    for (int64_t rank = 0; rank < 3; rank++) {
        belay_loader_options options = {.batch = 4, .shuffle = true, .rank = rank, .ranks = 3};
        belay_loader *again = loader_of(ctx, 38, options);
        options.workers = 2;
        belay_loader *walk = loader_of(ctx, 38, options);
        belay_batch batch, other;
        int64_t labels[MOST], found[MOST], p = 0;
        while (belay_loader_next(walk, &batch)) {
            if (batch.n_samples > 0)
                assert_int_equal(belay_tensor_read(batch.labels, found, batch.n_samples * 8), BELAY_OK);
            assert_int_equal(read_part(again, p++, labels, &other), batch.n_samples);
            assert_memory_equal(labels, found, (size_t)batch.n_samples * 8);
        }
        assert_int_equal(p, 4);
        assert_int_equal(batch.n_samples, 0);
    }
    assert_int_equal(belay_close(ctx), 0);
}

/* Two samples over three ranks: the last has none, and is told of none. */
static void a_rank_without_a_sample_has_an_empty_batch(void **state)
{
    (void)state;
    belay_context *ctx = opened();
    int64_t labels[MOST];
    belay_batch batch;
    for (int64_t rank = 0; rank < 3; rank++) {
        belay_loader *loader = loader_of(ctx, 14, (belay_loader_options){.batch = 4, .rank = rank, .ranks = 3});
        assert_int_equal(read_part(loader, 1, labels, &batch), rank < 2);
        assert_int_equal(batch.n_global, 2);
    }
    assert_int_equal(belay_n_faults(ctx), 0);
    assert_int_equal(belay_close(ctx), 0);
}

/* ---- what is drawn -------------------------------------------------------------------------------------------------- */

static belay_tensor ones(belay_context *ctx, belay_shape shape) { return belay_full(ctx, BELAY_F32, shape, 1); }

/* Which elements are dropped, for each sample in its row: of plain dropout, and of attention's probabilities. */
static belay_tensor plain(belay_context *ctx, int64_t n)
{
    return belay_dropout(ones(ctx, belay_shape3(n, SEQ, WIDTH)), 0.5, true);
}

static belay_tensor attended(belay_context *ctx, int64_t n)
{
    belay_tensor q = ones(ctx, belay_shape4(n, HEADS, SEQ, WIDTH));
    return belay_attention(q, q, q, &(belay_attention_options){.dropout = 0.5});
}

/* Heads and samples in one axis. */
static belay_tensor attended_folded(belay_context *ctx, int64_t n)
{
    belay_tensor q = ones(ctx, belay_shape3(n * HEADS, SEQ, WIDTH));
    return belay_attention(q, q, q, &(belay_attention_options){.dropout = 0.5});
}

static belay_tensor recurrent(belay_context *ctx, int64_t n)
{
    enum { UNITS = 2 * 2 };
    belay_lstm_weights weights[UNITS];
    belay_shape wide = belay_shape2(4 * WIDTH, 2 * WIDTH);
    for (int unit = 0; unit < UNITS; unit++)
        weights[unit] = (belay_lstm_weights){.ih = ones(ctx, unit < 2 ? belay_shape2(4 * WIDTH, WIDTH) : wide),
                                             .hh = belay_full(ctx, BELAY_F32, belay_shape2(4 * WIDTH, WIDTH), 0.01)};
    belay_tensor y =
        belay_lstm(belay_full(ctx, BELAY_F32, belay_shape3(n, SEQ, WIDTH), 0.01), (belay_tensor){0}, (belay_tensor){0},
                   weights, &(belay_lstm_options){.layers = 2, .bidirectional = true, .dropout = 0.5, .training = true})
            .output;
    return y;
}

typedef belay_tensor (*drawing)(belay_context *ctx, int64_t n);

/* The rows of what `draw` makes of the batch, as many bytes; samples stand on its first axis. */
static int64_t rows_of(drawing draw, belay_loader *loader, int64_t position, float *out)
{
    belay_batch batch;
    int64_t labels[MOST], n = read_part(loader, position, labels, &batch);
    if (n == 0)
        return 0;
    belay_context *ctx = belay_tensor_context(batch.tokens);
    belay_scope scope = belay_scope_open(ctx);
    belay_tensor y = draw(ctx, n);
    n = belay_tensor_n_elements(y);
    assert_true(n > 0);
    assert_int_equal(belay_tensor_read(y, out, n * 4), BELAY_OK);
    belay_scope_close(scope);
    return n;
}

static void compare_draws(drawing draw)
{
    enum { ROOM = MOST * HEADS * SEQ * 2 * WIDTH };
    static float expected[ROOM], found[ROOM];
    static const int64_t ranks[] = {2, 3, 4};
    for (int r = 0; r < 3; r++)
        for (int64_t position = 0; position < 2; position++) { /* the second is not full */
            belay_context *ctx = opened();
            int64_t n = rows_of(draw, loader_of(ctx, 19, (belay_loader_options){.batch = 12}), position, expected),
                    k = 0;
            bool differs = false;
            for (int64_t rank = 0; rank < ranks[r]; rank++) {
                belay_loader_options options = {.batch = 12 / ranks[r], .rank = rank, .ranks = ranks[r]};
                k += rows_of(draw, loader_of(ctx, 19, options), position, found + k);
            }
            assert_int_equal(k, n);
            for (int64_t i = 0; i < n; i++)
                assert_true(fabsf(found[i] - expected[i]) <= 1e-6f);
            for (int64_t i = 1; i < n; i++)
                differs = differs || expected[i] != expected[0];
            assert_true(differs);
            assert_int_equal(belay_n_faults(ctx), 0);
            assert_int_equal(belay_close(ctx), 0);
        }
}

static void dropout_draws_the_same_over_any_ranks(void **state)
{
    (void)state;
    compare_draws(plain);
}

static void attention_draws_the_same_over_any_ranks(void **state)
{
    (void)state;
    compare_draws(attended);
    compare_draws(attended_folded);
}

static void recurrent_layers_draw_the_same_over_any_ranks(void **state)
{
    (void)state;
    compare_draws(recurrent);
}

/* A parameter that happens to be as long as the batch draws the same on all ranks. */
static void what_is_no_batch_is_drawn_alike(void **state)
{
    (void)state;
    float first[3 * 4], second[3 * 4];
    for (int64_t rank = 0; rank < 2; rank++) {
        belay_context *ctx = opened();
        int64_t labels[MOST];
        belay_batch batch;
        read_part(loader_of(ctx, 8, (belay_loader_options){.batch = 4, .rank = rank, .ranks = 2}), 0, labels, &batch);
        belay_tensor y = belay_dropout(ones(ctx, belay_shape2(3, 4)), 0.5, true);
        assert_int_equal(belay_tensor_read(y, rank == 0 ? first : second, sizeof first), BELAY_OK);
        assert_int_equal(belay_close(ctx), 0);
    }
    assert_memory_equal(first, second, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_all_ranks_are_the_global_batch),
        cmocka_unit_test(a_walk_with_workers_gives_the_same_parts),
        cmocka_unit_test(a_rank_without_a_sample_has_an_empty_batch),
        cmocka_unit_test(dropout_draws_the_same_over_any_ranks),
        cmocka_unit_test(attention_draws_the_same_over_any_ranks),
        cmocka_unit_test(recurrent_layers_draw_the_same_over_any_ranks),
        cmocka_unit_test(what_is_no_batch_is_drawn_alike),
    };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
