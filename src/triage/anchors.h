/* SPDX-License-Identifier: Apache-2.0 */
/* The anchors of all signals: each literal once, and which signals it opens.  The list depends on the rows alone, so the
 * one that the build made its database from is the one that the program asks for. */
#ifndef BL_TRIAGE_ANCHORS_H
#define BL_TRIAGE_ANCHORS_H

#include <stdbool.h>

#include "base/attributes.h"

typedef struct bl_anchors {
    const char **list; /* in the order of the rows */
    int n;
    /* The signals of anchor i are signals[first[i]] to signals[first[i + 1] - 1], ascending. */
    int *first, *signals;
    char *bytes;
} bl_anchors;

/* Those of the strong rows, for the fast pass, or those of the weak ones (signal.h).  False without memory; fini is then
 * still right to call. */
BL_MUST_USE bool bl_anchors_init(bl_anchors *anchors, bool of_weak_rows);
void bl_anchors_fini(bl_anchors *anchors);

#endif
