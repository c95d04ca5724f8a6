/* SPDX-License-Identifier: Apache-2.0 */
/* Modules on several devices: moving them, what is left behind, and what is refused or copied then. */
#include "support/told.h"

#include <belay/belay.h>

#include <stdio.h>
#include <string.h>

#include "base/attributes.h"
#include "base/memory.h"

static belay_context *open_on(const char *device, belay_place place)
{
    told_clear();
    belay_context *context = belay_open(
        &(belay_options){.device = device, .place = place, .log = told_remember, .no_journal = true, .seed = 3});
    assert_true(belay_is_open(context));
    return context;
}

static void close_quietly(belay_context *context)
{
    assert_string_equal(told(), "");
    belay_close(context);
}

static belay_module *small_model(belay_context *context)
{
    return belay_text_classifier(
        context, &(belay_text_classifier_options){.n_tokens = 7, .classes = 2, .embed = 3, .hidden = 4, .layers = 2});
}

static const int64_t some_ids[] = {1, 2, 3, 0, 4, 5, 6, 0}, some_labels[] = {0, 1};

static belay_tensor ids_of(belay_context *context)
{
    return belay_tensor_name_set(belay_tensor_from(context, BELAY_I64, belay_shape2(2, 4), some_ids, sizeof some_ids),
                                 "ids");
}

static belay_tensor labels_of(belay_context *context)
{
    return belay_tensor_name_set(
        belay_tensor_from(context, BELAY_I64, belay_shape1(2), some_labels, sizeof some_labels), "labels");
}

static void backward_at(belay_module *model, const char *device)
{
    belay_context *context = belay_module_context(model);
    belay_device_guard guard = belay_device_guard_open(context, device);
    belay_tensor ids = ids_of(context), labels = labels_of(context);
    belay_device_guard_close(guard);
    belay_scope scope = belay_scope_open(context);
    belay_backward(belay_cross_entropy(belay_forward(model, ids), labels, NULL));
    belay_scope_close(scope);
}

/* The values of all parameters and of their gradients. */
typedef struct values {
    float at[2048];
    int64_t n;
} values;

static void add_values(values *v, belay_tensor tensor)
{
    int64_t n = belay_tensor_n_elements(tensor);
    assert_true(v->n + n <= BL_COUNT(v->at));
    assert_int_equal(belay_tensor_read(tensor, v->at + v->n, n * 4), BELAY_OK);
    v->n += n;
}

static values values_of(const belay_module *model)
{
    values v = {.n = 0};
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        belay_tensor parameter = belay_module_parameter(model, i);
        add_values(&v, parameter);
        if (!belay_tensor_is_nil(belay_tensor_grad(parameter)))
            add_values(&v, belay_tensor_grad(parameter));
    }
    return v;
}

static void expect_all_on(const belay_module *model, const char *device)
{
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        belay_tensor parameter = belay_module_parameter(model, i), grad = belay_tensor_grad(parameter);
        assert_string_equal(belay_tensor_device(parameter), device);
        if (!belay_tensor_is_nil(grad))
            assert_string_equal(belay_tensor_device(grad), device);
    }
    for (int64_t i = 0; i < belay_module_n_buffers(model); i++)
        assert_string_equal(belay_tensor_device(belay_module_buffer(model, i)), device);
}

/* ---- moving ---------------------------------------------------------------------------------------------------------- */

static void a_module_moves_whole_its_handles_and_values_stay(void **state)
{
    (void)state;
    belay_context *context = open_on("cpu", BELAY_PLACE_STRICT);
    belay_module *model = small_model(context);
    const float three[] = {1, 2, 3, 4, 5, 6};
    belay_tensor wide = told_f32(context, belay_shape2(2, 3), three);
    belay_tensor buffer = belay_module_add_buffer(model, "turned", belay_transpose(wide, 0, 1));
    backward_at(model, "cpu");
    belay_tensor weight = belay_module_find(model, "fc.weight"), grad = belay_tensor_grad(weight);
    values before = values_of(model);
    assert_int_equal(belay_module_to(model, "sim:1"), BELAY_OK);
    expect_all_on(model, "sim:1");
    assert_string_equal(belay_device_get(context), "cpu");
    values after = values_of(model);
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.at, before.at, (size_t)before.n * 4);
    assert_true(belay_tensor_is_alive(weight) && belay_tensor_is_alive(grad));
    assert_int_equal(belay_tensor_grad(weight).slot, grad.slot);
    assert_string_equal(belay_tensor_name(grad), "fc.weight.grad");
    float turned[6];
    const float expected[] = {1, 4, 2, 5, 3, 6};
    told_read(buffer, turned, 6);
    assert_memory_equal(turned, expected, sizeof turned);
    told_read(wide, turned, 6);
    assert_memory_equal(turned, three, sizeof turned);
    close_quietly(context);
}

