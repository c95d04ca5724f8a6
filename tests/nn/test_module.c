/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: names, order, ownership, modes, and what is refused in whole texts. */
#include "support/told.h"

#include <belay/nn.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const belay_shape two = {1, {2}};

/* The call on line `line` raised exactly this. */
static void expect_refusal(int line, belay_code code, const char *what)
{
    told_expect("belay: %s (%s)\n"
                "    called at: test_module.c:%d\n" TOLD_START "%s",
                what, belay_code_name(code), line, told_try(code));
}

/* A module of the tests' own: y = x * gain, counts its frees. */
struct gain {
    belay_tensor gain;
    int *n_freed;
};
static belay_tensor gain_forward(belay_module *module, belay_tensor x)
{
    const struct gain *self = belay_module_self(module);
    return belay_mul(x, self->gain);
}
static void gain_free(void *self)
{
    const struct gain *gain = self;
    if (gain->n_freed != NULL)
        ++*gain->n_freed;
}
static const belay_module_kind gain_kind = {"gain", sizeof(struct gain), gain_forward, gain_free};

static belay_module *gain_module(belay_context *context, double value, int *n_freed)
{
    belay_module *module = belay_module_new(context, &gain_kind);
    struct gain *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->n_freed = n_freed;
    self->gain =
        belay_module_add_parameter(module, "gain", BELAY_F32, two, (belay_init){BELAY_INIT_CONSTANT, value, 0});
    return module;
}

static void names_are_dotted_from_the_root_and_from_where_one_looks(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *inner = gain_module(context, 1, NULL), *middle = belay_sequential_module(context);
    assert_string_equal(belay_module_parameter_name(inner, 0), "gain");
    assert_string_equal(belay_tensor_name(belay_module_parameter(inner, 0)), "gain");
    belay_module_add_child(middle, "inner", inner);
    belay_module *root = belay_sequential_module(context);
    assert_ptr_equal(belay_module_add_child(root, "middle", middle), middle);
    assert_string_equal(belay_tensor_name(belay_module_parameter(root, 0)), "middle.inner.gain");
    assert_string_equal(belay_module_parameter_name(root, 0), "middle.inner.gain");
    assert_string_equal(belay_module_parameter_name(middle, 0), "inner.gain");
    assert_string_equal(belay_module_parameter_name(inner, 0), "gain");
    assert_string_equal(belay_module_name(inner), "inner");
    assert_string_equal(belay_module_name(root), "sequential");
    belay_module_add_parameter(inner, "late", BELAY_F32, two, (belay_init){0});
    assert_string_equal(belay_tensor_name(belay_module_find(root, "middle.inner.late")), "middle.inner.late");
    belay_tensor found = belay_module_find(middle, "inner.gain"), wanted = belay_module_parameter(inner, 0);
    assert_memory_equal(&found, &wanted, sizeof found);
    const char *const none[] = {"", "gain", "middle", "middle.", "middle.inner", "middle.inner.gai", "inner.gain", "."};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_true(belay_tensor_is_nil(belay_module_find(root, none[i])));
    told_close(context);
}

