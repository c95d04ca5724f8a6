/* SPDX-License-Identifier: Apache-2.0 */
/* The host's memory as a pool's source: its heap, and pages of its own between inaccessible ones.  Pages that were
 * given back are no memory any more, but their addresses rest for a while before anything else may lie there, so that a
 * late touch of them meets nobody else's bytes.  A part of the process's mappings is left to everything else in it. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/pool.h"

enum { BLOCK_ALIGNMENT = 64, N_RESTING = 256, USUAL_MAPPINGS = 65530 };

static const size_t most_resting = (size_t)1 << 36;

typedef struct range {
    char *begin;
    size_t n_bytes;
} range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* free in a forked child, whoever held it */
static pthread_once_t watched = PTHREAD_ONCE_INIT;
static range resting[N_RESTING]; /* a ring, oldest first */
static int first_resting, n_resting;
static size_t resting_bytes;
static int64_t n_live, most_live; /* blocks of pages */

static void free_in_child(void) { (void)pthread_mutex_init(&lock, NULL); }

static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, free_in_child); }

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

/* Blocks that may live at once: each costs two mappings (its pages, and a gap that it shares with its neighbour), a
 * resting range one at most, and an eighth of all is left alone. */
static int64_t live_limit(void)
{
    long long mappings = USUAL_MAPPINGS;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    if (file != NULL) {
        if (fscanf(file, "%lld", &mappings) != 1 || mappings < 0)
            mappings = USUAL_MAPPINGS;
        (void)fclose(file);
    }
    return bl_max_i64(0, (mappings - mappings / 8 - N_RESTING) / 2);
}

static void end_oldest_rest(void)
{
    range *oldest = &resting[first_resting];
    (void)munmap(oldest->begin, oldest->n_bytes);
    resting_bytes -= oldest->n_bytes;
    first_resting = (first_resting + 1) % N_RESTING;
    n_resting--;
}

/* Takes the memory away and keeps the addresses. */
static void rest(char *begin, size_t n_bytes)
{
    const int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (n_bytes > most_resting || mmap(begin, n_bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED) {
        (void)munmap(begin, n_bytes);
        return;
    }
    while (n_resting == N_RESTING || (n_resting > 0 && resting_bytes > most_resting - n_bytes))
        end_oldest_rest();
    resting[(first_resting + n_resting++) % N_RESTING] = (range){begin, n_bytes};
    resting_bytes += n_bytes;
}

/* Pages between inaccessible ones, or NULL. */
static char *map_pages(int64_t n_bytes, size_t all)
{
    char *begin = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED)
        return NULL;
    char *pages = begin + sysconf(_SC_PAGESIZE);
    if (mprotect(pages, (size_t)n_bytes, PROT_READ | PROT_WRITE) == 0)
        return pages;
    (void)munmap(begin, all);
    return NULL;
}

static void *take_pages(void *state, int64_t n_bytes)
{
    (void)state;
    size_t all;
    if (!mapping_bytes(n_bytes, &all))
        return NULL;
    (void)pthread_once(&watched, watch_forks);
    (void)pthread_mutex_lock(&lock);
    if (most_live == 0)
        most_live = live_limit();
    char *pages = n_live < most_live ? map_pages(n_bytes, all) : NULL;
    if (pages == NULL && n_live < most_live && n_resting > 0) {
        while (n_resting > 0)
            end_oldest_rest();
        pages = map_pages(n_bytes, all);
    }
    n_live += pages != NULL;
    (void)pthread_mutex_unlock(&lock);
    return pages;
}

static void give_pages(void *state, void *pages, int64_t n_bytes)
{
    (void)state;
    size_t all;
    if (!mapping_bytes(n_bytes, &all))
        return;
    (void)pthread_mutex_lock(&lock);
    rest((char *)pages - sysconf(_SC_PAGESIZE), all);
    n_live--;
    (void)pthread_mutex_unlock(&lock);
}

static void *host(void *state, void *address)
{
    (void)state;
    return address;
}

const bl_memory_source bl_memory_source_host = {NULL, take, give, take_pages, give_pages, host};