static void a_moved_module_computes_what_it_computed(void **state)
{
    (void)state;
    values at[3];
    static const char *const way[3][2] = {{"cpu", "cpu"}, {"cpu", "sim:1"}, {"sim:0", "sim:1"}};
    for (int k = 0; k < 3; k++) {
        belay_context *context = open_on(way[k][0], BELAY_PLACE_STRICT);
        belay_module *model = small_model(context);
        assert_int_equal(belay_module_to(model, way[k][1]), BELAY_OK);
        belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.1, .clip = 1});
        for (int step = 0; step < 3; step++) {
            backward_at(model, way[k][1]);
            belay_optimizer_step(adam);
            assert_true(belay_optimizer_is_applied(adam));
        }
        backward_at(model, way[k][1]);
        expect_all_on(model, way[k][1]);
        at[k] = values_of(model);
        assert_int_equal(at[k].n, at[0].n);
        assert_memory_equal(at[k].at, at[0].at, (size_t)at[0].n * 4);
        close_quietly(context);
    }
}

static void a_part_of_a_module_moves_alone(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = belay_mlp(context, &(belay_mlp_options){.sizes = {2, 3, 2}});
    assert_int_equal(belay_module_to(belay_module_child(model, 2), "sim:1"), BELAY_OK);
    assert_string_equal(belay_tensor_device(belay_module_find(model, "0.weight")), "sim:0");
    assert_string_equal(belay_tensor_device(belay_module_find(model, "2.weight")), "sim:1");
    const float x[] = {1, 2};
    belay_tensor h = belay_forward(belay_module_child(model, 0), told_f32(context, belay_shape2(1, 2), x));
    belay_tensor y = belay_forward(belay_module_child(model, 2), belay_tensor_to(h, "sim:1"));
    belay_backward(belay_sum(y, NULL));
    assert_string_equal(belay_tensor_device(y), "sim:1");
    assert_string_equal(belay_tensor_device(belay_tensor_grad(belay_module_find(model, "0.weight"))), "sim:0");
    assert_string_equal(belay_tensor_device(belay_tensor_grad(belay_module_find(model, "2.weight"))), "sim:1");
    close_quietly(context);
}

static void moving_where_a_module_lies_does_nothing(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = small_model(context);
    belay_memory before = belay_memory_get(context);
    assert_int_equal(belay_module_to(model, "sim"), BELAY_OK);
    assert_int_equal(belay_memory_get(context).in_use, before.in_use);
    assert_int_equal(belay_memory_get(context).peak, before.peak);
    close_quietly(context);
}

static void moving_gives_back_what_it_leaves(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = small_model(context);
    assert_true(belay_memory_get(context).in_use > 0);
    assert_int_equal(belay_module_to(model, "sim:1"), BELAY_OK);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_int_equal(belay_memory_get(context).in_use, 0);
    belay_module_free(model);
    assert_int_equal(belay_device_set(context, "sim:1"), BELAY_OK);
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    assert_int_equal(belay_memory_get(context).in_use, 0);
    close_quietly(context);
}

/* ---- all or nothing -------------------------------------------------------------------------------------------------- */

static void a_move_that_runs_out_of_memory_moves_nothing(void **state)
{
    (void)state;
    bool is_over = false;
    int n_refused = 0;
    for (int64_t at = 0; at < 200 && !is_over; at++) {
        belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
        belay_module *model = small_model(context);
        assert_int_equal(belay_device_set(context, "sim:1"), BELAY_OK);
        assert_int_equal(belay_device_set(context, "sim:0"), BELAY_OK);
        values before = values_of(model);
        bl_memory_fail_at(at);
        belay_code code = belay_module_to(model, "sim:1");
        is_over = !bl_memory_failed();
        bl_memory_fail_at(-1);
        n_refused += code != BELAY_OK;
        assert_true(code == BELAY_OK || code == BELAY_MEM_EXHAUSTED);
        assert_true(code == BELAY_OK || !is_over);
        expect_all_on(model, code == BELAY_OK ? "sim:1" : "sim:0");
        values after = values_of(model);
        assert_memory_equal(after.at, before.at, (size_t)before.n * 4);
        belay_close(context);
    }
    assert_true(is_over);
    assert_true(n_refused > 10);
}

