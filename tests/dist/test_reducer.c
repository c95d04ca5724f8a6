/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer on one rank: what it does to gradients, and what it refuses.  Several ranks: ranks_reducer.c. */
#include "support/told.h"

#include <belay/belay.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/attributes.h"
#include "base/memory.h"
#include "dist/parts.h"
#include "train/trainer.h"

enum { IN = 3, OUT = 2, ROWS = 4 };

typedef struct one {
    belay_context *context;
    belay_group *group;
    belay_module *model;
    belay_reducer *reducer;
    belay_optimizer *sgd;
} one;

static one open_with(const belay_ddp_options *options)
{
    one o = {0};
    told_clear();
    o.context = belay_open(&(belay_options){.device = "cpu", .log = told_remember, .no_journal = true, .seed = 5});
    o.group = belay_group_open(o.context, &(belay_group_options){.maker = "self"});
    assert_int_equal(belay_group_bind(o.group, "cpu"), BELAY_OK);
    o.model = belay_mlp(o.context, &(belay_mlp_options){.sizes = {IN, 4, OUT}});
    o.reducer = belay_ddp(o.model, o.group, options);
    o.sgd = belay_sgd(o.model, &(belay_sgd_options){.lr = 0.1, .momentum = 0.9});
    return o;
}

/* All in one bucket, in builds of tiny limits too. */
static one open_one(void)
{
    one o = open_with(&(belay_ddp_options){.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20});
    assert_false(belay_reducer_is_nil(o.reducer));
    assert_string_equal(told(), "");
    return o;
}

static void close_one(one *o)
{
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(o->context), 0);
}

static belay_tensor loss_of(const one *o, float shift)
{
    float x[ROWS * IN], y[ROWS * OUT];
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (float)(i % 5) / 4 + shift;
    for (int i = 0; i < ROWS * OUT; i++)
        y[i] = (float)(i % 3) / 2;
    belay_tensor in = belay_tensor_from(o->context, BELAY_F32, belay_shape2(ROWS, IN), x, sizeof x);
    belay_tensor want = belay_tensor_from(o->context, BELAY_F32, belay_shape2(ROWS, OUT), y, sizeof y);
    return belay_mse(belay_forward(o->model, in), want, BELAY_MEAN);
}

static void step(const one *o, float shift)
{
    belay_scope scope = belay_scope_open(o->context);
    belay_backward(loss_of(o, shift));
    belay_optimizer_step(o->sgd);
    belay_scope_close(scope);
}

static void read_all(const belay_module *model, float *out)
{
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        belay_tensor p = belay_module_parameter(model, i);
        int64_t n = belay_tensor_n_elements(p);
        assert_int_equal(belay_tensor_read(p, out, n * 4), BELAY_OK);
        out += n;
    }
}

enum { WEIGHTS = IN * 4 + 4 + 4 * OUT + OUT };

