/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets between a device that the host cannot read and a worker of the host, in whatever order the device's streams run.
 * The worker here is a thread that multiplies by three, as three ranks with the same gradients add up to. */
#include "support/seeds.h"
#include "support/told.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include <belay/devices.h>

#include "dist/stage.h"
#include "launch/launch.h"
#include "tensor/window.h"

enum { N = 512, SEEDS = 40, FREE_RUNS = 5, MOST_WORKS = 32 };

/* ---- a worker -------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bl_work *works[MOST_WORKS];
    int n_posted, n_ended;
    bool shall_quit, shall_fail;
} worker;

static void nap(void) { (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); }

static void reduce(const worker *w, bl_work *work)
{
    while (work->ready != NULL && __atomic_load_n(work->ready, __ATOMIC_ACQUIRE) < work->ready_at)
        nap();
    if (work->begin != NULL)
        work->begin(work->state_of);
    float *data = work->data;
    for (int64_t i = 0; i < work->n && !w->shall_fail; i++)
        data[i] *= 3;
    if (work->ended_word != NULL)
        __atomic_store_n(work->ended_word, work->ended_value, __ATOMIC_RELEASE);
    __atomic_store_n(&work->state, w->shall_fail ? BL_WORK_FAILED : BL_WORK_ENDED, __ATOMIC_RELEASE);
}

static void *run(void *state)
{
    worker *w = state;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->n_ended == w->n_posted && !w->shall_quit)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->n_ended == w->n_posted)
            break;
        bl_work *work = w->works[w->n_ended++];
        pthread_mutex_unlock(&w->lock);
        reduce(w, work);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void post(worker *w, bl_work *work)
{
    work->state = BL_WORK_POSTED;
    pthread_mutex_lock(&w->lock);
    w->works[w->n_posted++] = work;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void quit(worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->shall_quit = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
}

/* ---- a lab ----------------------------------------------------------------------------------------------------------- */

typedef struct bucket {
    belay_tensor flat;
    bl_stage stage;
    bl_work work;
} bucket;

typedef struct lab {
    belay_context *context;
    belay_stream main, a, b;
    bl_stage_line line;
    bucket bucket[2];
    worker worker;
} lab;

static void here(lab *l, const char *label) { seeds_here(l->context, label); }
static void use(belay_stream stream) { (void)belay_stream_use(stream); }

static belay_tensor values(lab *l, int64_t n, float value)
{
    float all[N];
    for (int64_t i = 0; i < n; i++)
        all[i] = value;
    return told_f32(l->context, belay_shape1(n), all);
}

static void open_lab(lab *l, int64_t seed, const char *device)
{
    static const char *const names[] = {"bucket 0 of 2", "bucket 1 of 2"};
    memset(l, 0, sizeof *l);
    l->context = seeds_open(seed, &(belay_options){.device = device});
    belay_site_push(l->context, "start");
    belay_recording_set(l->context, false);
    l->main = belay_stream_current(l->context);
    l->a = belay_stream_open(l->context, "a");
    l->b = belay_stream_open(l->context, "b");
    assert_true(bl_stage_line_open(l->context, 0, &l->line));
    for (int k = 0; k < 2; k++) {
        l->bucket[k].flat = belay_tensor_name_set(values(l, N, 0), names[k]);
        assert_true(bl_stage_init(l->context, &l->line, N * 4, &l->bucket[k].stage));
        l->bucket[k].work = (bl_work){.n = N};
    }
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
    pthread_mutex_init(&l->worker.lock, NULL);
    pthread_cond_init(&l->worker.changed, NULL);
    assert_int_equal(pthread_create(&l->worker.thread, NULL, run, &l->worker), 0);
}

static void wait_for(lab *l, const bl_work *work)
{
    bl_stage_reach(l->context, work);
    while (!bl_work_is_over(work))
        nap();
}

static void close_stages(lab *l)
{
    for (int k = 0; k < 2; k++) {
        wait_for(l, &l->bucket[k].work);
        bl_stage_fini(l->context, &l->bucket[k].stage, NULL);
    }
    quit(&l->worker);
    bl_stage_line_close(l->context, &l->line);
}

