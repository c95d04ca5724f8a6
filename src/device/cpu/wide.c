/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/wide.h"

float *bl_cpu_wide_take(const bl_cpu *cpu, const bl_operand *operand, int64_t n)
{
    float *wide = bl_pool_take(cpu->scratch, n * (int64_t)sizeof(float));
    for (int64_t i = 0; wide != NULL && operand != NULL && i < n; i++)
        wide[i] = operand->dtype == BELAY_BF16 ? bl_from_bf16(((const bl_bf16 *)operand->data)[i])
                                               : bl_from_f16(((const bl_f16 *)operand->data)[i]);
    return wide;
}

void bl_cpu_wide_give(const bl_cpu *cpu, const bl_operand *operand, float *wide, int64_t n)
{
    for (int64_t i = 0; operand != NULL && i < n; i++)
        if (operand->dtype == BELAY_BF16)
            ((bl_bf16 *)operand->data)[i] = bl_to_bf16(wide[i]);
        else
            ((bl_f16 *)operand->data)[i] = bl_to_f16(wide[i]);
    bl_pool_give(cpu->scratch, wide, n * (int64_t)sizeof(float));
}
