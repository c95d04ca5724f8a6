/* SPDX-License-Identifier: Apache-2.0 */
/* An overflow under a loss scale, in whichever micro-batch of its window and under every optimizer: not a bit of a weight
 * or of the optimizer's state changes, and the scale is halved once. */
#include "optim/optim_support.h"

#include <belay/amp.h>

enum { WINDOW = 3 };

static void give_scaled(belay_context *context, belay_grad_scaler *scaler, belay_tensor *leaf, uint64_t seed,
                        double factor)
{
    belay_scope scope = belay_scope_open(context);
    for (int i = 0; i < LEAVES; i++) {
        belay_tensor gradient = drawn(context, belay_tensor_n_elements(leaf[i]), seed + 100 * (uint64_t)i);
        belay_tensor loss = belay_sum(belay_mul(leaf[i], belay_affine(gradient, factor, 0)), NULL);
        belay_backward(belay_grad_scaler_scale(scaler, loss));
    }
    belay_scope_close(scope);
}

/* A window whose micro-batch `bad` has an infinite gradient; -1: none has. */
static void window(belay_context *context, belay_grad_scaler *scaler, belay_optimizer *o, belay_tensor *leaf,
                   uint64_t seed, int bad)
{
    for (int k = 0; k < WINDOW; k++)
        give_scaled(context, scaler, leaf, seed + (uint64_t)k, k == bad ? INFINITY : 1);
    belay_grad_scaler_step(scaler, o);
    belay_grad_scaler_update(scaler);
}

static void overflow_in(int kind, int bad)
{
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 2000, leaf);
    belay_optimizer *o = optimizer_of(context, kind, leaf, LEAVES);
    belay_grad_scaler *scaler = belay_grad_scaler_new(context, NULL);
    for (uint64_t step = 0; step < 2; step++)
        window(context, scaler, o, leaf, 10 * step, -1);
    assert_int_equal(belay_optimizer_n_applied(o), 2);
    copies before = copy_all(leaf, LEAVES, o);
    window(context, scaler, o, leaf, 20, bad);
    copies after = copy_all(leaf, LEAVES, o);
    assert_same(&before, &after, true);
    assert_int_equal(belay_optimizer_n_applied(o), 2);
    assert_int_equal(belay_optimizer_n_overflowed(o), 1);
    assert_int_equal(belay_optimizer_n_faulted(o), 0);
    assert_true(belay_grad_scaler_get(scaler) == 32768);
    assert_int_equal(belay_grad_scaler_n_backoffs(scaler), 1);
    copies_free(&before);
    copies_free(&after);
    assert_int_equal(belay_close(context), 0); /* an overflow is no fault */
}

static void an_overflow_under_a_scale_keeps_every_bit_and_halves_it_once(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int bad = 0; bad < WINDOW; bad++)
            overflow_in(kind, bad);
}

/* The scale is a power of two: what is divided by it has the bits of what never was multiplied. */
static void steps_under_a_scale_are_those_without_one(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        copies end[2];
        for (int scaled = 0; scaled < 2; scaled++) {
            belay_context *context = open_cpu();
            belay_tensor leaf[LEAVES];
            make_leaves(context, 2000, leaf);
            belay_optimizer *o = optimizer_of(context, kind, leaf, LEAVES);
            belay_grad_scaler *scaler = belay_grad_scaler_new(context, NULL);
            for (uint64_t step = 0; step < 4; step++) {
                if (scaled != 0) {
                    give_scaled(context, scaler, leaf, step, 1);
                    belay_grad_scaler_step(scaler, o);
                    belay_grad_scaler_update(scaler);
                } else {
                    give_drawn(context, leaf, LEAVES, step);
                    belay_optimizer_step(o);
                }
            }
            end[scaled] = copy_all(leaf, LEAVES, o);
            belay_close(context);
        }
        for (int i = 0; i < end[0].n; i++)
            if (strcmp(end[0].name[i], "state") != 0) /* which holds the factor */
                assert_memory_equal(end[0].bytes[i], end[1].bytes[i], end[0].n_bytes[i]);
        copies_free(&end[0]);
        copies_free(&end[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overflow_under_a_scale_keeps_every_bit_and_halves_it_once),
        cmocka_unit_test(steps_under_a_scale_are_those_without_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
