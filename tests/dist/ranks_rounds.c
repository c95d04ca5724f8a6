/* SPDX-License-Identifier: Apache-2.0 */
/* Several reducers of one group, and calls between their reductions: what ranks do in another order is named by the call,
 * before data move; a rank whose window has faulted goes by what the others do. */
#include "dist/ranks.h"

#include <stdio.h>
#include <string.h>

#include <belay/belay.h>

enum { IN = 5, WEIGHTS = 2 * IN };

/* Two models of different sizes, each with its reducer and optimizer. */
typedef struct pair {
    ranks r;
    belay_module *model[2];
    belay_reducer *reducer[2];
    belay_optimizer *sgd[2];
} pair;

static pair open_pair(void)
{
    pair p = {.r = ranks_open(20)};
    for (int i = 0; i < 2; i++) {
        p.model[i] = belay_linear_module(p.r.context, &(belay_linear_module_options){.in = IN, .out = i + 1});
        p.reducer[i] = belay_ddp(p.model[i], p.r.group, &(belay_ddp_options){.digest_every = 1});
        assert_false(belay_reducer_is_nil(p.reducer[i]));
        p.sgd[i] = belay_sgd(p.model[i], &(belay_sgd_options){.lr = 0.1});
    }
    told_expect("%s", "");
    return p;
}

/* Of the model's own batch; nil where the input is of another shape, which is a fault. */
static belay_tensor loss_of(const pair *p, int model, bool is_bad)
{
    float x[2 * IN];
    for (int i = 0; i < 2 * IN; i++)
        x[i] = (float)((i * 7 + p->r.rank * 5) % 11) / 5 - 1;
    belay_shape shape = is_bad ? belay_shape2(IN, 2) : belay_shape2(2, IN);
    belay_tensor y = belay_forward(p->model[model], belay_tensor_from(p->r.context, BELAY_F32, shape, x, sizeof x));
    return belay_mean(belay_mul(y, y), NULL);
}

static void read_weights(const pair *p, int model, float out[WEIGHTS])
{
    belay_tensor w = belay_module_find(p->model[model], "weight");
    memset(out, 0, WEIGHTS * sizeof *out);
    assert_int_equal(belay_tensor_read(w, out, belay_tensor_n_elements(w) * 4), BELAY_OK);
}

static void expect_same_weights(const pair *p, int model)
{
    float mine[WEIGHTS], all[8 * WEIGHTS];
    belay_scope scope = belay_scope_open(p->r.context);
    read_weights(p, model, mine);
    belay_tensor in = belay_tensor_from(p->r.context, BELAY_F32, belay_shape1(WEIGHTS), mine, sizeof mine);
    belay_tensor out = belay_zeros(p->r.context, BELAY_F32, belay_shape2(p->r.size, WEIGHTS));
    assert_int_equal(belay_group_all_gather(p->r.group, in, out), BELAY_OK);
    assert_int_equal(belay_tensor_read(out, all, p->r.size * WEIGHTS * 4), BELAY_OK);
    for (int q = 0; q < p->r.size; q++)
        assert_memory_equal(&all[q * WEIGHTS], mine, sizeof mine);
    belay_scope_close(scope);
}

/* Both go on, on all ranks alike. */
static void expect_goes_on(const pair *p)
{
    float before[WEIGHTS], after[WEIGHTS];
    told_clear();
    for (int i = 0; i < 2; i++) {
        read_weights(p, i, before);
        belay_scope scope = belay_scope_open(p->r.context);
        belay_backward(loss_of(p, i, false));
        belay_optimizer_step(p->sgd[i]);
        belay_scope_close(scope);
        assert_true(belay_optimizer_is_applied(p->sgd[i]));
        read_weights(p, i, after);
        assert_memory_not_equal(before, after, sizeof before);
        expect_same_weights(p, i);
    }
    told_expect("%s", "");
}

/* ---- a rank whose window has faulted ---------------------------------------------------------------------------------- */

/* Both losses go back before either is applied; one rank lacks the first, the second, or both. */
static void a_rank_that_lacks_a_backward_takes_part_in_its_turn(void **state)
{
    (void)state;
    float before[WEIGHTS], after[WEIGHTS];
    pair p = open_pair();
    for (int lacks = 1; lacks < 4; lacks++) {
        read_weights(&p, 0, before);
        belay_scope scope = belay_scope_open(p.r.context);
        for (int i = 0; i < 2; i++)
            belay_backward(loss_of(&p, i, p.r.rank == 1 && (lacks >> i & 1) != 0));
        for (int i = 0; i < 2; i++)
            belay_optimizer_step(p.sgd[i]);
        belay_scope_close(scope);
        assert_false(belay_optimizer_is_applied(p.sgd[0]));
        read_weights(&p, 0, after);
        assert_memory_equal(before, after, sizeof before);
        for (int i = 0; i < 2; i++) {
            expect_same_weights(&p, i);
            assert_int_equal(belay_reducer_n_reduced(p.reducer[i]), 2 * lacks - 1);
        }
        expect_goes_on(&p);
    }
    belay_close(p.r.context);
}

/* Each backward of the window is reduced, and one rank lacks all of them. */
static void a_rank_that_lacks_many_backwards_of_a_window_holds_nobody_up(void **state)
{
    (void)state;
    pair p = open_pair();
    belay_scope scope = belay_scope_open(p.r.context);
    for (int k = 0; k < 4; k++)
        belay_backward(loss_of(&p, 0, p.r.rank == 0));
    belay_optimizer_step(p.sgd[0]);
    belay_scope_close(scope);
    assert_false(belay_optimizer_is_applied(p.sgd[0]));
    assert_int_equal(belay_reducer_n_reduced(p.reducer[0]), 4);
    expect_goes_on(&p);
    belay_close(p.r.context);
}

