/* SPDX-License-Identifier: Apache-2.0 */
/* How rooms without a context hand up what went wrong: a code and three texts of fixed size, so that telling of a
 * failure never needs memory.  It prints as
 *
 *   belay: <what> (<code name>)
 *       <fact>
 *       try: <advice>
 *
 * A function that takes a `bl_error *` fills it exactly when it returns something other than BELAY_OK.  The pointer may
 * be NULL: then only the code is told. */
#ifndef BL_BASE_ERROR_H
#define BL_BASE_ERROR_H

#include <belay/fault.h>

#include "base/attributes.h"

/* A row of the list of faults: neither BELAY_OK nor a number that is no code. */
bool bl_error_is_code(belay_code code);

typedef struct bl_error {
    belay_code code;
    char what[384];   /* the headline, without the code */
    char facts[1024]; /* lines, each ended by '\n' */
    char advice[256]; /* empty: the code's own advice */
} bl_error;

/* Starts an error: sets code and headline, clears the rest; returns `code`, so that callers can return it. */
belay_code bl_error_set(bl_error *error, belay_code code, const char *format, ...) BL_PRINTF(3, 4);

#ifdef __clang_analyzer__
/* Tells the analyzer, which cannot see into error.c, that what is returned is `code` and never BELAY_OK. */
#define bl_error_set(error, code, ...) ((void)bl_error_set((error), (code), __VA_ARGS__), (code))
#endif

/* Adds one indented fact; what does not fit is cut at a character and ends in "...". */
void bl_error_fact(bl_error *error, const char *format, ...) BL_PRINTF(2, 3);

/* Replaces the code's advice. */
void bl_error_advise(bl_error *error, const char *format, ...) BL_PRINTF(2, 3);

/* The advice in force: the error's own or its code's. */
const char *bl_error_advice(const bl_error *error);

/* Names of errno values as sentences ("No such file or directory"), thread-safe. */
const char *bl_error_errno(int number, char buffer[128]);

#endif
