/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

/* Vectors of the file kat_vectors of Random123, the library of the authors of Philox. */
static void philox_gives_the_published_answers(void **state)
{
    (void)state;
    const struct {
        bl_rng_block counter;
        uint64_t key;
        bl_rng_block answer;
    } known[] = {
        {{{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         0xffffffffffffffff,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0x299f31d0a4093822,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        bl_rng_block block = bl_rng_philox(known[i].counter, known[i].key);
        assert_memory_equal(&block, &known[i].answer, sizeof block);
    }
}

static void a_word_is_a_function_of_key_and_element(void **state)
{
    (void)state;
    bl_rng_key key = {.seed = 7, .epoch = 1, .position = 2, .ordinal = 3};
    bl_rng_block block = bl_rng_at(&key, 5);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(bl_rng_word(&key, 20 + i), block.word[i]);
}

static void every_part_of_the_key_changes_the_draw(void **state)
{
    (void)state;
    const bl_rng_key keys[] = {{0, 0, 0, 0},
                               {1, 0, 0, 0},
                               {UINT64_C(1) << 32, 0, 0, 0},
                               {0, 1, 0, 0},
                               {0, 1 << 16, 0, 0},
                               {0, 0, 1, 0},
                               {0, 0, UINT32_C(1) << 31, 0},
                               {0, 0, 0, 1},
                               {0, 0, 0, 1 << 16},
                               {0, 0, 0, (1 << 16) - 1}};
    enum { N = sizeof keys / sizeof keys[0] };
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) {
            bl_rng_block a = bl_rng_at(&keys[i], 0), b = bl_rng_at(&keys[j], 0);
            assert_memory_not_equal(&a, &b, sizeof a);
        }
}

static void a_uniform_lies_below_one(void **state)
{
    (void)state;
    assert_true(bl_rng_uniform(0) == 0);
    assert_true(bl_rng_uniform(UINT32_MAX) < 1);
    assert_true(bl_rng_uniform(UINT32_MAX) == 1 - 1.0f / 16777216);
}

/* The high 64 bits of word * n, by 128-bit arithmetic. */
static void below_is_the_high_half_of_a_product(void **state)
{
    (void)state;
    const bl_rng_key key = {.seed = 42};
    const uint64_t limits[] = {1, 2, 3, 10007, UINT64_C(1) << 32, UINT64_MAX, (UINT64_C(1) << 63) + 12345};
    for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++)
        for (uint64_t e = 0; e < 1000; e++) {
            bl_rng_block b = bl_rng_at(&key, e);
            uint64_t word = (uint64_t)b.word[0] << 32 | b.word[1];
            __extension__ typedef unsigned __int128 wide;
            assert_true(bl_rng_below(&key, e, limits[l]) == (uint64_t)((wide)word * limits[l] >> 64));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(a_word_is_a_function_of_key_and_element),
        cmocka_unit_test(every_part_of_the_key_changes_the_draw),
        cmocka_unit_test(a_uniform_lies_below_one),
        cmocka_unit_test(below_is_the_high_half_of_a_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
