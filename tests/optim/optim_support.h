/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of room `optim` share: a context that remembers what it told, leaves with given gradients, copies of
 * everything that a step may change. */
#ifndef TESTS_OPTIM_SUPPORT_H
#define TESTS_OPTIM_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <belay/grad.h>
#include <belay/nn.h>
#include <belay/op.h>
#include <belay/optim.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/words.h"

static char told[16384];

static inline void remember(void *state, belay_code code, const char *text)
{
    (void)state, (void)code;
    strncat(told, text, sizeof told - strlen(told) - 1);
}

static inline belay_context *open_threads(int threads)
{
    told[0] = '\0';
    return belay_open(&(belay_options){.log = remember, .no_journal = true, .threads = threads});
}
static inline belay_context *open_cpu(void) { return open_threads(1); }

/* A number in [-1, 1) that depends on both arguments only. */
static inline float draw(uint64_t a, uint64_t b)
{
    uint64_t x = (a + 1) * 0x9E3779B97F4A7C15u ^ (b + 1) * 0xC2B2AE3D27D4EB4Fu;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    return (float)(int32_t)(uint32_t)x / 2147483648.0f;
}

static inline belay_tensor drawn(belay_context *context, int64_t n, uint64_t seed)
{
    float *values = malloc((size_t)(n + 1) * sizeof *values);
    for (int64_t i = 0; i < n && values != NULL; i++)
        values[i] = draw(seed, (uint64_t)i);
    belay_tensor tensor = belay_tensor_from(context, BELAY_F32, belay_shape1(n), values, n * 4);
    free(values);
    return tensor;
}

/* Leaves "a" [n], "b" [3], "c" [2]. */
enum { LEAVES = 3 };
static inline void make_leaves(belay_context *context, int64_t n, belay_tensor leaf[LEAVES])
{
    const int64_t sizes[LEAVES] = {n, 3, 2};
    static const char *const names[LEAVES] = {"a", "b", "c"};
    for (int i = 0; i < LEAVES; i++) {
        leaf[i] = belay_tensor_requires_grad_set(drawn(context, sizes[i], (uint64_t)i), true);
        belay_tensor_name_set(leaf[i], names[i]);
    }
}

/* Adds `gradient` to the leaf's: the gradient of sum(leaf * gradient), exactly. */
static inline void give(belay_tensor leaf, belay_tensor gradient)
{
    belay_backward(belay_sum(belay_mul(leaf, gradient), NULL));
}

static inline void give_drawn(belay_context *context, belay_tensor *leaf, int n, uint64_t seed)
{
    belay_scope scope = belay_scope_open(context);
    for (int i = 0; i < n; i++)
        give(leaf[i], drawn(context, belay_tensor_n_elements(leaf[i]), seed + 100 * (uint64_t)i));
    belay_scope_close(scope);
}

/* An id outside of its table, while recording: a fault in the window. */
static inline void plant_fault(belay_context *context)
{
    belay_scope scope = belay_scope_open(context);
    const int64_t ids[] = {7};
    belay_embedding(belay_zeros(context, BELAY_F32, belay_shape2(3, 2)),
                    belay_tensor_from(context, BELAY_I64, belay_shape1(1), ids, sizeof ids), NULL);
    belay_scope_close(scope);
}

/* ---- copies ---- */

enum { MAX_COPIES = 32 };
typedef struct copies {
    char name[MAX_COPIES][64];
    unsigned char *bytes[MAX_COPIES];
    int64_t n_bytes[MAX_COPIES];
    int n;
} copies;

static inline void copy_tensor(copies *c, const char *name, belay_tensor tensor)
{
    int64_t n = belay_tensor_n_elements(tensor) * belay_dtype_size(belay_tensor_dtype(tensor));
    assert_true(c->n < MAX_COPIES);
    snprintf(c->name[c->n], sizeof c->name[0], "%s", name);
    c->bytes[c->n] = malloc((size_t)n + 1);
    assert_non_null(c->bytes[c->n]);
    assert_int_equal(belay_tensor_read(tensor, c->bytes[c->n], n), BELAY_OK);
    c->n_bytes[c->n++] = n;
}

/* Leaves and all of the optimizer's state. */
static inline copies copy_all(const belay_tensor *leaf, int n, const belay_optimizer *o)
{
    copies c = {0};
    const char *name;
    belay_tensor tensor;
    for (int i = 0; i < n; i++)
        copy_tensor(&c, belay_tensor_name(leaf[i]), leaf[i]);
    for (int64_t i = 0; belay_optimizer_state_get(o, i, &name, &tensor); i++)
        copy_tensor(&c, name, tensor);
    return c;
}

static inline void copies_free(copies *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->bytes[i]);
    c->n = 0;
}

/* The same bits; with `is_refused` the decision, the norm and the counts of refusals may differ. */
static inline void assert_same(const copies *a, const copies *b, bool is_refused)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        bool is_state = strcmp(a->name[i], "state") == 0;
        assert_string_equal(a->name[i], b->name[i]);
        assert_int_equal(a->n_bytes[i], b->n_bytes[i]);
        if (!is_state || !is_refused) {
            assert_memory_equal(a->bytes[i], b->bytes[i], a->n_bytes[i]);
            continue;
        }
        assert_memory_equal(a->bytes[i] + 8, b->bytes[i] + 8, 3 * 8);     /* rate, factor, schedule's position */
        assert_memory_equal(a->bytes[i] + 5 * 8, b->bytes[i] + 5 * 8, 8); /* steps applied */
    }
}

/* Writes copies of the optimizer's state and the leaves back. */
static inline void restore(const copies *c, const belay_tensor *leaf, int n, const belay_optimizer *o)
{
    const char *name;
    belay_tensor tensor;
    for (int i = 0; i < n; i++)
        assert_int_equal(belay_tensor_write(leaf[i], c->bytes[i], c->n_bytes[i]), BELAY_OK);
    for (int64_t i = 0; belay_optimizer_state_get(o, i, &name, &tensor); i++) {
        assert_string_equal(name, c->name[n + i]);
        assert_int_equal(belay_tensor_write(tensor, c->bytes[n + i], c->n_bytes[n + i]), BELAY_OK);
    }
}

/* ---- the optimizers that every promise is tried on ---- */

enum { KINDS = 4 };
static inline belay_optimizer *optimizer_of(belay_context *context, int kind, const belay_tensor *leaf, int n)
{
    belay_schedule schedule = {.kind = BELAY_SCHEDULE_COSINE, .period = 10, .warmup = 2, .warmup_start = 0.25};
    if (kind == 0)
        return belay_sgd_over(
            context, leaf, n,
            &(belay_sgd_options){.lr = 0.1, .momentum = 0.9, .nesterov = true, .clip = 0.5, .schedule = schedule});
    if (kind == 1)
        return belay_sgd_over(context, leaf, n, &(belay_sgd_options){.lr = 0.1, .weight_decay = 0.01});
    belay_adam_options options = {.lr = 0.01, .weight_decay = 0.1, .amsgrad = kind == 3, .schedule = schedule};
    return kind == 2 ? belay_adam_over(context, leaf, n, &options) : belay_adamw_over(context, leaf, n, &options);
}

#endif