static belay_tensor move_forward(belay_module *module, belay_tensor x)
{
    assert_int_equal(belay_module_to(module, "sim:1"), BELAY_CONF_ORDER);
    return x;
}

static belay_tensor child_forward(belay_module *module, belay_tensor x)
{
    assert_int_equal(belay_module_to(belay_module_child(module, 0), "sim:1"), BELAY_CONF_ORDER);
    return x;
}

static void a_module_does_not_move_inside_of_its_forward(void **state)
{
    (void)state;
    static const belay_module_kind kind = {.name = "mover", .forward = move_forward};
    static const belay_module_kind above = {.name = "above", .forward = child_forward};
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *mover = belay_module_new(context, &kind), *parent = belay_module_new(context, &above);
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(2));
    int line = __LINE__ + 1;
    belay_forward(mover, x);
    told_expect("belay: module mover was moved while it is at work (conf.order)\n"
                "    called at: test_place.c:%d\n" TOLD_START
                "    try: Move it before its forward, or after the training that uses it has returned.\n",
                line);
    belay_module_add_child(parent, "inner",
                           belay_linear_module(context, &(belay_linear_module_options){.in = 2, .out = 2}));
    line = __LINE__ + 1;
    belay_forward(parent, x);
    told_expect("belay: module inner was moved while above is at work (conf.order)\n"
                "    called at: test_place.c:%d\n" TOLD_START
                "    try: Move it before its forward, or after the training that uses it has returned.\n",
                line);
    close_quietly(context);
}

static void a_device_that_is_not_there_is_refused_and_nothing_moves(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = small_model(context);
    assert_int_equal(belay_module_to(model, "sim:99"), BELAY_PLACE_ABSENT);
    assert_int_equal(belay_module_to(model, "tpu"), BELAY_CONF_VALUE);
    assert_int_equal(belay_module_to(model, NULL), BELAY_CONF_MISSING);
    assert_true(belay_module_to(NULL, "sim:1") != BELAY_OK);
    expect_all_on(model, "sim:0");
    belay_close(context);
}

/* ---- what was made before a move ------------------------------------------------------------------------------------- */

static void an_optimizer_made_before_a_move_refuses_to_step(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = belay_linear_module(context, &(belay_linear_module_options){.in = 2, .out = 2});
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.1});
    assert_int_equal(belay_module_to(model, "sim:1"), BELAY_OK);
    const float x[] = {1, 2};
    belay_tensor there = belay_tensor_to(told_f32(context, belay_shape2(1, 2), x), "sim:1");
    belay_backward(belay_sum(belay_forward(model, there), NULL));
    values before = values_of(model);
    int line = __LINE__ + 1;
    belay_optimizer_step(adam);
    assert_false(belay_optimizer_is_applied(adam));
    told_expect("belay: weight lies on sim:1, what its optimizer keeps of it on sim:0 (place.device)\n"
                "    called at: test_place.c:%d\n"
                "    it was moved after the optimizer had been made\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n"
                "    try: Make the optimizer after belay_module_to.\n"
                "belay: step 0 was not applied: place.device in its window (run.window_lost)\n"
                "    called at: test_place.c:%d\n"
                "    surfaced at: test_place.c:%d\n"
                "    when: epoch 0, batch 1 (micro-batch 1 of its window), step 0, rank 0\n"
                "    try: See the fault named before.\n",
                line, line, line + 1);
    float weight[4];
    told_read(belay_module_find(model, "weight"), weight, 4);
    assert_memory_equal(weight, before.at, sizeof weight);
    belay_close(context);
}

static void a_module_that_came_back_is_stepped_as_if_it_had_stayed(void **state)
{
    (void)state;
    values at[2];
    for (int k = 0; k < 2; k++) {
        belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
        belay_module *model = small_model(context);
        belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.1});
        for (int step = 0; step < 2; step++) {
            if (k == 1) {
                assert_int_equal(belay_module_to(model, "cpu"), BELAY_OK);
                assert_int_equal(belay_module_to(model, "sim:0"), BELAY_OK);
            }
            backward_at(model, "sim:0");
            belay_optimizer_step(adam);
            assert_true(belay_optimizer_is_applied(adam));
        }
        at[k] = values_of(model);
        close_quietly(context);
    }
    assert_memory_equal(at[1].at, at[0].at, (size_t)at[0].n * 4);
}

