/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of several rooms share: a context that remembers every word it was told to say, small tensors, values. */
#ifndef TESTS_SUPPORT_TOLD_H
#define TESTS_SUPPORT_TOLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <belay/grad.h>
#include <belay/op.h>

#include "support/words.h"

/* Every paragraph since told_clear or told_open, one after the other. */
const char *told(void);
void told_clear(void);

/* A belay_log_function that remembers; state is not used. */
void told_remember(void *state, belay_code code, const char *text);

/* A context on cpu without a journal file that tells here. */
belay_context *told_open(void);

/* Asserts that exactly these words were said, and forgets them.  "%s:%d" and the like take arguments. */
void told_expect(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Closes a context that has said nothing since told_clear, with status 0. */
void told_close(belay_context *context);

/* The last line of every paragraph: "    try: ...". */
const char *told_try(belay_code code);

/* Where the context is at its beginning, as a line of a paragraph. */
#define TOLD_START "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"

/* A tensor of f32 values, and its values again. */
belay_tensor told_f32(belay_context *context, belay_shape shape, const float *values);
void told_read(belay_tensor tensor, float *out, int64_t n);
/* A leaf that wants a gradient. */
belay_tensor told_leaf(belay_context *context, belay_shape shape, const float *values);

#endif