static void one_rank_trains_as_without_a_reducer(void **state)
{
    (void)state;
    float with[WEIGHTS], without[WEIGHTS];
    one o = open_one();
    for (int i = 0; i < 5; i++)
        step(&o, (float)i);
    read_all(o.model, with);
    close_one(&o);
    told_clear();
    o = (one){.context =
                  belay_open(&(belay_options){.device = "cpu", .log = told_remember, .no_journal = true, .seed = 5})};
    o.model = belay_mlp(o.context, &(belay_mlp_options){.sizes = {IN, 4, OUT}});
    o.sgd = belay_sgd(o.model, &(belay_sgd_options){.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < 5; i++)
        step(&o, (float)i);
    read_all(o.model, without);
    assert_memory_equal(with, without, sizeof with);
    close_one(&o);
}

static void gradients_lie_in_the_buckets(void **state)
{
    (void)state;
    one o = open_with(&(belay_ddp_options){.first_bucket_bytes = 4, .bucket_bytes = 4});
    assert_int_equal(belay_reducer_n_buckets(o.reducer), 4);
    assert_int_equal(belay_reducer_bucket_of(o.reducer, 3), 0); /* the last parameter comes first */
    assert_int_equal(belay_reducer_bucket_of(o.reducer, 0), 3);
    assert_int_equal(belay_reducer_bucket_of(o.reducer, 4), -1);
    belay_scope scope = belay_scope_open(o.context);
    belay_backward(loss_of(&o, 0));
    for (int64_t i = 0; i < 4; i++) {
        const bl_slot *grad = bl_slot_get(o.context, belay_tensor_grad(belay_module_parameter(o.model, i)));
        const bl_bucket *b = &o.reducer->bucket[belay_reducer_bucket_of(o.reducer, i)];
        assert_ptr_equal(grad->storage, bl_slot_get(o.context, b->flat)->storage);
    }
    assert_string_equal(belay_tensor_name(belay_tensor_grad(belay_module_parameter(o.model, 0))), "0.weight.grad");
    belay_scope_close(scope);
    assert_int_equal(belay_reducer_n_reduced(o.reducer), 1);
    close_one(&o);
}

/* Buckets of another order hold the gradients that were there. */
static void the_order_is_learned_and_gradients_move_along(void **state)
{
    (void)state;
    float before[IN * 4], after[IN * 4];
    one o = open_with(&(belay_ddp_options){.first_bucket_bytes = 4, .bucket_bytes = 4});
    step(&o, 0);
    assert_true(o.reducer->has_learned);
    const int64_t forward[] = {0, 1, 2, 3};
    belay_scope scope = belay_scope_open(o.context);
    belay_ddp_sync_set(o.reducer, false);
    belay_backward(loss_of(&o, 1));
    belay_tensor first = belay_module_parameter(o.model, 0);
    assert_int_equal(belay_tensor_read(belay_tensor_grad(first), before, sizeof before), BELAY_OK);
    assert_true(bl_buckets_make(o.reducer, forward));
    assert_int_equal(belay_reducer_bucket_of(o.reducer, 0), 0);
    assert_int_equal(belay_tensor_read(belay_tensor_grad(first), after, sizeof after), BELAY_OK);
    assert_memory_equal(before, after, sizeof before);
    belay_ddp_sync_set(o.reducer, true);
    belay_scope_close(scope);
    close_one(&o);
}

static void without_sync_gradients_add_up_and_nothing_is_reduced(void **state)
{
    (void)state;
    float twice[IN * 4], once[IN * 4];
    one o = open_one();
    belay_scope scope = belay_scope_open(o.context);
    belay_tensor weight = belay_module_parameter(o.model, 0);
    assert_true(belay_ddp_sync_set(o.reducer, false));
    belay_backward(loss_of(&o, 0));
    assert_int_equal(belay_tensor_read(belay_tensor_grad(weight), once, sizeof once), BELAY_OK);
    belay_backward(loss_of(&o, 0));
    assert_int_equal(belay_reducer_n_reduced(o.reducer), 0);
    assert_false(belay_ddp_sync_set(o.reducer, true));
    belay_backward(loss_of(&o, 0));
    assert_int_equal(belay_reducer_n_reduced(o.reducer), 1);
    assert_int_equal(belay_tensor_read(belay_tensor_grad(weight), twice, sizeof twice), BELAY_OK);
    for (int i = 0; i < IN * 4; i++)
        assert_float_equal(twice[i], once[i] + once[i] + once[i], 1e-5);
    belay_scope_close(scope);
    close_one(&o);
}

static void a_held_gradient_is_not_touched_while_it_is_reduced(void **state)
{
    (void)state;
    one o = open_one();
    belay_scope scope = belay_scope_open(o.context);
    belay_tensor weight = belay_module_parameter(o.model, 0);
    belay_ddp_sync_set(o.reducer, false);
    belay_backward(loss_of(&o, 0));
    belay_tensor held = belay_tensor_grad(weight);
    belay_ddp_sync_set(o.reducer, true);
    belay_tensor loss = loss_of(&o, 0);
    int line = __LINE__ + 1;
    belay_backward(loss);
    (void)belay_relu(held);
    told_expect(
        "belay: relu would read 0.weight.grad [4, 3], which belongs to bucket 0 of 1 until its reduction has ended "
        "(life.bucket)\n    called at: test_reducer.c:%d\n    reduction began: "
        "test_reducer.c:%d\n    when: epoch 0, batch 2 (micro-batch 2 of its window), step 0, rank 0\n%s",
        line + 1, line, told_try(BELAY_LIFE_BUCKET));
    const float zeros[IN * 4] = {0};
    assert_int_equal(belay_tensor_write(weight, zeros, sizeof zeros), BELAY_LIFE_BUCKET);
    told_expect(
        "belay: the host would write 0.weight [4, 3], which belongs to bucket 0 of 1 until its reduction has ended "
        "(life.bucket)\n    called at: test_reducer.c:%d\n    reduction began: "
        "test_reducer.c:%d\n    when: epoch 0, batch 2 (micro-batch 2 of its window), step 0, rank 0\n%s",
        line + 8, line, told_try(BELAY_LIFE_BUCKET));
    belay_module_grads_clear(o.model);
    told_clear();
    assert_true(belay_tensor_is_alive(held));                     /* nothing was cleared */
    assert_false(belay_tensor_is_nil(belay_tensor_grad(weight))); /* a question waits; from here on all is free again */
    (void)belay_relu(held);
    assert_string_equal(told(), "");
    belay_scope_close(scope);
    assert_int_equal(belay_close(o.context), 3);
}

/* One parameter in two ops is whole once, behind the earlier of them. */
static belay_tensor shared_forward(belay_module *module, belay_tensor x)
{
    belay_tensor *w = belay_module_self(module);
    return belay_matmul(belay_tanh(belay_matmul(x, *w)), *w);
}

static const belay_module_kind shared_kind = {"shared", sizeof(belay_tensor), shared_forward, NULL};

static void a_parameter_in_two_ops_is_whole_once(void **state)
{
    (void)state;
    float got[9], want[9];
    for (int with = 0; with < 2; with++) {
        told_clear();
        belay_context *context =
            belay_open(&(belay_options){.device = "cpu", .log = told_remember, .no_journal = true, .seed = 5});
        belay_module *module = belay_module_new(context, &shared_kind);
        belay_tensor *w = belay_module_self(module);
        *w = belay_module_add_parameter(module, "w", BELAY_F32, belay_shape2(3, 3),
                                        (belay_init){.kind = BELAY_INIT_UNIFORM, .a = -1, .b = 1});
        if (with == 1) {
            belay_group *group = belay_group_open(context, &(belay_group_options){.maker = "self"});
            assert_int_equal(belay_group_bind(group, "cpu"), BELAY_OK);
            assert_false(belay_reducer_is_nil(belay_ddp(module, group, NULL)));
        }
        const float x[] = {1, 2, 3, 4, 5, 6};
        belay_scope scope = belay_scope_open(context);
        belay_tensor in = belay_tensor_from(context, BELAY_F32, belay_shape2(2, 3), x, sizeof x);
        belay_backward(belay_sum(belay_forward(module, in), NULL));
        assert_int_equal(belay_tensor_read(belay_tensor_grad(*w), with == 1 ? got : want, sizeof got), BELAY_OK);
        belay_scope_close(scope);
        told_close(context);
    }
    assert_memory_equal(got, want, sizeof got);
}

/* A loss of the first layer alone. */
static belay_tensor half_loss(const one *o)
{
    const float x[IN] = {1, 2, 3};
    belay_tensor in = belay_tensor_from(o->context, BELAY_F32, belay_shape2(1, IN), x, sizeof x);
    return belay_sum(belay_forward(belay_module_child(o->model, 0), in), NULL);
}

static void parameters_that_no_loss_reaches_are_named(void **state)
{
    (void)state;
    one o = open_one();
    belay_scope scope = belay_scope_open(o.context);
    belay_tensor loss = half_loss(&o);
    int line = __LINE__ + 1;
    belay_backward(loss);
    told_expect("belay: 2 of 4 parameters took no part in a loss that was walked back (comm.unused)\n"
                "    called at: test_reducer.c:%d\n    they are: 2.weight and 2.bias\n"
                "    their gradients went to the other ranks as zeros\n"
                "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n%s",
                line, told_try(BELAY_COMM_UNUSED));
    belay_optimizer_step(o.sgd);
    assert_false(belay_optimizer_is_applied(o.sgd));
    belay_scope_close(scope);
    assert_int_equal(belay_close(o.context), 3);
}

static void where_it_is_allowed_an_unused_parameter_keeps_no_gradient(void **state)
{
    (void)state;
    float before[WEIGHTS], after[WEIGHTS];
    one o = open_with(&(belay_ddp_options){.find_unused_parameters = true});
    read_all(o.model, before);
    belay_scope scope = belay_scope_open(o.context);
    belay_backward(half_loss(&o));
    assert_true(belay_tensor_is_nil(belay_tensor_grad(belay_module_find(o.model, "2.weight"))));
    belay_optimizer_step(o.sgd);
    assert_true(belay_optimizer_is_applied(o.sgd));
    belay_scope_close(scope);
    read_all(o.model, after);
    assert_memory_not_equal(before, after, 4 * IN * 4);
    assert_memory_equal(before + IN * 4 + 4, after + IN * 4 + 4, 4 * (4 * OUT + OUT));
    close_one(&o);
}

/* A reduction that would pass the end of its memory, as llm.c's of 4 elements over 1. */
static void a_reduction_beyond_its_memory_is_refused_before_it_begins(void **state)
{
    (void)state;
    one o = open_with(&(belay_ddp_options){.first_bucket_bytes = 4, .bucket_bytes = 4});
    belay_scope scope = belay_scope_open(o.context);
    belay_tensor loss = loss_of(&o, 0);
    const bl_slot *flat = bl_slot_get(o.context, o.reducer->bucket[0].flat);
    o.reducer->bucket[0].n_elements = flat->storage->n_bytes / 4 + 3;
    belay_backward(loss);
    assert_non_null(strstr(told(), "bytes would pass the end of bucket 0 of 4 by 12 bytes (size.extent)\n"));
    assert_int_equal(o.group->broken != BELAY_OK, true);
    belay_optimizer_step(o.sgd);
    assert_false(belay_optimizer_is_applied(o.sgd));
    belay_scope_close(scope);
    assert_int_not_equal(belay_close(o.context), 0);
}

/* What the gate of a reduction proves, from what lies there when its turn has come. */
static void a_bucket_that_is_not_what_it_was_does_not_pass_its_gate(void **state)
{
    (void)state;
    static const char *const words[] = {"belay: bucket 0 of 1 is gone before its reduction (life.stale)\n",
                                        "belay: bucket 0 of 1 holds f32, its reduction is of bf16 (type.dtype)\n"};
    for (int i = 0; i < BL_COUNT(words); i++) {
        one o = open_one();
        belay_scope scope = belay_scope_open(o.context);
        belay_tensor loss = loss_of(&o, 0);
        bl_bucket *b = &o.reducer->bucket[0];
        if (i == 0)
            bl_tensor_drop(o.context, b->flat);
        else
            b->dtype = BELAY_BF16;
        belay_backward(loss);
        assert_non_null(strstr(told(), words[i]));
        belay_optimizer_step(o.sgd);
        assert_false(belay_optimizer_is_applied(o.sgd));
        belay_scope_close(scope);
        assert_int_not_equal(belay_close(o.context), 0);
    }
}

static void a_second_reducer_over_a_parameter_is_refused(void **state)
{
    (void)state;
    one o = open_one();
    int line = __LINE__ + 1;
    belay_reducer *second = belay_ddp(belay_module_child(o.model, 0), o.group, NULL);
    assert_true(belay_reducer_is_nil(second));
    assert_non_null(strstr(told(), "belay: parameter weight already has a reducer (conf.order)\n"));
    char where[64];
    snprintf(where, sizeof where, "called at: test_reducer.c:%d\n", line);
    assert_non_null(strstr(told(), where));
    assert_int_not_equal(belay_close(o.context), 0);
}

static void a_freed_reducer_is_stale_and_gradients_go_their_own_ways(void **state)
{
    (void)state;
    one o = open_one();
    step(&o, 0);
    belay_reducer_free(o.reducer);
    assert_true(belay_reducer_is_nil(o.reducer));
    step(&o, 1);
    assert_int_equal(o.context->n_leases, 0);
    assert_string_equal(told(), "");
    assert_int_equal(belay_reducer_n_buckets(o.reducer), 0);
    assert_non_null(strstr(told(), "belay: a reducer was used after it had been freed (life.stale)\n"));
    assert_int_equal(belay_close(o.context), 3);
}

static void a_module_is_not_freed_under_its_reducer(void **state)
{
    (void)state;
    one o = open_one();
    belay_module_free(o.model);
    assert_non_null(strstr(told(), "is at work"));
    told_clear();
    belay_reducer_free(o.reducer);
    belay_optimizer_free(o.sgd);
    belay_module_free(o.model);
    assert_string_equal(told(), "");
    belay_close(o.context);
}

static void a_dropped_window_waits_for_what_is_in_flight(void **state)
{
    (void)state;
    one o = open_one();
    belay_scope scope = belay_scope_open(o.context);
    belay_backward(loss_of(&o, 0));
    assert_int_equal(o.context->n_leases, 2);
    belay_optimizer_discard(o.sgd);
    assert_int_equal(o.context->n_leases, 0);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(belay_module_parameter(o.model, 0))));
    belay_scope_close(scope);
    step(&o, 0);
    assert_true(belay_optimizer_is_applied(o.sgd));
    close_one(&o);
}

