/* SPDX-License-Identifier: Apache-2.0 */
/* A group that is whole: every operation, dtype and root, sizes of nothing and of more than one piece. */
#include "dist/ranks.h"

#include <stdio.h>
#include <stdlib.h>

static const int64_t sizes[] = {0, 1, 7, 1000, 4099};

static void sums_and_largest_of_floats(void **state)
{
    (void)state;
    ranks r = ranks_open(0);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int op = BELAY_GROUP_SUM; op <= BELAY_GROUP_MAX; op++) {
            int64_t n = sizes[s];
            float *values = test_calloc((size_t)n + 1, sizeof *values);
            for (int64_t i = 0; i < n; i++)
                values[i] = (float)(i % 100) + (float)r.rank;
            belay_scope scope = belay_scope_open(r.context);
            belay_tensor t = belay_tensor_from(r.context, BELAY_F32, belay_shape1(n), values, n * 4);
            assert_int_equal(belay_group_all_reduce(r.group, t, (belay_group_op)op), BELAY_OK);
            assert_int_equal(belay_tensor_read(t, values, n * 4), BELAY_OK);
            for (int64_t i = 0; i < n; i++) {
                float each = (float)(i % 100), ranks_sum = (float)(r.size * (r.size - 1) / 2);
                float wanted = op == BELAY_GROUP_SUM ? each * (float)r.size + ranks_sum : each + (float)r.size - 1;
                assert_true(values[i] == wanted);
            }
            belay_scope_close(scope);
            test_free(values);
        }
    ranks_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_and_largest_of_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