static void parameters_of_two_devices_need_two_optimizers(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = belay_mlp(context, &(belay_mlp_options){.sizes = {2, 3, 2}});
    assert_int_equal(belay_module_to(belay_module_child(model, 2), "sim:1"), BELAY_OK);
    int line = __LINE__ + 1;
    belay_adam(model, &(belay_adam_options){.lr = 0.1});
    told_expect("belay: parameter 2 of an optimizer, 2.weight, lies on sim:1, those before it on sim:0 (place.device)\n"
                "    called at: test_place.c:%d\n" TOLD_START
                "    try: Make an optimizer for the parameters of each device.\n",
                line);
    belay_close(context);
}

static void a_move_between_forward_and_backward_is_refused_at_the_leaf(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = belay_linear_module(context, &(belay_linear_module_options){.in = 2, .out = 2, .no_bias = 1});
    const float x[] = {1, 2};
    int line = __LINE__ + 1;
    belay_tensor loss = belay_sum(belay_forward(model, told_f32(context, belay_shape2(1, 2), x)), NULL);
    assert_int_equal(belay_module_to(model, "sim:1"), BELAY_OK);
    belay_backward(loss);
    told_expect("belay: the gradient of weight was computed on sim:0, where it lay in the forward (place.device)\n"
                "    called at: test_place.c:%d\n"
                "    it lies on sim:1 by now\n" TOLD_START
                "    try: Move a module before its forward or after its backward.\n",
                line);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(belay_module_find(model, "weight"))));
    belay_close(context);
}

/* ---- strays ---------------------------------------------------------------------------------------------------------- */

typedef struct shifted {
    belay_tensor shift;
} shifted;

static belay_tensor shifted_forward(belay_module *module, belay_tensor x)
{
    const shifted *self = belay_module_self(module);
    return belay_add(belay_mul(x, belay_module_find(module, "scale")), self->shift);
}

static const belay_module_kind shifted_kind = {
    .name = "shifted", .n_bytes = sizeof(shifted), .forward = shifted_forward};

static belay_module *make_shifted(belay_context *context, bool is_registered)
{
    belay_module *module = belay_module_new(context, &shifted_kind);
    shifted *self = belay_module_self(module);
    const float shift[] = {10, 20}, scale[] = {2, 3};
    belay_module_add_buffer(module, "scale", told_f32(context, belay_shape1(2), scale));
    self->shift = belay_tensor_name_set(told_f32(context, belay_shape1(2), shift), "shift");
    if (is_registered)
        belay_module_add_buffer(module, "shift", self->shift);
    return module;
}

static void a_buffer_that_no_module_knows_is_named_with_what_to_do(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = make_shifted(context, false);
    belay_tensor shift = ((shifted *)belay_module_self(model))->shift;
    assert_int_equal(belay_module_to(model, "sim:1"), BELAY_OK);
    int line = __LINE__ + 1;
    belay_add(belay_module_find(model, "scale"), shift);
    told_expect(
        "belay: add: scale lies on sim:1, shift on sim:0 (place.device)\n"
        "    op: add, called at test_place.c:%d\n"
        "    tensors: scale [2] f32 on sim:1; shift [2] f32 on sim:0\n"
        "    shift belongs to no module, so that it does not move with one\n" TOLD_START
        "    try: Move it by belay_tensor_to, or, where a module keeps it, register it by belay_module_add_buffer.\n",
        line);
    belay_close(context);
}

static void a_registered_buffer_moves_along(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *model = make_shifted(context, true);
    assert_int_equal(belay_module_to(model, "sim:1"), BELAY_OK);
    const float x[] = {1, 1};
    float y[2];
    const float expected[] = {12, 23};
    told_read(belay_forward(model, belay_tensor_to(told_f32(context, belay_shape1(2), x), "sim:1")), y, 2);
    assert_memory_equal(y, expected, sizeof y);
    close_quietly(context);
}

static void place_move_brings_a_whole_forward_to_its_module(void **state)
{
    (void)state;
    values at[2];
    for (int k = 0; k < 2; k++) {
        belay_context *context = open_on("sim:0", k == 0 ? BELAY_PLACE_STRICT : BELAY_PLACE_MOVE);
        belay_module *model = small_model(context);
        assert_int_equal(belay_module_to(model, "sim:1"), BELAY_OK);
        backward_at(model, k == 0 ? "sim:1" : "cpu");
        if (k == 1) {
            assert_int_equal(belay_n_moved(context), 2);
            assert_non_null(strstr(told(), "belay: embedding: ids was copied from cpu to sim:1 (place.moved)\n"));
            assert_non_null(
                strstr(told(), "belay: cross_entropy: labels was copied from cpu to sim:1 (place.moved)\n"));
            told_clear();
            backward_at(model, "cpu"); /* the same lines: counted, not told */
            assert_int_equal(belay_n_moved(context), 4);
            belay_module_grads_clear(model);
            backward_at(model, "cpu");
        }
        expect_all_on(model, "sim:1");
        at[k] = values_of(model);
        close_quietly(context);
    }
    assert_int_equal(at[1].n, at[0].n);
    assert_memory_equal(at[1].at, at[0].at, (size_t)at[0].n * 4);
}

