/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/blas.h"

#include <cblas.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/checked.h"

#ifdef BL_HAVE_OPENBLAS

/* Working memory that OpenBLAS maps for each caller, the largest of its x86-64 builds (BUFFER_SIZE 32 << 22).  When
 * mmap refuses it, OpenBLAS tries for ever. */
enum { CALLER_MIB = 128 };
/* Address space that stays for the program behind it: stacks of threads, the library's own tables. */
enum { SPARE_MIB = 32 };

static int callers_ready; /* OpenBLAS keeps what it has mapped */

/* One product in each of the threads at once, so that each gets its memory. */
static void warm_up(int threads)
{
    enum { SIDE = 64 };
    static const float zeros[SIDE * SIDE];
#pragma omp parallel num_threads(threads)
    {
        float y[SIDE * SIDE];
#pragma omp barrier
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, zeros, SIDE, zeros, SIDE, 0, y,
                    SIDE);
    }
}

static belay_code probe(int callers, bl_error *error)
{
    size_t n_bytes = ((size_t)callers * CALLER_MIB + SPARE_MIB) << 20;
    void *room = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        bl_error_set(error, BELAY_MEM_EXHAUSTED, "the BLAS cannot have its working memory, %zu MiB for %d threads",
                     n_bytes >> 20, callers);
        bl_error_fact(error, "what it needs is address space; ulimit -v or a container may limit it");
        bl_error_advise(error, "Raise the limit (ulimit -v), or compute on fewer threads.");
        return BELAY_MEM_EXHAUSTED;
    }
    munmap(room, n_bytes);
    return BELAY_OK;
}

belay_code bl_cpu_blas_open(int threads, bl_error *error)
{
    threads = threads < BL_CPU_MOST_CALLERS ? threads : BL_CPU_MOST_CALLERS;
    int ready = __atomic_load_n(&callers_ready, __ATOMIC_ACQUIRE);
    if (threads <= ready)
        return BELAY_OK;
    TRY(probe(threads - ready, error));
    openblas_set_num_threads(1);
    warm_up(threads);
    __atomic_store_n(&callers_ready, threads, __ATOMIC_RELEASE);
    return BELAY_OK;
}

const char *bl_cpu_blas_describe(void) { return openblas_get_config(); }

#else

belay_code bl_cpu_blas_open(int threads, bl_error *error)
{
    (void)threads, (void)error;
    return BELAY_OK;
}

const char *bl_cpu_blas_describe(void) { return "a CBLAS of another vendor"; }

#endif