static void a_reducer_without_a_group_is_refused(void **state)
{
    (void)state;
    told_clear();
    belay_context *context = belay_open(&(belay_options){.device = "cpu", .log = told_remember, .no_journal = true});
    belay_module *model = belay_mlp(context, &(belay_mlp_options){.sizes = {IN, 4, OUT}});
    assert_true(belay_reducer_is_nil(belay_ddp(model, NULL, NULL)));
    assert_non_null(strstr(told(), "belay: a reducer needs a group, and was given NULL (conf.missing)\n"));
    assert_int_equal(belay_close(context), 2);
}

static void a_reducer_without_a_module_is_refused(void **state)
{
    (void)state;
    told_clear();
    belay_context *context = belay_open(&(belay_options){.device = "cpu", .log = told_remember, .no_journal = true});
    belay_group *group = belay_group_open(context, &(belay_group_options){.maker = "self"});
    assert_int_equal(belay_group_bind(group, "cpu"), BELAY_OK);
    assert_true(belay_reducer_is_nil(belay_ddp(NULL, group, NULL)));
    assert_non_null(strstr(told(), "belay: a reducer needs a module, and was given NULL (conf.missing)\n"));
    assert_int_equal(belay_group_barrier(group), BELAY_OK);
    assert_int_equal(belay_close(context), 2);
}