static void for_all(void (*test)(lab *l))
{
    lab l;
    for (int64_t seed = 0; seed < seeds_n(SEEDS); seed++) {
        open_lab(&l, seed, seed % 2 == 0 ? "sim:0" : "sim:1");
        test(&l);
    }
    for (int i = 0; i < FREE_RUNS; i++) {
        open_lab(&l, SEEDS_THREADS, i % 2 == 0 ? "sim:0" : "sim:1");
        test(&l);
    }
}

/* The halves of a bucket that streams fill, by a kernel: += value. */
static void fill_half(lab *l, int k, int which, float value)
{
    BL_ENTER(l->context);
    belay_tensor part = belay_slice(l->bucket[k].flat, 0, which * N / 2, (which + 1) * N / 2, 1);
    assert_true(bl_launch_add_to(l->context, part, values(l, N / 2, value)));
}

static void fill(lab *l, int k, belay_stream stream, int which, float value)
{
    use(stream);
    fill_half(l, k, which, value);
    bl_stage_filled(l->context, &l->bucket[k].stage);
}

static belay_code out(lab *l, int k)
{
    BL_ENTER(l->context);
    wait_for(l, &l->bucket[k].work); /* of the round before */
    belay_code code = bl_stage_out(l->context, &l->bucket[k].stage, l->bucket[k].flat, &l->bucket[k].work);
    post(&l->worker, &l->bucket[k].work);
    return code;
}

static void back(lab *l, int k)
{
    BL_ENTER(l->context);
    assert_int_equal(bl_stage_back(l->context, &l->bucket[k].stage, l->bucket[k].flat), BELAY_OK);
}

static void join(lab *l)
{
    BL_ENTER(l->context);
    assert_int_equal(bl_stage_join(l->context, &l->line), BELAY_OK);
}

static void expect_halves(lab *l, belay_tensor t, float lower, float upper)
{
    float all[N];
    told_expect("%s", "");
    told_read(t, all, N);
    for (int i = 0; i < N; i++)
        assert_float_equal(all[i], i < N / 2 ? lower : upper, 0);
    (void)l;
}

#define WHEN      "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
#define TRY_ORDER "    try: Record an event behind the first use and let the other stream wait for it.\n"

/* ---- right ----------------------------------------------------------------------------------------------------------- */

static void two_producers(lab *l)
{
    float lower = 0, upper = 0;
    for (int round = 0; round < 4; round++) {
        fill(l, 0, l->a, 0, 1);
        fill(l, 0, l->b, 1, 2);
        assert_int_equal(out(l, 0), BELAY_OK);
        back(l, 0);
        use(l->a);
        join(l);
        use(l->b);
        join(l);
        lower = (lower + 1) * 3;
        upper = (upper + 2) * 3;
    }
    use(l->main);
    join(l);
    expect_halves(l, belay_mul(l->bucket[0].flat, values(l, N, 2)), 2 * lower, 2 * upper);
    close_stages(l);
    told_close(l->context);
}

static void a_bucket_of_two_streams_comes_back_reduced(void **state)
{
    (void)state;
    for_all(two_producers);
}

static void both_buckets(lab *l)
{
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < 2; k++) {
            fill(l, k, l->a, 0, 1);
            fill(l, k, k == 0 ? l->b : l->a, 1, 1);
            assert_int_equal(out(l, k), BELAY_OK);
        }
        back(l, 0);
        back(l, 1);
        use(l->b);
        join(l);
        use(l->a);
        join(l);
    }
    use(l->main);
    join(l);
    expect_halves(l, l->bucket[0].flat, 39, 39);
    expect_halves(l, l->bucket[1].flat, 39, 39);
    close_stages(l);
    told_close(l->context);
}

static void buckets_go_one_after_the_other(void **state)
{
    (void)state;
    for_all(both_buckets);
}

static void dropped_while_under_way(lab *l)
{
    fill(l, 0, l->a, 0, 1);
    fill(l, 0, l->a, 1, 1);
    assert_int_equal(out(l, 0), BELAY_OK);
    back(l, 0);
    belay_tensor_free(l->bucket[0].flat);
    use(l->b);
    belay_tensor kept[4];
    for (int i = 0; i < 4; i++) /* of its size */
        kept[i] = belay_add(values(l, N, 4), values(l, N, 5));
    for (int i = 0; i < 4; i++)
        expect_halves(l, kept[i], 9, 9);
    close_stages(l);
    told_close(l->context);
}

