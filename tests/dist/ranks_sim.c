/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on software devices, each on its own: the same bits as on the cpu, and windows that end the same way on all of them
 * although each rank's device tells it late. */
#include "dist/ranks.h"

#include <stdlib.h>
#include <string.h>

#include <belay/belay.h>
#include <belay/devices.h>

#include "base/attributes.h"
#include "dist/parts.h"
#include "support/seeds.h"

enum { ROWS = 4, SEQ = 3, TOKENS = 9, EMBED = 4, OUT = 3, WEIGHTS = TOKENS * EMBED + EMBED * OUT + OUT, STEPS = 4 };

typedef struct job {
    ranks r;
    belay_module *model, *table, *fc;
    belay_reducer *reducer;
    belay_optimizer *sgd;
} job;

static belay_tensor forward(belay_module *module, belay_tensor x)
{
    (void)module;
    return x;
}

/* The device of the local rank where `kind` is sim. */
static job open_job(const char *kind, const belay_ddp_options *options)
{
    static const belay_module_kind whole = {.name = "words", .forward = forward};
    job j = {.r = ranks_open_unbound(20)};
    assert_int_equal(belay_group_bind(j.r.group, kind), BELAY_OK);
    j.model = belay_module_new(j.r.context, &whole);
    j.table = belay_embedding_module(j.r.context, &(belay_embedding_module_options){.rows = TOKENS, .width = EMBED});
    j.fc = belay_linear_module(j.r.context, &(belay_linear_module_options){.in = EMBED, .out = OUT});
    (void)belay_module_add_child(j.model, "table", j.table);
    (void)belay_module_add_child(j.model, "fc", j.fc);
    j.reducer = belay_ddp(j.model, j.r.group, options);
    told_expect("%s", "");
    assert_false(belay_reducer_is_nil(j.reducer));
    j.sgd = belay_sgd(j.model, &(belay_sgd_options){.lr = 0.1, .momentum = 0.9});
    return j;
}

static belay_tensor loss_of(const job *j, int number, int bad_rank)
{
    int64_t ids[ROWS * SEQ], labels[ROWS];
    for (int i = 0; i < ROWS * SEQ; i++)
        ids[i] = (i * 7 + j->r.rank * 5 + number * 3) % TOKENS;
    for (int i = 0; i < ROWS; i++)
        labels[i] = (i + j->r.rank + number) % OUT;
    if (j->r.rank == bad_rank)
        ids[5] = TOKENS;
    belay_tensor tokens = belay_tensor_from(j->r.context, BELAY_I64, belay_shape2(ROWS, SEQ), ids, sizeof ids);
    belay_tensor want = belay_tensor_from(j->r.context, BELAY_I64, belay_shape1(ROWS), labels, sizeof labels);
    belay_tensor mean = belay_mean(belay_forward(j->table, tokens), &(belay_axes){.n = 1, .axis = {1}});
    return belay_cross_entropy(belay_forward(j->fc, mean), want, NULL);
}

static void back(const job *j, int number, int bad_rank)
{
    belay_scope scope = belay_scope_open(j->r.context);
    belay_backward(loss_of(j, number, bad_rank));
    belay_scope_close(scope);
}

static void step(const job *j, int number, int bad_rank)
{
    back(j, number, bad_rank);
    belay_optimizer_step(j->sgd);
}

static void read_weights(const job *j, float out[WEIGHTS])
{
    for (int64_t i = 0; i < belay_module_n_parameters(j->model); i++) {
        belay_tensor p = belay_module_parameter(j->model, i);
        int64_t n = belay_tensor_n_elements(p);
        assert_int_equal(belay_tensor_read(p, out, n * 4), BELAY_OK);
        out += n;
    }
}

/* A training of STEPS steps; in the one `bad_step` a rank reads past its table. */
static void train(const char *kind, const belay_ddp_options *options, int bad_step, int bad_rank, float out[WEIGHTS])
{
    job j = open_job(kind, options);
    for (int i = 0; i < STEPS; i++)
        step(&j, i, i == bad_step ? bad_rank : -1);
    read_weights(&j, out);
    assert_int_equal(belay_optimizer_n_applied(j.sgd), bad_step >= 0 ? STEPS - 1 : STEPS);
    if (bad_step < 0)
        told_expect("%s", "");
    else
        assert_non_null(strstr(told(), j.r.rank == bad_rank ? "(index.range)"
                                                            : "step 1 was not applied: index.range in its window"));
    belay_group_close(j.r.group);
    (void)belay_close(j.r.context);
}

