/* SPDX-License-Identifier: Apache-2.0 */
/* Batches come in one order whatever the number of workers, from any place, and the feed ends at any moment. */
#include "file/file_support.h"

#include <pthread.h>
#include <stdatomic.h>

#include "data/feed.h"
#include "data/fill.h"
#include "data/order.h"

static bl_error error;

enum { seq = 6, n_samples = 103, batch = 8, n_batches = 13 };

/* ---- a dataset of the test's own --------------------------------------------------------------------------------- */

static _Atomic int64_t n_gets;
static int64_t bad_index = -1;
static int64_t n_ids_given = -1;
static bool writes_past;
static const int64_t *own_ids;
static const char *file_name;

/* Sample i has i % 7 ids: i, i + 1, ... */
static belay_code get(const belay_dataset *dataset, void *cursor, int64_t index, belay_sample *sample, bl_error *e)
{
    (void)dataset;
    (void)cursor;
    atomic_fetch_add(&n_gets, 1);
    sample->file = file_name != NULL ? file_name : index % 10 < 5 ? "first.tsv" : "second.tsv";
    sample->line = index + 2;
    if (index == bad_index && n_ids_given < 0 && !writes_past)
        return bl_error_set(e, BELAY_FILE_READ, "the disk is gone");
    sample->n_ids = index == bad_index && n_ids_given >= 0 ? n_ids_given : index % 7;
    for (int64_t i = 0; i < index % 7; i++)
        sample->room[i] = index + i;
    if (index == bad_index && writes_past)
        sample->room[seq] = 1;
    if (own_ids != NULL)
        sample->ids = own_ids;
    sample->label = -index;
    return BELAY_OK;
}

static const bl_data_kind kind = {.get = get};
static const belay_dataset dataset = {.kind = &kind, .n_samples = n_samples, .seq = seq};

static bl_data_feed *opened(bl_data_feed_options options)
{
    bl_data_feed *feed;
    options.batch = options.batch > 0 ? options.batch : batch;
    options.prefetch = options.prefetch > 0 ? options.prefetch : 2 * options.n_workers;
    check_ok(bl_data_feed_open(&dataset, &options, &feed, &error), &error);
    return feed;
}

/* What a batch holds, folded into one number; origins too. */
static uint64_t digest(uint64_t hash, const bl_data_batch *b)
{
    const int64_t head[] = {b->epoch, b->position, b->n_samples, b->code};
    const struct {
        const int64_t *words;
        int64_t n;
    } parts[] = {{head, 4},
                 {b->ids, b->n_samples * seq},
                 {b->labels, b->n_samples},
                 {b->indices, b->n_samples},
                 {b->lines, b->n_samples}};
    for (int p = 0; p < 5; p++)
        for (int64_t i = 0; i < parts[p].n; i++)
            hash = (hash ^ (uint64_t)parts[p].words[i]) * 0x100000001B3u;
    for (int64_t i = 0; i < b->n_samples; i++)
        for (const char *c = bl_text_get(&b->names) + b->files[i]; *c != '\0'; c++)
            hash = (hash ^ (unsigned char)*c) * 0x100000001B3u;
    return hash;
}

/* Digests of all batches of two epochs, or of those from a place on. */
static int walk(bl_data_feed *feed, int64_t epoch, int64_t position, uint64_t *out)
{
    int n = 0;
    for (; epoch < 2; epoch++, position = 0) {
        bl_data_feed_begin(feed, epoch, position);
        for (const bl_data_batch *b; (b = bl_data_feed_next(feed)) != NULL;) {
            assert_int_equal(b->epoch, epoch);
            assert_int_equal(b->position, position++);
            out[n++] = digest(0, b);
        }
        assert_null(bl_data_feed_next(feed));
    }
    return n;
}

/* ---- order ------------------------------------------------------------------------------------------------------ */

static void batches_hold_the_samples_in_their_order(void **state)
{
    (void)state;
    bl_data_feed *feed = opened((bl_data_feed_options){0});
    assert_int_equal(bl_data_feed_n_batches(feed), n_batches);
    bl_data_feed_begin(feed, 0, 0);
    for (int64_t p = 0, i = 0; p < n_batches; p++) {
        const bl_data_batch *b = bl_data_feed_next(feed);
        assert_int_equal(b->code, BELAY_OK);
        assert_int_equal(b->n_samples, p < n_batches - 1 ? batch : n_samples - (n_batches - 1) * batch);
        for (int64_t row = 0; row < b->n_samples; row++, i++) {
            assert_int_equal(b->indices[row], i);
            assert_int_equal(b->labels[row], -i);
            assert_int_equal(b->lines[row], i + 2);
            assert_string_equal(bl_text_get(&b->names) + b->files[row], i % 10 < 5 ? "first.tsv" : "second.tsv");
            for (int64_t k = 0; k < seq; k++)
                assert_int_equal(b->ids[row * seq + k], k < i % 7 ? i + k : 0);
        }
    }
    assert_null(bl_data_feed_next(feed));
    bl_data_feed_close(feed);
}