static void a_bucket_may_be_freed_under_its_copies(void **state)
{
    (void)state;
    for_all(dropped_while_under_way);
}

static void closed_while_under_way(lab *l)
{
    for (int k = 0; k < 2; k++) {
        fill(l, k, l->a, 0, 1);
        assert_int_equal(out(l, k), BELAY_OK);
    }
    back(l, 0);
    back(l, 1);
    close_stages(l);
    told_close(l->context);
}

static void a_line_closes_behind_its_copies(void **state)
{
    (void)state;
    for_all(closed_while_under_way);
}

static void failed(lab *l)
{
    l->worker.shall_fail = true;
    fill(l, 0, l->a, 0, 1);
    assert_int_equal(out(l, 0), BELAY_OK);
    back(l, 0);
    use(l->a);
    join(l);
    expect_halves(l, l->bucket[0].flat, 1, 0);
    close_stages(l);
    told_close(l->context);
}

static void a_work_that_failed_holds_nothing(void **state)
{
    (void)state;
    for_all(failed);
}

/* ---- words that kernels write ---------------------------------------------------------------------------------------- */

typedef struct look {
    const uint32_t *gate;
    uint32_t seen;
} look;

static void look_at_gate(void *state)
{
    look *k = state;
    k->seen = __atomic_load_n(k->gate, __ATOMIC_ACQUIRE);
}

static void gate_of(lab *l, int64_t id)
{
    static const int64_t good = 0;
    look seen = {.seen = 9};
    belay_recording_set(l->context, true);
    belay_tensor table = values(l, N, 1);
    use(l->a);
    belay_tensor ids = belay_tensor_from(l->context, BELAY_I64, belay_shape1(1), id == 0 ? &good : &id, 8);
    assert_int_equal(belay_stream_wait(l->a, belay_event_record(l->main)), BELAY_OK);
    (void)belay_gather(table, 0, ids, NULL);
    use(l->main);
    seen.gate = bl_window_gate(l->context);
    bl_work *work = &l->bucket[0].work;
    *work = (bl_work){.begin = look_at_gate, .state_of = &seen};
    bl_stage_behind(l->context, 0, work);
    post(&l->worker, work);
    wait_for(l, work);
    assert_int_equal(seen.seen, id == 0 ? BELAY_OK : BELAY_INDEX_RANGE);
    close_stages(l);
    assert_int_equal(belay_close(l->context), id == 0 ? 0 : 3);
    told_clear();
}

static void good_gate(lab *l) { gate_of(l, 0); }
static void bad_gate(lab *l) { gate_of(l, N); }

static void a_gate_is_read_behind_all_that_may_close_it(void **state)
{
    (void)state;
    for_all(good_gate);
    for_all(bad_gate);
}

/* ---- wrong ----------------------------------------------------------------------------------------------------------- */

static void forget_an_event(lab *l)
{
    fill(l, 0, l->a, 0, 1);
    here(l, "the part of b");
    use(l->b);
    fill_half(l, 0, 1, 2); /* and nobody is told */
    here(l, "the reduction");
    use(l->main);
    assert_int_equal(out(l, 0), BELAY_LIFE_STREAM);
    told_expect("belay: tensor bucket 0 of 2 would be read on stream reduction while stream b may still be writing it: "
                "nothing orders the two (life.stream)\n"
                "    called at: the reduction on stream reduction\n"
                "    written at: the part of b on stream b\n" WHEN TRY_ORDER);
    back(l, 0); /* nothing is brought back */
    wait_for(l, &l->bucket[0].work);
    for (int i = 0; i < N; i++) /* the others get zeros */
        assert_float_equal(((const float *)l->bucket[0].work.data)[i], 0, 0);
    use(l->a);
    assert_int_equal(belay_stream_wait(l->a, belay_event_record(l->b)), BELAY_OK);
    expect_halves(l, l->bucket[0].flat, 1, 2);
    close_stages(l);
    assert_int_equal(belay_close(l->context), 3);
}

static void a_part_without_its_event_is_a_race(void **state)
{
    (void)state;
    for_all(forget_an_event);
}

