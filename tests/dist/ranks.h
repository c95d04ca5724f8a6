/* SPDX-License-Identifier: Apache-2.0 */
/* What programs with ranks share: every rank runs the same program, and asserts what it itself was told. */
#ifndef TESTS_DIST_RANKS_H
#define TESTS_DIST_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <belay/dist.h>

#include "support/told.h"

/* A context on cpu that tells to `told`, and a group bound to cpu; the timeout in seconds, 0: sixty. */
typedef struct ranks {
    belay_context *context;
    belay_group *group;
    int rank, size;
} ranks;
ranks ranks_open(double timeout);
/* The same, not bound. */
ranks ranks_open_unbound(double timeout);
/* Asserts that nothing was told and closes both with status 0. */
void ranks_close(ranks *r);

/* Asserts that exactly these words were told, where figures of seconds are written "T s", and forgets them. */
void ranks_expect(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The text with its figures of seconds written so. */
void ranks_steady(const char *text, char *out, size_t size);

/* Where a context is at its beginning, with this rank, as the last but one line of a paragraph. */
const char *ranks_start(const ranks *r);

/* This process's number in the list, from its environment, before any group; -1 where nothing started ranks. */
int ranks_self(void);

#endif
