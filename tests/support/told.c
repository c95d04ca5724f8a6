/* SPDX-License-Identifier: Apache-2.0 */
#include "support/told.h"

#include <stdio.h>
#include <string.h>

static char words[1 << 16];

const char *told(void) { return words; }
void told_clear(void) { words[0] = '\0'; }

void told_remember(void *state, belay_code code, const char *text)
{
    (void)state, (void)code;
    strncat(words, text, sizeof words - strlen(words) - 1);
}

belay_context *told_open(void)
{
    told_clear();
    belay_context *context = belay_open(&(belay_options){.log = told_remember, .no_journal = true});
    assert_true(belay_is_open(context));
    return context;
}

void told_expect(const char *format, ...)
{
    static char expected[1 << 16];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    assert_words_equal(words, expected);
    told_clear();
}

void told_close(belay_context *context)
{
    assert_string_equal(words, "");
    assert_int_equal(belay_close(context), 0);
}

const char *told_try(belay_code code)
{
    static char line[512];
    snprintf(line, sizeof line, "    try: %s\n", belay_code_advice(code));
    return line;
}

static int64_t n_elements(belay_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++)
        n *= shape.size[i];
    return n;
}

belay_tensor told_f32(belay_context *context, belay_shape shape, const float *values)
{
    return belay_tensor_from(context, BELAY_F32, shape, values, n_elements(shape) * 4);
}

void told_read(belay_tensor tensor, float *out, int64_t n)
{
    assert_int_equal(belay_tensor_read(tensor, out, n * 4), BELAY_OK);
}

belay_tensor told_leaf(belay_context *context, belay_shape shape, const float *values)
{
    return belay_tensor_requires_grad_set(told_f32(context, shape, values), true);
}
