/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memfd_create */
#include "device/sim/arena.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/checked.h"

/* Small blocks are carved from chunks.  The first and the last chunk of a range are never given out: what leaves a block
 * does not leave the range before it meets them. */
enum { CHUNK = 1 << 20, LARGEST_SMALL = CHUNK / 4, GRAIN = 64 };
enum { LEAST_BYTES = 16 << 20 };

static int64_t page_bytes(void) { return sysconf(_SC_PAGESIZE); }

static int64_t round_up(int64_t n, int64_t grain) { return (n + grain - 1) / grain * grain; }

/* ---- the two ranges -------------------------------------------------------------------------------------------------- */

static bool is_limited(int what, int64_t *limit)
{
    struct rlimit now;
    if (getrlimit(what, &now) != 0 || now.rlim_cur == RLIM_INFINITY || now.rlim_cur > INT64_MAX)
        return false;
    *limit = (int64_t)now.rlim_cur;
    return true;
}

/* Bytes that leave most of a limited address space to the rest of the program. */
static int64_t modest_bytes(int64_t n_bytes)
{
    int64_t limit;
    if (is_limited(RLIMIT_AS, &limit))
        n_bytes = bl_min_i64(n_bytes, limit / 8);
    if (is_limited(RLIMIT_FSIZE, &limit))
        n_bytes = bl_min_i64(n_bytes, limit);
    return n_bytes / CHUNK * CHUNK;
}

/* A file that grows past its limit would be a signal. */
static bool size_file(int file, int64_t n_bytes)
{
    int64_t limit;
    if (is_limited(RLIMIT_FSIZE, &limit) && n_bytes > limit) {
        errno = EFBIG;
        return false;
    }
    return ftruncate(file, n_bytes) == 0;
}

static bool reserve(bl_sim_arena *arena, int file, int64_t n_bytes)
{
    size_t size;
    if (!bl_checked_size(n_bytes, &size) || !size_file(file, n_bytes))
        return false;
    char *device = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (device == MAP_FAILED)
        return false;
    char *alias = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (alias == MAP_FAILED) {
        (void)munmap(device, size);
        return false;
    }
    (void)madvise(alias, size, MADV_DONTDUMP);
    arena->device = device;
    arena->alias = alias;
    arena->n_bytes = n_bytes;
    return true;
}

static void release(bl_sim_arena *arena)
{
    if (arena->n_bytes > 0) {
        (void)munmap(arena->device, (size_t)arena->n_bytes);
        (void)munmap(arena->alias, (size_t)arena->n_bytes);
    }
    arena->n_bytes = 0;
}

/* As much as is wanted; where that is too much, a quarter of what is there: the rest is for the rest of the program. */
static bool reserve_some(bl_sim_arena *arena, int file, int64_t *wanted)
{
    if (reserve(arena, file, *wanted))
        return true;
    for (*wanted /= 2; *wanted >= LEAST_BYTES; *wanted /= 2)
        if (reserve(arena, file, *wanted / CHUNK * CHUNK)) {
            release(arena);
            *wanted = bl_max_i64(*wanted / 4 / CHUNK * CHUNK, LEAST_BYTES);
            return reserve(arena, file, *wanted);
        }
    *wanted = LEAST_BYTES;
    return false;
}

belay_code bl_sim_arena_open(bl_sim_arena *arena, int64_t n_bytes, bool is_fixed, const char *name, bl_error *error)
{
    *arena = (bl_sim_arena){.next = CHUNK};
    int64_t wanted = is_fixed ? round_up(n_bytes, CHUNK) : bl_max_i64(modest_bytes(n_bytes), LEAST_BYTES);
    int file = memfd_create("belay-sim", MFD_CLOEXEC);
    bool is_reserved = file >= 0 && (is_fixed ? reserve(arena, file, wanted) : reserve_some(arena, file, &wanted));
    int reason = errno;
    char words[128];
    if (file >= 0)
        (void)close(file);
    if (is_reserved && bl_sim_ranges_add(&arena->pages, (bl_sim_range){CHUNK, arena->n_bytes - CHUNK}))
        return BELAY_OK;
    bl_sim_arena_close(arena);
    bool is_file = !is_reserved && (file < 0 || reason == EFBIG);
    bl_error_set(error, BELAY_MEM_EXHAUSTED,
                 is_file ? "no file for the memory of device %s: %lld MiB"
                         : "no address space for device %s: 2 x %lld MiB",
                 name, (long long)(wanted >> 20));
    bl_error_fact(error, "system: %s", bl_error_errno(is_reserved ? ENOMEM : reason, words));
    bl_error_advise(error, !is_file ? "Raise the limit (ulimit -v), or set BELAY_SIM_BYTES to less."
                           : file < 0
                               ? "Raise the limit on open files (ulimit -n), or close files that are done."
                               : "Raise the limit on a file's size (ulimit -f), or set BELAY_SIM_BYTES to less.");
    return BELAY_MEM_EXHAUSTED;
}

void bl_sim_arena_close(bl_sim_arena *arena)
{
    release(arena);
    bl_sim_ranges_fini(&arena->pages);
    bl_sim_ranges_fini(&arena->small);
    *arena = (bl_sim_arena){0};
}

/* ---- addresses ------------------------------------------------------------------------------------------------------- */

bool bl_sim_arena_holds(const bl_sim_arena *arena, const void *address, int64_t n_bytes)
{
    uintptr_t offset = (uintptr_t)address - (uintptr_t)arena->device;
    return n_bytes >= 0 && offset <= (uintptr_t)arena->n_bytes &&
           (uintptr_t)n_bytes <= (uintptr_t)arena->n_bytes - offset;
}

