/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/wide.h"

/* A loop a dtype, over pointers of its own, so that each vectorises. */
static void widen(const bl_operand *operand, float *restrict wide, int64_t n)
{
    const bl_bf16 *bf16 = operand->data;
    const bl_f16 *f16 = operand->data;
    if (operand->dtype == BELAY_BF16)
        for (int64_t i = 0; i < n; i++)
            wide[i] = bl_from_bf16(bf16[i]);
    else
        for (int64_t i = 0; i < n; i++)
            wide[i] = bl_from_f16(f16[i]);
}

static void narrow(const bl_operand *operand, const float *restrict wide, int64_t n)
{
    bl_bf16 *restrict bf16 = operand->data;
    bl_f16 *restrict f16 = operand->data;
    if (operand->dtype == BELAY_BF16)
        for (int64_t i = 0; i < n; i++)
            bf16[i] = bl_to_bf16(wide[i]);
    else
        for (int64_t i = 0; i < n; i++)
            f16[i] = bl_to_f16(wide[i]);
}

float *bl_cpu_wide_take(const bl_cpu *cpu, const bl_operand *operand, int64_t n)
{
    float *wide = bl_pool_take(cpu->scratch, n * (int64_t)sizeof(float));
    if (wide != NULL && operand != NULL)
        widen(operand, wide, n);
    return wide;
}

void bl_cpu_wide_give(const bl_cpu *cpu, const bl_operand *operand, float *wide, int64_t n)
{
    if (operand != NULL)
        narrow(operand, wide, n);
    bl_pool_give(cpu->scratch, wide, n * (int64_t)sizeof(float));
}
