/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/custom.h"

#include <stdio.h>

#include "base/memory.h"

bl_custom *bl_custom_new(const belay_kernel *kernel)
{
    bl_custom *custom = bl_alloc(1, sizeof *custom);
    if (custom == NULL)
        return NULL;
    custom->holders = 1;
    custom->items = kernel->items;
    snprintf(custom->name, sizeof custom->name, "%s", kernel->name);
    for (int k = 0; k <= BELAY_MAX_KERNEL_OPERANDS; k++)
        custom->args.operand[k].dtype = BELAY_NO_DTYPE;
    return custom;
}

bl_custom *bl_custom_hold(bl_custom *custom)
{
    if (custom != NULL)
        custom->holders++;
    return custom;
}

void bl_custom_release(bl_custom *custom)
{
    if (custom != NULL && --custom->holders == 0)
        bl_free(custom);
}