/* Where weights are compared the host waits for the ranks, in the others the device. */
static const belay_ddp_options shapes[] = {{.first_bucket_bytes = 16, .bucket_bytes = 16, .digest_every = 1},
                                           {.first_bucket_bytes = 16, .bucket_bytes = 16, .digest_every = -1},
                                           {.first_bucket_bytes = 16, .no_overlap = true, .digest_every = 1},
                                           {.first_bucket_bytes = 16, .no_overlap = true, .digest_every = -1},
                                           {.digest_every = 2}};

static void devices_give_the_bits_of_the_cpu(void **state)
{
    (void)state;
    float wanted[WEIGHTS], got[WEIGHTS];
    train("cpu", &shapes[0], -1, -1, wanted);
    for (int64_t seed = -1; seed < seeds_n(5); seed++) {
        seeds_set(seed);
        train("sim", &shapes[(seed + 1) % BL_COUNT(shapes)], -1, -1, got);
        assert_memory_equal(got, wanted, sizeof got);
    }
}

static void a_bad_id_on_one_device_drops_the_window_on_all(void **state)
{
    (void)state;
    float wanted[WEIGHTS], got[WEIGHTS];
    for (int bad = 0; bad < 2; bad++) {
        train("cpu", &shapes[0], 1, bad, wanted);
        for (int64_t seed = -1; seed < seeds_n(3); seed++) {
            seeds_set(seed);
            train("sim", &shapes[(seed + 1) % BL_COUNT(shapes)], 1, bad, got);
            assert_memory_equal(got, wanted, sizeof got);
        }
    }
}

/* Under a loss scale; in step 2 the gradients of rank 1 alone overflow, in step 3 all are divided before the step. */
static float train_scaled(const char *kind, const belay_ddp_options *options, float out[WEIGHTS])
{
    job j = open_job(kind, options);
    belay_grad_scaler *scaler = belay_grad_scaler_new(j.r.context, &(belay_grad_scaler_options){.init_scale = 1024});
    for (int i = 0; i < STEPS; i++) {
        const float huge = 1e38f;
        belay_scope scope = belay_scope_open(j.r.context);
        belay_tensor loss = loss_of(&j, i, -1);
        if (j.r.rank == 1 && i == 2)
            loss = belay_mul(loss, belay_tensor_from(j.r.context, BELAY_F32, belay_shape0(), &huge, 4));
        belay_backward(belay_grad_scaler_scale(scaler, loss));
        if (i == 3)
            belay_grad_scaler_unscale(scaler, j.sgd);
        belay_grad_scaler_step(scaler, j.sgd);
        belay_grad_scaler_update(scaler);
        belay_scope_close(scope);
    }
    read_weights(&j, out);
    assert_int_equal(belay_optimizer_n_applied(j.sgd), STEPS - 1);
    assert_int_equal(belay_optimizer_n_overflowed(j.sgd), 1);
    assert_non_null(strstr(told(), "(run.overflow)"));
    told_clear();
    float scale = (float)belay_grad_scaler_get(scaler);
    ranks_close(&j.r);
    return scale;
}

static void an_overflow_on_one_device_is_everybodys(void **state)
{
    (void)state;
    float wanted[WEIGHTS], got[WEIGHTS];
    assert_float_equal(train_scaled("cpu", &shapes[0], wanted), 512, 0);
    for (int64_t seed = -1; seed < seeds_n(5); seed++) {
        seeds_set(seed);
        assert_float_equal(train_scaled("sim", &shapes[(seed + 1) % BL_COUNT(shapes)], got), 512, 0);
        assert_memory_equal(got, wanted, sizeof got);
    }
}

