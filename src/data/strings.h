/* SPDX-License-Identifier: Apache-2.0 */
/* A set of byte strings, numbered in the order in which they were first added, each with a count.  One arena, one array
 * of ends and one hash table; nothing moves a number once given.  Zero-initialised is a valid empty set.  Reading from
 * several threads is fine while nobody adds. */
#ifndef BL_DATA_STRINGS_H
#define BL_DATA_STRINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"

typedef struct bl_data_strings {
    char *bytes; /* string i ends in a NUL at ends[i]; it starts one after the NUL before */
    int64_t n_bytes, bytes_capacity;
    int64_t *ends, *counts;
    int64_t n, ends_capacity, counts_capacity;
    uint32_t *slots; /* open addressing: number + 1, 0 is free */
    int64_t n_slots; /* 0 or a power of two above twice n */
} bl_data_strings;

/* The number of a string, or -1. */
int64_t bl_data_strings_find(const bl_data_strings *set, const char *bytes, int64_t n_bytes);

/* The number of a string, which is added with count 0 if it was not there; -1 when there is no memory (the set is then
 * as before) or 2^31 strings are in it. */
BL_MUST_USE int64_t bl_data_strings_add(bl_data_strings *set, const char *bytes, int64_t n_bytes);

/* String `number`, NUL-ended; its length when `n_bytes` is not NULL. */
const char *bl_data_strings_get(const bl_data_strings *set, int64_t number, int64_t *n_bytes);

/* Byte order, as memcmp, the shorter first. */
int bl_data_strings_compare(const char *a, int64_t n_a, const char *b, int64_t n_b);

void bl_data_strings_fini(bl_data_strings *set);

#endif
