/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 without options is the one of 124M parameters: every name and shape of Hugging Face's file, a head that is the
 * token table. */
#include "support/told.h"

#include <stdio.h>
#include <string.h>

#include <belay/nn.h>

enum { LAYERS = 12, WIDTH = 768 };

static int64_t n_elements; /* of what was looked at */
static int64_t n_names;

static void expect(belay_module *model, const char *name, int64_t rows, int64_t columns)
{
    belay_tensor parameter = belay_module_find(model, name);
    if (belay_tensor_is_nil(parameter))
        fail_msg("there is no %s", name);
    belay_shape shape = belay_tensor_shape(parameter);
    assert_int_equal(shape.rank, columns > 0 ? 2 : 1);
    assert_int_equal(shape.size[0], rows);
    if (columns > 0)
        assert_int_equal(shape.size[1], columns);
    n_elements += belay_tensor_n_elements(parameter);
    n_names++;
}

static void expect_block(belay_module *model, int block)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } of_block[] = {
        {"ln_1.weight", WIDTH, 0},
        {"ln_1.bias", WIDTH, 0},
        {"attn.c_attn.weight", WIDTH, 2304},
        {"attn.c_attn.bias", 2304, 0},
        {"attn.c_proj.weight", WIDTH, WIDTH},
        {"attn.c_proj.bias", WIDTH, 0},
        {"ln_2.weight", WIDTH, 0},
        {"ln_2.bias", WIDTH, 0},
        {"mlp.c_fc.weight", WIDTH, 3072},
        {"mlp.c_fc.bias", 3072, 0},
        {"mlp.c_proj.weight", 3072, WIDTH},
        {"mlp.c_proj.bias", WIDTH, 0},
    };
    for (size_t i = 0; i < sizeof of_block / sizeof of_block[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "transformer.h.%d.%s", block, of_block[i].name);
        expect(model, name, of_block[i].rows, of_block[i].columns);
    }
}

static void without_options_it_is_the_one_of_124m_parameters(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *model = belay_gpt2(context, NULL);
    expect(model, "transformer.wte.weight", 50257, WIDTH);
    expect(model, "transformer.wpe.weight", 1024, WIDTH);
    for (int block = 0; block < LAYERS; block++)
        expect_block(model, block);
    expect(model, "transformer.ln_f.weight", WIDTH, 0);
    expect(model, "transformer.ln_f.bias", WIDTH, 0);
    assert_int_equal(n_elements, 124439808);
    assert_int_equal(belay_module_n_elements(model), n_elements); /* no head of its own */
    assert_int_equal(belay_module_n_parameters(model), n_names);
    assert_int_equal(belay_tensor_dtype(belay_module_parameter(model, 0)), BELAY_F32);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_options_it_is_the_one_of_124m_parameters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
