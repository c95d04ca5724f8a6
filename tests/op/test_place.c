/* SPDX-License-Identifier: Apache-2.0 */
/* Operations whose tensors lie on several devices: refused with both named, or brought together by place move. */
#include "support/told.h"

#include <belay/belay.h>

#include <string.h>

#include "base/attributes.h"

static belay_context *open_on(const char *device, belay_place place)
{
    told_clear();
    belay_context *context =
        belay_open(&(belay_options){.device = device, .place = place, .log = told_remember, .no_journal = true});
    assert_true(belay_is_open(context));
    return context;
}

static belay_tensor on(const char *device, belay_tensor tensor, const char *name)
{
    return belay_tensor_name_set(belay_tensor_to(tensor, device), name);
}

static belay_tensor table_of(belay_context *context)
{
    static const float values[] = {1, 2, 3, 4, 5, 6};
    return told_f32(context, belay_shape2(3, 2), values);
}

static belay_tensor ids_of(belay_context *context)
{
    static const int64_t ids[] = {2, 0};
    return belay_tensor_from(context, BELAY_I64, belay_shape1(2), ids, sizeof ids);
}

#define MOVE_THEM "    try: Move them to one device, and register buffers with their module so that they move along.\n"

/* ---- refused --------------------------------------------------------------------------------------------------------- */

static void an_index_on_another_device_than_its_table_is_refused(void **state)
{
    (void)state;
    static const char *const device[2][2] = {{"sim:0", "cpu"}, {"cpu", "sim:1"}};
    for (int k = 0; k < 2; k++) {
        belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
        belay_tensor table = on(device[k][0], table_of(context), "table"),
                     ids = on(device[k][1], ids_of(context), "ids");
        int line = __LINE__ + 1;
        assert_true(belay_tensor_is_nil(belay_embedding(table, ids, NULL)));
        told_expect("belay: embedding: table lies on %s, ids on %s (place.device)\n"
                    "    op: embedding, called at test_place.c:%d\n"
                    "    tensors: table [3, 2] f32 on %s; ids [2] i64 on %s\n" TOLD_START MOVE_THEM,
                    device[k][0], device[k][1], line, device[k][0], device[k][1]);
        line = __LINE__ + 1;
        assert_true(belay_tensor_is_nil(belay_index_select(table, 0, ids, NULL)));
        told_expect("belay: index_select: table lies on %s, ids on %s (place.device)\n"
                    "    op: index_select, called at test_place.c:%d\n"
                    "    tensors: table [3, 2] f32 on %s; ids [2] i64 on %s\n" TOLD_START MOVE_THEM,
                    device[k][0], device[k][1], line, device[k][0], device[k][1]);
        line = __LINE__ + 1;
        assert_true(belay_tensor_is_nil(belay_index(table, &ids, 1, NULL)));
        told_expect("belay: index: table lies on %s, ids on %s (place.device)\n"
                    "    op: index, called at test_place.c:%d\n"
                    "    tensors: table [3, 2] f32 on %s; ids [2] i64 on %s\n" TOLD_START MOVE_THEM,
                    device[k][0], device[k][1], line, device[k][0], device[k][1]);
        belay_close(context);
    }
}

static void labels_on_another_device_than_their_logits_are_refused(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
    belay_tensor logits = on("sim:1", table_of(context), "logits"), labels;
    const int64_t values[] = {0, 1, 1};
    belay_device_guard guard = belay_device_guard_open(context, "cpu");
    labels =
        belay_tensor_name_set(belay_tensor_from(context, BELAY_I64, belay_shape1(3), values, sizeof values), "labels");
    belay_device_guard_close(guard);
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_cross_entropy(logits, labels, NULL)));
    told_expect("belay: cross_entropy: logits lies on sim:1, labels on cpu (place.device)\n"
                "    op: cross_entropy, called at test_place.c:%d\n"
                "    tensors: logits [3, 2] f32 on sim:1; labels [3] i64 on cpu\n" TOLD_START MOVE_THEM,
                line);
    belay_close(context);
}

/* What each of these is given, on sim:0 and, where the name ends in 1, on sim:1. */
typedef struct given {
    belay_context *context;
    belay_tensor x, x1, weight1, ids, ids1;
} given;

