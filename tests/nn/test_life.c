/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that are freed at the wrong moment, nested without end, or used when they are dead: named, never undefined. */
#include "support/told.h"

#include <belay/belay.h>

#include "tensor/context.h"

static const belay_shape two = {1, {2}};

static belay_tensor ones(belay_context *context) { return belay_ones(context, BELAY_F32, two); }

/* The call on line `line` raised exactly this. */
static void expect(int line, belay_code code, const char *what, const char *advice)
{
    told_expect("belay: %s (%s)\n"
                "    called at: test_life.c:%d\n" TOLD_START "    try: %s\n",
                what, belay_code_name(code), line, advice);
}

static const char *const after_forward = "Free it after its forward, or the training that uses it, has returned.";

/* ---- inside of a forward --------------------------------------------------------------------------------------------- */

/* A module whose forward does something to another one, and then passes x on. */
typedef void (*deed)(belay_module *module);
struct doer {
    deed deed;
    belay_module *to;
};
static belay_tensor doer_forward(belay_module *module, belay_tensor x)
{
    const struct doer *self = belay_module_self(module);
    self->deed(self->to);
    return belay_neg(x);
}
static const belay_module_kind doer_kind = {"doer", sizeof(struct doer), doer_forward, NULL};

static belay_module *doer(belay_context *context, deed what, belay_module *to)
{
    belay_module *module = belay_module_new(context, &doer_kind);
    *(struct doer *)belay_module_self(module) = (struct doer){what, to != NULL ? to : module};
    return module;
}

static void a_module_freed_inside_of_its_own_forward_stays(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *module = doer(context, belay_module_free, NULL);
    float y[2];
    int line = __LINE__ + 1;
    told_read(belay_forward(module, ones(context)), y, 2);
    assert_true(y[0] == -1 && y[1] == -1);
    expect(line, BELAY_CONF_ORDER, "module doer was freed while it is at work", after_forward);
    belay_faults_clear(context);
    belay_module_free(module); /* now it may */
    assert_true(belay_module_is_nil(module));
    told_close(context);
}

static void a_tree_is_not_freed_inside_of_a_forward_in_it(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *root = belay_sequential_module(context), *inner = belay_sequential_module(context);
    belay_module_add_child(inner, "first", doer(context, belay_module_free, root));
    belay_module_add_child(inner, "second", belay_map_module(context, belay_neg));
    belay_module_add_child(root, "inner", inner);
    float y[2];
    int line = __LINE__ + 1;
    told_read(belay_forward(root, ones(context)), y, 2);
    assert_true(y[0] == 1 && y[1] == 1);
    expect(line, BELAY_CONF_ORDER, "module sequential was freed while it is at work", after_forward);
    line = __LINE__ + 1;
    told_read(belay_forward(inner, ones(context)), y, 2); /* the root itself is not at work */
    expect(line, BELAY_CONF_ORDER, "module sequential was freed while inner in it is at work", after_forward);
    ((struct doer *)belay_module_self(belay_module_child(inner, 0)))->to = belay_module_child(inner, 1);
    line = __LINE__ + 1;
    belay_forward(root, ones(context));
    expect(line, BELAY_CONF_VALUE, "module inner.second was freed, but it dies with its parent inner",
           belay_code_advice(BELAY_CONF_VALUE));
    assert_int_equal(belay_close(context), 3);
}

/* What is at work stays so under another root. */
static belay_module *new_root;
static void move_and_free(belay_module *module)
{
    belay_module_add_child(new_root, "moved", module);
    belay_module_free(new_root);
}

static void a_module_that_is_moved_inside_of_its_forward_keeps_its_new_root(void **state)
{
    (void)state;
    belay_context *context = told_open();
    new_root = belay_sequential_module(context);
    belay_module *module = doer(context, move_and_free, NULL);
    int line = __LINE__ + 1;
    assert_false(belay_tensor_is_nil(belay_forward(module, ones(context))));
    expect(line, BELAY_CONF_ORDER, "module sequential was freed while moved in it is at work", after_forward);
    assert_int_equal(belay_module_n_children(new_root), 1);
    assert_int_equal(belay_close(context), 3);
}

static void another_module_may_be_freed_inside_of_a_forward(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *other = belay_layer_norm_module(context, &(belay_layer_norm_module_options){.width = 2});
    assert_false(belay_tensor_is_nil(belay_forward(doer(context, belay_module_free, other), ones(context))));
    assert_true(belay_module_is_nil(other));
    told_close(context);
}

static void close_context(belay_module *module)
{
    assert_int_equal(belay_close(belay_module_context(module)), belay_code_status(BELAY_CONF_ORDER));
}

static void a_context_closed_inside_of_a_forward_stays_open(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *module = doer(context, close_context, NULL);
    int line = __LINE__ + 1;
    assert_false(belay_tensor_is_nil(belay_forward(module, ones(context))));
    expect(line, BELAY_CONF_ORDER, "a context was closed inside of a call that uses it",
           "Close it after the outermost call has returned.");
    assert_int_equal(belay_close(context), 3);
}

