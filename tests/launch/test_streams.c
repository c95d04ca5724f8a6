/* SPDX-License-Identifier: Apache-2.0 */
/* Races are found by what the program orders, never by what happened to run: each planted one is named under every seed
 * and with real threads, each correct program is silent and right. */
#include "support/seeds.h"
#include "support/told.h"

#include <stdlib.h>
#include <string.h>

#include <belay/devices.h>
#include <belay/nn.h>
#include <belay/optim.h>

#include "launch/flight.h"

enum { N = 512, SEEDS = 40, FREE_RUNS = 5 };

/* A context on sim:0 with two streams, a tensor x of ones and one whose turn it is. */
typedef struct lab {
    belay_context *context;
    belay_stream main, a, b;
    belay_tensor x;
    float ones[N];
} lab;

/* What is called from here on is told by this label. */
static void here(lab *l, const char *label) { seeds_here(l->context, label); }

static belay_tensor full(lab *l, float value)
{
    float values[N];
    for (int i = 0; i < N; i++)
        values[i] = value;
    return told_f32(l->context, belay_shape1(N), values);
}

static void open_lab(lab *l, int64_t seed)
{
    *l = (lab){.context = seeds_open(seed, &(belay_options){.device = "sim:0"})};
    belay_site_push(l->context, "start");
    l->main = belay_stream_current(l->context);
    l->a = belay_stream_open(l->context, "a");
    l->b = belay_stream_open(l->context, "b");
    for (int i = 0; i < N; i++)
        l->ones[i] = 1;
    belay_recording_set(l->context, false);
    l->x = belay_tensor_name_set(full(l, 1), "x");
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
}

static void use(belay_stream stream) { (void)belay_stream_use(stream); }

/* `then` runs after what `first` was given so far. */
static void order(belay_stream first, belay_stream then)
{
    assert_int_equal(belay_stream_wait(then, belay_event_record(first)), BELAY_OK);
}

/* Keeps a stream busy. */
static belay_tensor work(belay_tensor t, int n)
{
    for (int i = 0; i < n; i++)
        t = belay_mul(t, t);
    return t;
}

static void expect_all(lab *l, belay_tensor t, float value)
{
    float out[N];
    (void)l;
    told_expect("%s", "");
    told_read(t, out, N);
    for (int i = 0; i < N; i++)
        assert_float_equal(out[i], value, 0);
}

static belay_tensor half(lab *l, belay_tensor t, int64_t which)
{
    (void)l;
    return belay_slice(t, 0, which * N / 2, (which + 1) * N / 2, 1);
}

/* ---- planted races --------------------------------------------------------------------------------------------------- */

static void write_then_read(lab *l)
{
    use(l->a);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(work(l->x, 3), "y");
    use(l->b);
    here(l, "second");
    belay_relu(y);
}

static void read_then_write(lab *l)
{
    use(l->a);
    here(l, "first");
    belay_relu(l->x);
    use(l->b);
    here(l, "second");
    assert_int_equal(belay_tensor_write(l->x, l->ones, sizeof l->ones), BELAY_LIFE_STREAM);
}

static void write_then_write(lab *l)
{
    use(l->a);
    here(l, "first");
    assert_int_equal(belay_tensor_write(l->x, l->ones, sizeof l->ones), BELAY_OK);
    use(l->b);
    here(l, "second");
    assert_int_equal(belay_tensor_write(l->x, l->ones, sizeof l->ones), BELAY_LIFE_STREAM);
}

static void through_a_view(lab *l)
{
    belay_tensor upper = half(l, l->x, 1), middle = belay_slice(l->x, 0, N / 4, N * 3 / 4, 1);
    use(l->a);
    here(l, "first");
    assert_int_equal(belay_tensor_write(upper, l->ones, sizeof l->ones / 2), BELAY_OK);
    use(l->b);
    here(l, "second");
    belay_relu(middle);
}

static void through_a_gradient(lab *l)
{
    belay_recording_set(l->context, true);
    belay_tensor w = belay_tensor_name_set(told_leaf(l->context, belay_shape1(N), l->ones), "w");
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
    use(l->a);
    here(l, "first");
    belay_backward(belay_sum(belay_mul(w, l->x), NULL));
    belay_recording_set(l->context, false);
    use(l->b);
    here(l, "second");
    belay_relu(belay_tensor_name_set(belay_tensor_grad(w), "g"));
}

