/* SPDX-License-Identifier: Apache-2.0 */
/* Begins one dtype column of one family: its functions and its bodies.  A device's stamp sets BL_COLUMN, BL_T, BL_REAL and
 * what differs from an integer column, reads this, stamps the rows, and reads column_end.h.
 *
 * BL_HAS_FLOAT(...), BL_HAS_NUMBER(...) and BL_HAS_ANY(...) give their argument where the column belongs to that class of a
 * row's dtypes, else nothing.  BL_SUM is the type that sums are added up in: whole numbers wrap. */
#ifndef BL_IS_FLOAT
#define BL_IS_FLOAT 0
#endif
#ifndef BL_IS_BOOL
#define BL_IS_BOOL 0
#endif
#ifndef BL_REAL_IS_F64
#define BL_REAL_IS_F64 0
#endif

#if BL_IS_FLOAT
#define BL_SUM BL_REAL
#else
#define BL_SUM uint64_t
#endif

#include "kernel/math.h"

/* A sum over its divisor; one of whole numbers has none. */
#if BL_IS_FLOAT
BL_FN BL_REAL BL_(divided)(BL_SUM sum, double divisor) { return sum / (BL_REAL)divisor; }
#else
BL_FN int64_t BL_(divided)(BL_SUM sum, double divisor) { return (void)divisor, (int64_t)sum; }
#endif

#define BL_YES(...) __VA_ARGS__
#define BL_NO(...)
#if BL_IS_FLOAT
#define BL_HAS_FLOAT BL_YES
#else
#define BL_HAS_FLOAT BL_NO
#endif
#if BL_IS_BOOL
#define BL_HAS_NUMBER BL_NO
#else
#define BL_HAS_NUMBER BL_YES
#endif
#define BL_HAS_ANY BL_YES

#define BL_BODIES
#include BL_FAMILY_FILE
#undef BL_BODIES
