/* SPDX-License-Identifier: Apache-2.0 */
/* Which known name a mistyped one was meant to be. */
#ifndef BL_BASE_NEAREST_H
#define BL_BASE_NEAREST_H

/* The best so far of a walk over known names; all zero before the first.  `name` keeps the pointer offered. */
typedef struct bl_nearest {
    const char *name; /* NULL: none is near enough to be meant */
    int distance;
} bl_nearest;

/* Offers one known name for `typed`.  Near is: letters left out, added, changed or swapped with their neighbour in at
 * most a third of the longer one, or `typed` as the beginning of the name.  Of equally near ones the first stays. */
void bl_nearest_offer(bl_nearest *best, const char *typed, const char *known);

#endif
