/* SPDX-License-Identifier: Apache-2.0 */
/* What single codes say, and how two of them weigh against each other. */
#include <stddef.h>

#include "triage/gpu_parts.h"

bool bl_gpu_code_is_echo(int64_t code) { return code == 43 || code == 45 || code == 174; }

bool bl_gpu_code_settles(int64_t code)
{
    switch (code) {
    case 48:
    case 64:
    case 79:
    case 94:
    case 95:
    case 140:
    case 171:
    case 172:
        return true;
    default:
        return false;
    }
}

bool bl_gpu_code_can_repeat(int64_t code)
{
    const bl_xid_row *row = bl_xid_find(code);
    if (row == NULL)
        return false;
    switch (row->repeat) {
    case BL_XID_REPEAT_ONE_TPC:
    case BL_XID_REPEAT_ONE_GPU:
    case BL_XID_REPEAT_ONE_GPU_MMU:
    case BL_XID_REPEAT_ONE_GPU_DRAIN:
        return true;
    default:
        return false;
    }
}

/* What the catalogue's side and severity come to when the code stands alone. */
static bl_gpu_class class_of_row(const bl_xid_row *row)
{
    bool ends_something = row->severity >= BL_XID_SEVERITY_PROCESS;
    switch (row->side) {
    case BL_XID_SIDE_HARDWARE:
        return ends_something ? BL_GPU_CLASS_HARDWARE : BL_GPU_CLASS_NONE;
    case BL_XID_SIDE_DRIVER:
        return ends_something ? BL_GPU_CLASS_DRIVER : BL_GPU_CLASS_NONE;
    case BL_XID_SIDE_LINK:
        return ends_something || row->repeat == BL_XID_REPEAT_LINK_SUB_CODE ? BL_GPU_CLASS_LINK : BL_GPU_CLASS_NONE;
    case BL_XID_SIDE_APPLICATION:
    case BL_XID_SIDE_UNKNOWN: /* either side: an application is asked first */
        return ends_something ? BL_GPU_CLASS_APPLICATION : BL_GPU_CLASS_NONE;
    default:
        return BL_GPU_CLASS_NONE;
    }
}

static bl_gpu_class class_of_xid(int64_t code)
{
    const bl_xid_row *row = bl_xid_find(code);
    if (code == 43 || code == 108) /* alone they mean the application: a fault, a bad peer mapping */
        return BL_GPU_CLASS_APPLICATION;
    if (bl_gpu_code_settles(code) || code == 154)
        return BL_GPU_CLASS_HARDWARE;
    return row == NULL || bl_gpu_code_is_echo(code) ? BL_GPU_CLASS_NONE : class_of_row(row);
}

bl_gpu_class bl_gpu_class_of(bl_kernel_kind kind, int64_t code, bl_mmu_type fault_type)
{
    switch (kind) {
    case BL_KERNEL_XID:
    case BL_KERNEL_OFF_BUS:
        return fault_type == BL_MMU_POISONED ? BL_GPU_CLASS_HARDWARE : class_of_xid(code);
    case BL_KERNEL_RM_INIT:
        return BL_GPU_CLASS_DRIVER;
    case BL_KERNEL_AMD_FAULT:
        return BL_GPU_CLASS_APPLICATION;
    default:
        return BL_GPU_CLASS_NONE;
    }
}

int bl_gpu_weight(bl_gpu_class class, int64_t code)
{
    static const int ranks[] = {
        [BL_GPU_CLASS_NONE] = 0,    [BL_GPU_CLASS_APPLICATION] = 1, [BL_GPU_CLASS_DRIVER] = 2,
        [BL_GPU_CLASS_SUSPECT] = 3, [BL_GPU_CLASS_LINK] = 4,        [BL_GPU_CLASS_HARDWARE] = 5,
    };
    const bl_xid_row *row = bl_xid_find(code);
    int severity = row == NULL ? 0 : (int)row->severity;
    return ranks[class] * 1000 + (bl_gpu_code_settles(code) ? 100 : 0) + severity * 10;
}
