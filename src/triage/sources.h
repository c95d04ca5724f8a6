/* SPDX-License-Identifier: Apache-2.0 */
/* Which files a call of explain reads: those that were named, and those in the folders that were named.  Their order
 * depends on their names alone, so that the order of the arguments changes nothing. */
#ifndef BL_TRIAGE_SOURCES_H
#define BL_TRIAGE_SOURCES_H

#include "base/error.h"
#include "base/text.h"
#include "triage/case.h"

enum { BL_SOURCES_MOST = 4096, BL_SOURCES_DEPTH = 8 };

typedef struct bl_sources {
    bl_source *list; /* paths are on the heap */
    int n;
    int64_t capacity;
} bl_sources;

/* Finds all; a file that is named twice is read once.  Files of a folder that are no logs (weights, images, archives
 * that are not read) are passed over; how many, and what a limit left out, is told as lines of `notes`.  Codes: a path
 * that is not there (file.open), mem.exhausted. */
BL_MUST_USE belay_code bl_sources_find(const char *const *paths, int n_paths, bl_sources *out, bl_text *notes,
                                       bl_error *error);
void bl_sources_fini(bl_sources *sources);

#endif
