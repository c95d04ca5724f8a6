/* SPDX-License-Identifier: Apache-2.0 */
/* The BLAS under the panels: one thread a call, and proved to have its memory before the first call. */
#ifndef BL_DEVICE_CPU_BLAS_H
#define BL_DEVICE_CPU_BLAS_H

#include "base/error.h"

/* Callers at once: builds of OpenBLAS have places for at least 50, Debian's for 256; past them it gives up. */
enum { BL_CPU_MOST_CALLERS = 48 };

/* Readies the BLAS for that many callers at once: each gets its working memory now, since a BLAS that finds none later
 * may hang or abort.  mem.exhausted when the system does not give that much address space. */
BL_MUST_USE belay_code bl_cpu_blas_open(int threads, bl_error *error);

/* "OpenBLAS 0.3.21 ... Haswell"; static text. */
const char *bl_cpu_blas_describe(void);

#endif
