/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/blas.h"

#include <cblas.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/checked.h"

#ifdef BL_HAVE_OPENBLAS

/* OpenBLAS maps this much for each caller, kept for later callers (BUFFER_SIZE of its x86-64 builds, 32 << 22 bytes).
 * When mmap refuses it, OpenBLAS tries for ever: hence the probe. */
enum { CALLER_MIB = 128 };
/* The C library maps this much for each thread that allocates, and we leave this much for the rest of the program. */
enum { ARENA_MIB = 64, SPARE_MIB = 32 };
enum { MOST_BUFFERS = 512 };

/* OpenBLAS's own, older than its version 0.2 and in every build with the soname of 0; weak, so that one without them
 * still links. */
extern void *blas_memory_alloc(int place) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

static int callers_ready;
static int most_threads = 1, callers_beside;

static int64_t stack_mib(void)
{
    struct rlimit limit;
    bool is_bounded = getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return is_bounded ? (int64_t)(limit.rlim_cur >> 20) + 1 : 8;
}

/* Threads that OpenBLAS started when it was loaded: each takes a buffer of its own, sooner or later. */
static int n_workers(void)
{
    static int workers;
    int now = openblas_get_num_threads() - 1;
    if (now > __atomic_load_n(&workers, __ATOMIC_RELAXED))
        __atomic_store_n(&workers, now, __ATOMIC_RELAXED);
    return __atomic_load_n(&workers, __ATOMIC_RELAXED);
}

/* Places for buffers: two for each thread that it was built for, at least 50. */
static int n_places(void)
{
    const char *words = strstr(openblas_get_config(), "MAX_THREADS=");
    int threads = words != NULL ? atoi(words + strlen("MAX_THREADS=")) : 0;
    return threads > 25 && threads < 10000 ? 2 * threads : 50;
}

static belay_code probe(int threads, int buffers, bl_error *error)
{
    int64_t mib = buffers * (int64_t)CALLER_MIB + (threads - 1) * (stack_mib() + ARENA_MIB) + SPARE_MIB;
    size_t n_bytes = (size_t)mib << 20;
    void *room = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        bl_error_set(error, BELAY_MEM_EXHAUSTED, "no address space for matrix products: %lld MiB for %d threads",
                     (long long)mib, threads);
        bl_error_advise(error, "Raise the limit (ulimit -v), use fewer --threads, or set OPENBLAS_NUM_THREADS=1.");
        return BELAY_MEM_EXHAUSTED;
    }
    munmap(room, n_bytes);
    return BELAY_OK;
}

/* Starts the threads, which takes stacks, and takes all buffers at once: later callers, and workers that come late, are
 * given these. */
static void take_memory(int threads, int buffers)
{
    void *buffer[MOST_BUFFERS];
    int n_running = 0;
#pragma omp parallel num_threads(threads) reduction(+ : n_running)
    n_running += 1;
    if (blas_memory_alloc == NULL || blas_memory_free == NULL || n_running == 0)
        return;
    for (int i = 0; i < buffers; i++)
        buffer[i] = blas_memory_alloc(0);
    for (int i = 0; i < buffers; i++)
        blas_memory_free(buffer[i]);
}

belay_code bl_cpu_blas_open(int threads, bl_error *error)
{
    int beside = __atomic_load_n(&callers_beside, __ATOMIC_ACQUIRE);
    int callers = threads + beside < BL_CPU_MOST_CALLERS ? threads + beside : BL_CPU_MOST_CALLERS;
    if (threads > __atomic_load_n(&most_threads, __ATOMIC_ACQUIRE))
        __atomic_store_n(&most_threads, threads, __ATOMIC_RELEASE);
    if (callers <= __atomic_load_n(&callers_ready, __ATOMIC_ACQUIRE))
        return BELAY_OK;
    int64_t buffers = bl_min_i64(callers + n_workers(), bl_min_i64(n_places() - n_workers(), MOST_BUFFERS));
    TRY(probe(threads, (int)buffers, error));
    openblas_set_num_threads(1);
    take_memory(threads, (int)buffers);
    __atomic_store_n(&callers_ready, callers, __ATOMIC_RELEASE);
    return BELAY_OK;
}

belay_code bl_cpu_blas_open_beside(bl_error *error)
{
    __atomic_store_n(&callers_beside, 1, __ATOMIC_RELEASE);
    return bl_cpu_blas_open(__atomic_load_n(&most_threads, __ATOMIC_ACQUIRE), error);
}

bool bl_cpu_blas_is_open(void) { return __atomic_load_n(&callers_ready, __ATOMIC_ACQUIRE) > 0; }

const char *bl_cpu_blas_describe(void) { return openblas_get_config(); }

#else

belay_code bl_cpu_blas_open(int threads, bl_error *error)
{
    (void)threads, (void)error;
    return BELAY_OK;
}

belay_code bl_cpu_blas_open_beside(bl_error *error)
{
    (void)error;
    return BELAY_OK;
}

bool bl_cpu_blas_is_open(void) { return true; }

const char *bl_cpu_blas_describe(void) { return "a CBLAS of another vendor"; }

#endif