static void walk_goes_own_parameters_first_then_child_by_child(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *root = belay_sequential_module(context);
    belay_module_add_child(root, "b", gain_module(context, 1, NULL));
    belay_module *a = belay_module_add_child(root, "a", gain_module(context, 2, NULL));
    belay_module_add_parameter(root, "z", BELAY_F64, belay_shape2(3, 4), (belay_init){0});
    belay_module_add_buffer(a, "mean", belay_zeros(context, BELAY_F32, two));
    const char *const names[] = {"z", "b.gain", "a.gain"};
    assert_int_equal(belay_module_n_parameters(root), 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(belay_module_parameter_name(root, i), names[i]);
    assert_int_equal(belay_module_n_elements(root), 16);
    assert_int_equal(belay_module_n_buffers(root), 1);
    assert_string_equal(belay_module_buffer_name(root, 0), "a.mean");
    assert_false(belay_tensor_requires_grad(belay_module_buffer(root, 0)));
    assert_true(belay_tensor_requires_grad(belay_module_parameter(root, 2)));
    assert_int_equal(belay_module_n_children(root), 2);
    assert_ptr_equal(belay_module_child(root, 1), a);
    for (int64_t i = -1; i <= 3; i += 4) {
        assert_true(belay_tensor_is_nil(belay_module_parameter(root, i)));
        assert_string_equal(belay_module_parameter_name(root, i), "");
        assert_null(belay_module_child(root, i));
    }
    told_close(context);
}

static void parameters_and_buffers_outlive_scopes_and_die_with_the_root(void **state)
{
    (void)state;
    int n_freed = 0;
    belay_context *context = told_open();
    belay_scope scope = belay_scope_open(context);
    belay_module *root = belay_sequential_module(context);
    belay_module_add_child(root, "0", gain_module(context, 3, &n_freed));
    belay_module_add_child(root, "1", gain_module(context, 2, &n_freed));
    belay_tensor buffer = belay_module_add_buffer(root, "seen", belay_zeros(context, BELAY_I64, two));
    belay_scope_close(scope);
    belay_tensor gain = belay_module_find(root, "1.gain");
    assert_true(belay_tensor_is_alive(gain));
    assert_true(belay_tensor_is_alive(buffer));
    const float x[] = {1, -1};
    float y[2];
    belay_backward(belay_sum(belay_forward(root, told_f32(context, two, x)), NULL));
    told_read(belay_tensor_grad(gain), y, 2);
    assert_true(y[0] == 3 && y[1] == -3);
    belay_tensor grad = belay_tensor_grad(gain);
    belay_module_grads_clear(root);
    assert_false(belay_tensor_is_alive(grad));
    belay_module_free(root);
    assert_int_equal(n_freed, 2);
    assert_false(belay_tensor_is_alive(gain));
    assert_false(belay_tensor_is_alive(buffer));
    gain_module(context, 1, &n_freed);
    told_close(context);
    assert_int_equal(n_freed, 3);
}

static void training_is_switched_for_the_whole_tree(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *root = belay_sequential_module(context), *drop = belay_dropout_module(context, 0.5);
    belay_module_add_child(root, "0", drop);
    const float ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    float y[8];
    assert_true(belay_module_training_get(drop));
    told_read(belay_forward(root, told_f32(context, belay_shape1(8), ones)), y, 8);
    for (int i = 0; i < 8; i++)
        assert_true(y[i] == 0 || y[i] == 2);
    belay_module_training_set(root, false);
    assert_false(belay_module_training_get(drop));
    told_read(belay_forward(root, told_f32(context, belay_shape1(8), ones)), y, 8);
    assert_memory_equal(y, ones, sizeof y);
    told_close(context);
}

static void first_values_depend_on_the_seed_only(void **state)
{
    (void)state;
    static float values[3][1200];
    for (int run = 0; run < 3; run++) {
        belay_context *context =
            belay_open(&(belay_options){.no_journal = true, .seed = run == 2 ? 8 : 7, .threads = run + 1});
        if (run == 1) { /* other draws and positions do not matter */
            belay_position_set(context, 3, 4);
            belay_normal(context, BELAY_F32, belay_shape1(100), 0, 1);
        }
        belay_module *embedding = belay_embedding_module(
            context, &(belay_embedding_module_options){.rows = 100, .width = 8, .has_padding = true, .padding = 3});
        belay_module *linear = belay_linear_module(context, &(belay_linear_module_options){.in = 16, .out = 20});
        told_read(belay_module_find(embedding, "weight"), values[run], 800);
        told_read(belay_module_find(linear, "weight"), values[run] + 800, 320);
        told_read(belay_module_find(linear, "bias"), values[run] + 1120, 20);
        assert_int_equal(belay_close(context), 0);
    }
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    assert_memory_not_equal(values[0], values[2], sizeof values[0]);
    double sum = 0, squares = 0, largest = 0;
    for (int i = 0; i < 800; i++) {
        sum += (double)values[0][i];
        squares += (double)values[0][i] * (double)values[0][i];
        assert_true(i / 8 == 3 ? values[0][i] == 0 : values[0][i] != 0);
    }
    assert_true(fabs(sum / 792) < 0.12 && fabs(squares / 792 - 1) < 0.15); /* N(0, 1) */
    for (int i = 800; i < 1140; i++)
        largest = fmax(largest, fabs((double)values[0][i]));
    assert_true(largest > 0.23 && largest <= 0.25); /* U(-1/4, 1/4) */
}

static void names_that_are_no_part_of_a_path_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *why;
    } bad[] = {{"", "is empty"}, {"a.b", "has a dot"}, {"gain", "is taken"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        belay_context *context = told_open();
        belay_module *module = gain_module(context, 1, NULL);
        char what[80];
        snprintf(what, sizeof what, "name \"%s\" in module gain %s", bad[i].name, bad[i].why);
        int line = __LINE__ + 1;
        belay_tensor made = belay_module_add_parameter(module, bad[i].name, BELAY_F32, two, (belay_init){0});
        expect_refusal(line, BELAY_CONF_VALUE, what);
        assert_true(belay_tensor_is_nil(made));
        assert_true(belay_module_is_nil(module));
        assert_int_equal(belay_close(context), 2);
    }
}

