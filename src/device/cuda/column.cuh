/* SPDX-License-Identifier: Apache-2.0 */
/* One dtype column of one family for CUDA.  Read by stamp.cuh only. */
#include "kernel/column_begin.h"

#define BL_ROWS
#define BL_ROW(skeleton, name, dtypes, ...) BL_HAS_##dtypes(BL_STAMP_##skeleton(name))
#include BL_FAMILY_FILE
#undef BL_ROW
#undef BL_ROWS

#include "kernel/column_end.h"
