/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that can be told to fail.  All of Belay's host allocations pass here, so that a test can fail the n-th
 * one and prove that the job ends in a named fault, without leak or crash.  Thread-safe.  Sizes are checked here:
 * count * size overflowing, or a negative one, is an allocation failure (NULL). */
#ifndef BL_BASE_MEMORY_H
#define BL_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"

/* Zeroed memory for count elements of size bytes, or NULL.  Zero bytes give a valid pointer.  Free with bl_free. */
BL_MUST_USE void *bl_alloc(int64_t count, int64_t size);

/* Grows or shrinks; new bytes are NOT zeroed.  On NULL the old block is untouched. */
BL_MUST_USE void *bl_realloc(void *old, int64_t count, int64_t size);

/* As bl_alloc, at a multiple of `alignment` (a power of two), not zeroed.  Free with bl_free. */
BL_MUST_USE void *bl_alloc_aligned(int64_t bytes, int64_t alignment);

BL_MUST_USE char *bl_strdup(const char *text);
BL_MUST_USE char *bl_strndup(const char *text, int64_t n_bytes);
void bl_free(void *pointer);

/* Makes the n-th allocation from now on fail (n from 0), and only that one; a negative n turns this off. */
void bl_memory_fail_at(int64_t n);
/* Allocations asked for since the last bl_memory_fail_at, and whether the one to fail was reached. */
int64_t bl_memory_asked(void);
bool bl_memory_failed(void);

/* Grows an array to hold at least `wanted` elements (doubling); false when there is no memory. */
BL_MUST_USE bool bl_grow(void *array_pointer, int64_t *capacity, int64_t wanted, int64_t element_size);

#endif