static void copy_in_then_kernel(lab *l)
{
    use(l->a);
    here(l, "first");
    assert_int_equal(belay_tensor_write(l->x, l->ones, sizeof l->ones), BELAY_OK);
    use(l->main);
    here(l, "second");
    belay_relu(l->x);
}

static void wait_in_the_wrong_direction(lab *l)
{
    use(l->a);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(work(l->x, 3), "y");
    order(l->b, l->a);
    use(l->b);
    here(l, "second");
    belay_relu(y);
}

static void event_too_early(lab *l)
{
    use(l->a);
    here(l, "early");
    belay_relu(l->x);
    belay_event early = belay_event_record(l->a);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(belay_relu(l->x), "y");
    assert_int_equal(belay_stream_wait(l->b, early), BELAY_OK);
    use(l->b);
    here(l, "second");
    belay_relu(y);
}

/* Events of a stream that nobody waits for, more than are kept. */
static void record_many(lab *l, belay_stream stream)
{
    for (int i = 0; i < 2 * BL_MAX_EVENTS + 3; i++)
        (void)belay_event_record(stream);
    assert_true(l->context->n_events <= BL_MAX_EVENTS && l->context->events_capacity <= 2 * BL_MAX_EVENTS);
}

static void event_too_early_and_long_ago(lab *l)
{
    use(l->a);
    here(l, "early");
    belay_relu(l->x);
    belay_event early = belay_event_record(l->a);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(belay_relu(l->x), "y");
    record_many(l, l->main);
    assert_int_equal(belay_stream_wait(l->b, early), BELAY_OK);
    use(l->b);
    here(l, "second");
    belay_relu(y);
}

static void two_producers_one_event(lab *l)
{
    belay_stream c = belay_stream_open(l->context, "c");
    use(l->a);
    here(l, "one");
    belay_tensor y = belay_relu(l->x);
    use(l->b);
    here(l, "first");
    belay_tensor z = belay_tensor_name_set(belay_relu(l->x), "z");
    order(l->a, c);
    use(c);
    here(l, "second");
    belay_add(y, z);
}

static void wait_for_the_wrong_stream(lab *l)
{
    use(l->a);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(work(l->x, 3), "y");
    assert_int_equal(belay_stream_synchronise(l->b), BELAY_OK);
    use(l->b);
    here(l, "second");
    assert_int_equal(belay_tensor_write(y, l->ones, sizeof l->ones), BELAY_LIFE_STREAM);
}

static void event_of_another_stream_is_done(lab *l)
{
    use(l->b);
    here(l, "other");
    belay_relu(l->x);
    belay_event event = belay_event_record(l->b);
    assert_int_equal(belay_event_synchronise(event), BELAY_OK);
    assert_true(belay_event_is_done(event));
    use(l->a);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(work(l->x, 3), "y");
    use(l->b);
    here(l, "second");
    belay_relu(y);
}

/* What was freed and used again is another tensor: the race over it is told with its own name and sites. */
static void freed_and_used_again(lab *l)
{
    use(l->a);
    here(l, "before");
    belay_tensor y = belay_tensor_name_set(belay_relu(l->x), "y");
    belay_tensor_free(y);
    here(l, "first");
    belay_tensor z = belay_tensor_name_set(belay_tanh(l->x), "z");
    use(l->b);
    here(l, "second");
    belay_relu(z);
}

static void across_two_devices(lab *l)
{
    assert_int_equal(belay_device_set(l->context, "sim:1"), BELAY_OK);
    belay_stream far = belay_stream_open(l->context, "far");
    belay_tensor x = full(l, 1);
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(belay_relu(x), "y");
    order(l->a, far); /* of the other device, which has nothing to do with it */
    use(far);
    here(l, "second");
    belay_relu(y);
}

static void close_orders_only_its_own(lab *l)
{
    belay_stream c = belay_stream_open(l->context, "c");
    use(c);
    here(l, "gone");
    belay_relu(l->x);
    use(l->a);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(belay_relu(l->x), "y");
    belay_stream_close(c);
    belay_stream d = belay_stream_open(l->context, "d"); /* in its place */
    use(d);
    here(l, "second");
    belay_relu(y);
}