/* ---- inside of a function -------------------------------------------------------------------------------------------- */

struct scale {
    belay_module *victim;
    bool in_backward;
};
static void scale_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                          int n_out)
{
    const struct scale *self = state;
    (void)n_in, (void)n_out;
    out[0] = belay_mul(in[0], in[1]);
    belay_function_save(call, in[0]);
    if (!self->in_backward)
        belay_module_free(self->victim);
}
static void scale_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                           belay_tensor *grad_in, int n_in)
{
    const struct scale *self = state;
    (void)n_in, (void)n_out;
    grad_in[1] = belay_mul(grad_out[0], belay_function_saved(call, 0));
    if (self->in_backward)
        belay_module_free(self->victim);
}

static void a_function_may_free_the_module_of_its_input(void **state)
{
    (void)state;
    const belay_function function = {.name = "scale", .forward = scale_forward, .backward = scale_backward};
    for (int in_backward = 0; in_backward < 2; in_backward++) {
        belay_context *context = told_open();
        belay_module *module = belay_layer_norm_module(context, &(belay_layer_norm_module_options){.width = 2});
        belay_tensor weight = belay_module_find(module, "weight"), y;
        struct scale self = {module, in_backward};
        belay_function_apply(context, &function, &self, (belay_tensor[]){ones(context), weight}, 2, 0, &y, 1);
        assert_false(belay_tensor_is_nil(y));
        assert_int_equal(belay_tensor_is_alive(weight), in_backward);
        belay_backward(belay_sum(y, NULL));
        assert_false(belay_tensor_is_alive(weight));
        told_close(context);
    }
}

/* ---- without end ----------------------------------------------------------------------------------------------------- */

static void call_itself(belay_module *module) { belay_forward(module, ones(belay_module_context(module))); }

static void a_forward_that_calls_itself_ends_at_a_limit_that_is_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *module = doer(context, call_itself, NULL);
    int line = __LINE__ + 1;
    assert_false(belay_tensor_is_nil(belay_forward(module, ones(context))));
    told_expect("belay: the forward of module doer would be one of 257 inside of each other, the most is 256 "
                "(size.overflow)\n"
                "    called at: test_life.c:%d\n"
                "    layer: %.127s\n" TOLD_START "    try: Look for a module whose forward comes to call itself.\n",
                line,
                "doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer.doer."
                "doer.doer.doer.doer.doer.doer.doer");
    assert_int_equal(belay_n_faults(context), 1);
    belay_faults_clear(context);
    float y[2];
    belay_module *other = belay_map_module(context, belay_neg); /* all of it has ended */
    told_read(belay_forward(other, ones(context)), y, 2);
    assert_true(y[0] == -1);
    told_close(context);
}

static void modules_below_each_other_are_as_many_as_forwards(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *root = belay_map_module(context, belay_neg);
    for (int i = 1; i < BELAY_MAX_NESTING; i++) {
        belay_module *above = belay_sequential_module(context);
        belay_module_add_child(above, "0", root);
        root = above;
    }
    assert_false(belay_tensor_is_nil(belay_forward(root, ones(context))));
    belay_module *above = belay_sequential_module(context), *below = root;
    int line = __LINE__ + 1;
    belay_module_add_child(above, "0", root);
    expect(line, BELAY_CONF_VALUE,
           "module sequential cannot become 0 of module sequential: 257 modules would stand below each other, the most "
           "is 256",
           belay_code_advice(BELAY_CONF_VALUE));
    while (belay_module_n_children(below) > 0)
        below = belay_module_child(below, 0);
    line = __LINE__ + 1;
    belay_module_add_child(below, "0", belay_map_module(context, belay_neg));
    expect(line, BELAY_CONF_VALUE,
           "module map cannot become 0 of module 0: 257 modules would stand below each other, the most is 256",
           belay_code_advice(BELAY_CONF_VALUE));
    assert_int_equal(belay_close(context), 2);
}

/* ---- dead modules ---------------------------------------------------------------------------------------------------- */

static const char *const when_unused = "Free a module when nothing uses it any more.";

#define EXPECT_STALE(call, name)                                                                                       \
    do {                                                                                                               \
        int line_ = __LINE__;                                                                                          \
        call;                                                                                                          \
        expect(line_, BELAY_LIFE_STALE, "module " name " was used after it had been freed", when_unused);              \
    } while (0)