static given give(belay_context *context)
{
    given g = {.context = context, .x = belay_tensor_name_set(table_of(context), "x")};
    g.x1 = on("sim:1", g.x, "x1");
    g.weight1 = on("sim:1", belay_transpose(belay_transpose(table_of(context), 0, 1), 0, 1), "weight1");
    g.ids = belay_tensor_name_set(ids_of(context), "ids");
    g.ids1 = on("sim:1", g.ids, "ids1");
    return g;
}

static belay_tensor call_add(const given *g) { return belay_add(g->x, g->x1); }
static belay_tensor call_where(const given *g) { return belay_where(belay_ne(g->x, g->x), g->x, g->x1); }
static belay_tensor call_matmul(const given *g) { return belay_matmul(g->x, belay_transpose(g->x1, 0, 1)); }
static belay_tensor call_linear(const given *g) { return belay_linear(g->x, g->weight1, (belay_tensor){0}); }
static belay_tensor call_cat(const given *g) { return belay_cat((const belay_tensor[]){g->x, g->x1}, 2, 0); }
static belay_tensor call_mse(const given *g) { return belay_mse(g->x, g->x1, BELAY_MEAN); }
static belay_tensor call_gather(const given *g)
{
    return belay_gather(g->x, 0, belay_view(g->ids1, belay_shape2(1, 2)), NULL);
}
static belay_tensor call_scatter_add(const given *g)
{
    return belay_scatter_add(g->x, 0, belay_view(g->ids1, belay_shape2(1, 2)), g->x, NULL);
}
static belay_tensor call_index_add(const given *g)
{
    return belay_index_add(g->x, 0, g->ids, belay_slice(g->x1, 0, 0, 2, 1), 2, NULL);
}
static belay_tensor call_layer_norm(const given *g)
{
    return belay_layer_norm(g->x, 1, belay_select(g->x1, 0, 0), (belay_tensor){0}, 0);
}

typedef struct op_call {
    belay_tensor (*call)(const given *g);
    const char *headline;
} op_call;

static const op_call calls[] = {
    {call_add, "belay: add: x lies on sim:0, x1 on sim:1 (place.device)\n"},
    {call_where, "belay: where: condition lies on sim:0, x1 on sim:1 (place.device)\n"},
    {call_matmul, "belay: matmul: x lies on sim:0, x1 on sim:1 (place.device)\n"},
    {call_linear, "belay: linear: x lies on sim:0, weight1 on sim:1 (place.device)\n"},
    {call_cat, "belay: cat: x lies on sim:0, x1 on sim:1 (place.device)\n"},
    {call_mse, "belay: squared_error: x lies on sim:0, x1 on sim:1 (place.device)\n"},
    {call_gather, "belay: gather: x lies on sim:0, ids1 on sim:1 (place.device)\n"},
    {call_scatter_add, "belay: scatter_add: x lies on sim:0, ids1 on sim:1 (place.device)\n"},
    {call_index_add, "belay: index_add: x lies on sim:0, x1 on sim:1 (place.device)\n"},
    {call_layer_norm, "belay: layer_norm: x lies on sim:0, x1 on sim:1 (place.device)\n"},
};

static void every_op_on_two_devices_names_both_tensors(void **state)
{
    (void)state;
    for (int k = 0; k < BL_COUNT(calls); k++) {
        belay_context *context = open_on("sim:0", BELAY_PLACE_STRICT);
        given g = give(context);
        assert_true(belay_tensor_is_nil(calls[k].call(&g)));
        if (strncmp(told(), calls[k].headline, strlen(calls[k].headline)) != 0)
            assert_string_equal(told(), calls[k].headline);
        assert_int_equal(belay_n_faults(context), 1);
        assert_int_equal(belay_n_moved(context), 0);
        belay_close(context);
    }
}

static void two_ops_on_two_devices_are_fine(void **state)
{
    (void)state;
    belay_context *context = open_on("cpu", BELAY_PLACE_STRICT);
    belay_tensor a = on("sim:0", table_of(context), "a"), b = on("sim:1", table_of(context), "b");
    float out[2][6];
    belay_tensor x = belay_add(a, a), y = belay_mul(b, b);
    assert_string_equal(belay_tensor_device(x), "sim:0");
    assert_string_equal(belay_tensor_device(y), "sim:1");
    told_read(x, out[0], 6);
    told_read(y, out[1], 6);
    for (int i = 0; i < 6; i++) {
        assert_true(out[0][i] == 2 * (float)(i + 1));
        assert_true(out[1][i] == (float)((i + 1) * (i + 1)));
    }
    told_close(context);
}

