/* SPDX-License-Identifier: Apache-2.0 */
/* The BLAS under the panels: one thread a call, and proved to have its memory before the first call. */
#ifndef BL_DEVICE_CPU_BLAS_H
#define BL_DEVICE_CPU_BLAS_H

#include <stdbool.h>

#include "base/error.h"

/* Callers at once: builds of OpenBLAS have places for at least 50, and past them it gives up. */
enum { BL_CPU_MOST_CALLERS = 48 };

/* Readies the BLAS for that many threads: each caller gets its working memory now, since a BLAS that finds none later
 * hangs or aborts.  mem.exhausted when the system does not give that much address space. */
BL_MUST_USE belay_code bl_cpu_blas_open(int threads, bl_error *error);

/* Readies it for one caller more than the most threads that are asked for before or after: all software devices together
 * are one. */
BL_MUST_USE belay_code bl_cpu_blas_open_beside(bl_error *error);

/* Whether that has succeeded in this process.  If not, a thread that OpenBLAS started when it was loaded may be waiting
 * for memory for ever, and so may the exit handlers that join it. */
bool bl_cpu_blas_is_open(void);

/* The library's name, version and kind of processor; static text. */
const char *bl_cpu_blas_describe(void);

#endif