/* Before anything moves: the group goes on. */
static void an_operation_over_a_parameter_in_flight_is_refused(void **state)
{
    (void)state;
    one o = open_one();
    belay_scope scope = belay_scope_open(o.context);
    belay_backward(loss_of(&o, 0));
    int line = __LINE__ + 1;
    belay_code code = belay_group_all_reduce(o.group, belay_module_parameter(o.model, 0), BELAY_GROUP_MAX);
    assert_int_equal(code, BELAY_LIFE_BUCKET);
    told_expect("belay: all_reduce would write 0.weight [4, 3], which belongs to bucket 0 of 1 until its reduction has "
                "ended (life.bucket)\n    called at: test_reducer.c:%d\n    reduction began: test_reducer.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n%s",
                line, line - 2, told_try(BELAY_LIFE_BUCKET));
    assert_int_equal(belay_group_barrier(o.group), BELAY_OK);
    belay_scope_close(scope);
    assert_int_not_equal(belay_close(o.context), 0);
}

static void buckets_of_no_bytes_are_refused(void **state)
{
    (void)state;
    one o = open_with(&(belay_ddp_options){.bucket_bytes = -1});
    assert_true(belay_reducer_is_nil(o.reducer));
    assert_non_null(strstr(told(), "belay: bucket_bytes of a reducer is -1, it must be at least 1 (conf.value)\n"));
    assert_int_not_equal(belay_close(o.context), 0);
}