static void chain_with_a_missing_link(lab *l)
{
    belay_stream c = belay_stream_open(l->context, "c");
    use(l->a);
    here(l, "first");
    belay_tensor y = belay_tensor_name_set(belay_relu(l->x), "y");
    belay_event at_b = belay_event_record(l->b); /* before b waits for a */
    order(l->a, l->b);
    assert_int_equal(belay_stream_wait(c, at_b), BELAY_OK);
    use(c);
    here(l, "second");
    belay_relu(y);
}

static void leaf_written_beside_its_forward(lab *l)
{
    belay_recording_set(l->context, true);
    belay_tensor w = belay_tensor_name_set(told_leaf(l->context, belay_shape1(N), l->ones), "w");
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
    use(l->a);
    here(l, "first");
    belay_tensor y = belay_mul(w, l->x);
    belay_recording_set(l->context, false);
    use(l->b);
    here(l, "second");
    assert_int_equal(belay_tensor_write(w, l->ones, sizeof l->ones), BELAY_LIFE_STREAM);
    (void)y;
}

typedef struct planted {
    const char *name;
    void (*plant)(lab *l);
    const char *told;
} planted;

#define WHEN(batch)                                                                                                    \
    "    when: epoch 0, batch " batch " (micro-batch " batch " of its window), step 0, rank 0\n"                       \
    "    try: Record an event behind the first use and let the other stream wait for it.\n"
#define RACE(function, tensor, would_be, here, there, doing, rest, batch)                                              \
    {                                                                                                                  \
#function, function,                                                                                           \
            "belay: tensor " tensor " would be " would_be " on " here " while " there " may still be " doing           \
            " it: nothing orders the two (life.stream)\n" rest                                                         \
            WHEN(batch)                                                                                                \
    }

static const planted races[] = {
    RACE(write_then_read, "y", "read", "stream b", "stream a", "writing",
         "    op: relu, called at second on stream b\n"
         "    written at: first on stream a\n"
         "    tensors: y [512] f32; on sim:0\n",
         "0"),
    RACE(read_then_write, "x", "written", "stream b", "stream a", "reading",
         "    called at: second on stream b\n"
         "    read at: first on stream a\n",
         "0"),
    RACE(write_then_write, "x", "written", "stream b", "stream a", "writing",
         "    called at: second on stream b\n"
         "    written at: first on stream a\n",
         "0"),
    RACE(through_a_view, "x", "read", "stream b", "stream a", "writing",
         "    op: relu, called at second on stream b\n"
         "    written at: first on stream a\n"
         "    tensors: x [256] f32; on sim:0\n",
         "0"),
    RACE(through_a_gradient, "g", "read", "stream b", "stream a", "writing",
         "    op: relu, called at second on stream b\n"
         "    written at: first on stream a\n"
         "    tensors: g [512] f32; on sim:0\n",
         "1"),
    RACE(copy_in_then_kernel, "x", "read", "the default stream of sim:0", "stream a", "writing",
         "    op: relu, called at second on the default stream\n"
         "    written at: first on stream a\n"
         "    tensors: x [512] f32; on sim:0\n",
         "0"),
    RACE(wait_in_the_wrong_direction, "y", "read", "stream b", "stream a", "writing",
         "    op: relu, called at second on stream b\n"
         "    written at: first on stream a\n"
         "    tensors: y [512] f32; on sim:0\n",
         "0"),
    RACE(event_too_early, "y", "read", "stream b", "stream a", "writing",
         "    op: relu, called at second on stream b\n"
         "    written at: first on stream a\n"
         "    tensors: y [512] f32; on sim:0\n",
         "0"),
    RACE(event_too_early_and_long_ago, "y", "read", "stream b", "stream a", "writing",
         "    op: relu, called at second on stream b\n"
         "    written at: first on stream a\n"
         "    tensors: y [512] f32; on sim:0\n",
         "0"),
    RACE(two_producers_one_event, "z", "read", "stream c", "stream b", "writing",
         "    op: add, called at second on stream c\n"
         "    written at: first on stream b\n"
         "    tensors: a [512] f32; z [512] f32; on sim:0\n",
         "0"),
    RACE(wait_for_the_wrong_stream, "y", "written", "stream b", "stream a", "writing",
         "    called at: second on stream b\n"
         "    written at: first on stream a\n",
         "0"),
    RACE(event_of_another_stream_is_done, "y", "read", "stream b", "stream a", "writing",
         "    op: relu, called at second on stream b\n"
         "    written at: first on stream a\n"
         "    tensors: y [512] f32; on sim:0\n",
         "0"),
    RACE(freed_and_used_again, "z", "read", "stream b", "stream a", "writing",
         "    op: relu, called at second on stream b\n"
         "    written at: first on stream a\n"
         "    tensors: z [512] f32; on sim:0\n",
         "0"),
    RACE(across_two_devices, "y", "read", "stream far", "the default stream of sim:1", "writing",
         "    op: relu, called at second on stream far\n"
         "    written at: first on the default stream\n"
         "    tensors: y [512] f32; on sim:1\n",
         "0"),
    RACE(close_orders_only_its_own, "y", "read", "stream d", "stream a", "writing",
         "    op: relu, called at second on stream d\n"
         "    written at: first on stream a\n"
         "    tensors: y [512] f32; on sim:0\n",
         "0"),
    RACE(chain_with_a_missing_link, "y", "read", "stream c", "stream a", "writing",
         "    op: relu, called at second on stream c\n"
         "    written at: first on stream a\n"
         "    tensors: y [512] f32; on sim:0\n",
         "0"),
    RACE(leaf_written_beside_its_forward, "w", "written", "stream b", "stream a", "reading",
         "    called at: second on stream b\n"
         "    read at: first on stream a\n",
         "0"),
};