static void a_shuffled_epoch_follows_the_seeded_order(void **state)
{
    (void)state;
    int64_t order[n_samples];
    bl_data_feed *feed = opened((bl_data_feed_options){.shuffle = true, .seed = 9, .n_workers = 2});
    for (uint32_t epoch = 3; epoch < 5; epoch++) {
        bl_data_feed_begin(feed, epoch, 0);
        bl_data_order_shuffle(order, n_samples, 9, epoch);
        for (int64_t p = 0; p < n_batches; p++) {
            const bl_data_batch *b = bl_data_feed_next(feed);
            assert_memory_equal(b->indices, order + p * batch, (size_t)b->n_samples * sizeof *order);
        }
        assert_null(bl_data_feed_next(feed));
    }
    bl_data_feed_close(feed);
}

static void any_number_of_workers_gives_the_same_batches(void **state)
{
    (void)state;
    static const int64_t workers[] = {0, 1, 2, 8}, prefetch[] = {1, 2, 40};
    uint64_t expected[2 * n_batches], found[2 * n_batches];
    for (int w = 0; w < 4; w++)
        for (int p = 0; p < 3; p++) {
            bl_data_feed *feed = opened(
                (bl_data_feed_options){.shuffle = true, .seed = 4, .n_workers = workers[w], .prefetch = prefetch[p]});
            assert_int_equal(bl_data_feed_n_workers(feed), workers[w]);
            assert_int_equal(walk(feed, 0, 0, w + p == 0 ? expected : found), 2 * n_batches);
            if (w + p > 0)
                assert_memory_equal(found, expected, sizeof expected);
            bl_data_feed_close(feed);
        }
}

static void starting_anywhere_gives_the_rest_of_the_same_batches(void **state)
{
    (void)state;
    uint64_t expected[2 * n_batches], found[2 * n_batches];
    bl_data_feed_options options = {.shuffle = true, .seed = 4, .n_workers = 2};
    bl_data_feed *feed = opened(options);
    walk(feed, 0, 0, expected);
    bl_data_feed_close(feed);
    for (int start = 0; start <= 2 * n_batches; start++) {
        feed = opened(options);
        int64_t epoch = start / n_batches, position = start % n_batches;
        int n = walk(feed, epoch, position, found);
        assert_int_equal(n, 2 * n_batches - start);
        assert_memory_equal(found, expected + start, (size_t)n * sizeof *found);
        bl_data_feed_close(feed);
    }
    feed = opened(options);
    bl_data_feed_begin(feed, 0, n_batches);
    assert_null(bl_data_feed_next(feed));
    bl_data_feed_close(feed);
}

static void a_batch_can_be_had_again_without_moving_the_walk(void **state)
{
    (void)state;
    uint64_t expected[2 * n_batches];
    bl_data_feed *feed = opened((bl_data_feed_options){.shuffle = true, .seed = 4, .n_workers = 2});
    walk(feed, 0, 0, expected);
    for (int64_t p = 0; p < n_batches; p++) /* of the epoch that has ended */
        assert_int_equal(digest(0, bl_data_feed_get(feed, p)), expected[n_batches + p]);
    bl_data_feed_begin(feed, 0, 0);
    for (int64_t p = 0; p < n_batches; p++) {
        const bl_data_batch *b = bl_data_feed_next(feed);
        assert_int_equal(digest(0, bl_data_feed_get(feed, n_batches - 1 - p)), expected[n_batches - 1 - p]);
        assert_int_equal(digest(0, b), expected[p]);
    }
    assert_null(bl_data_feed_get(feed, -1));
    assert_null(bl_data_feed_get(feed, n_batches));
    bl_data_feed_close(feed);
}

static void drop_last_leaves_the_short_batch_out(void **state)
{
    (void)state;
    bl_data_feed *feed = opened((bl_data_feed_options){.drop_last = true});
    assert_int_equal(bl_data_feed_n_batches(feed), n_batches - 1);
    bl_data_feed_close(feed);
    feed = opened((bl_data_feed_options){.batch = n_samples, .drop_last = true});
    assert_int_equal(bl_data_feed_n_batches(feed), 1);
    bl_data_feed_close(feed);
    feed = opened((bl_data_feed_options){.batch = INT32_MAX});
    assert_int_equal(bl_data_feed_n_batches(feed), 1);
    bl_data_feed_close(feed);
}

