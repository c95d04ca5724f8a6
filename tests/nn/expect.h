/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of modules share: parameters by name and shape, makers that refuse, jobs whose memory ends. */
#ifndef TESTS_NN_EXPECT_H
#define TESTS_NN_EXPECT_H

#include "support/told.h"

#include <belay/nn.h>

#include <string.h>

#include "base/memory.h"

typedef struct named {
    const char *name;
    belay_shape shape;
} named;

/* Exactly these parameters in that order, each a leaf under its name. */
static inline void expect_parameters(const belay_module *module, const named *wanted, int n)
{
    assert_int_equal(belay_module_n_parameters(module), n);
    for (int i = 0; i < n; i++) {
        belay_tensor p = belay_module_parameter(module, i);
        belay_shape has = belay_tensor_shape(p);
        assert_string_equal(belay_module_parameter_name(module, i), wanted[i].name);
        assert_string_equal(belay_tensor_name(p), wanted[i].name);
        assert_int_equal(has.rank, wanted[i].shape.rank);
        assert_memory_equal(has.size, wanted[i].shape.size, sizeof has.size);
        assert_true(belay_tensor_requires_grad(p));
    }
}

/* make(0), make(1), ... are nil, each after one fault whose headline is that. */
static inline void expect_refusals(belay_module *(*make)(belay_context *context, int which),
                                   const char *const *headline, int n)
{
    for (int i = 0; i < n; i++) {
        belay_context *context = told_open();
        assert_true(belay_module_is_nil(make(context, i)));
        assert_ptr_equal(strstr(told(), headline[i]), told() + strlen("belay: "));
        assert_int_equal(belay_n_faults(context), 1);
        assert_int_not_equal(belay_close(context), 0);
    }
}

/* A job whose n-th allocation fails goes well all the same or says that memory ended. */
static inline void expect_exhaustion_is_told(bool (*job)(int kind), int kind)
{
    bool was_reached = true;
    for (int64_t n = 0; was_reached; n++) {
        told_clear();
        bl_memory_fail_at(n);
        bool went_well = job(kind);
        was_reached = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (was_reached && !went_well && strstr(told(), "mem.exhausted") == NULL)
            fail_msg("kind %d: allocation %lld failed without a word: %s", kind, (long long)n, told());
        if (!was_reached)
            assert_true(went_well);
    }
}

#endif
