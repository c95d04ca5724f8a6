/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic on sizes.  Each returns false when the exact result does not fit, and then leaves *out alone.
 * Every product of sizes in Belay passes here; a bare `*` of two sizes is a bug. */
#ifndef BL_BASE_CHECKED_H
#define BL_BASE_CHECKED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"

static inline BL_MUST_USE bool bl_checked_add(int64_t a, int64_t b, int64_t *out)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline BL_MUST_USE bool bl_checked_mul(int64_t a, int64_t b, int64_t *out)
{
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

/* Product of `n` non-negative sizes; false also for a negative one. */
static inline BL_MUST_USE bool bl_checked_product(const int64_t *sizes, int n, int64_t *out)
{
    int64_t product = 1;
    bool fits = true, empty = false;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0)
            return false;
        if (sizes[i] == 0)
            empty = true;
        else
            fits = fits && bl_checked_mul(product, sizes[i], &product);
    }
    if (!fits && !empty)
        return false;
    *out = empty ? 0 : product;
    return true;
}

/* Narrowing for interfaces that take int (BLAS, MPI). */
static inline BL_MUST_USE bool bl_checked_int(int64_t value, int *out)
{
    if (value < INT_MIN || value > INT_MAX)
        return false;
    *out = (int)value;
    return true;
}

static inline BL_MUST_USE bool bl_checked_size(int64_t value, size_t *out)
{
    if (value < 0 || (uint64_t)value > SIZE_MAX)
        return false;
    *out = (size_t)value;
    return true;
}

static inline int64_t bl_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t bl_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