/* ---- what the dataset does wrong ----------------------------------------------------------------------------------
 */

#define WORKER_ADVICE "    try: See the error that the dataset gave, and the sample named.\n"

/* All batches but the one with bad_index are as ever, and that one says `expected`. */
static void assert_one_batch_refused(const char *expected)
{
    uint64_t good[2 * n_batches];
    int64_t keep = bad_index;
    bl_data_feed *feed = opened((bl_data_feed_options){.n_workers = 2});
    bad_index = -1;
    walk(feed, 0, 0, good);
    bad_index = keep;
    bl_data_feed_begin(feed, 0, 0);
    for (int64_t p = 0; p < n_batches; p++) {
        const bl_data_batch *b = bl_data_feed_next(feed);
        if (p != bad_index / batch) {
            assert_int_equal(digest(0, b), good[p]);
            continue;
        }
        check_error(b->code, &b->error, expected);
        assert_int_equal(b->n_samples, batch);
        assert_int_equal(b->bad_row, bad_index % batch);
        assert_int_equal(b->indices[b->bad_row], bad_index);
        assert_int_equal(b->lines[b->bad_row], bad_index + 2);
        assert_int_equal(b->indices[batch - 1], p * batch + batch - 1);
    }
    bl_data_feed_close(feed);
    bad_index = n_ids_given = -1;
    writes_past = false;
}

static void a_failing_get_refuses_its_batch_only(void **state)
{
    (void)state;
    bad_index = 21;
    assert_one_batch_refused("belay: sample 21 cannot be had (data.worker)\n"
                             "    the dataset: the disk is gone (file.read)\n" WORKER_ADVICE);
}

static void the_number_of_ids_is_checked(void **state)
{
    (void)state;
    bad_index = 17;
    n_ids_given = seq + 1;
    assert_one_batch_refused("belay: sample 17 cannot be had (data.worker)\n"
                             "    the dataset: it gave 7 ids, the room is 6\n" WORKER_ADVICE);
    bad_index = 17;
    n_ids_given = INT64_MAX;
    assert_one_batch_refused("belay: sample 17 cannot be had (data.worker)\n"
                             "    the dataset: it gave 9223372036854775807 ids, the room is 6\n" WORKER_ADVICE);
}

static void a_write_past_the_room_is_noticed(void **state)
{
    (void)state;
    bad_index = 30;
    writes_past = true;
    assert_one_batch_refused("belay: sample 30 cannot be had (data.worker)\n"
                             "    the dataset: it wrote past the room for 6 ids\n" WORKER_ADVICE);
}

static void ids_of_the_datasets_own_are_copied(void **state)
{
    (void)state;
    static const int64_t ids[seq] = {-1, INT64_C(1) << 40, 3, 4, 5, 6};
    own_ids = ids;
    bl_data_feed *feed = opened((bl_data_feed_options){0});
    bl_data_feed_begin(feed, 0, 0);
    const bl_data_batch *b = bl_data_feed_next(feed);
    own_ids = NULL;
    assert_int_equal(b->ids[2 * seq], -1);
    assert_int_equal(b->ids[2 * seq + 1], INT64_C(1) << 40);
    assert_int_equal(b->ids[2 * seq + 2], 0);
    bl_data_feed_close(feed);
}

static void the_name_of_a_file_is_copied(void **state)
{
    (void)state;
    char name[16] = "a.tsv";
    file_name = name;
    bl_data_feed *feed = opened((bl_data_feed_options){0});
    bl_data_feed_begin(feed, 0, 0);
    const bl_data_batch *b = bl_data_feed_next(feed);
    strcpy(name, "changed");
    file_name = NULL;
    assert_string_equal(bl_text_get(&b->names) + b->files[3], "a.tsv");
    assert_int_equal(b->files[3], b->files[0]);
    bl_data_feed_close(feed);
}

/* ---- the end ------------------------------------------------------------------------------------------------------
 */