static void nil_modules_absorb(void **state)
{
    (void)state;
    belay_context *context = told_open();
    int line = __LINE__ + 1;
    belay_module *nil = belay_linear_module(context, &(belay_linear_module_options){.in = 3});
    expect_refusal(line, BELAY_CONF_VALUE, "out of linear is 0: it must be at least 1");
    belay_module *const nils[] = {nil, NULL};
    const float x[] = {1, 2};
    for (int i = 0; i < 2; i++) {
        assert_true(belay_module_is_nil(nils[i]));
        assert_true(belay_tensor_is_nil(belay_forward(nils[i], told_f32(context, two, x))));
        assert_true(belay_tensor_is_nil(belay_module_add_parameter(nils[i], "w", BELAY_F32, two, (belay_init){0})));
        assert_true(belay_tensor_is_nil(belay_module_add_buffer(nils[i], "b", told_f32(context, two, x))));
        assert_true(belay_module_is_nil(belay_module_add_child(nils[i], "c", gain_module(context, 1, NULL))));
        assert_null(belay_module_self(nils[i]));
        assert_null(belay_module_context(nils[i]));
        assert_null(belay_module_child(nils[i], 0));
        assert_int_equal(belay_module_n_parameters(nils[i]), 0);
        assert_int_equal(belay_module_n_buffers(nils[i]), 0);
        assert_int_equal(belay_module_n_children(nils[i]), 0);
        assert_int_equal(belay_module_n_elements(nils[i]), 0);
        assert_true(belay_tensor_is_nil(belay_module_find(nils[i], "w")));
        assert_string_equal(belay_module_name(nils[i]), "");
        assert_false(belay_module_training_get(nils[i]));
        belay_module_training_set(nils[i], true);
        belay_module_grads_clear(nils[i]);
        belay_module_free(nils[i]);
        assert_true(belay_tensor_is_nil(
            belay_lstm_module_run(nils[i], told_f32(context, two, x), (belay_tensor){0}, (belay_tensor){0}).output));
    }
    belay_module *root = belay_sequential_module(context);
    belay_module_add_child(root, "0", gain_module(context, 1, NULL));
    belay_module_add_child(root, "1", nil);
    assert_true(belay_module_is_nil(root)); /* without its part it is never trained */
    assert_true(belay_tensor_is_nil(belay_forward(root, told_f32(context, two, x))));
    told_expect("%s", "");
    assert_int_equal(belay_close(context), 2);
}

