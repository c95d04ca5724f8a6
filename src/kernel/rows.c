/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of all families as one table, by op number. */
#include "kernel/row.h"

#include <string.h>

#define OP(name) BL_OP_##name

const bl_row bl_kernel_rows[] = {
    {.name = "none", .skeleton = BL_SKELETON_DEVICE, .internal = true},
#define BL_ROWS
#define BL_ROW(skeleton, name, dtypes, ...) {#name, BL_SKELETON_##skeleton, BL_DTYPES_##dtypes, __VA_ARGS__},
#include "kernel/families.h"
#undef BL_ROW
#undef BL_ROWS
};

int bl_kernel_find(const char *name)
{
    for (int op = 1; op < BL_N_OPS; op++)
        if (strcmp(bl_kernel_rows[op].name, name) == 0)
            return op;
    return BL_OP_none;
}