static void plant(const planted *race, int64_t seed)
{
    lab l;
    open_lab(&l, seed);
    race->plant(&l);
    if (strcmp(told(), race->told) != 0)
        print_error("race %s, seed %lld\n", race->name, (long long)seed);
    told_expect("%s", race->told);
    assert_int_equal(belay_close(l.context), 3);
    assert_string_equal(told(), "");
}

static void every_planted_race_is_named_under_every_seed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof races / sizeof *races; i++)
        for (int64_t seed = 0; seed < seeds_n(SEEDS); seed++)
            plant(&races[i], seed);
}

static void every_planted_race_is_named_with_real_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof races / sizeof *races; i++)
        for (int run = 0; run < FREE_RUNS; run++)
            plant(&races[i], SEEDS_THREADS);
}

/* ---- correct programs ------------------------------------------------------------------------------------------------ */

static void one_stream(lab *l)
{
    use(l->a);
    expect_all(l, belay_add(work(l->x, 5), l->x), 2);
}

static void event_between(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 3), l->x);
    order(l->a, l->b);
    use(l->b);
    expect_all(l, belay_mul(y, y), 4);
}

static void chain_of_events(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(l->x, l->x);
    order(l->a, l->b);
    use(l->b);
    y = belay_add(y, l->x);
    order(l->b, l->main);
    use(l->main);
    y = belay_add(y, l->x);
    order(l->main, l->a);
    use(l->a);
    expect_all(l, belay_add(y, l->x), 5);
}

static void order_is_transitive(lab *l)
{
    belay_stream c = belay_stream_open(l->context, "c");
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 4), l->x);
    order(l->a, l->b);
    order(l->b, c); /* b has done nothing of its own */
    use(c);
    expect_all(l, belay_add(y, y), 4);
}

static void host_waits_for_a_stream(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 4), l->x);
    assert_int_equal(belay_stream_synchronise(l->a), BELAY_OK);
    use(l->b);
    expect_all(l, belay_add(y, y), 4);
}

static void host_waits_for_an_event(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 4), l->x);
    belay_event event = belay_event_record(l->a);
    work(l->x, 4);
    assert_int_equal(belay_event_synchronise(event), BELAY_OK);
    use(l->b);
    expect_all(l, belay_add(y, y), 4);
}

static void host_asks_until_an_event_is_done(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 4), l->x);
    belay_event event = belay_event_record(l->a);
    while (!belay_event_is_done(event))
        continue;
    use(l->b);
    expect_all(l, belay_add(y, y), 4);
}

static void a_stream_for_each_producer(lab *l)
{
    belay_stream producer[3] = {l->a, l->b, belay_stream_open(l->context, "c")};
    belay_tensor part[3], sum = l->x;
    for (int i = 0; i < 3; i++) {
        use(producer[i]);
        part[i] = belay_add(work(l->x, i), l->x);
    }
    for (int i = 0; i < 3; i++)
        order(producer[i], l->main);
    use(l->main);
    for (int i = 0; i < 3; i++)
        sum = belay_add(sum, part[i]);
    expect_all(l, sum, 7);
}

