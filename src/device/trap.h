/* SPDX-License-Identifier: Apache-2.0 */
/* Illegal accesses as ordinary returns: a handler of SIGSEGV and SIGBUS for our own addresses.
 *
 *   a thread in bl_trap_run        any illegal access ends the body, and bl_trap_run returns false
 *   any other, in a range of ours  the touch is noted, and a poisoned page is laid there, so that the access returns; a
 *                                  write goes into that page and is lost.  bl_trap_take tells and takes the page away
 *   all else                       goes to the handler that was there before, or has its default effect
 *
 * The handler is installed when first needed and never removed; where someone has put another one over it, that one is
 * asked for what is not ours.  A signal that a process sent is no access.  Every function may be called by any thread. */
#ifndef BL_DEVICE_TRAP_H
#define BL_DEVICE_TRAP_H

#include "device/device.h"

enum { BL_TRAP_RANGES = 64 };

/* Of an access that ended a body: `launch` is 0, `address` is 0 where the machine does not tell it. */
typedef bl_access bl_trap_access;

/* Runs body(state): true when it came to its end.  An illegal access in it by this thread ends it where it stands (what
 * it holds it keeps: locks, memory), fills `out` and gives false.  Bodies nest. */
BL_MUST_USE bool bl_trap_run(void (*body)(void *state), void *state, bl_trap_access *out);

/* Whether this process can read the byte at an address now, whoever owns it.  The system answers, where a look would be a
 * signal; where it does not answer, nothing is taken for readable. */
BL_MUST_USE bool bl_trap_is_readable(uint64_t address);

/* Addresses that only kernels may use: whole pages, mapped inaccessible (anonymous, private, without reserve), which is
 * what they are again after each bl_trap_take.  False when there are BL_TRAP_RANGES already, or the range is none. */
BL_MUST_USE bool bl_trap_range_add(void *begin, size_t n_bytes);
/* Before the range is unmapped.  Touches that were not told are forgotten. */
void bl_trap_range_remove(const void *begin);

extern int bl_trap_n_noted; /* ranges with touches */

/* Touches of a range that came since it was last taken. */
typedef struct bl_trap_touch {
    const void *range; /* its begin */
    uint64_t address;  /* of the first touch */
    uint64_t count;    /* how many were caught: a page that lies there already catches no more */
    bool is_write, is_write_known;
} bl_trap_touch;

/* Whether there may be touches to take: one load. */
static inline bool bl_trap_has_touches(void) { return __atomic_load_n(&bl_trap_n_noted, __ATOMIC_RELAXED) != 0; }

/* The touches of one range, or of the first that has any when `range` is NULL; false, at the price of one load, when
 * there are none. */
bool bl_trap_take(const void *range, bl_trap_touch *out);

#endif
