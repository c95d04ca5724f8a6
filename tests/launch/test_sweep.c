/* SPDX-License-Identifier: Apache-2.0 */
/* The n-th allocation fails, for n = 0, 1, 2, ... until a whole small job succeeds: each time there is a named fault, no
 * crash and (the sanitizers say) no leak. */
#include "support/told.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/context.h"

enum { STEPS = 3 };

static void twice_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                          int n_out)
{
    (void)state, (void)n_in, (void)n_out;
    belay_function_save(call, in[0]);
    out[0] = belay_add(in[0], in[0]);
}

static void twice_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                           belay_tensor *grad_in, int n_in)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    grad_in[0] = belay_add(grad_out[0], grad_out[0]);
}

static const belay_function twice = {.name = "twice", .forward = twice_forward, .backward = twice_backward};

/* A little of everything that allocates; returns whether all of it went well. */
static bool job(belay_options options)
{
    options.log = told_remember;
    options.threads = 2;
    belay_context *context = belay_open(&options);
    const float values[] = {1, 2, 3, 4, 5, 6};
    const int64_t ids[] = {2, 0, 1, 1};
    belay_tensor table = told_leaf(context, belay_shape2(3, 2), values),
                 w = told_leaf(context, belay_shape2(3, 2), values);
    belay_tensor bias = told_leaf(context, belay_shape1(3), values), y;
    bool is_right = belay_is_open(context);
    for (int i = 0; i < STEPS; i++) {
        belay_scope scope = belay_scope_open(context);
        belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape2(2, 2), ids, sizeof ids);
        belay_tensor rows = belay_embedding(table, tokens, NULL);
        belay_function_apply(context, &twice, NULL, &rows, 1, 0, &y, 1);
        y = belay_layer_norm(belay_linear(y, w, bias), 1, (belay_tensor){0}, bias, 0);
        belay_tensor loss = belay_mean(belay_mul(belay_dropout(belay_tanh(y), 0.5, true), y), NULL);
        belay_backward(loss);
        belay_tensor_name_set(belay_tensor_grad(w), "gradient");
        belay_scope_close(scope);
        is_right = is_right && belay_tensor_is_alive(belay_tensor_grad(table)) &&
                   belay_tensor_is_alive(belay_tensor_grad(bias));
    }
    int status = belay_close(context);
    return is_right && status == 0;
}

static void sweep(belay_options options)
{
    int64_t n = 0, n_named = 0;
    for (;; n++) {
        told_clear();
        bl_memory_fail_at(n);
        bool is_right = job(options), failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed) {
            assert_true(is_right);
            assert_string_equal(told(), "");
            break;
        }
        bool is_named = strstr(told(), "(mem.exhausted)\n") != NULL;
        n_named += is_named;
        if (is_named)
            assert_false(is_right);
        else if (!is_right || told()[0] != '\0')
            fail_msg("allocation %lld failed, and what was told is: %s", (long long)n, told());
    }
    assert_true(n > 30);
    /* What is not named has cost nothing: a held block or a spare node less, or a block that came from those held. */
    assert_true(n_named > n * 3 / 4);
}

static void every_failing_allocation_is_named_or_costs_nothing(void **state)
{
    (void)state;
    sweep((belay_options){.no_journal = true});
}

static void the_same_with_a_journal_in_a_file(void **state)
{
    (void)state;
    sweep((belay_options){0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_is_named_or_costs_nothing),
        cmocka_unit_test(the_same_with_a_journal_in_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