static void place_move_copies_lstm_states_and_gives_their_gradients_back(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_MOVE);
    belay_module *lstm = belay_lstm_module(context, &(belay_lstm_module_options){.in = 2, .hidden = 2});
    assert_int_equal(belay_module_to(lstm, "sim:1"), BELAY_OK);
    const float steps[] = {1, 2, 3, 4}, first[] = {0.5F, 0.25F};
    belay_tensor x = told_leaf(context, belay_shape3(1, 2, 2), steps);
    belay_tensor h0 = told_leaf(context, belay_shape3(1, 1, 2), first), none = {0};
    int line = __LINE__ + 1;
    belay_lstm_result result = belay_lstm_module_run(lstm, belay_tensor_name_set(x, "x"), h0, none);
    told_expect("belay: lstm: x was copied from sim:0 to sim:1 (place.moved)\n"
                "    op: lstm in layer lstm, called at test_place.c:%d\n"
                "    tensors: x [1, 2, 2] f32; on sim:0\n" TOLD_START
                "    try: Register them with their module, so that they move along; a copy at every call costs time.\n",
                line);
    assert_int_equal(belay_n_moved(context), 2);
    belay_backward(belay_sum(result.output, NULL));
    assert_string_equal(belay_tensor_device(belay_tensor_grad(x)), "sim:0");
    assert_string_equal(belay_tensor_device(belay_tensor_grad(h0)), "sim:0");
    close_quietly(context);
}

static void an_lstm_on_two_devices_is_refused_before_it_runs(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_module *lstm = belay_lstm_module(context, &(belay_lstm_module_options){.in = 2, .hidden = 2});
    belay_tensor x = belay_tensor_name_set(belay_ones(context, BELAY_F32, belay_shape3(1, 2, 2)), "x"), none = {0};
    assert_int_equal(belay_module_to(lstm, "sim:1"), BELAY_OK);
    int line = __LINE__ + 1;
    belay_lstm_module_run(lstm, x, none, none);
    told_expect(
        "belay: lstm: x lies on sim:0, bias_ih_l0 on sim:1 (place.device)\n"
        "    op: lstm in layer lstm, called at test_place.c:%d\n"
        "    tensors: x [1, 2, 2] f32 on sim:0; bias_ih_l0 [8] f32 on sim:1\n"
        "    x belongs to no module, so that it does not move with one\n" TOLD_START
        "    try: Move it by belay_tensor_to, or, where a module keeps it, register it by belay_module_add_buffer.\n",
        line);
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_moves_whole_its_handles_and_values_stay),
        cmocka_unit_test(a_moved_module_computes_what_it_computed),
        cmocka_unit_test(a_part_of_a_module_moves_alone),
        cmocka_unit_test(moving_where_a_module_lies_does_nothing),
        cmocka_unit_test(moving_gives_back_what_it_leaves),
        cmocka_unit_test(a_move_that_runs_out_of_memory_moves_nothing),
        cmocka_unit_test(a_module_does_not_move_inside_of_its_forward),
        cmocka_unit_test(a_device_that_is_not_there_is_refused_and_nothing_moves),
        cmocka_unit_test(an_optimizer_made_before_a_move_refuses_to_step),
        cmocka_unit_test(a_module_that_came_back_is_stepped_as_if_it_had_stayed),
        cmocka_unit_test(parameters_of_two_devices_need_two_optimizers),
        cmocka_unit_test(a_move_between_forward_and_backward_is_refused_at_the_leaf),
        cmocka_unit_test(a_buffer_that_no_module_knows_is_named_with_what_to_do),
        cmocka_unit_test(a_registered_buffer_moves_along),
        cmocka_unit_test(place_move_brings_a_whole_forward_to_its_module),
        cmocka_unit_test(place_move_copies_lstm_states_and_gives_their_gradients_back),
        cmocka_unit_test(an_lstm_on_two_devices_is_refused_before_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