static void freed_while_another_stream_uses_it(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(l->x, l->x), z = belay_add(work(l->x, 6), y);
    belay_tensor_free(y);
    use(l->b);
    for (int i = 0; i < 4; i++) /* of the size of y */
        assert_int_equal(belay_tensor_write(belay_relu(full(l, 9)), l->ones, sizeof l->ones), BELAY_OK);
    expect_all(l, z, 3);
}

static void memory_goes_from_stream_to_stream(lab *l)
{
    belay_stream streams[3] = {l->a, l->b, l->main};
    belay_tensor kept[3];
    for (int i = 0; i < 3; i++) {
        use(streams[i]);
        kept[i] = belay_add(l->x, l->x);
    }
    for (int round = 0; round < 12; round++) {
        int turn = round % 3;
        use(streams[turn]);
        belay_tensor y = belay_add(kept[turn], l->x), z = work(y, 1);
        belay_tensor_free(y);
        use(streams[(round + 1) % 3]);
        belay_tensor other = full(l, 7);
        belay_tensor_free(other);
        use(streams[turn]);
        belay_tensor was = kept[turn];
        kept[turn] = belay_sub(z, belay_mul(kept[turn], kept[turn])); /* (k + 1)^2 - k^2 = 2 k + 1 */
        belay_tensor_free(was);
        belay_tensor_free(z);
    }
    for (int i = 0; i < 3; i++) /* 2, 5, 11, 23, 47 */
        expect_all(l, kept[i], 47);
}

static void double_buffering(lab *l)
{
    belay_tensor buffer[2] = {full(l, 0), full(l, 0)}, sum = full(l, 0);
    order(l->main, l->a);
    order(l->main, l->b);
    belay_event used[2] = {belay_event_record(l->main), belay_event_record(l->main)};
    for (int i = 0; i < 6; i++) {
        float batch[N];
        for (int e = 0; e < N; e++)
            batch[e] = (float)i;
        use(l->a);
        assert_int_equal(belay_stream_wait(l->a, used[i % 2]), BELAY_OK);
        assert_int_equal(belay_tensor_write(buffer[i % 2], batch, sizeof batch), BELAY_OK);
        batch[0] = -1; /* the call has taken its bytes */
        order(l->a, l->b);
        use(l->b);
        sum = belay_add(sum, buffer[i % 2]);
        used[i % 2] = belay_event_record(l->b);
    }
    expect_all(l, sum, 15);
}

static void two_devices_wait_for_each_other(lab *l)
{
    belay_tensor y = belay_add(work(l->x, 3), l->x);
    belay_tensor far = belay_tensor_to(y, "sim:1");
    assert_int_equal(belay_device_set(l->context, "sim:1"), BELAY_OK);
    belay_stream other = belay_stream_open(l->context, "far");
    order(belay_stream_current(l->context), other); /* which copies it in */
    use(other);
    belay_tensor z = belay_add(work(far, 1), far);
    order(other, l->a); /* a of sim:0 goes on behind it */
    use(l->a);
    assert_int_equal(belay_stream_wait(l->b, belay_event_record(l->a)), BELAY_OK);
    expect_all(l, z, 6);
    expect_all(l, belay_add(belay_tensor_to(z, "sim:0"), y), 8);
}

static belay_tensor same(belay_module *module, belay_tensor x)
{
    (void)module;
    return x;
}

static void a_step_on_a_side_stream(lab *l)
{
    belay_recording_set(l->context, true);
    static const belay_module_kind kind = {.name = "weights", .forward = same};
    belay_module *fc = belay_module_new(l->context, &kind);
    belay_init ones = {BELAY_INIT_CONSTANT, 1, 0};
    belay_tensor w = belay_module_add_parameter(fc, "w", BELAY_F32, belay_shape1(N), ones);
    belay_optimizer *sgd = belay_sgd(fc, &(belay_sgd_options){.lr = 0.5});
    order(l->main, l->a);
    use(l->a);
    for (int i = 0; i < 3; i++) {
        belay_scope step = belay_scope_open(l->context);
        belay_backward(belay_sum(belay_mul(w, full(l, 1)), NULL));
        belay_optimizer_step(sgd);
        belay_scope_close(step);
    }
    order(l->a, l->b);
    use(l->b);
    expect_all(l, belay_mul(w, w), 0.25f); /* (1 - 3 / 2)^2 */
    assert_int_equal(belay_optimizer_n_applied(sgd), 3);
}