static void a_module_that_was_freed_is_stale_and_absorbs(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *root = belay_sequential_module(context), *other = belay_sequential_module(context);
    belay_module *norm = belay_module_add_child(
        root, "norm", belay_layer_norm_module(context, &(belay_layer_norm_module_options){.width = 2}));
    belay_module_free(root);
    assert_true(belay_module_is_nil(root));
    assert_true(belay_module_is_nil(norm));
    assert_null(belay_module_context(root));
    assert_null(belay_module_self(norm));
    assert_string_equal(belay_module_name(root), "sequential");
    assert_int_equal(belay_module_n_parameters(norm), 0);
    assert_int_equal(belay_module_n_children(root), 0);
    assert_false(belay_module_training_get(root));
    assert_true(belay_tensor_is_nil(belay_module_find(norm, "weight")));
    assert_string_equal(told(), "");
    belay_tensor x = ones(context), none = {0};
    belay_prediction p;
    const int64_t id = 0;
    EXPECT_STALE(assert_true(belay_tensor_is_nil(belay_forward(norm, x))), "norm");
    EXPECT_STALE(belay_module_free(root), "sequential");
    EXPECT_STALE(belay_module_training_set(root, false), "sequential");
    EXPECT_STALE(belay_module_add_parameter(norm, "w", BELAY_F32, two, (belay_init){0}), "norm");
    EXPECT_STALE(belay_module_add_buffer(norm, "b", x), "norm");
    EXPECT_STALE(assert_true(belay_module_is_nil(belay_module_add_child(root, "0", other))), "sequential");
    EXPECT_STALE(belay_lstm_module_run(norm, x, none, none), "norm");
    EXPECT_STALE(belay_optimizer_step(belay_adam(root, &(belay_adam_options){.lr = 1})), "sequential");
    EXPECT_STALE(belay_optimizer_step(belay_adamw(root, &(belay_adam_options){.lr = 1})), "sequential");
    EXPECT_STALE(belay_optimizer_step(belay_sgd(root, &(belay_sgd_options){.lr = 1})), "sequential");
    EXPECT_STALE(assert_int_equal(belay_predict(root, &id, 1, 1, &p), BELAY_CONF_ORDER), "sequential");
    EXPECT_STALE(assert_int_equal(belay_train(root, NULL, NULL, NULL, NULL), BELAY_CONF_ORDER), "sequential");
    EXPECT_STALE(assert_int_equal(belay_evaluate(root, NULL, 0, NULL), BELAY_CONF_ORDER), "sequential");
    EXPECT_STALE(assert_int_equal(belay_checkpoint_save(root, "x", NULL, 0), BELAY_CONF_ORDER), "sequential");
    EXPECT_STALE(assert_int_equal(belay_checkpoint_load(root, "x"), BELAY_CONF_ORDER), "sequential");
    EXPECT_STALE(assert_true(belay_module_is_nil(belay_module_add_child(other, "0", root))), "sequential");
    assert_true(belay_module_is_nil(other)); /* a part of it is missing */
    assert_int_equal(belay_close(context), 3);
}

/* A module that frees a root of its own, in its forward or when it dies. */
struct holder {
    belay_module *held;
};
static belay_tensor holder_forward(belay_module *module, belay_tensor x)
{
    const struct holder *self = belay_module_self(module);
    return belay_forward(self->held, x);
}
static void holder_free(void *self) { belay_module_free(((struct holder *)self)->held); }
static const belay_module_kind holder_kind = {"holder", sizeof(struct holder), holder_forward, holder_free};

static void a_kind_may_free_roots_of_its_own_whatever_dies_first(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        belay_context *context = told_open();
        belay_module *held = order & 1 ? belay_map_module(context, belay_neg) : NULL;
        belay_module *module = belay_module_new(context, &holder_kind);
        held = held != NULL ? held : belay_map_module(context, belay_neg);
        *(struct holder *)belay_module_self(module) = (struct holder){held};
        assert_false(belay_tensor_is_nil(belay_forward(module, ones(context))));
        if (order & 2) {
            belay_module_free(module);
            assert_true(belay_module_is_nil(held));
        }
        told_close(context);
    }
}

static void steadily_freed_modules_take_no_more_and_no_more_memory(void **state)
{
    (void)state;
    belay_context *context = told_open();
    for (int i = 0; i < 3 * BL_MAX_GRAVES; i++) {
        belay_module_free(belay_map_module(context, belay_neg));
        assert_true(context->n_graves <= BL_MAX_GRAVES);
    }
    assert_int_equal(context->n_graves, BL_MAX_GRAVES);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_freed_inside_of_its_own_forward_stays),
        cmocka_unit_test(a_tree_is_not_freed_inside_of_a_forward_in_it),
        cmocka_unit_test(a_module_that_is_moved_inside_of_its_forward_keeps_its_new_root),
        cmocka_unit_test(another_module_may_be_freed_inside_of_a_forward),
        cmocka_unit_test(a_context_closed_inside_of_a_forward_stays_open),
        cmocka_unit_test(a_function_may_free_the_module_of_its_input),
        cmocka_unit_test(a_forward_that_calls_itself_ends_at_a_limit_that_is_named),
        cmocka_unit_test(modules_below_each_other_are_as_many_as_forwards),
        cmocka_unit_test(a_module_that_was_freed_is_stale_and_absorbs),
        cmocka_unit_test(a_kind_may_free_roots_of_its_own_whatever_dies_first),
        cmocka_unit_test(steadily_freed_modules_take_no_more_and_no_more_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