/* A second optimizer finds no backward since the first one's step. */
static void a_step_without_a_backward_averages_once_more(void **state)
{
    (void)state;
    one o = open_one();
    belay_optimizer *second = belay_sgd(o.model, &(belay_sgd_options){.lr = 0.1});
    for (int i = 0; i < 3; i++) {
        belay_scope scope = belay_scope_open(o.context);
        belay_backward(loss_of(&o, (float)i));
        assert_int_equal(belay_reducer_n_reduced(o.reducer), 2 * i + 1);
        belay_optimizer_step(o.sgd);
        assert_int_equal(belay_reducer_n_reduced(o.reducer), 2 * i + 1);
        belay_optimizer_step(second);
        assert_int_equal(belay_reducer_n_reduced(o.reducer), 2 * i + 2);
        belay_scope_close(scope);
    }
    close_one(&o);
}

/* Nobody else is there to drift apart from. */
static void one_rank_may_step_what_no_reducer_averages(void **state)
{
    (void)state;
    one o = open_with(&(belay_ddp_options){.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20});
    belay_reducer_free(o.reducer);
    assert_false(belay_reducer_is_nil(belay_ddp(belay_module_child(o.model, 0), o.group, NULL)));
    step(&o, 0);
    assert_true(belay_optimizer_is_applied(o.sgd));
    close_one(&o);
}