static void halves_on_two_streams(lab *l)
{
    float twos[N / 2];
    for (int i = 0; i < N / 2; i++)
        twos[i] = 2;
    belay_tensor lower = half(l, l->x, 0), upper = half(l, l->x, 1);
    for (int i = 0; i < 3; i++) {
        use(l->a);
        assert_int_equal(belay_tensor_write(lower, twos, sizeof twos), BELAY_OK);
        use(l->b);
        assert_int_equal(belay_tensor_write(upper, twos, sizeof twos), BELAY_OK);
        upper = half(l, l->x, 1);
    }
    order(l->a, l->main);
    order(l->b, l->main);
    use(l->main);
    expect_all(l, belay_add(l->x, l->x), 4);
}

static void readers_side_by_side(lab *l)
{
    belay_tensor out[3];
    belay_stream streams[3] = {l->a, l->b, l->main};
    for (int i = 0; i < 3; i++) {
        use(streams[i]);
        out[i] = belay_add(work(l->x, i), l->x);
    }
    for (int i = 0; i < 3; i++) {
        use(streams[i]);
        expect_all(l, out[i], 2);
    }
}

static void a_write_behind_all_readers(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 3), l->x);
    use(l->b);
    belay_tensor z = belay_add(work(l->x, 3), l->x);
    order(l->a, l->main);
    order(l->b, l->main);
    use(l->main);
    float threes[N];
    for (int i = 0; i < N; i++)
        threes[i] = 3;
    assert_int_equal(belay_tensor_write(l->x, threes, sizeof threes), BELAY_OK);
    belay_tensor sum = belay_add(belay_add(y, z), l->x);
    expect_all(l, sum, 7);
}

static void a_closed_stream_is_waited_for(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 5), l->x);
    belay_stream_close(l->a);
    use(l->b);
    expect_all(l, belay_add(y, y), 4);
}

static void a_value_read_is_waited_for(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 5), l->x);
    expect_all(l, y, 2);
    use(l->b);
    assert_int_equal(belay_tensor_write(y, l->ones, sizeof l->ones), BELAY_OK);
    expect_all(l, belay_add(y, y), 2);
}

static void all_is_waited_for(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 5), l->x);
    use(l->b);
    belay_tensor z = belay_add(work(l->x, 5), l->x);
    assert_int_equal(belay_device_synchronise(l->context, "sim:0"), BELAY_OK);
    use(l->main);
    expect_all(l, belay_add(y, z), 4);
}

static void an_event_serves_many_waits(lab *l)
{
    belay_stream c = belay_stream_open(l->context, "c");
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 2), l->x);
    belay_event event = belay_event_record(l->a);
    belay_stream streams[3] = {l->b, c, l->main};
    belay_tensor out[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(belay_stream_wait(streams[i], event), BELAY_OK);
        assert_int_equal(belay_stream_wait(streams[i], event), BELAY_OK);
        use(streams[i]);
        out[i] = belay_add(y, y);
    }
    assert_int_equal(belay_event_synchronise(event), BELAY_OK);
    for (int i = 0; i < 3; i++)
        expect_all(l, out[i], 4);
    assert_true(belay_event_is_done(event));
}

static void a_view_behind_an_event(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 2), l->x), upper = half(l, y, 1);
    order(l->a, l->b);
    use(l->b);
    assert_int_equal(belay_tensor_write(upper, l->ones, sizeof l->ones / 2), BELAY_OK);
    float out[N];
    told_read(belay_add(y, l->x), out, N);
    for (int i = 0; i < N; i++)
        assert_float_equal(out[i], i < N / 2 ? 3 : 2, 0);
}

static void a_gradient_behind_an_event(lab *l)
{
    belay_recording_set(l->context, true);
    belay_tensor w = told_leaf(l->context, belay_shape1(N), l->ones);
    order(l->main, l->a);
    use(l->a);
    belay_backward(belay_sum(belay_mul(belay_mul(w, w), l->x), NULL));
    belay_recording_set(l->context, false);
    order(l->a, l->b);
    use(l->b);
    expect_all(l, belay_add(belay_tensor_grad(w), l->x), 3);
}

static void a_stream_in_the_place_of_a_closed_one(lab *l)
{
    belay_tensor y = l->x;
    order(l->main, l->a);
    for (int i = 0; i < 5; i++) {
        belay_stream c = belay_stream_open(l->context, "c");
        order(l->a, c);
        use(c);
        belay_tensor z = belay_add(y, l->x);
        order(c, l->a);
        use(l->a);
        y = belay_add(z, l->x);
        belay_tensor_free(z);
        belay_stream_close(c);
    }
    expect_all(l, y, 11);
}