/* In window 1 rank 1 has a fault that its device alone may know, and steps after one backward; the others walk twice. */
static void train_unevenly(const char *kind, const belay_ddp_options *options, float out[WEIGHTS])
{
    job j = open_job(kind, options);
    for (int i = 0; i < STEPS; i++) {
        back(&j, i, i == 1 ? 1 : -1);
        if (i == 1 && j.r.rank != 1)
            back(&j, i, -1);
        belay_optimizer_step(j.sgd);
        if (i == 1) /* what is not averaged goes on beside it */
            (void)belay_ddp_sync_set(j.reducer, false);
        back(&j, i, -1);
        if (i == 1)
            (void)belay_ddp_sync_set(j.reducer, true);
        else
            belay_optimizer_step(j.sgd);
    }
    read_weights(&j, out);
    assert_int_equal(belay_optimizer_n_applied(j.sgd), 2 * STEPS - 2);
    told_clear();
    belay_group_close(j.r.group);
    (void)belay_close(j.r.context);
}

static void a_rank_whose_device_met_a_fault_may_lack_an_average(void **state)
{
    (void)state;
    float wanted[WEIGHTS], got[WEIGHTS];
    train_unevenly("cpu", &shapes[0], wanted);
    for (int64_t seed = -1; seed < seeds_n(8); seed++) {
        seeds_set(seed);
        train_unevenly("sim", &shapes[(seed + 1) % BL_COUNT(shapes)], got);
        assert_memory_equal(got, wanted, sizeof got);
    }
}

/* What rank 1 was at, and how far the others were when they heard of it, is as it happens. */
static void expect_loss(const job *j)
{
    static const char others[] =
        "belay: rank 1 gave up: a kernel wrote address 0x40, a null pointer (mem.access) (comm.peer)\n"
        "    called at: loop\n    rank 1 ";
    static const char lost[] = "belay: a kernel wrote address 0x40, a null pointer (mem.access)\n    called at: loop\n";
    const char *first = strstr(told(), "(comm.");
    if (j->r.rank == 1) {
        assert_memory_equal(told(), lost, sizeof lost - 1);
        assert_non_null(strstr(told(), "belay: device sim:1 is lost: nothing runs on it any more (place.lost)\n"));
        assert_null(first);
    } else {
        assert_non_null(strstr(told(), others));
        assert_non_null(strstr(told(), told_try(BELAY_COMM_PEER)));
        assert_null(strstr(first + 1, "(comm.")); /* once */
    }
}

/* Nobody waits for a rank whose device is gone, and nobody drops windows because of it: it gives the group up at the
 * window's end, and the others learn why.  No group is opened after it. */
static void a_rank_that_loses_its_device_gives_the_group_up(void **state)
{
    (void)state;
    float before[WEIGHTS], after[WEIGHTS];
    char byte = 0;
    seeds_set(SEEDS_THREADS);
    job j = open_job("sim", &shapes[3]);
    bl_device *device = j.r.context->device;
    step(&j, 0, -1);
    step(&j, 1, -1); /* in buckets by the order that was learned */
    read_weights(&j, before);
    told_expect("%s", "");
    if (j.r.rank == 1)
        (void)device->api->copy_in_later(device, 0, (void *)(uintptr_t)64, &byte, 1);
    belay_site_push(j.r.context, "loop");
    for (int i = 2; i < 5; i++) /* the host may be a window ahead of its device */
        step(&j, i, -1);
    expect_loss(&j);
    assert_int_equal(belay_group_barrier(j.r.group), BELAY_COMM_PEER);
    if (j.r.rank != 1) {
        assert_int_equal(belay_optimizer_n_applied(j.sgd), 2);
        read_weights(&j, after);
        assert_memory_equal(after, before, sizeof after);
    }
    assert_int_equal(belay_close(j.r.context), j.r.rank == 1 ? 6 : 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_give_the_bits_of_the_cpu),
        cmocka_unit_test(a_bad_id_on_one_device_drops_the_window_on_all),
        cmocka_unit_test(an_overflow_on_one_device_is_everybodys),
        cmocka_unit_test(a_rank_whose_device_met_a_fault_may_lack_an_average),
        cmocka_unit_test(a_rank_that_loses_its_device_gives_the_group_up),
    };
    setenv("BELAY_SIM_DEVICES", "4", 1);
    setenv("BELAY_SIM_BYTES", "268435456", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
