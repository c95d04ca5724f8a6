/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static _Atomic int64_t fail_at = -1;
static _Atomic int64_t asked;
static _Atomic bool failed;

void bl_memory_fail_at(int64_t n)
{
    atomic_store(&asked, 0);
    atomic_store(&failed, false);
    atomic_store(&fail_at, n);
}

int64_t bl_memory_asked(void) { return atomic_load(&asked); }
bool bl_memory_failed(void) { return atomic_load(&failed); }

/* Counts one request; true when it is the one that must fail.  Outside of a sweep this is a single load. */
static bool must_fail(void)
{
    int64_t n = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (BL_LIKELY(n < 0))
        return false;
    if (atomic_fetch_add(&asked, 1) != n)
        return false;
    atomic_store(&failed, true);
    return true;
}

static bool byte_count(int64_t count, int64_t size, size_t *bytes)
{
    int64_t product;
    return count >= 0 && size >= 0 && bl_checked_mul(count, size, &product) && bl_checked_size(product, bytes);
}

void *bl_alloc(int64_t count, int64_t size)
{
    size_t bytes;
    if (must_fail() || !byte_count(count, size, &bytes))
        return NULL;
    return calloc(1, bytes > 0 ? bytes : 1);
}

void *bl_realloc(void *old, int64_t count, int64_t size)
{
    size_t bytes;
    if (must_fail() || !byte_count(count, size, &bytes))
        return NULL;
    return realloc(old, bytes > 0 ? bytes : 1);
}

void *bl_alloc_aligned(int64_t bytes, int64_t alignment)
{
    size_t size;
    int64_t rounded;
    if (must_fail() || bytes < 0 || !bl_checked_add(bytes, alignment - 1, &rounded))
        return NULL;
    rounded -= rounded % alignment;
    if (!bl_checked_size(rounded > 0 ? rounded : alignment, &size))
        return NULL;
    return aligned_alloc((size_t)alignment, size);
}

char *bl_strndup(const char *text, int64_t n_bytes)
{
    char *copy = n_bytes < INT64_MAX ? bl_alloc(n_bytes + 1, 1) : NULL;
    if (copy != NULL && n_bytes > 0)
        memcpy(copy, text, (size_t)n_bytes);
    return copy;
}

char *bl_strdup(const char *text) { return bl_strndup(text, (int64_t)strlen(text)); }

void bl_free(void *pointer) { free(pointer); }

bool bl_grow(void *array_pointer, int64_t *capacity, int64_t wanted, int64_t element_size)
{
    if (wanted <= *capacity)
        return true;
    int64_t bigger = *capacity > 0 ? *capacity : 8;
    while (bigger < wanted)
        if (!bl_checked_mul(bigger, 2, &bigger))
            return false;
    void *old;
    memcpy(&old, array_pointer, sizeof old);
    void *grown = bl_realloc(old, bigger, element_size);
    if (grown == NULL)
        return false;
    memcpy(array_pointer, &grown, sizeof grown);
    *capacity = bigger;
    return true;
}