/* ---- brought together ------------------------------------------------------------------------------------------------ */

static void place_move_gives_what_one_device_gives(void **state)
{
    (void)state;
    for (int k = 0; k < BL_COUNT(calls); k++) {
        float out[2][32];
        int64_t n = 0;
        for (int is_apart = 0; is_apart < 2; is_apart++) {
            belay_context *context = open_on("sim:0", BELAY_PLACE_MOVE);
            given g = give(context);
            if (!is_apart) {
                g.x1 = belay_tensor_to(g.x1, "sim:0");
                g.weight1 = belay_tensor_to(g.weight1, "sim:0");
                g.ids1 = belay_tensor_to(g.ids1, "sim:0");
            }
            belay_tensor y = calls[k].call(&g);
            n = belay_tensor_n_elements(y);
            assert_true(n > 0 && n <= 32);
            assert_string_equal(belay_tensor_device(y), "sim:0");
            told_read(y, out[is_apart], n);
            assert_int_equal(belay_n_moved(context), is_apart);
            assert_int_equal(belay_n_faults(context), is_apart); /* the warning */
            assert_int_equal(belay_close(context), 0);
        }
        assert_memory_equal(out[0], out[1], (size_t)n * 4);
    }
}

static void gradients_flow_back_to_where_strays_lie(void **state)
{
    (void)state;
    for (int k = 0; k < BL_COUNT(calls); k++) {
        if (calls[k].call == call_where || calls[k].call == call_gather || calls[k].call == call_scatter_add)
            continue; /* whose strays have no gradient */
        float out[2][8];
        int64_t n = 0;
        for (int is_apart = 0; is_apart < 2; is_apart++) {
            belay_context *context = open_on("cpu", BELAY_PLACE_MOVE);
            const char *other = is_apart ? "sim:1" : "sim:0";
            assert_int_equal(belay_device_set(context, "sim:0"), BELAY_OK);
            given g = give(context);
            g.x1 = belay_tensor_requires_grad_set(belay_tensor_to(g.x1, other), true);
            g.weight1 = belay_tensor_requires_grad_set(belay_tensor_to(g.weight1, other), true);
            assert_int_equal(belay_device_set(context, "cpu"), BELAY_OK);
            belay_backward(belay_sum(calls[k].call(&g), NULL));
            belay_tensor leaf = calls[k].call == call_linear ? g.weight1 : g.x1, grad = belay_tensor_grad(leaf);
            assert_string_equal(belay_tensor_device(grad), other);
            n = belay_tensor_n_elements(grad);
            assert_true(n > 0 && n <= 8);
            told_read(grad, out[is_apart], n);
            assert_int_equal(belay_close(context), 0);
        }
        assert_memory_equal(out[0], out[1], (size_t)n * 4);
    }
}

static int add_line;

/* One line, however often it is called. */
static __attribute__((noinline)) void add_both(const given *g)
{
    add_line = __LINE__ + 1;
    belay_add(g->x, g->x1);
}

static void a_stray_is_told_once_a_line_and_counted_always(void **state)
{
    (void)state;
    belay_context *context = open_on("sim:0", BELAY_PLACE_MOVE);
    given g = give(context);
    for (int k = 0; k < 3; k++)
        add_both(&g);
    told_expect("belay: add: x1 was copied from sim:1 to sim:0 (place.moved)\n"
                "    op: add, called at test_place.c:%d\n"
                "    tensors: x1 [3, 2] f32; on sim:1\n" TOLD_START "%s",
                add_line, told_try(BELAY_PLACE_MOVED));
    assert_int_equal(belay_n_moved(context), 3);
    int line = __LINE__ + 1;
    belay_add(g.x1, g.x);
    told_expect("belay: add: x was copied from sim:0 to sim:1 (place.moved)\n"
                "    op: add, called at test_place.c:%d\n"
                "    tensors: x [3, 2] f32; on sim:0\n" TOLD_START "%s",
                line, told_try(BELAY_PLACE_MOVED));
    assert_int_equal(belay_n_moved(context), 4);
    assert_int_equal(belay_close(context), 0);
}

