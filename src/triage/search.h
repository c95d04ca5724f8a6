/* SPDX-License-Identifier: Apache-2.0 */
/* Between scan.c and the engines only: all places where any of many literals stands. */
#ifndef BL_TRIAGE_SEARCH_H
#define BL_TRIAGE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct bl_literals {
    const char *const *list;
    const int64_t *n_bytes;
    int n;
    int64_t shortest, longest;
} bl_literals;

/* Literal `number` stands in the bytes and ends in front of byte `end`.  Hits of one line come before those of the
 * lines behind it; within a line in any order. */
typedef void (*bl_search_hit)(void *state, int number, int64_t end);

/* libhs, where the build has it and the processor fits; NULL otherwise, also without memory. */
typedef struct bl_search_hs bl_search_hs;
bl_search_hs *bl_search_hs_new(const bl_literals *literals);
void bl_search_hs_free(bl_search_hs *search);
const char *bl_search_hs_describe(const bl_search_hs *search);
void bl_search_hs_run(bl_search_hs *search, const char *bytes, int64_t n_bytes, bl_search_hit hit, void *state);

/* Our own; keeps pointers to the literals.  NULL without memory. */
typedef struct bl_search_plain bl_search_plain;
bl_search_plain *bl_search_plain_new(const bl_literals *literals);
void bl_search_plain_free(bl_search_plain *search);
void bl_search_plain_run(const bl_search_plain *search, const char *bytes, int64_t n_bytes, bl_search_hit hit,
                         void *state);

/* Tells two lists of literals apart. */
uint64_t bl_search_key(const bl_literals *literals);

/* What tools/anchors/ made at build time of the anchors of that key; no bytes where it made nothing. */
typedef struct bl_search_database {
    const unsigned char *bytes;
    int64_t n_bytes;
    uint64_t key;
} bl_search_database;
extern const bl_search_database bl_search_built;

#endif
