/* SPDX-License-Identifier: Apache-2.0 */
/* Which use of memory comes before which, on devices whose work runs behind the host's back.
 *
 * Every stream has a vector clock: for each stream of the context, up to which command its next one is ordered behind.
 * It grows by what the program says (a later command of the same stream, an event waited for, a host that synchronised
 * and then went on), never by what happens to have ended already: so the same program is judged alike on every run.
 * (Lamport 1978; vector clocks: Fidge, Mattern 1988.)
 *
 * A storage remembers its last write and, for each stream, its last read.  A use that is not ordered behind a write, or
 * a write that is not ordered behind all reads, is a race. */
#ifndef BL_TENSOR_CLOCK_H
#define BL_TENSOR_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum { BL_MAX_STREAMS = 16, BL_STREAM_NONE = -1 };

typedef struct bl_clock {
    uint64_t upto[BL_MAX_STREAMS];
} bl_clock;

/* One use: which command of its stream, and where it came from. */
typedef struct bl_use {
    uint64_t number; /* 0: none */
    uint64_t launch; /* serial; 0: a copy */
    uint32_t site;   /* in the journal's sites */
} bl_use;

typedef struct bl_uses {
    int writer;         /* stream of the last write */
    bool are_inherited; /* from the memory's last tenant */
    bl_use write;
    bl_use read[BL_MAX_STREAMS];
} bl_uses;

static inline void bl_clock_join(bl_clock *into, const bl_clock *from)
{
    for (int s = 0; s < BL_MAX_STREAMS; s++)
        into->upto[s] = from->upto[s] > into->upto[s] ? from->upto[s] : into->upto[s];
}

static inline bool bl_clock_is_behind(const bl_clock *clock, int stream, uint64_t number)
{
    return number <= clock->upto[stream];
}

/* The first use that a command ordered behind `clock` would race with: its stream, or BL_STREAM_NONE. */
int bl_uses_conflict(const bl_uses *uses, const bl_clock *clock, bool writes, const bl_use **use);
/* Whether all uses are ordered behind `clock`. */
bool bl_uses_are_behind(const bl_uses *uses, const bl_clock *clock);
void bl_uses_note(bl_uses *uses, int stream, bool writes, const bl_use *use);

#endif