static void a_place_that_is_none_opens_no_context(void **state)
{
    (void)state;
    told_clear();
    belay_context *context = belay_open(&(belay_options){.place = (belay_place)2, .log = told_remember});
    assert_false(belay_is_open(context));
    told_expect("belay: place is 2, which is none (conf.value)\n%s", told_try(BELAY_CONF_VALUE));
    assert_int_equal(belay_n_moved(context), 0);
    belay_close(context);
}

/* ---- gradients that programs give ------------------------------------------------------------------------------------ */

static void a_gradient_of_another_device_is_refused_or_brought(void **state)
{
    (void)state;
    const float ones[] = {1, 1, 1, 1, 1, 1};
    float grad[6];
    for (int k = 0; k < 2; k++) {
        belay_context *context = open_on("sim:0", k == 0 ? BELAY_PLACE_STRICT : BELAY_PLACE_MOVE);
        belay_tensor x = belay_tensor_requires_grad_set(table_of(context), true), y = belay_affine(x, 3, 0);
        belay_tensor upstream = on("sim:1", told_f32(context, belay_shape2(3, 2), ones), "given");
        int line = __LINE__ + 1;
        belay_backward_from(y, upstream);
        if (k == 0) {
            told_expect(
                "belay: backward: a gradient lies on sim:1, what it is the gradient of on sim:0 (place.device)\n"
                "    op: backward, called at test_place.c:%d\n"
                "    tensors: given [3, 2] f32; on sim:1\n" TOLD_START MOVE_THEM,
                line);
            belay_close(context);
            continue;
        }
        told_expect("belay: backward: given was copied from sim:1 to sim:0 (place.moved)\n"
                    "    op: backward, called at test_place.c:%d\n"
                    "    tensors: given [3, 2] f32; on sim:1\n" TOLD_START "%s",
                    line, told_try(BELAY_PLACE_MOVED));
        told_read(belay_tensor_grad(x), grad, 6);
        for (int i = 0; i < 6; i++)
            assert_true(grad[i] == 3);
        assert_int_equal(belay_close(context), 0);
    }
}

static void twice_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                          int n_out)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    out[0] = belay_affine(in[0], 2, 0);
}

static void twice_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                           belay_tensor *grad_in, int n_in)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    grad_in[0] = belay_tensor_to(belay_affine(grad_out[0], 2, 0), "sim:1");
}

static const belay_function twice = {.name = "twice", .forward = twice_forward, .backward = twice_backward};

static void a_function_s_gradient_on_another_device_is_refused_or_brought(void **state)
{
    (void)state;
    float grad[6];
    for (int k = 0; k < 2; k++) {
        belay_context *context = open_on("sim:0", k == 0 ? BELAY_PLACE_STRICT : BELAY_PLACE_MOVE);
        belay_tensor x = belay_tensor_requires_grad_set(table_of(context), true), y;
        int line = __LINE__ + 1;
        belay_function_apply(context, &twice, NULL, &x, 1, 0, &y, 1);
        belay_backward(belay_sum(y, NULL));
        if (k == 0) {
            told_expect("belay: twice: a gradient lies on sim:1, what it is the gradient of on sim:0 (place.device)\n"
                        "    op: twice (backward), called at test_place.c:%d\n"
                        "    tensors: gradient [3, 2] f32; on sim:1\n" TOLD_START MOVE_THEM,
                        line);
            assert_true(belay_tensor_is_nil(belay_tensor_grad(x)));
            belay_close(context);
            continue;
        }
        assert_int_equal(belay_n_moved(context), 1);
        told_read(belay_tensor_grad(x), grad, 6);
        for (int i = 0; i < 6; i++)
            assert_true(grad[i] == 2);
        assert_int_equal(belay_close(context), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_on_another_device_than_its_table_is_refused),
        cmocka_unit_test(labels_on_another_device_than_their_logits_are_refused),
        cmocka_unit_test(every_op_on_two_devices_names_both_tensors),
        cmocka_unit_test(two_ops_on_two_devices_are_fine),
        cmocka_unit_test(place_move_gives_what_one_device_gives),
        cmocka_unit_test(gradients_flow_back_to_where_strays_lie),
        cmocka_unit_test(a_stray_is_told_once_a_line_and_counted_always),
        cmocka_unit_test(a_place_that_is_none_opens_no_context),
        cmocka_unit_test(a_gradient_of_another_device_is_refused_or_brought),
        cmocka_unit_test(a_function_s_gradient_on_another_device_is_refused_or_brought),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
