/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers over a module. */
#include "optim/optim_support.h"

#include "base/memory.h"

static void state_has_the_module_s_dotted_names(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_module *model = belay_text_classifier(
        context, &(belay_text_classifier_options){.n_tokens = 7, .classes = 2, .embed = 3, .hidden = 4, .layers = 1});
    belay_tensor_requires_grad_set(belay_module_find(model, "embedding.weight"), false);
    belay_optimizer *o = belay_sgd(model, &(belay_sgd_options){.lr = 1, .momentum = 0.5});
    static const char *const names[] = {"momentum_buffer.lstm.weight_ih_l0",
                                        "momentum_buffer.lstm.weight_hh_l0",
                                        "momentum_buffer.lstm.bias_ih_l0",
                                        "momentum_buffer.lstm.bias_hh_l0",
                                        "momentum_buffer.fc.weight",
                                        "momentum_buffer.fc.bias",
                                        "t",
                                        "state"};
    const char *name;
    belay_tensor tensor;
    assert_int_equal(belay_optimizer_n_state(o), BL_COUNT(names));
    for (int i = 0; i < BL_COUNT(names); i++) {
        assert_true(belay_optimizer_state_get(o, i, &name, &tensor));
        assert_string_equal(name, names[i]);
    }
    assert_string_equal(told, "");
    assert_int_equal(belay_close(context), 0);
}

static void nil_module_gives_a_nil_optimizer(void **state)
{
    (void)state;
    belay_adam_options adam = {.lr = 1};
    belay_optimizer *made[] = {belay_sgd(NULL, &(belay_sgd_options){.lr = 1}), belay_adam(NULL, &adam),
                               belay_adamw(NULL, &adam)};
    for (int i = 0; i < BL_COUNT(made); i++) {
        assert_non_null(made[i]);
        belay_optimizer_step(made[i]);
        belay_optimizer_discard(made[i]);
        belay_optimizer_divisor_set(made[i], 2);
        assert_false(belay_optimizer_is_applied(made[i]));
        assert_int_equal(belay_optimizer_n_applied(made[i]), 0);
        assert_int_equal(belay_optimizer_n_state(made[i]), 0);
        assert_true(belay_optimizer_lr_get(made[i]) == 0);
        belay_optimizer_free(made[i]);
    }
}

static void module_without_a_parameter_is_refused(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_adam(belay_sequential_module(context), &(belay_adam_options){.lr = 1});
    assert_int_equal(strncmp(told, "belay: an optimizer needs a parameter; 0 were given (conf.missing)\n", 66), 0);
    belay_close(context);
}

/* ---- a window of the main job: a bad id, and what is left of it ---- */

static const int64_t good_ids[] = {1, 2, 3, 0, 4, 5, 0, 0}, labels[] = {0, 1};

static belay_tensor loss_of(belay_module *model, const int64_t *ids)
{
    belay_context *context = belay_module_context(model);
    belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape2(2, 4), ids, 64);
    return belay_cross_entropy(belay_forward(model, tokens),
                               belay_tensor_from(context, BELAY_I64, belay_shape1(2), labels, 16), NULL);
}

static void micro_batch(belay_module *model, const int64_t *ids)
{
    belay_scope scope = belay_scope_open(belay_module_context(model));
    belay_backward(loss_of(model, ids));
    belay_scope_close(scope);
}

static copies run_windows(int64_t bad_id, int *status)
{
    belay_context *context = open_cpu();
    belay_module *model = belay_text_classifier(
        context, &(belay_text_classifier_options){
                     .n_tokens = 7, .classes = 2, .embed = 3, .hidden = 4, .layers = 2, .dropout = 0.5});
    belay_optimizer *o = belay_adam(model, &(belay_adam_options){.lr = 0.1, .clip = 1});
    for (int window = 0; window < 4; window++) {
        belay_position_set(context, 0, (uint32_t)window);
        if (window == 1 && bad_id == 0)
            continue;
        int64_t ids[8];
        memcpy(ids, good_ids, sizeof ids);
        ids[5] = window == 1 ? bad_id : ids[5];
        micro_batch(model, good_ids);
        micro_batch(model, ids);
        belay_optimizer_step(o);
    }
    copies c = {0};
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++)
        copy_tensor(&c, belay_module_parameter_name(model, i), belay_module_parameter(model, i));
    *status = belay_close(context);
    return c;
}

static void window_with_a_bad_id_leaves_the_weights_of_a_run_without_it(void **state)
{
    (void)state;
    const int64_t bad[] = {7, -1, INT64_C(1) << 40};
    int status;
    copies without = run_windows(0, &status);
    assert_int_equal(status, 0);
    for (int i = 0; i < BL_COUNT(bad); i++) {
        copies with = run_windows(bad[i], &status);
        assert_int_equal(status, 0);
        assert_non_null(strstr(told, "belay: step 1 was not applied: index.range in its window (run.window_lost)\n"));
        assert_same(&without, &with, false);
        copies_free(&with);
    }
    copies_free(&without);
}

static void every_failing_allocation_of_a_maker_is_a_named_fault(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 2000; n++) {
        belay_context *context = open_cpu();
        belay_module *model = belay_mlp(context, &(belay_mlp_options){.sizes = {3, 2, 1}});
        bl_memory_fail_at(n);
        belay_optimizer *o = belay_adamw(model, &(belay_adam_options){.lr = 1, .amsgrad = true});
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        bool is_nil = belay_optimizer_n_state(o) == 0;
        assert_int_equal(is_nil, strstr(told, "(mem.exhausted)") != NULL);
        belay_close(context);
        if (!failed) {
            assert_false(is_nil);
            assert_true(n > 10);
            return;
        }
    }
    fail_msg("the maker never got all its memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_has_the_module_s_dotted_names),
        cmocka_unit_test(nil_module_gives_a_nil_optimizer),
        cmocka_unit_test(module_without_a_parameter_is_refused),
        cmocka_unit_test(window_with_a_bad_id_leaves_the_weights_of_a_run_without_it),
        cmocka_unit_test(every_failing_allocation_of_a_maker_is_a_named_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
