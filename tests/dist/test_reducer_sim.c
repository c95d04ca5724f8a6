/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer over a device that the host cannot read, in whatever order the device's streams run: the same bits as without
 * a reducer, and two streams that fill one bucket. */
#include "support/seeds.h"
#include "support/told.h"

#include <stdlib.h>
#include <string.h>

#include <belay/belay.h>
#include <belay/devices.h>

#include "base/attributes.h"
#include "dist/parts.h"

enum { SEEDS = 12, IN = 3, HIDDEN = 4, OUT = 2, ROWS = 4, STEPS = 3, N = 64 };

static belay_context *open_on(int64_t seed, const char *device)
{
    return seeds_open(seed, &(belay_options){.device = device, .seed = 5});
}

static belay_group *group_on(belay_context *context, const char *device)
{
    belay_group *group = belay_group_open(context, &(belay_group_options){.maker = "self"});
    assert_int_equal(belay_group_bind(group, device), BELAY_OK);
    return group;
}

/* ---- training -------------------------------------------------------------------------------------------------------- */

static belay_tensor loss_of(belay_module *model, belay_context *context, float shift)
{
    float x[ROWS * IN], y[ROWS * OUT];
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (float)(i % 5) / 4 + shift;
    for (int i = 0; i < ROWS * OUT; i++)
        y[i] = (float)(i % 3) / 2;
    belay_tensor in = belay_tensor_from(context, BELAY_F32, belay_shape2(ROWS, IN), x, sizeof x);
    belay_tensor want = belay_tensor_from(context, BELAY_F32, belay_shape2(ROWS, OUT), y, sizeof y);
    return belay_mse(belay_forward(model, in), want, BELAY_MEAN);
}

enum { WEIGHTS = IN * HIDDEN + HIDDEN + HIDDEN * OUT + OUT };

static void read_all(const belay_module *model, float *out)
{
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        belay_tensor p = belay_module_parameter(model, i);
        int64_t n = belay_tensor_n_elements(p);
        assert_int_equal(belay_tensor_read(p, out, n * 4), BELAY_OK);
        out += n;
    }
}

/* options NULL: without a reducer.  Windows of two micro-batches, the first of which is not averaged. */
static void train(int64_t seed, const char *device, const belay_ddp_options *options, float *out)
{
    belay_context *context = open_on(seed, device);
    belay_module *model = belay_mlp(context, &(belay_mlp_options){.sizes = {IN, HIDDEN, OUT}});
    belay_reducer *reducer = options != NULL ? belay_ddp(model, group_on(context, device), options) : NULL;
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < 2; k++) {
            belay_scope scope = belay_scope_open(context);
            if (reducer != NULL)
                (void)belay_ddp_sync_set(reducer, k == 1);
            belay_backward(loss_of(model, context, (float)(2 * i + k)));
            belay_scope_close(scope);
        }
        belay_optimizer_step(sgd);
    }
    read_all(model, out);
    assert_int_equal(belay_optimizer_n_applied(sgd), STEPS);
    told_close(context);
}

static void a_device_trains_as_without_a_reducer(void **state)
{
    (void)state;
    static const belay_ddp_options options[] = {
        {.first_bucket_bytes = 4, .bucket_bytes = 4}, {.first_bucket_bytes = 4, .no_overlap = true}, {0}};
    static const char *const devices[] = {"sim:0", "sim:1"};
    float without[WEIGHTS], with[WEIGHTS];
    train(SEEDS_THREADS, "cpu", NULL, without);
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        train(seed, devices[(seed + 1) % 2], &options[(seed + 1) % 3], with);
        assert_memory_equal(with, without, sizeof with);
    }
}

static void a_reducer_goes_under_its_copies(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        belay_context *context = open_on(seed, "sim:0");
        belay_module *model = belay_mlp(context, &(belay_mlp_options){.sizes = {IN, HIDDEN, OUT}});
        belay_reducer *reducer = belay_ddp(model, group_on(context, "sim:0"), NULL);
        belay_backward(loss_of(model, context, 1));
        if (seed % 2 == 0)
            belay_reducer_free(reducer);
        belay_backward(loss_of(model, context, 2));
        told_close(context);
    }
}

/* ---- two streams that fill one bucket --------------------------------------------------------------------------------- */

typedef struct lab {
    belay_context *context;
    belay_stream main, b;
    belay_module *model;
    belay_reducer *reducer;
    belay_optimizer *sgd;
    bl_grad_watch watch; /* told after the reducer */
    bool forgets;        /* what stream b filled */
    belay_scope scope;
} lab;

static void same(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out, int n_out)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    out[0] = belay_add(in[0], belay_zeros(belay_function_context(call), BELAY_F32, belay_shape1(N)));
}

