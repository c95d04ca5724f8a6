/* SPDX-License-Identifier: Apache-2.0 */
/* Orders are permutations, pure functions of their keys, and pinned for ever. */
#include "file/file_support.h"

#include "data/order.h"

enum { n = 1000 };

static void a_shuffle_is_a_permutation(void **state)
{
    (void)state;
    static int64_t order[n];
    static bool seen[n];
    bl_data_order_shuffle(order, n, 7, 3);
    for (int i = 0; i < n; i++) {
        assert_in_range(order[i], 0, n - 1);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
    }
}

static int n_same(uint64_t seed_a, uint32_t epoch_a, uint64_t seed_b, uint32_t epoch_b)
{
    static int64_t a[n], b[n];
    int same = 0;
    bl_data_order_shuffle(a, n, seed_a, epoch_a);
    bl_data_order_shuffle(b, n, seed_b, epoch_b);
    for (int i = 0; i < n; i++)
        same += a[i] == b[i];
    return same;
}

static void a_shuffle_depends_on_seed_and_epoch_only(void **state)
{
    (void)state;
    assert_int_equal(n_same(7, 3, 7, 3), n);
    assert_true(n_same(7, 3, 7, 4) < 20);
    assert_true(n_same(7, 3, 8, 3) < 20);
    assert_true(n_same(0, 0, 0, 1) < 20);
}

static void a_shuffle_is_the_same_on_every_machine(void **state)
{
    (void)state;
    int64_t order[10];
    bl_data_order_shuffle(order, 10, 1, 0);
    static const int64_t expected[10] = {1, 0, 5, 8, 2, 7, 6, 4, 3, 9};
    assert_memory_equal(order, expected, sizeof order);
}

static void small_shuffles_are_well_defined(void **state)
{
    (void)state;
    int64_t order[2] = {9, 9};
    bl_data_order_shuffle(order, 0, 1, 0);
    assert_int_equal(order[0], 9);
    bl_data_order_shuffle(order, 1, 1, 0);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 9);
}

/* Each of 3! orders comes up about as often as the others. */
static void a_shuffle_favours_no_order(void **state)
{
    (void)state;
    int count[27] = {0};
    for (uint32_t epoch = 0; epoch < 6000; epoch++) {
        int64_t order[3];
        bl_data_order_shuffle(order, 3, 5, epoch);
        count[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    int n_orders = 0;
    for (int i = 0; i < 27; i++)
        if (count[i] > 0) {
            n_orders++;
            assert_in_range(count[i], 850, 1150);
        }
    assert_int_equal(n_orders, 6);
}

static void choosing_marks_exactly_as_many_as_asked(void **state)
{
    (void)state;
    uint8_t is_chosen[n];
    for (int wanted = 0; wanted <= n; wanted += 125) {
        int found = 0;
        bl_data_order_choose(is_chosen, n, wanted, 11);
        for (int i = 0; i < n; i++)
            found += is_chosen[i];
        assert_int_equal(found, wanted);
    }
}

static void choosing_depends_on_the_seed_only(void **state)
{
    (void)state;
    uint8_t a[n], b[n], c[n];
    bl_data_order_choose(a, n, 100, 1);
    bl_data_order_choose(b, n, 100, 1);
    bl_data_order_choose(c, n, 100, 2);
    assert_memory_equal(a, b, n);
    assert_memory_not_equal(a, c, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shuffle_is_a_permutation),
        cmocka_unit_test(a_shuffle_depends_on_seed_and_epoch_only),
        cmocka_unit_test(a_shuffle_is_the_same_on_every_machine),
        cmocka_unit_test(small_shuffles_are_well_defined),
        cmocka_unit_test(a_shuffle_favours_no_order),
        cmocka_unit_test(choosing_marks_exactly_as_many_as_asked),
        cmocka_unit_test(choosing_depends_on_the_seed_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