/* ---- what other ranks send ------------------------------------------------------------------------------------------- */

static void an_order_that_is_none_breaks_the_group(void **state)
{
    (void)state;
    static const int64_t wrong[] = {2, -1, 4, INT64_MAX}; /* the first is there twice */
    const char *when = "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n";
    for (int i = 0; i < BL_COUNT(wrong); i++) {
        one o = open_one();
        belay_scope scope = belay_scope_open(o.context);
        belay_backward(loss_of(&o, 0));
        o.reducer->order[0] = wrong[i]; /* what rank 0 sends */
        int line = __LINE__ + 1;
        belay_optimizer_step(o.sgd);
        told_expect("belay: the order of gradients that came from rank 0 is none of 4 parameters: it was damaged "
                    "(comm.failed)\n    called at: test_reducer.c:%d\n%s%s"
                    "belay: step 0 was not applied: comm.failed in its window (run.window_lost)\n"
                    "    called at: test_reducer.c:%d\n%s%s",
                    line, when, told_try(BELAY_COMM_FAILED), line, when, "    try: See the fault named before.\n");
        assert_false(belay_optimizer_is_applied(o.sgd));
        assert_null(o.reducer->next_order);
        belay_scope_close(scope);
        assert_int_equal(belay_close(o.context), 4);
    }
}

static void expect_damaged(one *o, const char *what)
{
    told_expect("belay: %s: what came from the ranks was damaged (comm.failed)\n    called at: here\n" TOLD_START "%s",
                what, told_try(BELAY_COMM_FAILED));
    assert_int_equal(o->group->broken, BELAY_COMM_FAILED);
    assert_int_equal(belay_close(o->context), 4);
}

