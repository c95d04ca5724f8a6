/* SPDX-License-Identifier: Apache-2.0 */
/* Stretches of a log that only quote failures: texts that a model wrote between marks, and test runs that passed.  A
 * stretch counts when its end was seen; until then its lines are taken as they are. */
#ifndef BL_TRIAGE_QUOTES_H
#define BL_TRIAGE_QUOTES_H

#include "triage/events.h"

/* Zero-initialised before the first line of a file. */
typedef struct bl_quotes {
    int64_t sample, tests; /* line at which one began; 0: none is open */
} bl_quotes;

/* The next line, in order.  True: the lines from *from up to this one were a quotation. */
bool bl_quotes_follow(bl_quotes *quotes, const bl_line *line, int64_t *from);

/* Takes back what later lines of the same file contradict: a stall whose ranks went on, a fault that ends a process in
 * one that did not end.  Before the events are sealed. */
void bl_quotes_take_back(bl_events *events);

#endif
