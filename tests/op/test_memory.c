/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a step's ops fails in turn: a named fault, nil results, nothing lost, and the context goes on. */
#include "op/numbers.h"

#include "base/memory.h"

static const int64_t ids[] = {0, 2, 1, 3, 3, 0}, labels[] = {1, 0, 2, 1, 2, 0};

/* A forward and a walk back through one op of every kind. */
static void step(belay_context *context, belay_tensor table, belay_tensor weight)
{
    belay_scope scope = belay_scope_open(context);
    belay_tensor i = belay_tensor_from(context, BELAY_I64, belay_shape1(6), ids, sizeof ids);
    belay_tensor l = belay_tensor_from(context, BELAY_I64, belay_shape1(6), labels, sizeof labels);
    belay_tensor x = belay_layer_norm(belay_embedding(table, i, NULL), 1, (belay_tensor){0}, (belay_tensor){0}, 0);
    belay_tensor parts[2], joined[6];
    belay_split(belay_index_add(x, 0, i, belay_tanh(x), 0.5, NULL), 1, (const int64_t[]){1, 3}, 2, parts);
    for (int k = 0; k < 6; k++)
        joined[k] = k == 0 ? parts[1] : belay_slice(parts[0], 1, 0, 1, 1);
    x = belay_slice(belay_cat(joined, 6, 1), 1, 0, 4, 1);
    x = belay_index(belay_gather(x, 0, belay_expand(belay_view(i, belay_shape2(6, 1)), belay_shape2(6, 4)), NULL), &i,
                    1, NULL);
    x = belay_linear(belay_softmax(x, 0), weight, (belay_tensor){0});
    belay_tensor top = belay_mean(belay_mul(belay_max(x, 1, false, NULL), belay_amax(x, NULL)), NULL);
    belay_backward(belay_add(belay_cross_entropy(x, l, NULL), top));
    belay_scope_close(scope);
}

/* The step in a context of its own, its allocation n (none: -1) failing; false when there were fewer. */
static bool step_failing_at(int64_t n, double grad[16])
{
    belay_context *context = open_with(1);
    double v[16];
    drawn = 5;
    draw_many(v, 16, -1, 1);
    belay_tensor table = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape2(4, 4), v), true);
    belay_tensor weight = belay_tensor_requires_grad_set(tensor_of(context, BELAY_F32, belay_shape2(4, 4), v), true);
    bl_memory_fail_at(n);
    step(context, table, weight);
    bool failed = bl_memory_failed();
    bl_memory_fail_at(-1);
    if (told[0] == '\0')
        read_numbers(belay_tensor_grad(table), grad, 16);
    else if (strstr(told, "(mem.exhausted)\n") == NULL)
        fail_msg("allocation %lld failed and was told as:\n%s", (long long)n, told);
    belay_close(context);
    return failed;
}

/* What is not told changed nothing: a pool that could not keep a block, a name that could not be kept. */
static void every_failing_allocation_is_named_or_harmless(void **state)
{
    (void)state;
    double whole[16], now[16];
    step_failing_at(-1, whole);
    int64_t n = 0, n_named = 0;
    while (step_failing_at(n, now)) {
        if (told[0] == '\0')
            assert_memory_equal(whole, now, sizeof whole);
        n_named += told[0] != '\0';
        n++;
    }
    assert_true(n_named > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failing_allocation_is_named_or_harmless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