static void a_fate_that_is_none_breaks_the_group(void **state)
{
    (void)state;
    static const struct {
        int64_t code;
        int fate;
    } wrong[] = {{0, 3}, {1, 2}, {-BELAY_NUM_CAST, 2}, {INT64_C(1) << 32 | BELAY_NUM_CAST, 2}};
    for (int i = 0; i < BL_COUNT(wrong); i++) {
        one o = open_one();
        char words[120];
        int64_t mine[2] = {0, wrong[i].code}, theirs[2];
        bl_train_fate agreed[2] = {BL_FATE_GOOD}, fate[2] = {BL_FATE_GOOD, (bl_train_fate)wrong[i].fate};
        bl_trainer t = {.context = o.context, .fate = fate, .n_window = 2};
        t.ranks = (bl_train_ranks){.group = o.group, .size = 1, .agreed = agreed, .mine = mine, .theirs = theirs};
        snprintf(words, sizeof words, "rank 0 says %" PRId64 " of micro-batch 1 of a window, which is no fate",
                 (wrong[i].code * 256 + wrong[i].fate));
        belay_site_push(o.context, "here");
        assert_int_equal(bl_train_ranks_fates(&t), BELAY_COMM_FAILED);
        expect_damaged(&o, words);
    }
}

static void figures_that_count_nothing_break_the_group(void **state)
{
    (void)state;
    one o = open_one();
    bool is_clean = true;
    bl_trainer t = {.context = o.context, .options.reducer = o.reducer};
    t.ranks = (bl_train_ranks){.group = o.group, .size = 1};
    bl_train_figures figures = {.loss = 1, .n_samples = 8, .n_right = INT64_MAX};
    belay_site_push(o.context, "here");
    assert_int_equal(bl_train_ranks_agree(&t, &figures, &is_clean), BELAY_COMM_FAILED);
    expect_damaged(&o, "the ranks have 9.22337e+18 right answers together");
    o = open_one();
    int64_t n_faulted = 0;
    t.ranks.group = o.group;
    figures = (bl_train_figures){.loss = 1, .n_samples = -8};
    belay_site_push(o.context, "here");
    assert_int_equal(bl_train_ranks_sum(&t, &figures, &n_faulted), BELAY_COMM_FAILED);
    expect_damaged(&o, "the ranks have -8 samples together");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_trains_as_without_a_reducer),
        cmocka_unit_test(gradients_lie_in_the_buckets),
        cmocka_unit_test(the_order_is_learned_and_gradients_move_along),
        cmocka_unit_test(without_sync_gradients_add_up_and_nothing_is_reduced),
        cmocka_unit_test(a_held_gradient_is_not_touched_while_it_is_reduced),
        cmocka_unit_test(a_parameter_in_two_ops_is_whole_once),
        cmocka_unit_test(parameters_that_no_loss_reaches_are_named),
        cmocka_unit_test(where_it_is_allowed_an_unused_parameter_keeps_no_gradient),
        cmocka_unit_test(a_reduction_beyond_its_memory_is_refused_before_it_begins),
        cmocka_unit_test(a_bucket_that_is_not_what_it_was_does_not_pass_its_gate),
        cmocka_unit_test(a_second_reducer_over_a_parameter_is_refused),
        cmocka_unit_test(a_freed_reducer_is_stale_and_gradients_go_their_own_ways),
        cmocka_unit_test(a_module_is_not_freed_under_its_reducer),
        cmocka_unit_test(a_dropped_window_waits_for_what_is_in_flight),
        cmocka_unit_test(buckets_of_no_bytes_are_refused),
        cmocka_unit_test(a_reducer_without_a_group_is_refused),
        cmocka_unit_test(a_reducer_without_a_module_is_refused),
        cmocka_unit_test(an_operation_over_a_parameter_in_flight_is_refused),
        cmocka_unit_test(a_step_without_a_backward_averages_once_more),
        cmocka_unit_test(one_rank_may_step_what_no_reducer_averages),
        cmocka_unit_test(an_order_that_is_none_breaks_the_group),
        cmocka_unit_test(a_fate_that_is_none_breaks_the_group),
        cmocka_unit_test(figures_that_count_nothing_break_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