static void children_are_taken_over_once_and_never_in_a_circle(void **state)
{
    (void)state;
    belay_context *context = told_open(), *other = told_open();
    belay_module *a = belay_sequential_module(context), *b = gain_module(context, 1, NULL);
    belay_module_add_child(a, "b", b);
    belay_module *c = belay_sequential_module(context);
    int line = __LINE__ + 1;
    belay_module_add_child(c, "b", b);
    expect_refusal(line, BELAY_CONF_VALUE, "module b cannot become b of module sequential: it has a parent");
    line = __LINE__ + 1;
    belay_module_add_child(b, "a", a);
    expect_refusal(line, BELAY_CONF_VALUE, "module sequential cannot become a of module b: it is above it");
    line = __LINE__ + 1;
    belay_module_add_child(belay_sequential_module(other), "a", belay_sequential_module(context));
    expect_refusal(line, BELAY_LIFE_FOREIGN, "module sequential belongs to another context");
    line = __LINE__ + 1;
    belay_module_free(b);
    expect_refusal(line, BELAY_CONF_VALUE, "module b was freed, but it dies with its parent sequential");
    assert_int_equal(belay_close(context), 2);
    assert_int_equal(belay_close(other), 3);
}

static void buffers_with_an_owner_or_a_gradient_are_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const float x[] = {1, 2};
    belay_module *module = belay_sequential_module(context), *taken = gain_module(context, 1, NULL);
    int line = __LINE__ + 1;
    belay_module_add_buffer(module, "x", told_leaf(context, two, x));
    expect_refusal(line, BELAY_CONF_VALUE, "buffer x of module sequential has a gradient");
    belay_tensor buffer = belay_module_add_buffer(taken, "x", told_f32(context, two, x));
    line = __LINE__ + 1;
    belay_module_add_buffer(belay_sequential_module(context), "x", buffer);
    expect_refusal(line, BELAY_CONF_VALUE, "buffer x of module sequential belongs to another object");
    line = __LINE__ + 1;
    belay_module_add_parameter(taken, "ids", BELAY_I64, two, (belay_init){0});
    expect_refusal(line, BELAY_TYPE_DTYPE, "parameter ids of module gain cannot be i64: it has a gradient");
    assert_int_equal(belay_close(context), 2);
}

static void a_kind_without_name_or_forward_or_with_a_negative_size_is_refused(void **state)
{
    (void)state;
    static const belay_module_kind bad[] = {
        {NULL, 0, gain_forward, NULL}, {"still", 0, NULL, NULL}, {"less", -8, gain_forward, NULL}};
    belay_context *context = told_open();
    int line = __LINE__ + 1;
    assert_true(belay_module_is_nil(belay_module_new(context, NULL)));
    expect_refusal(line, BELAY_CONF_MISSING, "a module needs a kind with a name and a forward");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        told_clear();
        line = __LINE__ + 1;
        assert_true(belay_module_is_nil(belay_module_new(context, &bad[i])));
        expect_refusal(line, bad[i].n_bytes < 0 ? BELAY_CONF_VALUE : BELAY_CONF_MISSING,
                       bad[i].n_bytes < 0 ? "n_bytes of less is -8: it must be at least 0"
                                          : "a module needs a kind with a name and a forward");
    }
    assert_int_equal(belay_close(context), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kind_without_name_or_forward_or_with_a_negative_size_is_refused),
        cmocka_unit_test(names_are_dotted_from_the_root_and_from_where_one_looks),
        cmocka_unit_test(walk_goes_own_parameters_first_then_child_by_child),
        cmocka_unit_test(parameters_and_buffers_outlive_scopes_and_die_with_the_root),
        cmocka_unit_test(training_is_switched_for_the_whole_tree),
        cmocka_unit_test(first_values_depend_on_the_seed_only),
        cmocka_unit_test(names_that_are_no_part_of_a_path_are_refused),
        cmocka_unit_test(nil_modules_absorb),
        cmocka_unit_test(children_are_taken_over_once_and_never_in_a_circle),
        cmocka_unit_test(buffers_with_an_owner_or_a_gradient_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