/* A sum over all ranks between backward and step, as loops log their loss. */
static void an_operation_between_waits_for_what_was_averaged_before(void **state)
{
    (void)state;
    pair p = open_pair();
    for (int culprit = 0; culprit < p.r.size; culprit++) {
        float sum = 1;
        belay_scope scope = belay_scope_open(p.r.context);
        belay_backward(loss_of(&p, 1, p.r.rank == culprit));
        belay_tensor x = belay_tensor_from(p.r.context, BELAY_F32, belay_shape1(1), &sum, sizeof sum);
        assert_int_equal(belay_group_all_reduce(p.r.group, x, BELAY_GROUP_SUM), BELAY_OK);
        assert_int_equal(belay_tensor_read(x, &sum, sizeof sum), BELAY_OK);
        assert_float_equal(sum, (float)p.r.size, 0);
        belay_optimizer_step(p.sgd[1]);
        belay_scope_close(scope);
        assert_false(belay_optimizer_is_applied(p.sgd[1]));
        expect_goes_on(&p);
    }
    belay_close(p.r.context);
}

/* ---- what breaks the group -------------------------------------------------------------------------------------------- */

/* Where it stood when it was told depends on when the worker had heard of it. */
static void expect_mismatch(const pair *p, int called, const char *odd, int odd_line, const char *rest, int rest_line)
{
    char got[2048], wanted[2048];
    const char *when = strstr(told(), "    when: ");
    assert_non_null(when);
    snprintf(got, sizeof got, "%.*s", (int)(when - told()), told());
    snprintf(wanted, sizeof wanted,
             "belay: rank 1 called %s, where the 2 others called %s (comm.mismatch)\n"
             "    called at: ranks_rounds.c:%d\n"
             "    rank 1: %s at ranks_rounds.c:%d, step 0, batch 0:0\n"
             "    ranks 0, 2: %s at ranks_rounds.c:%d, step 0, batch 0:0\n",
             odd, rest, called, odd, odd_line, rest, rest_line);
    assert_string_equal(got, wanted);
    told_clear();
    assert_int_equal(belay_close(p->r.context), 3);
}

/* By the second reducer, on one rank alone: its first bucket would meet a sum of another size. */
static void a_rank_that_averages_alone_is_named(void **state)
{
    (void)state;
    pair p = open_pair();
    float one = 1;
    belay_scope scope = belay_scope_open(p.r.context);
    belay_tensor x = belay_tensor_from(p.r.context, BELAY_F32, belay_shape1(1), &one, sizeof one);
    int line = __LINE__ + 2;
    if (p.r.rank == 1)
        belay_backward(loss_of(&p, 1, false));
    belay_code code = belay_group_all_reduce(p.r.group, x, BELAY_GROUP_SUM);
    belay_scope_close(scope);
    assert_int_equal(code, BELAY_COMM_MISMATCH);
    expect_mismatch(&p, line + 1, "averaging #7 by reducer 1 (weight and 1 other)", line,
                    "all_reduce #7 of 1 f32 by sum", line + 1);
}

static void ranks_that_average_in_another_order_are_named(void **state)
{
    (void)state;
    pair p = open_pair();
    belay_scope scope = belay_scope_open(p.r.context);
    int first = p.r.rank == 1, line = __LINE__ + 1;
    belay_backward(loss_of(&p, first, false));
    belay_backward(loss_of(&p, 1 - first, false));
    belay_optimizer_step(p.sgd[0]);
    belay_scope_close(scope);
    const char *called = strstr(told(), "called at: ranks_rounds.c:");
    assert_non_null(called);
    int at = 0;
    assert_int_equal(sscanf(called, "called at: ranks_rounds.c:%d", &at), 1);
    assert_in_range(at, line, line + 2); /* the next call after the worker had heard it */
    expect_mismatch(&p, at, "averaging #7 by reducer 1 (weight and 1 other)", line,
                    "averaging #7 by reducer 0 (weight and 1 other)", line);
}

/* Without a fault, a call that comes before a backward is another order, not a lack. */
static void a_rank_that_calls_before_its_backward_is_named(void **state)
{
    (void)state;
    pair p = open_pair();
    belay_scope scope = belay_scope_open(p.r.context);
    belay_tensor loss = loss_of(&p, 0, false);
    int line = __LINE__ + 2;
    if (p.r.rank == 1)
        assert_int_equal(belay_group_barrier(p.r.group), BELAY_COMM_MISMATCH);
    belay_backward(loss);
    belay_optimizer_step(p.sgd[0]);
    belay_scope_close(scope);
    expect_mismatch(&p, p.r.rank == 1 ? line : line + 2, "barrier #7", line,
                    "averaging #7 by reducer 0 (weight and 1 other)", line + 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest whole[] = {
        cmocka_unit_test(a_rank_that_lacks_a_backward_takes_part_in_its_turn),
        cmocka_unit_test(a_rank_that_lacks_many_backwards_of_a_window_holds_nobody_up),
        cmocka_unit_test(an_operation_between_waits_for_what_was_averaged_before),
    };
    static const struct {
        const char *word;
        struct CMUnitTest test;
    } breaks[] = {
        {"alone", cmocka_unit_test(a_rank_that_averages_alone_is_named)},
        {"order", cmocka_unit_test(ranks_that_average_in_another_order_are_named)},
        {"call", cmocka_unit_test(a_rank_that_calls_before_its_backward_is_named)},
    };
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0] && argc > 1; i++)
        if (strcmp(argv[1], breaks[i].word) == 0) {
            const struct CMUnitTest one[] = {breaks[i].test};
            return cmocka_run_group_tests(one, NULL, NULL);
        }
    return argc > 1 ? 2 : cmocka_run_group_tests(whole, NULL, NULL);
}
