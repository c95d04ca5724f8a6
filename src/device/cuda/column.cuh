/* SPDX-License-Identifier: Apache-2.0 */
/* One dtype column of one family for CUDA.  Read by stamp.cuh only. */
#ifndef BL_IS_FLOAT
#define BL_IS_FLOAT 0
#endif
#ifndef BL_IS_BOOL
#define BL_IS_BOOL 0
#endif
#ifndef BL_REAL_IS_F64
#define BL_REAL_IS_F64 0
#endif

#include "kernel/math.h"

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

#define BL_ROWS
#define BL_ROW(skeleton, name, dtypes, ...) BL_HAS_##dtypes(BL_STAMP_##skeleton(name))
#include BL_FAMILY_FILE
#undef BL_ROW
#undef BL_ROWS

#undef BL_HAS_FLOAT
#undef BL_HAS_NUMBER
#undef BL_HAS_ANY
#undef BL_COLUMN
#undef BL_T
#undef BL_REAL
#undef BL_IS_FLOAT
#undef BL_IS_BOOL
#undef BL_REAL_IS_F64
