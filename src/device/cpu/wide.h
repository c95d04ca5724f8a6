/* SPDX-License-Identifier: Apache-2.0 */
/* 16-bit matrices as f32, for the BLAS: in memory of the device's scratch while a kernel runs. */
#ifndef BL_DEVICE_CPU_WIDE_H
#define BL_DEVICE_CPU_WIDE_H

#include "device/cpu/kernel.h"

/* n numbers of an operand, or room for them where it is NULL; NULL when memory ends. */
float *bl_cpu_wide_take(const bl_cpu *cpu, const bl_operand *operand, int64_t n);
/* Gives the memory back (NULL: nothing was taken); rounds the numbers into the operand first where it is not NULL. */
void bl_cpu_wide_give(const bl_cpu *cpu, const bl_operand *operand, float *wide, int64_t n);

#endif