static void a_feed_closes_at_any_moment(void **state)
{
    (void)state;
    for (int64_t workers = 0; workers <= 8; workers += 4)
        for (int n_taken = -1; n_taken <= n_batches; n_taken++) {
            bl_data_feed *feed = opened((bl_data_feed_options){.n_workers = workers});
            if (n_taken >= 0)
                bl_data_feed_begin(feed, 0, 0);
            for (int i = 0; i < n_taken; i++)
                assert_non_null(bl_data_feed_next(feed));
            bl_data_feed_close(feed);
        }
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static int n_inside;
static bool is_gate_open;

/* Waits inside a get until the gate opens. */
static belay_code slow_get(const belay_dataset *d, void *cursor, int64_t index, belay_sample *sample, bl_error *e)
{
    pthread_mutex_lock(&gate);
    n_inside++;
    pthread_cond_broadcast(&gate_moved);
    while (!is_gate_open)
        pthread_cond_wait(&gate_moved, &gate);
    pthread_mutex_unlock(&gate);
    return get(d, cursor, index, sample, e);
}

static void *open_gate(void *unused)
{
    pthread_mutex_lock(&gate);
    is_gate_open = true;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&gate);
    return unused;
}

static void closing_waits_for_gets_that_run(void **state)
{
    (void)state;
    static const bl_data_kind slow_kind = {.get = slow_get};
    belay_dataset slow = dataset;
    bl_data_feed *feed;
    pthread_t opener;
    slow.kind = &slow_kind;
    check_ok(
        bl_data_feed_open(&slow, &(bl_data_feed_options){.batch = batch, .n_workers = 3, .prefetch = 6}, &feed, &error),
        &error);
    bl_data_feed_begin(feed, 0, 0);
    pthread_mutex_lock(&gate);
    while (n_inside < 3)
        pthread_cond_wait(&gate_moved, &gate);
    pthread_mutex_unlock(&gate);
    assert_int_equal(pthread_create(&opener, NULL, open_gate, NULL), 0);
    bl_data_feed_close(feed);
    assert_true(is_gate_open);
    pthread_join(opener, NULL);
}

static void workers_stay_within_the_prefetch(void **state)
{
    (void)state;
    bl_data_feed *feed = opened((bl_data_feed_options){.n_workers = 8, .prefetch = 2});
    atomic_store(&n_gets, 0);
    bl_data_feed_begin(feed, 0, 0);
    for (int64_t p = 0; p < n_batches; p++) {
        assert_non_null(bl_data_feed_next(feed));
        assert_true(atomic_load(&n_gets) <= (p + 3) * batch);
    }
    bl_data_feed_close(feed);
    assert_int_equal(atomic_load(&n_gets), n_samples);
}

static void every_failing_allocation_is_named(void **state)
{
    (void)state;
    int64_t n = 0;
    for (;; n++) {
        bl_data_feed *feed = NULL;
        bl_memory_fail_at(n);
        belay_code code = bl_data_feed_open(
            &dataset, &(bl_data_feed_options){.batch = batch, .n_workers = 2, .prefetch = 3, .shuffle = true}, &feed,
            &error);
        bool opened_failed = bl_memory_failed();
        int n_refused = 0;
        if (code == BELAY_OK) {
            bl_data_feed_begin(feed, 0, 0);
            for (const bl_data_batch *b; (b = bl_data_feed_next(feed)) != NULL;)
                if (b->code != BELAY_OK) {
                    n_refused++;
                    assert_int_equal(b->code, BELAY_MEM_EXHAUSTED);
                    assert_string_equal(b->error.facts,
                                        "the dataset: no memory for the name of the sample's file (0 so far)\n");
                }
            bl_data_feed_close(feed);
        }
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed)
            break;
        if (opened_failed)
            assert_int_equal(code, BELAY_MEM_EXHAUSTED);
        else
            assert_int_equal(n_refused, 1);
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_hold_the_samples_in_their_order),
        cmocka_unit_test(a_shuffled_epoch_follows_the_seeded_order),
        cmocka_unit_test(any_number_of_workers_gives_the_same_batches),
        cmocka_unit_test(starting_anywhere_gives_the_rest_of_the_same_batches),
        cmocka_unit_test(a_batch_can_be_had_again_without_moving_the_walk),
        cmocka_unit_test(drop_last_leaves_the_short_batch_out),
        cmocka_unit_test(a_failing_get_refuses_its_batch_only),
        cmocka_unit_test(the_number_of_ids_is_checked),
        cmocka_unit_test(a_write_past_the_room_is_noticed),
        cmocka_unit_test(ids_of_the_datasets_own_are_copied),
        cmocka_unit_test(the_name_of_a_file_is_copied),
        cmocka_unit_test(a_feed_closes_at_any_moment),
        cmocka_unit_test(closing_waits_for_gets_that_run),
        cmocka_unit_test(workers_stay_within_the_prefetch),
        cmocka_unit_test(every_failing_allocation_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
