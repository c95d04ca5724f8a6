/* SPDX-License-Identifier: Apache-2.0 */
/* Which use of memory comes before which, on devices whose work runs behind the host's back.
 *
 * Every stream has a vector clock: for each stream of the context, up to which command its next one is ordered behind.
 * It grows by what the program says (a later command of the same stream, an event waited for, a host that synchronised
 * and then went on), never by what happens to have ended already: so the same program is judged alike on every run.
 * (Lamport 1978; vector clocks: Fidge, Mattern 1988.)
 *
 * A storage remembers who last used which of its bytes: a use that is not ordered behind a write of the same bytes, or a
 * write that is not ordered behind all reads of them, is a race.  Two views of one storage that share no byte may be used
 * side by side; a view counts from its first byte to its last. */
#ifndef BL_TENSOR_CLOCK_H
#define BL_TENSOR_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/record.h"

enum { BL_MAX_STREAMS = BL_TABLE_STREAMS, BL_STREAM_NONE = -1 };

typedef struct bl_clock {
    uint64_t upto[BL_MAX_STREAMS];
} bl_clock;

/* Bytes of a storage, from `begin` on and before `end`. */
typedef struct bl_extent {
    int64_t begin, end;
} bl_extent;

/* One use: of which bytes, by which command of which stream, and where that came from. */
typedef struct bl_use {
    bl_extent extent;
    uint64_t number; /* of the command in its stream */
    uint64_t launch; /* serial; 0: a copy */
    uint32_t site;   /* in the journal's sites */
    int16_t stream;
    bool is_write;
    bool is_inherited; /* by the memory's last tenant: the devices are told to wait, the program is not */
} bl_use;

/* As many as a read and a write of each stream, and an inherited one. */
enum { BL_MAX_USES = 3 * BL_MAX_STREAMS };

typedef struct bl_uses {
    int n;
    bl_use use[BL_MAX_USES];
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

/* The place of the next use, from `at` on, that a command ordered behind `clock` would race with; -1: there is none. */
int bl_uses_conflict(const bl_uses *uses, int at, const bl_clock *clock, const bl_extent *extent, bool writes);
/* Whether all uses are ordered behind `clock`. */
bool bl_uses_are_behind(const bl_uses *uses, const bl_clock *clock);
/* `clock` is what the host has waited for: uses behind it order nothing any more. */
void bl_uses_note(bl_uses *uses, const bl_use *use, const bl_clock *clock);
/* Those of the next tenant of the memory, who inherits them: one a stream, over all its bytes. */
void bl_uses_inherit(bl_uses *to, const bl_uses *from, int64_t n_bytes);
/* All uses of a stream that has ended are forgotten. */
void bl_uses_forget(bl_uses *uses, int stream);

#endif
