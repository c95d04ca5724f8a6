/* SPDX-License-Identifier: Apache-2.0 */
/* A small GPT-2 in mixed precision ends where f32 ends, over five seeds. */
#include "support/told.h"

#include <math.h>
#include <stdio.h>

#include <belay/amp.h>
#include <belay/nn.h>

#include "base/rng.h"

enum { SEEDS = 5, VOCABULARY = 12, TIME = 8, BATCH = 8, STEPS = 60, VALID = 1000 };

typedef struct range {
    double low, high;
} range;

/* Rows that count on by 1, 2 or 3, from anywhere: what follows is known from the third token on. */
static void fill_rows(uint64_t seed, uint32_t batch, int64_t ids[BATCH * TIME], int64_t next[BATCH * TIME])
{
    bl_rng_key key = {.seed = seed, .position = batch};
    for (int row = 0; row < BATCH; row++) {
        uint64_t first = bl_rng_below(&key, (uint64_t)row * 2, VOCABULARY);
        uint64_t stride = 1 + bl_rng_below(&key, (uint64_t)row * 2 + 1, 3);
        for (int t = 0; t < TIME; t++) {
            ids[row * TIME + t] = (int64_t)((first + stride * (uint64_t)t) % VOCABULARY);
            next[row * TIME + t] = (int64_t)((first + stride * (uint64_t)(t + 1)) % VOCABULARY);
        }
    }
}

static belay_tensor loss_of(belay_module *gpt, belay_dtype dtype, uint64_t seed, uint32_t batch)
{
    belay_context *context = belay_module_context(gpt);
    int64_t ids[BATCH * TIME], next[BATCH * TIME];
    fill_rows(seed, batch, ids, next);
    belay_tensor x = belay_tensor_from(context, BELAY_I64, belay_shape2(BATCH, TIME), ids, sizeof ids);
    belay_tensor y = belay_tensor_from(context, BELAY_I64, belay_shape1(BATCH * TIME), next, sizeof next);
    belay_autocast cast = belay_autocast_open(context, dtype);
    belay_tensor logits = belay_view(belay_forward(gpt, x), belay_shape2(BATCH * TIME, VOCABULARY));
    assert_int_equal(belay_tensor_dtype(logits), dtype);
    belay_tensor loss = belay_cross_entropy(logits, y, NULL);
    belay_autocast_close(cast);
    return loss;
}

static double train(belay_dtype dtype, uint64_t seed)
{
    belay_context *context =
        belay_open(&(belay_options){.seed = seed, .threads = 1, .no_journal = true, .log = told_remember});
    belay_module *gpt = belay_gpt2(
        context,
        &(belay_gpt2_options){.vocabulary = VOCABULARY, .context = TIME, .layers = 2, .heads = 2, .width = 16});
    belay_optimizer *adam = belay_adamw(gpt, &(belay_adam_options){.lr = 0.01, .clip = 1});
    belay_grad_scaler *scaler = dtype == BELAY_F16 ? belay_grad_scaler_new(context, NULL) : NULL;
    for (uint32_t step = 0; step < STEPS; step++) {
        belay_scope scope = belay_scope_open(context);
        belay_tensor loss = loss_of(gpt, dtype, seed, step);
        belay_backward(scaler != NULL ? belay_grad_scaler_scale(scaler, loss) : loss);
        if (scaler != NULL) {
            belay_grad_scaler_step(scaler, adam);
            belay_grad_scaler_update(scaler);
        } else {
            belay_optimizer_step(adam);
        }
        belay_scope_close(scope);
    }
    belay_recording_set(context, false);
    double valid = belay_tensor_item(loss_of(gpt, BELAY_F32, 99, VALID));
    assert_int_equal(belay_optimizer_n_faulted(adam), 0);
    belay_close(context);
    return valid;
}

static range losses_of(belay_dtype dtype)
{
    range r = {INFINITY, -INFINITY};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        double loss = train(dtype, seed);
        r.low = fmin(r.low, loss);
        r.high = fmax(r.high, loss);
    }
    return r;
}

static void a_small_gpt_ends_in_the_range_of_f32(void **state)
{
    (void)state;
    range exact = losses_of(BELAY_F32);
    assert_true(exact.high < 0.7 * log(VOCABULARY)); /* something was learnt */
    for (belay_dtype dtype = BELAY_BF16; dtype <= BELAY_F16; dtype++) {
        range low = losses_of(dtype);
        print_message("gpt2, %s: [%g, %g], f32: [%g, %g]\n", belay_dtype_name(dtype), low.low, low.high, exact.low,
                      exact.high);
        assert_true(low.low <= exact.high && low.high >= exact.low);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_small_gpt_ends_in_the_range_of_f32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