/* The gradient comes on stream b, and so does what collects it. */
static void twice_on_b(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                       belay_tensor *grad_in, int n_in)
{
    const lab *l = state;
    (void)call, (void)n_out, (void)n_in;
    assert_int_equal(belay_stream_wait(l->b, belay_event_record(l->main)), BELAY_OK);
    (void)belay_stream_use(l->b);
    grad_in[0] = belay_add(grad_out[0], grad_out[0]);
}

static const belay_function on_b = {.name = "on_b", .forward = same, .backward = twice_on_b};

static void ignore_begin(void *state, uintptr_t site) { (void)state, (void)site; }
static void ignore_reach(void *state, const bl_grad_room *room, int64_t at) { (void)state, (void)room, (void)at; }
static void ignore(void *state) { (void)state; }

static void go_on_with_main(void *state, int64_t at)
{
    lab *l = state;
    (void)at;
    (void)belay_stream_use(l->main);
    for (int s = 0; s < BL_MAX_STREAMS && l->forgets; s++)
        if (s == (int)l->b.slot)
            l->reducer->bucket[0].stage.filled[s].number = 0;
}

static belay_tensor unused(belay_module *module, belay_tensor x)
{
    (void)module;
    return x;
}

static void open_lab(lab *l, int64_t seed)
{
    static const belay_module_kind kind = {.name = "pair", .forward = unused};
    memset(l, 0, sizeof *l);
    l->context = open_on(seed, "sim:0");
    belay_site_push(l->context, "start");
    l->main = belay_stream_current(l->context);
    l->b = belay_stream_open(l->context, "b");
    l->watch = (bl_grad_watch){ignore_begin, ignore_reach, ignore, go_on_with_main, ignore, l, NULL};
    bl_grad_watch_add(l->context, &l->watch);
    l->model = belay_module_new(l->context, &kind);
    for (int i = 0; i < 2; i++)
        (void)belay_module_add_parameter(l->model, i == 0 ? "v" : "w", BELAY_F32, belay_shape1(N),
                                         (belay_init){BELAY_INIT_CONSTANT, 1, 0});
    l->reducer = belay_ddp(l->model, group_on(l->context, "sim:0"),
                           &(belay_ddp_options){.first_bucket_bytes = 1 << 20, .no_overlap = true, .batch = 1});
    assert_int_equal(belay_reducer_n_buckets(l->reducer), 1);
    l->sgd = belay_sgd(l->model, &(belay_sgd_options){.lr = 0.25});
    told_expect("%s", "");
}

static void back(lab *l)
{
    belay_tensor v = belay_module_parameter(l->model, 0), w = belay_module_parameter(l->model, 1), y;
    seeds_here(l->context, "the function");
    belay_function_apply(l->context, &on_b, l, &w, 1, 0, &y, 1);
    belay_tensor loss = belay_add(belay_sum(v, NULL), belay_sum(y, NULL));
    seeds_here(l->context, "the backward");
    belay_backward(loss);
}

static void expect(lab *l, int parameter, float value)
{
    float all[N];
    told_read(belay_module_parameter(l->model, parameter), all, N);
    for (int i = 0; i < N; i++)
        assert_float_equal(all[i], value, 0);
}

static void two_streams_fill_one_bucket(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        lab l;
        open_lab(&l, seed);
        for (int i = 0; i < 2; i++) {
            belay_scope scope = belay_scope_open(l.context);
            back(&l);
            belay_optimizer_step(l.sgd);
            belay_scope_close(scope);
        }
        expect(&l, 0, 0.5f);
        expect(&l, 1, 0);
        told_expect("%s", "");
        bl_grad_watch_remove(l.context, &l.watch);
        told_close(l.context);
    }
}

static void an_event_that_is_dropped_is_a_race_and_the_window_is_not_applied(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        lab l;
        open_lab(&l, seed);
        l.forgets = true;
        back(&l);
        told_expect("belay: tensor bucket 0 of 1 would be read on stream reduction while stream b may still be writing "
                    "it: nothing orders the two (life.stream)\n"
                    "    called at: the backward on stream reduction\n"
                    "    written at: the function on stream b\n"
                    "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n%s",
                    told_try(BELAY_LIFE_STREAM));
        belay_optimizer_step(l.sgd);
        assert_int_equal(belay_optimizer_n_applied(l.sgd), 0);
        expect(&l, 0, 1);
        expect(&l, 1, 1);
        bl_grad_watch_remove(l.context, &l.watch);
        assert_int_equal(belay_close(l.context), 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_trains_as_without_a_reducer),
        cmocka_unit_test(a_reducer_goes_under_its_copies),
        cmocka_unit_test(two_streams_fill_one_bucket),
        cmocka_unit_test(an_event_that_is_dropped_is_a_race_and_the_window_is_not_applied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
