/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of Belay from a loader's workers: refused, and told with the batch of the sample in whose get they were made. */
#include "support/told.h"

#include <belay/data.h>

#include <stdlib.h>

#include "report/site.h"

enum { N_SAMPLES = 8, BAD = 5 };

static belay_context *context;
static belay_tensor tensor;
static int line;
static bool gives_up;     /* the get fails when it was refused */
static belay_code of_get; /* what a call in get gave */

static belay_code get_that_adds(void *state, int64_t index, belay_sample *sample)
{
    (void)state;
    sample->room[0] = index;
    sample->n_ids = 1;
    if (index != BAD)
        return BELAY_OK;
    line = __LINE__ + 1;
    belay_tensor sum = belay_add(tensor, tensor);
    return gives_up && belay_tensor_is_nil(sum) ? BELAY_DATA_ROW : BELAY_OK;
}

static belay_code get_that_reads(void *state, int64_t index, belay_sample *sample)
{
    float values[2];
    (void)state;
    sample->n_ids = 1;
    if (index != BAD)
        return BELAY_OK;
    line = __LINE__ + 1;
    of_get = belay_tensor_read(tensor, values, sizeof values);
    (void)belay_add(tensor, tensor); /* the first is told */
    return BELAY_OK;
}

static belay_code get_with_a_context_of_its_own(void *state, int64_t index, belay_sample *sample)
{
    (void)state, (void)index;
    belay_context *own = belay_open(&(belay_options){.no_journal = true, .threads = 1});
    belay_tensor two = belay_full(own, BELAY_I64, belay_shape1(1), 2);
    sample->room[0] = (int64_t)belay_tensor_item(two);
    sample->n_ids = 1;
    return belay_close(own) == 0 ? BELAY_OK : BELAY_DATA_ROW;
}

static belay_loader *opened(belay_sample_get get, int64_t workers)
{
    static const float values[] = {1, 2};
    bl_report_site_source_set(false);
    context = told_open();
    tensor = told_f32(context, belay_shape1(2), values);
    gives_up = false;
    belay_dataset *data = belay_dataset_callback(context, N_SAMPLES, get, NULL, &(belay_ids_options){.seq = 1});
    return belay_loader_new(data, &(belay_loader_options){.batch = 2, .workers = workers});
}

/* Walks an epoch; batch 2 holds the sample. */
static void walk(belay_loader *batches)
{
    belay_batch batch;
    for (int p = 0; belay_loader_next(batches, &batch); p++) {
        assert_int_equal(batch.code, p == 2 ? BELAY_PLACE_WORKER : BELAY_OK);
        assert_true(belay_tensor_is_nil(batch.tokens) == (p == 2));
        if (p == 1)
            assert_string_equal(told(), ""); /* not before its batch, however early it was filled */
    }
}

static void expect_worker(void)
{
    told_expect("belay: worker 0 of the loader used a context, in the get of sample 5 (place.worker)\n"
                "    called at: test_caller.c:%d\n"
                "    sample: sample 5 (row 1 of the batch)\n"
                "    when: epoch 0, batch 2 (micro-batch 0 of its window), step 0, rank 0\n%s",
                line, told_try(BELAY_PLACE_WORKER));
}

static void a_call_from_a_worker_is_refused_and_told_with_its_batch(void **state)
{
    (void)state;
    walk(opened(get_that_adds, 1));
    expect_worker();
    assert_int_equal(belay_n_faults(context), 1);
    assert_int_equal(belay_close(context), 3);
}

static void what_the_get_says_of_it_does_not_hide_it(void **state)
{
    (void)state;
    belay_loader *batches = opened(get_that_adds, 1);
    gives_up = true;
    walk(batches);
    expect_worker();
    assert_int_equal(belay_close(context), 3);
}

static void the_first_call_of_a_get_is_the_one_named(void **state)
{
    (void)state;
    walk(opened(get_that_reads, 1));
    expect_worker();
    assert_int_equal(of_get, BELAY_PLACE_WORKER);
    assert_int_equal(belay_close(context), 3);
}

static void a_context_that_a_get_opens_is_its_own(void **state)
{
    (void)state;
    belay_loader *batches = opened(get_with_a_context_of_its_own, 2);
    belay_batch batch;
    while (belay_loader_next(batches, &batch))
        assert_int_equal(batch.code, BELAY_OK);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_from_a_worker_is_refused_and_told_with_its_batch),
        cmocka_unit_test(what_the_get_says_of_it_does_not_hide_it),
        cmocka_unit_test(the_first_call_of_a_get_is_the_one_named),
        cmocka_unit_test(a_context_that_a_get_opens_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
