/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a loss scale that nobody gave any: PyTorch's. */
#include "support/told.h"

#include <math.h>

#include <belay/amp.h>

typedef struct job {
    belay_context *context;
    belay_tensor weight, one, inf;
    belay_optimizer *sgd;
    belay_grad_scaler *scaler;
} job;

static void window(const job *j, bool overflows)
{
    belay_scope scope = belay_scope_open(j->context);
    belay_tensor loss = belay_sum(belay_mul(j->weight, overflows ? j->inf : j->one), NULL);
    belay_backward(belay_grad_scaler_scale(j->scaler, loss));
    belay_grad_scaler_step(j->scaler, j->sgd);
    belay_grad_scaler_update(j->scaler);
    belay_scope_close(scope);
}

static void it_begins_at_65536_doubles_after_2000_steps_and_halves_by_one_overflow(void **state)
{
    (void)state;
    const float one = 1, infinity = INFINITY, zero = 0;
    job j = {.context = told_open()};
    j.weight = told_leaf(j.context, belay_shape1(1), &zero);
    j.one = told_f32(j.context, belay_shape1(1), &one);
    j.inf = told_f32(j.context, belay_shape1(1), &infinity);
    j.sgd = belay_sgd_over(j.context, &j.weight, 1, &(belay_sgd_options){.lr = 0.001});
    j.scaler = belay_grad_scaler_new(j.context, NULL);
    assert_true(belay_grad_scaler_get(j.scaler) == 65536);
    window(&j, true);
    assert_true(belay_grad_scaler_get(j.scaler) == 32768);
    for (int i = 0; i < 1999; i++)
        window(&j, false);
    assert_true(belay_grad_scaler_get(j.scaler) == 32768);
    assert_int_equal(belay_grad_scaler_growth_get(j.scaler), 1999);
    window(&j, false);
    assert_true(belay_grad_scaler_get(j.scaler) == 65536);
    assert_int_equal(belay_grad_scaler_growth_get(j.scaler), 0);
    belay_close(j.context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_begins_at_65536_doubles_after_2000_steps_and_halves_by_one_overflow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