static void between_cpu_and_device(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 3), l->x), host = belay_tensor_to(y, "cpu");
    belay_tensor z = belay_add(host, host);
    expect_all(l, z, 4);
    use(l->b);
    expect_all(l, belay_add(belay_tensor_to(z, "sim:0"), y), 6);
}

static void an_event_of_long_ago_still_orders(lab *l)
{
    use(l->a);
    belay_tensor y = belay_add(work(l->x, 3), l->x);
    belay_event of_y = belay_event_record(l->a);
    record_many(l, l->b);
    belay_tensor z = belay_add(y, l->x);
    belay_event of_z = belay_event_record(l->a);
    record_many(l, l->a);
    use(l->b);
    assert_int_equal(belay_stream_wait(l->b, of_y), BELAY_OK);
    belay_tensor sum = belay_add(y, l->x);
    assert_int_equal(belay_stream_wait(l->b, of_z), BELAY_OK);
    sum = belay_add(sum, z);
    assert_int_equal(belay_event_synchronise(of_y), BELAY_OK);
    assert_true(belay_event_is_done(of_y));
    expect_all(l, sum, 6);
    record_many(l, l->b); /* which were waited for */
}

typedef struct program {
    const char *name;
    void (*run)(lab *l);
} program;

static const program programs[] = {
    {"one_stream", one_stream},
    {"event_between", event_between},
    {"chain_of_events", chain_of_events},
    {"order_is_transitive", order_is_transitive},
    {"host_waits_for_a_stream", host_waits_for_a_stream},
    {"host_waits_for_an_event", host_waits_for_an_event},
    {"host_asks_until_an_event_is_done", host_asks_until_an_event_is_done},
    {"a_stream_for_each_producer", a_stream_for_each_producer},
    {"freed_while_another_stream_uses_it", freed_while_another_stream_uses_it},
    {"memory_goes_from_stream_to_stream", memory_goes_from_stream_to_stream},
    {"double_buffering", double_buffering},
    {"two_devices_wait_for_each_other", two_devices_wait_for_each_other},
    {"a_step_on_a_side_stream", a_step_on_a_side_stream},
    {"halves_on_two_streams", halves_on_two_streams},
    {"readers_side_by_side", readers_side_by_side},
    {"a_write_behind_all_readers", a_write_behind_all_readers},
    {"a_closed_stream_is_waited_for", a_closed_stream_is_waited_for},
    {"a_value_read_is_waited_for", a_value_read_is_waited_for},
    {"all_is_waited_for", all_is_waited_for},
    {"an_event_serves_many_waits", an_event_serves_many_waits},
    {"a_view_behind_an_event", a_view_behind_an_event},
    {"a_gradient_behind_an_event", a_gradient_behind_an_event},
    {"a_stream_in_the_place_of_a_closed_one", a_stream_in_the_place_of_a_closed_one},
    {"between_cpu_and_device", between_cpu_and_device},
    {"an_event_of_long_ago_still_orders", an_event_of_long_ago_still_orders},
};

static void run_program(const program *p, int64_t seed)
{
    lab l;
    open_lab(&l, seed);
    p->run(&l);
    if (told()[0] != '\0')
        print_error("program %s, seed %lld\n", p->name, (long long)seed);
    told_expect("%s", "");
    assert_int_equal(belay_synchronise(l.context), BELAY_OK);
    told_close(l.context);
}

static void every_correct_program_is_silent_and_right_under_every_seed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (int64_t seed = 0; seed < seeds_n(SEEDS); seed++)
            run_program(&programs[i], seed);
}

static void every_correct_program_is_silent_and_right_with_real_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (int run = 0; run < FREE_RUNS; run++)
            run_program(&programs[i], SEEDS_THREADS);
}

int main(void)
{
    setenv("BELAY_SIM_BYTES", "16777216", 1); /* quick to open */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_planted_race_is_named_under_every_seed),
        cmocka_unit_test(every_planted_race_is_named_with_real_threads),
        cmocka_unit_test(every_correct_program_is_silent_and_right_under_every_seed),
        cmocka_unit_test(every_correct_program_is_silent_and_right_with_real_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