void *bl_sim_arena_alias(const bl_sim_arena *arena, const void *address)
{
    if (!bl_sim_arena_holds(arena, address, 0))
        return (void *)(uintptr_t)address;
    return arena->alias + ((uintptr_t)address - (uintptr_t)arena->device);
}

uint64_t bl_sim_arena_device(const bl_sim_arena *arena, uint64_t address)
{
    uint64_t offset = address - (uint64_t)(uintptr_t)arena->alias;
    return offset < (uint64_t)arena->n_bytes ? (uint64_t)(uintptr_t)arena->device + offset : address;
}

static int64_t offset_of(const bl_sim_arena *arena, const void *address)
{
    return (int64_t)((uintptr_t)address - (uintptr_t)arena->device);
}

/* ---- pages ----------------------------------------------------------------------------------------------------------- */

static bool open_pages(const bl_sim_arena *arena, int64_t begin, int64_t n_bytes)
{
    return mprotect(arena->alias + begin, (size_t)n_bytes, PROT_READ | PROT_WRITE) == 0;
}

/* The file's pages are freed first: that needs them writable. */
static void close_pages(const bl_sim_arena *arena, int64_t begin, int64_t n_bytes)
{
    (void)madvise(arena->alias + begin, (size_t)n_bytes, MADV_REMOVE);
    (void)mprotect(arena->alias + begin, (size_t)n_bytes, PROT_NONE);
}

/* Accessible pages in a new region; -1 when there are none. */
static int64_t take_region(bl_sim_arena *arena, int64_t n_bytes, int64_t alignment)
{
    int64_t begin = bl_sim_ranges_take(&arena->pages, n_bytes, alignment, 0);
    if (begin >= 0 && !open_pages(arena, begin, n_bytes)) {
        bl_sim_ranges_give(&arena->pages, (bl_sim_range){begin, begin + n_bytes});
        return -1;
    }
    return begin;
}

static void give_region(bl_sim_arena *arena, int64_t begin, int64_t n_bytes)
{
    close_pages(arena, begin, n_bytes);
    bl_sim_ranges_give(&arena->pages, (bl_sim_range){begin, begin + n_bytes});
}

/* Between pages that nobody is given. */
static void *take_pages(void *state, int64_t n_bytes)
{
    bl_sim_arena *arena = state;
    int64_t page = page_bytes();
    if (n_bytes <= 0 || n_bytes > arena->n_bytes - 2 * page)
        return NULL;
    int64_t inner = round_up(n_bytes, page), all = inner + 2 * page;
    int64_t begin = bl_sim_ranges_take(&arena->pages, all, page, arena->next);
    if (begin < 0)
        return NULL;
    if (!open_pages(arena, begin + page, inner)) {
        bl_sim_ranges_give(&arena->pages, (bl_sim_range){begin, begin + all});
        return NULL;
    }
    arena->next = begin + all;
    return arena->device + begin + page;
}

static void give_pages(void *state, void *pages, int64_t n_bytes)
{
    bl_sim_arena *arena = state;
    int64_t page = page_bytes(), inner = round_up(n_bytes, page), begin = offset_of(arena, pages);
    close_pages(arena, begin, inner);
    bl_sim_ranges_give(&arena->pages, (bl_sim_range){begin - page, begin + inner + page});
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------- */

static int64_t take_small(bl_sim_arena *arena, int64_t n_bytes)
{
    int64_t begin = bl_sim_ranges_take(&arena->small, n_bytes, GRAIN, 0);
    if (begin >= 0)
        return begin;
    int64_t chunk = take_region(arena, CHUNK, CHUNK);
    if (chunk < 0)
        return -1;
    if (!bl_sim_ranges_add(&arena->small, (bl_sim_range){chunk, chunk + CHUNK})) {
        give_region(arena, chunk, CHUNK);
        return -1;
    }
    return bl_sim_ranges_take(&arena->small, n_bytes, GRAIN, 0);
}

/* Chunks that are free as a whole go back. */
static void give_small(bl_sim_arena *arena, int64_t begin, int64_t n_bytes)
{
    bl_sim_range free_range = bl_sim_ranges_give(&arena->small, (bl_sim_range){begin, begin + n_bytes});
    for (int64_t chunk = round_up(free_range.begin, CHUNK); chunk + CHUNK <= free_range.end; chunk += CHUNK)
        if (bl_sim_ranges_remove(&arena->small, (bl_sim_range){chunk, chunk + CHUNK}))
            give_region(arena, chunk, CHUNK);
}

static int64_t block_bytes(int64_t n_bytes)
{
    return n_bytes > LARGEST_SMALL ? round_up(n_bytes, page_bytes()) : round_up(bl_max_i64(n_bytes, 1), GRAIN);
}

static void *take(void *state, int64_t n_bytes)
{
    bl_sim_arena *arena = state;
    if (n_bytes < 0 || n_bytes > arena->n_bytes)
        return NULL;
    int64_t size = block_bytes(n_bytes);
    int64_t begin = size > LARGEST_SMALL ? take_region(arena, size, page_bytes()) : take_small(arena, size);
    return begin >= 0 ? arena->device + begin : NULL;
}

static void give(void *state, void *block, int64_t n_bytes)
{
    bl_sim_arena *arena = state;
    int64_t size = block_bytes(n_bytes);
    if (size > LARGEST_SMALL)
        give_region(arena, offset_of(arena, block), size);
    else
        give_small(arena, offset_of(arena, block), size);
}

static void *host(void *state, void *address) { return bl_sim_arena_alias(state, address); }

bl_memory_source bl_sim_arena_source(bl_sim_arena *arena)
{
    return (bl_memory_source){arena, take, give, take_pages, give_pages, host};
}
