/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the tests, in the common subset: tests/house/kernels.sh compiles them as C, C++ and CUDA C++. */
#ifndef TESTS_LAUNCH_KERNELS_H
#define TESTS_LAUNCH_KERNELS_H

#include <belay/kernel.h>

typedef struct numbers {
    int64_t by;
    float factor;
} numbers;

BELAY_KERNEL(scale, "N: x[N] -> y[N]", work, i)
{
    BELAY_AT1(float, belay_view_of(work, 1), i) =
        BELAY_PARAMS(numbers, work)->factor * BELAY_GET1(float, belay_view_of(work, 0), i);
}

/* y[i] = x[i + by], and z[i + by] = x[i] */
BELAY_KERNEL(shift, "N: x[N] -> y[N] z[N]", work, i)
{
    int64_t by = BELAY_PARAMS(numbers, work)->by;
    BELAY_AT1(float, belay_view_of(work, 1), i) = BELAY_GET1(float, belay_view_of(work, 0), i + by);
    BELAY_AT1(float, belay_view_of(work, 2), i + by) = BELAY_GET1(float, belay_view_of(work, 0), i);
}

BELAY_KERNEL(transpose, "ND: x[ND] -> y[DN]", work, i)
{
    belay_kernel_view x = belay_view_of(work, 0), y = belay_view_of(work, 1);
    int64_t columns = belay_view_size(x, 1);
    BELAY_AT2(float, y, i % columns, i / columns) = BELAY_GET2(float, x, i / columns, i % columns);
}

BELAY_KERNEL(sum_chunks, "N/4: x:f64[N] -> y:f64[C]", work, i)
{
    belay_kernel_view x = belay_view_of(work, 0);
    double sum = 0;
    for (int64_t k = 4 * i; k < 4 * i + 4 && k < belay_view_size(x, 0); k++)
        sum += BELAY_GET1(double, x, k);
    BELAY_AT1(double, belay_view_of(work, 1), i) = sum;
}

BELAY_KERNEL(add_to, "N: y[N]! bias[N]?", work, i)
{
    belay_kernel_view y = belay_view_of(work, 0), bias = belay_view_of(work, 1);
    BELAY_AT1(float, y, i) += belay_view_is_absent(bias) ? 1 : BELAY_GET1(float, bias, i);
}

BELAY_KERNEL(sampled, "N: x[N] -> ids:i64[N]", work, i)
{
    BELAY_AT1(int64_t, belay_view_of(work, 1), i) =
        belay_index_of(work, (double)BELAY_GET1(float, belay_view_of(work, 0), i));
}

BELAY_KERNEL(positive, "N: x[N] ->", work, i)
{
    BELAY_ASSERT_KERNEL(work, BELAY_GET1(float, belay_view_of(work, 0), i) > 0, "x must be above 0");
}

BELAY_KERNEL(wordless, "N: x[N] ->", work, i) { BELAY_ASSERT_KERNEL(work, i != 1, ""); }

/* Everything that a view may be misused for, one a time. */
BELAY_KERNEL(misuse, "*: x[N] y[N]? ->", work, i)
{
    int64_t what = BELAY_PARAMS(numbers, work)->by;
    belay_kernel_view x = belay_view_of(work, 0);
    if (what == 0)
        BELAY_ASSERT_KERNEL(work, !(BELAY_GET1(double, x, i) > 0 || BELAY_GET1(double, x, i) < 0),
                            "a bad read is not zero");
    if (what == 1)
        BELAY_ASSERT_KERNEL(work, BELAY_GET2(float, x, i, 0) <= 0, "a bad read is not zero");
    if (what == 2)
        BELAY_AT1(float, x, i) = 7;
    if (what == 3)
        BELAY_AT1(float, belay_view_of(work, 5), i) = 7;
    if (what == 4)
        BELAY_AT1(float, belay_view_of(work, 1), i) = 7;
    if (what == 5)
        BELAY_AT1(float, belay_view_of(work, -1), i) = 7;
}

/* Writes a byte `by` bytes behind the first of x. */
BELAY_KERNEL(stray, "*: x[N]! ->", work, i)
{
    (void)i;
    volatile char *at = (char *)belay_view_raw(belay_view_of(work, 0)) + BELAY_PARAMS(numbers, work)->by;
    *at = 1;
}

typedef struct address {
    uint64_t at;
} address;

BELAY_KERNEL(peek, "*: x[N]! ->", work, i)
{
    const volatile char *at = (const char *)(uintptr_t)BELAY_PARAMS(address, work)->at;
    BELAY_AT1(float, belay_view_of(work, 0), i) = (float)*at;
}

#endif
