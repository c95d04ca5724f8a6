/* SPDX-License-Identifier: Apache-2.0 */
/* The host's memory as a pool's source: its heap, and pages of its own between inaccessible ones.  Pages that were
 * given back are no memory any more, but their addresses stay out of use for a while, so that a late touch of them meets
 * nobody else's bytes. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/pool.h"

enum { BLOCK_ALIGNMENT = 64 };

static void *take(void *state, int64_t n_bytes)
{
    (void)state;
    return bl_alloc_aligned(n_bytes, BLOCK_ALIGNMENT);
}

static void give(void *state, void *block, int64_t n_bytes)
{
    (void)state, (void)n_bytes;
    bl_free(block);
}

/* Bytes of the mapping around pages: they and a page on each side. */
static bool mapping_bytes(int64_t n_bytes, size_t *all)
{
    int64_t page = sysconf(_SC_PAGESIZE), sum;
    return n_bytes > 0 && n_bytes % page == 0 && bl_checked_add(n_bytes, 2 * page, &sum) && bl_checked_size(sum, all);
}

static void *take_pages(void *state, int64_t n_bytes)
{
    (void)state;
    size_t all;
    if (!mapping_bytes(n_bytes, &all))
        return NULL;
    char *begin = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED)
        return NULL;
    char *pages = begin + sysconf(_SC_PAGESIZE);
    if (mprotect(pages, (size_t)n_bytes, PROT_READ | PROT_WRITE) != 0) {
        (void)munmap(begin, all);
        return NULL;
    }
    return pages;
}

static void give_pages(void *state, void *pages, int64_t n_bytes)
{
    (void)state;
    size_t all;
    if (mapping_bytes(n_bytes, &all))
        (void)munmap((char *)pages - sysconf(_SC_PAGESIZE), all);
}

static void *host(void *state, void *address)
{
    (void)state;
    return address;
}

const bl_memory_source bl_memory_source_host = {NULL, take, give, take_pages, give_pages, host};