static void forget_to_join(lab *l)
{
    fill(l, 0, l->a, 0, 1);
    here(l, "the reduction");
    assert_int_equal(out(l, 0), BELAY_OK);
    back(l, 0);
    here(l, "the update");
    use(l->a);
    belay_relu(l->bucket[0].flat);
    told_expect("belay: tensor bucket 0 of 2 would be read on stream a while stream reduction may still be writing it: "
                "nothing orders the two (life.stream)\n"
                "    op: relu, called at the update on stream a\n"
                "    written at: the reduction on stream reduction\n"
                "    tensors: bucket 0 of 2 [512] f32; on sim:%d\n" WHEN TRY_ORDER,
                l->context->device->ordinal);
    close_stages(l);
    assert_int_equal(belay_close(l->context), 3);
}

static void what_is_used_before_it_is_back_is_a_race(void **state)
{
    (void)state;
    for_all(forget_to_join);
}

static void lost(lab *l)
{
    bl_device *device = l->context->device;
    fill(l, 0, l->a, 0, 1);
    assert_int_equal(out(l, 0), BELAY_OK);
    back(l, 0);
    char byte = 0;
    (void)device->api->copy_in_later(device, 0, (void *)(uintptr_t)64, &byte, 1);
    assert_int_equal(belay_synchronise(l->context), BELAY_PLACE_LOST);
    assert_int_equal(out(l, 1), BELAY_PLACE_LOST);
    back(l, 1);
    close_stages(l);
    assert_int_equal(belay_close(l->context), 6);
}

static void a_lost_device_reduces_zeros(void **state)
{
    (void)state;
    for_all(lost);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    lab l;
    open_lab(&l, 1, "sim:0");
    belay_tensor wide = values(&l, N, 1), square = belay_view(wide, belay_shape2(2, N / 2));
    l.bucket[0].flat = belay_transpose(square, 0, 1);
    here(&l, "first");
    assert_int_equal(out(&l, 0), BELAY_SHAPE_CONTRACT);
    told_expect("belay: what is reduced must be contiguous (shape.contract)\n"
                "    called at: first\n" WHEN "%s",
                told_try(BELAY_SHAPE_CONTRACT));
    l.bucket[1].flat = belay_cat((belay_tensor[]){wide, wide}, 2, 0);
    here(&l, "second");
    assert_int_equal(out(&l, 1), BELAY_SIZE_EXTENT);
    told_expect("belay: 4096 bytes were to be reduced by way of 2048 bytes of the host (size.extent)\n"
                "    called at: second\n" WHEN "%s",
                told_try(BELAY_SIZE_EXTENT));
    close_stages(&l);
    assert_int_equal(belay_close(l.context), 3);
}

/* ---- cpu ------------------------------------------------------------------------------------------------------------- */

static void on_cpu_the_tensor_is_the_memory(void **state)
{
    (void)state;
    lab l;
    open_lab(&l, SEEDS_THREADS, "cpu");
    fill(&l, 0, l.main, 0, 1);
    fill(&l, 0, l.main, 1, 2);
    assert_int_equal(out(&l, 0), BELAY_OK);
    assert_ptr_equal(l.bucket[0].work.data, bl_slot_get(l.context, l.bucket[0].flat)->data);
    assert_null(l.bucket[0].work.ready);
    assert_null(l.bucket[0].work.ended_word);
    assert_null(l.bucket[0].stage.host);
    while (!bl_work_is_over(&l.bucket[0].work))
        nap();
    back(&l, 0);
    join(&l);
    expect_halves(&l, l.bucket[0].flat, 3, 6);
    close_stages(&l);
    told_close(l.context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_of_two_streams_comes_back_reduced),
        cmocka_unit_test(buckets_go_one_after_the_other),
        cmocka_unit_test(a_bucket_may_be_freed_under_its_copies),
        cmocka_unit_test(a_line_closes_behind_its_copies),
        cmocka_unit_test(a_work_that_failed_holds_nothing),
        cmocka_unit_test(a_gate_is_read_behind_all_that_may_close_it),
        cmocka_unit_test(a_part_without_its_event_is_a_race),
        cmocka_unit_test(what_is_used_before_it_is_back_is_a_race),
        cmocka_unit_test(a_lost_device_reduces_zeros),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(on_cpu_the_tensor_is_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
